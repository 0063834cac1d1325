//! Locks on files: bounded in time, gone with the process that held them.

use std::{
    fs::{File, TryLockError},
    io, thread,
    time::{Duration, Instant},
};

/// How long a writer waits for another one.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// The first and the longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));

/// Takes the only lock on a file, or fails after `wait`.
pub(super) fn lock_exclusive(file: &File, wait: Duration) -> io::Result<()> {
    poll(wait, || file.try_lock())
}

/// Takes a lock that keeps writers away, or fails after `wait`.
pub(super) fn lock_shared(file: &File, wait: Duration) -> io::Result<()> {
    poll(wait, || file.try_lock_shared())
}

fn poll(wait: Duration, mut try_lock: impl FnMut() -> Result<(), TryLockError>) -> io::Result<()> {
    let start = Instant::now();
    let (mut pause, longest) = PAUSES;
    loop {
        match try_lock() {
            Ok(()) => return Ok(()),
            // A file system without locks has no second writer that would heed them.
            Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => return Ok(()),
            Err(TryLockError::Error(err)) => return Err(err),
            Err(TryLockError::WouldBlock) if start.elapsed() >= wait => {
                let message = format!("another process has held its lock for more than {} s", wait.as_secs_f32());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
        }
        pause = (pause * 2).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_stays_taken_is_given_up_with_a_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (first, second) = (file.reopen().unwrap(), file.reopen().unwrap());
        lock_exclusive(&first, Duration::ZERO).unwrap();
        for result in [lock_exclusive(&second, Duration::from_millis(20)), lock_shared(&second, Duration::ZERO)] {
            let err = result.unwrap_err();
            assert_eq!(err.kind(), io::ErrorKind::TimedOut);
            assert!(err.to_string().starts_with("another process has held its lock"), "{err}");
        }
        drop(first);
        lock_shared(&second, Duration::ZERO).unwrap();
    }
}
