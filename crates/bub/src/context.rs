//! The built-in hooks about the model's context: how large it is, and what is kept when it overflows.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bub_kernel::{
    hooks::{CutOff, Hooks},
    model::ModelSpec,
    tool::ToolContext,
};
use serde_json::json;

use crate::{settings::Settings, summary, windows::Windows};

/// How long the model may take for a summary, all tries together.
const SUMMARY_WAIT: Duration = Duration::from_secs(120);

/// Tells the window of models, and asks the session's model for summaries when the settings say so.
pub(crate) struct ContextHooks {
    window: Option<u64>,
    asks_model: bool,
    windows: Windows,
}

impl ContextHooks {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            window: settings.context_window,
            asks_model: settings.context_summary,
            windows: Windows::new(&settings.paths),
        }
    }
}

#[async_trait]
impl Hooks for ContextHooks {
    fn name(&self) -> &str {
        "context"
    }

    fn implements(&self) -> &[&'static str] {
        if self.asks_model { &["summarize", "context_window"] } else { &["context_window"] }
    }

    async fn context_window(&self, model: &str) -> Option<u64> {
        match self.window {
            Some(window) => Some(window),
            None => self.windows.of(&ModelSpec::parse(model).ok()?).await,
        }
    }

    async fn summarize(&self, ctx: &ToolContext, cut: &CutOff<'_>) -> Option<String> {
        if !self.asks_model {
            return None;
        }
        let started = Instant::now();
        let mut asked = summary::Asked::default();
        let window = ctx.host.context_window(ctx).await;
        let work = summary::ask(ctx, cut, window, &mut asked);
        let done = match tokio::time::timeout(SUMMARY_WAIT, work).await {
            Ok(done) => done,
            Err(_) => Err(format!("the model wrote no summary within {} s", SUMMARY_WAIT.as_secs())),
        };
        let mut data = json!({
            "status": if done.is_ok() { "ok" } else { "error" },
            "model": asked.model,
            "tries": asked.tries,
            "characters": asked.characters,
            "elapsed_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(fields) = data.as_object_mut() {
            if let Some(usage) = asked.usage {
                fields.insert("usage".to_owned(), usage.to_value());
            }
            if let Err(reason) = &done {
                fields.insert("error".to_owned(), reason.clone().into());
            }
        }
        if let Err(err) = ctx.tape.append_event("context.summary", data).await {
            tracing::warn!(%err, "a summary was not recorded");
        }
        done.map_err(|reason| tracing::warn!(reason, "the conversation was not summed up")).ok()
    }
}
