//! Putting an agent together.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use bub_engine::{EngineSettings, Runtime, RuntimeParts, SessionLocks, TapeNaming, check_prefix};
use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    clock::{self, Clock},
    environment::{Environment, EnvironmentError},
    error::ToolError,
    event::{Event, EventBus, HandlerError},
    hooks::Hooks,
    model::{ModelClient, ModelError, ModelOptions, ModelProvider, ModelSpec, ProviderTool},
    plugin::{ContextBuilder, Plugin, PluginError, Registry},
    secret::SecretMask,
    steps::{EveryTool, PromptSection, StepPolicy},
    tape::{MemoryStore, TapeStore},
    tool::{DynTool, IntoTool},
};
use futures::future::BoxFuture;

use super::Agent;

/// Why an agent can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name is empty.
    #[error("an agent needs a name that is not empty")]
    NoName,
    /// What commands are to start with will not do.
    #[error("{0}")]
    CommandPrefix(String),
    /// A limit of zero.
    #[error("{limit} must be a positive number; leave it out for no limit")]
    Limit {
        /// Which limit.
        limit: &'static str,
    },
    /// Two tools of one name were given.
    #[error("two tools are named '{0}': give each a name of its own")]
    DuplicateTool(String),
    /// Two tools whose names differ in dots only.
    #[error("the tools '{first}' and '{second}' would have the same name for the model: rename one")]
    SameAlias {
        /// The earlier one.
        first: String,
        /// The later one.
        second: String,
    },
    /// A tool's definition is wrong.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The model's name is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A plugin did not load.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The environment can't be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// Puts an [`Agent`] together. Everything has a default; an agent with nothing set has no model and no
/// tools.
#[must_use = "an agent is made by `build`"]
pub struct AgentBuilder {
    registry: Registry,
    settings: EngineSettings,
    events: EventBus,
    environment: Option<Arc<dyn Environment>>,
    clock: Arc<dyn Clock>,
    mask: SecretMask,
    locks: Option<Arc<dyn SessionLocks>>,
    /// What went wrong first.
    error: Option<AgentError>,
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("settings", &self.settings)
            .field("registry", &self.registry)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl AgentBuilder {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        registry.steps(EveryTool);
        Self {
            registry,
            settings: EngineSettings {
                agent: "agent".to_owned(),
                tapes: TapeNaming::Free,
                ..EngineSettings::default()
            },
            events: EventBus::default(),
            environment: None,
            clock: clock::system(),
            mask: SecretMask::default(),
            locks: None,
            error: None,
        }
    }

