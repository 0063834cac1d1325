//! A scripted model on 127.0.0.1 that speaks chat completions and writes down when it was asked.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use super::script::{self, Answer, Kind};

/// The largest request body in bytes.
const MAX_BODY: u64 = 64 << 20;
/// The largest head of a request in bytes.
const MAX_HEAD: u64 = 64 << 10;
/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(120);
/// Bytes in one write while a long text is streamed.
const BATCH: usize = 64 << 10;

/// One request and its reply.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was answered; `None` when nothing was understood.
    pub kind: Option<Kind>,
    /// The whole of the request was here.
    pub received: SystemTime,
    /// The reply was made, and its first byte about to be written.
    pub ready: SystemTime,
    /// The last byte of the reply was handed to the system.
    pub sent: SystemTime,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Vec<Record>>,
    stopped: AtomicBool,
    connections: Mutex<Vec<(TcpStream, JoinHandle<()>)>>,
    /// Streamed texts: each is made once, before it is timed.
    texts: Mutex<HashMap<TextKey, Arc<Vec<u8>>>>,
}

/// A streamed text: its model, the number of its deltas, and whether usage is told.
type TextKey = (String, usize, bool);

impl Server {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        let accepting = Some(thread::spawn(move || accept(&listener, &ours)));
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was asked since the last time.
    #[must_use]
    pub fn take_log(&self) -> Vec<Record> {
        std::mem::take(&mut *lock(&self.shared.log))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // A connection of our own wakes the thread that waits for one.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            drop(thread.join());
        }
        for (socket, thread) in lock(&self.shared.connections).drain(..) {
            drop(socket.shutdown(Shutdown::Both));
            drop(thread.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(socket) = socket else { continue };
        let (Ok(own), ours) = (socket.try_clone(), Arc::clone(shared)) else { continue };
        let thread = thread::spawn(move || {
            // A client that breaks off ends its own connection only.
            drop(serve(&socket, &ours));
            // Dropping the socket would not end the connection: the list of connections holds it, too.
            drop(socket.shutdown(Shutdown::Both));
        });
        let mut connections = lock(&shared.connections);
        connections.retain(|(_, thread)| !thread.is_finished());
        connections.push((own, thread));
    }
}

/// Answers the requests of one connection, until the client hangs up.
fn serve(socket: &TcpStream, shared: &Shared) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(IDLE))?;
    socket.set_write_timeout(Some(IDLE))?;
    let mut reader = BufReader::with_capacity(BATCH, socket);
    while let Some((path, body)) = read_request(&mut reader, socket)? {
        let received = SystemTime::now();
        let (reply, kind) = reply(&path, &body, shared);
        let ready = SystemTime::now();
        let mut writer = socket;
        for part in reply.chunks(BATCH) {
            writer.write_all(part)?;
        }
        lock(&shared.log).push(Record { kind, received, ready, sent: SystemTime::now() });
    }
    Ok(())
}

/// The path and body of the next request; `None` at the end.
fn read_request(reader: &mut BufReader<&TcpStream>, mut socket: &TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut is_chunked) = (0, false);
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(invalid("the head of a request does not end"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(|_| invalid("content-length is no number"))?,
            "transfer-encoding" => is_chunked = value.contains("chunked"),
            "expect" => socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
            _ => {}
        }
    }
    let mut body = Vec::new();
    if !is_chunked {
        read_exactly(reader, length, &mut body)?;
        return Ok(Some((path, body)));
    }
    loop {
        line.clear();
        reader.by_ref().take(MAX_HEAD).read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).map_err(|_| invalid("a chunk has no size"))?;
        read_exactly(reader, size, &mut body)?;
        line.clear();
        reader.by_ref().take(MAX_HEAD).read_line(&mut line)?;
        if size == 0 {
            return Ok(Some((path, body)));
        }
    }
}

