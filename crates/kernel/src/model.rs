//! Talking to models.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::{Map, Value};

use crate::{
    error::{ErrorKind, ToolError},
    message::{Media, Message, ProviderData, TokenUsage, ToolCallRequest},
    tool::ToolSpec,
    turn::RunId,
};

/// Whether and which tools the model calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one, by its model-facing name.
    Tool(String),
}

/// The JSON that an answer must be.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputFormat {
    /// What the providers call it: letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON schema.
    pub schema: Value,
}

/// A tool that the provider itself runs. None is on offer unless asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderTool {
    /// Searches the web.
    WebSearch,
    /// Reads web pages.
    WebFetch,
    /// Runs code in the provider's sandbox.
    CodeExecution,
    /// Makes images.
    ImageGeneration,
    /// Any other, as its wire format defines it.
    Native {
        /// The only wire format that knows it: `chat`, `responses`, `messages` or `gemini`.
        api_format: String,
        /// The entry of the request's list of tools, sent as it is.
        definition: Value,
    },
}

/// How the model should answer. What a wire can't express is refused, never dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// The most tokens to write.
    pub max_tokens: Option<u32>,
    /// `none`, `minimal`, `low`, `medium`, `high`, …; what is allowed depends on the provider.
    pub reasoning_effort: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Sampling among the so many likeliest tokens.
    pub top_k: Option<u32>,
    /// Makes what was mentioned less likely.
    pub presence_penalty: Option<f64>,
    /// Makes what was mentioned often less likely.
    pub frequency_penalty: Option<f64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Seed for repeatable sampling.
    pub seed: Option<u64>,
    /// Whether and which tools it calls.
    pub tool_choice: Option<ToolChoice>,
    /// Whether one answer may hold several calls.
    pub parallel_tool_calls: Option<bool>,
    /// The JSON that the answer must be.
    pub output: Option<OutputFormat>,
    /// Tools that the provider runs.
    pub provider_tools: Vec<ProviderTool>,
    /// Merged into the request's body last.
    pub extra_body: Map<String, Value>,
}

impl ModelOptions {
    /// These options, and where they say nothing those of `defaults`.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        let mut extra_body = defaults.extra_body.clone();
        extra_body.extend(self.extra_body);
        Self {
            max_tokens: self.max_tokens.or(defaults.max_tokens),
            reasoning_effort: self.reasoning_effort.or_else(|| defaults.reasoning_effort.clone()),
            temperature: self.temperature.or(defaults.temperature),
            top_p: self.top_p.or(defaults.top_p),
            top_k: self.top_k.or(defaults.top_k),
            presence_penalty: self.presence_penalty.or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(defaults.frequency_penalty),
            stop: if self.stop.is_empty() { defaults.stop.clone() } else { self.stop },
            seed: self.seed.or(defaults.seed),
            tool_choice: self.tool_choice.or_else(|| defaults.tool_choice.clone()),
            parallel_tool_calls: self.parallel_tool_calls.or(defaults.parallel_tool_calls),
            output: self.output.or_else(|| defaults.output.clone()),
            provider_tools: if self.provider_tools.is_empty() {
                defaults.provider_tools.clone()
            } else {
                self.provider_tools
            },
            extra_body,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Which model call of which turn.
    pub run: RunId,
    /// The model's id at its provider, without the `provider:` prefix.
    pub model: String,
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation. Every assistant call is followed by its result.
    pub messages: Vec<Message>,
    /// Tools on offer, in a stable order.
    pub tools: Vec<Arc<ToolSpec>>,
    /// How to answer.
    pub options: ModelOptions,
}

/// Why the model stopped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FinishReason {
    /// It had said everything.
    Stop,
    /// It wants tools called.
    ToolCalls,
    /// It reached the limit on tokens.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// It declined.
    Refusal,
    /// The provider's own tools need more time: the same conversation, sent again with this answer,
    /// goes on.
    Pause,
    /// Something else, in the provider's word.
    Other(String),
}

/// A source that an answer names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Citation {
    /// Where it is.
    pub url: String,
    /// Its title, if the provider tells.
    pub title: Option<String>,
}

