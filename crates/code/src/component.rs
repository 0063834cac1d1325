//! Code mode for an agent of one's own: a tool that runs code, and the text that goes with it.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use bub_kernel::{
    environment::Environment,
    hooks::Hooks,
    plugin::{Plugin, PluginError, Registry},
    steps::PromptSection,
    tool::DynTool,
    turn::TurnState,
};

use crate::{
    attach::Attach,
    bridge::Models,
    choice::{BuiltinRunners, RunnerChoice},
    code_mode::has_media,
    prompt::{self, About},
    run_code::{CodeTools, EnvironmentOfTurn, MAX_RUNNING_CALLS, RunCode, Setup, ToolsOfTurn, without_commands},
    runners::Runners,
    stubs::{StubFolder, Stubs},
};

/// The Python of an environment, unless runners are set.
const PYTHON: &str = "python3";

/// A tool that runs code with tools of its own, and the block of the system prompt that tells of them.
///
/// It is a [`Plugin`], which adds both; or add them one by one, the tool [`CodeMode::run_code`] and the
/// section that a reference to it becomes. It needs no settings and no session: what the code may call
/// is what was passed here.
#[derive(Clone)]
pub struct CodeMode {
    runners: Arc<dyn Runners>,
    tools: Arc<ToolsOfTurn>,
    environment: Option<Arc<EnvironmentOfTurn>>,
    models: Models,
    folder: Option<Arc<StubFolder>>,
    media_tools: bool,
    name: String,
    max_running: usize,
    /// Made when first asked for; what is set later makes them anew.
    parts: OnceLock<Arc<Parts>>,
}

/// What code mode consists of.
struct Parts {
    run_code: Arc<RunCode>,
    stubs: Stubs,
}

impl fmt::Debug for CodeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeMode")
            .field("name", &self.name)
            .field("models", &self.models)
            .field("media_tools", &self.media_tools)
            .finish_non_exhaustive()
    }
}

impl CodeMode {
    /// Code that calls `tools`; commands among them are left out. Unless told otherwise it runs where
    /// the turn's tools run: by the environment's own way, else in a Python process, for which the
    /// environment has to have a `python3` of version 3.9 or newer.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn DynTool>>) -> Self {
        let tools: Vec<_> = tools.into_iter().collect();
        Self::of_turn(move |_| Some(tools.clone()))
    }

    /// The same with tools that follow from what the turn carries; `None` turns code off for it.
    #[must_use]
    pub fn of_turn(tools: impl Fn(&TurnState) -> Option<Vec<Arc<dyn DynTool>>> + Send + Sync + 'static) -> Self {
        Self {
            runners: Arc::new(BuiltinRunners::new(RunnerChoice::Auto, PYTHON, None)),
            tools: Arc::new(tools),
            environment: None,
            models: Models::Named,
            folder: None,
            media_tools: true,
            name: "run_code".to_owned(),
            max_running: MAX_RUNNING_CALLS,
            parts: OnceLock::new(),
        }
    }

    /// Sets which interpreters there are.
    #[must_use]
    pub fn runners(self, runners: Arc<dyn Runners>) -> Self {
        Self { runners, ..self.changed() }
    }

    /// Sets where code runs and files are read; that of the turn unless set. Whoever made it closes it.
    #[must_use]
    pub fn environment(self, environment: Arc<dyn Environment>) -> Self {
        self.environment_of_turn(move |_| environment.clone())
    }

    /// Sets where code runs by a function of the turn.
    #[must_use]
    pub fn environment_of_turn(
        self,
        environment: impl Fn(&TurnState) -> Arc<dyn Environment> + Send + Sync + 'static,
    ) -> Self {
        Self { environment: Some(Arc::new(environment)), ..self.changed() }
    }

    /// Sets which models code may ask.
    #[must_use]
    pub fn models(self, models: Models) -> Self {
        Self { models, ..self.changed() }
    }

    /// Puts the definitions of the tools into a file in this folder instead of the prompt. The model
    /// needs a tool to read it.
    #[must_use]
    pub fn stub_dir(self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.stub_dir_of_turn(move |_| Some(folder.clone()))
    }

    /// Sets that folder by a function of the turn.
    #[must_use]
    pub fn stub_dir_of_turn(self, folder: impl Fn(&TurnState) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        Self { folder: Some(Arc::new(folder)), ..self.changed() }
    }

    /// Sets whether code can attach media; it can unless told otherwise.
    #[must_use]
    pub fn media_tools(self, media_tools: bool) -> Self {
        Self { media_tools, ..self.changed() }
    }

    /// Sets the name of the tool; `run_code` unless set.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self.changed() }
    }

    /// Sets how many calls of one run are served at once.
    #[must_use]
    pub fn max_running_calls(self, max: usize) -> Self {
        Self { max_running: max, ..self.changed() }
    }

    /// The tool that runs code.
    #[must_use]
    pub fn run_code(&self) -> Arc<dyn DynTool> {
        self.parts().run_code.clone()
    }

    /// The block of the system prompt; `None` when code is turned off for the turn.
    pub async fn prompt(&self, state: &TurnState) -> Option<String> {
        self.parts().prompt(state).await
    }

    fn changed(self) -> Self {
        Self { parts: OnceLock::new(), ..self }
    }

    fn parts(&self) -> &Arc<Parts> {
        self.parts.get_or_init(|| {
            let (tools, media_tools) = (self.tools.clone(), self.media_tools);
            let run_code = Arc::new(RunCode::new(Setup {
                name: self.name.clone(),
                runners: self.runners.clone(),
                tools: CodeTools::OfTurn(Arc::new(move |state| Some(with_media(tools(state)?, media_tools)))),
                environment: self.environment.clone(),
                models: self.models.clone(),
                max_running: self.max_running,
            }));
            Arc::new(Parts { run_code, stubs: Stubs::new(self.folder.clone()) })
        })
    }
}

