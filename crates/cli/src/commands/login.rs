//! `bub login`: credentials that come from another program's login.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow};
use bub::{models::CodexLogin, settings::Settings};

use crate::{args::LoginCommand, output};

/// Logs in.
pub(crate) async fn run(command: LoginCommand, settings: &Settings) -> Result<ExitCode> {
    let LoginCommand::Codex { executable, device_auth, codex_home } = command;
    let folder = codex_home.unwrap_or_else(|| settings.codex_home());
    match codex(&executable, device_auth, &folder).await {
        Ok(account) => {
            output::line("login: ok")?;
            output::line(&format!("account_id: {account}"))?;
            output::line(
                "use it with BUB_MODEL=codex:gpt-5 (any model of your plan), or `model: codex:…` in the configuration",
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problem) => Err(anyhow!("login: failed: {problem}")),
    }
}

/// Lets the Codex program log in, with its own terminal, and reads what it left.
async fn codex(executable: &str, device_auth: bool, folder: &PathBuf) -> Result<String, String> {
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
