//! The worker process: takes code, runs it, asks for calls, sends what is printed.

use std::{
    io::{BufRead, BufReader, Read, Stdin},
    process::ExitCode,
};

use serde::{Deserialize, Serialize};

use super::{
    confine::{Parent, confine, confine_memory},
    frame::{Frame, HEADER, Kind, decode, header},
    output::Output,
    session::{self, Failure, Prepared},
};

/// Stack of the thread that interprets, in bytes.
const STACK: usize = 256 * 1024 * 1024;
/// Bytes read ahead from the host.
const READ_AHEAD: usize = 64 * 1024;

/// Code to run and what it may use.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Run {
    pub(super) code: String,
    pub(super) filename: String,
    pub(super) tools: Vec<String>,
    pub(super) max_memory: u64,
    pub(super) max_milliseconds: u64,
    pub(super) max_recursion: usize,
    pub(super) max_output: usize,
}

/// The whole life of a worker process: reads frames from standard input until it ends.
///
/// The program that calls this must have `monty_alloc::LimitedAllocator` as its global allocator: it holds the memory limit.
#[must_use]
pub fn worker_main() -> ExitCode {
    confine();
    // The interpreter's native recursion needs more than the main thread's stack.
    let thread = std::thread::Builder::new().name("code".to_owned()).stack_size(STACK).spawn(serve);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

fn serve() {
    let parent = Parent::current();
    let mut wire = Wire(BufReader::with_capacity(READ_AHEAD, std::io::stdin()));
    // Made while nobody waits, so that a run finds it ready.
    let mut prepared = Prepared::new();
    while let Some(frame) = wire.next() {
        if frame.kind != Kind::Run {
            // A result that came after the end of its run.
            continue;
        }
        let run = match serde_json::from_slice::<Run>(&frame.body) {
            Ok(run) => run,
            Err(err) => return broken(parent, &format!("the order to run is not understood: {err}")),
        };
        drop(frame);
        confine_memory(run.max_memory);
        let ready = match prepared {
            Ok(ready) => ready,
            Err(reason) => return broken(parent, &reason),
        };
        if let Err(reason) = monty_alloc::set_limit(usize::try_from(run.max_memory).ok(), false) {
            return broken(parent, reason);
        }
        let mut output = Output::new(run.max_output, parent);
        match session::run(ready, &run, &mut wire, &mut output) {
            Ok(()) => output.frame(Kind::Done, 0, &[]),
            Err(Failure::Raised(error, traceback)) => {
                output.frame(Kind::Failed, 0, format!("{}\0{traceback}", error.replace('\0', "\u{fffd}")).as_bytes());
            }
            Err(Failure::Lost) => return,
        }
        if !output.flush() {
            return;
        }
        prepared = Prepared::new();
    }
}

fn broken(parent: Parent, reason: &str) {
    let mut output = Output::new(0, parent);
    output.frame(Kind::Broken, 0, reason.as_bytes());
    output.flush();
}

/// Frames from the host.
pub(super) struct Wire(BufReader<Stdin>);

impl Wire {
    /// The next frame; `None` when there are no more.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; HEADER];
        self.0.read_exact(&mut head).ok()?;
        let (kind, number, length) = header(&head).ok()??;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(Frame { kind, number, body })
    }

    /// A frame that has already arrived.
    pub(super) fn next_ready(&mut self) -> Option<Frame> {
        let (frame, used) = decode(self.0.buffer()).ok()??;
        self.0.consume(used);
        Some(frame)
    }
}
