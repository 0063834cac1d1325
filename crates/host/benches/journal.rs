//! What a journal costs a step: the difference between the two rows.

#![expect(clippy::unwrap_used, reason = "a bench of what fails is none")]

use std::sync::Arc;

use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::SystemClock,
    message::{Message, Role, ToolCallRequest},
    tape::{NewEntry, Tape, TapeFork, TapeName},
};
use serde_json::json;
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// Characters of a system prompt.
const SYSTEM: usize = 8_000;
/// Characters of a result.
const RESULT: usize = 2_000;

/// What a step with two calls writes.
async fn step(fork: &TapeFork) {
    let tape = fork.tape();
    tape.append_event("loop.step.start", json!({"step": 1, "prompt": null})).await.unwrap();
    let asked =
        || [NewEntry::system(&"s".repeat(SYSTEM)), NewEntry::message(&Message::text(Role::User, "go on".to_owned()))];
    let run = |status: &str| NewEntry::event("run", json!({"status": status, "provider": "openai", "model": "m"}));
    tape.foresee(asked().into_iter().chain([run("error")])).await;
    let call = |id: &str| ToolCallRequest {
        id: id.into(),
        name: "bash".into(),
        arguments: r#"{"command":"cargo check"}"#.into(),
        metadata: Default::default(),
    };
    let calls = || NewEntry::tool_call(&[call("a"), call("b")], &[]);
    let cut = || NewEntry::tool_result(vec![json!("interrupted"), json!("interrupted")]);
    tape.foresee(asked().into_iter().chain([calls(), cut(), run("error")])).await;
    let result = || json!("r".repeat(RESULT));
    tape.foresee_result(0, result()).await;
    tape.foresee_result(1, result()).await;
    let done = NewEntry::tool_result(vec![result(), result()]);
    tape.settle(asked().into_iter().chain([calls(), done, run("ok")])).await.unwrap();
    tape.append_event("loop.step", json!({"step": 1, "elapsed_ms": 1, "status": "continue"})).await.unwrap();
}

fn bench(bencher: divan::Bencher<'_, '_>, fork: impl Fn(&Tape) -> TapeFork) {
    let dir = TempDir::new().unwrap();
    let store = JsonlStore::new(dir.path().to_path_buf(), StoreOptions { sync: Sync::Never });
    let tape = Tape::new(TapeName::free("t"), Arc::new(store), Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fork = fork(&tape);
    bencher.bench_local(|| runtime.block_on(step(&fork)));
}

#[divan::bench]
fn step_without_a_journal(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, Tape::fork);
}

#[divan::bench]
fn step_with_a_journal(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, Tape::journaled_fork);
}

/// From a turn's first record to its end: the journal is made, locked and removed.
#[divan::bench]
fn turn_without_a_step(bencher: divan::Bencher<'_, '_>) {
    let dir = TempDir::new().unwrap();
    let store = JsonlStore::new(dir.path().to_path_buf(), StoreOptions { sync: Sync::Never });
    let tape = Tape::new(TapeName::free("t"), Arc::new(store), Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bencher.bench_local(|| {
        runtime.block_on(async {
            let fork = tape.journaled_fork();
            fork.tape().append_event("loop.start", json!({})).await.unwrap();
            fork.discard();
        });
    });
}

/// What a command pays: whether there is something to recover.
#[divan::bench]
fn nothing_to_recover(bencher: divan::Bencher<'_, '_>) {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("journals")).unwrap();
    let store = JsonlStore::new(dir.path().to_path_buf(), StoreOptions { sync: Sync::Never });
    let tape = Tape::new(TapeName::free("t"), Arc::new(store), Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bencher.bench_local(|| runtime.block_on(tape.recover(std::time::Duration::ZERO)).unwrap());
}
