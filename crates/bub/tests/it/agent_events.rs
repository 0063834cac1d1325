//! Typed events of the agent: their order, what is recorded before them, that each start has its end.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bub::{AgentBuilder, Run};
use bub_kernel::{
    error::ToolError,
    event::{
        ChatFinished, CommandFinished, Event, LlmCallFinished, LlmCallStarted, RunFinished, RunStarted, StepFinished,
        StepStarted, ToolCallFinished, ToolCallStarted,
    },
    hooks::{Hooks, ModelOutcome, ModelStep, ToolCall, ToolStep},
    model::{ModelError, ModelRequest},
    plugin::ContextBuilder,
    steps::PromptSection,
    tape::{Tape, TapeQuery},
    tool::{ToolContext, ToolReply},
    turn::TurnState,
};
use bub_testing::Script;
use serde_json::json;

use crate::agent::{Add, agent, lines};

type Log = Arc<Mutex<Vec<String>>>;

fn add() -> Script {
    Script::calls([("c", "math_add", json!({"a": 2, "b": 3}))])
}

/// The name of the newest entry, or its kind.
async fn newest(tape: &Tape) -> String {
    let entries = tape.read(&TapeQuery::default().newest_first().limit(1)).await.unwrap();
    entries.first().map_or_else(String::new, |it| it.name().map_or_else(|| it.kind.to_string(), str::to_owned))
}

/// Notes each event, with the newest entry of its tape where it has one.
fn log_events(mut builder: AgentBuilder, log: &Log) -> AgentBuilder {
    macro_rules! log {
        ($($with_tape:ident)* ; $($plain:ident)*) => {
            $({
                let log = log.clone();
                builder = builder.on(move |event: &mut $with_tape| {
                    let (log, tape) = (log.clone(), event.tape.clone());
                    Box::pin(async move {
                        let newest = newest(&tape).await;
                        log.lock().unwrap().push(format!("{} after {newest}", $with_tape::INFO.name));
                        Ok(())
                    })
                });
            })*
            $({
                let log = log.clone();
                builder = builder.on_sync(move |_: &mut $plain| {
                    log.lock().unwrap().push($plain::INFO.name.to_owned());
                    Ok(())
                });
            })*
        };
    }
    log!(RunStarted StepStarted ChatFinished StepFinished RunFinished CommandFinished ;
        LlmCallStarted LlmCallFinished ToolCallStarted ToolCallFinished);
    builder
}

/// Hooks that note when they are asked.
struct Noting(Log);

impl Noting {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[async_trait]
impl Hooks for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn implements(&self) -> &[&'static str] {
        &["before_model", "after_model", "before_tool", "after_tool"]
    }

    async fn before_model(&self, _: &TurnState, _: &mut ModelRequest) -> ModelStep {
        self.note("before_model");
        ModelStep::Proceed
    }

    async fn after_model(&self, _: &TurnState, _: &ModelOutcome<'_>) {
        self.note("after_model");
    }

    async fn before_tool(&self, _: &ToolContext, _: &mut ToolCall) -> ToolStep {
        self.note("before_tool");
        ToolStep::Proceed
    }

    async fn after_tool(&self, _: &ToolContext, _: &ToolCall, _: &mut Result<ToolReply, ToolError>) {
        self.note("after_tool");
    }
}

#[tokio::test]
async fn what_happens_is_recorded_then_told_to_hooks_then_to_handlers() {
    let log = Log::default();
    let (builder, _) = agent([add(), Script::text("5")]);
    // The order of building changes nothing: handlers come after hooks.
    let agent = log_events(builder, &log).hooks(Noting(log.clone())).tool(Add).build().unwrap();
    agent.ask(Run::new("2 + 3").tape("t")).await.unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "RunStarted after loop.start",
            "StepStarted after loop.step.start",
            "before_model",
            "LlmCallStarted",
            "after_model",
            "LlmCallFinished",
            "before_tool",
            "ToolCallStarted",
            "after_tool",
            "ToolCallFinished",
            "ChatFinished after run",
            "StepFinished after loop.step",
            "StepStarted after loop.step.start",
            "before_model",
            "LlmCallStarted",
            "after_model",
            "LlmCallFinished",
            "ChatFinished after run",
            "StepFinished after loop.step",
            "RunFinished after loop.finish",
        ]
    );
    log.lock().unwrap().clear();
    agent.ask(Run::new(",math.add 2 3").tape("t")).await.unwrap();
    let expected =
        ["before_tool", "ToolCallStarted", "after_tool", "ToolCallFinished", "CommandFinished after command"];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// How a run that was begun ended, by its handlers.
async fn ends(builder: AgentBuilder, expected_error: &str) -> String {
    let log = Log::default();
    let (started, finished) = (log.clone(), log.clone());
    let agent = builder
        .tool(Add)
        .on_sync(move |_: &mut RunStarted| {
            started.lock().unwrap().push("started".into());
            Ok(())
        })
        .on_sync(move |event: &mut RunFinished| {
            finished.lock().unwrap().push(event.status.into());
            Ok(())
        })
        .build()
        .unwrap();
    let err = agent.ask(Run::new("2 + 3").tape("t")).await.unwrap_err().to_string();
    assert_eq!(err, expected_error);
    let tape = lines(&agent.tape("t")).await;
    assert!(tape.contains("\"loop.finish\", \"data\": {\"status\": \"error\""), "{tape}");
    log.lock().unwrap().join(" ")
}

