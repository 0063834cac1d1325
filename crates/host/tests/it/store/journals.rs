//! Journals: what a killed process leaves, and what is made of it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use bub_kernel::{
    message::ToolCallRequest,
    tape::{Tape, TapeFork},
};

use super::*;

impl Home {
    fn main(&self) -> Tape {
        Tape::new(self.tape.clone(), Arc::new(self.reopened()), Arc::new(FixedClock::default()))
            .with_sidecars(&["spill".to_owned()])
    }

    fn journals(&self) -> Vec<PathBuf> {
        self.store.journals(&self.tape).unwrap()
    }

    async fn recover(&self) -> usize {
        self.main().recover(Duration::ZERO).await.unwrap()
    }

    /// Kinds, names and the like of all entries of a tape.
    async fn lines(&self, tape: &TapeName) -> Vec<String> {
        let entries = self.reopened().read(tape, &TapeQuery::default()).await.unwrap();
        assert!(entries.iter().zip(1..).all(|(it, id)| it.id == id), "{entries:?}");
        entries.iter().map(|it| line_of(it)).collect()
    }

    async fn main_lines(&self) -> Vec<String> {
        self.lines(&self.tape).await
    }
}

fn line_of(entry: &Entry) -> String {
    let status = entry.data().and_then(|it| it["status"].as_str()).unwrap_or_default();
    let name = entry.name().unwrap_or_default();
    let what = match entry.payload.get("results") {
        Some(results) => results.to_string(),
        None => [name, status].join(" ").trim().to_owned(),
    };
    format!("{} {what}", entry.kind).trim().to_owned()
}

/// What a turn writes up to its second step's calls, one of which is done.
async fn turn_with_calls(fork: &TapeFork) {
    let tape = fork.tape();
    tape.bootstrap().await.unwrap();
    tape.append_event("loop.start", json!({"prompt": "p"})).await.unwrap();
    tape.append_event("loop.step.start", json!({"step": 1})).await.unwrap();
    let system = || NewEntry::system("be brief");
    let asked = || [system(), NewEntry::message(&Message::text(Role::User, "p".to_owned()))];
    let run = |status| NewEntry::event("run", json!({"status": status}));
    tape.foresee(asked().into_iter().chain([run("error")])).await;
    tape.settle(asked().into_iter().chain([NewEntry::answer("one moment", &[]), run("ok")])).await.unwrap();
    tape.append_event("loop.step", json!({"step": 1, "status": "continue"})).await.unwrap();
    tape.append_event("loop.step.start", json!({"step": 2})).await.unwrap();
    tape.foresee([system(), run("error")]).await;
    let call = |id: &str| ToolCallRequest {
        id: id.into(),
        name: "bash".into(),
        arguments: "{}".into(),
        metadata: Default::default(),
    };
    let calls = NewEntry::tool_call(&[call("a"), call("b")], &[]);
    tape.foresee([system(), calls, NewEntry::tool_result(vec![json!("cut"), json!("cut")]), run("error")]).await;
    tape.sidecar("spill").unwrap().append_event("chunk", json!({})).await.unwrap();
    tape.append_event("spill.write", json!({})).await.unwrap();
    tape.foresee_result(1, json!("done b")).await;
}

const FIRST_STEP: [&str; 9] = [
    "anchor session/start",
    "event handoff",
    "event loop.start",
    "event loop.step.start",
    "system",
    "message",
    "message",
    "event run ok",
    "event loop.step continue",
];
const SECOND_STEP: [&str; 8] = [
    "event loop.step.start",
    "event spill.write",
    "system",
    "tool_call",
    r#"tool_result ["cut","done b"]"#,
    "event run error",
    "event loop.step interrupted",
    "event loop.finish interrupted",
];

fn whole() -> Vec<String> {
    FIRST_STEP.iter().chain(&SECOND_STEP).map(|it| (*it).to_owned()).collect()
}

