//! For people: on a terminal the answer as it comes, with a line per call; in a pipe the answer alone.

use std::{io, time::Instant};

use bub::kernel::{
    message::{ToolCallRequest, content_blocks},
    text::elide,
    turn::{TurnError, TurnEvent, TurnResult},
};
use serde_json::Value;

use super::{Printer, WRITE_EVERY};
use crate::output;

/// The most characters of a call's line.
const MAX_CALL_CHARS: usize = 120;
/// The most characters of an argument in it.
const MAX_ARGUMENT_CHARS: usize = 60;
/// Words that wait to be written, at most, in bytes.
const MAX_WAITING_BYTES: usize = 4096;

/// Prints a turn for people.
#[derive(Debug)]
pub(crate) struct TextPrinter {
    /// Whether the answer is shown while it comes.
    is_live: bool,
    is_quiet: bool,
    color: bool,
    /// Words that have come and are not written yet.
    waiting: String,
    written: Instant,
    /// Whether the cursor stands in the middle of a line.
    in_line: bool,
}

impl TextPrinter {
    pub(crate) fn new(is_quiet: bool) -> Self {
        let terminal = output::is_terminal();
        Self {
            is_live: terminal,
            is_quiet,
            color: output::wants_color(io::IsTerminal::is_terminal(&io::stderr())),
            waiting: String::new(),
            written: Instant::now(),
            in_line: false,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.in_line = !self.waiting.ends_with('\n');
            output::out(&std::mem::take(&mut self.waiting))?;
        }
        self.written = Instant::now();
        Ok(())
    }

    /// Ends the line that is being written, so that another stream may write.
    fn end_line(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.in_line {
            output::out("\n")?;
            self.in_line = false;
        }
        Ok(())
    }

    fn aside(&mut self, line: &str) -> io::Result<()> {
        if self.is_quiet {
            return Ok(());
        }
        if self.is_live {
            self.end_line()?;
        }
        output::note(&if self.color { format!("\x1b[2m{line}\x1b[0m") } else { line.to_owned() });
        Ok(())
    }
}

impl Printer for TextPrinter {
    fn event(&mut self, event: &TurnEvent) -> io::Result<()> {
        match event {
            TurnEvent::Text(delta) if self.is_live => {
                self.waiting.push_str(delta);
                if self.written.elapsed() >= WRITE_EVERY || self.waiting.len() >= MAX_WAITING_BYTES {
                    self.flush()?;
                }
                Ok(())
            }
            TurnEvent::ToolCalls(calls) => {
                for call in calls {
                    self.aside(&call_line(call))?;
                }
                Ok(())
            }
            TurnEvent::ToolResults(results) => {
                for result in results {
                    self.aside(&result_line(result))?;
                }
                Ok(())
            }
            TurnEvent::Notice(notice) => self.aside(notice),
            // The error is printed once, at the end.
            _ => Ok(()),
        }
    }

    fn finished(&mut self, result: &TurnResult) -> io::Result<()> {
        if self.is_live { self.end_line() } else { output::line(&result.answer) }
    }

    fn failed(&mut self, _: &TurnError) -> io::Result<()> {
        if self.is_live { self.end_line() } else { Ok(()) }
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.flush()
    }

    fn cancelling(&mut self) {
        drop(self.aside("stopping … (Ctrl-C again to leave at once)"));
    }
}

/// A call in one line: `● bash(command: "ls")`.
fn call_line(call: &ToolCallRequest) -> String {
    let args: Vec<_> = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(Value::Object(args)) => args
            .iter()
            .map(|(key, value)| format!("{key}: {}", one_line(&value.to_string(), MAX_ARGUMENT_CHARS)))
            .collect(),
        _ => vec![one_line(&call.arguments, MAX_ARGUMENT_CHARS)],
    };
    one_line(&format!("● {}({})", call.name, args.join(", ")), MAX_CALL_CHARS)
}

/// A result in one line: its first words, or what went wrong.
fn result_line(result: &Value) -> String {
    let is_error = result.get("kind").is_some() && result.get("message").is_some();
    let text = if is_error {
        let cause = result.get("details").and_then(|it| it.get("error")).or_else(|| result.get("message"));
        cause.and_then(Value::as_str).unwrap_or_default().to_owned()
    } else if let Some(blocks) = content_blocks(result) {
        format!("{} content blocks", blocks.len())
    } else {
        bub::kernel::text::render(result)
    };
    let mark = if is_error { "✗ " } else { "" };
    let n_lines = text.lines().count();
    let more = if n_lines > 1 { format!(" … ({n_lines} lines)") } else { String::new() };
    let first = text.lines().find(|it| !it.trim().is_empty()).unwrap_or("(nothing)");
    format!("  ⎿ {mark}{}{more}", one_line(first, MAX_CALL_CHARS))
}

/// Makes a text fit a line; control characters are left out.
fn one_line(text: &str, max: usize) -> String {
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    if text.chars().count() <= max {
        return text;
    }
    elide(&text, max).replace('\n', " ")
}
