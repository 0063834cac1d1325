//! How hard the session's model thinks.

use bub_kernel::tool::prelude::*;
use serde_json::json;

use crate::tape::failed;

/// Set the reasoning effort of this session, from the next turn on.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReasoningEffortArgs {
    /// The effort in the provider's words, such as `low` or `high`.
    reasoning_effort: String,
}

/// The command `reasoning_effort`.
#[derive(Clone, Copy, Debug)]
pub struct ReasoningEffort;

impl Tool for ReasoningEffort {
    const NAME: &'static str = "reasoning_effort";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = ReasoningEffortArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: ReasoningEffortArgs) -> Result<String, ToolError> {
        let effort = args.reasoning_effort.trim();
        if effort.is_empty() {
            return Err(ToolError::invalid("reasoning_effort must not be empty"));
        }
        let data = json!({"reasoning_effort": effort});
        ctx.tape.append_event("reasoning_effort_switch", data).await.map_err(failed)?;
        Ok(format!("Session reasoning effort set to {effort} (applies from the next turn)."))
    }
}
