//! One try: a request to a chat endpoint, and the head of its reply.

use std::{error::Error, sync::OnceLock, time::Duration};

use bub_kernel::model::ModelError;
use bytes::Bytes;
use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT},
    redirect::{Action, Attempt, Policy},
};

use crate::{
    decode::{self, MAX_REPLY_BYTES},
    errors::{self, Failure},
    kind::ProviderKind,
    provider::{ProviderConfig, Timeouts},
};

/// Ends of URLs that name an endpoint already; the base is what stands before.
const ENDPOINTS: [&str; 5] = ["/chat/completions", "/responses", "/messages", "/embeddings", "/models"];

/// How many redirects within one host are followed.
const MAX_REDIRECTS: usize = 5;

/// How much of an error's body is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How long reading an error's body may take.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// The server of one provider. Its client is made at the first request and then kept, so that
/// connections are used again.
#[derive(Debug)]
pub(crate) struct Http {
    base: Url,
    /// What the base's path may end with although paths below it begin with it too.
    overlaps: Vec<&'static str>,
    headers: HeaderMap,
    pub(crate) timeouts: Timeouts,
    client: OnceLock<Result<Client, String>>,
}

impl Http {
    /// Checks what was configured; the error is meant for people.
    pub(crate) fn new(config: &ProviderConfig) -> Result<Self, String> {
        let base = config.api_base.as_deref().filter(|it| !it.trim().is_empty()).or(config.kind.default_base());
        let Some(base) = base else {
            let example = match config.kind {
                ProviderKind::AzureOpenAi => "https://RESOURCE.openai.azure.com",
                _ => "http://localhost:8000/v1",
            };
            return Err(format!("provider '{}' needs an api_base, such as {example}", config.name));
        };
        let base = base_url(base, config.kind.default_path()).map_err(|err| {
            // The base itself is not repeated: it may hold a password.
            format!("the api_base of provider '{}' {err}", config.name)
        })?;
        Ok(Self {
            base,
            overlaps: config.kind.overlaps(),
            headers: headers(config)?,
            timeouts: config.timeouts,
            client: OnceLock::new(),
        })
    }

    /// The host with its port, for people.
    pub(crate) fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// A password inside the base URL, which must not be told.
    pub(crate) fn password(&self) -> Option<&str> {
        self.base.password()
    }

    /// Posts JSON to an endpoint, by its path below the base; the reply has a good status. `more` are
    /// headers of this one request, and `base` is where it goes if not to the usual base.
    pub(crate) async fn post(
        &self,
        path: &str,
        more: &HeaderMap,
        base: Option<&Url>,
        body: Bytes,
    ) -> Result<Response, Failure> {
        self.send(Method::POST, path, more, base, body).await
    }

    /// Asks for what is at a path, which may have a query.
    pub(crate) async fn get(&self, path: &str, more: &HeaderMap, base: Option<&Url>) -> Result<Response, Failure> {
        self.send(Method::GET, path, more, base, Bytes::new()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        more: &HeaderMap,
        base: Option<&Url>,
        body: Bytes,
    ) -> Result<Response, Failure> {
        let base = base.unwrap_or(&self.base);
        let mut url = base.clone();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        url.set_path(&joined(base.path(), path, &self.overlaps));
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            url.query_pairs_mut().append_pair(&key, &value);
        }
        let client = self.client.get_or_init(|| self.build()).as_ref().map_err(|err| {
            Failure::from(ModelError::Config(format!("cannot set up the client for {}: {err}", self.host())))
        })?;
        let request = client.request(method, url).headers(self.headers.clone()).headers(more.clone()).body(body);
        let response = match tokio::time::timeout(self.timeouts.first_byte, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(err)) => return Err(self.unreachable(err).into()),
            Err(_) => {
                let text = format!("{} sent nothing for {:?}", self.host(), self.timeouts.first_byte);
                return Err(ModelError::Timeout(text).into());
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            return Err(self.redirected(&response).into());
        }
        let headers = response.headers().clone();
        let body = error_body(response).await;
        Err(errors::of_status(status.as_u16(), &headers, &body))
    }

