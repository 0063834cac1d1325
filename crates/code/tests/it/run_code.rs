//! `run_code`: its results, its errors, what its calls see.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use bub_engine::TurnOptions;
use bub_kernel::{
    error::ErrorKind,
    event::{EventBus, ToolCallFinished, ToolCallStarted},
    hooks::ToolStep,
    tool::Caller,
    turn::{TurnError, TurnEvent},
};
use bub_testing::Script;
use serde_json::{Value, json};

use crate::bench::{Bench, Setup, inbound, runs};

#[tokio::test]
async fn r116_what_is_printed_is_the_result_as_it_is() {
    let bench = Bench::new([]);
    for (code, expected) in [
        ("", ""),
        ("print a\nprint b", "a\nb\n"),
        ("write  x", " x"),
        (r#"call say_echo {"text": "hi"}"#, "{\"said\":\"hi\"}\n"),
        ("gather 3 slow", "3\n"),
    ] {
        assert_eq!(bench.command(code).await.unwrap(), expected, "{code}");
    }
    let name = bench.command("file").await.unwrap();
    assert!(name.len() == 19 && name.starts_with("<run_code-") && name.ends_with('>'), "{name}");
    assert_ne!(bench.command("file").await.unwrap(), name);
}

#[tokio::test]
async fn r111_failures_keep_what_was_printed() {
    let bench = Bench::new([]);
    let err = bench.command("print a\nraise ZeroDivisionError: division by zero").await.unwrap_err();
    assert_eq!(err.to_string(), "[tool] Code raised ZeroDivisionError: division by zero");
    assert_eq!(err.details["output"], "a\n");
    assert!(err.details["traceback"].as_str().unwrap().contains("<run_code-"));

    let err = bench.command("print a\ndie -9").await.unwrap_err();
    assert_eq!(err.to_string(), "[tool] Code runner exited unexpectedly with code -9");
    assert_eq!((&err.details["output"], &err.details["stderr"]), (&json!("a\n"), &json!("oh no")));

    let err = bench.command("print a\ndie x").await.unwrap_err();
    assert_eq!(err.to_string(), "[tool] Code runner failed: it died");
    assert_eq!(err.details["output"], "a\n");
}

#[tokio::test]
async fn a_timeout_stops_the_code_and_keeps_its_output() {
    let bench = Bench::new([]);
    let started = Instant::now();
    let line = ",run_code code='print step1\nhang' timeout_seconds=1";
    let Err(TurnError::Command { error, .. }) = bench.say(line).await else { panic!("no error") };
    assert_eq!(error.to_string(), "[tool] Code timed out after 1 seconds");
    assert_eq!(error.details["output"], "step1\n");
    assert!(started.elapsed() < Duration::from_secs(10));

    let Err(TurnError::Command { error, .. }) = bench.say(",run_code code='print a' timeout_seconds=0").await else {
        panic!("no error")
    };
    assert_eq!(error.to_string(), "[tool] Code timed out after 0 seconds");
    assert_eq!(error.details["output"], "");
    let Err(TurnError::Command { error, .. }) = bench.say(",run_code code='print a' timeout_seconds=-1").await else {
        panic!("no error")
    };
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    // As long as it likes.
    let huge = i64::MAX;
    assert_eq!(bench.say(&format!(",run_code code='print a' timeout_seconds={huge}")).await.unwrap().answer, "a\n");
}

#[tokio::test]
async fn r111_endless_output_is_cut_at_a_bound() {
    let bench = Bench::new([]);
    let text = bench.command("print first\nflood 5000\nprint last").await.unwrap();
    assert!(text.len() < bub_code::MAX_OUTPUT_BYTES + 100, "{}", text.len());
    assert!(text.starts_with("first\n") && text.ends_with("last\n") && text.contains(" chars omitted]..."));
}

#[tokio::test]
async fn a_cancelled_run_leaves_its_output() {
    let bench = Bench::new([runs("print half\nprint sk-secret-12345\nhang")]);
    bench.say(",code_mode enable=true").await.unwrap();
    let mut stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    let mut printed = String::new();
    while let Some(event) = stream.next().await {
        if let TurnEvent::ToolProgress { call, text } = event {
            assert_eq!(call, "c1");
            printed.push_str(&text);
        }
        if printed.contains("sk-") || printed.contains("***") {
            stream.cancel();
        }
    }
    let results = bench.results().await;
    let text = results[0].as_str().unwrap();
    assert!(text.starts_with("aborted after ") && text.ends_with("s\noutput so far:\nhalf\n***\n"), "{text}");
}

#[tokio::test]
async fn a_failed_call_tells_code_the_causes_own_words() {
    let bench = Bench::new([]);
    for (code, expected) in [
        (r#"call fail {"how": "raise"}"#, "![tool] Tool 'fail' execution failed. KeyError('no such key: ***')\n"),
        (r#"call fail {"how": "other"}"#, "![not_found] nothing there\n"),
        ("call fail", "![invalid_input] Tool 'fail' argument validation failed. 'how' is required (string)\n"),
        (
            r#"call say_echo {"txt": "x", "text": 1}"#,
            "![invalid_input] Tool 'say_echo' argument validation failed. 'txt' is not a parameter; the tool takes \
             'text'",
        ),
        ("call nothing", "![not_found] Unknown tool name: nothing.\n"),
        // Not in its reach, though there is such a tool.
        ("call fs_read", "![not_found] Unknown tool name: fs_read.\n"),
        ("call person", "![not_found] Unknown tool name: person.\n"),
        ("call say.echo", "![not_found] Unknown tool name: say.echo.\n"),
        ("call republic.nothing", "![invalid_input] unknown republic operation: nothing\n"),
    ] {
        let text = bench.command(code).await.unwrap();
        assert!(text.starts_with(expected.trim_end()), "{code}: {text}");
    }
}

#[tokio::test]
async fn calls_of_code_are_seen_by_events_as_such_and_may_be_denied() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = EventBus::default();
    let (started, finished) = (seen.clone(), seen.clone());
    events.on_sync(move |event: &mut ToolCallStarted| {
        let call = &event.call;
        started.lock().unwrap().push(format!("{} {:?} {}", call.tool, call.caller, call.id));
        if call.args.get("text").is_some_and(|it| it == "deny") {
            event.decision = ToolStep::Deny(None);
        }
        Ok(())
    });
    events.on_sync(move |event: &mut ToolCallFinished| {
        let result = event.result.as_ref().map(|it| it.value.clone()).map_err(ToString::to_string);
        finished.lock().unwrap().push(format!("{} -> {result:?}", event.call.tool));
        Ok(())
    });
    let code = "call say_echo {\"text\": \"who\"}\ncall say_echo {\"text\": \"deny\"}";
    let bench = Setup { events, ..Setup::default() }.start([runs(code), Script::text("done")]);
    let results = bench.in_code_mode().await;
    assert_eq!(results[0], "{\"said\":\"Code c1/1\"}\n![tool] Tool 'say_echo' call denied by policy hook.\n");
    let seen = seen.lock().unwrap();
    let own: Vec<_> = seen.iter().filter(|it| it.starts_with("say.echo")).collect();
    assert_eq!(
        own,
        [
            "say.echo Code c1/1",
            "say.echo -> Ok(Object {\"said\": String(\"Code c1/1\")})",
            "say.echo Code c1/2",
            "say.echo -> Err(\"[tool] Tool 'say_echo' call denied by policy hook.\")",
        ]
    );
    assert!(seen.iter().any(|it| it == &format!("run_code {:?} c1", Caller::Model)), "{seen:?}");
}

#[tokio::test]
async fn a_thousand_calls_run_within_the_limit() {
    let bench = Setup { max_running: 5, ..Setup::default() }.start([]);
    assert_eq!(bench.command("gather 1000 slow").await.unwrap(), "1000\n");
    assert_eq!(bench.most.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn runs_at_the_same_time_are_independent() {
    let calls = ["a", "b", "c"].map(|it| (it, "run_code", json!({"code": format!("print {it}\ngather 20 slow")})));
    let bench = Bench::new([Script::calls(calls), Script::text("done")]);
    assert_eq!(bench.in_code_mode().await, ["a\n20\n", "b\n20\n", "c\n20\n"]);
}

#[tokio::test]
async fn a_person_can_name_the_tools_of_their_code() {
    let bench = Bench::new([]);
    let all = "attach_image attach_audio attach_video say_echo fail slow later hidden_one\n";
    assert_eq!(bench.command("tools").await.unwrap(), all);
    let options = |names: &[&str]| TurnOptions {
        allowed_tools: Some(names.iter().map(|it| (*it).to_owned()).collect()),
        ..TurnOptions::default()
    };
    assert_eq!(bench.command_with("tools", options(&["fs_read", "slow", "person"])).await.unwrap(), "fs_read slow\n");
    assert_eq!(bench.command_with("call fs_read", options(&["fs.read"])).await.unwrap(), "\"fs.read\"\n");
    assert_eq!(bench.command_with("tools", options(&[])).await.unwrap(), "\n");
}

#[tokio::test]
async fn what_is_printed_is_told_while_it_runs() {
    let bench = Bench::new([runs("print a\ngather 3 slow\nprint b"), Script::text("done")]);
    bench.say(",code_mode enable=true").await.unwrap();
    let events = bench.watch("go").await;
    let told: String = events
        .iter()
        .filter_map(|it| match it {
            TurnEvent::ToolProgress { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(told, "a\n3\nb\n");
    let result = events.iter().find_map(|it| match it {
        TurnEvent::ToolResults(results) => Some(results.clone()),
        _ => None,
    });
    assert_eq!(result, Some(vec![Value::String("a\n3\nb\n".into())]));
}
