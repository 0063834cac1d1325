//! What a plugin brings. Filled once, before the first turn, then frozen.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    channel::Channel,
    hooks::Hooks,
    message::Message,
    model::ModelProvider,
    steps::{PromptSection, StepPolicy},
    tape::{Entry, TapeQuery, TapeStore},
    tool::{DynTool, IntoTool, ToolSet},
    turn::TurnLoop,
};

/// Turns tape entries into messages for the model.
pub trait ContextBuilder: Send + Sync {
    /// Which entries it wants: those since the newest anchor, unless it says otherwise.
    fn query(&self) -> TapeQuery {
        TapeQuery::default().after_last_anchor()
    }
    /// Builds the messages, oldest first.
    fn messages(&self, entries: &[Arc<Entry>]) -> Vec<Message>;
}

/// Something that runs as long as the runtime.
#[async_trait]
pub trait Service: Send + Sync {
    /// Runs until `cancel`.
    async fn run(&self, cancel: CancellationToken);
}

/// Why a plugin did not load.
#[derive(Debug, thiserror::Error)]
#[error("plugin '{plugin}' did not load: {reason}")]
pub struct PluginError {
    /// Which plugin.
    pub plugin: String,
    /// Why.
    pub reason: String,
}

/// A named set of contributions.
pub trait Plugin: Send + Sync {
    /// Its name in diagnostics and settings.
    fn name(&self) -> &str;
    /// Adds what it brings. Called once, before the first turn.
    ///
    /// # Errors
    /// When it can't work; the other plugins load all the same.
    fn register(&self, registry: &mut Registry) -> Result<(), PluginError>;
}

/// Everything that plugins brought, in order; later ones rank higher.
#[derive(Default)]
pub struct Registry {
    settings: Map<String, Value>,
    /// Tools by name.
    pub tools: ToolSet,
    /// Hooks, lowest rank first.
    pub hooks: Vec<Arc<dyn Hooks>>,
    /// Channels; the first of a name counts.
    pub channels: Vec<Arc<dyn Channel>>,
    /// Model providers; a later one of the same name replaces an earlier one.
    pub models: Vec<Arc<dyn ModelProvider>>,
    /// Where tapes are kept; the last one set counts.
    pub store: Option<Arc<dyn TapeStore>>,
    /// What answers turns, instead of the step loop.
    pub turn_loop: Option<Arc<dyn TurnLoop>>,
    /// What decides on each step, instead of the application's own way.
    pub steps: Option<Arc<dyn StepPolicy>>,
    /// What is added to the system prompt, below what hooks say.
    pub sections: Vec<PromptSection>,
    /// How the tape becomes messages, instead of the default.
    pub context: Option<Arc<dyn ContextBuilder>>,
    /// What runs as long as the runtime.
    pub services: Vec<Arc<dyn Service>>,
    /// Names of the sidecar tapes that every session tape has.
    pub sidecars: Vec<String>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("tools", &self.tools)
            .field("hooks", &self.hooks.len())
            .field("channels", &self.channels.len())
            .field("models", &self.models.len())
            .field("sidecars", &self.sidecars)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry over the sections of the configuration.
    #[must_use]
    pub fn new(settings: Map<String, Value>) -> Self {
        Self { settings, ..Self::default() }
    }

    /// A plugin's own section of the configuration, or the default when there is none.
    ///
    /// # Errors
    /// When the section is not of that shape; the reason names the field.
    pub fn settings<T: DeserializeOwned + Default>(&self, section: &str) -> Result<T, PluginError> {
        match self.settings.get(section) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => serde_json::from_value(value.clone()).map_err(|err| PluginError {
                plugin: section.to_owned(),
                reason: format!("setting section '{section}': {err}"),
            }),
        }
    }

    /// Loads a plugin; what it added before it failed stays.
    ///
    /// # Errors
    /// The plugin's own.
    pub fn load(&mut self, plugin: &dyn Plugin) -> Result<(), PluginError> {
        plugin.register(self)
    }

    /// Adds a tool; a later tool of the same name replaces it in its place.
    pub fn tool(&mut self, tool: impl IntoTool) -> &mut Self {
        self.dyn_tool(tool.into_tool())
    }

    /// Adds a tool whose types are known only at run time.
    pub fn dyn_tool(&mut self, tool: Arc<dyn DynTool>) -> &mut Self {
        self.tools.insert(tool);
        self
    }

    /// Adds hooks.
    pub fn hooks(&mut self, hooks: impl Hooks + 'static) -> &mut Self {
        self.hooks.push(Arc::new(hooks));
        self
    }

    /// Adds hooks that are held elsewhere too.
    pub fn shared_hooks(&mut self, hooks: Arc<dyn Hooks>) -> &mut Self {
        self.hooks.push(hooks);
        self
    }

    /// Adds a channel.
    pub fn channel(&mut self, channel: impl Channel + 'static) -> &mut Self {
        self.channels.push(Arc::new(channel));
        self
    }

    /// Adds a model provider.
    pub fn models(&mut self, provider: Arc<dyn ModelProvider>) -> &mut Self {
        self.models.retain(|it| it.name() != provider.name());
        self.models.push(provider);
        self
    }

    /// Sets the tape store.
    pub fn tape_store(&mut self, store: Arc<dyn TapeStore>) -> &mut Self {
        self.store = Some(store);
        self
    }

    /// Replaces what answers turns.
    pub fn turn_loop(&mut self, turn_loop: impl TurnLoop + 'static) -> &mut Self {
        self.turn_loop = Some(Arc::new(turn_loop));
        self
    }

    /// Sets what decides on each step: its tools, waiting messages, how it goes on.
    pub fn steps(&mut self, policy: impl StepPolicy + 'static) -> &mut Self {
        self.steps = Some(Arc::new(policy));
        self
    }

    /// Adds a section to the system prompt, below what hooks say.
    pub fn section(&mut self, section: impl Into<PromptSection>) -> &mut Self {
        self.sections.push(section.into());
        self
    }

    /// Replaces how the tape becomes messages.
    pub fn context(&mut self, context: impl ContextBuilder + 'static) -> &mut Self {
        self.context = Some(Arc::new(context));
        self
    }

    /// Runs something as long as the runtime.
    pub fn service(&mut self, service: impl Service + 'static) -> &mut Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Mounts a sidecar tape on every session tape.
    pub fn sidecar(&mut self, name: impl Into<String>) -> &mut Self {
        let name = name.into();
        if !self.sidecars.contains(&name) {
            self.sidecars.push(name);
        }
        self
    }
}
