//! What a plugin brings. Filled once, before the first turn, then frozen.

mod section;

use std::{fmt, panic::AssertUnwindSafe, sync::Arc};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use self::section::{Section, SectionField};
use crate::{
    channel::Channel,
    error::panic_text,
    event::EventBus,
    hooks::Hooks,
    message::Message,
    model::ModelProvider,
    steps::{PromptSection, StepPolicy},
    tape::{Entry, TapeQuery, TapeStore},
    tool::{DynTool, IntoTool, Tool, ToolSet, ToolSpec},
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
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("plugin '{plugin}' did not load: {reason}")]
pub struct PluginError {
    /// Which plugin.
    pub plugin: String,
    /// Why.
    pub reason: String,
    /// The setting that is wrong, as `section.field`, when that is why.
    pub setting: Option<String>,
}

impl PluginError {
    /// A plugin of this name can't work, for this reason.
    pub fn new(plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { plugin: plugin.into(), reason: reason.into(), setting: None }
    }
}

/// A named set of contributions.
pub trait Plugin: Send + Sync {
    /// Its name in diagnostics and settings.
    fn name(&self) -> &str;
    /// Adds what it brings. Called once, before the first turn.
    ///
    /// # Errors
    /// When it can't work; the other plugins load all the same, and of this one nothing stays.
    fn register(&self, registry: &mut Registry) -> Result<(), PluginError>;
    /// Tools of its own that the program has as subcommands. Asked before anything is loaded, so that the
    /// program's `--help` knows them.
    fn subcommands(&self) -> Vec<Subcommand> {
        Vec::new()
    }
}

impl<P: Plugin + ?Sized> Plugin for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        (**self).register(registry)
    }

    fn subcommands(&self) -> Vec<Subcommand> {
        (**self).subcommands()
    }
}

/// A subcommand of the program that calls a tool: `bub NAME VALUE --option VALUE`. The tool's parameters
/// are its arguments (the required ones) and options, with their documentation.
#[derive(Clone, Debug)]
pub struct Subcommand {
    /// Its name, one word.
    pub name: String,
    /// The tool that it calls.
    pub tool: Arc<ToolSpec>,
}

impl Subcommand {
    /// Has a tool as a subcommand. The plugin registers the tool too.
    #[must_use]
    pub fn of<T: Tool>(name: impl Into<String>) -> Self {
        Self { name: name.into(), tool: Arc::new(ToolSpec::of::<T>()) }
    }
}

/// What loading a plugin came to.
#[derive(Clone, Debug)]
pub struct PluginReport {
    /// The plugin's name.
    pub name: String,
    /// Why it did not load, if it did not.
    pub error: Option<PluginError>,
    /// What it brought, in words: `tool weather.now`, `hooks weather`, `section weather`.
    pub brought: Vec<String>,
}

/// Finds the text of a section's field elsewhere than in the configuration.
type Overlay = Arc<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// Everything that plugins brought, in order; later ones rank higher.
#[derive(Clone, Default)]
pub struct Registry {
    settings: Map<String, Value>,
    overlay: Option<Overlay>,
    reserved: Vec<String>,
    /// Sections of the configuration that plugins have read.
    pub read_sections: Vec<Section>,
    /// Tools by name.
    pub tools: ToolSet,
    /// Hooks, lowest rank first.
    pub hooks: Vec<Arc<dyn Hooks>>,
    /// Handlers of events; they come before those of the program that embeds bub.
    pub events: EventBus,
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

    /// Sets where fields of sections may come from besides the configuration: what it finds for a section and
    /// a field counts more. The text is JSON where the field is no text.
    pub fn overlay(&mut self, find: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
        self.overlay = Some(Arc::new(find));
    }

