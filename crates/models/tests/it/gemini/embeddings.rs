use super::*;
use bub_kernel::model::EmbedRequest;
use bub_models::Retries;

fn texts(n: usize) -> EmbedRequest {
    EmbedRequest { model: "text-1".into(), texts: (0..n).map(|it| format!("t{it}")).collect(), dimensions: Some(2) }
}

/// A vector for each text of a request: its number.
fn numbers(request: &bub_testing::Request) -> Reply {
    let of = |it: &Value| {
        let text = it["content"]["parts"][0]["text"].as_str().unwrap();
        json!({"values": [text[1..].parse::<u32>().unwrap()]})
    };
    let vectors: Vec<_> = request.body["requests"].as_array().unwrap().iter().map(of).collect();
    Reply::json(&json!({"embeddings": vectors, "usageMetadata": {"promptTokenCount": vectors.len()}}))
}

#[tokio::test]
async fn texts_are_asked_for_in_batches_and_stay_in_order() {
    let server = ModelServer::with(numbers);
    let made = client(config(&server)).embed(&texts(250)).await.unwrap();
    assert_eq!(made.vectors, (0..250).map(|it| vec![f64::from(it)]).collect::<Vec<_>>());
    assert_eq!((made.model.as_str(), made.usage.unwrap().input_tokens), ("text-1", 250));
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].path, "/v1beta/models/text-1:batchEmbedContents");
    assert_eq!(requests[0].header("x-goog-api-key"), Some("sk-secret-0123456789"));
    let first = json!({"model": "models/text-1", "content": {"parts": [{"text": "t0"}]}, "outputDimensionality": 2});
    assert_eq!(requests[0].body["requests"][0], first);
    assert!(client(config(&server)).embed(&texts(0)).await.unwrap().vectors.is_empty());
}

#[tokio::test]
async fn failures_are_tried_again_and_told() {
    let server = ModelServer::start();
    server.reply(Reply::status(503)).reply(Reply::json(&json!({"embeddings": [{"values": [1, 0.5]}]})));
    let mut config = config(&server);
    config.retries = Retries { max: 1, delay: Duration::from_millis(1), max_delay: Duration::from_millis(1) };
    let client = client(config);
    assert_eq!(client.embed(&texts(1)).await.unwrap().vectors, [vec![1.0, 0.5]]);
    for (reply, expected) in [
        (json!({"embeddings": []}), "the provider sent something unexpected: 0 embeddings came for 1 texts"),
        (json!(7), "the provider sent something unexpected: the embeddings are not understood"),
        (
            json!({"error": {"code": 404, "message": "no such model", "status": "NOT_FOUND"}}),
            "the provider refused the request (HTTP 404): no such model",
        ),
    ] {
        server.reply(Reply::json(&reply));
        let err = client.embed(&texts(1)).await.unwrap_err();
        assert!(err.to_string().starts_with(expected), "{err}");
    }
}
