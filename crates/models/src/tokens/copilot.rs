//! The login to GitHub Copilot: a token of GitHub's is exchanged for one of Copilot's, which lasts for
//! half an hour and says where Copilot is.

use std::{fmt, path::PathBuf};

use async_trait::async_trait;
use bub_kernel::model::ModelError;
use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::{Credentials, LoginFile, LoginState, TokenReply, TokenServer, TokenSource};
use crate::{kind::ProviderKind, login::github::Github};

/// Copilot's tokens are replaced so long before they expire, in seconds.
const EARLY: i64 = 120;
/// How long one is used that does not say when it expires, in seconds.
const USUAL_LIFETIME: i64 = 600;
/// Domains that may say to be Copilot's API.
const DOMAINS: [&str; 2] = ["githubcopilot.com", "github.com"];
/// What the next step is when GitHub's token is of no use.
const ADVICE: &str = "run `bub login copilot`";

/// A login to Copilot that bub keeps.
pub struct CopilotLogin {
    file: LoginFile,
    /// Copilot's token; never written anywhere.
    current: Mutex<Option<Current>>,
}

#[derive(Clone)]
struct Current {
    credentials: Credentials,
    /// The token of GitHub's that it was exchanged for.
    from: String,
    until: Timestamp,
}

/// What the file holds.
struct Kept {
    token: String,
    account: Option<String>,
    github: Github,
}

impl fmt::Debug for CopilotLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopilotLogin").field("file", &self.file).finish_non_exhaustive()
    }
}

impl CopilotLogin {
    /// The name of GitHub's token in the file.
    pub(crate) const TOKEN: &'static str = "github_token";
    /// The name of GitHub's address there, if it is not the usual one.
    pub(crate) const GITHUB: &'static str = "github";

    /// The login in that file. It is read at each request, so that a new one is used at once.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self { file: LoginFile::new(file), current: Mutex::default() }
    }

    /// Whether there is a login, and whose.
    #[must_use]
    pub fn state(&self) -> LoginState {
        match self.kept() {
            Ok(Some(kept)) => LoginState::Present { account: kept.account, until: None, renews: true },
            Ok(None) => LoginState::Absent,
            Err(problem) => LoginState::Broken(problem),
        }
    }

    /// GitHub's token, to be hidden where it does not belong.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        self.kept().ok().flatten().map(|it| it.token).into_iter().collect()
    }

    /// Removes the login; tells whether there was one.
    ///
    /// # Errors
    /// Those of removing the file.
    pub fn remove(&self) -> std::io::Result<bool> {
        self.file.remove()
    }

    fn kept(&self) -> Result<Option<Kept>, String> {
        let problem = |what: &str| format!("{}: {what}; {ADVICE} again", self.file.path().display());
        let Some(fields) = self.file.read().map_err(|err| problem(&err.to_string()))? else { return Ok(None) };
        let text = |name: &str| text(&fields, name).map(str::to_owned);
        let token = text(Self::TOKEN).ok_or_else(|| problem("it holds no login to Copilot"))?;
        let github = Github::at(text(Self::GITHUB).as_deref()).map_err(|why| problem(&why))?;
        Ok(Some(Kept { token, account: text("login"), github }))
    }
}

#[async_trait]
impl TokenSource for CopilotLogin {
    async fn credentials(&self) -> Result<Credentials, ModelError> {
        // One exchange at a time: those who wait use what it brings.
        let mut current = self.current.lock().await;
        let kept = self.kept().map_err(ModelError::Auth)?;
        let kept = kept.ok_or_else(|| ModelError::Auth(format!("nobody is logged in to Copilot; {ADVICE}")))?;
        let now = Timestamp::now().as_second();
        if let Some(it) = &*current
            && it.from == kept.token
            && it.until.as_second().saturating_sub(EARLY) > now
        {
            return Ok(it.credentials.clone());
        }
        let new = exchange(&kept).await?;
        Ok(current.insert(new).credentials.clone())
    }

    async fn renew(&self, refused: &Credentials) -> bool {
        let mut current = self.current.lock().await;
        // Others may have been refused the same one and have a new one already.
        if current.as_ref().is_some_and(|it| it.credentials.token() == refused.token()) {
            *current = None;
        }
        true
    }
}

