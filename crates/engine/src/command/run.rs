//! Running a command, and what is recorded of it.

use std::{sync::Arc, time::Instant};

use bub_kernel::{
    clock::iso,
    error::{ErrorKind, ToolError},
    event::CommandFinished,
    text::elide,
    tool::ToolContext,
    turn::{EventSink, TurnError, TurnEvent, TurnResult},
};
use serde_json::json;

use super::{Command, add_hint};
use crate::{
    events::emit,
    executor::{MAX_RESULT_CHARS, Target},
    runtime::Inner,
    step::{millis, put},
};

/// Calls the command's tool and records what came of it.
pub(crate) async fn run(
    inner: &Arc<Inner>,
    ctx: &ToolContext,
    line: &str,
    command: &Command,
    sink: &EventSink,
) -> Result<TurnResult, TurnError> {
    let started = Instant::now();
    let run = match inner.tools.get(&command.tool) {
        Some(tool) => {
            let args = command.args.clone();
            inner.executor.run(Target::Tool(tool), &command.tool, &command.tool, args, ctx).await
        }
        None => Ok(Err(ToolError::not_found(format!("Unknown tool name: {}.", command.tool)))),
    };
    // A handler that fails ends the turn; what ran is recorded all the same.
    let (result, broken) = match run {
        Ok(result) => (result, None),
        Err(err) => (Err(ToolError::new(ErrorKind::Unknown, err.to_string())), Some(err)),
    };
    let elapsed_ms = millis(started.elapsed());
    let is_cancelled = ctx.cancel.is_cancelled();
    let (status, output, cause) = match &result {
        Ok(reply) => (if is_cancelled { "error" } else { "ok" }, reply.rendering(), None),
        Err(err) => ("error", err.to_string(), Some(err.cause().to_owned())),
    };
    // The tape keeps at most as much of an output as the model would be shown.
    let kept = elide(&output, MAX_RESULT_CHARS).into_owned();
    let raw = elide(line, MAX_RESULT_CHARS);
    let mut data = json!({
        "raw": raw, "name": command.name, "status": status, "elapsed_ms": elapsed_ms, "output": kept,
    });
    if let Some(cause) = cause.filter(|it| !output.ends_with(it.as_str())) {
        put(&mut data, "cause", elide(&cause, MAX_RESULT_CHARS));
    }
    put(&mut data, "date", iso(ctx.tape.clock().now()));
    ctx.tape.append_event("command", data).await?;
    let mut event = CommandFinished {
        state: ctx.state.clone(),
        tape: ctx.tape.clone(),
        line: line.to_owned(),
        name: command.name.clone(),
        status,
        elapsed_ms,
        output: output.clone(),
    };
    let told = emit(ctx, &mut event).await;
    if let Some(err) = broken {
        return Err(err);
    }
    told?;
    match result {
        Ok(_) if is_cancelled => Err(TurnError::Cancelled),
        Ok(_) => {
            sink.send(TurnEvent::Text(output.clone())).await;
            sink.send(TurnEvent::Final { text: output.clone(), ok: true }).await;
            Ok(TurnResult {
                session: ctx.session.clone(),
                answer: output.clone(),
                text: output,
                errors: Vec::new(),
                steps: 0,
                usage: None,
            })
        }
        Err(mut error) => {
            add_hint(&mut error, command, inner.settings.command_prefix.as_deref().unwrap_or_default());
            Err(TurnError::Command { name: command.name.clone(), error })
        }
    }
}
