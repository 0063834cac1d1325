//! Embeddings: one request, one JSON reply, tried again as an answer is.

use bub_kernel::{
    message::TokenUsage,
    model::{EmbedRequest, Embeddings, ModelError},
};
use bytes::Bytes;
use reqwest::{Response, header::HeaderMap};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    decode::MAX_REPLY_BYTES,
    errors::{self, Failure},
    http,
    provider::Endpoint,
};

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    data: Vec<Item>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
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
    #[serde(default)]
    prompt_tokens: u64,
}

/// Asks for a vector for each text.
pub(crate) async fn embed(endpoint: &Endpoint, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
    let mut body = json!({"model": request.model, "input": request.texts, "encoding_format": "float"});
    if let (Some(dimensions), Some(fields)) = (request.dimensions, body.as_object_mut()) {
        fields.insert("dimensions".into(), dimensions.into());
    }
    let body = Bytes::from(body.to_string());
    let mut n_retries = 0;
    loop {
        let Failure { mut error, retry_after } = match attempt(endpoint, body.clone(), request).await {
            Ok(made) => return Ok(made),
            Err(failure) => failure,
        };
        if let ModelError::Auth(text) = &mut error {
            text.push_str("; ");
            text.push_str(&endpoint.about_key);
        }
        let error = errors::masked(error, &endpoint.mask);
        if !error.is_retryable() || n_retries >= endpoint.retries.max {
            return Err(error);
        }
        tokio::time::sleep(endpoint.retries.wait(n_retries, retry_after)).await;
        n_retries += 1;
    }
}

async fn attempt(endpoint: &Endpoint, body: Bytes, request: &EmbedRequest) -> Result<Embeddings, Failure> {
    let response = endpoint.http.post("/embeddings", &HeaderMap::new(), body).await?;
    let bytes = whole(endpoint, response).await?;
    Ok(read(&bytes, request)?)
}

/// The whole body, within the limits of an answer.
async fn whole(endpoint: &Endpoint, mut response: Response) -> Result<Vec<u8>, ModelError> {
    let (host, patience) = (endpoint.http.host(), endpoint.http.timeouts.between);
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout(patience, response.chunk()).await {
            Ok(Ok(Some(bytes))) if body.len().saturating_add(bytes.len()) > MAX_REPLY_BYTES => {
                return Err(ModelError::Protocol(format!("embeddings of more than {} MiB", MAX_REPLY_BYTES >> 20)));
            }
            Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
            Ok(Ok(None)) => return Ok(body),
            Ok(Err(err)) => {
                let message = format!("the connection to {host} broke: {}", http::deepest(&err));
                return Err(ModelError::Transport { message, source: Some(err.without_url().into()) });
            }
            Err(_) => return Err(ModelError::Timeout(format!("{host} sent nothing for {patience:?}"))),
        }
    }
}

fn read(bytes: &[u8], request: &EmbedRequest) -> Result<Embeddings, ModelError> {
    let reply: Reply = serde_json::from_slice(bytes)
        .map_err(|err| ModelError::Protocol(format!("the embeddings are not understood: {err}")))?;
    if let Some(error) = reply.error.filter(|it| !it.is_null()) {
        return Err(errors::of_event(&error));
    }
    let mut items = reply.data;
    items.sort_by_key(|it| it.index.unwrap_or(usize::MAX));
    if items.len() != request.texts.len() {
        let (came, asked) = (items.len(), request.texts.len());
        return Err(ModelError::Protocol(format!("{came} embeddings came for {asked} texts")));
    }
    Ok(Embeddings {
        vectors: items.into_iter().map(|it| it.embedding).collect(),
        model: reply.model.unwrap_or_else(|| request.model.clone()),
        usage: reply.usage.map(|it| TokenUsage { input_tokens: it.prompt_tokens, ..TokenUsage::default() }),
    })
}
