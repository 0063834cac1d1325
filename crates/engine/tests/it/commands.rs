//! Commands: what runs, what is recorded, what is said when it fails.

use bub_kernel::turn::TurnEvent;
use bub_testing::Script;
use expect_test::expect;

use crate::bench::Bench;

#[tokio::test]
async fn a_command_runs_without_a_model_and_is_recorded() {
    let bench = Bench::new([]);
    let events = bench.watch(" , say.echo text='a b' times=2 ").await;
    assert_eq!(
        events,
        [TurnEvent::Text("said: a ba b".into()), TurnEvent::Final { text: "said: a ba b".into(), ok: true }]
    );
    assert!(bench.say(",fail raise").await.is_err());
    expect![[r#"
        1 anchor {"name": "session/start", "state": {"owner": "human"}}
        2 event {"name": "handoff", "data": {"name": "session/start", "state": {"owner": "human"}}}
        3 event {"name": "command", "data": {"raw": "say.echo text='a b' times=2", "name": "say.echo", "status": "ok", "output": "said: a ba b"}}
        4 event {"name": "command", "data": {"raw": "fail raise", "name": "fail", "status": "error", "output": "[tool] Tool 'fail' execution failed.", "cause": "it broke: ***"}}
    "#]]
    .assert_eq(&bench.tape().await);
    assert_eq!(bench.model.requests().len(), 0);
}

#[tokio::test]
async fn a_failed_command_says_the_causes_own_words() {
    let bench = Bench::new([]);
    for (line, expected) in [
        (",fail raise", "fail: it broke: ***"),
        (",fail how=x", "fail: nothing there"),
        (",fail panic", "fail: the tool panicked: boom"),
        (",say.echo", "say.echo: 'text' is required (string)"),
        (",say.echo a times=x", "say.echo: 'times': expected an integer, got 'x'"),
        (",say.echo a b c", "expected at most 2 positional arguments, got 3"),
        (",say.echo 'a", "No closing quotation"),
        (",", "empty command"),
        (",ls", "bash tool is not available, and no tool is named 'ls'"),
    ] {
        let err = bench.say(line).await.unwrap_err();
        assert_eq!(err.to_string(), expected, "{line}");
    }
}

#[tokio::test]
async fn lines_that_cannot_be_read_are_not_recorded() {
    let bench = Bench::new([]);
    for line in [",", ",say.echo 'a", ",say.echo a b c"] {
        bench.say(line).await.unwrap_err();
    }
    assert_eq!(bench.tape().await, "");
}

#[tokio::test]
async fn commands_do_not_enter_the_models_context() {
    let bench = Bench::new([Script::text("1"), Script::text("2")]);
    bench.say(",say.echo x").await.unwrap();
    bench.say("one").await.unwrap();
    bench.say(",cut").await.unwrap();
    bench.say("two").await.unwrap();
    assert_eq!(bench.sent(0), ["user: one"]);
    assert_eq!(bench.sent(1), ["user: two"], "the anchor that a command set starts the context anew");
}
