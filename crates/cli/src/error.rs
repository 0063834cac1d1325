//! What went wrong, for people: one message, a hint at the next step, an exit code.

use std::{io, process::ExitCode};

use bub::{
    BuildError,
    kernel::{model::ModelError, turn::TurnError},
    settings::SettingsError,
};

use crate::{output::note, terminal::safe::safe};

/// The turn failed.
const FAILED: u8 = 1;
/// The command line or the settings are wrong.
const USAGE: u8 = 2;
/// Somebody pressed Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// What to do when no model is set.
pub(crate) const NO_MODEL_HINT: &str = "set one with BUB_MODEL=provider:model and BUB_API_KEY, or under `model` in \
    ~/.bub/config.yml; tools and shell commands work without one: bub run ',help'";

/// A mistake in how the program was called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// What clap has to say: help and version on standard output, mistakes on standard error.
pub(crate) fn usage(err: &clap::Error) -> ExitCode {
    let printed = err.print();
    match (printed, err.use_stderr()) {
        (_, true) => ExitCode::from(USAGE),
        (Ok(()), false) => ExitCode::SUCCESS,
        (Err(err), false) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        (Err(_), false) => ExitCode::from(FAILED),
    }
}

/// Prints an error with its causes and a hint, and picks the exit code.
pub(crate) fn report(err: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(err) {
        // Whoever read our output has seen enough.
        return ExitCode::SUCCESS;
    }
    if matches!(err.downcast_ref(), Some(TurnError::Cancelled)) {
        note("interrupted");
        return ExitCode::from(INTERRUPTED);
    }
    tell(err);
    ExitCode::from(code(err))
}

/// Prints an error with its causes and a hint.
pub(crate) fn tell(err: &anyhow::Error) {
    note(&format!("error: {}", safe(&message(err))));
    if let Some(hint) = hint(err) {
        note(&format!("hint: {hint}"));
    }
}

/// The message with its causes, without those that only repeat it.
pub(crate) fn message(err: &anyhow::Error) -> String {
    let mut text = err.to_string();
    if matches!(err.downcast_ref(), Some(TurnError::Model(_))) {
        // It is told whole; below it is only how the client came to know.
        return text;
    }
    for cause in err.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if text.ends_with('.') && !text.ends_with("..") {
                text.pop();
            }
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// The exit code for an error.
pub(crate) fn code(err: &anyhow::Error) -> u8 {
    let is_usage = err.is::<UsageError>()
        || err.is::<SettingsError>()
        || matches!(err.downcast_ref(), Some(BuildError::Settings(_) | BuildError::Workspace { .. }))
        || matches!(err.downcast_ref(), Some(TurnError::Model(ModelError::Config(_))));
    match err.downcast_ref() {
        Some(TurnError::Cancelled) => INTERRUPTED,
        _ if is_usage => USAGE,
        _ => FAILED,
    }
}

/// Whether whoever read our output has gone away.
pub(crate) fn is_broken_pipe(err: &anyhow::Error) -> bool {
    err.chain().any(|it| it.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe))
}

/// What to do next.
fn hint(err: &anyhow::Error) -> Option<String> {
    let text = match err.downcast_ref::<TurnError>()? {
        TurnError::Command { error, .. } => error.details.get("hint")?.as_str()?,
        TurnError::Model(ModelError::Config(message)) if message.starts_with("no model to run") => NO_MODEL_HINT,
        TurnError::Model(ModelError::Auth(text)) if text.contains("login") => {
            "`bub login` tells where you are logged in, and how to log in again"
        }
        TurnError::Model(ModelError::Auth(_)) => {
            "check the key: `bub config show` tells where it comes from; BUB_API_KEY sets it"
        }
        TurnError::Model(ModelError::Rejected { status: Some(404), .. }) => {
            "`bub models` lists what the provider offers; `bub run ',model provider:model'` sets the session's model"
        }
        TurnError::Model(ModelError::Transport { .. }) => {
            "check the network and the address: `bub config show` tells where api_base comes from"
        }
        TurnError::Model(ModelError::RateLimited { .. } | ModelError::Overloaded { .. }) => {
            "wait a little and say it again; the message is on the tape"
        }
        TurnError::StepsExhausted { .. } => {
            "this is the limit max_steps; the work so far is on the tape, and another message continues it"
        }
        _ => return None,
    };
    Some(text.to_owned())
}
