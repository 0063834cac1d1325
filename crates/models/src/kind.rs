//! The services that are known, and in what they differ.

use std::{fmt, str::FromStr};

use bub_kernel::model::ModelError;

use crate::{chat::Dialect, responses, wire::Wire};

/// What kind of server a provider is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProviderKind {
    /// OpenAI itself.
    OpenAi,
    /// Any other server that speaks OpenAI's chat completions.
    OpenAiCompatible,
    /// Anthropic.
    Anthropic,
    /// OpenRouter.
    OpenRouter,
    /// Ollama, on this machine unless told otherwise.
    Ollama,
    /// Azure OpenAI; its base URL is that of one's own resource.
    AzureOpenAi,
    /// DeepSeek.
    DeepSeek,
    /// Mistral.
    Mistral,
    /// xAI.
    Grok,
    /// Groq.
    Groq,
    /// Moonshot (Kimi).
    Moonshot,
    /// Z.ai (GLM).
    Zai,
    /// Together.
    Together,
    /// MiniMax.
    MiniMax,
    /// ChatGPT's plans, with the login of the Codex program.
    Codex,
    /// GitHub Copilot, with a login of its own or that of the program `gh`.
    GithubCopilot,
    /// Google's Gemini API.
    Google,
    /// Magpie, a gateway on this machine.
    Magpie,
    /// Typesafe, which decides questions and writes no answers.
    Typesafe,
}

/// What is known of a service.
struct Facts {
    name: &'static str,
    /// Other names that settings may use.
    aliases: &'static [&'static str],
    /// The base URL used when none is configured.
    base: Option<&'static str>,
    /// The path below a base URL that has none. Some servers of one's own serve at their root.
    path: &'static str,
    /// The wires that it speaks, the usual one first.
    wires: &'static [Wire],
    /// The header that carries the key, if it is not `Authorization: Bearer`.
    key_header: Option<&'static str>,
    /// Whether it answers nobody without a key.
    needs_key: bool,
    chat: Dialect,
    responses: responses::Dialect,
}

/// What most services have in common.
const USUAL: Facts = Facts {
    name: "",
    aliases: &[],
    base: None,
    path: "/v1",
    wires: &[Wire::Chat],
    key_header: None,
    needs_key: true,
    chat: Dialect::PLAIN,
    responses: responses::Dialect::PLAIN,
};

impl ProviderKind {
    /// All kinds.
    pub const ALL: [Self; 19] = [
        Self::OpenAi,
        Self::OpenAiCompatible,
        Self::Anthropic,
        Self::OpenRouter,
        Self::Ollama,
        Self::AzureOpenAi,
        Self::DeepSeek,
        Self::Mistral,
        Self::Grok,
        Self::Groq,
        Self::Moonshot,
        Self::Zai,
        Self::Together,
        Self::MiniMax,
        Self::Codex,
        Self::GithubCopilot,
        Self::Google,
        Self::Magpie,
        Self::Typesafe,
    ];

