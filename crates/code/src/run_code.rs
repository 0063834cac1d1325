//! `run_code`: runs Python that calls the tools.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bub_kernel::{
    code::{CodeError, CodeRequest},
    environment::Environment,
    error::{ErrorKind, ToolError},
    message::{Media, MediaSource, Part, content_blocks},
    text::human_size,
    tool::{Caller, DynTool, Exposure, ToolContext, ToolReply, ToolSet, ToolSpec, schema},
    turn::{TurnEvent, TurnState},
};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    attach::Attachments,
    bridge::{Bridge, Models},
    calls::Calls,
    output::Output,
    runners::Runners,
};

/// Calls of one run that are served at once, unless set.
pub const MAX_RUNNING_CALLS: usize = 64;
/// The longest that code may be given, in seconds: a day.
const MAX_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

/// Makes the tools of a turn from what the turn carries; `None` turns code off for it.
pub(crate) type ToolsOfTurn = dyn Fn(&TurnState) -> Option<Vec<Arc<dyn DynTool>>> + Send + Sync;
/// Finds where the code of a turn runs.
pub(crate) type EnvironmentOfTurn = dyn Fn(&TurnState) -> Arc<dyn Environment> + Send + Sync;

/// Which tools code may call.
#[derive(Clone)]
pub(crate) enum CodeTools {
    /// Those that the hooks left for the code of the step; for a person those of every session.
    OfStep,
    /// Those of this function, without commands.
    OfTurn(Arc<ToolsOfTurn>),
}

/// Run Python code. In it the session's tools are async functions, called as `await tools.name(key=value)` with keyword arguments only.
/// Only what the code prints, and media that it attaches, come back.
#[derive(Debug, Deserialize, JsonSchema)]
struct RunCodeArgs {
    /// Python source; top-level `await` works.
    code: String,
    /// Seconds until the code is stopped.
    #[serde(default = "two_minutes")]
    timeout_seconds: i64,
}

fn two_minutes() -> i64 {
    120
}

/// What a tool that runs code works with.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) runners: Arc<dyn Runners>,
    pub(crate) tools: CodeTools,
    pub(crate) environment: Option<Arc<EnvironmentOfTurn>>,
    pub(crate) models: Models,
    pub(crate) max_running: usize,
}

/// The tool that runs code.
#[derive(Clone)]
pub struct RunCode {
    setup: Setup,
    /// What is added to the description: where the code runs.
    about: Option<String>,
    spec: OnceLock<Arc<ToolSpec>>,
}

impl fmt::Debug for RunCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCode").field("name", &self.setup.name).finish_non_exhaustive()
    }
}

impl RunCode {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, about: None, spec: OnceLock::new() }
    }

    /// The same tool, with a description that tells where the code runs.
    pub(crate) fn described(&self, about: &str) -> Self {
        Self { setup: self.setup.clone(), about: Some(about.to_owned()), spec: OnceLock::new() }
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Where the code of a turn runs.
    pub(crate) fn environment(
        &self,
        state: &TurnState,
        own: Option<&Arc<dyn Environment>>,
    ) -> Option<Arc<dyn Environment>> {
        match &self.setup.environment {
            Some(of_turn) => Some(of_turn(state)),
            None => own.cloned(),
        }
    }

    /// The tools that code may call now.
    fn tools(&self, ctx: &ToolContext) -> Result<Vec<Arc<dyn DynTool>>, ToolError> {
        let disabled = || ToolError::invalid("Code mode is not enabled for this run.");
        match &self.setup.tools {
            CodeTools::OfTurn(tools) => Ok(without_commands(tools(&ctx.state).ok_or_else(disabled)?)),
            CodeTools::OfStep => match &ctx.step {
                Some(step) if ctx.caller == Caller::Model => {
                    if ctx.state.code_mode {
                        Ok(step.code.clone())
                    } else {
                        Err(disabled())
                    }
                }
                _ if ctx.caller == Caller::Command => Ok(for_people(ctx)),
                _ => Err(disabled()),
            },
        }
    }

    async fn run(&self, ctx: &ToolContext, args: RunCodeArgs) -> Result<ToolReply, ToolError> {
        let tools = self.tools(ctx)?;
        let seconds = u64::try_from(args.timeout_seconds).map_err(|_| {
            ToolError::invalid(format!("timeout_seconds must not be negative, but is {}", args.timeout_seconds))
        })?;
        let env = self.environment(&ctx.state, Some(&ctx.env)).unwrap_or_else(|| ctx.env.clone());
        let runner = self.setup.runners.choose(&env).await?.runner;
        let ctx = ToolContext { env, ..ctx.clone() };
        let attachments = Attachments::default();
        let bridge = Bridge::new(ctx.clone(), self.setup.models.clone());
        let calls = Calls::new(&ctx, tools, attachments.clone(), bridge, self.setup.max_running);
        let output = calls.output.clone();
        let kept = output.clone();
        ctx.partial.offer(move || kept.text());

        let filename = format!("<run_code-{:08x}>", random());
        // What editors put before a file is no Python.
        let code = args.code.strip_prefix('\u{feff}').unwrap_or(&args.code);
        let request = CodeRequest { code, filename: &filename, tools: calls.names() };
        let limit = Duration::from_secs(seconds.min(MAX_TIMEOUT_SECONDS));
        let run = async {
            if seconds == 0 {
                return None;
            }
            tokio::time::timeout(limit, runner.run(request, &calls)).await.ok()
        };
        let done = tokio::select! {
            biased;
            done = run => done,
            () = tell(&output, &ctx) => None,
        };
        tell_rest(&output, &ctx).await;
        match done {
            Some(Ok(())) => Ok(reply(output.text(), attachments.take())),
            Some(Err(err)) => Err(failure(err, output.text())),
            None => {
                let message = format!("Code timed out after {} seconds", args.timeout_seconds);
                Err(ToolError::new(ErrorKind::Tool, message).with_detail("output", output.text()))
            }
        }
    }
}

