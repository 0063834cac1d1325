//! A runtime over a scripted model, a tape in memory and a few tools.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bub_engine::{EngineSettings, Runtime, RuntimeParts, TurnOptions};
use bub_kernel::{
    clock::FixedClock,
    event::EventBus,
    hooks::Hooks,
    plugin::Registry,
    secret::SecretMask,
    tape::{MemoryStore, TapeQuery},
    tool::{DynTool, prelude::*},
    turn::{SessionId, TurnError, TurnEvent, TurnResult},
};
pub(crate) use bub_testing::inbound;
use bub_testing::{NoEnvironment, Script, ScriptedModel, tape_lines};

/// Says its text again.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EchoArgs {
    /// What to say.
    text: String,
    /// How often.
    #[serde(default = "once")]
    times: usize,
}

fn once() -> usize {
    1
}

/// Text said again.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Echoed {
    said: String,
}

pub(crate) struct Echo;

impl Tool for Echo {
    const NAME: &'static str = "say.echo";
    type Args = EchoArgs;
    type Output = Echoed;

    async fn call(&self, _: &ToolContext, args: EchoArgs) -> Result<Echoed, ToolError> {
        Ok(Echoed { said: args.text.repeat(args.times) })
    }

    fn render(&self, output: &Echoed) -> Option<String> {
        Some(format!("said: {}", output.said))
    }
}

/// Fails as told.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FailArgs {
    how: String,
}

pub(crate) struct Fail;

impl Tool for Fail {
    const NAME: &'static str = "fail";
    type Args = FailArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: FailArgs) -> Result<String, ToolError> {
        match args.how.as_str() {
            "panic" => panic!("boom"),
            "raise" => Err(ToolError::raised("RuntimeError", "it broke: sk-secret-12345")),
            "event" => {
                ctx.tape
                    .append_event("note", serde_json::json!({"x": 1}))
                    .await
                    .map_err(|err| ToolError::invalid(err.to_string()))?;
                Ok("noted".into())
            }
            _ => Err(ToolError::not_found("nothing there")),
        }
    }
}

/// Sleeps.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SleepArgs {
    ms: u64,
}

/// Counts how many of its calls run at once, and the most of them so far.
#[derive(Clone, Default)]
pub(crate) struct Sleep {
    running: Arc<AtomicUsize>,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Tool for Sleep {
    const NAME: &'static str = "sleep";
    type Args = SleepArgs;
    type Output = String;

    async fn call(&self, _: &ToolContext, args: SleepArgs) -> Result<String, ToolError> {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(args.ms)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(format!("slept {}", args.ms))
    }
}

/// Ends the conversation so far.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CutArgs {}

pub(crate) struct Cut;

impl Tool for Cut {
    const NAME: &'static str = "cut";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = CutArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, _: CutArgs) -> Result<String, ToolError> {
        ctx.tape.handoff("cut", serde_json::json!({})).await.map_err(|err| ToolError::invalid(err.to_string()))?;
        Ok("cut".into())
    }
}

/// Stops everything else of the session.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LeaveArgs {}

pub(crate) struct Leave;

impl Tool for Leave {
    const NAME: &'static str = "leave";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = LeaveArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, _: LeaveArgs) -> Result<String, ToolError> {
        ctx.host.quit(ctx).await;
        Ok("left".into())
    }
}

pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) model: Arc<ScriptedModel>,
    /// The most calls of `sleep` that ran at once.
    pub(crate) most: Arc<AtomicUsize>,
}

/// How a bench differs from the default.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) settings: EngineSettings,
    pub(crate) events: EventBus,
    pub(crate) hooks: Vec<Arc<dyn Hooks>>,
    /// Tools besides those of the bench.
    pub(crate) tools: Vec<Arc<dyn DynTool>>,
}

impl Setup {
    pub(crate) fn start(self, scripts: impl IntoIterator<Item = Script>) -> Bench {
        let model = Arc::new(ScriptedModel::new(scripts));
        let mut registry = Registry::default();
        let sleep = Sleep::default();
        let most = sleep.most.clone();
        registry.tool(Echo).tool(Fail).tool(sleep).tool(Cut).tool(Leave).models(model.clone());
        for tool in self.tools {
            registry.tool(tool);
        }
        registry.hooks = self.hooks;
        let runtime = Runtime::new(RuntimeParts {
            registry,
            settings: EngineSettings {
                command_prefix: Some(",".into()),
                model: self.settings.model.or_else(|| Some("fake:m".into())),
                ..self.settings
            },
            store: Arc::new(MemoryStore::default()),
            environment: Arc::new(NoEnvironment),
            workspace: "/ws".into(),
            clock: Arc::new(FixedClock::default()),
            events: self.events,
            mask: SecretMask::new(["sk-secret-12345"]),
            locks: None,
        });
        Bench { runtime, model, most }
    }
}

impl Bench {
    pub(crate) fn new(scripts: impl IntoIterator<Item = Script>) -> Self {
        Setup::default().start(scripts)
    }

    pub(crate) async fn say(&self, text: &str) -> Result<TurnResult, TurnError> {
        self.runtime.turn(inbound(text), TurnOptions::default()).result().await
    }

    /// Says something and returns all events as text.
    pub(crate) async fn watch(&self, text: &str) -> Vec<TurnEvent> {
        let mut stream = self.runtime.turn(inbound(text), TurnOptions::default());
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event);
        }
        events
    }

    /// The whole tape, a line per entry, headers of messages cut off.
    pub(crate) async fn tape(&self) -> String {
        let entries = self.runtime.tape(&SessionId("s".into())).read(&TapeQuery::default()).await.unwrap();
        tape_lines(&entries)
            .replace("channel=$cli|chat_id=local\\n---Date: 2026-01-02T03:04:05+00:00---\\n", "<header>")
    }

    /// The messages of the `idx`-th request, a line each.
    pub(crate) fn sent(&self, idx: usize) -> Vec<String> {
        self.model.requests()[idx]
            .messages
            .iter()
            .map(|it| {
                let text = it.joined_text();
                let text = text.rsplit("---\n").next().unwrap_or_default();
                let calls: String = it.tool_calls.iter().map(|call| format!(" +{}", call.id)).collect();
                format!("{}: {text}{calls}", it.role.as_str())
            })
            .collect()
    }
}
