//! The agent for one's own program: building, commands, tapes, what a run says about itself.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bub::{Agent, AgentBuilder, Run};
use bub_kernel::{
    clock::FixedClock,
    model::{ModelError, ModelOptions, ProviderTool},
    plugin::{Plugin, PluginError, Registry},
    tape::{Tape, TapeQuery},
    tool::{DynTool, ToolReply, ToolSpec, prelude::*},
    turn::{TurnError, TurnEvent, TurnState},
};
use bub_testing::{Script, ScriptedModel, tape_lines};
use expect_test::expect;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

/// Add two integers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AddArgs {
    a: i64,
    b: i64,
}

pub(crate) struct Add;

impl Tool for Add {
    const NAME: &'static str = "math.add";
    type Args = AddArgs;
    type Output = i64;

    async fn call(&self, _: &ToolContext, args: AddArgs) -> Result<i64, ToolError> {
        Ok(args.a + args.b)
    }
}

/// A tool of a name, which gives its name back.
pub(crate) struct Named(Arc<ToolSpec>);

impl Named {
    pub(crate) fn tool(name: &'static str, exposure: Exposure, deferred: bool) -> Arc<dyn DynTool> {
        let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let (name, description) = (name.into(), String::new());
        Arc::new(Self(Arc::new(ToolSpec { name, description, exposure, deferred, parameters, output: None })))
    }

    pub(crate) fn plain(name: &'static str) -> Arc<dyn DynTool> {
        Self::tool(name, Exposure::Auto, false)
    }
}

impl DynTool for Named {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        let text = args.get("command").map_or_else(|| self.0.name.to_string(), |it| format!("ran {it}"));
        Box::pin(std::future::ready(Ok(ToolReply::text(text))))
    }
}

/// A builder with a scripted model and a clock that stands still.
pub(crate) fn agent(scripts: impl IntoIterator<Item = Script>) -> (AgentBuilder, Arc<ScriptedModel>) {
    let model = Arc::new(ScriptedModel::new(scripts));
    let builder = Agent::builder()
        .model_client("fake:m", model.clone())
        .clock(Arc::new(FixedClock::default()))
        .command_prefix(",");
    (builder, model)
}

/// The messages of the `idx`-th request, a line each.
pub(crate) fn sent(model: &ScriptedModel, idx: usize) -> Vec<String> {
    model.requests()[idx].messages.iter().map(|it| format!("{}: {}", it.role.as_str(), it.joined_text())).collect()
}

pub(crate) async fn lines(tape: &Tape) -> String {
    tape_lines(&tape.read(&TapeQuery::default()).await.unwrap())
}

pub(crate) async fn events(agent: &Agent, run: impl Into<Run>) -> Vec<TurnEvent> {
    let mut stream = agent.run(run);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    events
}

struct Broken;

impl Plugin for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn register(&self, _: &mut Registry) -> Result<(), PluginError> {
        Err(PluginError::new("broken", "no reason"))
    }
}

#[test]
fn what_cannot_work_is_said_when_the_agent_is_built() {
    fn check(change: impl FnOnce(AgentBuilder) -> AgentBuilder, expected: &str) {
        assert_eq!(change(Agent::builder()).build().unwrap_err().to_string(), expected);
    }
    let prefix = "command_prefix must be non-empty and contain no whitespace";
    check(|it| it.command_prefix(""), prefix);
    check(|it| it.command_prefix(", "), prefix);
    check(|it| it.max_steps(0), "max_steps must be a positive number; leave it out for no limit");
    check(|it| it.max_tool_concurrency(0), "max_tool_concurrency must be a positive number; leave it out for no limit");
    check(|it| it.name(" "), "an agent needs a name that is not empty");
    check(|it| it.model("gpt-4"), "Expected a provider:model identifier, got 'gpt-4'");
    check(|it| it.tool(Add).tool(Add), "two tools are named 'math.add': give each a name of its own");
    check(
        |it| it.tool(Add).dyn_tool(Named::plain("math_add")),
        "the tools 'math.add' and 'math_add' would have the same name for the model: rename one",
    );
    check(|it| it.dyn_tool(Named::plain("")), "[invalid_input] a tool needs a name");
    check(|it| it.plugin(Broken), "plugin 'broken' did not load: no reason");
    // The first thing that was wrong is the one that is told.
    check(|it| it.plugin(Broken).max_steps(0), "plugin 'broken' did not load: no reason");
    assert!(Agent::builder().command_prefix("::").max_steps(1).build().is_ok());
}

