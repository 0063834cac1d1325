//! One process at a time per session.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bub_kernel::tape::TapeName;
use tokio::time::Instant;

use super::writer::make_dir;

/// How long to pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Tries before it is said that the session is in use: a holder needs a moment to write its id.
const QUIET_TRIES: usize = 2;

/// Why a session can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionLockError {
    /// Another process used it all the time.
    #[error("session in use by {}; gave up after {} s", holder(*pid), waited.as_secs())]
    Busy {
        /// Which process, when it said so.
        pid: Option<u32>,
        /// How long this one waited.
        waited: Duration,
    },
    /// The lock's file can't be used.
    #[error("can't lock the session by {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("pid {pid}"))
}

/// The sessions that this process uses. Cheap to clone; one per home folder and process.
#[derive(Clone, Debug)]
pub struct SessionLocks {
    dir: Arc<Path>,
    held: Arc<Mutex<HashMap<TapeName, Weak<File>>>>,
}

/// A session that no other process uses as long as this lives.
#[derive(Clone, Debug)]
pub struct SessionLock {
    _file: Arc<File>,
}

impl SessionLocks {
    /// Locks in a folder of their own, which is made when the first is taken.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir: dir.into(), held: Arc::default() }
    }

    /// Waits until no other process uses the session of a tape. Turns of this process share it: they
    /// are put in order elsewhere, and a turn may run another of its own session.
    ///
    /// `on_wait` is called once, with the holder's process id if that is known, when it takes longer
    /// than a moment. The lock of a dead process does not count.
    ///
    /// # Errors
    /// [`SessionLockError::Busy`] when the session is still in use after `wait`, and
    /// [`SessionLockError::Io`].
    pub async fn acquire(
        &self,
        tape: &TapeName,
        wait: Duration,
        on_wait: impl FnOnce(Option<u32>) + Send,
    ) -> Result<SessionLock, SessionLockError> {
        let path = self.dir.join(format!("{tape}.lock"));
        let failed = |source| SessionLockError::Io { path: path.clone(), source };
        let start = Instant::now();
        let mut file: Option<File> = None;
        let mut on_wait = Some(on_wait);
        let mut n_tries = 0;
        loop {
            if let Some(lock) = self.shared(tape) {
                return Ok(lock);
            }
            let tried = match file.take() {
                Some(it) => it,
                None => open(path.clone()).await.map_err(failed)?,
            };
            match tried.try_lock() {
                Ok(()) => return Ok(self.hold(tape, tried)),
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {
                    return Ok(self.hold(tape, tried));
                }
                Err(TryLockError::Error(err)) => return Err(failed(err)),
                Err(TryLockError::WouldBlock) => {}
            }
            n_tries += 1;
            let waited = start.elapsed();
            if waited >= wait {
                return Err(SessionLockError::Busy { pid: read_pid(&tried), waited });
            }
            if n_tries > QUIET_TRIES
                && let Some(on_wait) = on_wait.take()
            {
                on_wait(read_pid(&tried));
            }
            file = Some(tried);
            tokio::time::sleep(PAUSE.min(wait - waited)).await;
        }
    }

    /// The lock that this process already has.
    fn shared(&self, tape: &TapeName) -> Option<SessionLock> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(tape).and_then(Weak::upgrade).map(|file| SessionLock { _file: file })
    }

    fn hold(&self, tape: &TapeName, file: File) -> SessionLock {
        // Whom others wait for; without it they still wait.
        drop(file.set_len(0).and_then(|()| (&file).write_all(std::process::id().to_string().as_bytes())));
        let file = Arc::new(file);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, it| it.strong_count() > 0);
        held.insert(tape.clone(), Arc::downgrade(&file));
        SessionLock { _file: file }
    }
}

async fn open(path: PathBuf) -> io::Result<File> {
    let work = move || {
        if let Some(dir) = path.parent() {
            make_dir(dir)?;
        }
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn read_pid(file: &File) -> Option<u32> {
    let mut digits = [0; 16];
    let n = file.read_at(&mut digits, 0).ok()?;
    str::from_utf8(digits.get(..n)?).ok()?.trim().parse().ok()
}
