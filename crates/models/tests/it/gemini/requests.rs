use super::*;
use std::borrow::Cow;

use bub_kernel::{
    model::{OutputFormat, ProviderTool, ToolChoice},
    tool::{Exposure, ToolSpec},
};

fn spec(name: &'static str) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: Cow::Borrowed(name),
        description: "Reads.".into(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({"type": "object", "properties": {}}),
        output: None,
    })
}

/// The body that the server gets.
async fn body(request: &ModelRequest) -> Value {
    let server = ModelServer::with(|_| stream([stop("STOP")]));
    let (_, err) = send(&client(config(&server)), request).await;
    assert!(err.is_none(), "{err:?}");
    server.requests()[0].body.clone()
}

async fn contents_of(messages: Vec<Message>) -> Value {
    body(&request(messages)).await["contents"].clone()
}

async fn refusal(edit: impl FnOnce(&mut ModelRequest)) -> String {
    let mut it = hello();
    edit(&mut it);
    let server = ModelServer::start();
    match client(config(&server)).stream(&it).await {
        Err(ModelError::Unsupported(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("not refused: {:?}", it.options),
    }
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_does_not_come_first() {
    let sent = body(&request(vec![Message::text(Role::Assistant, "a"), Message::text(Role::User, "b")])).await;
    let roles: Vec<_> = sent["contents"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "model", "user"]);
}

#[tokio::test]
async fn requests_have_the_key_the_path_and_the_plain_fields() {
    let server = ModelServer::with(|_| stream([stop("STOP")]));
    let mut it = hello();
    it.model = "gemini-2.5-flash".into();
    it.system = Some("be kind".into());
    send(&client(config(&server)), &it).await;
    let request = &server.requests()[0];
    let path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse";
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", path));
    assert_eq!(request.header("x-goog-api-key"), Some("sk-secret-0123456789"));
    assert_eq!(request.header("authorization"), None);
    let expected = json!({"systemInstruction": {"parts": [{"text": "be kind"}]},
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}]});
    assert_eq!(request.body, expected);
    // A base of one's own, and a model that is named as the API names it.
    let mut config = config(&server);
    config.api_base = Some(format!("http://{}/proxy/?x=1", server.address()));
    it.model = "tunedModels/a b".into();
    send(&client(config), &it).await;
    let path = "/proxy/tunedModels/a%20b:streamGenerateContent?x=1&alt=sse";
    assert_eq!(server.requests()[1].path, path);
}

#[tokio::test]
async fn options_are_the_generation_config() {
    let mut it = hello();
    it.model = "gemini-3-pro-preview".into();
    it.options = ModelOptions {
        max_tokens: Some(5),
        reasoning_effort: Some("low".into()),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        presence_penalty: Some(0.1),
        frequency_penalty: Some(0.2),
        stop: vec!["END".into()],
        seed: Some(7),
        output: Some(OutputFormat { name: "point".into(), schema: json!({"type": "object"}) }),
        ..ModelOptions::default()
    };
    let expected = json!({
        "maxOutputTokens": 5, "temperature": 0.5, "topP": 0.9, "topK": 40, "presencePenalty": 0.1,
        "frequencyPenalty": 0.2, "stopSequences": ["END"], "seed": 7, "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": true},
    });
    let sent = body(&it).await;
    assert_eq!(sent["generationConfig"], expected);
    assert_eq!(sent.as_object().unwrap().keys().next_back().unwrap(), "contents");
}

