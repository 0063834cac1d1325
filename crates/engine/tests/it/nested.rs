//! Turns inside turns, and turns that get nowhere.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bub_engine::{EngineSettings, Runtime, RuntimeParts};
use bub_kernel::{
    clock::FixedClock,
    event::EventBus,
    hooks::Hooks,
    plugin::Registry,
    secret::SecretMask,
    tape::{MemoryStore, Tape},
    tool::prelude::*,
    turn::{Prompt, SessionId, TurnEvent, TurnRequest, TurnState},
};
use bub_testing::{NoEnvironment, Script, ScriptedModel};
use serde_json::json;

use crate::bench::{Bench, Setup, inbound};

/// Asks another turn.
#[derive(Deserialize, JsonSchema)]
struct NestArgs {
    prompt: String,
    session: String,
}

struct Nest;

impl Tool for Nest {
    const NAME: &'static str = "nest";
    type Args = NestArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: NestArgs) -> Result<String, ToolError> {
        let request = TurnRequest {
            session: SessionId(args.session),
            prompt: Prompt::Text(args.prompt),
            model: None,
            reasoning_effort: None,
            allowed_tools: None,
            allowed_skills: None,
        };
        let done = ctx.host.run_turn(ctx, request).await;
        done.map(|it| it.text).map_err(|err| ToolError::raised("RuntimeError", err.to_string()))
    }
}

/// Notes how turns begin; each leaves its prompt in a slot of its own.
#[derive(Clone, Default)]
struct Begins(Arc<Mutex<Vec<String>>>);

struct Own(String);

#[async_trait]
impl Hooks for Begins {
    fn name(&self) -> &str {
        "begins"
    }

    fn implements(&self) -> &[&'static str] {
        &["begin_turn", "system_prompt"]
    }

    async fn begin_turn(&self, state: &mut TurnState, prompt: &Prompt, tape: &Tape) {
        let text = prompt.as_text().unwrap_or_default().rsplit("---\n").next().unwrap_or_default().to_owned();
        let stats = tape.stats().await.unwrap();
        self.0.lock().unwrap().push(format!("{text} {:?} anchors={}", state.model, stats.anchors));
        state.set_slot(Own(text));
    }

    async fn system_prompt(&self, state: &TurnState) -> Option<String> {
        state.slot::<Own>().map(|it| format!("about {}", it.0))
    }
}

fn runtime(scripts: impl IntoIterator<Item = Script>, hooks: Begins) -> (Runtime, Arc<ScriptedModel>) {
    let model = Arc::new(ScriptedModel::new(scripts));
    let mut registry = Registry::default();
    registry.tool(Nest).models(model.clone()).hooks(hooks);
    let runtime = Runtime::new(RuntimeParts {
        registry,
        settings: EngineSettings {
            model: Some("fake:m".into()),
            command_prefix: Some(",".into()),
            ..EngineSettings::default()
        },
        store: Arc::new(MemoryStore::default()),
        environment: Arc::new(NoEnvironment),
        workspace: "/ws".into(),
        clock: Arc::new(FixedClock::default()),
        events: EventBus::default(),
        mask: SecretMask::new(["sk-secret-12345"]),
        locks: None,
    });
    (runtime, model)
}

fn nest(prompt: &str, session: &str) -> Script {
    Script::calls([("c1", "nest", json!({"prompt": prompt, "session": session}))])
}

#[tokio::test]
async fn a_nested_turn_begins_with_its_own_prompt_and_slots_and_reports_in_lines() {
    let begins = Begins::default();
    let (runtime, model) = runtime(
        [
            nest("inner", "other"),
            Script::calls([("x", "no_such", json!({"key": "sk-secret-12345"}))]),
            Script::text("two\nlines"),
            Script::text("done"),
        ],
        begins.clone(),
    );
    let mut stream = runtime.turn(inbound("outer"), bub_engine::TurnOptions::default());
    let mut lines = Vec::new();
    while let Some(event) = stream.next().await {
        if let TurnEvent::ToolProgress { call, text } = event {
            lines.push(format!("{call} {text}"));
        }
    }
    assert_eq!(lines, ["c1 other: no_such({\"key\":\"***\"})\n", "c1 other: two lines\n"]);
    assert_eq!(*begins.0.lock().unwrap(), ["outer Some(\"fake:m\") anchors=1", "inner Some(\"fake:m\") anchors=1"]);
    let systems: Vec<_> = model.requests().iter().map(|it| it.system.clone().unwrap()).collect();
    assert_eq!(systems, ["about outer", "about inner", "about inner", "about outer"]);
}

#[tokio::test]
async fn turns_nest_eight_deep() {
    let scripts = (0..9).map(|idx| nest("deeper", &format!("d{idx}"))).chain((0..9).map(|_| Script::text("up")));
    let (runtime, model) = runtime(scripts, Begins::default());
    let result = runtime.turn(inbound("go"), bub_engine::TurnOptions::default()).result().await.unwrap();
    assert_eq!(result.answer, "up");
    assert_eq!(model.left(), 0);
    let deepest = &model.requests()[9];
    assert!(deepest.messages.last().unwrap().joined_text().contains("turns are nested more than 8 deep"));
}

#[tokio::test]
async fn the_same_failure_again_and_again_ends_the_turn() {
    let fail = |how: &str| Script::calls([("c", "fail", json!({"how": how}))]);
    let bench = Bench::new((0..19).map(|_| fail("raise")).chain([Script::text("gave up")]));
    assert_eq!(bench.say("nineteen times").await.unwrap().steps, 20);

    let bench = Bench::new((0..25).map(|_| fail("raise")));
    let err = bench.say("for ever").await.unwrap_err();
    assert_eq!(err.to_string(), "the model repeated the same failing calls 20 times");
    assert_eq!(bench.model.left(), 5);
    assert!(bench.tape().await.contains("\"loop.finish\", \"data\": {\"status\": \"error\", \"steps\": 20"));

    // What succeeds may be asked as often as one likes, and so may what fails in other ways.
    let echo = || Script::calls([("c", "say_echo", json!({"text": "x"}))]);
    let mixed = (0..30).map(|idx| if idx % 2 == 0 { fail("raise") } else { fail("gone") });
    let bench = Setup::default().start((0..30).map(|_| echo()).chain(mixed).chain([Script::text("ok")]));
    assert_eq!(bench.say("go").await.unwrap().answer, "ok");
}
