//! Turns inside turns.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bub::TurnOptions;
use bub_kernel::{
    message::{Message, Part, Role},
    model::{FinishReason, ModelError, ModelProvider, ModelRequest},
    plugin::{Plugin, Registry},
    turn::{SessionId, TurnEvent},
};
use bub_testing::Script;
use serde_json::{Value, json};

use crate::bench::{Answering, Bench, Folders, With, inbound, say, tape};

fn sub(args: Value) -> Script {
    Script::calls([("c1", "subagent", args)])
}

fn said(request: &ModelRequest) -> String {
    request.messages.iter().rfind(|it| it.role == Role::User).map(Message::joined_text).unwrap_or_default()
}

/// A plugin that is that model.
fn asking<F: Fn(&ModelRequest) -> Script + Send + Sync + 'static>(model: Answering<F>) -> impl Plugin + 'static {
    let model: Arc<dyn ModelProvider> = Arc::new(model);
    With(move |registry: &mut Registry| {
        registry.models(model.clone());
    })
}

/// Whether the request is that of a child, which is never offered more children.
fn is_child(request: &ModelRequest) -> bool {
    !request.tools.iter().any(|it| it.name == "subagent")
}

#[tokio::test]
async fn a_temporary_child_answers_and_leaves_nothing() {
    let bench = Bench::new([sub(json!({"prompt": "count"})), Script::text("three"), Script::text("it said three")]);
    assert_eq!(bench.say("go").await, "it said three");
    assert_eq!(bench.last(1), "count", "no header: the prompt is the child's whole message");
    assert_eq!(bench.model.requests()[1].messages.len(), 1);
    assert!(!bench.offered(1).contains(&"subagent".to_owned()) && bench.offered(1).contains(&"bash".to_owned()));
    assert_eq!(bench.results(2), ["three"]);
    assert_eq!(bench.app.runtime().tape(&SessionId("s".into())).stats().await.unwrap().anchors, 1);
    let text = format!("{:?}", tape(&bench.app, "s").await);
    assert!(!text.contains("run-child") && text.matches("\"count\"").count() == 0, "{text}");
    let tapes = std::fs::read_dir(bench.folders.path("home/.bub/tapes")).unwrap();
    let tapes: Vec<_> =
        tapes.map(|it| it.unwrap().path()).filter(|it| it.extension().is_some_and(|it| it == "jsonl")).collect();
    assert_eq!(tapes.len(), 1, "{tapes:?}");
}

#[tokio::test]
async fn r100_tools_resolve_in_either_form_and_unknown_ones_fail_before_any_call() {
    let bench = Bench::new([
        sub(json!({"prompt": "x", "allowed_tools": ["fs_read", "tape.info", " FS.WRITE", "subagent"]})),
        Script::text("ok"),
        sub(json!({"prompt": "x", "allowed_tools": ["fs_raed", "bash", "a.b"]})),
        Script::text("done"),
    ]);
    assert_eq!(bench.say("go").await, "done");
    assert_eq!(bench.offered(1), ["fs_read", "fs_write", "tape_info"]);
    let error: Value = serde_json::from_str(&bench.results(3)[0]).unwrap();
    assert_eq!(error["message"], "Tool 'subagent' execution failed.");
    assert_eq!(error["details"]["error"], "ValueError('unknown tool name(s): 'a.b', 'fs_raed'')");
    assert_eq!(bench.model.requests().len(), 4, "no model was asked for the wrong names");
}

