//! What can be configured, and the client that comes of it.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    model::{
        DecideRequest, Decisions, EmbedRequest, Embeddings, ModelClient, ModelError, ModelInfo, ModelProvider,
        ModelRequest, ModelStream,
    },
    secret::SecretMask,
};
use bytes::Bytes;
use reqwest::{Response, Url, header::HeaderMap};
use serde_json::{Map, Value};

use crate::{
    decide, embed,
    errors::{self, Failure},
    http::Http,
    kind::ProviderKind,
    list, media, options,
    retry::Retries,
    stream::{Answer, Plain},
    tokens::{self, Credentials, TokenSource},
    wire::{Asked, Wire},
};

/// How long a provider may be silent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// Until it is connected. 10 seconds unless set.
    pub connect: Duration,
    /// From sending the request to the head of the reply. 120 seconds unless set.
    pub first_byte: Duration,
    /// Between two pieces of the reply. 120 seconds unless set.
    pub between: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let patience = Duration::from_secs(120);
        Self { connect: Duration::from_secs(10), first_byte: patience, between: patience }
    }
}

/// One provider, as configured.
#[derive(Clone)]
pub struct ProviderConfig {
    /// The part before the colon of `provider:model`, lower case.
    pub name: String,
    /// What kind of server it is.
    pub kind: ProviderKind,
    /// Its key. Without one, requests carry no `Authorization`.
    pub api_key: Option<String>,
    /// What gives passing credentials; used when there is no key.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// Where the key comes from, for error texts: the name of a variable or setting.
    pub key_source: Option<String>,
    /// Its base URL, with or without a slash at the end; without one, the kind's own.
    pub api_base: Option<String>,
    /// The wire to speak; without one, see [`ProviderConfig::wire`].
    pub api_format: Option<Wire>,
    /// Laid over the body of each request; the request's own counts more.
    pub extra_body: Map<String, Value>,
    /// More headers; they replace ours of the same name.
    pub headers: Vec<(String, String)>,
    /// How long it may be silent.
    pub timeouts: Timeouts,
    /// When to try again.
    pub retries: Retries,
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("has_key", &self.key().is_some())
            .finish_non_exhaustive()
    }
}

impl ProviderConfig {
    /// A provider of that kind, with nothing but defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into().trim().to_lowercase(),
            kind,
            api_key: None,
            tokens: None,
            key_source: None,
            api_base: None,
            api_format: None,
            extra_body: Map::new(),
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
        }
    }

    /// The wire that is spoken: the one that was set, else the kind's usual one. A server of one's own
    /// in the place of a service is taken to speak chat completions, as most of them do.
    ///
    /// # Errors
    /// A sentence for people, when the kind does not speak the one that was set.
    pub fn wire(&self) -> Result<Wire, String> {
        let wires = self.kind.wires();
        match self.api_format {
            Some(asked) if wires.contains(&asked) => Ok(asked),
            Some(asked) if !wires.is_empty() => {
                let known = wires.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
                Err(format!("provider '{}' does not speak api_format '{asked}'; it speaks {known}", self.name))
            }
            None if self.is_elsewhere() && wires.contains(&Wire::Chat) => Ok(Wire::Chat),
            _ => wires.first().copied().ok_or_else(|| {
                format!(
                    "provider '{}' decides questions and writes no answers: use it from code, or another one",
                    self.name
                )
            }),
        }
    }

    /// Whether the base URL is of another host than the kind's own.
    fn is_elsewhere(&self) -> bool {
        let host = |base: &str| reqwest::Url::parse(base.trim()).ok().and_then(|it| it.host_str().map(str::to_owned));
        match (&self.api_base, self.kind.default_base()) {
            (Some(base), Some(usual)) => host(base) != host(usual),
            _ => false,
        }
    }

    /// The key, if it is not empty.
    pub(crate) fn key(&self) -> Option<&str> {
        self.api_key.as_deref().filter(|it| !it.trim().is_empty()).or(self.kind.default_key())
    }

    /// A sentence about the key, for when it is refused.
    fn about_key(&self) -> String {
        if self.tokens.is_some() && self.key().is_none() {
            return format!("the credentials of provider '{}' come from its login", self.name);
        }
        match (self.key(), &self.key_source) {
            (Some(_), Some(source)) => format!("the key comes from {source}"),
            (Some(_), None) => format!("check the api_key of provider '{}'", self.name),
            (None, _) => format!("provider '{}' has no api_key", self.name),
        }
    }
}

