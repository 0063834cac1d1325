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
