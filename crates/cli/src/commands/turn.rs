//! One turn on the terminal, from its start to its exit code.

use std::{io, process::ExitCode, time::Duration};

use anyhow::Result;
use bub::{
    App, TurnOptions, TurnStream,
    kernel::turn::{Inbound, TurnError, TurnEvent, TurnResult},
};

use crate::{
    error,
    interrupt::Interrupts,
    terminal::{Printer, WRITE_EVERY, safe::safe_line},
};

/// How long a cancelled turn may take to stop its processes and record what it did.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Plays and prints one turn, and ends the app.
pub(super) async fn play(
    app: App,
    inbound: Inbound,
    options: TurnOptions,
    printer: &mut dyn Printer,
) -> Result<ExitCode> {
    let mut interrupts = Interrupts::listen();
    let stream = app.runtime().turn(inbound, options);
    let done = follow(&app, stream, printer, &mut interrupts).await;
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
async fn follow(
    app: &App,
    mut stream: TurnStream,
    printer: &mut dyn Printer,
    interrupts: &mut Interrupts,
) -> Result<ExitCode> {
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
    if let Some(err) = broken {
        return Err(err.into());
    }
    if !matches!(result, Err(TurnError::Cancelled)) {
        for command in app.background_commands() {
            printer.event(&TurnEvent::Notice(format!(
                "stopped with the program, as it still ran: {}",
                safe_line(&command)
            )))?;
        }
    }
    finish(result, printer)
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
