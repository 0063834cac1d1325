//! Credentials that are no fixed key: they come from a login, and pass.

mod codex;
mod copilot;
mod file;
mod grok;
mod shared;
mod token_server;

use std::fmt;

use async_trait::async_trait;
use bub_kernel::{model::ModelError, secret::SecretMask};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

pub use codex::CodexLogin;
pub use copilot::CopilotLogin;
pub(crate) use file::LoginFile;
pub use grok::GrokLogin;
pub(crate) use token_server::{Body, TokenReply, TokenServer};

/// Names of headers, lower case, and their values.
pub type Headers = Vec<(&'static str, String)>;

/// What lets a request in.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Headers of the request.
    pub headers: Headers,
    /// Where requests with them go, if that is not the provider's usual place; an address that is
    /// configured counts more.
    pub api_base: Option<Url>,
}

impl Credentials {
    /// A bearer token.
    #[must_use]
    pub fn bearer(token: &str) -> Self {
        Self { headers: vec![("authorization", format!("Bearer {token}"))], api_base: None }
    }

    /// The token of the header `Authorization`.
    pub(crate) fn token(&self) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| *name == "authorization")?;
        value.split_whitespace().last()
    }

    /// Hides the token in texts.
    pub(crate) fn mask(&self) -> SecretMask {
        SecretMask::new(self.token())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Credentials").field("headers", &names).finish_non_exhaustive()
    }
}

/// Where a provider's credentials come from, if not from the settings.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// What lets a request in; asked for before each one.
    ///
    /// # Errors
    /// [`ModelError::Auth`] with the next step, when there are no credentials.
    async fn credentials(&self) -> Result<Credentials, ModelError>;
    /// Is told that the server refused these. True when new ones may do better.
    async fn renew(&self, refused: &Credentials) -> bool;
}

/// What a person is told of a login. It holds no secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoginState {
    /// There is none.
    Absent,
    /// There is one.
    Present {
        /// Whose it is, if that is known.
        account: Option<String>,
        /// Until when its token is good, if that is known.
        until: Option<jiff::Timestamp>,
        /// Whether the token is renewed by itself.
        renews: bool,
    },
    /// There is something, but it is of no use.
    Broken(String),
}

/// Puts credentials among the headers of a request, not to be shown in debug output.
///
/// # Errors
/// [`ModelError::Auth`] when one can stand in no header.
pub(crate) fn add_to(headers: &mut HeaderMap, credentials: &Credentials) -> Result<(), ModelError> {
    for (name, value) in &credentials.headers {
        let mut value = HeaderValue::try_from(value.as_str())
            .map_err(|_| ModelError::Auth("the token has a character that no token has; log in again".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}
