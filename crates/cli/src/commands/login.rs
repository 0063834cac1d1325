//! `bub login`: credentials that come from a login, bub's own or another program's.

mod browser;
mod codex;
mod openrouter;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use bub::settings::Settings;

use crate::args::LoginCommand;

/// Logs in.
pub(crate) async fn run(command: LoginCommand, settings: &Settings) -> Result<ExitCode> {
    match command {
        LoginCommand::Codex { executable, device_auth, codex_home } => {
            let folder = codex_home.unwrap_or_else(|| settings.codex_home());
            codex::run(&executable, device_auth, &folder).await
        }
        LoginCommand::Openrouter(args) => openrouter::run(&args, settings).await,
    }
}

fn failed(problem: anyhow::Error) -> anyhow::Error {
    anyhow!("login: failed: {problem:#}")
}
