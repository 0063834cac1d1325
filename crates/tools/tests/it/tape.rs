use std::sync::Arc;

use async_trait::async_trait;
use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::FixedClock,
    error::ToolError,
    message::{Message, Role},
    tape::{Entry, EntryKind, NewEntry, Tape, TapeName, TapeQuery, TapeStore},
    tool::{Tool, ToolContext, ToolReply, erase},
    turn::{Host, TurnError, TurnRequest, TurnResult},
};
use bub_testing::{NoEnvironment, TestHost, call, context, try_call};
use bub_tools::tape::{TapeAnchors, TapeHandoff, TapeInfo, TapeReset, TapeSearch};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn ctx() -> ToolContext {
    context(Arc::new(NoEnvironment))
}

async fn check<T: Tool>(ctx: &ToolContext, tool: T, args: Value, expected: Expect) {
    expected.assert_eq(&call(tool, ctx, args).await);
}

fn say(text: &str) -> NewEntry {
    NewEntry::message(&Message::text(Role::User, text.to_owned()))
}

fn run(usage: Value) -> NewEntry {
    NewEntry::event("run", json!({"status": "ok", "usage": usage, "model": "fake:m"}))
}

#[tokio::test]
async fn info_tells_counts_and_the_last_usage() {
    let ctx = ctx();
    check(
        &ctx,
        TapeInfo,
        json!({}),
        expect![[r#"
            name: eab0d61a99b6696e__03c7c0ace395d801
            entries: 0
            anchors: 0
            last_anchor: None
            entries_since_last_anchor: 0
            last_token_usage: None
            last_token_cache_hit_rate: None"#]],
    )
    .await;
    ctx.tape.bootstrap().await.unwrap();
    let usage = json!({"input_tokens": 300, "output_tokens": 20, "cached_tokens": 100, "total_tokens": 320});
    ctx.tape.append([say("a"), run(usage), run(json!({})), run(Value::Null)]).await.unwrap();
    check(
        &ctx,
        TapeInfo,
        json!({}),
        expect![[r#"
            name: eab0d61a99b6696e__03c7c0ace395d801
            entries: 6
            anchors: 1
            last_anchor: session/start
            entries_since_last_anchor: 5
            last_token_usage: 320
            last_token_cache_hit_rate: 33.33%"#]],
    )
    .await;
    let value = try_call(TapeInfo, &ctx, json!({})).await.unwrap().value;
    assert_eq!(value["last_token_cache_hit_rate"], json!(100.0 / 300.0));
    let older = json!({"prompt_tokens": 8, "prompt_tokens_details": {"cached_tokens": 4}, "total_tokens": 9});
    for (usage, tokens, rate) in [
        (older, json!(9), json!(0.5)),
        (json!({"total_tokens": 7, "input_tokens": 0, "cached_tokens": 0}), json!(7), Value::Null),
        (json!({"total_tokens": 5}), json!(5), Value::Null),
        (json!({"total_tokens": "x"}), json!(5), Value::Null),
    ] {
        ctx.tape.append([run(usage)]).await.unwrap();
        let value = try_call(TapeInfo, &ctx, json!({})).await.unwrap().value;
        assert_eq!((&value["last_token_usage"], &value["last_token_cache_hit_rate"]), (&tokens, &rate));
    }
}

#[tokio::test]
async fn info_finds_the_usage_before_many_runs_without_one() {
    let ctx = ctx();
    ctx.tape.append([run(json!({"total_tokens": 1}))]).await.unwrap();
    ctx.tape.append((0..100).map(|_| run(Value::Null))).await.unwrap();
    let value = try_call(TapeInfo, &ctx, json!({})).await.unwrap().value;
    assert_eq!(value["last_token_usage"], 1);
}

#[tokio::test]
async fn r090_counts_are_the_same_after_a_handoff_a_fork_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let store = JsonlStore::new(dir.path().to_owned(), StoreOptions { sync: Sync::Never });
        Tape::new(TapeName::session("/srv/demo", "s1"), Arc::new(store), Arc::new(FixedClock::default()))
    };
    let counts = async |tape: &Tape| {
        let ctx = ToolContext { tape: tape.clone(), ..ctx() };
        (call(TapeInfo, &ctx, json!({})).await, call(TapeAnchors, &ctx, json!({})).await)
    };
    let tape = open();
    let fork = tape.fork();
    fork.tape().bootstrap().await.unwrap();
    fork.tape().append([say("a"), say("b")]).await.unwrap();
    let ctx = ToolContext { tape: fork.tape().clone(), ..ctx() };
    let done = call(TapeHandoff, &ctx, json!({"name": "p 1", "summary": "x=y 'q'"})).await;
    assert_eq!(done, "anchor added: p 1");
    let in_fork = counts(fork.tape()).await;
    // Nothing but the event that goes with the anchor lies behind it.
    assert!(
        in_fork.0.contains("entries: 6\nanchors: 2\nlast_anchor: p 1\nentries_since_last_anchor: 1\n"),
        "{}",
        in_fork.0
    );
    assert_eq!(in_fork.1, "- session/start\n- p 1");
    fork.commit().await.unwrap();
    assert_eq!(counts(&tape).await, in_fork);
    assert_eq!(counts(&open()).await, in_fork);
    let anchor = &open().read(&TapeQuery::default().kind(EntryKind::Anchor).newest_first()).await.unwrap()[0];
    assert_eq!(anchor.payload["state"], json!({"summary": "x=y 'q'"}));
}

#[tokio::test]
async fn r073_the_count_is_that_of_the_lines_and_earlier_results_are_counted_apart() {
    let ctx = ctx();
    let result = NewEntry::tool_result(vec![json!("[tape.search]: 1 matches (0 filtered)\nneedle")]);
    ctx.tape.append([say("a needle 漢"), result, say("another NEEDLE"), say("hay")]).await.unwrap();
    check(
        &ctx,
        TapeSearch,
        json!({"query": "needle"}),
        expect![[r#"
            [tape.search]: 2 matches (1 filtered)
            {"date": "2026-01-02T03:04:05.000000+00:00", "content": {"role": "user", "content": "another NEEDLE"}}
            {"date": "2026-01-02T03:04:05.000000+00:00", "content": {"role": "user", "content": "a needle \u6f22"}}"#]],
    )
    .await;
    let value = try_call(TapeSearch, &ctx, json!({"query": "another"})).await.unwrap().value;
    let expected =
        json!({"date": "2026-01-02T03:04:05.000000+00:00", "content": {"role": "user", "content": "another NEEDLE"}});
    assert_eq!(value, json!({"matches": [expected], "filtered": 0}));
}

#[tokio::test]
async fn r074_the_same_payload_is_one_line_with_its_latest_date() {
    let ctx = ctx();
    let store = Arc::new(bub_kernel::tape::MemoryStore::default());
    let entries: Vec<Arc<Entry>> = (1..=3)
        .map(|day| {
            let entry = say("deploy failed").dated(&FixedClock::default());
            Arc::new(Entry { date: format!("2026-01-0{day}T00:00:00.000000+00:00"), ..entry })
        })
        .collect();
    store.append(ctx.tape.name(), &entries).await.unwrap();
    let tape = Tape::new(ctx.tape.name().clone(), store, Arc::new(FixedClock::default()));
    let ctx = ToolContext { tape, ..ctx };
    check(
        &ctx,
        TapeSearch,
        json!({"query": "deploy"}),
        expect![[r#"
            [tape.search]: 1 matches (0 filtered)
            {"date": "2026-01-03T00:00:00.000000+00:00", "content": {"role": "user", "content": "deploy failed"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn the_limit_counts_what_filters_leave_and_repeats_once() {
    let ctx = ctx();
    let noise = (0..5).map(|_| NewEntry::event("needle", json!({})));
    let said = ["one", "two", "two", "two"].map(|it| say(&format!("needle {it}")));
    ctx.tape.append(said.into_iter().chain(noise)).await.unwrap();
    for (limit, expected) in [(1, vec!["needle two"]), (2, vec!["needle two", "needle one"])] {
        let value = try_call(TapeSearch, &ctx, json!({"query": "needle", "limit": limit})).await.unwrap().value;
        let found: Vec<_> = value["matches"].as_array().unwrap().iter().map(|it| &it["content"]["content"]).collect();
        assert_eq!(found, expected, "{limit}");
    }
}

#[tokio::test]
async fn r073_earlier_results_leave_room_for_what_is_looked_for() {
    let ctx = ctx();
    let earlier = |n: usize| NewEntry::tool_result(vec![json!(format!("[tape.search]: 1 matches: needle {n}"))]);
    ctx.tape.append([say("needle one"), say("needle two")].into_iter().chain((0..100).map(earlier))).await.unwrap();
    for (limit, n_found, filtered) in [(1, 1, 100), (2, 2, 100), (5, 2, 100), (0, 0, 0)] {
        let value = try_call(TapeSearch, &ctx, json!({"query": "needle", "limit": limit})).await.unwrap().value;
        let found = value["matches"].as_array().unwrap();
        assert_eq!((found.len(), &value["filtered"]), (n_found, &json!(filtered)), "{limit}");
        assert!(found.iter().all(|it| it["content"]["role"] == "user"), "{limit}");
    }
}

#[tokio::test]
async fn r084_what_lies_before_a_handoff_is_found_in_a_turn_too() {
    let ctx = ctx();
    let results = (0..20).map(|n| NewEntry::tool_result(vec![json!(format!("result number {n} zebra{n}"))]));
    ctx.tape.append(results).await.unwrap();
    ctx.tape.handoff("phase", json!({})).await.unwrap();
    let fork = ctx.tape.fork();
    fork.tape().append([say("now")]).await.unwrap();
    let ctx = ToolContext { tape: fork.tape().clone(), ..ctx };
    let found = call(TapeSearch, &ctx, json!({"query": "zebra3"})).await;
    assert!(found.contains("result number 3 zebra3"), "{found}");
}

/// How many entries a search over days 1 to 3 finds, or its error.
async fn search_days(args: Value) -> String {
    let ctx = ctx();
    let store = Arc::new(bub_kernel::tape::MemoryStore::default());
    let entries: Vec<Arc<Entry>> = (1..=3)
        .map(|day| {
            let entry = say(&format!("needle {day}")).dated(&FixedClock::default());
            Arc::new(Entry { date: format!("2026-01-0{day}T23:59:59.999999+00:00"), ..entry })
        })
        .collect();
    store.append(ctx.tape.name(), &entries).await.unwrap();
    let tape = Tape::new(ctx.tape.name().clone(), store, Arc::new(FixedClock::default()));
    let ctx = ToolContext { tape, ..ctx };
    let mut all = json!({"query": "needle"});
    all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
    match try_call(TapeSearch, &ctx, all).await {
        Ok(reply) => {
            let matches = reply.value["matches"].as_array().unwrap().clone();
            matches
                .iter()
                .map(|it| it["content"]["content"].as_str().unwrap().trim_start_matches("needle ").to_owned())
                .collect()
        }
        Err(err) => err.to_string(),
    }
}

#[tokio::test]
async fn r086_ranges_may_have_one_side_and_bad_ones_say_why() {
    for (args, expected) in [
        (json!({}), "321"),
        (json!({"start": "2026-01-02"}), "32"),
        (json!({"end": "2026-01-02"}), "21"),
        (json!({"start": "2026-01-02", "end": "2026-01-02"}), "2"),
        (json!({"start": "", "end": " "}), "321"),
        (json!({"start": "2026-01-03T01:00:00+02:00"}), "32"),
        (json!({"end": "2026-01-02T23:59:59Z"}), "1"),
        (
            json!({"start": "2026-01-03", "end": "2026-01-02"}),
            "[invalid_input] Start date must be earlier than or equal to end date.",
        ),
        (json!({"start": "yesterday"}), "[invalid_input] Invalid ISO date or datetime: 'yesterday'."),
        (json!({"end": "2026-13-01"}), "[invalid_input] Invalid ISO date or datetime: '2026-13-01'."),
        (json!({"limit": 2}), "32"),
        (json!({"limit": 0}), ""),
        (json!({"limit": -1}), "[invalid_input] `limit` must be >= 0."),
        (json!({"kinds": []}), "321"),
        (json!({"kinds": ["message"]}), "321"),
        (json!({"kinds": ["event", "nonsense"]}), ""),
        (json!({"query": "needel"}), "321"),
        (json!({"query": "  "}), ""),
    ] {
        assert_eq!(search_days(args.clone()).await, expected, "{args}");
    }
}

#[tokio::test]
async fn anchors_are_all_listed_in_order() {
    let ctx = ctx();
    check(&ctx, TapeAnchors, json!({}), expect!["(no anchors)"]).await;
    for n in 0..25 {
        ctx.tape.handoff(&format!("a{n}"), json!({})).await.unwrap();
    }
    ctx.tape.append([NewEntry::new(EntryKind::Anchor, serde_json::Map::new())]).await.unwrap();
    let value = try_call(TapeAnchors, &ctx, json!({})).await.unwrap().value;
    let names: Vec<String> = (0..25).map(|n| format!("a{n}")).chain(["-".to_owned()]).collect();
    assert_eq!(value, json!({"anchors": names}));
    assert!(call(TapeAnchors, &ctx, json!({})).await.ends_with("- a24\n- -"));
}

#[tokio::test]
async fn handoff_has_defaults() {
    let ctx = ctx();
    check(&ctx, TapeHandoff, json!({}), expect!["anchor added: handoff"]).await;
    check(&ctx, TapeHandoff, json!({"name": " "}), expect!["anchor added: handoff"]).await;
    let entries = ctx.tape.read(&TapeQuery::default()).await.unwrap();
    let payloads: Vec<String> =
        entries.iter().take(2).map(|it| Value::Object(it.payload.clone()).to_string()).collect();
    assert_eq!(
        payloads,
        [
            r#"{"name":"handoff","state":{"summary":""}}"#,
            r#"{"name":"handoff","data":{"name":"handoff","state":{"summary":""}}}"#,
        ]
    );
}

#[tokio::test]
async fn r089_reset_says_where_the_archive_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(JsonlStore::new(dir.path().to_owned(), StoreOptions { sync: Sync::Never }));
    let tape = Tape::new(TapeName::session("/srv/demo", "../x/y:z é"), store, Arc::new(FixedClock::default()));
    let ctx = ToolContext { tape, ..ctx() };
    ctx.tape.append([say("a")]).await.unwrap();
    let path = format!("{}/{}.jsonl.20260102T030405Z", dir.path().display(), ctx.tape.name());
    assert_eq!(call(TapeReset, &ctx, json!({"archive": true})).await, format!("Archived: {path}.bak"));
    assert_eq!(call(TapeReset, &ctx, json!({"archive": true})).await, format!("Archived: {path}-2.bak"));
    let value = try_call(TapeReset, &ctx, json!({})).await.unwrap().value;
    assert_eq!(value, json!({"message": "ok"}));
    let is_archive = |it: &std::fs::DirEntry| it.path().extension().is_some_and(|it| it == "bak");
    let n_archives = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap).filter(is_archive).count();
    assert_eq!(n_archives, 2, "without `archive` nothing is kept");
    assert_eq!(call(TapeAnchors, &ctx, json!({})).await, "- session/start");
    // A store that has no archives says so, and nothing is emptied.
    let memory = self::ctx();
    memory.tape.append([say("a")]).await.unwrap();
    let err = try_call(TapeReset, &memory, json!({"archive": true})).await.unwrap_err();
    assert_eq!(err.cause(), "this tape store cannot archive tapes");
    assert_eq!(memory.tape.stats().await.unwrap().entries, 1);
}

#[test]
fn search_has_the_schema_of_the_reference() {
    let tool = erase(TapeSearch);
    let schema = &tool.spec().parameters;
    assert_eq!(schema["title"], "SearchInput");
    assert_eq!(schema["required"], json!(["query"]));
    let keys = |name: &str| schema["properties"][name].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["query", "limit", "start", "end", "kinds"]
    );
    assert_eq!(keys("query"), ["description", "title", "type"]);
    assert_eq!(keys("limit"), ["default", "description", "title", "type"]);
    assert_eq!(keys("start"), ["anyOf", "default", "description", "title"]);
    assert_eq!(keys("kinds"), ["default", "description", "items", "title", "type"]);
    assert_eq!(schema["properties"]["kinds"]["default"], json!(["message", "tool_result"]));
    assert_eq!(schema["properties"]["limit"]["default"], 20);
    for (spec, title) in [
        (erase(TapeInfo), "TapeInfoResult"),
        (erase(TapeSearch), "TapeSearchResult"),
        (erase(TapeAnchors), "TapeAnchorsResult"),
        (erase(TapeHandoff), "TapeHandoffResult"),
        (erase(TapeReset), "TapeResetResult"),
    ] {
        assert_eq!(spec.spec().output.as_ref().unwrap()["title"], title);
    }
}

/// A host that knows the window of its model.
struct Windowed(Option<u64>);

#[async_trait]
impl Host for Windowed {
    async fn call_tool(&self, ctx: &ToolContext, name: &str, args: Value) -> Result<ToolReply, ToolError> {
        TestHost::default().call_tool(ctx, name, args).await
    }

    async fn run_turn(&self, ctx: &ToolContext, request: TurnRequest) -> Result<TurnResult, TurnError> {
        TestHost::default().run_turn(ctx, request).await
    }

    async fn quit(&self, ctx: &ToolContext) {
        TestHost::default().quit(ctx).await;
    }

    async fn context_window(&self, _: &ToolContext) -> Option<u64> {
        self.0
    }

    fn command_prefix(&self) -> Option<&str> {
        None
    }
}

#[tokio::test]
async fn info_tells_how_full_the_context_is_when_that_is_known() {
    let unknown = ToolContext { host: Arc::new(Windowed(None)), ..ctx() };
    let ctx = ToolContext { host: Arc::new(Windowed(Some(1_000))), ..unknown.clone() };
    let uses = async |ctx: &ToolContext| {
        let value = try_call(TapeInfo, ctx, json!({})).await.unwrap().value;
        (value["context_window"].clone(), value["context_window_use"].clone())
    };
    assert_eq!(uses(&ctx).await, (json!(1_000), Value::Null), "nothing was asked yet");
    ctx.tape.bootstrap().await.unwrap();
    ctx.tape.append([run(json!({"input_tokens": 400, "total_tokens": 420})), run(Value::Null)]).await.unwrap();
    assert_eq!(uses(&ctx).await, (json!(1_000), json!(0.4)));
    assert_eq!(uses(&unknown).await, (Value::Null, Value::Null));
    let text = call(TapeInfo, &ctx, json!({})).await;
    assert!(text.ends_with("\ncontext_window: 1000\ncontext_window_use: 40.00%"), "{text}");
    assert!(!call(TapeInfo, &unknown, json!({})).await.contains("context_window"));
    ctx.tape.append([run(json!({"prompt_tokens": 1_500, "total_tokens": 1_600}))]).await.unwrap();
    assert_eq!(uses(&ctx).await, (json!(1_000), json!(1.5)));
    // A new context is not as full as the one before.
    ctx.tape.handoff("phase", json!({})).await.unwrap();
    assert_eq!(uses(&ctx).await, (json!(1_000), Value::Null));
    assert!(call(TapeInfo, &ctx, json!({})).await.ends_with("\ncontext_window_use: None"));
}
