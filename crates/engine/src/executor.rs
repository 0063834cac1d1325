//! One tool call: checked, decided on, run, rendered, masked, bounded.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use bub_kernel::{
    error::{ErrorKind, ToolError, panic_text},
    event::{ToolCallFinished, ToolCallStarted},
    hooks::{ToolCall, ToolStep},
    message::{ToolCallRequest, content_blocks},
    secret::SecretMask,
    text,
    tool::{Caller, DynTool, PartialResult, ToolContext, ToolReply},
    turn::TurnError,
};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    events::{emit, unless_cancelled},
    hook_stack::HookStack,
    suggest::guidance,
};

/// The most characters of one result that enter the model's context, whatever produced it.
pub(crate) const MAX_RESULT_CHARS: usize = 400_000;
/// The most characters of malformed arguments that an error repeats.
const MAX_SHOWN_ARGUMENTS: usize = 2_000;
/// The most characters of an argument in a log line.
const MAX_LOGGED_ARGUMENT: usize = 100;

/// The tools of one step, as the model named them.
#[derive(Clone, Default)]
pub(crate) struct Offered {
    /// Tools that the model may call, by alias.
    pub(crate) tools: Vec<(String, Arc<dyn DynTool>)>,
    /// Aliases of tools that it may load first.
    pub(crate) deferred: Vec<String>,
    /// Aliases of tools that only its code may call.
    pub(crate) code: Vec<String>,
}

impl Offered {
    fn get(&self, alias: &str) -> Option<&Arc<dyn DynTool>> {
        self.tools.iter().find(|(name, _)| name == alias).map(|(_, tool)| tool)
    }
}

/// Runs tool calls.
#[derive(Clone, Default)]
pub(crate) struct Executor {
    pub(crate) hooks: HookStack,
    pub(crate) mask: SecretMask,
    /// Calls of one answer that run at once; `None` is all of them.
    pub(crate) max_concurrency: Option<usize>,
}

/// What a call is to run.
pub(crate) enum Target<'a> {
    Tool(&'a Arc<dyn DynTool>),
    /// A tool that does not exist: what the caller is told instead.
    Missing(String),
    /// A call that can't be made.
    Refused(ToolError),
}

/// How a call ended: `Err` only for what ends the turn.
pub(crate) type Outcome = Result<Result<ToolReply, ToolError>, TurnError>;

impl Executor {
    /// Runs the calls of one answer at once, within the limit; results are in the calls' order. Calls
    /// that are cancelled get a result too.
    pub(crate) async fn run_all(
        &self,
        calls: &[ToolCallRequest],
        offered: &Offered,
        cut_off: Option<&str>,
        ctx: &ToolContext,
    ) -> Result<Vec<Value>, TurnError> {
        let limit = self.max_concurrency.unwrap_or(usize::MAX).clamp(1, calls.len().max(1));
        let run = async |position: usize, call| {
            let done = self.run_model_call(call, offered, cut_off, ctx).await;
            if let Ok(result) = &done {
                // Should the process be killed while others run, this call has run all the same.
                ctx.tape.foresee_result(position, result.clone()).await;
            }
            done
        };
        let work: Vec<_> = calls.iter().enumerate().map(|(position, call)| run(position, call).boxed()).collect();
        // All settle before a failure is looked at: one call must not take its siblings along.
        let settled: Vec<_> = stream::iter(work).buffered(limit).collect().await;
        settled.into_iter().collect()
    }

    async fn run_model_call(
        &self,
        request: &ToolCallRequest,
        offered: &Offered,
        cut_off: Option<&str>,
        ctx: &ToolContext,
    ) -> Result<Value, TurnError> {
        let mut ctx = ctx.clone();
        ctx.call.clone_from(&request.id);
        ctx.partial = PartialResult::default();
        let tool = offered.get(&request.name);
        let runtime_name = tool.map_or(request.name.as_str(), |it| it.name());
        let (target, args) = match (object_of(&request.arguments), tool) {
            (Some(args), Some(tool)) => (Target::Tool(tool), args),
            (Some(args), None) => {
                let names: Vec<_> = offered.tools.iter().map(|(alias, _)| alias.clone()).collect();
                (Target::Missing(guidance(&request.name, &names, &offered.deferred, &offered.code)), args)
            }
            (None, _) => (Target::Refused(malformed(&request.arguments, cut_off)), Map::new()),
        };
        Ok(match self.run(target, runtime_name, &request.name, args, &ctx).await? {
            Ok(reply) => for_model(reply),
            Err(err) => bounded_error(&err),
        })
    }

