//! Models that stand in for one that does not begin to answer.

use bub_engine::{EngineSettings, TurnOptions};
use bub_kernel::{
    model::{ModelError, ModelEvent},
    tape::TapeQuery,
    turn::{SessionId, TurnEvent},
};
use bub_testing::Script;
use serde_json::{Value, json};

use crate::bench::{Bench, Setup, inbound};

fn bench(fallbacks: &[&str], scripts: impl IntoIterator<Item = Script>) -> Bench {
    let fallback_models = fallbacks.iter().map(|it| (*it).to_owned()).collect();
    let settings = EngineSettings { model: Some("fake:m".into()), fallback_models, ..EngineSettings::default() };
    Setup { settings, ..Setup::default() }.start(scripts)
}

fn refused(text: &str) -> Script {
    Script::error(ModelError::Auth(text.into()))
}

/// Which models were asked, in order.
fn asked(bench: &Bench) -> Vec<String> {
    bench.model.requests().into_iter().map(|it| it.model).collect()
}

/// What the `run` event says besides usage.
async fn recorded(bench: &Bench) -> Value {
    let query = TapeQuery::default().event("run").newest_first().limit(1);
    let entries = bench.runtime.tape(&SessionId("s".into())).read(&query).await.unwrap();
    entries[0].data().cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_next_model_answers_and_is_recorded() {
    let bench = bench(&["fake:n", "fake:o"], [refused("no"), refused("nor I"), Script::text("hi")]);
    let events = bench.watch("hello").await;
    let notices: Vec<_> =
        events.iter().filter_map(|it| if let TurnEvent::Notice(it) = it { Some(it) } else { None }).collect();
    assert!(notices[0].starts_with("fake:m: ") && notices[0].ends_with("asking fake:n instead"), "{notices:?}");
    assert_eq!(asked(&bench), ["m", "n", "o"]);
    let expected = json!({
        "status": "ok", "provider": "fake", "model": "fake:m", "answered_by": "fake:o",
        "attempts": [
            {"model": "fake:m", "error": "the provider refused the credentials: no"},
            {"model": "fake:n", "error": "the provider refused the credentials: nor I"},
        ],
    });
    assert_eq!(recorded(&bench).await, expected);
}

#[tokio::test]
async fn the_first_error_is_reported_when_nobody_answers() {
    let bench = bench(
        &["nowhere:x", "fake:n"],
        [refused("first"), Script::error(ModelError::Overloaded { message: "full".into(), retry_after: None })],
    );
    let err = bench.say("hello").await.unwrap_err().to_string();
    assert_eq!(err, "the provider refused the credentials: first");
    let attempts = recorded(&bench).await["attempts"].clone();
    let models: Vec<_> = attempts.as_array().unwrap().iter().map(|it| it["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["fake:m", "nowhere:x", "fake:n"]);
    assert!(attempts[1]["error"].as_str().unwrap().contains("unknown model provider 'nowhere'"), "{attempts}");
}

#[tokio::test]
async fn nobody_stands_in_once_words_came() {
    let half = Script::events([ModelEvent::Text("ha".into())]).then_error(ModelError::Incomplete("cut".into()));
    let bench = bench(&["fake:n"], [half, Script::text("no")]);
    assert!(bench.say("hello").await.is_err());
    assert_eq!(asked(&bench), ["m"]);
}

#[tokio::test]
async fn nobody_stands_in_for_a_model_that_was_chosen() {
    let bench = bench(&["fake:n"], [refused("no"), Script::text("no")]);
    let options = TurnOptions { model: Some("fake:other".into()), ..TurnOptions::default() };
    assert!(bench.runtime.turn(inbound("hello"), options).result().await.is_err());
    assert_eq!(asked(&bench), ["other"]);
}
