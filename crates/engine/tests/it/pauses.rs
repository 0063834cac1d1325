//! Answers that the provider pauses, because tools of its own need more time.

use std::sync::Arc;

use async_trait::async_trait;
use bub_kernel::{
    hooks::Hooks,
    message::{Part, ProviderData},
    model::{FinishReason, ModelEvent},
    tape::Tape,
    turn::{Prompt, TurnState},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Bench, Setup};

/// Wants to say something before each step.
struct Nags;

#[async_trait]
impl Hooks for Nags {
    fn name(&self) -> &str {
        "nags"
    }

    fn implements(&self) -> &[&'static str] {
        &["continue_prompt"]
    }

    async fn continue_prompt(&self, _: &TurnState, _: Option<&Prompt>, _: &Tape) -> Option<String> {
        Some("go on".into())
    }
}

fn item(name: &str) -> ProviderData {
    let payload =
        json!({"provider": "fake", "after_chars": 0, "after_calls": 0, "item": {"type": name, "z": 1, "a": 2}});
    ProviderData { api_format: "messages".into(), payload }
}

fn paused(text: &str) -> Script {
    Script::text(text).after([ModelEvent::ProviderData(item("search"))]).finish(FinishReason::Pause)
}

#[tokio::test]
async fn a_paused_answer_is_sent_back_as_it_is_and_goes_on() {
    let bench = Setup { hooks: vec![Arc::new(Nags)], ..Setup::default() }.start([
        paused("first, "),
        paused("then, "),
        Script::text("done"),
        Script::calls([("c1", "say_echo", json!({"text": "a"}))]),
        Script::text("ok"),
    ]);
    let result = bench.say("search").await.unwrap();
    assert_eq!((result.answer.as_str(), result.steps), ("first, then, done", 3));
    assert_eq!(bench.sent(2), ["user: search", "assistant: first, ", "assistant: then, "]);
    for message in &bench.model.requests()[2].messages[1..] {
        assert_eq!(message.parts[0], Part::ProviderData(item("search")));
    }
    // After calls, the hook has its say again; the answer is that of the last step.
    assert_eq!(bench.say("call").await.unwrap().answer, "ok");
    assert_eq!(bench.sent(4).last().unwrap(), "user: go on");
}

#[tokio::test]
async fn a_turn_does_not_pause_for_ever() {
    let bench = Bench::new((0..40).map(|_| paused("")));
    let err = bench.say("search").await.unwrap_err();
    assert_eq!(err.to_string(), "the provider paused its answer 31 times in a row without ending it");
    assert_eq!(bench.model.requests().len(), 31);
    assert!(bench.tape().await.contains(r#""status": "error", "steps": 31, "error": "the provider paused"#));
}
