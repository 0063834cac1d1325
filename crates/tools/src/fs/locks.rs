//! One change of a file at a time.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, Weak},
};

use bub_kernel::environment::EnvPath;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Lets one call at a time change a file, in the order in which they ask.
///
/// The calls of one step run at once; without it the second of two edits of one file would write
/// back what the first has changed. Clones share their locks.
#[derive(Clone, Default)]
pub struct FileLocks {
    // Files that nobody changes any more are forgotten at the next call, so this never holds more
    // than there are running calls, and one.
    held: Arc<std::sync::Mutex<HashMap<EnvPath, Weak<Mutex<()>>>>>,
}

impl fmt::Debug for FileLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLocks").finish_non_exhaustive()
    }
}

impl FileLocks {
    /// Waits until no other call changes `path`; dropping the guard lets the next one go on.
    pub(crate) async fn lock(&self, path: &EnvPath) -> OwnedMutexGuard<()> {
        let lock = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|_, it| it.strong_count() > 0);
            let known = held.get(path).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::new(Mutex::new(()));
                held.insert(path.clone(), Arc::downgrade(&new));
                new
            })
        };
        lock.lock_owned().await
    }
}
