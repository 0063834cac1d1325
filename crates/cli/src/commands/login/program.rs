//! Logins of other programs: the program logs in, with its own terminal, and what it left is shared.

use std::{path::Path, process::ExitCode};

use anyhow::{Result, anyhow, bail};
use bub::{models::CodexLogin, models::GrokLogin, models::LoginState, settings::Settings};
use tokio::process::Command;

use super::failed;
use crate::{args::ProgramArgs, output::line, terminal::safe::safe_line};

/// Lets the Codex program log in to ChatGPT.
pub(super) async fn codex(args: &ProgramArgs, folder: &Path) -> Result<ExitCode> {
    let logged_in = async {
        std::fs::create_dir_all(folder).map_err(|err| anyhow!("{}: {err}", folder.display()))?;
        let program = args.executable.as_deref().unwrap_or("codex");
        let mut command = Command::new(program);
        // In a file, since that is where the tokens can be read and renewed from.
        command.args(["login", "-c", "cli_auth_credentials_store=\"file\""]).env("CODEX_HOME", folder);
        run(command, program, args.device_auth, "install the Codex program (npm install -g @openai/codex)").await?;
        Ok(CodexLogin::new(folder.join("auth.json")).account()?)
    };
    let account = logged_in.await.map_err(failed)?;
    line("login: ok")?;
    line(&format!("account_id: {}", safe_line(&account)))?;
    line("use it with BUB_MODEL=codex:gpt-5 (any model of your plan), or `model: codex:…` in the configuration")?;
    Ok(ExitCode::SUCCESS)
}

/// Lets the Grok program log in to xAI.
pub(super) async fn grok(args: &ProgramArgs, settings: &Settings) -> Result<ExitCode> {
    let logged_in = async {
        let program = args.executable.as_deref().unwrap_or("grok");
        let mut command = Command::new(program);
        command.arg("login");
        run(command, program, args.device_auth, "install the Grok program").await?;
        let file = settings.grok_login();
        match GrokLogin::new(file.clone()).state() {
            LoginState::Present { account, .. } => Ok(account),
            LoginState::Absent => bail!("{program} left no login in {}", file.display()),
            LoginState::Broken(problem) => Err(anyhow!(problem)),
        }
    };
    let account = logged_in.await.map_err(failed)?;
    line("login: ok")?;
    if let Some(account) = account {
        line(&format!("account_id: {}", safe_line(&account)))?;
    }
    line("use it with BUB_MODEL=grok:grok-4 (any model of your plan), or `model: grok:…` in the configuration")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a program that logs in.
async fn run(mut command: Command, program: &str, device_auth: bool, install: &str) -> Result<()> {
    if device_auth {
        command.arg("--device-auth");
    }
    let status = command.kill_on_drop(true).status().await;
    let status = status.map_err(|err| anyhow!("{program}: {err}; {install}, or name it with --executable"))?;
    if !status.success() {
        let code = status.code().map_or_else(|| "by a signal".to_owned(), |it| format!("with exit code {it}"));
        bail!("{program} ended {code}");
    }
    Ok(())
}
