//! Hooks and event handlers: what they see, what they may change, what their failures do.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bub_engine::{EngineSettings, TurnOptions};
use bub_kernel::{
    environment::Environment,
    error::ToolError,
    event::{
        ChatFinished, CommandFinished, Event, EventBus, LlmCallFinished, LlmCallStarted, MessagesPending, RunFinished,
        RunStarted, StepFinished, StepStarted, ToolCallFinished, ToolCallStarted,
    },
    hooks::{CutOff, HOOKS, Hooks, ModelOutcome, ModelStep, ToolCall, ToolStep, ToolView},
    message::TokenUsage,
    model::{ModelError, ModelRequest},
    tape::Tape,
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSpec},
    turn::{Inbound, Prompt, RunId, SessionId, TurnState},
};
use bub_testing::Script;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::bench::{Setup, inbound};

struct Policy(&'static str);

#[async_trait]
impl Hooks for Policy {
    fn name(&self) -> &str {
        self.0
    }

    fn implements(&self) -> &[&'static str] {
        &["system_prompt", "before_tool", "after_tool", "before_model", "notices"]
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

fn log_all(events: &EventBus) -> Arc<Mutex<Vec<String>>> {
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
    let events = EventBus::default();
    let log = log_all(&events);
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
    let events = EventBus::default();
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

    let events = EventBus::default();
    events.on_sync(|_: &mut ToolCallFinished| Err("no more".into()));
    let bench = Setup { events, ..Setup::default() }
        .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("next")]);
    let err = bench.say("go").await.unwrap_err();
    assert_eq!(err.to_string(), "an event handler failed: no more");
    bench.say("again").await.unwrap();
    assert_eq!(bench.sent(1).len(), 4, "the call has its result");
}

/// A hook that does as it is told in one of its methods.
struct Broken {
    method: &'static str,
    how: &'static str,
    reported: Arc<Mutex<Vec<String>>>,
}

impl Broken {
    async fn act(&self, method: &str) {
        if self.method == method {
            match self.how {
                "panic" => panic!("broken in {method}"),
                "hang" => std::future::pending().await,
                _ => {}
            }
        }
    }
}

#[async_trait]
impl Hooks for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn implements(&self) -> &[&'static str] {
        &[
            "resolve_session",
            "load_state",
            "build_prompt",
            "begin_turn",
            "environment",
            "choose_tools",
            "system_prompt",
            "notices",
            "before_model",
            "after_model",
            "before_tool",
            "after_tool",
            "continue_prompt",
            "context_window",
            "summarize",
            "save_state",
            "on_error",
            "close",
        ]
    }

    async fn resolve_session(&self, _: &Inbound) -> Option<SessionId> {
        self.act("resolve_session").await;
        None
    }

    async fn load_state(&self, _: &Inbound, _: &mut TurnState) {
        self.act("load_state").await;
    }

    async fn build_prompt(&self, _: &TurnState, _: &Inbound) -> Option<Prompt> {
        self.act("build_prompt").await;
        None
    }

    async fn begin_turn(&self, _: &mut TurnState, _: &Prompt, _: &Tape) {
        self.act("begin_turn").await;
    }

    async fn environment(&self, _: &SessionId) -> Option<Arc<dyn Environment>> {
        self.act("environment").await;
        None
    }

    async fn choose_tools(&self, _: &TurnState, _: &mut ToolView) {
        self.act("choose_tools").await;
    }

    async fn system_prompt(&self, _: &TurnState) -> Option<String> {
        self.act("system_prompt").await;
        None
    }

    async fn notices(&self, _: &TurnState) -> Vec<String> {
        self.act("notices").await;
        Vec::new()
    }

    async fn before_model(&self, _: &TurnState, request: &mut ModelRequest) -> ModelStep {
        self.act("before_model").await;
        if self.how == "bad" {
            request.run = RunId("mine".into());
        }
        ModelStep::Proceed
    }

    async fn after_model(&self, _: &TurnState, _: &ModelOutcome<'_>) {
        self.act("after_model").await;
    }

    async fn before_tool(&self, _: &ToolContext, call: &mut ToolCall) -> ToolStep {
        self.act("before_tool").await;
        if self.how == "bad" {
            call.args = json!("not an object");
        } else if self.how == "rename" {
            call.tool = "fail".into();
        }
        ToolStep::Proceed
    }

    async fn after_tool(&self, _: &ToolContext, _: &ToolCall, _: &mut Result<ToolReply, ToolError>) {
        self.act("after_tool").await;
    }

    async fn continue_prompt(&self, _: &TurnState, _: Option<&Prompt>, _: &Tape) -> Option<String> {
        self.act("continue_prompt").await;
        None
    }

    async fn context_window(&self, _: &str) -> Option<u64> {
        self.act("context_window").await;
        None
    }

    async fn summarize(&self, _: &ToolContext, _: &CutOff<'_>) -> Option<String> {
        self.act("summarize").await;
        None
    }

    async fn save_state(&self, _: &TurnState, _: &str) {
        self.act("save_state").await;
    }

    async fn on_error(&self, stage: &'static str, err: &(dyn Error + Send + Sync), _: Option<&Inbound>) {
        self.reported.lock().unwrap().push(format!("{stage}: {err}"));
        self.act("on_error").await;
    }

    async fn close(&self) {
        self.act("close").await;
    }
}

