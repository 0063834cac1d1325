//! Facts about the tape.

use bub_kernel::{
    tape::{Entry, Tape, TapeError, TapeQuery},
    tool::prelude::*,
};
use serde_json::Value;

use super::failed;

/// The newest `run` events that are looked at for one that tells tokens.
const MAX_RUNS: usize = 1024;

/// Show facts about this session's tape: its name, how many entries and anchors it has, the newest anchor and the entries since then, the tokens of the last model call with its cache hit rate, and how full the model's context is.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TapeInfoArgs {}

/// Facts about a tape.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeInfoResult {
    /// The tape's name.
    name: String,
    /// All entries, those of the running turn included.
    entries: u64,
    /// Anchors among them.
    anchors: u64,
    /// Name of the newest anchor.
    last_anchor: Option<String>,
    /// Entries after the newest anchor.
    entries_since_last_anchor: u64,
    /// Tokens of the last model call.
    last_token_usage: Option<u64>,
    /// The part of its input tokens that came from the provider's cache, 0 to 1.
    last_token_cache_hit_rate: Option<f64>,
    /// Tokens that fit into the model's context, if that is known.
    context_window: Option<u64>,
    /// The part of the context that the last model call's input filled, 0 to 1; unknown until a model is called after an anchor.
    context_window_use: Option<f64>,
}

/// The tool `tape.info`.
#[derive(Clone, Copy, Debug)]
pub struct TapeInfo;

impl Tool for TapeInfo {
    const NAME: &'static str = "tape.info";
    type Args = TapeInfoArgs;
    type Output = TapeInfoResult;

    async fn call(&self, ctx: &ToolContext, _: TapeInfoArgs) -> Result<TapeInfoResult, ToolError> {
        let stats = ctx.tape.stats().await.map_err(failed)?;
        let window = ctx.host.context_window(ctx).await;
        let used = TokenUse::of(&ctx.tape, window).await.map_err(failed)?;
        Ok(TapeInfoResult {
            name: ctx.tape.name().to_string(),
            entries: stats.entries,
            anchors: stats.anchors,
            last_anchor: stats.last_anchor,
            entries_since_last_anchor: stats.entries_since_last_anchor,
            last_token_usage: used.total,
            last_token_cache_hit_rate: used.cache_hit_rate,
            context_window: window,
            context_window_use: used.of_window,
        })
    }

    fn render(&self, info: &TapeInfoResult) -> Option<String> {
        let or_none = |it: Option<String>| it.unwrap_or_else(|| "None".into());
        let mut text = format!(
            "name: {}\nentries: {}\nanchors: {}\nlast_anchor: {}\nentries_since_last_anchor: {}\n\
             last_token_usage: {}\nlast_token_cache_hit_rate: {}",
            info.name,
            info.entries,
            info.anchors,
            or_none(info.last_anchor.clone()),
            info.entries_since_last_anchor,
            or_none(info.last_token_usage.map(|it| it.to_string())),
            or_none(info.last_token_cache_hit_rate.map(|it| format!("{:.2}%", it * 100.0))),
        );
        if let Some(window) = info.context_window {
            let shown = or_none(info.context_window_use.map(|it| format!("{:.2}%", it * 100.0)));
            text.push_str(&format!("\ncontext_window: {window}\ncontext_window_use: {shown}"));
        }
        Some(text)
    }
}

/// What the newest model call on a tape took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenUse {
    /// Its tokens.
    pub total: Option<u64>,
    /// The part of its input that came from the provider's cache, 0 to 1.
    pub cache_hit_rate: Option<f64>,
    /// The part of the window that its input filled, 0 to 1; none while no model was called after an anchor.
    pub of_window: Option<f64>,
}

impl TokenUse {
    /// Reads a tape from its end.
    ///
    /// # Errors
    /// When it can't be read.
    pub async fn of(tape: &Tape, window: Option<u64>) -> Result<Self, TapeError> {
        let usage = last_usage(tape).await?;
        let of_window = match window {
            Some(window) if window > 0 => input_since_anchor(tape).await.map(|it| it as f64 / window as f64),
            _ => None,
        };
        Ok(Self {
            total: usage.as_ref().and_then(|it| it.get("total_tokens")?.as_u64()),
            cache_hit_rate: usage.as_ref().and_then(cache_hit_rate),
            of_window,
        })
    }
}

/// The usage of the newest model call that tells its total.
async fn last_usage(tape: &Tape) -> Result<Option<Value>, TapeError> {
    let usage_of =
        |it: &Entry| it.data()?.get("usage").filter(|it| it.get("total_tokens").is_some_and(Value::is_u64)).cloned();
    let mut limit = 1;
    loop {
        let runs = tape.read(&TapeQuery::default().event("run").newest_first().limit(limit)).await?;
        if let Some(usage) = runs.iter().find_map(|it| usage_of(it)) {
            return Ok(Some(usage));
        }
        if runs.len() < limit || limit >= MAX_RUNS {
            return Ok(None);
        }
        limit *= 32;
    }
}

/// The input tokens of the newest model call since the newest anchor: before it, the context was another.
async fn input_since_anchor(tape: &Tape) -> Option<u64> {
    let runs = TapeQuery::default().after_last_anchor().event("run").newest_first().limit(MAX_RUNS);
    let usage_of = |it: &Entry| input_tokens(it.data()?.get("usage")?);
    // Without an anchor there is no context yet.
    tape.read(&runs).await.ok()?.iter().find_map(|it| usage_of(it))
}

/// Input tokens, in the words of either release.
fn input_tokens(usage: &Value) -> Option<u64> {
    usage.get("input_tokens").or_else(|| usage.get("prompt_tokens"))?.as_u64()
}

/// Input tokens from the cache by all input tokens, in the words of either release.
fn cache_hit_rate(usage: &Value) -> Option<f64> {
    let count = |keys: [&str; 2]| {
        let [new, old] = keys;
        usage.get(new).or_else(|| usage.pointer(old))?.as_u64()
    };
    let cached = count(["cached_tokens", "/prompt_tokens_details/cached_tokens"])?;
    let input = count(["input_tokens", "/prompt_tokens"])?;
    (input > 0).then(|| cached as f64 / input as f64)
}
