//! `bash`: run a command.

use std::{future::pending, sync::Arc, time::Duration};

use bub_kernel::{environment::SpawnRequest, task::TaskScope, tool::prelude::*, turn::TurnEvent};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use super::{
    Shells,
    running::{Output, Running},
};

/// Runs a command in a shell (bash, or sh where there is no bash) and returns what it printed, standard
/// output and standard error in the order they came. `cwd` is where it runs; relative paths start at the
/// workspace. A command that takes longer than `timeout_seconds` goes on in the background, and the result
/// names its shell_id. With `background` it starts there at once. Nobody can answer questions: standard
/// input is empty and there is no terminal. A non-zero exit code is an error that includes the output.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct BashArgs {
    command: String,
    cwd: Option<String>,
    #[serde(default = "default_timeout")]
    timeout_seconds: i64,
    #[serde(default)]
    background: bool,
}

/// Seconds that a command may take in the foreground.
fn default_timeout() -> i64 {
    30
}

/// How often news of a running command is reported.
const NEWS_INTERVAL: Duration = Duration::from_millis(100);
/// The most characters of one report.
const MAX_NEWS_CHARS: u64 = 64 * 1024;

/// The tool `bash`.
#[derive(Debug)]
pub struct Bash {
    shells: Arc<Shells>,
}

impl Bash {
    /// Over this table.
    #[must_use]
    pub fn new(shells: Arc<Shells>) -> Self {
        Self { shells }
    }
}

impl Tool for Bash {
    const NAME: &'static str = "bash";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = BashArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: BashArgs) -> Result<String, ToolError> {
        let Ok(seconds) = u64::try_from(args.timeout_seconds) else {
            return Err(ToolError::invalid("timeout_seconds must not be negative"));
        };
        if args.command.contains('\0') {
            return Err(ToolError::invalid("command must not contain a NUL character"));
        }
        self.shells.check_open(ctx)?;
        // Models write an empty text for what they leave out.
        let cwd = args.cwd.filter(|it| !it.is_empty()).map(|it| ctx.env.resolve(&it)).transpose()?;
        let request = SpawnRequest { cwd, ..SpawnRequest::shell(args.command.as_str()) };
        let running = Running::new(ctx.env.spawn(request).await?, self.shells.limits());
        if args.background {
            let shell = self.shells.adopt(ctx, running, &args.command)?;
            return Ok(format!(
                "Shell started, shell_id: {}\nbash_output reads what it prints, bash_kill stops it.",
                shell.id
            ));
        }
        let news = tell_news(ctx, Arc::clone(running.output()));
        let mut foreground = Foreground { running: Some(running), tasks: ctx.tasks.clone() };
        let code = tokio::select! {
            biased;
            code = foreground.exit_code(Duration::from_secs(seconds)) => code,
            () = news => None,
        };
        let Some(running) = foreground.running.take() else {
            return Err(ToolError::raised("RuntimeError", "the shell is gone"));
        };
        let output = Arc::clone(running.output());
        let Some(code) = code else {
            let shell = self.shells.adopt(ctx, running, &args.command)?;
            let mut text =
                format!("command timed out after {seconds} seconds; continuing in background\nshell_id: {}", shell.id);
            if output.progress().n_chars > 0 {
                text.push_str(&format!("\noutput so far:\n{}", output.summary().await));
            }
            return Ok(text);
        };
        let survivors = if running.is_running() {
            // They are stopped when no shell may be adopted any more.
            self.shells.adopt(ctx, running, &args.command).ok()
        } else {
            running.finish();
            None
        };
        let mut text = output.summary().await;
        if let Some(shell) = survivors {
            text.push_str(&format!("\nbackground processes still running; shell_id: {}", shell.id));
        }
        match code {
            0 => Ok(text),
            code => Err(ToolError::raised("RuntimeError", format!("command exited with code {code}\noutput:\n{text}"))),
        }
    }
}

/// Reports what a command prints while it runs, a little late so that short commands report nothing.
/// Never ends.
async fn tell_news(ctx: &ToolContext, output: Arc<Output>) {
    let mut progress = output.watch();
    let mut told = 0;
    loop {
        sleep(NEWS_INTERVAL).await;
        let n_chars = progress.borrow_and_update().n_chars;
        if n_chars > told {
            let until = n_chars.min(told + MAX_NEWS_CHARS);
            let news = output.read(told, until).await;
            if news.text.is_empty() {
                // What was here is gone; go on with what is newest.
                told = until;
                continue;
            }
            told = news.next;
            ctx.sink.send(TurnEvent::ToolProgress { call: ctx.call.clone(), text: news.text }).await;
        } else if progress.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// A command that a call waits for. When the call is dropped, it is stopped.
struct Foreground {
    running: Option<Running>,
    tasks: TaskScope,
}

impl Foreground {
    /// Waits for the end of the shell, and returns its exit code; `None` when it takes too long.
    async fn exit_code(&mut self, limit: Duration) -> Option<i32> {
        let running = self.running.as_mut()?;
        if !limit.is_zero() && timeout(limit, running.until_exit()).await.is_ok() {
            running.drain().await;
        }
        running.code()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // Without a runtime that goes on, dropping kills at once.
        if !self.tasks.is_closed() && Handle::try_current().is_ok() {
            self.tasks.spawn_to_end(async move { running.stop().await });
        }
    }
}
