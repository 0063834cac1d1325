//! Exceptions as the host reports them.

use std::{collections::HashSet, fmt::Write};

use monty_types::{ExcType, MontyException, StackFrame, StringRepr};

/// How often a frame that repeats is shown.
const REPEATS_SHOWN: usize = 3;
/// Groups of such frames shown at each end of a traceback that is longer than both ends.
const GROUPS_SHOWN: usize = 20;
/// Longest source line shown, in characters.
const LINE_SHOWN: usize = 200;
/// Longest error text in bytes.
const MAX_ERROR: usize = 16 * 1024;

/// Exceptions of calls that were handed to the code, to tell them from what the code raised itself.
#[derive(Default)]
pub(super) struct CallErrors(HashSet<String>);

impl CallErrors {
    /// Texts remembered at most.
    const MOST: usize = 1_000;

    /// Remembers the text of a call that failed.
    pub(super) fn remember(&mut self, message: &str) {
        if self.0.len() < Self::MOST {
            self.0.insert(message.to_owned());
        }
    }

    /// Whether no call failed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, error: &MontyException) -> bool {
        error.exc_type() == ExcType::RuntimeError && error.message().is_some_and(|message| self.0.contains(message))
    }
}

/// `<Type>: <message>` and the traceback limited to frames of the code, whose snippet is named `snippet`
/// inside the interpreter and `filename` outside.
pub(super) fn render(
    error: &MontyException,
    calls: &CallErrors,
    code: &str,
    snippet: &str,
    filename: &str,
) -> (String, String) {
    let name = if calls.contains(error) { "BubError".to_owned() } else { error.exc_type().to_string() };
    let mut summary = name;
    if let Some(message) = error.message() {
        let message = if error.exc_type() == ExcType::KeyError { key(message) } else { message.to_owned() };
        let _ = write!(summary, ": {}", explain(error.exc_type(), &message));
    }
    truncate(&mut summary, MAX_ERROR);
    let frames: Vec<&StackFrame> = error.traceback().iter().filter(|frame| frame.filename == snippet).collect();
    let mut text = String::from("Traceback (most recent call last):\n");
    let same = |a: &&&StackFrame, b: &&&StackFrame| a.start.line == b.start.line && a.frame_name == b.frame_name;
    let groups: Vec<_> = frames.chunk_by(|a, b| same(&a, &b)).collect();
    let left_out = groups.len().saturating_sub(2 * GROUPS_SHOWN);
    for (index, group) in groups.iter().enumerate() {
        if left_out > 0 && index == GROUPS_SHOWN {
            let _ = writeln!(text, "  [{left_out} other lines]");
        }
        if left_out > 0 && index >= GROUPS_SHOWN && index < GROUPS_SHOWN + left_out {
            continue;
        }
        for frame in group.iter().take(REPEATS_SHOWN) {
            frame_lines(frame, code, filename, &mut text);
        }
        match group.len().saturating_sub(REPEATS_SHOWN) {
            0 => {}
            1 => text.push_str("  [Previous line repeated 1 more time]\n"),
            more => {
                let _ = writeln!(text, "  [Previous line repeated {more} more times]");
            }
        }
    }
    if frames.is_empty() {
        text.clear();
    }
    text.push_str(&summary);
    text.push('\n');
    (summary, text)
}

fn frame_lines(frame: &StackFrame, code: &str, filename: &str, out: &mut String) {
    let _ = write!(out, "  File \"{filename}\", line {}", frame.start.line);
    if !frame.hide_frame_name {
        let _ = write!(out, ", in {}", frame.frame_name.as_deref().unwrap_or("<module>"));
    }
    out.push('\n');
    let number = usize::try_from(frame.start.line).unwrap_or(usize::MAX);
    let Some(line) = number.checked_sub(1).and_then(|index| code.lines().nth(index)) else { return };
    let shown = line.trim();
    if shown.is_empty() {
        return;
    }
    let mut cut: String = shown.chars().take(LINE_SHOWN).collect();
    if cut.len() < shown.len() {
        cut.push('…');
    }
    let _ = writeln!(out, "    {cut}");
    if frame.hide_caret || frame.start.line != frame.end.line {
        return;
    }
    let indent = line.chars().take_while(|ch| ch.is_whitespace()).count();
    let column = |at: u32| usize::try_from(at).unwrap_or(usize::MAX).saturating_sub(1).saturating_sub(indent);
    let (start, end) = (column(frame.start.column), column(frame.end.column).min(LINE_SHOWN));
    let width = end.saturating_sub(start);
    // A mark under the whole line says nothing.
    if width > 0 && width < shown.chars().count() {
        let _ = writeln!(out, "    {}{}", " ".repeat(start), "^".repeat(width));
    }
}

/// A message with what the model needs to know to go on.
fn explain(kind: ExcType, message: &str) -> String {
    let message = message.replace("'_bub_Asyncio' object", "module 'asyncio'");
    let hint = if message.contains("'coroutine'") || message.contains("coroutine object") {
        " (a call of a tool gives its value only with `await`)"
    } else if kind == ExcType::NameError && message.contains("'open'") {
        " (this sandbox has no files: use a tool)"
    } else if kind == ExcType::AttributeError && message.starts_with("'tools' object has no attribute") {
        " (code cannot call a tool of that name: use those of the definitions)"
    } else if kind == ExcType::AttributeError && message.starts_with("module 'asyncio'") {
        " (of asyncio this sandbox has gather, run, sleep, create_task and ensure_future)"
    } else if kind == ExcType::ModuleNotFoundError {
        " (this sandbox has only a few modules of the standard library)"
    } else {
        ""
    };
    match message.split_once("syntax parser does not yet support ") {
        Some((_, what)) => format!("this sandbox does not have {what}"),
        None => format!("{message}{hint}"),
    }
}

/// The key of a `KeyError`, which is shown as it is written; the interpreter keeps text without its quotes.
fn key(message: &str) -> String {
    let is_written = message.parse::<f64>().is_ok()
        || matches!(message, "None" | "True" | "False")
        || message.starts_with(['(', '\'', '"', '<', '{', '['])
        || message.starts_with("b'");
    if is_written { message.to_owned() } else { StringRepr(message).to_string() }
}

fn truncate(text: &mut String, most: usize) {
    if text.len() > most {
        let cut = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
}
