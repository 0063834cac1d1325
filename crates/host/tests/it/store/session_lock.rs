use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bub_host::{SessionLockError, SessionLocks};

use super::*;

const LOCKS_VAR: &str = "BUB_TEST_LOCKS";

fn name() -> TapeName {
    TapeName::free("t")
}

async fn acquire(locks: &SessionLocks, millis: u64) -> Result<bub_host::SessionLock, SessionLockError> {
    locks.acquire(&name(), Duration::from_millis(millis), |_| ()).await
}

#[tokio::test]
async fn turns_of_one_process_share_a_session_and_others_wait() {
    let dir = TempDir::new().unwrap();
    let ours = SessionLocks::new(dir.path().join("locks"));
    // Another set of locks stands for another process.
    let theirs = SessionLocks::new(dir.path().join("locks"));
    let first = acquire(&ours, 0).await.unwrap();
    let second = acquire(&ours, 0).await.unwrap();
    let busy = acquire(&theirs, 60).await.unwrap_err();
    let text = busy.to_string();
    assert_eq!(text, format!("session in use by pid {}; gave up after 0 s", std::process::id()));
    assert!(matches!(busy, SessionLockError::Busy { waited, .. } if waited >= Duration::from_millis(60)));
    theirs.acquire(&TapeName::free("other"), Duration::ZERO, |_| ()).await.unwrap();
    drop(first);
    acquire(&theirs, 0).await.unwrap_err();
    drop(second);
    acquire(&theirs, 0).await.unwrap();
    acquire(&ours, 0).await.unwrap();
}

#[tokio::test]
async fn who_waits_is_told_once_and_goes_on_when_the_session_is_free() {
    let dir = TempDir::new().unwrap();
    let (ours, theirs) = (SessionLocks::new(dir.path().to_owned()), SessionLocks::new(dir.path().to_owned()));
    let held = acquire(&ours, 0).await.unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    let (tape, wait) = (name(), Duration::from_secs(20));
    let waiting = theirs.acquire(&tape, wait, |pid| told.lock().unwrap().push(pid));
    let release = async {
        while told.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(held);
    };
    let (lock, ()) = tokio::join!(waiting, release);
    lock.unwrap();
    assert_eq!(*told.lock().unwrap(), [Some(std::process::id())]);
}

/// Not a test of its own: holds the lock until it is killed.
#[tokio::test]
async fn child_that_holds() {
    #[expect(clippy::disallowed_methods, reason = "how the parent test names the folder")]
    let Some(dir) = std::env::var_os(LOCKS_VAR) else { return };
    let _lock = acquire(&SessionLocks::new(dir.into()), 20_000).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn r081_a_killed_process_blocks_nobody() {
    let dir = TempDir::new().unwrap();
    let locks = SessionLocks::new(dir.path().to_owned());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::session_lock::child_that_holds"])
        .env(LOCKS_VAR, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let start = Instant::now();
    let seen = loop {
        match acquire(&locks, 0).await {
            Err(SessionLockError::Busy { pid: Some(pid), .. }) => break pid,
            _ => assert!(start.elapsed().as_secs() < 20, "the child did not start"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, pid);
    acquire(&locks, 0).await.unwrap();
}