#[tokio::test]
async fn a_child_may_not_do_more_than_its_parent() {
    let bench = Bench::new([
        sub(json!({"prompt": "x", "allowed_tools": ["bash"]})),
        sub(json!({"prompt": "x", "allowed_skills": ["GH", "bub"]})),
        Script::text("child"),
        Script::text("done"),
    ]);
    let options = TurnOptions {
        allowed_tools: Some(vec!["fs.read".into(), "subagent".into(), "skill".into()]),
        allowed_skills: Some(vec!["gh".into()]),
        ..TurnOptions::default()
    };
    bench.app.runtime().turn(inbound("s", "go"), options).result().await.unwrap();
    assert!(bench.results(1)[0].contains("tools that this turn may not use itself: 'bash'"), "{:?}", bench.results(1));
    assert_eq!(bench.offered(2), ["fs_read", "skill"]);
    let skills: Vec<_> = bench.system(2).lines().filter(|it| it.starts_with("- ")).map(str::to_owned).collect();
    assert!(skills.len() == 1 && skills[0].starts_with("- gh: "), "{skills:?}");
}

#[tokio::test]
async fn no_skills_are_told_when_none_are_allowed() {
    let bench =
        Bench::new([sub(json!({"prompt": "use $gh", "allowed_skills": []})), Script::text("c"), Script::text("d")]);
    bench.say("go").await;
    assert!(bench.system(0).contains("<available_skills>"));
    assert!(!bench.system(1).contains("available_skills"));
}

#[tokio::test]
async fn named_sessions_go_on_and_inherited_ones_see_the_tape() {
    let bench = Bench::new([
        Script::text("noted"),
        sub(json!({"prompt": "first", "session": "helper"})),
        Script::text("one"),
        sub(json!({"prompt": "second", "session": "helper"})),
        Script::text("two"),
        sub(json!({"prompt": "third", "session": "inherit"})),
        Script::text("three"),
        Script::text("done"),
    ]);
    bench.say("the number is 7").await;
    bench.say("go").await;
    let texts =
        |idx: usize| -> Vec<String> { bench.model.requests()[idx].messages.iter().map(Message::joined_text).collect() };
    assert_eq!(texts(4), ["first", "one", "second"]);
    let inherited = texts(6);
    assert!(inherited[0].ends_with("the number is 7") && inherited[1] == "noted", "{inherited:?}");
    assert_eq!(inherited.last().unwrap(), "third");
    assert_eq!(tape(&bench.app, "helper").await.iter().filter(|it| it.name() == Some("loop.finish")).count(), 2);
    let own = tape(&bench.app, "s").await;
    assert!(own.iter().any(|it| it.payload.get("content") == Some(&json!("third"))), "inherit records in the session");
    let ids: Vec<_> = own.iter().map(|it| it.id).collect();
    assert!(ids.windows(2).all(|it| it[0] < it[1]), "{ids:?}");
}

#[tokio::test]
async fn another_model_is_asked_when_one_is_named() {
    let bench = Bench::new([
        sub(json!({"prompt": "x", "model": "fake:small"})),
        Script::text("c"),
        sub(json!({"prompt": "x", "model": "no-colon"})),
        sub(json!({"prompt": "x", "model": "nobody:x"})),
        Script::text("done"),
    ]);
    bench.say("go").await;
    assert_eq!(bench.model.requests()[1].model, "small");
    assert!(
        // A command that changes the session's model would not help.
        bench.results(3)[0].contains("ValueError('Expected a provider:model identifier, got 'no-colon'')"),
        "{:?}",
        bench.results(3)
    );
    assert!(bench.results(4)[0].contains("unknown model provider 'nobody'"), "{:?}", bench.results(4));
}

#[tokio::test]
async fn prompts_may_be_blocks_and_wrong_ones_are_refused() {
    let image = json!({"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="});
    let bench = Bench::new([
        sub(json!({"prompt": [{"type": "text", "text": "see"}, image]})),
        Script::text("a picture"),
        sub(json!({"prompt": [{"type": "file", "path": "x"}]})),
        sub(json!({"prompt": [{"type": "image"}]})),
        sub(json!({"prompt": "  "})),
        sub(json!({"prompt": []})),
        sub(json!({"prompt": "x", "session": " "})),
        Script::text("done"),
    ]);
    bench.say("go").await;
    let parts = &bench.model.requests()[1].messages[0].parts;
    assert!(matches!(&parts[..], [Part::Text(text), Part::Media(_)] if text == "see"), "{parts:?}");
    for (idx, reason) in [
        (3, "'prompt': block 0: unsupported content block type 'file'"),
        (4, "'prompt': block 0: image block without url or data"),
        (5, "'prompt' must not be empty"),
        (6, "'prompt' must not be empty"),
        (7, "'session' must be"),
    ] {
        assert!(bench.results(idx)[0].contains(reason), "{:?}", bench.results(idx));
    }
}

