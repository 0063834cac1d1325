//! How a text lies in the sidecar: chunks behind anchors, a manifest at the end.

use bub_kernel::{
    tape::{Entry, EntryKind, NewEntry, Tape, TapeError, TapeQuery},
    turn::RunId,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// The sidecar's name.
pub const SIDECAR: &str = "spill";
/// The most bytes of a chunk; it ends where a character does.
const CHUNK_BYTES: usize = 16_384;

/// The event that says what a handle stands for. It comes last, so a handle with a manifest is whole.
const MANIFEST: &str = "spill.manifest";
/// Which text a chunk belongs to.
const HANDLE_KEY: &str = "spill_handle";
/// Which of its chunks it is, from 0.
const CHUNK_KEY: &str = "spill_chunk";

/// What a handle stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Manifest {
    pub(super) bytes: u64,
    pub(super) chunks: u64,
    /// Whose result it was.
    pub(super) tool: String,
}

/// Why the chunks of a text can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Incomplete {
    #[error("missing chunk {idx} for handle '{handle}'")]
    MissingChunk { idx: u64, handle: String },
    #[error("missing chunks for handle '{handle}'")]
    MissingChunks { handle: String },
    #[error("invalid chunk {idx} for handle '{handle}'")]
    InvalidChunk { idx: u64, handle: String },
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// A new handle: 32 hexadecimal digits.
pub(super) fn new_handle() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Cuts a text into chunks of at most [`CHUNK_BYTES`] bytes, each ending where a character does.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (chunk, behind) = rest.split_at_checked(rest.floor_char_boundary(CHUNK_BYTES))?;
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Stores a text, all of it or nothing.
///
/// # Errors
/// Those of the tape, and those that writing it to the disk would have later.
pub(super) async fn write(
    sidecar: &Tape,
    handle: &str,
    text: &str,
    tool: &str,
    run: &RunId,
) -> Result<Manifest, TapeError> {
    let mut entries = Vec::new();
    let mut n_chunks = 0_u64;
    for chunk in chunks(text) {
        entries.push(NewEntry::anchor(&chunk_anchor(handle, n_chunks), Value::Null));
        entries.push(
            NewEntry::tool_result(vec![chunk.into()]).with_meta(HANDLE_KEY, handle).with_meta(CHUNK_KEY, n_chunks),
        );
        n_chunks += 1;
    }
    let manifest = Manifest { bytes: text.len() as u64, chunks: n_chunks, tool: tool.to_owned() };
    let data = json!({
        "handle": handle,
        "chunks": n_chunks,
        "bytes": text.len(),
        "chars": text.chars().count(),
        "lines": text.matches('\n').count() + 1,
        "tool": tool,
    });
    entries.push(NewEntry::anchor(&manifest_anchor(handle), Value::Null));
    entries.push(NewEntry::event(MANIFEST, data).with_meta(HANDLE_KEY, handle).in_run(run));
    // A fork takes anything; what it would fail with at its end must be known before a handle is shown.
    sidecar.check_append(manifest.bytes).await?;
    sidecar.append(entries).await?;
    Ok(manifest)
}

/// What a handle stands for; nothing when it is unknown.
///
/// # Errors
/// Those of the tape.
pub(super) async fn manifest(sidecar: &Tape, handle: &str) -> Result<Option<Manifest>, TapeError> {
    let query = TapeQuery::default().after_anchor(manifest_anchor(handle)).kind(EntryKind::Event).limit(1);
    let found = known(sidecar.read(&query).await)?;
    Ok(found.first().and_then(|entry| {
        let data = entry.data().filter(|_| entry.name() == Some(MANIFEST))?;
        let number = |key: &str| data.get(key).and_then(Value::as_u64);
        let is_this = data.get("handle").and_then(Value::as_str) == Some(handle);
        let tool = data.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Manifest { bytes: number("bytes")?, chunks: number("chunks")?, tool }).filter(|_| is_this)
    }))
}

