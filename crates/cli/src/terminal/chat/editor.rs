//! Input with a line editor, on a terminal.
//!
//! While a turn is shown there is no prompt; the terminal passes keys on without printing them. The first
//! key that a person presses opens the editor, and what the turn says waits until the line is done.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyEvent, RepeatCount,
    error::ReadlineError, history::MemHistory,
};

use tokio::task::JoinHandle;

use super::completion::CommandCompleter;

/// How often to look for a key while a turn is shown: so short that nobody notices.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What a person did at the prompt.
#[derive(Debug)]
pub(super) enum Typed {
    /// A line, or several that were pasted.
    Line(String),
    /// Ctrl-C with text on the line, which is gone.
    Cleared,
    /// Ctrl-C on an empty line.
    Interrupt,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

type CommandEditor = Editor<CommandCompleter, MemHistory>;

/// The editor, and the terminal as it was.
pub(super) struct LineEditor {
    editor: Option<CommandEditor>,
    /// The line that is being typed.
    reading: Option<JoinHandle<(CommandEditor, rustyline::Result<String>)>>,
    had_text: Arc<AtomicBool>,
    before: Termios,
}

impl LineEditor {
    /// Takes over the terminal, until dropped.
    pub(super) fn new(completer: CommandCompleter, history: &[String]) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_history(config, MemHistory::new()).map_err(io::Error::other)?;
        editor.set_helper(Some(completer));
        for entry in history {
            editor.add_history_entry(entry).map_err(io::Error::other)?;
        }
        let had_text = Arc::new(AtomicBool::new(false));
        let on_ctrl_c = EventHandler::Conditional(Box::new(CtrlC(had_text.clone())));
        editor.bind_sequence(KeyEvent::ctrl('C'), on_ctrl_c);
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Drain, &quiet)?;
        Ok(Self { editor: Some(editor), reading: None, had_text, before })
    }

    /// Remembers a line, to be called back.
    pub(super) fn remember(&mut self, line: &str) {
        if let Some(editor) = &mut self.editor {
            // Only a line that is there already is refused.
            drop(editor.add_history_entry(line));
        }
    }

    /// Lets the person type a line. May be dropped and called again: the line is not lost.
    pub(super) async fn read(&mut self, prompt: String) -> io::Result<Typed> {
        if let Some(mut editor) = self.editor.take() {
            self.had_text.store(false, Ordering::Relaxed);
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let line = editor.readline(&prompt);
                (editor, line)
            }));
        }
        let Some(reading) = &mut self.reading else { return Ok(Typed::End) };
        let done = reading.await;
        self.reading = None;
        let (editor, line) = done.map_err(io::Error::other)?;
        self.editor = Some(editor);
        match line {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) if self.had_text.load(Ordering::Relaxed) => Ok(Typed::Cleared),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(ReadlineError::Io(err)) => Err(err),
            Err(err) => Err(io::Error::other(err)),
        }
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        if self.reading.is_some() {
            // An editor that still reads has asked the terminal to mark pasted text.
            drop(crate::output::out("\x1b[?2004l\n"));
        }
        if let Err(err) = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before) {
            tracing::warn!(error = %err, "the terminal's settings were not put back");
        }
    }
}

/// Waits until the person has pressed a key, which stays to be read, or the terminal is gone.
pub(super) async fn key_pressed() {
    while !is_readable(io::stdin()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_readable(input: impl AsFd) -> bool {
    let mut inputs = [PollFd::new(&input, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A signal that comes just now is no key.
    poll(&mut inputs, Some(&now)).is_ok_and(|n_ready| n_ready > 0)
}

/// Ctrl-C: remembers whether it took text away.
struct CtrlC(Arc<AtomicBool>);

impl ConditionalEventHandler for CtrlC {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, ctx: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(!ctx.line().is_empty(), Ordering::Relaxed);
        Some(Cmd::Interrupt)
    }
}
