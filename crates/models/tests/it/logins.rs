//! Credentials that pass. What stands here is the login of ChatGPT's Codex program.

mod copilot;
mod grok;
mod openrouter;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bub_kernel::model::{ModelClient, ModelError, ModelProvider as _};
use bub_models::{CodexLogin, Provider, ProviderConfig, ProviderKind};
use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{ask, client, config, hello, text_of};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A time with a zone, in seconds.
fn time(value: &Value) -> u64 {
    let time = value.as_str().unwrap();
    assert!(time.ends_with('Z'), "{time}");
    u64::try_from(time.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn token(claims: &Value) -> String {
    format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A folder with a login, and a server that answers with the access token of each request and renews
/// tokens to `new`.
struct Bench {
    folder: TempDir,
    server: ModelServer,
}

impl Bench {
    fn new(login: &Value, accepts: &'static str, renews: bool) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("auth.json"), login.to_string()).unwrap();
        let server = ModelServer::with(move |request| {
            if request.path.ends_with("/oauth/token") {
                let new = json!({"access_token": "new", "refresh_token": "r2", "expires_in": 3600});
                return if renews { Reply::json(&new) } else { Reply::status(400).body("secret details") };
            }
            match request.header("authorization") {
                Some(key) if key.contains(accepts) => Reply::text(key),
                _ => Reply::status(401).body(r#"{"error":{"message":"who are you?"}}"#),
            }
        });
        Self { folder, server }
    }

    fn client(&self) -> Arc<dyn ModelClient> {
        let mut config = config(&self.server);
        config.api_key = None;
        let login = CodexLogin::new(self.folder.path().join("auth.json"));
        config.tokens = Some(Arc::new(login.renewed_at(format!("{}/oauth/token", self.server.base_url()))));
        client(config)
    }

    fn file(&self) -> Value {
        serde_json::from_slice(&fs::read(self.folder.path().join("auth.json")).unwrap()).unwrap()
    }

    fn paths(&self) -> Vec<String> {
        self.server.requests().iter().map(|it| it.path.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_good_login_is_used_as_it_is() {
    let account = json!({"exp": now() + 3600, "https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}});
    let bench = Bench::new(&json!({"tokens": {"access_token": token(&account)}}), "e30.", false);
    let (events, err) = ask(&bench.client()).await;
    assert!(err.is_none() && text_of(&events).starts_with("Bearer e30."), "{err:?}");
    let sent = &bench.server.requests()[0];
    assert_eq!(sent.header("chatgpt-account-id"), Some("acc-1"));
    assert_eq!((sent.header("originator"), sent.header("openai-beta")), (Some("bub"), Some("responses=experimental")));
}

#[tokio::test]
async fn r135_an_expiring_login_is_renewed_and_kept() {
    let old = token(&json!({"exp": now() + 60}));
    let login = json!({"mine": 1, "tokens": {"access_token": old, "refresh_token": "r1", "account_id": "a", "x": [2]}});
    let bench = Bench::new(&login, "new", true);
    let (events, err) = ask(&bench.client()).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "Bearer new");
    let file = bench.file();
    assert_eq!((&file["mine"], &file["tokens"]["refresh_token"]), (&json!(1), &json!("r2")));
    assert_eq!((&file["tokens"]["account_id"], &file["tokens"]["x"]), (&json!("a"), &json!([2])));
    assert!(time(&file["last_refresh"]).abs_diff(now()) < 600 && time(&file["tokens"]["expires_at"]) > now(), "{file}");
    let mut names: Vec<_> = fs::read_dir(bench.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["auth.json", "auth.json.lock"], "it took the old one's place as a whole");
    assert_eq!(mode(&bench.folder.path().join("auth.json")), 0o600);
    let sent = &bench.server.requests()[0].body;
    assert_eq!((&sent["grant_type"], &sent["refresh_token"]), (&json!("refresh_token"), &json!("r1")));
}

#[tokio::test]
async fn a_refused_login_is_renewed_once() {
    let login = json!({"tokens": {"access_token": "old", "refresh_token": "r1"}});
    let bench = Bench::new(&login, "new", true);
    assert_eq!(text_of(&ask(&bench.client()).await.0), "Bearer new");
    assert_eq!(bench.paths(), ["completions", "token", "completions"]);
    // New tokens are refused as well: no third try.
    let bench = Bench::new(&login, "never", true);
    let (_, err) = ask(&bench.client()).await;
    assert!(matches!(err, Some(ModelError::Auth(ref text)) if text.contains("come from its login")), "{err:?}");
    assert_eq!(bench.paths(), ["completions", "token", "completions"]);
}

#[tokio::test]
async fn what_is_no_login_is_told_with_the_next_step() {
    let check = async |login: &str, expected: &str| {
        let bench = Bench::new(&Value::Null, "x", false);
        let file = bench.folder.path().join("auth.json");
        if login.is_empty() {
            fs::remove_file(file).unwrap();
        } else {
            fs::write(file, login).unwrap();
        }
        let text = ask(&bench.client()).await.1.unwrap().to_string();
        assert!(text.contains(expected) && text.contains("bub login codex"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    };
    check("", "nobody is logged in to ChatGPT").await;
    check("{", "holds no login").await;
    check(r#"{"tokens": {}}"#, "holds no login to ChatGPT").await;
    let expired = token(&json!({"exp": 1}));
    check(&json!({"tokens": {"access_token": expired}}).to_string(), "it has no refresh token").await;
    let renewable = json!({"tokens": {"access_token": expired, "refresh_token": "r"}});
    check(&renewable.to_string(), "can't be renewed: HTTP 400").await;
}

#[tokio::test]
async fn chatgpt_is_asked_with_the_login_alone() {
    let login = json!({"tokens": {"access_token": "t", "refresh_token": "r", "account_id": "a"}});
    let bench = Bench::new(&login, "t", false);
    let tokens = Arc::new(CodexLogin::new(bench.folder.path().join("auth.json")));
    let mut config = ProviderConfig::new("codex", ProviderKind::Codex);
    config.tokens = Some(tokens);
    assert!(Provider::new(config.clone()).client("gpt-5").is_ok(), "a login is enough");
    config.api_base = Some(bench.server.base_url());
    let client = Provider::new(config.clone()).client("gpt-5").unwrap();
    // The server answers by another wire; what it was asked counts.
    let mut asked = hello();
    asked.options.max_tokens = Some(5);
    drop(crate::send(&client, &asked).await);
    let sent = &bench.server.requests()[0];
    assert_eq!((sent.path.as_str(), sent.header("chatgpt-account-id")), ("/v1/responses", Some("a")));
    assert_eq!((&sent.body["store"], &sent.body["max_output_tokens"]), (&json!(false), &Value::Null));
    assert!(sent.body["instructions"].is_string());
    let err = Provider::new(config).list().await.unwrap_err().to_string();
    assert!(err.contains("list no models"), "{err}");
}