    fn facts(self) -> Facts {
        match self {
            Self::OpenAi => Facts {
                name: "openai",
                base: Some("https://api.openai.com/v1"),
                wires: &[Wire::Responses, Wire::Chat],
                chat: Dialect::OPENAI,
                ..USUAL
            },
            Self::OpenAiCompatible => Facts { name: "openai-compatible", path: "", needs_key: false, ..USUAL },
            Self::Anthropic => Facts {
                name: "anthropic",
                base: Some("https://api.anthropic.com/v1"),
                wires: &[Wire::Messages],
                key_header: Some("x-api-key"),
                ..USUAL
            },
            Self::OpenRouter => Facts {
                name: "openrouter",
                base: Some("https://openrouter.ai/api/v1"),
                path: "/api/v1",
                wires: &[Wire::Responses, Wire::Chat, Wire::Messages],
                chat: Dialect::OPENROUTER,
                responses: responses::Dialect::OPENROUTER,
                ..USUAL
            },
            Self::Ollama => Facts {
                name: "ollama",
                base: Some("http://localhost:11434/v1"),
                wires: &[Wire::Chat, Wire::Responses],
                needs_key: false,
                ..USUAL
            },
            Self::AzureOpenAi => Facts {
                name: "azure-openai",
                aliases: &["azure"],
                path: "/openai/v1",
                wires: &[Wire::Responses, Wire::Chat],
                key_header: Some("api-key"),
                chat: Dialect::OPENAI,
                ..USUAL
            },
            Self::DeepSeek => Facts {
                name: "deepseek",
                base: Some("https://api.deepseek.com"),
                path: "",
                wires: &[Wire::Chat, Wire::Responses, Wire::Messages],
                chat: Dialect::THINKING_BACK,
                ..USUAL
            },
            Self::Mistral => {
                Facts { name: "mistral", base: Some("https://api.mistral.ai/v1"), chat: Dialect::MISTRAL, ..USUAL }
            }
            Self::Grok => Facts {
                name: "grok",
                aliases: &["xai"],
                base: Some("https://api.x.ai/v1"),
                wires: &[Wire::Responses, Wire::Chat],
                chat: Dialect::LIKE_OPENAI,
                ..USUAL
            },
            Self::Groq => Facts {
                name: "groq",
                base: Some("https://api.groq.com/openai/v1"),
                path: "/openai/v1",
                chat: Dialect::LIKE_OPENAI,
                ..USUAL
            },
            Self::Moonshot => Facts {
                name: "moonshot",
                base: Some("https://api.moonshot.ai/v1"),
                chat: Dialect::THINKING_BACK,
                ..USUAL
            },
            Self::Zai => Facts {
                name: "zai",
                aliases: &["z.ai"],
                base: Some("https://api.z.ai/api/paas/v4"),
                path: "/api/paas/v4",
                chat: Dialect::THINKING_BACK,
                ..USUAL
            },
            Self::Together => Facts { name: "together", base: Some("https://api.together.ai/v1"), ..USUAL },
            Self::MiniMax => Facts {
                name: "minimax",
                base: Some("https://api.minimax.io"),
                path: "",
                wires: &[Wire::Messages, Wire::Chat],
                chat: Dialect::MINIMAX,
                ..USUAL
            },
            Self::Codex => Facts {
                name: "codex",
                base: Some("https://chatgpt.com/backend-api/codex"),
                path: "/backend-api/codex",
                wires: &[Wire::Responses],
                responses: responses::Dialect::CODEX,
                ..USUAL
            },
            Self::GithubCopilot => Facts {
                name: "github-copilot",
                aliases: &["copilot"],
                base: Some("https://api.githubcopilot.com"),
                path: "",
                wires: &[Wire::Chat, Wire::Responses, Wire::Messages],
                chat: Dialect::OPENAI,
                responses: responses::Dialect::COPILOT,
                ..USUAL
            },
            Self::Magpie => Facts {
                name: "magpie",
                base: Some("http://127.0.0.1:3425/v1"),
                wires: &[Wire::Chat, Wire::Responses, Wire::Messages],
                needs_key: false,
                ..USUAL
            },
            Self::Google => Facts {
                name: "google",
                aliases: &["gemini"],
                base: Some("https://generativelanguage.googleapis.com/v1beta"),
                path: "/v1beta",
                wires: &[Wire::Gemini],
                key_header: Some("x-goog-api-key"),
                ..USUAL
            },
            Self::Typesafe => Facts { name: "typesafe", base: Some("https://api.typesafe.ai/v1"), wires: &[], ..USUAL },
        }
    }

