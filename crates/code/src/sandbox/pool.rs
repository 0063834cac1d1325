//! Worker processes and who uses them.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bub_kernel::code::CodeError;
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use super::{SandboxLimits, SandboxOptions};

/// Idle workers kept.
const IDLE: usize = 1;
/// Runs after which a worker is replaced, so that what its allocator keeps does not grow without end.
const RUNS: u32 = 1_000;
/// Time in runs after which a worker is replaced; it ends by itself some time later.
const BUSY: Duration = Duration::from_secs(60 * 60);

/// Workers of one runner.
#[derive(Debug)]
pub(super) struct Pool {
    options: SandboxOptions,
    turns: Arc<Semaphore>,
    idle: Mutex<Vec<Worker>>,
}

/// A worker process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    /// Whether it has said anything in this run.
    pub(super) heard: bool,
    runs: u32,
    busy: Duration,
}

/// The use of one worker for one run.
#[derive(Debug)]
pub(super) struct Lease<'a> {
    pub(super) worker: Worker,
    pool: &'a Pool,
    since: Instant,
    _turn: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(options: SandboxOptions) -> Self {
        let turns = Arc::new(Semaphore::new(options.limits.workers.clamp(1, Semaphore::MAX_PERMITS)));
        Self { options, turns, idle: Mutex::default() }
    }

    pub(super) fn limits(&self) -> SandboxLimits {
        self.options.limits
    }

    pub(super) fn warm(&self) -> Result<(), CodeError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.is_empty() {
            idle.push(self.start()?);
        }
        Ok(())
    }

    /// An idle worker or a new one, after a wait while too many run.
    pub(super) async fn lease(&self) -> Result<Lease<'_>, CodeError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(|err| failure(err.to_string()))?;
        let worker = loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut worker) = kept else { break self.start()? };
            // One that died while it was idle is left out.
            if matches!(worker.child.try_wait(), Ok(None)) {
                break worker;
            }
        };
        Ok(Lease { worker, pool: self, since: Instant::now(), _turn: turn })
    }

    fn start(&self) -> Result<Worker, CodeError> {
        let mut command = Command::new(&self.options.program);
        command
            .args(&self.options.args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // A key pressed at the terminal is for the host, which then decides.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|err| failure(format!("cannot start {}: {err}", self.options.program.display())))?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok(Worker { child, stdin, stdout, stderr, heard: false, runs: 0, busy: Duration::ZERO })
            }
            _ => Err(failure("the worker has no pipes".to_owned())),
        }
    }
}

impl Lease<'_> {
    /// Whether the worker was idle before and ended without a word: it was ending already when it was
    /// taken, which its process does not show until it has ended, so the code has done nothing.
    pub(super) fn was_ending(&self, outcome: &Result<(), CodeError>) -> bool {
        self.worker.runs > 0
            && !self.worker.heard
            && matches!(outcome, Err(CodeError::Runner { exit_code: Some(_), .. }))
    }

    /// Keeps the worker for the next run; it must have ended this one cleanly.
    pub(super) fn give_back(self) {
        let Self { mut worker, pool, since, .. } = self;
        worker.runs += 1;
        worker.busy += since.elapsed();
        if worker.runs < RUNS && worker.busy < BUSY {
            let mut idle = pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE {
                idle.push(worker);
            }
        }
    }
}

/// A failure of the runner itself.
pub(super) fn failure(reason: String) -> CodeError {
    CodeError::Runner { reason, exit_code: None, stderr: String::new() }
}
