//! The shells whose ids were given out.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bub_kernel::{error::ToolError, text::elide, tool::ToolContext, turn::SessionId};
use futures::future::join_all;
use tokio::{sync::watch, time::timeout};

use super::{
    buffer::Limits,
    running::{Ended, KILL_GRACE, Output, Running, STOP_GRACE},
};

/// Finished shells that a session keeps; the oldest is forgotten first.
const MAX_FINISHED: usize = 64;

/// Finished shells that are kept for all sessions.
const MAX_FINISHED_IN_ALL: usize = 1024;

/// Characters of a command in a notice.
const MAX_COMMAND: usize = 120;

/// How long a stop may take in all: asking, killing, reading the last output.
const STOP_LIMIT: Duration = Duration::from_millis(500).saturating_add(STOP_GRACE).saturating_add(KILL_GRACE);

/// How much of a shell's output is kept, and where.
#[derive(Clone, Debug)]
pub struct ShellSettings {
    /// Where spool files are made; without it, what does not fit in memory is dropped.
    pub spool_dir: Option<PathBuf>,
    /// Bytes of output that are kept of a shell; beyond it the middle is dropped.
    pub max_output_bytes: u64,
    /// Bytes of output that a shell keeps in memory.
    pub memory_bytes: usize,
}

impl Default for ShellSettings {
    /// 256 MiB, of which 1 MiB in memory, and no spool file.
    fn default() -> Self {
        Self { spool_dir: None, max_output_bytes: 256 * 1024 * 1024, memory_bytes: 1024 * 1024 }
    }
}

/// The background shells of all sessions.
pub struct Shells {
    settings: ShellSettings,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    closed: bool,
    by_id: HashMap<String, Arc<Shell>>,
    /// Ids in the order of their end.
    finished: VecDeque<String>,
}

/// A shell whose id was given out.
pub(super) struct Shell {
    pub(super) id: String,
    pub(super) output: Arc<Output>,
    session: SessionId,
    command: String,
    stop: watch::Sender<bool>,
    /// Whether the model knows of its end.
    told: AtomicBool,
}

impl fmt::Debug for Shells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shells").field("settings", &self.settings).field("shells", &self.len()).finish()
    }
}

impl Shells {
    /// An empty table.
    #[must_use]
    pub fn new(settings: ShellSettings) -> Arc<Self> {
        Arc::new(Self { settings, table: Mutex::default() })
    }

    /// How many shells there are, finished ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table().by_id.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The commands of the shells that run, each cut to a line's length.
    #[must_use]
    pub fn running_commands(&self) -> Vec<String> {
        self.running(|_| true).iter().map(|it| it.command.clone()).collect()
    }

    /// Stops a session's running shells and waits for their end. What they printed stays readable, unless
    /// the session is temporary.
    pub async fn terminate_session(&self, session: &SessionId) {
        let shells = self.running(|it| it.session == *session);
        for it in &shells {
            it.set_told();
        }
        join_all(shells.iter().map(|it| it.stop())).await;
        if session.is_temporary() {
            let mut table = self.table();
            table.by_id.retain(|_, it| it.session != *session);
            table.forget_the_gone();
        }
    }

    /// Stops all shells, waits for their end, and lets no new one start.
    pub async fn terminate_all(&self) {
        self.table().closed = true;
        let shells = self.running(|_| true);
        join_all(shells.iter().map(|it| it.stop())).await;
    }

    /// What the model should know about shells of the session that ended; each end is told once.
    #[must_use]
    pub fn take_notices(&self, session: &SessionId) -> Vec<String> {
        let table = self.table();
        let ended = table.finished.iter().filter_map(|id| table.by_id.get(id));
        let news = ended.filter(|it| it.session == *session && !it.set_told());
        news.filter_map(|it| it.notice()).collect()
    }

    /// How much of a shell's output is kept.
    pub(super) fn limits(&self) -> Limits {
        let ShellSettings { spool_dir, max_output_bytes, memory_bytes } = self.settings.clone();
        Limits { memory: memory_bytes, total: max_output_bytes, spool_dir }
    }

    /// An error when no shell may be started any more.
    pub(super) fn check_open(&self, ctx: &ToolContext) -> Result<(), ToolError> {
        self.table().check_open(ctx)
    }