    /// Sets its name, `agent` unless set. Functions of the facts are told it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.agent = name.into();
        self
    }

    /// Sets the model for runs that name none, as `provider:model`. The provider has to be given too:
    /// with [`AgentBuilder::provider`], or by a plugin.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        let model = model.into();
        if let Err(err) = ModelSpec::parse(&model) {
            self.fail(err);
        }
        self.settings.model = Some(model);
        self
    }

    /// Sets the model and what asks it. `model` is `provider:model`, as it is recorded; runs that name
    /// another model of the same provider are answered by the same client.
    pub fn model_client(mut self, model: impl Into<String>, client: Arc<dyn ModelClient>) -> Self {
        let model = model.into();
        match ModelSpec::parse(&model) {
            Ok(spec) => self.registry.models(Arc::new(OneClient { name: spec.provider, client })),
            Err(_) => &mut self.registry,
        };
        self.model(model)
    }

    /// Adds a model to ask when the agent's own does not begin to answer, as `provider:model`; several are
    /// asked in order. It does not stand in for a model that a run chose.
    pub fn fallback_model(mut self, model: impl Into<String>) -> Self {
        let model = model.into();
        if let Err(err) = ModelSpec::parse(&model) {
            self.fail(err);
        }
        self.settings.fallback_models.push(model);
        self
    }

    /// Adds a tool that the provider runs itself. It goes along with every call of a model; hooks and
    /// handlers of tool calls do not see it.
    pub fn provider_tool(mut self, tool: ProviderTool) -> Self {
        self.settings.options.provider_tools.push(tool);
        self
    }

    /// Adds a model provider: one that speaks a known wire is a [`Provider`](crate::models::Provider).
    pub fn provider(mut self, provider: Arc<dyn ModelProvider>) -> Self {
        self.registry.models(provider);
        self
    }

    /// Adds model providers; see [`model_providers`](crate::model_providers) for those of the settings.
    pub fn providers(mut self, providers: impl IntoIterator<Item = Arc<dyn ModelProvider>>) -> Self {
        for provider in providers {
            self.registry.models(provider);
        }
        self
    }

    /// Sets how models should answer, unless a run says otherwise. Tools that the provider runs are
    /// added to those there are.
    pub fn options(mut self, mut options: ModelOptions) -> Self {
        options.provider_tools.splice(0..0, self.settings.options.provider_tools);
        self.settings.options = options;
        self
    }

    /// Limits one model call, streaming included; there is no limit unless set.
    pub fn model_timeout(mut self, limit: Duration) -> Self {
        self.settings.model_timeout = Some(limit);
        self
    }

    /// Sets where tapes are kept; in memory unless set. A store of files needs names that no other
    /// program gives its tapes.
    pub fn store(mut self, store: Arc<dyn TapeStore>) -> Self {
        self.registry.tape_store(store);
        self
    }

    /// Adds a tool: a type that implements [`Tool`](bub_kernel::tool::Tool), or what [`tool`](macro@crate::tool)
    /// makes of a function.
    pub fn tool(self, tool: impl IntoTool) -> Self {
        self.insert(tool.into_tool())
    }

    /// Adds a tool whose types are known only at run time.
    pub fn dyn_tool(mut self, tool: Arc<dyn DynTool>) -> Self {
        if let Err(err) = tool.spec().check() {
            self.fail(err);
        }
        self.insert(tool)
    }

    /// Adds tools.
    pub fn tools(self, tools: impl IntoIterator<Item = Arc<dyn DynTool>>) -> Self {
        tools.into_iter().fold(self, Self::dyn_tool)
    }

    /// Adds a section to the system prompt: a text, a function of the step's facts
    /// ([`PromptSection::of`]), or the section of a [`CodeMode`](crate::code::CodeMode).
    pub fn system_prompt(mut self, section: impl Into<PromptSection>) -> Self {
        self.registry.section(section);
        self
    }

    /// Replaces how tapes become messages for the model.
    pub fn context(mut self, context: impl ContextBuilder + 'static) -> Self {
        self.registry.context(context);
        self
    }

    /// Replaces what decides on each step: its tools, waiting messages, how it goes on.
    pub fn steps(mut self, policy: impl StepPolicy + 'static) -> Self {
        self.registry.steps(policy);
        self
    }

    /// Mounts a sidecar tape on every tape.
    pub fn sidecar(mut self, name: impl Into<String>) -> Self {
        self.registry.sidecar(name);
        self
    }

    /// Limits the steps of a run; there is no limit unless set.
    pub fn max_steps(mut self, max: usize) -> Self {
        self.check_limit("max_steps", max);
        self.settings.max_steps = Some(max);
        self
    }

    /// Limits the tool calls of one answer that run at once; all do unless set. With 1 they run one after
    /// another, in order.
    pub fn max_tool_concurrency(mut self, max: usize) -> Self {
        self.check_limit("max_tool_concurrency", max);
        self.settings.max_tool_concurrency = Some(max);
        self
    }

    /// Sets how often a run may start its context anew because it did not fit the model's window; once
    /// unless set.
    pub fn max_auto_handoffs(mut self, max: usize) -> Self {
        self.settings.max_auto_handoffs = max;
        self
    }

    /// Turns commands on: a prompt that begins with this calls a tool instead of the model. Not empty,
    /// and without white space.
    pub fn command_prefix(mut self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        if let Err(message) = check_prefix(&prefix) {
            self.fail(AgentError::CommandPrefix(message));
        }
        self.settings.command_prefix = Some(prefix);
        self
    }

    /// Adds hooks; later ones rank higher. Those about messages and sessions are not asked, for a run
    /// has neither: `resolve_session`, `admit`, `build_prompt`, `load_state`, `render_outbound`.
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.registry.hooks(hooks);
        self
    }

    /// Adds what a plugin brings, but its channels.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        if let Err(err) = self.registry.load(&plugin) {
            self.fail(err);
        }
        self
    }

    /// Calls `handler` with each event of type `E`, after hooks and in the order of registration.
    pub fn on<E: Event>(
        self,
        handler: impl for<'a> Fn(&'a mut E) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync + 'static,
    ) -> Self {
        self.events.on(handler);
        self
    }

    /// The same for a handler that has nothing to wait for.
    pub fn on_sync<E: Event>(
        self,
        handler: impl Fn(&mut E) -> Result<(), HandlerError> + Send + Sync + 'static,
    ) -> Self {
        self.events.on_sync(handler);
        self
    }

    /// Replaces the handlers so far by those of a bus.
    pub fn events(self, events: EventBus) -> Self {
        Self { events, ..self }
    }

    /// Sets where tools run; who made it closes it. Unless set, it is this machine without a workspace:
    /// processes start in the program's current folder, and files need absolute paths (a relative one is
    /// an error that says so), so that no agent writes to a folder that nobody chose for it.
    pub fn environment(self, environment: Arc<dyn Environment>) -> Self {
        Self { environment: Some(environment), ..self }
    }

    /// Sets texts that no result may show.
    pub fn mask(self, mask: SecretMask) -> Self {
        Self { mask, ..self }
    }

    /// Sets what keeps other processes out of a tape while a run is on it.
    pub fn locks(self, locks: Arc<dyn SessionLocks>) -> Self {
        Self { locks: Some(locks), ..self }
    }

    /// Replaces the clock.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Makes the agent. Nothing is opened yet.
    ///
    /// # Errors
    /// The first thing that was wrong.
    pub fn build(self) -> Result<Agent, AgentError> {
        let Self { registry, settings, events, environment, clock, mask, locks, error } = self;
        if let Some(err) = error {
            return Err(err);
        }
        if settings.agent.trim().is_empty() {
            return Err(AgentError::NoName);
        }
        check_aliases(&registry)?;
        let environment = match environment {
            Some(it) => it,
            None => Arc::new(LocalEnvironment::new(LocalOptions::default())?),
        };
        let name = settings.agent.as_str().into();
        let runtime = Runtime::new(RuntimeParts {
            registry,
            settings,
            store: Arc::new(MemoryStore::default()),
            environment,
            workspace: String::new(),
            clock,
            events,
            mask,
            locks,
        });
        Ok(Agent { runtime, name, n_unnamed: Arc::new(AtomicU64::new(0)) })
    }

    fn insert(mut self, tool: Arc<dyn DynTool>) -> Self {
        if self.registry.tools.get(tool.name()).is_some() {
            let name = tool.name().to_owned();
            self.fail(AgentError::DuplicateTool(name));
        }
        self.registry.dyn_tool(tool);
        self
    }

    fn check_limit(&mut self, limit: &'static str, max: usize) {
        if max == 0 {
            self.fail(AgentError::Limit { limit });
        }
    }

    fn fail(&mut self, err: impl Into<AgentError>) {
        let err = err.into();
        self.error.get_or_insert(err);
    }
}

/// The model sees tools with `_` for `.`, and providers refuse two of one name.
fn check_aliases(registry: &Registry) -> Result<(), AgentError> {
    let mut seen = HashMap::new();
    for name in registry.tools.iter().map(|it| it.name()) {
        if let Some(first) = seen.insert(name.replace('.', "_"), name) {
            return Err(AgentError::SameAlias { first: first.to_owned(), second: name.to_owned() });
        }
    }
    Ok(())
}

/// A provider of one client.
struct OneClient {
    name: String,
    client: Arc<dyn ModelClient>,
}

impl ModelProvider for OneClient {
    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self, _: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        Ok(self.client.clone())
    }
}
