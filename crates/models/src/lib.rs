//! Model APIs behind the kernel's [`ModelClient`](bub_kernel::model::ModelClient).
//!
//! [`providers`] makes the list that a runtime registers: what was configured, and the well-known
//! ones. Each is a [`Provider`], which speaks one of the [`Wire`]s.
//!
//! Reading order: `kind` (the services), `provider` (what can be configured), `wire` (the formats),
//! `history` (the conversation as they need it), `http` (one try), `stream` (tries, waits and
//! events), `decode` and `draft` (from bytes to events), `calls`, `sse`, `lenient`, `options`,
//! `errors`, `retry`, `media` (those that are refused), `tokens`, `login`; then each wire: `chat`,
//! `responses`, `messages`, `gemini`; and `embed`
//! (texts to vectors), `decide` (answers to typed questions), `list` (what a provider offers).

mod calls;
mod chat;
mod decide;
mod decode;
mod draft;
mod embed;
mod errors;
mod gemini;
mod history;
mod http;
mod kind;
mod lenient;
mod list;
mod login;
mod media;
mod messages;
mod options;
mod provider;
mod responses;
mod retry;
mod sse;
mod stream;
mod tokens;
mod wire;

use std::sync::Arc;

use bub_kernel::model::{ModelError, ModelProvider};

pub use decode::MAX_REPLY_BYTES;
pub use kind::ProviderKind;
pub use login::{
    LoginError,
    github::{GithubLogin, GithubToken},
    openrouter::{KeyFile, LoginCode, OpenRouterKey, OpenRouterLogin},
};
pub use provider::{Provider, ProviderConfig, Timeouts};
pub use retry::Retries;
pub use tokens::{CodexLogin, CopilotLogin, Credentials, GrokLogin, Headers, LoginState, TokenSource};
pub use wire::Wire;

/// The providers of `configs`, and the well-known ones that they leave out.
///
/// Nothing is opened or read yet; what a provider lacks is told when a client of it is asked for.
#[must_use]
pub fn providers(configs: impl IntoIterator<Item = ProviderConfig>) -> Vec<Arc<dyn ModelProvider>> {
    let mut found: Vec<Provider> = configs.into_iter().map(Provider::new).collect();
    for (kind, name) in ProviderKind::ALL.into_iter().flat_map(|kind| kind.names().map(move |name| (kind, name))) {
        if !found.iter().any(|it| it.name() == name) {
            found.push(Provider::new(ProviderConfig::new(name, kind)));
        }
    }
    found.into_iter().map(|it| Arc::new(it) as Arc<dyn ModelProvider>).collect()
}

/// The provider of that name.
///
/// # Errors
/// [`ModelError::Config`], with the known names and how to add one, when there is none.
pub fn find<'a>(providers: &'a [Arc<dyn ModelProvider>], name: &str) -> Result<&'a Arc<dyn ModelProvider>, ModelError> {
    providers.iter().find(|it| it.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<&str> = providers.iter().map(|it| it.name()).collect();
        ModelError::Config(format!(
            "unknown model provider '{name}'; known are {}. Any server that speaks OpenAI's chat completions can be \
             added to the setting 'providers': {name}: {{type: openai-compatible, api_base: \"http://…/v1\"}}",
            known.join(", ")
        ))
    })
}