    /// Runs one call. `name` is the one that the caller used, for error texts.
    pub(crate) fn run<'a>(
        &'a self,
        target: Target<'a>,
        runtime_name: &'a str,
        name: &'a str,
        args: Map<String, Value>,
        ctx: &'a ToolContext,
    ) -> BoxFuture<'a, Outcome> {
        // Made here, so that the stack of turns within turns does not hold it a second time.
        Box::pin(self.run_call(target, runtime_name, name, args, ctx))
    }

    async fn run_call(
        &self,
        target: Target<'_>,
        runtime_name: &str,
        name: &str,
        args: Map<String, Value>,
        ctx: &ToolContext,
    ) -> Outcome {
        let mut call = ToolCall {
            id: ctx.call.clone(),
            tool: runtime_name.to_owned(),
            args: Value::Object(args),
            caller: ctx.caller,
        };
        let started = Instant::now();
        // Cancelled calls are recorded, but nobody is asked about them, and nobody told.
        let aborted = || Ok(Ok(ToolReply::text(self.aborted(ctx, started))));
        let Ok(mut decision) = unless_cancelled(&ctx.cancel, self.hooks.before_tool(ctx, &mut call)).await else {
            return aborted();
        };
        if matches!(decision, ToolStep::Proceed) && ctx.events.wants::<ToolCallStarted>() {
            let mut event = ToolCallStarted { state: ctx.state.clone(), ctx: ctx.clone(), call, decision };
            match emit(ctx, &mut event).await {
                Ok(()) => (call, decision) = (event.call, event.decision),
                Err(TurnError::Cancelled) => return aborted(),
                Err(err) => return Err(err),
            }
        }
        let mut result = match decision {
            ToolStep::Replace(reply) => Ok(reply),
            ToolStep::Deny(message) => {
                let message = message.unwrap_or_else(|| format!("Tool '{name}' call denied by policy hook."));
                Err(ToolError::new(ErrorKind::Tool, message))
            }
            ToolStep::Proceed => match target {
                Target::Missing(text) => Ok(ToolReply::text(text)),
                Target::Refused(err) => Err(err),
                Target::Tool(tool) => match checked(tool, name, &call.args) {
                    Ok(args) => {
                        log_start(name, &args);
                        match self.guarded(&**tool, args, ctx, started).await {
                            Some(result) => result,
                            None => return aborted(),
                        }
                    }
                    Err(err) => Err(err),
                },
            },
        };
        result = result.map_err(|err| err.in_tool(name));
        self.mask_result(&mut result);
        if ctx.caller == Caller::Model
            && let Ok(reply) = &mut result
            && content_blocks(&reply.value).is_none()
        {
            // From here on everybody sees what the model will read.
            *reply = ToolReply::text(reply.rendering());
        }
        // Cancelled meanwhile, the result stays as it is.
        drop(unless_cancelled(&ctx.cancel, self.hooks.after_tool(ctx, &call, &mut result)).await);
        let elapsed = started.elapsed();
        match &result {
            Ok(_) => {
                let ms = elapsed.as_secs_f64() * 1e3;
                tracing::info!(target: "bub::tool", "tool.call.success name={name} elapsed_time={ms:.2}ms");
            }
            Err(err) => {
                let (ms, cause) = (elapsed.as_secs_f64() * 1e3, text::elide(err.cause(), MAX_LOGGED_ARGUMENT));
                tracing::error!(target: "bub::tool", "tool.call.error name={name} elapsed_time={ms:.2}ms error={cause}");
            }
        }
        if !ctx.events.wants::<ToolCallFinished>() {
            return Ok(result);
        }
        let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let mut event = ToolCallFinished { state: ctx.state.clone(), ctx: ctx.clone(), call, result, duration_ms };
        match emit(ctx, &mut event).await {
            Ok(()) | Err(TurnError::Cancelled) => Ok(event.result),
            Err(err) => Err(err),
        }
    }

    /// Runs the tool itself: dropped when the turn is cancelled (`None`), isolated when it panics.
    async fn guarded(
        &self,
        tool: &dyn DynTool,
        args: Value,
        ctx: &ToolContext,
        started: Instant,
    ) -> Option<Result<ToolReply, ToolError>> {
        let work = AssertUnwindSafe(tool.call(ctx, args)).catch_unwind();
        tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => {
                tracing::info!(target: "bub::tool", "tool.call.cancelled name={} {}", tool.spec().name, aborted(started));
                None
            }
            done = work => Some(done.unwrap_or_else(|panic| {
                Err(ToolError::raised("Panic", format!("the tool panicked: {}", panic_text(&*panic))))
            })),
        }
    }

    /// What a cancelled call leaves: a note, and what the tool had to show by then.
    fn aborted(&self, ctx: &ToolContext, started: Instant) -> String {
        let mut text = aborted(started);
        let partial = ctx.partial.text();
        if !partial.is_empty() {
            text = format!("{text}\noutput so far:\n{partial}");
            self.mask.mask(&mut text);
        }
        text
    }

    fn mask_result(&self, result: &mut Result<ToolReply, ToolError>) {
        match result {
            Ok(reply) => {
                text::map_strings(&mut reply.value, &mut |it| {
                    self.mask.mask(it);
                });
                if let Some(text) = &mut reply.text {
                    self.mask.mask(text);
                }
            }
            Err(err) => self.mask_error(err),
        }
    }

    fn mask_error(&self, err: &mut ToolError) {
        err.map_texts(|it| {
            self.mask.mask(it);
        });
    }
}