    /// The whole body of a reply, within the limits of an answer.
    pub(crate) async fn whole(&self, mut response: Response) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        loop {
            match tokio::time::timeout(self.timeouts.between, response.chunk()).await {
                Ok(Ok(Some(bytes))) if body.len().saturating_add(bytes.len()) > MAX_REPLY_BYTES => {
                    return Err(decode::too_large());
                }
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None)) => return Ok(body),
                Ok(Err(err)) => {
                    let message = format!("the connection to {} broke: {}", self.host(), deepest(&err));
                    return Err(ModelError::Transport { message, source: Some(err.without_url().into()) });
                }
                Err(_) => {
                    let text = format!("{} sent nothing for {:?}", self.host(), self.timeouts.between);
                    return Err(ModelError::Stalled(text));
                }
            }
        }
    }

    fn build(&self) -> Result<Client, String> {
        let mut builder = Client::builder().connect_timeout(self.timeouts.connect).redirect(Policy::custom(redirect));
        if is_loopback(&self.base) {
            builder = builder.no_proxy();
            if self.base.scheme() == "http" {
                // Reading the system's certificates takes longer than everything else at the start.
                builder = builder.tls_certs_only(std::iter::empty());
            }
        }
        builder.build().map_err(|err| deepest(&err))
    }

    fn unreachable(&self, err: reqwest::Error) -> ModelError {
        let host = self.host();
        let hint = if !err.is_connect() && !err.is_timeout() {
            ""
        } else if is_loopback(&self.base) {
            "; see that the server runs and that its api_base is right"
        } else {
            "; check api_base, the network, and the proxy variables (HTTPS_PROXY, ALL_PROXY, NO_PROXY)"
        };
        if err.is_timeout() {
            return ModelError::Timeout(format!("no connection to {host} within {:?}{hint}", self.timeouts.connect));
        }
        let message = format!("{host}: {}{hint}", deepest(&err));
        ModelError::Transport { message, source: Some(err.without_url().into()) }
    }

    fn redirected(&self, response: &Response) -> ModelError {
        let location = response.headers().get(LOCATION).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let target = response.url().join(location).ok();
        let target = target.as_ref().and_then(Url::host_str).unwrap_or("nowhere");
        ModelError::Rejected {
            status: Some(response.status().as_u16()),
            message: format!(
                "{} redirects to {target}, where neither the key nor the conversation is sent; if that is the right \
                 place, set api_base to it",
                self.host()
            ),
        }
    }
}

/// Follows a redirect that keeps the method and stays at its origin; others end as they are.
fn redirect(attempt: Attempt<'_>) -> Action {
    let keeps_method = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    if keeps_method && stays && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

/// The base URL of a server: without a slash at the end, and without an endpoint that it already names.
pub(crate) fn base_url(base: &str, default_path: &str) -> Result<Url, String> {
    let bad = "must be a URL that starts with http:// or https://";
    let mut url = Url::parse(base.trim()).map_err(|err| format!("{bad}: {err}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(bad.into());
    }
    let path = url.path().trim_end_matches('/');
    let path = ENDPOINTS.iter().find_map(|it| path.strip_suffix(it)).unwrap_or(path);
    let path = if path.is_empty() { default_path } else { path }.to_owned();
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}

/// The path of a base with one below it. If the latter begins with one of `overlaps`, one that the
/// base ends with already gives way.
fn joined(base: &str, path: &str, overlaps: &[&str]) -> String {
    let base = base.trim_end_matches('/');
    let brings = |start: &str| path.strip_prefix(start).is_some_and(|it| it.starts_with('/'));
    let known = if overlaps.iter().any(|it| brings(it)) { overlaps } else { &[] };
    let base = known.iter().find_map(|it| base.strip_suffix(it)).unwrap_or(base);
    format!("{base}{path}")
}

fn headers(config: &ProviderConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("bub/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in config.kind.more_headers() {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = config.key() {
        let told = config.key_source.as_ref().map(|it| format!(" (from {it})")).unwrap_or_default();
        let name = &config.name;
        let is_plain = key.bytes().all(|it| it.is_ascii_graphic());
        let header = config.kind.key_header();
        let text = if header.is_some() { key.to_owned() } else { format!("Bearer {key}") };
        let value = HeaderValue::try_from(text).ok().filter(|_| is_plain);
        let mut value = value.ok_or_else(|| {
            format!(
                "the API key of provider '{name}'{told} has a line break, a blank or another character that no key has"
            )
        })?;
        value.set_sensitive(true);
        headers.insert(header.map_or(AUTHORIZATION, HeaderName::from_static), value);
    }
    for (name, value) in &config.headers {
        let bad = |what: &str| {
            format!("the {what} of header '{}' of provider '{}' is invalid", name.escape_debug(), config.name)
        };
        let header = HeaderName::try_from(name.as_str()).map_err(|_| bad("name"))?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Whether the URL stays on this machine, where a proxy can only do harm.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback() || it.is_unspecified())
}

/// The start of an error's body, as far as it comes in time.
async fn error_body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            let room = MAX_ERROR_BYTES.saturating_sub(body.len());
            body.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
            if bytes.len() >= room {
                break;
            }
        }
    };
    // What came in time is enough to tell the error.
    drop(tokio::time::timeout(ERROR_BODY_WAIT, read).await);
    body
}

