//! Ctrl-C and its relatives.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for a person, or the system on its way down, to want an end.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signals: Vec<Signal>,
}

impl Interrupts {
    /// Listens from now on; until then the signals end the program, as usual.
    pub(crate) fn listen() -> Self {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    /// Listens for Ctrl-C alone.
    pub(crate) fn ctrl_c() -> Self {
        Self::of(&[SignalKind::interrupt()])
    }

    /// Listens for the end of the terminal or of the system.
    pub(crate) fn ends() -> Self {
        Self::of(&[SignalKind::terminate(), SignalKind::hangup()])
    }

    fn of(kinds: &[SignalKind]) -> Self {
        Self { signals: kinds.iter().filter_map(|kind| signal(*kind).ok()).collect() }
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        if self.signals.is_empty() {
            std::future::pending::<()>().await;
        }
        let waits = self.signals.iter_mut().map(|it| Box::pin(it.recv()));
        futures::future::select_all(waits).await;
    }
}
