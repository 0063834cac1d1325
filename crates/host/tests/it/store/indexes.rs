use std::io::Write as _;

use bub_kernel::tape::{EntryKind, Slice, TapeStats, TextMatch, parse_bound};
use futures::StreamExt as _;
use proptest::{prelude::*, sample::select};

use super::*;

/// Tapes shorter than this have no index.
const MIB: usize = 1 << 20;

fn event(id: u64, name: &str, date: &str) -> String {
    let payload = json!({"name": name, "data": {"model": id}});
    let entry = json!({"id": id, "kind": "event", "payload": payload, "meta": {}, "date": date});
    format!("{}\n", bub_kernel::text::json(&entry))
}

fn anchor(id: u64, name: &str) -> String {
    let entry = json!({"id": id, "kind": "anchor", "payload": {"name": name}, "meta": {"a": 1}, "date": "2026-01-04T00:00:00.000000+00:00"});
    format!("{}\n", bub_kernel::text::json(&entry))
}

/// Some lines, most of them long, so that few make a long tape.
fn any_lines(n: usize) -> impl Strategy<Value = Vec<u8>> {
    let long = (10_000..60_000_usize, 1..99_u64, select(vec!["x", "\\n", "漢"]));
    let any = prop_oneof![
        6 => long.prop_map(|(n, id, it)| line(id, &it.repeat(n / it.len())).into_bytes()),
        2 => (1..999_u64, select(vec!["model_switch", "run", "loop.step"]), select(vec!["2026-01-02T00:00:00.000000+00:00", "2027-01-02T00:00:00.000000+00:00", "x"]))
            .prop_map(|(id, it, date)| event(id, it, date).into_bytes()),
        1 => (1..99_u64, select(vec!["a", "b/c"])).prop_map(|(id, it)| anchor(id, it).into_bytes()),
        1 => select(vec![
            &b"{\"kind\": \"anchor\", \"id\": 5, \"payload\": {\"name\": \"\\u0061\"}}\n"[..],
            b"{\"id\":6,\"kind\":\"event\",\"payload\":{\"data\":{},\"name\":\"run\"},\"timestamp\":1767323045.5}\n",
            b"{\"id\": 7, \"kind\": \"anchor\", \"payload\": {}, \"meta\": {}, \"date\": \"2026-01-04T00:00:00.000000+00:00\"}\n",
            b"{\"id\": 8, \"kind\": \"anchor\", \"payload\": {\"name\": \"a\"}, \"me\n",
            b"\0\0\n", b"\n", b"nonsense", b"\xff\n",
        ]).prop_map(<[u8]>::to_vec),
    ];
    proptest::collection::vec(any, 0..n).prop_map(|it| it.concat())
}

/// What happens to a tape.
#[derive(Clone, Debug)]
enum Change {
    Append(usize),
    AppendByOthers(Vec<u8>),
    Truncate(prop::sample::Index),
    Rewrite(Vec<u8>),
    Replace(Vec<u8>),
    DamageIndex(prop::sample::Index),
    RemoveIndex,
    Restart,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => (1..4_usize).prop_map(Change::Append),
        3 => any_lines(40).prop_map(Change::AppendByOthers),
        1 => any::<prop::sample::Index>().prop_map(Change::Truncate),
        1 => any_lines(90).prop_map(Change::Rewrite),
        1 => any_lines(90).prop_map(Change::Replace),
        1 => any::<prop::sample::Index>().prop_map(Change::DamageIndex),
        1 => Just(Change::RemoveIndex),
        2 => Just(Change::Restart),
    ]
}

fn queries() -> Vec<TapeQuery> {
    let all = TapeQuery::default();
    let named = |it: &str| TapeQuery { names: vec![it.to_owned()], ..all.clone().kind(EntryKind::Anchor) };
    let day = |it, is_end| Some(parse_bound(it, is_end).unwrap());
    vec![
        all.clone().kind(EntryKind::Anchor),
        all.clone().kind(EntryKind::Anchor).newest_first().limit(2),
        named("a"),
        all.clone().event("model_switch").newest_first().limit(1),
        all.clone().event("never_set").newest_first().limit(1),
        all.clone().event("run").event("model_switch"),
        all.clone().event("loop.step").limit(3),
        all.clone().after_last_anchor(),
        all.clone().after_anchor("b/c"),
        TapeQuery { slice: Slice::Between("a".into(), "b/c".into()), ..all.clone() },
        TapeQuery { from: day("2026-12-31", false), ..all.clone() },
        TapeQuery { to: day("2026-01-01", true), ..all.clone().newest_first() },
        all.clone().ids(40..=45),
        all.ids(500..=500).newest_first().limit(1),
    ]
}

fn show<T>(result: Result<T, bub_kernel::tape::TapeError>) -> Result<T, String> {
    result.map_err(|err| err.to_string())
}

