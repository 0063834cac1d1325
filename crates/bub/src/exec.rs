//! The environment of the settings: every session's, unless a hook of a plugin provides another.

use std::sync::Arc;

use async_trait::async_trait;
use bub_host::{ExecEnvironment, ExecOptions, LocalOptions};
use bub_kernel::{
    environment::{Environment, EnvironmentError},
    hooks::Hooks,
    turn::SessionId,
};

use crate::settings::EnvironmentSettings;

/// What a person can do about an environment that is not there.
const HINT: &str = "check that it runs, or change the setting environment.exec";

/// Gives sessions the environment that the settings name, once it has said where it is.
pub(crate) struct ExecHooks(Arc<ExecEnvironment>);

impl ExecHooks {
    /// Makes the environment; nothing is run yet.
    pub(crate) fn new(settings: &EnvironmentSettings, local: LocalOptions) -> Result<Self, EnvironmentError> {
        let environment = ExecEnvironment::new(ExecOptions {
            command: settings.exec.clone(),
            workspace: settings.workspace.clone(),
            shell: settings.shell.clone(),
            hint: HINT.to_owned(),
            local,
        })?;
        Ok(Self(Arc::new(environment)))
    }

    /// The environment, which all sessions share.
    pub(crate) fn environment(&self) -> Arc<dyn Environment> {
        self.0.clone()
    }
}

#[async_trait]
impl Hooks for ExecHooks {
    fn name(&self) -> &str {
        "environment"
    }

    fn implements(&self) -> &[&'static str] {
        &["environment"]
    }

    async fn environment(&self, _: &SessionId) -> Option<Arc<dyn Environment>> {
        // The first tool that needs it says what is wrong; what needs none is not kept from running.
        if let Err(err) = self.0.connect().await {
            tracing::debug!(%err, "the environment does not answer");
        }
        Some(self.0.clone())
    }
}
