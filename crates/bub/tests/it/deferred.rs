//! Tools whose definitions are loaded on demand.

use std::sync::Arc;

use bub_kernel::{
    error::ToolError,
    hooks::{Hooks as _, ToolView},
    plugin::Registry,
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSpec},
    turn::TurnState,
};
use bub_testing::Script;
use bub_tools::describe::DescribeHooks;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::bench::{Bench, Folders, tape};

/// A tool that says its own name.
struct Named(Arc<ToolSpec>);

impl DynTool for Named {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text(format!("{} ran", self.0.name))) })
    }
}

fn tool(name: String, exposure: Exposure, deferred: bool) -> Arc<dyn DynTool> {
    Arc::new(Named(Arc::new(ToolSpec {
        name: name.into(),
        description: "A tool with a long story.".repeat(20),
        exposure,
        deferred,
        parameters: json!({"type": "object", "properties": {"secret_parameter": {"type": "string"}}}),
        output: None,
    })))
}

/// A registry with so many deferred tools, `mcp.tool_0` and so on.
fn deferred(n: usize) -> impl Fn(&mut Registry) + Send + Sync + 'static {
    move |registry| {
        for idx in 0..n {
            registry.dyn_tool(tool(format!("mcp.tool_{idx}"), Exposure::Auto, true));
        }
    }
}

fn bench(n: usize, scripts: impl IntoIterator<Item = Script>) -> Bench {
    Folders::new().bench_with(scripts, deferred(n))
}

fn describe(id: &'static str, names: Value) -> Script {
    Script::calls([(id, "tool_describe", json!({"names": names}))])
}

#[tokio::test]
async fn r067_the_first_request_names_all_deferred_tools_and_tells_no_schema() {
    let bench = bench(40, [Script::text("ok")]);
    bench.say("hi").await;
    let system = bench.system(0);
    let at = |idx: usize| system.find(&format!("- mcp_tool_{idx}\n")).unwrap();
    assert!((1..40).all(|idx| at(idx - 1) < at(idx)), "in the order of registration: {system}");
    let block = &system[system.find("<deferred_tools>").unwrap()..system.find("</deferred_tools>").unwrap()];
    assert!(block.len() < 1_500 && !system.contains("secret_parameter") && !block.contains("long story"), "{block}");
    let offered = bench.offered(0);
    assert_eq!(offered.last().unwrap(), "tool_describe");
    assert!(!offered.iter().any(|it| it.starts_with("mcp_")));
}

#[tokio::test]
async fn three_hundred_deferred_tools_cost_their_names_alone() {
    let mut sizes = Vec::new();
    for n in [0, 300, 2_000] {
        let bench = bench(n, [Script::text("ok")]);
        bench.say("hi").await;
        assert_eq!(bench.offered(0).contains(&"tool_describe".to_owned()), n > 0);
        if n == 2_000 {
            assert!(
                bench.system(0).contains("(and 1500 more: `tool_describe` with an empty list"),
                "{}",
                bench.system(0)
            );
        }
        sizes.push(bench.system(0).len());
    }
    assert!(sizes[1] - sizes[0] < 300 * "- mcp_tool_000\n".len() + 300, "{sizes:?}");
    assert!(sizes[2] - sizes[0] < 20_500, "{sizes:?}");
}

