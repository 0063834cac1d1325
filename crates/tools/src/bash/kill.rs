//! `bash.kill`: stop a shell.

use std::sync::Arc;

use bub_kernel::tool::prelude::*;

use super::Shells;

/// Stops a background shell and every process that it started: asks first, and kills what is still there
/// after 3 seconds. Returns its final status and exit code (minus the signal's number when a signal ended
/// it), also for a shell that ended before.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct KillArgs {
    shell_id: String,
}

/// The tool `bash.kill`.
#[derive(Debug)]
pub struct BashKill {
    shells: Arc<Shells>,
}

impl BashKill {
    /// Over this table.
    #[must_use]
    pub fn new(shells: Arc<Shells>) -> Self {
        Self { shells }
    }
}

impl Tool for BashKill {
    const NAME: &'static str = "bash.kill";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = KillArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: KillArgs) -> Result<String, ToolError> {
        let shell = self.shells.get(&ctx.session, &args.shell_id)?;
        let ended = match shell.ended() {
            Some(ended) => Some(ended),
            None => shell.stop().await,
        };
        shell.set_told();
        let status = if ended.is_some() { "exited" } else { "running" };
        let code = ended.and_then(|it| it.code).map_or_else(|| "None".to_owned(), |it| it.to_string());
        Ok(format!("id: {}\nstatus: {status}\nexit_code: {code}", shell.id))
    }
}
