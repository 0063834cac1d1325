use super::*;

/// Plays events and compares what came before the error, and the error.
async fn check(events: impl IntoIterator<Item = Value>, text: &str, expected: &str) -> ModelError {
    let (events, err) = read(events).await;
    let err = err.unwrap_or_else(|| panic!("no error after {events:?}"));
    assert_eq!(text_of(&events), text);
    assert!(format!("{err:?}").starts_with(expected), "{err:?} is not {expected}");
    assert!(calls_of(&events).is_empty(), "calls of an answer that failed are not complete");
    err
}

fn half() -> Value {
    text_delta(0, "m", "half")
}

fn failed(error: Value) -> [Value; 2] {
    [half(), event("failed", json!({"response": {"status": "failed", "error": error}}))]
}

#[tokio::test]
async fn failures_keep_what_came_and_tell_their_kind() {
    let of = |code: &str| failed(json!({"code": code, "message": "x"}));
    check(of("server_error"), "half", "Failed { status: None").await;
    check(of("rate_limit_exceeded"), "half", "RateLimited").await;
    check(of("context_length_exceeded"), "half", "ContextLength").await;
    check(of("invalid_prompt"), "half", "Rejected").await;
    check(of("image_too_small"), "half", "Rejected").await;
    check(of("content_filter"), "half", "ContentFilter").await;
    check(of("slow_down"), "half", "Overloaded").await;
    check(failed(Value::Null), "half", r#"Failed { status: None, message: "the answer failed, and"#).await;
    let error = json!({"code": "rate_limit_exceeded", "message": "slow", "param": null});
    check([half(), event("error", error.clone())], "half", r#"RateLimited { message: "slow""#).await;
    check([half(), event("error", json!({"error": error}))], "half", r#"RateLimited { message: "slow""#).await;
    check([half(), json!({"error": {"message": "gone", "code": 502}})], "half", "Failed { status: Some(502)").await;
    check([half(), event("cancelled", json!({}))], "half", "Incomplete").await;
    // Whatever the event is called.
    let response = json!({"status": "failed", "error": {"code": "server_error", "message": "x"}});
    check([half(), event("completed", json!({"response": response}))], "half", "Failed").await;
}

#[tokio::test]
async fn a_stream_without_its_end_is_an_error_that_keeps_what_came() {
    check([half()], "half", "Incomplete").await;
    check([half(), done(0, message("m", "half")), done(1, call("fc", "c", "f", "{}"))], "half", "Incomplete").await;
    check([created()], "", "Incomplete").await;
    let server = ModelServer::start();
    let client = client(responses_config(&server));
    server.reply(Reply::raw_sse([sse([half()])]).close());
    let (events, err) = ask(&client).await;
    assert_eq!(text_of(&events), "half");
    assert!(matches!(err, Some(ModelError::Incomplete(_))), "{err:?}");
    server.reply(Reply::raw_sse(["data: {\"type\":\"response.outp\n\n"]));
    let (_, err) = ask(&client).await;
    assert!(matches!(err, Some(ModelError::Protocol(ref text)) if text.contains("response.outp")), "{err:?}");
}

#[tokio::test]
async fn whole_bodies_that_are_no_answer_are_errors() {
    let server = ModelServer::start();
    let client = client(responses_config(&server));
    let expect = async |body: Value, expected: &str| {
        server.reply(Reply::json(&body));
        let (_, err) = ask(&client).await;
        let text = format!("{err:?}");
        assert!(text.starts_with(&format!("Some({expected}")), "{text} is not {expected}");
    };
    expect(json!({"error": {"message": "no credits"}}), "Failed").await;
    expect(json!({"object": "chat.completion", "choices": []}), "Protocol").await;
    expect(
        json!({"object": "response", "status": "failed", "error": {"code": "server_error", "message": "x"}}),
        "Failed",
    )
    .await;
    expect(json!({"object": "response", "status": "queued", "output": []}), "Incomplete").await;
}

#[tokio::test]
async fn statuses_tell_the_kind_of_error() {
    let server = ModelServer::start();
    let client = client(responses_config(&server));
    for (status, message, expected) in [
        (401, "bad key", "Auth"),
        (403, "not yours", "Auth"),
        (404, "no such model", "Rejected { status: Some(404)"),
        (408, "late", "Rejected { status: Some(408)"),
        (429, "slow", "RateLimited"),
        (500, "boom", "Failed { status: Some(500)"),
        (529, "busy", "Overloaded"),
        (400, "Your input exceeds the context window of this model", "ContextLength"),
    ] {
        server.reply(Reply::status(status).body(json!({"error": {"message": message}}).to_string()));
        let (_, err) = ask(&client).await;
        let text = format!("{err:?}");
        assert!(text.starts_with(&format!("Some({expected}")), "{text} is not {expected}");
    }
}

#[tokio::test]
async fn an_answer_that_fails_before_it_begins_is_tried_again() {
    let server = ModelServer::start();
    let mut config = responses_config(&server);
    config.retries.max = 1;
    let failed = event("failed", json!({"response": {"error": {"code": "server_error", "message": "x"}}}));
    server.reply(Reply::raw_sse([sse([created(), failed.clone()])]));
    server.reply(Reply::raw_sse([sse([text_delta(0, "m", "x"), completed(json!([]))])]));
    let client = client(config);
    let (events, err) = ask(&client).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "x");
    assert_eq!(server.requests().len(), 2);
    // Not once it has begun.
    server.reply(Reply::raw_sse([sse([half(), failed])]));
    assert!(ask(&client).await.1.is_some());
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn an_answer_that_is_dropped_closes_its_connection() {
    let server = ModelServer::start();
    server.reply(Reply::raw_sse([sse([half()])]).stall());
    let client = client(responses_config(&server));
    let mut stream = client.stream(&hello()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ModelEvent::Text(_)))));
    drop(stream);
    server.hung_up(1, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn answers_of_too_many_items_are_refused() {
    let events = (0..5000).map(|it| added(it, json!({"type": "message", "id": format!("m{it}")})));
    let err = check(events, "", "Protocol").await;
    assert!(err.to_string().contains("more than 4096 items"), "{err}");
}
