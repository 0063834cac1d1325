//! Files inside: read and replaced by scripts.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bub_kernel::environment::{EnvPath, EnvironmentError, FileKind, OpenFile};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, ReadBuf};

use super::{
    engine::{Client, Engine, refused},
    scripts::Script,
};

/// The bits of a mode that say what a file is, and those of a regular one.
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// Opens a regular file for reading; anything else is an error at once.
pub(super) async fn open(engine: &Engine, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
    let mut client = engine.start(Script::Read, &[checked(path)?], false).await?;
    let mut size = 0;
    loop {
        let line = engine.line(&mut client).await?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("found", stat) => size = regular(path, stat)?,
            ("open", _) => return Ok(OpenFile { size, reader: Box::new(FileReader::new(client)) }),
            ("refused", words) => return Err(refused(path, words)),
            _ => return Err(engine.failed(&format!("it said something unexpected: {line}"))),
        }
    }
}

/// Replaces a file's content whole, making its folders.
pub(super) async fn write(engine: &Engine, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
    if path.as_str().ends_with('/') {
        return Err(EnvironmentError::InvalidPath {
            path: path.to_string(),
            reason: "it ends with `/` and so names a directory".into(),
        });
    }
    let size = content.len().to_string();
    let (line, _) = engine.run(Script::Write, &[checked(path)?, &size], Some(content)).await?;
    match line.split_once(' ').unwrap_or((&line, "")) {
        ("done", _) => Ok(()),
        ("refused", words) => Err(refused(path, words)),
        ("found", stat) => {
            regular(path, stat)?;
            Err(engine.failed("it ended while a file was written; the file is as it was"))
        }
        _ => Err(engine.failed("it ended while a file was written; the file is as it was")),
    }
}

/// Where a path leads when all links are followed; the path itself when that can't be told.
pub(super) async fn true_path(engine: &Engine, path: &EnvPath) -> EnvPath {
    let Ok(checked) = checked(path) else { return path.clone() };
    match engine.run(Script::Follow, &[checked], None).await {
        Ok((_, found)) => match found.strip_suffix('\n') {
            Some(found) if found.starts_with('/') => EnvPath::new(found),
            _ => path.clone(),
        },
        Err(err) => {
            tracing::debug!(%err, "where a path leads is not known");
            path.clone()
        }
    }
}

/// The path as an argument.
fn checked(path: &EnvPath) -> Result<&str, EnvironmentError> {
    if path.as_str().contains('\0') {
        return Err(EnvironmentError::InvalidPath {
            path: path.as_str().escape_debug().to_string(),
            reason: "it contains a NUL byte".into(),
        });
    }
    Ok(path.as_str())
}

/// The size of a regular file, from its mode in hexadecimal digits and its size in decimal ones; an error
/// for anything else.
fn regular(path: &EnvPath, stat: &str) -> Result<u64, EnvironmentError> {
    let (mode, size) = stat.split_once(' ').unwrap_or((stat, ""));
    let mode = u32::from_str_radix(mode, 16).unwrap_or_default();
    let kind = match mode & TYPE_BITS {
        REGULAR => return Ok(size.parse().unwrap_or_default()),
        0o040_000 => FileKind::Directory,
        0o010_000 => FileKind::Fifo,
        0o140_000 => FileKind::Socket,
        _ => FileKind::Device,
    };
    Err(EnvironmentError::NotAFile { path: path.clone(), kind })
}

/// A file's content as it comes. The end counts only when the script says that it is one.
struct FileReader {
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    end: Option<BoxFuture<'static, io::Result<()>>>,
}

impl FileReader {
    fn new(client: Client) -> Self {
        let Client { process, pipes, mut control } = client;
        let end = async move {
            // Dropping it earlier would end the script.
            let _process = process;
            match control.line().await? {
                Some(line) if line == "end 0" => Ok(()),
                Some(_) => Err(io::Error::other("the file could not be read to its end")),
                None => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("the environment went away while a file was read: {}", control.noise()),
                )),
            }
        };
        Self { stdout: pipes.stdout, end: Some(Box::pin(end)) }
    }
}

impl AsyncRead for FileReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stdout).poll_read(cx, buf))?;
        if buf.filled().len() > before || buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        let ended = ready!(end.as_mut().poll(cx));
        self.end = None;
        Poll::Ready(ended)
    }
}
