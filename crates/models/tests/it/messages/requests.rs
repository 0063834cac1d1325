use super::*;
use std::borrow::Cow;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, ToolCallRequest},
    model::{OutputFormat, ProviderTool, ToolChoice},
    tool::{Exposure, ToolSpec},
};
use bub_models::Wire;
use serde_json::Map;

fn call(id: &str) -> ToolCallRequest {
    let arguments = "{\"path\": \"a\"}".into();
    ToolCallRequest { id: id.into(), name: "fs_read".into(), arguments, metadata: Map::new() }
}

fn assistant(text: &str, ids: &[&str]) -> Message {
    let mut message = Message::text(Role::Assistant, text);
    message.tool_calls = ids.iter().map(|it| call(it)).collect();
    message
}

fn result(id: &str, text: &str) -> Message {
    Message::tool_result(call(id), &json!(text))
}

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn picture(media_type: &str, source: MediaSource) -> Part {
    Part::Media(Media { kind: MediaKind::Image, media_type: media_type.into(), source })
}

fn data(text: &str) -> MediaSource {
    MediaSource::Data(text.into())
}

/// The body that the server gets.
async fn body(request: &ModelRequest) -> Value {
    let server = ModelServer::with(|_| message([super::text(0, &["x"])], "end_turn"));
    let (_, err) = send(&client(anthropic(&server)), request).await;
    assert!(err.is_none(), "{err:?}");
    server.assert_no_violations();
    server.requests()[0].body.clone()
}

/// Why a request is not sent.
async fn refused(request: &ModelRequest) -> String {
    let server = ModelServer::start();
    let err = client(anthropic(&server)).stream(request).await.err().unwrap();
    assert!(matches!(err, ModelError::Unsupported(_)) && server.requests().is_empty(), "{err:?}");
    err.to_string()
}

