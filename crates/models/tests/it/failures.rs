use super::*;
use bub_kernel::error::ErrorKind;
use bub_models::MAX_REPLY_BYTES;
use serde_json::json;

/// Plays a reply and compares what came before the error, and the error.
async fn check(reply: Reply, text: &str, expected: &str) -> ModelError {
    let (events, err) = play(reply).await;
    let err = err.unwrap_or_else(|| panic!("no error after {events:?}"));
    assert_eq!(text_of(&events), text);
    assert!(format!("{err:?}").starts_with(expected), "{err:?} is not {expected}");
    assert!(calls_of(&events).is_empty(), "calls of an answer that failed are not complete");
    err
}

#[tokio::test]
async fn statuses_tell_the_kind_of_error() {
    let of =
        |status: u16, message: &str| Reply::status(status).body(json!({"error": {"message": message}}).to_string());
    check(of(400, "no such field"), "", r#"Rejected { status: Some(400), message: "no such field""#).await;
    check(of(404, "no such model"), "", "Rejected { status: Some(404)").await;
    check(of(400, "maximum context length is 8192"), "", "ContextLength").await;
    check(of(413, "prompt is too long"), "", "ContextLength").await;
    check(of(429, "slow").header("retry-after", "7"), "", r#"RateLimited { message: "slow", retry_after: Some(7s)"#)
        .await;
    check(of(500, "boom"), "", "Failed { status: Some(500)").await;
    check(of(503, "busy"), "", "Overloaded").await;
    check(of(529, "busy"), "", "Overloaded").await;
    let page = "<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>";
    let err = check(Reply::status(502).header("content-type", "text/html").body(page), "", "Failed").await;
    assert_eq!(err.to_string(), "the provider failed (HTTP 502): an HTML page, '502 Bad Gateway'");
}

#[tokio::test]
async fn refused_keys_are_named_by_their_source_and_never_shown() {
    let server = ModelServer::start();
    let body = json!({"error": {"message": "Incorrect API key provided: sk-secret-0123456789."}}).to_string();
    server.reply(Reply::status(401).body(body));
    let mut config = config(&server);
    config.key_source = Some("BUB_API_KEY".into());
    let (_, err) = ask(&client(config)).await;
    let err = err.unwrap();
    assert_eq!(err.kind(), ErrorKind::Provider);
    assert_eq!(
        err.to_string(),
        "the provider refused the credentials: Incorrect API key provided: *** (HTTP 401); the key comes from BUB_API_KEY"
    );
}

#[tokio::test]
async fn a_stream_that_ends_early_keeps_what_came() {
    let half = || Reply::text("half").no_finish().no_done().usage(json!(null));
    check(half(), "half", "Incomplete").await;
    check(half().close(), "half", "Incomplete").await;
    check(Reply::raw_sse([""; 0]), "", "Incomplete").await;
    let calls = Reply::calls([("c", "f", json!({}))]).no_done().no_finish();
    check(calls.close(), "", "Incomplete").await;
}

#[tokio::test]
async fn error_events_keep_what_came() {
    let chunk = json!({"choices": [{"delta": {"content": "half"}}]});
    let of =
        |error: serde_json::Value| Reply::raw_sse([format!("data: {chunk}\n\ndata: {}\n\n", json!({"error": error}))]);
    check(of(json!({"message": "gone", "code": 502})), "half", "Failed { status: Some(502)").await;
    check(of(json!({"message": "slow", "code": 429})), "half", "RateLimited").await;
    check(of(json!({"message": "x", "type": "server_error"})), "half", "Failed { status: None").await;
    check(of(json!({"message": "x", "code": "context_length_exceeded"})), "half", "ContextLength").await;
    check(of(json!("broken")), "half", r#"Failed { status: None, message: "broken""#).await;
}

#[tokio::test]
async fn errors_are_read_in_the_forms_of_gateways() {
    let of = |event: &str| {
        let half = json!({"choices": [{"delta": {"content": "half"}}]});
        Reply::raw_sse([format!("data: {half}\n\nevent: error\ndata: {event}\n\ndata: [DONE]\n\n")])
    };
    check(of(r#"{"object":"error","message":"x","code":400}"#), "half", "Rejected { status: Some(400)").await;
    check(of(r#"{"message":"busy","code":503}"#), "half", "Overloaded").await;
    check(of(r#"{"detail":"gone"}"#), "half", "Failed").await;
    let inside = r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"x"}}]}"#;
    check(of(inside), "half", "Failed { status: Some(502)").await;
    for reason in ["error", "network_error", "insufficient_system_resource", "abort"] {
        let event = json!({"choices": [{"delta": {}, "finish_reason": reason}]}).to_string();
        let err = check(of(&event), "half", "Failed { status: None").await;
        assert!(err.to_string().contains(reason), "{err}");
    }
    // Fields that are always sent hold no error.
    let fine = r#"{"choices":[{"delta":{},"finish_reason":"stop","error":false}],"error":""}"#;
    let (events, err) = play(of(fine)).await;
    assert!(err.is_none() && text_of(&events) == "half", "{err:?} after {events:?}");
}

#[tokio::test]
async fn what_is_no_stream_is_quoted() {
    let html = Reply::status(200).header("content-type", "text/html").body("<html>\n<body>log in</body></html>");
    let err = check(html, "", "Protocol").await;
    assert!(err.to_string().contains("<html> <body>log in</body></html>"), "{err}");
    check(Reply::json(&json!({"error": {"message": "no credits", "code": 402}})), "", "Rejected { status: Some(402)")
        .await;
    check(Reply::status(200), "", "Incomplete").await;
    let bad = Reply::raw_sse(["data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"cho\n\n"]);
    let err = check(bad, "a", "Protocol").await;
    assert!(err.to_string().contains(r#"{"cho"#), "{err}");
}

#[tokio::test]
async fn silence_ends_after_its_limit() {
    let slow = |edit: fn(&mut ProviderConfig), reply: Reply| async move {
        let server = ModelServer::start();
        server.reply(reply);
        let mut config = config(&server);
        edit(&mut config);
        let result = ask(&client(config)).await;
        server.hung_up(1, Duration::from_secs(5)).await;
        result
    };
    let limit = Duration::from_millis(100);
    let between = |it: &mut ProviderConfig| it.timeouts.between = Duration::from_millis(100);
    let (events, err) = slow(between, Reply::text("half").no_finish().no_done().stall()).await;
    assert_eq!(text_of(&events), "half");
    assert!(matches!(err, Some(ModelError::Stalled(ref text)) if text.contains("100ms")), "{err:?}");
    let first_byte = |it: &mut ProviderConfig| it.timeouts.first_byte = Duration::from_millis(100);
    let (_, err) = slow(first_byte, Reply::text("x").delay(limit * 100)).await;
    assert!(matches!(err, Some(ModelError::Timeout(_))), "{err:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_a_hint() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut config = ProviderConfig::new("local", ProviderKind::Ollama);
    config.api_base = Some(format!("http://127.0.0.1:{port}/v1"));
    config.retries.max = 0;
    let (_, err) = ask(&client(config)).await;
    let err = err.unwrap();
    assert_eq!(err.kind(), ErrorKind::Temporary);
    let text = err.to_string();
    assert!(
        text.contains(&format!("127.0.0.1:{port}")) && text.contains("refused") && text.contains("api_base"),
        "{text}"
    );
}

#[tokio::test]
async fn r132_proxy_variables_do_no_harm_to_loopback_and_are_named() {
    // Variables can only be set for another process: this test's own program, with another test.
    for proxy in ["socks5://127.0.0.1:1", "http://127.0.0.1:1", "nonsense"] {
        let run = |test: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", test]).env_remove("NO_PROXY").env_remove("no_proxy");
            for name in ["ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "http_proxy", "https_proxy"] {
                command.env(name, proxy);
            }
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("1 passed"), "{proxy}: {text}");
        };
        run("answers::connections_are_used_again");
        run("failures::hosts_out_of_reach_are_told_with_the_proxy_variables");
    }
}

#[tokio::test]
async fn hosts_out_of_reach_are_told_with_the_proxy_variables() {
    let mut config = ProviderConfig::new("far", ProviderKind::OpenAiCompatible);
    config.api_base = Some("https://model.invalid/v1".into());
    config.retries.max = 0;
    config.timeouts.connect = Duration::from_secs(2);
    let (_, err) = ask(&client(config)).await;
    let text = err.unwrap().to_string();
    assert!(text.contains("model.invalid") && text.contains("ALL_PROXY"), "{text}");
}

#[tokio::test]
async fn replies_have_a_cap() {
    let text = "x".repeat(MAX_REPLY_BYTES / 5);
    let err = check(Reply::deltas((0..6).map(|_| json!({"content": text}))), &text.repeat(5), "Protocol").await;
    assert!(err.to_string().contains("50 MiB"), "{err}");
    // One event without an end, and a body that is no stream.
    let piece = "x".repeat(1024 * 1024);
    check(Reply::raw_sse(std::iter::once("data: ").chain((0..52).map(|_| piece.as_str()))), "", "Protocol").await;
    check(Reply::raw_sse((0..52).map(|_| piece.as_str())), "", "Protocol").await;
    let (_, err) = play(Reply::status(500).body("y".repeat(10 * 1024 * 1024))).await;
    assert!(err.unwrap().to_string().len() < 2000);
}

#[tokio::test]
async fn redirects_to_another_host_are_not_followed() {
    let other = ModelServer::with(|_| Reply::text("stolen"));
    let location = format!("{}/chat/completions", other.base_url());
    for status in [301, 302, 307, 308] {
        let err = check(Reply::status(status).header("location", location.clone()), "", "Rejected").await;
        assert!(err.to_string().contains("redirects to 127.0.0.1"), "{err}");
    }
    assert!(other.requests().is_empty());
    let server = ModelServer::with(|it| match it.path.as_str() {
        "/new" => Reply::text("moved"),
        _ => Reply::status(307).header("location", "/new"),
    });
    let (events, err) = ask(&client(config(&server))).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "moved");
    assert_eq!(server.requests()[1].header("authorization"), Some("Bearer sk-secret-0123456789"));
}

#[test]
fn what_is_missing_or_broken_is_told_before_a_request() {
    let check = |edit: fn(&mut ProviderConfig), expected: &str| {
        let mut config = ProviderConfig::new("openai", ProviderKind::OpenAi);
        config.api_key = Some("sk-12345678".into());
        edit(&mut config);
        let err = Provider::new(config).client("m").err().unwrap();
        assert_eq!(err.kind(), ErrorKind::Config);
        assert!(err.to_string().contains(expected), "{err}");
        assert!(!err.to_string().contains("12345678"), "{err}");
    };
    check(|it| it.api_key = None, "provider 'openai' has no API key: set BUB_OPENAI_API_KEY");
    check(|it| it.api_key = Some(" ".into()), "has no API key");
    for key in ["sk-12345678\n", "sk\r\n-12345678", "sk 12345678", "sk-12345678é", "\u{0}12345678"] {
        let mut config = ProviderConfig::new("openai", ProviderKind::OpenAi);
        config.api_key = Some(key.into());
        config.key_source = Some("BUB_API_KEY".into());
        let err = Provider::new(config).client("m").err().unwrap().to_string();
        assert!(err.contains("the API key of provider 'openai' (from BUB_API_KEY) has a line break"), "{err}");
        assert!(!err.contains("12345678"), "{err}");
    }
    check(|it| it.api_base = Some("localhost:8000".into()), "must be a URL that starts with http://");
    check(|it| it.headers.push(("a b".into(), "x".into())), "the name of header 'a b'");
    check(|it| it.headers.push(("a".into(), "x\n".into())), "the value of header 'a'");
    check(|it| it.kind = ProviderKind::OpenAiCompatible, "needs an api_base");
    let err = Provider::new(ProviderConfig::new("ollama", ProviderKind::Ollama)).client(" ").err().unwrap();
    assert!(err.to_string().contains("needs the name of a model"), "{err}");
}

#[test]
fn providers_are_found_by_name_or_named() {
    let custom = ProviderConfig::new("Mine", ProviderKind::OpenAiCompatible);
    let providers = bub_models::providers([custom]);
    assert_eq!(providers[0].name(), "mine");
    for kind in ProviderKind::ALL {
        assert_eq!(bub_models::find(&providers, &kind.as_str().to_uppercase()).unwrap().name(), kind.as_str());
    }
    let ollama = bub_models::find(&providers, "OLLAMA").unwrap();
    assert!(ollama.client("qwen3:8b").is_ok(), "ollama needs no key");
    let err = bub_models::find(&providers, "acme").err().unwrap();
    assert_eq!(err.kind(), ErrorKind::Config);
    let text = err.to_string();
    assert!(
        text.contains("unknown model provider 'acme'; known are mine, openai, ") && text.contains("api_base"),
        "{text}"
    );
}
