//! `web.fetch`: one document of the web.

use std::{collections::BTreeMap, error::Error as _, time::Duration};

use bub_kernel::{text::human_size, tool::prelude::*};
use reqwest::{
    Response, StatusCode,
    header::{self, HeaderMap},
};
use serde_json::Value;
use url::Url;

use super::{
    RenderHtml, WebSettings,
    body::{self, ContentType, Promise},
    clients::{ClientError, Clients},
    guard::{Reach, Refused},
    headers, markdown,
};

/// Seconds that a fetch may take unless the caller says otherwise.
const DEFAULT_SECONDS: i64 = 10;
/// Seconds that a caller may ask for at most.
const MAX_SECONDS: i64 = 3_600;
/// Redirects that are followed at most.
const MAX_REDIRECTS: usize = 10;
/// Bytes of the body that are read when the status says that the fetch failed.
const MAX_ERROR_BYTES: u64 = 64 * 1024;
/// Bytes of that body's text that the error shows.
const MAX_ERROR_TEXT: usize = 2 * 1024;
/// How long the body of a failure is waited for; its status is known by then.
const MAX_ERROR_WAIT: Duration = Duration::from_secs(2);

/// Make an HTTP GET request for one URL and return the document. Pages of HTML are shown as Markdown.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct FetchArgs {
    /// Absolute http or https URL.
    url: String,
    /// Request headers; they replace the default `Accept: text/markdown`.
    #[serde(default)]
    headers: Option<BTreeMap<String, Value>>,
    /// Seconds that the whole request may take.
    #[serde(default = "default_timeout")]
    timeout: Option<i64>,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional argument")]
fn default_timeout() -> Option<i64> {
    Some(DEFAULT_SECONDS)
}

/// A document of the web.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct WebFetchResult {
    /// Where it came from, after all redirects.
    pub url: String,
    /// HTTP status.
    pub status: u16,
    /// Its type without parameters.
    pub content_type: String,
    /// Its text.
    pub content: String,
    /// What is read instead of HTML.
    #[serde(skip)]
    markdown: Option<String>,
}

/// Fetches one document by HTTP.
///
/// Names and addresses of each hop are checked against `web.private_addresses`. Headers given by the
/// caller go to the first host alone, but for harmless ones. Dropping the call closes its connection.
#[derive(Debug, Default)]
pub struct WebFetch {
    settings: WebSettings,
    clients: Clients,
}

impl WebFetch {
    /// Makes the tool; no client is built before the first call.
    #[must_use]
    pub fn new(settings: WebSettings) -> Self {
        Self { settings, clients: Clients::default() }
    }
}

impl Tool for WebFetch {
    const NAME: &'static str = "web.fetch";
    type Args = FetchArgs;
    type Output = WebFetchResult;

    async fn call(&self, ctx: &ToolContext, args: FetchArgs) -> Result<WebFetchResult, ToolError> {
        let url = parse_url(&args.url)?;
        let limit = parse_timeout(args.timeout)?;
        let headers = headers::request(&args.headers.unwrap_or_default())?;
        let reach = self.settings.private_addresses.reach(ctx.state.local, ctx.caller);
        let work = async {
            let (url, response) = self.get(url.clone(), headers, reach).await?;
            self.read(url, response, limit).await
        };
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs();
            let s = if seconds == 1 { "" } else { "s" };
            Err(ToolError::raised("TimeoutError", format!("timed out after {seconds} second{s}: {url}")))
        })
    }

    fn render(&self, output: &WebFetchResult) -> Option<String> {
        Some(output.markdown.as_ref().unwrap_or(&output.content).clone())
    }
}

impl WebFetch {
    /// Sends the request and follows redirects; returns the last answer's head, and its URL.
    async fn get(&self, mut url: Url, mut headers: HeaderMap, reach: Reach) -> Result<(Url, Response), ToolError> {
        for _ in 0..=MAX_REDIRECTS {
            let (client, is_proxied) = self.clients.get(&url, reach).await.map_err(|err| match err {
                ClientError::Refused(refused) => not_permitted(&refused),
                ClientError::Build(err) => not_fetched(&url, &err, false),
            })?;
            let sent = client.get(url.clone()).headers(headers.clone()).send().await;
            let response = sent.map_err(|err| not_fetched(&url, &err, is_proxied))?;
            let Some(next) = redirect(&url, &response)? else { return Ok((url, response)) };
            if next.origin() != url.origin() {
                headers = headers::for_other_host(&headers);
            }
            url = next;
        }
        Err(ToolError::raised("TooManyRedirects", format!("more than {MAX_REDIRECTS} redirects, the last to {url}")))
    }

