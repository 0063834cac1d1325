//! What the reference's guides promise: that the table of it names tests that exist, and what no other test shows.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bub::{
    Run,
    code::CodeMode,
    host::{LocalEnvironment, LocalOptions},
};
use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest, CodeRunner},
    environment::{EnvPath, Environment, EnvironmentError, OpenFile, Process, SpawnRequest},
    event::{RunStarted, ToolCallFinished},
    hooks::Hooks,
    model::ModelEvent,
    plugin::Registry,
    tool::erase,
    turn::{Inbound, SessionId, TurnState},
};
use bub_testing::{NoEnvironment, Script};
use serde_json::json;

use crate::{
    agent::{Add, agent},
    bench::{Bench, Folders},
};

#[test]
fn every_statement_names_tests_that_exist() {
    let page = include_str!("../../../../docs/reference/contract.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows = page.lines().filter(|it| it.starts_with("| ") && *it != "| What holds | Test |");
    let (mut n_rows, mut missing) = (0, Vec::new());
    for row in rows {
        n_rows += 1;
        let (_, cell) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let tests: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test in: {row}");
        for test in tests {
            let (path, name) = test.split_once(": ").unwrap_or((test, ""));
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            if !text.contains(&format!("fn {name}(")) {
                missing.push(test);
            }
        }
    }
    assert!(n_rows > 150, "{n_rows}");
    assert_eq!(missing, [""; 0], "correct docs/reference/contract.md");
}

#[tokio::test]
async fn a_subagent_tells_its_session_its_words_and_its_errors() {
    let (results, sessions) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (seen, begun) = (results.clone(), sessions.clone());
    let write = [("b1", "fs_write", json!({"path": "made.txt", "content": "stays"}))];
    let scripts = [
        Script::calls(write).after([ModelEvent::Reasoning("hm".into()), ModelEvent::Text("I write. ".into())]),
        Script::text("Done."),
    ];
    let bench = Folders::new().bench_with(scripts, move |registry: &mut Registry| {
        let (seen, begun) = (seen.clone(), begun.clone());
        registry.events.on_sync(move |event: &mut ToolCallFinished| {
            if event.call.tool == "subagent" {
                seen.lock().unwrap().push(event.result.as_ref().unwrap().value.clone());
            }
            Ok(())
        });
        registry.events.on_sync(move |event: &mut RunStarted| {
            begun.lock().unwrap().push(event.state.session.clone().unwrap());
            Ok(())
        });
    });
    assert_eq!(bench.say(",subagent 'make a file'").await, "I write. Done.");
    let sessions = sessions.lock().unwrap().clone();
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    let id = session.0.strip_prefix("temp/").unwrap();
    assert!(id.len() == 8 && id.bytes().all(|it| it.is_ascii_hexdigit()), "{id}");
    let expected = json!({"session_id": session.0, "output": "I write. Done.", "errors": []});
    assert_eq!(*results.lock().unwrap(), [expected]);
    // Its conversation is gone, what it did is not; and nobody narrowed its skills.
    assert_eq!(bench.app.runtime().tape(session).stats().await.unwrap().entries, 0);
    assert_eq!(fs::read_to_string(bench.folders.path("ws/made.txt")).unwrap(), "stays");
    assert!(bench.system(0).contains("<available_skills>"));
}

#[tokio::test]
async fn a_subagents_model_cannot_call_what_is_not_allowed() {
    let bench =
        Bench::new([Script::calls([("b1", "bash", json!({"command": "touch made"}))]), Script::text("I tried.")]);
    let line = ",subagent 'make a file' allowed_tools='[\"fs.read\"]'";
    assert_eq!(bench.say(line).await, "I tried.");
    assert!(bench.results(1)[0].starts_with("Tool `bash` "), "{:?}", bench.results(1));
    assert!(!bench.folders.path("ws/made").exists());
}

/// Puts each turn into code mode.
struct AlwaysCode;

#[async_trait]
impl Hooks for AlwaysCode {
    fn name(&self) -> &str {
        "always-code"
    }

    fn implements(&self) -> &[&'static str] {
        &["load_state"]
    }

    async fn load_state(&self, _: &Inbound, state: &mut TurnState) {
        state.code_mode = true;
    }
}

#[tokio::test]
async fn code_mode_can_be_set_in_the_state_of_a_turn() {
    let bench = Folders::new().bench_with([Script::text("ok")], |registry: &mut Registry| {
        registry.hooks(AlwaysCode);
    });
    bench.say("go").await;
    let offered = bench.offered(0);
    assert!(offered.contains(&"run_code".to_owned()) && !offered.contains(&"tape_info".to_owned()), "{offered:?}");
    let tape = bench.app.runtime().tape(&SessionId("s".into()));
    assert_eq!(tape.setting("code_mode").await.unwrap(), None, "it is no setting");
}

/// Where the code of a run works.
struct Folder(std::path::PathBuf);

#[tokio::test]
async fn code_runs_in_the_current_folder_unless_the_turn_says_otherwise() {
    let there = tempfile::tempdir().unwrap();
    let of_turn = CodeMode::new([]).environment_of_turn(|state| {
        let workspace = state.slot::<Folder>().map(|it| it.0.clone());
        Arc::new(LocalEnvironment::new(LocalOptions { workspace, ..LocalOptions::default() }).unwrap())
    });
    let run_code = of_turn.run_code();
    assert_eq!(run_code.spec().parameters["properties"]["timeout_seconds"]["default"], 120);
    let here = fs::canonicalize(".").unwrap();
    let there = there.path().canonicalize().unwrap();
    for (code, run, expected) in [
        (CodeMode::new([]), Run::new("go"), &here),
        (of_turn.clone(), Run::new("go"), &here),
        (of_turn, Run::new("go").slot(Folder(there.clone())), &there),
    ] {
        let args = json!({"code": "import os\nprint(os.getcwd())"});
        let (builder, model) = agent([Script::calls([("c", "run_code", args)]), Script::text("done")]);
        let agent = builder.plugin(code).build().unwrap();
        agent.ask(run).await.unwrap();
        let printed = model.requests()[1].messages.last().unwrap().joined_text();
        assert_eq!(Path::new(printed.trim()), expected);
        agent.close().await;
    }
}

/// An environment that runs code in a way of its own: a call of `math.add`, whatever the code.
struct OwnWay;

#[async_trait]
impl CodeRunner for OwnWay {
    async fn run(&self, request: CodeRequest<'_>, host: &dyn CodeHost) -> Result<(), CodeError> {
        let sum = host.call_tool("math_add", json!({"a": 2, "b": 3})).await.unwrap();
        host.write(&format!("{} with {:?} is {sum}", request.code, request.tools));
        Ok(())
    }
}

#[async_trait]
impl Environment for OwnWay {
    fn workspace(&self) -> Option<&EnvPath> {
        None
    }

    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        NoEnvironment.resolve(path)
    }

    async fn spawn(&self, request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        NoEnvironment.spawn(request).await
    }

    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        NoEnvironment.open(path).await
    }

    async fn write(&self, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
        NoEnvironment.write(path, content).await
    }

    fn code_runner(&self) -> Option<Arc<dyn CodeRunner>> {
        Some(Arc::new(Self))
    }
}

#[tokio::test]
async fn an_environment_may_run_code_in_a_way_of_its_own() {
    let code = CodeMode::new([erase(Add)]).media_tools(false).environment(Arc::new(OwnWay));
    let args = json!({"code": "anything"});
    let (builder, model) = agent([Script::calls([("c", "run_code", args)]), Script::text("done")]);
    let agent = builder.plugin(code).build().unwrap();
    agent.ask("go").await.unwrap();
    let printed = model.requests()[1].messages.last().unwrap().joined_text();
    assert_eq!(printed, "anything with [\"math_add\"] is 5");
}