    /// Names that sections of plugins can't have, since others are at home there.
    pub fn reserve_sections<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) {
        self.reserved.extend(names.into_iter().map(Into::into));
    }

    /// A plugin's own section of the configuration. What the file does not say is the default's; fields
    /// that the type does not have are errors. The type's documentation is shown to people.
    ///
    /// # Errors
    /// When the section is not of that shape; the reason names the field.
    pub fn settings<T>(&mut self, section: &str) -> Result<T, PluginError>
    where
        T: DeserializeOwned + Serialize + JsonSchema + Default,
    {
        let failed = |err: section::SectionError| PluginError {
            plugin: section.to_owned(),
            reason: err.to_string(),
            setting: Some(err.key),
        };
        if self.reserved.iter().any(|it| it == section) {
            return Err(PluginError::new(section, format!("the section '{section}' of the settings is bub's own")));
        }
        let given = self.settings.get(section).unwrap_or(&Value::Null);
        let text_of = |field: &str| self.overlay.as_ref().and_then(|find| find(section, field));
        let (settings, read) = section::read::<T>(section, given, text_of).map_err(failed)?;
        self.read_sections.retain(|it| it.name != section);
        self.read_sections.push(read);
        Ok(settings)
    }

    /// Loads a plugin, all of it or nothing.
    ///
    /// # Errors
    /// The plugin's own; that of a plugin that panics, or brings a tool without a proper name.
    pub fn load(&mut self, plugin: &dyn Plugin) -> Result<(), PluginError> {
        let report = self.load_reported(plugin);
        report.error.map_or(Ok(()), Err)
    }

    /// Loads a plugin, all of it or nothing, and tells what came of it.
    pub fn load_reported(&mut self, plugin: &dyn Plugin) -> PluginReport {
        let name = plugin.name().to_owned();
        let before = self.clone();
        // Its handlers go to a bus of their own, so that they can be left behind.
        self.events = EventBus::default();
        let registered = std::panic::catch_unwind(AssertUnwindSafe(|| plugin.register(self)));
        let done = match registered {
            Ok(Ok(())) => self.check_tools(),
            Ok(Err(err)) => Err(err),
            Err(panic) => Err(PluginError::new("", format!("it panicked: {}", panic_text(&*panic)))),
        };
        match done {
            Ok(()) => {
                let has_handlers = self.events.has_handlers();
                self.events = before.events.then(&self.events);
                PluginReport { name, error: None, brought: self.brought_since(&before, has_handlers) }
            }
            Err(err) => {
                *self = before;
                PluginReport { error: Some(PluginError { plugin: name.clone(), ..err }), name, brought: Vec::new() }
            }
        }
    }

    /// Whether commands and models can name every tool.
    fn check_tools(&self) -> Result<(), PluginError> {
        let is_bad = |name: &str| name.is_empty() || name.contains(char::is_whitespace);
        match self.tools.iter().find(|it| is_bad(it.name())) {
            Some(tool) => Err(PluginError::new("", format!("a tool can't be named '{}'", tool.name()))),
            None => Ok(()),
        }
    }

    /// What there is that was not there before, in words.
    fn brought_since(&self, before: &Self, has_handlers: bool) -> Vec<String> {
        let mut all = Vec::new();
        for tool in self.tools.iter() {
            match before.tools.get(tool.name()) {
                None => all.push(format!("tool {}", tool.name())),
                Some(old) if !Arc::ptr_eq(old, tool) => all.push(format!("tool {} (replaced)", tool.name())),
                Some(_) => {}
            }
        }
        let new_of = |now: usize, then: usize| then.min(now)..now;
        let hooks = self.hooks.get(new_of(self.hooks.len(), before.hooks.len())).unwrap_or_default();
        all.extend(hooks.iter().map(|it| format!("hooks {}", it.name())));
        let channels = self.channels.get(new_of(self.channels.len(), before.channels.len())).unwrap_or_default();
        all.extend(channels.iter().map(|it| format!("channel {}", it.name())));
        let is_new = |it: &&Arc<dyn ModelProvider>| !before.models.iter().any(|old| Arc::ptr_eq(old, it));
        all.extend(self.models.iter().filter(is_new).map(|it| format!("models {}", it.name())));
        all.extend(new_of(self.services.len(), before.services.len()).map(|_| "service".to_owned()));
        let is_new = |it: &&String| !before.sidecars.contains(it);
        all.extend(self.sidecars.iter().filter(is_new).map(|it| format!("sidecar {it}")));
        let is_new = |it: &&Section| !before.read_sections.iter().any(|old| old.name == it.name);
        all.extend(self.read_sections.iter().filter(is_new).map(|it| format!("section {}", it.name)));
        let new_of_prompt = new_of(self.sections.len(), before.sections.len());
        all.extend(new_of_prompt.map(|_| "section of the system prompt".to_owned()));
        for (what, is_set) in [
            ("event handlers", has_handlers),
            ("tape store", changed(self.store.as_ref(), before.store.as_ref())),
            ("turn loop", changed(self.turn_loop.as_ref(), before.turn_loop.as_ref())),
            ("step policy", changed(self.steps.as_ref(), before.steps.as_ref())),
            ("context", changed(self.context.as_ref(), before.context.as_ref())),
        ] {
            all.extend(is_set.then(|| what.to_owned()));
        }
        all
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

fn changed<T: ?Sized>(now: Option<&Arc<T>>, before: Option<&Arc<T>>) -> bool {
    now.is_some_and(|now| before.is_none_or(|before| !Arc::ptr_eq(now, before)))
}

#[cfg(test)]
mod tests;
