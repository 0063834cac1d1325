//! Calls of one answer: at once, in order, isolated, within the limit.

use std::sync::atomic::Ordering;

use bub_engine::EngineSettings;
use bub_testing::Script;
use serde_json::{Value, json};

use crate::bench::{Bench, Setup};

fn sleeps(count: usize) -> Script {
    const IDS: [&str; 4] = ["a", "b", "c", "d"];
    Script::calls(IDS.into_iter().take(count).map(|id| (id, "sleep", json!({"ms": 20}))))
}

#[tokio::test]
async fn calls_run_at_once_and_their_results_keep_their_order() {
    let bench = Bench::new([
        Script::calls([
            ("a", "sleep", json!({"ms": 120})),
            ("b", "sleep", json!({"ms": 1})),
            ("c", "sleep", json!({"ms": 60})),
        ]),
        Script::text("ok"),
    ]);
    bench.say("go").await.unwrap();
    assert!(bench.most.load(Ordering::SeqCst) > 1);
    assert_eq!(bench.sent(1)[2..], ["tool: slept 120", "tool: slept 1", "tool: slept 60"]);
}

#[tokio::test]
async fn concurrency_is_limited_by_the_setting() {
    for (limit, expected) in [(None, 4), (Some(1), 1), (Some(2), 2), (Some(9), 4)] {
        let settings = EngineSettings { max_tool_concurrency: limit, ..EngineSettings::default() };
        let bench = Setup { settings, ..Setup::default() }.start([sleeps(4), Script::text("ok")]);
        bench.say("go").await.unwrap();
        assert_eq!(bench.most.load(Ordering::SeqCst), expected, "{limit:?}");
    }
}

#[tokio::test]
async fn a_tool_that_panics_fails_alone() {
    let bench = Bench::new([
        Script::calls([("a", "fail", json!({"how": "panic"})), ("b", "say_echo", json!({"text": "x"}))]),
        Script::text("ok"),
    ]);
    assert_eq!(bench.say("go").await.unwrap().answer, "ok");
    let sent = bench.sent(1);
    assert!(sent[2].contains("Panic('the tool panicked: boom')"), "{sent:?}");
    assert_eq!(sent[3], "tool: said: x");
}

#[tokio::test]
async fn wrong_arguments_are_told_to_the_model_by_name() {
    let bench =
        Bench::new([Script::calls([("a", "say_echo", json!({"txt": "x", "times": "two"}))]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    let result: Value = serde_json::from_str(bench.sent(1)[2].trim_start_matches("tool: ")).unwrap();
    assert_eq!(result["message"], "Tool 'say_echo' argument validation failed.");
    let errors: Vec<_> = result["details"]["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["type"].clone(), it["loc"][0].clone()))
        .collect();
    assert_eq!(
        errors,
        [
            (json!("unexpected_keyword_argument"), json!("txt")),
            (json!("int_parsing"), json!("times")),
            (json!("missing_argument"), json!("text")),
        ]
    );
}

#[tokio::test]
async fn huge_results_are_bounded() {
    let bench =
        Bench::new([Script::calls([("a", "say_echo", json!({"text": "x", "times": 3_000_000}))]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    let sent = &bench.sent(1)[2];
    assert!(sent.len() < 500_000 && sent.contains("chars omitted"), "{}", sent.len());
}

#[tokio::test]
async fn what_a_tool_records_is_on_the_tape() {
    let bench = Bench::new([Script::calls([("a", "fail", json!({"how": "event"}))]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    assert!(bench.tape().await.contains(r#"event {"name": "note", "data": {"x": 1}}"#));
}