    /// Reads the body that follows the head.
    async fn read(&self, url: Url, mut response: Response, limit: Duration) -> Result<WebFetchResult, ToolError> {
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = ContentType::parse(&content_type.map_or_else(String::new, |it| latin1(it.as_bytes())));
        if status.is_client_error() || status.is_server_error() {
            return Err(self.status_error(&url, response, &content_type, limit).await);
        }
        // What could be decompressed has lost this header.
        let coding = response.headers().get(header::CONTENT_ENCODING).map(|it| latin1(it.as_bytes()));
        if let Some(coding) = coding.filter(|it| !it.eq_ignore_ascii_case("identity") && !it.is_empty()) {
            return Err(ToolError::raised("ValueError", format!("{url} came with an unknown compression: {coding}")));
        }
        let stated = response.content_length();
        if content_type.promise() == Promise::Data {
            return Err(no_text(&url, content_type.name(), stated, true));
        }
        let max = self.settings.max_bytes;
        let mut bytes = Vec::new();
        let is_whole = stated.is_none_or(|it| it <= max)
            && collect(&mut response, max, &mut bytes)
                .await
                .map_err(|err| broken_off(&url, bytes_len(&bytes), &err))?;
        if let Some(data) = body::data_type(&content_type, &bytes) {
            let size = if is_whole { Some(bytes_len(&bytes)) } else { stated };
            return Err(no_text(&url, &data, size.or(Some(max)), size.is_some()));
        }
        if !is_whole {
            let has = stated.map_or_else(String::new, |it| format!("it has {}, ", human_size(it)));
            return Err(ToolError::raised(
                "ValueError",
                format!("{url} is too large: {has}the limit is {} (setting `web.max_bytes`)", human_size(max)),
            ));
        }
        let content = body::decode(&content_type, &bytes);
        drop(bytes);
        let markdown = self.markdown(&content_type, &content).await;
        Ok(WebFetchResult {
            url: url.into(),
            status: status.as_u16(),
            content_type: content_type.name().to_owned(),
            content,
            markdown,
        })
    }

    async fn markdown(&self, content_type: &ContentType, content: &str) -> Option<String> {
        if self.settings.render_html == RenderHtml::Raw || !content_type.is_html() {
            return None;
        }
        markdown::from_html(content).await
    }

    /// The error of a status that says so, with the start of what the server has to say about it.
    async fn status_error(
        &self,
        url: &Url,
        mut response: Response,
        content_type: &ContentType,
        limit: Duration,
    ) -> ToolError {
        let status = response.status();
        let mut bytes = Vec::new();
        let wait = MAX_ERROR_WAIT.min(limit / 2);
        // The status alone is worth telling, so a body that breaks off or drips is shown as far as it came.
        drop(tokio::time::timeout(wait, collect(&mut response, MAX_ERROR_BYTES, &mut bytes)).await);
        let text = match body::data_type(content_type, &bytes) {
            Some(data) => format!("({data}, not text)"),
            None => {
                let content = body::decode(content_type, &bytes);
                self.markdown(content_type, &content).await.filter(|it| !it.trim().is_empty()).unwrap_or(content)
            }
        };
        let text = text.trim();
        let shown = text.get(..text.floor_char_boundary(MAX_ERROR_TEXT)).unwrap_or_default();
        let more = if shown.len() < text.len() { "..." } else { "" };
        let body = if shown.is_empty() { "(empty body)".into() } else { format!("{shown}{more}") };
        ToolError::raised("HTTPError", format!("HTTP {} from {url}: {body}", status_text(status)))
    }
}

fn parse_url(text: &str) -> Result<Url, ToolError> {
    let url = Url::parse(text.trim()).map_err(|err| {
        let hint = match err {
            url::ParseError::RelativeUrlWithoutBase => "; it has to begin with http:// or https://",
            _ => "",
        };
        ToolError::invalid(format!("'{}' is no absolute URL: {err}{hint}", text.escape_debug()))
    })?;
    check_scheme(&url)?;
    Ok(url)
}

