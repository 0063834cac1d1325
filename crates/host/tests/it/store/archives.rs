use bub_kernel::tape::{Archive, SESSION_START, Tape};

use super::*;

const STAMP: &str = "20260102T030405Z";

#[tokio::test]
async fn r089_archives_of_one_second_do_not_overwrite_each_other() {
    let home = Home::with([line(1, "a").as_bytes(), b"broken\n", line(2, "b").trim_end().as_bytes()].concat());
    let archive = |stored, tail| Archive { stamp: STAMP, stored, tail };
    let first = home.store.archive(&home.tape, archive(true, &[])).await.unwrap();
    assert_eq!(first, format!("{}.{STAMP}.bak", home.store.path(&home.tape).display()));
    assert_eq!(fs::read(&first).unwrap(), home.bytes());
    let tail = messages(&["c"]);
    let second = home.store.archive(&home.tape, archive(true, &tail)).await.unwrap();
    assert_eq!(second, format!("{}.{STAMP}-2.bak", home.store.path(&home.tape).display()));
    let expected = [home.bytes(), format!("\n{}", line(3, "c")).into_bytes()].concat();
    assert_eq!(fs::read(&second).unwrap(), expected);
    let third = home.store.archive(&home.tape, archive(false, &tail)).await.unwrap();
    assert_eq!(fs::read_to_string(&third).unwrap(), line(1, "c"));
    let sidecar = home.tape.sidecar("spill");
    let empty = home.store.archive(&sidecar, archive(true, &[])).await.unwrap();
    assert_eq!(fs::read_to_string(&empty).unwrap(), "");
    assert_eq!(fs::read(&first).unwrap(), home.bytes());
}

#[tokio::test]
async fn r089_odd_session_and_tape_names_stay_in_the_tape_folder() {
    let home = Home::new();
    for name in [TapeName::session("/srv/demo", "../x/y:z é"), TapeName::free("../x/y:z é")] {
        let tape = Tape::new(name, Arc::new(home.store.clone()), Arc::new(FixedClock::default()));
        tape.bootstrap().await.unwrap();
        let first = tape.reset(true).await.unwrap().unwrap();
        let second = tape.reset(true).await.unwrap().unwrap();
        assert_ne!(first, second);
        for it in [first, second] {
            assert_eq!(Path::new(&it).parent(), Some(home.dir.path().join("tapes").as_path()));
            assert_eq!(fs::read_to_string(&it).unwrap().lines().count(), 2);
        }
    }
    assert_eq!(fs::read_dir(home.dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_reset_in_a_turn_archives_what_the_turn_wrote_too() {
    let home = Home::new();
    let tape = Tape::new(home.tape.clone(), Arc::new(home.store.clone()), Arc::new(FixedClock::default()))
        .with_sidecars(&["spill".to_owned()]);
    tape.bootstrap().await.unwrap();
    tape.sidecar("spill").unwrap().append_event("stored", json!({})).await.unwrap();
    let fork = tape.fork();
    fork.tape().append_event("pending", json!({})).await.unwrap();
    fork.tape().sidecar("spill").unwrap().append_event("pending", json!({})).await.unwrap();
    let path = fork.tape().reset(true).await.unwrap().unwrap();
    let names = |text: &str| {
        let entries = text.lines().map(|it| Entry::from_line(it.as_bytes()).unwrap());
        entries.map(|it| format!("{} {}", it.id, it.name().unwrap())).collect::<Vec<_>>()
    };
    let archived = fs::read_to_string(&path).unwrap();
    assert_eq!(names(&archived), [&format!("1 {SESSION_START}"), "2 handoff", "3 pending"]);
    let sidecar = path.replace(".jsonl.", "__sidecar__spill.jsonl.");
    assert_eq!(names(&fs::read_to_string(sidecar).unwrap()), ["1 stored", "2 pending"]);
    // Until the commit the stored tape is as it was.
    assert_eq!(home.ids().await, [1, 2]);
    fork.commit().await.unwrap();
    let expected = [&format!("1 {SESSION_START}"), "2 handoff", "3 sidecar.reset", "4 sidecar.archive"];
    assert_eq!(names(&String::from_utf8(home.bytes()).unwrap()), expected);
    assert_eq!(home.store.stats(&home.tape.sidecar("spill")).await.unwrap().entries, 0);
}
