//! `attach_image`, `attach_audio`, `attach_video`: media into the result of the run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bub_kernel::{
    environment::Environment,
    error::ToolError,
    message::{Media, MediaKind, MediaSource},
    text::human_size,
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSpec},
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::media;

/// The most media that one run may attach.
pub const MAX_ATTACHMENTS: usize = 50;
/// The most bytes of all of them, as they are sent.
pub const MAX_ATTACHED_BYTES: usize = 40 << 20;
/// The most bytes of one file.
pub const MAX_FILE_BYTES: u64 = 20 << 20;

/// What one run has attached, in order. It travels in the state of the run's calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachments(Arc<Mutex<Vec<Media>>>);

impl Attachments {
    fn push(&self, media: Media) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_ATTACHMENTS {
            return Err(format!("a run attaches at most {MAX_ATTACHMENTS} files"));
        }
        let size = all.iter().chain([&media]).map(size_of).sum::<usize>();
        if size > MAX_ATTACHED_BYTES {
            return Err(format!("a run attaches at most {} in all", human_size(MAX_ATTACHED_BYTES as u64)));
        }
        all.push(media);
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<Media> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn size_of(media: &Media) -> usize {
    match &media.source {
        MediaSource::Data(text) | MediaSource::Url(text) => text.len(),
    }
}

/// Attaches media of one kind to the result of the run that calls it.
#[derive(Debug)]
pub struct Attach {
    kind: MediaKind,
    name: String,
    spec: OnceLock<Arc<ToolSpec>>,
}

impl Attach {
    /// The tool for one kind: `attach_image` and so on.
    #[must_use]
    pub fn new(kind: MediaKind) -> Self {
        Self { kind, name: format!("attach_{}", kind.as_str()), spec: OnceLock::new() }
    }

    /// The tools for all kinds, in the order in which they are listed.
    #[must_use]
    pub fn all() -> Vec<Arc<dyn DynTool>> {
        let kinds = [MediaKind::Image, MediaKind::Audio, MediaKind::Video];
        kinds.into_iter().map(|it| Arc::new(Self::new(it)) as Arc<dyn DynTool>).collect()
    }

    async fn attach(&self, ctx: &ToolContext, args: Value) -> Result<String, ToolError> {
        let kind = self.kind.as_str();
        let Some(attachments) = ctx.state.slot::<Attachments>() else {
            return Err(ToolError::invalid(format!("tools.attach_{kind} can only be called from run_code.")));
        };
        let failed = |reason: String| ToolError::invalid(format!("Cannot load the {kind}: {reason}"));
        let media = match args.get(kind) {
            Some(Value::String(place)) => load_media(&*ctx.env, place, Some(self.kind)).await.map_err(failed)?,
            Some(value) => media::decode(value)?,
            None => return Err(failed("nothing was passed".to_owned())),
        };
        attachments.push(media).map_err(failed)?;
        Ok(format!("The {kind} is attached to the run_code result."))
    }
}

/// Finds what a text means: an address, a data URL, or a path in the environment. Without a kind, its
/// media type tells it.
///
/// # Errors
/// A sentence for people.
pub async fn load_media(env: &dyn Environment, place: &str, kind: Option<MediaKind>) -> Result<Media, String> {
    let lower = place.get(..8).unwrap_or(place).to_ascii_lowercase();
    let of = |media_type: String, source| match kind.or_else(|| kind_of(&media_type)) {
        Some(kind) => Ok(Media { kind, media_type, source }),
        None => Err(format!("'{media_type}' is no image, audio or video")),
    };
    if lower.starts_with("data:") {
        let (media_type, bytes) = media::split_data_url(place)?;
        return of(media_type, MediaSource::Data(STANDARD.encode(bytes)));
    }
    if ["http://", "https://", "gs://"].iter().any(|it| lower.starts_with(it)) {
        let path = place.split(['?', '#']).next().and_then(|it| it.split_once("://")?.1.split_once('/'));
        let media_type = path.and_then(|(_, it)| media::guess_type(it)).ok_or_else(|| cannot_guess(place))?;
        return of(media_type, MediaSource::Url(place.to_owned()));
    }
    let media_type = media::guess_type(place).ok_or_else(|| cannot_guess(place))?;
    let path = env.resolve(place).map_err(|err| err.to_string())?;
    let bytes = env.read_bytes(&path, MAX_FILE_BYTES).await.map_err(|err| err.to_string())?;
    of(media_type, MediaSource::Data(STANDARD.encode(bytes)))
}

/// The kind that a media type begins with.
fn kind_of(media_type: &str) -> Option<MediaKind> {
    let kinds = [MediaKind::Image, MediaKind::Audio, MediaKind::Video];
    kinds.into_iter().find(|it| media_type.split('/').next() == Some(it.as_str()))
}

fn cannot_guess(place: &str) -> String {
    let shown = bub_kernel::text::elide(place, 200);
    format!("cannot guess the media type of '{shown}'")
}

impl DynTool for Attach {
    fn spec(&self) -> &Arc<ToolSpec> {
        self.spec.get_or_init(|| {
            Arc::new(ToolSpec {
                name: self.name.clone().into(),
                description: format!(
                    "Attach {what} to the result of the current run_code call, where the model sees it. Takes \
                     a republic.{title}, or a text: the path of a file, an http(s) or gs address, or a data URL.",
                    what = match self.kind {
                        MediaKind::Image => "an image",
                        MediaKind::Audio => "an audio clip",
                        MediaKind::Video => "a video",
                    },
                    title = title(self.kind),
                ),
                exposure: Exposure::Code,
                deferred: false,
                parameters: parameters(self.kind),
                output: Some(json!({"type": "string"}).into()),
            })
        })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn call<'a>(&'a self, ctx: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move { self.attach(ctx, args).await.map(ToolReply::text) })
    }
}

fn title(kind: MediaKind) -> &'static str {
    match kind {
        MediaKind::Image => "Image",
        MediaKind::Audio => "Audio",
        MediaKind::Video => "Video",
    }
}

fn parameters(kind: MediaKind) -> Value {
    let title = title(kind);
    let object = json!({
        "properties": {
            "media_type": {"title": "Media Type", "type": "string"},
            "data": {"anyOf": [{"format": "binary", "type": "string"}, {"type": "null"}], "default": null, "title": "Data"},
            "url": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Url"},
        },
        "required": ["media_type"],
        "title": title,
        "type": "object",
    });
    let parameter = json!({
        "$defs": {title: object},
        "anyOf": [{"$ref": format!("#/$defs/{title}")}, {"type": "string"}],
    });
    let mut properties = Map::new();
    properties.insert(kind.as_str().to_owned(), parameter);
    json!({"type": "object", "properties": properties, "required": [kind.as_str()]})
}
