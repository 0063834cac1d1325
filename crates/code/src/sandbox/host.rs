//! The host's side of one run.

use std::{collections::VecDeque, process::ExitStatus, time::Duration};

use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest},
    error::{ErrorKind, ToolError},
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::{
    SandboxLimits,
    frame::{Frame, Kind, MAX_BODY, decode, encode, pair},
    pool::{Worker, failure},
    worker::Run,
};
use crate::values::{MAX_VALUE_BYTES, ValueError, check_depth};

/// How much longer than the limit on time the host waits for a worker to say so itself.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the end of a worker that closed its output.
const END: Duration = Duration::from_secs(3);
/// Bytes of a dead worker's standard error that are kept.
const STDERR: usize = 8 * 1024;
/// Bytes read from the worker at once.
const READ: usize = 64 * 1024;

/// Runs code on `worker`. When this is dropped half-way the worker must not be used again.
pub(super) async fn run(
    worker: &mut Worker,
    request: CodeRequest<'_>,
    host: &dyn CodeHost,
    limits: SandboxLimits,
) -> Result<(), CodeError> {
    let order = Run {
        code: request.code.to_owned(),
        filename: request.filename.to_owned(),
        tools: request.tools.to_vec(),
        max_memory: limits.memory,
        max_milliseconds: u64::try_from(limits.duration.as_millis()).unwrap_or(u64::MAX),
        max_recursion: limits.recursion,
        max_output: limits.output,
    };
    let order = serde_json::to_vec(&order).map_err(|err| failure(err.to_string()))?;
    if order.len() > MAX_BODY {
        return Err(failure(format!("the code is longer than {MAX_BODY} bytes")));
    }
    worker.heard = false;
    let mut sending = Sending::default();
    sending.push(Kind::Run, 0, &order);
    let mut received = Vec::with_capacity(READ);
    let mut calls: FuturesUnordered<BoxFuture<'_, (u32, Result<Value, String>)>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Reading comes first: a worker that cannot write would never read.
            biased;
            read = worker.stdout.read_buf(&mut received) => {
                if matches!(read, Ok(0) | Err(_)) {
                    return Err(death(worker).await);
                }
                worker.heard = true;
                let mut at = 0;
                while let Some((frame, used)) = decode(received.get(at..).unwrap_or_default())
                    .map_err(|err| failure(format!("the worker sent what is not a frame: {err}")))?
                {
                    at += used;
                    if let Some(end) = take(frame, host, &mut calls) {
                        return end;
                    }
                }
                received.drain(..at);
                if received.capacity() > MAX_BODY / 8 && received.len() < READ {
                    received.shrink_to(READ);
                }
            }
            written = worker.stdin.write(sending.front()), if !sending.is_empty() => match written {
                Ok(count) => sending.advance(count),
                Err(_) => return Err(death(worker).await),
            },
            Some((number, result)) = calls.next(), if !calls.is_empty() => sending.result(number, result),
        }
    }
}

/// Handles one frame; `Some` when it was the last.
fn take<'a>(
    frame: Frame,
    host: &'a dyn CodeHost,
    calls: &mut FuturesUnordered<BoxFuture<'a, (u32, Result<Value, String>)>>,
) -> Option<Result<(), CodeError>> {
    let number = frame.number;
    match frame.kind {
        Kind::Output => host.write(&String::from_utf8_lossy(&frame.body)),
        Kind::Call => {
            let (name, arguments) = pair(&frame.body);
            let arguments = serde_json::from_slice::<Value>(arguments);
            calls.push(Box::pin(async move {
                let result = match arguments {
                    Ok(arguments) => host.call_tool(&name, arguments).await.map_err(|err| err.to_string()),
                    Err(_) => Err(ToolError::new(ErrorKind::Tool, format!("malformed tool call: {name}")).to_string()),
                };
                (number, result)
            }));
        }
        Kind::Sleep => {
            let milliseconds = String::from_utf8_lossy(&frame.body).parse().unwrap_or(u64::MAX);
            calls.push(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                (number, Ok(Value::Null))
            }));
        }
        Kind::Done => return Some(Ok(())),
        Kind::Failed => {
            let (error, traceback) = pair(&frame.body);
            let traceback = String::from_utf8_lossy(traceback).into_owned();
            return Some(Err(CodeError::Raised { error, traceback }));
        }
        Kind::Broken => return Some(Err(failure(String::from_utf8_lossy(&frame.body).into_owned()))),
        Kind::Run | Kind::Value | Kind::Error => {
            return Some(Err(failure("the worker sent a frame of the host".to_owned())));
        }
    }
    None
}

/// Why the worker's output ended.
async fn death(worker: &mut Worker) -> CodeError {
    let status = tokio::time::timeout(END, worker.child.wait()).await;
    let exit_code = match status {
        Ok(Ok(status)) => exit_code(status),
        _ => None,
    };
    let mut stderr = Vec::new();
    let _ = tokio::time::timeout(END, read_some(&mut worker.stderr, &mut stderr)).await;
    let code = exit_code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
    CodeError::Runner {
        reason: format!("the worker ended with code {code}"),
        exit_code,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

async fn read_some(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> std::io::Result<()> {
    from.take(STDERR as u64).read_to_end(into).await.map(drop)
}

/// The exit code; the negative number of the signal that ended it.
fn exit_code(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Some(-signal);
    }
    status.code()
}

/// Frames on their way to the worker.
#[derive(Default)]
struct Sending {
    queue: VecDeque<Vec<u8>>,
    sent: usize,
}

impl Sending {
    fn push(&mut self, kind: Kind, number: u32, body: &[u8]) {
        let mut bytes = Vec::new();
        encode(kind, number, body, &mut bytes);
        self.queue.push_back(bytes);
    }

    fn result(&mut self, number: u32, result: Result<Value, String>) {
        let refuse = |reason: String| {
            ToolError::new(ErrorKind::Tool, format!("tool result is not JSON serializable: {reason}")).to_string()
        };
        let encoded = result.and_then(|value| {
            check_depth(&value).map_err(|err| refuse(err.to_string()))?;
            let body = serde_json::to_vec(&value).map_err(|err| refuse(err.to_string()))?;
            if body.len() > MAX_VALUE_BYTES {
                return Err(refuse(ValueError::TooLarge.to_string()));
            }
            Ok(body)
        });
        match encoded {
            Ok(body) => self.push(Kind::Value, number, &body),
            Err(message) => self.push(Kind::Error, number, message.as_bytes()),
        }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn front(&self) -> &[u8] {
        self.queue.front().and_then(|frame| frame.get(self.sent..)).unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.front().is_empty() {
            self.queue.pop_front();
            self.sent = 0;
        }
    }
}
