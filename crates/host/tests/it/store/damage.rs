use std::sync::{Mutex, OnceLock, PoisonError};

use bub_kernel::tape::TextMatch;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::*;

/// All warnings of this test binary: the fields, `key=value`.
fn warnings() -> &'static Mutex<Vec<String>> {
    static WARNINGS: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    WARNINGS.get_or_init(|| {
        tracing::subscriber::set_global_default(Collect).unwrap();
        Mutex::default()
    })
}

/// Begins to collect, if no test did yet.
fn collect_warnings() {
    warnings();
}

struct Collect;

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{}={value:?} ", field.name()));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        warnings().lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The lines of a home's tape that were warned of.
fn warned(home: &Home) -> Vec<u64> {
    let path = home.store.path(&home.tape).display().to_string();
    let all = warnings().lock().unwrap_or_else(PoisonError::into_inner);
    all.iter()
        .filter(|it| it.contains(&path) && it.contains("damaged line"))
        .filter_map(|it| it.split("line=").nth(1)?.split(' ').next()?.parse().ok())
        .collect()
}

#[tokio::test]
async fn r077_a_last_line_torn_at_any_byte_is_skipped_and_never_joined() {
    let whole: String = (1..=3).map(|id| line(id, "x")).collect();
    let last = line(4, "größe 漢字 😀");
    for cut in 0..last.len() {
        for end in ["", "\n\n"] {
            let torn = [whole.as_bytes(), &last.as_bytes()[..cut], end.as_bytes()].concat();
            let home = Home::with(&torn);
            // Without its newline alone the line is whole.
            let n = if cut == last.len() - 1 { 4 } else { 3 };
            assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, n, "cut at {cut}");
            home.append(&["y"]).await;
            let mut expected: Vec<u64> = (1..=n).collect();
            expected.push(n + 1);
            assert_eq!(home.ids().await, expected, "cut at {cut}");
            assert!(home.bytes().starts_with(&torn), "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn r077_a_torn_last_line_is_warned_of_once() {
    collect_warnings();
    let text = format!("{}{{\"id\":11,\"kind\":\"mess", (1..=10).map(|id| line(id, "needle")).collect::<String>());
    let home = Home::with(text);
    let find = TapeQuery { text: Some(TextMatch::new("needle", true)), newest_first: true, ..TapeQuery::default() };
    for _ in 0..2 {
        assert_eq!(home.store.read(&home.tape, &TapeQuery::default()).await.unwrap().len(), 10);
        assert_eq!(home.store.read(&home.tape, &find).await.unwrap().len(), 10);
        assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, 10);
    }
    home.append(&["y"]).await;
    assert_eq!(home.store.read(&home.tape, &TapeQuery::default()).await.unwrap().len(), 11);
    assert_eq!(warned(&home), [11]);
}

#[tokio::test]
async fn r083_broken_lines_hide_nothing_else_and_warnings_name_them() {
    collect_warnings();
    let joined = format!("{}{}", line(3, "joined").trim_end(), line(4, "to it"));
    let text = [
        line(1, "a").as_bytes(),
        b"\n",
        joined.as_bytes(),
        b"not json\n",
        b"\xff\xfe\n",
        b"\0\0\0\0\n",
        b"\0\0",
        line(5, "b").as_bytes(),
        line(6, "c").trim_end().as_bytes(),
        b"\r\n",
        b"{\"id\": 7, \"kind\": \"message\", \"payload\": []}\n",
        line(8, "d").as_bytes(),
    ]
    .concat();
    let home = Home::with(text);
    let expected = [(1, "a".to_owned()), (5, "b".into()), (6, "c".into()), (8, "d".into())];
    for newest_first in [false, true] {
        let query = TapeQuery { newest_first, ..TapeQuery::default() };
        let entries = home.store.read(&home.tape, &query).await.unwrap();
        let mut found: Vec<_> = entries.iter().map(|it| (it.id, text_of(it))).collect();
        if newest_first {
            found.reverse();
        }
        assert_eq!(found, expected);
    }
    assert_eq!(home.store.stats(&home.tape).await.unwrap().entries, 4);
    assert_eq!(warned(&home), [3, 4, 5, 9]);
    home.append(&["e"]).await;
    assert_eq!(home.ids().await, [1, 5, 6, 8, 9]);
}

#[tokio::test]
async fn many_broken_lines_are_not_warned_of_one_by_one() {
    collect_warnings();
    let home = Home::with("broken\n".repeat(5000));
    assert_eq!(home.store.read(&home.tape, &TapeQuery::default()).await.unwrap(), []);
    assert_eq!(warned(&home).len(), 20);
    home.append(&["a"]).await;
    assert_eq!(home.ids().await, [1]);
}

#[tokio::test]
async fn very_long_lines_are_read() {
    let home = Home::new();
    let long = "漢".repeat(4 << 20);
    home.append(&["a", &long, "b"]).await;
    assert_eq!(home.ids().await, [1, 2, 3]);
    let newest = TapeQuery::default().newest_first().limit(2);
    let entries = home.store.read(&home.tape, &newest).await.unwrap();
    assert_eq!(text_of(&entries[1]), long);
    assert_eq!(home.store.stats(&home.tape).await.unwrap().last_id, 3);
}

#[tokio::test]
async fn shapes_of_older_releases_are_read() {
    let text = concat!(
        r#"{"id": 1, "kind": "message", "payload": {"role": "user", "content": "a"}, "timestamp": 1767323045.5}"#,
        "\n",
        r#"{"id": 2, "kind": "message", "payload": {"content": "b"}, "meta": 7}"#,
        "\n",
        r#"{"id":3,"kind":"weird","payload":{"content":"\u6f22"},"meta":{"context":false},"date":"x","more":1}"#,
        "\n",
    );
    let home = Home::with(text);
    let entries = home.store.read(&home.tape, &TapeQuery::default()).await.unwrap();
    let dates: Vec<&str> = entries.iter().map(|it| it.date.as_str()).collect();
    assert_eq!(dates, ["2026-01-02T03:04:05.500000+00:00", "1970-01-01T00:00:00.000000+00:00", "x"]);
    assert_eq!(home.all().await.last().unwrap().1, "漢");
    assert!(entries[1].meta.is_empty());
}
