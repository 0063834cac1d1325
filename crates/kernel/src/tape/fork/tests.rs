use serde_json::Value;

use super::*;
use crate::{
    clock::FixedClock,
    message::{Message, Role},
    tape::{EntryKind, MemoryStore, SESSION_START, TextMatch, parse_bound},
};

async fn tape() -> Tape {
    let tape = Tape::new(TapeName::free("t"), Arc::new(MemoryStore::default()), Arc::new(FixedClock::default()))
        .with_sidecars(&["spill".to_owned()]);
    tape.bootstrap().await.unwrap();
    tape
}

async fn names(tape: &Tape, query: TapeQuery) -> Vec<String> {
    let entries = tape.read(&query).await.unwrap();
    entries.iter().map(|it| format!("{}:{}", it.id, it.name().unwrap_or_default())).collect()
}

#[tokio::test]
async fn what_a_fork_writes_is_seen_in_it_and_elsewhere_only_after_commit() {
    let tape = tape().await;
    let fork = tape.fork();
    fork.tape().append_event("a", Value::Null).await.unwrap();
    fork.tape().sidecar("spill").unwrap().append_event("s", Value::Null).await.unwrap();
    assert_eq!(names(fork.tape(), TapeQuery::default().after_last_anchor()).await, ["2:handoff", "1:a"]);
    assert_eq!(names(&tape, TapeQuery::default().after_last_anchor()).await, ["2:handoff"]);
    fork.commit().await.unwrap();
    assert_eq!(names(&tape, TapeQuery::default().after_last_anchor()).await, ["2:handoff", "3:a"]);
    assert_eq!(names(&tape.sidecar("spill").unwrap(), TapeQuery::default()).await, ["1:s"]);
}

#[tokio::test]
async fn a_dropped_fork_leaves_nothing() {
    let tape = tape().await;
    let fork = tape.fork();
    fork.tape().append_event("a", Value::Null).await.unwrap();
    drop(fork);
    assert_eq!(tape.stats().await.unwrap().entries, 2);
}

#[tokio::test]
async fn an_anchor_in_the_fork_hides_what_was_before() {
    let tape = tape().await;
    let fork = tape.fork();
    fork.tape().append_event("before", Value::Null).await.unwrap();
    fork.tape().handoff("here", json!({})).await.unwrap();
    fork.tape().append_event("after", Value::Null).await.unwrap();
    assert_eq!(names(fork.tape(), TapeQuery::default().after_last_anchor()).await, ["3:handoff", "4:after"]);
    let stats = fork.tape().stats().await.unwrap();
    assert_eq!((stats.entries, stats.anchors, stats.entries_since_last_anchor), (6, 2, 2));
    assert_eq!(stats.last_anchor.as_deref(), Some("here"));
}

#[tokio::test]
async fn limits_count_across_both_halves() {
    let tape = tape().await;
    tape.append_event("old", Value::Null).await.unwrap();
    let fork = tape.fork();
    fork.tape().append_event("new", Value::Null).await.unwrap();
    let events = || TapeQuery::default().kind(EntryKind::Event);
    assert_eq!(names(fork.tape(), events().newest_first().limit(2)).await, ["1:new", "3:old"]);
    assert_eq!(names(fork.tape(), events().limit(2)).await, ["2:handoff", "3:old"]);
}

#[tokio::test]
async fn a_reset_in_a_fork_reaches_the_tape_at_commit() {
    let tape = tape().await;
    tape.append_event("old", Value::Null).await.unwrap();
    let fork = tape.fork();
    fork.tape().reset(false).await.unwrap();
    assert_eq!(tape.stats().await.unwrap().entries, 3);
    let expected = ["1:session/start", "2:handoff", "3:sidecar.reset"];
    assert_eq!(names(fork.tape(), TapeQuery::default()).await, expected);
    fork.commit().await.unwrap();
    assert_eq!(names(&tape, TapeQuery::default()).await, expected);
    assert_eq!(tape.stats().await.unwrap().last_anchor.as_deref(), Some(SESSION_START));
}

