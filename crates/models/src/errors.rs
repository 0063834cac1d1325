//! What went wrong, from statuses and bodies.

mod limits;

use std::time::Duration;

use bub_kernel::{model::ModelError, secret::SecretMask};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{lenient, retry};
use limits::Limit;

/// The most characters of a provider's words that an error repeats.
const MAX_ERROR_CHARS: usize = 600;

/// The fields that hold an error's words.
const WORDS: [&str; 4] = ["message", "detail", "msg", "error_msg"];

/// What is told of an error without words.
const NO_REASON: &str = "it gave no reason";

/// A try that failed: what to tell, and how long the provider asks to wait.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ModelError,
    pub(crate) retry_after: Option<Duration>,
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let retry_after = match &error {
            ModelError::RateLimited { retry_after, .. } | ModelError::Overloaded { retry_after, .. } => *retry_after,
            _ => None,
        };
        Self { error, retry_after }
    }
}

/// Reads a reply whose status tells of an error.
pub(crate) fn of_status(status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    let words = Words::of_body(body);
    let retry_after = retry::asked_wait(headers).or(words.retry_after);
    Failure { error: classify(status, words, retry_after), retry_after }
}

/// Reads the `error` of an event or a body whose status told of none.
pub(crate) fn of_event(error: &Value) -> ModelError {
    let mut words = Words::of_value(error).unwrap_or_default();
    if words.message.is_empty() {
        words.message = NO_REASON.into();
    }
    of_words(words)
}

/// The error of a body whose status told of none; none for a body that tells of no error.
pub(crate) fn of_body(body: &[u8]) -> Option<ModelError> {
    let value: Value = lenient::parse(body).ok()?;
    let told = if let Value::Array(items) = &value { items.first()? } else { &value };
    tells_error(told).then(|| of_event(told))
}

/// Whether JSON tells of an error, in one of the forms of gateways, and not of an answer.
pub(crate) fn tells_error(value: &Value) -> bool {
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let is_answer = ["choices", "output", "content", "candidates"].iter().any(|it| value.get(it).is_some());
    text("error").is_some()
        || value.get("error").is_some_and(Value::is_object)
        || [text("object"), text("type")].contains(&Some("error"))
        || status_in(value).is_some()
        || (!is_answer && WORDS.iter().any(|it| text(it).is_some()))
}

/// The status that MiniMax puts into a body, unless it is a good one, with its words.
fn status_in(value: &Value) -> Option<&Value> {
    let status = value.get("base_resp")?;
    status.get("status_code").and_then(Value::as_i64).filter(|it| *it != 0).map(|_| status)
}

fn of_words(words: Words) -> ModelError {
    let has = |parts: &[&str]| parts.iter().any(|it| words.code.contains(it));
    if let Some(status) = words.status {
        let retry_after = words.retry_after;
        return classify(status, words, retry_after);
    }
    // What it says of limits may read like an overflow.
    if has(&["insufficient_quota", "billing"]) {
        return ModelError::Rejected { status: None, message: words.message };
    }
    if has(&["rate_limit", "too_many_requests", "quota", "resource_exhausted"]) {
        return ModelError::RateLimited { message: words.message, retry_after: words.retry_after };
    }
    if has(&["request_too_large"]) {
        return ModelError::ContextLength(words.message);
    }
    if let Some(limit) = limits::passed(&words.message, &words.code) {
        return of_limit(limit, None, words.message);
    }
    let message = words.message.clone();
    if has(&["overloaded", "capacity", "unavailable", "slow_down"]) {
        ModelError::Overloaded { message, retry_after: words.retry_after }
    } else if has(&["authentication", "unauthenticated", "api_key", "permission", "unauthorized"]) {
        ModelError::Auth(message)
    } else if is_filtered(&words.message, &words.code) {
        ModelError::ContentFilter(message)
    } else if has(&["invalid_", "not_found", "unsupported", "image_"]) {
        ModelError::Rejected { status: None, message }
    } else {
        ModelError::Failed { status: None, message }
    }
}

