//! Credentials that are no fixed key: they come from a login, and pass.

mod codex;

use std::fmt;

use async_trait::async_trait;
use bub_kernel::model::ModelError;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

pub use codex::CodexLogin;

/// Where a provider's credentials come from, if not from the settings.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// Headers that let a request in; asked for before each one.
    ///
    /// # Errors
    /// [`ModelError::Auth`] with the next step, when there are no credentials.
    async fn headers(&self) -> Result<HeaderMap, ModelError>;
    /// Is told that the server refused them. True when new ones may do better.
    async fn renew(&self) -> bool;
}

/// `Authorization: Bearer` and the like, not shown in debug output.
///
/// # Errors
/// [`ModelError::Auth`] when the text can stand in no header.
pub fn bearer(token: &str) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, secret(&format!("Bearer {token}"))?);
    Ok(headers)
}

fn secret(text: &str) -> Result<HeaderValue, ModelError> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| ModelError::Auth("the token has a character that no token has; log in again".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn insert(headers: &mut HeaderMap, name: &'static str, text: &str) -> Result<(), ModelError> {
    headers.insert(HeaderName::from_static(name), secret(text)?);
    Ok(())
}
