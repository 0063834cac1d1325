//! `bub login`, and what is done with logins.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Child,
};

use bub_testing::{ModelServer, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    home::{PATIENCE, TestHome, end_of, exists, wait_until},
    pty::Pty,
};

const KEY: &str = "sk-or-v1-0123456789";

/// OpenRouter: it gives a key for any code, and answers.
fn openrouter() -> ModelServer {
    ModelServer::with(|request| match request.path.as_str() {
        "/v1/auth/keys" => Reply::json(&json!({"key": KEY, "user_id": "user_1"})),
        _ => Reply::text("hi"),
    })
}

fn home_of(server: &ModelServer) -> TestHome {
    TestHome::new().var("BUB_OPENROUTER_API_BASE", server.base_url())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The port that the program waits at and the path there, from the address that it shows.
fn callback(child: &mut Child) -> (u16, String) {
    let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let url = lines.map(Result::unwrap).find(|it| it.contains("/auth?callback_url=")).unwrap();
    let (_, rest) = url.split_once("localhost%3A").unwrap();
    let (port, rest) = rest.split_once("%2F").unwrap();
    let path = rest.split_once('&').unwrap().0.replace("%2F", "/");
    (port.parse().unwrap(), format!("/{path}"))
}

fn visit(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_login_to_openrouter_leaves_a_key_that_is_used() {
    let server = openrouter();
    let home = home_of(&server);
    let mut child = home.command(&["login", "openrouter"]).spawn().unwrap();
    let (port, path) = callback(&mut child);
    assert!(visit(port, "/callback/other?code=c").starts_with("HTTP/1.1 404"));
    assert!(visit(port, &format!("{path}?code=c-1")).starts_with("HTTP/1.1 200"));
    let out = end_of(child).ok();
    assert!(out.starts_with("login: ok\naccount_id: user_1\n") && out.contains("BUB_MODEL=openrouter:"), "{out}");
    assert_eq!(server.requests()[0].body["code"], "c-1");
    let file = home.home().join("logins/openrouter.json");
    assert_eq!((mode(&file), mode(&home.home().join("logins"))), (0o600, 0o700));

    // It is enough for the default model.
    assert_eq!(home.run(&["run", "hello"]).ok(), "hi\n");
    let asked = server.requests().pop().unwrap();
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let listed = home.run(&["models", "--providers"]).ok();
    assert!(listed.contains(&format!("ready, key from the login in {}", file.display())), "{listed}");
    // Another key counts more.
    let other = home_of(&server).var("OPENROUTER_API_KEY", "sk-or-other-0123");
    fs::create_dir_all(other.home().join("logins")).unwrap();
    fs::copy(&file, other.home().join("logins/openrouter.json")).unwrap();
    other.run(&["run", "hello"]).ok();
    let asked = server.requests().pop().unwrap();
    assert_eq!(asked.header("authorization"), Some("Bearer sk-or-other-0123"));
    // A tool that comes upon the file does not spread it.
    let shown = home.run(&["run", &format!(",bash command='cat {}'", file.display())]).ok();
    assert!(shown.contains("user_1") && shown.contains("***") && !shown.contains(KEY), "{shown}");
}

#[test]
fn a_code_may_come_by_standard_input() {
    let server = openrouter();
    let home = home_of(&server).var("BUB_OPENROUTER_API_KEY", "sk-mine-01234567");
    let ran = home.run_with(&["login", "openrouter"], b"\ntwo words\nc-2\n");
    assert!(ran.err.contains("this is no code"), "{}", ran.err);
    assert!(ran.err.contains("the key from environment variable BUB_OPENROUTER_API_KEY is used"), "{}", ran.err);
    ran.ok();
    assert_eq!(server.requests()[0].body["code"], "c-2");
}

#[test]
fn a_browser_is_opened_for_a_person_at_this_machine() {
    let server = openrouter();
    let home = home_of(&server).var("DISPLAY", ":0");
    let programs = home.workspace().join("programs");
    fs::create_dir(&programs).unwrap();
    let opener = programs.join(if cfg!(target_os = "macos") { "open" } else { "xdg-open" });
    fs::write(&opener, "#!/bin/sh\nprintf %s \"$1\" > \"$0.new\" && mv \"$0.new\" \"$0.url\"\n").unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let home = home.var("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    let mut pty = Pty::start(&home, &["login", "openrouter"]);
    let shown = pty.shows("paste that here");
    let opened = opener.with_file_name(format!("{}.url", opener.file_name().unwrap().display()));
    wait_until("the page is opened", || exists(&opened));
    let url = fs::read_to_string(opened).unwrap();
    assert!(url.contains("/auth?callback_url=") && shown.replace(['\r', '\n'], "").contains(&url), "{shown}");
    pty.keys("c-3\n");
    pty.shows("login: ok");
    pty.ended();
    assert_eq!(server.requests()[0].body["code"], "c-3");
}

#[test]
fn ctrl_c_in_a_login_leaves_nothing_behind() {
    let server = openrouter();
    let home = home_of(&server);
    let mut child = home.command(&["login", "openrouter"]).spawn().unwrap();
    let (port, _) = callback(&mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end_of(child).code, Some(130));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!exists(&home.home().join("logins")) && server.requests().is_empty());
}

#[test]
fn a_login_that_fails_says_why_and_keeps_nothing() {
    let server = ModelServer::with(|_| Reply::status(403).body(r#"{"error":{"message":"Invalid code c-4"}}"#));
    let home = home_of(&server);
    let check = |args: &[&str], input: &[u8], expected: &str| {
        let err = home.run_with(args, input).failed(1);
        assert!(err.contains(expected) && !err.contains("c-4"), "{err}");
        assert!(!exists(&home.home().join("logins/openrouter.json")));
    };
    check(&["login", "openrouter"], b"c-4\n", "login: failed: OpenRouter refuses the code (HTTP 403)");
    check(&["login", "openrouter", "--timeout", "1"], b"", "login: failed: nobody allowed it in time (1 s; --timeout");
    let home = TestHome::new().var("BUB_OPENROUTER_API_BASE", "http://example.org");
    let err = home.run(&["login", "openrouter"]).failed(1);
    assert!(err.contains("is not https"), "{err}");
}

#[test]
fn a_broken_login_is_a_warning() {
    let home = TestHome::new();
    fs::create_dir_all(home.home().join("logins")).unwrap();
    fs::write(home.home().join("logins/openrouter.json"), "{\"api_key\": \"sk-or-").unwrap();
    let ran = home.run(&["run", ",bash command='echo ok'"]);
    assert!(ran.err.contains("it holds no login; run `bub login openrouter` again"), "{}", ran.err);
    assert_eq!(ran.ok(), "ok\n");
    let err = home.run(&["run", "--model", "openrouter:x", "hello"]).failed(2);
    assert!(
        err.contains("provider 'openrouter' has no API key") && err.contains("or run `bub login openrouter`"),
        "{err}"
    );
}

#[test]
fn the_login_of_the_grok_program_is_used_where_there_is_no_key() {
    let server = ModelServer::with(|_| Reply::text("hi"));
    let home = TestHome::new().var("BUB_MODEL", "grok:grok-4");
    let err = home.run(&["run", "hello"]).failed(2);
    assert!(err.contains("provider 'grok' has no API key") && err.contains("(`grok login`)"), "{err}");
    let home = home.var("BUB_GROK_API_BASE", server.base_url());
    let token = "tok-grok-0123456789";
    let file = home.workspace().join("auth.json");
    let login = json!({"https://auth.x.ai::c": {"key": token, "expires_at": "2100-01-01T00:00:00Z"}});
    fs::write(&file, login.to_string()).unwrap();
    let asked = |home: &TestHome| {
        assert_eq!(home.run(&["run", "hello"]).ok(), "hi\n");
        server.requests().pop().unwrap().header("authorization").unwrap_or_default().to_owned()
    };
    let folder = home.workspace().display().to_string();
    let home = home.var("GROK_HOME", folder);
    assert_eq!(asked(&home), format!("Bearer {token}"));
    let home = home.var("GROK_AUTH_PATH", file.display().to_string()).var("GROK_HOME", "/nowhere");
    assert_eq!(asked(&home), format!("Bearer {token}"));
    let tape = home.tape_lines().iter().map(ToString::to_string).collect::<String>();
    assert!(!tape.contains(token));
    // One's own server is sent none of it.
    home.config(&format!("providers:\n  mine: {{type: grok, api_base: \"{}\"}}\n", server.base_url()));
    let home = home.var("BUB_MODEL", "mine:grok-4");
    assert_eq!(asked(&home), "");
    let home = home.var("BUB_MODEL", "grok:grok-4").var("XAI_API_KEY", "xai-key-0123456789");
    assert_eq!(asked(&home), "Bearer xai-key-0123456789");
}

/// GitHub and Copilot, where the code is typed at once.
fn copilot() -> ModelServer {
    ModelServer::with(|request| match request.path.as_str() {
        "/v1/login/device/code" => Reply::json(&json!({
            "device_code": "device-0123456789", "user_code": "ABCD-1234", "interval": 1, "expires_in": 900,
            "verification_uri": format!("http://{}/login/device", request.header("host").unwrap()),
        })),
        "/v1/login/oauth/access_token" => Reply::json(&json!({"access_token": "ghu_0123456789"})),
        "/v1/user" => Reply::json(&json!({"login": "octocat"})),
        "/v1/copilot_internal/v2/token" => {
            Reply::json(&json!({"token": "cop-0123456789", "expires_at": 4_000_000_000_u64}))
        }
        _ => Reply::text("hi"),
    })
}

#[test]
fn a_login_to_copilot_is_used_instead_of_gh() {
    let server = copilot();
    let home = TestHome::new()
        .var("BUB_MODEL", "copilot:gpt")
        .var("BUB_COPILOT_API_BASE", server.base_url())
        .var("BUB_GITHUB_COPILOT_API_BASE", server.base_url());
    let ran = home.run(&["login", "copilot", "--github", &server.base_url()]);
    assert!(ran.err.contains("/login/device\n  ABCD-1234\n"), "{}", ran.err);
    assert!(!ran.err.contains("0123456789"), "{}", ran.err);
    let out = ran.ok();
    assert!(out.starts_with("login: ok\naccount_id: octocat\n") && out.contains("BUB_MODEL=copilot:"), "{out}");
    let file = home.home().join("logins/github-copilot.json");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(home.run(&["run", "hello"]).ok(), "hi\n");
    let asked = server.requests().pop().unwrap();
    assert_eq!(asked.header("authorization"), Some("Bearer cop-0123456789"));
    // A tool that comes upon the file does not spread it.
    let shown = home.run(&["run", &format!(",bash command='cat {}'", file.display())]).ok();
    assert!(shown.contains("octocat") && !shown.contains("ghu_"), "{shown}");
    let logs = home.run(&["-vvv", "run", "hello"]);
    assert!(!logs.err.contains("0123456789"), "{}", logs.err);
    let tape = home.tape_lines().iter().map(ToString::to_string).collect::<String>();
    assert!(!tape.contains("0123456789"));
    assert_eq!(home.run(&["login", "copilot", "--logout"]).ok(), "logout: ok\n");
    assert!(!exists(&file));
    assert_eq!(home.run(&["login", "copilot", "--logout"]).ok(), "logout: nobody was logged in\n");
    let err = home.run(&["login", "copilot", "--github", "https://example.org"]).failed(1);
    assert!(err.contains("login: failed: logins to Copilot are made at github.com"), "{err}");
}

#[test]
fn ctrl_c_while_a_code_is_typed_leaves_nothing_behind() {
    let server = ModelServer::with(|request| match request.path.as_str() {
        "/v1/login/oauth/access_token" => Reply::json(&json!({"error": "authorization_pending"})),
        _ => Reply::json(&json!({
            "device_code": "d", "user_code": "ABCD-1234",
            "verification_uri": format!("http://{}/login/device", request.header("host").unwrap()),
        })),
    });
    let home = TestHome::new();
    let mut child = home.command(&["login", "copilot", "--github", &server.base_url()]).spawn().unwrap();
    let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|it| it.contains("ABCD-1234")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end_of(child).code, Some(130));
    assert!(!exists(&home.home().join("logins")));
}

#[test]
fn logins_are_listed_with_their_state_and_without_secrets() {
    let home = TestHome::new();
    let listed = home.run(&["login"]).ok();
    let expected = "openrouter  not logged in; bub login openrouter\n\
                    copilot     not logged in, so the token of `gh` is used; bub login copilot\n\
                    codex       not logged in; bub login codex\n\
                    grok        not logged in; bub login grok\n";
    assert_eq!(listed, expected);
    let err = home.run(&["run", "--model", "codex:gpt-5", "hello"]).failed(1);
    assert!(err.contains("nobody is logged in to ChatGPT") && err.contains("hint: `bub login` tells where"), "{err}");
    let write = |path: &Path, content: &serde_json::Value| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.to_string()).unwrap();
    };
    let user = home.home().parent().unwrap().to_owned();
    write(&home.home().join("logins/openrouter.json"), &json!({"api_key": KEY, "user_id": "user_1\u{1b}[2J"}));
    write(
        &home.home().join("logins/github-copilot.json"),
        &json!({"github_token": "ghu_0123456789", "login": "octocat"}),
    );
    let tokens = json!({"access_token": "tok-0123456789", "account_id": "acc-7", "expires_at": 4_000_000_000_u64});
    write(&user.join(".codex/auth.json"), &json!({"tokens": tokens}));
    write(&user.join(".grok/auth.json"), &json!(["tok-0123456789"]));
    let home = home.var("OPENROUTER_API_KEY", "sk-or-other-0123456789");
    let listed = home.run(&["login"]).ok();
    assert!(!listed.contains("0123456789") && !listed.contains('\u{1b}'), "{listed}");
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines[0].starts_with("openrouter  logged in as user_1"), "{listed}");
    assert!(lines[0].ends_with("(the key from environment variable OPENROUTER_API_KEY counts more)"), "{listed}");
    assert_eq!(lines[1], "copilot     logged in as octocat");
    assert_eq!(lines[2], "codex       logged in as acc-7, until 2096-10-02T07:06:40Z");
    assert!(lines[3].starts_with("grok        of no use: ") && lines[3].contains("it holds no login"), "{listed}");
    let old = json!({"tokens": {"access_token": "tok-0123456789", "expires_at": "2001-02-03T04:05:06Z"}});
    write(&user.join(".codex/auth.json"), &old);
    let listed = home.run(&["login"]).ok();
    assert!(listed.contains("logged in, but only until 2001-02-03T04:05:06Z; bub login codex\n"), "{listed}");
    write(&user.join(".codex/auth.json"), &json!({"tokens": tokens}));
    let rows = home.run(&["login", "--json"]).ok();
    assert!(!rows.contains("0123456789"), "{rows}");
    let rows: Vec<serde_json::Value> = rows.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let states: Vec<_> = rows.iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["present", "present", "present", "broken"]);
    assert_eq!((&rows[2]["account"], &rows[2]["renews"]), (&json!("acc-7"), &json!(false)));

    // Only files of bub's own are removed.
    let out = home.run(&["login", "openrouter", "--logout"]);
    assert!(out.err.contains("until you delete it at"), "{}", out.err);
    assert_eq!(out.ok(), "logout: ok\n");
    for (name, advice) in [("codex", "`codex logout`"), ("grok", "`grok logout`")] {
        let err = home.run(&["login", name, "--logout"]).failed(2);
        assert!(err.contains(advice), "{err}");
    }
    assert!(exists(&user.join(".codex/auth.json")) && exists(&user.join(".grok/auth.json")));
    home.run(&["login", "nobody"]).failed(2);
    home.run(&["login", "--json", "openrouter"]).failed(2);
}

