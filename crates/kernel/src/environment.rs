//! Where tools run processes and touch files: the host, a container, another machine.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Cursor},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use crate::{
    code::CodeRunner,
    error::{ErrorKind, ToolError},
};

/// A path inside an environment: absolute, `/`-separated, not necessarily on this machine.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EnvPath(String);

impl EnvPath {
    /// Makes a path from an absolute one.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub enum Program {
    /// A script for the environment's shell.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

/// Where the process's output goes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Output {
    /// One pipe for standard output and standard error, so that their order is kept;
    /// it is [`Pipes::stdout`].
    #[default]
    Merged,
    /// A pipe each.
    Separate,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct SpawnRequest {
    /// What to run.
    pub program: Program,
    /// Working directory; the workspace when absent.
    pub cwd: Option<EnvPath>,
    /// Added to the environment's own variables.
    pub env: BTreeMap<String, String>,
    /// Whether the caller writes to standard input; otherwise the process reads end-of-file.
    pub stdin: bool,
    /// Where its output goes.
    pub output: Output,
}

impl SpawnRequest {
    /// A shell script with closed input and merged output.
    #[must_use]
    pub fn shell(script: impl Into<String>) -> Self {
        Self {
            program: Program::Shell(script.into()),
            cwd: None,
            env: BTreeMap::new(),
            stdin: false,
            output: Output::Merged,
        }
    }
}

/// What a path that should be a regular file is instead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    /// A folder.
    Directory,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
        })
    }
}

/// Why the environment failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// No such path.
    #[error("no such file or directory: {0}")]
    NotFound(EnvPath),
    /// Not a regular file.
    #[error("not a regular file but {kind}: {path}")]
    NotAFile {
        /// Which path.
        path: EnvPath,
        /// What it is.
        kind: FileKind,
    },
    /// Relative path without a workspace.
    #[error("relative path '{0}' is not allowed without a workspace")]
    NoWorkspace(String),
    /// The path cannot be one (a NUL byte, say).
    #[error("invalid path '{path}': {reason}")]
    InvalidPath {
        /// As given.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More bytes than the caller wants.
    #[error("{path} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Which path.
        path: EnvPath,
        /// Its size in bytes.
        size: u64,
        /// The most that was allowed.
        limit: u64,
    },
    /// No shell to run scripts with.
    #[error("no shell found: looked for {0}")]
    NoShell(String),
    /// The environment can't be reached, or went away: how it was tried, what came of it, what to do. It
    /// may be there the next time.
    #[error("{0}")]
    Unavailable(String),
    /// The operating system said no.
    #[error("{path}: {source}")]
    Io {
        /// Which path or program.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl EnvironmentError {
    /// Names an I/O error's path, and recognises a missing file.
    #[must_use]
    pub fn io(path: &EnvPath, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.clone()),
            io::ErrorKind::IsADirectory => Self::NotAFile { path: path.clone(), kind: FileKind::Directory },
            _ => Self::Io { path: path.to_string(), source },
        }
    }
}

impl From<EnvironmentError> for ToolError {
    fn from(err: EnvironmentError) -> Self {
        let message = err.to_string();
        let made = match &err {
            EnvironmentError::NotFound(_) => Self::raised("FileNotFoundError", message),
            EnvironmentError::NotAFile { kind: FileKind::Directory, .. } => Self::raised("IsADirectoryError", message),
            EnvironmentError::NoWorkspace(_) | EnvironmentError::InvalidPath { .. } => {
                Self::raised("ValueError", message)
            }
            EnvironmentError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Self::raised("PermissionError", message)
            }
            EnvironmentError::Unavailable(_) => Self::raised("ConnectionError", message),
            EnvironmentError::TooLarge { .. } => Self::new(ErrorKind::Tool, message),
            EnvironmentError::NotAFile { .. } | EnvironmentError::NoShell(_) | EnvironmentError::Io { .. } => {
                Self::raised("OSError", message)
            }
        };
        made.with_source(err)
    }
}

/// Which signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// Please stop (`SIGTERM`).
    Terminate,
    /// Stop now (`SIGKILL`).
    Kill,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExitStatus {
    /// The exit code; minus the signal's number when a signal ended it.
    pub code: i32,
}

/// The ends of a process's pipes that are ours.
pub struct Pipes {
    /// Where to write, when the request asked for it.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output, or both outputs merged.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error, when it is separate.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipes")
            .field("stdin", &self.stdin.is_some())
            .field("stderr", &self.stderr.is_some())
            .finish_non_exhaustive()
    }
}

/// A running process. Dropping it kills it and its descendants.
#[async_trait]
pub trait Process: Send + Sync {
    /// Takes the pipes; `None` the second time.
    fn take_pipes(&mut self) -> Option<Pipes>;
    /// Waits until the process itself ends; its descendants may live on. Safe to drop and call again.
    async fn wait(&mut self) -> Result<ExitStatus, EnvironmentError>;
    /// Signals it and all its descendants, also those that left its group or session; never fails
    /// when they are gone.
    fn signal(&self, signal: Signal);
    /// Whether it or any descendant is alive.
    fn is_running(&self) -> bool;
}

/// A regular file, open for reading.
pub struct OpenFile {
    /// Its size in bytes when it was opened.
    pub size: u64,
    /// Its content.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("size", &self.size).finish_non_exhaustive()
    }
}

impl OpenFile {
    /// An open file whose content is in memory.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { size: bytes.len() as u64, reader: Box::new(Cursor::new(bytes)) }
    }
}

/// A place where tools run processes and touch files.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Directory that relative paths resolve against.
    fn workspace(&self) -> Option<&EnvPath>;
    /// Resolves `path`: absolute ones stay as they are, relative ones join the workspace.
    ///
    /// # Errors
    /// [`EnvironmentError::NoWorkspace`] for a relative path without one.
    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError>;
    /// Starts a process.
    async fn spawn(&self, request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError>;
    /// Where `path` leads when all links are followed, also when nothing is there yet: what to call
    /// the file in results. `path` itself when the environment can't tell.
    async fn true_path(&self, path: &EnvPath) -> EnvPath {
        path.clone()
    }
    /// Opens a regular file; anything else is an error at once, never a wait.
    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError>;
    /// Replaces a file's content whole (readers and crashes see the old or the new bytes), making its folders.
    async fn write(&self, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError>;
    /// Reads a whole regular file of at most `limit` bytes.
    async fn read_bytes(&self, path: &EnvPath, limit: u64) -> Result<Vec<u8>, EnvironmentError> {
        let file = self.open(path).await?;
        let too_large = |size| EnvironmentError::TooLarge { path: path.clone(), size, limit };
        if file.size > limit {
            return Err(too_large(file.size));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(file.size).unwrap_or_default());
        // A file may grow while it is read; one byte more than allowed is enough to know.
        file.reader.take(limit + 1).read_to_end(&mut bytes).await.map_err(|err| EnvironmentError::io(path, err))?;
        if bytes.len() as u64 > limit { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
    }
    /// The environment's own way to run code, if it has one.
    fn code_runner(&self) -> Option<Arc<dyn CodeRunner>> {
        None
    }
    /// Releases what it holds.
    async fn close(&self) {}
}
