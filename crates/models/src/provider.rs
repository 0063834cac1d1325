//! What can be configured, and the client that comes of it.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    model::{EmbedRequest, Embeddings, ModelClient, ModelError, ModelProvider, ModelRequest, ModelStream},
    secret::SecretMask,
};

use crate::{
    embed,
    http::Http,
    request::{self, Dialect},
    retry::Retries,
    stream::Answer,
};

/// What kind of server a provider is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProviderKind {
    /// OpenAI itself.
    OpenAi,
    /// Any other server that speaks OpenAI's chat completions.
    OpenAiCompatible,
    /// OpenRouter.
    OpenRouter,
    /// Ollama, on this machine unless told otherwise.
    Ollama,
}

impl ProviderKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::OpenAiCompatible, Self::OpenRouter, Self::Ollama];

    /// The name in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiCompatible => "openai-compatible",
            Self::OpenRouter => "openrouter",
            Self::Ollama => "ollama",
        }
    }

    /// The base URL used when none is configured.
    #[must_use]
    pub fn default_base(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::OpenAiCompatible => None,
            Self::OpenRouter => Some("https://openrouter.ai/api/v1"),
            Self::Ollama => Some("http://localhost:11434/v1"),
        }
    }

    /// The path below a base URL that has none.
    pub(crate) fn default_path(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Ollama => "/v1",
            Self::OpenRouter => "/api/v1",
            // Some of these servers serve the endpoint at their root.
            Self::OpenAiCompatible => "",
        }
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::OpenAi => Dialect { max_tokens: "max_completion_tokens", nested_effort: false },
            Self::OpenAiCompatible | Self::Ollama => Dialect { max_tokens: "max_tokens", nested_effort: false },
            Self::OpenRouter => Dialect { max_tokens: "max_completion_tokens", nested_effort: true },
        }
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ProviderKind {
    type Err = ModelError;

    /// Reads a name in any case.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(text.trim())).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            ModelError::Config(format!("unknown provider type '{text}': expected one of {known}"))
        })
    }
}

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
    /// Where the key comes from, for error texts: the name of a variable or setting.
    pub key_source: Option<String>,
    /// Its base URL, with or without a slash at the end; without one, the kind's own.
    pub api_base: Option<String>,
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
            key_source: None,
            api_base: None,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
        }
    }

    /// The key, if it is not empty.
    pub(crate) fn key(&self) -> Option<&str> {
        self.api_key.as_deref().filter(|it| !it.trim().is_empty())
    }

    /// A sentence about the key, for when it is refused.
    fn about_key(&self) -> String {
        match (self.key(), &self.key_source) {
            (Some(_), Some(source)) => format!("the key comes from {source}"),
            (Some(_), None) => format!("check the api_key of provider '{}'", self.name),
            (None, _) => format!("provider '{}' has no api_key", self.name),
        }
    }
}

/// A provider that speaks the wire of OpenAI's chat completions.
#[derive(Debug)]
pub struct ChatProvider {
    config: ProviderConfig,
    /// Made once and shared by all clients; the error is told to each who asks.
    endpoint: OnceLock<Result<Arc<Endpoint>, String>>,
}

/// What all clients of a provider share.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    pub(crate) dialect: Dialect,
    pub(crate) retries: Retries,
    pub(crate) mask: SecretMask,
    pub(crate) about_key: String,
}

impl ChatProvider {
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
        // A server of one's own may need no key; the well-known services do.
        let needs_key = matches!(config.kind, ProviderKind::OpenAi | ProviderKind::OpenRouter);
        let has_auth =
            config.key().is_some() || config.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case("authorization"));
        if needs_key && !has_auth && config.api_base.is_none() {
            let name = &config.name;
            let variable = name.to_uppercase().replace('-', "_");
            return Err(format!(
                "provider '{name}' has no API key: set BUB_{variable}_API_KEY, or api_key in the settings"
            ));
        }
        let http = Http::new(config)?;
        let secrets =
            config.key().into_iter().chain(http.password()).chain(config.headers.iter().map(|(_, it)| it.as_str()));
        let mask = SecretMask::new(secrets);
        let (dialect, retries) = (config.kind.dialect(), config.retries);
        Ok(Arc::new(Endpoint { http, dialect, retries, mask, about_key: config.about_key() }))
    }
}

#[async_trait]
impl ModelProvider for ChatProvider {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn client(&self, model: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        if model.trim().is_empty() {
            return Err(ModelError::Config(format!("provider '{}' needs the name of a model", self.config.name)));
        }
        match self.endpoint.get_or_init(|| self.endpoint()) {
            Ok(endpoint) => Ok(Arc::new(ChatClient { endpoint: endpoint.clone() })),
            Err(text) => Err(ModelError::Config(text.clone())),
        }
    }
}

struct ChatClient {
    endpoint: Arc<Endpoint>,
}

#[async_trait]
impl ModelClient for ChatClient {
    /// Fails at once only for what the request asks; the connection is opened inside the stream,
    /// so that waits before another try can be told.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let body = request::body(request, &self.endpoint.dialect)?;
        Ok(Answer::new(self.endpoint.clone(), body.into(), &request.run.0).into_stream())
    }

    async fn embed(&self, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
        embed::embed(&self.endpoint, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_in_any_case() {
        assert_eq!(" OpenAI-Compatible".parse::<ProviderKind>().unwrap(), ProviderKind::OpenAiCompatible);
        let err = "gpt".parse::<ProviderKind>().unwrap_err().to_string();
        assert_eq!(err, "unknown provider type 'gpt': expected one of openai, openai-compatible, openrouter, ollama");
    }

    #[test]
    fn debug_tells_no_key() {
        let mut config = ProviderConfig::new("x", ProviderKind::OpenAi);
        config.api_key = Some("sk-12345678".into());
        assert!(!format!("{config:?} {:?}", ChatProvider::new(config.clone())).contains("1234"));
    }
}