#[tokio::test]
async fn effort_is_a_level_or_a_number_of_tokens() {
    for (model, effort, expected) in [
        ("gemini-3-flash-preview", "minimal", json!({"thinkingLevel": "MINIMAL", "includeThoughts": true})),
        ("gemini-flash-latest", "HIGH", json!({"thinkingLevel": "HIGH", "includeThoughts": true})),
        ("gemini-2.5-flash", "none", json!({"thinkingBudget": 0})),
        ("gemini-2.5-flash", "low", json!({"thinkingBudget": 1024, "includeThoughts": true})),
        ("models/gemini-2.5-pro", "medium", json!({"thinkingBudget": 8192, "includeThoughts": true})),
        ("gemini-2.5-pro", "high", json!({"thinkingBudget": 24_576, "includeThoughts": true})),
    ] {
        let mut it = hello();
        it.model = model.into();
        it.options.reasoning_effort = Some(effort.into());
        assert_eq!(body(&it).await["generationConfig"], json!({"thinkingConfig": expected}), "{model} {effort}");
    }
    for (model, effort) in
        [("gemini-3-pro", "none"), ("gemini-3-pro", "xhigh"), ("gemini-2.5-pro", "max"), ("m", "deep")]
    {
        let text = refusal(|it| {
            it.model = model.into();
            it.options.reasoning_effort = Some(effort.into());
        })
        .await;
        assert!(text.contains(effort) && text.contains("gemini"), "{text}");
    }
}

#[tokio::test]
async fn what_the_api_cannot_do_is_refused() {
    assert!(refusal(|it| it.options.parallel_tool_calls = Some(true)).await.contains("parallel_tool_calls"));
    assert!(refusal(|it| it.options.temperature = Some(f64::NAN)).await.contains("temperature"));
    assert!(refusal(|it| it.options.seed = Some(1 << 31)).await.contains("2147483647"));
    let own = |tool: ProviderTool| move |it: &mut ModelRequest| it.options.provider_tools = vec![tool];
    assert!(refusal(own(ProviderTool::ImageGeneration)).await.contains("image generation"));
    let foreign = ProviderTool::Native { api_format: "chat".into(), definition: json!({}) };
    assert!(refusal(own(foreign)).await.contains("'chat'"));
}

#[tokio::test]
async fn tools_and_their_choice_are_written() {
    let mut it = hello();
    it.tools = vec![spec("fs.read"), spec("tape.info")];
    let declaration = |name: &str| json!({"name": name, "description": "Reads.", "parametersJsonSchema": {"type": "object", "properties": {}}});
    let functions = json!({"functionDeclarations": [declaration("fs_read"), declaration("tape_info")]});
    let sent = body(&it).await;
    assert_eq!((&sent["tools"], &sent["toolConfig"]), (&json!([functions]), &Value::Null));
    for (choice, expected) in [
        (ToolChoice::Auto, json!({"mode": "AUTO"})),
        (ToolChoice::None, json!({"mode": "NONE"})),
        (ToolChoice::Required, json!({"mode": "ANY"})),
        (ToolChoice::Tool("fs_read".into()), json!({"mode": "ANY", "allowedFunctionNames": ["fs_read"]})),
    ] {
        it.options.tool_choice = Some(choice);
        assert_eq!(body(&it).await["toolConfig"], json!({"functionCallingConfig": expected}));
    }
    it.options.tool_choice = None;
    let native = json!({"googleMaps": {}});
    it.options.provider_tools = vec![
        ProviderTool::WebSearch,
        ProviderTool::WebFetch,
        ProviderTool::CodeExecution,
        ProviderTool::Native { api_format: "gemini".into(), definition: native.clone() },
    ];
    let own = json!([functions, {"googleSearch": {}}, {"urlContext": {}}, {"codeExecution": {}}, native]);
    let sent = body(&it).await;
    assert_eq!((&sent["tools"], &sent["toolConfig"]), (&own, &Value::Null));
    it.model = "gemini-3-flash".into();
    assert_eq!(body(&it).await["toolConfig"], json!({"includeServerSideToolInvocations": true}));
}

