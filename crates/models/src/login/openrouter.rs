//! OpenRouter: a browser allows it, and the code that comes back is exchanged for a key.
//!
//! The code alone is of no use to who sees it: the exchange needs the secret whose hash went with the
//! first request.

use std::{fmt, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    LoginError,
    callback::{Callback, Page},
    is_plain,
};
use crate::{
    http,
    kind::ProviderKind,
    tokens::{Body, LoginFile, LoginState, TokenServer},
};

/// The longest text that is taken for a code or an address, in bytes.
const MAX_PASTED: usize = 8 << 10;

/// A login that has begun: a port is open until it is dropped.
pub struct OpenRouterLogin {
    url: String,
    exchange: String,
    verifier: String,
    /// The path that the browser comes back to. Nobody can guess it, as OpenRouter hands back no state.
    path: String,
    callback: Callback,
}

/// What a browser brings back.
pub struct LoginCode(String);

/// A key that OpenRouter gave.
pub struct OpenRouterKey {
    key: String,
    user: Option<String>,
}

/// The file that keeps a key.
#[derive(Clone, Debug)]
pub struct KeyFile(LoginFile);

impl fmt::Debug for OpenRouterLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRouterLogin").field("port", &self.callback.port()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LoginCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginCode").finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenRouterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRouterKey").field("user", &self.user).finish_non_exhaustive()
    }
}

impl OpenRouterLogin {
    /// Begins a login where OpenRouter's API is: at its usual place, or at `api_base`.
    ///
    /// # Errors
    /// [`LoginError::Refused`] for an address that can't be it, [`LoginError::Listen`] without a port.
    pub async fn begin(api_base: Option<&str>) -> Result<Self, LoginError> {
        let kind = ProviderKind::OpenRouter;
        let base = api_base.or(kind.default_base()).unwrap_or_default();
        // The base itself is not repeated: it may hold a password.
        let base = http::base_url(base, kind.default_path())
            .map_err(|err| LoginError::Refused(format!("the api_base of provider '{kind}' {err}")))?;
        if base.scheme() != "https" && !http::is_loopback(&base) {
            let what = "the api_base of provider 'openrouter' is not https: the key would be read on the way";
            return Err(LoginError::Refused(what.to_owned()));
        }
        let callback = Callback::open().await.map_err(LoginError::Listen)?;
        // Two of them have 244 random bits.
        let verifier = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let path = format!("/callback/{}", Uuid::new_v4().simple());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let mut url = base.clone();
        url.set_path("/auth");
        url.query_pairs_mut()
            .clear()
            // By this name OpenRouter takes any port.
            .append_pair("callback_url", &format!("http://localhost:{}{path}", callback.port()))
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        let exchange = format!("{}/auth/keys", base.as_str().trim_end_matches('/'));
        Ok(Self { url: url.into(), exchange, verifier, path, callback })
    }

    /// The address that a browser has to open.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until a browser of this machine comes back.
    ///
    /// # Errors
    /// [`LoginError::Denied`].
    pub async fn come_back(&self) -> Result<LoginCode, LoginError> {
        let judge = |target: &str| {
            let Ok(url) = Url::parse(&format!("http://localhost{target}")) else { return (Page::Unknown, None) };
            match self.code_in(&url) {
                Ok(code) => (Page::Done, Some(Ok(code))),
                Err(LoginError::Denied) => (Page::Denied, Some(Err(LoginError::Denied))),
                Err(_) => (Page::Unknown, None),
            }
        };
        self.callback.wait(judge).await
    }

    /// Reads what a person pasted: the code, or the address that the browser was sent to.
    ///
    /// # Errors
    /// [`LoginError::Denied`], [`LoginError::Foreign`] or [`LoginError::NoCode`].
    pub fn pasted(&self, text: &str) -> Result<LoginCode, LoginError> {
        let text = text.trim();
        if text.len() > MAX_PASTED || !is_plain(text) {
            return Err(LoginError::NoCode);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return self.code_in(&Url::parse(text).map_err(|_| LoginError::NoCode)?);
        }
        let code = text.trim_start_matches('?');
        match code.strip_prefix("code=") {
            Some(code) => Ok(LoginCode(code.split('&').next().unwrap_or(code).to_owned())),
            None => Ok(LoginCode(code.to_owned())),
        }
    }

