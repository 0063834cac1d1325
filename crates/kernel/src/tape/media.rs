//! Pictures, sounds and films: named by entries where a store keeps them apart, put into requests.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Entry, EntryKind, Tape, TapeError, TapeName, TapeStore};
use crate::{
    message::{Media, MediaSource, Message, Part, content_blocks, split_data_url},
    text::human_size,
};

/// What the addresses of media begin with that a store keeps apart; the SHA-256 of its bytes follows, in
/// hexadecimal digits.
pub const MEDIA_SCHEME: &str = "sha256:";

/// The most bytes of one picture, sound or film that are sent to a model.
const MAX_ITEM: u64 = 20 << 20;
/// The most bytes of media in one request; what was said last has precedence.
const MAX_IN_ALL: u64 = 40 << 20;
/// Appends entries, with their media apart if the store keeps it so.
pub(super) async fn append(
    store: &dyn TapeStore,
    tape: &TapeName,
    mut entries: Vec<Arc<Entry>>,
) -> Result<(), TapeError> {
    let kept = set_aside(store, &mut entries).await;
    store.append(tape, &entries).await?;
    ensure(store, kept).await;
    Ok(())
}

/// Media that entries name: addresses, and what is there in base64.
pub(super) type Kept = BTreeMap<String, String>;

/// Hands the media of entries to the store, if it keeps media, and leaves addresses. What can't be
/// stored stays where it is; what is no base64 becomes a text that says so.
///
/// The caller writes the entries and then calls [`ensure`].
pub(super) async fn set_aside(store: &dyn TapeStore, entries: &mut [Arc<Entry>]) -> Kept {
    let mut kept = Kept::new();
    for entry in entries {
        let found = media_of(entry);
        if found.is_empty() {
            continue;
        }
        let mut changed = Entry::clone(entry);
        for data in found {
            match store.put_media(&data).await {
                Ok(url) => {
                    change(&mut changed, &data, |block| refer(block, &url));
                    kept.insert(url, data);
                }
                Err(TapeError::InvalidMedia) => change(&mut changed, &data, refuse),
                Err(TapeError::Unsupported(_)) => return kept,
                Err(err) => tracing::warn!(error = %err, "media stays on the tape itself"),
            }
        }
        *entry = Arc::new(changed);
    }
    kept
}

/// Stores media once more that was thrown away while the entries that name it were not written yet.
pub(super) async fn ensure(store: &dyn TapeStore, kept: Kept) {
    for (url, data) in kept {
        if let Err(err) = store.put_media(&data).await {
            tracing::warn!(url, error = %err, "media was not kept");
        }
    }
}

impl Tape {
    /// Puts the media that messages name into them, as far as a request has room for it. What is too
    /// large or no longer kept becomes a text that says so.
    pub async fn load_media(&self, messages: &mut [Message]) {
        let mut room = MAX_IN_ALL;
        for message in messages.iter_mut().rev() {
            for part in message.parts.iter_mut().rev() {
                let Part::Media(media) = part else { continue };
                match self.load(media, room).await {
                    Ok(size) => room = room.saturating_sub(size),
                    Err(why) => {
                        let what = if media.media_type.is_empty() { media.kind.as_str() } else { &media.media_type };
                        *part = Part::Text(left_out(what, &why));
                    }
                }
            }
        }
    }

    /// Puts media in the place of its address and returns its size, zero if it is somewhere else.
    async fn load(&self, media: &mut Media, room: u64) -> Result<u64, String> {
        if let MediaSource::Url(url) = &media.source
            && let Some((media_type, data)) = split_data_url(url)
        {
            if media.media_type.is_empty() {
                media.media_type = media_type.to_owned();
            }
            media.source = MediaSource::Data(data.to_owned());
        }
        let failed = |err: TapeError| err.to_string();
        match &media.source {
            MediaSource::Data(data) if is_base64(data) => fitting(data.len() as u64 / 4 * 3, room),
            MediaSource::Data(_) => Err(failed(TapeError::InvalidMedia)),
            MediaSource::Url(url) if url.starts_with(MEDIA_SCHEME) => {
                let gone = || "it is no longer kept".to_owned();
                let size = self.store.media_size(url).await.map_err(failed)?.ok_or_else(gone)?;
                fitting(size, room)?;
                let data = self.store.get_media(url).await.map_err(failed)?.ok_or_else(gone)?;
                media.source = MediaSource::Data(data);
                Ok(size)
            }
            MediaSource::Url(_) => Ok(0),
        }
    }
}

