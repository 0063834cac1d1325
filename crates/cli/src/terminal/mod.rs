//! How a turn looks while it goes on.

pub(crate) mod chat;
pub(crate) mod json;
pub(crate) mod safe;
pub(crate) mod text;

use std::{io, time::Duration};

use bub::kernel::turn::{TurnError, TurnEvent, TurnResult};

/// Words that come faster than this are written together.
pub(crate) const WRITE_EVERY: Duration = Duration::from_millis(16);

/// Shows one turn.
pub(crate) trait Printer {
    /// Something happened.
    fn event(&mut self, event: &TurnEvent) -> io::Result<()>;
    /// The turn has its answer.
    fn finished(&mut self, result: &TurnResult) -> io::Result<()>;
    /// The turn has failed.
    fn failed(&mut self, err: &TurnError) -> io::Result<()>;
    /// Whether something waits to be written with what comes next.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Nothing came for a moment: writes what waits.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// The person wants it to stop.
    fn cancelling(&mut self) {}
    /// Whether [`Printer::failed`] has said what went wrong, so that it need not be said again.
    fn tells_errors(&self) -> bool {
        false
    }
}
