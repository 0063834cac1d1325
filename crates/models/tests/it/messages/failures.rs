use super::*;
use bub_kernel::error::ErrorKind;

fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

/// Plays a reply and compares what came before the error, and the error.
async fn check(reply: Reply, text: &str, expected: &str) {
    let (events, err) = play(reply).await;
    let err = err.unwrap_or_else(|| panic!("no error after {events:?}"));
    assert_eq!(text_of(&events), text);
    assert!(format!("{err:?}").starts_with(expected), "{err:?} is not {expected}");
    assert!(calls_of(&events).is_empty(), "calls of an answer that failed are not complete");
}

#[tokio::test]
async fn statuses_tell_the_kind_of_error() {
    let of = |status: u16, kind: &str, message: &str| Reply::status(status).body(error(kind, message).to_string());
    check(of(401, "authentication_error", "invalid x-api-key"), "", r#"Auth("invalid x-api-key (HTTP 401)"#).await;
    check(of(403, "permission_error", "no"), "", "Auth").await;
    let broke = "Your credit balance is too low to access the Anthropic API";
    check(of(400, "invalid_request_error", broke), "", &format!("Rejected {{ status: Some(400), message: {broke:?}"))
        .await;
    check(of(402, "billing_error", "pay"), "", "Rejected { status: Some(402)").await;
    let model = r#"Rejected { status: Some(404), message: "model: claude-0""#;
    check(of(404, "not_found_error", "model: claude-0"), "", model).await;
    check(of(408, "timeout_error", "slow"), "", "Rejected { status: Some(408)").await;
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    check(of(400, "invalid_request_error", long), "", "ContextLength").await;
    let both = "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000";
    check(of(400, "invalid_request_error", both), "", "ContextLength").await;
    check(of(413, "request_too_large", "Request exceeds the maximum size"), "", "ContextLength").await;
    let limit = "This request would exceed your rate limit of 80,000 input tokens per minute";
    check(
        of(429, "rate_limit_error", limit).header("retry-after", "7"),
        "",
        &format!("RateLimited {{ message: {limit:?}, retry_after: Some(7s)"),
    )
    .await;
    check(of(429, "rate_limit_error", limit), "", &format!("RateLimited {{ message: {limit:?}, retry_after: None"))
        .await;
    check(of(500, "api_error", "Internal server error"), "", "Failed { status: Some(500)").await;
    check(
        of(529, "overloaded_error", "Overloaded").header("retry-after", "2"),
        "",
        r#"Overloaded { message: "Overloaded (HTTP 529)", retry_after: Some(2s)"#,
    )
    .await;
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    check(
        Reply::status(502).body(page),
        "",
        r#"Failed { status: Some(502), message: "an HTML page, '502 Bad Gateway'""#,
    )
    .await;
}

#[tokio::test]
async fn error_events_keep_what_came() {
    for (kind, message, expected) in [
        ("overloaded_error", "Overloaded", "Overloaded"),
        ("rate_limit_error", "token limit reached", "RateLimited"),
        ("authentication_error", "x", "Auth"),
        ("permission_error", "x", "Auth"),
        ("invalid_request_error", "prompt is too long: 2 tokens > 1 maximum", "ContextLength"),
        ("request_too_large", "x", "ContextLength"),
        ("invalid_request_error", "x", "Rejected"),
        ("not_found_error", "x", "Rejected"),
        ("api_error", "x", "Failed { status: None"),
        ("timeout_error", "x", "Failed { status: None"),
    ] {
        let mut events = vec![start()];
        events.extend(text(0, &["half"]));
        events.push(error(kind, message));
        check(Reply::raw_sse([stream(events)]), "half", expected).await;
    }
    check(Reply::raw_sse(["data: {\"type\": \"error\"}\n\n"]), "", "Failed { status: None").await;
    check(Reply::json(&error("overloaded_error", "x")), "", "Overloaded").await;
}

#[tokio::test]
async fn a_stream_that_ends_early_keeps_what_came() {
    let half = || stream([start()].into_iter().chain(text(0, &["half"])));
    check(Reply::raw_sse([half()]), "half", "Incomplete").await;
    check(Reply::raw_sse([half()]).close(), "half", "Incomplete").await;
    let call = stream([vec![start()], tool_use(0, "c", "f", &["{}"])].concat());
    check(Reply::raw_sse([call]).close(), "", "Incomplete").await;
    // Thinking that is cut off has no signature, so nothing of it is kept.
    let cut = stream([vec![start()], thinking(0, &["hm"], "S").drain(..2).collect()].concat());
    let (events, err) = play(Reply::raw_sse([cut]).close()).await;
    assert!(matches!(err, Some(ModelError::Incomplete(_))), "{err:?}");
    assert!(!events.iter().any(|it| matches!(it, ModelEvent::ProviderData(_))), "{events:?}");
    // Once it is said why it stopped, nothing is missing.
    let whole = stream([vec![start()], text(0, &["all"]), end("end_turn").drain(..1).collect()].concat());
    for reply in [Reply::raw_sse([whole.clone()]), Reply::raw_sse([whole]).close()] {
        let (events, err) = play(reply).await;
        assert!(err.is_none() && text_of(&events) == "all", "{err:?}");
    }
}

#[tokio::test]
async fn a_stream_cut_off_anywhere_is_an_error_after_what_came() {
    let server = ModelServer::start();
    let client = client(anthropic(&server));
    let blocks = [thinking(0, &["hm"], "S"), text(1, &["漢字", "😀"]), tool_use(2, "c", "f", &["{\"a\":", "1}"])];
    let whole = stream([vec![start()], blocks.concat(), end("tool_use")].concat());
    let said_why = whole.find("event: message_stop").unwrap();
    for at in (0..whole.len()).step_by(11) {
        server.reply(Reply::raw_sse([whole.clone()]).cut(at));
        let (events, err) = ask(&client).await;
        assert!("漢字😀".starts_with(&text_of(&events)), "cut at {at}: {events:?}");
        // From the event that says why it stopped, the answer is whole.
        assert_eq!(err.is_none(), at >= said_why - 1, "cut at {at}: {err:?}");
        assert_eq!(calls_of(&events).len(), usize::from(err.is_none()), "cut at {at}");
        // Thinking is there with its signature, or not at all.
        for event in &events {
            if let ModelEvent::ProviderData(data) = event {
                assert_eq!(data.payload["item"]["signature"], "S", "cut at {at}");
            }
        }
        if let Some(err) = err {
            assert!(matches!(err, ModelError::Incomplete(_) | ModelError::Transport { .. }), "cut at {at}: {err:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_stream_is_quoted() {
    check(Reply::json(&json!({"hello": "world"})), "", r#"Protocol("not an event stream: {\"hello\":\"world\"}"#).await;
    let bad = stream([start()].into_iter().chain(text(0, &["a"]))) + "data: {\"type\": \"cont\n\n";
    check(Reply::raw_sse([bad]), "a", "Protocol(\"an event is not valid JSON").await;
}

#[tokio::test]
async fn an_answer_has_a_limit_on_blocks() {
    let blocks = (0..10_001).flat_map(|it| block(it, json!({"type": "text", "text": ""}), []));
    check(Reply::raw_sse([stream(blocks)]), "", r#"Protocol("more than 10000 blocks in one answer"#).await;
}

#[tokio::test]
async fn r186_an_overloaded_server_is_asked_again_when_it_says() {
    let server = ModelServer::start();
    let overloaded = error("overloaded_error", "Overloaded");
    server
        .reply(Reply::status(529).header("retry-after", "0.2").body(overloaded.to_string()))
        .reply(Reply::raw_sse([stream([overloaded])]))
        .reply(message([text(0, &["x"])], "end_turn"));
    let mut config = anthropic(&server);
    config.retries.max = 2;
    let (events, err) = ask(&client(config)).await;
    assert!(err.is_none(), "{err:?}");
    let ModelEvent::Retry { wait, reason } = &events[0] else { panic!("{events:?}") };
    assert_eq!(
        (*wait, reason.as_str()),
        (Duration::from_millis(200), "the provider is overloaded: Overloaded (HTTP 529)")
    );
    assert_eq!((text_of(&events).as_str(), server.requests().len()), ("x", 3));
}

#[tokio::test]
async fn dropping_an_answer_closes_its_connection() {
    let server = ModelServer::start();
    server.reply(Reply::raw_sse([stream([start()].into_iter().chain(text(0, &["half"])))]).stall());
    let mut events = client(anthropic(&server)).stream(&hello()).await.unwrap();
    while !matches!(events.next().await, Some(Ok(ModelEvent::Text(_)))) {}
    drop(events);
    server.hung_up(1, Duration::from_secs(5)).await;
}

#[test]
fn a_key_is_needed_and_may_be_a_header() {
    let config = ProviderConfig::new("anthropic", ProviderKind::Anthropic);
    let err = Provider::new(config.clone()).client("m").err().unwrap();
    assert_eq!(err.kind(), ErrorKind::Config);
    assert!(err.to_string().contains("set BUB_ANTHROPIC_API_KEY"), "{err}");
    for name in ["X-Api-Key", "Authorization"] {
        let headers = vec![(name.to_owned(), "Bearer x".to_owned())];
        assert!(Provider::new(ProviderConfig { headers, ..config.clone() }).client("m").is_ok());
    }
}
