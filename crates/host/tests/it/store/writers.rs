use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bub_kernel::tape::{Slice, TapeError};

use super::*;

/// Tells a copy of this test binary which home to write to.
const HOME_VAR: &str = "BUB_TEST_STORE_HOME";
const N_PROCESSES: usize = 4;
const N_APPENDS: usize = 25;

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

/// Not a test of its own: what the copies of this binary do, see below.
#[tokio::test]
async fn child_that_appends() {
    #[expect(clippy::disallowed_methods, reason = "how the parent test names the folder")]
    let Some(dir) = std::env::var_os(HOME_VAR) else { return };
    let (store, tape) = (store(Path::new(&dir)), TapeName::session("/srv/demo", "s1"));
    for n in 0..N_APPENDS {
        let text = format!("{} {n} {}", std::process::id(), "x".repeat(n * 1000));
        store.append(&tape, &messages(&[&text, "second of its batch"])).await.unwrap();
    }
}

fn child(home: &Home) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::writers::child_that_appends"])
        .env(HOME_VAR, home.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn r081_processes_that_append_at_once_lose_and_tear_nothing() {
    let home = Home::new();
    let children: Vec<_> = (0..N_PROCESSES).map(|_| child(&home)).collect();
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
    let children: Vec<_> = (0..2).map(|_| child(&home)).collect();
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