fn read_exactly(reader: &mut BufReader<&TcpStream>, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let had = body.len() as u64;
    if had + length > MAX_BODY {
        return Err(invalid("the body is too large"));
    }
    reader.by_ref().take(length).read_to_end(body)?;
    if (body.len() as u64) < had + length { Err(invalid("the body breaks off")) } else { Ok(()) }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The bytes of a reply, and what it is.
fn reply(path: &str, body: &[u8], shared: &Shared) -> (Arc<Vec<u8>>, Option<Kind>) {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    if path == "/models" {
        return (plain("200 OK", &json!({"object": "list", "data": [{"id": "mock", "object": "model"}]})), None);
    }
    if path != "/chat/completions" {
        return (plain("404 Not Found", &json!({"error": {"message": "not found"}})), None);
    }
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return (plain("400 Bad Request", &json!({"error": {"message": "the body is no JSON"}})), None);
    };
    let answer = script::answer(&request);
    let model = request.get("model").and_then(Value::as_str).unwrap_or("mock");
    let bytes = if request.get("stream").and_then(Value::as_bool) != Some(true) {
        whole(model, &answer)
    } else {
        let usage = request.pointer("/stream_options/include_usage").and_then(Value::as_bool) == Some(true);
        if answer.calls.is_empty() {
            let key = (model.to_owned(), answer.deltas, usage);
            Arc::clone(lock(&shared.texts).entry(key).or_insert_with(|| Arc::new(streamed(model, &answer, usage))))
        } else {
            Arc::new(streamed(model, &answer, usage))
        }
    };
    (bytes, Some(answer.kind))
}

fn plain(status: &str, body: &Value) -> Arc<Vec<u8>> {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    Arc::new((head + &body).into_bytes())
}

fn usage() -> Value {
    json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020})
}

/// A reply in one piece.
fn whole(model: &str, answer: &Answer) -> Arc<Vec<u8>> {
    let call = |(id, name, arguments): &(String, String, Value)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let (reason, message) = if answer.calls.is_empty() {
        ("stop", json!({"role": "assistant", "content": script::words(answer.deltas).collect::<String>()}))
    } else {
        let calls: Vec<_> = answer.calls.iter().map(call).collect();
        ("tool_calls", json!({"role": "assistant", "content": null, "tool_calls": calls}))
    };
    plain(
        "200 OK",
        &json!({"id": "chatcmpl-mock", "object": "chat.completion", "created": 1_700_000_000, "model": model,
        "choices": [{"index": 0, "finish_reason": reason, "message": message}], "usage": usage()}),
    )
}

/// A reply as a stream of events, each in a chunk of its own.
fn streamed(model: &str, answer: &Answer, with_usage: bool) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = |out: &mut Vec<u8>, data: &str| {
        out.extend(format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8).into_bytes());
    };
    let event = |choices: Value| {
        json!({"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model,
            "choices": choices})
    };
    let delta = |delta: Value| event(json!([{"index": 0, "delta": delta, "finish_reason": null}])).to_string();
    if answer.calls.is_empty() {
        chunk(&mut out, &delta(json!({"role": "assistant", "content": ""})));
        for word in script::words(answer.deltas) {
            chunk(&mut out, &delta(json!({"content": word})));
        }
    } else {
        chunk(&mut out, &delta(json!({"role": "assistant", "content": null})));
        for (idx, (id, name, arguments)) in answer.calls.iter().enumerate() {
            let start =
                json!({"index": idx, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
            chunk(&mut out, &delta(json!({"tool_calls": [start]})));
            let rest = json!({"index": idx, "function": {"arguments": arguments.to_string()}});
            chunk(&mut out, &delta(json!({"tool_calls": [rest]})));
        }
    }
    let reason = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
    chunk(&mut out, &event(json!([{"index": 0, "delta": {}, "finish_reason": reason}])).to_string());
    if with_usage {
        let mut last = event(json!([]));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".into(), usage());
        }
        chunk(&mut out, &last.to_string());
    }
    chunk(&mut out, "[DONE]");
    out.extend(b"0\r\n\r\n");
    out
}
