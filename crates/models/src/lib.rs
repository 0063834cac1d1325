//! Model APIs behind the kernel's [`ModelClient`](bub_kernel::model::ModelClient).
//!
//! [`providers`] makes the list that a runtime registers: what was configured, and the well-known
//! ones. Each is a [`ChatProvider`], which speaks the wire of OpenAI's chat completions.
//!
//! Reading order: `provider` (what can be configured), `request` (the body), `http` (one try),
//! `stream` (tries, waits and events), `decode`, `chunk` and `calls` (from bytes to events), `sse`,
//! `errors`, `retry`; `embed` (texts to vectors).

mod calls;
mod chunk;
mod decode;
mod embed;
mod errors;
mod http;
mod provider;
mod request;
mod retry;
mod sse;
mod stream;

use std::sync::Arc;

use bub_kernel::model::{ModelError, ModelProvider};

pub use decode::MAX_REPLY_BYTES;
pub use provider::{ChatProvider, ProviderConfig, ProviderKind, Timeouts};
pub use retry::Retries;

/// The providers of `configs`, and the well-known ones that they leave out.
///
/// Nothing is opened or read yet; what a provider lacks is told when a client of it is asked for.
#[must_use]
pub fn providers(configs: impl IntoIterator<Item = ProviderConfig>) -> Vec<Arc<dyn ModelProvider>> {
    let mut found: Vec<ChatProvider> = configs.into_iter().map(ChatProvider::new).collect();
    for kind in ProviderKind::ALL {
        if !found.iter().any(|it| it.name() == kind.as_str()) {
            found.push(ChatProvider::new(ProviderConfig::new(kind.as_str(), kind)));
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
