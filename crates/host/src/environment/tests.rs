//! Without adoption, which the integration tests turn on for their whole process.

use std::time::{Duration, Instant};

use bub_kernel::environment::{Environment as _, Signal, SpawnRequest};
use tokio::io::AsyncReadExt as _;

use super::*;

#[tokio::test]
async fn daemons_are_found_and_stopped_without_adoption() {
    let env = LocalEnvironment::new(LocalOptions::default()).unwrap();
    for (script, survives) in [
        ("echo", false),
        ("sleep 300.5 & sleep 0.05; echo", true),
        ("setsid sleep 300.5 >/dev/null 2>&1 & sleep 0.05; echo", true),
        ("(setsid sh -c 'sleep 300.5 &' >/dev/null 2>&1 &); sleep 0.05; echo", true),
    ] {
        let mut process = env.spawn(SpawnRequest::shell(script)).await.unwrap();
        let mut pipes = process.take_pipes().unwrap();
        pipes.stdout.read_exact(&mut [0]).await.unwrap();
        assert_eq!(process.wait().await.unwrap().code, 0);
        assert_eq!(process.is_running(), survives, "{script}");
        process.signal(Signal::Kill);
        let start = Instant::now();
        while process.is_running() {
            assert!(start.elapsed() < Duration::from_secs(20), "{script}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn only_adopted_children_are_waited_for() {
    let stat = procfs::Stat::read(i32::try_from(std::process::id()).unwrap()).unwrap();
    assert!(!stat.is_dead() && stat.start > 0 && stat.session >= 0);
    let ours = procfs::Stat { state: b'Z', pid: 10, session: 5, ..stat };
    let now = Instant::now();
    for (child, session, is_known, expected) in [
        // Started here without a session of its own, and with one.
        (ours, 5, false, false),
        (procfs::Stat { session: 10, ..ours }, 5, false, false),
        // In the session of something that was started here; a daemon that was seen alive.
        (procfs::Stat { session: 9, ..ours }, 5, false, true),
        (procfs::Stat { session: 10, ..ours }, 5, true, true),
    ] {
        assert_eq!(orphans::is_to_reap(&child, session, is_known, now), expected, "{child:?}");
    }
    let long_ago = now.checked_sub(Duration::from_secs(61)).unwrap();
    assert!(orphans::is_to_reap(&ours, 5, false, long_ago));
}
