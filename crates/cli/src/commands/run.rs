//! `bub run`: one message in, one answer out.

use std::{
    io::{self, IsTerminal as _, Read as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use bub::{
    TurnOptions, TurnStream,
    kernel::turn::{Inbound, Prompt, SessionId, TurnError, TurnResult},
    settings::Settings,
};

use crate::{
    args::{Output, RunArgs},
    error::{self, UsageError},
    interrupt::Interrupts,
    terminal::{Printer, WRITE_EVERY, json::JsonPrinter, text::TextPrinter},
};

/// The largest message that is read from standard input, in bytes.
const MAX_INPUT_BYTES: u64 = 10 << 20;
/// How long a cancelled turn may take to stop its processes and record what it did.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Runs the turn and prints it.
pub(crate) async fn run(args: RunArgs, settings: Settings, workspace: PathBuf) -> Result<ExitCode> {
    let message = message(args.message.as_deref())?;
    let session = args.session_id.clone().unwrap_or_else(|| format!("{}:{}", args.channel, args.chat_id));
    let app = super::builder(settings, workspace).build()?;
    let inbound = Inbound {
        channel: args.channel.clone(),
        chat: args.chat_id.clone(),
        session: Some(SessionId(session.clone())),
        prompt: Prompt::Text(message),
        context: vec![("sender_id".to_owned(), args.sender_id.clone())],
        local: args.channel == "cli",
    };
    let options = TurnOptions {
        model: args.model.clone(),
        reasoning_effort: args.reasoning_effort.clone(),
        allowed_tools: args.tools.clone(),
        allowed_skills: args.skills.clone(),
    };
    let mut interrupts = Interrupts::listen();
    let mut printer: Box<dyn Printer> = match args.output {
        Output::Text => Box::new(TextPrinter::new(args.quiet)),
        Output::Json => Box::new(JsonPrinter::at_end(&args, &session)),
        Output::StreamJson => Box::new(JsonPrinter::as_it_happens(&args, &session)),
    };
    let stream = app.runtime().turn(inbound, options);
    let done = follow(stream, &mut *printer, &mut interrupts).await;
    let closed = tokio::select! {
        () = app.close() => Ok(()),
        () = interrupts.next() => Err(TurnError::Cancelled.into()),
    };
    // The process is about to end; freeing its memory piece by piece would only take time.
    std::mem::forget(app);
    // The answer's failure says more than that of closing.
    done.and_then(|code| closed.map(|()| code))
}

/// Prints the turn as it goes on. The first Ctrl-C cancels it, the second stops waiting for that.
async fn follow(mut stream: TurnStream, printer: &mut dyn Printer, interrupts: &mut Interrupts) -> Result<ExitCode> {
    let mut broken: Option<io::Error> = None;
    let mut is_cancelled = false;
    loop {
        let event = tokio::select! {
            biased;
            () = interrupts.next() => {
                if is_cancelled {
                    return Err(TurnError::Cancelled.into());
                }
                is_cancelled = true;
                stream.cancel();
                printer.cancelling();
                continue;
            }
            event = stream.next() => Some(event),
            () = tokio::time::sleep(WRITE_EVERY), if printer.is_waiting() => None,
        };
        let printed = match event {
            Some(None) => break,
            Some(Some(event)) if broken.is_none() => printer.event(&event),
            None if broken.is_none() => printer.idle(),
            _ => Ok(()),
        };
        if let Err(err) = printed {
            // Nobody reads any more, so the turn is stopped; it is still recorded.
            stream.cancel();
            broken = Some(err);
        }
    }
    let result = tokio::time::timeout(CANCEL_GRACE, stream.result()).await.unwrap_or(Err(TurnError::Cancelled));
    match broken {
        Some(err) => Err(err.into()),
        None => finish(result, printer),
    }
}

/// Prints the end, and picks the exit code.
fn finish(result: Result<TurnResult, TurnError>, printer: &mut dyn Printer) -> Result<ExitCode> {
    match result {
        Ok(result) => {
            printer.finished(&result)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(err) => {
            printer.failed(&err)?;
            let err = anyhow::Error::new(err);
            if printer.tells_errors() { Ok(ExitCode::from(error::code(&err))) } else { Err(err) }
        }
    }
}

/// The message: the argument, or standard input.
fn message(argument: Option<&str>) -> Result<String> {
    match argument {
        Some(text) if text != "-" => Ok(text.to_owned()),
        None if io::stdin().is_terminal() => {
            Err(UsageError("say something: bub run 'MESSAGE', or pipe a message into bub run".to_owned()).into())
        }
        _ => {
            let mut bytes = Vec::new();
            let mut input = io::stdin().lock().take(MAX_INPUT_BYTES + 1);
            input.read_to_end(&mut bytes).context("cannot read the message from standard input")?;
            if bytes.len() as u64 > MAX_INPUT_BYTES {
                let limit = MAX_INPUT_BYTES >> 20;
                return Err(UsageError(format!("the message on standard input is larger than {limit} MiB")).into());
            }
            let text = String::from_utf8(bytes).map_err(|err| {
                let at = err.utf8_error().valid_up_to();
                UsageError(format!("the message on standard input is not UTF-8 (at byte {at})"))
            })?;
            if text.trim().is_empty() {
                return Err(UsageError("the message on standard input is empty".to_owned()).into());
            }
            Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
    }
}