    fn code_in(&self, url: &Url) -> Result<LoginCode, LoginError> {
        if url.path() != self.path {
            return Err(LoginError::Foreign);
        }
        let value = |name: &str| url.query_pairs().find(|(it, _)| it == name).map(|(_, value)| value.into_owned());
        match (value("code").filter(|it| is_plain(it)), value("error")) {
            (Some(code), _) => Ok(LoginCode(code)),
            (None, Some(_)) => Err(LoginError::Denied),
            (None, None) => Err(LoginError::NoCode),
        }
    }

    /// Exchanges the code for a key.
    ///
    /// # Errors
    /// [`LoginError::Refused`] or [`LoginError::Unreachable`].
    pub async fn exchange(&self, code: LoginCode) -> Result<OpenRouterKey, LoginError> {
        let body = json!({"code": code.0, "code_verifier": self.verifier, "code_challenge_method": "S256"});
        let server = TokenServer::of(&self.exchange).map_err(LoginError::Unreachable)?;
        let reply = server.post(&self.exchange, &Body::Json(body)).await.map_err(LoginError::Unreachable)?;
        if !reply.is_success() {
            let what = format!("OpenRouter refuses the code ({}); log in again", reply.refusal());
            return Err(LoginError::Refused(what));
        }
        match reply.text("key").map(str::trim).filter(|it| is_plain(it)) {
            Some(key) => Ok(OpenRouterKey { key: key.to_owned(), user: reply.text("user_id").map(str::to_owned) }),
            None => Err(LoginError::Refused("OpenRouter's reply holds no key".to_owned())),
        }
    }
}

impl OpenRouterKey {
    /// Whose key it is, if OpenRouter told.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl KeyFile {
    /// The file at that path; its folder has to be there before a key is kept.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(LoginFile::new(path))
    }

    /// The key, if there is one.
    ///
    /// # Errors
    /// A sentence for people, when the file can't be read or holds something else.
    pub fn key(&self) -> Result<Option<String>, String> {
        let shown = self.0.path().display();
        let problem = |what: &str| format!("{shown}: {what}; run `bub login openrouter` again");
        let Some(fields) = self.0.read().map_err(|err| problem(&err.to_string()))? else { return Ok(None) };
        match text(&fields, "api_key") {
            Some(key) if is_plain(key) => Ok(Some(key.to_owned())),
            Some(_) => Err(problem("the key in it has a character that no key has")),
            None => Err(problem("it holds no key")),
        }
    }

    /// Whether there is a key, and whose.
    #[must_use]
    pub fn state(&self) -> LoginState {
        let account = || Some(text(&self.0.read().ok()??, "user_id")?.to_owned());
        match self.key() {
            Ok(None) => LoginState::Absent,
            Ok(Some(_)) => LoginState::Present { account: account(), until: None, renews: false },
            Err(problem) => LoginState::Broken(problem),
        }
    }

    /// Removes the key; tells whether there was one. At OpenRouter it stays good until it is deleted there.
    ///
    /// # Errors
    /// Those of removing the file.
    pub fn remove(&self) -> std::io::Result<bool> {
        self.0.remove()
    }

    /// Keeps a key, in the place of the one that is there.
    ///
    /// # Errors
    /// [`LoginError::Keep`].
    pub fn keep(&self, key: &OpenRouterKey) -> Result<(), LoginError> {
        let mut fields = Map::new();
        fields.insert("api_key".to_owned(), key.key.clone().into());
        fields.insert("user_id".to_owned(), key.user.clone().into());
        fields.insert("created_at".to_owned(), Timestamp::now().to_string().into());
        let keep = self.0.write(&fields);
        keep.map_err(|source| LoginError::Keep { path: self.0.path().to_owned(), source })
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().map(str::trim).filter(|it| !it.is_empty())
}
