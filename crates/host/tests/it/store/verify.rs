//! Looking for damage, and mending it.

use bub_host::{Fault, Verified};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

/// A line of any kind.
fn entry(id: u64, kind: &str, payload: Value) -> String {
    let entry =
        json!({"id": id, "kind": kind, "payload": payload, "meta": {}, "date": "2026-01-02T03:04:05.000000+00:00"});
    format!("{}\n", bub_kernel::text::json(&entry))
}

fn calls(id: u64, n: usize) -> String {
    let calls: Vec<_> = (0..n).map(|it| json!({"id": format!("c{it}"), "name": "bash", "arguments": "{}"})).collect();
    entry(id, "tool_call", json!({"calls": calls, "content": ""}))
}

fn results(id: u64, n: usize) -> String {
    entry(id, "tool_result", json!({"results": vec!["done"; n]}))
}

fn anchor(id: u64, name: &str) -> String {
    entry(id, "anchor", json!({"name": name, "state": {"owner": "human"}}))
        + &entry(id + 1, "event", json!({"name": "handoff", "data": {"name": name, "state": {"owner": "human"}}}))
}

fn spill_write(id: u64, handle: &str) -> String {
    entry(
        id,
        "event",
        json!({"name": "spill.write", "data": {"status": "ok", "handle": handle, "bytes": 4, "chunks": 2}}),
    )
}

/// The sidecar of a result that was spilled in two chunks.
fn spilled(handle: &str) -> [String; 6] {
    [
        entry(1, "anchor", json!({"name": format!("spill/{handle}/chunk/0")})),
        entry(2, "tool_result", json!({"results": ["ab"]})),
        entry(3, "anchor", json!({"name": format!("spill/{handle}/chunk/1")})),
        entry(4, "tool_result", json!({"results": ["cd"]})),
        entry(5, "anchor", json!({"name": format!("spill/{handle}/manifest")})),
        entry(6, "event", json!({"name": "spill.manifest", "data": {"handle": handle, "chunks": 2, "bytes": 4}})),
    ]
}

impl Home {
    fn verify(&self) -> Verified {
        self.reopened().verify(&self.tape, &mut |_, _| {}).unwrap()
    }

    /// Line and kind of every finding.
    fn findings(&self) -> Vec<(Option<u64>, &'static str)> {
        self.verify().findings.iter().map(|it| (it.line, it.fault.name())).collect()
    }

    fn repair(&self) -> Vec<bub_host::Repaired> {
        let store = self.reopened();
        let found = store.verify(&self.tape, &mut |_, _| {}).unwrap();
        let done = store.repair(&self.tape, &found, Timestamp::UNIX_EPOCH).unwrap();
        done.into_iter().map(|it| it.1).filter(bub_host::Repaired::is_changed).collect()
    }

