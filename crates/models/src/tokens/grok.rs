//! The login of xAI's Grok program, whose file of tokens is shared with it.

use std::path::PathBuf;

use async_trait::async_trait;
use bub_kernel::model::ModelError;
use serde_json::{Map, Value};

use super::{
    Body, Credentials, LoginState, TokenSource,
    shared::{Program, SharedLogin, text},
};

/// The server that gave the tokens. Others, such as a company's own, get none of them.
const ISSUER: &str = "https://auth.x.ai";
/// The place in the file of a login made the old way, which can't be renewed.
const OLD_PLACE: &str = "https://accounts.x.ai/sign-in";

/// The tokens of a login to xAI: `auth.json` in the Grok program's folder.
#[derive(Debug)]
pub struct GrokLogin(SharedLogin<Grok>);

impl GrokLogin {
    /// A login whose tokens are in `file`. It is read at each request, since the Grok program renews it
    /// too.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self(SharedLogin::new(file, Grok::TOKEN_URL.to_owned()))
    }

    /// The same, renewed by another server.
    #[must_use]
    pub fn renewed_at(self, token_url: impl Into<String>) -> Self {
        Self(SharedLogin::new(self.0.file(), token_url.into()))
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
impl TokenSource for GrokLogin {
    async fn credentials(&self) -> Result<Credentials, ModelError> {
        self.0.credentials().await
    }

    async fn renew(&self, refused: &Credentials) -> bool {
        self.0.renew(refused)
    }
}

#[derive(Debug)]
struct Grok;

impl Program for Grok {
    const SERVICE: &'static str = "xAI";
    const ADVICE: &'static str = "run `grok login`, or set BUB_GROK_API_KEY";
    const TOKEN_URL: &'static str = "https://auth.x.ai/oauth2/token";
    const ACCESS_TOKEN: &'static str = "key";
    const OTHER_TOKENS: &'static [&'static str] = &["refresh_token"];

    fn entry(file: &Map<String, Value>) -> Option<&Map<String, Value>> {
        file.get(place(file)?)?.as_object()
    }

    fn entry_mut(file: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
        let place = place(file)?.to_owned();
        file.get_mut(&place)?.as_object_mut()
    }

    fn request(entry: &Map<String, Value>, refresh_token: &str) -> Result<Body, String> {
        let Some(client_id) = text(entry, "oidc_client_id") else {
            return Err("its file does not say which program it was made for".to_owned());
        };
        if text(entry, "oidc_issuer").is_some_and(|it| it.trim_end_matches('/') != ISSUER) {
            return Err("another server made it".to_owned());
        }
        let mut fields =
            vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token), ("client_id", client_id)];
        // Tokens of a team stay the team's.
        fields.extend(["principal_type", "principal_id"].into_iter().filter_map(|it| Some((it, text(entry, it)?))));
        Ok(Body::Form(fields.into_iter().map(|(name, value)| (name, value.to_owned())).collect()))
    }

    fn credentials(_: &Map<String, Value>, access_token: &str) -> Credentials {
        Credentials::bearer(access_token)
    }

    fn account(entry: &Map<String, Value>) -> Option<String> {
        text(entry, "email").or_else(|| text(entry, "user_id")).map(str::to_owned)
    }
}

/// The name of the entry to use: the file holds one for each server and program that somebody logged in
/// with.
fn place(file: &Map<String, Value>) -> Option<&str> {
    let has_token = |place: &&String| file.get(*place).and_then(|it| it.get("key")).is_some_and(Value::is_string);
    let is_of = |place: &&String| place.strip_prefix(ISSUER).is_some_and(|rest| rest.starts_with("::"));
    let found = file.keys().filter(has_token).find(is_of);
    found.or_else(|| file.keys().filter(has_token).find(|it| *it == OLD_PLACE)).map(String::as_str)
}
