//! For programs: a turn as JSON lines.

use std::{io, time::Instant};

use bub::kernel::{
    message::Part,
    turn::{TurnError, TurnEvent, TurnResult},
};
use serde_json::{Value, json};

use super::Printer;
use crate::{args::RunArgs, output};

/// Prints a turn as JSON.
#[derive(Debug)]
pub(crate) struct JsonPrinter {
    is_live: bool,
    channel: String,
    chat: String,
    session: String,
    started: Instant,
    tools: Vec<Value>,
    /// Which of them seem to have been broken off.
    aborted: Vec<usize>,
    usage: Option<Value>,
    steps: usize,
}

impl JsonPrinter {
    /// One object when the turn has ended.
    pub(crate) fn at_end(args: &RunArgs, session: &str) -> Self {
        Self {
            is_live: false,
            channel: args.channel.clone(),
            chat: args.chat_id.clone(),
            session: session.to_owned(),
            started: Instant::now(),
            tools: Vec::new(),
            aborted: Vec::new(),
            usage: None,
            steps: 0,
        }
    }

    /// An object per event, and one at the end.
    pub(crate) fn as_it_happens(args: &RunArgs, session: &str) -> Self {
        Self { is_live: true, ..Self::at_end(args, session) }
    }

    fn end(&self, ok: bool, output: &str, error: Value) -> io::Result<()> {
        let end = json!({
            "kind": "result",
            "ok": ok,
            "output": output,
            "error": error,
            "channel": self.channel,
            "chat_id": self.chat,
            "session_id": self.session,
            "steps": self.steps,
            "usage": self.usage,
            "tools": self.tools,
            "elapsed_ms": u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        output::line(&end.to_string())
    }

    /// Keeps what the end tells of the calls.
    fn note(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::ToolCalls(calls) => {
                self.tools
                    .extend(calls.iter().map(|it| json!({"id": it.id, "name": it.name, "arguments": it.arguments})));
            }
            TurnEvent::ToolResults(results) => {
                let from = self.tools.len().saturating_sub(results.len());
                for ((idx, tool), result) in self.tools.iter_mut().enumerate().skip(from).zip(results) {
                    if result.as_str().is_some_and(|it| it.starts_with("aborted after ")) {
                        self.aborted.push(idx);
                    }
                    if let Some(fields) = tool.as_object_mut() {
                        let is_error = result.get("kind").is_some() && result.get("message").is_some();
                        fields.insert("ok".to_owned(), (!is_error).into());
                    }
                }
            }
            TurnEvent::Usage { usage, .. } => {
                self.steps += 1;
                self.usage = Some(usage.to_value());
            }
            _ => {}
        }
    }
}

impl Printer for JsonPrinter {
    fn event(&mut self, event: &TurnEvent) -> io::Result<()> {
        self.note(event);
        match event_json(event).filter(|_| self.is_live) {
            Some(value) => output::line(&value.to_string()),
            None => Ok(()),
        }
    }

    fn finished(&mut self, result: &TurnResult) -> io::Result<()> {
        self.end(true, &result.answer, Value::Null)
    }

    fn failed(&mut self, err: &TurnError) -> io::Result<()> {
        if matches!(err, TurnError::Cancelled) {
            // What a command printed may look like that, but not in a turn that went on.
            for idx in &self.aborted {
                if let Some(fields) = self.tools.get_mut(*idx).and_then(Value::as_object_mut) {
                    fields.insert("ok".to_owned(), false.into());
                }
            }
        }
        let kind = match err {
            TurnError::Model(err) => err.kind().as_str(),
            TurnError::Command { error, .. } => error.kind.as_str(),
            TurnError::CommandLine(_) | TurnError::Invalid(_) | TurnError::EmptyPrompt => "invalid_input",
            TurnError::Cancelled => "cancelled",
            _ => "unknown",
        };
        self.end(false, "", json!({"kind": kind, "message": err.to_string()}))
    }
}

/// An event as `{"kind", "data"}`, with the reference's names.
fn event_json(event: &TurnEvent) -> Option<Value> {
    let (kind, data) = match event {
        TurnEvent::Text(delta) => ("text", json!({"delta": delta})),
        TurnEvent::Reasoning(delta) => ("reasoning", json!({"delta": delta})),
        TurnEvent::ToolCallDelta { id, name, delta } => {
            ("tool_call_delta", json!({"id": id, "name": name, "delta": delta}))
        }
        TurnEvent::ToolCalls(calls) => {
            let calls: Vec<_> = calls.iter().map(bub::kernel::message::ToolCallRequest::to_value).collect();
            ("tool_call", json!({"tool_calls": calls}))
        }
        TurnEvent::ToolProgress { call, text } => ("tool_progress", json!({"call": call, "text": text})),
        TurnEvent::ToolResults(results) => ("tool_result", json!({"tool_results": results})),
        TurnEvent::Citation(it) => ("citation", json!({"url": it.url, "title": it.title})),
        TurnEvent::Media(media) => ("media", Part::Media(media.clone()).to_block()),
        TurnEvent::ProviderToolCall { name, input } => ("provider_tool_call", json!({"name": name, "input": input})),
        TurnEvent::Usage { usage, elapsed_seconds } => {
            ("usage", json!({"usage": usage.to_value(), "elapsed_seconds": elapsed_seconds}))
        }
        TurnEvent::Notice(message) => ("notice", json!({"message": message})),
        TurnEvent::Error { kind, message } => ("error", json!({"kind": kind, "message": message})),
        TurnEvent::Final { text, ok } => ("final", json!({"text": text, "ok": ok})),
        _ => return None,
    };
    Some(json!({"kind": kind, "data": data}))
}
