//! Turns whose process is killed: nothing that was done is lost, and the session goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Child,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bub_testing::{ModelServer, Reply, Request};
use serde_json::{Value, json};

use crate::home::{TestHome, exists, wait_until};

/// Sessions that are killed again and again at the same time.
const N_SESSIONS: usize = 4;
/// How often each is killed.
const N_KILLS: usize = 55;
/// The latest moment of a kill of a command that recovers.
const LATEST_RECOVERY_KILL: Duration = Duration::from_millis(25);
/// Steps with calls of a turn.
const N_STEPS: usize = 2;
/// Calls of a step.
const N_CALLS: usize = 3;

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn journals(home: &TestHome) -> Vec<PathBuf> {
    let dir = home.home().join("tapes/journals");
    let Ok(files) = fs::read_dir(dir) else { return Vec::new() };
    files.map(|it| it.unwrap().path()).collect()
}

/// Waits until a journal has some text.
fn wait_for_record(home: &TestHome, text: &str) {
    wait_until(text, || journals(home).iter().any(|it| fs::read_to_string(it).is_ok_and(|it| it.contains(text))));
}

fn names(tape: &[Value]) -> Vec<&str> {
    tape.iter().filter_map(|it| it["payload"]["name"].as_str()).collect()
}

/// The tool messages of the newest request: id and content.
fn results(server: &ModelServer) -> Vec<(String, String)> {
    let request = server.chats().pop().unwrap();
    request.messages().iter().filter_map(result_of).collect()
}

fn result_of(message: &Value) -> Option<(String, String)> {
    (message["role"] == "tool").then(|| {
        let text = |key: &str| message[key].as_str().unwrap().to_owned();
        (text("tool_call_id"), text("content"))
    })
}

#[test]
fn r076_results_that_were_finished_are_true_after_a_kill() {
    let server = ModelServer::start();
    let ids = ["c1", "c2", "c3", "c4", "c5"];
    server.reply(Reply::calls(ids.map(|id| (id, "bash", json!({"command": format!("echo out-{id}")})))));
    server.reply(Reply::text("").no_finish().no_done().stall());
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "do five things"]).spawn().unwrap();
    wait_until("the second request", || server.chats().len() == 2);
    kill(child);
    assert_eq!(journals(&home).len(), 1);

    server.reply(Reply::text("going on"));
    let ran = home.run(&["run", "go on"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "going on\n"), "{}", ran.err);
    assert!(ran.err.contains("an interrupted turn was recovered"), "{}", ran.err);
    assert_eq!(results(&server), ids.map(|id| (id.to_owned(), format!("out-{id}"))));
    server.assert_no_violations();
    assert!(journals(&home).is_empty());
    let tape = home.tape_lines();
    let finish = tape.iter().find(|it| it["payload"]["name"] == "loop.finish").unwrap();
    let data = finish["payload"]["data"].as_object().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["status", "steps", "elapsed_ms", "date"]);
    assert_eq!((&data["status"], &data["steps"]), (&json!("interrupted"), &json!(2)));
}

#[test]
fn r181_a_kill_during_calls_leaves_each_with_one_result() {
    let server = ModelServer::start();
    let home = TestHome::with_model(&server);
    for round in 1..=3 {
        let (quick, slow) = (format!("quick-{round}"), format!("slow-{round}"));
        server.reply(Reply::calls([
            (slow.as_str(), "bash", json!({"command": "sleep 2; echo never"})),
            (quick.as_str(), "bash", json!({"command": format!("echo done-{round}")})),
        ]));
        let child = home.command(&["run", &format!("round {round}")]).spawn().unwrap();
        wait_for_record(&home, &format!("\"done-{round}"));
        kill(child);

        server.reply(Reply::text("answer"));
        assert_eq!(home.run(&["run", "go on"]).ok(), "answer\n");
        server.assert_no_violations();
        let all = results(&server);
        let newest = &all[all.len() - 2..];
        assert_eq!((&newest[0].0, &newest[1].0), (&slow, &quick));
        assert!(newest[0].1.starts_with("interrupted: "), "{newest:?}");
        assert_eq!(newest[1].1, format!("done-{round}"));
        let roles: Vec<_> =
            server.chats().pop().unwrap().messages().iter().map(|it| it["role"].as_str().unwrap().to_owned()).collect();
        assert_eq!(roles[roles.len() - 5..], ["user", "assistant", "tool", "tool", "user"]);
    }
    let tape = home.tape_lines();
    let finishes = names(&tape).into_iter().filter(|it| *it == "loop.finish").count();
    assert_eq!(finishes, 6);
}

