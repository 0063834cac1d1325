//! Finding text inside of what was set aside.

use std::collections::HashMap;

use bub_kernel::{
    tape::{EntryKind, Tape, TapeError, TapeQuery, TextMatch},
    text::thousands,
};
use serde_json::{Map, Value, json};

use super::store;

/// Characters before and behind the text that was found.
const AROUND: usize = 200;

/// A chunk that has the text.
pub(crate) struct Found {
    pub(crate) date: String,
    /// Where it is, how to read it, and the text with what is around it.
    pub(crate) content: Map<String, Value>,
}

/// Chunks that have the text of a search literally, newest first, within the limits of the search. A
/// chunk is too long to be shown whole, so what is shown is an excerpt. Results of the tool `not_of` are
/// passed over.
///
/// # Errors
/// Those of the tape.
pub(crate) async fn find(tape: &Tape, text: &str, search: &TapeQuery, not_of: &str) -> Result<Vec<Found>, TapeError> {
    let wants_results = search.kinds.is_empty() || search.kinds.contains(&EntryKind::ToolResult);
    let Some(sidecar) = tape.sidecar(store::SIDECAR).ok().filter(|_| wants_results) else { return Ok(Vec::new()) };
    let query = TapeQuery {
        kinds: vec![EntryKind::ToolResult],
        text: Some(TextMatch::new(text, false)),
        distinct: false,
        ..search.clone()
    };
    let mut is_wanted: HashMap<String, bool> = HashMap::new();
    let mut found = Vec::new();
    for entry in sidecar.read(&query).await? {
        let Some((handle, idx, chunk)) = store::as_chunk(&entry) else { continue };
        let is_wanted = match is_wanted.get(handle) {
            Some(known) => *known,
            None => {
                // What has no manifest can't be read.
                let manifest = store::manifest(&sidecar, handle).await?;
                let wanted = manifest.is_some_and(|it| it.tool != not_of);
                *is_wanted.entry(handle.to_owned()).or_insert(wanted)
            }
        };
        // The match may also lie in what is around the text on the tape.
        let Some(excerpt) = excerpt(chunk, text).filter(|_| is_wanted) else { continue };
        let read = format!("spill_read(handle='{handle}', cursor={idx}, count=1, from_end=False)");
        if let Value::Object(content) = json!({"spilled": excerpt, "read_with": read}) {
            found.push(Found { date: entry.date.clone(), content });
        }
    }
    Ok(found)
}

/// The text where it is first found, with what is around it.
fn excerpt(chunk: &str, text: &str) -> Option<String> {
    let wanted = text.trim().to_lowercase();
    // Lower case may be longer than upper case, so places are counted in characters of the original.
    let lower: Vec<(usize, char)> =
        chunk.char_indices().flat_map(|(at, it)| it.to_lowercase().map(move |it| (at, it))).collect();
    let joined: String = lower.iter().map(|(_, it)| it).collect();
    let found = joined.find(&wanted)?;
    let first = joined.get(..found)?.chars().count();
    let last = first + wanted.chars().count();
    let at = |idx: usize| lower.get(idx).map_or(chunk.len(), |(at, _)| *at);
    let start = at(first.saturating_sub(AROUND));
    let end = at(last.saturating_add(AROUND));
    let mut excerpt = chunk.get(start..end)?.to_owned();
    if start > 0 {
        let n_chars = chunk.get(..start)?.chars().count() as u64;
        excerpt.insert_str(0, &format!("...[{} chars]...", thousands(n_chars)));
    }
    if end < chunk.len() {
        let n_chars = chunk.get(end..)?.chars().count() as u64;
        excerpt.push_str(&format!("...[{} chars]...", thousands(n_chars)));
    }
    Some(excerpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_show_the_text_and_what_is_around_it() {
        let around = "é".repeat(300);
        let check = |chunk: &str, text: &str, expected: Option<&str>| {
            assert_eq!(excerpt(chunk, text).as_deref(), expected, "{text}");
        };
        check("one two three", " TWO ", Some("one two three"));
        check("one", "two", None);
        check("İstanbul needle", "NEEDLE", Some("İstanbul needle"));
        let found = excerpt(&format!("{around}needle{around}"), "needle").unwrap();
        let kept = "é".repeat(200);
        assert_eq!(found, format!("...[100 chars]...{kept}needle{kept}...[100 chars]..."));
    }
}
