//! The port that a browser comes back to.

use std::{io, net::Ipv4Addr, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// How long a browser may take to send it, and to take the page.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many connections are served at the same time. Browsers open some in advance.
const MAX_CONNECTIONS: usize = 16;
/// The pause after an error of the port itself.
const PAUSE: Duration = Duration::from_millis(50);

/// What a browser is shown.
pub(super) enum Page {
    /// All is well.
    Done,
    /// It was denied.
    Denied,
    /// Nothing that belongs to this login.
    Unknown,
}

/// A port of this machine, open to it alone.
#[derive(Debug)]
pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
}

impl Callback {
    /// Opens any free port.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Serves browsers until `judge` makes something of the path and query that one asks for.
    pub(super) async fn wait<T>(&self, judge: impl Fn(&str) -> (Page, Option<T>)) -> T {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => open.push(serve(stream, &judge)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(found) = open.next() => {
                    if let Some(found) = found {
                        return found;
                    }
                }
            }
        }
    }
}

/// Answers one request; what goes wrong with it is the browser's business.
async fn serve<T>(mut stream: TcpStream, judge: &impl Fn(&str) -> (Page, Option<T>)) -> Option<T> {
    let target = tokio::time::timeout(PATIENCE, target(&mut stream)).await.ok().flatten()?;
    let (page, found) = judge(&target);
    let answer = async {
        stream.write_all(answer(&page).as_bytes()).await?;
        stream.shutdown().await
    };
    // The code has come, also when nobody reads the page.
    drop(tokio::time::timeout(PATIENCE, answer).await);
    found
}

/// What a `GET` asks for.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 2048];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let n = stream.read(&mut bytes).await.ok().filter(|n| *n > 0 && head.len() < MAX_HEAD)?;
        head.extend_from_slice(bytes.get(..n)?);
    }
    let line = head.split(|it| *it == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    (words.next() == Some("GET")).then(|| words.next().map(str::to_owned)).flatten()
}

fn answer(page: &Page) -> String {
    let (status, text) = match page {
        Page::Done => ("200 OK", "You are logged in. You can close this page and go back to the terminal."),
        Page::Denied => ("200 OK", "The login was denied. You can close this page."),
        Page::Unknown => ("404 Not Found", "There is nothing here, or it belongs to another login."),
    };
    let body = format!("<!doctype html><meta charset=\"utf-8\"><title>bub</title><p>{text}</p>\n");
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
