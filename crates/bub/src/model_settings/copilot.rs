//! The credentials of GitHub Copilot: those of the program `gh`.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bub_kernel::{
    environment::{Environment, Output, Program, SpawnRequest},
    model::ModelError,
};
use bub_models::{Credentials, TokenSource};
use tokio::io::AsyncReadExt as _;

/// How long `gh` may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that is read of what it prints, in bytes.
const MAX_BYTES: u64 = 4 << 10;

/// Asks `gh` for its token before each request, so that a new login is used at once.
pub(super) struct GhToken {
    /// Where `gh` runs: on this machine, wherever tools run.
    pub(super) environment: Arc<dyn Environment>,
}

impl fmt::Debug for GhToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GhToken").finish_non_exhaustive()
    }
}

impl GhToken {
    async fn token(&self) -> Result<String, String> {
        let program = Program::Argv(["gh", "auth", "token"].map(str::to_owned).to_vec());
        let request = SpawnRequest { program, output: Output::Separate, ..SpawnRequest::shell("") };
        let mut process = self.environment.spawn(request).await.map_err(|err| err.to_string())?;
        let mut printed = String::new();
        if let Some(pipes) = process.take_pipes() {
            pipes.stdout.take(MAX_BYTES).read_to_string(&mut printed).await.map_err(|err| err.to_string())?;
        }
        match process.wait().await {
            Ok(status) if status.code == 0 && !printed.trim().is_empty() => Ok(printed.trim().to_owned()),
            Ok(status) => Err(format!("it ended with exit code {}", status.code)),
            Err(err) => Err(err.to_string()),
        }
    }
}

#[async_trait]
impl TokenSource for GhToken {
    async fn credentials(&self) -> Result<Credentials, ModelError> {
        let asked = tokio::time::timeout(PATIENCE, self.token()).await;
        let token = asked.unwrap_or_else(|_| Err(format!("it did not answer for {} s", PATIENCE.as_secs())));
        let token = token.map_err(|why| {
            ModelError::Auth(format!(
                "`gh auth token` gives no token ({why}); run `gh auth login` or `bub login copilot`, or set \
                 BUB_GITHUB_COPILOT_API_KEY"
            ))
        })?;
        Ok(Credentials::bearer(&token))
    }

    async fn renew(&self, _refused: &Credentials) -> bool {
        // It was asked a moment ago.
        false
    }
}
