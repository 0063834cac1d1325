//! `bash.output`: read what a shell printed.

use std::{sync::Arc, time::Duration};

use bub_kernel::tool::prelude::*;
use tokio::time::timeout;

use super::{
    Shells,
    running::{Output, shown},
};

/// No call waits longer.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// How long a wait goes on after the first news, so that what comes together is told together.
const LINGER: Duration = Duration::from_millis(50);

/// Reads what a background shell printed, from character `offset` on, at most `limit` characters. To read
/// only what is new, pass the `next_offset` of the previous call. `exit_code` is null while the shell or
/// anything that it started is running.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct OutputArgs {
    shell_id: String,
    #[serde(default)]
    offset: i64,
    limit: Option<i64>,
    /// Wait so long for new output or the end, instead of asking again and again.
    #[serde(default)]
    wait_seconds: f64,
}

/// The tool `bash.output`.
#[derive(Debug)]
pub struct BashOutput {
    shells: Arc<Shells>,
}

impl BashOutput {
    /// Over this table.
    #[must_use]
    pub fn new(shells: Arc<Shells>) -> Self {
        Self { shells }
    }
}

impl Tool for BashOutput {
    const NAME: &'static str = "bash.output";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = OutputArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: OutputArgs) -> Result<String, ToolError> {
        if args.wait_seconds.is_nan() || args.wait_seconds < 0.0 {
            return Err(ToolError::invalid("wait_seconds must not be negative"));
        }
        let wait = Duration::try_from_secs_f64(args.wait_seconds).unwrap_or(MAX_WAIT).min(MAX_WAIT);
        let shell = self.shells.get(&ctx.session, &args.shell_id)?;
        let offset = u64::try_from(args.offset).unwrap_or_default();
        if !wait.is_zero() {
            wait_for_news(&shell.output, offset, wait).await;
        }
        // Asked for first: once a shell ended, all of its output is there.
        let ended = shell.ended();
        let start = offset.min(shell.output.progress().n_chars);
        let end = args.limit.map_or(u64::MAX, |it| start.saturating_add(u64::try_from(it).unwrap_or_default()));
        let slice = shell.output.read(start, end).await;
        let (status, code) = match ended {
            Some(ended) => {
                shell.set_told();
                ("exited", ended.code.map_or_else(|| "null".to_owned(), |it| it.to_string()))
            }
            None => ("running", "null".to_owned()),
        };
        let body = shown(slice.text.trim_end());
        Ok(format!(
            "id: {}\nstatus: {status}\nexit_code: {code}\nnext_offset: {}\noutput:\n{body}",
            shell.id, slice.next
        ))
    }
}

/// Waits until there is output after `offset`, or the shell ended.
async fn wait_for_news(output: &Output, offset: u64, wait: Duration) {
    let mut progress = output.watch();
    let offset = offset.min(output.progress().n_chars);
    let news = progress.wait_for(|it| it.n_chars > offset || it.ended.is_some());
    if timeout(wait, news).await.is_ok() {
        drop(timeout(LINGER, progress.wait_for(|it| it.ended.is_some())).await);
    }
}
