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
mod subcommand;
mod tape;
mod turn;

use std::{io::Read, path::PathBuf, process::ExitCode};

pub(crate) use self::subcommand::{Call, call_of, command_of};
use crate::{
    args::{Args, CodeArgs, Command, GatewayArgs, Globals},
    error::UsageError,
    output,
    program::{Asked, Program},
};
use anyhow::{Context as _, Result};
use bub::{
    App, Builder,
    settings::{Settings, Sources},
};

/// The most that is read of a message or of a file with code, in bytes.
const MAX_INPUT_BYTES: u64 = 10 << 20;

/// Does what the command line asks for.
pub(crate) async fn run(asked: Asked, program: Program) -> Result<ExitCode> {
    if let Asked::Own(Args { command: Command::Completions { shell }, .. }) = &asked {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut program.command().0, program.name(), &mut script);
        output::out(&String::from_utf8_lossy(&script))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (globals, own) = match &asked {
        Asked::Own(args) => (&args.globals, setting_of(&args.command)),
        Asked::Tool { globals, .. } => (globals, None),
    };
    let (settings, workspace) = load(globals, own)?;
    let names_workspace = globals.workspace.is_some();
    log(globals.verbose.max(settings.verbose));
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let builder = program.into_plugins().into_iter().fold(builder(settings, workspace), Builder::plugin);
    let command = match asked {
        Asked::Own(args) => args.command,
        Asked::Tool { call, .. } => return subcommand::run(call, builder).await,
    };
    match command {
        Command::Run(run) => run::run(run, builder).await,
        Command::Chat(chat) => chat::run(chat, builder).await,
        Command::Gateway(gateway) => gateway::run(&gateway, builder).await,
        Command::Code(code) => code::run(code, builder).await,
        Command::Tape(command) => tape::run(command, builder).await,
        Command::Tools { json } => list::tools(&builder.build()?, json),
        Command::Hooks { json } => list::hooks(&builder.build()?, json),
        Command::Login(args) => login::run(args, builder.settings()).await,
        Command::Models(args) => models::run(args, builder).await,
        Command::Plugins { json } => list::plugins(&builder.build()?, json),
        Command::Skills(command) => skills::run(command, builder, names_workspace).await,
        Command::Config(command) => config::run(command, builder),
        Command::Completions { .. } | Command::CodeWorker => Ok(ExitCode::SUCCESS),
    }
}

/// A setting that an option of a command stands for: its key, its value, the option.
type OwnSetting = (&'static str, String, &'static str);

fn setting_of(command: &Command) -> Option<OwnSetting> {
    match command {
        Command::Code(CodeArgs { runner: Some(runner), .. }) => Some(("code.runner", runner.clone(), "--runner")),
        Command::Gateway(GatewayArgs { enable_channel }) if !enable_channel.is_empty() => {
            Some(("enabled_channels", enable_channel.join(","), "--enable-channel"))
        }
        _ => None,
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

/// The names of a list; an empty text is an empty list.
fn named(list: &[String]) -> Vec<String> {
    list.iter().map(|it| it.trim()).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// The runtime names of a list of tools.
fn tools_named(app: &App, list: Option<&[String]>) -> Result<Option<Vec<String>>> {
    let Some(list) = list else { return Ok(None) };
    Ok(Some(app.runtime().tools().resolve_names(&named(list)).map_err(UsageError)?))
}

/// Reads a text that errors call `name`. A byte order mark, which some programs put before what they write,
/// is no part of it.
fn read_text(reader: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(UsageError(format!("{name} is larger than {} MiB", MAX_INPUT_BYTES >> 20)).into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|err| UsageError(format!("{name} is not UTF-8 (at byte {})", err.utf8_error().valid_up_to())))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads the settings, and finds the workspace.
fn load(globals: &Globals, own: Option<OwnSetting>) -> Result<(Settings, PathBuf)> {
    #[expect(clippy::disallowed_methods, reason = "the program's current directory is read here and passed on")]
    let cwd = std::env::current_dir().context("cannot tell the current directory")?;
    let mut sources = Sources::of_process(&cwd);
    for pair in &globals.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(UsageError(format!("--set takes KEY=VALUE, got '{pair}'")).into());
        };
        sources = sources.with_override(key, value, "--set");
    }
    if let Some((key, value, option)) = own {
        sources = sources.with_override(key, value, option);
    }
    let settings = Settings::load(sources)?;
    let workspace = globals.workspace.as_ref().map_or_else(|| cwd.clone(), |it| cwd.join(it));
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
