//! Subagents of the whole program.

use std::{fs, time::Duration};

use bub_testing::{ModelServer, Reply, Request};
use serde_json::{Value, json};

use crate::home::{TestHome, wait_until};

fn tools(request: &Request) -> Vec<String> {
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn is_child(request: &Request) -> bool {
    !tools(request).contains(&"subagent".to_owned())
}

fn last(request: &Request) -> &Value {
    request.messages().last().unwrap()
}

#[test]
fn a_child_works_on_its_own_and_its_answer_is_a_result() {
    let server = ModelServer::start();
    let args = json!({"prompt": "look", "allowed_tools": ["fs_read", "bash"], "allowed_skills": []});
    server
        .reply(Reply::calls([("c1", "subagent", args)]))
        .reply(Reply::calls([("b1", "bash", json!({"command": "echo inner"}))]))
        .reply(Reply::text("it says inner"))
        .reply(Reply::text("all done"));
    let home = TestHome::with_model(&server);
    let ran = home.run(&["run", "go"]);
    assert_eq!(ran.out, "all done\n");
    assert!(ran.err.contains("  │ temp/") && ran.err.contains(": bash({\"command\":\"echo inner\"})"), "{}", ran.err);
    assert!(ran.err.contains(": it says inner") && ran.err.contains("⎿ it says inner"), "{}", ran.err);
    server.assert_no_violations();
    let chats = server.chats();
    assert_eq!(tools(&chats[1]), ["bash", "fs_read"]);
    assert!(!chats[1].messages()[0]["content"].as_str().unwrap().contains("available_skills"));
    assert_eq!(chats[2].messages().last().unwrap()["content"], "inner");
    assert_eq!(last(&chats[3])["content"], "it says inner");
    let tape = home.tape_lines();
    assert_eq!(tape.iter().filter(|it| it["payload"]["name"] == "loop.start").count(), 1);
    let out = home.run(&["run", "--output", "json", ",skill gh"]).ok();
    assert!(out.contains("GitHub"), "{out}");
}

#[test]
fn a_hundred_children_need_little_memory_and_answer_in_order() {
    let server = ModelServer::with(|request| {
        if is_child(request) {
            let asked = last(request)["content"].as_str().unwrap_or_default().to_owned();
            return Reply::text(format!("answer to {asked}"));
        }
        match request.messages().iter().filter(|it| it["role"] == "tool").count() {
            0 => {
                let calls: Vec<_> =
                    (0..100).map(|idx| (format!("c{idx}"), json!({"prompt": format!("q{idx}")}))).collect();
                Reply::calls(calls.iter().map(|(id, args)| (id.as_str(), "subagent", args.clone())))
            }
            _ => Reply::text("done"),
        }
    });
    let home = TestHome::with_model(&server);
    let mut child = home.command(&["run", "-q", "go"]).spawn().unwrap();
    let mut peak = 0;
    let status = format!("/proc/{}/status", child.id());
    wait_until("the turn ends", || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let kib =
            text.lines().find_map(|it| it.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or_default());
        child.try_wait().unwrap().is_some()
    });
    let ran = crate::home::Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.ok(), "done\n");
    assert!(peak > 0 && peak < 100 << 10, "{peak} KiB");
    let chats = server.chats();
    assert_eq!(chats.len(), 102);
    let results: Vec<_> = chats.last().unwrap().messages().iter().filter(|it| it["role"] == "tool").collect();
    assert_eq!(results.len(), 100);
    for (idx, it) in results.iter().enumerate() {
        assert_eq!(
            (&it["tool_call_id"], &it["content"]),
            (&json!(format!("c{idx}")), &json!(format!("answer to q{idx}")))
        );
    }
    server.assert_no_violations();
}

#[test]
fn r102_a_server_that_fails_for_the_child_ends_the_child_alone() {
    let server = ModelServer::with(|request| match (is_child(request), request.messages().len()) {
        (true, _) => Reply::status(400).body(r#"{"error":{"message":"no good"}}"#),
        (false, 2) => Reply::calls([("c1", "subagent", json!({"prompt": "x"}))]),
        (false, _) => Reply::text("the child failed"),
    });
    let home = TestHome::with_model(&server);
    assert_eq!(home.run(&["run", "go"]).ok(), "the child failed\n");
    assert!(last(server.chats().last().unwrap())["content"].as_str().unwrap().contains("no good"));
}

#[test]
fn r103_a_model_that_always_starts_children_comes_to_an_end() {
    let server = ModelServer::with(|_| Reply::calls([("c1", "subagent", json!({"prompt": "again"}))]));
    let home = TestHome::with_model(&server).var("BUB_MAX_STEPS", "4");
    let ran = home.run(&["run", "-q", "go"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("max_steps_reached=4"), "{}", ran.err);
    assert_eq!(server.chats().len(), 4 + 4 * 4);
}

#[test]
fn an_interrupt_ends_the_children_too() {
    let seconds = format!("32{}", std::process::id());
    let command = format!("sleep {seconds}");
    let server = ModelServer::with(move |request| match is_child(request) {
        true => Reply::calls([("b1", "bash", json!({"command": command, "timeout_seconds": 600}))]),
        false => Reply::calls([("c1", "subagent", json!({"prompt": "x"}))]),
    });
    let home = TestHome::with_model(&server);
    let child = home.command(&["run", "go"]).spawn().unwrap();
    wait_until("the command runs", || crate::home::is_running(&seconds));
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let started = std::time::Instant::now();
    let ran = crate::home::end_of(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    wait_until("the command ends", || !crate::home::is_running(&seconds));
}
