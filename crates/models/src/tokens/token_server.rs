//! Servers that hand out tokens: one question, one bounded reply, of which nothing is repeated.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Url, redirect::Policy};
use serde_json::Value;

/// How long such a server may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest reply, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// What is sent to such a server.
pub(crate) enum Body {
    Json(Value),
    Form(Vec<(&'static str, String)>),
}

/// What it said.
pub(crate) struct TokenReply {
    pub(crate) status: u16,
    /// `null` when it is no JSON.
    pub(crate) body: Value,
}

/// The client for one of them.
pub(crate) struct TokenServer(Client);

impl TokenReply {
    /// A text field, if it is there and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name)?.as_str().filter(|it| !it.trim().is_empty())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What a refusal may be told as: the status, and the error's code if it is a plain word.
    pub(crate) fn refusal(&self) -> String {
        let code = self
            .text("error")
            .filter(|it| it.len() <= MAX_CODE && it.bytes().all(|it| it.is_ascii_lowercase() || it == b'_'));
        match code {
            Some(code) => format!("HTTP {} ({code})", self.status),
            None => format!("HTTP {}", self.status),
        }
    }
}

/// The longest error code that is repeated. Those of the standard are shorter, tokens longer.
const MAX_CODE: usize = 32;

impl TokenServer {
    /// For the server of that address.
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn of(url: &str) -> Result<Self, String> {
        // A redirect would carry a secret to another place.
        let mut client = Client::builder().redirect(Policy::none()).timeout(PATIENCE);
        client = client.user_agent(concat!("bub/", env!("CARGO_PKG_VERSION")));
        if Url::parse(url).is_ok_and(|it| crate::http::is_loopback(&it)) {
            client = client.no_proxy();
        }
        client.build().map(Self).map_err(|err| crate::http::deepest(&err))
    }

    /// # Errors
    /// A sentence for people; it holds nothing that was sent or received.
    pub(crate) async fn post(&self, url: &str, body: &Body) -> Result<TokenReply, String> {
        let request = self.0.post(url).header("accept", "application/json");
        let request = match body {
            Body::Json(value) => request.json(value),
            Body::Form(fields) => {
                let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
                request.header("content-type", "application/x-www-form-urlencoded").body(text)
            }
        };
        ask(url, request).await
    }

    /// # Errors
    /// As [`Self::post`].
    pub(crate) async fn get(&self, url: &str, headers: &[(&'static str, String)]) -> Result<TokenReply, String> {
        let mut request = self.0.get(url).header("accept", "application/json");
        for (name, value) in headers {
            let value = reqwest::header::HeaderValue::try_from(value.as_str());
            let mut value = value.map_err(|_| "the token has a character that no token has".to_owned())?;
            value.set_sensitive(true);
            request = request.header(*name, value);
        }
        ask(url, request).await
    }
}

async fn ask(url: &str, request: RequestBuilder) -> Result<TokenReply, String> {
    let host = Url::parse(url).ok().and_then(|it| it.host_str().map(str::to_owned)).unwrap_or_default();
    let told = |err: reqwest::Error| format!("{host}: {}", crate::http::deepest(&err.without_url()));
    let mut response = request.send().await.map_err(told)?;
    let status = response.status().as_u16();
    let mut bytes = Vec::new();
    while let Some(more) = response.chunk().await.map_err(told)? {
        if bytes.len().saturating_add(more.len()) > MAX_BYTES {
            return Err(format!("{host}: the reply is too large"));
        }
        bytes.extend_from_slice(&more);
    }
    Ok(TokenReply { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_repeat_no_more_than_a_code() {
        let check = |body: Value, expected: &str| {
            assert_eq!(TokenReply { status: 400, body }.refusal(), expected);
        };
        check(json!({"error": "invalid_grant", "error_description": "token tok-1 is old"}), "HTTP 400 (invalid_grant)");
        check(json!({"error": "sk-or-v1-0123"}), "HTTP 400");
        check(json!({"error": {"message": "no"}}), "HTTP 400");
        check(json!({"error": "abcdefghijklmnopqrstuvwxyzabcdefghi"}), "HTTP 400");
        check(Value::Null, "HTTP 400");
    }
}
