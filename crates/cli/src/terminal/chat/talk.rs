//! The conversation itself: what is typed goes out, what turns say is shown, until the person leaves.

use std::io::{self, IsTerminal as _};

use bub::kernel::channel::Inbox;
use tokio_util::sync::CancellationToken;

use super::{
    channel::ChatChannel,
    completion::CommandCompleter,
    editor::{LineEditor, Typed, key_pressed},
    feed::News,
    history::History,
    lines::Lines,
    screen::{Ended, Screen},
};
use crate::{
    error,
    interrupt::Interrupts,
    output,
    terminal::{WRITE_EVERY, safe::safe},
};

/// How a conversation ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The exit code.
    pub(crate) code: u8,
    /// What ended it early.
    pub(crate) error: Option<io::Error>,
}

/// Where messages come from.
enum Source {
    /// A person with a terminal that can be edited on.
    Editor(Box<LineEditor>),
    /// A person with a terminal that can't.
    Terminal(Lines),
    /// A program: each message is answered before the next is read, failures count, and Ctrl-C ends it.
    Pipe(Lines),
}

/// What to do after something happened.
enum Next {
    GoOn,
    Leave,
}

/// A conversation that goes on.
pub(super) struct Talk<'a> {
    channel: &'a ChatChannel,
    inbox: Inbox,
    screen: Screen,
    history: Option<History>,
    /// Messages whose fate has not been told.
    n_sent: usize,
    /// Turns and commands that run.
    n_open: usize,
    /// Ctrl-C was the last thing that was pressed.
    was_interrupted: bool,
    is_pipe: bool,
    /// A terminal without an editor shows the prompt.
    is_prompted: bool,
    code: u8,
}

impl<'a> Talk<'a> {
    pub(super) fn new(channel: &'a ChatChannel, inbox: Inbox) -> Self {
        let history = channel.setup.history.clone().map(History::new);
        Self {
            channel,
            inbox,
            screen: Screen::default(),
            history,
            n_sent: 0,
            n_open: 0,
            was_interrupted: false,
            is_pipe: !io::stdin().is_terminal(),
            is_prompted: false,
            code: 0,
        }
    }

    /// Talks until the person leaves, the input ends, or `cancel`.
    pub(super) async fn hold(mut self, cancel: CancellationToken) -> Outcome {
        let error = self.talk(cancel).await.err();
        Outcome { code: self.code, error }
    }

    async fn talk(&mut self, cancel: CancellationToken) -> io::Result<()> {
        let mut source = self.source()?;
        let (mut ctrl_c, mut ends) = (Interrupts::ctrl_c(), Interrupts::ends());
        if let Some(first) = self.channel.setup.first.clone() {
            if !self.is_pipe {
                output::note(&format!("{}{}", prompt(&self.channel.setup.label), safe(&first)));
            }
            self.say(first, &mut source).await?;
        }
        loop {
            let is_busy = self.show_news()?;
            if is_busy {
                self.is_prompted = false;
            } else if matches!(source, Source::Terminal(_)) && !std::mem::replace(&mut self.is_prompted, true) {
                output::ask(&prompt(&self.channel.setup.label));
            }
            let is_waiting = self.screen.is_waiting();
            let next = tokio::select! {
                biased;
                () = cancel.cancelled() => Next::Leave,
                () = ends.next() => {
                    self.code = error::INTERRUPTED;
                    Next::Leave
                }
                () = ctrl_c.next() => self.interrupted(is_busy)?,
                () = self.channel.feed.arrival(), if is_busy => Next::GoOn,
                typed = typed(&mut source, is_busy, &self.channel.setup.label) => match typed? {
                    Some(typed) => self.typed(typed, is_busy, &mut source).await?,
                    None => {
                        // A key was pressed while a turn is shown: make room for the prompt.
                        self.screen.pause()?;
                        self.prompt_beside_turn(&mut source, &mut ends, &cancel).await?
                    }
                },
                () = tokio::time::sleep(WRITE_EVERY), if is_waiting => {
                    self.screen.idle()?;
                    Next::GoOn
                }
            };
            if matches!(next, Next::Leave) {
                self.screen.pause()?;
                drop(source);
                if !self.is_pipe {
                    output::note("Bye.");
                }
                return Ok(());
            }
        }
    }

    fn source(&self) -> io::Result<Source> {
        if self.is_pipe {
            return Ok(Source::Pipe(Lines::new(false)));
        }
        if !output::is_terminal() || output::is_dumb() {
            return Ok(Source::Terminal(Lines::new(true)));
        }
        let tools = self.channel.runtime.tools();
        let leaving = ["quit", "exit"].map(str::to_owned);
        let names = tools.iter().map(|it| it.spec().name.to_string()).chain(leaving).collect();
        let completer = CommandCompleter::new(self.channel.setup.prefix.clone(), names);
        let known = self.history.as_ref().map(History::read).unwrap_or_default();
        Ok(Source::Editor(Box::new(LineEditor::new(completer, &known)?)))
    }

