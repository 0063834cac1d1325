//! A runtime over a scripted model, with code mode and a few tools.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bub_code::{Runners, SessionCodeMode};
use bub_engine::{EngineSettings, Runtime, RuntimeParts, TurnOptions};
use bub_kernel::{
    clock::FixedClock,
    environment::Environment,
    event::EventBus,
    hooks::Hooks,
    plugin::{Plugin, Registry},
    secret::SecretMask,
    tape::{MemoryStore, TapeQuery},
    tool::prelude::*,
    turn::{SessionId, TurnError, TurnEvent, TurnResult},
};
pub(crate) use bub_testing::inbound;
use bub_testing::{NoEnvironment, Script, ScriptedModel};
use serde_json::{Value, json};

use crate::scripted::Scripted;

/// Says its text again.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EchoArgs {
    /// What to say.
    text: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Echoed {
    said: String,
}

pub(crate) struct Echo;

impl Tool for Echo {
    const NAME: &'static str = "say.echo";
    type Args = EchoArgs;
    type Output = Echoed;

    async fn call(&self, ctx: &ToolContext, args: EchoArgs) -> Result<Echoed, ToolError> {
        if args.text == "who" {
            return Ok(Echoed { said: format!("{:?} {}", ctx.caller, ctx.call) });
        }
        Ok(Echoed { said: args.text })
    }

    fn render(&self, output: &Echoed) -> Option<String> {
        Some(format!("rendered: {}", output.said))
    }
}

/// Fails.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FailArgs {
    how: String,
}

pub(crate) struct Fail;

impl Tool for Fail {
    const NAME: &'static str = "fail";
    type Args = FailArgs;
    type Output = String;

    async fn call(&self, _: &ToolContext, args: FailArgs) -> Result<String, ToolError> {
        Err(match args.how.as_str() {
            "raise" => ToolError::raised("KeyError", "no such key: sk-secret-12345"),
            _ => ToolError::not_found("nothing there"),
        })
    }
}

/// A tool of one exposure that says its name, and counts how many of its calls run at once.
pub(crate) struct Named {
    spec: Arc<bub_kernel::tool::ToolSpec>,
    running: AtomicUsize,
    pub(crate) most: Arc<AtomicUsize>,
}

impl Named {
    pub(crate) fn new(name: &'static str, exposure: Exposure, deferred: bool) -> Self {
        let spec = bub_kernel::tool::ToolSpec {
            name: name.into(),
            description: format!("Says {name}."),
            exposure,
            deferred,
            parameters: json!({"type": "object", "properties": {}}),
            output: Some(json!({"type": "string"}).into()),
        };
        Self { spec: Arc::new(spec), running: AtomicUsize::new(0), most: Arc::default() }
    }
}

impl bub_kernel::tool::DynTool for Named {
    fn spec(&self) -> &Arc<bub_kernel::tool::ToolSpec> {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolContext,
        _: Value,
    ) -> futures::future::BoxFuture<'a, Result<bub_kernel::tool::ToolReply, ToolError>> {
        Box::pin(async {
            let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ok(bub_kernel::tool::ToolReply::text(self.spec.name.clone()))
        })
    }
}

/// How a bench differs from the default.
pub(crate) struct Setup {
    pub(crate) events: EventBus,
    pub(crate) hooks: Vec<Arc<dyn Hooks>>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) runners: Arc<dyn Runners>,
    /// Instead of the session's code mode and all other tools.
    pub(crate) plugin: Option<Box<dyn Plugin>>,
    pub(crate) max_running: usize,
    pub(crate) stubs: Option<std::path::PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            events: EventBus::default(),
            hooks: Vec::new(),
            environment: Arc::new(NoEnvironment),
            runners: Arc::new(Scripted),
            plugin: None,
            max_running: 8,
            stubs: None,
        }
    }
}

pub(crate) struct Bench {
    pub(crate) runtime: Runtime,
    pub(crate) model: Arc<ScriptedModel>,
    /// The most calls of `slow` that ran at once.
    pub(crate) most: Arc<AtomicUsize>,
}

