//! The login to GitHub Copilot: at GitHub once, and its exchange for Copilot's own tokens.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::model::{ModelClient, ModelError, ModelProvider as _};
use bub_models::{
    CopilotLogin, Credentials, GithubLogin, LoginError, LoginState, Provider, ProviderConfig, ProviderKind, TokenSource,
};
use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{mode, now, time};
use crate::{ask, client, config, text_of};

const GITHUB: &str = "ghu_0123456789abcdef";
const DEVICE: &str = "device-0123456789";

/// GitHub's side of a login: a code, then these replies to the questions whether it was typed.
fn github(replies: impl IntoIterator<Item = Reply>) -> ModelServer {
    let replies = Mutex::new(replies.into_iter().collect::<Vec<_>>().into_iter());
    ModelServer::with(move |request| match request.path.as_str() {
        "/v1/login/device/code" => {
            let host = request.header("host").unwrap();
            Reply::json(&json!({
                "device_code": DEVICE, "user_code": "ABCD-1234", "interval": 1, "expires_in": 900,
                "verification_uri": format!("http://{host}/login/device"),
            }))
        }
        "/v1/login/oauth/access_token" => replies.lock().unwrap().next().unwrap_or_else(|| Reply::status(500)),
        "/v1/user" => Reply::json(&json!({"login": "octocat"})),
        path => Reply::status(404).body(path),
    })
}

fn error(code: &str) -> Reply {
    Reply::json(&json!({"error": code, "error_description": format!("about {DEVICE}")}))
}

fn token() -> Reply {
    Reply::json(&json!({"access_token": GITHUB, "token_type": "bearer", "scope": "read:user"}))
}

#[tokio::test]
async fn a_typed_code_gives_a_token_that_is_kept() {
    let slow = Reply::json(&json!({"error": "slow_down", "interval": 2}));
    // One question that fails on its way is none.
    let server = github([error("authorization_pending"), slow, Reply::status(502), token()]);
    let login = GithubLogin::begin_at(Some(&server.base_url())).await.unwrap();
    assert_eq!((login.user_code(), login.page()), ("ABCD-1234", &*format!("http://{}/login/device", server.address())));
    assert!(login.lifetime() > Duration::from_secs(600) && !format!("{login:?}").contains(DEVICE));
    let token = login.token().await.unwrap();
    assert_eq!(token.account(), Some("octocat"));
    assert!(!format!("{token:?}").contains(GITHUB));

    let sent = server.requests();
    let form = |at: usize| String::from_utf8(sent[at].raw.clone()).unwrap();
    assert_eq!(form(0), "client_id=Iv1.b507a08c87ecfe98&scope=read%3Auser");
    let expected = "client_id=Iv1.b507a08c87ecfe98&device_code=device-0123456789&\
                    grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
    assert_eq!(form(1), expected);
    assert_eq!(sent[5].header("authorization"), Some(&*format!("Bearer {GITHUB}")));
    let waited = |at: usize| sent[at].at - sent[at - 1].at;
    assert!(waited(1) >= Duration::from_secs(1) && waited(2) >= Duration::from_secs(1));
    // Asked to slow down, it does.
    assert!(waited(3) >= Duration::from_secs(2) && waited(4) >= Duration::from_secs(2));

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("github-copilot.json");
    token.keep(path.clone()).unwrap();
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&kept["github_token"], &kept["login"]), (&json!(GITHUB), &json!("octocat")));
    assert!(mode(&path) == 0o600 && time(&kept["created_at"]) <= now());
    let login = CopilotLogin::new(path);
    let present = LoginState::Present { account: Some("octocat".into()), until: None, renews: true };
    assert_eq!((login.state(), login.secrets()), (present, vec![GITHUB.to_owned()]));
    assert!(login.remove().unwrap() && !login.remove().unwrap());
    assert_eq!(login.state(), LoginState::Absent);
}

#[tokio::test]
async fn a_login_that_comes_to_nothing_says_why() {
    let check = async |replies: Vec<Reply>, expected: &str| {
        let server = github(replies);
        let login = GithubLogin::begin_at(Some(&server.base_url())).await.unwrap();
        let err = login.token().await.unwrap_err().to_string();
        assert!(err.contains(expected) && !err.contains(DEVICE) && !err.contains("ghu_"), "{err}");
    };
    let bad = Reply::json(&json!({"access_token": format!("{GITHUB}\nx")}));
    tokio::join!(
        check(vec![error("access_denied")], "it was denied"),
        check(vec![error("expired_token")], "nobody allowed it in time"),
        check(vec![error("incorrect_device_code")], "GitHub gives no token: HTTP 200 (incorrect_device_code)"),
        check(vec![bad], "a character that no token has"),
        check(vec![Reply::status(200).body("<html>")], "GitHub gives no token: HTTP 200"),
        check(vec![], "github.com answers with HTTP 500"),
    );
}

