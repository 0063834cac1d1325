//! Several programs on one workspace.

use std::time::Duration;

use bub_testing::{ModelServer, Reply};
use serde_json::json;

use crate::home::{TestHome, end_of};

#[test]
fn r081_two_runs_of_one_session_take_turns_and_the_tape_stays_whole() {
    let server = ModelServer::with(|request| {
        let is_first = request.messages().iter().all(|it| it["role"] != "tool");
        if is_first {
            Reply::calls([("c1", "bash", json!({"command": "sleep 0.3; echo done"}))])
        } else {
            Reply::text("ok").delay(Duration::from_millis(50))
        }
    });
    let home = TestHome::with_model(&server);
    let children: Vec<_> = (0..3).map(|_| home.command(&["run", "go"]).spawn().unwrap()).collect();
    let commands: Vec<_> = (0..5).map(|idx| home.command(&["run", &format!(",echo {idx}")]).spawn().unwrap()).collect();
    let mut waited = 0;
    for child in children {
        let ran = end_of(child);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        waited += usize::from(ran.err.contains("session in use by pid "));
    }
    for (idx, child) in commands.into_iter().enumerate() {
        let ran = end_of(child);
        assert_eq!((ran.code, ran.out), (Some(0), format!("{idx}\n")), "{}", ran.err);
        assert!(!ran.err.contains("session in use"), "commands do not wait");
    }
    assert!(waited >= 1, "whoever waited said so");
    server.assert_no_violations();

    let tape = home.tape_lines();
    let ids: Vec<_> = tape.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let names: Vec<_> = tape.iter().filter_map(|it| it["payload"]["name"].as_str()).collect();
    assert_eq!(names.iter().filter(|it| **it == "loop.finish").count(), 3);
    assert_eq!(names.iter().filter(|it| **it == "command").count(), 5);
    // Each turn was merged in one piece.
    let mut open = false;
    for name in names.iter().filter(|it| it.starts_with("loop.") || **it == "command") {
        match *name {
            "loop.start" => assert!(!std::mem::replace(&mut open, true)),
            "loop.finish" => open = false,
            "command" => assert!(!open, "{names:?}"),
            _ => {}
        }
    }
}

#[test]
fn a_session_that_stays_in_use_is_given_up_clearly() {
    let server = ModelServer::with(|_| Reply::text("slow").delay(Duration::from_secs(4)));
    let home = TestHome::with_model(&server).var("BUB_SESSION_WAIT_SECONDS", "1");
    let first = home.command(&["run", "go"]).spawn().unwrap();
    let pid = first.id();
    crate::home::wait_until("the first turn runs", || !server.chats().is_empty());
    let err = home.run(&["run", "me too"]).failed(1);
    assert!(err.contains(&format!("session in use by pid {pid}")) && err.contains("--session-id"), "{err}");
    assert!(home.run(&["tape", "list"]).code == Some(0), "looking never waits");
    assert_eq!(end_of(first).code, Some(0));
}
