//! The services that are known, and in what they differ.

use std::{fmt, str::FromStr};

use bub_kernel::model::ModelError;

use crate::{chat::Dialect, wire::Wire};

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

    /// The wires that it speaks, the usual one first.
    #[must_use]
    pub fn wires(self) -> &'static [Wire] {
        &[Wire::Chat]
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

    /// The header that carries the key, if it is not `Authorization: Bearer`.
    pub(crate) fn key_header(self) -> Option<&'static str> {
        None
    }

    /// Whether it answers nobody without a key.
    pub(crate) fn needs_key(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenRouter)
    }

    pub(crate) fn dialect(self) -> Dialect {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_in_any_case() {
        assert_eq!(" OpenAI-Compatible".parse::<ProviderKind>().unwrap(), ProviderKind::OpenAiCompatible);
        let err = "gpt".parse::<ProviderKind>().unwrap_err().to_string();
        assert_eq!(err, "unknown provider type 'gpt': expected one of openai, openai-compatible, openrouter, ollama");
    }
}