#[tokio::test]
async fn a_prompt_that_looks_like_a_command_is_none() {
    let bench =
        Bench::new([sub(json!({"prompt": ",fs.write path=x content=y"})), Script::text("c"), Script::text("d")]);
    bench.say("go").await;
    assert_eq!(bench.last(1), ",fs.write path=x content=y");
    assert!(!bench.folders.path("ws/x").exists());
}

#[tokio::test]
async fn r102_a_childs_failure_is_an_error_result_and_the_parent_goes_on() {
    let bench = Bench::new([
        sub(json!({"prompt": "x"})),
        Script::error(ModelError::Protocol("the server said 500".into())),
        Script::text("it failed"),
    ]);
    assert_eq!(bench.say("go").await, "it failed");
    let error: Value = serde_json::from_str(&bench.results(2)[0]).unwrap();
    assert!(error["details"]["error"].as_str().unwrap().contains("the server said 500"), "{error}");
    let kinds: Vec<_> = tape(&bench.app, "s").await.iter().map(|it| it.kind.as_str().to_owned()).collect();
    assert_eq!(kinds.iter().filter(|it| *it == "message").count(), 2, "{kinds:?}");
}

#[tokio::test]
async fn r103_children_do_not_start_children_and_a_model_that_tries_for_ever_is_stopped() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let model = Answering::new(move |_: &ModelRequest| {
        counter.fetch_add(1, Ordering::SeqCst);
        sub(json!({"prompt": "again"}))
    });
    let folders = Folders::new();
    let app = folders.app(asking(model));
    let err = say(&app, "go").await.unwrap_err().to_string();
    assert_eq!(err, "the model repeated the same failing calls 20 times");
    assert_eq!(requests.load(Ordering::SeqCst), 20 + 20 * 20);
    let results: Vec<_> =
        tape(&app, "s").await.iter().filter(|it| it.kind.as_str() == "tool_result").cloned().collect();
    assert!(
        results[0].payload["results"][0]["details"]["error"].as_str().unwrap().contains("20 times"),
        "{:?}",
        results[0]
    );
}

#[tokio::test]
async fn r103_the_steps_of_a_child_are_limited() {
    let folders = Folders::new().var("BUB_MAX_STEPS", "3");
    let model = Answering::new(|request: &ModelRequest| match is_child(request) {
        true => Script::calls([("b", "tape_info", json!({}))]),
        false if request.messages.len() > 1 => Script::text("gave up"),
        false => sub(json!({"prompt": "x"})),
    });
    let app = folders.app(asking(model));
    assert_eq!(say(&app, "go").await.unwrap().answer, "gave up");
    let results: Vec<_> =
        tape(&app, "s").await.iter().filter(|it| it.kind.as_str() == "tool_result").cloned().collect();
    let error = results[0].payload["results"][0]["details"]["error"].as_str().unwrap();
    assert_eq!(error, "RuntimeError('the subagent reached its limit of 3 steps: max_steps_reached=3')");
}

