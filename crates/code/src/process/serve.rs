//! One run, from the host's side: output is passed on, and calls are served at the same time.

use std::{
    collections::{HashMap, VecDeque},
    io,
};

use bub_kernel::{
    code::{CodeHost, CodeRequest},
    error::{ErrorKind, ToolError},
};
use futures::{
    future::{AbortHandle, BoxFuture, abortable},
    stream::{FuturesUnordered, StreamExt as _},
};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};

use super::{
    lines::Lines,
    protocol::{self, FromCode},
};
use crate::values::MAX_VALUE_BYTES;

/// The longest line that is read: the largest value and what is around it.
const MAX_LINE_BYTES: usize = MAX_VALUE_BYTES + (1 << 20);

/// Calls that are served at the same time; more wait for their turn.
const MAX_CALLS: usize = 1024;

/// Calls that wait for their turn; more are refused.
const MAX_WAITING: usize = 100_000;

/// Answers that are written, but not yet sent.
const MAX_ANSWERS: usize = 16;

/// What is kept of the standard error: its end.
const MAX_STDERR_BYTES: usize = 64 * 1024;

/// How a run ended.
pub(super) enum End {
    Done,
    Failed { error: String, traceback: String },
    Unsupported { version: String },
    Died { reason: String },
}

/// Serves the code until it ends. Dropping this drops the calls that are open.
pub(super) async fn serve(
    request: CodeRequest<'_>,
    max_memory: Option<u64>,
    host: &dyn CodeHost,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    stderr: &mut Stderr,
) -> End {
    let (answers, written) = mpsc::channel(MAX_ANSWERS);
    let writing = write(stdin, protocol::start(request, max_memory), written);
    tokio::pin!(writing);
    let mut lines = Lines::new(stdout, MAX_LINE_BYTES);
    let mut calls = Calls::new(host, request.tools, answers);
    let mut wrote_all = false;
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Ok(Some(line)) => match protocol::read(&line) {
                    FromCode::Output(text) | FromCode::Raw(text) => host.write(&text),
                    FromCode::Call { id, name, arguments } => calls.begin(Call { id, name, arguments }),
                    FromCode::MalformedCall { id, name } => calls.refuse(id, format!("malformed tool call: {name}")),
                    FromCode::Cancel { id } => calls.cancel(id),
                    FromCode::Done => return End::Done,
                    FromCode::Failed { error, traceback } => return End::Failed { error, traceback },
                    FromCode::Unsupported { version } => return End::Unsupported { version },
                    FromCode::Unknown => (),
                },
                Ok(None) => return End::Died { reason: "the Python process ended before the code did".into() },
                Err(err) => return End::Died { reason: format!("cannot read from the Python process: {err}") },
            },
            () = calls.advance(), if !calls.is_idle() => (),
            () = stderr.read(), if stderr.is_open() => (),
            () = &mut writing, if !wrote_all => wrote_all = true,
        }
    }
}

/// Writes the first line, then the answers as they come. A process that does not read ends soon: its
/// output tells.
async fn write(
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    first: Vec<u8>,
    mut answers: mpsc::Receiver<Vec<u8>>,
) {
    let Some(mut stdin) = stdin else { return };
    let mut next = Some(first);
    while let Some(line) = next {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        next = answers.recv().await;
    }
}

struct Call {
    id: u64,
    name: String,
    arguments: Map<String, Value>,
}

/// The calls of one run.
struct Calls<'a> {
    host: &'a dyn CodeHost,
    tools: &'a [String],
    answers: mpsc::Sender<Vec<u8>>,
    served: FuturesUnordered<BoxFuture<'a, Option<u64>>>,
    stops: HashMap<u64, AbortHandle>,
    waiting: VecDeque<Call>,
}

impl<'a> Calls<'a> {
    fn new(host: &'a dyn CodeHost, tools: &'a [String], answers: mpsc::Sender<Vec<u8>>) -> Self {
        Self { host, tools, answers, served: FuturesUnordered::new(), stops: HashMap::new(), waiting: VecDeque::new() }
    }

    fn is_idle(&self) -> bool {
        self.served.is_empty()
    }

    /// Takes a call; it is served when there is room.
    fn begin(&mut self, call: Call) {
        if !call.name.starts_with("republic.") && !self.tools.contains(&call.name) {
            self.refuse(call.id.into(), format!("no tool is called '{}'", call.name));
        } else if self.stops.len() < MAX_CALLS {
            self.serve(call);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(call);
        } else {
            self.refuse(call.id.into(), format!("more than {MAX_WAITING} calls at the same time"));
        }
    }

    fn serve(&mut self, call: Call) {
        let Call { id, name, arguments } = call;
        let (host, answers) = (self.host, self.answers.clone());
        let (work, stop) = abortable(async move {
            let result = host.call_tool(&name, Value::Object(arguments)).await;
            // It fails only when the process reads no more.
            let _ = answers.send(protocol::answer(&id.into(), result)).await;
        });
        self.stops.insert(id, stop);
        self.served.push(Box::pin(async move {
            let _ = work.await;
            Some(id)
        }));
    }

    fn refuse(&mut self, id: Value, text: String) {
        let answers = self.answers.clone();
        self.served.push(Box::pin(async move {
            let refused = protocol::answer(&id, Err(ToolError::new(ErrorKind::InvalidInput, text)));
            let _ = answers.send(refused).await;
            None
        }));
    }

    /// Drops a call that nobody waits for any more.
    fn cancel(&mut self, id: u64) {
        self.waiting.retain(|it| it.id != id);
        if let Some(stop) = self.stops.get(&id) {
            stop.abort();
        }
    }

    /// Lets the calls go on until one ends. May be dropped and begun again.
    async fn advance(&mut self) {
        if let Some(Some(id)) = self.served.next().await {
            self.stops.remove(&id);
            if let Some(call) = self.waiting.pop_front() {
                self.serve(call);
            }
        }
    }
}

/// The end of what a process writes to its standard error.
pub(super) struct Stderr {
    pipe: Option<Box<dyn AsyncRead + Send + Unpin>>,
    kept: Vec<u8>,
    n_dropped: usize,
}

impl Stderr {
    pub(super) fn new(pipe: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Self {
        Self { pipe, kept: Vec::new(), n_dropped: 0 }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads once. May be dropped and begun again.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let n_read: io::Result<usize> = pipe.read_buf(&mut self.kept).await;
        if !matches!(n_read, Ok(1..)) {
            self.pipe = None;
        }
        if self.kept.len() > 2 * MAX_STDERR_BYTES {
            let n_surplus = self.kept.len() - MAX_STDERR_BYTES;
            self.kept.drain(..n_surplus);
            self.n_dropped += n_surplus;
        }
    }

    /// Reads until the pipe is closed.
    pub(super) async fn read_to_end(&mut self) {
        while self.is_open() {
            self.read().await;
        }
    }

    /// What was kept, and a note about what was not.
    pub(super) fn text(&self) -> String {
        let n_surplus = self.kept.len().saturating_sub(MAX_STDERR_BYTES);
        let text = String::from_utf8_lossy(self.kept.get(n_surplus..).unwrap_or_default());
        match self.n_dropped + n_surplus {
            0 => text.into_owned(),
            n_dropped => format!("[... {n_dropped} bytes left out ...]{text}"),
        }
    }
}
