//! The login of ChatGPT's Codex program, whose file of tokens is shared with it.

use std::path::PathBuf;

use async_trait::async_trait;
use bub_kernel::model::ModelError;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Body, Credentials, LoginState, TokenSource,
    shared::{Program, SharedLogin, claims, text},
};

/// The Codex program's public name at the server; the tokens were made for it.
const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";

/// The tokens of a ChatGPT login: `auth.json` in the Codex program's folder.
#[derive(Debug)]
pub struct CodexLogin(SharedLogin<Codex>);

impl CodexLogin {
    /// A login whose tokens are in `file`. It is read at each request, since the Codex program renews it
    /// too.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self(SharedLogin::new(file, Codex::TOKEN_URL.to_owned()))
    }

    /// The same, renewed by another server.
    #[must_use]
    pub fn renewed_at(self, token_url: impl Into<String>) -> Self {
        Self(SharedLogin::new(self.0.file(), token_url.into()))
    }

    /// The account of the login.
    ///
    /// # Errors
    /// [`ModelError::Auth`] when nobody is logged in.
    pub fn account(&self) -> Result<String, ModelError> {
        self.0.account()
    }

    /// The tokens as they are now, to be hidden where they do not belong.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        self.0.secrets()
    }

    /// Whether somebody is logged in, and until when.
    #[must_use]
    pub fn state(&self) -> LoginState {
        self.0.state()
    }
}

#[async_trait]
impl TokenSource for CodexLogin {
    async fn credentials(&self) -> Result<Credentials, ModelError> {
        self.0.credentials().await
    }

    async fn renew(&self, refused: &Credentials) -> bool {
        self.0.renew(refused)
    }
}

#[derive(Debug)]
struct Codex;

impl Program for Codex {
    const SERVICE: &'static str = "ChatGPT";
    const ADVICE: &'static str = "run `bub login codex`";
    const TOKEN_URL: &'static str = "https://auth.openai.com/oauth/token";
    const ACCESS_TOKEN: &'static str = "access_token";
    const OTHER_TOKENS: &'static [&'static str] = &["refresh_token", "id_token"];

    fn entry(file: &Map<String, Value>) -> Option<&Map<String, Value>> {
        file.get("tokens")?.as_object()
    }

    fn entry_mut(file: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
        file.get_mut("tokens")?.as_object_mut()
    }

    fn request(_: &Map<String, Value>, refresh_token: &str) -> Result<Body, String> {
        Ok(Body::Json(json!({
            "client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": refresh_token,
            "scope": "openid profile email",
        })))
    }

    fn credentials(entry: &Map<String, Value>, access_token: &str) -> Credentials {
        let mut credentials = Credentials::bearer(access_token);
        credentials.headers.push(("openai-beta", "responses=experimental".to_owned()));
        credentials.headers.push(("originator", "bub".to_owned()));
        credentials.headers.extend(Self::account(entry).map(|it| ("chatgpt-account-id", it)));
        credentials
    }

    /// From its own field, or from inside the tokens.
    fn account(entry: &Map<String, Value>) -> Option<String> {
        let inside = |name: &str| {
            let claims = claims(text(entry, name)?)?;
            let auth = claims.get("https://api.openai.com/auth")?;
            auth.get("chatgpt_account_id")?.as_str().map(str::to_owned)
        };
        let own = text(entry, "account_id").map(str::to_owned);
        own.or_else(|| inside("id_token")).or_else(|| inside("access_token"))
    }

    fn note_renewal(file: &mut Map<String, Value>, now: Timestamp) {
        file.insert("last_refresh".to_owned(), now.to_string().into());
    }
}
