//! Credentials that are no fixed key: they come from a login, and pass.

mod codex;

use std::fmt;

use async_trait::async_trait;
use bub_kernel::model::ModelError;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub use codex::CodexLogin;

/// Names of headers, lower case, and their values.
pub type Headers = Vec<(&'static str, String)>;

/// Where a provider's credentials come from, if not from the settings.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// Headers that let a request in; asked for before each one.
    ///
    /// # Errors
    /// [`ModelError::Auth`] with the next step, when there are no credentials.
    async fn headers(&self) -> Result<Headers, ModelError>;
    /// Is told that the server refused them. True when new ones may do better.
    async fn renew(&self) -> bool;
}

/// Puts credentials among the headers of a request, not to be shown in debug output.
///
/// # Errors
/// [`ModelError::Auth`] when one can stand in no header.
pub(crate) fn add_to(headers: &mut HeaderMap, credentials: &[(&'static str, String)]) -> Result<(), ModelError> {
    for (name, value) in credentials {
        let mut value = HeaderValue::try_from(value.as_str())
            .map_err(|_| ModelError::Auth("the token has a character that no token has; log in again".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}