#[test]
fn the_grok_program_logs_in() {
    let home = TestHome::new();
    let grok = home.workspace().join("grok");
    let script = "#!/bin/sh\necho \"$@\" > \"$GROK_HOME/args\"\n\
                  echo '{\"https://auth.x.ai::c\":{\"key\":\"t\",\"email\":\"a@example.org\"}}' > \"$GROK_HOME/auth.json\"\n";
    fs::write(&grok, script).unwrap();
    fs::set_permissions(&grok, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = home.workspace();
    let home = home.var("GROK_HOME", folder.display().to_string());
    let program = grok.display().to_string();
    let args = ["login", "grok", "--device-auth", "--executable", &program];
    let out = home.run(&args).ok();
    assert!(out.starts_with("login: ok\naccount_id: a@example.org\n") && out.contains("BUB_MODEL=grok:"), "{out}");
    assert_eq!(fs::read_to_string(folder.join("args")).unwrap(), "login --device-auth\n");
    fs::write(&grok, "#!/bin/sh\nexit 3\n").unwrap();
    let err = home.run(&args).failed(1);
    assert!(err.contains("login: failed: ") && err.contains("ended with exit code 3"), "{err}");
    fs::remove_file(folder.join("auth.json")).unwrap();
    fs::write(&grok, "#!/bin/sh\n").unwrap();
    let err = home.run(&args).failed(1);
    assert!(err.contains("left no login in"), "{err}");
}
