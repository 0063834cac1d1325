//! The engine's session locks, by files under the home folder.

use std::time::Duration;

use async_trait::async_trait;
use bub_engine::SessionGuard;
use bub_host::SessionLockError;
use bub_kernel::tape::TapeName;

/// Locks of sessions, and how long to wait for one.
#[derive(Debug)]
pub(crate) struct FileLocks {
    pub(crate) locks: bub_host::SessionLocks,
    pub(crate) wait: Duration,
}

#[async_trait]
impl bub_engine::SessionLocks for FileLocks {
    async fn acquire(&self, tape: &TapeName, on_wait: &(dyn Fn(String) + Send + Sync)) -> Result<SessionGuard, String> {
        let limit = self.wait.as_secs();
        let told = |pid: Option<u32>| {
            let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("pid {pid}"));
            on_wait(format!("session in use by {holder}; waiting up to {limit} s (session.wait_seconds)"));
        };
        match self.locks.acquire(tape, self.wait, told).await {
            Ok(lock) => Ok(Box::new(lock)),
            Err(err @ SessionLockError::Busy { .. }) => {
                Err(format!("{err}; use another --session-id, or raise session.wait_seconds"))
            }
            Err(err) => Err(err.to_string()),
        }
    }
}
