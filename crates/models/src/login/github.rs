//! GitHub Copilot: a person types a code at GitHub, on any machine, while this one asks again and again
//! whether they have.

use std::{fmt, path::PathBuf, time::Duration};

use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{LoginError, is_plain};
use crate::{
    http,
    tokens::{Body, CopilotLogin, LoginFile, TokenReply, TokenServer},
};

/// The name at GitHub that editors without one of their own log in to Copilot with: tokens of other
/// programs are not exchanged for Copilot's.
const CLIENT_ID: &str = "Iv1.b507a08c87ecfe98";
/// What the token may do: say whose it is.
const SCOPE: &str = "read:user";
/// The pause between two questions when GitHub names none, and what slowing down adds to it.
const INTERVAL: Duration = Duration::from_secs(5);
/// The shortest and the longest pause.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a code is good when GitHub does not say, and at most.
const LIFETIMES: (Duration, Duration) = (Duration::from_secs(900), Duration::from_secs(3600));
/// So many questions in a row may fail on their way.
const MAX_FAILURES: u32 = 3;
/// The longest code that a person types.
const MAX_USER_CODE: usize = 32;

/// A login that has begun.
pub struct GithubLogin {
    github: Github,
    server: TokenServer,
    device_code: String,
    user_code: String,
    page: String,
    interval: Duration,
    end: Instant,
}

/// Where GitHub is.
#[derive(Clone, Debug)]
pub(crate) struct Github {
    /// As it was named; none is the usual one.
    pub(crate) named: Option<String>,
    pages: String,
    api: String,
}

/// A token that GitHub gave.
pub struct GithubToken {
    token: String,
    account: Option<String>,
    github: Github,
}

impl fmt::Debug for GithubLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GithubLogin").field("page", &self.page).finish_non_exhaustive()
    }
}

impl fmt::Debug for GithubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GithubToken").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Github {
    /// GitHub, or a stand-in for it on this machine.
    ///
    /// # Errors
    /// A sentence for people, for an address that is neither.
    pub(crate) fn at(named: Option<&str>) -> Result<Self, String> {
        let Some(named) = named else {
            let (pages, api) = ("https://github.com".to_owned(), "https://api.github.com".to_owned());
            return Ok(Self { named: None, pages, api });
        };
        match Url::parse(named) {
            Ok(url) if http::is_loopback(&url) => {
                let base = url.as_str().trim_end_matches('/').to_owned();
                Ok(Self { named: Some(named.to_owned()), pages: base.clone(), api: base })
            }
            _ => Err("logins to Copilot are made at github.com".to_owned()),
        }
    }

    /// Where a token is exchanged for one of Copilot's.
    pub(crate) fn exchange(&self) -> String {
        format!("{}/copilot_internal/v2/token", self.api)
    }
}

impl GithubLogin {
    /// Asks GitHub for a code.
    ///
    /// # Errors
    /// [`LoginError::Refused`] or [`LoginError::Unreachable`].
    pub async fn begin() -> Result<Self, LoginError> {
        Self::begin_at(None).await
    }

    /// The same, at a stand-in for GitHub on this machine.
    ///
    /// # Errors
    /// As [`Self::begin`], and [`LoginError::Refused`] for an address of another machine.
    pub async fn begin_at(github: Option<&str>) -> Result<Self, LoginError> {
        let github = Github::at(github).map_err(LoginError::Refused)?;
        let server = TokenServer::of(&github.pages).map_err(LoginError::Unreachable)?;
        let asked = Body::Form(vec![("client_id", CLIENT_ID.to_owned()), ("scope", SCOPE.to_owned())]);
        let url = format!("{}/login/device/code", github.pages);
        let reply = server.post(&url, &asked).await.map_err(LoginError::Unreachable)?;
        let refused = |what: String| LoginError::Refused(format!("GitHub gives no code: {what}"));
        if !reply.is_success() || reply.text("error").is_some() {
            return Err(refused(reply.refusal()));
        }
        let (device_code, user_code) = (reply.text("device_code"), reply.text("user_code"));
        let user_code = user_code.filter(|it| is_plain(it) && it.len() <= MAX_USER_CODE);
        let page = reply.text("verification_uri").and_then(|it| github.page(it));
        let (Some(device_code), Some(user_code), Some(page)) = (device_code, user_code, page) else {
            return Err(refused("its reply lacks something".to_owned()));
        };
        let lifetime = seconds(&reply, "expires_in").unwrap_or(LIFETIMES.0).min(LIFETIMES.1);
        Ok(Self {
            device_code: device_code.to_owned(),
            user_code: user_code.to_owned(),
            page,
            interval: within(seconds(&reply, "interval").unwrap_or(INTERVAL)),
            end: Instant::now() + lifetime,
            github,
            server,
        })
    }

    /// The page at GitHub where the code is typed.
    #[must_use]
    pub fn page(&self) -> &str {
        &self.page
    }

