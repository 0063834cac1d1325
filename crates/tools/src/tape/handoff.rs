//! A new start for the context.

use bub_kernel::tool::prelude::*;
use serde_json::json;

use super::failed;

/// Set an anchor on this session's tape: from here on the conversation starts anew, and what came before can still be found by tape.search. Put into the summary whatever must not be forgotten; none is written for you.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TapeHandoffArgs {
    /// Name of the anchor.
    #[serde(default = "default_name")]
    name: String,
    /// What to remember.
    #[serde(default)]
    summary: String,
}

fn default_name() -> String {
    "handoff".into()
}

/// The anchor that was set.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeHandoffResult {
    /// Its name.
    anchor: String,
}

/// The tool `tape.handoff`.
#[derive(Clone, Copy, Debug)]
pub struct TapeHandoff;

impl Tool for TapeHandoff {
    const NAME: &'static str = "tape.handoff";
    type Args = TapeHandoffArgs;
    type Output = TapeHandoffResult;

    async fn call(&self, ctx: &ToolContext, args: TapeHandoffArgs) -> Result<TapeHandoffResult, ToolError> {
        // An anchor without a name could not be asked for.
        let anchor = if args.name.trim().is_empty() { default_name() } else { args.name };
        ctx.tape.handoff(&anchor, json!({"summary": args.summary})).await.map_err(failed)?;
        Ok(TapeHandoffResult { anchor })
    }

    fn render(&self, done: &TapeHandoffResult) -> Option<String> {
        Some(format!("anchor added: {}", done.anchor))
    }
}
