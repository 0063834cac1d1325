use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn post(server: &ModelServer, body: &Value) -> tokio::net::TcpStream {
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let body = body.to_string();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {}\r\nX-Test: 1\r\n\r\n", body.len());
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    socket
}

async fn read_until(socket: &mut tokio::net::TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        if socket.read_buf(&mut seen).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn replies_are_played_in_order_and_requests_kept() {
    let server = ModelServer::start();
    server.reply(Reply::text("hi")).reply(Reply::status(429).header("retry-after", "1").body("slow down"));
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    let seen = read_until(&mut post(&server, &body).await, "0\r\n\r\n").await;
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    assert!(seen.contains(r#""delta":{"content":"hi"}"#) && seen.contains("data: [DONE]\n\n"), "{seen}");
    let seen = read_until(&mut post(&server, &body).await, "slow down").await;
    assert!(seen.starts_with("HTTP/1.1 429") && seen.contains("retry-after: 1\r\n"), "{seen}");
    let requests = server.requests();
    assert_eq!((requests.len(), requests[1].connection, requests[0].header("x-test")), (2, 1, Some("1")));
    assert_eq!(requests[0].body, body);
    server.assert_no_violations();
}

#[tokio::test]
async fn clients_that_leave_are_noticed() {
    let server = ModelServer::with(|_| Reply::text("half").stall());
    let mut socket = post(&server, &json!({"messages": []})).await;
    socket.read_u8().await.unwrap();
    assert_eq!(server.hangups(), 0);
    drop(socket);
    server.hung_up(1, Duration::from_secs(5)).await;
}

#[test]
fn broken_conversations_are_noticed() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let check = |messages: Value, expected: &[&str]| {
        let found = check::violations(&json!({"messages": messages}));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (it, part) in found.iter().zip(expected) {
            assert!(it.contains(part), "{it} has no {part}");
        }
    };
    let assistant = |ids: &[&str]| json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|it| call(it)).collect::<Vec<_>>()});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let user = json!({"role": "user", "content": "u"});
    check(json!([user, assistant(&["a", "b"]), result("b"), result("a"), user]), &[]);
    check(json!([assistant(&["a", "b"]), result("a"), user]), &["call 'b' has no result"]);
    check(json!([assistant(&["a"])]), &["call 'a' has no result"]);
    check(json!([result("z")]), &["'z', which is no open call"]);
    check(json!([assistant(&["a"]), result("a"), result("a")]), &["no open call"]);
    check(json!([assistant(&["a", "a"]), result("a")]), &["repeated id"]);
    check(json!([{"role": "assistant", "content": ""}]), &["says nothing"]);
}
