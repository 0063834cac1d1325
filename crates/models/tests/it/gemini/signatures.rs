use super::*;

/// Has the server answer with these events, and sends the answer back.
async fn back(model: &str, events: Vec<Value>) -> Value {
    let server = ModelServer::start();
    let client = client(config(&server));
    server.reply(stream(events)).reply(stream([stop("STOP")]));
    let (events, err) = ask(&client).await;
    assert!(err.is_none(), "{err:?}");
    let mut it = request(vec![user("x"), answer_of(&events)]);
    it.model = model.into();
    send(&client, &it).await;
    contents(&server)[1]["parts"].clone()
}

#[tokio::test]
async fn r183_signatures_of_calls_go_back_with_their_calls() {
    let call = |path: &str| json!({"functionCall": {"id": path, "name": "fs_read", "args": {"path": path}}});
    let mut first = call("a");
    first["thoughtSignature"] = "SIG+/==".into();
    let mut second = call("b");
    second["thoughtSignature"] = "SIG2".into();
    let both = json!([first, second]);
    assert_eq!(back("gemini-3-pro", vec![parts(both.clone()), stop("STOP")]).await, both);
    assert_eq!(back("gemini-3-pro", vec![parts(json!([first])), parts(json!([second])), stop("STOP")]).await, both);
    // The first alone has one when calls are parallel.
    let one = json!([first, call("b"), call("c")]);
    assert_eq!(back("gemini-3-pro", vec![parts(one.clone()), stop("STOP")]).await, one);
}

#[tokio::test]
async fn signed_words_go_back_once_and_in_their_place() {
    for whole in [
        json!([{"text": "añ"}, {"text": "b", "thoughtSignature": "S1"}, {"text": "", "thoughtSignature": "S2"}]),
        json!([{"text": "", "thoughtSignature": "S1"}, {"text": "all"}]),
        json!([{"text": "a", "thoughtSignature": "S1"}, {"text": "a", "thoughtSignature": "S2"}, {"text": "tail"}]),
        json!([
            {"text": "hm", "thought": true, "thoughtSignature": "S0"},
            {"text": "one ", "thoughtSignature": "S1"},
            {"functionCall": {"id": "x", "name": "f", "args": {}}, "thoughtSignature": "S2"},
            {"text": "two", "thoughtSignature": "S3"},
            {"functionCall": {"id": "y", "name": "f", "args": {}}},
            {"text": "", "thoughtSignature": "S4"},
        ]),
        json!([
            {"text": "run"},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "S1"},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"text": "done"},
        ]),
        json!([{"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "S1"}]),
    ] {
        // All in one event, and each in one of its own.
        let each = whole.as_array().unwrap().iter().map(|it| parts(json!([it])));
        assert_eq!(back("gemini-3-pro", vec![parts(whole.clone()), stop("STOP")]).await, whole);
        assert_eq!(back("gemini-3-pro", each.chain([stop("STOP")]).collect()).await, whole);
    }
    // A part of nothing but a signature gets the content that no part may be without.
    let bare = vec![parts(json!([{"text": "a"}, {"thoughtSignature": "S"}])), stop("STOP")];
    assert_eq!(back("m", bare).await, json!([{"text": "a"}, {"thoughtSignature": "S", "text": ""}]));
}

/// The parts that are sent for an answer of these words and kept parts.
async fn replay(provider: &str, text: &str, payloads: Vec<Value>) -> Value {
    let mut said = assistant(text, vec![]);
    said.parts.extend(
        payloads.into_iter().map(|payload| Part::ProviderData(ProviderData { api_format: "gemini".into(), payload })),
    );
    let server = ModelServer::with(|_| stream([stop("STOP")]));
    let mut config = config(&server);
    config.name = provider.into();
    send(&client(config), &request(vec![user("x"), said])).await;
    contents(&server)[1]["parts"].clone()
}

#[tokio::test]
async fn kept_parts_fit_what_the_tape_says_now() {
    let kept =
        |after: usize, item: Value| json!({"provider": "google", "after_chars": after, "after_calls": 0, "item": item});
    let signed = json!({"text": "one", "thoughtSignature": "S"});
    // Words that were changed since count; the signature stays, and nothing is said twice.
    let expected = json!([{"text": "", "thoughtSignature": "S"}, {"text": "another"}]);
    assert_eq!(replay("google", "another", vec![kept(0, signed.clone())]).await, expected);
    let expected = json!([{"text": "a"}, {"text": "", "thoughtSignature": "S"}]);
    assert_eq!(replay("google", "a", vec![kept(9, signed.clone())]).await, expected);
    // Another provider's parts stay where they are.
    assert_eq!(replay("other", "one", vec![kept(0, signed.clone())]).await, json!([{"text": "one"}]));
    // The reference keeps the provider's object alone.
    let more = json!({"text": " two", "thoughtSignature": "S2"});
    let expected = json!([signed.clone(), more.clone(), {"text": " three"}]);
    assert_eq!(replay("google", "one two three", vec![signed, json!("no part"), json!({}), more]).await, expected);
}

#[tokio::test]
async fn calls_of_other_models_get_the_signature_for_that_since_gemini_3() {
    let calls = || assistant("", vec![call("toolu_1", "f", "{}"), call("toolu_2", "f", "{}")]);
    for (model, expected) in [
        ("gemini-3-pro-preview", json!("skip_thought_signature_validator")),
        ("gemini-flash-latest", json!("skip_thought_signature_validator")),
        ("gemini-2.5-pro", Value::Null),
        ("gemma-3", Value::Null),
    ] {
        let server = ModelServer::with(|_| stream([stop("STOP")]));
        let mut it = request(vec![user("x"), calls()]);
        it.model = model.into();
        send(&client(config(&server)), &it).await;
        let parts = &contents(&server)[1]["parts"];
        assert_eq!(
            (&parts[0]["thoughtSignature"], &parts[1]["thoughtSignature"]),
            (&expected, &Value::Null),
            "{model}"
        );
    }
}
