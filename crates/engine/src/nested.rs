//! What the caller of a nested turn is told of it while it runs.

use bub_kernel::{
    message::ToolCallRequest,
    text::elide,
    tool::ToolContext,
    turn::{SessionId, TurnEvent},
};

/// The most characters of a line about a nested turn.
const MAX_LINE_CHARS: usize = 160;

/// Turns the events of a nested turn into short lines among the outer turn's events.
pub(crate) struct Progress<'a> {
    ctx: &'a ToolContext,
    session: SessionId,
    /// The messages of its error events.
    pub(crate) errors: Vec<String>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(ctx: &'a ToolContext, session: SessionId) -> Self {
        Self { ctx, session, errors: Vec::new() }
    }

    pub(crate) async fn tell(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::ToolCalls(calls) => {
                for call in &calls {
                    self.line(&call_line(call)).await;
                }
            }
            TurnEvent::Final { text, .. } if !text.trim().is_empty() => self.line(&text).await,
            TurnEvent::Notice(notice) => self.line(&notice).await,
            TurnEvent::Error { message, .. } => {
                self.line(&format!("error: {message}")).await;
                self.errors.push(message);
            }
            // Words come whole at the end of a step; what tools report while they run is too much.
            _ => {}
        }
    }

    async fn line(&self, text: &str) {
        let line = one_line(&format!("{}: {}", self.session, text.trim()));
        self.ctx.sink.send(TurnEvent::ToolProgress { call: self.ctx.call.clone(), text: format!("{line}\n") }).await;
    }
}

fn call_line(call: &ToolCallRequest) -> String {
    format!("{}({})", call.name, call.arguments.trim())
}

fn one_line(text: &str) -> String {
    // What is cut off anyway need not be looked at.
    let text: String = text.chars().take(4 * MAX_LINE_CHARS).map(|it| if it.is_control() { ' ' } else { it }).collect();
    elide(&text, MAX_LINE_CHARS).replace('\n', " ")
}
