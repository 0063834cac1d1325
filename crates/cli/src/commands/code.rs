//! `bub code`: a Python file that calls the tools.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use bub::{
    App, TurnOptions, TurnStream,
    code::{stub, tools_for_people},
    kernel::{
        event::{EventBus, ToolCallFinished, ToolCallStarted},
        message::ToolCallRequest,
        tool::Caller,
        turn::{Inbound, Prompt, SessionId, TurnError, TurnEvent},
    },
    settings::Settings,
};
use serde_json::Map;

use crate::{
    args::CodeArgs,
    error::UsageError,
    interrupt::Interrupts,
    output,
    terminal::text::{call_line, result_line},
};

/// The largest file that is run, in bytes.
const MAX_SOURCE_BYTES: u64 = 10 << 20;
/// How long a cancelled run may take to stop its processes and record what it did.
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// Runs the file, or prints the stub.
pub(crate) async fn run(args: CodeArgs, settings: Settings, workspace: PathBuf) -> Result<ExitCode> {
    let Some(file) = &args.file else { return print_stub(&args, settings, workspace) };
    let source = source(file)?;
    let line = format!("{}run_code code={} timeout_seconds={}", settings.command_prefix, quoted(&source), args.timeout);
    let app = super::builder(settings, workspace).events(progress(args.quiet)).build()?;
    let inbound = Inbound {
        channel: "cli".to_owned(),
        chat: "local".to_owned(),
        session: Some(SessionId(args.session_id.clone())),
        prompt: Prompt::Text(line),
        context: Vec::new(),
        local: true,
    };
    let options = TurnOptions { allowed_tools: args.tools.clone(), ..TurnOptions::default() };
    let mut interrupts = Interrupts::listen();
    let stream = app.runtime().turn(inbound, options);
    let done = follow(stream, &mut interrupts).await;
    let closed = tokio::select! {
        () = app.close() => Ok(()),
        () = interrupts.next() => Err(TurnError::Cancelled.into()),
    };
    // The process is about to end; freeing its memory piece by piece would only take time.
    std::mem::forget(app);
    done.and_then(|code| closed.map(|()| code))
}

fn print_stub(args: &CodeArgs, settings: Settings, workspace: PathBuf) -> Result<ExitCode> {
    let app: App = super::builder(settings, workspace).build()?;
    let tools = app.runtime().tools();
    let allowed = args.tools.as_ref().map(|names| tools.resolve_names(names)).transpose().map_err(UsageError)?;
    let specs: Vec<_> =
        tools_for_people(tools, allowed.as_deref()).iter().map(|it| it.spec().as_ref().clone()).collect();
    output::out(&stub::render_within(&specs, usize::MAX))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what the code prints. The first Ctrl-C cancels it, the second stops waiting for that.
async fn follow(mut stream: TurnStream, interrupts: &mut Interrupts) -> Result<ExitCode> {
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
                continue;
            }
            event = stream.next() => event,
        };
        match event {
            None => break,
            // Calls made by the code have names of their own.
            Some(TurnEvent::ToolProgress { call, text }) if call.is_empty() && broken.is_none() => {
                if let Err(err) = output::out(&text) {
                    // Nobody reads any more, so the code is stopped.
                    stream.cancel();
                    broken = Some(err);
                }
            }
            Some(TurnEvent::Notice(notice)) => output::note(&notice),
            Some(_) => {}
        }
    }
    let result = tokio::time::timeout(CANCEL_GRACE, stream.result()).await.unwrap_or(Err(TurnError::Cancelled));
    if let Some(err) = broken {
        return Err(err.into());
    }
    if let Err(TurnError::Command { error, .. }) = &result
        && let Some(traceback) = ["traceback", "stderr"].iter().find_map(|it| error.details.get(*it)?.as_str())
        && !traceback.is_empty()
    {
        output::note(traceback);
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the calls of the code on standard error.
fn progress(is_quiet: bool) -> EventBus {
    let mut events = EventBus::default();
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
    let mut bytes = Vec::new();
    reader.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_SOURCE_BYTES {
        return Err(UsageError(format!("{name} is larger than {} MiB", MAX_SOURCE_BYTES >> 20)).into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|err| UsageError(format!("{name} is not UTF-8 (at byte {})", err.utf8_error().valid_up_to())))?;
    Ok(text)
}

/// A text as one word of a command line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\"'\"'"))
}