#[tokio::test]
async fn a_command_calls_a_tool_without_a_model() {
    let agent = Agent::builder().tool(Add).command_prefix(",").clock(Arc::new(FixedClock::default())).build().unwrap();
    let told = events(&agent, Run::new(",math.add a=2 b=3").tape("calculator")).await;
    assert_eq!(told, [TurnEvent::Text("5".into()), TurnEvent::Final { text: "5".into(), ok: true }]);
    assert_eq!(agent.ask(Run::new("  , math.add 20 b=3 ").tape("calculator")).await.unwrap(), "23");
    expect![[r#"
        1 anchor {"name": "session/start", "state": {"owner": "human"}}
        2 event {"name": "handoff", "data": {"name": "session/start", "state": {"owner": "human"}}}
        3 event {"name": "command", "data": {"raw": "math.add a=2 b=3", "name": "math.add", "status": "ok", "output": "5"}}
        4 event {"name": "command", "data": {"raw": "math.add 20 b=3", "name": "math.add", "status": "ok", "output": "23"}}
    "#]]
    .assert_eq(&lines(&agent.tape("calculator")).await);
}

#[tokio::test]
async fn lines_that_name_no_tool_go_to_bash_if_there_is_one() {
    let (builder, _) = agent([]);
    let without = builder.tool(Add).build().unwrap();
    for (line, expected) in [
        (",frobnicate 1 2", "bash tool is not available, and no tool is named 'frobnicate'"),
        (",math.ad 1 2", "bash tool is not available, and no tool is named 'math.ad'; did you mean math.add?"),
        (",math_add 1 2", "bash tool is not available, and no tool is named 'math_add'; did you mean math.add?"),
        (",", "empty command"),
        (",math.add 'x", "No closing quotation"),
    ] {
        assert_eq!(without.ask(Run::new(line).tape("t")).await.unwrap_err().to_string(), expected, "{line}");
    }
    assert_eq!(lines(&without.tape("t")).await, "", "nothing was run, so nothing is recorded");

    let err = without.ask(",math.add a=2 b=x").await.unwrap_err();
    assert!(matches!(&err, TurnError::Command { name, .. } if name == "math.add"), "{err}");

    let (builder, _) = agent([]);
    let with = builder.dyn_tool(Named::plain("bash")).build().unwrap();
    assert_eq!(with.ask(",echo it's").await.unwrap(), "ran \"echo it's\"");

    let shells = bub::tools::bash::Shells::new(bub::tools::bash::ShellSettings::default());
    let (builder, _) = agent([]);
    let real = builder.tool(bub::tools::bash::Bash::new(shells)).build().unwrap();
    assert_eq!(real.ask(",echo it is").await.unwrap().trim(), "it is");
    real.close().await;
}

#[tokio::test]
async fn without_a_prefix_there_are_no_commands() {
    let model = Arc::new(ScriptedModel::new([Script::text("no")]));
    let agent = Agent::builder().model_client("fake:m", model).tool(Add).build().unwrap();
    assert_eq!(agent.ask(",math.add a=2 b=3").await.unwrap(), "no");
}

#[tokio::test]
async fn a_named_tape_remembers_and_others_know_nothing_of_it() {
    let texts = ["a", "b", "c", "d", "e"].map(Script::text);
    let (builder, model) = agent(texts);
    let agent = builder.build().unwrap();
    agent.ask(Run::new("one").tape("x")).await.unwrap();
    agent.ask(Run::new("two").tape("x")).await.unwrap();
    assert_eq!(sent(&model, 1), ["user: one", "assistant: a", "user: two"]);
    agent.ask(Run::new("three").tape("y")).await.unwrap();
    assert_eq!(sent(&model, 2), ["user: three"]);
    // A run that names no tape leaves nothing, and one that is not merged neither.
    agent.ask("four").await.unwrap();
    assert_eq!(sent(&model, 3), ["user: four"]);
    let before = lines(&agent.tape("x")).await;
    agent.ask(Run::new("five").tape("x").merge_back(false)).await.unwrap();
    assert_eq!(sent(&model, 4), ["user: one", "assistant: a", "user: two", "assistant: b", "user: five"]);
    assert_eq!(lines(&agent.tape("x")).await, before);
}

#[tokio::test]
async fn names_that_files_cannot_have_are_still_apart() {
    let (builder, _) = agent([Script::text("a"), Script::text("b")]);
    let agent = builder.build().unwrap();
    agent.ask(Run::new("of 42").tape("user/42")).await.unwrap();
    agent.ask(Run::new("of 42 too").tape("user:42")).await.unwrap();
    assert!(!lines(&agent.tape("user/42")).await.contains("too"));
    assert!(lines(&agent.tape("user:42")).await.contains("too"));
}

#[tokio::test]
async fn a_session_is_merged_as_a_whole_or_not_at_all() {
    let (builder, model) = agent(["a", "b", "c"].map(Script::text));
    let agent = builder.sidecar("extra").build().unwrap();
    let fork = agent.session("s");
    agent.ask(Run::new("one").on(fork.tape())).await.unwrap();
    agent.ask(Run::new("two").on(fork.tape())).await.unwrap();
    assert_eq!(sent(&model, 1), ["user: one", "assistant: a", "user: two"]);
    assert_eq!(lines(&agent.tape("s")).await, "");
    fork.tape().sidecar("extra").unwrap().append_event("note", json!(1)).await.unwrap();
    fork.commit().await.unwrap();
    assert!(lines(&agent.tape("s")).await.contains(r#""content": "b""#));
    assert!(lines(&agent.tape("s").sidecar("extra").unwrap()).await.contains("note"));

    let thrown_away = agent.session("s");
    agent.ask(Run::new("three").on(thrown_away.tape())).await.unwrap();
    drop(thrown_away);
    assert!(!lines(&agent.tape("s")).await.contains("three"));
}

#[tokio::test]
async fn two_runs_on_one_tape_are_each_merged_in_one_piece() {
    let slow = |text: &str| Script::text(text).delay(Duration::from_millis(20));
    let (builder, model) = agent([slow("first"), slow("second")]);
    let agent = builder.build().unwrap();
    let (one, two) = tokio::join!(
        agent.ask(Run::new("one").tape("t").metadata("n", 1)),
        agent.ask(Run::new("two").tape("t").metadata("n", 2))
    );
    assert_ne!(one.unwrap(), two.unwrap());
    assert!(model.requests().iter().all(|it| it.messages.len() == 1), "neither saw the other");
    let entries = agent.tape("t").read(&TapeQuery::default()).await.unwrap();
    let names: Vec<_> = entries.iter().filter_map(|it| it.name()).filter(|it| it.starts_with("loop.")).collect();
    let whole = ["loop.start", "loop.step.start", "loop.step", "loop.finish"];
    assert_eq!(names, [whole, whole].concat());
    let ids: Vec<_> = entries.iter().map(|it| it.id).collect();
    assert_eq!(ids, (1..=entries.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_empty_prompt_opens_no_tape() {
    let (builder, model) = agent([]);
    let agent = builder.build().unwrap();
    for prompt in ["", "  \n"] {
        let told = events(&agent, Run::new(prompt).tape("t")).await;
        let text = "error: empty prompt".to_owned();
        assert_eq!(told[..2], [TurnEvent::Text(text.clone()), TurnEvent::Final { text, ok: false }]);
        assert!(matches!(agent.ask(Run::new(prompt).tape("t")).await, Err(TurnError::EmptyPrompt)));
    }
    assert_eq!((lines(&agent.tape("t")).await.as_str(), model.requests().len()), ("", 0));
}

#[tokio::test]
async fn a_model_that_is_missing_is_asked_for() {
    let nothing = Agent::builder().build().unwrap();
    let err = nothing.ask("hi").await.unwrap_err();
    assert_eq!(err.to_string(), "no model to run: pass model to the run or to the agent");
    let err = nothing.ask(Run::new("hi").model("openai:gpt")).await.unwrap_err();
    let expected = "unknown model provider 'openai': known are none; others are given to the agent's builder";
    assert_eq!(err.to_string(), expected);
    let err = nothing.ask(Run::new("hi").model("gpt")).await.unwrap_err();
    assert_eq!(err.to_string(), "Expected a provider:model identifier, got 'gpt'");
}

#[tokio::test]
async fn a_run_says_which_model_how_and_why() {
    let (builder, model) = agent(["a", "b", "c"].map(Script::text));
    let other = Arc::new(ScriptedModel::new([Script::text("other")]).named("other"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let agent = builder
        .provider(other.clone())
        .options(ModelOptions { max_tokens: Some(100), temperature: Some(0.5), ..ModelOptions::default() })
        .on_sync(move |event: &mut bub_kernel::event::RunStarted| {
            log.lock().unwrap().push((event.model.clone(), Value::Object(event.metadata.clone())));
            Ok(())
        })
        .build()
        .unwrap();
    let options = ModelOptions { max_tokens: Some(7), reasoning_effort: Some("low".into()), ..ModelOptions::default() };
    agent.ask(Run::new("x").options(options)).await.unwrap();
    let sent = &model.requests()[0].options;
    assert_eq!((sent.max_tokens, sent.temperature), (Some(7), Some(0.5)));
    assert_eq!(sent.reasoning_effort.as_deref(), Some("low"));
    agent.ask(Run::new("x").model("fake:big")).await.unwrap();
    assert_eq!((model.requests()[1].model.as_str(), model.requests()[1].options.max_tokens), ("big", Some(100)));
    let run = Run::new("x").model("other:m").tape("t").metadata("user", 7).metadata("model", "a lie");
    assert_eq!(agent.ask(run).await.unwrap(), "other");
    assert!(
        lines(&agent.tape("t"))
            .await
            .contains(r#"{"name": "loop.start", "data": {"model": "other:m", "prompt": "x", "user": 7}}"#)
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[1], ("fake:big".to_owned(), json!({})));
    assert_eq!(seen[2].1["user"], 7);
    assert_eq!(other.asked(), ["m"]);
}

#[tokio::test]
async fn other_models_stand_in_and_the_providers_own_tools_go_along() {
    let refused = || Script::error(ModelError::Auth("no".into()));
    let (builder, model) = agent([refused(), Script::text("b"), refused()]);
    let agent = builder
        .provider_tool(ProviderTool::WebSearch)
        .options(ModelOptions { provider_tools: vec![ProviderTool::WebFetch], ..ModelOptions::default() })
        .fallback_model("fake:spare")
        .build()
        .unwrap();
    assert_eq!(agent.ask("x").await.unwrap(), "b");
    let asked: Vec<_> = model.requests().iter().map(|it| it.model.clone()).collect();
    assert_eq!(asked, ["m", "spare"]);
    let tools = model.requests()[0].options.provider_tools.clone();
    assert_eq!(tools, [ProviderTool::WebSearch, ProviderTool::WebFetch]);
    assert!(agent.ask(Run::new("x").model("fake:own")).await.is_err(), "nothing stands in for a run's own choice");
}

#[tokio::test]
async fn what_a_run_carries_is_found_by_its_type() {
    struct Wanted(&'static str);
    struct Needs;

    /// Says what the run carries.
    #[derive(Deserialize, JsonSchema)]
    struct NeedsArgs {}

    impl Tool for Needs {
        const NAME: &'static str = "needs";
        type Args = NeedsArgs;
        type Output = String;

        async fn call(&self, ctx: &ToolContext, _: NeedsArgs) -> Result<String, ToolError> {
            Ok(ctx.state.require_slot::<Wanted>()?.0.to_owned())
        }
    }

    let (builder, _) = agent([]);
    let agent = builder.tool(Needs).build().unwrap();
    assert_eq!(agent.ask(Run::new(",needs").slot(Wanted("it"))).await.unwrap(), "it");
    assert_eq!(agent.ask(Run::new(",needs").slot(5_u8).slot(Wanted("it"))).await.unwrap(), "it");
    let mut state = TurnState::default();
    state.set_slot("a text where something else is wanted");
    assert_eq!((state.slot::<Wanted>().is_none(), state.slot::<&str>().is_some()), (true, true));
    let err = agent.ask(Run::new(",needs").state(state)).await.unwrap_err().to_string();
    assert!(err.contains("this turn carries no ") && err.contains("Wanted: whoever starts it"), "{err}");
}

#[tokio::test]
async fn a_waiting_message_is_taken_by_the_next_step() {
    let call = Script::calls([("c", "math_add", json!({"a": 1, "b": 2}))]);
    let (builder, model) = agent([call, Script::text("ok")]);
    let agent = builder.tool(Add).build().unwrap();
    agent.steer("t", "and hurry").unwrap();
    agent.ask(Run::new("add").tape("t")).await.unwrap();
    assert_eq!(sent(&model, 0), ["user: and hurry", "user: add"]);
    assert_eq!(sent(&model, 1), ["user: and hurry", "user: add", "assistant: ", "tool: 3"]);
}

#[tokio::test]
async fn limits_hold() {
    let calls = || Script::calls([("a", "math_add", json!({"a": 1, "b": 2}))]);
    let (builder, _) = agent([calls(), calls(), calls()]);
    let agent = builder.tool(Add).max_steps(2).build().unwrap();
    let err = agent.ask("go").await.unwrap_err();
    assert_eq!(err.to_string(), "max_steps_reached=2");
    let (builder, _) = self::agent([Script::pending()]);
    let slow = builder.model_timeout(Duration::from_millis(30)).build().unwrap();
    let err = slow.ask("go").await.unwrap_err();
    assert!(matches!(&err, TurnError::Model(ModelError::Timeout(_))), "{err}");
}

#[test]
fn outside_of_tokio_a_run_ends_with_a_sentence() {
    let (builder, _) = agent([Script::text("x")]);
    let agent = builder.build().unwrap();
    let done = agent.run("hi").result().now_or_never().unwrap();
    assert_eq!(done.unwrap_err().to_string(), "turns run on tokio: start them inside a tokio runtime");
}

#[tokio::test]
async fn without_a_workspace_files_need_absolute_paths() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    std::fs::write(&path, "here").unwrap();
    let (builder, _) = agent([]);
    let agent = builder.tool(bub::tools::fs::FsRead).build().unwrap();
    assert_eq!(agent.ask(format!(",fs.read path={}", path.display())).await.unwrap(), "here");
    let err = agent.ask(",fs.read path=a.txt").await.unwrap_err().to_string();
    assert!(err.contains("relative path 'a.txt' is not allowed without a workspace"), "{err}");

    let options = bub::host::LocalOptions { workspace: Some(dir.path().to_owned()), ..Default::default() };
    let local = bub::host::LocalEnvironment::new(options).unwrap();
    let (builder, _) = self::agent([]);
    let agent = builder.tool(bub::tools::fs::FsRead).environment(Arc::new(local)).build().unwrap();
    assert_eq!(agent.ask(",fs.read path=a.txt").await.unwrap(), "here");
}