/// One piece of the answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// More words.
    Text(String),
    /// More thinking.
    Reasoning(String),
    /// More of a refusal.
    Refusal(String),
    /// More of a call's arguments, for watchers; [`ModelEvent::ToolCall`] has them whole.
    ToolCallDelta {
        /// The call's id, empty while the provider has not sent it.
        id: String,
        /// The tool's name, empty while the provider has not sent it.
        name: String,
        /// The new piece of JSON text.
        delta: String,
    },
    /// One call, complete.
    ToolCall(ToolCallRequest),
    /// Something to send back unchanged with this answer.
    ProviderData(ProviderData),
    /// A source of the answer.
    Citation(Citation),
    /// A picture or a sound that the model made.
    Media(Media),
    /// A call of one of the provider's own tools, complete.
    ProviderToolCall {
        /// The tool's name at the provider.
        name: String,
        /// What it was called with, as far as the provider tells.
        input: Value,
    },
    /// Tokens so far; later reports replace earlier ones.
    Usage(TokenUsage),
    /// Waiting before another try, because of what went wrong.
    Retry {
        /// How long.
        wait: Duration,
        /// Why, for people.
        reason: String,
    },
    /// A model did not answer, and it is not asked again. What follows comes from `next`.
    AttemptFailed {
        /// Who failed: `provider:model`.
        model: String,
        /// Why.
        error: String,
        /// Who is asked instead; none when nobody is left, and then the answer fails.
        next: Option<String>,
    },
    /// Who answers: `provider:model`, when it is not the one asked.
    AnsweredBy(String),
    /// The end. Nothing follows; a stream that ends without it was cut off.
    Finish(FinishReason),
}

/// Why the model did not answer, or not to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The key is missing or was refused.
    #[error("the provider refused the credentials: {0}")]
    Auth(String),
    /// Too many requests.
    #[error("rate limited: {message}")]
    RateLimited {
        /// The provider's words.
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The provider has no capacity now.
    #[error("the provider is overloaded: {message}")]
    Overloaded {
        /// The provider's words.
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The conversation does not fit the model's window.
    #[error("the context is too long for the model: {0}")]
    ContextLength(String),
    /// The provider withheld the answer.
    #[error("the provider's content filter stopped the answer: {0}")]
    ContentFilter(String),
    /// The request was refused.
    #[error("the provider refused the request{}: {message}", status.map(|it| format!(" (HTTP {it})")).unwrap_or_default())]
    Rejected {
        /// HTTP status, if there was one.
        status: Option<u16>,
        /// The provider's words.
        message: String,
    },
    /// The provider failed on its side.
    #[error("the provider failed{}: {message}", status.map(|it| format!(" (HTTP {it})")).unwrap_or_default())]
    Failed {
        /// HTTP status, if there was one.
        status: Option<u16>,
        /// The provider's words.
        message: String,
    },
    /// The provider could not be reached, or the connection broke.
    #[error("cannot reach the provider: {message}")]
    Transport {
        /// What happened.
        message: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A time limit passed before the answer began, or for the whole of it.
    #[error("the model did not answer in time: {0}")]
    Timeout(String),
    /// The stream was silent for too long after it had begun.
    #[error("the answer stalled: {0}")]
    Stalled(String),
    /// The stream ended before the answer did.
    #[error("the answer was cut off: {0}")]
    Incomplete(String),
    /// What came is not the provider's protocol.
    #[error("the provider sent something unexpected: {0}")]
    Protocol(String),
    /// The request asks for what this wire cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// Settings are wrong or missing.
    #[error("{0}")]
    Config(String),
}

impl ModelError {
    /// The kind that tapes and callers see.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) => ErrorKind::Config,
            Self::Unsupported(_) => ErrorKind::InvalidInput,
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Timeout(_)
            | Self::Stalled(_)
            | Self::Transport { .. } => ErrorKind::Temporary,
            Self::Auth(_)
            | Self::ContextLength(_)
            | Self::ContentFilter(_)
            | Self::Rejected { .. }
            | Self::Failed { .. }
            | Self::Incomplete(_)
            | Self::Protocol(_) => ErrorKind::Provider,
        }
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Transport { .. }
            | Self::Timeout(_)
            | Self::Stalled(_) => true,
            Self::Failed { status, .. } => status.is_none_or(|it| it >= 500),
            Self::Rejected { status, .. } => matches!(status, Some(408 | 409 | 425)),
            Self::Auth(_)
            | Self::ContextLength(_)
            | Self::ContentFilter(_)
            | Self::Incomplete(_)
            | Self::Protocol(_)
            | Self::Unsupported(_)
            | Self::Config(_) => false,
        }
    }
}