/// A turn with one call, and what `on_error` was told.
async fn with_broken(method: &'static str, how: &'static str) -> (Result<String, String>, Vec<String>) {
    let reported = Arc::default();
    let hooks: Vec<Arc<dyn Hooks>> =
        vec![Arc::new(Policy("quiet")), Arc::new(Broken { method, how, reported: Arc::clone(&reported) })];
    let settings = EngineSettings { hook_limit: Duration::from_millis(30), ..EngineSettings::default() };
    let usage = TokenUsage { input_tokens: 100, output_tokens: 7, ..TokenUsage::default() };
    let mut scripts = vec![Script::calls([("a", "say_echo", json!({"text": "x"}))]).usage(usage), Script::text("ok")];
    if method == "summarize" {
        // It is asked when there is a conversation that does not fit.
        let too_long = Script::error(ModelError::ContextLength("too long".into()));
        scripts.splice(0..0, [Script::text("before"), too_long]);
    }
    let last = scripts.len() - 1;
    let bench = Setup { hooks, settings, ..Setup::default() }.start(scripts);
    if method == "summarize" {
        assert_eq!(bench.say("first").await.unwrap().answer, "before");
    }
    let mut stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    let answered = async { while stream.next().await.is_some() {} };
    if tokio::time::timeout(Duration::from_secs(2), answered).await.is_err() {
        stream.cancel();
    }
    let done = stream.result().await.map(|it| it.answer).map_err(|err| err.to_string());
    if done.is_ok() {
        assert_eq!(bench.sent(last).last().unwrap(), "tool: said: x", "{method} {how}");
    }
    let tape = bench.tape().await;
    if method != "resolve_session" && method != "build_prompt" && method != "environment" {
        assert!(tape.contains("<header>go"), "{method} {how}: {tape}");
    }
    bench.runtime.close().await;
    let reported = reported.lock().unwrap().clone();
    (done, reported)
}

#[tokio::test]
async fn a_hook_that_panics_is_passed_over_and_reported_wherever_it_is() {
    for info in HOOKS.iter().filter(|it| !matches!(it.name, "admit" | "render_outbound" | "on_error")) {
        let (done, reported) = with_broken(info.name, "panic").await;
        assert_eq!(done.as_deref(), Ok("ok"), "{}", info.name);
        let expected = format!("hook: hook 'broken' panicked in {0}: broken in {0}", info.name);
        assert!(!reported.is_empty() && reported.iter().all(|it| *it == expected), "{}: {reported:?}", info.name);
    }
}

