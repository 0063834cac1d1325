//! What a step offers in an application: what the session allows, with deferred tools apart, and in code
//! mode the tools that code may call.

use std::{panic::AssertUnwindSafe, sync::Arc};

use async_trait::async_trait;
use bub_kernel::{
    error::panic_text,
    hooks::ToolView,
    steps::{StepError, StepFacts, StepPolicy},
    tool::{DynTool, Exposure},
    turn::TurnError,
};
use futures::FutureExt as _;

/// The steps of a session of the application: its allowed tools; deferred ones are named and not
/// offered; in code mode code gets tools too. Hooks divide them further.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionSteps;

#[async_trait]
impl StepPolicy for SessionSteps {
    async fn prepare_tools(&self, facts: &StepFacts<'_>) -> Result<ToolView, StepError> {
        let state = facts.state;
        let allowed = || facts.tools.iter().filter(|it| state.allows_tool(it.name()));
        let is_for_model = |it: &Arc<dyn DynTool>| matches!(it.spec().exposure, Exposure::Auto | Exposure::Direct);
        let is_for_code = |it: &Arc<dyn DynTool>| matches!(it.spec().exposure, Exposure::Auto | Exposure::Code);
        let mut view = ToolView::of(allowed().filter(|it| is_for_model(it) && !it.spec().deferred).cloned());
        view.deferred.extend(allowed().filter(|it| is_for_model(it) && it.spec().deferred).cloned());
        if state.code_mode {
            view.code.extend(allowed().filter(|it| is_for_code(it)).cloned());
        }
        Ok(view)
    }
}

/// Waits for a decision of a policy. Its failure ends the turn, its panic too.
pub(crate) async fn decide<T>(
    decision: &'static str,
    work: impl Future<Output = Result<T, StepError>>,
) -> Result<T, TurnError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done.map_err(|err| TurnError::Policy { decision, message: err.to_string() }),
        Err(panic) => Err(TurnError::Policy { decision, message: format!("it panicked: {}", panic_text(&*panic)) }),
    }
}