/// The answers of a store are those of reading all that is in the file.
async fn check(home: &Home, store: &JsonlStore) {
    let text = fs::read(home.store.path(&home.tape)).unwrap_or_default();
    let entries: Vec<_> = text.split(|it| *it == b'\n').filter_map(Entry::from_line).map(Arc::new).collect();
    for query in queries() {
        let expected = show(query.select(&entries));
        assert!(show(store.read(&home.tape, &query).await) == expected, "{query:?}");
    }
    let last = entries.iter().rposition(|it| it.is_anchor(None));
    let expected = TapeStats {
        entries: entries.len() as u64,
        anchors: entries.iter().filter(|it| it.is_anchor(None)).count() as u64,
        last_anchor: last.and_then(|it| entries[it].name().map(str::to_owned)),
        entries_since_last_anchor: (entries.len() - last.map_or(0, |it| it + 1)) as u64,
        last_id: entries.last().map_or(0, |it| it.id),
    };
    assert_eq!(store.stats(&home.tape).await.unwrap(), expected);
}

fn index_of(home: &Home) -> std::path::PathBuf {
    home.dir.path().join(format!("tapes/.index/{}.idx", home.tape))
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 40, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn whatever_happens_to_a_tape_its_index_never_lies(
        first in any_lines(90), changes in proptest::collection::vec(any_change(), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let home = Home::with(first);
        let path = home.store.path(&home.tape);
        let mut store = home.reopened();
        runtime.block_on(check(&home, &store));
        for change in changes {
            match change {
                Change::Append(n) => {
                    let entries = messages(&vec!["new"; n]);
                    runtime.block_on(store.append(&home.tape, &entries)).unwrap();
                }
                Change::AppendByOthers(lines) => {
                    fs::OpenOptions::new().append(true).create(true).open(&path).unwrap().write_all(&lines).unwrap();
                }
                Change::Truncate(at) => {
                    let len = fs::metadata(&path).map_or(0, |it| it.len() as usize);
                    if len > 0 {
                        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(at.index(len) as u64).unwrap();
                    }
                }
                Change::Rewrite(lines) => fs::write(&path, lines).unwrap(),
                Change::Replace(lines) => {
                    fs::remove_file(&path).ok();
                    fs::write(&path, lines).unwrap();
                }
                Change::DamageIndex(at) => {
                    if let Ok(mut bytes) = fs::read(index_of(&home)) {
                        let at = at.index(bytes.len());
                        bytes[at] ^= 4;
                        fs::write(index_of(&home), bytes).unwrap();
                    }
                }
                Change::RemoveIndex => drop(fs::remove_dir_all(home.dir.path().join("tapes/.index"))),
                Change::Restart => store = home.reopened(),
            }
            runtime.block_on(check(&home, &store));
        }
        runtime.block_on(check(&home, &home.reopened()));
    }
}

/// A tape of about two megabytes.
fn long_tape() -> Vec<u8> {
    let lines = (1..=2000).map(|id| match id % 100 {
        1 => anchor(id, &format!("a{id}")),
        2 => event(id, "model_switch", "2026-01-02T00:00:00.000000+00:00"),
        _ => line(id, &format!("{id} {}", "x".repeat(1000))),
    });
    lines.collect::<String>().into_bytes()
}

#[tokio::test]
async fn only_long_tapes_have_an_index_and_it_is_no_tape() {
    let home = Home::new();
    home.append(&["a", "b"]).await;
    home.store.stats(&home.tape).await.unwrap();
    assert!(!home.dir.path().join("tapes/.index").exists());

    home.write(long_tape());
    let store = home.reopened();
    store.append(&home.tape, &messages(&["c"])).await.unwrap();
    assert!(!index_of(&home).exists(), "appending needs none");
    check(&home, &store).await;
    let written = fs::read(index_of(&home)).unwrap();
    assert!(written.len() < 8 * 1024, "{}", written.len());
    assert_eq!(store.list().await.unwrap(), std::slice::from_ref(&home.tape));

    // It is written again when it pays.
    store.append(&home.tape, &messages(&["d"])).await.unwrap();
    check(&home, &store).await;
    check(&home, &home.reopened()).await;
    assert_eq!(fs::read(index_of(&home)).unwrap(), written);
    store.append(&home.tape, &messages(&["long"; 9000])).await.unwrap();
    check(&home, &store).await;
    assert_ne!(fs::read(index_of(&home)).unwrap(), written);

    store.replace(&home.tape, &[]).await.unwrap();
    assert!(!index_of(&home).exists());
    check(&home, &store).await;
}

#[tokio::test]
async fn an_index_that_cannot_be_written_or_read_is_done_without() {
    let home = Home::with(long_tape());
    fs::write(home.dir.path().join("tapes/.index"), "a file").unwrap();
    check(&home, &home.store).await;
    check(&home, &home.reopened()).await;
    fs::remove_file(home.dir.path().join("tapes/.index")).unwrap();
    check(&home, &home.reopened()).await;
    let written = fs::read(index_of(&home)).unwrap();
    for damaged in [&[][..], b"x", &written[..written.len() / 2], &[&written[..], b"12345678"].concat()] {
        fs::write(index_of(&home), damaged).unwrap();
        check(&home, &home.reopened()).await;
        assert_eq!(fs::read(index_of(&home)).unwrap(), written, "made again");
    }
    // That of another tape.
    home.write([b"\n", &long_tape()[..]].concat());
    check(&home, &home.reopened()).await;
}

#[tokio::test]
async fn an_index_of_a_file_that_was_changed_in_its_middle_is_found_out() {
    let home = Home::with(long_tape());
    check(&home, &home.store).await;
    // As long as before, and as long after as the clock of the file system needs to tell.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let changed = String::from_utf8(home.bytes()).unwrap().replace("model_switch", "modell_witch");
    home.write(changed);
    check(&home, &home.store).await;
    check(&home, &home.reopened()).await;
}

#[tokio::test]
async fn more_anchors_and_events_than_an_index_keeps_are_all_found() {
    let home = Home::new();
    let mut text = event(1, "model_switch", "x");
    for id in 2..12_000 {
        text.push_str(&match id % 3 {
            0 => anchor(id, &format!("a{id}")),
            1 => event(id, &format!("name{}", id % 900), "x"),
            _ => event(id, "run", "x"),
        });
    }
    text.push_str(&line(12_000, &"x".repeat(3 * MIB)));
    home.write(text);
    for store in [&home.store, &home.reopened()] {
        check(&home, store).await;
        let named = |it: &str| TapeQuery::default().event(it.to_owned()).newest_first();
        let by_name = |rest| (2..12_000).filter(|id| id % 3 == 1 && id % 900 == rest).count();
        for (name, n) in [("run", 4000), ("name4", by_name(4)), ("name898", by_name(898)), ("none", 0)] {
            let found = store.read(&home.tape, &named(name)).await.unwrap();
            assert_eq!(found.len(), n, "{name}");
            assert!(found.windows(2).all(|it| it[0].id > it[1].id));
        }
    }
    assert!(fs::metadata(index_of(&home)).unwrap().len() < 256 * 1024);
}

#[tokio::test]
async fn streams_return_what_reading_does_and_can_be_left() {
    let home = Home::with(long_tape());
    let newest =
        TapeQuery { text: Some(TextMatch::new("xxx", true)), ..TapeQuery::default().newest_first().limit(700) };
    for query in
        [TapeQuery::default(), newest, TapeQuery::default().kind(EntryKind::Anchor), TapeQuery::default().limit(0)]
    {
        let streamed: Vec<_> = home.store.stream(&home.tape, &query).map(Result::unwrap).collect().await;
        assert_eq!(streamed, home.store.read(&home.tape, &query).await.unwrap());
    }
    let all = TapeQuery::default();
    let mut entries = home.store.stream(&home.tape, &all);
    assert_eq!(entries.next().await.unwrap().unwrap().id, 1);
    drop(entries);
    let missing = TapeQuery::default().after_anchor("none");
    let errors: Vec<_> = home.store.stream(&home.tape, &missing).collect().await;
    assert!(matches!(errors.as_slice(), [Err(_)]));
    let nothing = TapeName::free("nothing");
    assert_eq!(home.store.stream(&nothing, &all).count().await, 0);
}

#[tokio::test]
async fn a_scan_of_some_ids_begins_near_them() {
    let home = Home::with(long_tape());
    let filter = |ids| bub_host::ScanFilter { ids, ..bub_host::ScanFilter::default() };
    for (ids, expected) in [(1500..=1503, 4), (1..=2, 2), (2000..=9000, 1), (2001..=9000, 0)] {
        let mut scan = home.store.scan(&home.tape, filter(ids.clone()));
        let mut found = Vec::new();
        let n_bytes = loop {
            let step = scan.step().unwrap();
            found.extend(step.entries.into_iter().map(|it| it.entry.id));
            if step.is_at_end {
                break step.position;
            }
        };
        assert_eq!(found, ids.clone().take(expected).collect::<Vec<_>>());
        assert!(n_bytes > 0 || *ids.start() == 1);
    }
}

#[tokio::test]
async fn entries_on_the_borders_of_what_is_indexed_at_once_are_found_by_id() {
    let home = Home::new();
    // Lines of which many lie on a border, whatever power of two it is at.
    home.write((1..=120).map(|id| line(id, &"x".repeat(50_000 + id as usize))).collect::<String>());
    home.store.stats(&home.tape).await.unwrap();
    for id in 1..=120 {
        for newest_first in [false, true] {
            let query = TapeQuery { newest_first, ..TapeQuery::default().ids(id..=id) };
            assert_eq!(home.store.read(&home.tape, &query).await.unwrap().len(), 1, "{id}");
        }
    }
}
