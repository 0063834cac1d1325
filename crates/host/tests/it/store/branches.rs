//! Starting a tape from an earlier point of another.

use bub_host::BranchError;
use jiff::Timestamp;

use super::*;

fn entry(id: u64, kind: &str, payload: Value) -> String {
    let entry =
        json!({"id": id, "kind": kind, "payload": payload, "meta": {}, "date": "2026-01-02T03:04:05.000000+00:00"});
    format!("{}\n", bub_kernel::text::json(&entry))
}

/// 1 anchor, 2 handoff, 3 message, 4 calls, 5 event, 6 results, 7 message, 9 anchor, 10 handoff.
fn source() -> Home {
    let handoff = |name: &str| json!({"name": "handoff", "data": {"name": name, "state": null}});
    Home::with(
        [
            entry(1, "anchor", json!({"name": "session/start"})),
            entry(2, "event", handoff("session/start")),
            line(3, "go"),
            entry(4, "tool_call", json!({"calls": [{"id": "c", "name": "bash", "arguments": "{}"}]})),
            entry(5, "event", json!({"name": "spill.write", "data": {"status": "ok", "handle": "h1"}})),
            entry(6, "tool_result", json!({"results": ["ok"]})),
            line(7, "done"),
            entry(9, "anchor", json!({"name": "p1"})),
            entry(10, "event", handoff("p1")),
        ]
        .concat(),
    )
}

#[track_caller]
fn check(at: Option<u64>, expected: Result<(u64, u64), &str>) -> Option<String> {
    let home = source();
    let new = TapeName::session("/srv/demo", "new");
    let before = home.bytes();
    match (home.store.branch(&home.tape, at, &new, Timestamp::UNIX_EPOCH), expected) {
        (Ok(done), Ok((id, entries))) => {
            assert_eq!((done.at, done.entries), (id, entries), "{at:?}");
            let copy = fs::read(home.store.path(&new)).unwrap();
            let lines: Vec<_> = copy.split_inclusive(|it| *it == b'\n').collect();
            let n = lines.len() - 1;
            assert_eq!(n as u64, entries);
            assert!(before.starts_with(&lines[..n].concat()), "the copy is the same to the byte");
            let last = Entry::from_line(lines[n]).unwrap();
            assert_eq!((last.id, last.name()), (id + 1, Some("tape.fork")));
            assert_eq!(last.data(), Some(&json!({"tape": home.tape.as_str(), "id": id})));
            assert_eq!(last.meta["context"], json!(false));
            done.moved
        }
        (Err(err), Err(expected)) => {
            assert!(err.to_string().contains(expected), "{at:?}: {err}");
            assert!(!home.store.path(&new).exists());
            None
        }
        (got, _) => panic!("{at:?}: {got:?}"),
    }
}

#[test]
fn a_tape_starts_with_the_entries_up_to_a_point() {
    assert_eq!(check(None, Ok((10, 9))), None);
    assert_eq!(check(Some(10), Ok((10, 9))), None);
    assert_eq!(check(Some(7), Ok((7, 7))), None);
    assert_eq!(check(Some(6), Ok((6, 6))), None);
    assert_eq!(check(Some(3), Ok((3, 3))), None);
}

#[test]
fn a_cut_that_would_part_what_belongs_together_is_moved_and_said_so() {
    for at in [4, 5] {
        assert!(check(Some(at), Ok((3, 3))).unwrap().contains("between calls and their results"));
    }
    assert!(check(Some(1), Ok((2, 2))).unwrap().contains("the event of the anchor"));
    assert!(check(Some(9), Ok((10, 9))).unwrap().contains("the event of the anchor"));
    assert!(check(Some(8), Ok((7, 7))).unwrap().contains("there is no entry 8"));
}

#[test]
fn entries_that_are_not_there_are_refused() {
    check(Some(11), Err("there is no entry 11: the tape has 1 to 10"));
    check(Some(0), Err("there is no entry 0: the tape begins with 1"));
}

#[tokio::test]
async fn a_session_with_entries_is_not_written_over() {
    let home = source();
    let new = TapeName::session("/srv/demo", "new");
    home.store.append(&new, &messages(&["mine"])).await.unwrap();
    let before = fs::read(home.store.path(&new)).unwrap();
    let err = home.store.branch(&home.tape, None, &new, Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(matches!(err, BranchError::NotEmpty), "{err}");
    assert_eq!(fs::read(home.store.path(&new)).unwrap(), before);
    // A tape without entries is none.
    fs::write(home.store.path(&new), "\n").unwrap();
    home.store.branch(&home.tape, None, &new, Timestamp::UNIX_EPOCH).unwrap();
    home.store.append(&new, &messages(&["on"])).await.unwrap();
    assert_eq!(home.store.stats(&new).await.unwrap().last_id, 12);
}

#[test]
fn spilled_results_come_along_when_the_copied_part_tells_of_them() {
    let home = source();
    let sidecar = |handle: &str| {
        let chunk = json!({"id": 1, "kind": "tool_result", "payload": {"results": ["x"]}, "meta": {"spill_handle": handle}, "date": "d"});
        entry(1, "anchor", json!({"name": format!("spill/{handle}/chunk/0")})) + &chunk.to_string() + "\n"
    };
    fs::write(home.store.path(&home.tape.sidecar("spill")), sidecar("h1") + &sidecar("h2")).unwrap();
    let branch = |at: u64, name: &str| {
        let new = TapeName::session("/srv/demo", name);
        home.store.branch(&home.tape, Some(at), &new, Timestamp::UNIX_EPOCH).unwrap();
        fs::read_to_string(home.store.path(&new.sidecar("spill"))).ok()
    };
    assert_eq!(branch(7, "late"), Some(sidecar("h1")));
    assert_eq!(branch(3, "early"), None);
}
