//! Who gets which tools: the model, its code, a person.

use std::sync::Arc;

use async_trait::async_trait;
use bub_code::{Chosen, Runners};
use bub_engine::TurnOptions;
use bub_kernel::{
    environment::Environment,
    error::{ErrorKind, ToolError},
    hooks::{Hooks, ToolView},
    turn::{SessionId, TurnState},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Bench, Setup, runs};

const NORMAL: [&str; 4] = ["fs.read", "say.echo", "fail", "slow"];
const DIRECT: [&str; 2] = ["run_code", "fs.read"];
const OF_CODE: &str = "attach_image attach_audio attach_video say_echo fail slow later hidden_one\n";

#[tokio::test]
async fn the_command_switches_from_the_next_turn_on_and_is_recorded() {
    let bench = Bench::new([
        Script::text("1"),
        runs("tools"),
        Script::text("2"),
        Script::text("3"),
        runs("tools"),
        Script::text("4"),
    ]);
    bench.say("a").await.unwrap();
    assert_eq!(bench.offered(0), NORMAL);
    assert!(!bench.system(0).contains("code_mode"));
    let answer = bench.say(",code_mode enable=true").await.unwrap().answer;
    assert_eq!(answer, "Session code mode enabled (applies from the next turn).");
    bench.say("b").await.unwrap();
    assert_eq!(bench.offered(1), DIRECT);
    assert_eq!(bench.results().await, [OF_CODE]);
    let answer = bench.say(",code_mode false").await.unwrap().answer;
    assert_eq!(answer, "Session code mode disabled (applies from the next turn).");
    bench.say("c").await.unwrap();
    assert_eq!(bench.offered(3), NORMAL);
    let tape = bench.runtime.tape(&SessionId("s".into()));
    let switches = tape.read(&bub_kernel::tape::TapeQuery::default().event("code_mode_switch")).await.unwrap();
    let data: Vec<_> = switches.iter().map(|it| it.data().unwrap()["code_mode"].clone()).collect();
    assert_eq!(data, [json!(true), json!(false)]);
    // A model that calls it all the same is told what there is.
    bench.say("d").await.unwrap();
    assert_eq!(bench.results().await, ["Tool `run_code` does not exist. No similar tool is available."]);
}

#[tokio::test]
async fn the_prompt_tells_where_the_definitions_are() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("codemode");
    let bench = Setup { stubs: Some(folder.clone()), ..Setup::default() }.start([
        Script::calls([("c", "fs_read", json!({}))]),
        Script::text("1"),
        Script::text("2"),
    ]);
    bench.in_code_mode().await;
    bench.say("again").await.unwrap();
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    for request in 0..3 {
        let system = bench.system(request);
        let (_, block) = system.split_once("<code_mode>\n").unwrap();
        assert!(block.ends_with("\n</code_mode>") && !block.contains("```"), "{block}");
        assert!(block.contains(file.to_str().unwrap()), "{block}");
        for word in ["`run_code`", "await", "keyword", "BubError", "prints", "gather", "attach_image", "get_model()"] {
            assert!(block.contains(word), "{word}: {block}");
        }
    }
    let stub = std::fs::read_to_string(file).unwrap();
    assert!(stub.contains("async def say_echo(*, text: str) -> Echoed:") && !stub.contains("def fs_read"), "{stub}");
    let tools = &bench.model.requests()[0].tools;
    assert!(tools[0].description.ends_with("\n\nCode is lines."), "{}", tools[0].description);
}

#[tokio::test]
async fn definitions_stand_in_the_prompt_where_no_file_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("codemode");
    let start = |stubs| Setup { stubs, ..Setup::default() }.start([Script::text("1")]);
    // No folder, no tool that reads, a folder that can't be.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let narrow =
        TurnOptions { allowed_tools: Some(vec!["run_code".into(), "say.echo".into()]), ..TurnOptions::default() };
    for (bench, options) in [
        (start(None), TurnOptions::default()),
        (start(Some(folder.clone())), narrow),
        (start(Some(file.join("sub"))), TurnOptions::default()),
    ] {
        bench.say(",code_mode true").await.unwrap();
        bench.say_with("go", options).await.unwrap();
        let system = bench.system(0);
        assert!(system.contains("```python\n\"\"\"") && system.contains("async def say_echo("), "{system}");
        assert!(system.ends_with("\n```\n</code_mode>"), "{system}");
    }
    assert!(!folder.exists());
}

