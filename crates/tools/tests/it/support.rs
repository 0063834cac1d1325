//! What the tests of several subjects share: a folder to work in, and a scripted web server.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{task::TaskScope, tool::ToolContext};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A folder that is the workspace of a local environment, and a place outside of it.
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
    pub(crate) ctx: ToolContext,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap().join("ws");
        std::fs::create_dir(&workspace).unwrap();
        let options = LocalOptions { workspace: Some(workspace), ..LocalOptions::default() };
        let ctx = bub_testing::context(Arc::new(LocalEnvironment::new(options).unwrap()));
        Self { folder, ctx }
    }

    /// A path below the workspace.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.outside("ws").join(name)
    }

    /// A path beside the workspace.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// What a test may compare: the text with the folder's own path left out.
    pub(crate) fn relative(&self, text: &str) -> String {
        text.replace(self.folder.path().canonicalize().unwrap().to_str().unwrap(), "")
    }
}

/// What a server does with one connection once it has read a request's head.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Sends these bytes and then nothing, until the client closes.
    Hang(Vec<u8>),
    /// Sends these bytes, then one byte now and then, until the client closes.
    Drip(Vec<u8>, Duration),
}

/// A raw HTTP server on 127.0.0.1. It ends with the test.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    /// Connections that were accepted and not closed.
    open: Arc<AtomicUsize>,
    scope: TaskScope,
}

impl Server {
    /// Answers each request by what `reply` makes of its head.
    pub(crate) async fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            requests: Arc::default(),
            open: Arc::default(),
            scope: TaskScope::default(),
        };
        let (requests, open, scope) = (server.requests.clone(), server.open.clone(), server.scope.clone());
        let reply = Arc::new(reply);
        server.scope.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (requests, open, reply) = (requests.clone(), open.clone(), reply.clone());
                open.fetch_add(1, Ordering::SeqCst);
                scope.spawn(async move {
                    if let Some(head) = read_head(&mut stream).await {
                        requests.lock().unwrap().push(head.clone());
                        serve(stream, reply(&head)).await;
                    }
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// One answer for every request.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until all connections are closed.
    pub(crate) async fn closed_within(&self, limit: Duration) {
        let closed = async {
            while self.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(limit, closed).await.expect("the client keeps its connection");
    }

    /// Waits until a request has come.
    pub(crate) async fn requested(&self) {
        while self.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.scope.token().cancel();
    }
}

/// An answer with a head and a body.
pub(crate) fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let headers: String = headers.iter().map(|it| format!("{it}\r\n")).collect();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn serve(mut stream: TcpStream, reply: Reply) {
    let (Reply::Bytes(first) | Reply::Hang(first) | Reply::Drip(first, _)) = &reply;
    if stream.write_all(first).await.is_err() {
        return;
    }
    let mut rest = [0; 64];
    match reply {
        Reply::Bytes(_) => drop(stream.shutdown().await),
        Reply::Hang(_) => while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {},
        Reply::Drip(_, pause) => loop {
            tokio::select! {
                read = stream.read(&mut rest) => if !read.is_ok_and(|n| n > 0) { break },
                () = tokio::time::sleep(pause) => if stream.write_all(b".").await.is_err() { break },
            }
        },
    }
}
