//! A conversation that no longer fits the model.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bub_engine::EngineSettings;
use bub_kernel::{
    hooks::{CutOff, Hooks},
    message::TokenUsage,
    model::ModelError,
    tool::ToolContext,
    turn::{Prompt, SessionId, TurnEvent},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Bench, Setup};

fn too_long() -> Script {
    Script::error(ModelError::ContextLength("maximum context length is 8192 tokens".into()))
}

/// Keeps what it is told to, and notes what is cut off.
struct Keeper {
    keeps: Option<&'static str>,
    seen: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Hooks for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn implements(&self) -> &[&'static str] {
        &["summarize", "context_window"]
    }

    async fn summarize(&self, _: &ToolContext, cut: &CutOff<'_>) -> Option<String> {
        let last = |text: String| text.rsplit("---\n").next().unwrap().to_owned();
        let lines: Vec<_> = cut.messages.iter().map(|it| last(it.joined_text())).collect();
        let next = last(cut.prompt.to_message().joined_text());
        self.seen.lock().unwrap().push(format!("{} > {next}: {}", lines.join(" | "), cut.error));
        assert!(self.keeps != Some("panic"), "a hook that panics");
        self.keeps.map(str::to_owned)
    }

    async fn context_window(&self, model: &str) -> Option<u64> {
        (model == "fake:m").then_some(1_000)
    }
}