    fn write_sidecar(&self, text: &str) {
        fs::write(self.store.path(&self.tape.sidecar("spill")), text).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.dir.path().join("tapes"))
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[track_caller]
fn check(text: impl AsRef<[u8]>, expected: &[(u64, &str)]) {
    let home = Home::with(text.as_ref());
    let found: Vec<_> = home.findings().into_iter().map(|it| (it.0.unwrap_or_default(), it.1)).collect();
    assert_eq!(found, expected);
}

#[test]
fn tapes_of_both_releases_are_clean() {
    for (path, tape) in fixtures::tapes().into_iter().filter(|it| it.1.is_session()) {
        let home = Home { tape, ..Home::with("") };
        home.write(fs::read(&path).unwrap());
        let sidecar = path.with_file_name(format!("{}.jsonl", home.tape.sidecar("spill")));
        if sidecar.exists() {
            home.write_sidecar(&fs::read_to_string(&sidecar).unwrap());
        }
        let verified = home.verify();
        assert_eq!(verified.findings, [], "{}", path.display());
        assert_eq!(verified.files, 1 + u64::from(sidecar.exists()));
        assert!(verified.entries > 0);
    }
}

#[test]
fn lines_that_are_no_entries_are_found() {
    check("", &[]);
    check("\n  \n", &[]);
    let torn = [line(1, "a").as_bytes(), b"{\"id\": 2, \"kind\": \"mess\xe6\xbc"].concat();
    check(torn, &[(2, "no_entry")]);
    check(format!("{}broken\n\0\0\0\n{}", line(1, "a"), line(2, "b")), &[(2, "no_entry"), (3, "no_entry")]);
    check(format!("{}{}", line(1, "a").trim_end(), line(2, "b")), &[(1, "no_entry")]);
    // A last line without its newline is whole; so is one behind NUL bytes.
    check(format!("{}\0\0{}", line(1, "a"), line(2, "b").trim_end()), &[]);
}

#[test]
fn what_is_not_in_its_order_is_found() {
    check(line(1, "a") + &line(1, "b") + &line(9, "c"), &[(2, "id_not_rising")]);
    check(line(u64::MAX, "a"), &[(1, "id_too_large")]);
    check(calls(1, 2) + &results(2, 2) + &line(3, "a"), &[]);
    check(calls(1, 2) + &line(2, "a"), &[(1, "no_results")]);
    check(calls(1, 2) + &results(2, 1), &[(2, "too_few_results")]);
    check(calls(1, 1), &[(1, "no_results")]);
    check(line(1, "a") + &results(2, 1), &[(2, "orphan_results")]);
    check(anchor(1, "session/start"), &[]);
    check(entry(1, "anchor", json!({"name": "a"})) + &line(2, "a"), &[(1, "no_handoff")]);
    check(entry(1, "event", json!({"name": "handoff", "data": {"name": "a"}})), &[(1, "no_anchor")]);
}

#[test]
fn remarks_are_no_errors() {
    let home = Home::with(calls(1, 1) + &results(2, 3) + &calls(3, 0) + &results(4, 1));
    let verified = home.verify();
    assert_eq!(home.findings(), [(Some(2), "too_many_results"), (Some(3), "no_calls"), (Some(4), "too_many_results")]);
    assert!(verified.is_clean());
    assert_eq!(home.repair(), []);
}

#[test]
fn spilled_results_are_compared_with_their_manifests() {
    let h = "0".repeat(32);
    let whole = spilled(&h);
    let main = anchor(1, "session/start") + &spill_write(3, &h);
    let check = |main: &str, sidecar: Option<Vec<&str>>, expected: &[(u64, &str)]| {
        let home = Home::with(main);
        if let Some(sidecar) = sidecar {
            home.write_sidecar(&sidecar.concat());
        }
        let found: Vec<_> = home.findings().into_iter().map(|it| (it.0.unwrap_or_default(), it.1)).collect();
        assert_eq!(found, expected);
    };
    let all: Vec<&str> = whole.iter().map(String::as_str).collect();
    check(&main, Some(all.clone()), &[]);
    check(&main, None, &[(3, "spill_missing")]);
    check(&main, Some(vec![all[0], all[1], all[4], all[5]]), &[(4, "spill_damaged")]);
    check(&main, Some(vec![all[0], all[1], all[2], all[4], all[5]]), &[(5, "spill_damaged")]);
    check(&main, Some(all[..4].to_vec()), &[(3, "spill_missing")]);
    check(&anchor(1, "session/start"), Some(all[..4].to_vec()), &[(1, "spill_unfinished")]);
    let short = all[3].replace("cd", "c");
    check(&main, Some(vec![all[0], all[1], all[2], &short, all[4], all[5]]), &[(6, "spill_damaged")]);
    // What was reset is not missed.
    let reset = entry(4, "event", json!({"name": "sidecar.reset", "data": {"sidecar": "spill", "status": "ok"}}));
    check(&(main + &reset), None, &[]);
}

#[tokio::test]
async fn media_that_entries_name_has_to_be_there() {
    let home = Home::with("");
    let url = home.store.put_media("AAAA").await.unwrap();
    let block =
        |url: &str| json!({"role": "user", "content": [{"type": "image", "media_type": "image/png", "url": url}]});
    let missing = format!("sha256:{}", "ab".repeat(32));
    home.write(
        entry(1, "message", block(&url))
            + &entry(2, "message", block(&missing))
            + &entry(3, "message", block("https://x/y")),
    );
    assert_eq!(home.findings(), [(Some(2), "blob_missing")]);
    home.repair();
    let verified = home.verify();
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(home.findings(), [(Some(2), "blob_missing")], "the loss is on the tape, and still said");
}

#[tokio::test]
async fn journals_of_dead_processes_are_found_and_those_of_living_ones_not() {
    let home = Home::with(anchor(1, "session/start"));
    let journals = home.dir.path().join("tapes/journals");
    fs::create_dir_all(&journals).unwrap();
    let path = journals.join(format!("{}.{}-1.journal", home.tape, u32::MAX));
    fs::write(&path, "").unwrap();
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    assert_eq!(home.findings(), []);
    held.unlock().unwrap();
    let verified = home.verify();
    assert_eq!(verified.findings[0].fault, Fault::JournalLeft { path });
    assert!(!verified.is_clean());
    home.reopened().recover(&home.tape, Timestamp::UNIX_EPOCH, std::time::Duration::ZERO).await.unwrap();
    assert!(home.verify().is_clean());

    let other = TapeName::session("/srv/demo", "first turn");
    fs::write(journals.join(format!("{other}.{}-1.journal", u32::MAX)), "").unwrap();
    assert_eq!(home.store.only_journaled().unwrap(), [other]);
}

#[tokio::test]
async fn a_repair_keeps_the_original_and_makes_the_tape_clean() {
    let text = [
        anchor(1, "session/start"),
        line(3, "hello"),
        calls(4, 2),
        "{\"id\": 5, \"kind\": \"tool_res\n".to_owned(),
        line(5, "on"),
        results(5, 1),
        entry(7, "event", json!({"name": "handoff", "data": {"name": "p1", "state": null}})),
        "{\"id\": 8, \"kind\"".to_owned(),
    ]
    .concat();
    let home = Home::with(&text);
    assert_eq!(home.verify().n_errors, 6);
    let repaired = home.repair();
    let [repaired] = repaired.as_slice() else { panic!("{repaired:?}") };
    assert_eq!(
        (repaired.lines_dropped, repaired.results_added, repaired.results_set_aside, repaired.anchors_added),
        (2, 2, 1, 1)
    );
    let original = repaired.original.clone().unwrap();
    assert_eq!(fs::read_to_string(&original).unwrap(), text);
    let name = format!("{}.jsonl.19700101T000000Z.damaged.bak", home.tape);
    assert_eq!(original.file_name().unwrap().to_str().unwrap(), name);
    assert_eq!(home.names(), [format!("{}.jsonl", home.tape), name]);

    let verified = home.verify();
    assert_eq!(verified.findings, []);
    let entries = home.reopened().read(&home.tape, &TapeQuery::default()).await.unwrap();
    let kinds: Vec<_> = entries.iter().map(|it| (it.id, it.kind.as_str().to_owned())).collect();
    let expected = [
        (1, "anchor"),
        (2, "event"),
        (3, "message"),
        (4, "tool_call"),
        (5, "tool_result"),
        (6, "message"),
        (7, "tool_result"),
        (8, "anchor"),
        (9, "event"),
        (10, "event"),
    ];
    assert_eq!(kinds, expected.map(|it| (it.0, it.1.to_owned())));
    assert_eq!(entries[4].payload["results"], json!(vec!["interrupted: this call has no recorded result"; 2]));
    assert_eq!(entries[6].meta["context"], json!(false));
    assert_eq!(entries[9].payload["name"], "tape.repair");
    assert_eq!(home.repair(), [], "once is enough");
}

#[test]
fn a_whole_tape_is_not_rewritten() {
    let text = anchor(1, "session/start") + &line(3, "a");
    let home = Home::with(&text);
    assert_eq!(home.repair(), []);
    assert_eq!(home.bytes(), text.as_bytes());
    assert_eq!(home.names().len(), 1);
}

#[test]
fn what_is_lost_is_recorded_once() {
    let h = "1".repeat(32);
    let home = Home::with(anchor(1, "session/start") + &spill_write(3, &h));
    let whole = spilled(&h);
    home.write_sidecar(&(whole[..3].concat() + "torn\n" + &whole[4..].concat()));
    assert_eq!(home.findings(), [(Some(4), "no_entry"), (Some(6), "spill_damaged")]);
    assert_eq!(home.repair().len(), 2);
    let verified = home.verify();
    assert!(verified.is_clean(), "{verified:?}");
    assert_eq!(home.findings(), [(Some(5), "spill_damaged")]);
    assert_eq!(home.repair(), []);
}

#[tokio::test]
async fn a_writer_that_waits_for_a_repair_writes_to_the_mended_tape() {
    let home = Home::with(format!("{}broken\n", line(1, "a")));
    let reopened = home.reopened();
    let tape = home.tape.clone();
    let new = messages(&["b"]);
    let (done, appended) = tokio::join!(
        tokio::task::spawn_blocking({
            let store = home.reopened();
            let tape = home.tape.clone();
            move || {
                let found = store.verify(&tape, &mut |_, _| {}).unwrap();
                store.repair(&tape, &found, Timestamp::UNIX_EPOCH)
            }
        }),
        reopened.append(&tape, &new),
    );
    done.unwrap().unwrap();
    appended.unwrap();
    let all = home.all().await;
    assert!(all.iter().any(|it| it.1 == "b"), "{all:?}");
    assert!(home.verify().is_clean());
}

/// Entries of a tape that is in order, one line each.
fn whole_tape() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec((0..5_u8, 1..3_usize), 1..12).prop_map(|turns| {
        let mut lines: Vec<String> = Vec::new();
        for (kind, n) in turns {
            let id = lines.len() as u64 + 1;
            let new = match kind {
                0 => line(id, &"é".repeat(n)),
                1 => calls(id, n) + &results(id + 1, n),
                2 => anchor(id, &format!("p{n}")),
                3 => {
                    calls(id, n) + &entry(id + 1, "event", json!({"name": "x", "data": {"n": n}})) + &results(id + 2, n)
                }
                _ => entry(id, "system", json!({"content": "be good"})),
            };
            lines.extend(new.split_inclusive('\n').map(str::to_owned));
        }
        lines
    })
}