/// The cause at the bottom of an error: the only one that tells something new.
pub(crate) fn deepest(err: &(dyn Error + 'static)) -> String {
    let mut cause = err;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn base_urls_of_every_form_lead_to_the_endpoint() {
        let check = |base: &str, expected: &str| {
            assert_eq!(base_url(base, "/v1").unwrap().as_str(), expected, "{base}");
        };
        check("https://h/v1", "https://h/v1");
        check("https://h/v1/", "https://h/v1");
        check(" http://h:8000// ", "http://h:8000/v1");
        check("http://h", "http://h/v1");
        check("https://h/a/b/", "https://h/a/b");
        check("https://h/v1/chat/completions", "https://h/v1");
        check("https://h/v1/responses/", "https://h/v1");
        check("https://h/x?api-version=2#y", "https://h/x?api-version=2");
        assert_eq!(base_url("http://h/", "").unwrap().as_str(), "http://h/");
        for bad in ["", "h", "localhost:11434", "ftp://h", "http://", "file:///x"] {
            assert!(base_url(bad, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_base_ends_with_does_not_come_twice() {
        let check = |kind: ProviderKind, base: &str, wire: Wire, expected: &str| {
            let path = format!("{}{}", kind.wire_path(wire), wire.path("m"));
            assert_eq!(joined(base, &path, &kind.overlaps()), expected, "{kind} {base} {wire}");
        };
        for base in ["", "/", "/v1", "/v1/", "/anthropic", "/anthropic/v1"] {
            check(ProviderKind::MiniMax, base, Wire::Chat, "/v1/chat/completions");
            check(ProviderKind::MiniMax, base, Wire::Messages, "/anthropic/v1/messages");
            assert_eq!(
                joined(base, ProviderKind::MiniMax.list_path(), &ProviderKind::MiniMax.overlaps()),
                "/v1/models"
            );
        }
        for base in ["", "/v1", "/anthropic", "/anthropic/v1/"] {
            check(ProviderKind::DeepSeek, base, Wire::Messages, "/anthropic/v1/messages");
        }
        check(ProviderKind::DeepSeek, "/proxy/anthropic", Wire::Messages, "/proxy/anthropic/v1/messages");
        check(ProviderKind::DeepSeek, "/v1", Wire::Chat, "/v1/chat/completions");
        check(ProviderKind::GithubCopilot, "/v1", Wire::Messages, "/v1/messages");
        check(ProviderKind::GithubCopilot, "/v1", Wire::Chat, "/v1/chat/completions");
        check(ProviderKind::OpenAiCompatible, "/anthropic/v1", Wire::Chat, "/anthropic/v1/chat/completions");
        check(ProviderKind::Anthropic, "/v1", Wire::Messages, "/v1/messages");
        check(ProviderKind::MiniMax, "/myanthropic-v1", Wire::Chat, "/myanthropic-v1/v1/chat/completions");
    }

    #[test]
    fn loopback_is_known_in_every_form() {
        for (url, expected) in [
            ("http://localhost:1", true),
            ("http://a.localhost", true),
            ("http://127.0.0.9", true),
            ("http://[::1]:80", true),
            ("http://0.0.0.0:1", true),
            ("http://10.0.0.1", false),
            ("https://localhost.example.org", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
