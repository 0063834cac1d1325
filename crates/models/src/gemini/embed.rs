//! Embeddings by the Gemini API.

use bub_kernel::model::{EmbedRequest, Embeddings, ModelError};
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{escaped, resource};
use crate::{embed, errors, lenient::number, provider::Endpoint};

/// The most texts that the API takes at once.
const MAX_TEXTS: usize = 100;

#[derive(Serialize)]
struct Batch<'a> {
    requests: Vec<Item<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    model: &'a str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_dimensionality: Option<u32>,
}

impl<'a> Item<'a> {
    fn new(model: &'a str, text: &'a str, output_dimensionality: Option<u32>) -> Self {
        Self { model, content: Content { parts: [Part { text }] }, output_dimensionality }
    }
}

#[derive(Serialize)]
struct Content<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
struct Part<'a> {
    text: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reply {
    #[serde(default)]
    embeddings: Vec<Vector>,
    #[serde(default)]
    usage_metadata: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Vector {
    values: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    #[serde(default, deserialize_with = "number")]
    prompt_token_count: Option<u64>,
}

/// Asks for a vector for each text, a batch after the other.
pub(crate) async fn embed(endpoint: &Endpoint, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
    let model = resource(&request.model);
    let path = format!("/{}:batchEmbedContents", escaped(&model));
    let mut made = Embeddings { vectors: Vec::new(), model: request.model.clone(), usage: None };
    for texts in request.texts.chunks(MAX_TEXTS) {
        let item = |text| Item::new(&model, text, request.dimensions);
        let batch = Batch { requests: texts.iter().map(String::as_str).map(item).collect() };
        let body = serde_json::to_vec(&batch)
            .map_err(|err| ModelError::Protocol(format!("cannot write the request: {err}")))?;
        let reply = endpoint.fetch(&path, &HeaderMap::new(), Some(body.into())).await?;
        let (vectors, usage) = read(&reply, texts.len()).map_err(|err| endpoint.told(err))?;
        made.vectors.extend(vectors);
        if let Some(more) = usage {
            let sum = made.usage.get_or_insert_default();
            sum.input_tokens = sum.input_tokens.saturating_add(more);
        }
    }
    Ok(made)
}

/// The vectors, and how many tokens were read.
fn read(bytes: &[u8], n_texts: usize) -> Result<(Vec<Vec<f64>>, Option<u64>), ModelError> {
    let reply: Reply = serde_json::from_slice(bytes).map_err(|err| embed::not_understood(&err))?;
    if let Some(error) = reply.error.filter(|it| !it.is_null()) {
        return Err(errors::of_event(&error));
    }
    embed::check_count(reply.embeddings.len(), n_texts)?;
    let vectors = reply.embeddings.into_iter().map(|it| it.values).collect();
    Ok((vectors, reply.usage_metadata.and_then(|it| it.prompt_token_count)))
}
