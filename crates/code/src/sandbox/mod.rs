//! The sandbox runner: an interpreter in a worker process of our own binary. It needs no Python, and its code
//! reaches no file, network, process or environment variable.

mod clock;
mod confine;
mod frame;
mod host;
mod output;
mod pool;
mod republic;
mod session;
mod source;
mod traceback;
mod values;
mod worker;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use async_trait::async_trait;
use bub_kernel::code::{CodeError, CodeHost, CodeRequest, CodeRunner};

use self::pool::{Lease, Pool};
pub use self::worker::worker_main;

/// What one run may use.
#[derive(Clone, Copy, Debug)]
pub struct SandboxLimits {
    /// Bytes that the code may hold; default 256 MiB.
    pub memory: u64,
    /// Time for one run, whatever its caller allows; default one hour.
    pub duration: Duration,
    /// Depth of calls; default 1,000.
    pub recursion: usize,
    /// Bytes that the code may print; default 16 MiB.
    pub output: usize,
    /// Runs at the same time, each in its own worker; more wait for their turn. Default 8.
    pub workers: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory: 256 * 1024 * 1024,
            duration: Duration::from_secs(60 * 60),
            recursion: 1_000,
            output: 16 * 1024 * 1024,
            workers: 8,
        }
    }
}

/// How to start workers.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The program: one whose run with `args` ends in [`worker_main`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What one run may use.
    pub limits: SandboxLimits,
}

/// Runs code in worker processes. One idle worker is kept; workers are reused between runs, with a fresh
/// interpreter each time, replaced when they died or were stopped, and killed when the runner is dropped.
#[derive(Debug)]
pub struct SandboxRunner {
    pool: Pool,
}

impl SandboxRunner {
    /// A runner that starts its first worker when it is needed.
    #[must_use]
    pub fn new(options: SandboxOptions) -> Self {
        Self { pool: Pool::new(options) }
    }

    /// Starts a worker now, so that the first run need not. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`CodeError::Runner`] if the program cannot be started.
    pub fn warm(&self) -> Result<(), CodeError> {
        self.pool.warm()
    }
}

#[async_trait]
impl CodeRunner for SandboxRunner {
    async fn run(&self, request: CodeRequest<'_>, host: &dyn CodeHost) -> Result<(), CodeError> {
        let mut lease = self.pool.lease().await?;
        let mut outcome = self.run_on(&mut lease, request, host).await;
        if lease.was_ending(&outcome) {
            drop(lease);
            lease = self.pool.lease().await?;
            outcome = self.run_on(&mut lease, request, host).await;
        }
        if matches!(outcome, Ok(()) | Err(CodeError::Raised { .. })) {
            lease.give_back();
        }
        outcome
    }
}

impl SandboxRunner {
    async fn run_on(
        &self,
        lease: &mut Lease<'_>,
        request: CodeRequest<'_>,
        host: &dyn CodeHost,
    ) -> Result<(), CodeError> {
        let limits = self.pool.limits();
        let run = host::run(&mut lease.worker, request, host, limits);
        match tokio::time::timeout(limits.duration + host::GRACE, run).await {
            Ok(outcome) => outcome,
            // Dropping the lease kills the worker.
            Err(_) => Err(CodeError::Runner {
                reason: format!("the code ran longer than {:?}", limits.duration),
                exit_code: None,
                stderr: String::new(),
            }),
        }
    }
}

/// What the model needs to know about the Python of this runner. A test compares it with what the interpreter does.
#[must_use]
pub fn limits_text() -> &'static str {
    include_str!("limits.txt").trim_ascii_end()
}
