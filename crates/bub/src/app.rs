//! Settings, tools, models and plugins, put together into a runtime.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bub_code::{BuiltinRunners, RunnerChoice, SessionCodeMode, sandbox};
use bub_engine::{
    ChannelChoice, EngineSettings, Gateway, GatewaySettings, Runtime, RuntimeParts, SessionGuard, SessionLocks,
    TapeNaming, TurnOptions, TurnStream, choose_channels,
};
use bub_host::{JsonlStore, LocalEnvironment, LocalOptions, StoreOptions, Sync};
use bub_kernel::{
    channel::Channel,
    clock::{self, Clock},
    environment::{Environment, EnvironmentError},
    event::EventBus,
    hooks::Hooks,
    message::Media,
    plugin::{Plugin, PluginReport, Registry, Section},
    tape::TapeName,
    turn::{Inbound, Prompt, SessionId},
};
use bub_tools::{bash, describe, fs, session, spill, subagent, tape, web};

use crate::{
    context::ContextHooks,
    defaults::DefaultHooks,
    exec::ExecHooks,
    images::ScaleImages,
    locks::FileLocks,
    model_settings,
    settings::{
        CodeRunnerChoice, HomeError, PrivateAddresses, RenderHtml, Secrets, Settings, SettingsError, Shown, TapeSync,
    },
    skills::{SkillHooks, SkillTool, Skills},
};