#[tokio::test]
async fn a_described_tool_is_called_from_the_next_step_on_and_in_later_turns_until_a_reset() {
    let bench = bench(
        3,
        [
            Script::calls([("c1", "mcp_tool_1", json!({}))]),
            Script::calls([
                ("c2", "tool_describe", json!({"names": ["mcp.tool_1", "mcp_tool_0"]})),
                ("c3", "mcp_tool_1", json!({})),
            ]),
            Script::calls([("c4", "mcp_tool_1", json!({})), ("c5", "tool_describe", json!({"names": ["MCP_TOOL_1"]}))]),
            Script::text("done"),
            Script::text("second turn"),
            Script::calls([("c6", "tape_reset", json!({}))]),
            Script::calls([("c7", "mcp_tool_1", json!({}))]),
            Script::text("third"),
            Script::text("fourth"),
        ],
    );
    assert_eq!(bench.say("go").await, "done");
    let guidance = "Tool `mcp_tool_1` is not loaded. Call `tool_describe` with its name first.";
    assert_eq!(bench.results(1), [guidance]);
    let [described, too_early] = &bench.results(2)[..] else { panic!("{:?}", bench.results(2)) };
    let described: Value = serde_json::from_str(described).unwrap();
    assert_eq!(described["tools"][0]["name"], "mcp_tool_1");
    assert_eq!(described["tools"][0]["description"], "A tool with a long story.".repeat(20));
    assert_eq!(described["tools"][0]["parameters"]["properties"]["secret_parameter"]["type"], "string");
    assert_eq!(described["tools"][1]["name"], "mcp_tool_0");
    assert_eq!((&described["unknown"], &described["already_loaded"]), (&json!([]), &json!([])));
    assert_eq!(described.as_object().unwrap().len(), 3);
    assert_eq!(too_early, guidance);
    assert_eq!(
        bench.results(3),
        ["mcp.tool_1 ran", r#"{"tools": [], "unknown": [], "already_loaded": ["mcp_tool_1"]}"#]
    );
    assert!(bench.offered(2).ends_with(&["tool_describe", "mcp_tool_1", "mcp_tool_0"].map(str::to_owned)));
    let events: Vec<_> =
        tape(&bench.app, "s").await.into_iter().filter(|it| it.name() == Some("tool.loaded")).collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data().unwrap(), &json!({"names": ["mcp.tool_1", "mcp.tool_0"]}));

    bench.say("again").await;
    assert_eq!(bench.offered(4), bench.offered(2), "later turns are offered it at once");

    bench.say("reset").await;
    assert!(bench.offered(5).contains(&"mcp_tool_1".to_owned()));
    assert!(!bench.offered(6).contains(&"mcp_tool_1".to_owned()), "a reset forgets, in the same turn");
    assert_eq!(bench.results(7), [guidance]);
    bench.say("and now").await;
    assert!(bench.offered(8).ends_with(&["tool_describe".to_owned()]));
}

#[tokio::test]
async fn a_handoff_keeps_loaded_tools() {
    let bench = bench(
        2,
        [
            describe("c1", json!(["mcp.tool_0"])),
            Script::calls([("c2", "tape_handoff", json!({"name": "phase"}))]),
            Script::text("done"),
            Script::text("next"),
        ],
    );
    bench.say("go").await;
    bench.say("next").await;
    assert_eq!(bench.offered(3).last().unwrap(), "mcp_tool_0");
}

#[tokio::test]
async fn r068_names_are_understood_in_every_form_and_others_get_near_ones() {
    let bench = bench(
        1,
        [
            describe("c1", json!(["fs.read", "fs_read", " FS.READ "])),
            describe("c2", json!(["nope", "fs_raed", "help"])),
            describe("c3", json!([])),
            describe("c4", json!(["", " "])),
            describe("c5", json!(vec!["x"; 201])),
            Script::text("done"),
        ],
    );
    bench.say("go").await;
    let result = |idx: usize| serde_json::from_str::<Value>(&bench.results(idx)[0]).unwrap();
    assert_eq!(result(1)["tools"].as_array().unwrap().len(), 1, "once, whatever the form");
    assert_eq!(result(1)["tools"][0]["name"], "fs_read");
    assert_eq!(result(2)["unknown"], json!(["nope", "fs_raed", "help"]), "commands are not for the model");
    assert_eq!(result(2)["did_you_mean"]["fs_raed"][0], "fs_read");
    for idx in [3, 4] {
        let available = result(idx)["available"].as_array().unwrap().clone();
        assert!(available.contains(&json!("fs_read")) && available.contains(&json!("mcp_tool_0")), "{available:?}");
    }
    assert_eq!(result(5)["kind"], "invalid_input");
    // As commands, alike.
    let out = bench.say(r#",tool.describe names='["FS.READ", "nope"]'"#).await;
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&out["tools"][0]["name"], &out["unknown"]), (&json!("fs_read"), &json!(["nope"])));
}

