//! Scales images down before they are sent: models see no more for the pixels beyond some, and are paid
//! for them, and some providers refuse large images.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    io::Cursor,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bub_kernel::{
    hooks::{Hooks, ModelStep},
    message::{Media, MediaKind, MediaSource, Part},
    model::ModelRequest,
    turn::TurnState,
};
use image::{ImageFormat, ImageReader, Limits, imageops::FilterType};

/// The largest image that is decoded, in bytes of pixels; larger ones are sent as they are.
const MAX_DECODED_BYTES: u64 = 512 << 20;
/// Images that are remembered, so that those of the conversation are scaled once and not at each step.
const MAX_REMEMBERED: usize = 64;

/// Makes images of a request smaller whose longer side has more pixels than allowed. The tape keeps them
/// as they came.
#[derive(Debug)]
pub(crate) struct ScaleImages {
    max_side: u32,
    hasher: RandomState,
    /// By the hash of the image as it came: what is sent instead, or nothing when it may stay.
    known: Mutex<HashMap<u64, Option<Media>>>,
}

impl ScaleImages {
    /// Images of at most that many pixels a side.
    pub(crate) fn new(max_side: u32) -> Self {
        Self { max_side, hasher: RandomState::new(), known: Mutex::default() }
    }

    fn scale(&self, media: &mut Media) {
        let MediaSource::Data(data) = &media.source else { return };
        if media.kind != MediaKind::Image {
            return;
        }
        let key = self.hasher.hash_one((&media.media_type, data));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED && !known.contains_key(&key) {
            known.clear();
        }
        let scaled = known.entry(key).or_insert_with(|| match smaller(media, data, self.max_side) {
            Ok(scaled) => scaled,
            Err(err) => {
                // The provider may understand what we do not.
                tracing::debug!(error = %err, media_type = media.media_type, "an image is sent as it is");
                None
            }
        });
        if let Some(scaled) = scaled {
            media.clone_from(scaled);
        }
    }
}

#[async_trait]
impl Hooks for ScaleImages {
    fn name(&self) -> &str {
        "images"
    }

    fn implements(&self) -> &'static [&'static str] {
        &["before_model"]
    }

    async fn before_model(&self, _: &TurnState, request: &mut ModelRequest) -> ModelStep {
        for part in request.messages.iter_mut().flat_map(|it| &mut it.parts) {
            if let Part::Media(media) = part {
                self.scale(media);
            }
        }
        ModelStep::Proceed
    }
}

/// The image with fewer pixels; nothing when it has few enough.
fn smaller(media: &Media, data: &str, max_side: u32) -> Result<Option<Media>, Box<dyn std::error::Error>> {
    let bytes = STANDARD.decode(data)?;
    let reader = || ImageReader::new(Cursor::new(&bytes)).with_guessed_format();
    let (width, height) = reader()?.into_dimensions()?;
    if width.max(height) <= max_side {
        return Ok(None);
    }
    let mut reader = reader()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(limits);
    let format = match reader.format() {
        Some(ImageFormat::Jpeg) => ImageFormat::Jpeg,
        // Of what moves the first picture is left.
        _ => ImageFormat::Png,
    };
    let scaled = reader.decode()?.resize(max_side, max_side, FilterType::Triangle);
    let mut out = Cursor::new(Vec::new());
    scaled.write_to(&mut out, format)?;
    let source = MediaSource::Data(STANDARD.encode(out.into_inner()));
    Ok(Some(Media { media_type: format.to_mime_type().to_owned(), source, ..media.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{DynamicImage, RgbImage};

    fn picture(width: u32, height: u32, format: ImageFormat) -> Media {
        let mut out = Cursor::new(Vec::new());
        DynamicImage::ImageRgb8(RgbImage::new(width, height)).write_to(&mut out, format).unwrap();
        let source = MediaSource::Data(STANDARD.encode(out.into_inner()));
        Media { kind: MediaKind::Image, media_type: format.to_mime_type().into(), source }
    }

    fn size(media: &Media) -> (u32, u32) {
        let MediaSource::Data(data) = &media.source else { panic!("{media:?}") };
        let bytes = STANDARD.decode(data).unwrap();
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().unwrap().into_dimensions().unwrap()
    }

    #[test]
    fn large_images_become_smaller_and_keep_their_shape() {
        let images = ScaleImages::new(100);
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let mut large = picture(400, 200, format);
            images.scale(&mut large);
            assert_eq!((size(&large), large.media_type.as_str()), ((100, 50), format.to_mime_type()));
            let mut small = picture(100, 40, format);
            let before = small.clone();
            images.scale(&mut small);
            assert_eq!(small, before);
        }
    }

    #[test]
    fn what_is_no_image_stays_as_it_is() {
        let images = ScaleImages::new(10);
        for (kind, source) in [
            (MediaKind::Image, MediaSource::Data("AAAA".into())),
            (MediaKind::Image, MediaSource::Data("not base64!".into())),
            (MediaKind::Image, MediaSource::Url("https://x/y.png".into())),
            (MediaKind::Audio, MediaSource::Data("AAAA".into())),
        ] {
            let mut media = Media { kind, media_type: "image/png".into(), source };
            let before = media.clone();
            images.scale(&mut media);
            assert_eq!(media, before);
        }
    }
}