/// The messages, a line each.
async fn sketch(messages: Vec<Message>) -> Vec<String> {
    let block = |it: &Value| match it["type"].as_str().unwrap() {
        "text" => it["text"].to_string(),
        "tool_use" => format!("+{}", it["id"].as_str().unwrap()),
        "tool_result" => {
            let error = if it["is_error"] == true { "!" } else { "" };
            format!("={}{error} {}", it["tool_use_id"].as_str().unwrap(), it["content"])
        }
        _ => it.to_string(),
    };
    let line = |it: &Value| {
        let blocks: Vec<_> = it["content"].as_array().unwrap().iter().map(block).collect();
        format!("{}: {}", it["role"].as_str().unwrap(), blocks.join(" "))
    };
    body(&request(messages)).await["messages"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test]
async fn requests_have_headers_and_the_plain_fields() {
    let server = ModelServer::with(|_| message([super::text(0, &["x"])], "end_turn"));
    let mut it = request(vec![user("hello"), Message::text(Role::System, "and brief")]);
    it.system = Some("be kind".into());
    it.tools = vec![Arc::new(ToolSpec {
        name: Cow::Borrowed("fs.read"),
        description: "Reads.".into(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({"type": "object", "properties": {}}),
        output: None,
    })];
    send(&client(anthropic(&server)), &it).await;
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!((request.header("x-api-key"), request.header("authorization")), (Some("sk-secret-0123456789"), None));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    let expected = json!({
        "model": "m",
        "stream": true,
        "max_tokens": 16000,
        "cache_control": {"type": "ephemeral"},
        "system": "be kind\n\nand brief",
        "tools": [{"name": "fs_read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    });
    assert_eq!(request.body, expected);
    assert_eq!(request.body.as_object().unwrap().keys().next_back().unwrap(), "messages");
}

#[tokio::test]
async fn services_have_their_own_places() {
    let server = ModelServer::with(|_| message([super::text(0, &["x"])], "end_turn"));
    let root = format!("http://{}", server.address());
    for (kind, base, path, key) in [
        (ProviderKind::Anthropic, root.clone(), "/v1/messages", "x-api-key"),
        (ProviderKind::Anthropic, format!("{root}/v1/"), "/v1/messages", "x-api-key"),
        (ProviderKind::Anthropic, format!("{root}/proxy/v1/messages"), "/proxy/v1/messages", "x-api-key"),
        (ProviderKind::OpenRouter, format!("{root}/api/v1"), "/api/v1/messages", "authorization"),
        (ProviderKind::DeepSeek, root.clone(), "/anthropic/v1/messages", "authorization"),
        (ProviderKind::MiniMax, root.clone(), "/anthropic/v1/messages", "authorization"),
        (ProviderKind::GithubCopilot, root.clone(), "/v1/messages", "authorization"),
        (ProviderKind::Magpie, format!("{root}/v1"), "/v1/messages", "authorization"),
    ] {
        let (api_base, api_format) = (Some(base), Some(Wire::Messages));
        let (_, err) = ask(&client(ProviderConfig { kind, api_base, api_format, ..config(&server) })).await;
        assert!(err.is_none(), "{err:?}");
        let request = server.requests().pop().unwrap();
        assert_eq!(request.path, path);
        assert!(request.header(key).is_some() && request.header("anthropic-version").is_some(), "{kind}");
        // Only Anthropic is known to cache on this sign.
        assert_eq!(request.body.get("cache_control").is_some(), kind == ProviderKind::Anthropic);
    }
}

#[tokio::test]
async fn options_are_sent_or_refused() {
    let mut it = hello();
    it.options = ModelOptions {
        max_tokens: Some(5),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(3),
        stop: vec!["END".into()],
        ..ModelOptions::default()
    };
    let sent = body(&it).await;
    assert_eq!((&sent["max_tokens"], &sent["top_k"], &sent["stop_sequences"]), (&json!(5), &json!(3), &json!(["END"])));
    assert_eq!((&sent["temperature"], &sent["top_p"]), (&json!(0.5), &json!(0.9)));
    let set: [fn(&mut ModelOptions); 4] = [
        |it| it.seed = Some(1),
        |it| it.presence_penalty = Some(0.1),
        |it| it.frequency_penalty = Some(0.1),
        |it| it.temperature = Some(f64::NAN),
    ];
    for (set, expected) in set.into_iter().zip(["seed", "presence_penalty", "frequency_penalty", "temperature"]) {
        let mut it = hello();
        set(&mut it.options);
        let text = refused(&it).await;
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn effort_and_output_are_fields_of_the_api() {
    let mut it = hello();
    it.options.reasoning_effort = Some("high".into());
    let address = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let schema =
        json!({"type": "object", "properties": {"at": {"type": "array", "items": address}}, "required": ["at"]});
    it.options.output = Some(OutputFormat { name: "places".into(), schema });
    let sent = body(&it).await;
    assert_eq!(sent["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    let address = json!({"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": false});
    let schema = json!({"type": "object", "properties": {"at": {"type": "array", "items": address}}, "required": ["at"], "additionalProperties": false});
    assert_eq!(sent["output_config"], json!({"effort": "high", "format": {"type": "json_schema", "schema": schema}}));
    let mut it = hello();
    it.options.reasoning_effort = Some("none".into());
    let sent = body(&it).await;
    assert_eq!((&sent["thinking"], sent.get("output_config")), (&json!({"type": "disabled"}), None));
}

#[tokio::test]
async fn tool_choices_are_the_apis() {
    let with = |choice: Option<ToolChoice>, parallel: Option<bool>, has_tools: bool| async move {
        let mut it = hello();
        (it.options.tool_choice, it.options.parallel_tool_calls) = (choice, parallel);
        if has_tools {
            it.options.provider_tools = vec![ProviderTool::WebSearch];
        }
        body(&it).await.get("tool_choice").cloned().unwrap_or_default()
    };
    let one = |name: &str| Some(ToolChoice::Tool(name.into()));
    for (choice, parallel, expected) in [
        (None, None, Value::Null),
        (Some(ToolChoice::Auto), None, json!({"type": "auto"})),
        (Some(ToolChoice::None), Some(false), json!({"type": "none"})),
        (Some(ToolChoice::Required), None, json!({"type": "any"})),
        (one("fs_read"), Some(true), json!({"type": "tool", "name": "fs_read", "disable_parallel_tool_use": false})),
        (None, Some(false), json!({"type": "auto", "disable_parallel_tool_use": true})),
    ] {
        assert_eq!(with(choice, parallel, true).await, expected);
    }
    assert_eq!(with(None, Some(false), false).await, Value::Null);
    assert_eq!(with(Some(ToolChoice::None), None, false).await, Value::Null);
}

#[tokio::test]
async fn tools_of_the_provider_are_offered() {
    let mut it = hello();
    let native = |api_format: &str| ProviderTool::Native {
        api_format: api_format.into(),
        definition: json!({"type": "memory_20250818", "name": "memory"}),
    };
    it.options.provider_tools =
        vec![ProviderTool::WebSearch, ProviderTool::WebFetch, ProviderTool::CodeExecution, native("messages")];
    let expected = json!([
        {"type": "web_search_20260209", "name": "web_search"},
        {"type": "web_fetch_20260209", "name": "web_fetch"},
        {"type": "code_execution_20260521", "name": "code_execution"},
        {"type": "memory_20250818", "name": "memory"},
    ]);
    assert_eq!(body(&it).await["tools"], expected);
    for tool in [ProviderTool::ImageGeneration, native("chat")] {
        it.options.provider_tools = vec![tool];
        assert!(refused(&it).await.contains("'messages'"));
    }
}

#[tokio::test]
async fn extra_body_is_merged_last_and_can_take_the_cache_away() {
    let mut it = hello();
    let extra = json!({"max_tokens": 9, "cache_control": {"ttl": "1h"}, "metadata": {"user_id": "u"}});
    it.options.extra_body = extra.as_object().unwrap().clone();
    let sent = body(&it).await;
    assert_eq!(sent["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
    assert_eq!((&sent["max_tokens"], &sent["metadata"]["user_id"]), (&json!(9), &json!("u")));
    it.options.extra_body = json!({"cache_control": null}).as_object().unwrap().clone();
    assert_eq!(body(&it).await.get("cache_control"), None);
}

#[tokio::test]
async fn neighbours_of_one_role_are_one_message() {
    let messages =
        vec![user("a"), user("b"), assistant("c", &[]), assistant("d", &["c1"]), result("c1", "r"), user("e")];
    assert_eq!(sketch(messages).await, [r#"user: "a" "b""#, r#"assistant: "c" "d" +c1"#, r#"user: =c1 "r" "e""#]);
    // A person comes first.
    let messages = vec![assistant("so far", &[]), user("a")];
    let expected = [r#"user: "[the conversation begins here]""#, r#"assistant: "so far""#, r#"user: "a""#];
    assert_eq!(sketch(messages).await, expected);
}

#[tokio::test]
async fn r181_calls_without_result_get_one_and_orphans_go() {
    let messages = vec![user("a"), assistant("", &["c1", "c2"]), result("c1", "one"), user("go on")];
    let interrupted = r#"=c2! "interrupted: the call ended without a result""#;
    let expected =
        ["user: \"a\"".into(), "assistant: +c1 +c2".into(), format!("user: =c1 \"one\" {interrupted} \"go on\"")];
    assert_eq!(sketch(messages).await, expected);
    // Results out of order, behind another message, or of nobody; ids that begin anew.
    let messages = vec![
        result("z", "orphan"),
        user("a"),
        assistant("t", &["c1", "c2"]),
        result("c2", "two"),
        user("steer"),
        result("c1", "one"),
        assistant("", &["c1"]),
        result("c1", "new"),
        assistant("end", &[]),
    ];
    let expected = [
        r#"user: "a""#,
        r#"assistant: "t" +c1 +c2"#,
        r#"user: =c1 "one" =c2 "two" "steer""#,
        "assistant: +c1_1",
        r#"user: =c1_1 "new""#,
        r#"assistant: "end""#,
    ];
    assert_eq!(sketch(messages).await, expected);
}

#[tokio::test]
async fn ids_and_names_of_other_providers_are_made_plain() {
    let mut said = assistant("", &["call:1|é", "call.1|x", ""]);
    said.tool_calls[1].name = "fs.read file".into();
    said.tool_calls[2].name = String::new();
    let messages = vec![user("a"), said, result("call.1|x", "two"), result("call:1|é", "one")];
    let sent = body(&request(messages)).await;
    let names: Vec<_> = sent["messages"][1]["content"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["fs_read", "fs_read_file", "unknown"]);
    let results = sent["messages"][2]["content"].as_array().unwrap();
    let results: Vec<_> = results.iter().map(|it| (&it["tool_use_id"], &it["content"])).collect();
    assert_eq!(results[0], (&json!("call_1__"), &json!("one")));
    assert_eq!(results[1], (&json!("call_1_x"), &json!("two")));
    assert_eq!(results[2].0, "call");
}

#[tokio::test]
async fn r180_input_is_an_object_whatever_the_model_wrote() {
    for (came, expected) in [
        (r#"{"b": 1.0,  "a": "\u00e9"}"#, r#"{"b":1.0,"a":"é"}"#),
        (r#"{"a": "\ud83d"}"#, "{\"a\":\"\u{fffd}\"}"),
        (r#"{"{"path":"x"}"#, "{}"),
        (r#"{"path":"x""#, "{}"),
        ("[1]", "{}"),
        ("null", "{}"),
        (r#""x""#, "{}"),
        (r#"{"path":"a"}{"path":"b"}"#, "{}"),
        ("", "{}"),
    ] {
        let mut said = assistant("", &["c"]);
        said.tool_calls[0].arguments = came.into();
        let sent = body(&request(vec![user("x"), said, result("c", "r")])).await;
        assert_eq!(sent["messages"][1]["content"][0]["input"].to_string(), expected);
    }
}

#[tokio::test]
async fn r182_blank_texts_are_left_out() {
    let thought = Message::parts(Role::Assistant, vec![Part::Reasoning("hm".into()), Part::Text(String::new())]);
    let messages = vec![
        Message::text(Role::System, ""),
        user("a"),
        assistant("", &[]),
        thought,
        user(""),
        user(" \n"),
        assistant("\n\n", &["c"]),
        result("c", " "),
        user("b"),
        assistant("an end \n", &[]),
    ];
    let expected = [r#"user: "a""#, "assistant: +c", r#"user: =c null "b""#, r#"assistant: "an end""#];
    assert_eq!(sketch(messages).await, expected);
}

#[tokio::test]
async fn pictures_are_sent_and_other_media_refused() {
    let message = Message::parts(
        Role::User,
        vec![
            Part::Text("look".into()),
            picture("image/webp", data("AAAA")),
            picture("image/jpg", data("AAAA")),
            // What it is counts more than what it is called.
            picture("image/png", data("/9j/4AAQ")),
            picture("", data("iVBORw0KGgo=")),
            picture("", MediaSource::Url("data:image/gif;base64,R0lGODlh".into())),
            picture("", MediaSource::Url("https://x/y.png".into())),
        ],
    );
    let source = |media_type: &str, data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}});
    let expected = json!([
        {"type": "text", "text": "look"},
        source("image/webp", "AAAA"),
        source("image/jpeg", "AAAA"),
        source("image/jpeg", "/9j/4AAQ"),
        source("image/png", "iVBORw0KGgo="),
        source("image/gif", "R0lGODlh"),
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
    ]);
    assert_eq!(body(&request(vec![message])).await["messages"][0]["content"], expected);
    let media = |kind: MediaKind, media_type: &str| {
        Part::Media(Media { kind, media_type: media_type.into(), source: data("A") })
    };
    for (bad, told) in [
        (media(MediaKind::Audio, "audio/wav"), "not audio"),
        (media(MediaKind::Video, "video/mp4"), "not video"),
        (media(MediaKind::Image, "image/tiff"), "not image/tiff"),
        (media(MediaKind::Image, ""), "not data of an unknown type"),
        (picture("image/png", MediaSource::Url("sha256:00".into())), "not what is at 'sha256:00'"),
    ] {
        let text = refused(&request(vec![Message::parts(Role::User, vec![bad])])).await;
        assert!(text.contains("image/png, image/jpeg, image/gif, image/webp") && text.ends_with(told), "{text}");
    }
}

#[tokio::test]
async fn pictures_of_results_stay_in_them() {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "text", "text": "shot"},
        {"type": "image", "media_type": "image/png", "data": "AAAA"}]});
    let mut bad = Message::tool_result(call("c2"), &shot);
    bad.is_error = true;
    let messages = vec![user("a"), assistant("", &["c1", "c2"]), Message::tool_result(call("c1"), &shot), bad];
    let sent = body(&request(messages)).await;
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let content = json!([{"type": "text", "text": "shot"}, {"type": "image", "source": source}]);
    let expected = json!([
        {"type": "tool_result", "tool_use_id": "c1", "content": content},
        {"type": "tool_result", "tool_use_id": "c2", "content": content},
    ]);
    assert_eq!(sent["messages"][2]["content"], expected);
}

#[tokio::test]
async fn the_next_steps_body_extends_this_ones() {
    let server = ModelServer::with(|_| message([super::text(0, &["x"])], "end_turn"));
    let client = client(anthropic(&server));
    let mut messages = vec![user("a"), assistant("t ", &["c1"]), result("c1", "one")];
    send(&client, &request(messages.clone())).await;
    messages.extend([assistant("", &["c1", "c2"]), result("c1", "two"), result("c2", "three")]);
    send(&client, &request(messages.clone())).await;
    messages.extend([user("more")]);
    send(&client, &request(messages.clone())).await;
    messages.extend([assistant("done", &[]), user("again")]);
    send(&client, &request(messages)).await;
    let requests = server.requests();
    for pair in requests.windows(2) {
        // The last message may grow: results, and then what a person says.
        let before = pair[0].raw.strip_suffix(b"]}]}").unwrap();
        assert!(pair[1].raw.starts_with(before), "{} {}", pair[0].body, pair[1].body);
    }
    server.assert_no_violations();
}

#[tokio::test]
async fn ids_that_every_answer_uses_again_are_told_apart() {
    let mut messages = Vec::new();
    for idx in 0..500 {
        messages.extend([
            user("go on"),
            assistant("text", &["c"]),
            result("c", "done"),
            assistant(&"x".repeat(idx), &[]),
        ]);
    }
    let sent = body(&request(messages)).await;
    assert_eq!(sent["messages"][1995]["content"][1]["id"], "c_499");
}
