//! Hooks and event handlers: what they see, what they may change, what their failures do.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bub_kernel::{
    error::ToolError,
    event::{
        ChatFinished, CommandFinished, EventBus, LlmCallFinished, LlmCallStarted, MessagesPending, RunFinished,
        RunStarted, StepFinished, StepStarted, ToolCallFinished, ToolCallStarted,
    },
    hooks::{Hooks, ModelStep, ToolCall, ToolStep},
    model::ModelRequest,
    tool::{ToolContext, ToolReply},
    turn::{SessionId, TurnState},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Setup, inbound};

struct Policy(&'static str);

#[async_trait]
impl Hooks for Policy {
    fn name(&self) -> &str {
        self.0
    }

    fn implements(&self) -> &[&'static str] {
        &["before_tool", "after_tool"]
    }

    async fn system_prompt(&self, _: &TurnState) -> Option<String> {
        Some(format!("I am {}.", self.0))
    }

    async fn before_tool(&self, _: &ToolContext, call: &mut ToolCall) -> ToolStep {
        match self.0 {
            "deny" => ToolStep::Deny(None),
            "deny with words" => ToolStep::Deny(Some("not today".into())),
            "replace" => ToolStep::Replace(ToolReply::text("replaced")),
            "change" => {
                call.args["text"] = json!("changed");
                ToolStep::Proceed
            }
            "panic" => panic!("a broken hook"),
            _ => ToolStep::Proceed,
        }
    }

    async fn after_tool(&self, _: &ToolContext, _: &ToolCall, result: &mut Result<ToolReply, ToolError>) {
        if self.0 == "after" {
            let seen = match &*result {
                Ok(reply) => reply.rendering(),
                Err(err) => err.to_string(),
            };
            *result = Ok(ToolReply::text(format!("after({seen})")));
        }
    }

    async fn before_model(&self, _: &TurnState, request: &mut ModelRequest) -> ModelStep {
        if self.0 == "answer" {
            return ModelStep::Finish("no model needed".into());
        }
        request.options.temperature = Some(0.5);
        ModelStep::Proceed
    }

    async fn notices(&self, _: &TurnState) -> Vec<String> {
        if self.0 == "news" { vec!["news".into()] } else { vec![] }
    }
}

async fn check(policies: &[&'static str], expected: &str) {
    let hooks: Vec<Arc<dyn Hooks>> = policies.iter().map(|it| Arc::new(Policy(it)) as Arc<dyn Hooks>).collect();
    let bench = Setup { hooks, ..Setup::default() }
        .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    assert_eq!(bench.sent(1).last().unwrap().trim_start_matches("tool: "), expected, "{policies:?}");
}

#[tokio::test]
async fn hooks_decide_on_tool_calls_highest_rank_first() {
    check(&[], "said: x").await;
    check(&["deny"], r#"{"kind": "tool", "message": "Tool 'say_echo' call denied by policy hook."}"#).await;
    check(&["deny with words"], r#"{"kind": "tool", "message": "not today"}"#).await;
    check(&["replace"], "replaced").await;
    check(&["change"], "said: changed").await;
    check(&["deny", "replace"], "replaced").await;
    check(&["after"], "after(said: x)").await;
    check(&["after", "deny"], "after([tool] Tool 'say_echo' call denied by policy hook.)").await;
}

#[tokio::test]
async fn a_hook_that_panics_is_no_veto() {
    check(&["panic"], "said: x").await;
    check(&["replace", "panic"], "replaced").await;
}

#[tokio::test]
async fn hooks_add_to_the_prompt_and_answer_for_the_model() {
    let hooks: Vec<Arc<dyn Hooks>> = vec![Arc::new(Policy("one")), Arc::new(Policy("news"))];
    let bench = Setup { hooks, ..Setup::default() }.start([Script::text("ok")]);
    bench.say("go").await.unwrap();
    let request = bench.model.requests().remove(0);
    assert_eq!(request.system.as_deref(), Some("I am one.\n\nI am news."));
    assert_eq!(request.options.temperature, Some(0.5));
    assert_eq!(bench.sent(0), ["user: news", "user: go"]);
    assert!(bench.tape().await.contains(r#"system {"content": "I am one.\n\nI am news."} @run"#));

    let hooks: Vec<Arc<dyn Hooks>> = vec![Arc::new(Policy("answer"))];
    let bench = Setup { hooks, ..Setup::default() }.start([]);
    assert_eq!(bench.say("go").await.unwrap().answer, "no model needed");
    assert!(bench.tape().await.contains(r#"message {"role": "assistant", "content": "no model needed"}"#));
}

fn log_all(events: &mut EventBus) -> Arc<Mutex<Vec<String>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    macro_rules! log {
        ($($type:ty => |$event:ident| $text:expr;)*) => {$({
            let log = log.clone();
            events.on_sync(move |$event: &mut $type| {
                log.lock().unwrap().push($text);
                Ok(())
            });
        })*};
    }
    log! {
        RunStarted => |event| format!("RunStarted {}", event.model);
        RunFinished => |event| format!("RunFinished {} {}", event.status, event.steps);
        StepStarted => |event| format!("StepStarted {}", event.step);
        StepFinished => |event| format!("StepFinished {} {}", event.step, event.status);
        MessagesPending => |event| format!("MessagesPending {}", event.messages.len());
        LlmCallStarted => |event| format!("LlmCallStarted {}", event.request.messages.len());
        LlmCallFinished => |event| format!("LlmCallFinished {}", event.tool_calls.len());
        ToolCallStarted => |event| format!("ToolCallStarted {}", event.call.tool);
        ToolCallFinished => |event| format!("ToolCallFinished {}", event.result.as_ref().unwrap().value);
        ChatFinished => |event| format!("ChatFinished {:?}", event.tool_results);
        CommandFinished => |event| format!("CommandFinished {} {}", event.name, event.output);
    }
    log
}

#[tokio::test]
async fn events_come_in_the_order_of_the_run() {
    let mut events = EventBus::default();
    let log = log_all(&mut events);
    let bench = Setup { events, ..Setup::default() }
        .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("ok")]);
    bench.runtime.steer(&SessionId("s".into()), inbound("also")).unwrap();
    bench.say("go").await.unwrap();
    bench.say(",say.echo y").await.unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "RunStarted fake:m",
            "StepStarted 1",
            "MessagesPending 1",
            "LlmCallStarted 2",
            "LlmCallFinished 1",
            "ToolCallStarted say.echo",
            r#"ToolCallFinished "said: x""#,
            r#"ChatFinished [String("said: x")]"#,
            "StepFinished 1 continue",
            "StepStarted 2",
            "LlmCallStarted 4",
            "LlmCallFinished 0",
            "ChatFinished []",
            "StepFinished 2 ok",
            "RunFinished ok 2",
            "ToolCallStarted say.echo",
            r#"ToolCallFinished {"said":"y"}"#,
            "CommandFinished say.echo said: y",
        ]
    );
}

#[tokio::test]
async fn handlers_decide_stop_later_ones_and_end_the_turn_when_they_fail() {
    let mut events = EventBus::default();
    events.on(|event: &mut ToolCallStarted| {
        Box::pin(async {
            event.decision = ToolStep::Replace(ToolReply::text("first"));
            Ok(())
        })
    });
    events.on_sync(|event: &mut ToolCallStarted| {
        event.decision = ToolStep::Replace(ToolReply::text("second"));
        Ok(())
    });
    let bench = Setup { events, ..Setup::default() }
        .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    assert_eq!(bench.sent(1).last().unwrap(), "tool: first");

    let mut events = EventBus::default();
    events.on_sync(|_: &mut ToolCallFinished| Err("no more".into()));
    let bench = Setup { events, ..Setup::default() }
        .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("next")]);
    let err = bench.say("go").await.unwrap_err();
    assert_eq!(err.to_string(), "an event handler failed: no more");
    bench.say("again").await.unwrap();
    assert_eq!(bench.sent(1).len(), 4, "the call has its result");
}