#[tokio::test]
async fn an_interrupted_turn_is_recovered_once_with_what_was_done() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    assert!(home.journals().is_empty(), "nothing was written yet");
    turn_with_calls(&fork).await;
    assert_eq!((home.journals().len(), home.recover().await), (1, 0), "a living fork's journal is its own");
    assert_eq!(home.main_lines().await, [""; 0]);
    drop(fork);
    assert_eq!(home.recover().await, whole().len() + 1);
    assert_eq!(home.main_lines().await, whole());
    assert_eq!(home.lines(&home.tape.sidecar("spill")).await, ["event chunk"]);
    assert_eq!((home.journals().len(), home.recover().await), (0, 0));
    assert_eq!(home.store.list().await.unwrap(), std::slice::from_ref(&home.tape));
}

#[tokio::test]
async fn a_turn_that_was_merged_is_not_merged_again() {
    let home = Home::new();
    home.append(&["before"]).await;
    let fork = home.main().journaled_fork();
    turn_with_calls(&fork).await;
    fork.tape().settle([NewEntry::event("run", json!({"status": "ok"}))]).await.unwrap();
    let journal = home.journals().remove(0);
    let content = fs::read(&journal).unwrap();
    fork.commit().await.unwrap();
    assert_eq!(home.journals().len(), 0);
    let before = home.bytes();
    // As if it had been killed before it could remove its journal; others went on meanwhile.
    for more in ["", "others went on"] {
        if !more.is_empty() {
            home.append(&[more]).await;
        }
        fs::write(&journal, &content).unwrap();
        assert_eq!(home.recover().await, 0);
        assert_eq!(home.journals().len(), 0);
    }
    let n_entries = home.main_lines().await.len();
    let expected = [before.as_slice(), line(n_entries as u64, "others went on").as_bytes()].concat();
    assert_eq!(String::from_utf8(home.bytes()).unwrap(), String::from_utf8(expected).unwrap());
}

/// Every state that a kill during the merge can leave: the journal, and a part of what was written.
#[tokio::test]
async fn a_merge_that_was_cut_off_is_finished() {
    let home = Home::with(line(1, "before"));
    let old = home.bytes();
    let fork = home.main().journaled_fork();
    turn_with_calls(&fork).await;
    let finish = [NewEntry::event("loop.finish", json!({"status": "ok"}))];
    fork.tape().settle(finish).await.unwrap();
    let journal = home.journals().remove(0);
    let content = fs::read(&journal).unwrap();
    fork.commit().await.unwrap();
    let merged = home.bytes();
    let expected = home.main_lines().await;
    for end in (old.len()..=merged.len()).step_by(31).chain([merged.len() - 1, merged.len()]) {
        for more in ["", "others went on"] {
            fs::write(&journal, &content).unwrap();
            // The file stays the same one, as it does when it is appended to.
            let file = fs::OpenOptions::new().write(true).open(home.store.path(&home.tape)).unwrap();
            file.set_len(0).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &merged[..end], 0).unwrap();
            let mut expected = expected.clone();
            if !more.is_empty() {
                let n_whole = merged[..end].split_inclusive(|it| *it == b'\n').filter_map(Entry::from_line).count();
                home.append(&[more]).await;
                expected.insert(n_whole, "message".to_owned());
            }
            home.recover().await;
            assert_eq!((end, home.main_lines().await), (end, expected));
            assert_eq!(home.lines(&home.tape.sidecar("spill")).await, ["event chunk"]);
            assert_eq!(home.journals().len(), 0);
        }
    }
}

#[tokio::test]
async fn a_recovery_that_was_cut_off_is_finished() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    turn_with_calls(&fork).await;
    drop(fork);
    let journal = home.journals().remove(0);
    // A second name keeps what the recovery notes in the journal before it writes to tapes.
    let kept = home.dir.path().join("kept");
    fs::hard_link(&journal, &kept).unwrap();
    home.recover().await;
    let content = fs::read(&kept).unwrap();
    let merged = home.bytes();
    assert_eq!(home.main_lines().await, whole());
    for end in (0..=merged.len()).step_by(53) {
        fs::write(&journal, &content).unwrap();
        home.write(&merged[..end]);
        home.recover().await;
        assert_eq!(home.main_lines().await, whole(), "cut at {end}");
    }
}