#[tokio::test]
async fn r105_a_child_that_says_nothing_and_one_that_says_much_are_told_as_they_are() {
    let long = "word ".repeat(200_000);
    let bench = Bench::new([
        sub(json!({"prompt": "x"})),
        Script::text(""),
        sub(json!({"prompt": "x"})),
        Script::text(" \n"),
        sub(json!({"prompt": "x"})),
        Script::text(long),
        Script::text("done"),
    ]);
    bench.say("go").await;
    assert_eq!(bench.results(2), ["(no answer)"]);
    assert_eq!(bench.results(4), ["(no answer)"]);
    let shown = &bench.results(6)[0];
    assert!(shown.len() < 60_000 && shown.contains("word"), "{} characters", shown.len());
}

#[tokio::test]
async fn what_went_wrong_on_a_childs_way_is_told_with_its_answer() {
    let too_long = || Script::error(ModelError::ContextLength("8192 tokens".into()));
    let bench = Bench::new([
        sub(json!({"prompt": "all of it"})),
        Script::text("half of").finish(FinishReason::Length),
        sub(json!({"prompt": "much"})),
        Script::calls([("c2", "tape_info", json!({}))]),
        too_long(),
        Script::text("rescued"),
        Script::text("done"),
    ]);
    assert_eq!(bench.say("go").await, "done");
    assert_eq!(
        bench.results(2),
        ["half of[Error: the answer was cut off: it reached the limit on tokens (max_tokens)]"]
    );
    let rescued = "rescued[Error: the context is too long for the model: 8192 tokens; a new one was begun without what \
                   came before]";
    assert_eq!(bench.results(6).last().unwrap(), rescued);
}