/// Why an application can't be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Settings are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The home folder can't be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The workspace can't be used.
    #[error("workspace {}: {source}", path.display())]
    Workspace {
        /// Which folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The environment for tools can't be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// Puts an application together.
pub struct Builder {
    settings: Settings,
    workspace: PathBuf,
    plugins: Vec<Box<dyn Plugin>>,
    events: EventBus,
    clock: Arc<dyn Clock>,
    code_worker: Option<(PathBuf, Vec<OsString>)>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workspace", &self.workspace)
            .field("plugins", &self.plugins.len())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Starts from settings and the folder to work in.
    #[must_use]
    pub fn new(settings: Settings, workspace: PathBuf) -> Self {
        Self {
            settings,
            workspace,
            plugins: Vec::new(),
            events: EventBus::default(),
            clock: clock::system(),
            code_worker: None,
        }
    }

    /// Adds a plugin; a later one ranks higher.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The folder to work in, as it was given.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Sets the handlers of typed events; those of plugins come before them.
    #[must_use]
    pub fn events(self, events: EventBus) -> Self {
        Self { events, ..self }
    }

    /// Replaces the clock.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Names the program that runs code where there is no Python: a run of it with `args` must end in
    /// [`worker_main`](sandbox::worker_main). Without one, code mode needs a Python.
    #[must_use]
    pub fn code_worker(self, program: PathBuf, args: Vec<OsString>) -> Self {
        Self { code_worker: Some((program, args)), ..self }
    }

    /// Makes the application. Its home folder is made when something is first written there.
    ///
    /// # Errors
    /// When settings are wrong or the workspace is no folder.
    pub fn build(self) -> Result<App, BuildError> {
        let Self { settings, workspace, plugins, events, clock, code_worker } = self;
        let failed = |source| BuildError::Workspace { path: workspace.clone(), source };
        let resolved = workspace.canonicalize().map_err(failed)?;
        if !resolved.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        let kinds: Vec<_> = model_settings::known_names().collect();
        settings.check_provider_types(&kinds)?;
        model_settings::check(&settings)?;
        let secrets = settings.secrets(kinds.iter().copied());

        let store = Arc::new(JsonlStore::new(
            settings.paths.tapes(),
            StoreOptions {
                sync: match settings.tape_sync {
                    TapeSync::Commit => Sync::Commit,
                    TapeSync::Never => Sync::Never,
                },
            },
        ));
        let mut registry = Registry::new(settings.foreign_values());
        registry.reserve_sections(settings.own_keys());
        let over = settings.clone();
        registry.overlay(move |section, field| over.section_text(section, field).map(|(text, _)| text));
        let skills = Skills::new(&settings, &resolved, secrets.mask());
        let options = local_options(&settings, &secrets, resolved.clone());
        let local: Arc<dyn Environment> = Arc::new(LocalEnvironment::new(options.clone())?);
        let code = code_mode(&settings, code_worker, &resolved.to_string_lossy(), &local);
        let environment = match &settings.environment {
            Some(there) => {
                let hooks = ExecHooks::new(there, options)?;
                let environment = hooks.environment();
                registry.hooks(hooks);
                environment
            }
            None => local.clone(),
        };
        let shells = register_builtins(&mut registry, &settings, resolved.clone(), &skills, &code);
        for provider in model_settings::providers(&settings, &local) {
            registry.models(provider);
        }
        if settings.max_image_side > 0 {
            registry.hooks(ScaleImages::new(settings.max_image_side));
        }
        let plugins: Vec<_> = plugins.iter().map(|it| load(&mut registry, &**it, &settings)).collect();
        let sections = registry.read_sections.clone();
        // A plugin that did not load says why, and has left no section behind.
        if plugins.iter().all(|it| it.error.is_none()) {
            settings.check_sections(&sections)?;
        }
        let (hooks, channels) = (registry.hooks.clone(), registry.channels.clone());
        let workspace = resolved.to_string_lossy().into_owned();
        let locks: Arc<dyn SessionLocks> = Arc::new(FileLocks {
            locks: bub_host::SessionLocks::new(settings.paths.locks()),
            wait: settings.session_wait,
        });
        let runtime = Runtime::new(RuntimeParts {
            registry,
            settings: engine_settings(&settings),
            store: store.clone(),
            environment: environment.clone(),
            workspace: workspace.clone(),
            clock,
            events,
            mask: secrets.mask(),
            locks: Some(locks.clone()),
        });
        Ok(App {
            runtime,
            local: environment,
            settings,
            store,
            locks,
            workspace,
            skills,
            shells,
            hooks,
            channels,
            plugins,
            sections,
        })
    }
}

/// An application: a runtime and what it was made of.
pub struct App {
    runtime: Runtime,
    local: Arc<dyn Environment>,
    settings: Settings,
    store: Arc<JsonlStore>,
    locks: Arc<dyn SessionLocks>,
    workspace: String,
    skills: Skills,
    shells: Arc<bash::Shells>,
    hooks: Vec<Arc<dyn Hooks>>,
    channels: Vec<Arc<dyn Channel>>,
    plugins: Vec<PluginReport>,
    sections: Vec<Section>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("runtime", &self.runtime)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

impl App {
    /// What runs turns.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The tapes of the home folder.
    #[must_use]
    pub fn store(&self) -> &Arc<JsonlStore> {
        &self.store
    }

    /// Media for a prompt: from a file of this machine, a web address (which the provider fetches), or a
    /// data URL. A file may have up to [`MAX_FILE_BYTES`](bub_code::MAX_FILE_BYTES).
    ///
    /// # Errors
    /// A sentence for people.
    pub async fn media(&self, place: &str) -> Result<Media, String> {
        bub_code::load_media(&*self.local, place, None).await
    }

    /// Starts a turn for a program that embeds the application: a prompt for the model as it is, without
    /// a channel's facts and the date in front, or a command. Session, settings on its tape, hooks, tools
    /// and skills are those of any turn; `options` says what this one may use and which model it asks.
    /// To hooks it comes by the channel `sdk`, from elsewhere than this machine's terminal.
    ///
    /// For a message with its facts in front there is [`Runtime::turn`]; for an agent without settings
    /// and sessions, [`Agent::run`](crate::Agent::run).
    pub fn run_stream(&self, session: &str, prompt: impl Into<Prompt>, options: TurnOptions) -> TurnStream {
        let session = SessionId(session.to_owned());
        let inbound = Inbound { session: Some(session.clone()), ..Inbound::new("sdk", session.0, prompt.into()) };
        self.runtime.turn_as_given(inbound, options)
    }

    /// Keeps turns of other processes away from the session of a tape until the guard is dropped, as a
    /// turn does. Waits for one that runs, within the limit of the settings; `on_wait` is called once
    /// when there is a wait, with a sentence for the person.
    ///
    /// # Errors
    /// A sentence for the person, when the wait was too long or the lock can't be used.
    pub async fn lock_session(
        &self,
        tape: &TapeName,
        on_wait: &(dyn Fn(String) + Send + std::marker::Sync),
    ) -> Result<SessionGuard, String> {
        self.locks.acquire(tape, on_wait).await
    }

    /// The resolved workspace.
    #[must_use]
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// The skills of the workspace.
    #[must_use]
    pub fn skills(&self) -> &Skills {
        &self.skills
    }

    /// All hooks, lowest rank first.
    #[must_use]
    pub fn hooks(&self) -> &[Arc<dyn Hooks>] {
        &self.hooks
    }

    /// All channels that plugins brought.
    #[must_use]
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    /// Those of them that the setting `enabled_channels` chooses.
    #[must_use]
    pub fn enabled_channels(&self) -> ChannelChoice {
        let words = self.settings.enabled_channels.clone().unwrap_or_else(|| vec!["all".to_owned()]);
        choose_channels(&self.channels, &words)
    }

    /// A gateway over channels, which treats messages as the settings say.
    #[must_use]
    pub fn gateway(&self, channels: Vec<Arc<dyn Channel>>) -> Gateway {
        Gateway::new(self.runtime.clone(), channels, self.gateway_settings())
    }

    /// How the settings say that a gateway treats messages and answers.
    #[must_use]
    pub fn gateway_settings(&self) -> GatewaySettings {
        GatewaySettings {
            debounce: self.settings.debounce,
            max_wait: self.settings.max_wait,
            active_window: self.settings.active_time_window,
            stream: self.settings.stream_output,
            options: TurnOptions::default(),
        }
    }

    /// What came of loading each plugin, in their order.
    #[must_use]
    pub fn plugins(&self) -> &[PluginReport] {
        &self.plugins
    }

    /// The settings that plugins have read, as `config show` prints them.
    #[must_use]
    pub fn plugin_settings(&self) -> Vec<Shown> {
        self.sections.iter().flat_map(|it| self.settings.shown_section(it)).collect()
    }

    /// The commands that run in the background, which closing stops.
    #[must_use]
    pub fn background_commands(&self) -> Vec<String> {
        self.shells.running_commands()
    }

    /// Stops everything; see [`Runtime::close`].
    pub async fn close(&self) {
        self.runtime.close().await;
    }
}

/// Loads one plugin; the others go on without it when it fails.
fn load(registry: &mut Registry, plugin: &dyn Plugin, settings: &Settings) -> PluginReport {
    let mut report = registry.load_reported(plugin);
    if let Some(err) = &mut report.error {
        if let Some(place) = err.setting.as_deref().and_then(|it| settings.place_of(it)) {
            err.reason = format!("{place}: {}", err.reason);
        }
        tracing::error!("{err}");
    }
    report
}

/// The built-in tools and hooks. The order of the tools is the one in which models are offered them.
fn register_builtins(
    registry: &mut Registry,
    settings: &Settings,
    workspace: PathBuf,
    skills: &Skills,
    code: &SessionCodeMode,
) -> Arc<bash::Shells> {
    let shells = bash::Shells::new(bash::ShellSettings {
        spool_dir: Some(settings.paths.spool()),
        max_output_bytes: settings.shell.max_output_bytes,
        ..bash::ShellSettings::default()
    });
    let locks = fs::FileLocks::default();
    code.add_tools(registry);
    registry
        .sidecar(spill::SIDECAR)
        .tool(spill::SpillRead)
        .tool(bash::Bash::new(shells.clone()))
        .tool(bash::BashOutput::new(shells.clone()))
        .tool(bash::BashKill::new(shells.clone()))
        .tool(fs::FsRead)
        .tool(fs::FsWrite::new(locks.clone()))
        .tool(fs::FsEdit::new(locks))
        .tool(SkillTool::new(skills.clone()))
        .tool(describe::ToolDescribe)
        .tool(tape::TapeInfo)
        .tool(tape::TapeSearch)
        .tool(tape::TapeReset)
        .tool(tape::TapeHandoff)
        .tool(tape::TapeAnchors)
        .tool(web::WebFetch::new(web::WebSettings {
            render_html: match settings.web.render_html {
                RenderHtml::Markdown => web::RenderHtml::Markdown,
                RenderHtml::Raw => web::RenderHtml::Raw,
            },
            max_bytes: settings.web.max_bytes,
            private_addresses: match settings.web.private_addresses {
                PrivateAddresses::Auto => web::PrivateAddresses::Auto,
                PrivateAddresses::Allow => web::PrivateAddresses::Allow,
                PrivateAddresses::Deny => web::PrivateAddresses::Deny,
            },
        }))
        .tool(subagent::SubAgent::default())
        .tool(session::Help)
        .tool(session::Quit::new(shells.clone()))
        .tool(session::Model)
        .tool(session::ReasoningEffort)
        // Of the lowest rank, so that results are set aside when no other hook has anything to say.
        .hooks(spill::SpillHooks::new(spill::SpillSettings { threshold: settings.spill_threshold }))
        .hooks(DefaultHooks::new(workspace))
        .hooks(ContextHooks::new(settings))
        // Of a lower rank than those that choose tools, so that skills stand below the tools in the prompt.
        .hooks(SkillHooks::new(skills.clone()))
        .hooks(describe::DescribeHooks::default())
        .shared_hooks(code.hooks())
        .hooks(bash::ShellHooks::new(shells.clone()));
    shells
}

/// Code mode as set, with the definitions of tools in the home folder.
fn code_mode(
    settings: &Settings,
    worker: Option<(PathBuf, Vec<OsString>)>,
    workspace: &str,
    local: &Arc<dyn Environment>,
) -> SessionCodeMode {
    let choice = match settings.code_runner {
        CodeRunnerChoice::Auto => RunnerChoice::Auto,
        CodeRunnerChoice::Process => RunnerChoice::Process,
        CodeRunnerChoice::Sandbox => RunnerChoice::Sandbox,
    };
    let sandbox = worker.map(|(program, args)| {
        let limits = sandbox::SandboxLimits::default();
        Arc::new(sandbox::SandboxRunner::new(sandbox::SandboxOptions { program, args, limits }))
    });
    let runners = BuiltinRunners::new(choice, settings.python.clone(), sandbox);
    let (folder, workspace, local) = (settings.paths.codemode(), workspace.to_owned(), local.clone());
    SessionCodeMode::new(Arc::new(runners)).stub_folder(move |state| {
        // The tools of another environment cannot read files of this one.
        let is_local = state.environment.as_ref().is_some_and(|it| Arc::ptr_eq(it, &local));
        let session = state.session.as_ref().filter(|_| is_local)?;
        Some(folder.join(bub_code::stub::folder_name(&workspace, &session.0)))
    })
}

fn engine_settings(settings: &Settings) -> EngineSettings {
    EngineSettings {
        agent: "bub".to_owned(),
        tapes: TapeNaming::Sessions,
        command_prefix: Some(settings.command_prefix.clone()),
        model: settings.model.clone(),
        fallback_models: settings.fallback_models.clone(),
        options: model_settings::options(settings),
        max_steps: settings.max_steps.map(|it| it as usize),
        model_timeout: settings.model_timeout,
        max_tool_concurrency: None,
        max_auto_handoffs: settings.max_auto_handoffs as usize,
        ..EngineSettings::default()
    }
}

/// How processes are run on this machine.
fn local_options(settings: &Settings, secrets: &Secrets, workspace: PathBuf) -> LocalOptions {
    let variables = settings.child_variables(secrets);
    LocalOptions {
        workspace: Some(workspace),
        home: settings.paths.user_home().map(std::path::Path::to_path_buf),
        hidden_variables: variables.hide,
        variables: variables.add,
        adopt_orphans: true,
        ..LocalOptions::default()
    }
}
