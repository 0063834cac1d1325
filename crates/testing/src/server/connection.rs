//! One connection: requests in, scripted bytes out.

use std::{io, sync::Arc, time::Instant};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{Inner, Reply, Request, reply::End};

/// The longest head and the largest body that the server reads.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

pub(super) async fn serve(socket: TcpStream, connection: usize, inner: Arc<Inner>) {
    drop(socket.set_nodelay(true));
    let (mut reader, mut writer) = socket.into_split();
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = read_request(&mut reader, &mut buffer, connection).await {
        let reply = inner.answer(request.clone());
        let (pieces, is_whole) = reply.pieces(&request);
        let sent = tokio::select! {
            biased;
            sent = write_reply(&mut writer, &reply, &pieces, is_whole) => sent,
            () = gone(&mut reader, &mut buffer) => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match sent {
            Ok(true) => (),
            Ok(false) => break,
            Err(_) => {
                inner.hangups.send_modify(|it| *it += 1);
                break;
            }
        }
    }
}

/// Returns when the client has closed its side; what it sends meanwhile is kept.
async fn gone(reader: &mut OwnedReadHalf, buffer: &mut Vec<u8>) {
    while matches!(reader.read_buf(buffer).await, Ok(n) if n > 0) {}
}

/// Writes a reply; false when the connection ends with it.
async fn write_reply(
    writer: &mut OwnedWriteHalf,
    reply: &Reply,
    pieces: &[Vec<u8>],
    is_whole: bool,
) -> io::Result<bool> {
    tokio::time::sleep(reply.wait).await;
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if is_whole {
        head.push_str(&format!("content-length: {}\r\n\r\n", pieces.iter().map(Vec::len).sum::<usize>()));
    } else {
        head.push_str("transfer-encoding: chunked\r\n\r\n");
    }
    writer.write_all(head.as_bytes()).await?;
    for piece in pieces.iter().filter(|it| !it.is_empty()) {
        if is_whole {
            writer.write_all(piece).await?;
        } else {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            writer.write_all(&chunk).await?;
        }
        if !reply.between.is_zero() {
            tokio::time::sleep(reply.between).await;
        }
    }
    match reply.end {
        End::Complete if is_whole => Ok(true),
        End::Complete => writer.write_all(b"0\r\n\r\n").await.map(|()| true),
        End::Stall => std::future::pending().await,
        End::Close => Ok(false),
    }
}

/// Reads one request; none when the client closed the connection between two.
async fn read_request(
    reader: &mut OwnedReadHalf,
    buffer: &mut Vec<u8>,
    connection: usize,
) -> io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            break at;
        }
        if buffer.len() > MAX_REQUEST_BYTES || reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(buffer.get(..head_end).unwrap_or_default()).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<_> = lines
        .filter_map(|it| it.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, it)| it.parse().ok());
    let body_end = head_end.saturating_add(4).saturating_add(length.unwrap_or(0_usize));
    while buffer.len() < body_end {
        if body_end > MAX_REQUEST_BYTES || reader.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let rest = buffer.split_off(body_end);
    let raw = std::mem::replace(buffer, rest).split_off(head_end + 4);
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    Ok(Some(Request { method, path, headers, body, raw, connection, at: Instant::now() }))
}
