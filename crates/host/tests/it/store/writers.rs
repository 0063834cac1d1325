use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bub_kernel::tape::{Slice, TapeError};

use super::*;

/// Tells a copy of this test binary which home to write to.
const HOME_VAR: &str = "BUB_TEST_STORE_HOME";
/// Tells it how often.
const APPENDS_VAR: &str = "BUB_TEST_STORE_APPENDS";
const N_PROCESSES: usize = 8;
const N_APPENDS: usize = 200;
/// The longest text of an append, in bytes.
const MAX_TEXT: usize = 300_000;

#[tokio::test]
async fn r072_ids_on_disk_are_those_reported_before_and_after_a_restart() {
    let home = Home::new();
    home.append(&["a"]).await;
    home.append(&["b", "c"]).await;
    let before = home.store.read(&home.tape, &TapeQuery::default()).await.unwrap();
    assert_eq!(before.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(home.ids().await, [1, 2, 3]);
    home.reopened().append(&home.tape, &messages(&["d"])).await.unwrap();
    assert_eq!(
        String::from_utf8(home.bytes()).unwrap(),
        [line(1, "a"), line(2, "b"), line(3, "c"), line(4, "d")].concat()
    );
}

#[tokio::test]
async fn r080_a_last_line_without_newline_counts_and_stays_whole() {
    let ten: String = (1..=10).map(|id| line(id, "x")).collect();
    let home = Home::with(ten.trim_end());
    assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, 10);
    home.append(&["y"]).await;
    assert_eq!(home.ids().await, (1..=11).collect::<Vec<_>>());
    assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, 11);
    assert!(home.bytes().starts_with(ten.as_bytes()));
}

#[tokio::test]
async fn r137_only_the_owner_can_read_tapes() {
    let home = Home::new();
    home.append(&["a"]).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = home.store.path(&home.tape);
    assert_eq!((mode(&home.dir.path().join("tapes")), mode(&file)), (0o700, 0o600));
    home.store.replace(&home.tape, &messages(&["b"])).await.unwrap();
    assert_eq!(mode(&file), 0o600);
}

#[tokio::test]
async fn replace_numbers_from_one_and_without_entries_leaves_an_empty_tape() {
    let home = Home::new();
    home.append(&["a", "b", "c"]).await;
    home.store.replace(&home.tape, &messages(&["d", "e"])).await.unwrap();
    assert_eq!(home.all().await, [(1, "d".into()), (2, "e".into())]);
    assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, 2);
    home.store.replace(&home.tape, &[]).await.unwrap();
    assert_eq!(home.ids().await, [0; 0]);
    assert_eq!(home.store.stats(&home.tape).await.unwrap(), Default::default());
    let after_anchor = TapeQuery { slice: Slice::AfterLastAnchor, ..TapeQuery::default() };
    let missing = home.store.read(&home.tape, &after_anchor).await;
    assert!(matches!(missing, Err(TapeError::NoAnchors)));
    home.append(&["f"]).await;
    assert_eq!(home.ids().await, [1]);
    let files: Vec<_> = fs::read_dir(home.dir.path().join("tapes")).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[tokio::test]
async fn ids_go_on_after_the_file_was_changed_from_outside() {
    let home = Home::new();
    home.append(&["a", "b", "c"]).await;
    home.write([line(1, "a"), line(2, "b")].concat());
    home.append(&["d"]).await;
    assert_eq!(home.ids().await, [1, 2, 3]);
    home.write(line(41, "other"));
    home.append(&["e"]).await;
    assert_eq!(home.ids().await, [41, 42]);
    home.write("");
    home.append(&["f"]).await;
    assert_eq!(home.ids().await, [1]);
}

#[tokio::test]
async fn list_names_session_tapes_only() {
    let home = Home::new();
    assert_eq!(home.store.list().await.unwrap(), []);
    home.append(&["a"]).await;
    for name in [home.tape.sidecar("spill"), TapeName::free("calculator")] {
        home.store.append(&name, &messages(&["a"])).await.unwrap();
    }
    fs::write(home.store.path(&home.tape).with_extension("jsonl.20260102T030405Z.bak"), "").unwrap();
    assert_eq!(home.store.list().await.unwrap(), std::slice::from_ref(&home.tape));
}

/// Most texts are short, one in each process is as long as can be.
fn text_of_append(n: usize, of: usize) -> String {
    let share = (n + 1) as f64 / of as f64;
    "x".repeat((MAX_TEXT as f64 * share.powi(12)) as usize)
}

