//! Summaries by the model, and the window that settings and listings tell.

use std::fs;

use bub_kernel::{
    message::{Message, TokenUsage},
    model::{ModelError, ModelRequest},
    tape::EntryKind,
    turn::TurnEvent,
};
use bub_testing::{ModelServer, Reply, Script};
use serde_json::{Value, json};

use crate::bench::{Bench, Folders, tape};

fn too_long() -> Script {
    Script::error(ModelError::ContextLength("maximum context length is 8192 tokens".into()))
}

fn bench(scripts: impl IntoIterator<Item = Script>) -> Bench {
    Folders::new().var("BUB_CONTEXT_SUMMARY", "model").bench(scripts)
}

/// The data of the event about the newest summary.
async fn event(bench: &Bench) -> Value {
    let entries = tape(&bench.app, "s").await;
    let newest = entries.iter().rfind(|it| it.kind == EntryKind::Event && it.name() == Some("context.summary"));
    newest.expect("a summary is recorded").data().unwrap().clone()
}

fn said(request: &ModelRequest) -> String {
    request.messages.iter().map(Message::joined_text).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_model_sums_up_what_is_cut_off() {
    let usage = TokenUsage { input_tokens: 700, output_tokens: 30, ..TokenUsage::default() };
    let bench = bench([
        Script::calls([("c1", "bash", json!({"command": "echo the keel is laid"}))]),
        Script::text("aye"),
        too_long(),
        Script::text("The person builds a boat; the keel is laid.").usage(usage),
        Script::text("rescued"),
    ]);
    bench.say("we build a boat").await;
    assert_eq!(bench.say("and the mast?").await, "rescued");
    let requests = bench.model.requests();
    let asked = &requests[3];
    assert!(asked.tools.is_empty() && asked.system.as_ref().unwrap().starts_with("You sum up"), "{asked:?}");
    assert!(asked.options.max_tokens.is_some_and(|it| it <= 4_096));
    let text = said(asked);
    for part in ["Person: ", "we build a boat", "[calls bash {", "Result: the keel is laid", "Assistant: aye", "mast?"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let context = said(&requests[4]);
    assert!(context.contains("The person builds a boat; the keel is laid.\n</context_summary>"), "{context}");
    assert!(
        context.contains("`tape_search` finds what it leaves out") && context.ends_with("and the mast?"),
        "{context}"
    );
    let data = event(&bench).await;
    assert_eq!((&data["status"], &data["model"], &data["tries"]), (&json!("ok"), &json!("fake:m"), &json!(1)));
    assert_eq!(data["usage"]["input_tokens"], 700);
    // What the event tells is no part of any context.
    bench.model.push(Script::text("fine"));
    bench.say("go on").await;
    assert!(!said(bench.model.requests().last().unwrap()).contains("elapsed_ms"));
}

#[tokio::test]
async fn a_summary_is_asked_for_with_less_when_that_is_too_long_too() {
    let bench = bench([Script::text("aye"), too_long(), too_long(), Script::text("a boat"), Script::text("rescued")]);
    bench.say(&"word ".repeat(2_000)).await;
    assert_eq!(bench.say("next").await, "rescued");
    let requests = bench.model.requests();
    let lengths = [said(&requests[2]).len(), said(&requests[3]).len()];
    assert!(lengths[1] < lengths[0] && lengths[0] < 9_000, "{lengths:?}");
    assert_eq!(event(&bench).await["tries"], 2);
}

#[tokio::test]
async fn a_summary_that_fails_never_keeps_the_rescue_from_working() {
    let refused = || Script::error(ModelError::Rejected { status: Some(400), message: "no".into() });
    let failures: [(&str, Vec<Script>); 4] = [
        ("refused", vec![refused()]),
        ("empty", vec![Script::text(" \n")]),
        ("cut off", vec![Script::text("half").then_error(ModelError::Incomplete("gone".into()))]),
        ("too long for ever", vec![too_long()]),
    ];
    for (what, scripts) in failures {
        let scripts = [Script::text("aye"), too_long()].into_iter().chain(scripts).chain([Script::text("rescued")]);
        let bench = bench(scripts);
        bench.say("first").await;
        assert_eq!(bench.say("second").await, "rescued", "{what}");
        let data = event(&bench).await;
        assert!(data["status"] == "error" && data["error"].is_string(), "{what}: {data}");
        assert!(!said(bench.model.requests().last().unwrap()).contains("context_summary"), "{what}");
    }
}

#[tokio::test]
async fn nothing_is_summed_up_unless_it_was_asked_for() {
    let bench = Bench::new([Script::text("aye"), too_long(), Script::text("rescued")]);
    bench.say("first").await;
    assert_eq!(bench.say("second").await, "rescued");
    assert_eq!(bench.model.requests().len(), 3);
    assert!(!tape(&bench.app, "s").await.iter().any(|it| it.name() == Some("context.summary")));
}

#[tokio::test]
async fn the_window_of_the_settings_is_told_of() {
    let usage = TokenUsage { input_tokens: 950, output_tokens: 30, ..TokenUsage::default() };
    let bench = Folders::new().var("BUB_CONTEXT_WINDOW", "1000").bench([Script::text("ok").usage(usage)]);
    let events = bench.events("hi").await;
    let notice = "the context is 95 % full (950 of 1,000 tokens); ,tape.handoff begins a new one";
    assert!(events.contains(&TurnEvent::Notice(notice.into())), "{events:?}");
    let info = bench.say(",tape.info").await;
    assert!(info.ends_with("\ncontext_window: 1000\ncontext_window_use: 95.00%"), "{info}");
}

#[tokio::test]
async fn the_window_that_a_listing_told_is_remembered() {
    let models = json!({"data": [{"id": "small", "context_length": 2_000}, {"id": "unknown"}]});
    let server = ModelServer::with(move |_| Reply::json(&models));
    let folders = Folders::new()
        .var("BUB_MODEL", "openrouter:small")
        .var("BUB_API_KEY", "sk-test")
        .var("BUB_API_BASE", &server.base_url());
    let cache = folders.path("home/.bub/cache/models/openrouter.json");
    let window = async |folders: &Folders| {
        let app = folders.app(crate::bench::With(|_: &mut bub_kernel::plugin::Registry| {}));
        let info = crate::bench::say(&app, ",tape.info").await.unwrap().answer;
        info.lines().find_map(|it| it.strip_prefix("context_window: ").map(str::to_owned))
    };
    assert_eq!(window(&folders).await, None);
    let app = folders.app(crate::bench::With(|_: &mut bub_kernel::plugin::Registry| {}));
    let provider = app.runtime().providers().iter().find(|it| it.name() == "openrouter").unwrap().clone();
    assert_eq!(provider.list().await.unwrap().len(), 2);
    assert_eq!(fs::read_to_string(&cache).unwrap(), r#"{"small":{"context_tokens":2000}}"#);
    assert_eq!(window(&folders).await.as_deref(), Some("2000"));
    fs::write(&cache, "not json").unwrap();
    assert_eq!(window(&folders).await, None);
    fs::remove_file(&cache).unwrap();
    assert_eq!(window(&folders).await, None);
}