fn of_limit(limit: Limit, status: Option<u16>, message: String) -> ModelError {
    match limit {
        Limit::Conversation => ModelError::ContextLength(message),
        Limit::Answer => ModelError::Rejected { status, message: format!("{message}; a lower max_tokens mends that") },
    }
}

fn classify(status: u16, words: Words, retry_after: Option<Duration>) -> ModelError {
    let limit = limits::passed(&words.message, &words.code).filter(|_| matches!(status, 400 | 413 | 422));
    let Words { message, code, .. } = words;
    match (status, limit) {
        (401 | 403, _) => ModelError::Auth(format!("{message} (HTTP {status})")),
        // Google's way to refuse a key.
        (400, _) if code.contains("api_key_invalid") || message.contains("API key not valid") => {
            ModelError::Auth(format!("{message} (HTTP {status})"))
        }
        (_, Some(limit)) => of_limit(limit, Some(status), message),
        // Whoever says so, a shorter conversation is what mends it.
        (413, None) => ModelError::ContextLength(format!("{message} (HTTP {status})")),
        (400, _) if is_filtered(&message, &code) => ModelError::ContentFilter(message),
        // Nothing that a wait would change.
        (429, _) if code.contains("insufficient_quota") => ModelError::Rejected { status: Some(status), message },
        (429, _) => ModelError::RateLimited { message, retry_after },
        (503 | 529, _) => ModelError::Overloaded { message: format!("{message} (HTTP {status})"), retry_after },
        (500.., _) => ModelError::Failed { status: Some(status), message },
        _ => ModelError::Rejected { status: Some(status), message },
    }
}

/// Whether a provider's filter withheld the answer; Anthropic says it in words alone.
fn is_filtered(message: &str, code: &str) -> bool {
    ["content_filter", "content_policy"].iter().any(|it| code.contains(it))
        || message.to_lowercase().contains("content filtering policy")
}

/// What a provider says about an error.
#[derive(Debug, Default)]
struct Words {
    message: String,
    /// Its code, its type and its reasons, in lower case.
    code: String,
    status: Option<u16>,
    /// How long it asks to wait.
    retry_after: Option<Duration>,
}

impl Words {
    fn of_body(body: &[u8]) -> Self {
        let found = serde_json::from_slice::<Value>(body).ok().and_then(|it| Self::of_value(&it));
        let mut words = found.unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body);
            let text = if text.trim_start().starts_with('<') { without_tags(&text) } else { text.into_owned() };
            Self { message: sentence(&text), ..Self::default() }
        });
        if words.message.is_empty() {
            words.message = NO_REASON.into();
        }
        words
    }

    fn of_value(value: &Value) -> Option<Self> {
        let object = match value {
            Value::String(text) => return Some(Self { message: sentence(text), ..Self::default() }),
            Value::Array(items) => return items.first().and_then(Self::of_value),
            Value::Object(object) => object,
            Value::Null | Value::Bool(_) | Value::Number(_) => return None,
        };
        if let Some(inner) = object.get("error").filter(|it| it.is_object() || it.is_string()) {
            return Self::of_value(inner);
        }
        if let Some(status) = status_in(value) {
            let message = sentence(status.get("status_msg").and_then(Value::as_str).unwrap_or_default());
            return Some(Self { message, ..Self::default() });
        }
        let text = |key: &str| match object.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let mut message = WORDS.into_iter().find_map(text).unwrap_or_else(|| {
            let whole = value.to_string();
            if whole == "{}" { String::new() } else { whole }
        });
        // A gateway's own words are few; those of the provider behind it are in its metadata.
        if let Some(raw) = object.get("metadata").and_then(|it| it.get("raw")).and_then(Value::as_str) {
            message = format!("{message}: {raw}");
        }
        let code = [text("code"), text("type"), text("status")].into_iter().flatten().collect::<Vec<_>>();
        let status = code.iter().filter_map(|it| it.parse().ok()).find(|it| (400..600).contains(it));
        // Google tells more in a list.
        let details = || object.get("details").and_then(Value::as_array).into_iter().flatten();
        let detail = |key: &'static str| details().filter_map(move |it| it.get(key)?.as_str());
        let retry_after = detail("retryDelay").find_map(seconds);
        let code = code.into_iter().chain(detail("reason").map(str::to_owned)).collect::<Vec<_>>();
        let (message, code) = (sentence(&message), code.join(" ").to_lowercase());
        Some(Self { message, code, status, retry_after })
    }
}

