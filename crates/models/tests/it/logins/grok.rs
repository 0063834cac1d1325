//! The login of xAI's Grok program.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use bub_kernel::model::ModelClient;
use bub_models::{GrokLogin, LoginState, TokenSource as _};
use bub_testing::{ModelServer, Reply};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{mode, now, time};
use crate::{ask, client, config, text_of};

const PLACE: &str = "https://auth.x.ai::client-1";
const OLD: &str = "tok-old-0123456789";
const NEW: &str = "tok-new-0123456789";

/// A file with a login, and a server that is both xAI and its token server. It takes each refresh token
/// once: `r1`, then `r2` and so on.
struct Bench {
    folder: TempDir,
    server: ModelServer,
}

fn in_seconds(seconds: i64) -> String {
    Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap().to_string()
}

fn login(seconds: i64) -> Value {
    json!({
        "https://idp.example.org::x": {"key": "tok-of-another-1", "refresh_token": "r-of-another"},
        PLACE: {
            "key": OLD, "refresh_token": "r1", "expires_at": in_seconds(seconds), "oidc_issuer": "https://auth.x.ai",
            "oidc_client_id": "client-1", "email": "a@example.org", "team_id": "t", "auth_mode": "oidc",
        },
    })
}

impl Bench {
    fn new(login: &Value, accepts: &'static str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("auth.json"), login.to_string()).unwrap();
        let good = Mutex::new(1);
        let server = ModelServer::with(move |request| {
            if request.path.ends_with("/oauth2/token") {
                let mut good = good.lock().unwrap();
                let sent = String::from_utf8_lossy(&request.raw);
                if !sent.contains(&format!("refresh_token=r{good}&")) {
                    return Reply::status(400)
                        .body(r#"{"error":"invalid_grant","error_description":"r1 tok-old-0123456789"}"#);
                }
                *good += 1;
                return Reply::json(
                    &json!({"access_token": NEW, "refresh_token": format!("r{good}"), "expires_in": 3600}),
                );
            }
            match request.header("authorization") {
                Some(key) if key.ends_with(accepts) => Reply::text("hi"),
                key => Reply::status(401).body(json!({"error": {"message": format!("who is {key:?}?")}}).to_string()),
            }
        });
        Self { folder, server }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("auth.json")
    }

    fn login(&self) -> GrokLogin {
        GrokLogin::new(self.path()).renewed_at(format!("{}/oauth2/token", self.server.base_url()))
    }

    fn client_of(&self, login: GrokLogin) -> Arc<dyn ModelClient> {
        let mut config = config(&self.server);
        config.api_key = None;
        config.tokens = Some(Arc::new(login));
        client(config)
    }

    fn client(&self) -> Arc<dyn ModelClient> {
        self.client_of(self.login())
    }

    fn file(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path()).unwrap()).unwrap()
    }

    fn n_renewals(&self) -> usize {
        self.server.requests().iter().filter(|it| it.path.ends_with("/oauth2/token")).count()
    }
}

/// The error of a question, which repeats nothing of a token.
async fn problem(client: &Arc<dyn ModelClient>) -> String {
    let text = format!("{:?}", ask(client).await.1.unwrap());
    for secret in [OLD, NEW, "r-of-another", "tok-of-another", "r1"] {
        assert!(!text.contains(secret), "{text}");
    }
    text
}

#[tokio::test]
async fn a_good_token_is_used_as_it_is() {
    let bench = Bench::new(&login(3600), OLD);
    assert_eq!(text_of(&ask(&bench.client()).await.0), "hi");
    assert_eq!((bench.n_renewals(), bench.file()), (0, login_of(&bench)));
    let LoginState::Present { account, until, renews } = bench.login().state() else { panic!() };
    assert_eq!((account.as_deref(), renews), (Some("a@example.org"), true));
    assert!(until.unwrap() > Timestamp::now());
    assert!(!format!("{:?}", bench.login()).contains("tok-"));
}

/// The file as it was made, whose time was not read from a clock twice.
fn login_of(bench: &Bench) -> Value {
    let mut made = login(0);
    made[PLACE]["expires_at"] = bench.file()[PLACE]["expires_at"].clone();
    made
}

