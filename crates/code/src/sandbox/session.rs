//! One run of code inside the worker.

use std::{collections::HashMap, time::Duration};

use monty::{
    MontyRepl, ReplFunctionCall, ReplNameLookup, ReplOsCall, ReplProgress, ReplResolveFutures, ReplStartError,
};
use monty_types::{
    AssertMessageAnnotations, CodeLoc, CompileOptions, ExcType, ExtFunctionResult, MontyException, MontyObject,
    MontyUuid, NameLookupResult, OsFunctionCall, PrintWriter, ResourceLimits, ResourceTracker, StackFrame,
};

use super::{
    frame::{Frame, Kind, MAX_BODY},
    output::Output,
    republic::{self, Shape},
    source,
    traceback::{CallErrors, render},
    values::{from_json, raise, to_json},
    worker::{Run, Wire},
};
use crate::values::{MAX_VALUE_BYTES, ValueError};

const PRELUDE: &str = include_str!("prelude.py");
/// Binds the tools of a run.
const BIND: &str = "for _bub_name in _bub_names:\n    setattr(tools, _bub_name, _bub_tool(_bub_name))";
/// The calls that were made and never awaited.
const FORGOTTEN: &str = "[name for name in _bub_calls.values() if name]";
/// The interpreter's name for the third text that it gets: the code.
const SNIPPET: &str = "<python-input-2>";
/// Calls that one run may make.
const MAX_CALLS: usize = 100_000;

const TOOLS: MontyUuid = MontyUuid::from_u128(0xb0b_0002);
const HOST: MontyUuid = MontyUuid::from_u128(0xb0b_0003);

type Step = Result<ReplProgress, Box<ReplStartError>>;

/// An interpreter that is ready for code.
pub(super) struct Prepared(MontyRepl);

impl Prepared {
    /// A fresh interpreter; nothing of an earlier run is in it.
    ///
    /// # Errors
    /// A text, if the interpreter refuses the worker's own part.
    pub(super) fn new() -> Result<Self, String> {
        let options = CompileOptions { assert_message_annotations: AssertMessageAnnotations::Off };
        let mut repl = MontyRepl::new("code", ResourceTracker::default(), options);
        let given = vec![
            ("tools".to_owned(), republic::instance("tools", TOOLS, Vec::new())),
            ("_bub_host".to_owned(), republic::instance("host", HOST, Vec::new())),
            ("republic".to_owned(), republic::module()),
        ];
        repl.feed_run(PRELUDE, given, PrintWriter::Disabled).map_err(|err| err.to_string())?;
        Ok(Self(repl))
    }
}

/// How a run ended, when it did not end well.
pub(super) enum Failure {
    /// Error and traceback.
    Raised(String, String),
    /// The host is gone.
    Lost,
}

/// Runs `run` to its end.
pub(super) fn run(prepared: Prepared, run: &Run, wire: &mut Wire, output: &mut Output) -> Result<(), Failure> {
    let mut session = Session {
        run,
        errors: CallErrors::default(),
        unsent: Vec::new(),
        shapes: HashMap::new(),
        calls: 0,
        lost: false,
    };
    let outcome = session.drive(prepared.0, wire, output);
    if session.lost || !output.flush() {
        return Err(Failure::Lost);
    }
    outcome.map_err(|error| {
        let (error, traceback) = render(&error, &session.errors, &run.code, SNIPPET, &run.filename);
        Failure::Raised(error, traceback)
    })
}

struct Session<'a> {
    run: &'a Run,
    errors: CallErrors,
    unsent: Vec<(u32, Kind, Vec<u8>)>,
    shapes: HashMap<u32, Shape>,
    calls: usize,
    lost: bool,
}

