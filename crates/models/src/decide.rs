//! Decisions: typed questions about a state, and their answers.

use bub_kernel::{
    message::TokenUsage,
    model::{DecideRequest, Decisions, ModelError},
};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{errors, lenient, provider::Endpoint};

/// The most questions of one request.
const MAX_QUESTIONS: usize = 1000;

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    answers: Map<String, Value>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

/// Asks for an answer to each question.
pub(crate) async fn decide(endpoint: &Endpoint, request: &DecideRequest) -> Result<Decisions, ModelError> {
    if !endpoint.kind.decides() {
        return Err(ModelError::Unsupported(format!("provider '{}' answers no decision questions", endpoint.provider)));
    }
    if request.questions.len() > MAX_QUESTIONS {
        return Err(ModelError::Unsupported(format!("at most {MAX_QUESTIONS} questions can be asked at once")));
    }
    let questions: Map<String, Value> =
        request.questions.iter().map(|(id, question)| (id.clone(), wire_question(question))).collect();
    let body = json!({"model": request.model, "state": request.state, "questions": questions});
    let body = Bytes::from(body.to_string());
    read(&endpoint.fetch("/systemone", &HeaderMap::new(), Some(body)).await?, request).map_err(|err| endpoint.told(err))
}

/// A question as the wire has it: a list of choices is a map without notes.
fn wire_question(question: &Value) -> Value {
    let mut question = question.clone();
    if question.get("type").and_then(Value::as_str) == Some("choice")
        && let Some(Value::Array(choices)) = question.get_mut("criteria").map(Value::take)
    {
        let notes = choices.iter().filter_map(|it| Some((it.as_str()?.to_owned(), Value::Null)));
        let notes = Value::Object(notes.collect());
        if let Some(fields) = question.as_object_mut() {
            fields.insert("criteria".to_owned(), notes);
        }
    }
    question
}

fn read(bytes: &[u8], request: &DecideRequest) -> Result<Decisions, ModelError> {
    let reply: Reply = lenient::parse(bytes)
        .map_err(|err| ModelError::Protocol(format!("the decisions are not understood: {err}")))?;
    if let Some(error) = reply.error.filter(|it| !it.is_null()) {
        return Err(errors::of_event(&error));
    }
    if let Some(missing) = request.questions.keys().find(|id| !reply.answers.contains_key(*id)) {
        return Err(ModelError::Protocol(format!("question '{missing}' has no answer")));
    }
    let count = |usage: &Value, keys: [&str; 2]| {
        keys.iter().find_map(|key| usage.get(*key).and_then(Value::as_u64)).unwrap_or_default()
    };
    let usage = reply.usage.filter(Value::is_object).map(|it| TokenUsage {
        input_tokens: count(&it, ["input_tokens", "prompt_tokens"]),
        output_tokens: count(&it, ["output_tokens", "completion_tokens"]),
        ..TokenUsage::default()
    });
    let answers = reply.answers.into_iter().filter(|(id, _)| request.questions.contains_key(id)).collect();
    Ok(Decisions { answers, model: reply.model.unwrap_or_else(|| request.model.clone()), usage })
}