    /// What a person types there.
    #[must_use]
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// How long the code is good.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits until the person has allowed it.
    ///
    /// # Errors
    /// [`LoginError::Denied`], [`LoginError::Expired`], [`LoginError::Refused`], or
    /// [`LoginError::Unreachable`] when GitHub is away for long.
    pub async fn token(mut self) -> Result<GithubToken, LoginError> {
        let url = format!("{}/login/oauth/access_token", self.github.pages);
        let question = Body::Form(vec![
            ("client_id", CLIENT_ID.to_owned()),
            ("device_code", self.device_code.clone()),
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code".to_owned()),
        ]);
        let mut n_failures = 0;
        loop {
            if Instant::now() + self.interval > self.end {
                tokio::time::sleep_until(self.end).await;
                return Err(LoginError::Expired);
            }
            tokio::time::sleep(self.interval).await;
            let reply = match self.server.post(&url, &question).await {
                Ok(reply) if reply.status < 500 => reply,
                failed => {
                    n_failures += 1;
                    if n_failures >= MAX_FAILURES {
                        let told = |it: TokenReply| format!("github.com answers with {}", it.refusal());
                        return Err(LoginError::Unreachable(failed.map_or_else(|err| err, told)));
                    }
                    continue;
                }
            };
            n_failures = 0;
            if let Some(token) = reply.text("access_token") {
                return self.taken(token.trim()).await;
            }
            match reply.text("error") {
                Some("authorization_pending") => {}
                Some("slow_down") => self.interval = slower(self.interval, seconds(&reply, "interval")),
                Some("expired_token") => return Err(LoginError::Expired),
                Some("access_denied") => return Err(LoginError::Denied),
                _ => return Err(LoginError::Refused(format!("GitHub gives no token: {}", reply.refusal()))),
            }
        }
    }

    async fn taken(&self, token: &str) -> Result<GithubToken, LoginError> {
        if !is_plain(token) {
            return Err(LoginError::Refused("GitHub's token has a character that no token has".to_owned()));
        }
        // Only to tell whose it is: it is a login without that too.
        let headers = [("authorization", format!("Bearer {token}"))];
        let about = self.server.get(&format!("{}/user", self.github.api), &headers).await.ok();
        let account = about.filter(TokenReply::is_success).and_then(|it| it.text("login").map(str::to_owned));
        Ok(GithubToken { token: token.to_owned(), account, github: self.github.clone() })
    }
}

impl Github {
    /// A page to be opened, if it is GitHub's own.
    fn page(&self, url: &str) -> Option<String> {
        let (url, home) = (Url::parse(url).ok()?, Url::parse(&self.pages).ok()?);
        (url.origin() == home.origin() && url.username().is_empty()).then(|| url.into())
    }
}

impl GithubToken {
    /// Whose it is, if GitHub told.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// Keeps it in a file, in the place of the one that is there; the folder has to be there.
    ///
    /// # Errors
    /// [`LoginError::Keep`].
    pub fn keep(&self, path: PathBuf) -> Result<(), LoginError> {
        let mut fields = Map::new();
        fields.insert(CopilotLogin::TOKEN.to_owned(), self.token.clone().into());
        fields.insert("login".to_owned(), self.account.clone().into());
        if let Some(named) = &self.github.named {
            fields.insert(CopilotLogin::GITHUB.to_owned(), named.clone().into());
        }
        fields.insert("created_at".to_owned(), Timestamp::now().to_string().into());
        LoginFile::new(path.clone()).write(&fields).map_err(|source| LoginError::Keep { path, source })
    }
}

/// Some seconds that a reply names.
fn seconds(reply: &TokenReply, name: &str) -> Option<Duration> {
    reply.body.get(name).and_then(Value::as_u64).map(Duration::from_secs)
}

fn within(interval: Duration) -> Duration {
    interval.clamp(INTERVALS.0, INTERVALS.1)
}

/// The pause after being told to slow down: the one that is named, or a longer one.
fn slower(interval: Duration, named: Option<Duration>) -> Duration {
    within(named.filter(|it| *it > interval).unwrap_or_else(|| interval.saturating_add(INTERVAL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_within_limits() {
        let check = |interval: u64, named: Option<u64>, expected: u64| {
            let slower = slower(Duration::from_secs(interval), named.map(Duration::from_secs));
            assert_eq!(slower.as_secs(), expected, "{interval} {named:?}");
        };
        check(5, None, 10);
        check(5, Some(7), 7);
        check(5, Some(3), 10);
        check(58, None, 60);
        check(1, Some(u64::MAX), 60);
    }

    #[test]
    fn only_githubs_own_pages_are_opened() {
        let github = Github::at(None).unwrap();
        let check = |url: &str, expected: bool| assert_eq!(github.page(url).is_some(), expected, "{url}");
        check("https://github.com/login/device", true);
        check("http://github.com/login/device", false);
        check("https://github.com.example.org/login/device", false);
        check("https://me@github.com/login/device", false);
        check("file:///etc/passwd", false);
        assert!(Github::at(Some("https://example.org")).is_err());
    }
}