    /// Shows what came. Returns whether something runs.
    fn show_news(&mut self) -> io::Result<bool> {
        while let Some(news) = self.channel.feed.take() {
            match &news {
                News::Admitted(_, _, admission) => {
                    self.n_sent = self.n_sent.saturating_sub(1);
                    self.n_open += usize::from(*admission == bub::kernel::channel::Admission::Process);
                }
                News::Ended(..) => self.n_open = self.n_open.saturating_sub(1),
                // One that could not be taken.
                News::Sent(_) => self.n_sent = 0,
                News::Event(..) => {}
            }
            let ended = self.screen.show(news)?;
            // A person has seen it; a program is told by the exit code.
            if let (Some(Ended::Failed(code)), true, 0) = (ended, self.is_pipe, self.code) {
                self.code = code;
            }
        }
        let is_running = self.channel.runtime.snapshot(&self.channel.setup.session).is_running();
        Ok(is_running || self.n_open > 0 || self.n_sent > 0)
    }

    /// Lets the person type while a turn runs; what it says waits meanwhile.
    async fn prompt_beside_turn(
        &mut self,
        source: &mut Source,
        ends: &mut Interrupts,
        cancel: &CancellationToken,
    ) -> io::Result<Next> {
        let Source::Editor(editor) = source else { return Ok(Next::GoOn) };
        let label = format!("{} (steering)", self.channel.setup.label);
        let typed = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Next::Leave),
            () = ends.next() => return Ok(Next::Leave),
            typed = editor.read(prompt(&label)) => typed?,
        };
        self.typed(typed, true, source).await
    }

    async fn typed(&mut self, typed: Typed, is_busy: bool, source: &mut Source) -> io::Result<Next> {
        self.is_prompted = false;
        match typed {
            Typed::Line(line) => {
                self.was_interrupted = false;
                if self.leaves(&line) {
                    return Ok(Next::Leave);
                }
                self.say(line, source).await?;
                Ok(Next::GoOn)
            }
            Typed::Cleared => {
                self.was_interrupted = false;
                Ok(Next::GoOn)
            }
            Typed::Interrupt => self.interrupted(is_busy),
            Typed::End => Ok(Next::Leave),
        }
    }

    /// Ctrl-C: stops what runs; when nothing does, or it was pressed before, the conversation.
    fn interrupted(&mut self, is_busy: bool) -> io::Result<Next> {
        if self.is_pipe {
            self.code = error::INTERRUPTED;
            return Ok(Next::Leave);
        }
        self.is_prompted = false;
        let was_interrupted = std::mem::replace(&mut self.was_interrupted, true);
        match (is_busy, was_interrupted) {
            (true, true) => {
                self.code = error::INTERRUPTED;
                return Ok(Next::Leave);
            }
            (false, true) => return Ok(Next::Leave),
            (true, false) => {
                self.channel.runtime.cancel(&self.channel.setup.session);
                self.screen.aside("stopping … (Ctrl-C again to leave)")?;
            }
            (false, false) => {
                let prefix = &self.channel.setup.prefix;
                self.screen.aside(&format!("(Ctrl-C again, Ctrl-D or {prefix}quit to leave)"))?;
            }
        }
        Ok(Next::GoOn)
    }

    /// Whether a line says that the person leaves.
    fn leaves(&self, line: &str) -> bool {
        let word = line.trim().strip_prefix(&self.channel.setup.prefix).map(str::trim);
        matches!(word, Some("quit" | "exit"))
    }

    /// Sends a message.
    async fn say(&mut self, text: String, source: &mut Source) -> io::Result<()> {
        if text.trim().is_empty() {
            return Ok(());
        }
        if let Source::Editor(editor) = source {
            editor.remember(&text);
            if let Some(Err(err)) = self.history.as_ref().map(|it| it.append(&text)) {
                tracing::warn!(error = %err, "the line was not added to the history");
                // Said once.
                self.history = None;
            }
        }
        self.n_sent += 1;
        self.inbox.put(self.channel.message(text)).await.map_err(io::Error::other)
    }
}

fn prompt(label: &str) -> String {
    format!("{label} > ")
}

/// The next thing that is typed. `None`: a key was pressed while a turn is shown.
async fn typed(source: &mut Source, is_busy: bool, label: &str) -> io::Result<Option<Typed>> {
    match source {
        Source::Editor(editor) if !is_busy => editor.read(prompt(label)).await.map(Some),
        Source::Editor(_) => {
            key_pressed().await;
            Ok(None)
        }
        Source::Pipe(_) if is_busy => std::future::pending().await,
        Source::Terminal(lines) | Source::Pipe(lines) => match lines.next().await {
            Some(line) => Ok(Some(Typed::Line(line?))),
            None => Ok(Some(Typed::End)),
        },
    }
}
