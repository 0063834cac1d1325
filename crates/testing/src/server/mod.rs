//! A scripted HTTP model server on loopback, speaking chat completions, and any other wire in scripted bytes.
//!
//! Bytes go out exactly as scripted, each piece as a packet and an HTTP chunk of its own, so a
//! stream can be cut at any byte, close half-way or never end. The server lives on a thread of its
//! own: it answers also while a test blocks, and real programs can be pointed at it.
//!
//! ```no_run
//! # async fn example() {
//! use bub_testing::{ModelServer, Reply};
//! use serde_json::json;
//!
//! let server = ModelServer::start();
//! server.reply(Reply::calls([("c1", "fs_read", json!({"path": "a.txt"}))])).reply(Reply::text("done"));
//! // … run something against server.base_url() …
//! assert_eq!(server.requests().len(), 2);
//! server.assert_no_violations();
//! # }
//! ```

mod check;
mod check_messages;
mod connection;
mod reply;

use std::{
    collections::VecDeque,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bub_kernel::task::TaskScope;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use reply::Reply;

/// What came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body, `null` when it is no JSON.
    pub body: Value,
    /// The body's bytes.
    pub raw: Vec<u8>,
    /// Which connection, counted from 0.
    pub connection: usize,
    /// When it had arrived whole.
    pub at: Instant,
}

impl Request {
    /// The first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The messages of a chat request.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether this is a chat request.
    #[must_use]
    pub fn is_chat(&self) -> bool {
        self.method == "POST" && self.path.split('?').next().is_some_and(|it| it.ends_with("/chat/completions"))
    }
}

type Handler = Box<dyn Fn(&Request) -> Reply + Send + Sync>;

struct Inner {
    handler: Option<Handler>,
    state: Mutex<State>,
    hangups: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<Request>,
    violations: Vec<String>,
}

impl Inner {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the request and finds its reply.
    fn answer(&self, request: Request) -> Reply {
        let reply = self.handler.as_ref().map(|it| it(&request));
        let mut state = self.state();
        let found = if request.is_chat() {
            check::violations(&request.body)
        } else if request.method == "POST" && request.path.ends_with("/messages") {
            check_messages::violations(&request.body)
        } else {
            Vec::new()
        };
        let n = state.requests.len();
        state.violations.extend(found.into_iter().map(|it| format!("request {n}: {it}")));
        let reply = reply.or_else(|| {
            if request.is_chat() || !request.path.ends_with("/models") {
                return state.replies.pop_front();
            }
            Some(Reply::json(&json!({"object": "list", "data": [{"id": "mock", "object": "model"}]})))
        });
        state.requests.push(request);
        reply.unwrap_or_else(|| {
            let n = state.requests.len();
            state.violations.push(format!("request {}: no reply was queued for it", n.saturating_sub(1)));
            Reply::status(500).body(r#"{"error":{"message":"no reply is queued"}}"#)
        })
    }
}

/// The server. It stops, and cuts all connections, when dropped.
pub struct ModelServer {
    address: SocketAddr,
    inner: Arc<Inner>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("address", &self.address).finish_non_exhaustive()
    }
}

#[expect(clippy::expect_used, reason = "a test kit: a failure here is the test's failure")]
impl ModelServer {
    /// A server that plays what [`ModelServer::reply`] queues. `GET …/models` is always answered.
    #[must_use]
    pub fn start() -> Self {
        Self::launch(None)
    }

    /// A server that asks `handler` for each reply.
    #[must_use]
    pub fn with(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::launch(Some(Box::new(handler)))
    }

    fn launch(handler: Option<Handler>) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let inner = Arc::new(Inner { handler, state: Mutex::default(), hangups: watch::Sender::new(0) });
        let stop = CancellationToken::new();
        let (shared, stopped) = (inner.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime");
            let scope = TaskScope::default();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
                let accept = async {
                    for connection in 0.. {
                        let Ok((socket, _)) = listener.accept().await else { break };
                        scope.spawn(connection::serve(socket, connection, shared.clone()));
                    }
                };
                tokio::select! {
                    () = stopped.cancelled() => (),
                    () = accept => (),
                }
                scope.close().await;
            });
        });
        Self { address, inner, stop, thread: Some(thread) }
    }

    /// Queues a reply for the next request that has none.
    pub fn reply(&self, reply: Reply) -> &Self {
        self.inner.state().replies.push_back(reply);
        self
    }

    /// Where it listens, `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for a client: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.inner.state().requests.clone()
    }

    /// The chat requests so far.
    #[must_use]
    pub fn chats(&self) -> Vec<Request> {
        self.inner.state().requests.iter().filter(|it| it.is_chat()).cloned().collect()
    }

    /// How many clients went away before their reply was complete.
    #[must_use]
    pub fn hangups(&self) -> usize {
        *self.inner.hangups.borrow()
    }

    /// Waits until `n` clients have gone away before their reply was complete.
    ///
    /// # Panics
    /// When that takes longer than `limit`.
    pub async fn hung_up(&self, n: usize, limit: Duration) {
        let mut seen = self.inner.hangups.subscribe();
        let waited = tokio::time::timeout(limit, seen.wait_for(|it| *it >= n)).await;
        assert!(waited.is_ok(), "{} of {n} clients hung up within {limit:?}", self.hangups());
    }

    /// What was wrong with the requests: calls without a result, results without a call, missing replies.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.inner.state().violations.clone()
    }

    /// Checks that every request was well formed and had a reply.
    ///
    /// # Panics
    /// When one was not.
    pub fn assert_no_violations(&self) {
        let found = self.violations();
        assert!(found.is_empty(), "bad requests:\n{}", found.join("\n"));
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
