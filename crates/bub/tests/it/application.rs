//! The application inside another program.

use std::sync::Arc;

use bub::TurnOptions;
use bub_kernel::{
    environment::Environment,
    turn::{SessionId, TurnEvent},
};
use bub_testing::{NoEnvironment, Script};
use serde_json::json;

use crate::bench::{Bench, Folders, tape};

#[tokio::test]
async fn a_prompt_goes_to_the_model_as_it_is_in_its_session() {
    let bench = Bench::new([Script::text("one"), Script::text("two"), Script::text("three")]);
    let app = &bench.app;
    let options = TurnOptions {
        allowed_tools: Some(vec!["fs_read".into(), "tape.info".into()]),
        model: Some("fake:big".into()),
        reasoning_effort: Some("high".into()),
        ..TurnOptions::default()
    };
    let mut stream = app.run_stream("web:7", "What is this?", options);
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        if let TurnEvent::Text(delta) = event {
            text.push_str(&delta);
        }
    }
    assert_eq!((text.as_str(), stream.result().await.unwrap().session), ("one", SessionId("web:7".into())));
    let request = &bench.model.requests()[0];
    assert_eq!((bench.last(0).as_str(), request.model.as_str()), ("What is this?", "big"));
    assert_eq!(request.options.reasoning_effort.as_deref(), Some("high"));
    assert_eq!(bench.offered(0), ["fs_read", "tape_info"]);
    assert!(bench.system(0).contains("<general_instruct>"), "the application's prompt");

    // What a person sets for the session applies, and it is the session of any other turn.
    app.run_stream("web:7", ",model fake:small", TurnOptions::default()).result().await.unwrap();
    app.run_stream("web:7", "And now?", TurnOptions::default()).result().await.unwrap();
    assert_eq!((bench.model.requests()[1].model.as_str(), bench.last(1).as_str()), ("small", "And now?"));
    let recorded: Vec<_> = tape(app, "web:7").await.iter().filter_map(|it| it.name().map(str::to_owned)).collect();
    assert_eq!(recorded.iter().filter(|it| *it == "loop.finish").count(), 2);

    let unknown = TurnOptions { allowed_tools: Some(vec!["nope".into()]), ..TurnOptions::default() };
    let err = app.run_stream("web:7", "x", unknown).result().await.unwrap_err();
    assert_eq!(err.to_string(), "unknown tool name(s): 'nope'");
    app.close().await;
}

#[tokio::test]
async fn an_agent_can_use_the_providers_of_the_settings() {
    let folders = Folders::new().var("BUB_OPENAI_API_KEY", "k");
    let bench = folders.bench([]);
    let local: Arc<dyn Environment> = Arc::new(NoEnvironment);
    let names: Vec<_> =
        bub::model_providers(bench.app.settings(), &local).iter().map(|it| it.name().to_owned()).collect();
    assert!(names.contains(&"openai".to_owned()) && names.contains(&"ollama".to_owned()), "{names:?}");
    let agent = bub::Agent::builder().providers(bub::model_providers(bench.app.settings(), &local)).build().unwrap();
    let err = agent.ask(bub::Run::new("hi").model("nope:x")).await.unwrap_err().to_string();
    assert!(err.starts_with("unknown model provider 'nope': known are ") && err.contains("openai"), "{err}");
    assert_eq!(json!(agent.name()), "agent");
}
