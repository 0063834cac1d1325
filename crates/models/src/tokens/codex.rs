//! The login of ChatGPT's Codex program, whose file of tokens is shared with it.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bub_kernel::model::ModelError;
use jiff::Timestamp;
use reqwest::{Client, redirect::Policy};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::{Headers, TokenSource};

/// Where tokens are renewed.
const TOKEN_URL: &str = "https://auth.openai.com/oauth/token";
/// The Codex program's public name at that server; the tokens were made for it.
const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";
/// Tokens are renewed so long before they expire, in seconds.
const EARLY: i64 = 300;
/// How long the server may take to renew them.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest file of tokens, and the largest reply of the server, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The tokens of a ChatGPT login: `auth.json` in the Codex program's folder.
#[derive(Debug)]
pub struct CodexLogin {
    file: PathBuf,
    token_url: String,
    /// One renewal at a time; the flag says that the server refused the present tokens.
    refused: Mutex<bool>,
}

impl CodexLogin {
    /// A login whose tokens are in `file`. It is read at each request, since the Codex program renews it
    /// too.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self { file, token_url: TOKEN_URL.to_owned(), refused: Mutex::new(false) }
    }

    /// The same, renewed by another server.
    #[must_use]
    pub fn renewed_at(self, token_url: impl Into<String>) -> Self {
        Self { token_url: token_url.into(), ..self }
    }

    /// The account of the login.
    ///
    /// # Errors
    /// [`ModelError::Auth`] when nobody is logged in.
    pub fn account(&self) -> Result<String, ModelError> {
        Ok(Login::read(&self.file)?.account())
    }
}

#[async_trait]
impl TokenSource for CodexLogin {
    async fn headers(&self) -> Result<Headers, ModelError> {
        let mut refused = self.refused.lock().await;
        let mut login = Login::read(&self.file)?;
        if *refused || login.expires_within(EARLY) {
            login.renew(&self.token_url).await?;
            login.write(&self.file)?;
            *refused = false;
        }
        let token = login.token("access_token").unwrap_or_default();
        let mut headers = vec![
            ("authorization", format!("Bearer {token}")),
            ("openai-beta", "responses=experimental".to_owned()),
            ("originator", "bub".to_owned()),
        ];
        let account = login.account();
        if !account.is_empty() {
            headers.push(("chatgpt-account-id", account));
        }
        Ok(headers)
    }

    async fn renew(&self) -> bool {
        let can_renew = Login::read(&self.file).is_ok_and(|it| it.token("refresh_token").is_some());
        // Once: when the new ones are refused too, nothing helps but a new login.
        can_renew && !std::mem::replace(&mut *self.refused.lock().await, true)
    }
}

/// What the file holds; what is not known of it stays.
struct Login(Map<String, Value>);

impl Login {
    fn read(file: &Path) -> Result<Self, ModelError> {
        let advice = "run `bub login codex`";
        let shown = file.display();
        let is_too_large = fs::metadata(file).is_ok_and(|it| it.len() > MAX_BYTES);
        if is_too_large {
            return Err(ModelError::Auth(format!("{shown} is too large for a file of tokens; {advice}")));
        }
        let bytes = fs::read(file)
            .map_err(|err| ModelError::Auth(format!("nobody is logged in to ChatGPT ({shown}: {err}); {advice}")))?;
        let login = match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => Self(fields),
            _ => return Err(ModelError::Auth(format!("{shown} holds no login; {advice}"))),
        };
        match login.token("access_token") {
            Some(_) => Ok(login),
            None => Err(ModelError::Auth(format!("{shown} holds no login to ChatGPT; {advice}"))),
        }
    }

    fn token(&self, name: &str) -> Option<&str> {
        self.0.get("tokens")?.get(name)?.as_str().filter(|it| !it.is_empty())
    }

    /// The account, from its own field or from inside the tokens.
    fn account(&self) -> String {
        let inside = |token: &str| {
            let claims = claims(self.token(token)?)?;
            let auth = claims.get("https://api.openai.com/auth")?;
            auth.get("chatgpt_account_id")?.as_str().map(str::to_owned)
        };
        let own = self.token("account_id").map(str::to_owned);
        own.or_else(|| inside("id_token")).or_else(|| inside("access_token")).unwrap_or_default()
    }

    fn expires_within(&self, seconds: i64) -> bool {
        let told = self.0.get("tokens").and_then(|it| it.get("expires_at")).and_then(Value::as_i64);
        let expiry = told.or_else(|| claims(self.token("access_token")?)?.get("exp")?.as_i64());
        expiry.is_some_and(|it| it.saturating_sub(seconds) <= Timestamp::now().as_second())
    }

    async fn renew(&mut self, url: &str) -> Result<(), ModelError> {
        let failed = |what: String| {
            ModelError::Auth(format!("the login to ChatGPT can't be renewed: {what}; run `bub login codex`"))
        };
        let Some(refresh) = self.token("refresh_token") else {
            return Err(failed("it has no refresh token".to_owned()));
        };
        let body = json!({
            "client_id": CLIENT_ID, "grant_type": "refresh_token", "refresh_token": refresh,
            "scope": "openid profile email",
        });
        let client = Client::builder().redirect(Policy::none()).timeout(PATIENCE).build();
        let client = client.map_err(|err| failed(err.to_string()))?;
        let told = |err: reqwest::Error| failed(crate::http::deepest(&err.without_url()));
        let mut response = client.post(url).json(&body).send().await.map_err(told)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(more) = response.chunk().await.map_err(told)? {
            bytes.extend_from_slice(&more);
            if bytes.len() as u64 > MAX_BYTES {
                return Err(failed("the reply is too large".to_owned()));
            }
        }
        // Neither the reply nor the tokens may be repeated.
        let reply = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
        if !status.is_success() || reply.get("access_token").and_then(Value::as_str).is_none() {
            return Err(failed(format!("HTTP {}", status.as_u16())));
        }
        let tokens = self.0.entry("tokens").or_insert_with(|| json!({}));
        for name in ["access_token", "refresh_token", "id_token"] {
            if let (Some(tokens), Some(new)) = (tokens.as_object_mut(), reply.get(name).filter(|it| it.is_string())) {
                tokens.insert(name.to_owned(), new.clone());
            }
        }
        if let Some(tokens) = tokens.as_object_mut() {
            let lifetime = reply.get("expires_in").and_then(Value::as_i64);
            match lifetime.map(|it| Timestamp::now().as_second().saturating_add(it)) {
                Some(at) => drop(tokens.insert("expires_at".to_owned(), at.into())),
                None => drop(tokens.remove("expires_at")),
            }
        }
        self.0.insert("last_refresh".to_owned(), Timestamp::now().to_string().into());
        Ok(())
    }

    /// Replaces the file at once, readable by its owner alone: a lost refresh token is a lost login.
    fn write(&self, file: &Path) -> Result<(), ModelError> {
        let write = || {
            let folder = file.parent().unwrap_or_else(|| Path::new("."));
            // Such files are readable by their owner alone.
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            new.write_all(serde_json::to_string_pretty(&self.0)?.as_bytes())?;
            new.as_file().sync_all()?;
            new.persist(file).map_err(|err| err.error)?;
            Ok(())
        };
        write().map_err(|err: std::io::Error| {
            ModelError::Auth(format!("the renewed login can't be kept in {}: {err}", file.display()))
        })
    }
}

/// What a token says of itself. It is not verified: only its holder is deceived by a wrong one.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}