#[tokio::test]
async fn a_hook_that_never_returns_is_passed_over_where_that_is_limited_and_ends_with_its_turn_elsewhere() {
    let checks = HOOKS.iter().filter(|it| !matches!(it.name, "admit" | "render_outbound" | "on_error"));
    futures::future::join_all(checks.map(|info| async move {
        let (done, reported) = with_broken(info.name, "hang").await;
        if info.is_limited {
            assert_eq!(done.as_deref(), Ok("ok"), "{}", info.name);
            let expected = format!("hook: hook 'broken' did not return from {} within 0.03 s", info.name);
            assert!(!reported.is_empty() && reported.iter().all(|it| *it == expected), "{}: {reported:?}", info.name);
        } else {
            assert_eq!(done.unwrap_err(), "cancelled", "{}", info.name);
        }
    }))
    .await;
}

#[tokio::test]
async fn a_bad_answer_is_undone_and_reported() {
    let check = async |method, how, expected: &str| {
        let (done, reported) = with_broken(method, how).await;
        assert_eq!(done.as_deref(), Ok("ok"));
        assert!(reported.iter().any(|it| it.contains(expected)), "{reported:?}");
    };
    check("", "bad", "bad answer in before_tool: it left arguments that are no object").await;
    check("", "bad", "bad answer in before_model: it changed the id of the run").await;
    check("", "rename", "bad answer in before_tool: it changed which call this is").await;
}

#[tokio::test]
async fn a_hook_that_denies_everything_leaves_a_model_that_knows_why() {
    let hooks: Vec<Arc<dyn Hooks>> = vec![Arc::new(Policy("deny with words")), Arc::new(Policy("after"))];
    let bench = Setup { hooks, ..Setup::default() }.start([
        Script::calls([
            ("a", "say_echo", json!({"text": "x"})),
            ("b", "no_such", json!({})),
            ("c", "fail", json!({"how": "raise"})),
        ]),
        Script::text("I may do nothing."),
    ]);
    assert_eq!(bench.say("go").await.unwrap().answer, "I may do nothing.");
    // Calls of tools that do not exist are asked about too.
    assert_eq!(bench.sent(1)[2..], ["tool: after([tool] not today)"; 3]);
    let err = bench.say(",say.echo y").await;
    assert_eq!(err.unwrap().answer, "after([tool] not today)");
}

