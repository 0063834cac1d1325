//! The scripted model of the benches, over real sockets.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use xtask::bench::{
    script::{self, Kind, Script},
    server::Server,
};

#[test]
fn script_is_read_from_the_prompt() {
    let script = |it: &str| Script::in_prompt(it);
    assert_eq!(script("nothing"), None);
    assert_eq!(script("bench: go"), Some(Script::default()));
    assert_eq!(
        script("please bench:n=3,tool=read,path=a/b.md,deltas=x,par=0 (go)"),
        Some(Script { n: 3, tool: "read".into(), path: "a/b.md".into(), par: 1, ..Script::default() })
    );
}

#[test]
fn answer_follows_from_the_request_alone() {
    let tools = json!([tool("fs_read", "path"), tool("bash", "command")]);
    let ask = |prompt: &str, results: usize| {
        let mut messages = vec![json!({"role": "user", "content": [{"type": "text", "text": prompt}]})];
        for idx in 0..results {
            messages.push(json!({"role": "assistant", "content": null, "tool_calls": []}));
            messages.push(json!({"role": "tool", "tool_call_id": idx.to_string(), "content": "x"}));
        }
        script::answer(&json!({"messages": messages, "tools": tools}))
    };
    let first = ask("bench:n=2", 0);
    assert_eq!(first.kind, Kind::Calls);
    assert_eq!(first.calls, [("call_00001_0".into(), "bash".into(), json!({"command": "echo step-1", "limit": 1}))]);
    assert_eq!(ask("bench:n=2,tool=read", 1).calls[0].2, json!({"path": "README.md", "limit": 1}));
    assert_eq!((ask("bench:n=2", 2).kind, ask("bench:n=2", 2).deltas), (Kind::Final, 8));
    assert_eq!(ask("bench:n=1,par=2", 0).calls.len(), 2);
    assert_eq!(ask("bench:n=1,par=2", 2).kind, Kind::Final);
    let side = script::answer(&json!({"messages": [{"role": "user", "content": "bench:n=5"}]}));
    assert_eq!((side.kind, side.deltas), (Kind::Side, 1));
}

#[test]
fn streamed_reply_holds_every_delta_and_usage_on_request() {
    let server = Server::start().unwrap();
    let request = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "bench:n=0,deltas=100"}], "tools": [tool("bash", "command")]});
    let events = events(&post(&server, "/v1/chat/completions", &request.to_string()));
    let text: String = events.iter().filter_map(|it| it.pointer("/choices/0/delta/content")?.as_str()).collect();
    assert_eq!(text, script::words(100).collect::<String>());
    assert_eq!(events.last().unwrap().pointer("/usage/total_tokens"), Some(&json!(1020)));
    let log = server.take_log();
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].kind, Some(Kind::Final));
    assert!(log[0].received <= log[0].ready && log[0].ready <= log[0].sent);
    assert!(server.take_log().is_empty());
}

#[test]
fn streamed_calls_come_as_name_then_arguments() {
    let server = Server::start().unwrap();
    let request = json!({"stream": true, "messages": [{"role": "user", "content": "bench:n=1"}], "tools": [tool("bash", "command")]});
    let events = events(&post(&server, "/chat/completions", &request.to_string()));
    let pieces: Vec<_> = events.iter().filter_map(|it| it.pointer("/choices/0/delta/tool_calls/0/function")).collect();
    assert_eq!(pieces[0], &json!({"name": "bash", "arguments": ""}));
    let arguments: Value = serde_json::from_str(pieces[1]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"command": "echo step-1", "limit": 1}));
    assert!(events.iter().any(|it| it.pointer("/choices/0/finish_reason") == Some(&json!("tool_calls"))));
}

#[test]
fn reply_in_one_piece_and_errors() {
    let server = Server::start().unwrap();
    let request =
        json!({"messages": [{"role": "user", "content": "bench:n=0,deltas=2"}], "tools": [tool("bash", "command")]});
    let reply = post(&server, "/v1/chat/completions", &request.to_string());
    let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body.pointer("/choices/0/message/content"), Some(&json!("tok0\ntok1 ")));
    assert!(post(&server, "/v1/chat/completions", "no json").starts_with("HTTP/1.1 400 "));
    assert!(post(&server, "/elsewhere", "{}").starts_with("HTTP/1.1 404 "));
}

#[test]
fn request_in_chunks_is_understood() {
    let server = Server::start().unwrap();
    let body =
        json!({"messages": [{"role": "user", "content": "bench:n=0"}], "tools": [tool("bash", "command")]}).to_string();
    let (one, two) = body.split_at(10);
    let head = "POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    assert!(exchange(&server, &format!("{head}{chunks}")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn server_stops_with_an_open_connection() {
    let server = Server::start().unwrap();
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"POST /v1/chat/completions HTTP/1.1\r\n").unwrap();
    drop(server);
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
}

fn tool(name: &str, parameter: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object",
        "properties": {parameter: {"type": "string"}, "limit": {"type": "integer"}}, "required": [parameter, "limit"]}}})
}

/// The JSON events of a streamed reply; each came in a chunk of its own.
fn events(reply: &str) -> Vec<Value> {
    assert!(reply.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{reply}");
    let data = reply.lines().filter_map(|it| it.strip_prefix("data: {"));
    data.map(|it| serde_json::from_str(&format!("{{{it}")).unwrap()).collect()
}

fn post(server: &Server, path: &str, body: &str) -> String {
    exchange(server, &format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// Sends one request and reads until its reply is whole.
fn exchange(server: &Server, request: &str) -> String {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}
