use std::{process::Command, time::Instant};

use bub_kernel::tape::Archive;

use super::*;

/// Tells a copy of this test binary that its files can't grow beyond 8 KiB.
const FULL_VAR: &str = "BUB_TEST_STORE_FULL";

/// Not a test of its own: runs in a copy of this binary whose files have a limit, as on a full disk.
#[tokio::test]
async fn child_on_a_full_disk() {
    #[expect(clippy::disallowed_methods, reason = "how the parent test names the folder")]
    let Some(dir) = std::env::var_os(FULL_VAR) else { return };
    let (store, tape) = (store(Path::new(&dir)), TapeName::session("/srv/demo", "s1"));
    let path = store.path(&tape);
    let mut n_appended = 0;
    let text = "x".repeat(900);
    let error = loop {
        let before = fs::read(&path).unwrap_or_default();
        match store.append(&tape, &messages(&[&text, &text])).await {
            Ok(()) => n_appended += 2,
            Err(err) => {
                assert_eq!(fs::read(&path).unwrap(), before);
                break err.to_string();
            }
        }
        assert!(n_appended < 100, "the limit does not hold");
    };
    assert!(n_appended > 0 && error.contains("can't append to") && error.contains(".jsonl"), "{error}");
    // What fits still goes in, and numbers have no gap.
    store.append(&tape, &messages(&["small"])).await.unwrap();
    let before = fs::read(&path).unwrap();
    let big: Vec<_> = messages(&[text.as_str(); 20]);
    store.replace(&tape, &big).await.unwrap_err();
    store.archive(&tape, Archive { stamp: "20260102T030405Z", stored: true, tail: &big }).await.unwrap_err();
    store.append(&TapeName::free("new"), &big).await.unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), before);
    let entries = store.read(&tape, &TapeQuery::default()).await.unwrap();
    assert_eq!(entries.len(), n_appended + 1);
    assert!(entries.iter().zip(1..).all(|(it, id)| it.id == id));
    assert_eq!(fs::read_dir(Path::new(&dir).join("tapes")).unwrap().count(), 1, "something was left behind");
}

#[test]
fn a_full_disk_leaves_tapes_as_they_were() {
    let home = Home::new();
    // Signals that are ignored stay ignored in the program that replaces the shell.
    let output = Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 16; exec "$0" --exact store::faults::child_on_a_full_disk"#])
        .arg(std::env::current_exe().unwrap())
        .env(FULL_VAR, home.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(home.store.path(&home.tape).exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tapes"), "a file").unwrap();
    let (store, tape) = (store(dir.path()), TapeName::free("t"));
    for result in [store.append(&tape, &messages(&["a"])).await, store.replace(&tape, &messages(&["a"])).await] {
        let text = result.unwrap_err().to_string();
        assert!(text.starts_with("tape t: can't ") && text.contains("/tapes/t.jsonl"), "{text}");
    }
    let archive = Archive { stamp: "x", stored: true, tail: &[] };
    assert!(store.archive(&tape, archive).await.unwrap_err().to_string().contains("/tapes"));
}

#[tokio::test]
async fn what_is_no_file_is_an_error_at_once() {
    let home = Home::with("");
    let path = home.store.path(&home.tape);
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let start = Instant::now();
    for text in [
        home.store.read(&home.tape, &TapeQuery::default()).await.unwrap_err().to_string(),
        home.store.stats(&home.tape).await.unwrap_err().to_string(),
        home.store.append(&home.tape, &messages(&["a"])).await.unwrap_err().to_string(),
    ] {
        assert!(text.contains("not a regular file"), "{text}");
    }
    assert!(start.elapsed().as_secs() < 5);
}
