//! The session's model.

use bub_kernel::tool::prelude::*;
use serde_json::json;

use crate::tape::failed;

/// Set the model of this session, from the next turn on.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ModelArgs {
    /// The model as `provider:model`; empty goes back to the default.
    model_id: String,
}

/// The command `model`.
#[derive(Clone, Copy, Debug)]
pub struct Model;

impl Tool for Model {
    const NAME: &'static str = "model";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = ModelArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: ModelArgs) -> Result<String, ToolError> {
        let model = args.model_id.trim();
        ctx.tape.append_event("model_switch", json!({"model": model})).await.map_err(failed)?;
        Ok(if model.is_empty() {
            "Session model cleared (applies from the next turn).".into()
        } else {
            format!("Session model set to {model} (applies from the next turn).")
        })
    }
}
