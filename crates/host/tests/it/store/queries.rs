use bub_kernel::tape::{EntryKind, Slice, TapeError, TextMatch, parse_bound};
use proptest::{prelude::*, sample::select};

use super::*;

fn anchor(id: u64, name: &str) -> String {
    let entry =
        json!({"id": id, "kind": "anchor", "payload": {"name": name}, "meta": {}, "date": "2026-01-03T00:00:00+00:00"});
    format!("{}\n", bub_kernel::text::json(&entry))
}

/// A line of a tape: entries of all sorts, and what else may be there.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (1..99_u64, select(vec!["needle", "hay", "\"anchor\"", "漢字"])).prop_map(|(id, it)| line(id, it).into_bytes()),
        2 => (1..99_u64, select(vec!["a", "b/c", "\"q\""])).prop_map(|(id, it)| anchor(id, it).into_bytes()),
        1 => select(vec![
            &b"{\"id\": 5, \"kind\": \"\\u0061nchor\", \"payload\": {\"name\": \"\\u0061\"}}\n"[..],
            b"{\"id\": 6, \"kind\": \"event\", \"payload\": {\"name\": \"b\\/c\", \"data\": {}}}\n",
            b"{\"id\": 7, \"kind\": \"anchor\", \"payload\": {}}\n",
        ]).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => select(vec![&b"\n"[..], b"\0\0\n", b"\"anchor\"\n", b"{\"id\": 8, \"kind\": \"anch", b"\r\n"]).prop_map(<[u8]>::to_vec),
    ]
}

fn any_query() -> impl Strategy<Value = TapeQuery> {
    let slice = select(vec![
        Slice::All,
        Slice::AfterLastAnchor,
        Slice::AfterAnchor("a".into()),
        Slice::AfterAnchor("\"q\"".into()),
        Slice::Between("a".into(), "b/c".into()),
        Slice::Between("b/c".into(), "a".into()),
    ]);
    let kinds = select(vec![
        vec![],
        vec![EntryKind::Message],
        vec![EntryKind::Anchor],
        vec![EntryKind::Message, EntryKind::Event],
        vec![EntryKind::Other("x".into())],
    ]);
    let names =
        select(vec![vec![], vec!["a".to_owned()], vec!["b/c".to_owned()], vec!["a".to_owned(), "\"q\"".to_owned()]]);
    let text = select(vec![
        None,
        None,
        Some("needle"),
        Some("neadle"),
        Some("漢"),
        Some("b/c"),
        Some("a"),
        Some("5"),
        Some("meta"),
        Some("\\u6f22"),
        Some(""),
    ]);
    let text = (text, any::<bool>()).prop_map(|(text, fuzzy)| text.map(|it| TextMatch::new(it, fuzzy)));
    let from = select(vec![None, Some("2026-01-03")]);
    let ids = select(vec![None, None, Some(3..=40), Some(50..=50)]);
    (slice, kinds, names, text, (from, ids), proptest::option::of(0..4_usize), any::<bool>(), any::<bool>()).prop_map(
        |(slice, kinds, names, text, (from, ids), limit, newest_first, distinct)| TapeQuery {
            slice,
            ids,
            kinds,
            names,
            text,
            from: from.map(|it| parse_bound(it, false).unwrap()),
            to: None,
            limit,
            newest_first,
            distinct,
        },
    )
}

