//! The tape's anchors.

use bub_kernel::{
    tape::{EntryKind, TapeQuery},
    tool::prelude::*,
};

use super::failed;

/// List the names of all anchors of this session's tape, oldest first.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TapeAnchorsArgs {}

/// Anchors of a tape.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeAnchorsResult {
    /// Their names, oldest first; `-` for one without a name.
    anchors: Vec<String>,
}

/// The tool `tape.anchors`.
#[derive(Clone, Copy, Debug)]
pub struct TapeAnchors;

impl Tool for TapeAnchors {
    const NAME: &'static str = "tape.anchors";
    type Args = TapeAnchorsArgs;
    type Output = TapeAnchorsResult;

    async fn call(&self, ctx: &ToolContext, _: TapeAnchorsArgs) -> Result<TapeAnchorsResult, ToolError> {
        let anchors = ctx.tape.read(&TapeQuery::default().kind(EntryKind::Anchor)).await.map_err(failed)?;
        Ok(TapeAnchorsResult { anchors: anchors.iter().map(|it| it.name().unwrap_or("-").to_owned()).collect() })
    }

    fn render(&self, found: &TapeAnchorsResult) -> Option<String> {
        if found.anchors.is_empty() {
            return Some("(no anchors)".into());
        }
        Some(found.anchors.iter().map(|it| format!("- {it}")).collect::<Vec<_>>().join("\n"))
    }
}