#[test]
fn words_that_came_before_a_kill_are_kept_and_marked() {
    let server = ModelServer::start();
    server.reply(Reply::text("the answer is forty").no_finish().no_done().stall());
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "what is it?"]).spawn().unwrap();
    wait_for_record(&home, "the answer is forty");
    let hint = "an interrupted turn is not in it yet";
    assert!(!home.run(&["tape", "show"]).err.contains(hint), "it still runs");
    kill(child);
    for command in ["show", "info", "anchors", "export"] {
        let ran = home.run(&["tape", command]);
        assert!(ran.code == Some(0) && ran.err.contains(hint), "{command}: {}", ran.err);
    }

    server.reply(Reply::text("two"));
    assert_eq!(home.run(&["run", "go on"]).ok(), "two\n");
    assert!(!home.run(&["tape", "show"]).err.contains(hint));
    let request = server.chats().pop().unwrap();
    let said: Vec<_> = request.messages().iter().filter(|it| it["role"] == "assistant").cloned().collect();
    assert_eq!((said.len(), &said[0]["content"]), (1, &json!("the answer is forty")));
    let tape = home.tape_lines();
    let kept = tape.iter().find(|it| it["payload"]["content"] == "the answer is forty").unwrap();
    assert_eq!(kept["meta"]["partial"], true);
}

#[test]
fn a_kill_while_the_model_thinks_keeps_the_message_and_a_command_recovers_it() {
    let server = ModelServer::start();
    server.reply(Reply::text("").no_finish().no_done().stall());
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "remember me"]).spawn().unwrap();
    wait_until("the request", || !server.chats().is_empty());
    kill(child);
    let ran = home.run(&["run", ",tape.info"]);
    assert!(ran.err.contains("an interrupted turn was recovered"), "{}", ran.err);
    assert!(journals(&home).is_empty());
    let tape = home.tape_lines();
    let kinds: Vec<_> = tape.iter().map(|it| it["payload"]["name"].as_str().or(it["kind"].as_str()).unwrap()).collect();
    let expected = [
        "session/start",
        "handoff",
        "loop.start",
        "loop.step.start",
        "system",
        "message",
        "error",
        "run",
        "loop.step",
        "loop.finish",
        "command",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(tape[8]["payload"]["data"]["status"], "interrupted");
    assert!(tape[5]["payload"]["content"].as_str().unwrap().ends_with("remember me"));

    let before = fs::read(home.tape_file()).unwrap();
    assert!(!home.run(&["run", ",tape.info"]).err.contains("recovered"));
    assert!(fs::read(home.tape_file()).unwrap().starts_with(&before), "lines are added and never changed");
}

#[test]
fn a_running_turn_is_left_alone_by_commands() {
    let server = ModelServer::start();
    server.reply(Reply::text("at last").delay(Duration::from_secs(1)));
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "take your time"]).spawn().unwrap();
    wait_until("the request", || !server.chats().is_empty());
    for _ in 0..3 {
        assert!(!home.run(&["run", ",echo x"]).err.contains("recovered"));
    }
    assert_eq!(journals(&home).len(), 1);
    assert_eq!(crate::home::end_of(child).out, "at last\n");
    assert!(journals(&home).is_empty());
    let tape = home.tape_lines();
    let expected = ["loop.start", "loop.step.start", "run", "loop.step", "loop.finish"];
    assert!(names(&tape).ends_with(&expected), "{:?}", names(&tape));
}

#[test]
fn temporary_sessions_and_commands_have_no_journal() {
    let server = ModelServer::start();
    server.reply(Reply::text("").no_finish().no_done().stall());
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "--session-id", "temp/x", "hi"]).spawn().unwrap();
    wait_until("the request", || !server.chats().is_empty());
    kill(child);
    assert!(!exists(&home.home().join("tapes")));
    home.run(&["run", ",echo x"]).ok();
    assert!(!exists(&home.home().join("tapes/journals")));
}

/// What the server has seen of one session: it is on the tape for good.
#[derive(Default)]
struct Ledger {
    results: BTreeMap<String, String>,
    prompts: BTreeSet<String>,
}

/// The server's side of the turns: two steps of three calls, then an answer.
fn answer(request: &Request, ledgers: &Mutex<Vec<Ledger>>, n_calls: &AtomicUsize) -> Reply {
    let messages = request.messages();
    let text = |it: &Value| it["content"].as_str().unwrap_or_default().rsplit("---\n").next().unwrap().to_owned();
    let prompts = messages.iter().filter(|it| it["role"] == "user").map(text);
    let session = messages.iter().rev().find(|it| it["role"] == "user").map(text).unwrap();
    let session: usize = session.split(' ').next().unwrap().parse().unwrap();
    {
        let ledger = &mut ledgers.lock().unwrap_or_else(PoisonError::into_inner)[session];
        ledger.prompts.extend(prompts);
        for (id, content) in messages.iter().filter_map(result_of) {
            let known = ledger.results.entry(id).or_insert_with(|| content.clone());
            assert_eq!(*known, content, "a result changed");
        }
    }
    let n_steps =
        messages.iter().rev().take_while(|it| it["role"] != "user").filter(|it| it["role"] == "assistant").count();
    if n_steps == N_STEPS {
        return Reply::text("done");
    }
    let calls: Vec<_> = (0..N_CALLS)
        .map(|idx| {
            let id = format!("c{}", n_calls.fetch_add(1, Ordering::SeqCst));
            let wait = if idx == 0 { "" } else { "sleep 0.00" };
            let command = if idx == 0 { format!("echo {id}") } else { format!("{wait}{}; echo {id}", idx * 4) };
            (id, command)
        })
        .collect();
    Reply::calls(calls.iter().map(|(id, command)| (id.as_str(), "bash", json!({"command": command}))))
}