#[tokio::test]
async fn a_child_is_seen_in_the_parents_stream() {
    let bench = Bench::new([
        sub(json!({"prompt": "x", "session": "helper"})),
        Script::calls([("b1", "bash", json!({"command": "echo hi"}))]),
        Script::text("line one\nline two"),
        Script::text("done"),
    ]);
    let events = bench.events("go").await;
    let lines: Vec<_> = events
        .iter()
        .filter_map(|it| match it {
            TurnEvent::ToolProgress { call, text } => Some((call.as_str(), text.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(lines, [("c1", "helper: bash({\"command\":\"echo hi\"})\n"), ("c1", "helper: line one line two\n")]);
    let words: String =
        events.iter().filter_map(|it| if let TurnEvent::Text(it) = it { Some(it.as_str()) } else { None }).collect();
    assert_eq!(words, "done", "the child's words are not the parent's");
}

/// Waits until a condition holds, for as long as a slow machine may take.
async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain: {what}");
}

fn is_running(word: &str) -> bool {
    std::fs::read_dir("/proc").is_ok_and(|all| {
        all.filter_map(|it| std::fs::read(it.ok()?.path().join("cmdline")).ok())
            .any(|it| it.split(|byte| *byte == 0).any(|it| it == word.as_bytes()))
    })
}

#[tokio::test]
async fn cancelling_a_turn_cancels_its_children_and_their_processes() {
    let seconds = format!("31{}", std::process::id());
    let command = format!("sleep {seconds}");
    let model = Answering::new(move |request: &ModelRequest| match is_child(request) {
        true => Script::calls([("b1", "bash", json!({"command": command, "timeout_seconds": 600}))]),
        false => Script::calls([
            ("c1", "subagent", json!({"prompt": "x", "session": "helper"})),
            ("c2", "subagent", json!({"prompt": "y"})),
        ]),
    });
    let folders = Folders::new();
    let app = folders.app(asking(model));
    let mut stream = app.runtime().turn(inbound("s", "go"), TurnOptions::default());
    let mut n_calls = 0;
    while n_calls < 2 {
        if let Some(TurnEvent::ToolProgress { .. }) = stream.next().await {
            n_calls += 1;
        }
    }
    until("the commands run", || is_running(&seconds)).await;
    stream.cancel();
    let started = std::time::Instant::now();
    assert!(stream.result().await.is_err());
    app.close().await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    until("the processes end", || !is_running(&seconds)).await;
    let own = tape(&app, "s").await;
    let results = own.iter().find(|it| it.kind.as_str() == "tool_result").unwrap();
    assert!(results.payload["results"][1].as_str().unwrap().starts_with("aborted after"), "{results:?}");
    // What the child of a lasting session did is recorded there.
    let child = tape(&app, "helper").await;
    let finish = child.iter().find(|it| it.name() == Some("loop.finish")).unwrap();
    assert_eq!(finish.data().unwrap()["status"], "cancelled");
}

#[tokio::test]
async fn a_hundred_children_run_side_by_side_and_answer_in_order() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (now, max, results) = (running.clone(), most.clone(), seen.clone());
    let model = Answering::new(move |request: &ModelRequest| {
        if is_child(request) {
            max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            return Script::text(format!("answer to {}", said(request))).delay(Duration::from_millis(50));
        }
        let answers: Vec<_> =
            request.messages.iter().filter(|it| it.role == Role::Tool).map(Message::joined_text).collect();
        if answers.is_empty() {
            let ids = (0..100).map(|idx| &*Box::leak(format!("c{idx}").into_boxed_str()));
            return Script::calls(
                ids.enumerate().map(|(idx, id)| (id, "subagent", json!({"prompt": format!("q{idx}")}))),
            );
        }
        *results.lock().unwrap() = answers;
        Script::text("done")
    });
    let folders = Folders::new();
    let app = folders.app(asking(model));
    let started = std::time::Instant::now();
    assert_eq!(say(&app, "go").await.unwrap().answer, "done");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let expected: Vec<_> = (0..100).map(|idx| format!("answer to q{idx}")).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(most.load(Ordering::SeqCst), 100);
}

#[tokio::test]
async fn too_many_children_at_once_are_refused_one_by_one() {
    let model = Answering::new(move |request: &ModelRequest| {
        if is_child(request) {
            return Script::text("ok").delay(Duration::from_millis(100));
        }
        let refused =
            request.messages.iter().filter(|it| it.joined_text().contains("256 subagents are running already"));
        match request.messages.iter().filter(|it| it.role == Role::Tool).count() {
            0 => {
                let ids = (0..260).map(|idx| &*Box::leak(format!("c{idx}").into_boxed_str()));
                Script::calls(ids.map(|id| (id, "subagent", json!({"prompt": "q"}))))
            }
            n => Script::text(format!("{n} results, {} refused", refused.count())),
        }
    });
    let folders = Folders::new();
    let app = folders.app(asking(model));
    assert_eq!(say(&app, "go").await.unwrap().answer, "260 results, 4 refused");
}

#[tokio::test]
async fn a_command_starts_a_child_of_the_sessions_model() {
    let bench = Bench::new([Script::text("c")]);
    bench.say(",model fake:other").await;
    assert_eq!(bench.say(",subagent 'count to three'").await, "c");
    assert_eq!((bench.model.requests()[0].model.as_str(), bench.last(0).as_str()), ("other", "count to three"));
    assert_eq!(bench.fail(",subagent x allowed_tools='[\"nope\"]'").await, "subagent: unknown tool name(s): 'nope'");
}

#[test]
fn its_schema_has_the_references_titles() {
    let tool = bub_kernel::tool::erase(bub_tools::subagent::SubAgent::default());
    let schema = &tool.spec().parameters;
    assert_eq!(schema["title"], "SubAgentInput");
    let keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["prompt", "model", "session", "allowed_tools", "allowed_skills"]);
    assert_eq!(schema["required"], json!(["prompt"]));
    let prompt = &schema["properties"]["prompt"];
    assert_eq!(prompt["title"], "Prompt");
    assert_eq!(prompt["anyOf"][0], json!({"type": "string"}), "{prompt}");
    assert_eq!(
        prompt["anyOf"][1],
        json!({"type": "array", "items": {"additionalProperties": true, "type": "object"}}),
        "{prompt}"
    );
    assert_eq!(schema["properties"]["session"]["default"], "temp");
}
