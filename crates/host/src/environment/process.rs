//! One started process and all that it starts.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use bub_kernel::environment::{EnvironmentError, ExitStatus, Pipes, Process, Signal};
use process_wrap::tokio::ChildWrapper;
use tempfile::TempPath;

use super::descendants::Descendants;

/// A process of this machine. Dropping it kills it and its descendants.
#[derive(Debug)]
pub(super) struct LocalProcess {
    child: Box<dyn ChildWrapper>,
    descendants: Descendants,
    /// Behind a lock only because pipes can't be shared between threads; a process can.
    pipes: Mutex<Option<Pipes>>,
    status: Option<ExitStatus>,
    script: Option<TempPath>,
}

impl LocalProcess {
    /// Takes charge of `child`, which leads its own session and carries `mark`.
    pub(super) fn new(child: Box<dyn ChildWrapper>, pipes: Pipes, mark: &str) -> io::Result<Self> {
        let leader = child
            .id()
            .and_then(|it| rustix::process::Pid::from_raw(i32::try_from(it).ok()?))
            .ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok(Self {
            child,
            descendants: Descendants::of(leader, mark),
            pipes: Mutex::new(Some(pipes)),
            status: None,
            script: None,
        })
    }

    /// Keeps the file of the script until the process is dropped.
    pub(super) fn keep(&mut self, script: TempPath) {
        self.script = Some(script);
    }
}

#[async_trait]
impl Process for LocalProcess {
    fn take_pipes(&mut self) -> Option<Pipes> {
        self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn wait(&mut self) -> Result<ExitStatus, EnvironmentError> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Not the wrapper's own wait, which waits for the whole group.
        let ended = self.child.inner_mut().wait().await;
        let ended = ended.map_err(|source| EnvironmentError::Io { path: "wait".into(), source })?;
        self.descendants.leader_reaped();
        let code = ended.code().or_else(|| ended.signal().map(|it| -it)).unwrap_or(-1);
        Ok(*self.status.insert(ExitStatus { code }))
    }

    fn signal(&self, signal: Signal) {
        self.descendants.signal(signal);
    }

    fn is_running(&self) -> bool {
        self.descendants.is_running()
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        if self.descendants.is_running() {
            self.descendants.signal(Signal::Kill);
        }
    }
}