impl Plugin for CodeMode {
    fn name(&self) -> &str {
        "codemode"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        registry.dyn_tool(self.run_code()).hooks(PromptHooks(self.parts().clone()));
        Ok(())
    }
}

impl From<&CodeMode> for PromptSection {
    fn from(code: &CodeMode) -> Self {
        let parts = code.parts().clone();
        Self::made(move |facts| {
            let parts = parts.clone();
            Box::pin(async move { parts.prompt(facts.state).await })
        })
    }
}

impl Parts {
    async fn prompt(&self, state: &TurnState) -> Option<String> {
        let setup = self.run_code.setup();
        let CodeTools::OfTurn(tools) = &setup.tools else { return None };
        let tools = without_commands(tools(state)?);
        let about = match self.run_code.environment(state, state.environment.as_ref()) {
            Some(env) => match setup.runners.choose(&env).await {
                Ok(chosen) => chosen.about,
                Err(err) => format!("At present code cannot run: {}", err.message),
            },
            None => String::new(),
        };
        let models = match &setup.models {
            Models::Named => "`republic.get_model(...)` takes the model as provider:model.",
            Models::Session => "`republic.get_model()` without a name is this session's model.",
            Models::Default(_) | Models::Resolver(_) => "`republic.get_model()` without a name is the usual model.",
        };
        let stub = self.stubs.place(&tools, state, true).await;
        Some(prompt::block(&About {
            name: &setup.name,
            stub: stub.as_stub(),
            runner: &about,
            media: has_media(&tools),
            models,
        }))
    }
}

/// Adds the tools that attach media, but for names that are taken.
fn with_media(mut tools: Vec<Arc<dyn DynTool>>, wanted: bool) -> Vec<Arc<dyn DynTool>> {
    for attach in if wanted { Attach::all() } else { Vec::new() } {
        if !tools.iter().any(|it| it.spec().alias() == attach.name()) {
            tools.push(attach);
        }
    }
    tools
}

struct PromptHooks(Arc<Parts>);

#[async_trait]
impl Hooks for PromptHooks {
    fn name(&self) -> &str {
        "codemode"
    }

    fn implements(&self) -> &[&'static str] {
        &["system_prompt"]
    }

    async fn system_prompt(&self, state: &TurnState) -> Option<String> {
        self.0.prompt(state).await
    }
}