    /// The name in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// All names that settings may use, the usual one first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let Facts { name, aliases, .. } = self.facts();
        std::iter::once(name).chain(aliases.iter().copied())
    }

    /// The base URL used when none is configured.
    #[must_use]
    pub fn default_base(self) -> Option<&'static str> {
        self.facts().base
    }

    /// The wires that it speaks, the usual one first.
    #[must_use]
    pub fn wires(self) -> &'static [Wire] {
        self.facts().wires
    }

    /// The path below a base URL that has none.
    pub(crate) fn default_path(self) -> &'static str {
        self.facts().path
    }

    /// What stands between the base URL and the path of a wire.
    pub(crate) fn wire_path(self, wire: Wire) -> &'static str {
        match (self, wire) {
            (Self::MiniMax, Wire::Chat) => "/v1",
            (Self::DeepSeek | Self::MiniMax, Wire::Messages) => "/anthropic/v1",
            (Self::GithubCopilot, Wire::Messages) => "/v1",
            _ => "",
        }
    }

    /// What a base URL may end with although paths below it begin with it too: the starts and ends of its
    /// wires' paths, the longest first.
    pub(crate) fn overlaps(self) -> Vec<&'static str> {
        let paths = self.wires().iter().map(|wire| self.wire_path(*wire));
        let cuts = paths.flat_map(|path| path.match_indices('/').flat_map(|(at, _)| [path.get(..at), path.get(at..)]));
        let mut found: Vec<&str> = cuts.flatten().filter(|it| !it.is_empty()).collect();
        found.sort_by_key(|it| std::cmp::Reverse(it.len()));
        found.dedup();
        found
    }

    /// Where the list of models is, below the base URL.
    pub(crate) fn list_path(self) -> &'static str {
        match self {
            Self::Anthropic => "/models?limit=1000",
            Self::MiniMax => "/v1/models",
            // Its pages are of 50 unless asked for more.
            Self::Google => "/models?pageSize=1000",
            _ => "/models",
        }
    }

    /// Whether it decides typed questions.
    pub(crate) fn decides(self) -> bool {
        matches!(self, Self::OpenRouter | Self::Magpie | Self::Typesafe)
    }

    /// The header that carries the key, if it is not `Authorization: Bearer`.
    pub(crate) fn key_header(self) -> Option<&'static str> {
        self.facts().key_header
    }

    /// Headers that it wants besides the key.
    pub(crate) fn more_headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::GithubCopilot => &[
                ("copilot-integration-id", "vscode-chat"),
                ("editor-version", concat!("bub/", env!("CARGO_PKG_VERSION"))),
                ("openai-intent", "conversation-edits"),
                // It refuses images without this, and takes no notice of it when there are none.
                ("copilot-vision-request", "true"),
            ],
            _ => &[],
        }
    }

    /// The key when none is configured, of servers that want any.
    pub(crate) fn default_key(self) -> Option<&'static str> {
        match self {
            Self::Magpie => Some("magpie"),
            _ => None,
        }
    }

    /// How to do without a key.
    pub(crate) fn login_advice(self) -> Option<&'static str> {
        match self {
            Self::OpenRouter => Some("run `bub login openrouter`"),
            Self::GithubCopilot => Some("run `bub login copilot`"),
            Self::Codex => Some("run `bub login codex`"),
            Self::Grok => Some("log in with the Grok program (`grok login`)"),
            _ => None,
        }
    }

    /// Whether it answers nobody without a key.
    pub(crate) fn needs_key(self) -> bool {
        self.facts().needs_key
    }

    pub(crate) fn dialect(self) -> Dialect {
        self.facts().chat
    }

    pub(crate) fn responses_dialect(self) -> responses::Dialect {
        self.facts().responses
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ProviderKind {
    type Err = ModelError;

    /// Reads a name, or one of its other names, in any case.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let is_it = |it: &Self| it.names().any(|it| it.eq_ignore_ascii_case(text.trim()));
        Self::ALL.into_iter().find(is_it).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            ModelError::Config(format!("unknown provider type '{text}': expected one of {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_in_any_case_and_by_their_other_names() {
        assert_eq!(" OpenAI-Compatible".parse::<ProviderKind>().unwrap(), ProviderKind::OpenAiCompatible);
        assert_eq!("xAI".parse::<ProviderKind>().unwrap(), ProviderKind::Grok);
        let err = "gpt".parse::<ProviderKind>().unwrap_err().to_string();
        assert!(err.starts_with("unknown provider type 'gpt': expected one of openai, openai-compatible, "), "{err}");
    }

    #[test]
    fn facts_are_whole() {
        for kind in ProviderKind::ALL {
            assert_eq!(kind.as_str().parse::<ProviderKind>().unwrap(), kind);
            assert!(!kind.wires().is_empty() || kind.decides(), "{kind}");
            // A base that has no path of its own would get the one for bases of one's own.
            let base = kind.default_base().unwrap_or("http://h/x").trim_end_matches('/');
            let has_path = base.splitn(4, '/').nth(3).is_some_and(|it| !it.is_empty());
            assert!(has_path || kind.default_path().is_empty(), "{kind}");
        }
    }
}
