//! Sessions: settings on their tapes, waiting messages, locks, quitting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bub_engine::{EngineSettings, Runtime, RuntimeParts, SessionGuard, SessionLocks, TurnOptions};
use bub_kernel::{
    clock::FixedClock,
    event::EventBus,
    plugin::Registry,
    secret::SecretMask,
    tape::{MemoryStore, TapeName},
    turn::{SessionId, TurnError, TurnEvent},
};
use bub_testing::{NoEnvironment, Script, ScriptedModel};
use serde_json::json;

use crate::bench::{Bench, inbound};

#[tokio::test]
async fn settings_on_the_tape_apply_from_the_next_turn() {
    let bench = Bench::new([Script::text("a"), Script::text("b"), Script::text("c")]);
    let tape = bench.runtime.tape(&SessionId("s".into()));
    bench.say("go").await.unwrap();
    for (key, value) in [("model", "fake:old"), ("model", "fake:new"), ("reasoning_effort", "high")] {
        tape.append_event(&format!("{key}_switch"), json!({key: value})).await.unwrap();
    }
    bench.say("go").await.unwrap();
    tape.append_event("model_switch", json!({"model": ""})).await.unwrap();
    bench.say("go").await.unwrap();
    let seen: Vec<_> = bench.model.requests().into_iter().map(|it| (it.model, it.options.reasoning_effort)).collect();
    let high = Some("high".to_owned());
    assert_eq!(seen, [("m".into(), None), ("new".into(), high.clone()), ("m".into(), high)]);
}

#[tokio::test]
async fn waiting_messages_make_another_step() {
    let bench = Bench::new([Script::text("first").delay(Duration::from_millis(50)), Script::text("second")]);
    let mut stream = bench.runtime.turn(inbound("go"), TurnOptions::default());
    stream.next().await;
    bench.runtime.steer(&SessionId("s".into()), inbound("and this")).unwrap();
    assert_eq!(stream.result().await.unwrap().answer, "second");
    assert_eq!(bench.sent(1), ["user: go", "assistant: first", "user: and this"]);
}

/// Lets one holder in; says so to the others.
struct OneAtATime(Arc<AtomicUsize>);

struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[async_trait]
impl SessionLocks for OneAtATime {
    async fn acquire(&self, _: &TapeName, on_wait: &(dyn Fn(String) + Send + Sync)) -> Result<SessionGuard, String> {
        if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
            on_wait("session in use by pid 7".into());
            return Err("session is still in use by pid 7".into());
        }
        Ok(Box::new(Held(self.0.clone())))
    }
}

#[tokio::test]
async fn a_session_in_use_elsewhere_is_waited_for_and_said_so() {
    let users = Arc::new(AtomicUsize::new(1));
    let model = Arc::new(ScriptedModel::new([Script::text("ok")]));
    let mut registry = Registry::default();
    registry.models(model);
    let runtime = Runtime::new(RuntimeParts {
        registry,
        settings: EngineSettings { model: Some("fake:m".into()), ..EngineSettings::default() },
        store: Arc::new(MemoryStore::default()),
        environment: Arc::new(NoEnvironment),
        workspace: "/ws".into(),
        clock: Arc::new(FixedClock::default()),
        events: EventBus::default(),
        mask: SecretMask::default(),
        locks: Some(Arc::new(OneAtATime(users.clone()))),
    });
    let mut stream = runtime.turn(inbound("go"), TurnOptions::default());
    assert_eq!(stream.next().await, Some(TurnEvent::Notice("session in use by pid 7".into())));
    let err = stream.result().await.unwrap_err();
    assert!(matches!(err, TurnError::Invalid(text) if text == "session is still in use by pid 7"));

    users.store(0, Ordering::SeqCst);
    assert_eq!(runtime.turn(inbound("go"), TurnOptions::default()).result().await.unwrap().answer, "ok");
    assert_eq!(users.load(Ordering::SeqCst), 0, "the lock is released with the turn");
}
