//! Embeddings: one request, one JSON reply, tried again as an answer is.

use bub_kernel::{
    message::TokenUsage,
    model::{EmbedRequest, Embeddings, ModelError},
};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    errors, gemini,
    kind::ProviderKind,
    lenient::{self, number, or_none},
    provider::Endpoint,
    wire::Wire,
};

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    data: Option<Vec<Item>>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default, deserialize_with = "or_none")]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f64>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, deserialize_with = "number")]
    prompt_tokens: Option<u64>,
}

/// Asks for a vector for each text.
pub(crate) async fn embed(endpoint: &Endpoint, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
    if matches!(endpoint.wire, Ok(Wire::Gemini)) {
        return gemini::embed(endpoint, request).await;
    }
    if request.texts.is_empty() {
        // Services refuse a request for nothing.
        return Ok(Embeddings { vectors: Vec::new(), model: request.model.clone(), usage: None });
    }
    let mut body = json!({"model": request.model, "input": request.texts, "encoding_format": "float"});
    if let (Some(dimensions), Some(fields)) = (request.dimensions, body.as_object_mut()) {
        let key = if endpoint.kind == ProviderKind::Mistral { "output_dimension" } else { "dimensions" };
        fields.insert(key.into(), dimensions.into());
    }
    let body = Bytes::from(body.to_string());
    read(&endpoint.fetch("/embeddings", &HeaderMap::new(), Some(body)).await?, request)
        .map_err(|err| endpoint.told(err))
}

fn read(bytes: &[u8], request: &EmbedRequest) -> Result<Embeddings, ModelError> {
    let reply: Reply = lenient::parse(bytes).map_err(|err| not_understood(&err))?;
    if let Some(error) = reply.error.filter(|it| !it.is_null()) {
        return Err(errors::of_event(&error));
    }
    if let (None, Some(error)) = (&reply.data, errors::of_body(bytes)) {
        return Err(error);
    }
    let mut items = reply.data.unwrap_or_default();
    items.sort_by_key(|it| it.index.unwrap_or(usize::MAX));
    check_count(items.len(), request.texts.len())?;
    Ok(Embeddings {
        vectors: items.into_iter().map(|it| it.embedding).collect(),
        model: reply.model.unwrap_or_else(|| request.model.clone()),
        usage: reply
            .usage
            .map(|it| TokenUsage { input_tokens: it.prompt_tokens.unwrap_or_default(), ..TokenUsage::default() }),
    })
}

/// The error for a reply that is none of its wire.
pub(crate) fn not_understood(err: &serde_json::Error) -> ModelError {
    ModelError::Protocol(format!("the embeddings are not understood: {err}"))
}

/// Checks that there is a vector for each text.
pub(crate) fn check_count(came: usize, asked: usize) -> Result<(), ModelError> {
    if came == asked {
        return Ok(());
    }
    Err(ModelError::Protocol(format!("{came} embeddings came for {asked} texts")))
}
