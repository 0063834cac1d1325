//! One file per command.

mod chat;
mod code;
mod config;
mod gateway;
mod list;
mod login;
mod models;
mod run;
mod skills;
mod tape;
mod turn;

use std::{io::Read, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use bub::{
    Builder,
    settings::{Settings, Sources},
};
use clap::CommandFactory as _;

use crate::{
    args::{Args, CodeArgs, Command, GatewayArgs},
    error::UsageError,
    output,
};

/// The most that is read of a message or of a file with code, in bytes.
const MAX_INPUT_BYTES: u64 = 10 << 20;

/// Does what the command line asks for.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if let Command::Completions { shell } = args.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "bub", &mut script);
        output::out(&String::from_utf8_lossy(&script))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (settings, workspace) = load(&args)?;
    let names_workspace = args.workspace.is_some();
    log(args.verbose.max(settings.verbose));
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    match args.command {
        Command::Run(run) => run::run(run, settings, workspace).await,
        Command::Chat(chat) => chat::run(chat, settings, workspace).await,
        Command::Gateway(gateway) => gateway::run(&gateway, settings, workspace).await,
        Command::Code(code) => code::run(code, settings, workspace).await,
        Command::Tape(command) => tape::run(command, settings, workspace).await,
        Command::Tools { json } => list::tools(&builder(settings, workspace).build()?, json),
        Command::Hooks => list::hooks(&builder(settings, workspace).build()?),
        Command::Login(command) => login::run(command, &settings).await,
        Command::Models(args) => models::run(args, settings, workspace).await,
        Command::Skills(command) => skills::run(command, settings, workspace, names_workspace).await,
        Command::Config(command) => config::run(command, &settings),
        Command::Completions { .. } | Command::CodeWorker => Ok(ExitCode::SUCCESS),
    }
}

/// A builder that knows this program, which runs code where there is no Python.
fn builder(settings: Settings, workspace: PathBuf) -> Builder {
    let builder = Builder::new(settings, workspace);
    match std::env::current_exe() {
        Ok(program) => builder.code_worker(program, vec!["code-worker".into()]),
        Err(err) => {
            tracing::warn!("the program does not know where it is, so code needs a Python: {err}");
            builder
        }
    }
}

/// Reads a text that errors call `name`.
fn read_text(reader: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(UsageError(format!("{name} is larger than {} MiB", MAX_INPUT_BYTES >> 20)).into());
    }
    Ok(String::from_utf8(bytes)
        .map_err(|err| UsageError(format!("{name} is not UTF-8 (at byte {})", err.utf8_error().valid_up_to())))?)
}

/// Reads the settings, and finds the workspace.
fn load(args: &Args) -> Result<(Settings, PathBuf)> {
    #[expect(clippy::disallowed_methods, reason = "the program's current directory is read here and passed on")]
    let cwd = std::env::current_dir().context("cannot tell the current directory")?;
    let mut sources = Sources::of_process(&cwd);
    for pair in &args.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(UsageError(format!("--set takes KEY=VALUE, got '{pair}'")).into());
        };
        sources = sources.with_override(key, value, "--set");
    }
    if let Command::Code(CodeArgs { runner: Some(runner), .. }) = &args.command {
        sources = sources.with_override("code.runner", runner, "--runner");
    }
    if let Command::Gateway(GatewayArgs { enable_channel }) = &args.command
        && !enable_channel.is_empty()
    {
        sources = sources.with_override("enabled_channels", enable_channel.join(","), "--enable-channel");
    }
    let settings = Settings::load(sources)?;
    let workspace = args.workspace.as_ref().map_or_else(|| cwd.clone(), |it| cwd.join(it));
    Ok((settings, workspace))
}

/// Sends logs to standard error.
fn log(verbosity: u8) {
    use tracing_subscriber::{EnvFilter, fmt};
    let level = match verbosity {
        // A failed call is not a failed turn, and the turn tells of it itself.
        0 => "warn,bub::tool=off",
        1 => "bub=info,bub_engine=info,bub_host=info,bub_models=info,bub_tools=info,warn",
        2 => "bub=debug,bub_engine=debug,bub_host=debug,bub_models=debug,bub_tools=debug,info",
        _ => "trace",
    };
    let filter =
        output::variable("BUB_LOG").and_then(|it| EnvFilter::try_new(it).ok()).unwrap_or_else(|| EnvFilter::new(level));
    let color = output::wants_color(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let subscriber = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(color).without_time();
    // Only a second call could fail, and there is none.
    drop(subscriber.with_target(verbosity > 1).try_init());
}
