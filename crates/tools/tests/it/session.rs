use std::sync::Arc;

use bub_kernel::{
    error::ToolError,
    tape::TapeQuery,
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSet, ToolSpec, erase},
    turn::SessionId,
};
use bub_testing::{NoEnvironment, TestHost, call, context, try_call};
use bub_tools::{
    bash::{Bash, BashKill, BashOutput, ShellSettings, Shells},
    fs::{FsEdit, FsRead, FsWrite},
    session::{Help, Model, Quit, ReasoningEffort},
    tape::{TapeAnchors, TapeHandoff, TapeInfo, TapeReset, TapeSearch},
};
use expect_test::expect;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::Workspace;

fn ctx() -> ToolContext {
    context(Arc::new(NoEnvironment))
}

#[tokio::test]
async fn settings_are_recorded_for_the_next_turn() {
    let ctx = ctx();
    assert_eq!(
        call(Model, &ctx, json!({"model_id": " openai:other "})).await,
        "Session model set to openai:other (applies from the next turn)."
    );
    assert_eq!(ctx.tape.setting("model").await.unwrap(), Some("openai:other".into()));
    assert_eq!(call(Model, &ctx, json!({"model_id": ""})).await, "Session model cleared (applies from the next turn).");
    assert_eq!(ctx.tape.setting("model").await.unwrap(), None);
    assert_eq!(
        call(ReasoningEffort, &ctx, json!({"reasoning_effort": " high "})).await,
        "Session reasoning effort set to high (applies from the next turn)."
    );
    assert_eq!(ctx.tape.setting("reasoning_effort").await.unwrap(), Some("high".into()));
    let err = try_call(ReasoningEffort, &ctx, json!({"reasoning_effort": "  "})).await.unwrap_err();
    assert_eq!(err.cause(), "reasoning_effort must not be empty");
    let events = ctx.tape.read(&TapeQuery::default()).await.unwrap();
    let payloads: Vec<String> = events.iter().map(|it| Value::Object(it.payload.clone()).to_string()).collect();
    assert_eq!(
        payloads,
        [
            r#"{"name":"model_switch","data":{"model":"openai:other"}}"#,
            r#"{"name":"model_switch","data":{"model":""}}"#,
            r#"{"name":"reasoning_effort_switch","data":{"reasoning_effort":"high"}}"#,
        ]
    );
}

#[tokio::test]
async fn quit_ends_the_shells_and_turns_of_its_session() {
    let workspace = Workspace::new();
    let host = Arc::new(TestHost::default());
    let ctx = ToolContext { host: host.clone(), ..workspace.ctx.clone() };
    let other = ToolContext { session: SessionId("other".into()), ..ctx.clone() };
    let shells = Shells::new(ShellSettings::default());
    let start = async |ctx: &ToolContext| {
        let args = json!({"command": "sleep 30", "background": true});
        let text = call(Bash::new(shells.clone()), ctx, args).await;
        text.split_once("shell_id: ").unwrap().1.lines().next().unwrap().to_owned()
    };
    let (ours, theirs) = (start(&ctx).await, start(&other).await);
    assert_eq!(call(Quit::new(shells.clone()), &ctx, json!({})).await, "Session tasks stopped.");
    assert_eq!(host.quits(), std::slice::from_ref(&ctx.session));
    let output =
        async |ctx: &ToolContext, id: &str| call(BashOutput::new(shells.clone()), ctx, json!({"shell_id": id})).await;
    assert!(!output(&ctx, &ours).await.contains("status: running"));
    assert!(output(&other, &theirs).await.contains("status: running"));
    shells.terminate_all().await;
}

/// A tool that a plugin could bring.
struct Plain(Arc<ToolSpec>);

impl DynTool for Plain {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text("done")) })
    }
}

fn plain(name: &'static str, exposure: Exposure, parameters: Value, description: &str) -> Arc<dyn DynTool> {
    let description = description.to_owned();
    Arc::new(Plain(Arc::new(ToolSpec {
        name: name.into(),
        description,
        exposure,
        deferred: false,
        parameters,
        output: None,
    })))
}

fn with(tools: Vec<Arc<dyn DynTool>>) -> ToolContext {
    let mut set = ToolSet::default();
    tools.into_iter().for_each(|it| drop(set.insert(it)));
    ToolContext { tools: Arc::new(set), ..ctx() }
}

fn weather() -> Arc<dyn DynTool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "default": 1},
            "units": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["city"],
    });
    plain("weather.now", Exposure::Auto, parameters, "Tells the weather.\nIn many words.")
}

