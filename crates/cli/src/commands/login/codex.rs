//! ChatGPT: the Codex program logs in, with its own terminal, and its login is shared.

use std::{path::Path, process::ExitCode};

use anyhow::{Result, anyhow};
use bub::models::CodexLogin;

use super::failed;
use crate::output::line;

pub(super) async fn run(executable: &str, device_auth: bool, folder: &Path) -> Result<ExitCode> {
    let account = log_in(executable, device_auth, folder).await.map_err(|problem| failed(anyhow!(problem)))?;
    line("login: ok")?;
    line(&format!("account_id: {account}"))?;
    line("use it with BUB_MODEL=codex:gpt-5 (any model of your plan), or `model: codex:…` in the configuration")?;
    Ok(ExitCode::SUCCESS)
}

/// Lets the Codex program log in, and reads what it left.
async fn log_in(executable: &str, device_auth: bool, folder: &Path) -> Result<String, String> {
    std::fs::create_dir_all(folder).map_err(|err| format!("{}: {err}", folder.display()))?;
    let mut command = tokio::process::Command::new(executable);
    // In a file, since that is where the tokens can be read and renewed from.
    command.args(["login", "-c", "cli_auth_credentials_store=\"file\""]).env("CODEX_HOME", folder);
    if device_auth {
        command.arg("--device-auth");
    }
    let status = command.kill_on_drop(true).status().await.map_err(|err| {
        format!("{executable}: {err}; install the Codex program (npm install -g @openai/codex), or name it with --executable")
    })?;
    if !status.success() {
        let code = status.code().map_or_else(|| "by a signal".to_owned(), |it| format!("with exit code {it}"));
        return Err(format!("{executable} ended {code}"));
    }
    CodexLogin::new(folder.join("auth.json")).account().map_err(|err| err.to_string())
}
