//! In what a server's wire differs from the others'.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::kind::ProviderKind;

/// Families of models that want their thinking back, whoever serves them.
const THINKERS: [&str; 2] = ["kimi", "deepseek"];

/// OpenAI's models that take no `max_tokens`, wherever they are served.
const THINK_FIRST: [&str; 4] = ["gpt-5", "o1", "o3", "o4"];

/// Families of models whose servers are strict about ids and the order of messages, as Mistral's own is.
const MISTRALS: [&str; 6] = ["mistral", "ministral", "mixtral", "codestral", "devstral", "magistral"];

/// In what a server's wire differs from the others'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// The field for the most tokens to write.
    pub(super) max_tokens: &'static str,
    /// The field for the seed.
    pub(super) seed: &'static str,
    /// Whether the reasoning effort is sent as `reasoning: {effort}`.
    pub(super) nested_effort: bool,
    /// Whether the model's thinking goes back as `reasoning_content`; these models lose the thread of
    /// their calls without it, and their servers refuse an answer that lacks it.
    pub(super) thinking_back: bool,
    /// Whether usage must be asked for.
    pub(super) asks_usage: bool,
    /// Whether sampling among the likeliest tokens is known.
    pub(super) has_top_k: bool,
    /// Whether thinking is asked for apart from the words.
    pub(super) splits_thinking: bool,
    /// Whether results must be answered before a person speaks again.
    pub(super) answers_results: bool,
    call_ids: CallIds,
}

/// Which ids of calls are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CallIds {
    Any,
    /// Of at most 40 characters.
    Short,
    /// Of nine letters and digits.
    Nine,
}

impl Dialect {
    /// What most servers take.
    pub(crate) const PLAIN: Self = Self {
        max_tokens: "max_tokens",
        seed: "seed",
        nested_effort: false,
        thinking_back: false,
        asks_usage: true,
        has_top_k: true,
        splits_thinking: false,
        answers_results: false,
        call_ids: CallIds::Any,
    };
    /// OpenAI itself, and what is run by it.
    pub(crate) const OPENAI: Self = Self { call_ids: CallIds::Short, ..Self::LIKE_OPENAI };
    /// Others that name the options as OpenAI does now.
    pub(crate) const LIKE_OPENAI: Self = Self { max_tokens: "max_completion_tokens", ..Self::PLAIN };
    pub(crate) const OPENROUTER: Self = Self { nested_effort: true, ..Self::LIKE_OPENAI };
    /// DeepSeek, Moonshot, Z.ai.
    pub(crate) const THINKING_BACK: Self = Self { thinking_back: true, ..Self::PLAIN };
    pub(crate) const MISTRAL: Self = Self {
        seed: "random_seed",
        asks_usage: false,
        has_top_k: false,
        answers_results: true,
        call_ids: CallIds::Nine,
        ..Self::PLAIN
    };
    pub(crate) const MINIMAX: Self = Self { splits_thinking: true, ..Self::LIKE_OPENAI };

    /// The dialect for a model, whose family counts where the server may be any.
    pub(super) fn of_model(self, kind: ProviderKind, model: &str) -> Self {
        let name = model.to_lowercase();
        let is_of = |families: &[&str]| families.iter().any(|it| name.contains(it));
        let is_mistral = is_of(&MISTRALS);
        let dialect = if is_mistral {
            // Whoever serves them does so with Mistral's own templates, which check this.
            Self { answers_results: true, call_ids: CallIds::Nine, ..self }
        } else {
            self
        };
        let own_name = name.rsplit('/').next().unwrap_or(&name);
        let max_tokens =
            if kind == ProviderKind::OpenAiCompatible && THINK_FIRST.iter().any(|it| own_name.starts_with(it)) {
                Self::LIKE_OPENAI.max_tokens
            } else {
                dialect.max_tokens
            };
        // Others than these refuse the field.
        let takes_thinking = kind == ProviderKind::OpenAiCompatible;
        let thinking_back = dialect.thinking_back || (takes_thinking && is_of(&THINKERS));
        Self { thinking_back, max_tokens, ..dialect }
    }

    /// The id of a call, of whichever provider, as the server takes it.
    pub(super) fn call_id(self, id: &str) -> Cow<'_, str> {
        let fits = match self.call_ids {
            CallIds::Any => true,
            // A gateway that puts signatures into ids needs them whole.
            CallIds::Short => id.len() <= 40 || id.contains("__thought__"),
            CallIds::Nine => id.len() == 9 && id.bytes().all(|it| it.is_ascii_alphanumeric()),
        };
        if fits {
            return id.into();
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let hash = format!("{:016x}", hasher.finish());
        match self.call_ids {
            CallIds::Nine => hash.get(..9).unwrap_or_default().to_owned().into(),
            CallIds::Any | CallIds::Short => format!("call_{hash}").into(),
        }
    }
}
