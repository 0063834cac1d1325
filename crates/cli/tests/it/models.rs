//! `bub models`: lists, and trying a model.

use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::home::TestHome;

#[test]
fn models_are_listed_with_what_the_provider_tells() {
    let server = ModelServer::with(|_| {
        Reply::json(&json!({"data": [
            {"id": "small", "context_length": 8192, "pricing": {"prompt": "0.0000005", "completion": "0.000002"}},
            {"id": "big", "name": "The big one", "context_window": 1_000_000},
        ]}))
    });
    let home = TestHome::with_model(&server);
    let listed = home.run(&["models"]).ok();
    assert_eq!(listed, "openai:big    1,000,000 tokens  The big one\nopenai:small  8,192 tokens  $0.5 in, $2 out\n");
    assert_eq!(home.run(&["models", "OpenAI", "--filter", "BIG"]).ok().lines().count(), 1);
    let row: Value =
        serde_json::from_str(&home.run(&["models", "openai", "--json", "--filter", "small"]).ok()).unwrap();
    assert_eq!(
        (&row["id"], &row["context_tokens"], &row["output_price"]),
        (&json!("small"), &json!(8192), &json!(2.0))
    );
    let ran = home.run(&["models", "nobody"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("there is no model provider 'nobody'; there are ") && ran.err.contains("ollama"),
        "{}",
        ran.err
    );
}

#[test]
fn providers_are_listed_with_what_they_lack() {
    let server = ModelServer::start();
    let home = TestHome::with_model(&server);
    let listed = home.run(&["models", "--providers"]).ok();
    let line = |name: &str| {
        listed.lines().find(|it| it.split_whitespace().next() == Some(name)).unwrap_or_default().to_owned()
    };
    assert!(line("openai").contains("ready, key from"), "{listed}");
    assert!(line("ollama").contains("ready"), "{listed}");
    assert!(!listed.contains("sk-"), "{listed}");
    assert!(server.requests().is_empty());
}

#[test]
fn a_model_is_tried_with_short_questions() {
    let server = ModelServer::start();
    server
        .reply(Reply::text("pong"))
        .reply(Reply::calls([("c1", "report", json!({"word": "pong"}))]))
        .reply(Reply::status(400).body(r#"{"error":{"message":"this model takes no images"}}"#));
    let home = TestHome::with_model(&server);
    let ran = home.run(&["models", "test"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines: Vec<_> = ran.out.lines().collect();
    assert!(lines[0].starts_with("text       works: 'pong' after "), "{}", ran.out);
    assert_eq!(lines[1], "streaming  works: 1 pieces");
    assert_eq!(lines[2], r#"tools      works: report({"word":"pong"})"#);
    assert!(lines[3].contains("does not work") && lines[3].contains("takes no images"), "{}", ran.out);
    assert_eq!(server.chats()[1].body["tools"][0]["function"]["name"], "report");
}

#[test]
fn a_model_that_has_answered_is_not_waited_for() {
    let server = ModelServer::with(|it| match it.body.to_string().contains("image_url") {
        true => Reply::status(500).header("retry-after", "30").body("boom"),
        false => Reply::text("pong"),
    });
    let home = TestHome::with_model(&server);
    let ran = home.run(&["models", "test"]);
    let line = ran.out.lines().find(|it| it.starts_with("images")).unwrap_or_default();
    assert!(line.contains("does not work: the provider failed (HTTP 500): boom"), "{} {}", ran.out, ran.err);
    let n_images = server.requests().iter().filter(|it| it.body.to_string().contains("image_url")).count();
    assert_eq!(n_images, 1);
}

#[test]
fn answers_ask_for_no_more_than_a_listed_model_writes() {
    let server = ModelServer::with(|it| match it.method.as_str() {
        "GET" => Reply::json(&json!({"data": [
            {"id": "short", "context_length": 200_000, "max_output_tokens": 4096},
            {"id": "small", "context_length": 8192},
            {"id": "large", "context_length": 200_000, "max_output_tokens": 64_000},
        ]})),
        _ => Reply::text("hi"),
    });
    let home = TestHome::with_model(&server);
    let asked = |args: &[&str]| {
        home.run(&[&["run", "hi"], args].concat()).ok();
        server.chats().last().unwrap().body["max_completion_tokens"].clone()
    };
    assert_eq!(asked(&["--model", "openai:short"]), 16_384, "nothing is known yet");
    home.run(&["models"]).ok();
    for (model, expected) in [("short", 4096), ("small", 4096), ("large", 16_384), ("other", 16_384)] {
        assert_eq!(asked(&["--model", &format!("openai:{model}")]), expected, "{model}");
    }
    assert_eq!(asked(&["--model", "openai:other", "--set", "context.window=2000"]), 1000);
}

#[test]
fn a_model_that_does_not_answer_is_asked_once() {
    let server = ModelServer::start();
    server.reply(Reply::status(404).body(r#"{"error":{"message":"no such model"}}"#));
    let home = TestHome::with_model(&server);
    let ran = home.run(&["models", "test", "openai:missing", "--json"]);
    assert_eq!(ran.code, Some(1));
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["works"], &report["model"]), (&json!(false), &json!("openai:missing")));
    assert!(ran.err.contains("no such model"), "{}", ran.err);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn copilot_is_asked_with_the_token_of_gh() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = ModelServer::with(|request| Reply::text(request.header("authorization").unwrap_or("no key")));
    let home = TestHome::new().var("BUB_MODEL", "github-copilot:gpt").var("BUB_API_BASE", server.base_url());
    let programs = home.workspace().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let gh = programs.join("gh");
    std::fs::write(&gh, "#!/bin/sh\n[ \"$1 $2\" = 'auth token' ] && echo gho_test\n").unwrap();
    std::fs::set_permissions(&gh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let home = home.var("PATH", path);
    assert_eq!(home.run(&["run", "hello"]).ok(), "Bearer gho_test\n");
    std::fs::write(&gh, "#!/bin/sh\nexit 4\n").unwrap();
    let err = home.run(&["run", "hello"]).failed(1);
    assert!(
        err.contains("`gh auth token` gives no token (it ended with exit code 4)") && err.contains("gh auth login"),
        "{err}"
    );
}

#[test]
fn login_runs_the_codex_program_and_reads_its_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = TestHome::new();
    let codex = home.workspace().join("codex");
    let script = "#!/bin/sh\necho \"$@\" > \"$CODEX_HOME/args\"\n\
                  echo '{\"tokens\":{\"access_token\":\"t\",\"account_id\":\"acc-7\"}}' > \"$CODEX_HOME/auth.json\"\n";
    std::fs::write(&codex, script).unwrap();
    std::fs::set_permissions(&codex, std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = home.workspace().join("codex-home");
    let (program, folder_arg) = (codex.display().to_string(), folder.display().to_string());
    let args = ["login", "codex", "--executable", &program, "--codex-home", &folder_arg];
    let out = home.run(&[&args[..], &["--device-auth"]].concat()).ok();
    assert!(out.starts_with("login: ok\naccount_id: acc-7\n") && out.contains("BUB_MODEL=codex:"), "{out}");
    let told = std::fs::read_to_string(folder.join("args")).unwrap();
    assert_eq!(told.trim(), "login -c cli_auth_credentials_store=\"file\" --device-auth");
    std::fs::write(&codex, "#!/bin/sh\nexit 3\n").unwrap();
    let err = home.run(&args).failed(1);
    assert!(err.contains("login: failed: ") && err.contains("ended with exit code 3"), "{err}");
    let err = home.run(&["login", "codex", "--executable", "/nowhere/codex"]).failed(1);
    assert!(err.contains("login: failed: ") && err.contains("/nowhere/codex"), "{err}");
}
