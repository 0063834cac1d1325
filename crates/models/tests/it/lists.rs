//! Lists of models, and decisions.

use bub_kernel::model::{DecideRequest, ModelError, ModelProvider as _};
use bub_models::{Provider, ProviderConfig, ProviderKind, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::json;

use crate::config;

fn provider(server: &ModelServer, kind: ProviderKind) -> Provider {
    Provider::new(ProviderConfig { kind, ..config(server) })
}

#[tokio::test]
async fn pages_are_followed_to_their_end() {
    let server = ModelServer::with(|request| {
        Reply::json(&if request.path.contains('?') {
            json!({"data": [{"id": "c", "context_length": 5}], "has_more": false})
        } else {
            json!({"data": [{"id": "b"}, {"id": "a"}], "has_more": true, "last_id": "a"})
        })
    });
    let models = provider(&server, ProviderKind::OpenAiCompatible).list().await.unwrap();
    assert_eq!(models.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let paths: Vec<_> = server.requests().iter().map(|it| it.path.clone()).collect();
    assert_eq!(paths, ["/v1/models", "/v1/models?after_id=a"]);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-secret-0123456789"));
}

#[tokio::test]
async fn anthropic_lists_with_its_headers_in_large_pages() {
    let server = ModelServer::with(|request| {
        Reply::json(&if request.path.contains("after_id") {
            json!({"data": [], "has_more": false, "last_id": null})
        } else {
            let model = json!({"type": "model", "id": "claude-x", "display_name": "Claude X", "max_input_tokens": 9});
            json!({"data": [model], "has_more": true, "first_id": "claude-x", "last_id": "claude-x"})
        })
    });
    let models = provider(&server, ProviderKind::Anthropic).list().await.unwrap();
    assert_eq!((models[0].name.as_deref(), models[0].context_tokens), (Some("Claude X"), Some(9)));
    let requests = server.requests();
    let paths: Vec<_> = requests.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/v1/models?limit=1000", "/v1/models?limit=1000&after_id=claude-x"]);
    for request in &requests {
        assert_eq!(request.header("x-api-key"), Some("sk-secret-0123456789"));
        assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    }
}

#[tokio::test]
async fn a_list_without_end_is_cut() {
    let server = ModelServer::with(|_| Reply::json(&json!({"data": [{"id": "a"}], "has_more": true, "last_id": "a"})));
    let models = provider(&server, ProviderKind::OpenAiCompatible).list().await.unwrap();
    assert_eq!(models.len(), 1);
    assert!(server.requests().len() <= 20);
}

#[tokio::test]
async fn a_refused_key_is_told_without_it() {
    let server =
        ModelServer::with(|_| Reply::status(401).body(r#"{"error":{"message":"bad key sk-secret-0123456789"}}"#));
    let err = provider(&server, ProviderKind::OpenAiCompatible).list().await.unwrap_err();
    let text = err.to_string();
    assert!(matches!(err, ModelError::Auth(_)) && text.contains("***") && !text.contains("0123456789"), "{text}");
}

#[tokio::test]
async fn questions_are_decided() {
    let server = ModelServer::start();
    server.reply(Reply::json(&json!({
        "model": "s-1", "usage": {"input_tokens": 7},
        "answers": {"q": {"type": "choice", "choice": "a", "probabilities": {"a": 1.0}, "confidence": 0.9}, "other": {}},
    })));
    let client = provider(&server, ProviderKind::Typesafe).client("s").unwrap();
    let question = json!({"type": "choice", "instructions": "which?", "criteria": ["a", "b"]});
    let questions = json!({"q": question}).as_object().unwrap().clone();
    let request = DecideRequest { model: "s".into(), state: json!({"x": 1}), questions };
    let made = client.decide(&request).await.unwrap();
    assert_eq!(made.answers.keys().collect::<Vec<_>>(), ["q"]);
    assert_eq!((made.answers["q"]["choice"].as_str(), made.usage.unwrap().input_tokens), (Some("a"), 7));
    let sent = &server.requests()[0];
    assert_eq!(sent.path, "/v1/systemone");
    assert_eq!(sent.body["questions"]["q"]["criteria"], json!({"a": null, "b": null}));
    server.reply(Reply::json(&json!({"answers": {}})));
    let err = client.decide(&request).await.unwrap_err().to_string();
    assert!(err.contains("question 'q' has no answer"), "{err}");
    // It writes no answers, and others do not decide.
    let err = client.stream(&crate::hello()).await.err().unwrap().to_string();
    assert!(err.contains("writes no answers"), "{err}");
    let chat = provider(&server, ProviderKind::DeepSeek).client("m").unwrap();
    let err = chat.decide(&request).await.unwrap_err().to_string();
    assert!(err.contains("answers no decision questions"), "{err}");
}

#[test]
fn a_wire_that_a_kind_does_not_speak_is_refused() {
    let mut config = ProviderConfig::new("x", ProviderKind::Mistral);
    assert_eq!(config.wire(), Ok(Wire::Chat));
    config.kind = ProviderKind::Typesafe;
    assert!(config.wire().is_err());
    assert_eq!("CHAT".parse::<Wire>().unwrap(), Wire::Chat);
    let err = "morse".parse::<Wire>().unwrap_err().to_string();
    assert!(err.contains("unknown api_format 'morse': expected one of chat"), "{err}");
}
