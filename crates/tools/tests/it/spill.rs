use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::FixedClock,
    error::ToolError,
    hooks::{Hooks as _, ToolCall},
    tape::{Entry, EntryKind, MemoryStore, NewEntry, Tape, TapeError, TapeName, TapeQuery, TapeStats, TapeStore},
    tool::{Caller, ToolContext, ToolReply, ToolSet, erase},
};
use bub_testing::{NoEnvironment, call, context, tape_lines};
use bub_tools::{
    spill::{SpillHooks, SpillRead, SpillSettings},
    tape::{TapeHandoff, TapeSearch},
};
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A context whose tape has the sidecar, and whose tools can read it.
fn ctx_on(tape: Tape) -> ToolContext {
    let mut tools = ToolSet::default();
    tools.insert(erase(SpillRead));
    let tape = tape.with_sidecars(&["spill".to_owned()]);
    ToolContext { tape, tools: Arc::new(tools), ..context(Arc::new(NoEnvironment)) }
}

fn ctx() -> ToolContext {
    ctx_on(context(Arc::new(NoEnvironment)).tape)
}

fn ctx_over(store: Arc<dyn TapeStore>) -> ToolContext {
    ctx_on(Tape::new(TapeName::session("/srv/demo", "s1"), store, Arc::new(FixedClock::default())))
}

fn called(tool: &str) -> ToolCall {
    ToolCall { id: "c1".into(), tool: tool.into(), args: json!({}), caller: Caller::Model }
}

async fn after(
    ctx: &ToolContext,
    tool: &str,
    threshold: u32,
    mut result: Result<ToolReply, ToolError>,
) -> Result<ToolReply, ToolError> {
    let hooks = SpillHooks::new(SpillSettings { threshold });
    hooks.after_tool(ctx, &called(tool), &mut result).await;
    result
}

/// What is left in the conversation of a text, at the default threshold.
async fn left_of(ctx: &ToolContext, text: &str) -> String {
    let threshold = SpillSettings::default().threshold;
    after(ctx, "big.out", threshold, Ok(ToolReply::text(text))).await.unwrap().rendering()
}

fn handle_in(text: &str) -> String {
    let (_, rest) = text.split_once("handle: ").expect(text);
    let handle = rest.split(']').next().unwrap();
    assert!(handle.len() == 32 && handle.bytes().all(|it| it.is_ascii_hexdigit()), "{handle}");
    handle.to_owned()
}

async fn read(ctx: &ToolContext, args: Value) -> String {
    call(SpillRead, ctx, args).await
}

/// Everything behind a handle, page by page in one direction.
async fn read_all(ctx: &ToolContext, handle: &str, count: u64, from_end: bool) -> String {
    let (mut text, mut cursor) = (String::new(), 0);
    loop {
        let page = read(ctx, json!({"handle": handle, "cursor": cursor, "count": count, "from_end": from_end})).await;
        let (head, content) = page.split_once("\ncontent:\n").expect(&page);
        if from_end {
            text.insert_str(0, content);
        } else {
            text.push_str(content);
        }
        cursor = head.lines().find_map(|it| it.strip_prefix("next_cursor: ")).unwrap().parse::<u64>().unwrap();
        if head.ends_with("complete: true") {
            return text;
        }
    }
}

/// `n` lines of 51 bytes, 47 characters.
fn rows(n: usize) -> String {
    (0..n).map(|idx| format!("row {idx:04} 漢字 and some plain words to fill it up\n")).collect()
}

