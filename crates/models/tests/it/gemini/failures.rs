use super::*;
use bub_models::Retries;

/// Plays a reply and compares what came before the error, and the error.
async fn check(reply: Reply, text: &str, expected: &str) -> ModelError {
    let (events, err) = play(reply).await;
    let err = err.unwrap_or_else(|| panic!("no error after {events:?}"));
    assert_eq!(text_of(&events), text);
    assert!(format!("{err:?}").starts_with(expected), "{err:?} is not {expected}");
    assert!(calls_of(&events).is_empty(), "calls of an answer that failed are not complete");
    err
}

fn error(code: u16, status: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "status": status}})
}

#[tokio::test]
async fn statuses_tell_the_kind_of_error() {
    let of = |code: u16, status: &str, message: &str| {
        Reply::status(code).body(serde_json::to_string_pretty(&error(code, status, message)).unwrap())
    };
    check(of(400, "INVALID_ARGUMENT", "no such field"), "", "Rejected { status: Some(400)").await;
    check(of(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), "", "Auth").await;
    let long = "The input token count (9) exceeds the maximum number of tokens allowed (8).";
    check(of(400, "INVALID_ARGUMENT", long), "", "ContextLength").await;
    check(of(401, "UNAUTHENTICATED", "x"), "", "Auth").await;
    check(of(403, "PERMISSION_DENIED", "x"), "", "Auth").await;
    check(of(404, "NOT_FOUND", "models/x is not found"), "", "Rejected { status: Some(404)").await;
    check(of(408, "x", "x"), "", "Rejected { status: Some(408)").await;
    check(of(429, "RESOURCE_EXHAUSTED", "slow"), "", r#"RateLimited { message: "slow", retry_after: None"#).await;
    check(of(500, "INTERNAL", "boom"), "", "Failed { status: Some(500)").await;
    check(of(503, "UNAVAILABLE", "The model is overloaded."), "", "Overloaded").await;
    check(of(504, "DEADLINE_EXCEEDED", "late"), "", "Failed { status: Some(504)").await;
    // Without alt=sse, errors are in a list too.
    let list = json!([error(404, "NOT_FOUND", "gone")]).to_string();
    check(Reply::status(404).body(list), "", r#"Rejected { status: Some(404), message: "gone""#).await;
    let page = "<html><head><title>502 Bad Gateway</title></head></html>";
    check(Reply::status(502).header("content-type", "text/html").body(page), "", "Failed { status: Some(502)").await;
}

#[tokio::test]
async fn the_wait_that_google_asks_for_is_kept() {
    let server = ModelServer::start();
    let mut busy = error(429, "RESOURCE_EXHAUSTED", "quota");
    busy["error"]["details"] = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"}]);
    server
        .reply(Reply::status(429).body(busy.to_string()))
        .reply(stream([parts(json!([{"text": "x"}])), stop("STOP")]));
    let mut config = config(&server);
    config.retries = Retries { max: 1, delay: Duration::ZERO, max_delay: Duration::from_secs(5) };
    let (events, err) = ask(&client(config)).await;
    assert!(err.is_none(), "{err:?}");
    assert!(matches!(&events[0], ModelEvent::Retry { wait, .. } if *wait == Duration::from_millis(300)), "{events:?}");
    let requests = server.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_millis(300));
}

#[tokio::test]
async fn errors_within_a_stream_keep_what_came() {
    let of = |error: Value| stream([parts(json!([{"text": "half"}])), error]);
    check(of(error(503, "UNAVAILABLE", "busy")), "half", "Overloaded").await;
    check(of(error(429, "RESOURCE_EXHAUSTED", "slow")), "half", "RateLimited").await;
    check(of(error(500, "INTERNAL", "boom")), "half", "Failed { status: Some(500)").await;
    check(of(json!({"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}})), "half", "RateLimited").await;
    check(of(json!({"error": {"status": "INVALID_ARGUMENT", "message": "x"}})), "half", "Rejected").await;
    let list = json!([parts(json!([{"text": "half"}])), error(503, "UNAVAILABLE", "busy")]);
    check(Reply::json(&list), "half", "Overloaded").await;
    check(Reply::json(&error(400, "INVALID_ARGUMENT", "no")), "", r#"Rejected { status: Some(400), message: "no""#)
        .await;
}

#[tokio::test]
async fn a_malformed_call_is_told_and_keeps_what_came() {
    let mut last = stop("MALFORMED_FUNCTION_CALL");
    last["candidates"][0]["finishMessage"] = "Malformed function call: print(f()".into();
    last["usageMetadata"] = json!({"promptTokenCount": 7});
    let reply = stream([parts(json!([{"text": "half"}, {"functionCall": {"name": "f", "args": {}}}])), last]);
    let (events, err) = play(reply).await;
    assert_eq!(text_of(&events), "half");
    assert!(events.iter().any(|it| matches!(it, ModelEvent::Usage(it) if it.input_tokens == 7)), "{events:?}");
    let expected = "the provider failed: the model wrote a function call that can't be read (MALFORMED_FUNCTION_CALL): \
                    Malformed function call: print(f()";
    assert_eq!(err.unwrap().to_string(), expected);
    check(stream([parts(json!([{"functionCall": {"args": {"a": 1}}}]))]), "", "Protocol").await;
}

#[tokio::test]
async fn a_malformed_call_before_any_output_is_tried_again() {
    let server = ModelServer::start();
    server
        .reply(stream([json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})]))
        .reply(stream([parts(json!([{"text": "x"}])), stop("STOP")]));
    let mut config = config(&server);
    config.retries.max = 1;
    let (events, err) = ask(&client(config)).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "x");
}

#[tokio::test]
async fn a_blocked_prompt_is_an_error_that_says_why() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "safetyRatings": []},
        "usageMetadata": {"promptTokenCount": 5}});
    let expected = r#"ContentFilter("Prompt blocked: PROHIBITED_CONTENT")"#;
    check(stream([blocked.clone()]), "", expected).await;
    check(Reply::json(&blocked), "", expected).await;
    let fine = json!({"promptFeedback": {"safetyRatings": []}, "candidates": [{"content": {"parts": [{"text": "x"}]},
        "finishReason": "STOP"}]});
    let (events, err) = play(stream([fine])).await;
    assert!(err.is_none() && text_of(&events) == "x", "{err:?}");
}