#[tokio::test]
async fn a_journal_that_was_cut_off_loses_its_last_record_only() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    turn_with_calls(&fork).await;
    drop(fork);
    let journal = home.journals().remove(0);
    let content = fs::read(&journal).unwrap();
    let (mut n_before, mut seen) = (0, std::collections::BTreeSet::new());
    for end in 0..=content.len() {
        if end % 11 != 0 && content.get(end.wrapping_sub(1)) != Some(&b'\n') {
            continue;
        }
        home.store.replace(&home.tape, &[]).await.unwrap();
        home.store.replace(&home.tape.sidecar("spill"), &[]).await.unwrap();
        fs::write(&journal, &content[..end]).unwrap();
        home.recover().await;
        assert_eq!(home.journals().len(), 0);
        let lines = home.main_lines().await;
        let n_steps = |what: &str| lines.iter().filter(|it| it.starts_with(what)).count();
        assert_eq!(n_steps("event loop.step.start"), n_steps("event loop.step "), "{lines:#?}");
        assert_eq!(n_steps("event loop.start"), n_steps("event loop.finish"));
        assert_eq!(n_steps("tool_call"), n_steps("tool_result"));
        assert!(lines.len() + 1 >= n_before, "less than before: {lines:#?}");
        n_before = lines.len();
        seen.insert(lines);
    }
    assert!(seen.contains(&whole()) && seen.len() > 9, "{}", seen.len());
}

#[tokio::test]
async fn damaged_lines_of_a_journal_hide_nothing_else() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    fork.tape().append_event("a", json!({})).await.unwrap();
    fork.tape().append_event("b", json!({})).await.unwrap();
    drop(fork);
    let journal = home.journals().remove(0);
    let text = fs::read_to_string(&journal).unwrap();
    let (head, tail) = text.split_at(text.trim_end().rfind('\n').unwrap() + 1);
    let damage = b"\0\0\0\xff{\"op\": \"later\"}\n{\"op\":\"append\",\"tape\":\"other\",\"entries\":[{},1]}\n";
    fs::write(&journal, [head.as_bytes(), damage, tail.as_bytes()].concat()).unwrap();
    assert_eq!(home.recover().await, 2);
    assert_eq!(home.main_lines().await, ["event a", "event b"]);
    assert!(!home.store.path(&TapeName::free("other")).exists(), "a journal is of one tape and its sidecars");
    // Without its first line it is known by its name, and the whole tape is searched.
    fs::write(&journal, tail).unwrap();
    assert_eq!(home.recover().await, 0);
    fs::write(&journal, tail.replace("\"b\"", "\"c\"")).unwrap();
    assert_eq!(home.recover().await, 1);
    assert_eq!(home.main_lines().await, ["event a", "event b", "event c"]);
}

#[tokio::test]
async fn a_tape_that_was_replaced_meanwhile_is_searched_whole() {
    let home = Home::with(line(1, "before"));
    let fork = home.main().journaled_fork();
    fork.tape().append_event("a", json!({})).await.unwrap();
    let journal = home.journals().remove(0);
    let content = fs::read(&journal).unwrap();
    fork.commit().await.unwrap();
    let merged = home.bytes();
    for tape in [merged.clone(), [&merged[..], line(3, "more").as_bytes()].concat(), merged[10..].to_vec()] {
        fs::remove_file(home.store.path(&home.tape)).unwrap();
        home.write(&tape);
        fs::write(&journal, &content).unwrap();
        assert_eq!(home.recover().await, 0);
        assert_eq!(home.bytes(), tape);
    }
    home.write(line(7, "other"));
    fs::write(&journal, &content).unwrap();
    assert_eq!(home.recover().await, 1);
    assert_eq!(home.ids().await, [7, 8]);
}

