//! Logins that are shared with the program that made them: their file is read at each request, and
//! renewed by whoever first finds its token about to expire.

use std::{
    fmt,
    marker::PhantomData,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bub_kernel::{model::ModelError, task::TaskScope};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::{Body, Credentials, LoginFile, LoginState, TokenServer};

/// Tokens are renewed so long before they expire, in seconds.
const EARLY: i64 = 300;

/// What differs between the programs.
pub(super) trait Program: Send + Sync + 'static {
    /// What one is logged in to.
    const SERVICE: &'static str;
    /// How to log in.
    const ADVICE: &'static str;
    /// Where tokens are renewed.
    const TOKEN_URL: &'static str;
    /// The name of the access token in the file.
    const ACCESS_TOKEN: &'static str;
    /// Further tokens that a renewal brings, by the same name in its reply and in the file.
    const OTHER_TOKENS: &'static [&'static str];

    /// The part of the file that holds the tokens.
    fn entry(file: &Map<String, Value>) -> Option<&Map<String, Value>>;
    /// The same, to be changed.
    fn entry_mut(file: &mut Map<String, Value>) -> Option<&mut Map<String, Value>>;
    /// What is posted to renew the tokens; an error is a sentence on why they can't be.
    fn request(entry: &Map<String, Value>, refresh_token: &str) -> Result<Body, String>;
    /// What lets a request in.
    fn credentials(entry: &Map<String, Value>, access_token: &str) -> Credentials;
    /// Whose login it is.
    fn account(entry: &Map<String, Value>) -> Option<String>;
    /// Notes in the file that it was renewed.
    fn note_renewal(_file: &mut Map<String, Value>, _now: Timestamp) {}
}

/// The login of a program.
pub(super) struct SharedLogin<P> {
    inner: Arc<Inner<P>>,
    /// Renewals. They are finished also when nobody waits for them any more: the old refresh token is
    /// void as soon as the server has answered.
    scope: TaskScope,
}

struct Inner<P> {
    file: LoginFile,
    token_url: String,
    /// One renewal at a time in this process; a lock of the file keeps out the others.
    turn: tokio::sync::Mutex<()>,
    seen: Mutex<Seen>,
    program: PhantomData<fn() -> P>,
}

/// What is known of tokens that the server refused.
#[derive(Default)]
struct Seen {
    /// The last one.
    refused: Option<String>,
    /// The one that came in its place.
    renewed: Option<String>,
}

/// What the file holds.
struct Login<P> {
    fields: Map<String, Value>,
    program: PhantomData<fn() -> P>,
}

impl<P> fmt::Debug for SharedLogin<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLogin").field("file", &self.inner.file).finish_non_exhaustive()
    }
}

impl<P: Program> SharedLogin<P> {
    pub(super) fn new(file: PathBuf, token_url: String) -> Self {
        let inner = Inner {
            file: LoginFile::new(file),
            token_url,
            turn: tokio::sync::Mutex::default(),
            seen: Mutex::default(),
            program: PhantomData,
        };
        Self { inner: Arc::new(inner), scope: TaskScope::default() }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.inner.file.path().to_owned()
    }

    /// The account of the login; empty when it is not known.
    ///
    /// # Errors
    /// [`ModelError::Auth`] when nobody is logged in.
    pub(super) fn account(&self) -> Result<String, ModelError> {
        Ok(self.inner.read()?.entry().and_then(P::account).unwrap_or_default())
    }

    pub(super) fn state(&self) -> LoginState {
        match self.inner.file.read() {
            Ok(None) => LoginState::Absent,
            Ok(Some(fields)) if P::entry(&fields).is_none() => LoginState::Absent,
            _ => match self.inner.read() {
                Ok(login) => LoginState::Present {
                    account: login.entry().and_then(P::account),
                    until: login.expiry(),
                    renews: login.text("refresh_token").is_some(),
                },
                Err(err) => LoginState::Broken(err.to_string()),
            },
        }
    }

    /// The tokens, to be hidden where they do not belong.
    pub(super) fn secrets(&self) -> Vec<String> {
        let Ok(login) = self.inner.read() else { return Vec::new() };
        let names = std::iter::once(&P::ACCESS_TOKEN).chain(P::OTHER_TOKENS);
        names.filter_map(|it| login.text(it).map(str::to_owned)).collect()
    }

    pub(super) async fn credentials(&self) -> Result<Credentials, ModelError> {
        let login = self.inner.read()?;
        if !self.inner.is_due(&login) {
            return Ok(login.credentials());
        }
        let (send, renewed) = oneshot::channel();
        let inner = self.inner.clone();
        self.scope.spawn_to_end(async move { drop(send.send(inner.renewed().await)) });
        renewed.await.unwrap_or_else(|_| Err(failed::<P>("the renewal was interrupted")))
    }

    pub(super) fn renew(&self, refused: &Credentials) -> bool {
        let (Ok(login), Some(token)) = (self.inner.read(), refused.token()) else { return false };
        if login.access_token() != token {
            // Somebody has renewed it since.
            return true;
        }
        let mut seen = self.inner.seen();
        // Once: when the new one is refused too, nothing helps but a new login.
        if login.text("refresh_token").is_none() || seen.renewed.as_deref() == Some(token) {
            return false;
        }
        seen.refused = Some(token.to_owned());
        true
    }
}