#[tokio::test]
async fn a_code_that_nobody_types_expires() {
    let server = ModelServer::with(|request| {
        let host = request.header("host").unwrap();
        let page = format!("http://{host}/login/device");
        Reply::json(&json!({"device_code": DEVICE, "user_code": "A", "expires_in": 1, "verification_uri": page}))
    });
    let login = GithubLogin::begin_at(Some(&server.base_url())).await.unwrap();
    assert!(matches!(login.token().await, Err(LoginError::Expired)));
    // There was no time to ask.
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_code_that_is_none_is_refused() {
    let check = async |reply: Value, expected: &str| {
        let server = ModelServer::with(move |_| Reply::json(&reply));
        let err = GithubLogin::begin_at(Some(&server.base_url())).await.unwrap_err().to_string();
        assert!(err.contains(expected), "{err}");
    };
    let code = |page: &str, code: &str| json!({"device_code": DEVICE, "user_code": code, "verification_uri": page});
    check(code("https://github.com.example.org/login/device", "AB-1"), "lacks something").await;
    check(code("file:///etc/passwd", "AB-1"), "lacks something").await;
    check(code("nonsense", "AB-1"), "lacks something").await;
    check(json!({"error": "device_flow_disabled"}), "HTTP 200 (device_flow_disabled)").await;
    check(Value::Null, "lacks something").await;
    for base in ["https://example.org", "http://github.com.example.org", "nonsense"] {
        let err = GithubLogin::begin_at(Some(base)).await.unwrap_err().to_string();
        assert!(err.contains("made at github.com"), "{err}");
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let err = GithubLogin::begin_at(Some(&format!("http://{gone}"))).await.unwrap_err();
    assert!(matches!(&err, LoginError::Unreachable(what) if what.starts_with("127.0.0.1: ")), "{err}");
}

/// A file with a login, and a server that is GitHub and Copilot. Its tokens for Copilot are `cop-0…`,
/// `cop-1…` and so on.
struct Bench {
    folder: TempDir,
    server: ModelServer,
}

impl Bench {
    /// `exchange` makes the reply to each exchange; `accepts` is the number of the token that is good, if
    /// not all are.
    fn new(exchange: impl Fn(&str) -> Reply + Send + Sync + 'static, accepts: Option<usize>) -> Self {
        let n = AtomicUsize::new(0);
        let server = ModelServer::with(move |request| {
            if request.path == "/v1/copilot_internal/v2/token" {
                return exchange(&format!("cop-{}-0123456789", n.fetch_add(1, Ordering::Relaxed)));
            }
            let key = request.header("authorization").unwrap_or_default();
            match accepts {
                Some(n) if !key.contains(&format!("cop-{n}-")) => {
                    Reply::status(401).body(json!({"error": {"message": format!("not {key}")}}).to_string())
                }
                _ => Reply::text(key),
            }
        });
        let bench = Self { folder: TempDir::new().unwrap(), server };
        bench.keep(&json!({"github_token": GITHUB, "github": bench.server.base_url()}));
        bench
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("github-copilot.json")
    }

    fn keep(&self, fields: &Value) {
        fs::write(self.path(), fields.to_string()).unwrap();
    }

    fn client(&self) -> Arc<dyn ModelClient> {
        let mut config = config(&self.server);
        config.kind = ProviderKind::GithubCopilot;
        config.api_key = None;
        config.tokens = Some(Arc::new(CopilotLogin::new(self.path())));
        client(config)
    }

    fn n_exchanges(&self) -> usize {
        self.server.requests().iter().filter(|it| it.path.ends_with("/v2/token")).count()
    }
}

fn good(token: &str) -> Reply {
    Reply::json(&json!({"token": token, "expires_at": now() + 1800}))
}

async fn problem(client: &Arc<dyn ModelClient>) -> ModelError {
    let err = ask(client).await.1.unwrap();
    let text = format!("{err:?}");
    assert!(!text.contains(GITHUB) && !text.contains("cop-"), "{text}");
    err
}

#[tokio::test]
async fn a_token_for_copilot_is_used_while_it_lasts() {
    let bench = Bench::new(good, None);
    let client = bench.client();
    for answer in futures::future::join_all((0..4).map(|_| ask(&client))).await {
        assert_eq!(text_of(&answer.0), "Bearer cop-0-0123456789", "{:?}", answer.1);
    }
    assert_eq!(bench.n_exchanges(), 1);
    let sent = bench.server.requests();
    let exchange = &sent[0];
    assert_eq!(exchange.header("authorization"), Some(&*format!("token {GITHUB}")));
    for name in ["editor-version", "editor-plugin-version", "copilot-integration-id", "user-agent"] {
        assert!(exchange.header(name).is_some(), "{name}");
    }
    assert!(sent[1].header("editor-version").is_some());
    // A new login is used at once.
    bench.keep(&json!({"github_token": "ghu_another_0123", "github": bench.server.base_url()}));
    assert_eq!(text_of(&ask(&client).await.0), "Bearer cop-1-0123456789");
    // It is written nowhere.
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 1);
    assert!(!fs::read_to_string(bench.path()).unwrap().contains("cop-"));
    assert!(!format!("{:?}", CopilotLogin::new(bench.path())).contains("ghu_"));

    let short = |token: &str| Reply::json(&json!({"token": token, "expires_at": now() + 60}));
    let bench = Bench::new(short, None);
    let client = bench.client();
    assert_eq!(text_of(&ask(&client).await.0), "Bearer cop-0-0123456789");
    assert_eq!(text_of(&ask(&client).await.0), "Bearer cop-1-0123456789");
}

#[tokio::test]
async fn a_refused_token_for_copilot_is_replaced_once() {
    let bench = Bench::new(good, Some(1));
    assert_eq!(text_of(&ask(&bench.client()).await.0), "Bearer cop-1-0123456789");
    let bench = Bench::new(good, Some(9));
    let err = problem(&bench.client()).await;
    assert!(matches!(&err, ModelError::Auth(text) if text.contains("come from its login")), "{err}");
    assert_eq!(bench.n_exchanges(), 2);
}

#[tokio::test]
async fn an_exchange_that_fails_says_why() {
    let check = async |reply: fn(&str) -> Reply, expected: &str| {
        let bench = Bench::new(reply, None);
        let err = problem(&bench.client()).await;
        assert!(err.to_string().contains(expected), "{err}");
        assert!(bench.server.requests().iter().all(|it| it.path.ends_with("/v2/token")));
        err
    };
    let err = check(|it| Reply::status(401).body(it), "does not know the login any more").await;
    assert!(err.to_string().contains("run `bub login copilot` again"), "{err}");
    check(|it| Reply::status(403).body(it), "this account has no Copilot (HTTP 403)").await;
    check(|_| Reply::json(&json!({"expires_at": 1})), "its reply holds none").await;
    check(|_| Reply::json(&json!({"token": "cop-x\ny", "expires_at": 4_000_000_000_u64})), "no token has").await;
    check(|it| Reply::json(&json!({"token": it, "expires_at": i64::MAX})), "nonsense").await;
    // What may pass by is tried again, if retries are on.
    assert!(check(|it| Reply::status(503).body(it), "HTTP 503").await.is_retryable());
    let hostile = |it: &str| {
        Reply::json(&json!({
            "token": it, "expires_at": 4_000_000_000_u64, "endpoints": {"api": "https://api.githubcopilot.com.evil.example"},
        }))
    };
    let err = check(hostile, "a place for Copilot that is not GitHub's").await;
    assert!(!err.to_string().contains("evil"), "{err}");
}

#[tokio::test]
async fn what_is_no_login_is_told_with_the_next_step() {
    let bench = Bench::new(good, None);
    let check = async |content: &str, expected: &str| {
        fs::write(bench.path(), content).unwrap();
        let text = problem(&bench.client()).await.to_string();
        assert!(text.contains(expected) && text.contains("bub login copilot"), "{text}");
    };
    check("{", "it holds no login").await;
    check("{}", "it holds no login to Copilot").await;
    // A login that names another GitHub sends it no token.
    check(&json!({"github_token": GITHUB, "github": "https://example.org"}).to_string(), "made at github.com").await;
    fs::remove_file(bench.path()).unwrap();
    assert!(problem(&bench.client()).await.to_string().contains("nobody is logged in to Copilot"));
    assert!(bench.server.requests().is_empty());
}

/// Credentials that lead to a place of their own.
#[derive(Debug)]
struct Leading(String);

#[async_trait]
impl TokenSource for Leading {
    async fn credentials(&self) -> Result<Credentials, ModelError> {
        let mut credentials = Credentials::bearer("t");
        credentials.api_base = Some(self.0.parse().unwrap());
        Ok(credentials)
    }

    async fn renew(&self, _: &Credentials) -> bool {
        false
    }
}

#[tokio::test]
async fn credentials_may_say_where_requests_go() {
    let (server, own) = (ModelServer::with(|_| Reply::text("there")), ModelServer::with(|_| Reply::text("own")));
    let mut config = ProviderConfig::new("ollama", ProviderKind::Ollama);
    config.tokens = Some(Arc::new(Leading(server.base_url())));
    assert_eq!(text_of(&ask(&client(config.clone())).await.0), "there");
    drop(Provider::new(config.clone()).list().await);
    assert_eq!(server.requests().last().unwrap().path, "/v1/models");
    // An address that is configured counts more.
    config.api_base = Some(own.base_url());
    assert_eq!(text_of(&ask(&client(config)).await.0), "own");
}