#[tokio::test]
async fn r135_an_expiring_token_is_renewed_and_the_rest_of_the_file_stays() {
    let bench = Bench::new(&login(60), NEW);
    assert_eq!(text_of(&ask(&bench.client()).await.0), "hi");
    let sent = bench.server.requests()[0].clone();
    assert_eq!(
        String::from_utf8(sent.raw.clone()).unwrap(),
        "grant_type=refresh_token&refresh_token=r1&client_id=client-1"
    );
    assert_eq!(sent.header("content-type"), Some("application/x-www-form-urlencoded"));
    let file = bench.file();
    let mut expected = login_of(&bench);
    expected[PLACE]["key"] = NEW.into();
    expected[PLACE]["refresh_token"] = "r2".into();
    assert_eq!(file, expected);
    assert!(time(&file[PLACE]["expires_at"]) > now() + 3000, "{file}");
    let holder = fs::read_to_string(bench.folder.path().join("auth.json.lock")).unwrap();
    assert!(holder.starts_with(&format!("{}:", std::process::id())), "{holder}");
    assert_eq!((mode(&bench.path()), mode(&bench.folder.path().join("auth.json.lock"))), (0o600, 0o600));
    // Nothing temporary is left.
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn those_who_renew_at_once_do_so_once() {
    let bench = Bench::new(&login(60), NEW);
    // Each with a state of its own, as processes have.
    let clients: Vec<_> = (0..6).map(|_| bench.client()).collect();
    for answer in futures::future::join_all(clients.iter().map(ask)).await {
        assert_eq!(text_of(&answer.0), "hi", "{:?}", answer.1);
    }
    assert_eq!((bench.n_renewals(), &bench.file()[PLACE]["refresh_token"]), (1, &json!("r2")));
    // A token that is refused to all of them is renewed once too.
    let bench = Bench::new(&login(3600), NEW);
    let client = bench.client();
    for answer in futures::future::join_all((0..6).map(|_| ask(&client))).await {
        assert_eq!(text_of(&answer.0), "hi", "{:?}", answer.1);
    }
    assert_eq!(bench.n_renewals(), 1);
}

#[tokio::test]
async fn what_another_program_renewed_meanwhile_is_used() {
    let bench = Bench::new(&login(60), NEW);
    let lock = File::create(bench.folder.path().join("auth.json.lock")).unwrap();
    lock.lock().unwrap();
    let client = bench.client();
    let asked = ask(&client);
    tokio::pin!(asked);
    // However long it waits here, it must not go on.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut asked).await.is_err());
    let mut renewed = login(3600);
    renewed[PLACE]["key"] = NEW.into();
    fs::write(bench.path(), renewed.to_string()).unwrap();
    drop(lock);
    assert_eq!(text_of(&asked.await.0), "hi");
    assert_eq!(bench.n_renewals(), 0);
}

#[tokio::test]
async fn a_renewal_is_finished_also_when_nobody_waits_for_it() {
    let bench = Bench::new(&login(60), NEW);
    let lock = File::create(bench.folder.path().join("auth.json.lock")).unwrap();
    lock.lock().unwrap();
    let login = bench.login();
    assert!(tokio::time::timeout(Duration::from_millis(100), login.credentials()).await.is_err());
    drop(lock);
    while bench.file()[PLACE]["refresh_token"] != "r2" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_refused_renewal_is_told_without_the_reply() {
    let mut used = login(-1);
    used[PLACE]["refresh_token"] = "r-used".into();
    let bench = Bench::new(&used, NEW);
    let text = problem(&bench.client()).await;
    assert!(text.contains("can't be renewed: HTTP 400 (invalid_grant); run `grok login`"), "{text}");
    assert_eq!(bench.file(), used);
    // While the old token is good, it is used.
    used[PLACE]["expires_at"] = in_seconds(120).into();
    let bench = Bench::new(&used, OLD);
    assert_eq!(text_of(&ask(&bench.client()).await.0), "hi");
}

#[tokio::test]
async fn a_token_server_that_is_not_there_is_told() {
    let bench = Bench::new(&login(-1), NEW);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let login = GrokLogin::new(bench.path()).renewed_at(format!("http://{gone}/oauth2/token"));
    let text = problem(&bench.client_of(login)).await;
    assert!(text.contains("the login to xAI can't be renewed: 127.0.0.1: "), "{text}");
}

#[tokio::test]
async fn a_server_that_repeats_the_token_does_not_spread_it() {
    let bench = Bench::new(&login(3600), "nobody's");
    let text = problem(&bench.client()).await;
    assert!(text.contains("who is") && text.contains("come from its login"), "{text}");
}

#[tokio::test]
async fn what_is_no_login_is_told_with_the_next_step() {
    let check = async |login: &Value, expected: &str| {
        let bench = Bench::new(login, OLD);
        let text = problem(&bench.client()).await;
        assert!(text.contains(expected) && text.contains("grok login"), "{text}");
    };
    check(&json!({}), "holds no login to xAI").await;
    check(&json!([1]), "it holds no login").await;
    // Tokens of other servers are not sent to xAI.
    check(&json!({"https://idp.example.org::x": {"key": OLD}}), "holds no login to xAI").await;
    check(&json!({"https://auth.x.ai.example.org::x": {"key": OLD}}), "holds no login to xAI").await;
    let mut bad = login(-1);
    bad[PLACE]["refresh_token"] = Value::Null;
    check(&bad, "it has no refresh token").await;
    let mut bad = login(-1);
    bad[PLACE]["oidc_issuer"] = "https://idp.example.org".into();
    check(&bad, "another server made it").await;
    let bench = Bench::new(&json!({}), OLD);
    fs::remove_file(bench.path()).unwrap();
    assert_eq!(bench.login().state(), LoginState::Absent);
    assert!(problem(&bench.client()).await.contains("nobody is logged in to xAI"));
    fs::create_dir(bench.path()).unwrap();
    assert!(problem(&bench.client()).await.contains("it is no file"));
    assert!(matches!(bench.login().state(), LoginState::Broken(_)));
}

#[tokio::test]
async fn a_token_with_a_line_break_goes_nowhere() {
    let mut bad = login(3600);
    bad[PLACE]["key"] = format!("{OLD}\nx-evil: 1").into();
    let bench = Bench::new(&bad, OLD);
    let text = problem(&bench.client()).await;
    assert!(text.contains("a character that no token has"), "{text}");
    assert!(bench.server.requests().is_empty());
}
