//! Starting the interpreter, and seeing to it that nothing of it is left.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest, CodeRunner},
    environment::{Environment, EnvironmentError, Output, Process, Program, Signal, SpawnRequest},
};
use tokio::{io::AsyncReadExt as _, time::timeout};

use super::{
    serve::{End, Stderr, serve},
    source::SOURCE,
};

/// The oldest Python that will do.
const MIN_VERSION: (u32, u32) = (3, 9);

/// Prints the version, on any Python.
const VERSION_CODE: &str = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])";

/// How long an interpreter may take to tell its version.
const VERSION_WAIT: Duration = Duration::from_secs(10);

/// The most that is read of it.
const MAX_VERSION_BYTES: u64 = 64;

/// A runner that is done ends by itself; only then is it killed.
const ENDS_WITHIN: Duration = Duration::from_millis(50);

/// How long to wait for a process that was killed, for one that closed its output, and for its last words.
const DIES_WITHIN: Duration = Duration::from_secs(3);

/// How code is run in a process.
#[derive(Clone)]
pub struct ProcessOptions {
    /// Where the process runs; it starts in the workspace.
    pub env: Arc<dyn Environment>,
    /// The interpreter: a path in the environment or a name to look up there; `python3`, say. Python 3.9 or newer.
    pub python: String,
    /// The most bytes of data that the process, and each one that it starts, may allocate; beyond it the code
    /// gets a `MemoryError`. `None` leaves it to the environment. Has no effect on macOS.
    pub max_memory: Option<u64>,
}

impl ProcessOptions {
    /// `python3` with 4 GiB of memory.
    #[must_use]
    pub fn new(env: Arc<dyn Environment>) -> Self {
        Self { env, python: "python3".into(), max_memory: Some(4 << 30) }
    }
}

impl fmt::Debug for ProcessOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOptions")
            .field("python", &self.python)
            .field("max_memory", &self.max_memory)
            .finish_non_exhaustive()
    }
}

/// Runs code in a new Python process each time.
///
/// The code has the rights of the environment. It sees the packages that are installed for the interpreter and
/// the modules of the workspace. Its standard input is empty, and what it writes to standard error is seen only
/// when the process dies. When the run ends or its future is dropped, the process and all that it started are
/// killed, and calls that are still open are dropped.
#[derive(Debug)]
pub struct ProcessRunner {
    options: ProcessOptions,
}

impl ProcessRunner {
    /// Makes a runner; nothing is started yet.
    #[must_use]
    pub fn new(options: ProcessOptions) -> Self {
        Self { options }
    }

    /// The version of the interpreter, like `3.12.1`. Starts it, and waits for at most 10 seconds.
    ///
    /// # Errors
    /// [`CodeError::Runner`] when there is none, when it is too old, and when it is no Python.
    pub async fn version(&self) -> Result<String, CodeError> {
        let mut process = self.spawn(VERSION_CODE, false).await?;
        let ask = async {
            let mut text = String::new();
            if let Some(pipes) = process.take_pipes() {
                pipes.stdout.take(MAX_VERSION_BYTES).read_to_string(&mut text).await.ok();
            }
            text
        };
        let version = timeout(VERSION_WAIT, ask).await.unwrap_or_default();
        let mut numbers = version.split('.').map_while(|it| it.parse().ok());
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(major), Some(minor), Some(_)) if (major, minor) >= MIN_VERSION => Ok(version),
            (Some::<u32>(_), Some::<u32>(_), Some::<u32>(_)) => Err(self.too_old(&version)),
            _ => Err(failed(format!("'{}' does not start as Python", self.options.python))),
        }
    }

    async fn spawn(&self, code: &str, stdin: bool) -> Result<Box<dyn Process>, CodeError> {
        let argv = [&self.options.python, "-u", "-c", code].map(str::to_owned).to_vec();
        let request = SpawnRequest {
            program: Program::Argv(argv),
            cwd: None,
            env: BTreeMap::new(),
            stdin,
            output: Output::Separate,
        };
        self.options.env.spawn(request).await.map_err(|err| {
            let python = &self.options.python;
            failed(match &err {
                EnvironmentError::Unavailable(reason) => return CodeError::Unavailable(reason.clone()),
                EnvironmentError::NotFound(path) if path.as_str() == python => {
                    format!(
                        "no Python is called '{python}' here: install Python 3.9 or newer, or name one in the settings"
                    )
                }
                _ => format!("cannot start '{python}': {err}"),
            })
        })
    }

    fn too_old(&self, version: &str) -> CodeError {
        let (major, minor) = MIN_VERSION;
        failed(format!("Python {major}.{minor} or newer is needed, and '{}' is {version}", self.options.python))
    }
}

#[async_trait]
impl CodeRunner for ProcessRunner {
    async fn run(&self, request: CodeRequest<'_>, host: &dyn CodeHost) -> Result<(), CodeError> {
        // From here on, dropping the process kills it.
        let mut process = self.spawn(&SOURCE, true).await?;
        let mut pipes = process.take_pipes().ok_or_else(|| failed("the process has no pipes".into()))?;
        let mut stderr = Stderr::new(pipes.stderr.take());
        let end = serve(request, self.options.max_memory, host, pipes.stdin, pipes.stdout, &mut stderr).await;
        match end {
            End::Done => {
                finish(process.as_mut()).await;
                Ok(())
            }
            End::Failed { error, traceback } => {
                finish(process.as_mut()).await;
                Err(CodeError::Raised { error, traceback })
            }
            End::Unsupported { version } => {
                finish(process.as_mut()).await;
                Err(self.too_old(&version))
            }
            End::Died { reason } => {
                let exit_code = bury(process.as_mut()).await;
                let _ = timeout(DIES_WITHIN, stderr.read_to_end()).await;
                Err(CodeError::Runner { reason, exit_code, stderr: stderr.text() })
            }
        }
    }
}

/// Ends a process that said that it is done.
async fn finish(process: &mut dyn Process) {
    let _ = timeout(ENDS_WITHIN, process.wait()).await;
    if process.is_running() {
        process.signal(Signal::Kill);
        let _ = timeout(DIES_WITHIN, process.wait()).await;
    }
}

/// Waits for a process that closed its output, and kills what is left.
async fn bury(process: &mut dyn Process) -> Option<i32> {
    let status = match timeout(DIES_WITHIN, process.wait()).await {
        Ok(status) => status.ok(),
        Err(_) => {
            process.signal(Signal::Kill);
            timeout(DIES_WITHIN, process.wait()).await.ok().and_then(Result::ok)
        }
    };
    // Its children may hold its standard error open.
    process.signal(Signal::Kill);
    status.map(|it| it.code)
}

fn failed(reason: String) -> CodeError {
    CodeError::Runner { reason, exit_code: None, stderr: String::new() }
}
