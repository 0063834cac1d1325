//! `bub run`: one message in, one answer out.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use anyhow::Result;
use bub::{
    App, Builder, TurnOptions,
    kernel::{
        message::Part,
        text::elide,
        turn::{Inbound, Prompt, SessionId},
    },
};

use super::{named, tools_named, turn::play};
use crate::{
    args::{Output, RunArgs},
    error::UsageError,
    terminal::{Printer, json::JsonPrinter, text::TextPrinter},
};

/// Runs the turn and prints it.
pub(crate) async fn run(args: RunArgs, builder: Builder) -> Result<ExitCode> {
    let message = message(args.message.as_deref())?;
    if message.trim().is_empty() && args.attach.is_empty() {
        return Err(UsageError("the message is empty".to_owned()).into());
    }
    let session = args.session_id.clone().unwrap_or_else(|| format!("{}:{}", args.channel, args.chat_id));
    let app = builder.build()?;
    let prompt = prompt(&app, message, &args.attach).await?;
    let inbound = Inbound {
        session: Some(SessionId(session.clone())),
        context: vec![("sender_id".to_owned(), args.sender_id.clone())],
        local: args.channel == "cli",
        ..Inbound::new(args.channel.clone(), args.chat_id.clone(), prompt)
    };
    let options = TurnOptions {
        model: args.model.clone(),
        reasoning_effort: args.reasoning_effort.clone(),
        allowed_tools: tools_named(&app, args.tools.as_deref())?,
        allowed_skills: args.skills.as_deref().map(named),
        ..TurnOptions::default()
    };
    let mut printer: Box<dyn Printer> = match args.output {
        Output::Text => Box::new(TextPrinter::new(args.quiet)),
        Output::Json => Box::new(JsonPrinter::at_end(&args, &session)),
        Output::StreamJson => Box::new(JsonPrinter::as_it_happens(&args, &session)),
    };
    play(app, inbound, options, &mut *printer).await
}

/// The message with what is attached to it.
async fn prompt(app: &App, message: String, attached: &[String]) -> Result<Prompt> {
    if attached.is_empty() {
        return Ok(Prompt::Text(message));
    }
    if message.starts_with(&app.settings().command_prefix) {
        return Err(UsageError("--attach shows the model something; a command has no use for it".to_owned()).into());
    }
    let mut parts = vec![Part::Text(message)];
    for place in attached {
        // A path is that of the folder where the command was typed, whatever the workspace.
        let is_address = place.contains("://") || place.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("data:"));
        let place = match std::path::absolute(place) {
            Ok(path) if !is_address => path.to_string_lossy().into_owned(),
            _ => place.clone(),
        };
        let media = app.media(&place).await;
        parts.push(Part::Media(
            media.map_err(|why| UsageError(format!("cannot attach {}: {why}", elide(&place, 200))))?,
        ));
    }
    Ok(Prompt::Parts(parts))
}

/// The message: the argument, or standard input.
fn message(argument: Option<&str>) -> Result<String> {
    match argument {
        Some(text) if text != "-" => Ok(text.to_owned()),
        None if io::stdin().is_terminal() => {
            Err(UsageError("say something: bub run 'MESSAGE', or pipe a message into bub run".to_owned()).into())
        }
        _ => {
            let text = super::read_text(io::stdin().lock(), "the message on standard input")?;
            if text.trim().is_empty() {
                return Err(UsageError("the message on standard input is empty".to_owned()).into());
            }
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
    }
}