/// Exchanges GitHub's token for Copilot's. What fails on the way may be tried again.
async fn exchange(kept: &Kept) -> Result<Current, ModelError> {
    let mut headers = vec![("authorization", format!("token {}", kept.token))];
    // Those that name the editor.
    headers.extend(ProviderKind::GithubCopilot.more_headers().iter().map(|(name, value)| (*name, (*value).to_owned())));
    headers.push(("editor-plugin-version", concat!("bub/", env!("CARGO_PKG_VERSION")).to_owned()));
    let sentence = |what: &str| format!("GitHub gives no token for Copilot: {what}");
    let failed = |what: &str| ModelError::Auth(sentence(what));
    let passing = |what: &str| ModelError::Transport { message: sentence(what), source: None };
    let url = kept.github.exchange();
    let server = TokenServer::of(&url).map_err(|why| failed(&why))?;
    let reply = server.get(&url, &headers).await.map_err(|why| passing(&why))?;
    let status = reply.status;
    match status {
        401 => return Err(failed(&format!("it does not know the login any more (HTTP 401); {ADVICE} again"))),
        403 | 404 => {
            let what = format!("this account has no Copilot (HTTP {status}); see https://github.com/settings/copilot");
            return Err(failed(&what));
        }
        500.. => return Err(passing(&reply.refusal())),
        _ if !reply.is_success() => return Err(failed(&reply.refusal())),
        _ => {}
    }
    let token = reply.text("token").ok_or_else(|| failed("its reply holds none"))?;
    let mut credentials = Credentials::bearer(token);
    credentials.api_base = api_base(&reply).map_err(ModelError::Auth)?;
    let told = reply.body.get("expires_at").and_then(Value::as_i64);
    let until = told.unwrap_or_else(|| Timestamp::now().as_second().saturating_add(USUAL_LIFETIME));
    let until = Timestamp::from_second(until).map_err(|_| failed("it says nonsense about when it expires"))?;
    Ok(Current { credentials, from: kept.token.clone(), until })
}

/// Where the reply says that Copilot's API is: a place that is GitHub's, as the token goes there.
fn api_base(reply: &TokenReply) -> Result<Option<Url>, String> {
    let Some(told) = reply.body.get("endpoints").and_then(|it| it.get("api")).filter(|it| !it.is_null()) else {
        return Ok(None);
    };
    let url = told.as_str().and_then(|it| Url::parse(it.trim()).ok());
    let is_githubs = |url: &Url| {
        let host = url.host_str().unwrap_or_default();
        let is_in = |domain: &&str| host.strip_suffix(*domain).is_some_and(|it| it.is_empty() || it.ends_with('.'));
        url.scheme() == "https"
            && url.port().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && DOMAINS.iter().any(is_in)
    };
    match url.filter(is_githubs) {
        Some(mut url) => {
            url.set_path("");
            url.set_query(None);
            url.set_fragment(None);
            Ok(Some(url))
        }
        None => Err("GitHub names a place for Copilot that is not GitHub's; no token is sent there".to_owned()),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str().map(str::trim).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_go_to_githubs_own_places_alone() {
        let check = |api: Value, expected: Result<Option<&str>, ()>| {
            let reply = TokenReply { status: 200, body: json!({"endpoints": {"api": api}}) };
            let base = api_base(&reply).map_err(|_| ());
            assert_eq!(base.as_ref().map(|it| it.as_ref().map(Url::as_str)), expected.as_ref().copied(), "{api}");
        };
        check(Value::Null, Ok(None));
        check(json!("https://api.individual.githubcopilot.com"), Ok(Some("https://api.individual.githubcopilot.com/")));
        check(json!("https://githubcopilot.com/x?y#z"), Ok(Some("https://githubcopilot.com/")));
        check(json!("https://copilot-api.GitHub.com:443"), Ok(Some("https://copilot-api.github.com/")));
        for hostile in [
            "http://api.githubcopilot.com",
            "https://api.githubcopilot.com.example.org",
            "https://evilgithubcopilot.com",
            "https://evil-github.com",
            "https://api.githubcopilot.com@example.org",
            "https://me:pass@api.githubcopilot.com",
            "https://api.githubcopilot.com:8443",
            "https://127.0.0.1",
            "https://example.org/github.com",
            "file:///github.com",
            "",
        ] {
            check(json!(hostile), Err(()));
        }
        check(json!(1), Err(()));
    }
}