#[tokio::test]
async fn a_reset_in_a_turn_is_recovered_too() {
    let home = Home::with(line(1, "old"));
    home.store.append(&home.tape.sidecar("spill"), &messages(&["old"])).await.unwrap();
    let fork = home.main().journaled_fork();
    fork.tape().append_event("loop.start", json!({})).await.unwrap();
    fork.tape().reset(false).await.unwrap();
    fork.tape().append_event("after", json!({})).await.unwrap();
    let journal = home.journals().remove(0);
    let content = fs::read(&journal).unwrap();
    drop(fork);
    home.recover().await;
    let expected = ["anchor session/start", "event handoff", "event sidecar.reset ok", "event after"];
    assert_eq!(home.main_lines().await, expected);
    assert!(!home.store.path(&home.tape.sidecar("spill")).exists());
    home.append(&["more"]).await;
    fs::write(&journal, &content).unwrap();
    home.recover().await;
    assert_eq!(home.main_lines().await[..4], expected);
    assert_eq!(home.main_lines().await.len(), 5, "a tape is not reset twice");
}

#[tokio::test]
async fn a_sidecar_that_cannot_be_merged_is_told_on_the_tape() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    turn_with_calls(&fork).await;
    drop(fork);
    fs::create_dir_all(home.store.path(&home.tape.sidecar("spill"))).unwrap();
    home.recover().await;
    let mut expected = whole();
    expected.push("event sidecar.merge error".to_owned());
    assert_eq!((home.main_lines().await, home.journals().len()), (expected, 0));
}

#[tokio::test]
async fn a_turn_that_could_not_be_merged_is_merged_later() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    fork.tape().append_event("loop.start", json!({})).await.unwrap();
    fork.tape().append_event("loop.finish", json!({"status": "ok"})).await.unwrap();
    fs::create_dir_all(home.store.path(&home.tape)).unwrap();
    fork.commit().await.unwrap_err();
    fs::remove_dir(home.store.path(&home.tape)).unwrap();
    assert_eq!(home.recover().await, 2);
    assert_eq!(home.main_lines().await, ["event loop.start", "event loop.finish ok"]);
}

#[tokio::test]
async fn a_journal_of_another_process_is_waited_for_and_one_of_this_process_is_not() {
    let home = Home::new();
    let fork = home.main().journaled_fork();
    fork.tape().append_event("a", json!({})).await.unwrap();
    let own = home.journals().remove(0);
    let foreign = own.with_file_name(format!("{}.1-1.journal", home.tape));
    fs::copy(&own, &foreign).unwrap();
    // Process 1 always runs, so only what the caller wants is waited.
    let held = fs::File::open(&foreign).unwrap();
    held.lock().unwrap();
    let (start, wait) = (Instant::now(), Duration::from_millis(80));
    assert_eq!(home.main().recover(wait).await.unwrap(), 0);
    assert!(start.elapsed() >= wait && start.elapsed() < wait * 2 + Duration::from_secs(10));
    let waiting = home.main();
    let (recovered, ()) = tokio::join!(async { waiting.recover(Duration::from_secs(20)).await.unwrap() }, async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        drop(held);
    });
    assert_eq!((recovered, home.journals()), (1, vec![own]));
}

#[tokio::test]
async fn journals_of_other_tapes_are_left_alone() {
    let home = Home::new();
    for name in ["a", "a.b", "a__sidecar__spill", "ab"] {
        let store = Arc::new(home.reopened());
        let fork = Tape::new(TapeName::free(name), store, Arc::new(FixedClock::default())).journaled_fork();
        fork.tape().append_event(name, json!({})).await.unwrap();
    }
    let n_journals = || fs::read_dir(home.dir.path().join("tapes/journals")).unwrap().count();
    assert_eq!(n_journals(), 4);
    let tape = TapeName::free("a");
    let now = FixedClock::default().0;
    assert_eq!(home.store.recover(&tape, now, Duration::ZERO).await.unwrap(), 1);
    assert_eq!((home.lines(&tape).await, n_journals()), (vec!["event a".to_owned()], 3));
}

#[tokio::test]
async fn a_journal_that_cannot_be_made_fails_nothing() {
    let home = Home::with(line(1, "before"));
    fs::write(home.dir.path().join("tapes/journals"), "a file").unwrap();
    let fork = home.main().journaled_fork();
    fork.tape().append_event("a", json!({})).await.unwrap();
    fork.commit().await.unwrap();
    assert_eq!(home.main_lines().await, ["message", "event a"]);
}
