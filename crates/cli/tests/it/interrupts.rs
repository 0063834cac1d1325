//! Ctrl-C, a closed pipe, and what is left running.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    time::{Duration, Instant},
};

use bub_testing::{ModelServer, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::home::{TestHome, end_of, is_running, wait_until};

fn interrupt(child: &std::process::Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn r017_ctrl_c_in_a_long_command_leaves_nothing_running() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "echo begun; setsid sleep 66611 & sleep 66612"}))]));
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "wait for it"]).spawn().unwrap();
    wait_until("the command runs", || is_running("66611") && is_running("66612"));
    let started = Instant::now();
    interrupt(&child);
    let ran = end_of(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(started.elapsed() < Duration::from_secs(20));
    wait_until("nothing is left", || !is_running("66611") && !is_running("66612"));

    let tape = home.tape_lines();
    let result = tape.iter().find(|it| it["kind"] == "tool_result").unwrap();
    assert!(result["payload"]["results"][0].as_str().unwrap().starts_with("aborted after "), "{result}");
    assert_eq!(tape.last().unwrap()["payload"]["data"]["status"], "cancelled");

    server.reply(Reply::text("going on"));
    assert_eq!(home.run(&["run", "go on"]).ok(), "going on\n");
    server.assert_no_violations();
}

#[test]
fn a_call_that_was_broken_off_is_not_told_as_done() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "sleep 66617"}))]));
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "--output", "json", "wait for it"]).spawn().unwrap();
    wait_until("the command runs", || is_running("66617"));
    interrupt(&child);
    let ran = end_of(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    let result: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result["tools"][0]["ok"], false, "{result}");
}

#[test]
fn ctrl_c_in_a_typed_command_stops_it() {
    let home = TestHome::new();
    let child = home.command(&["run", ",sleep 66613"]).spawn().unwrap();
    wait_until("the command runs", || is_running("66613"));
    interrupt(&child);
    assert_eq!(end_of(child).code, Some(130));
    wait_until("nothing is left", || !is_running("66613"));
    assert_eq!(home.tape_lines().last().unwrap()["payload"]["data"]["status"], "error");
}

#[test]
fn r157_ctrl_c_while_the_model_answers_keeps_what_came() {
    let server = ModelServer::start();
    server.reply(Reply::deltas(["some ", "words "].map(|it| json!({"content": it}))).no_done().no_finish().stall());
    let home = TestHome::with_model(&server);
    let mut child = home.command(&["run", "--output", "stream-json", "tell me"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let words = lines.by_ref().map(Result::unwrap).find(|it| it.contains("words"));
    assert!(words.is_some());
    interrupt(&child);
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(rest.last().unwrap().contains(r#""error":{"kind":"cancelled""#), "{rest:?}");
    assert_eq!(end_of(child).code, Some(130));
    assert!(home.tape_lines().iter().any(|it| it["payload"]["content"] == "some words "));
    wait_until("the provider sees the hang-up", || server.hangups() > 0);
}

#[test]
fn a_reader_that_goes_away_stops_the_turn() {
    let server = ModelServer::start();
    let endless = (0..2_000).map(|idx| json!({"content": format!("line {idx}\n")}));
    server.reply(Reply::deltas(endless).finish("stop").between(Duration::from_millis(2)));
    let home = TestHome::with_model(&server);
    let mut child = home.command(&["run", "--output", "stream-json", "talk"]).spawn().unwrap();
    let mut first = [0; 64];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let ran = end_of(child);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(home.tape_lines().last().unwrap()["payload"]["data"]["status"], "cancelled");

    let mut child = home.command(&["run", ",seq 100000"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(end_of(child).code, Some(0));
}

#[test]
fn background_shells_end_with_the_program() {
    let home = TestHome::new();
    let ran = home.run(&["run", ",bash command='setsid sleep 66614 & sleep 66615' background=true"]);
    assert!(ran.out.contains("shell_id: bsh-"), "{}", ran.out);
    assert!(ran.err.contains("stopped with the program, as it still ran: setsid sleep 66614 &"), "{}", ran.err);
    wait_until("nothing is left", || !is_running("66614") && !is_running("66615"));
}
