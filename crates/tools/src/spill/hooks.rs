//! Setting results aside.

use async_trait::async_trait;
use bub_kernel::{
    error::ToolError,
    hooks::{Hooks, ToolCall},
    message::content_blocks,
    tape::NewEntry,
    text::{elide, json, thousands},
    tool::{Caller, Tool as _, ToolContext, ToolReply},
};
use serde_json::{Value, json};

use super::{SpillRead, store};

/// Characters that one token is taken for.
const CHARS_PER_TOKEN: u64 = 4;
/// Characters that are left in the conversation.
const PREVIEW_CHARS: usize = 600;

/// When a result is set aside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpillSettings {
    /// From how many tokens on, of 4 characters each; 0 is never.
    pub threshold: u32,
}

impl Default for SpillSettings {
    /// 4,096 tokens.
    fn default() -> Self {
        Self { threshold: 4096 }
    }
}

/// Puts results of model calls that are too long into the sidecar, and leaves an excerpt and a handle.
/// Registered before all others, these hooks see what the others made of a result.
#[derive(Clone, Copy, Debug)]
pub struct SpillHooks {
    settings: SpillSettings,
}

impl SpillHooks {
    /// Hooks with these settings.
    #[must_use]
    pub fn new(settings: SpillSettings) -> Self {
        Self { settings }
    }

    fn is_long(&self, text: &str) -> bool {
        let limit = u64::from(self.settings.threshold) * CHARS_PER_TOKEN;
        // A text has at least as many bytes as characters.
        text.len() as u64 >= limit && text.chars().count() as u64 >= limit
    }

    /// What to leave in the conversation instead of `text`; nothing when it is short enough.
    async fn bound(&self, ctx: &ToolContext, call: &ToolCall, text: &str) -> Option<String> {
        if !self.is_long(text) {
            return None;
        }
        let sidecar = ctx.tape.sidecar(store::SIDECAR).ok()?;
        let (handle, tool) = (store::new_handle(), alias(&call.tool));
        let preview = elide(text, PREVIEW_CHARS);
        let bytes = thousands(text.len() as u64);
        let (data, left) = match store::write(&sidecar, &handle, text, &tool, &ctx.run).await {
            Ok(manifest) => (
                json!({
                    "status": "ok", "handle": handle, "bytes": text.len(), "chunks": manifest.chunks, "tool": tool,
                }),
                format!(
                    "[tool output spilled: {bytes} bytes in {} chunks; handle: {handle}]\n\
                     [read with: spill_read(handle='{handle}', cursor=0, count=1, from_end=False)]\n{preview}",
                    thousands(manifest.chunks),
                ),
            ),
            Err(err) => {
                tracing::warn!(tool, error = %err, "a result could not be set aside");
                (
                    json!({
                        "status": "error", "handle": handle, "bytes": text.len(), "tool": tool,
                        "error": err.to_string(),
                    }),
                    format!("[tool output truncated: {bytes} bytes; spill storage failed]\n{preview}"),
                )
            }
        };
        let event = NewEntry::event("spill.write", data).in_run(&ctx.run).outside_context();
        if let Err(err) = ctx.tape.append([event]).await {
            tracing::warn!(error = %err, "spill.write was not recorded");
        }
        Some(left)
    }
}

#[async_trait]
impl Hooks for SpillHooks {
    fn name(&self) -> &str {
        "spill"
    }

    fn implements(&self) -> &[&'static str] {
        &["after_tool"]
    }

    async fn after_tool(&self, ctx: &ToolContext, call: &ToolCall, result: &mut Result<ToolReply, ToolError>) {
        if self.settings.threshold == 0 || !can_be_read_back(ctx) || alias(&call.tool) == alias(SpillRead::NAME) {
            return;
        }
        match result {
            Ok(reply) => match content_blocks(&reply.value) {
                Some(blocks) => {
                    if let Some(left) = self.bound(ctx, call, &text_of(blocks)).await {
                        replace_text(&mut reply.value, left);
                        reply.text = None;
                    }
                }
                None => {
                    if let Some(left) = self.bound(ctx, call, &reply.rendering()).await {
                        *reply = ToolReply::text(left);
                    }
                }
            },
            Err(err) => {
                if let Some(left) = self.bound(ctx, call, &json(&err.to_value())).await {
                    *result = Ok(ToolReply::text(left));
                }
            }
        }
    }
}

/// Whether a model reads the result and has the tool to read the rest of it. Code and people get all.
fn can_be_read_back(ctx: &ToolContext) -> bool {
    let is_offered = match &ctx.step {
        Some(view) => view.direct.iter().any(|it| it.name() == SpillRead::NAME),
        None => ctx.tools.get(SpillRead::NAME).is_some() && ctx.state.allows_tool(SpillRead::NAME),
    };
    ctx.caller == Caller::Model && is_offered
}

/// The name that the model knows a tool by.
fn alias(name: &str) -> String {
    name.replace('.', "_")
}

fn block_text(block: &Value) -> Option<&str> {
    let is_text = block.get("type").and_then(Value::as_str) == Some("text");
    block.get("text").and_then(Value::as_str).filter(|_| is_text)
}

/// The words of a content result.
fn text_of(blocks: &[Value]) -> String {
    blocks.iter().filter_map(block_text).collect()
}

/// Puts one text in the place of all texts of a content result, in front of everything else.
fn replace_text(value: &mut Value, text: String) {
    if let Some(Value::Array(blocks)) = value.get_mut("content") {
        blocks.retain(|it| block_text(it).is_none());
        blocks.insert(0, json!({"type": "text", "text": text}));
    }
}
