//! Cancelled turns: they end soon, and what they did is on the tape, well formed.

use std::time::{Duration, Instant};

use bub_engine::TurnOptions;
use bub_kernel::{
    model::ModelEvent,
    turn::{TurnError, TurnEvent},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Bench, inbound};

#[tokio::test]
async fn r075_a_turn_cancelled_while_it_streams_keeps_what_came() {
    let words = (0..50).map(|idx| ModelEvent::Text(format!("{idx} ")));
    let bench = Bench::new([Script::events(words).delay(Duration::from_millis(20)), Script::text("next")]);
    let mut stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    for _ in 0..3 {
        stream.next().await.unwrap();
    }
    stream.cancel();
    assert!(matches!(stream.result().await, Err(TurnError::Cancelled)));
    let tape = bench.tape().await;
    assert!(tape.contains(r#""content": "0 1 2 "#), "{tape}");
    assert!(tape.contains(r#"loop.finish", "data": {"status": "cancelled", "steps": 1"#), "{tape}");
    assert_eq!(bench.say("again").await.unwrap().answer, "next");
    assert_eq!(bench.sent(1).len(), 3);
}

#[tokio::test]
async fn cancelled_calls_are_recorded_with_those_that_finished() {
    let bench = Bench::new([
        Script::calls([("a", "say_echo", json!({"text": "x"})), ("b", "sleep", json!({"ms": 60_000}))]),
        Script::text("next"),
    ]);
    let started = Instant::now();
    let mut stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    loop {
        if let TurnEvent::ToolCalls(_) = stream.next().await.unwrap() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.cancel();
    assert!(matches!(stream.result().await, Err(TurnError::Cancelled)));
    assert!(started.elapsed() < Duration::from_secs(20));
    let tape = bench.tape().await;
    assert!(tape.contains(r#"tool_result {"results": ["said: x", "aborted after 0."#), "{tape}");
    assert!(tape.contains(r#""status": "cancelled""#), "{tape}");
    bench.say("go on").await.unwrap();
    assert_eq!(bench.sent(1).len(), 5, "user, calls, two results, user");
}

#[tokio::test]
async fn a_dropped_stream_cancels_and_is_recorded_before_the_runtime_closes() {
    let bench = Bench::new([Script::pending()]);
    let stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(stream);
    bench.runtime.close().await;
    assert!(bench.tape().await.contains(r#""status": "cancelled""#));
}

#[tokio::test]
async fn the_whole_call_has_a_time_limit() {
    let setup = crate::bench::Setup {
        settings: bub_engine::EngineSettings { model_timeout: Some(Duration::from_millis(50)), ..Default::default() },
        ..Default::default()
    };
    let bench = setup.start([Script::events([ModelEvent::Text("a".into())]).then_pending()]);
    let err = bench.say("go").await.unwrap_err();
    assert!(err.to_string().contains("model_timeout_seconds (0.05 s)"), "{err}");
    assert!(bench.tape().await.contains(r#""role": "user""#));
}