#[tokio::test]
async fn a_long_result_is_moved_and_its_ends_stay() {
    let ctx = ctx();
    let text = rows(900);
    let left = left_of(&ctx, text.trim_end()).await;
    let handle = handle_in(&left);
    let mut lines = left.lines();
    assert_eq!(lines.next().unwrap(), format!("[tool output spilled: 45,899 bytes in 3 chunks; handle: {handle}]"));
    assert_eq!(
        lines.next().unwrap(),
        format!("[read with: spill_read(handle='{handle}', cursor=0, count=1, from_end=False)]")
    );
    let (head, tail) = left.split_once("\n...[41,699 chars omitted]...\n").unwrap();
    assert!(head.ends_with("row 0006 漢字 and so") && tail.starts_with("ords to fill it up\nrow 0894"), "{left}");
    assert_eq!(tail.chars().count(), 300);

    let main = ctx.tape.read(&TapeQuery::default()).await.unwrap();
    expect![[r#"
        1 event {"name": "spill.write", "data": {"status": "ok", "handle": "HANDLE", "bytes": 45899, "chunks": 3, "tool": "big_out"}} @run {"context": false}
    "#]]
    .assert_eq(&tape_lines(&main).replace(&handle, "HANDLE"));
    let sidecar = ctx.tape.sidecar("spill").unwrap().read(&TapeQuery::default()).await.unwrap();
    let lines = tape_lines(&sidecar).replace(&handle, "HANDLE");
    let shown: Vec<String> = lines.lines().map(|it| it.replace(&text[..16_300], "CHUNK")).collect();
    assert_eq!(shown[0], r#"1 anchor {"name": "spill/HANDLE/chunk/0"}"#);
    assert!(shown[1].ends_with(r#"]} {"spill_handle": "HANDLE", "spill_chunk": 0}"#), "{}", shown[1]);
    assert_eq!(
        &shown[6..],
        [
            r#"7 anchor {"name": "spill/HANDLE/manifest"}"#,
            r#"8 event {"name": "spill.manifest", "data": {"handle": "HANDLE", "chunks": 3, "bytes": 45899, "chars": 42299, "lines": 900, "tool": "big_out"}} @run {"spill_handle": "HANDLE"}"#,
        ]
    );
    let chunk = sidecar[1].payload["results"][0].as_str().unwrap();
    assert!(chunk.len() <= 16_384 && chunk.len() > 16_380);
}

#[tokio::test]
async fn results_are_moved_from_the_threshold_on() {
    let ctx = ctx();
    let check = async |threshold: u32, text: &str, is_moved: bool| {
        let left = after(&ctx, "x", threshold, Ok(ToolReply::text(text))).await.unwrap().rendering();
        assert_eq!(left.starts_with("[tool output spilled: "), is_moved, "{threshold} {}", text.len());
    };
    check(4096, &"x".repeat(16_383), false).await;
    check(4096, &"x".repeat(16_384), true).await;
    // Characters count, not bytes.
    check(4096, &"漢".repeat(16_383), false).await;
    check(4096, &"漢".repeat(16_384), true).await;
    check(1, "xxxx", true).await;
    check(1, "xxx", false).await;
    check(0, &"x".repeat(100_000), false).await;
    check(u32::MAX, &"x".repeat(100_000), false).await;
}

#[tokio::test]
async fn a_short_text_is_previewed_whole() {
    let ctx = ctx();
    for n in [40, 600, 601] {
        let text = "y".repeat(n);
        let left = after(&ctx, "x", 10, Ok(ToolReply::text(text.clone()))).await.unwrap().rendering();
        let preview = left.split_once("from_end=False)]\n").unwrap().1;
        if n <= 600 {
            assert_eq!(preview, text);
        } else {
            let half = "y".repeat(300);
            assert_eq!(preview, format!("{half}\n...[1 chars omitted]...\n{half}"));
        }
    }
}

#[tokio::test]
async fn only_what_a_model_reads_and_can_read_back_is_moved() {
    let long = "x".repeat(20_000);
    let check = async |ctx: &ToolContext, tool: &str| {
        let left = after(ctx, tool, 4096, Ok(ToolReply::text(long.as_str()))).await.unwrap();
        assert_eq!(left.rendering(), long, "{tool}");
        assert!(ctx.tape.read(&TapeQuery::default()).await.unwrap().is_empty());
    };
    check(&ToolContext { caller: Caller::Code, ..ctx() }, "x").await;
    check(&ToolContext { caller: Caller::Command, ..ctx() }, "x").await;
    check(&ctx(), "spill.read").await;
    check(&ctx(), "spill_read").await;
    check(&ToolContext { tools: Arc::default(), ..ctx() }, "x").await;
    let mut state = bub_kernel::turn::TurnState::default();
    state.allowed_tools = Some(vec!["x".into()]);
    check(&ToolContext { state: Arc::new(state), ..ctx() }, "x").await;
    check(&ToolContext { tape: context(Arc::new(NoEnvironment)).tape, ..ctx() }, "x").await;
}

#[tokio::test]
async fn r122_odd_values_read_back_as_their_whole_json() {
    let ctx = ctx();
    let mut fields: serde_json::Map<String, Value> = (0..61).map(|idx| (format!("k{idx}"), idx.into())).collect();
    fields.insert("big".into(), "é".repeat(1 << 20).into());
    let values = [
        Value::Object(fields),
        (0..100_000).collect::<Vec<_>>().into(),
        Value::String("7".repeat(30_000)),
        vec![255_u8; 20_000].into(),
        Value::String("\u{0}\u{7f}\u{feff}\u{1f9ea}\r\n".repeat(4_000)),
        json!([null, true, 1.5, {"": []}, "x".repeat(20_000)]),
    ];
    for value in values {
        let whole = bub_kernel::text::render(&value);
        let reply = ToolReply { value, text: None };
        let left = after(&ctx, "odd", 4096, Ok(reply)).await.unwrap().rendering();
        let handle = handle_in(&left);
        assert!(left.len() < 2_600, "{}", left.len());
        assert_eq!(read_all(&ctx, &handle, 4, false).await, whole);
        assert_eq!(read_all(&ctx, &handle, 3, true).await, whole);
    }
    // What is short stays what it is.
    let small = ToolReply { value: json!({"a": [1]}), text: None };
    assert_eq!(after(&ctx, "odd", 4096, Ok(small.clone())).await.unwrap(), small);
}

#[tokio::test]
async fn media_of_a_result_stays_where_it_is() {
    let ctx = ctx();
    let image = json!({"type": "image", "media_type": "image/png", "data": "A".repeat(100_000)});
    let content = |blocks: Value| ToolReply { value: json!({"type": "tool_content", "content": blocks}), text: None };
    let text = |it: &str| json!({"type": "text", "text": it});
    let long = "x".repeat(10_000);
    let reply = content(json!([text(&long), image, text(&long)]));
    let left = after(&ctx, "shot", 4096, Ok(reply)).await.unwrap().value;
    let blocks = left["content"].as_array().unwrap();
    assert_eq!((blocks.len(), &blocks[1]), (2, &image));
    let handle = handle_in(blocks[0]["text"].as_str().unwrap());
    assert_eq!(read_all(&ctx, &handle, 1, false).await, long.repeat(2));
    // The picture alone does not count.
    let short = content(json!([image, text("hi")]));
    assert_eq!(after(&ctx, "shot", 4096, Ok(short.clone())).await.unwrap(), short);
}

#[tokio::test]
async fn long_errors_are_moved_as_their_json() {
    let ctx = ctx();
    let err = || ToolError::raised("RuntimeError", "é".repeat(20_000)).in_tool("bash");
    let left = after(&ctx, "bash", 4096, Err(err())).await.unwrap().rendering();
    assert!(left.contains("]\n{\"kind\": \"tool\", \"message\": \"Tool 'bash' execution failed.\""), "{left}");
    let whole = bub_kernel::text::json(&err().to_value());
    assert_eq!(read_all(&ctx, &handle_in(&left), 2, false).await, whole);
    let short = after(&ctx, "bash", 4096, Err(ToolError::invalid("no"))).await;
    assert_eq!(short.unwrap_err().message, "no");
}

#[tokio::test]
async fn pages_say_where_they_are() {
    let ctx = ctx();
    let text: String = ["a", "b", "c", "d", "e"].map(|it| it.repeat(16_384)).concat();
    let handle = handle_in(&left_of(&ctx, &text[..text.len() - 16_000]).await);
    let check = async |args: Value, expected: Expect| {
        let mut whole = json!({"handle": handle});
        whole.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        let mut page = read(&ctx, whole).await;
        for letter in ["a", "b", "c", "d", "e"] {
            page = page.replace(&letter.repeat(16_384), &letter.to_uppercase());
            page = page.replace(&letter.repeat(384), &format!("{letter}..."));
        }
        expected.assert_eq(&page);
    };
    check(
        json!({}),
        expect![[r#"
            [spilled tool result: 65,920 bytes, 5 chunks]
            chunks: 0-0
            next_cursor: 1
            complete: false
            content:
            A"#]],
    )
    .await;
    check(
        json!({"cursor": 1, "count": 99}),
        expect![[r#"
            [spilled tool result: 65,920 bytes, 5 chunks]
            chunks: 1-4
            next_cursor: 5
            complete: true
            content:
            BCDe..."#]],
    )
    .await;
    check(
        json!({"count": 2, "from_end": true}),
        expect![[r#"
            [spilled tool result: 65,920 bytes, 5 chunks]
            chunks: 3-4
            next_cursor: 2
            complete: false
            content:
            De..."#]],
    )
    .await;
    check(
        json!({"cursor": 4, "count": 2, "from_end": true}),
        expect![[r#"
            [spilled tool result: 65,920 bytes, 5 chunks]
            chunks: 0-0
            next_cursor: 5
            complete: true
            content:
            A"#]],
    )
    .await;
    for (args, cursor) in [(json!({"cursor": 9}), 5), (json!({"cursor": 9, "from_end": true}), 9)] {
        let mut whole = json!({"handle": handle});
        whole.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        let expected = format!(
            "[spilled tool result: 65,920 bytes, 5 chunks]\nchunks: none\nnext_cursor: {cursor}\ncomplete: true\ncontent:\n"
        );
        assert_eq!(read(&ctx, whole).await, expected);
    }
}

#[tokio::test]
async fn reads_that_cannot_be_answered_say_why() {
    let ctx = ctx();
    let handle = handle_in(&left_of(&ctx, &"x".repeat(40_000)).await);
    let check = async |args: Value, expected: &str| assert_eq!(read(&ctx, args).await, expected);
    check(json!({"handle": handle, "cursor": -1}), "`cursor` must be >= 0.").await;
    check(json!({"handle": handle, "count": 0}), "`count` must be >= 1.").await;
    check(json!({"handle": handle, "count": -3, "from_end": true}), "`count` must be >= 1.").await;
    check(json!({"handle": "nope"}), "[no spilled tool result for handle 'nope']").await;
    check(json!({"handle": ""}), "[no spilled tool result for handle '']").await;
    let bare = ToolContext { tape: context(Arc::new(NoEnvironment)).tape, ..self::ctx() };
    assert_eq!(read(&bare, json!({"handle": handle})).await, "spill sidecar unavailable in this context.");
    let other = self::ctx();
    assert_eq!(
        read(&other, json!({"handle": handle})).await,
        format!("[no spilled tool result for handle '{handle}']"),
        "handles are of one session"
    );
}

#[tokio::test]
async fn what_is_damaged_is_told() {
    let anchor = |handle: &str, rest: &str| NewEntry::anchor(&format!("spill/{handle}/{rest}"), Value::Null);
    let chunk = |handle: &str, idx: u64, results: Value| {
        NewEntry::new(EntryKind::ToolResult, json!({"results": results}).as_object().unwrap().clone())
            .with_meta("spill_handle", handle)
            .with_meta("spill_chunk", idx)
    };
    let manifest = |handle: &str, chunks: Value| {
        let data = json!({"handle": handle, "chunks": chunks, "bytes": 6, "chars": 6, "lines": 1, "tool": "x"});
        [anchor(handle, "manifest"), NewEntry::event("spill.manifest", data)]
    };
    let ctx = ctx();
    let sidecar = ctx.tape.sidecar("spill").unwrap();
    let check = async |entries: Vec<NewEntry>, args: Value, expected: &str| {
        sidecar.append(entries).await.unwrap();
        assert_eq!(read(&ctx, args).await, expected);
    };
    let none = "[no spilled tool result for handle 'h']";
    check(vec![anchor("h", "chunk/0"), chunk("h", 0, json!(["abc"]))], json!({"handle": "h"}), none).await;
    check(manifest("h", json!("two")).into(), json!({"handle": "h"}), none).await;
    let [at, _] = manifest("h", json!(1));
    check(vec![at], json!({"handle": "h"}), none).await;
    check(
        manifest("h", json!(2)).into(),
        json!({"handle": "h", "cursor": 1}),
        "[incomplete spilled tool result: missing chunk 1 for handle 'h']",
    )
    .await;
    check(
        manifest("h", json!(u64::MAX)).into(),
        json!({"handle": "h", "count": 4}),
        "[incomplete spilled tool result: missing chunks for handle 'h']",
    )
    .await;
    let mut entries = vec![anchor("i", "chunk/0"), chunk("i", 0, json!([5])), anchor("i", "chunk/1")];
    entries.extend([chunk("i", 7, json!(["abc"]))]);
    entries.extend(manifest("i", json!(2)));
    let invalid = "[incomplete spilled tool result: invalid chunk 0 for handle 'i']";
    check(entries, json!({"handle": "i", "count": 2}), invalid).await;
    let invalid = "[incomplete spilled tool result: invalid chunk 1 for handle 'i']";
    check(vec![], json!({"handle": "i", "cursor": 1}), invalid).await;
    // Two that were written at the same time may lie in each other.
    let mut entries = vec![anchor("j", "chunk/0"), chunk("j", 0, json!(["abc"])), anchor("k", "chunk/0")];
    entries.extend([chunk("k", 0, json!(["xyz"])), anchor("j", "chunk/1"), chunk("j", 1, json!(["def"]))]);
    entries.extend(manifest("j", json!(2)));
    let page =
        "[spilled tool result: 6 bytes, 2 chunks]\nchunks: 0-1\nnext_cursor: 2\ncomplete: true\ncontent:\nabcdef";
    check(entries, json!({"handle": "j", "count": 2}), page).await;
}

#[tokio::test]
async fn r033_pages_never_cut_a_character() {
    let ctx = ctx();
    let text = format!("x{}", "🧪漢é".repeat(8_000));
    let handle = handle_in(&left_of(&ctx, &text).await);
    for (count, from_end) in [(1, false), (1, true), (4, false), (3, true)] {
        let all = read_all(&ctx, &handle, count, from_end).await;
        assert!(all == text && !all.contains('\u{fffd}'));
    }
}

#[tokio::test]
async fn tapes_of_the_references_releases_are_read() {
    for release in ["0.5.1", "0.6.0a3"] {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes").join(release);
        let name = TapeName::free("690726025796114b__83e30f61fbdbe1d3");
        let store = Arc::new(JsonlStore::new(fixtures, StoreOptions { sync: Sync::Never }));
        let ctx = ctx_on(Tape::new(name, store, Arc::new(FixedClock::default())));
        let writes = ctx.tape.read(&TapeQuery::default().event("spill.write")).await.unwrap();
        let handle = writes[0].data().unwrap()["handle"].as_str().unwrap().to_owned();
        assert_eq!(read_all(&ctx, &handle, 2, false).await, rows(900).trim_end(), "{release}");
        assert_eq!(read_all(&ctx, &handle, 1, true).await, rows(900).trim_end(), "{release}");
    }
}

/// A store whose sidecars can't be written, at once or when a fork ends.
struct FailingStore {
    inner: MemoryStore,
    fails: AtomicBool,
}

#[async_trait]
impl TapeStore for FailingStore {
    async fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        self.inner.list().await
    }
    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        self.inner.read(tape, query).await
    }
    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        self.inner.stats(tape).await
    }
    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if tape.is_session() || !self.fails.load(Ordering::SeqCst) {
            return self.inner.append(tape, entries).await;
        }
        Err(TapeError::Store { tape: tape.to_string(), message: "the disk is full".into(), source: None })
    }
    async fn check_append(&self, tape: &TapeName, _: u64) -> Result<(), TapeError> {
        self.append(tape, &[]).await
    }
    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        self.inner.replace(tape, entries).await
    }
}

#[tokio::test]
async fn r120_what_cannot_be_stored_is_cut_and_offers_no_handle() {
    let store = Arc::new(FailingStore { inner: MemoryStore::default(), fails: AtomicBool::new(true) });
    let ctx = ctx_over(store.clone());
    let text = format!("start{}end", "x".repeat(1 << 20));
    let check = async |ctx: &ToolContext| {
        let left = left_of(ctx, &text).await;
        assert!(left.starts_with("[tool output truncated: 1,048,584 bytes; spill storage failed]\nstartxxx"), "{left}");
        assert!(left.ends_with("xxxend") && left.contains("\n...[1,047,984 chars omitted]...\n"));
        assert!(!left.contains("handle"));
        let events = ctx.tape.read(&TapeQuery::default().event("spill.write").newest_first()).await.unwrap();
        let data = events[0].data().unwrap();
        assert_eq!((&data["status"], &data["bytes"]), (&json!("error"), &json!(1_048_584)));
        assert!(data["error"].as_str().unwrap().contains("the disk is full"), "{data}");
        let missing = read(ctx, json!({"handle": data["handle"]})).await;
        assert!(missing.starts_with("[no spilled tool result for handle"), "{missing}");
    };
    check(&ctx).await;
    // A fork would take it, and lose it when the turn ends.
    let fork = ctx.tape.fork();
    check(&ToolContext { tape: fork.tape().clone(), ..ctx.clone() }).await;
    fork.commit().await.unwrap();
    store.fails.store(false, Ordering::SeqCst);
    assert!(left_of(&ctx, &text).await.starts_with("[tool output spilled: 1,048,584 bytes in 65 chunks; handle: "));
}

#[tokio::test]
async fn r121_handles_are_found_again_after_a_handoff_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || ctx_over(Arc::new(JsonlStore::new(dir.path().to_owned(), StoreOptions { sync: Sync::Never })));
    let ctx = open();
    let fork = ctx.tape.fork();
    let turn = ToolContext { tape: fork.tape().clone(), ..ctx };
    let texts: Vec<_> = (0..20).map(|idx| format!("{}needle-{idx}-{}", rows(400), rows(400))).collect();
    for text in &texts {
        let left = left_of(&turn, text).await;
        turn.tape.append([NewEntry::tool_result(vec![left.clone().into()])]).await.unwrap();
        // In the turn itself, before anything is merged.
        assert!(read_all(&turn, &handle_in(&left), 4, false).await == *text);
    }
    call(TapeHandoff, &turn, json!({"summary": "go on"})).await;
    fork.commit().await.unwrap();

    let ctx = open();
    let search = async |query: &str, kinds: Value| {
        call(TapeSearch, &ctx, json!({"query": query, "limit": 20, "kinds": kinds})).await
    };
    let handles = |found: &str| -> Vec<String> {
        let starts = found.match_indices("\"handle\": \"").map(|it| it.0 + 11);
        starts.map(|it| found[it..it + 32].to_owned()).collect()
    };
    let listed = handles(&search("spill.write", json!(["event"])).await);
    assert_eq!(listed.len(), 20);
    for (handle, text) in listed.iter().rev().zip(&texts) {
        assert!(read_all(&ctx, handle, 4, true).await == *text);
    }
    let results = search("tool output spilled", json!(["tool_result"])).await;
    assert!(listed.iter().all(|it| results.contains(&format!("handle: {it}]"))));
    // The text that was moved is searched too, and says how to read on.
    let found = search("NEEDLE-7-", json!(["message", "tool_result"])).await;
    assert!(found.starts_with("[tape.search]: 1 matches (0 filtered)\n"), "{found}");
    let handle = &listed[20 - 1 - 7];
    assert!(found.contains("needle-7-") && found.len() < 1_500, "{found}");
    let read_with = format!("spill_read(handle='{handle}', cursor=1, count=1, from_end=False)");
    assert!(found.contains(&read_with), "{found}");
    assert!(read(&ctx, json!({"handle": handle, "cursor": 1})).await.contains("needle-7-"));
    assert!(search("needle-7-", json!(["message"])).await.starts_with("[tape.search]: 0 matches"));
}

#[tokio::test]
async fn searches_do_not_find_their_own_results() {
    let ctx = ctx();
    let hooks = SpillHooks::new(SpillSettings { threshold: 10 });
    let search = async || {
        let mut result = Ok(ToolReply::text(call(TapeSearch, &ctx, json!({"query": "needle"})).await));
        hooks.after_tool(&ctx, &called("tape.search"), &mut result).await;
        let text = result.unwrap().rendering();
        ctx.tape.append([NewEntry::tool_result(vec![text.clone().into()])]).await.unwrap();
        text
    };
    left_of(&ctx, &format!("{}needle{}", "x".repeat(10_000), "y".repeat(10_000))).await;
    for _ in 0..3 {
        assert!(search().await.contains("[tape.search]: 1 matches ("));
    }
}

#[tokio::test]
async fn a_reset_takes_the_handles_along() {
    let ctx = ctx();
    let text = "x".repeat(20_000);
    let handle = handle_in(&left_of(&ctx, &text).await);
    let fork = ctx.tape.fork();
    let turn = ToolContext { tape: fork.tape().clone(), ..ctx.clone() };
    assert_eq!(read_all(&turn, &handle, 1, false).await, text);
    turn.tape.reset(false).await.unwrap();
    let gone = format!("[no spilled tool result for handle '{handle}']");
    assert_eq!(read(&turn, json!({"handle": handle})).await, gone);
    assert_eq!(read_all(&ctx, &handle, 1, false).await, text, "until the turn ends");
    let newer = handle_in(&left_of(&turn, &text).await);
    fork.commit().await.unwrap();
    assert_eq!(read(&ctx, json!({"handle": handle})).await, gone);
    assert_eq!(read_all(&ctx, &newer, 4, true).await, text);
}

#[test]
fn the_model_is_told_the_references_parameters() {
    let spec = erase(SpillRead).spec().clone();
    let properties = &spec.parameters["properties"];
    let shown: Vec<_> = properties
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, it)| format!("{name} {} {}", it["type"], it["default"]))
        .collect();
    assert_eq!(
        shown,
        ["handle \"string\" null", "cursor \"integer\" 0", "count \"integer\" 1", "from_end \"boolean\" false"]
    );
    assert_eq!((spec.parameters["required"].clone(), spec.alias()), (json!(["handle"]), "spill_read".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_moved_is_read_back(
        piece in "[aé漢🧪\n\r\u{0}\"\\\\]{1,50}",
        times in 1usize..3_000,
        threshold in 1u32..6_000,
        count in 1u64..6,
    ) {
        let text = piece.repeat(times);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let ctx = ctx();
            let left = after(&ctx, "x", threshold, Ok(ToolReply::text(text.clone()))).await.unwrap().rendering();
            if text.chars().count() < threshold as usize * 4 {
                assert_eq!(left, text);
                return;
            }
            let handle = handle_in(&left);
            for from_end in [false, true] {
                assert!(read_all(&ctx, &handle, count, from_end).await == text);
            }
        });
    }
}
