//! For people: on a terminal the answer as it comes, with a line per call; in a pipe the answer alone.

use std::{collections::HashSet, io, time::Instant};

use bub::kernel::{
    message::{Part, ToolCallRequest, blocks_text, content_blocks},
    text::{elide, json},
    turn::{TurnError, TurnEvent, TurnResult},
};
use serde_json::Value;

use super::{
    Printer, WRITE_EVERY,
    safe::{safe, safe_line},
};
use crate::output;

/// The most characters of a call's line.
const MAX_CALL_CHARS: usize = 120;
/// The most characters of an argument in it.
const MAX_ARGUMENT_CHARS: usize = 60;
/// How much of a running command's output is remembered to avoid printing it twice, in bytes.
const MAX_SHOWN_BYTES: usize = 16 << 20;
/// The tool whose progress is that of another turn.
const SUBAGENT: &str = "subagent";
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
    /// Whether a model has been asked, so that what tools print is no answer.
    has_model: bool,
    /// Whether a model has answered, if only with thinking.
    has_answer: bool,
    /// What a typed command has printed while it ran.
    shown: String,
    tells_error: bool,
    /// The calls that run subagents, whose progress is shown.
    subagents: HashSet<String>,
    /// Characters of thinking that were not shown and not told of.
    n_thought: usize,
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
            has_model: false,
            has_answer: false,
            shown: String::new(),
            tells_error: false,
            subagents: HashSet::new(),
            n_thought: 0,
        }
    }

    /// The same, printing its answer whole at the end: for a turn beside one that is shown as it comes.
    pub(crate) fn at_end(mut self) -> Self {
        self.is_live = false;
        self
    }

    /// Ends the line that is being written, so that something else may be printed.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        self.end_line()
    }

    /// What is left to print of a command's output, when it was shown while it came.
    fn rest<'a>(&self, output: &'a str) -> &'a str {
        let shown = self.shown.trim_start();
        // Results are trimmed, what was shown is not.
        output.strip_prefix(shown).or_else(|| output.strip_prefix(shown.trim_end())).unwrap_or(output)
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
        let line = safe(line);
        output::note(&if self.color { format!("\x1b[2m{line}\x1b[0m") } else { line.into_owned() });
        Ok(())
    }
}

impl Printer for TextPrinter {
    fn event(&mut self, event: &TurnEvent) -> io::Result<()> {
        if let TurnEvent::Reasoning(delta) = event {
            self.n_thought += delta.chars().count();
            return Ok(());
        }
        if self.n_thought > 0 {
            let n_chars = std::mem::take(&mut self.n_thought);
            self.aside(&format!("[+] Thinking ({n_chars} chars hidden)"))?;
        }
        match event {
            TurnEvent::ToolProgress { text, .. } if self.is_live && !self.has_model => {
                if self.shown.len() < MAX_SHOWN_BYTES {
                    self.shown.push_str(text);
                }
                self.waiting.push_str(text);
                self.flush()
            }
            TurnEvent::ToolProgress { call, text } if self.subagents.contains(call) => {
                self.aside(&format!("  │ {}", one_line(text.trim_end(), MAX_CALL_CHARS)))
            }
            TurnEvent::Text(delta) if self.is_live => {
                // A line end that is cut in two comes again as its second half.
                let delta = safe(self.rest(delta).trim_end_matches('\r')).into_owned();
                self.waiting.push_str(&delta);
                if self.written.elapsed() >= WRITE_EVERY || self.waiting.len() >= MAX_WAITING_BYTES {
                    self.flush()?;
                }
                Ok(())
            }
            TurnEvent::ToolCalls(calls) => {
                self.has_model = true;
                for call in calls {
                    if call.name == SUBAGENT {
                        self.subagents.insert(call.id.clone());
                    }
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
            TurnEvent::Usage { .. } => {
                self.has_answer = true;
                Ok(())
            }
            TurnEvent::Notice(notice) => self.aside(notice),
            TurnEvent::Citation(it) => match &it.title {
                Some(title) => self.aside(&safe_line(&format!("source: {title} <{}>", it.url))),
                None => self.aside(&safe_line(&format!("source: <{}>", it.url))),
            },
            TurnEvent::Media(media) => {
                let block = Part::Media(media.clone()).to_block();
                self.aside(&safe_line(&format!("made {}; it is on the tape", blocks_text(&[block]))))
            }
            TurnEvent::ProviderToolCall { name, input } => {
                self.aside(&safe_line(&format!("the provider runs {name}({})", elide(&json(input), MAX_CALL_CHARS))))
            }
            // The error is printed once, at the end.
            _ => Ok(()),
        }
    }

    fn finished(&mut self, result: &TurnResult) -> io::Result<()> {
        if self.is_live {
            self.end_line()?;
        } else if output::is_terminal() {
            output::line(&safe(&result.answer))?;
        } else {
            output::line(&result.answer)?;
        }
        // Silence could be taken for a failure that nobody tells.
        if self.has_answer && result.answer.trim().is_empty() {
            return self.aside("the model gave no answer");
        }
        Ok(())
    }

    fn failed(&mut self, err: &TurnError) -> io::Result<()> {
        if !self.is_live {
            return Ok(());
        }
        self.end_line()?;
        if let TurnError::Command { name, error } = err
            && let Some((what, output)) = error.cause().split_once("\noutput:\n")
            && !self.shown.is_empty()
        {
            // The output has been shown; what is left to say is how it ended.
            let rest = self.rest(output).trim_start_matches('\n');
            if !rest.is_empty() {
                output::line(rest)?;
            }
            output::note(&format!("error: {name}: {what}"));
            self.tells_error = true;
        }
        Ok(())
    }

    fn tells_errors(&self) -> bool {
        self.tells_error
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
pub(crate) fn call_line(call: &ToolCallRequest) -> String {
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
pub(crate) fn result_line(result: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_is_not_printed_again() {
        let mut printer = TextPrinter::new(false);
        for (shown, output, rest) in [
            ("", "a\nb", "a\nb"),
            ("a\n", "a\nb", "b"),
            ("\n a\nb\n", "a\nb", ""),
            ("a\nb\n", "a\nb\nbackground processes still running", "background processes still running"),
            ("a lot", "something else", "something else"),
        ] {
            printer.shown = shown.to_owned();
            assert_eq!(printer.rest(output), rest, "{shown:?}");
        }
    }

    #[test]
    fn calls_and_results_fit_a_line() {
        let call = |arguments: &str| {
            let arguments = arguments.to_owned();
            call_line(&ToolCallRequest { id: "1".into(), name: "bash".into(), arguments, metadata: Default::default() })
        };
        assert_eq!(call(r#"{"command": "ls\u001b[2J", "n": 3}"#), r#"● bash(command: "ls\u001b[2J", n: 3)"#);
        assert!(call(&format!(r#"{{"a": "{}"}}"#, "x".repeat(500))).chars().count() < MAX_CALL_CHARS + 40);
        assert_eq!(result_line(&Value::from("one\ntwo")), "  ⎿ one … (2 lines)");
        assert_eq!(result_line(&Value::from("")), "  ⎿ (nothing)");
        let error = serde_json::json!({"kind": "tool", "message": "m", "details": {"error": "E('x')"}});
        assert_eq!(result_line(&error), "  ⎿ ✗ E('x')");
    }
}