/// A provider that is reached over HTTP.
#[derive(Debug)]
pub struct Provider {
    config: ProviderConfig,
    /// Made once and shared by all clients; the error is told to each who asks.
    endpoint: OnceLock<Result<Arc<Endpoint>, String>>,
}

/// What all clients of a provider share.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The provider's name.
    pub(crate) provider: String,
    pub(crate) kind: ProviderKind,
    /// The wire of answers, or a sentence on why there is none.
    pub(crate) wire: Result<Wire, String>,
    pub(crate) extra_body: Map<String, Value>,
    tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) http: Http,
    pub(crate) retries: Retries,
    pub(crate) mask: SecretMask,
    /// Hides the passing credentials that were sent last.
    passing: Mutex<SecretMask>,
    /// Whether the address was configured; where credentials would lead then does not count.
    has_own_base: bool,
    pub(crate) about_key: String,
}

impl Endpoint {
    /// Asks for the whole body of a reply, until it succeeds, fails for good, or has been repeated as often
    /// as it may be. Posts `body` if there is one.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Vec<u8>, ModelError> {
        let mut n_retries = 0;
        loop {
            let failure = match self.fetch_once(path, headers, body.clone()).await {
                Ok(body) => return Ok(body),
                Err(failure) => failure,
            };
            let retry_after = failure.retry_after;
            let error = self.told(failure.error);
            if !error.is_retryable() || n_retries >= self.retries.max {
                return Err(error);
            }
            tokio::time::sleep(self.retries.wait(n_retries, retry_after)).await;
            n_retries += 1;
        }
    }

    async fn fetch_once(&self, path: &str, headers: &HeaderMap, body: Option<Bytes>) -> Result<Vec<u8>, Failure> {
        let response = self.open(path, headers, body).await?;
        Ok(self.http.whole(response).await?)
    }

    /// Sends a request with what lets it in: posts `body` if there is one. Passing credentials that are
    /// refused are renewed once.
    pub(crate) async fn open(&self, path: &str, headers: &HeaderMap, body: Option<Bytes>) -> Result<Response, Failure> {
        let Some(tokens) = &self.tokens else { return self.send(path, headers, None, body).await };
        let mut all = headers.clone();
        let credentials = tokens.credentials().await?;
        match self.send_with(&credentials, path, &mut all, body.clone()).await {
            Err(failure) if matches!(failure.error, ModelError::Auth(_)) && tokens.renew(&credentials).await => {
                self.send_with(&tokens.credentials().await?, path, &mut all, body).await
            }
            sent => sent,
        }
    }

    async fn send_with(
        &self,
        credentials: &Credentials,
        path: &str,
        headers: &mut HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, Failure> {
        *self.passing.lock().unwrap_or_else(PoisonError::into_inner) = credentials.mask();
        tokens::add_to(headers, credentials)?;
        let base = credentials.api_base.as_ref().filter(|_| !self.has_own_base);
        self.send(path, headers, base, body).await
    }

    async fn send(
        &self,
        path: &str,
        headers: &HeaderMap,
        base: Option<&Url>,
        body: Option<Bytes>,
    ) -> Result<Response, Failure> {
        match body {
            Some(body) => self.http.post(path, headers, base, body).await,
            None => self.http.get(path, headers, base).await,
        }
    }

    /// The error as it may be told: with a word on a refused key, and without secrets.
    pub(crate) fn told(&self, mut error: ModelError) -> ModelError {
        if let ModelError::Auth(text) = &mut error {
            text.push_str("; ");
            text.push_str(&self.about_key);
        }
        let passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        errors::masked(errors::masked(error, &self.mask), &passing)
    }
}

impl Provider {
    /// A provider as configured. What it lacks is told when a client is asked for.
    #[must_use]
    pub fn new(mut config: ProviderConfig) -> Self {
        config.name = config.name.trim().to_lowercase();
        Self { config, endpoint: OnceLock::new() }
    }

