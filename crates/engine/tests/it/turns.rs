//! Whole turns: what is asked, what is recorded, what comes back.

use bub_kernel::{
    message::TokenUsage,
    model::{FinishReason, ModelError, ModelEvent},
    turn::TurnEvent,
};
use bub_testing::Script;
use expect_test::expect;
use serde_json::json;

use crate::bench::{Bench, Setup};

#[tokio::test]
async fn a_turn_with_calls_leaves_the_references_tape() {
    let usage = TokenUsage { input_tokens: 1000, output_tokens: 20, ..TokenUsage::default() };
    let bench = Bench::new([
        Script::calls([("c1", "say_echo", json!({"text": "a"})), ("c2", "fail", json!({"how": "raise"}))])
            .after([ModelEvent::Reasoning("hm".into()), ModelEvent::Text("let me".into())])
            .usage(usage),
        Script::text("done"),
    ]);
    let result = bench.say("hello there").await.unwrap();
    assert_eq!((result.answer.as_str(), result.text.as_str(), result.steps), ("done", "let medone", 2));
    expect![[r#"
        1 anchor {"name": "session/start", "state": {"owner": "human"}}
        2 event {"name": "handoff", "data": {"name": "session/start", "state": {"owner": "human"}}}
        3 event {"name": "loop.start", "data": {"model": "fake:m", "prompt": "<header>hello there", "allowed_skills": null, "allowed_tools": null}}
        4 event {"name": "loop.step.start", "data": {"step": 1, "prompt": "<header>hello there"}}
        5 message {"role": "user", "content": "<header>hello there"} @run
        6 tool_call {"calls": [{"id": "c1", "name": "say_echo", "arguments": "{\"text\":\"a\"}", "metadata": {}}, {"id": "c2", "name": "fail", "arguments": "{\"how\":\"raise\"}", "metadata": {}}], "content": "let me", "reasoning": "hm"} @run
        7 tool_result {"results": ["said: a", {"kind": "tool", "message": "Tool 'fail' execution failed.", "details": {"error": "RuntimeError('it broke: ***')"}}]} @run
        8 event {"name": "run", "data": {"status": "ok", "usage": {"input_tokens": 1000, "output_tokens": 20, "reasoning_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0, "total_tokens": 1020}, "provider": "fake", "model": "fake:m"}} @run
        9 event {"name": "loop.step", "data": {"step": 1, "status": "continue"}}
        10 event {"name": "loop.step.start", "data": {"step": 2, "prompt": null}}
        11 message {"role": "assistant", "content": "done"} @run
        12 event {"name": "run", "data": {"status": "ok", "provider": "fake", "model": "fake:m"}} @run
        13 event {"name": "loop.step", "data": {"step": 2, "status": "ok"}}
        14 event {"name": "loop.finish", "data": {"status": "ok", "steps": 2}}
    "#]]
    .assert_eq(&bench.tape().await);
    assert_eq!(
        bench.sent(1),
        [
            "user: hello there",
            "assistant: let me +c1 +c2",
            "tool: said: a",
            "tool: {\"kind\": \"tool\", \"message\": \"Tool 'fail' execution failed.\", \"details\": {\"error\": \"RuntimeError('it broke: ***')\"}}",
        ]
    );
}

#[tokio::test]
async fn r093_a_second_turn_sends_each_message_once_in_order() {
    let bench = Bench::new([Script::text("1"), Script::text("2")]);
    bench.say("one").await.unwrap();
    bench.say("two").await.unwrap();
    assert_eq!(bench.sent(1), ["user: one", "assistant: 1", "user: two"]);
}

#[tokio::test]
async fn r173_text_comes_before_the_call_and_the_call_before_its_result() {
    let bench = Bench::new([
        Script::calls([("c1", "fail", json!({"how": "x"}))]).after([ModelEvent::Text("Reading".into())]),
        Script::text("ok"),
    ]);
    let kinds: Vec<_> = bench
        .watch("go")
        .await
        .into_iter()
        .filter_map(|it| match it {
            TurnEvent::Text(text) => Some(text),
            TurnEvent::ToolCalls(calls) => Some(format!("call {}", calls[0].name)),
            TurnEvent::ToolResults(results) => Some(format!("result {}", results[0]["kind"])),
            TurnEvent::Final { ok, .. } => Some(format!("final {ok}")),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["Reading", "call fail", "result \"not_found\"", "final true", "ok", "final true"]);
}

#[tokio::test]
async fn a_failed_model_call_keeps_the_message_and_what_came() {
    let bench = Bench::new([
        Script::events([ModelEvent::Text("half an ans".into())]).then_error(ModelError::Incomplete("closed".into())),
        Script::text("fine"),
    ]);
    let err = bench.say("hello").await.unwrap_err();
    assert_eq!(err.to_string(), "the answer was cut off: closed");
    expect![[r#"
        3 event {"name": "loop.start", "data": {"model": "fake:m", "prompt": "<header>hello", "allowed_skills": null, "allowed_tools": null}}
        4 event {"name": "loop.step.start", "data": {"step": 1, "prompt": "<header>hello"}}
        5 message {"role": "user", "content": "<header>hello"} @run
        6 error {"kind": "provider", "message": "the answer was cut off: closed"} @run
        7 message {"role": "assistant", "content": "half an ans"} @run {"partial": true}
        8 event {"name": "run", "data": {"status": "error", "provider": "fake", "model": "fake:m"}} @run
        9 event {"name": "loop.step", "data": {"step": 1, "status": "error", "error": "the answer was cut off: closed"}}
        10 event {"name": "loop.finish", "data": {"status": "error", "steps": 1, "error": "the answer was cut off: closed"}}
    "#]]
    .assert_eq(&bench.tape().await.lines().skip(2).map(|it| format!("{it}\n")).collect::<String>());
    bench.say("again").await.unwrap();
    assert_eq!(bench.sent(1), ["user: hello", "assistant: half an ans", "user: again"]);
}

#[tokio::test]
async fn r091_a_context_that_is_too_long_is_started_anew_once() {
    let too_long = || Script::error(ModelError::ContextLength("maximum context length is 8192 tokens".into()));
    let bench = Bench::new([Script::text("old"), too_long(), Script::text("rescued"), too_long(), too_long()]);
    bench.say("first").await.unwrap();
    assert_eq!(bench.say("second").await.unwrap().answer, "rescued");
    assert_eq!(bench.sent(2), ["user: second"]);
    let tape = bench.tape().await;
    assert!(
        tape.contains(
            r#"anchor {"name": "auto_handoff/context_overflow", "state": {"reason": "context_length_exceeded""#
        )
    );
    assert!(tape.contains(r#""status": "auto_handoff""#));

    let err = bench.say("third").await.unwrap_err();
    assert!(err.to_string().contains("too long for the model"), "{err}");
    assert_eq!(bench.model.requests().len(), 5, "one rescue a turn");
    assert!(bench.tape().await.contains(r#"message {"role": "user", "content": "<header>third"}"#));
}

#[tokio::test]
async fn r098_each_turn_has_its_own_rescue() {
    let scripts = (0..10).flat_map(|_| [Script::error(ModelError::ContextLength("long".into())), Script::text("ok")]);
    let bench = Bench::new(scripts);
    for _ in 0..10 {
        assert_eq!(bench.say("go").await.unwrap().answer, "ok");
    }
}

#[tokio::test]
async fn r092_steps_are_unlimited_unless_a_limit_is_set() {
    let calls = |n: usize| (0..n).map(|_| Script::calls([("c", "say_echo", json!({"text": "x"}))]));
    let bench = Bench::new(calls(60).chain([Script::text("at last")]));
    assert_eq!(bench.say("go").await.unwrap().answer, "at last");

    let setup = Setup {
        settings: bub_engine::EngineSettings { max_steps: Some(10), ..Default::default() },
        ..Setup::default()
    };
    let bench = setup.start(calls(12));
    assert_eq!(bench.say("go").await.unwrap_err().to_string(), "max_steps_reached=10");
    assert_eq!(bench.model.requests().len(), 10);
    bench.model.push(Script::text("resumed"));
    let tape = bench.tape().await;
    assert!(tape.contains(r#""status": "error", "steps": 10, "error": "max_steps_reached=10""#), "{tape}");
}

#[tokio::test]
async fn r167_arguments_that_were_cut_off_are_not_run() {
    let bench = Bench::new([
        Script::events([ModelEvent::ToolCall(bub_kernel::message::ToolCallRequest {
            id: "c1".into(),
            name: "say_echo".into(),
            arguments: r#"{"text":"abc"#.into(),
            metadata: Default::default(),
        })])
        .finish(FinishReason::Length),
        Script::text("ok"),
    ]);
    bench.say("go").await.unwrap();
    let sent = bench.sent(1);
    assert!(sent[2].contains("cut off (length)"), "{sent:?}");
    let tape = bench.tape().await;
    assert!(tape.contains(r#""name": "say_echo", "arguments": "{}""#), "{tape}");
}

#[tokio::test]
async fn r180_malformed_arguments_fail_their_call_alone() {
    let call = |id: &str, arguments: &str| {
        ModelEvent::ToolCall(bub_kernel::message::ToolCallRequest {
            id: id.into(),
            name: "say_echo".into(),
            arguments: arguments.into(),
            metadata: Default::default(),
        })
    };
    let bad = [r#"{"{"path":"x"}"#, r#"{"path":"x""#, "[1]", "null", "\"x\"", r#"{"text":"a"}{"text":"b"}"#];
    let calls = bad.iter().enumerate().map(|(idx, it)| call(&format!("c{idx}"), it));
    let calls: Vec<_> = calls.chain([call("good", r#"{"text":"fine"}"#)]).collect();
    let bench = Bench::new([Script::events(calls).finish(FinishReason::ToolCalls), Script::text("ok")]);
    assert_eq!(bench.say("go").await.unwrap().answer, "ok");
    let sent = bench.sent(1);
    for line in &sent[2..8] {
        assert!(line.contains("Expected a function tool call with JSON object arguments."), "{line}");
    }
    assert_eq!(sent[8], "tool: said: fine");
}

#[tokio::test]
async fn r166_an_unknown_tool_gets_guidance_and_the_turn_goes_on() {
    let bench = Bench::new([Script::calls([("c1", "say_ehco", json!({"text": "a"}))]), Script::text("done")]);
    assert_eq!(bench.say("go").await.unwrap().answer, "done");
    assert_eq!(
        bench.sent(1)[2],
        "tool: Tool `say_ehco` does not exist. Did you mean one of the following?\n- say_echo"
    );
}

#[tokio::test]
async fn r065_only_allowed_tools_are_offered() {
    let bench = Bench::new([Script::text("ok"), Script::text("ok")]);
    bench.say("go").await.unwrap();
    let names = |idx: usize| bench.model.requests()[idx].tools.iter().map(|it| it.alias()).collect::<Vec<_>>();
    assert_eq!(names(0), ["say_echo", "fail", "sleep"]);
    let options = bub_engine::TurnOptions { allowed_tools: Some(vec!["SAY_ECHO".into()]), ..Default::default() };
    bench.runtime.turn(crate::bench::inbound("go"), options).result().await.unwrap();
    assert_eq!(names(1), ["say_echo"]);
    let options = bub_engine::TurnOptions { allowed_tools: Some(vec!["z".into(), "a".into()]), ..Default::default() };
    let err = bench.runtime.turn(crate::bench::inbound("go"), options).result().await.unwrap_err();
    assert_eq!(err.to_string(), "unknown tool name(s): 'a', 'z'");
}

#[tokio::test]
async fn an_empty_message_opens_nothing() {
    let bench = Bench::new([]);
    assert_eq!(bench.say("  ").await.unwrap_err().to_string(), "empty prompt");
    assert_eq!(bench.tape().await, "");
}

#[tokio::test]
async fn a_model_that_is_not_set_or_not_known_is_an_error_that_says_so() {
    let setup = |model: &str| Setup {
        settings: bub_engine::EngineSettings { model: Some(model.into()), ..Default::default() },
        ..Setup::default()
    };
    for (model, expected) in [
        (
            "nope:m",
            "unknown model provider 'nope': known are fake; other OpenAI-compatible servers are set under 'providers'",
        ),
        ("gpt-4", "Expected a provider:model identifier, got 'gpt-4'"),
    ] {
        let err = setup(model).start([]).say("hi").await.unwrap_err();
        assert_eq!(err.to_string(), expected);
    }
}

#[tokio::test]
async fn a_call_without_an_id_gets_one() {
    let bench = Bench::new([
        Script::calls([("", "say_echo", json!({"text": "a"})), ("", "say_echo", json!({"text": "b"}))]),
        Script::text("ok"),
    ]);
    bench.say("go").await.unwrap();
    let requests = bench.model.requests();
    let ids: Vec<_> = requests[1].messages[1].tool_calls.iter().map(|it| it.id.clone()).collect();
    assert!(ids.iter().all(|it| !it.is_empty()) && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn temporary_sessions_leave_nothing() {
    let bench = Bench::new([Script::text("ok")]);
    let mut message = crate::bench::inbound("hi");
    let session = bub_kernel::turn::SessionId("temp/1".into());
    message.session = Some(session.clone());
    bench.runtime.turn(message, Default::default()).result().await.unwrap();
    assert_eq!(bench.runtime.tape(&session).stats().await.unwrap().entries, 0);
}

#[tokio::test]
async fn an_answer_that_is_cut_off_says_so() {
    for (reason, told, kept) in [
        (FinishReason::Length, "the answer was cut off: it reached the limit on tokens (max_tokens)", "length"),
        (FinishReason::ContentFilter, "the answer was cut off: the content filter", "content filter"),
    ] {
        let bench = Bench::new([Script::text("half of").finish(reason)]);
        let events = bench.watch("tell me all").await;
        assert!(events.contains(&TurnEvent::Notice(told.into())), "{events:?}");
        assert!(bench.tape().await.contains(&format!(r#""cut_off": "{kept}""#)));
    }
    let bench = Bench::new([Script::text("all of it")]);
    bench.say("tell me all").await.unwrap();
    assert!(!bench.tape().await.contains("cut_off"));
}
