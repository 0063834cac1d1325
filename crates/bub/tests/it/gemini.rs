//! What the Gemini API wants back, through whole turns: over steps, restarts, and a detour to another provider.

use std::{collections::BTreeMap, fs};

use bub::{
    Builder,
    settings::{Settings, Sources},
};
use bub_engine::TurnOptions;
use bub_kernel::turn::{Inbound, Prompt};
use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A stream of one event a list of parts.
fn stream(lists: impl IntoIterator<Item = Value>) -> Reply {
    let events = lists.into_iter().map(|parts| json!({"candidates": [{"content": {"role": "model", "parts": parts}}]}));
    let last = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}});
    Reply::raw_sse(events.chain([last]).map(|it| format!("data: {it}\r\n\r\n")))
}

/// One turn of a new process.
async fn turn(folder: &TempDir, server: &ModelServer, model: &str, text: &str) {
    let cwd = folder.path().join("ws");
    fs::create_dir_all(&cwd).unwrap();
    let variables = [
        ("BUB_MODEL", model.to_owned()),
        ("GEMINI_API_KEY", "g-test-0123456789".to_owned()),
        ("OPENAI_API_KEY", "o-test-0123456789".to_owned()),
        ("BUB_API_BASE", format!("http://{}", server.address())),
    ];
    let env: BTreeMap<_, _> = variables.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let settings = Settings::load(Sources::new(env, folder.path(), cwd.clone())).unwrap();
    let app = Builder::new(settings, cwd).build().unwrap();
    let inbound = Inbound { local: true, ..Inbound::new("test", "c", Prompt::Text(text.into())) };
    app.runtime().turn(inbound, TurnOptions::default()).result().await.unwrap();
    app.close().await;
}

#[tokio::test]
async fn r183_signatures_survive_a_step_a_restart_and_a_detour() {
    let (folder, server) = (TempDir::new().unwrap(), ModelServer::start());
    let first = json!({"text": "Looking é ", "thoughtSignature": "VEVYVA+/=="});
    let more = json!({"text": "twice"});
    let call = |signature: &str| {
        let call = json!({"name": "tape_info", "args": {}});
        json!({"functionCall": call, "thoughtSignature": signature})
    };
    let (one, two) = (call("Q0FMTDE+/=="), call("Q0FMTDI+/=="));
    let end = json!({"text": "", "thoughtSignature": "RU5E+/=="});
    server
        .reply(stream([json!([first]), json!([more, one]), json!([two])]))
        .reply(stream([json!([{"text": "done"}]), json!([end])]))
        .reply(Reply::text("aside"))
        .reply(stream([json!([{"text": "back"}])]));
    turn(&folder, &server, "gemini:gemini-3-pro", "look").await;
    turn(&folder, &server, "openai:mock", "and you?").await;
    turn(&folder, &server, "gemini:models/gemini-3-pro", "go on").await;
    server.assert_no_violations();

    let requests = server.requests();
    let paths: Vec<_> = requests.iter().map(|it| it.path.as_str()).collect();
    let gemini = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
    assert_eq!(paths, [gemini, gemini, "/v1/chat/completions", gemini]);
    assert_eq!(requests[1].header("x-goog-api-key"), Some("g-test-0123456789"));
    // Byte for byte, in the next step.
    let said = json!([first, more, one, two]).to_string();
    let holds = |n: usize, text: &str| String::from_utf8(requests[n].raw.clone()).unwrap().contains(text);
    assert!(holds(1, &format!(r#"{{"role":"model","parts":{said}}}"#)), "{}", requests[1].body);
    // Another provider gets the words alone, once.
    let chat = String::from_utf8(requests[2].raw.clone()).unwrap();
    assert!(!chat.contains("+/==") && chat.matches("Looking é twice").count() == 1, "{chat}");
    // And all of it again, read from the tape.
    let contents = requests[3].body["contents"].as_array().unwrap();
    let model: Vec<_> = contents.iter().filter(|it| it["role"] == "model").map(|it| it["parts"].clone()).collect();
    assert_eq!(model.len(), 3, "{}", requests[3].body);
    let results: Vec<_> = contents[2]["parts"].as_array().unwrap().iter().map(|it| &it["functionResponse"]).collect();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|it| it["name"] == "tape_info" && it["response"]["output"].is_string()), "{results:?}");
    assert_eq!(model[0], json!([first, more, one, two]));
    assert_eq!(model[1], json!([{"text": "done"}, end]));
    assert_eq!(model[2], json!([{"text": "aside"}]));
    assert!(holds(3, &format!(r#"{{"role":"model","parts":{said}}}"#)));
}