/// The size, if there is room for it.
fn fitting(size: u64, room: u64) -> Result<u64, String> {
    if size > MAX_ITEM {
        return Err(format!("it has {}, more than {}", human_size(size), human_size(MAX_ITEM)));
    }
    if size > room {
        return Err(format!("the media of a request may have {} in all", human_size(MAX_IN_ALL)));
    }
    Ok(size)
}

/// Whether a text consists of what base64 consists of.
fn is_base64(data: &str) -> bool {
    let is_letter = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/' | b'-' | b'_');
    let unpadded = data.trim_end().trim_end_matches('=');
    !unpadded.is_empty() && unpadded.bytes().all(|it| is_letter(it) || it.is_ascii_whitespace())
}

/// The different contents of an entry's media, in base64.
fn media_of(entry: &Entry) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for data in contents(entry).into_iter().flatten().filter_map(data_of) {
        if found.iter().all(|it| it != data) {
            found.push(data.to_owned());
        }
    }
    found
}

/// Changes the blocks of an entry that have this content.
fn change(entry: &mut Entry, data: &str, change: impl FnMut(&mut Value)) {
    contents_mut(entry).into_iter().flatten().filter(|it| data_of(it) == Some(data)).for_each(change);
}

/// The lists of content blocks that an entry has.
fn contents(entry: &Entry) -> Vec<&[Value]> {
    match entry.kind {
        EntryKind::Message | EntryKind::ToolCall => {
            let content = entry.payload.get("content");
            content.and_then(Value::as_array).map(Vec::as_slice).into_iter().collect()
        }
        EntryKind::ToolResult => {
            let results = entry.payload.get("results").and_then(Value::as_array);
            results.into_iter().flatten().filter_map(content_blocks).map(Vec::as_slice).collect()
        }
        _ => Vec::new(),
    }
}

/// As [`contents`], to be changed.
fn contents_mut(entry: &mut Entry) -> Vec<&mut Vec<Value>> {
    match entry.kind {
        EntryKind::Message | EntryKind::ToolCall => {
            entry.payload.get_mut("content").and_then(Value::as_array_mut).into_iter().collect()
        }
        EntryKind::ToolResult => {
            let results = entry.payload.get_mut("results").and_then(Value::as_array_mut).into_iter().flatten();
            results
                .filter(|it| content_blocks(it).is_some())
                .filter_map(|it| it.get_mut("content")?.as_array_mut())
                .collect()
        }
        _ => Vec::new(),
    }
}

/// What a media block holds in base64, be it as `data` or as a `data:` address.
fn data_of(block: &Value) -> Option<&str> {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    if !matches!(text("type")?, "image" | "audio" | "video") {
        return None;
    }
    text("data").or_else(|| Some(split_data_url(text("url")?)?.1))
}

/// Names an address in the place of what a block holds.
fn refer(block: &mut Value, url: &str) {
    let Some(fields) = block.as_object_mut() else { return };
    let guessed = fields.remove("url").as_ref().and_then(Value::as_str).and_then(split_data_url).map(|it| it.0.into());
    if let Some(media_type) = guessed.filter(|_| !fields.contains_key("media_type")) {
        fields.insert("media_type".into(), media_type);
    }
    fields.remove("data");
    fields.insert("url".into(), url.into());
}

/// Turns a block whose content can't be decoded into a text.
fn refuse(block: &mut Value) {
    let name = |key: &str| block.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let what = name("media_type").or_else(|| name("type")).unwrap_or("media").to_owned();
    *block = Part::Text(left_out(&what, &TapeError::InvalidMedia.to_string())).to_block();
}

fn left_out(what: &str, why: &str) -> String {
    format!("[{what} left out: {why}]")
}
