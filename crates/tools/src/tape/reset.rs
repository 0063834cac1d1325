//! Emptying the tape.

use bub_kernel::tool::prelude::*;

use super::failed;

/// Empty this session's tape and start it anew. What was on it is gone unless it is archived.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct TapeResetArgs {
    /// Whether to copy the tape to an archive file first.
    #[serde(default)]
    archive: bool,
}

/// What became of the tape.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct TapeResetResult {
    /// `ok`, or where the archive is.
    message: String,
}

/// The tool `tape.reset`.
#[derive(Clone, Copy, Debug)]
pub struct TapeReset;

impl Tool for TapeReset {
    const NAME: &'static str = "tape.reset";
    type Args = TapeResetArgs;
    type Output = TapeResetResult;

    async fn call(&self, ctx: &ToolContext, args: TapeResetArgs) -> Result<TapeResetResult, ToolError> {
        let archived = ctx.tape.reset(args.archive).await.map_err(failed)?;
        let message = archived.map_or_else(|| "ok".to_owned(), |path| format!("Archived: {path}"));
        Ok(TapeResetResult { message })
    }

    fn render(&self, done: &TapeResetResult) -> Option<String> {
        Some(done.message.clone())
    }
}
