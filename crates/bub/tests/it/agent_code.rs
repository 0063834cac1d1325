//! Code mode with the agent for one's own program, on a real Python.

use std::sync::Arc;

use bub::{
    Run,
    code::{CodeMode, Models},
    host::{LocalEnvironment, LocalOptions},
};
use bub_kernel::{
    event::ToolCallStarted,
    tool::{Caller, Exposure, erase},
};
use bub_testing::{Script, ScriptedModel};
use serde_json::json;

use crate::agent::{Add, Named, agent};

fn runs(code: &str) -> Script {
    Script::calls([("c", "run_code", json!({"code": code}))])
}

/// What the model read of the code it ran first.
fn printed(model: &ScriptedModel) -> String {
    model.requests()[1].messages.last().unwrap().joined_text()
}

fn system(model: &ScriptedModel) -> String {
    model.requests()[0].system.clone().unwrap_or_default()
}

#[tokio::test]
async fn code_calls_the_tools_that_it_was_given_and_handlers_see_it() {
    let code = CodeMode::new([erase(Add), Named::tool("person", Exposure::Command, false)]);
    let (builder, model) = agent([
        runs("total = await tools.math_add(a=2, b=3)\nprint(total + 1, hasattr(tools, 'person'))"),
        Script::text("done"),
    ]);
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let agent = builder
        .dyn_tool(code.run_code())
        .system_prompt("Use the tools.")
        .system_prompt(&code)
        .on_sync(move |event: &mut ToolCallStarted| {
            sender.send((event.call.tool.clone(), event.call.caller)).unwrap();
            Ok(())
        })
        .build()
        .unwrap();
    assert_eq!(agent.ask("go").await.unwrap(), "done");
    assert_eq!(printed(&model), "6 False\n");
    let offered: Vec<_> = model.requests()[0].tools.iter().map(|it| it.alias()).collect();
    assert_eq!(offered, ["run_code"]);
    let system = system(&model);
    assert!(system.starts_with("Use the tools.\n\n<code_mode>\n"), "{system}");
    for part in ["async def math_add(*, a: int, b: int) -> int:", "attach_image"] {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert_eq!(seen.recv().await, Some(("run_code".into(), Caller::Model)));
    assert_eq!(seen.recv().await, Some(("math.add".into(), Caller::Code)));
    agent.close().await;
}

#[tokio::test]
async fn tools_follow_from_what_the_run_carries_and_none_turns_code_off() {
    struct MayCode;

    let code = CodeMode::of_turn(|state| state.slot::<MayCode>().map(|_| vec![erase(Add)])).media_tools(false);
    let code_that_runs = "print(await tools.math_add(a=1, b=1), hasattr(tools, 'attach_image'))";
    let scripts = || [runs(code_that_runs), Script::text("done")];
    let build = |scripts| {
        let (builder, model) = agent(scripts);
        (builder.dyn_tool(code.run_code()).system_prompt(&code).build().unwrap(), model)
    };
    let (on, model) = build(scripts());
    on.ask(Run::new("go").slot(MayCode)).await.unwrap();
    assert_eq!(printed(&model), "2 False\n");
    assert!(system(&model).contains("math_add") && !system(&model).contains("attach_image"));
    let (off, model) = build(scripts());
    off.ask("go").await.unwrap();
    let refused = r#"{"kind": "invalid_input", "message": "Code mode is not enabled for this run."}"#;
    assert_eq!((printed(&model).as_str(), system(&model).as_str()), (refused, ""));
}

#[tokio::test]
async fn code_runs_where_it_is_told_and_definitions_go_where_they_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("work")).unwrap();
    let options = LocalOptions { workspace: Some(root.join("work")), ..LocalOptions::default() };
    let local = Arc::new(LocalEnvironment::new(options).unwrap());
    let code = CodeMode::new([erase(Add)]).environment(local).stub_dir(root.join("stubs"));
    let (builder, model) = agent([runs("import os\nprint(os.getcwd())"), Script::text("done")]);
    let agent = builder.plugin(code).build().unwrap();
    agent.ask("go").await.unwrap();
    assert_eq!(printed(&model).trim(), root.join("work").to_str().unwrap());
    let stub = std::fs::read_dir(root.join("stubs")).unwrap().next().unwrap().unwrap().path();
    assert!(system(&model).contains(stub.to_str().unwrap()) && !system(&model).contains("```"));
    assert!(std::fs::read_to_string(stub).unwrap().contains("async def math_add("));
}

#[tokio::test]
async fn code_asks_the_models_of_the_agent() {
    let ask = "answer = await republic.get_model().chat('hello')\nprint(answer.text)";
    for (models, expected) in [
        (Models::Named, "No default model: pass a 'provider:model' spec."),
        (Models::Default("fake:small".into()), "hello yourself"),
    ] {
        let (builder, model) = agent([runs(ask), Script::text("hello yourself"), Script::text("done")]);
        let agent = builder.plugin(CodeMode::new([]).models(models)).build().unwrap();
        agent.ask("go").await.unwrap();
        let requests = model.requests();
        let result = requests.iter().find_map(|it| it.messages.iter().find(|it| it.tool_call.is_some())).unwrap();
        assert!(result.joined_text().contains(expected), "{}", result.joined_text());
    }
}
