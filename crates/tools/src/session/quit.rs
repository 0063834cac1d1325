//! The end of what a session runs.

use std::sync::Arc;

use bub_kernel::tool::prelude::*;

use crate::bash::Shells;

/// Stop what this session runs: its background shells, its other turns and its waiting messages.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct QuitArgs {}

/// The command `quit`.
#[derive(Debug)]
pub struct Quit {
    shells: Arc<Shells>,
}

impl Quit {
    /// The command over the shells that it stops.
    #[must_use]
    pub fn new(shells: Arc<Shells>) -> Self {
        Self { shells }
    }
}

impl Tool for Quit {
    const NAME: &'static str = "quit";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = QuitArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, _: QuitArgs) -> Result<String, ToolError> {
        self.shells.terminate_session(&ctx.session).await;
        ctx.host.quit(ctx).await;
        Ok("Session tasks stopped.".into())
    }
}
