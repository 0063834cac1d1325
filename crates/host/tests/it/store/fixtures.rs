use bub_kernel::tape::{EntryKind, TextMatch};

use super::*;

/// The reference's tapes: release and stem.
pub(super) fn tapes() -> Vec<(std::path::PathBuf, TapeName)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes");
    let mut all = Vec::new();
    for release in ["0.5.1", "0.6.0a3"] {
        for file in fs::read_dir(root.join(release)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|it| it == "jsonl") {
                let name = TapeName::free(path.file_stem().unwrap().to_str().unwrap());
                all.push((path, name));
            }
        }
    }
    assert_eq!(all.len(), 12);
    all
}

#[tokio::test]
async fn tapes_of_both_releases_are_read_and_appended_to_unchanged() {
    for (path, tape) in tapes() {
        let original = fs::read_to_string(&path).unwrap();
        let home = Home { tape, ..Home::with("") };
        home.write(&original);
        let entries = home.store.read(&home.tape, &TapeQuery::default()).await.unwrap();
        let lines: String = entries.iter().map(|it| format!("{}\n", it.to_line())).collect();
        assert_eq!(lines, original, "{}", path.display());
        let n = entries.len() as u64;
        let stats = home.store.stats(&home.tape).await.unwrap();
        assert_eq!((stats.entries, stats.last_id), (n, n));
        home.append(&["漢"]).await;
        assert_eq!(String::from_utf8(home.bytes()).unwrap(), format!("{original}{}", line(n + 1, "漢")));
    }
}

#[tokio::test]
async fn tapes_of_both_releases_answer_queries() {
    for (path, tape) in tapes().into_iter().filter(|it| it.1.as_str().ends_with("2591c98b70119fe6")) {
        let home = Home { tape, ..Home::with("") };
        home.write(fs::read(&path).unwrap());
        let count = async |query: TapeQuery| home.store.read(&home.tape, &query).await.unwrap().len();
        let stats = home.store.stats(&home.tape).await.unwrap();
        assert_eq!((stats.anchors, stats.last_anchor.as_deref()), (2, Some("phase-1")));
        let since = count(TapeQuery::default().after_last_anchor()).await;
        assert_eq!(since as u64, stats.entries_since_last_anchor);
        assert_eq!(count(TapeQuery::default().kind(EntryKind::ToolCall)).await, 3);
        assert_eq!(count(TapeQuery::default().event("loop.start")).await, 3);
        let text = |it: &str| TapeQuery { text: Some(TextMatch::new(it, false)), ..TapeQuery::default() };
        assert_eq!(count(text("你好").kind(EntryKind::Message)).await, 1);
        assert_eq!(count(text("step-2").kind(EntryKind::ToolResult)).await, 1);
        assert!(count(text("done é")).await >= 2);
    }
}