#[tokio::test]
async fn streams_without_their_end_and_bodies_of_others_are_errors() {
    let half = || stream([parts(json!([{"text": "half"}]))]);
    check(half(), "half", "Incomplete").await;
    check(half().close(), "half", "Incomplete").await;
    check(Reply::raw_sse([""; 0]), "", "Incomplete").await;
    let list = json!([parts(json!([{"text": "half"}])), stop("STOP")]).to_string();
    check(Reply::status(200).body(list.split_at(list.len() - 9).0), "half", "Incomplete").await;
    check(Reply::json(&json!([parts(json!([{"text": "half"}]))])), "half", "Incomplete").await;
    for (body, quote) in
        [("<html>log in</html>", "log in"), ("{\"choices\":[]}", "choices"), ("[]", "[]"), ("[1]", "[1]")]
    {
        let err = check(Reply::status(200).body(body), "", "Protocol").await;
        assert!(err.to_string().contains(quote), "{err}");
    }
    let bad = Reply::raw_sse([format!("data: {}\n\ndata: {{\"cand\n\n", parts(json!([{"text": "a"}])))]);
    let err = check(bad, "a", "Protocol").await;
    assert!(err.to_string().contains(r#"{"cand"#), "{err}");
}

#[tokio::test]
async fn dropping_the_answer_hangs_up() {
    let server = ModelServer::start();
    server.reply(stream([parts(json!([{"text": "x"}]))]).stall());
    let mut answer = client(config(&server)).stream(&hello()).await.unwrap();
    let first = futures::StreamExt::next(&mut answer).await.unwrap().unwrap();
    assert_eq!(first, ModelEvent::Text("x".into()));
    drop(answer);
    server.hung_up(1, Duration::from_secs(5)).await;
}