#[tokio::test]
async fn a_call_can_be_sent_to_another_model() {
    struct Redirect;
    #[async_trait]
    impl Hooks for Redirect {
        fn name(&self) -> &str {
            "redirect"
        }

        fn implements(&self) -> &[&'static str] {
            &["before_model"]
        }

        async fn before_model(&self, _: &TurnState, request: &mut ModelRequest) -> ModelStep {
            assert_eq!(request.model, "fake:m");
            request.model = "fake:other".into();
            ModelStep::Proceed
        }
    }
    let events = EventBus::default();
    let log = log_all(&events);
    let bench = Setup { hooks: vec![Arc::new(Redirect)], events, ..Setup::default() }.start([Script::text("ok")]);
    bench.say("go").await.unwrap();
    assert_eq!(
        (bench.model.asked(), bench.model.requests()[0].model.as_str()),
        (vec!["m".into(), "other".into()], "other")
    );
    assert!(bench.tape().await.contains(r#""provider": "fake", "model": "fake:other""#));
    assert!(log.lock().unwrap().contains(&"LlmCallFinished 0".to_owned()));

    let events = EventBus::default();
    events.on_sync(|event: &mut LlmCallStarted| {
        event.request.model = "nowhere:x".into();
        Ok(())
    });
    let bench = Setup { events, ..Setup::default() }.start([]);
    let err = bench.say("go").await.unwrap_err().to_string();
    assert!(err.contains("unknown model provider 'nowhere'"), "{err}");
    assert!(bench.tape().await.contains("<header>go"));
}

#[tokio::test]
async fn a_handler_that_fails_loses_nothing() {
    /// A turn in which the handler of one type of event fails.
    async fn check<E: Event>(expected: &[&str]) {
        let events = EventBus::default();
        let log = log_all(&events);
        events.on_sync(|_: &mut E| Err("no".into()));
        let bench = Setup { events, ..Setup::default() }
            .start([Script::calls([("a", "say_echo", json!({"text": "x"}))]), Script::text("ok")]);
        bench.runtime.steer_as_given(&SessionId("s".into()), &Prompt::Text("also".into())).unwrap();
        let err = bench.say("go").await.unwrap_err();
        assert_eq!(err.to_string(), "an event handler failed: no", "{}", E::INFO.name);
        let tape = bench.tape().await;
        for text in expected.iter().chain(&[r#""status": "error""#]) {
            assert!(tape.contains(text), "{}: {tape}", E::INFO.name);
        }
        let log = log.lock().unwrap();
        assert_eq!(log.last().map(|it| it.starts_with("RunFinished")), Some(true), "{log:?}");
    }
    check::<RunStarted>(&[]).await;
    check::<StepStarted>(&[]).await;
    check::<MessagesPending>(&["also", "<header>go"]).await;
    check::<LlmCallStarted>(&["also", "<header>go"]).await;
    check::<LlmCallFinished>(&["also", "<header>go"]).await;
    check::<ToolCallStarted>(&["also", "<header>go", "say_echo", "tool_result"]).await;
    check::<ToolCallFinished>(&["also", "<header>go", "say_echo", "tool_result"]).await;
    check::<ChatFinished>(&["also", "<header>go", "said: x"]).await;
    check::<StepFinished>(&["also", "<header>go", "said: x"]).await;

    let events = EventBus::default();
    events.on_sync(|_: &mut ToolCallFinished| Err("no".into()));
    let bench = Setup { events, ..Setup::default() }.start([]);
    bench.say(",say.echo y").await.unwrap_err();
    assert!(bench.tape().await.contains(r#"event {"name": "command", "data": {"raw": "say.echo y""#));
}

#[tokio::test]
async fn a_handler_that_never_returns_ends_with_its_turn() {
    let events = EventBus::default();
    events.on(|_: &mut LlmCallStarted| Box::pin(std::future::pending()));
    let bench = Setup { events, ..Setup::default() }.start([]);
    let stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.cancel();
    assert_eq!(stream.result().await.unwrap_err().to_string(), "cancelled");
    assert!(bench.tape().await.contains("<header>go"));
}

#[tokio::test]
async fn what_the_caller_says_about_a_turn_reaches_handlers() {
    let events = EventBus::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    events.on_sync({
        let seen = seen.clone();
        move |event: &mut RunStarted| {
            seen.lock().unwrap().push(event.metadata.clone());
            Ok(())
        }
    });
    let bench = Setup { events, ..Setup::default() }.start([Script::text("ok")]);
    let metadata = json!({"ticket": 7}).as_object().unwrap().clone();
    let options = TurnOptions { metadata: metadata.clone(), ..TurnOptions::default() };
    bench.runtime.turn(inbound("go"), options).result().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [metadata]);
}

/// A tool of its own name or of one that looks the same to the model.
struct Named(Arc<ToolSpec>);

impl Named {
    fn tool(name: &'static str) -> Arc<dyn DynTool> {
        Arc::new(Self(Arc::new(ToolSpec {
            name: name.into(),
            description: name.into(),
            exposure: Exposure::Auto,
            deferred: false,
            parameters: json!({"type": "object", "properties": {}}),
            output: None,
        })))
    }
}

impl DynTool for Named {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text(format!("I am {}", self.0.name))) })
    }
}

#[tokio::test]
async fn of_tools_that_look_the_same_to_the_model_one_is_offered() {
    for (names, kept) in [(["a.b", "a_b"], "a_b"), (["a_b", "a.b"], "a_b"), (["x.y_z", "x_y.z"], "x.y_z")] {
        let tools = names.map(Named::tool).to_vec();
        let alias = kept.replace('.', "_");
        let id = Box::leak(alias.clone().into_boxed_str());
        let bench =
            Setup { tools, ..Setup::default() }.start([Script::calls([("c", &*id, json!({}))]), Script::text("ok")]);
        bench.say("go").await.unwrap();
        let offered: Vec<_> = bench.model.requests()[0].tools.iter().map(|it| it.alias()).collect();
        assert_eq!(offered.iter().filter(|it| **it == alias).count(), 1, "{offered:?}");
        assert_eq!(bench.sent(1)[2], format!("tool: I am {kept}"));
        // People reach both.
        for name in names {
            assert_eq!(bench.say(&format!(",{name}")).await.unwrap().answer, format!("I am {name}"));
        }
    }
}