/// Checks a whole tape, which nobody writes: every line, every call, and all that the server has seen.
fn check_tape(home: &TestHome, ledger: &Ledger) {
    assert!(journals(home).is_empty());
    let tape = home.tape_lines();
    assert!(tape.iter().zip(1..).all(|(it, id)| it["id"] == id), "ids have gaps");
    let n_named = |name: &str| names(&tape).into_iter().filter(|it| *it == name).count();
    assert_eq!(n_named("session/start"), 1);
    assert_eq!(n_named("loop.start"), n_named("loop.finish"));
    assert_eq!(n_named("loop.step.start"), n_named("loop.step"));
    let mut results = BTreeMap::new();
    for (idx, calls) in tape.iter().enumerate().filter(|(_, it)| it["kind"] == "tool_call") {
        let answers = &tape[idx + 1];
        assert_eq!(answers["kind"], "tool_result");
        let (calls, answers) =
            (calls["payload"]["calls"].as_array().unwrap(), answers["payload"]["results"].as_array().unwrap());
        assert_eq!(calls.len(), answers.len());
        for (call, result) in calls.iter().zip(answers) {
            let (id, result) = (call["id"].as_str().unwrap(), result.as_str().unwrap());
            assert!(result == id || result.starts_with("interrupted: "), "{id}: {result}");
            assert!(results.insert(id, result).is_none(), "{id} is there twice");
        }
    }
    for (id, result) in &ledger.results {
        assert_eq!(results.get(id.as_str()), Some(&result.as_str()), "the result of {id}");
    }
    let said: Vec<_> = tape
        .iter()
        .filter(|it| it["payload"]["role"] == "user")
        .map(|it| it["payload"]["content"].as_str().unwrap().rsplit("---\n").next().unwrap())
        .collect();
    let distinct: BTreeSet<_> = said.iter().collect();
    assert_eq!(distinct.len(), said.len(), "a message is there twice");
    for prompt in &ledger.prompts {
        assert!(distinct.contains(&prompt.as_str()), "{prompt} was lost");
    }
}

/// A small generator of numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        limit.mul_f64((mixed >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[test]
fn kills_at_any_moment_lose_nothing_and_double_nothing() {
    let ledgers: Arc<Mutex<Vec<Ledger>>> = Arc::new(Mutex::new((0..N_SESSIONS).map(|_| Ledger::default()).collect()));
    let (shared, n_calls) = (ledgers.clone(), AtomicUsize::new(0));
    let server = ModelServer::with(move |request| answer(request, &shared, &n_calls));
    std::thread::scope(|scope| {
        for session in 0..N_SESSIONS {
            let (server, ledgers) = (&server, &ledgers);
            scope.spawn(move || {
                let home = TestHome::with_model(server);
                let mut numbers = Numbers(session as u64);
                let started = Instant::now();
                assert_eq!(home.run(&["run", "-q", &format!("{session} first")]).ok(), "done\n");
                // Kills come at any moment of a turn and, rarely, too late.
                let latest = started.elapsed();
                let (mut n_killed, mut n_turns) = (0, 0);
                while n_killed < N_KILLS {
                    n_turns += 1;
                    assert!(n_turns < 20 * N_KILLS, "turns are over before they can be killed");
                    let child = home.command(&["run", "-q", &format!("{session} turn {n_turns}")]).spawn().unwrap();
                    std::thread::sleep(numbers.below(latest));
                    n_killed += usize::from(kill_if_running(child));
                    if n_turns % 3 == 0 {
                        let child = home.command(&["run", "-q", ",tape.info"]).spawn().unwrap();
                        std::thread::sleep(numbers.below(LATEST_RECOVERY_KILL));
                        n_killed += usize::from(kill_if_running(child));
                    }
                    home.run(&["run", "-q", ",tape.info"]).ok();
                    check_tape(&home, &ledgers.lock().unwrap_or_else(PoisonError::into_inner)[session]);
                }
                assert_eq!(home.run(&["run", "-q", &format!("{session} last")]).ok(), "done\n");
                home.run(&["tape", "verify"]).ok();
                check_tape(&home, &ledgers.lock().unwrap_or_else(PoisonError::into_inner)[session]);
            });
        }
    });
    server.assert_no_violations();
    let ledgers = ledgers.lock().unwrap_or_else(PoisonError::into_inner);
    let results: Vec<_> = ledgers.iter().flat_map(|it| it.results.values()).collect();
    let n_interrupted = results.iter().filter(|it| it.starts_with("interrupted: ")).count();
    assert!(n_interrupted > 0 && n_interrupted < results.len(), "{n_interrupted} of {}", results.len());
}

/// Kills a child; whether it was in time.
fn kill_if_running(mut child: Child) -> bool {
    let is_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    is_running
}
