//! `bub chat`: a conversation in the terminal.

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Result;
use bub::{
    App, Builder, TurnOptions,
    engine::{Gateway, GatewaySettings},
    kernel::turn::SessionId,
};
use tokio_util::sync::CancellationToken;

use super::{named, tools_named};
use crate::{
    args::ChatArgs,
    error::NO_MODEL_HINT,
    interrupt::Interrupts,
    output,
    terminal::chat::{ChatChannel, ChatSetup, Outcome},
};

/// Talks until the person leaves or the input ends.
pub(crate) async fn run(args: ChatArgs, builder: Builder) -> Result<ExitCode> {
    let prefix = builder.settings().command_prefix.clone();
    let app = builder.build()?;
    let options = TurnOptions {
        allowed_tools: tools_named(&app, args.tools.as_deref())?,
        allowed_skills: args.skills.as_deref().map(named),
        ..TurnOptions::default()
    };
    let session = SessionId(args.session_id.clone());
    greet(&app, &session, &prefix).await;
    let is_interactive = io::stdin().is_terminal();
    let setup = ChatSetup {
        session,
        chat: args.chat_id.clone(),
        first: args.initial_prompt.clone(),
        label: label(app.workspace()),
        prefix,
        history: is_interactive.then(|| history(&app)).flatten(),
    };
    let channel = Arc::new(ChatChannel::new(setup, app.runtime().clone()));
    let settings = GatewaySettings { stream: true, options, ..app.gateway_settings() };
    let gateway = Gateway::new(app.runtime().clone(), vec![channel.clone()], settings);
    let ended = gateway.run(CancellationToken::new()).await;
    let mut interrupts = Interrupts::listen();
    tokio::select! {
        () = app.close() => (),
        () = interrupts.next() => (),
    }
    let Outcome { code, error } = channel.outcome();
    // The process is about to end; freeing its memory piece by piece would only take time.
    std::mem::forget(app);
    match error {
        Some(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Some(err) => Err(err.into()),
        None => {
            ended?;
            Ok(ExitCode::from(code))
        }
    }
}

/// Says where the person is, and what is missing.
async fn greet(app: &App, session: &SessionId, prefix: &str) {
    let switched = app.runtime().tape(session).setting("model").await.ok().flatten();
    let model = switched.as_ref().and_then(|it| it.as_str()).or(app.settings().model.as_deref());
    if io::stdin().is_terminal() {
        let model = model.unwrap_or("no model");
        output::note(&format!("bub {} · session {session} · {model}", env!("CARGO_PKG_VERSION")));
        output::note(&format!("{prefix}help lists commands, Ctrl-C stops a turn, {prefix}quit leaves"));
    }
    if model.is_none() {
        output::note("error: no model is set, so messages can't be answered; commands work");
        output::note(&format!("hint: {NO_MODEL_HINT}"));
    }
}

/// The file for what is typed here, if its folder can be used.
fn history(app: &App) -> Option<PathBuf> {
    let paths = &app.settings().paths;
    match paths.make(&paths.history()) {
        Ok(()) => Some(paths.history_file(app.workspace())),
        Err(err) => {
            tracing::warn!("what is typed is not kept: {err}");
            None
        }
    }
}

/// The workspace's own name.
fn label(workspace: &str) -> String {
    let name = Path::new(workspace).file_name().map(|it| it.to_string_lossy().into_owned());
    crate::terminal::safe::safe_line(&name.unwrap_or_else(|| "/".to_owned()))
}