/// Not a test of its own: what the copies of this binary do, see below.
#[tokio::test]
async fn child_that_appends() {
    #[expect(clippy::disallowed_methods, reason = "how the parent test names the folder")]
    let (Some(dir), Ok(n_appends)) = (std::env::var_os(HOME_VAR), std::env::var(APPENDS_VAR)) else { return };
    let (store, tape) = (store(Path::new(&dir)), TapeName::session("/srv/demo", "s1"));
    let n_appends = n_appends.parse().unwrap();
    for n in 0..n_appends {
        let text = format!("{} {n} {}", std::process::id(), text_of_append(n, n_appends));
        store.append(&tape, &messages(&[&text, "second of its batch"])).await.unwrap();
    }
}

fn child(home: &Home, n_appends: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::writers::child_that_appends"])
        .env(HOME_VAR, home.dir.path())
        .env(APPENDS_VAR, n_appends.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn r081_processes_that_append_at_once_lose_and_tear_nothing() {
    let home = Home::new();
    let children: Vec<_> = (0..N_PROCESSES).map(|_| child(&home, N_APPENDS)).collect();
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    for mut it in children {
        assert!(it.wait().unwrap().success());
    }
    let all = home.all().await;
    let n_lines = home.bytes().iter().filter(|it| **it == b'\n').count();
    assert_eq!((all.len(), n_lines), (2 * N_PROCESSES * N_APPENDS, 2 * N_PROCESSES * N_APPENDS));
    assert!(all.iter().zip(1..).all(|(it, id)| it.0 == id));
    assert!(all.chunks(2).all(|batch| batch[1].1 == "second of its batch"));
    for pid in pids {
        let prefix = format!("{pid} ");
        let order: Vec<usize> =
            all.iter().filter_map(|it| it.1.strip_prefix(&prefix)?.split(' ').next()?.parse().ok()).collect();
        assert_eq!(order, (0..N_APPENDS).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_append_never_goes_to_a_tape_that_was_replaced() {
    let home = Home::new();
    let children: Vec<_> = (0..2).map(|_| child(&home, 25)).collect();
    let start = Instant::now();
    while home.store.stats(&home.tape).await.unwrap().entries == 0 {
        assert!(start.elapsed().as_secs() < 20, "the children did not start");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for n in 0..40 {
        let new = if n % 3 == 0 { Vec::new() } else { messages(&["new", "tape"]) };
        home.store.replace(&home.tape, &new).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    home.append(&["last"]).await;
    for mut it in children {
        assert!(it.wait().unwrap().success());
    }
    let all = home.all().await;
    assert!(all.iter().zip(1..).all(|(it, id)| it.0 == id), "{all:?}");
    assert!(all.iter().any(|it| it.1 == "last"));
}

#[tokio::test]
async fn r081_a_writer_that_was_killed_blocks_nobody() {
    let home = Home::new();
    for round in 0..10 {
        let mut children: Vec<_> = (0..2).map(|_| child(&home, N_APPENDS)).collect();
        tokio::time::sleep(Duration::from_millis(20 + 14 * round)).await;
        for it in &mut children {
            it.kill().unwrap();
            it.wait().unwrap();
        }
        let start = Instant::now();
        home.append(&["after the kill"]).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let all = home.all().await;
        assert!(all.iter().zip(1..).all(|(it, id)| it.0 == id));
        assert_eq!(all.last().unwrap().1, "after the kill");
    }
    // A batch that was torn is torn at its end: what came through of it are whole lines.
    let text = String::from_utf8(home.bytes()).unwrap();
    let n_torn = text.lines().filter(|it| Entry::from_line(it.as_bytes()).is_none()).count();
    assert!(n_torn <= 20, "{n_torn}");
}

/// What other programs may do to a tape's file, without asking anybody.
fn change_from_outside(home: &Home, n: usize) {
    let path = home.store.path(&home.tape);
    let len = fs::metadata(&path).map_or(0, |it| it.len());
    let grow = |bytes: &[u8]| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
    };
    match n % 9 {
        0 => grow(line(1000 + n as u64, "grown").as_bytes()),
        1 => grow(line(2000 + n as u64, "without an end").trim_end().as_bytes()),
        2 => grow(b"{\"id\": 5, \"kind\": \"mess"),
        3 => grow(b"\0\0\0\n\n"),
        // There may be no file just now.
        4 => drop(fs::OpenOptions::new().write(true).open(&path).map(|it| it.set_len(len / 2))),
        5 => home.write((1..=n as u64 + 20).map(|id| line(id, "rewritten in place")).collect::<String>()),
        6 => {
            let new = path.with_extension("new");
            fs::write(&new, (1..=7).map(|id| line(id, "renamed")).collect::<String>()).unwrap();
            fs::rename(new, &path).unwrap();
        }
        7 => home.write(""),
        _ => drop(fs::remove_file(&path)),
    }
}

#[tokio::test]
async fn a_tape_that_others_change_while_it_is_open_is_what_its_file_is() {
    let home = Home::new();
    for n in 0..90 {
        home.append(&["one", "two"]).await;
        change_from_outside(&home, n * 7);
        let (ours, fresh) = (&home.store, home.reopened());
        assert_eq!(ours.stats(&home.tape).await.unwrap(), fresh.stats(&home.tape).await.unwrap(), "{n}");
        for query in [TapeQuery::default(), TapeQuery::default().newest_first().limit(3)] {
            let (ours, fresh) = (ours.read(&home.tape, &query).await, fresh.read(&home.tape, &query).await);
            assert_eq!(ours.unwrap(), fresh.unwrap(), "{n}");
        }
        let before = home.ids().await.last().copied().unwrap_or_default();
        home.append(&["mine", "mine too"]).await;
        let after = home.all().await;
        assert_eq!(after[after.len() - 2..], [(before + 1, "mine".into()), (before + 2, "mine too".into())], "{n}");
    }
}

#[test]
fn others_that_change_a_tape_at_any_moment_break_nothing() {
    let home = Home::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(home.append(&["first"]));
    std::thread::scope(|scope| {
        let outside = scope.spawn(|| {
            for n in 0..300 {
                change_from_outside(&home, n * 5);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        while !outside.is_finished() {
            runtime.block_on(async {
                home.append(&["mine"]).await;
                home.store.stats(&home.tape).await.unwrap();
                home.store.read(&home.tape, &TapeQuery::default()).await.unwrap();
            });
        }
    });
    runtime.block_on(async {
        let before = home.ids().await.last().copied().unwrap_or_default();
        home.append(&["last"]).await;
        assert_eq!(home.all().await.pop().unwrap(), (before + 1, "last".to_owned()));
    });
}

/// A clock that goes back by an hour each time it is asked.
#[derive(Debug)]
struct BackwardClock(std::sync::atomic::AtomicI64);

impl bub_kernel::clock::Clock for BackwardClock {
    fn now(&self) -> jiff::Timestamp {
        let second = self.0.fetch_sub(3600, std::sync::atomic::Ordering::SeqCst);
        jiff::Timestamp::from_second(second).unwrap()
    }
}

#[tokio::test]
async fn a_clock_that_goes_backwards_changes_neither_order_nor_ids() {
    let home = Home::new();
    let clock = Arc::new(BackwardClock(1_767_323_045.into()));
    let tape = bub_kernel::tape::Tape::new(home.tape.clone(), Arc::new(home.reopened()), clock);
    tape.bootstrap().await.unwrap();
    for n in 0..3 {
        tape.append_event(&format!("e{n}"), Value::Null).await.unwrap();
    }
    // A turn that is killed and one that is not.
    for name in ["killed", "merged"] {
        let fork = tape.journaled_fork();
        fork.tape().append_event("loop.start", json!({})).await.unwrap();
        fork.tape().append_event(name, json!({})).await.unwrap();
        if name == "merged" {
            fork.commit().await.unwrap();
        } else {
            drop(fork);
            assert_eq!(tape.recover(Duration::ZERO).await.unwrap(), 3);
        }
    }
    let all = home.all().await;
    let names: Vec<_> = all.iter().map(|it| it.1.as_str()).collect();
    let expected =
        ["session/start", "handoff", "e0", "e1", "e2", "loop.start", "killed", "loop.finish", "loop.start", "merged"];
    assert_eq!(names, expected);
    assert!(all.iter().zip(1..).all(|(it, id)| it.0 == id));
    let newest = home.reopened().read(&home.tape, &TapeQuery::default().newest_first().limit(1)).await.unwrap();
    assert_eq!(newest[0].name(), Some("merged"));
    assert_eq!(tape.stats().await.unwrap().last_id, 10);
}