    /// The part before the colon of `provider:model`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    fn endpoint(&self) -> Result<Arc<Endpoint>, String> {
        let config = &self.config;
        let wire = config.wire();
        let key_header = config.kind.key_header().unwrap_or("authorization");
        let is_key = |it: &str| [key_header, "authorization"].iter().any(|name| it.eq_ignore_ascii_case(name));
        let has_auth =
            config.key().is_some() || config.tokens.is_some() || config.headers.iter().any(|(it, _)| is_key(it));
        // A server of one's own may need no key; the well-known services do.
        if config.kind.needs_key() && !has_auth && config.api_base.is_none() {
            let name = &config.name;
            let variable = name.to_uppercase().replace('-', "_");
            let login = config.kind.login_advice().map(|it| format!(", or {it}")).unwrap_or_default();
            return Err(format!(
                "provider '{name}' has no API key: set BUB_{variable}_API_KEY, or api_key in the settings{login}"
            ));
        }
        let http = Http::new(config)?;
        let secrets =
            config.key().into_iter().chain(http.password()).chain(config.headers.iter().map(|(_, it)| it.as_str()));
        let mask = SecretMask::new(secrets);
        Ok(Arc::new(Endpoint {
            provider: config.name.clone(),
            kind: config.kind,
            wire,
            extra_body: config.extra_body.clone(),
            tokens: config.tokens.clone().filter(|_| config.key().is_none()),
            http,
            retries: config.retries,
            mask,
            passing: Mutex::default(),
            has_own_base: config.api_base.as_ref().is_some_and(|it| !it.trim().is_empty()),
            about_key: config.about_key(),
        }))
    }
}

#[async_trait]
impl ModelProvider for Provider {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn client(&self, model: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        if model.trim().is_empty() {
            return Err(ModelError::Config(format!("provider '{}' needs the name of a model", self.config.name)));
        }
        match self.endpoint.get_or_init(|| self.endpoint()) {
            Ok(endpoint) => Ok(Arc::new(Client { endpoint: endpoint.clone() })),
            Err(text) => Err(ModelError::Config(text.clone())),
        }
    }

    async fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        match self.endpoint.get_or_init(|| self.endpoint()) {
            Ok(endpoint) => list::list(endpoint).await,
            Err(text) => Err(ModelError::Config(text.clone())),
        }
    }
}

struct Client {
    endpoint: Arc<Endpoint>,
}

#[async_trait]
impl ModelClient for Client {
    /// Fails at once only for what the request asks; the connection is opened inside the stream,
    /// so that waits before another try can be told.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let Endpoint { provider, kind, wire, extra_body, .. } = &*self.endpoint;
        let wire = wire.as_ref().map_err(|text| ModelError::Config(text.clone()))?;
        let mut extra_body = extra_body.clone();
        options::merge(&mut extra_body, request.options.extra_body.clone());
        let body = wire.body(&Asked { request, provider, kind: *kind, extra_body: extra_body.clone() });
        let path = format!("{}{}", kind.wire_path(*wire), wire.path(&request.model));
        let plain = media::without_earlier(request).map(|request| Plain { request, extra_body });
        let answer = |body: Vec<u8>| Answer::new(self.endpoint.clone(), *wire, path, body.into(), &request.run.0);
        match (body, plain) {
            (Ok(body), plain) => Ok(answer(body).or_plain(plain).into_stream()),
            (Err(err), Some(plain)) if media::is_refusal(&err) => match plain.body(&self.endpoint, *wire) {
                Ok(body) => Ok(answer(body).without_media(&err).into_stream()),
                Err(_) => Err(err),
            },
            (Err(err), None | Some(_)) => Err(err),
        }
    }

    async fn embed(&self, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
        embed::embed(&self.endpoint, request).await
    }

    async fn decide(&self, request: &DecideRequest) -> Result<Decisions, ModelError> {
        decide::decide(&self.endpoint, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_tells_no_key() {
        let mut config = ProviderConfig::new("x", ProviderKind::OpenAi);
        config.api_key = Some("sk-12345678".into());
        assert!(!format!("{config:?} {:?}", Provider::new(config.clone())).contains("1234"));
    }
}