#[tokio::test]
async fn r068_a_command_loads_for_the_session() {
    let bench = bench(2, [Script::text("ok")]);
    bench.say(r#",tool.describe names='["mcp.tool_1"]'"#).await;
    let again: Value = serde_json::from_str(&bench.say(r#",tool.describe names='["mcp.tool_1"]'"#).await).unwrap();
    assert_eq!(again["already_loaded"], json!(["mcp_tool_1"]));
    bench.say("hi").await;
    assert_eq!(bench.offered(0).last().unwrap(), "mcp_tool_1");
}

#[tokio::test]
async fn r070_loading_appends_to_the_tools_and_leaves_the_prompt_as_it_was() {
    let bench = bench(
        5,
        [Script::text("one"), describe("c1", json!(["mcp.tool_3"])), Script::text("two"), Script::text("three")],
    );
    for text in ["1", "2", "3"] {
        bench.say(text).await;
    }
    let n = bench.model.requests().len();
    assert!((1..n).all(|idx| bench.system(idx) == bench.system(0)), "the prompt is the same in all requests");
    assert_eq!(bench.offered(1), bench.offered(0));
    let mut grown = bench.offered(0);
    grown.push("mcp_tool_3".into());
    assert_eq!(bench.offered(2), grown);
    assert_eq!(bench.offered(3), grown);
}

#[tokio::test]
async fn r065_only_allowed_deferred_tools_are_named() {
    let bench =
        bench(3, [describe("c1", json!(["mcp.tool_0", "mcp.tool_1"])), Script::text("done"), Script::text("b")]);
    let allowed = |names: &[&str]| bub::TurnOptions {
        allowed_tools: Some(names.iter().map(|it| (*it).to_owned()).collect()),
        ..bub::TurnOptions::default()
    };
    let turn = async |names| {
        let stream = bench.app.runtime().turn(crate::bench::inbound("s", "x"), allowed(names));
        stream.result().await.unwrap();
    };
    turn(&["mcp_tool_1", "fs_read"]).await;
    assert_eq!(bench.offered(0), ["fs_read", "tool_describe"]);
    assert!(bench.system(0).contains("- mcp_tool_1\n") && !bench.system(0).contains("mcp_tool_0"));
    let described: Value = serde_json::from_str(&bench.results(1)[0]).unwrap();
    assert_eq!(described["unknown"], json!(["mcp.tool_0"]));
    turn(&["fs.read"]).await;
    assert_eq!(bench.offered(2), ["fs_read"]);
    assert!(!bench.system(2).contains("deferred_tools"));
}

#[tokio::test]
async fn in_code_mode_only_direct_tools_stay_deferred_whoever_comes_first() {
    let view = || ToolView {
        direct: vec![tool("run_code".into(), Exposure::Direct, false)],
        code: vec![tool("a.auto".into(), Exposure::Auto, true)],
        deferred: vec![tool("a.auto".into(), Exposure::Auto, true), tool("a.direct".into(), Exposure::Direct, true)],
        prompt: Vec::new(),
    };
    let names = |tools: &[Arc<dyn DynTool>]| tools.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>();
    let mut state = TurnState::default();
    state.code_mode = true;
    let mut in_code = view();
    DescribeHooks::default().choose_tools(&state, &mut in_code).await;
    assert_eq!(names(&in_code.deferred), ["a.direct"]);
    assert_eq!(names(&in_code.direct), ["run_code", "tool.describe"]);
    assert!(in_code.prompt[0].contains("- a_direct\n") && !in_code.prompt[0].contains("a_auto"));

    let mut without = view();
    without.direct.clear();
    DescribeHooks::default().choose_tools(&state, &mut without).await;
    assert_eq!(names(&without.deferred), ["a.auto", "a.direct"], "no run_code, no code mode");
}

#[tokio::test]
async fn in_code_mode_deferred_tools_are_called_from_code_without_loading() {
    let folders = Folders::new().var("BUB_CODE_RUNNER", "sandbox");
    let bench = folders.bench_with(
        [Script::calls([("c1", "mcp_tool_0", json!({}))]), Script::text("done")],
        |registry: &mut Registry| {
            registry.dyn_tool(tool("mcp.tool_0".into(), Exposure::Auto, true));
            registry.dyn_tool(tool("mcp.direct".into(), Exposure::Direct, true));
        },
    );
    bench.say(",code_mode enable=true").await;
    bench.say("go").await;
    let system = bench.system(0);
    let at = |block: &str| system.find(block).unwrap_or_else(|| panic!("no {block}: {system}"));
    assert!(at("<code_mode>") < at("<deferred_tools>") && at("<deferred_tools>") < at("<available_skills>"));
    let block = &system[at("<deferred_tools>")..at("</deferred_tools>")];
    assert!(block.contains("- mcp_direct\n") && !block.contains("mcp_tool_0"), "{block}");
    assert_eq!(bench.offered(0).last().unwrap(), "tool_describe");
    assert!(bench.results(1)[0].contains("is called from code here"), "{:?}", bench.results(1));
}