#[tokio::test]
async fn entries_of_the_running_turn_are_filtered_like_all_others() {
    let tape = tape().await;
    let say = |text: &str| NewEntry::message(&Message::text(Role::User, text.to_owned()));
    tape.append([say("old needle"), say("old hay")]).await.unwrap();
    let fork = tape.fork();
    fork.tape().append([say("new needle"), say("new hay"), say("old needle")]).await.unwrap();
    let texts = async |query: TapeQuery| {
        let entries = fork.tape().read(&query).await.unwrap();
        let text = |it: &Arc<Entry>| it.payload.get("content").and_then(Value::as_str).unwrap_or("-").to_owned();
        entries.iter().map(text).collect::<Vec<_>>()
    };
    let needles = || TapeQuery { text: Some(TextMatch::new("NEEDLE", false)), ..TapeQuery::default() };
    assert_eq!(texts(needles()).await, ["old needle", "new needle", "old needle"]);
    assert_eq!(texts(needles().newest_first().limit(2)).await, ["old needle", "new needle"]);
    let distinct = || TapeQuery { distinct: true, ..needles() };
    assert_eq!(texts(distinct()).await, ["old needle", "new needle"]);
    assert_eq!(texts(distinct().newest_first()).await, ["old needle", "new needle"]);
    assert_eq!(texts(distinct().limit(1)).await, ["old needle"]);
    assert_eq!(texts(needles().limit(0)).await, [""; 0]);
    let dated = |from: &str, to: &str| TapeQuery {
        from: Some(parse_bound(from, false).unwrap()),
        to: Some(parse_bound(to, true).unwrap()),
        ..needles()
    };
    assert_eq!(texts(dated("2026-01-02", "2026-01-02")).await.len(), 3);
    assert_eq!(texts(dated("2026-01-03", "2026-01-04")).await.len(), 0);
    assert_eq!(texts(needles().kind(EntryKind::ToolResult)).await.len(), 0);
    assert_eq!(texts(needles().kind(EntryKind::Message)).await.len(), 3);
    fork.tape().handoff("here", json!({})).await.unwrap();
    fork.tape().append([say("after needle")]).await.unwrap();
    assert_eq!(texts(needles().after_last_anchor()).await, ["after needle"]);
    assert_eq!(texts(needles().between_anchors(SESSION_START, "here")).await.len(), 3);
}

#[tokio::test]
async fn an_anchor_that_is_in_neither_half_is_an_error() {
    let tape = Tape::new(TapeName::free("t"), Arc::new(MemoryStore::default()), Arc::new(FixedClock::default()));
    let fork = tape.fork();
    fork.tape().append_event("a", Value::Null).await.unwrap();
    let error = async |query: TapeQuery| fork.tape().read(&query).await.unwrap_err().to_string();
    assert_eq!(error(TapeQuery::default().after_last_anchor()).await, "No anchors found in tape.");
    assert_eq!(error(TapeQuery::default().after_anchor("x")).await, "Anchor 'x' was not found.");
    assert_eq!(error(TapeQuery::default().between_anchors("x", "y")).await, "Anchor 'x' was not found.");
}

#[tokio::test]
async fn forks_that_began_an_empty_tape_together_leave_one_beginning() {
    let tape = Tape::new(TapeName::free("t"), Arc::new(MemoryStore::default()), Arc::new(FixedClock::default()));
    let (first, second) = (tape.fork(), tape.fork());
    for (fork, text) in [(&first, "one"), (&second, "two")] {
        fork.tape().bootstrap().await.unwrap();
        fork.tape().append_event(text, Value::Null).await.unwrap();
    }
    second.commit().await.unwrap();
    first.commit().await.unwrap();
    // An anchor of the same name that somebody sets is another matter.
    let third = tape.fork();
    third.tape().handoff(SESSION_START, serde_json::json!({"summary": "x"})).await.unwrap();
    assert_eq!(names(&tape, TapeQuery::default().after_last_anchor()).await, ["2:handoff", "3:two", "4:one"]);
    third.commit().await.unwrap();
    assert_eq!(names(&tape, TapeQuery::default().after_last_anchor()).await, ["6:handoff"]);
}
