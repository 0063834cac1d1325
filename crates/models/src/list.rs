//! What models a provider offers, and what it tells of them.

use bub_kernel::model::{ModelError, ModelInfo};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{errors, kind::ProviderKind, lenient, provider::Endpoint};

/// The most pages that are asked for, of up to a thousand models each.
const MAX_PAGES: usize = 20;

/// Asks for the list, page by page; in the order of the ids.
pub(crate) async fn list(endpoint: &Endpoint) -> Result<Vec<ModelInfo>, ModelError> {
    if endpoint.kind == ProviderKind::Codex {
        let text = "ChatGPT's plans list no models; those of a plan are named on its pages, such as gpt-5";
        return Err(ModelError::Unsupported(text.to_owned()));
    }
    let headers = endpoint.wire.as_ref().map_or_else(|_| HeaderMap::new(), |it| it.headers());
    let first = endpoint.kind.list_path();
    let mut models = Vec::new();
    let mut path = first.to_owned();
    for _ in 0..MAX_PAGES {
        let page = read(&endpoint.fetch(&path, &headers, None).await?).map_err(|err| endpoint.told(err))?;
        models.extend(page.models);
        let Some(next) = page.next else { break };
        path = format!("{first}{}{next}", if first.contains('?') { '&' } else { '?' });
    }
    models.sort_by(|one, other| one.id.cmp(&other.id));
    models.dedup_by(|one, other| one.id == other.id);
    Ok(models)
}

struct Page {
    models: Vec<ModelInfo>,
    /// What to add to the path to get the next page.
    next: Option<String>,
}

fn read(bytes: &[u8]) -> Result<Page, ModelError> {
    let reply: Value =
        lenient::parse(bytes).map_err(|err| ModelError::Protocol(format!("the list of models is no JSON: {err}")))?;
    if let Some(error) = reply.get("error").filter(|it| !it.is_null()) {
        return Err(errors::of_event(error));
    }
    let items = reply.get("data").or_else(|| reply.get("models")).unwrap_or(&reply);
    let Some(items) = items.as_array() else {
        return Err(ModelError::Protocol("the reply holds no list of models".to_owned()));
    };
    let text = |key: &str| reply.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let has_more = reply.get("has_more").and_then(Value::as_bool).unwrap_or_default();
    let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let next = match (text("nextPageToken"), text("last_id").filter(|_| has_more)) {
        (Some(token), _) => Some(format!("pageToken={}", encoded(token))),
        (None, Some(last)) => Some(format!("after_id={}", encoded(last))),
        (None, None) => None,
    };
    Ok(Page { models: items.iter().filter_map(model).collect(), next })
}

/// One entry; services name the same things differently.
fn model(item: &Value) -> Option<ModelInfo> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let id = text("id").or_else(|| text("name"))?;
    let id = id.strip_prefix("models/").unwrap_or(id);
    let count = |paths: &[&str]| paths.iter().find_map(|path| whole(item.pointer(path)?));
    let context_tokens = count(&[
        "/context_length",
        "/context_window",
        "/max_context_length",
        "/max_input_tokens",
        "/inputTokenLimit",
        "/max_model_len",
        "/capabilities/limits/max_context_window_tokens",
        "/meta/n_ctx_train",
    ]);
    let output_tokens = count(&[
        "/top_provider/max_completion_tokens",
        "/max_completion_tokens",
        "/max_output_tokens",
        "/outputTokenLimit",
        "/max_tokens",
        "/capabilities/limits/max_output_tokens",
    ]);
    // Some tell dollars for one token, as text; some dollars for a million, as numbers.
    let price = |per_token: &str, per_million: &str| {
        let pricing = item.get("pricing")?;
        let text = pricing.get(per_token).and_then(|it| it.as_str()?.parse::<f64>().ok());
        text.map(|it| it * 1e6).or_else(|| pricing.get(per_million)?.as_f64()).filter(|it| it.is_finite() && *it >= 0.0)
    };
    let name = text("display_name").or_else(|| text("displayName")).or_else(|| text("name"));
    Some(ModelInfo {
        id: id.to_owned(),
        name: name.filter(|it| *it != id && !it.starts_with("models/")).map(str::to_owned),
        context_tokens,
        output_tokens,
        input_price: price("prompt", "input"),
        output_price: price("completion", "output"),
    })
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Id, window, the most tokens of one answer, price of what is read.
    type Told<'a> = (&'a str, Option<u64>, Option<u64>, Option<f64>);

    fn check(reply: Value, expected: &[Told<'_>], next: Option<&str>) {
        let page = read(reply.to_string().as_bytes()).unwrap();
        let found: Vec<_> = page
            .models
            .iter()
            .map(|it| (it.id.as_str(), it.context_tokens, it.output_tokens, it.input_price))
            .collect();
        assert_eq!((found.as_slice(), page.next.as_deref()), (expected, next), "{reply}");
    }

    #[test]
    fn lists_of_every_service_are_read() {
        check(json!({"data": [{"id": "gpt", "object": "model"}]}), &[("gpt", None, None, None)], None);
        let openrouter = json!({"data": [{"id": "a/b", "context_length": 1000, "pricing": {"prompt": "0.000002"},
            "top_provider": {"max_completion_tokens": 50}}, {"id": "auto", "pricing": {"prompt": "-1"}}]});
        check(openrouter, &[("a/b", Some(1000), Some(50), Some(2.0)), ("auto", None, None, None)], None);
        let together = json!([{"id": "x", "context_length": 8, "pricing": {"input": 0.2}}]);
        check(together, &[("x", Some(8), None, Some(0.2))], None);
        let google = json!({"models": [{"name": "models/g", "inputTokenLimit": 5, "outputTokenLimit": 2}],
            "nextPageToken": "a+b"});
        check(google, &[("g", Some(5), Some(2), None)], Some("pageToken=a%2Bb"));
        let anthropic = json!({"data": [{"id": "c", "display_name": "C"}], "has_more": true, "last_id": "c"});
        check(anthropic, &[("c", None, None, None)], Some("after_id=c"));
        check(json!({"data": [], "has_more": false, "last_id": "c"}), &[], None);
        check(json!({"data": [{"id": 5}, "x", {"name": "n"}]}), &[("n", None, None, None)], None);
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for bad in ["", "<html>", r#"{"data": 5}"#, r#"{"error": {"message": "no"}}"#, "7"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