#[tokio::test]
async fn extra_body_is_merged_last_and_deeply() {
    let server = ModelServer::with(|_| stream([stop("STOP")]));
    let mut config = config(&server);
    config.extra_body = json!({"safetySettings": [], "labels": {"a": 1}}).as_object().unwrap().clone();
    let mut it = hello();
    it.options.max_tokens = Some(5);
    let extra = json!({"generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 1}}, "labels": {"b": 2}});
    it.options.extra_body = extra.as_object().unwrap().clone();
    send(&client(config), &it).await;
    let sent = server.requests()[0].body.clone();
    assert_eq!(sent["generationConfig"], json!({"maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 1}}));
    assert_eq!((&sent["labels"], &sent["safetySettings"]), (&json!({"a": 1, "b": 2}), &json!([])));
    assert_eq!(sent["contents"][0]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn neighbours_of_one_role_are_one_content_and_system_stands_apart() {
    let mut it = request(vec![
        user("a"),
        Message::text(Role::System, "and brief"),
        user("b"),
        assistant("c", vec![]),
        assistant("d", vec![call("x1", "f", r#"{"a": 1}"#), call("call_1_1", "f", "{}")]),
        Message::tool_result(call("call_1_1", "f", "{}"), &json!("two")),
        Message::tool_result(call("x1", "f", "{}"), &json!("one")),
        user("e"),
    ]);
    it.system = Some("be kind".into());
    let sent = body(&it).await;
    assert_eq!(sent["systemInstruction"], json!({"parts": [{"text": "be kind"}, {"text": "and brief"}]}));
    let expected = json!([
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [
            {"text": "c"},
            {"text": "d"},
            {"functionCall": {"id": "x1", "name": "f", "args": {"a": 1}}},
            {"functionCall": {"name": "f", "args": {}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "x1", "name": "f", "response": {"output": "one"}}},
            {"functionResponse": {"name": "f", "response": {"output": "two"}}},
            {"text": "e"},
        ]},
    ]);
    assert_eq!(sent["contents"], expected);
}

#[tokio::test]
async fn r180_broken_arguments_are_sent_as_none() {
    for (came, expected) in [
        (r#"{"path": "x", "n": 1.0}"#, json!({"path": "x", "n": 1.0})),
        (r#"{"{"path":"x"}"#, json!({})),
        (r#"{"path":"x""#, json!({})),
        ("[1]", json!({})),
        ("null", json!({})),
        (r#"{"path":"a"}{"path":"b"}"#, json!({})),
        ("", json!({})),
    ] {
        let sent = contents_of(vec![user("x"), assistant("", vec![call("c", "f", came)])]).await;
        assert_eq!(sent[1]["parts"][0]["functionCall"]["args"], expected, "{came}");
    }
}

#[tokio::test]
async fn r181_failed_and_missing_results_are_errors() {
    let mut failed = Message::tool_result(call("a", "f", "{}"), &json!("no such file"));
    failed.is_error = true;
    let calls = vec![call("a", "f", "{}"), call("b", "f", "{}")];
    let sent = contents_of(vec![user("x"), assistant("", calls), failed, user("go on")]).await;
    let interrupted = "interrupted: the call ended without a result";
    let expected = json!([
        {"functionResponse": {"id": "a", "name": "f", "response": {"error": "no such file"}}},
        {"functionResponse": {"id": "b", "name": "f", "response": {"error": interrupted}}},
        {"text": "go on"},
    ]);
    assert_eq!(sent[2]["parts"], expected);
}

#[tokio::test]
async fn media_are_sent_inline_or_by_address() {
    let data = || MediaSource::Data("AAAA".into());
    let at = |url: &str| MediaSource::Url(url.into());
    let message = Message::parts(
        Role::User,
        vec![
            Part::Text("look".into()),
            media(MediaKind::Image, "image/webp", data()),
            media(MediaKind::Image, "", data()),
            media(MediaKind::Audio, "audio/x-wav", data()),
            media(MediaKind::Audio, "audio/x-aiff", data()),
            media(MediaKind::Video, "video/mp4", at("gs://b/v.mp4")),
            media(MediaKind::Video, "", at("https://youtu.be/x")),
            media(MediaKind::Image, "", at("data:image/gif;base64,R0lG")),
        ],
    );
    let inline = |mime: &str, data: &str| json!({"inlineData": {"mimeType": mime, "data": data}});
    let expected = json!([
        {"text": "look"},
        inline("image/webp", "AAAA"),
        inline("image/png", "AAAA"),
        inline("audio/wav", "AAAA"),
        inline("audio/aiff", "AAAA"),
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/v.mp4"}},
        {"fileData": {"fileUri": "https://youtu.be/x"}},
        inline("image/gif", "R0lG"),
    ]);
    assert_eq!(contents_of(vec![message]).await[0]["parts"], expected);
    let blob = Message::parts(Role::User, vec![media(MediaKind::Image, "image/png", at("sha256:00"))]);
    assert!(refusal(|it| it.messages = vec![blob]).await.contains("sha256:00"));
}

#[tokio::test]
async fn images_of_results_are_in_the_result_or_right_after() {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "text", "text": "shot"},
        {"type": "image", "media_type": "image/png", "data": "AAAA"},
        {"type": "image", "media_type": "image/png", "url": "https://x/y.png"}]});
    let messages = vec![
        user("a"),
        assistant("", vec![call("x", "f", "{}"), call("y", "g", "{}")]),
        Message::tool_result(call("x", "f", "{}"), &shot),
        Message::tool_result(call("y", "g", "{}"), &json!("two")),
    ];
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
    let label = json!({"text": "image from the result of f:"});
    let link = json!({"fileData": {"mimeType": "image/png", "fileUri": "https://x/y.png"}});
    let two = json!({"functionResponse": {"id": "y", "name": "g", "response": {"output": "two"}}});
    let mut it = request(messages);
    it.model = "gemini-3-flash".into();
    let with = json!({"functionResponse": {"id": "x", "name": "f", "response": {"output": "shot"}, "parts": [image]}});
    assert_eq!(body(&it).await["contents"][2]["parts"], json!([with, two, label, link]));
    // Models before that refuse a result with media.
    it.model = "gemini-2.5-flash".into();
    let without = json!({"functionResponse": {"id": "x", "name": "f", "response": {"output": "shot"}}});
    assert_eq!(body(&it).await["contents"][2]["parts"], json!([without, two, label, image, label, link]));
}

#[tokio::test]
async fn the_next_steps_body_extends_this_ones() {
    let server = ModelServer::with(|_| stream([stop("STOP")]));
    let client = client(config(&server));
    let result = |id: &str| Message::tool_result(call(id, "f", "{}"), &json!("one"));
    let mut messages = vec![user("a"), assistant("b", vec![call("c1", "f", r#"{"b": 1, "a": [2]}"#)]), result("c1")];
    for more in [vec![assistant("", vec![call("c2", "f", "{}")]), result("c2")], vec![user("steer")], vec![]] {
        send(&client, &request(messages.clone())).await;
        messages.extend(more);
    }
    let requests = server.requests();
    for pair in requests.windows(2) {
        let first = pair[0].raw.strip_suffix(b"]}]}").unwrap();
        assert!(pair[1].raw.starts_with(first), "{}", pair[1].body);
    }
}

#[tokio::test]
async fn models_are_listed_page_by_page() {
    let server = ModelServer::with(|request| {
        Reply::json(&if request.path.contains("pageToken") {
            json!({"models": [{"name": "models/b", "displayName": "B", "inputTokenLimit": 5}]})
        } else {
            json!({"models": [{"name": "models/a"}], "nextPageToken": "t"})
        })
    });
    let models = Provider::new(config(&server)).list().await.unwrap();
    let found: Vec<_> = models.iter().map(|it| (it.id.as_str(), it.context_tokens)).collect();
    assert_eq!(found, [("a", None), ("b", Some(5))]);
    let paths: Vec<_> = server.requests().iter().map(|it| it.path.clone()).collect();
    assert_eq!(paths, ["/v1beta/models?pageSize=1000", "/v1beta/models?pageSize=1000&pageToken=t"]);
}
