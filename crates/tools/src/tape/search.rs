//! Finding text on the tape.

use bub_kernel::{
    tape::{EntryKind, Tape, TapeError, TapeQuery, TextMatch, parse_bound},
    text::ascii_json,
    tool::{prelude::*, schema},
};
use serde_json::{Map, Value};

use super::failed;
use crate::spill;

/// What the text of every search result begins with; entries that have it are earlier results.
const MARK: &str = "[tape.search]";
/// The most results of earlier searches that are read over on the way to what is looked for.
const MAX_EARLIER: usize = 1_024;

/// Search this session's tape for text, newest entries first. Matches are case-insensitive substrings of an entry's kind, date, content and metadata, or words that are nearly those of the query. Equal entries are shown once.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SearchInput {
    /// Text to find. Queries of fewer than three characters are found literally only.
    query: String,
    /// How many matching entries to read at most.
    #[serde(default = "default_limit")]
    limit: i64,
    /// Earliest date or time to include, ISO 8601; UTC unless it names a zone.
    start: Option<String>,
    /// Latest date or time to include, ISO 8601; a date includes the whole day.
    end: Option<String>,
    /// Kinds of entries to search: message, tool_call, tool_result, event, anchor, system, error. All, when empty.
    #[serde(default = "default_kinds")]
    kinds: Vec<String>,
}

fn default_limit() -> i64 {
    20
}

fn default_kinds() -> Vec<String> {
    vec!["message".into(), "tool_result".into()]
}

/// An entry that matches.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeMatch {
    /// When it was made, ISO 8601.
    date: String,
    /// What it says; of a result that was set aside, an excerpt and how to read the rest.
    content: Map<String, Value>,
}

/// Entries that match.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeSearchResult {
    /// The entries, newest first.
    matches: Vec<TapeMatch>,
    /// Matching entries that are left out because they are results of earlier searches.
    filtered: usize,
}

/// The tool `tape.search`.
#[derive(Clone, Copy, Debug)]
pub struct TapeSearch;

impl Tool for TapeSearch {
    const NAME: &'static str = "tape.search";
    type Args = SearchInput;
    type Output = TapeSearchResult;

    fn parameters(derived: Value) -> Value {
        schema::titled(derived, "SearchInput")
    }

    async fn call(&self, ctx: &ToolContext, args: SearchInput) -> Result<TapeSearchResult, ToolError> {
        let limit = usize::try_from(args.limit).map_err(|_| ToolError::invalid("`limit` must be >= 0."))?;
        let bound = |text: Option<String>, is_end| {
            let text = text.filter(|it| !it.trim().is_empty());
            text.map(|it| parse_bound(&it, is_end)).transpose()
        };
        let bounds = || Ok::<_, TapeError>((bound(args.start, false)?, bound(args.end, true)?));
        let (from, to) = bounds().map_err(failed)?;
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(ToolError::invalid("Start date must be earlier than or equal to end date."));
        }
        let query = TapeQuery {
            from,
            to,
            kinds: args.kinds.iter().map(|it| EntryKind::from(it.trim())).collect(),
            text: Some(TextMatch::new(&args.query, true)),
            limit: Some(limit),
            newest_first: true,
            distinct: true,
            ..TapeQuery::default()
        };
        let (mut matches, filtered) = matches(&ctx.tape, &query, limit).await.map_err(failed)?;
        if matches.len() < limit {
            // What was set aside of a result is still part of it.
            let query = TapeQuery { limit: Some(limit - matches.len()), ..query };
            let own = Self::NAME.replace('.', "_");
            let more = spill::find(&ctx.tape, &args.query, &query, &own).await.map_err(failed)?;
            matches.extend(more.into_iter().map(|it| TapeMatch { date: it.date, content: it.content }));
        }
        Ok(TapeSearchResult { matches, filtered })
    }

    fn render(&self, found: &TapeSearchResult) -> Option<String> {
        let mut text = format!("{MARK}: {} matches ({} filtered)", found.matches.len(), found.filtered);
        for it in &found.matches {
            text.push('\n');
            text.push_str(&ascii_json(it));
        }
        Some(text)
    }
}

/// The newest matches, and how many results of earlier searches were left out before the last of them. Those
/// must not use up the limit, or who searches again and again finds nothing but their own searches.
async fn matches(tape: &Tape, query: &TapeQuery, limit: usize) -> Result<(Vec<TapeMatch>, usize), TapeError> {
    let mut n_read = limit;
    loop {
        let found = tape.read(&TapeQuery { limit: Some(n_read), ..query.clone() }).await?;
        let is_all = found.len() < n_read || n_read >= limit.saturating_add(MAX_EARLIER);
        let (mut matches, mut filtered) = (Vec::new(), 0);
        for entry in found {
            if matches.len() == limit {
                break;
            }
            let one = TapeMatch { date: entry.date.clone(), content: entry.payload.clone() };
            if ascii_json(&one).contains(MARK) {
                filtered += 1;
            } else {
                matches.push(one);
            }
        }
        if matches.len() == limit || is_all {
            return Ok((matches, filtered));
        }
        n_read = n_read.saturating_mul(4).min(limit.saturating_add(MAX_EARLIER));
    }
}
