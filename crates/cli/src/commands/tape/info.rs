//! `bub tape info`.

use std::process::ExitCode;

use anyhow::Result;
use bub::{
    kernel::{
        tape::TapeQuery,
        text::{render, thousands},
    },
    tools::tape::TokenUse,
};
use serde_json::{Value, json};

use super::{progress::Progress, shelf::Shelf};
use crate::{args::TapeArg, output, terminal::safe::safe_line};

/// How many of the newest steps are looked at for the use of tokens.
const MAX_STEPS: usize = 20;

/// Prints counts.
pub(super) async fn run(shelf: &Shelf, arg: &TapeArg, json: bool) -> Result<ExitCode> {
    let name = shelf.find_to_read(&arg.session)?;
    let tape = shelf.open(&name)?;
    let stats = Progress::new("counting").while_waiting(tape.stats()).await?;
    let path = shelf.store().path(&name);
    let bytes = std::fs::metadata(&path).map(|it| it.len()).unwrap_or_default();
    let runs = tape.read(&TapeQuery::default().event("run").newest_first().limit(MAX_STEPS)).await?;
    let usage = runs.iter().find_map(|it| it.data()?.get("usage").filter(|it| it.is_object()).cloned());
    let window = shelf.context_window(&tape).await;
    let used = TokenUse::of(&tape, window).await?;
    let sidecars: Vec<_> = shelf.store().sidecars(&name)?.iter().map(ToString::to_string).collect();
    let value = json!({
        "name": name.as_str(),
        "file": path.display().to_string(),
        "bytes": bytes,
        "entries": stats.entries,
        "last_id": stats.last_id,
        "anchors": stats.anchors,
        "last_anchor": stats.last_anchor,
        "entries_since_last_anchor": stats.entries_since_last_anchor,
        "sidecars": sidecars,
        "last_usage": usage,
        "last_token_cache_hit_rate": used.cache_hit_rate,
        "context_window": window,
        "context_window_use": used.of_window,
    });
    if json {
        output::line(&value.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null => "none".to_owned(),
            Value::Array(names) if names.is_empty() => "none".to_owned(),
            Value::Array(names) => names.iter().map(render).collect::<Vec<_>>().join(", "),
            Value::Object(counts) => {
                let shown = |(key, it): (&String, &Value)| {
                    format!("{}: {}", key, it.as_u64().map_or_else(|| render(it), thousands))
                };
                counts.iter().map(shown).collect::<Vec<_>>().join(", ")
            }
            Value::Number(it) => match it.as_u64() {
                Some(count) => thousands(count),
                // The others are parts of a whole.
                None => it.as_f64().map_or_else(|| it.to_string(), |it| format!("{:.2}%", it * 100.0)),
            },
            other => render(other),
        };
        output::line(&format!("{key}: {}", safe_line(&text)))?;
    }
    Ok(ExitCode::SUCCESS)
}