impl Setup {
    pub(crate) fn start(self, scripts: impl IntoIterator<Item = Script>) -> Bench {
        let model = Arc::new(ScriptedModel::new(scripts));
        let mut registry = Registry::default();
        let slow = Named::new("slow", Exposure::Auto, false);
        let most = slow.most.clone();
        match self.plugin {
            Some(plugin) => registry.load(&*plugin).unwrap(),
            None => {
                let stubs = self.stubs;
                let code = SessionCodeMode::new(self.runners).max_running_calls(self.max_running);
                let code = match stubs {
                    Some(folder) => code.stub_folder(move |_| Some(folder.clone())),
                    None => code,
                };
                registry.load(&code).unwrap();
                registry
                    .dyn_tool(Arc::new(Named::new("fs.read", Exposure::Direct, false)))
                    .tool(Echo)
                    .tool(Fail)
                    .dyn_tool(Arc::new(slow))
                    .dyn_tool(Arc::new(Named::new("later", Exposure::Auto, true)))
                    .dyn_tool(Arc::new(Named::new("hidden.one", Exposure::Code, false)))
                    .dyn_tool(Arc::new(Named::new("person", Exposure::Command, false)));
            }
        }
        registry.models(model.clone());
        registry.hooks.extend(self.hooks);
        let runtime = Runtime::new(RuntimeParts {
            registry,
            settings: EngineSettings {
                command_prefix: Some(",".into()),
                model: Some("fake:m".into()),
                ..EngineSettings::default()
            },
            store: Arc::new(MemoryStore::default()),
            environment: self.environment,
            workspace: "/ws".into(),
            clock: Arc::new(FixedClock::default()),
            events: self.events,
            mask: SecretMask::new(["sk-secret-12345"]),
            locks: None,
        });
        Bench { runtime, model, most }
    }
}

/// A model's answer that runs code.
pub(crate) fn runs(code: &str) -> Script {
    Script::calls([("c1", "run_code", json!({"code": code}))])
}

impl Bench {
    pub(crate) fn new(scripts: impl IntoIterator<Item = Script>) -> Self {
        Setup::default().start(scripts)
    }

    pub(crate) async fn say(&self, text: &str) -> Result<TurnResult, TurnError> {
        self.say_with(text, TurnOptions::default()).await
    }

    pub(crate) async fn say_with(&self, text: &str, options: TurnOptions) -> Result<TurnResult, TurnError> {
        self.runtime.turn(inbound(text), options).result().await
    }

    /// Says something and returns all events.
    pub(crate) async fn watch(&self, text: &str) -> Vec<TurnEvent> {
        let mut stream = self.runtime.turn(inbound(text), TurnOptions::default());
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event);
        }
        events
    }

    /// Runs code as a person does.
    pub(crate) async fn command(&self, code: &str) -> Result<String, ToolError> {
        self.command_with(code, TurnOptions::default()).await
    }

    pub(crate) async fn command_with(&self, code: &str, options: TurnOptions) -> Result<String, ToolError> {
        assert!(!code.contains('\''));
        match self.say_with(&format!(",run_code code='{code}'"), options).await {
            Ok(result) => Ok(result.answer),
            Err(TurnError::Command { error, .. }) => Err(error),
            Err(err) => panic!("{err}"),
        }
    }

    /// Turns code mode on, plays the scripts of the bench, and returns the newest recorded results.
    pub(crate) async fn in_code_mode(&self) -> Vec<Value> {
        self.say(",code_mode enable=true").await.unwrap();
        drop(self.say("go").await);
        self.results().await
    }

    /// The newest recorded results.
    pub(crate) async fn results(&self) -> Vec<Value> {
        let entries = self.runtime.tape(&SessionId("s".into())).read(&TapeQuery::default()).await.unwrap();
        let newest = entries.iter().rev().find_map(|it| it.payload.get("results")?.as_array().cloned());
        newest.unwrap_or_default()
    }

    /// Names of the tools of the `idx`-th request.
    pub(crate) fn offered(&self, idx: usize) -> Vec<String> {
        self.model.requests()[idx].tools.iter().map(|it| it.name.to_string()).collect()
    }

    pub(crate) fn system(&self, idx: usize) -> String {
        self.model.requests()[idx].system.clone().unwrap_or_default()
    }
}