impl From<&ModelError> for ToolError {
    fn from(err: &ModelError) -> Self {
        Self::new(err.kind(), err.to_string())
    }
}

/// Texts to turn into vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedRequest {
    /// The model's id at its provider, without the `provider:` prefix.
    pub model: String,
    /// The texts, in order.
    pub texts: Vec<String>,
    /// How long the vectors should be; the model's own length when absent.
    pub dimensions: Option<u32>,
}

/// A vector for each text.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    /// In the order of the texts.
    pub vectors: Vec<Vec<f64>>,
    /// Who made them.
    pub model: String,
    /// Tokens, if the provider tells.
    pub usage: Option<TokenUsage>,
}

/// Questions about a state, for models that decide instead of write.
#[derive(Clone, Debug, PartialEq)]
pub struct DecideRequest {
    /// The model's id at its provider, without the `provider:` prefix.
    pub model: String,
    /// What the questions are about.
    pub state: Value,
    /// By id: objects with `type` (`noul`, `choice` or `score`), `instructions` and `criteria`.
    pub questions: Map<String, Value>,
}

/// An answer to each question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// By the question's id.
    pub answers: Map<String, Value>,
    /// Who decided.
    pub model: String,
    /// Tokens, if the provider tells.
    pub usage: Option<TokenUsage>,
}

/// The answer, piece by piece. Dropping it stops the provider.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// One model endpoint. There is no second, non-streaming way: collect the stream.
#[async_trait]
pub trait ModelClient: Send + Sync {
    /// Starts an answer.
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError>;
    /// Turns texts into vectors.
    async fn embed(&self, _request: &EmbedRequest) -> Result<Embeddings, ModelError> {
        Err(ModelError::Unsupported("this provider makes no embeddings".to_owned()))
    }
    /// Answers typed questions about a state.
    async fn decide(&self, _request: &DecideRequest) -> Result<Decisions, ModelError> {
        Err(ModelError::Unsupported("this provider answers no decision questions".to_owned()))
    }
}

/// A model that a provider offers. What the provider does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// Its id, without the provider's name.
    pub id: String,
    /// Its name for people.
    pub name: Option<String>,
    /// Its window in tokens.
    pub context_tokens: Option<u64>,
    /// The most tokens of one answer.
    pub output_tokens: Option<u64>,
    /// US dollars for a million tokens read.
    pub input_price: Option<f64>,
    /// US dollars for a million tokens written.
    pub output_price: Option<f64>,
}

/// Finds the client for `provider:model`.
#[async_trait]
pub trait ModelProvider: Send + Sync {
    /// The part before the colon.
    fn name(&self) -> &str;
    /// Makes a client for one model. Opens no connection yet.
    ///
    /// # Errors
    /// [`ModelError::Config`] when what it needs is missing.
    fn client(&self, model: &str) -> Result<Arc<dyn ModelClient>, ModelError>;
    /// What the provider offers.
    async fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        Err(ModelError::Unsupported(format!("provider '{}' cannot list its models", self.name())))
    }
}

/// A model and its provider: `provider:model`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelSpec {
    /// The provider's name, lower case.
    pub provider: String,
    /// The model's id; may itself contain colons and slashes.
    pub model: String,
}

impl ModelSpec {
    /// Reads `provider:model`.
    ///
    /// # Errors
    /// [`ModelError::Config`] with the reference's sentence when it is not of that form.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        match text.split_once(':') {
            Some((provider, model)) if !provider.trim().is_empty() && !model.trim().is_empty() => {
                Ok(Self { provider: provider.trim().to_lowercase(), model: model.trim().to_owned() })
            }
            _ => Err(ModelError::Config(format!("Expected a provider:model identifier, got '{text}'"))),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_keep_the_models_own_colons() {
        let spec = ModelSpec::parse("Ollama:qwen3:8b").unwrap();
        assert_eq!((spec.provider.as_str(), spec.model.as_str()), ("ollama", "qwen3:8b"));
        for bad in ["", "gpt", ":x", "openai:", " : "] {
            let err = ModelSpec::parse(bad).unwrap_err();
            assert_eq!(err.to_string(), format!("Expected a provider:model identifier, got '{bad}'"));
        }
    }
}
