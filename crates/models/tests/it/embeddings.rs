//! Embeddings on the wire.

use std::time::Duration;

use bub_kernel::model::{EmbedRequest, ModelError};
use bub_models::Retries;
use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::{client, config};

fn request(texts: &[&str], dimensions: Option<u32>) -> EmbedRequest {
    EmbedRequest { model: "m".into(), texts: texts.iter().map(|it| (*it).to_owned()).collect(), dimensions }
}

fn vectors(list: Value) -> Reply {
    Reply::json(
        &json!({"object": "list", "data": list, "model": "m-1", "usage": {"prompt_tokens": 4, "total_tokens": 4}}),
    )
}

#[tokio::test]
async fn vectors_are_in_the_order_of_the_texts() {
    let server = ModelServer::start();
    server.reply(vectors(json!([{"index": 1, "embedding": [2, 0.5]}, {"index": 0, "embedding": [1.0]}])));
    let made = client(config(&server)).embed(&request(&["a", "b"], Some(2))).await.unwrap();
    assert_eq!(made.vectors, [vec![1.0], vec![2.0, 0.5]]);
    assert_eq!((made.model.as_str(), made.usage.unwrap().input_tokens), ("m-1", 4));
    let sent = &server.requests()[0];
    assert!(sent.path.ends_with("/v1/embeddings"), "{}", sent.path);
    assert_eq!(sent.body, json!({"model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": 2}));
}

#[tokio::test]
async fn odd_replies_and_no_texts_are_understood() {
    let server = ModelServer::start();
    let client = client(config(&server));
    for usage in [json!(null), json!({"prompt_tokens": null}), json!("x"), json!({})] {
        server.reply(Reply::json(&json!({"data": [{"index": null, "embedding": [1]}], "usage": usage})));
        assert_eq!(client.embed(&request(&["a"], None)).await.unwrap().vectors, [vec![1.0]], "{usage}");
    }
    server.reply(Reply::json(&json!({"object": "error", "message": "no such model", "code": 404})));
    let err = client.embed(&request(&["a"], None)).await.unwrap_err();
    assert_eq!(err.to_string(), "the provider refused the request (HTTP 404): no such model");
    let n_requests = server.requests().len();
    assert!(client.embed(&request(&[], None)).await.unwrap().vectors.is_empty());
    assert_eq!(server.requests().len(), n_requests, "nothing is asked for no texts");
}

#[tokio::test]
async fn failures_are_tried_again_and_told_without_the_key() {
    let server = ModelServer::start();
    server.reply(Reply::status(503)).reply(vectors(json!([{"embedding": [1]}])));
    let mut config = config(&server);
    config.retries = Retries { max: 1, delay: Duration::from_millis(1), max_delay: Duration::from_millis(1) };
    let client = client(config);
    assert_eq!(client.embed(&request(&["a"], None)).await.unwrap().vectors, [vec![1.0]]);
    for (reply, expected) in [
        (vectors(json!([])), "the provider sent something unexpected: 0 embeddings came for 1 texts"),
        (Reply::status(200).body("x"), "the provider sent something unexpected: the embeddings are not understood"),
        (
            Reply::json(&json!({"error": {"message": "no", "type": "invalid_request_error"}})),
            "the provider refused the request: no",
        ),
        (Reply::status(404).body("no sk-secret-0123456789"), "the provider refused the request (HTTP 404): no ***"),
    ] {
        server.reply(reply);
        let err = client.embed(&request(&["a"], None)).await.unwrap_err();
        assert!(err.to_string().starts_with(expected), "{err}");
    }
    server.reply(Reply::status(401));
    let err = client.embed(&request(&["a"], None)).await.unwrap_err();
    assert!(matches!(err, ModelError::Auth(_)), "{err}");
}