#[tokio::test]
async fn help_is_made_from_the_tools_that_there_are() {
    let ctx = with(vec![weather(), erase(TapeAnchors), erase(Help), erase(Model)]);
    expect![[r#"
        Commands use ',' at line start.
        Known internal commands:
          ,help
          ,tape.anchors
        Commands:
          ,help [name]: List the commands and tools, or show one of them in full
          ,model model_id: Set the model of this session, from the next turn on
        Tools, called the same way:
          ,weather.now city [days=1] [units] [tags=[]]: Tells the weather
          ,tape.anchors: List the names of all anchors of this session's tape, oldest first
        Arguments are given in that order or as key=value; lists and objects as JSON.
        ,help NAME shows one of them in full.
        Any other command after ',' is unknown."#]]
    .assert_eq(&call(Help, &ctx, json!({})).await);
    expect![[r#"
        ,weather.now city [days=1] [units] [tags=[]]
        The model sees it as weather_now (exposure: auto).

        Tells the weather.
        In many words.

        Parameters:
          city: string, required. Where.
          days: integer, default 1
          units: string, optional
          tags: array of string, default []"#]]
    .assert_eq(&call(Help, &ctx, json!({"name": "weather_now"})).await);
    for name in ["weather.now", ",weather.now", " WEATHER.NOW "] {
        assert!(call(Help, &ctx, json!({"name": name})).await.starts_with(",weather.now city"), "{name}");
    }
    let err = try_call(Help, &ctx, json!({"name": "nope"})).await.unwrap_err();
    assert_eq!(err.to_string(), "[not_found] no command or tool is named 'nope'; ,help lists them");
}

#[tokio::test]
async fn help_names_the_choices_and_the_types_of_parameters() {
    let many: Vec<_> = (0..50).collect();
    let parameters = json!({
        "type": "object",
        "properties": {
            "mode": {"enum": ["fast", "slow"], "type": "string", "description": "How.\n- `fast`: Not slow."},
            "only": {"const": 5},
            "many": {"enum": many, "type": "integer"},
            "items": {"type": "array", "items": {"$ref": "#/properties/items/$defs/Item"}},
            "color": {
                "$defs": {"Color": {"enum": ["red", "green"], "type": "string"}},
                "anyOf": [{"$ref": "#/properties/color/$defs/Color"}, {"type": "null"}],
            },
        },
    });
    let ctx = with(vec![plain("pick", Exposure::Command, parameters, "")]);
    expect![[r#"
        ,pick [mode] [only] [many] [items] [color]

        Parameters:
          mode: fast|slow, optional. How.
            - `fast`: Not slow.
          only: 5, optional
          many: integer, optional
          items: array of Item, optional
          color: red|green, optional"#]]
    .assert_eq(&call(Help, &ctx, json!({"name": "pick"})).await);
}

/// Splits an example as a command line is split: words, single quotes around blanks.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for it in line.chars() {
        match it {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    assert!(!quoted, "{line}");
    words
}

#[tokio::test]
async fn r131_every_example_of_the_help_names_a_tool_and_its_parameters() {
    let shells = Shells::new(ShellSettings::default());
    let any = json!({"type": "object", "properties": {"name": {"type": "string"}, "enable": {"type": "boolean"}}});
    let ctx = with(vec![
        erase(Bash::new(shells.clone())),
        erase(BashOutput::new(shells.clone())),
        erase(BashKill::new(shells.clone())),
        erase(FsRead),
        erase(FsWrite::default()),
        erase(FsEdit::default()),
        erase(TapeInfo),
        erase(TapeSearch),
        erase(TapeReset),
        erase(TapeHandoff),
        erase(TapeAnchors),
        erase(Help),
        erase(Quit::new(shells)),
        plain("skill", Exposure::Auto, any.clone(), "Skills."),
        plain("code_mode", Exposure::Command, any, "Code mode."),
    ]);
    let text = call(Help, &ctx, json!({})).await;
    assert!(text.ends_with("\nAny other command after ',' runs in the shell through bash."), "{text}");
    let examples: Vec<_> = text
        .lines()
        .skip_while(|it| *it != "Known internal commands:")
        .skip(1)
        .take_while(|it| it.starts_with("  "))
        .map(|it| it.trim().strip_prefix(ctx.host.command_prefix().unwrap()).unwrap())
        .collect();
    assert_eq!(examples.len(), 14);
    for example in examples {
        let words = split(example);
        let tool = ctx.tools.get(&words[0]).unwrap_or_else(|| panic!("{example}"));
        let schema = &tool.spec().parameters;
        let given: Vec<&str> = words[1..].iter().map(|it| it.split_once('=').unwrap().0).collect();
        for name in &given {
            assert!(schema["properties"].get(name).is_some(), "{example}");
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(given.contains(&name.as_str().unwrap()), "{example}");
        }
    }
}
