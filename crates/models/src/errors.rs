//! What went wrong, from statuses and bodies.

use std::time::Duration;

use bub_kernel::{model::ModelError, secret::SecretMask};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::retry;

/// The most characters of a provider's words that an error repeats.
const MAX_ERROR_CHARS: usize = 600;

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
    let words = Words::of_value(error).unwrap_or_default();
    let has = |parts: &[&str]| parts.iter().any(|it| words.code.contains(it));
    if let Some(status) = words.status {
        let retry_after = words.retry_after;
        return classify(status, words, retry_after);
    }
    let message = words.message.clone();
    // What it says of limits may read like an overflow.
    if has(&["rate_limit", "too_many_requests", "quota", "resource_exhausted"]) {
        ModelError::RateLimited { message, retry_after: words.retry_after }
    } else if has(&["request_too_large"]) || is_context_overflow(&words.message) || is_context_overflow(&words.code) {
        ModelError::ContextLength(message)
    } else if has(&["overloaded", "capacity", "unavailable", "slow_down"]) {
        ModelError::Overloaded { message, retry_after: words.retry_after }
    } else if has(&["authentication", "unauthenticated", "api_key", "permission", "unauthorized"]) {
        ModelError::Auth(message)
    } else if is_filtered(&words.message, &words.code) {
        ModelError::ContentFilter(message)
    } else if has(&["invalid_", "not_found", "unsupported", "image_", "billing"]) {
        ModelError::Rejected { status: None, message }
    } else {
        ModelError::Failed { status: None, message }
    }
}

fn classify(status: u16, words: Words, retry_after: Option<Duration>) -> ModelError {
    let Words { message, code, .. } = words;
    match status {
        401 | 403 => ModelError::Auth(format!("{message} (HTTP {status})")),
        // Google's way to refuse a key.
        400 if code.contains("api_key_invalid") || message.contains("API key not valid") => {
            ModelError::Auth(format!("{message} (HTTP {status})"))
        }
        400 | 422 if is_answer_too_long(&message) => {
            let message = format!("{message}; a lower max_tokens mends that");
            ModelError::Rejected { status: Some(status), message }
        }
        400 | 413 | 422 if is_context_overflow(&message) || is_context_overflow(&code) => {
            ModelError::ContextLength(message)
        }
        413 if code.contains("request_too_large") => ModelError::ContextLength(message),
        400 if is_filtered(&message, &code) => ModelError::ContentFilter(message),
        429 => ModelError::RateLimited { message, retry_after },
        503 | 529 => ModelError::Overloaded { message: format!("{message} (HTTP {status})"), retry_after },
        500.. => ModelError::Failed { status: Some(status), message },
        _ => ModelError::Rejected { status: Some(status), message },
    }
}

/// Whether a provider's filter withheld the answer; Anthropic says it in words alone.
fn is_filtered(message: &str, code: &str) -> bool {
    ["content_filter", "content_policy"].iter().any(|it| code.contains(it))
        || message.to_lowercase().contains("content filtering policy")
}

/// Whether a provider's words say that more was asked for than an answer may have: the conversation is
/// not too long then, whatever else they say of the window.
fn is_answer_too_long(words: &str) -> bool {
    let words = words.to_lowercase();
    ["max_tokens", "max_completion_tokens", "max_output_tokens"].iter().any(|name| {
        let near = words.find(name).and_then(|at| words.get(at..)).unwrap_or_default();
        near.find("too large").is_some_and(|it| it <= 60)
    })
}

/// Whether a provider's words say that the conversation is too long for the model.
fn is_context_overflow(words: &str) -> bool {
    let words = words.to_lowercase();
    let near = |first: &str, gap: usize, then: &[&str]| {
        words.match_indices(first).any(|(at, _)| {
            let rest = words.get(at + first.len()..).unwrap_or_default();
            let line = rest.lines().next().unwrap_or_default();
            then.iter().any(|word| line.find(word).is_some_and(|it| chars(line, it) <= gap))
        })
    };
    near("context", 20, &["length", "window", "size", "limit"])
        || near("maximum", 20, &["context"])
        || near("exceeds the maximum", 1, &["number of tokens"])
        || near("token", 10, &["limit"])
        || near("prompt", 10, &["too long"])
        || near("input", 10, &["too long"])
        || is_over_token_maximum(&words)
}

/// How many characters the first `bytes` bytes of `text` are.
fn chars(text: &str, bytes: usize) -> usize {
    text.get(..bytes).unwrap_or_default().chars().count()
}

/// `… 210000 tokens > 200000 maximum`.
fn is_over_token_maximum(words: &str) -> bool {
    ["token > ", "tokens > "].iter().any(|first| {
        words.match_indices(first).any(|(at, _)| {
            let rest = words.get(at + first.len()..).unwrap_or_default();
            let after = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            after.len() < rest.len() && after.starts_with(" maximum")
        })
    })
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
            Self { message: shorten(&text, MAX_ERROR_CHARS), ..Self::default() }
        });
        if words.message.is_empty() {
            words.message = "it gave no reason".into();
        }
        words
    }

    fn of_value(value: &Value) -> Option<Self> {
        let object = match value {
            Value::String(text) => return Some(Self { message: shorten(text, MAX_ERROR_CHARS), ..Self::default() }),
            Value::Array(items) => return items.first().and_then(Self::of_value),
            Value::Object(object) => object,
            Value::Null | Value::Bool(_) | Value::Number(_) => return None,
        };
        if let Some(inner) = object.get("error").filter(|it| it.is_object() || it.is_string()) {
            return Self::of_value(inner);
        }
        let text = |key: &str| match object.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let mut message = text("message").or_else(|| text("detail")).or_else(|| text("msg")).unwrap_or_else(|| {
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
        let (message, code) = (shorten(&message, MAX_ERROR_CHARS), code.join(" ").to_lowercase());
        Some(Self { message, code, status, retry_after })
    }
}

/// A time such as `17s` or `0.5s`.
fn seconds(text: &str) -> Option<Duration> {
    let number: f64 = text.trim().strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(number).ok()
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
        let expected = format!("Auth({:?})", format!("{refused} (HTTP 400)"));
        check(400, &of(400, "INVALID_ARGUMENT", refused, Value::Null), &expected);
        let reason = json!([{"reason": "API_KEY_INVALID"}]);
        check(400, &of(400, "INVALID_ARGUMENT", "API key expired", reason), r#"Auth("API key expired (HTTP 400)")"#);
        let long = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
        check(400, &of(400, "INVALID_ARGUMENT", long, Value::Null), &format!("ContextLength({long:?})"));
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
    fn overflow_words_are_known() {
        for yes in [
            "This model's maximum context length is 8192 tokens",
            "context_length_exceeded",
            "the request exceeds the available context size",
            "input exceeds the context window",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000, decrease input length",
            "Input is too long for requested model",
            "Token limit reached",
        ] {
            assert!(is_context_overflow(yes), "{yes}");
        }
        for no in ["bad request", "context is king, whatever its great big length", "tokens > many maximum", ""] {
            assert!(!is_context_overflow(no), "{no}");
        }
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