/// The text of the chunks from `start` to `stop`.
///
/// # Errors
/// When one of them is missing or no chunk, and those of the tape.
pub(super) async fn read(sidecar: &Tape, handle: &str, start: u64, stop: u64) -> Result<String, Incomplete> {
    let owned = || handle.to_owned();
    let wanted = usize::try_from(stop.saturating_sub(start)).unwrap_or(usize::MAX);
    let query = TapeQuery::default().kind(EntryKind::ToolResult);
    let from = query.clone().after_anchor(chunk_anchor(handle, start)).limit(wanted);
    let found = known(sidecar.read(&from).await)?;
    if found.is_empty() {
        return Err(Incomplete::MissingChunk { idx: start, handle: owned() });
    }
    let mut text = String::new();
    let mut found = found.iter();
    for idx in start..stop {
        let entry = found.next().ok_or_else(|| Incomplete::MissingChunks { handle: owned() })?;
        match chunk_of(entry, handle, idx) {
            Some(chunk) => text.push_str(chunk),
            None => {
                // Another text may lie in between, when two were written at the same time.
                let alone = query.clone().after_anchor(chunk_anchor(handle, idx)).limit(1);
                let entries = known(sidecar.read(&alone).await)?;
                let entry = entries.first().ok_or_else(|| Incomplete::MissingChunk { idx, handle: owned() })?;
                let invalid = || Incomplete::InvalidChunk { idx, handle: owned() };
                text.push_str(chunk_of(entry, handle, idx).ok_or_else(invalid)?);
            }
        }
    }
    Ok(text)
}

/// Which chunk of which text an entry of the sidecar is, and what it says.
pub(super) fn as_chunk(entry: &Entry) -> Option<(&str, u64, &str)> {
    let handle = entry.meta.get(HANDLE_KEY)?.as_str()?;
    let idx = entry.meta.get(CHUNK_KEY)?.as_u64()?;
    match entry.payload.get("results")?.as_array()?.as_slice() {
        [Value::String(text)] => Some((handle, idx, text)),
        _ => None,
    }
}

fn chunk_of<'a>(entry: &'a Entry, handle: &str, idx: u64) -> Option<&'a str> {
    let (its_handle, its_idx, text) = as_chunk(entry)?;
    ((its_handle, its_idx) == (handle, idx)).then_some(text)
}

/// Entries behind an anchor; none when there is no such anchor.
fn known<T>(found: Result<Vec<T>, TapeError>) -> Result<Vec<T>, TapeError> {
    match found {
        Err(TapeError::NoAnchors | TapeError::NoAnchor(_)) => Ok(Vec::new()),
        other => other,
    }
}

fn chunk_anchor(handle: &str, idx: u64) -> String {
    format!("spill/{handle}/chunk/{idx}")
}

fn manifest_anchor(handle: &str) -> String {
    format!("spill/{handle}/manifest")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_end_where_characters_do() {
        let check = |text: &str, expected: &[usize]| {
            let found: Vec<_> = chunks(text).map(str::len).collect();
            assert_eq!(found, expected, "{text:.20}");
        };
        check("", &[]);
        check("ab", &[2]);
        check(&"x".repeat(16_384), &[16_384]);
        check(&"x".repeat(16_385), &[16_384, 1]);
        check(&format!("{}漢", "x".repeat(16_383)), &[16_383, 3]);
        check(&format!("{}漢", "x".repeat(16_381)), &[16_384]);
        check(&"🧪".repeat(8_193), &[16_384, 16_384, 4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn chunks_joined_are_the_text(piece in "[aé漢🧪\n\u{0}]{1,40}", times in 0usize..3_000, head in "[xé漢🧪]{0,5}") {
            let text = format!("{head}{}", piece.repeat(times));
            let found: Vec<_> = chunks(&text).collect();
            prop_assert!(found.concat() == text);
            prop_assert!(found.iter().all(|it| !it.is_empty() && it.len() <= CHUNK_BYTES));
            // Only the last one may be short by more than the character that did not fit.
            prop_assert!(found.iter().rev().skip(1).all(|it| it.len() > CHUNK_BYTES - 4));
        }
    }
}