    /// Lets a process go on in the background, under a new id.
    pub(super) fn adopt(
        self: &Arc<Self>,
        ctx: &ToolContext,
        running: Running,
        command: &str,
    ) -> Result<Arc<Shell>, ToolError> {
        let shell = {
            let mut table = self.table();
            table.check_open(ctx)?;
            let shell = Arc::new(Shell {
                id: table.new_id(),
                output: Arc::clone(running.output()),
                session: ctx.session.clone(),
                command: elide(command.trim(), MAX_COMMAND).into_owned(),
                stop: watch::Sender::new(false),
                told: AtomicBool::new(false),
            });
            table.by_id.insert(shell.id.clone(), Arc::clone(&shell));
            shell
        };
        let (shells, closing) = (Arc::clone(self), ctx.tasks.token().clone());
        let ours = Arc::clone(&shell);
        ctx.tasks.spawn_to_end(async move {
            let mut running = running;
            let mut stop = ours.stop.subscribe();
            let goes_on = tokio::select! {
                biased;
                () = closing.cancelled() => false,
                _ = stop.wait_for(|it| *it) => false,
                () = running.until_gone() => true,
            };
            if !goes_on {
                running.stop().await;
            }
            let code = running.code();
            running.settle().await;
            shells.finished(&ours, code);
        });
        Ok(shell)
    }

    /// Finds a shell of the session.
    pub(super) fn get(&self, session: &SessionId, id: &str) -> Result<Arc<Shell>, ToolError> {
        let found = self.table().by_id.get(id.trim()).filter(|it| it.session == *session).cloned();
        found.ok_or_else(|| ToolError::raised("KeyError", format!("unknown shell id: {id}")))
    }

    fn running(&self, wanted: impl Fn(&Shell) -> bool) -> Vec<Arc<Shell>> {
        let table = self.table();
        let running = table.by_id.values().filter(|it| it.output.progress().ended.is_none() && wanted(it));
        running.cloned().collect()
    }

    fn finished(&self, shell: &Shell, code: Option<i32>) {
        let mut table = self.table();
        shell.output.end(code);
        table.finished.push_back(shell.id.clone());
        table.forget_the_oldest(&shell.session);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn check_open(&self, ctx: &ToolContext) -> Result<(), ToolError> {
        if self.closed || ctx.tasks.is_closed() {
            return Err(ToolError::raised("RuntimeError", "shell runtime is closed"));
        }
        Ok(())
    }

    fn new_id(&self) -> String {
        loop {
            // The hasher's keys are random.
            let number = RandomState::new().build_hasher().finish();
            let id = format!("bsh-{:08x}", number & 0xffff_ffff);
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    fn forget_the_gone(&mut self) {
        self.finished.retain(|it| self.by_id.contains_key(it));
    }

    fn forget_the_oldest(&mut self, session: &SessionId) {
        let is_of_session = |id: &String| self.by_id.get(id).is_some_and(|it| it.session == *session);
        let n_finished = self.finished.iter().filter(|it| is_of_session(it)).count();
        let oldest = if n_finished > MAX_FINISHED {
            self.finished.iter().position(is_of_session)
        } else if self.finished.len() > MAX_FINISHED_IN_ALL {
            Some(0)
        } else {
            None
        };
        if let Some(id) = oldest.and_then(|idx| self.finished.remove(idx)) {
            self.by_id.remove(&id);
        }
    }
}

impl Shell {
    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.output.progress().ended
    }

    /// Notes that the model knows of its end, and returns whether it did before.
    pub(super) fn set_told(&self) -> bool {
        self.told.swap(true, Ordering::SeqCst)
    }

    /// Stops it, and returns how it ended. Several callers may do so at once.
    pub(super) async fn stop(&self) -> Option<Ended> {
        self.stop.send_replace(true);
        let mut progress = self.output.watch();
        drop(timeout(STOP_LIMIT, progress.wait_for(|it| it.ended.is_some())).await);
        self.ended()
    }

    fn notice(&self) -> Option<String> {
        let how = match self.ended()?.code {
            Some(code) => format!("ended with exit code {code}"),
            None => "could not be stopped".to_owned(),
        };
        Some(format!(
            "The background shell {} {how}. Its command was: {}\nbash_output still shows what it printed.",
            self.id, self.command
        ))
    }
}