/// A bench with hooks that keep these, the last one first, and what the last one saw.
fn bench(
    keeps: &[Option<&'static str>],
    scripts: impl IntoIterator<Item = Script>,
) -> (Bench, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = |keeps: &Option<&'static str>| Arc::new(Keeper { keeps: *keeps, seen: seen.clone() }) as Arc<dyn Hooks>;
    let setup = Setup { hooks: keeps.iter().map(hook).collect(), ..Setup::default() };
    (setup.start(scripts), seen)
}

/// A summary as it is sent, without the words around it.
fn shown(line: &str) -> String {
    match line.split_once("<context_summary>\n") {
        Some((role, text)) => {
            let text = text.strip_suffix("\n</context_summary>").unwrap().split_once("\n\n").unwrap().1;
            format!("{role}<{text}>")
        }
        None => line.to_owned(),
    }
}

fn sent(bench: &Bench, idx: usize) -> Vec<String> {
    bench.sent(idx).iter().map(|it| shown(it)).collect()
}

#[tokio::test]
async fn what_hooks_keep_stands_in_the_new_context_and_in_the_anchors_state() {
    let (bench, seen) = bench(
        &[Some("unasked"), Some("  we build a boat\n"), None],
        [Script::text("aye"), too_long(), Script::text("rescued"), Script::text("later")],
    );
    bench.say("first").await.unwrap();
    assert_eq!(bench.say("second").await.unwrap().answer, "rescued");
    let expected = "first | aye > second: the context is too long for the model: maximum context length is 8192 tokens";
    assert_eq!(*seen.lock().unwrap(), [expected, expected], "the highest rank is asked first, until one answers");
    assert_eq!(sent(&bench, 2), ["user: <we build a boat>", "user: second"]);
    bench.say("third").await.unwrap();
    assert_eq!(sent(&bench, 3), ["user: <we build a boat>", "user: second", "assistant: rescued", "user: third"]);
    let tape = bench.tape().await;
    let state = r#""state": {"reason": "context_length_exceeded", "error": "the context is too long for the model: maximum context length is 8192 tokens", "summary": "we build a boat"}"#;
    assert!(tape.contains(&format!(r#"anchor {{"name": "auto_handoff/context_overflow", {state}"#)), "{tape}");
    // There is no tool of that name here, so the model is not told of it.
    assert!(!bench.sent(2)[0].contains("tape_search"));
}

#[tokio::test]
async fn a_summary_that_is_empty_or_panics_is_none_and_a_long_one_is_cut() {
    for (keeps, expected) in [(Some("panic"), 1), (Some(" \n"), 1), (None, 1)] {
        let (bench, seen) = bench(&[keeps], [Script::text("aye"), too_long(), Script::text("rescued")]);
        bench.say("first").await.unwrap();
        assert_eq!(bench.say("second").await.unwrap().answer, "rescued", "{keeps:?}");
        assert_eq!((seen.lock().unwrap().len(), sent(&bench, 2)), (expected, vec!["user: second".to_owned()]));
        assert!(!bench.tape().await.contains("\"summary\""));
    }
    let long: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    let (bench, _) = bench(&[Some(long)], [Script::text("aye"), too_long(), Script::text("rescued")]);
    bench.say("first").await.unwrap();
    bench.say("second").await.unwrap();
    let text = &bench.sent(2)[0];
    assert!(text.len() < 17_000 && text.contains("84,000 chars omitted"), "{}", text.len());
}

#[tokio::test]
async fn r091_a_session_is_never_locked_after_a_rescue_that_failed() {
    let (bench, seen) = bench(
        &[Some("kept")],
        [Script::text("aye"), too_long(), too_long(), Script::text("well"), too_long(), Script::text("again")],
    );
    bench.say("first").await.unwrap();
    let err = bench.say("a very long prompt").await.unwrap_err().to_string();
    assert!(
        err.starts_with("the context is too long for the model: maximum context length is 8192 tokens; ")
            && err.ends_with("the next message begins a new context: make it shorter"),
        "{err}"
    );
    assert_eq!((bench.model.requests().len(), seen.lock().unwrap().len()), (3, 1), "two requests, one summary");
    // What was too long is on the tape, and not in the next context; what was kept of the rest is.
    assert!(bench.tape().await.contains(r#"message {"role": "user", "content": "<header>a very long prompt"}"#));
    assert_eq!(bench.say("next").await.unwrap().answer, "well");
    assert_eq!(sent(&bench, 3), ["user: <kept>", "user: next"]);
    assert_eq!(bench.say("more").await.unwrap().answer, "again");
}

#[tokio::test]
async fn a_message_that_is_too_long_by_itself_is_refused_at_once() {
    let (bench, seen) = bench(
        &[Some("kept")],
        [too_long(), Script::text("well"), Script::text("fine"), too_long(), Script::text("again")],
    );
    let long = "very ".repeat(1_000);
    let refusal = "the context is too long for the model: maximum context length is 8192 tokens; nothing comes before \
                   this message that could be cut off: make it shorter, or choose a model with a larger context";
    let events = bench.watch(&long).await;
    assert!(matches!(events.last(), Some(TurnEvent::Error { message, .. }) if message == refusal), "{events:?}");
    assert!(!events.iter().any(|it| matches!(it, TurnEvent::Notice(_))), "{events:?}");
    // It is on the tape, and not in the way of what comes next.
    assert!(bench.tape().await.contains(r#"message {"role": "user", "content": "<header>very very"#));
    assert_eq!(bench.say("next").await.unwrap().answer, "well");
    assert_eq!(sent(&bench, 1), ["user: next"]);
    // So it is when the context was just cut off.
    bench.say("more").await.unwrap();
    bench.say(",cut").await.unwrap();
    assert_eq!(bench.say(&long).await.unwrap_err().to_string(), refusal);
    bench.say("and on").await.unwrap();
    assert_eq!((sent(&bench, 4), bench.model.requests().len()), (vec!["user: and on".to_owned()], 5));
    assert!(seen.lock().unwrap().is_empty(), "there was nothing to sum up");
}

#[tokio::test]
async fn a_summary_that_may_itself_be_too_long_does_not_stand_in_the_way() {
    let (bench, _) = bench(
        &[Some("a summary that is much longer than what was asked, header and all, and more than that")],
        [Script::text("aye"), too_long(), too_long(), Script::text("well")],
    );
    bench.say("first").await.unwrap();
    let mut message = bub_testing::inbound("no");
    message.prompt = Prompt::Text("no".into());
    bench.runtime.turn(message, Default::default()).result().await.unwrap_err();
    bench.say("next").await.unwrap();
    assert_eq!(sent(&bench, 3), ["user: next"]);
}

#[tokio::test]
async fn without_rescues_the_next_turn_begins_anew_too() {
    let settings = EngineSettings { max_auto_handoffs: 0, ..EngineSettings::default() };
    let bench = Setup { settings, ..Setup::default() }.start([Script::text("aye"), too_long(), Script::text("well")]);
    bench.say("first").await.unwrap();
    let err = bench.say("second").await.unwrap_err().to_string();
    assert!(err.contains("the next message begins a new context"), "{err}");
    bench.say("third").await.unwrap();
    assert_eq!(sent(&bench, 2), ["user: third"]);
}

#[tokio::test]
async fn r094_a_long_run_of_calls_is_cut_as_a_whole() {
    let calls = (0..40).map(|_| Script::calls([("c", "say_echo", json!({"text": "x"}))]));
    let (bench, seen) = bench(&[Some("forty calls")], calls.chain([too_long(), Script::text("done")]));
    assert_eq!(bench.say("work").await.unwrap().answer, "done");
    assert_eq!(sent(&bench, 41), ["user: <forty calls>", "user: work"]);
    assert_eq!(seen.lock().unwrap()[0].matches("said: x").count(), 40);
}

#[tokio::test]
async fn messages_that_came_meanwhile_are_not_lost_in_a_rescue() {
    let bench = Bench::new([Script::text("aye"), too_long(), Script::text("rescued")]);
    bench.say("first").await.unwrap();
    bench.runtime.steer(&SessionId("s".into()), crate::bench::inbound("and hurry")).unwrap();
    bench.say("second").await.unwrap();
    assert_eq!(bench.sent(2), ["user: and hurry", "user: second"]);
}

#[tokio::test]
async fn a_person_is_told_once_when_the_context_is_nearly_full() {
    let usage = |n: u64| TokenUsage { input_tokens: n, output_tokens: 5, ..TokenUsage::default() };
    let call = |n: u64| Script::calls([("c", "say_echo", json!({"text": "x"}))]).usage(usage(n));
    let (bench, _) = bench(&[None], [call(899), call(900), call(950), Script::text("ok").usage(usage(20))]);
    let notices: Vec<_> = bench
        .watch("go")
        .await
        .into_iter()
        .filter_map(|it| match it {
            TurnEvent::Notice(text) => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(notices, ["the context is 90 % full (900 of 1,000 tokens); ,tape.handoff begins a new one"]);
}