impl DynTool for RunCode {
    fn spec(&self) -> &Arc<ToolSpec> {
        self.spec.get_or_init(|| {
            let (mut description, parameters) = schema::of_arguments::<RunCodeArgs>();
            if let Some(about) = &self.about {
                description = format!("{description}\n\n{about}");
            }
            Arc::new(ToolSpec {
                name: self.setup.name.clone().into(),
                description,
                exposure: Exposure::Direct,
                deferred: false,
                parameters,
                output: None,
            })
        })
    }

    fn name(&self) -> &str {
        &self.setup.name
    }

    fn call<'a>(&'a self, ctx: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let args = serde_json::from_value(args).map_err(|err| {
                ToolError::invalid(format!("Tool '{}' argument validation failed: {err}", self.setup.name))
            })?;
            self.run(ctx, args).await
        })
    }
}

fn for_people(ctx: &ToolContext) -> Vec<Arc<dyn DynTool>> {
    tools_for_people(&ctx.tools, ctx.state.allowed_tools.as_deref())
}

/// The tools that a person's code may call: what the model's code may, in any session; or of all but
/// commands those whose runtime names are in `allowed`.
#[must_use]
pub fn tools_for_people(tools: &ToolSet, allowed: Option<&[String]>) -> Vec<Arc<dyn DynTool>> {
    let fits = |exposure: Exposure| match exposure {
        Exposure::Auto | Exposure::Code => true,
        Exposure::Direct => allowed.is_some(),
        Exposure::Command => false,
    };
    let is_allowed = |name: &str| allowed.is_none_or(|it| it.iter().any(|it| it == name));
    tools.iter().filter(|it| fits(it.spec().exposure) && is_allowed(it.name())).cloned().collect()
}

pub(crate) fn without_commands(mut tools: Vec<Arc<dyn DynTool>>) -> Vec<Arc<dyn DynTool>> {
    tools.retain(|it| it.spec().exposure != Exposure::Command);
    tools
}

/// Passes on what is printed, for as long as the run goes on.
async fn tell(output: &Output, ctx: &ToolContext) {
    loop {
        output.changed().await;
        tell_rest(output, ctx).await;
    }
}

async fn tell_rest(output: &Output, ctx: &ToolContext) {
    let text = output.take_news();
    if !text.is_empty() {
        ctx.sink.send(TurnEvent::ToolProgress { call: ctx.call.clone(), text }).await;
    }
}

/// What comes back: the output, and after it what was attached.
fn reply(output: String, media: Vec<Media>) -> ToolReply {
    if media.is_empty() {
        return ToolReply::text(output);
    }
    let shown: Vec<_> = media.iter().map(media_line).collect();
    let text = (!output.is_empty()).then(|| Part::Text(output.clone()));
    let parts = text.into_iter().chain(media.into_iter().map(Part::Media));
    let content: Vec<_> = parts.map(|it| it.to_block()).collect();
    let separator = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    let value = json!({"type": "tool_content", "content": content});
    debug_assert!(content_blocks(&value).is_some());
    ToolReply::rendered(value, format!("{output}{separator}{}", shown.join("\n")))
}

/// An attachment in a line, for people.
fn media_line(media: &Media) -> String {
    let size = match &media.source {
        MediaSource::Data(data) => human_size(data.len() as u64 / 4 * 3),
        MediaSource::Url(url) => url.clone(),
    };
    format!("[{} {}, {size}]", media.kind.as_str(), media.media_type)
}

fn failure(err: CodeError, output: String) -> ToolError {
    match err {
        CodeError::Raised { error, traceback } => ToolError::new(ErrorKind::Tool, format!("Code raised {error}"))
            .with_detail("output", output)
            .with_detail("traceback", traceback),
        CodeError::Runner { exit_code: Some(code), stderr, .. } => {
            ToolError::new(ErrorKind::Tool, format!("Code runner exited unexpectedly with code {code}"))
                .with_detail("output", output)
                .with_detail("stderr", stderr)
        }
        CodeError::Runner { reason, stderr, .. } => {
            ToolError::new(ErrorKind::Tool, format!("Code runner failed: {reason}"))
                .with_detail("output", output)
                .with_detail("stderr", stderr)
        }
        other => ToolError::new(ErrorKind::Tool, format!("Code runner failed: {other}")).with_detail("output", output),
    }
}

/// A number that no other run is likely to have.
fn random() -> u32 {
    // Every hasher of this kind starts from a seed of its own.
    std::hash::RandomState::new().build_hasher().finish() as u32
}
