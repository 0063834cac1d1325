//! The least that a client of a model can do: `floor_client ADDRESS PROMPT`.
//!
//! Chat completions, streamed, over one kept-alive socket; a `bash` and a `fs_read` tool, one call after
//! the other; no tape, no schemas, no hooks, no rendering.

#![expect(clippy::print_stdout, reason = "the answer is what it is run for")]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let address = args.next().context("ADDRESS is missing")?;
    let prompt = args.next().context("PROMPT is missing")?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut replies = BufReader::with_capacity(1 << 16, socket.try_clone()?);
    let tool = |name: &str, parameter: &str| {
        json!({"type": "function", "function": {"name": name, "description": "run", "parameters": {
            "type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}}})
    };
    let tools = json!([tool("bash", "command"), tool("fs_read", "path")]);
    let mut messages = vec![json!({"role": "user", "content": prompt})];
    loop {
        let body = json!({"model": "mock", "stream": true, "messages": messages, "tools": tools}).to_string();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
        socket.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        let (text, calls) = read_reply(&mut replies)?;
        if calls.is_empty() {
            println!("{text}");
            return Ok(());
        }
        let mut results = Vec::new();
        for call in &calls {
            results.push(json!({"role": "tool", "tool_call_id": call.id, "content": call.run()?}));
        }
        let as_json = |it: &Call| json!({"id": it.id, "type": "function", "function": {"name": it.name, "arguments": it.arguments}});
        messages.push(
            json!({"role": "assistant", "content": text, "tool_calls": calls.iter().map(as_json).collect::<Vec<_>>()}),
        );
        messages.append(&mut results);
    }
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn run(&self) -> Result<String> {
        let arguments: Value = serde_json::from_str(&self.arguments)?;
        let argument = |name: &str| arguments.get(name).and_then(Value::as_str).context("an argument is missing");
        if self.name == "fs_read" {
            return Ok(fs::read_to_string(argument("path")?)?);
        }
        let shell = Command::new("bash").args(["-c", argument("command")?]).stdin(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&shell.stdout).trim().to_owned())
    }
}

/// Reads one chunked reply: its text and its calls.
fn read_reply(replies: &mut impl BufRead) -> Result<(String, Vec<Call>)> {
    let (mut text, mut calls) = (String::new(), Vec::<Call>::new());
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if replies.read_line(&mut line)? == 0 {
            bail!("the server hung up");
        }
    }
    let mut data = Vec::new();
    loop {
        line.clear();
        replies.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).context("no chunk size")?;
        data.clear();
        replies.by_ref().take(size + 2).read_to_end(&mut data)?;
        if size == 0 {
            return Ok((text, calls));
        }
        let Some(event) = data.strip_prefix(b"data: ").filter(|it| it.starts_with(b"{")) else { continue };
        let event: Value = serde_json::from_slice(event)?;
        let Some(delta) = event.pointer("/choices/0/delta") else { continue };
        text.push_str(delta.get("content").and_then(Value::as_str).unwrap_or_default());
        for part in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let idx = part.get("index").and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
            while calls.len() <= idx.min(MAX_CALLS) {
                calls.push(Call::default());
            }
            let Some(call) = calls.get_mut(idx) else { bail!("more than {MAX_CALLS} calls") };
            let piece = |path: &str| part.pointer(path).and_then(Value::as_str).unwrap_or_default();
            call.id.push_str(piece("/id"));
            call.name.push_str(piece("/function/name"));
            call.arguments.push_str(piece("/function/arguments"));
        }
    }
}

/// The most calls of one reply.
const MAX_CALLS: usize = 64;