fn show(result: Result<Vec<Arc<Entry>>, TapeError>) -> Result<Vec<Arc<Entry>>, String> {
    result.map_err(|err| err.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_file_is_read_as_its_entries_in_memory_would_be(
        lines in proptest::collection::vec(any_line(), 0..25),
        queries in proptest::collection::vec(any_query(), 1..6),
    ) {
        let text = lines.concat();
        let entries: Vec<_> = text.split(|it| *it == b'\n').filter_map(Entry::from_line).map(Arc::new).collect();
        let home = Home::with(&text);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for query in queries {
            let found = runtime.block_on(home.store.read(&home.tape, &query));
            prop_assert_eq!(show(found), show(query.select(&entries)), "{:?}", query);
        }
        let stats = runtime.block_on(home.store.stats(&home.tape)).unwrap();
        let last = entries.iter().rposition(|it| it.is_anchor(None));
        prop_assert_eq!(stats.entries, entries.len() as u64);
        prop_assert_eq!(stats.anchors, entries.iter().filter(|it| it.is_anchor(None)).count() as u64);
        prop_assert_eq!(stats.last_id, entries.last().map_or(0, |it| it.id));
        prop_assert_eq!(stats.last_anchor.as_deref(), last.and_then(|it| entries[it].name()));
        prop_assert_eq!(stats.entries_since_last_anchor as usize, entries.len() - last.map_or(0, |it| it + 1));

        // Once counted, only what is new is counted.
        runtime.block_on(home.store.append(&home.tape, &messages(&["new"]))).unwrap();
        let grown = runtime.block_on(home.store.stats(&home.tape)).unwrap();
        prop_assert_eq!(&grown, &runtime.block_on(home.reopened().stats(&home.tape)).unwrap());
        prop_assert_eq!((grown.entries, grown.last_id), (stats.entries + 1, stats.last_id + 1));
        prop_assert!(home.bytes().starts_with(&text));
    }
}

#[tokio::test]
async fn counts_follow_a_file_that_others_change() {
    let home = Home::with([anchor(1, "a"), line(2, "x"), line(3, "x")].concat());
    let count = async || {
        let stats = home.store.stats(&home.tape).await.unwrap();
        assert_eq!(stats, home.reopened().stats(&home.tape).await.unwrap());
        (stats.entries, stats.anchors, stats.entries_since_last_anchor)
    };
    assert_eq!(count().await, (3, 1, 2));
    assert_eq!(count().await, (3, 1, 2));
    home.write([anchor(1, "a"), line(2, "x")].concat());
    assert_eq!(count().await, (2, 1, 1));
    home.write([anchor(1, "a"), line(2, "y"), anchor(3, "b"), line(4, "z"), line(5, "z")].concat());
    assert_eq!(count().await, (5, 2, 2));
    fs::remove_file(home.store.path(&home.tape)).unwrap();
    assert_eq!(count().await, (0, 0, 0));
}

#[tokio::test]
async fn the_newest_setting_is_found_before_the_rest_is_read() {
    let home = Home::new();
    let switch = |it: &str| dated(NewEntry::event("model_switch", json!({"model": it})));
    home.store.append(&home.tape, &[switch("old"), switch("new")]).await.unwrap();
    home.append(&["model_switch in a text", "x"]).await;
    let tape =
        bub_kernel::tape::Tape::new(home.tape.clone(), Arc::new(home.store.clone()), Arc::new(FixedClock::default()));
    assert_eq!(tape.setting("model").await.unwrap(), Some("new".into()));
    assert_eq!(tape.setting("reasoning_effort").await.unwrap(), None);
}

#[tokio::test]
async fn r087_searches_of_a_long_tape_are_quick() {
    let home = Home::new();
    let words = "alpha beta gamma delta connection timeout deploy server error request token model tape anchor handoff";
    let texts: Vec<String> = (0..20_000).map(|n| format!("{n} {words}")).collect();
    home.append(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (query, limit, expected) in [
        ("kubernets", 20, 0),
        ("servr", 20, 20),
        ("a", 3, 3),
        ("zq", 20, 0),
        ("", 20, 0),
        (&"lorem ".repeat(1700), 20, 0),
    ] {
        let text = Some(TextMatch::new(query, true));
        let query = TapeQuery { text, distinct: true, ..TapeQuery::default().kind(EntryKind::Message) }
            .newest_first()
            .limit(limit);
        let start = std::time::Instant::now();
        let found = home.store.read(&home.tape, &query).await.unwrap();
        // Two seconds are the promise for release builds on a quiet machine.
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
        assert_eq!(found.len(), expected);
        assert!(found.iter().zip((1..=20_000).rev()).all(|(it, id)| it.id == id));
    }
}