impl<P: Program> Inner<P> {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<Login<P>, ModelError> {
        let (shown, service, advice) = (self.file.path().display(), P::SERVICE, P::ADVICE);
        let fields = self.file.read().map_err(|err| match err.kind() {
            std::io::ErrorKind::InvalidData => ModelError::Auth(format!("{shown}: {err}; {advice}")),
            _ => ModelError::Auth(format!("the login to {service} can't be read ({shown}: {err}); {advice}")),
        })?;
        let fields = fields
            .ok_or_else(|| ModelError::Auth(format!("nobody is logged in to {service} (no {shown}); {advice}")))?;
        let login = Login { fields, program: PhantomData };
        if login.access_token().is_empty() {
            return Err(ModelError::Auth(format!("{shown} holds no login to {service}; {advice}")));
        }
        Ok(login)
    }

    /// Whether the token must be renewed before it is used.
    fn is_due(&self, login: &Login<P>) -> bool {
        self.seen().refused.as_deref() == Some(login.access_token()) || login.expires_within(EARLY)
    }

    /// Credentials with a token that is good for a while.
    async fn renewed(&self) -> Result<Credentials, ModelError> {
        let _turn = self.turn.lock().await;
        let login = self.read()?;
        if !self.is_due(&login) {
            return Ok(login.credentials());
        }
        let locked = self.file.lock().await;
        let _lock = locked.map_err(|err| failed::<P>(&format!("{}: {err}", self.file.path().display())))?;
        // Another program may have renewed it while this one waited.
        let mut login = self.read()?;
        if !self.is_due(&login) {
            return Ok(login.credentials());
        }
        let old = login.access_token().to_owned();
        let is_refused = self.seen().refused.as_deref() == Some(old.as_str());
        match login.renew(&self.token_url).await {
            Ok(()) => {}
            Err(err) if !is_refused && !login.expires_within(0) => {
                tracing::warn!("{err}; the old token is used while it lasts");
                return Ok(login.credentials());
            }
            Err(err) => return Err(err),
        }
        self.file.write(&login.fields).map_err(|err| {
            ModelError::Auth(format!("the renewed login can't be kept in {}: {err}", self.file.path().display()))
        })?;
        let mut seen = self.seen();
        seen.refused = None;
        seen.renewed = is_refused.then(|| login.access_token().to_owned());
        Ok(login.credentials())
    }
}

impl<P: Program> Login<P> {
    fn entry(&self) -> Option<&Map<String, Value>> {
        P::entry(&self.fields)
    }

    fn text(&self, name: &str) -> Option<&str> {
        text(self.entry()?, name)
    }

    fn access_token(&self) -> &str {
        self.text(P::ACCESS_TOKEN).unwrap_or_default()
    }

    fn credentials(&self) -> Credentials {
        self.entry().map(|it| P::credentials(it, self.access_token())).unwrap_or_default()
    }

    /// When the token expires, as its file says, or else the token itself.
    fn expiry(&self) -> Option<Timestamp> {
        let told = self.entry().and_then(|it| it.get("expires_at")).and_then(|told| match told {
            Value::String(time) => time.trim().parse().ok(),
            told => Timestamp::from_second(told.as_i64()?).ok(),
        });
        told.or_else(|| Timestamp::from_second(claims(self.access_token())?.get("exp")?.as_i64()?).ok())
    }

    fn expires_within(&self, seconds: i64) -> bool {
        self.expiry().is_some_and(|it| it.as_second().saturating_sub(seconds) <= Timestamp::now().as_second())
    }

    async fn renew(&mut self, url: &str) -> Result<(), ModelError> {
        let Some(refresh) = self.text("refresh_token") else {
            return Err(failed::<P>("it has no refresh token"));
        };
        let request = P::request(self.entry().unwrap_or(&Map::new()), refresh).map_err(|why| failed::<P>(&why))?;
        let server = TokenServer::of(url).map_err(|why| failed::<P>(&why))?;
        let reply = server.post(url, &request).await.map_err(|why| failed::<P>(&why))?;
        let Some(access_token) = reply.text("access_token").filter(|_| reply.is_success()) else {
            return Err(failed::<P>(&reply.refusal()));
        };
        let now = Timestamp::now();
        let Some(entry) = P::entry_mut(&mut self.fields) else {
            return Err(failed::<P>("its file has changed"));
        };
        entry.insert(P::ACCESS_TOKEN.to_owned(), access_token.into());
        for name in P::OTHER_TOKENS {
            if let Some(new) = reply.text(name) {
                entry.insert((*name).to_owned(), new.into());
            }
        }
        let lifetime = reply.body.get("expires_in").and_then(Value::as_i64);
        match lifetime.and_then(|it| Timestamp::from_second(now.as_second().saturating_add(it)).ok()) {
            Some(at) => drop(entry.insert("expires_at".to_owned(), at.to_string().into())),
            // The old one is not true any more.
            None => drop(entry.shift_remove("expires_at")),
        }
        P::note_renewal(&mut self.fields, now);
        Ok(())
    }
}

/// A text field, if it is not empty.
pub(super) fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    entry.get(name)?.as_str().filter(|it| !it.is_empty())
}

/// What a token says of itself. It is not verified: only its holder is deceived by a wrong one.
pub(super) fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

/// Neither a server's reply nor a token may stand in `what`.
fn failed<P: Program>(what: &str) -> ModelError {
    ModelError::Auth(format!("the login to {} can't be renewed: {what}; {}", P::SERVICE, P::ADVICE))
}
