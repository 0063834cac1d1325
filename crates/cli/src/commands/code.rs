//! `bub code`: a Python file that calls the tools.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use bub::{
    Builder, TurnOptions,
    code::{stub, tools_for_people},
    kernel::{
        event::{EventBus, ToolCallFinished, ToolCallStarted},
        message::ToolCallRequest,
        tool::Caller,
        turn::{Inbound, Prompt, SessionId, TurnError, TurnEvent, TurnResult},
    },
};
use serde_json::Map;

use super::{tools_named, turn::play};
use crate::{
    args::CodeArgs,
    error::UsageError,
    output,
    terminal::{
        Printer,
        text::{call_line, result_line},
    },
};

/// Runs the file, or prints the stub.
pub(crate) async fn run(args: CodeArgs, builder: Builder) -> Result<ExitCode> {
    let Some(file) = &args.file else { return print_stub(&args, builder) };
    let source = source(file)?;
    let prefix = &builder.settings().command_prefix;
    let line = format!("{prefix}run_code code={} timeout_seconds={}", quoted(&source), args.timeout);
    let app = builder.events(progress(args.quiet)).build()?;
    let inbound = Inbound {
        session: Some(SessionId(args.session_id.clone())),
        local: true,
        ..Inbound::new("cli", "local", Prompt::Text(line))
    };
    let options = TurnOptions { allowed_tools: tools_named(&app, args.tools.as_deref())?, ..TurnOptions::default() };
    play(app, inbound, options, &mut CodePrinter).await
}

fn print_stub(args: &CodeArgs, builder: Builder) -> Result<ExitCode> {
    let app = builder.build()?;
    let allowed = tools_named(&app, args.tools.as_deref())?;
    let specs: Vec<_> = tools_for_people(app.runtime().tools(), allowed.as_deref())
        .iter()
        .map(|it| it.spec().as_ref().clone())
        .collect();
    output::out(&stub::render_within(&specs, usize::MAX))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what the code prints.
struct CodePrinter;

impl Printer for CodePrinter {
    fn event(&mut self, event: &TurnEvent) -> io::Result<()> {
        match event {
            // Calls made by the code have names of their own.
            TurnEvent::ToolProgress { call, text } if call.is_empty() => output::out(text)?,
            TurnEvent::Notice(notice) => output::note(notice),
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self, _: &TurnResult) -> io::Result<()> {
        Ok(())
    }

    /// Where in the code it failed; the error itself is printed as the program's.
    fn failed(&mut self, err: &TurnError) -> io::Result<()> {
        if let TurnError::Command { error, .. } = err
            && let Some(traceback) = ["traceback", "stderr"].iter().find_map(|it| error.details.get(*it)?.as_str())
            && !traceback.is_empty()
        {
            output::note(traceback);
        }
        Ok(())
    }
}

/// Shows the calls of the code on standard error.
fn progress(is_quiet: bool) -> EventBus {
    let events = EventBus::default();
    if is_quiet {
        return events;
    }
    events.on_sync(|event: &mut ToolCallStarted| {
        let call = &event.call;
        if call.caller == Caller::Code {
            let name = call.tool.replace('.', "_");
            let (id, arguments) = (call.id.clone(), call.args.to_string());
            output::note(&call_line(&ToolCallRequest { id, name, arguments, metadata: Map::new() }));
        }
        Ok(())
    });
    events.on_sync(|event: &mut ToolCallFinished| {
        if event.call.caller == Caller::Code
            && let Err(err) = &event.result
        {
            output::note(&result_line(&err.to_value()));
        }
        Ok(())
    });
    events
}

/// The code: a file, or standard input.
fn source(path: &Path) -> Result<String> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let reader: Box<dyn Read> = if is_input {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|err| UsageError(format!("cannot read {name}: {err}")))?;
        let kind = file.metadata().with_context(|| format!("cannot read {name}"))?;
        if kind.is_dir() {
            return Err(UsageError(format!("cannot read {name}: it is a folder")).into());
        }
        Box::new(file)
    };
    super::read_text(reader, &name)
}

/// A text as one word of a command line.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\"'\"'"))
}
