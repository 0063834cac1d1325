use super::*;
use std::borrow::Cow;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource},
    model::{OutputFormat, ProviderTool, ToolChoice},
    tool::{Exposure, ToolSpec},
};
use serde_json::Map;

fn foreign_call(id: &str) -> ToolCallRequest {
    ToolCallRequest {
        id: id.into(),
        name: "fs_read".into(),
        arguments: "{\"path\": \"a\"}".into(),
        metadata: Map::new(),
    }
}

fn assistant(text: &str, ids: &[&str]) -> Message {
    let mut message = Message::text(Role::Assistant, text);
    message.tool_calls = ids.iter().map(|it| foreign_call(it)).collect();
    message
}

fn result(id: &str, text: &str) -> Message {
    Message::tool_result(foreign_call(id), &json!(text))
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn media(kind: MediaKind, media_type: &str, source: MediaSource) -> Part {
    Part::Media(Media { kind, media_type: media_type.into(), source })
}

/// The error for a request that is not sent.
async fn refusal(request: &ModelRequest) -> String {
    let mut config = ProviderConfig::new("openai", ProviderKind::OpenAi);
    config.api_key = Some("sk-12345678".into());
    match client(config).stream(request).await.err() {
        Some(ModelError::Unsupported(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_have_the_plain_fields_and_the_system_prompt_first() {
    let server = ModelServer::with(|_| Reply::raw_sse([sse([completed(json!([]))])]));
    let mut it = hello();
    it.system = Some("be kind".into());
    let (_, err) = send(&client(responses_config(&server)), &it).await;
    assert!(err.is_none(), "{err:?}");
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-secret-0123456789"));
    let expected = json!({"model": "m", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
    "input": [
        {"type": "message", "role": "system", "content": "be kind"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    ]});
    assert_eq!(request.body, expected);
}

#[tokio::test]
async fn options_are_written_as_this_wire_has_them() {
    let mut it = hello();
    it.tools = vec![Arc::new(ToolSpec {
        name: Cow::Borrowed("fs.read"),
        description: "Reads.".into(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({"type": "object", "properties": {}}),
        output: None,
    })];
    it.options = ModelOptions {
        max_tokens: Some(5),
        reasoning_effort: Some("low".into()),
        temperature: Some(0.5),
        top_p: Some(0.9),
        tool_choice: Some(ToolChoice::Tool("fs_read".into())),
        parallel_tool_calls: Some(false),
        output: Some(OutputFormat { name: "out".into(), schema: json!({"type": "object"}) }),
        provider_tools: vec![
            ProviderTool::WebSearch,
            ProviderTool::CodeExecution,
            ProviderTool::ImageGeneration,
            ProviderTool::Native { api_format: "responses".into(), definition: json!({"type": "file_search"}) },
        ],
        extra_body: json!({"text": {"verbosity": "low"}, "top_p": 0.1, "safety_identifier": "x"})
            .as_object()
            .unwrap()
            .clone(),
        ..ModelOptions::default()
    };
    let sent = body(|_| (), &it).await;
    let schema = json!({"type": "json_schema", "name": "out", "schema": {"type": "object"}, "strict": false});
    let expected = json!({
        "model": "m", "stream": true, "store": false,
        "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
        "max_output_tokens": 5, "reasoning": {"effort": "low", "summary": "auto"}, "temperature": 0.5, "top_p": 0.1,
        "tool_choice": {"type": "function", "name": "fs_read"}, "parallel_tool_calls": false,
        "text": {"format": schema, "verbosity": "low"}, "safety_identifier": "x",
        "tools": [
            {"type": "function", "name": "fs_read", "description": "Reads.",
                "parameters": {"type": "object", "properties": {}}, "strict": false},
            {"type": "web_search"},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "image_generation"},
            {"type": "file_search"},
        ],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
    });
    assert_eq!(sent, expected);
    assert_eq!(sent.as_object().unwrap().keys().next_back().unwrap(), "input");
    for (choice, expected) in
        [(ToolChoice::Auto, "auto"), (ToolChoice::None, "none"), (ToolChoice::Required, "required")]
    {
        it.options.tool_choice = Some(choice);
        assert_eq!(body(|_| (), &it).await["tool_choice"], expected);
    }
    it.options.reasoning_effort = Some("none".into());
    assert_eq!(body(|_| (), &it).await["reasoning"], json!({"effort": "none"}));
}

#[tokio::test]
async fn what_this_wire_does_not_know_is_refused_before_a_request() {
    let with = |edit: fn(&mut ModelOptions)| {
        let mut it = hello();
        edit(&mut it.options);
        it
    };
    for (request, what) in [
        (with(|it| it.stop = vec!["END".into()]), "stop"),
        (with(|it| it.seed = Some(1)), "seed"),
        (with(|it| it.top_k = Some(1)), "top_k"),
        (with(|it| it.presence_penalty = Some(0.0)), "presence_penalty"),
        (with(|it| it.frequency_penalty = Some(0.0)), "frequency_penalty"),
        (with(|it| it.provider_tools = vec![ProviderTool::WebFetch]), "the provider's web fetch"),
    ] {
        let expected = format!("api_format 'responses' knows no {what}; leave it out, or use another model");
        assert_eq!(refusal(&request).await, expected);
    }
    let native = ProviderTool::Native { api_format: "messages".into(), definition: json!({}) };
    let mut it = hello();
    it.options.provider_tools = vec![native];
    assert!(refusal(&it).await.contains("'messages' cannot be offered by 'responses'"));
    assert!(refusal(&with(|it| it.temperature = Some(f64::NAN))).await.contains("temperature must be a number"));
    for (part, expected) in [
        (media(MediaKind::Audio, "audio/wav", MediaSource::Data("A".into())), "take pictures, not audio"),
        (media(MediaKind::Video, "video/mp4", MediaSource::Url("https://x/y".into())), "take pictures, not video"),
        (media(MediaKind::Image, "image/png", MediaSource::Url("sha256:00".into())), "not as 'sha256:00'"),
    ] {
        let text = refusal(&request(vec![Message::parts(Role::User, vec![part])])).await;
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn thinking_is_asked_for_where_the_model_can_have_it() {
    for (model, effort, is_asked) in [
        ("gpt-5.1", None, true),
        ("o3", None, true),
        ("anthropic/claude-sonnet-4.5", None, true),
        ("gpt-4.1", None, false),
        ("openai/GPT-4o-mini", None, false),
        ("gpt-5-chat-latest", None, false),
        ("chatgpt-4o-latest", None, false),
        ("gpt-4-of-mine", Some("low"), true),
    ] {
        let mut it = hello();
        it.model = model.into();
        it.options.reasoning_effort = effort.map(str::to_owned);
        let expected = if is_asked { json!(["reasoning.encrypted_content"]) } else { Value::Null };
        assert_eq!(body(|_| (), &it).await["include"], expected, "{model}");
    }
}

#[tokio::test]
async fn pictures_go_into_messages_and_results_and_texts_stay() {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "text", "text": "a shot"}, {"type": "image", "media_type": "image/png", "data": "AAAA"}]});
    let look = Message::parts(
        Role::User,
        vec![
            Part::Text("look".into()),
            media(MediaKind::Image, "", MediaSource::Data("BBBB".into())),
            media(MediaKind::Image, "", MediaSource::Url("https://x/y.png".into())),
        ],
    );
    let items = input(
        |_| (),
        vec![look, assistant("", &["c1", "c2"]), Message::tool_result(foreign_call("c1"), &shot), result("c2", "two")],
    )
    .await;
    let expected = json!([
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,BBBB"},
            {"type": "input_image", "image_url": "https://x/y.png"},
        ]},
        {"type": "function_call", "call_id": "c1", "name": "fs_read", "arguments": "{\"path\": \"a\"}"},
        {"type": "function_call", "call_id": "c2", "name": "fs_read", "arguments": "{\"path\": \"a\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": [
            {"type": "input_text", "text": "a shot"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        ]},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
    ]);
    assert_eq!(json!(items), expected);
}

#[tokio::test]
async fn r180_r181_r182_broken_histories_are_mended() {
    let mut broken = assistant("", &["c1", "c2"]);
    broken.tool_calls[0].arguments = "{\"path\":".into();
    let messages = vec![
        result("z", "orphan"),
        user("a"),
        Message::parts(Role::Assistant, vec![Part::Reasoning("hm".into()), Part::Text(String::new())]),
        broken,
        result("c1", "one"),
        user(""),
        user("go on"),
    ];
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "fs_read", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "fs_read", "arguments": "{\"path\": \"a\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "interrupted: the call ended without a result"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
    ]);
    assert_eq!(json!(input(|_| (), messages).await), expected);
}

#[tokio::test]
async fn ids_of_other_providers_calls_are_made_to_fit() {
    let long = "x".repeat(80);
    let ids = ["functions.fs_read:0", &long, "toolu_01"];
    let mut messages = vec![assistant("", &ids)];
    messages.extend(ids.iter().map(|it| result(it, it)));
    let items = input(|_| (), messages).await;
    let sent: Vec<_> = items.iter().map(|it| it["call_id"].as_str().unwrap()).collect();
    assert!(
        sent.iter().all(|it| it.len() <= 64 && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')),
        "{sent:?}"
    );
    assert_eq!(sent[..3], sent[3..]);
    assert_eq!(sent[2], "toolu_01");
    assert_ne!(sent[0], sent[1]);
}

#[tokio::test]
async fn the_next_steps_body_extends_this_ones() {
    let server = ModelServer::with(|_| Reply::raw_sse([sse([completed(json!([]))])]));
    for kind in [ProviderKind::OpenAi, ProviderKind::OpenRouter] {
        let mut config = responses_config(&server);
        config.kind = kind;
        let client = client(config);
        let mut messages = vec![user("a"), assistant("b", &["c1"]), result("c1", "one")];
        send(&client, &request(messages.clone())).await;
        messages.extend([assistant("done", &[]), user("more")]);
        send(&client, &request(messages)).await;
        let requests = server.requests();
        let [.., first, second] = requests.as_slice() else { panic!("{requests:?}") };
        assert!(second.raw.starts_with(first.raw.strip_suffix(b"]}").unwrap()), "{kind}");
    }
}

#[test]
fn the_wire_is_the_kinds_usual_one_unless_set_or_elsewhere() {
    let wire = |kind: ProviderKind, base: Option<&str>, set: Option<Wire>| {
        let mut config = ProviderConfig::new("x", kind);
        config.api_base = base.map(str::to_owned);
        config.api_format = set;
        config.wire()
    };
    assert_eq!(wire(ProviderKind::OpenAi, None, None), Ok(Wire::Responses));
    assert_eq!(wire(ProviderKind::OpenRouter, None, None), Ok(Wire::Responses));
    assert_eq!(wire(ProviderKind::Ollama, None, None), Ok(Wire::Chat));
    assert_eq!(wire(ProviderKind::OpenAi, Some("https://api.openai.com/v1/"), None), Ok(Wire::Responses));
    assert_eq!(wire(ProviderKind::OpenAi, Some("http://127.0.0.1:8000/v1"), None), Ok(Wire::Chat));
    let set = wire(ProviderKind::OpenAi, Some("http://127.0.0.1:8000/v1"), Some(Wire::Responses));
    assert_eq!(set, Ok(Wire::Responses));
    let err = wire(ProviderKind::Mistral, None, Some(Wire::Responses)).unwrap_err();
    assert!(err.contains("does not speak api_format 'responses'"), "{err}");
}
