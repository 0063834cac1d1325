//! Answers that went over a tape in a file.

use super::*;
use bub_engine::{EngineSettings, Runtime, RuntimeParts, TurnOptions};
use bub_host::{JsonlStore, StoreOptions};
use bub_kernel::{clock::FixedClock, event::EventBus, plugin::Registry, secret::SecretMask};
use bub_testing::{NoEnvironment, inbound};

/// A runtime as a new process would have it.
fn runtime(folder: &std::path::Path, configs: &[ProviderConfig]) -> Runtime {
    let mut registry = Registry::default();
    for config in configs {
        registry.models(Arc::new(Provider::new(config.clone())));
    }
    Runtime::new(RuntimeParts {
        registry,
        settings: EngineSettings { model: Some("anthropic:m".into()), ..EngineSettings::default() },
        store: Arc::new(JsonlStore::new(folder.to_owned(), StoreOptions::default())),
        environment: Arc::new(NoEnvironment),
        workspace: "/ws".into(),
        clock: Arc::new(FixedClock::default()),
        events: EventBus::default(),
        mask: SecretMask::default(),
        locks: None,
    })
}

#[tokio::test]
async fn r185_blocks_survive_the_tape_another_provider_and_a_new_process() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = (ModelServer::start(), ModelServer::with(|_| Reply::text("from elsewhere")));
    let configs = [anthropic(&server), ProviderConfig { name: "local".into(), ..config(&other) }];
    let blocks = [
        thinking(0, &["first ", "ünd \"so\""], "S1+/=="),
        text(1, &["Let me ", "see é."]),
        thinking(2, &["then\n"], "S2+/=="),
        tool_use(3, "toolu_1", "no_such_tool", &["{\"b\": 1.50, \"a\": [1, {}]}"]),
    ];
    server
        .reply(message(blocks, "tool_use"))
        .reply(message([thinking(0, &["done"], "S3"), text(1, &["ok"])], "end_turn"))
        .reply(message([text(0, &["back"])], "end_turn"));
    let say = async |runtime: &Runtime, text: &str, model: &str| {
        let options = TurnOptions { model: Some(model.into()), ..TurnOptions::default() };
        runtime.turn(inbound(text), options).result().await.unwrap().answer
    };
    let first = runtime(folder.path(), &configs);
    assert_eq!(say(&first, "look", "anthropic:m").await, "ok");
    assert_eq!(say(&first, "and you?", "local:m").await, "from elsewhere");
    drop(first);
    assert_eq!(say(&runtime(folder.path(), &configs), "once more", "anthropic:m").await, "back");

    let requests = server.requests();
    let first = json!({"type": "thinking", "thinking": "first ünd \"so\"", "signature": "S1+/=="});
    let expected = [
        first.to_string(),
        json!({"type": "text", "text": "Let me see é."}).to_string(),
        json!({"type": "thinking", "thinking": "then\n", "signature": "S2+/=="}).to_string(),
        r#"{"type":"tool_use","id":"toolu_1","name":"no_such_tool","input":{"b":1.5,"a":[1,{}]}}"#.to_owned(),
    ];
    let expected = format!(r#"{{"role":"assistant","content":[{}]}}"#, expected.join(","));
    for request in &requests[1..] {
        let raw = String::from_utf8(request.raw.clone()).unwrap();
        assert!(raw.contains(&expected), "{raw}");
    }
    // Nothing before the end of what was sent has changed, so that the provider's cache holds it.
    for pair in requests.windows(2) {
        assert!(pair[1].raw.starts_with(pair[0].raw.strip_suffix(b"]}]}").unwrap()));
    }
    let last = requests[2].body["messages"].as_array().unwrap();
    let end = json!([{"type": "thinking", "thinking": "done", "signature": "S3"}, {"type": "text", "text": "ok"}]);
    assert_eq!(last[3]["content"], end);
    assert_eq!(last[5]["content"], json!([{"type": "text", "text": "from elsewhere"}]));
    server.assert_no_violations();
    other.assert_no_violations();
    // The other provider gets the words and the calls alone.
    let chat = &other.requests()[0];
    assert!(!String::from_utf8_lossy(&chat.raw).contains("S1+"), "{}", chat.body);
    assert_eq!(chat.messages()[1]["tool_calls"][0]["id"], "toolu_1");
}

#[tokio::test]
async fn a_pause_in_a_turn_is_over_when_the_provider_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = ModelServer::start();
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    server
        .reply(message([text(0, &["Searching. "]), block(1, search.clone(), [])], "pause_turn"))
        .reply(message([block(0, found.clone(), []), text(1, &["Found."])], "end_turn"))
        .reply(message([text(0, &["bye"])], "end_turn"));
    let runtime = runtime(folder.path(), &[anthropic(&server)]);
    let say = async |text: &str| runtime.turn(inbound(text), TurnOptions::default()).result().await.unwrap().answer;
    assert_eq!(say("search").await, "Searching. Found.");
    assert_eq!(say("thanks").await, "bye");
    let requests = server.requests();
    let paused = json!([{"type": "text", "text": "Searching. "}, search]);
    assert_eq!(requests[1].body["messages"][1]["content"], paused);
    let whole = json!([{"type": "text", "text": "Searching. "}, search, found, {"type": "text", "text": "Found."}]);
    assert_eq!(requests[2].body["messages"][1]["content"], whole);
    server.assert_no_violations();
}