#[tokio::test]
async fn without_run_code_the_turn_falls_back_to_calls() {
    let bench = Bench::new([Script::text("1")]);
    bench.say(",code_mode enable=true").await.unwrap();
    let options =
        TurnOptions { allowed_tools: Some(vec!["say.echo".into(), "fs.read".into()]), ..TurnOptions::default() };
    bench.say_with("go", options).await.unwrap();
    assert_eq!(bench.offered(0), ["fs.read", "say.echo"]);
    assert!(!bench.system(0).contains("code_mode"));
}

#[tokio::test]
async fn allowed_tools_narrow_what_code_can_call() {
    let bench = Bench::new([runs("tools\ncall fail"), Script::text("1")]);
    bench.say(",code_mode enable=true").await.unwrap();
    let options = TurnOptions { allowed_tools: Some(vec!["run_code".into(), "slow".into()]), ..TurnOptions::default() };
    bench.say_with("go", options).await.unwrap();
    assert_eq!(bench.offered(0), ["run_code"]);
    assert_eq!(bench.results().await, ["slow\n![not_found] Unknown tool name: fail.\n"]);
    assert!(!bench.system(0).contains("attach_"), "{}", bench.system(0));
}

/// Takes tools away and adds one.
struct Picky;

#[async_trait]
impl Hooks for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn implements(&self) -> &[&'static str] {
        &["choose_tools"]
    }

    async fn choose_tools(&self, _: &TurnState, view: &mut ToolView) {
        view.direct.retain(|it| it.name() != "fail");
        view.code.retain(|it| it.name() != "hidden.one" && it.name() != "later");
        view.direct.push(Arc::new(crate::bench::Named::new("from.hook", bub_kernel::tool::Exposure::Auto, false)));
    }
}

#[tokio::test]
async fn code_reaches_exactly_what_hooks_left() {
    let code = "tools\ncall from_hook\ncall fail\ncall later\ncall hidden_one";
    let bench = Setup { hooks: vec![Arc::new(Picky)], ..Setup::default() }.start([runs(code), Script::text("1")]);
    let results = bench.in_code_mode().await;
    assert_eq!(
        results,
        ["attach_image attach_audio attach_video say_echo slow from_hook\n\"from.hook\"\n\
          ![not_found] Unknown tool name: fail.\n![not_found] Unknown tool name: later.\n\
          ![not_found] Unknown tool name: hidden_one.\n"]
    );
}

#[tokio::test]
async fn a_direct_call_of_a_code_tool_is_told_how_it_is_called() {
    let bench = Bench::new([
        Script::calls([("a", "say_echo", json!({"text": "x"})), ("b", "sayecho", json!({})), ("c", "zzz", json!({}))]),
        Script::text("1"),
    ]);
    assert_eq!(
        bench.in_code_mode().await,
        [
            "Tool `say_echo` is called from code here: pass `await tools.say_echo(...)` to `run_code`.",
            "Tool `sayecho` does not exist. Did you mean one of the following?\n- say_echo",
            "Tool `zzz` does not exist. No similar tool is available.",
        ]
    );
}

/// Has no interpreter.
struct Broken;

#[async_trait]
impl Runners for Broken {
    async fn choose(&self, _: &Arc<dyn Environment>) -> Result<Chosen, ToolError> {
        Err(ToolError::new(ErrorKind::Config, "no Python anywhere"))
    }
}

#[tokio::test]
async fn a_missing_interpreter_is_told_in_the_description_and_the_result() {
    let bench = Setup { runners: Arc::new(Broken), ..Setup::default() }.start([runs("tools"), Script::text("1")]);
    let results = bench.in_code_mode().await;
    assert_eq!(results, [json!({"kind": "config", "message": "no Python anywhere"})]);
    let description = bench.model.requests()[0].tools[0].description.clone();
    assert!(description.ends_with("At present code cannot run: no Python anywhere"), "{description}");
}
