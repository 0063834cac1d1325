//! `CodeMode` for an agent of one's own: every option.

use std::sync::{Arc, atomic::Ordering};

use bub_code::{CodeMode, Models};
use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    tool::{DynTool, Exposure, erase},
    turn::{TurnError, TurnState},
};
use bub_testing::{NoEnvironment, Script, context};
use serde_json::json;

use crate::{
    bench::{Bench, Echo, Named, Setup, runs},
    scripted::Scripted,
};

fn named(name: &'static str, exposure: Exposure) -> Arc<dyn DynTool> {
    Arc::new(Named::new(name, exposure, false))
}

fn tools() -> Vec<Arc<dyn DynTool>> {
    vec![erase(Echo), named("direct", Exposure::Direct), named("person", Exposure::Command)]
}

fn start(code: CodeMode, scripts: impl IntoIterator<Item = Script>) -> Bench {
    Setup { plugin: Some(Box::new(code)), ..Setup::default() }.start(scripts)
}

fn code() -> CodeMode {
    CodeMode::new(tools()).runners(Arc::new(Scripted))
}

#[tokio::test]
async fn a_bare_agent_runs_code_with_the_tools_that_were_passed() {
    let bench = start(code(), [runs("tools\ncall say_echo {\"text\": \"x\"}\ncall person"), Script::text("done")]);
    assert_eq!(bench.say("go").await.unwrap().answer, "done");
    assert_eq!(
        bench.results().await,
        [
            "say_echo direct attach_image attach_audio attach_video\n{\"said\":\"x\"}\n![not_found] Unknown tool name: person.\n"
        ]
    );
    assert_eq!(bench.offered(0), ["run_code"]);
    let system = bench.system(0);
    assert!(system.starts_with("<code_mode>\n") && system.ends_with("</code_mode>"), "{system}");
    for part in ["Code is lines.", "```python\n", "async def direct()", "attach_image", "provider:model"] {
        assert!(system.contains(part), "{part}: {system}");
    }
}

#[tokio::test]
async fn tools_may_follow_from_the_turn_and_none_turns_code_off() {
    let code =
        CodeMode::of_turn(|state: &TurnState| (!state.code_mode).then(|| vec![named("of.turn", Exposure::Auto)]))
            .runners(Arc::new(Scripted));
    let bench = start(code.clone().media_tools(false), [runs("tools"), Script::text("done")]);
    bench.say("go").await.unwrap();
    assert_eq!(bench.results().await, ["of_turn\n"]);
    let mut off = TurnState::default();
    off.code_mode = true;
    assert_eq!(code.prompt(&off).await, None);
    let mut ctx = context(Arc::new(NoEnvironment));
    ctx.state = Arc::new(off);
    let err = code.run_code().call(&ctx, json!({"code": "print a", "timeout_seconds": 1})).await.unwrap_err();
    assert_eq!(err.to_string(), "[invalid_input] Code mode is not enabled for this run.");
}

#[tokio::test]
async fn the_tool_can_have_another_name() {
    let bench = start(
        code().name("python"),
        [Script::calls([("c", "python", json!({"code": "print x"}))]), Script::text("done")],
    );
    bench.say("go").await.unwrap();
    assert_eq!((bench.offered(0), bench.results().await), (vec!["python".to_owned()], vec![json!("x\n")]));
    assert!(bench.system(0).contains("`python` runs the code"));
}

#[tokio::test]
async fn an_own_tool_takes_the_place_of_a_media_tool() {
    let code = CodeMode::new([named("attach.image", Exposure::Auto)]).runners(Arc::new(Scripted));
    let bench = start(code, [runs("tools\ncall attach_image"), Script::text("done")]);
    bench.say("go").await.unwrap();
    assert_eq!(bench.results().await, ["attach_image attach_audio attach_video\n\"attach.image\"\n"]);
}

#[tokio::test]
async fn definitions_go_into_the_folder_that_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let code = code().stub_dir(dir.path());
    let prompt = code.prompt(&TurnState::default()).await.unwrap();
    let again = code.prompt(&TurnState::default()).await.unwrap();
    assert_eq!(prompt, again);
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert!(prompt.contains(files[0].to_str().unwrap()) && !prompt.contains("```"), "{prompt}");
    let folder = dir.path().join("sub");
    let of_turn = code.stub_dir_of_turn(move |state| state.code_mode.then(|| folder.clone()));
    assert!(of_turn.prompt(&TurnState::default()).await.unwrap().contains("```python"));
    let mut state = TurnState::default();
    state.code_mode = true;
    assert!(of_turn.prompt(&state).await.unwrap().contains("/sub/tools-"));
}

#[tokio::test]
async fn the_environment_that_is_set_is_that_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.png"), [1]).unwrap();
    let options = LocalOptions { workspace: Some(dir.path().to_owned()), ..LocalOptions::default() };
    let local = Arc::new(LocalEnvironment::new(options).unwrap());
    let attach = "call attach_image {\"image\": \"a.png\"}";
    let bench = start(code(), [runs(attach), Script::text("done")]);
    bench.say("go").await.unwrap();
    let refused = "![invalid_input] Cannot load the image: relative path 'a.png' is not allowed without a workspace\n";
    assert_eq!(bench.results().await, [refused]);
    let bench = start(code().environment(local), [runs(attach), Script::text("done")]);
    bench.say("go").await.unwrap();
    assert_eq!(bench.results().await[0]["content"][1]["media_type"], "image/png");
}

#[tokio::test]
async fn calls_at_once_are_limited() {
    let slow = Named::new("slow", Exposure::Auto, false);
    let most = slow.most.clone();
    let code = CodeMode::new([Arc::new(slow) as Arc<dyn DynTool>]).runners(Arc::new(Scripted)).max_running_calls(3);
    let bench = start(code.models(Models::Session), [runs("gather 30 slow"), Script::text("done")]);
    bench.say("go").await.unwrap();
    assert_eq!((bench.results().await, most.load(Ordering::SeqCst)), (vec![json!("30\n")], 3));
}

#[tokio::test]
async fn a_command_runs_it_too() {
    let bench = start(code(), []);
    assert_eq!(bench.command("print hi").await.unwrap(), "hi\n");
    let err = bench.say(",run_code").await.unwrap_err();
    assert!(matches!(err, TurnError::Command { .. }), "{err}");
}
