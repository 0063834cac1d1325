//! `bub login`: credentials that come from a login, bub's own or another program's.

mod browser;
mod copilot;
mod list;
mod openrouter;
mod program;

use std::{io, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use bub::{
    models::{CopilotLogin, KeyFile, LoginError},
    settings::Settings,
};

use crate::{
    args::{LoginArgs, LoginCommand},
    error::{INTERRUPTED, UsageError},
    interrupt::Interrupts,
    output::{line, note},
};

/// Does what `bub login` asks for.
pub(crate) async fn run(args: LoginArgs, settings: &Settings) -> Result<ExitCode> {
    let Some(command) = args.command else { return list::run(settings, args.json) };
    match command {
        LoginCommand::Codex { program, .. } if program.logout => Err(of_another("Codex", "codex logout")),
        LoginCommand::Codex { program, codex_home } => {
            program::codex(&program, &codex_home.unwrap_or_else(|| settings.codex_home())).await
        }
        LoginCommand::Grok(args) if args.logout => Err(of_another("Grok", "grok logout")),
        LoginCommand::Grok(args) => program::grok(&args, settings).await,
        LoginCommand::Openrouter(args) if args.logout => {
            let file = settings.paths.openrouter_login();
            log_out(&file, KeyFile::new(file.clone()).remove())?;
            note("the key is good until you delete it at https://openrouter.ai/settings/keys");
            Ok(ExitCode::SUCCESS)
        }
        LoginCommand::Openrouter(args) => within(args.timeout, openrouter::log_in(&args, settings)).await,
        LoginCommand::Copilot(args) if args.browser.logout => {
            let file = settings.paths.copilot_login();
            log_out(&file, CopilotLogin::new(file.clone()).remove())?;
            note("GitHub lists what may use your account at https://github.com/settings/applications");
            Ok(ExitCode::SUCCESS)
        }
        LoginCommand::Copilot(args) => within(args.browser.timeout, copilot::log_in(&args, settings)).await,
    }
}

/// Runs a login until it ends, takes too long, or somebody presses Ctrl-C. It keeps nothing before it has
/// everything.
async fn within(seconds: u32, work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen();
    let too_long = || anyhow!("{} ({seconds} s; --timeout sets another limit)", LoginError::Expired);
    let work = tokio::time::timeout(Duration::from_secs(seconds.into()), work);
    tokio::select! {
        () = interrupts.next() => {
            note("interrupted");
            Ok(ExitCode::from(INTERRUPTED))
        }
        worked = work => match worked.unwrap_or_else(|_| Err(too_long())) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(problem) => Err(failed(problem)),
        },
    }
}

fn log_out(file: &Path, removed: io::Result<bool>) -> Result<()> {
    match removed.with_context(|| format!("cannot remove {}", file.display()))? {
        true => line("logout: ok")?,
        false => line("logout: nobody was logged in")?,
    }
    Ok(())
}

fn of_another(program: &str, command: &str) -> anyhow::Error {
    UsageError(format!("this login is the {program} program's: `{command}` ends it")).into()
}

fn failed(problem: anyhow::Error) -> anyhow::Error {
    anyhow!("login: failed: {problem:#}")
}