/// A time such as `17s` or `0.5s`.
fn seconds(text: &str) -> Option<Duration> {
    let number: f64 = text.trim().strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(number).ok()
}

/// A provider's words on one line, without the final period: something may follow them.
fn sentence(text: &str) -> String {
    let line = shorten(text, MAX_ERROR_CHARS);
    match line.strip_suffix('.') {
        Some(rest) if !rest.ends_with('.') => rest.to_owned(),
        _ => line,
    }
}

/// One line of at most `limit` characters.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// The words of an HTML page: its title when it has one.
fn without_tags(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|from| {
        let from = from + "<title>".len();
        page.get(from..from + lower.get(from..)?.find("</title>")?)
    });
    if let Some(title) = title.filter(|it| !it.trim().is_empty()) {
        return format!("an HTML page, '{}'", title.trim());
    }
    let mut text = String::from("an HTML page: ");
    let mut in_tag = false;
    for it in page.chars() {
        match it {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                text.push(' ');
            }
            _ if !in_tag => text.push(it),
            _ => (),
        }
    }
    text
}

/// Takes secrets out of an error's text.
pub(crate) fn masked(mut error: ModelError, mask: &SecretMask) -> ModelError {
    match &mut error {
        ModelError::Auth(text)
        | ModelError::ContextLength(text)
        | ModelError::ContentFilter(text)
        | ModelError::Timeout(text)
        | ModelError::Stalled(text)
        | ModelError::Incomplete(text)
        | ModelError::Protocol(text)
        | ModelError::Unsupported(text)
        | ModelError::Config(text)
        | ModelError::RateLimited { message: text, .. }
        | ModelError::Overloaded { message: text, .. }
        | ModelError::Rejected { message: text, .. }
        | ModelError::Failed { message: text, .. }
        | ModelError::Transport { message: text, .. } => {
            mask.mask(text);
        }
        _ => (),
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(status: u16, body: &str, expected: &str) {
        let failure = of_status(status, &HeaderMap::new(), body.as_bytes());
        assert_eq!(format!("{:?}", failure.error), expected, "{status} {body}");
    }

    #[test]
    fn statuses_and_bodies_tell_the_kind() {
        let openai = r#"{"error":{"message":"bad key","type":"invalid_request_error","code":"invalid_api_key"}}"#;
        check(401, openai, r#"Auth("bad key (HTTP 401)")"#);
        check(403, "nope", r#"Auth("nope (HTTP 403)")"#);
        check(402, r#"{"message":"pay"}"#, r#"Rejected { status: Some(402), message: "pay" }"#);
        check(404, r#"{"detail":"Not Found"}"#, r#"Rejected { status: Some(404), message: "Not Found" }"#);
        check(408, "", r#"Rejected { status: Some(408), message: "it gave no reason" }"#);
        check(429, r#"{"error":"slow"}"#, r#"RateLimited { message: "slow", retry_after: None }"#);
        check(500, r#"[{"error":{"message":"boom"}}]"#, r#"Failed { status: Some(500), message: "boom" }"#);
        let page = "<html><head><TITLE>502 Bad Gateway</TITLE></head><body>x</body></html>";
        check(502, page, r#"Failed { status: Some(502), message: "an HTML page, '502 Bad Gateway'" }"#);
        check(529, "{}", r#"Overloaded { message: "it gave no reason (HTTP 529)", retry_after: None }"#);
        check(
            400,
            r#"{"error":{"message":"too big","code":"context_length_exceeded"}}"#,
            r#"ContextLength("too big")"#,
        );
        check(
            400,
            r#"{"error":{"message":"no","code":400,"metadata":{"raw":"This model's maximum context is 8192"}}}"#,
            r#"ContextLength("no: This model's maximum context is 8192")"#,
        );
        check(400, r#"{"error":{"message":"no","code":"content_filter"}}"#, r#"ContentFilter("no")"#);
        check(
            400,
            r#"{"message":"'max_tokens' or 'max_completion_tokens' is too large: 16384. The maximum context length is 8192"}"#,
            "Rejected { status: Some(400), message: \"'max_tokens' or 'max_completion_tokens' is too large: 16384. \
             The maximum context length is 8192; a lower max_tokens mends that\" }",
        );
        let words = "Output blocked by content filtering policy";
        let anthropic = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
        check(400, &anthropic.to_string(), &format!("ContentFilter({words:?})"));
    }

    #[test]
    fn googles_details_are_read() {
        let of = |code: u16, status: &str, message: &str, details: Value| {
            json!({"error": {"code": code, "message": message, "status": status, "details": details}}).to_string()
        };
        let wait = json!([{"@type": "type.googleapis.com/google.rpc.Help", "links": []},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}]);
        check(
            429,
            &of(429, "RESOURCE_EXHAUSTED", "quota: input_token_count, limit: 5", wait.clone()),
            r#"RateLimited { message: "quota: input_token_count, limit: 5", retry_after: Some(17.5s) }"#,
        );
        check(
            503,
            &of(503, "UNAVAILABLE", "busy", json!([{"retryDelay": "soon"}, 7])),
            r#"Overloaded { message: "busy (HTTP 503)", retry_after: None }"#,
        );
        let refused = "API key not valid. Please pass a valid API key.";
        let expected = r#"Auth("API key not valid. Please pass a valid API key (HTTP 400)")"#;
        check(400, &of(400, "INVALID_ARGUMENT", refused, Value::Null), expected);
        let reason = json!([{"reason": "API_KEY_INVALID"}]);
        check(400, &of(400, "INVALID_ARGUMENT", "API key expired", reason), r#"Auth("API key expired (HTTP 400)")"#);
        let long = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
        check(
            400,
            &of(400, "INVALID_ARGUMENT", long, Value::Null),
            &format!("ContextLength({:?})", long.trim_end_matches('.')),
        );
        check(
            400,
            &of(400, "INVALID_ARGUMENT", "no such field", Value::Null),
            r#"Rejected { status: Some(400), message: "no such field" }"#,
        );
        // The header counts more, and events are read in the same way.
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        let body = of(429, "RESOURCE_EXHAUSTED", "slow", wait.clone());
        assert_eq!(of_status(429, &headers, body.as_bytes()).retry_after, Some(Duration::from_secs(3)));
        let event = of_event(&json!({"message": "token limit", "status": "RESOURCE_EXHAUSTED", "details": wait}));
        let expected = r#"RateLimited { message: "token limit", retry_after: Some(17.5s) }"#;
        assert_eq!(format!("{event:?}"), expected);
    }

    #[test]
    fn error_events_tell_the_kind() {
        let kind =
            |value: Value| format!("{:?}", of_event(&value)).split(['(', ' ']).next().unwrap_or_default().to_owned();
        assert_eq!(kind(json!({"message": "x", "code": 429})), "RateLimited");
        assert_eq!(kind(json!({"message": "x", "code": "529"})), "Overloaded");
        assert_eq!(kind(json!({"message": "x", "type": "rate_limit_error"})), "RateLimited");
        assert_eq!(kind(json!({"message": "token limit of this minute", "type": "rate_limit_error"})), "RateLimited");
        assert_eq!(kind(json!({"message": "x", "type": "request_too_large"})), "ContextLength");
        assert_eq!(kind(json!({"message": "x", "type": "billing_error"})), "Rejected");
        assert_eq!(kind(json!({"message": "x", "type": "overloaded_error"})), "Overloaded");
        assert_eq!(kind(json!({"message": "x", "code": "invalid_api_key"})), "Auth");
        assert_eq!(kind(json!({"message": "x", "code": "context_length_exceeded"})), "ContextLength");
        assert_eq!(kind(json!({"message": "x", "type": "invalid_request_error"})), "Rejected");
        assert_eq!(kind(json!({"message": "x", "code": "slow_down"})), "Overloaded");
        assert_eq!(kind(json!({"message": "x", "code": "invalid_prompt"})), "Rejected");
        assert_eq!(kind(json!({"message": "x", "code": "image_too_large"})), "Rejected");
        assert_eq!(kind(json!({"message": "x", "code": "image_content_policy_violation"})), "ContentFilter");
        assert_eq!(kind(json!({"message": "x", "type": "server_error"})), "Failed");
        assert_eq!(kind(json!("broken")), "Failed");
        assert_eq!(kind(json!(7)), "Failed");
    }

    #[test]
    fn bodies_with_a_good_status_tell_errors_in_every_form() {
        let check = |body: &str, expected: Option<&str>| {
            let found = of_body(body.as_bytes()).map(|it| format!("{it:?}"));
            assert_eq!(found.as_deref(), expected, "{body}");
        };
        let failed = |message: &str| format!("Failed {{ status: None, message: {message:?} }}");
        check(
            r#"{"error":{"message":"slow.","code":429}}"#,
            Some("RateLimited { message: \"slow\", retry_after: None }"),
        );
        check(r#"{"error":"boom"}"#, Some(&failed("boom")));
        check(r#"{"error":{}}"#, Some(&failed("it gave no reason")));
        check(
            r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#,
            Some("Rejected { status: Some(400), message: \"bad\" }"),
        );
        check(r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#, Some(&failed("x")));
        check(r#"{"code":1234,"msg":"no such model","success":false}"#, Some(&failed("no such model")));
        check(r#"{"detail":"gone"}"#, Some(&failed("gone")));
        check(r#"{"base_resp":{"status_code":1004,"status_msg":"login fail"}}"#, Some(&failed("login fail")));
        check(r#"[{"error":{"code":400,"message":"x"}}]"#, Some("Rejected { status: Some(400), message: \"x\" }"));
        for none in [
            "",
            "<html>",
            "7",
            "[]",
            "{}",
            r#"{"error":null}"#,
            r#"{"error":""}"#,
            r#"{"choices":[],"message":"x"}"#,
            r#"{"base_resp":{"status_code":0,"status_msg":""}}"#,
        ] {
            check(none, None);
        }
    }

    #[test]
    fn what_neither_a_wait_nor_another_try_changes_is_not_retried() {
        let quota = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        check(429, quota, r#"Rejected { status: Some(429), message: "You exceeded your current quota" }"#);
        let event = of_event(&json!({"message": "no credit", "code": "insufficient_quota"}));
        assert_eq!(format!("{event:?}"), r#"Rejected { status: None, message: "no credit" }"#);
        check(413, "", r#"ContextLength("it gave no reason (HTTP 413)")"#);
        check(
            400,
            r#"{"message":"max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for x"}"#,
            "Rejected { status: Some(400), message: \"max_tokens: 16384 > 8192, which is the maximum allowed number of \
             output tokens for x; a lower max_tokens mends that\" }",
        );
    }

    #[test]
    fn long_words_are_cut() {
        let body = "x ".repeat(5000);
        let ModelError::Rejected { message, .. } = of_status(400, &HeaderMap::new(), body.as_bytes()).error else {
            panic!()
        };
        assert_eq!(message.chars().count(), MAX_ERROR_CHARS + 1);
    }
}
