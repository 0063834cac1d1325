//! The session's switch: the command `code_mode`, and what it does to the tools of a step.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use bub_kernel::{
    hooks::{Hooks, ToolView},
    plugin::{Plugin, PluginError, Registry},
    tool::{DynTool, prelude::*},
    turn::TurnState,
};
use serde_json::json;

use crate::{
    attach::Attach,
    bridge::Models,
    prompt::{self, About},
    run_code::{CodeTools, MAX_RUNNING_CALLS, RunCode, Setup},
    runners::Runners,
    stubs::{StubFolder, Stubs},
};

/// Turn code mode of this session on or off, from the next turn on.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CodeModeArgs {
    /// Whether the model writes code that calls the tools.
    enable: bool,
}

/// The command `code_mode`.
#[derive(Clone, Copy, Debug)]
pub struct CodeModeSwitch;

impl Tool for CodeModeSwitch {
    const NAME: &'static str = "code_mode";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = CodeModeArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: CodeModeArgs) -> Result<String, ToolError> {
        let recorded = ctx.tape.append_event("code_mode_switch", json!({"code_mode": args.enable})).await;
        recorded.map_err(|err| ToolError::raised("TapeError", err.to_string()).with_source(err))?;
        let state = if args.enable { "enabled" } else { "disabled" };
        Ok(format!("Session code mode {state} (applies from the next turn)."))
    }
}

/// Code mode as a switch of each session: the tools `run_code`, `attach_image`, `attach_audio` and
/// `attach_video`, the command `code_mode`, and the hook that chooses the tools of a step.
#[derive(Clone)]
pub struct SessionCodeMode {
    runners: Arc<dyn Runners>,
    folder: Option<Arc<StubFolder>>,
    max_running: usize,
    /// Made when first asked for; what is set later makes them anew.
    parts: OnceLock<Arc<SwitchHooks>>,
}

impl fmt::Debug for SessionCodeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCodeMode").field("max_running", &self.max_running).finish_non_exhaustive()
    }
}

impl SessionCodeMode {
    /// Code runs on what `runners` choose; the definitions of the tools stand in the prompt.
    #[must_use]
    pub fn new(runners: Arc<dyn Runners>) -> Self {
        Self { runners, folder: None, max_running: MAX_RUNNING_CALLS, parts: OnceLock::new() }
    }

    /// Puts the definitions of the tools into files, in the folder that `folder` names for a turn;
    /// where it names none they stand in the prompt, as they do when the model could not read a file.
    #[must_use]
    pub fn stub_folder(mut self, folder: impl Fn(&TurnState) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        self.folder = Some(Arc::new(folder));
        self.parts = OnceLock::new();
        self
    }

    /// Sets how many calls of one run are served at once.
    #[must_use]
    pub fn max_running_calls(mut self, max: usize) -> Self {
        self.max_running = max;
        self.parts = OnceLock::new();
        self
    }
}

impl SessionCodeMode {
    /// Adds the tools alone, in the order in which they are listed.
    pub fn add_tools(&self, registry: &mut Registry) {
        registry.dyn_tool(self.parts().tool.clone());
        for attach in Attach::all() {
            registry.dyn_tool(attach);
        }
        registry.tool(CodeModeSwitch);
    }

    /// The hook that divides the tools of a step. Others that choose tools should rank higher.
    #[must_use]
    pub fn hooks(&self) -> Arc<dyn Hooks> {
        self.parts().clone()
    }

    fn parts(&self) -> &Arc<SwitchHooks> {
        self.parts.get_or_init(|| {
            let run_code = Arc::new(RunCode::new(Setup {
                name: "run_code".to_owned(),
                runners: self.runners.clone(),
                tools: CodeTools::OfStep,
                environment: None,
                models: Models::Session,
                max_running: self.max_running,
            }));
            Arc::new(SwitchHooks {
                tool: run_code.clone(),
                run_code,
                stubs: Stubs::new(self.folder.clone()),
                described: Mutex::default(),
            })
        })
    }
}

impl Plugin for SessionCodeMode {
    fn name(&self) -> &str {
        "codemode"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        self.add_tools(registry);
        registry.shared_hooks(self.hooks());
        Ok(())
    }
}

/// Divides the tools of a step between the model and its code.
struct SwitchHooks {
    run_code: Arc<RunCode>,
    /// The same, as it is registered.
    tool: Arc<dyn DynTool>,
    stubs: Stubs,
    /// `run_code` with the description of a runner, and that description.
    described: Mutex<Option<(String, Arc<dyn DynTool>)>>,
}

impl SwitchHooks {
    /// `run_code` as the model is offered it: its description says where the code runs.
    fn described(&self, about: &str) -> Arc<dyn DynTool> {
        let mut known = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((text, tool)) if text == about => tool.clone(),
            _ => {
                let tool: Arc<dyn DynTool> = Arc::new(self.run_code.described(about));
                *known = Some((about.to_owned(), tool.clone()));
                tool
            }
        }
    }

    async fn about(&self, state: &TurnState) -> String {
        let Some(env) = &state.environment else { return String::new() };
        match self.run_code.setup().runners.choose(env).await {
            Ok(chosen) => chosen.about,
            Err(err) => format!("At present code cannot run: {}", err.message),
        }
    }
}

#[async_trait]
impl Hooks for SwitchHooks {
    fn name(&self) -> &str {
        "codemode"
    }

    fn implements(&self) -> &[&'static str] {
        &["choose_tools"]
    }

    async fn choose_tools(&self, state: &TurnState, view: &mut ToolView) {
        let name = self.run_code.name();
        if !state.code_mode || !view.direct.iter().any(|it| it.name() == name) {
            view.direct.retain(|it| it.name() != name);
            view.code.clear();
            return;
        }
        divide(view);
        let about = self.about(state).await;
        for tool in view.direct.iter_mut().filter(|it| Arc::ptr_eq(it, &self.tool)) {
            *tool = self.described(&about);
        }
        let can_read = view.direct.iter().any(|it| matches!(it.name(), "fs.read" | "bash"));
        let stub = self.stubs.place(&view.code, state, can_read).await;
        view.prompt.push(prompt::block(&About {
            name,
            stub: stub.as_stub(),
            runner: "",
            media: has_media(&view.code),
            models: "`republic.get_model()` without a name is this session's model.",
        }));
    }
}

/// Leaves the direct tools to the model and gives all others to its code. What other hooks took away
/// or added stays so.
fn divide(view: &mut ToolView) {
    let (moved, direct): (Vec<_>, Vec<_>) =
        std::mem::take(&mut view.direct).into_iter().partition(|it| it.spec().exposure == Exposure::Auto);
    view.direct = direct;
    let has = |tools: &[Arc<dyn DynTool>], tool: &Arc<dyn DynTool>| tools.iter().any(|it| Arc::ptr_eq(it, tool));
    view.code.retain(|it| it.spec().exposure == Exposure::Code || it.spec().deferred || has(&moved, it));
    for tool in moved {
        if !has(&view.code, &tool) {
            view.code.push(tool);
        }
    }
}

/// Whether code can attach media.
pub(crate) fn has_media(tools: &[Arc<dyn DynTool>]) -> bool {
    tools.iter().any(|it| it.name() == "attach_image")
}
