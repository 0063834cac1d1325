use std::sync::Mutex;

use serde_json::Value;

use super::*;
use crate::tape::{MemoryStore, Tape, TapeError, TapeQuery, TapeStats, TapeStore};

fn main() -> TapeName {
    TapeName::free("t")
}

fn entry(second: i64, new: NewEntry) -> Arc<Entry> {
    Arc::new(new.dated(&FixedClock(Timestamp::from_second(1_767_323_045 + second).unwrap())))
}

fn event(second: i64, name: &str, data: Value) -> Arc<Entry> {
    entry(second, NewEntry::event(name, data))
}

/// Names and data of entries, but the date.
fn lines(entries: &[Arc<Entry>]) -> Vec<String> {
    let line = |it: &Arc<Entry>| match it.data().cloned() {
        Some(mut data) => {
            data.as_object_mut().map(|it| it.remove("date"));
            format!("{} {data}", it.name().unwrap_or_default())
        }
        None => format!("{} {}", it.kind, Value::Object(it.payload.clone())),
    };
    entries.iter().map(line).collect()
}

/// What is missing when a turn breaks off behind `held`.
fn check_missing(held: Vec<Arc<Entry>>, expected: &[&str]) {
    let mut pending = Pending::default();
    pending.apply(Record::Append { tape: &main(), entries: &held });
    let missing = pending.missing(&main(), Timestamp::from_second(1_800_000_000).unwrap());
    assert_eq!(lines(&missing), expected);
    for it in &missing {
        assert_eq!(
            (it.date.as_str(), &it.data().unwrap()["date"]),
            ("2027-01-15T08:00:00.000000+00:00", &json!(it.date))
        );
    }
    // Once they are there nothing is missing.
    pending.apply(Record::Append { tape: &main(), entries: &missing });
    assert_eq!(pending.missing(&main(), Timestamp::UNIX_EPOCH), []);
}