/// What is done to a tape.
#[derive(Clone, Debug)]
enum Damage {
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Drop(prop::sample::Index),
    Twice(prop::sample::Index),
    Join(prop::sample::Index),
    Zeros(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|it| Damage::Byte(it.0, it.1)),
        at().prop_map(Damage::Cut),
        at().prop_map(Damage::Drop),
        at().prop_map(Damage::Twice),
        at().prop_map(Damage::Join),
        (at(), 1..20_usize).prop_map(|it| Damage::Zeros(it.0, it.1)),
    ]
}

fn damaged(lines: &[String], damages: &[Damage]) -> Vec<u8> {
    let mut text = lines.concat().into_bytes();
    for damage in damages {
        let lines: Vec<Vec<u8>> = text.split_inclusive(|it| *it == b'\n').map(<[u8]>::to_vec).collect();
        if text.is_empty() {
            break;
        }
        match damage {
            Damage::Byte(at, byte) => {
                let at = at.index(text.len());
                text[at] = *byte;
            }
            Damage::Cut(at) => text.truncate(at.index(text.len())),
            Damage::Drop(at) => {
                let at = at.index(lines.len());
                text = [&lines[..at], &lines[at + 1..]].concat().concat();
            }
            Damage::Twice(at) => text.extend(lines[at.index(lines.len())].clone()),
            Damage::Join(at) => {
                let newlines: Vec<_> = (0..text.len()).filter(|it| text[*it] == b'\n').collect();
                if !newlines.is_empty() {
                    text.remove(newlines[at.index(newlines.len())]);
                }
            }
            Damage::Zeros(at, n) => {
                let at = at.index(text.len());
                text.splice(at..at, vec![0; *n]);
            }
        }
    }
    text
}