#[tokio::test]
async fn a_handler_that_fails_ends_the_step_and_the_run_is_finished_all_the_same() {
    macro_rules! check {
        ($($event:ident: $expected:literal;)*) => {$(
            let (builder, _) = agent([add(), Script::text("5")]);
            let failing = builder.on_sync(|_: &mut $event| Err("no".into()));
            let told = ends(failing, "an event handler failed: no").await;
            assert_eq!(told, $expected, "{}", $event::INFO.name);
            let (builder, _) = agent([add(), Script::text("5")]);
            let panicking = builder.on_sync(|_: &mut $event| panic!("oh"));
            let told = ends(panicking, "an event handler failed: it panicked: oh").await;
            assert_eq!(told, $expected, "{}", $event::INFO.name);
        )*};
    }
    check! {
        // It was told before the handler that counts.
        RunStarted: "error";
        StepStarted: "started error";
        LlmCallStarted: "started error";
        LlmCallFinished: "started error";
        ToolCallStarted: "started error";
        ToolCallFinished: "started error";
        ChatFinished: "started error";
        StepFinished: "started error";
    }
}

#[tokio::test]
async fn whatever_ends_a_run_its_end_is_told() {
    struct Panicking;

    impl ContextBuilder for Panicking {
        fn messages(&self, _: &[Arc<bub_kernel::tape::Entry>]) -> Vec<bub_kernel::message::Message> {
            panic!("no context")
        }
    }

    let (builder, _) = agent([Script::error(ModelError::Auth("no".into()))]);
    assert_eq!(ends(builder, "the provider refused the credentials: no").await, "started error");
    let (builder, _) = agent([add()]);
    assert_eq!(ends(builder.max_steps(1), "max_steps_reached=1").await, "started error");
    let (builder, _) = agent([]);
    let builder = builder.context(Panicking);
    assert_eq!(ends(builder, "the turn panicked: no context").await, "started error");
    let (builder, _) = agent([]);
    let section = PromptSection::of(|_| -> Option<String> { panic!("no section") });
    let told = ends(builder.system_prompt(section), "system_prompt failed: it panicked: no section").await;
    assert_eq!(told, "started error");
}

#[tokio::test]
async fn the_first_failure_is_the_one_that_is_told() {
    let (builder, _) = agent([Script::error(ModelError::Auth("no".into()))]);
    let builder = builder
        .on_sync(|_: &mut ChatFinished| Err("second".into()))
        .on_sync(|_: &mut StepFinished| Err("third".into()))
        .on_sync(|_: &mut RunFinished| Err("fourth".into()));
    ends(builder, "the provider refused the credentials: no").await;
}

#[tokio::test]
async fn a_run_whose_stream_is_dropped_is_merged_and_told_as_cancelled() {
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (builder, _) = agent([Script::text("half a sen").then_pending()]);
    let agent = builder
        .on_sync(move |event: &mut RunFinished| {
            sender.send((event.status, event.steps)).unwrap();
            Ok(())
        })
        .build()
        .unwrap();
    let mut stream = agent.run(Run::new("talk").tape("t"));
    assert!(stream.next().await.is_some());
    drop(stream);
    assert_eq!(told.recv().await, Some(("cancelled", 1)));
    agent.close().await;
    let tape = lines(&agent.tape("t")).await;
    for part in [r#""content": "talk""#, "half a sen", r#"{"status": "cancelled", "steps": 1}"#] {
        assert!(tape.contains(part), "{part}: {tape}");
    }
}

#[tokio::test]
async fn closing_a_stream_waits_until_the_run_is_recorded() {
    let (builder, _) = agent([Script::text("half").then_pending()]);
    let agent = builder.build().unwrap();
    let mut stream = agent.run(Run::new("talk").tape("t"));
    assert!(stream.next().await.is_some());
    assert_eq!(stream.close().await.unwrap_err().to_string(), "cancelled");
    assert!(lines(&agent.tape("t")).await.contains("loop.finish"));
}

#[tokio::test]
async fn a_decision_ends_the_delivery() {
    let log = Log::default();
    let late = log.clone();
    let (builder, model) = agent([add(), Script::text("ok")]);
    let builder = builder
        .tool(Add)
        .on_sync(|event: &mut ToolCallStarted| {
            event.decision = ToolStep::Replace(ToolReply::text("six"));
            Ok(())
        })
        .on_sync(move |_: &mut ToolCallStarted| {
            late.lock().unwrap().push("too late".into());
            Ok(())
        })
        .on_sync(|event: &mut LlmCallStarted| {
            let is_second = event.request.messages.iter().any(|it| it.tool_call.is_some());
            event.decision = is_second.then(|| "said a handler".to_owned());
            Ok(())
        });
    let agent = log_events(builder, &log).build().unwrap();
    assert_eq!(agent.ask("go").await.unwrap(), "said a handler");
    let log = log.lock().unwrap();
    let count = |name: &str| log.iter().filter(|it| it.as_str() == name).count();
    assert_eq!((count("too late"), count("ToolCallStarted"), count("ToolCallFinished")), (0, 0, 1), "{log:?}");
    // The first call passed; the second was decided, so nobody behind was asked, and no model was called.
    assert_eq!((count("LlmCallStarted"), count("LlmCallFinished"), model.requests().len()), (1, 1, 1), "{log:?}");
}
