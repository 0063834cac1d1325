//! The tapes of a home folder, as commands find them.

use std::time::Duration;

use anyhow::{Result, bail};
use bub::{
    App,
    engine::SessionGuard,
    host::JsonlStore,
    kernel::{
        clock,
        clock::Clock as _,
        tape::{Tape, TapeName},
    },
};
use jiff::tz::TimeZone;

use crate::output;

/// How long to wait for a process that is about to let go of its journal.
const JOURNAL_WAIT: Duration = Duration::from_secs(1);

/// The tapes of a home folder, seen from a workspace.
pub(crate) struct Shelf {
    app: App,
}

impl Shelf {
    pub(crate) fn new(app: App) -> Self {
        Self { app }
    }

    pub(crate) fn store(&self) -> &JsonlStore {
        self.app.store()
    }

    pub(crate) fn workspace(&self) -> &str {
        self.app.workspace()
    }

    /// The zone that times are read and written in.
    pub(crate) fn zone(&self) -> TimeZone {
        clock::SystemClock.zone()
    }

    /// The tape of a session of this workspace, or the one that is named.
    pub(crate) fn find(&self, session: &str) -> Result<TapeName> {
        let by_session = self.session(session);
        let by_name = TapeName::free(session);
        let found = [by_session, by_name].into_iter().find(|it| self.exists(it));
        match found {
            Some(name) => Ok(name),
            None => bail!(
                "there is no tape of session '{session}' in workspace {} (bub tape list shows what there is)",
                self.workspace()
            ),
        }
    }

    /// As [`Self::find`], for commands that only read: they do not merge an interrupted turn, but say that
    /// there is one.
    pub(crate) fn find_to_read(&self, session: &str) -> Result<TapeName> {
        let name = self.find(session)?;
        if self.store().is_interrupted(&name).unwrap_or_default() {
            output::note("(an interrupted turn is not in it yet; the next turn or command of the session adds it)");
        }
        Ok(name)
    }

    /// The name of the tape that a session of this workspace has or would have.
    pub(crate) fn session(&self, session: &str) -> TapeName {
        TapeName::session(self.workspace(), session)
    }

    /// Names of sessions can't be read from tapes; those that bub itself gives can be recognised.
    pub(crate) fn known_session(&self, name: &TapeName) -> Option<&'static str> {
        ["cli:local", "cli_session"].into_iter().find(|it| self.session(it) == *name)
    }

    /// A tape with all sidecars that it has.
    pub(crate) fn open(&self, name: &TapeName) -> Result<Tape> {
        let prefix = format!("{name}__sidecar__");
        let sidecars = self.store().sidecars(name)?;
        let names: Vec<_> =
            sidecars.iter().filter_map(|it| it.as_str().strip_prefix(&prefix)).map(str::to_owned).collect();
        Ok(Tape::new(name.clone(), self.app.store().clone(), clock::system()).with_sidecars(&names))
    }

    /// The tokens that fit into the context of the model that a tape's session asks, if that is known.
    pub(crate) async fn context_window(&self, tape: &Tape) -> Option<u64> {
        self.app.runtime().context_window(tape).await
    }

    /// Keeps turns of other processes away from a session, waiting for one that runs, and merges what
    /// a process that died left of its turn.
    pub(crate) async fn hold(&self, name: &TapeName) -> Result<SessionGuard> {
        let guard = self.app.lock_session(name, &|notice| output::note(&notice)).await;
        let guard = guard.map_err(anyhow::Error::msg)?;
        self.open(name)?.recover(JOURNAL_WAIT).await?;
        Ok(guard)
    }

    fn exists(&self, name: &TapeName) -> bool {
        self.store().path(name).exists() || self.store().journals(name).is_ok_and(|it| !it.is_empty())
    }
}
