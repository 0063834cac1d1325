//! A bar on standard error for what takes longer than a moment.

use std::{
    future::Future,
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// How long a person waits without being told anything.
const QUIET: Duration = Duration::from_millis(500);
/// How often a bar without an end moves.
const TICK: Duration = Duration::from_millis(100);

/// Shows how far something is: only on a terminal, and only when it takes longer than a moment.
pub(crate) struct Progress {
    what: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
    is_wanted: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let is_wanted = io::stderr().is_terminal() && !output::is_dumb();
        Self { what, started: Instant::now(), bar: None, is_wanted }
    }

    /// So many bytes of so many are done.
    pub(crate) fn at(&mut self, position: u64, len: u64) {
        if let Some(bar) = self.bar("{msg} [{bar:30}] {bytes}/{total_bytes} {eta}") {
            bar.set_length(len);
            bar.set_position(position);
        }
    }

    /// So many things of so many are done.
    pub(crate) fn count(&mut self, position: usize, len: usize) {
        if let Some(bar) = self.bar("{msg} [{bar:30}] {human_pos}/{human_len} {eta}") {
            bar.set_length(len as u64);
            bar.set_position(position as u64);
        }
    }

    /// Waits for something that does not say how far it is.
    pub(crate) async fn while_waiting<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => {
                    self.clear();
                    return done;
                }
                () = tokio::time::sleep(TICK), if self.is_wanted => {
                    if let Some(bar) = self.bar("{spinner} {msg} {elapsed}") {
                        bar.tick();
                    }
                }
            }
        }
    }

    /// Takes the bar away, since something else is to be written.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.started = Instant::now();
    }

    fn bar(&mut self, template: &str) -> Option<&ProgressBar> {
        if self.is_wanted && self.bar.is_none() && self.started.elapsed() >= QUIET {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(self.what);
            self.bar = Some(bar);
        }
        self.bar.as_ref()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