fn check_scheme(url: &Url) -> Result<(), ToolError> {
    if matches!(url.scheme(), "http" | "https") {
        return Ok(());
    }
    // What a host with a port looks like when the scheme was left out.
    let is_host = url.cannot_be_a_base() && url.path().starts_with(|it: char| it.is_ascii_digit());
    let hint = if is_host { "; put http:// or https:// in front of the host" } else { "" };
    Err(ToolError::invalid(format!("only http and https URLs can be fetched, not {}:{hint}", url.scheme())))
}

fn parse_timeout(seconds: Option<i64>) -> Result<Duration, ToolError> {
    let seconds = match seconds {
        None | Some(0) => DEFAULT_SECONDS,
        Some(seconds) => seconds,
    };
    match u64::try_from(seconds) {
        Ok(valid) if seconds <= MAX_SECONDS => Ok(Duration::from_secs(valid)),
        Ok(_) => Err(ToolError::invalid(format!("timeout must be at most {MAX_SECONDS} seconds, but is {seconds}"))),
        Err(_) => Err(ToolError::invalid(format!("timeout must not be negative, but is {seconds}"))),
    }
}

/// Where an answer sends the request on to.
fn redirect(url: &Url, response: &Response) -> Result<Option<Url>, ToolError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let next = url.join(&location).map_err(|err| {
        let location = location.escape_debug().to_string();
        ToolError::raised("ValueError", format!("{url} redirects to '{}': {err}", start_of(&location)))
    })?;
    check_scheme(&next)?;
    Ok(Some(next))
}

/// Appends the body to `bytes`; `false` when it has more than `max`, and the rest is not read.
async fn collect(response: &mut Response, max: u64, bytes: &mut Vec<u8>) -> reqwest::Result<bool> {
    while let Some(chunk) = response.chunk().await? {
        let room = usize::try_from(max - bytes_len(bytes)).unwrap_or(usize::MAX);
        if chunk.len() > room {
            bytes.extend_from_slice(chunk.get(..room).unwrap_or_default());
            return Ok(false);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(true)
}

fn bytes_len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// Header bytes as text, each for itself, so that nothing of a strange header is lost.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|it| char::from(*it)).collect()
}

/// The first part of a text of the server that an error repeats.
fn start_of(text: &str) -> &str {
    text.get(..text.floor_char_boundary(200)).unwrap_or_default()
}

fn status_text(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn no_text(url: &Url, data: &str, size: Option<u64>, is_exact: bool) -> ToolError {
    let size = match size {
        Some(size) if is_exact => human_size(size),
        Some(size) => format!("more than {}", human_size(size)),
        None => "of unknown size".into(),
    };
    ToolError::raised("ValueError", format!("{url} is not text but {} ({size})", start_of(data)))
}

fn not_permitted(refused: &Refused) -> ToolError {
    ToolError::raised("PermissionError", refused.to_string())
}

fn not_fetched(url: &Url, err: &reqwest::Error, is_proxied: bool) -> ToolError {
    let mut cause = err.source();
    let mut last = None;
    while let Some(err) = cause {
        if let Some(refused) = err.downcast_ref::<Refused>() {
            return not_permitted(refused);
        }
        last = Some(err);
        cause = err.source();
    }
    let why = last.map_or_else(|| err.to_string(), ToString::to_string);
    // Said by the library about an answer in plain text.
    let scheme = if why.contains("InvalidContentType") { "; the server seems to speak http, not https" } else { "" };
    let proxy = if is_proxied && err.is_connect() {
        "; if HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is set, that proxy was used"
    } else {
        ""
    };
    ToolError::raised("ConnectionError", format!("could not fetch {url}: {why}{scheme}{proxy}"))
}

fn broken_off(url: &Url, n_bytes: u64, err: &reqwest::Error) -> ToolError {
    let mut last: &dyn std::error::Error = err;
    while let Some(cause) = last.source() {
        last = cause;
    }
    ToolError::raised("ConnectionError", format!("{url} broke off after {}: {last}", human_size(n_bytes)))
}
