//! What the person sees of turns: the one that is shown as it comes, and those beside it.

use std::io;

use bub::kernel::{
    channel::Admission,
    turn::{Outbound, TurnError, TurnEvent, TurnResult},
};

use super::feed::{MessageId, News};
use crate::{
    error, output,
    terminal::{Printer as _, safe::safe_line, text::TextPrinter},
};

/// Characters of a message that are shown again.
const MAX_ECHO_CHARS: usize = 100;

/// The turns that are shown.
#[derive(Debug, Default)]
pub(super) struct Screen {
    turns: Vec<(MessageId, TextPrinter)>,
    /// Whether a message was handed to a turn that runs.
    is_steered: bool,
}

/// What the person should know of the end of a turn.
#[derive(Debug)]
pub(super) enum Ended {
    Well,
    Failed(u8),
}

impl Screen {
    /// Shows one thing. Returns how a turn ended when one did.
    pub(super) fn show(&mut self, news: News) -> io::Result<Option<Ended>> {
        match news {
            News::Admitted(id, text, admission) => self.admitted(id, &text, &admission)?,
            News::Event(id, event) => {
                // What follows answers something else.
                let is_answered = self.is_steered && matches!(event, TurnEvent::Final { .. });
                if let Some(printer) = self.printer(id) {
                    printer.event(&event)?;
                    if is_answered {
                        printer.pause()?;
                    }
                }
            }
            News::Ended(id, result) => return self.ended(id, result).map(Some),
            News::Sent(Outbound { text, .. }) => {
                self.pause()?;
                output::note(&text);
            }
        }
        Ok(None)
    }

    /// Whether words wait to be written with those that follow.
    pub(super) fn is_waiting(&self) -> bool {
        self.turns.iter().any(|(_, it)| it.is_waiting())
    }

    /// Writes the words that wait.
    pub(super) fn idle(&mut self) -> io::Result<()> {
        self.turns.iter_mut().try_for_each(|(_, it)| it.idle())
    }

    /// Makes room for something else than turns.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.turns.iter_mut().try_for_each(|(_, it)| it.pause())
    }

    /// Says something beside the turns.
    pub(super) fn aside(&mut self, text: &str) -> io::Result<()> {
        self.pause()?;
        let color = output::wants_color(io::IsTerminal::is_terminal(&io::stderr()));
        output::note(&if color { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() });
        Ok(())
    }

    fn printer(&mut self, id: MessageId) -> Option<&mut TextPrinter> {
        self.turns.iter_mut().find(|(it, _)| *it == id).map(|(_, printer)| printer)
    }

    fn admitted(&mut self, id: MessageId, text: &str, admission: &Admission) -> io::Result<()> {
        let echo = bub::kernel::text::elide(&safe_line(text), MAX_ECHO_CHARS).replace('\n', " ");
        match admission {
            Admission::Process => {
                let printer = TextPrinter::new(false);
                let is_first = self.turns.is_empty();
                self.is_steered &= !is_first;
                self.turns.push((id, if is_first { printer } else { printer.at_end() }));
                Ok(())
            }
            Admission::Steer { .. } => {
                self.is_steered = true;
                self.aside(&format!("(steering) {echo}"))
            }
            Admission::FollowUp => self.aside(&format!("(waits for its turn) {echo}")),
            Admission::Drop => self.aside(&format!("(not taken) {echo}")),
        }
    }

    fn ended(&mut self, id: MessageId, result: Result<TurnResult, TurnError>) -> io::Result<Ended> {
        let at = self.turns.iter().position(|(it, _)| *it == id);
        let mut printer = match at {
            Some(at) => self.turns.remove(at).1,
            None => TextPrinter::new(false).at_end(),
        };
        self.pause()?;
        match result {
            Ok(result) => {
                printer.finished(&result)?;
                Ok(Ended::Well)
            }
            Err(err) => {
                printer.failed(&err)?;
                let is_told = printer.tells_errors();
                let is_cancelled = matches!(err, TurnError::Cancelled);
                let err = anyhow::Error::new(err);
                match (is_cancelled, is_told) {
                    (true, _) => self.aside("(stopped)")?,
                    (false, false) => error::tell(&err),
                    (false, true) => {}
                }
                Ok(Ended::Failed(error::code(&err)))
            }
        }
    }
}