/// The arguments as the tool takes them.
fn checked(tool: &Arc<dyn DynTool>, name: &str, args: &Value) -> Result<Value, ToolError> {
    match args {
        Value::Object(args) => arguments::validate(&**tool, name, args),
        // Hooks are held to objects; a handler of events can do as it likes.
        _ => Err(ToolError::invalid("Expected a function tool call with JSON object arguments.")),
    }
}

/// A result as it stands on the tape and goes to the model, within the limit.
fn for_model(reply: ToolReply) -> Value {
    match content_blocks(&reply.value) {
        None => Value::String(bounded(reply.rendering())),
        Some(_) => {
            let mut value = reply.value;
            for block in value.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(Value::String(text)) = block.get_mut("text") {
                    *text = bounded(std::mem::take(text));
                }
            }
            value
        }
    }
}

fn bounded_error(err: &ToolError) -> Value {
    let mut value = err.to_value();
    text::map_strings(&mut value, &mut |it| *it = bounded(std::mem::take(it)));
    value
}

fn bounded(text: String) -> String {
    if text.len() <= MAX_RESULT_CHARS {
        return text;
    }
    text::elide(&text, MAX_RESULT_CHARS).into_owned()
}

/// What a cancelled call leaves.
fn aborted(started: Instant) -> String {
    format!("aborted after {:.1}s", started.elapsed().as_secs_f64())
}

/// The arguments of a call, if they are a JSON object. Nothing at all counts as an empty one.
pub(crate) fn object_of(arguments: &str) -> Option<Map<String, Value>> {
    if arguments.trim().is_empty() {
        return Some(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(args)) => Some(args),
        _ => None,
    }
}

/// The error for arguments that are no JSON object.
fn malformed(arguments: &str, cut_off: Option<&str>) -> ToolError {
    let message = match cut_off {
        None => "Expected a function tool call with JSON object arguments.".to_owned(),
        Some(why) => format!(
            "The tool was not run: the answer was cut off ({why}) before the arguments were complete. \
             Make the call again with shorter arguments, or split the work into several calls."
        ),
    };
    ToolError::invalid(message)
        .with_detail("arguments", text::elide(arguments, MAX_SHOWN_ARGUMENTS).into_owned())
        .with_detail("expected", json!("object"))
}

fn log_start(name: &str, args: &Value) {
    if tracing::enabled!(target: "bub::tool", tracing::Level::INFO) {
        let shown: Vec<_> = args
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| {
                let value = value.to_string();
                match value.char_indices().nth(MAX_LOGGED_ARGUMENT) {
                    Some((cut, _)) => format!("{key}={}...", value.get(..cut).unwrap_or_default()),
                    None => format!("{key}={value}"),
                }
            })
            .collect();
        tracing::info!(target: "bub::tool", "tool.call.start name={name} {{ {} }}", shown.join(", "));
    }
}