impl Session<'_> {
    fn drive(&mut self, mut repl: MontyRepl, wire: &mut Wire, output: &mut Output) -> Result<(), MontyException> {
        let limits = ResourceLimits::default()
            .max_duration(Duration::from_millis(self.run.max_milliseconds))
            .max_memory(usize::try_from(self.run.max_memory).unwrap_or(usize::MAX))
            .max_recursion_depth(self.run.max_recursion);
        *repl.tracker_mut() = ResourceTracker::new(limits);
        let names = self.run.tools.iter().cloned().map(MontyObject::String).collect();
        repl.feed_run(BIND, vec![("_bub_names".to_owned(), MontyObject::List(names))], PrintWriter::Disabled)?;
        let code = source::prepare(&self.run.code).map_err(|misplaced| return_outside(misplaced.line))?;
        let mut step = repl.feed_start(&code, Vec::new(), PrintWriter::Callback(output));
        loop {
            step = match step.map_err(|failed| failed.error)? {
                ReplProgress::Complete { repl, .. } => return self.finish(repl),
                ReplProgress::FunctionCall(call) => self.call(call, output),
                ReplProgress::OsCall(call) => deny(call, output),
                ReplProgress::NameLookup(lookup) => Self::look_up(lookup, output),
                ReplProgress::ResolveFutures(waiting) => self.wait(waiting, wire, output),
            };
        }
    }

    /// Tells of calls that were never awaited: they did not run, and the code looks as if they had.
    fn finish(&self, mut repl: MontyRepl) -> Result<(), MontyException> {
        if !self.errors.is_empty() {
            return Ok(());
        }
        let forgotten = match repl.feed_run(FORGOTTEN, Vec::new(), PrintWriter::Disabled) {
            Ok(MontyObject::List(names)) => names,
            // The code may have replaced what is asked for here.
            _ => Vec::new(),
        };
        match forgotten.first() {
            Some(MontyObject::String(name)) => Err(raise(
                ExcType::RuntimeError,
                format!(
                    "tools.{name}(...) was called without await, so it did not run: write `await tools.{name}(...)`"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn call(&mut self, call: ReplFunctionCall, output: &mut Output) -> Step {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            let error = raise(ExcType::RuntimeError, format!("limit of {MAX_CALLS} calls reached"));
            return call.abort(error, PrintWriter::Callback(output));
        }
        let asked = match call.object_id {
            Some(HOST) => self.ask_host(&call),
            Some(TOOLS) => Err(no_tool(&call.function_name)),
            Some(id) => match republic::call(id, &call.function_name, &call.args, &call.kwargs) {
                Some(Ok(value)) => return call.resume(value, PrintWriter::Callback(output)),
                Some(Err(error)) => Err(error),
                None => Err(raise(ExcType::TypeError, format!("'{}' cannot be called", call.function_name))),
            },
            None if matches!(call.function_name.as_str(), "exit" | "quit") => {
                Err(MontyException::new(ExcType::SystemExit, call.args.first().map(ToString::to_string)))
            }
            None => {
                let name = call.function_name.clone();
                return call.resume(ExtFunctionResult::NotFound(name), PrintWriter::Callback(output));
            }
        };
        match asked {
            Ok((kind, body, shape)) => {
                self.unsent.push((call.call_id, kind, body));
                self.shapes.insert(call.call_id, shape);
                call.resume_pending(PrintWriter::Callback(output))
            }
            Err(error) => call.resume(error, PrintWriter::Callback(output)),
        }
    }

    /// A call from the prelude: an awaited tool, a question to a model, or a pause.
    fn ask_host(&self, call: &ReplFunctionCall) -> Result<(Kind, Vec<u8>, Shape), MontyException> {
        match (call.function_name.as_str(), call.args.as_slice()) {
            ("call", [MontyObject::String(name), arguments @ MontyObject::Dict(_)]) => {
                if !self.has_tool(name) {
                    return Err(no_tool(name));
                }
                Ok((Kind::Call, body(name, arguments)?, Shape::Plain))
            }
            ("sleep", [delay]) => {
                let seconds = match delay {
                    MontyObject::Int(seconds) => *seconds as f64,
                    MontyObject::Float(seconds) => *seconds,
                    _ => return Err(raise(ExcType::TypeError, "sleep() takes a number of seconds")),
                };
                let pause = Duration::try_from_secs_f64(seconds.max(0.0))
                    .map_err(|_| raise(ExcType::ValueError, "sleep() takes a finite number of seconds"))?;
                Ok((Kind::Sleep, pause.as_millis().to_string().into_bytes(), Shape::Plain))
            }
            (name, args) => match republic::ask(name, args) {
                Some(asked) => asked.and_then(|ask| Ok((Kind::Call, body(ask.operation, &ask.arguments)?, ask.shape))),
                None => Err(raise(ExcType::AttributeError, format!("no such function: {name}"))),
            },
        }
    }

    fn has_tool(&self, name: &str) -> bool {
        self.run.tools.iter().any(|tool| tool == name)
    }

    fn look_up(lookup: ReplNameLookup, output: &mut Output) -> Step {
        let answer = match (lookup.object_id(), lookup.name.as_str()) {
            (None, "exit" | "quit") => {
                NameLookupResult::Value(MontyObject::Function { name: lookup.name.clone(), docstring: None })
            }
            _ => NameLookupResult::Undefined,
        };
        lookup.resume(answer, PrintWriter::Callback(output))
    }

    /// Sends the calls that wait, and takes at least one result.
    fn wait(&mut self, waiting: ReplResolveFutures, wire: &mut Wire, output: &mut Output) -> Step {
        for (number, kind, body) in self.unsent.drain(..) {
            output.frame(kind, number, &body);
        }
        let mut results = Vec::new();
        if output.flush() {
            while results.is_empty() {
                let Some(frame) = wire.next() else { break };
                self.take(frame, waiting.pending_call_ids(), &mut results);
            }
            while let Some(frame) = wire.next_ready() {
                self.take(frame, waiting.pending_call_ids(), &mut results);
            }
        }
        if results.is_empty() {
            self.lost = true;
            let error = raise(ExcType::SystemExit, "the host is gone");
            return waiting.abort(error, PrintWriter::Callback(output));
        }
        waiting.resume(results, PrintWriter::Callback(output))
    }

    /// A result, unless nobody waits for it any more.
    fn take(&mut self, frame: Frame, pending: &[u32], results: &mut Vec<(u32, ExtFunctionResult)>) {
        let shape = self.shapes.remove(&frame.number);
        if !pending.contains(&frame.number) {
            return;
        }
        let (ok, value) = match frame.kind {
            Kind::Value => match from_json(&frame.body) {
                Ok(value) => (true, republic::shape(shape.unwrap_or(Shape::Plain), value)),
                Err(reason) => (false, self.failed(format!("[tool] tool result is not JSON serializable: {reason}"))),
            },
            Kind::Error => (false, self.failed(String::from_utf8_lossy(&frame.body).into_owned())),
            _ => return,
        };
        // Both ends come as values, and the prelude raises: an exception from here would pass by the handlers
        // of a call that runs inside `gather`.
        let result = ExtFunctionResult::Return(MontyObject::Tuple(vec![MontyObject::Bool(ok), value]));
        results.push((frame.number, result));
    }

    fn failed(&mut self, message: String) -> MontyObject {
        self.errors.remember(&message);
        MontyObject::String(message)
    }
}

fn return_outside(line: u32) -> MontyException {
    let at = CodeLoc { line, column: 1 };
    let frame = StackFrame {
        filename: SNIPPET.to_owned(),
        start: at,
        end: at,
        frame_name: None,
        preview_line: None,
        hide_caret: true,
        hide_frame_name: true,
    };
    MontyException::with_traceback(ExcType::SyntaxError, Some("'return' outside function".to_owned()), vec![frame])
}

fn no_tool(name: &str) -> MontyException {
    raise(ExcType::AttributeError, format!("'tools' object has no attribute '{name}'"))
}

/// The body of a call frame.
fn body(name: &str, arguments: &MontyObject) -> Result<Vec<u8>, MontyException> {
    let mut body = name.as_bytes().to_vec();
    body.push(0);
    let start = body.len();
    to_json(arguments, &mut body)?;
    if body.len() - start > MAX_VALUE_BYTES || body.len() > MAX_BODY {
        return Err(raise(ExcType::TypeError, ValueError::TooLarge.to_string()));
    }
    Ok(body)
}

/// Nothing of the system is there; the clock is the one thing that is told.
fn deny(call: ReplOsCall, output: &mut Output) -> Step {
    let answer = match &call.function_call {
        OsFunctionCall::DateToday | OsFunctionCall::DateTimeNow(_) => super::clock::read(&call.function_call),
        other => ExtFunctionResult::Error(raise(
            ExcType::PermissionError,
            format!("{} is not available: this sandbox has no files and no environment, use a tool", other.name()),
        )),
    };
    call.resume(answer, PrintWriter::Callback(output))
}
