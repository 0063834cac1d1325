//! The login to OpenRouter.

use std::fs;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bub_models::{KeyFile, LoginError, LoginState, OpenRouterLogin};
use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{mode, now, time};

const KEY: &str = "sk-or-v1-0123456789";

fn server(reply: impl Fn() -> Reply + Send + Sync + 'static) -> ModelServer {
    ModelServer::with(move |_| reply())
}

fn gives_a_key() -> ModelServer {
    server(|| Reply::json(&json!({"key": KEY, "user_id": "user_1"})))
}

async fn begin(server: &ModelServer) -> OpenRouterLogin {
    OpenRouterLogin::begin(Some(&server.base_url())).await.unwrap()
}

/// What the address for the browser says.
fn query(login: &OpenRouterLogin, name: &str) -> String {
    let url = reqwest::Url::parse(login.url()).unwrap();
    url.query_pairs().find(|(it, _)| it == name).unwrap().1.into_owned()
}

/// Comes back as a browser does; returns the first line of the answer and its end.
async fn visit(login: &OpenRouterLogin, path: &str) -> (String, String) {
    let callback = reqwest::Url::parse(&query(login, "callback_url")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", callback.port().unwrap())).await.unwrap();
    let path = path.replace("CALLBACK", callback.path());
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_browser_comes_back_with_a_code_and_a_key_is_kept() {
    let server = gives_a_key();
    let login = begin(&server).await;
    assert!(login.url().starts_with(&format!("http://{}/auth?callback_url=", server.address())), "{}", login.url());
    assert_eq!(query(&login, "code_challenge_method"), "S256");
    assert!(query(&login, "callback_url").starts_with("http://localhost:"));
    // One connection in advance, one of another login, one that asks for an icon.
    let callback = reqwest::Url::parse(&query(&login, "callback_url")).unwrap();
    let idle = TcpStream::connect(("127.0.0.1", callback.port().unwrap())).await.unwrap();
    let browse = async {
        for path in ["/callback/other?code=evil", "/favicon.ico", "CALLBACK", "CALLBACK?code=a%0Ab"] {
            let (status, _) = visit(&login, path).await;
            assert_eq!(status, "HTTP/1.1 404 Not Found", "{path}");
        }
        visit(&login, "CALLBACK?code=c-1").await
    };
    let (code, (status, page)) = tokio::join!(login.come_back(), browse);
    drop(idle);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(page.contains("You are logged in"), "{page}");
    let code = code.unwrap();
    assert!(!format!("{code:?} {login:?}").contains("c-1"));
    let key = login.exchange(code).await.unwrap();
    assert_eq!(key.user(), Some("user_1"));
    assert!(!format!("{key:?}").contains(KEY));

    let sent = &server.requests()[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/v1/auth/keys"));
    assert_eq!((&sent.body["code"], &sent.body["code_challenge_method"]), (&json!("c-1"), &json!("S256")));
    let verifier = sent.body["code_verifier"].as_str().unwrap();
    assert!(verifier.len() >= 43 && !login.url().contains(verifier));
    assert_eq!(URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)), query(&login, "code_challenge"));

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("openrouter.json");
    let file = KeyFile::new(path.clone());
    assert_eq!((file.key(), file.state()), (Ok(None), LoginState::Absent));
    file.keep(&key).unwrap();
    assert_eq!(file.key(), Ok(Some(KEY.to_owned())));
    let present = LoginState::Present { account: Some("user_1".into()), until: None, renews: false };
    assert_eq!((file.state(), mode(&path)), (present, 0o600));
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(time(&kept["created_at"]) <= now());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_denial_ends_the_login() {
    let server = gives_a_key();
    let login = begin(&server).await;
    let (code, (_, page)) = tokio::join!(login.come_back(), visit(&login, "CALLBACK?error=access_denied"));
    assert!(matches!(code, Err(LoginError::Denied)) && page.contains("denied"), "{page}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_code_may_be_pasted() {
    let server = gives_a_key();
    let login = begin(&server).await;
    let callback = query(&login, "callback_url");
    for text in [
        "c-1".to_owned(),
        " c-1 \n".to_owned(),
        "code=c-1".to_owned(),
        "?code=c-1&x=2".to_owned(),
        format!("{callback}?x=1&code=c-1"),
    ] {
        login.exchange(login.pasted(&text).unwrap()).await.unwrap();
        assert_eq!(server.requests().last().unwrap().body["code"], "c-1", "{text}");
    }
    let check = |text: &str, expected: &str| {
        let err = login.pasted(text).unwrap_err().to_string();
        assert!(err.contains(expected), "{text}: {err}");
    };
    check("", "no code");
    check("two words", "no code");
    check("a\u{7}b", "no code");
    check(&"x".repeat(100_000), "no code");
    check(&callback, "no code");
    check("http://localhost:1/callback/other?code=c-1", "another login");
    check("https://example.org/?code=c-1", "another login");
    check(&format!("{callback}?error=access_denied"), "denied");
}

#[tokio::test]
async fn what_is_no_key_is_told_without_the_code() {
    let check = async |server: ModelServer, expected: &str| {
        let login = begin(&server).await;
        let err = login.exchange(login.pasted("c-secret-1").unwrap()).await.unwrap_err().to_string();
        assert!(err.contains(expected) && !err.contains("secret") && !err.contains("sk-or"), "{err}");
    };
    let refused = || Reply::status(403).body(r#"{"error":{"message":"Invalid code c-secret-1","code":403}}"#);
    check(server(refused), "OpenRouter refuses the code (HTTP 403)").await;
    check(server(|| Reply::json(&json!({"user_id": "u"}))), "holds no key").await;
    check(server(|| Reply::json(&json!({"key": "sk-or-v1\nx"}))), "holds no key").await;
    check(server(|| Reply::status(200).body("<html>")), "holds no key").await;
    check(server(|| Reply::status(302).header("location", "http://example.org/")), "HTTP 302").await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let login = OpenRouterLogin::begin(Some(&format!("http://{gone}/api/v1"))).await.unwrap();
    let err = login.exchange(login.pasted("c-secret-1").unwrap()).await.unwrap_err();
    assert!(matches!(&err, LoginError::Unreachable(what) if what.starts_with("127.0.0.1: ")), "{err}");
}

#[tokio::test]
async fn a_key_does_not_go_over_an_open_network() {
    for base in ["http://example.org/api/v1", "ftp://example.org", "nonsense"] {
        let err = OpenRouterLogin::begin(Some(base)).await.unwrap_err().to_string();
        assert!(err.contains("the api_base of provider 'openrouter'"), "{err}");
    }
    let usual = OpenRouterLogin::begin(None).await.unwrap();
    assert!(usual.url().starts_with("https://openrouter.ai/auth?callback_url=http"), "{}", usual.url());
}

#[test]
fn a_file_that_is_no_key_is_told() {
    let folder = TempDir::new().unwrap();
    let check = |content: &str, expected: &str| {
        let path = folder.path().join("openrouter.json");
        fs::write(&path, content).unwrap();
        let problem = KeyFile::new(path).key().unwrap_err();
        assert!(problem.contains(expected) && problem.contains("bub login openrouter"), "{problem}");
        assert!(!problem.contains("sk-or"), "{problem}");
    };
    check("", "it holds no login");
    check("[\"sk-or-1\"]", "it holds no login");
    check("{}", "it holds no key");
    check(r#"{"api_key": "sk-or-1\nx"}"#, "a character that no key has");
    check(&" ".repeat(2 << 20), "too large");
}
