use super::*;
use std::borrow::Cow;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part, ToolCallRequest},
    tool::{Exposure, ToolSpec},
};
use bub_models::Wire;
use serde_json::{Map, Value, json};

fn call(id: &str) -> ToolCallRequest {
    ToolCallRequest {
        id: id.into(),
        name: "fs_read".into(),
        arguments: "{\"path\": \"a\"}".into(),
        metadata: Map::new(),
    }
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

fn media(kind: MediaKind, media_type: &str, source: MediaSource) -> Part {
    Part::Media(Media { kind, media_type: media_type.into(), source })
}

/// The body that the server gets.
async fn body(kind: ProviderKind, request: &ModelRequest) -> Value {
    let server = ModelServer::with(|_| Reply::text("x"));
    let mut config = config(&server);
    config.kind = kind;
    let (_, err) = send(&client(config), request).await;
    assert!(err.is_none(), "{err:?}");
    server.assert_no_violations();
    server.requests()[0].body.clone()
}

/// The messages that the server gets, as role and a sketch of the content.
async fn sketch(messages: Vec<Message>) -> Vec<String> {
    let body = body(ProviderKind::OpenAi, &request(messages)).await;
    let of = |it: &Value| {
        let content = match &it["content"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let ids: Vec<_> =
            it["tool_calls"].as_array().into_iter().flatten().filter_map(|it| it["id"].as_str()).collect();
        let id = it["tool_call_id"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
        format!("{}{id}: {content} {}", it["role"].as_str().unwrap(), ids.join(",")).trim_end().to_owned()
    };
    body["messages"].as_array().unwrap().iter().map(of).collect()
}

#[tokio::test]
async fn requests_have_headers_and_the_plain_fields() {
    let server = ModelServer::with(|_| Reply::text("x"));
    let mut config = config(&server);
    config.headers = vec![("X-Title".into(), "bub".into())];
    let mut it = hello();
    it.system = Some("be kind".into());
    send(&client(config), &it).await;
    let request = &server.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-secret-0123456789"));
    assert_eq!(request.header("x-title"), Some("bub"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("user-agent"), Some(concat!("bub/", env!("CARGO_PKG_VERSION"))));
    let expected = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
        {"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]});
    assert_eq!(request.body, expected);
}

#[tokio::test]
async fn own_headers_win_and_no_key_means_no_authorization() {
    let server = ModelServer::with(|_| Reply::text("x"));
    let mut config = config(&server);
    config.api_key = Some(String::new());
    config.headers = vec![("user-agent".into(), "mine/1".into())];
    ask(&client(config)).await;
    let request = &server.requests()[0];
    assert_eq!((request.header("authorization"), request.header("user-agent")), (None, Some("mine/1")));
}

#[tokio::test]
async fn bases_with_a_slash_or_without_a_path_work() {
    let server = ModelServer::with(|_| Reply::text("x"));
    let root = format!("http://{}", server.address());
    for (kind, base, path) in [
        (ProviderKind::Ollama, root.clone(), "/v1/chat/completions"),
        (ProviderKind::OpenAi, format!("{root}/"), "/v1/chat/completions"),
        (ProviderKind::OpenAiCompatible, format!("{root}/v1/"), "/v1/chat/completions"),
        (ProviderKind::OpenAiCompatible, root.clone(), "/chat/completions"),
        (ProviderKind::OpenRouter, format!("{root}/x/chat/completions"), "/x/chat/completions"),
    ] {
        let mut config = config(&server);
        config.kind = kind;
        config.api_base = Some(base);
        let (_, err) = ask(&client(config)).await;
        assert!(err.is_none(), "{err:?}");
        assert_eq!(server.requests().last().unwrap().path, path);
    }
}

#[tokio::test]
async fn bases_that_end_where_a_wires_path_begins_do_not_get_it_twice() {
    let server = ModelServer::with(|_| Reply::text("x"));
    for (kind, wire, base, path) in [
        (ProviderKind::MiniMax, Wire::Chat, "/v1", "/v1/chat/completions"),
        (ProviderKind::MiniMax, Wire::Messages, "/v1/", "/anthropic/v1/messages"),
        (ProviderKind::MiniMax, Wire::Messages, "/anthropic", "/anthropic/v1/messages"),
        (ProviderKind::DeepSeek, Wire::Messages, "/anthropic", "/anthropic/v1/messages"),
        (ProviderKind::DeepSeek, Wire::Messages, "/anthropic/v1/messages", "/anthropic/v1/messages"),
        (ProviderKind::DeepSeek, Wire::Chat, "/v1", "/v1/chat/completions"),
    ] {
        let mut config = config(&server);
        config.kind = kind;
        config.api_format = Some(wire);
        config.api_base = Some(format!("http://{}{base}", server.address()));
        // What the server says is of no interest, and not of every wire.
        ask(&client(config)).await;
        assert_eq!(server.requests().last().unwrap().path, path, "{kind} {base}");
    }
}

#[tokio::test]
async fn options_follow_the_dialect() {
    let mut it = hello();
    it.options = ModelOptions {
        max_tokens: Some(5),
        reasoning_effort: Some("low".into()),
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".into()],
        seed: Some(u64::MAX),
        ..ModelOptions::default()
    };
    let sent = body(ProviderKind::OpenAi, &it).await;
    assert_eq!((&sent["max_completion_tokens"], &sent["max_tokens"]), (&json!(5), &Value::Null));
    assert_eq!((&sent["reasoning_effort"], &sent["seed"]), (&json!("low"), &json!(u64::MAX)));
    assert_eq!((&sent["temperature"], &sent["top_p"], &sent["stop"]), (&json!(0.5), &json!(0.9), &json!(["END"])));
    for kind in [ProviderKind::Ollama, ProviderKind::OpenAiCompatible] {
        let sent = body(kind, &it).await;
        assert_eq!((&sent["max_tokens"], &sent["max_completion_tokens"]), (&json!(5), &Value::Null));
    }
    let mut thinker = it.clone();
    thinker.model = "openai/gpt-5-mini".into();
    let sent = body(ProviderKind::OpenAiCompatible, &thinker).await;
    assert_eq!((&sent["max_tokens"], &sent["max_completion_tokens"]), (&Value::Null, &json!(5)));
    let sent = body(ProviderKind::OpenRouter, &it).await;
    assert_eq!(
        (&sent["reasoning"], &sent["reasoning_effort"]),
        (&json!({"effort": "low", "exclude": false}), &Value::Null)
    );
    it.options.temperature = Some(f64::NAN);
    let client = Provider::new(ProviderConfig::new("ollama", ProviderKind::Ollama)).client("m").unwrap();
    assert!(matches!(client.stream(&it).await, Err(ModelError::Unsupported(_))));
}

#[tokio::test]
async fn extra_body_is_merged_last_and_deeply() {
    let mut it = hello();
    it.options.max_tokens = Some(5);
    let extra = json!({"max_tokens": 9, "stream_options": {"more": 1}, "top_k": 3, "provider": {"order": ["a"]}});
    it.options.extra_body = extra.as_object().unwrap().clone();
    let sent = body(ProviderKind::Ollama, &it).await;
    assert_eq!(sent["stream_options"], json!({"include_usage": true, "more": 1}));
    assert_eq!(
        (&sent["max_tokens"], &sent["top_k"], &sent["provider"]["order"]),
        (&json!(9), &json!(3), &json!(["a"]))
    );
    assert_eq!(sent["messages"][0]["content"], "hello");
}

#[tokio::test]
async fn tools_go_by_their_alias() {
    let mut it = hello();
    it.tools = vec![Arc::new(ToolSpec {
        name: Cow::Borrowed("fs.read"),
        description: "Reads.".into(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({"type": "object", "properties": {}}),
        output: None,
    })];
    let sent = body(ProviderKind::OpenAi, &it).await;
    let function =
        json!({"name": "fs_read", "description": "Reads.", "parameters": {"type": "object", "properties": {}}});
    assert_eq!(sent["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(sent.as_object().unwrap().keys().next_back().unwrap(), "messages");
}

#[tokio::test]
async fn r180_arguments_are_sent_back_as_they_came_unless_broken() {
    for (came, expected) in [
        (r#"{"a": 1.0,  "a": "\u00e9"}"#, r#"{"a": 1.0,  "a": "\u00e9"}"#),
        (" {} ", " {} "),
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
        let sent = body(ProviderKind::OpenAi, &request(vec![user("x"), said, result("c", "r")])).await;
        assert_eq!(sent["messages"][1]["tool_calls"][0]["function"]["arguments"], expected);
        assert_eq!(sent["messages"][1]["content"], Value::Null);
    }
}

#[tokio::test]
async fn r181_calls_without_result_get_one_and_orphans_go() {
    let interrupted = "interrupted: the call ended without a result";
    let sent = sketch(vec![user("a"), assistant("", &["c1", "c2"]), result("c1", "one"), user("go on")]).await;
    assert_eq!(
        sent,
        ["user: a", "assistant: null c1,c2", "tool c1: one", &format!("tool c2: {interrupted}"), "user: go on"]
    );
    // Results out of order, behind another message, twice, or of nobody.
    let messages = vec![
        result("z", "orphan"),
        user("a"),
        assistant("t", &["c1", "c2"]),
        result("c2", "two"),
        user("steer"),
        result("c1", "one"),
        result("c1", "again"),
        result("y", "orphan"),
        assistant("", &["c1"]),
        result("c1", "new"),
        assistant("end", &[]),
        result("c1", "late"),
    ];
    assert_eq!(
        sketch(messages).await,
        [
            "user: a",
            "assistant: t c1,c2",
            "tool c1: one",
            "tool c2: two",
            "user: steer",
            "assistant: null c1",
            "tool c1: new",
            "assistant: end",
        ]
    );
    assert_eq!(sketch(vec![user("a"), assistant("", &["c", "c"]), result("c", "r")]).await.len(), 3);
}

#[tokio::test]
async fn names_that_models_made_up_do_not_lock_the_session() {
    let mut said = assistant("", &["a", "b"]);
    said.tool_calls[0].name = "multi_tool_use.parallel".into();
    said.tool_calls[1].name = format!("view\" path=\"{}", "x".repeat(300));
    let sent = body(ProviderKind::OpenAi, &request(vec![user("x"), said, result("a", "r")])).await;
    let calls = sent["messages"][1]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["function"]["name"], "multi_tool_use_parallel");
    let name = calls[1]["function"]["name"].as_str().unwrap();
    assert!(name.starts_with("view__path__xxx") && name.len() == 64, "{name}");
}

/// The ids of a call and its result, of a session that another service began.
async fn ids(kind: ProviderKind, model: &str, id: &str) -> String {
    let mut it = request(vec![user("x"), assistant("", &[id]), result(id, "r"), user("go on")]);
    it.model = model.into();
    let sent = body(kind, &it).await;
    let messages = sent["messages"].as_array().unwrap();
    let id = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!(messages[2]["tool_call_id"], id);
    id.to_owned()
}

#[tokio::test]
async fn ids_of_calls_are_as_the_service_takes_them() {
    let long = "toolu_".repeat(10);
    for (kind, model, id) in [
        (ProviderKind::OpenAi, "gpt", "call_1"),
        (ProviderKind::OpenAi, "gpt", &*"x".repeat(40)),
        (ProviderKind::OpenAiCompatible, "qwen", &*long),
        (ProviderKind::Mistral, "mistral-large", "aB3456789"),
        (ProviderKind::OpenAi, "gpt", &*format!("call_1__thought__{long}")),
    ] {
        assert_eq!(ids(kind, model, id).await, id, "{kind} {model}");
    }
    for kind in [ProviderKind::OpenAi, ProviderKind::GithubCopilot] {
        assert!(ids(kind, "gpt", &long).await.len() <= 40, "{kind}");
    }
    for (kind, model) in [
        (ProviderKind::Mistral, "x"),
        (ProviderKind::OpenAiCompatible, "mistralai/Devstral-Small-2"),
        (ProviderKind::Ollama, "mixtral"),
    ] {
        let (one, other) = (ids(kind, model, "call_1").await, ids(kind, model, "call_2").await);
        assert!(one.len() == 9 && one.bytes().all(|it| it.is_ascii_alphanumeric()) && one != other, "{one} {other}");
    }
}

#[tokio::test]
async fn mistrals_models_answer_results_before_a_person_speaks() {
    let messages = || vec![user("x"), assistant("", &["c"]), result("c", "r"), user("go on"), user("please")];
    let roles = async |model: &str| {
        let mut it = request(messages());
        it.model = model.into();
        let sent = body(ProviderKind::OpenAiCompatible, &it).await;
        let roles = sent["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap().to_owned());
        roles.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(roles("mistral-small").await, "user assistant tool assistant user user");
    assert_eq!(roles("qwen3").await, "user assistant tool user user");
}

#[tokio::test]
async fn models_that_want_their_thinking_get_it_also_when_others_answered() {
    let thinking = |it: &Value| it["messages"][1]["reasoning_content"].clone();
    let said = |parts: Vec<Part>| {
        let mut said = Message::parts(Role::Assistant, parts);
        said.tool_calls = vec![call("c")];
        request(vec![user("x"), said, result("c", "r")])
    };
    let thought = said(vec![Part::Reasoning("hm".into())]);
    let foreign = said(vec![]);
    for kind in [ProviderKind::DeepSeek, ProviderKind::Moonshot, ProviderKind::Zai] {
        assert_eq!(thinking(&body(kind, &thought).await), "hm");
        assert_eq!(thinking(&body(kind, &foreign).await), " ");
    }
    for (model, expected) in
        [("kimi-k2.5", json!(" ")), ("deepseek-ai/DeepSeek-V3.2", json!(" ")), ("qwen3", Value::Null)]
    {
        let mut it = foreign.clone();
        it.model = model.into();
        assert_eq!(thinking(&body(ProviderKind::OpenAiCompatible, &it).await), expected, "{model}");
        assert_eq!(thinking(&body(ProviderKind::Groq, &it).await), Value::Null, "{model}");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_does_not_come_first() {
    let mut it = request(vec![assistant("", &["c"]), result("c", "r")]);
    it.system = Some("s".into());
    let sent = body(ProviderKind::OpenAiCompatible, &it).await;
    let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
}

#[tokio::test]
async fn r182_messages_that_say_nothing_are_left_out() {
    let thought = Message::parts(Role::Assistant, vec![Part::Reasoning("hm".into()), Part::Text(String::new())]);
    let messages = vec![Message::text(Role::System, ""), user("a"), assistant("", &[]), thought, user(""), user("b")];
    assert_eq!(sketch(messages).await, ["user: a", "user: b"]);
}

#[tokio::test]
async fn media_are_sent_as_parts() {
    let message = Message::parts(
        Role::User,
        vec![
            Part::Text("look".into()),
            media(MediaKind::Image, "image/png", MediaSource::Data("AAAA".into())),
            media(MediaKind::Image, "", MediaSource::Url("https://x/y.png".into())),
            media(MediaKind::Audio, "audio/mpeg", MediaSource::Data("BBBB".into())),
            media(MediaKind::Video, "video/webm", MediaSource::Data("CCCC".into())),
        ],
    );
    let sent = body(ProviderKind::OpenAi, &request(vec![message])).await;
    let expected = json!([
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "data:video/webm;base64,CCCC"}},
    ]);
    assert_eq!(sent["messages"][0]["content"], expected);
    for bad in [
        media(MediaKind::Audio, "audio/ogg", MediaSource::Data("A".into())),
        media(MediaKind::Audio, "audio/wav", MediaSource::Url("https://x/y.wav".into())),
        media(MediaKind::Image, "image/png", MediaSource::Url("sha256:00".into())),
    ] {
        let client = Provider::new(ProviderConfig::new("ollama", ProviderKind::Ollama)).client("m").unwrap();
        let err = client.stream(&request(vec![Message::parts(Role::User, vec![bad])])).await.err().unwrap();
        assert!(matches!(err, ModelError::Unsupported(_)), "{err:?}");
    }
}

/// A conversation in which a tool and a person have shown something before the last message.
fn shown_earlier(last: Vec<Part>) -> ModelRequest {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "image", "media_type": "image/png", "data": "AAAA"}]});
    let audio = media(MediaKind::Audio, "audio/wav", MediaSource::Data("BBBB".into()));
    request(vec![
        Message::parts(Role::User, vec![Part::Text("hear".into()), audio]),
        assistant("", &["c"]),
        Message::tool_result(call("c"), &shot),
        assistant("done", &[]),
        Message::parts(Role::User, last),
    ])
}

#[tokio::test]
async fn media_that_a_model_refuses_do_not_lock_the_session() {
    let refusal = || Reply::status(400).body(r#"{"error":{"message":"This model does not support image input."}}"#);
    let server = ModelServer::start();
    server.reply(refusal()).reply(Reply::text("x"));
    let (events, err) = send(&client(config(&server)), &shown_earlier(vec![Part::Text("go on".into())])).await;
    assert!(err.is_none() && text_of(&events) == "x", "{err:?} after {events:?}");
    assert!(matches!(&events[0], ModelEvent::Retry { reason, .. } if reason.contains("left out")), "{events:?}");
    let [first, second] = &server.requests()[..] else { panic!("two requests") };
    assert!(first.body.to_string().contains("AAAA"));
    let second = second.body.to_string();
    assert!(!second.contains("AAAA") && !second.contains("BBBB"), "{second}");
    assert!(second.contains("[image left out") && second.contains("[audio left out"), "{second}");
    // What is asked about is not left out: that would be another question.
    let new = vec![media(MediaKind::Image, "image/png", MediaSource::Data("CCCC".into()))];
    let server = ModelServer::with(move |_| refusal());
    let (_, err) = send(&client(config(&server)), &shown_earlier(new.clone())).await;
    assert!(matches!(err, Some(ModelError::Rejected { status: Some(400), .. })), "{err:?}");
    let bodies: Vec<_> = server.requests().iter().map(|it| it.body.to_string()).collect();
    assert!(bodies.len() == 2 && bodies.iter().all(|it| it.contains("CCCC")), "{bodies:?}");
    // Other refusals are no reason.
    let server = ModelServer::with(|_| Reply::status(400).body("no such field"));
    send(&client(config(&server)), &shown_earlier(new)).await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn media_that_a_wire_cannot_express_do_not_lock_the_session() {
    let server = ModelServer::with(|_| Reply::status(500));
    for (kind, wire) in [(ProviderKind::Anthropic, Wire::Messages), (ProviderKind::OpenAi, Wire::Responses)] {
        let mut config = config(&server);
        (config.kind, config.api_format) = (kind, Some(wire));
        let client = client(config);
        let (events, _) = send(&client, &shown_earlier(vec![Part::Text("go on".into())])).await;
        assert!(matches!(&events[0], ModelEvent::Retry { reason, .. } if reason.contains("left out")), "{events:?}");
        let sent = server.requests().pop().unwrap().body.to_string();
        assert!(sent.contains("[audio left out") && !sent.contains("BBBB"), "{sent}");
        let new = media(MediaKind::Video, "video/mp4", MediaSource::Data("DDDD".into()));
        let err = client.stream(&shown_earlier(vec![new])).await.err();
        assert!(matches!(err, Some(ModelError::Unsupported(_))), "{err:?}");
    }
}

#[tokio::test]
async fn images_of_results_follow_the_results() {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "image", "media_type": "image/png", "data": "AAAA"}]});
    let messages =
        vec![user("a"), assistant("", &["c1", "c2"]), Message::tool_result(call("c1"), &shot), result("c2", "two")];
    let sent = body(ProviderKind::OpenAi, &request(messages)).await;
    let messages = sent["messages"].as_array().unwrap();
    assert_eq!(messages[2]["content"], "image below");
    assert_eq!((&messages[3]["content"], &messages[4]["role"]), (&json!("two"), &json!("user")));
    assert_eq!(messages[4]["content"][1]["image_url"]["url"], "data:image/png;base64,AAAA");
}

#[tokio::test]
async fn the_next_steps_body_extends_this_ones() {
    let server = ModelServer::with(|_| Reply::text("x"));
    let client = client(config(&server));
    let mut messages = vec![user("a"), assistant("", &["c1"]), result("c1", "one")];
    send(&client, &request(messages.clone())).await;
    messages.extend([assistant("done", &[]), user("more")]);
    send(&client, &request(messages)).await;
    let requests = server.requests();
    let first = requests[0].raw.strip_suffix(b"]}").unwrap();
    assert!(requests[1].raw.starts_with(first));
}