#[test]
fn a_turn_that_broke_off_gets_its_ends() {
    let start = |second| event(second, "loop.start", json!({"prompt": "x"}));
    let step = |second, n: u64| event(second, "loop.step.start", json!({"step": n}));
    let step_end = |second, n: u64| event(second, "loop.step", json!({"step": n, "status": "continue"}));
    check_missing(vec![], &[]);
    check_missing(vec![event(0, "command", json!({}))], &[]);
    check_missing(vec![start(0), step(0, 1), step_end(1, 1), event(2, "loop.finish", json!({}))], &[]);
    check_missing(vec![start(0)], &[r#"loop.finish {"status":"interrupted","steps":0,"elapsed_ms":0}"#]);
    check_missing(
        vec![start(0), step(1, 1)],
        &[
            r#"loop.step {"step":1,"elapsed_ms":0,"status":"interrupted"}"#,
            r#"loop.finish {"status":"interrupted","steps":1,"elapsed_ms":1000}"#,
        ],
    );
    check_missing(
        vec![start(0), step(1, 1), step_end(2, 1), step(3, 2), event(5, "run", json!({}))],
        &[
            r#"loop.step {"step":2,"elapsed_ms":2000,"status":"interrupted"}"#,
            r#"loop.finish {"status":"interrupted","steps":2,"elapsed_ms":5000}"#,
        ],
    );
    check_missing(
        vec![start(0), step(1, 1), step_end(2, 1)],
        &[r#"loop.finish {"status":"interrupted","steps":1,"elapsed_ms":2000}"#],
    );
}

#[test]
fn a_clock_that_goes_back_makes_no_time_negative() {
    let turn = vec![event(50, "loop.start", json!({})), event(10, "loop.step.start", json!({"step": "?"}))];
    check_missing(
        turn,
        &[
            r#"loop.step {"step":0,"elapsed_ms":0,"status":"interrupted"}"#,
            r#"loop.finish {"status":"interrupted","steps":0,"elapsed_ms":0}"#,
        ],
    );
}

#[test]
fn what_was_foreseen_comes_before_the_ends_and_counts_as_lived_time() {
    let mut pending = Pending::default();
    let held = [event(0, "loop.start", json!({})), event(1, "loop.step.start", json!({"step": 1}))];
    pending.apply(Record::Append { tape: &main(), entries: &held });
    let results = entry(2, NewEntry::tool_result(vec![json!("interrupted"), json!("interrupted")]));
    pending.apply(Record::Foresee { n_kept: 0, entries: &[results] });
    pending.apply(Record::Result { position: 1, result: &json!("true"), date: "2026-01-02T03:04:09.000000+00:00" });
    pending.apply(Record::Result { position: 7, result: &json!("nowhere"), date: "" });
    assert_eq!(
        lines(&pending.missing(&main(), Timestamp::UNIX_EPOCH)),
        [
            r#"tool_result {"results":["interrupted","true"]}"#,
            r#"loop.step {"step":1,"elapsed_ms":3000,"status":"interrupted"}"#,
            r#"loop.finish {"status":"interrupted","steps":1,"elapsed_ms":4000}"#,
        ]
    );
}

/// A journal that keeps its records as a fork's state, as one that is read again would give it.
#[derive(Default)]
struct Recorder {
    pending: Mutex<Pending>,
    n_written: Mutex<usize>,
    ends: Mutex<Vec<&'static str>>,
}

impl Journal for Recorder {
    fn record(&self, record: Record<'_>) {
        self.pending.lock().unwrap().apply(record);
        let (Record::Append { entries, .. }
        | Record::Replace { entries, .. }
        | Record::Foresee { entries, .. }
        | Record::Settle { entries, .. }) = record
        else {
            return;
        };
        *self.n_written.lock().unwrap() += entries.len();
    }

    fn close(&self) {
        self.ends.lock().unwrap().push("close");
    }

    fn leave(&self) {
        self.ends.lock().unwrap().push("leave");
    }
}

/// A store in memory with one journal; it fails on demand.
#[derive(Default)]
struct Journalled {
    tapes: MemoryStore,
    journal: Arc<Recorder>,
    is_full: bool,
}

#[async_trait::async_trait]
impl TapeStore for Journalled {
    async fn list(&self) -> Result<Vec<TapeName>, TapeError> {
        self.tapes.list().await
    }

    async fn read(&self, tape: &TapeName, query: &TapeQuery) -> Result<Vec<Arc<Entry>>, TapeError> {
        self.tapes.read(tape, query).await
    }

    async fn stats(&self, tape: &TapeName) -> Result<TapeStats, TapeError> {
        self.tapes.stats(tape).await
    }

    async fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        if self.is_full {
            return Err(TapeError::Unsupported("grow"));
        }
        self.tapes.append(tape, entries).await
    }

    async fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        self.tapes.replace(tape, entries).await
    }

    fn journal(&self, _: &TapeName) -> Option<Arc<dyn Journal>> {
        Some(self.journal.clone())
    }
}

fn tape(store: Journalled) -> (Tape, Arc<Recorder>) {
    let journal = store.journal.clone();
    let tape = Tape::new(main(), Arc::new(store), Arc::new(FixedClock::default())).with_sidecars(&["spill".to_owned()]);
    (tape, journal)
}

#[tokio::test]
async fn a_journal_holds_what_the_fork_holds() {
    let (tape, journal) = tape(Journalled::default());
    let fork = tape.journaled_fork();
    let forked = fork.tape();
    forked.bootstrap().await.unwrap();
    forked.sidecar("spill").unwrap().append_event("s", Value::Null).await.unwrap();
    let system = || NewEntry::system("be brief");
    let run = |status: &str| NewEntry::event("run", json!({"status": status}));
    forked.foresee([system(), run("error")]).await;
    forked.foresee([system(), NewEntry::tool_result(vec![json!("i"), json!("i")]), run("error")]).await;
    // What comes meanwhile comes before.
    forked.append_event("spill.write", Value::Null).await.unwrap();
    forked.foresee_result(0, json!("one")).await;
    let held = journal.pending.lock().unwrap().clone();
    assert_eq!(lines(&held.tapes[&main()].entries)[2..], ["spill.write null"]);
    let results = r#"tool_result {"results":["one","i"]}"#;
    assert_eq!(lines(&held.foreseen), [r#"system {"content":"be brief"}"#, results, r#"run {"status":"error"}"#]);

    forked.foresee_result(1, json!("two")).await;
    let n_before = *journal.n_written.lock().unwrap();
    forked.settle([system(), NewEntry::tool_result(vec![json!("one"), json!("two")]), run("ok")]).await.unwrap();
    assert_eq!(*journal.n_written.lock().unwrap(), n_before + 1, "what came as foreseen is not written again");
    let held = journal.pending.lock().unwrap().clone();
    assert_eq!(held.foreseen, []);
    let seen = forked.read(&TapeQuery::default()).await.unwrap();
    assert_eq!(seen, held.tapes[&main()].entries);
    assert_eq!(
        lines(&seen)[3..],
        [r#"system {"content":"be brief"}"#, r#"tool_result {"results":["one","two"]}"#, r#"run {"status":"ok"}"#]
    );

    forked.reset(false).await.unwrap();
    let held = journal.pending.lock().unwrap().clone();
    assert!(held.tapes[&main()].is_reset && held.tapes[&main().sidecar("spill")].is_reset);
    assert_eq!(forked.read(&TapeQuery::default()).await.unwrap(), held.tapes[&main()].entries);
    fork.commit().await.unwrap();
    assert_eq!(journal.ends.lock().unwrap()[0], "close");
}

#[tokio::test]
async fn a_fork_that_was_not_merged_leaves_its_journal() {
    let (full, journal) = tape(Journalled { is_full: true, ..Journalled::default() });
    let fork = full.journaled_fork();
    fork.tape().bootstrap().await.unwrap();
    fork.commit().await.unwrap_err();
    drop(full.journaled_fork());
    assert_eq!(*journal.ends.lock().unwrap(), ["leave", "leave"]);
    full.journaled_fork().discard();
    assert_eq!(journal.ends.lock().unwrap()[2], "close");
}

#[tokio::test]
async fn without_a_journal_nothing_is_foreseen() {
    let (tape, journal) = tape(Journalled::default());
    let fork = tape.fork();
    fork.tape().foresee([NewEntry::system("a")]).await;
    fork.tape().foresee_result(0, json!("x")).await;
    fork.tape().settle([NewEntry::system("b")]).await.unwrap();
    fork.commit().await.unwrap();
    assert_eq!(lines(&tape.read(&TapeQuery::default()).await.unwrap()), [r#"system {"content":"b"}"#]);
    assert_eq!(*journal.pending.lock().unwrap(), Pending::default());
}