/// What of an entry a repair must not change.
fn essence(entry: &Entry) -> (String, Value, String) {
    let mut payload = entry.payload.clone();
    if let Some(results) = payload.get_mut("results").and_then(Value::as_array_mut) {
        results.retain(|it| it.as_str().is_none_or(|it| !it.starts_with("interrupted")));
        if results.is_empty() {
            payload.remove("results");
        }
    }
    (entry.kind.to_string(), Value::Object(payload), entry.date.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_repair_keeps_every_entry_and_leaves_a_clean_tape(
        lines in whole_tape(),
        damages in proptest::collection::vec(damage(), 0..5),
    ) {
        let text = damaged(&lines, &damages);
        let home = Home::with(&text);
        let before: Vec<_> = text.split(|it| *it == b'\n').filter_map(Entry::from_line).map(|it| essence(&it)).collect();
        if damages.is_empty() {
            prop_assert_eq!(home.findings(), []);
        }
        home.repair();
        let verified = home.verify();
        prop_assert!(verified.is_clean(), "{:?}\n{}", verified.findings, String::from_utf8_lossy(&home.bytes()));
        let after: Vec<_> = home.bytes().split(|it| *it == b'\n').filter_map(Entry::from_line).map(|it| essence(&it)).collect();
        let mut rest = after.iter();
        for entry in &before {
            prop_assert!(rest.any(|it| it == entry), "{entry:?} is lost");
        }
    }
}
