//! `bub tape`, and tapes that others wrote.

use std::{fs, path::Path};

use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::home::TestHome;

/// Tapes as both releases of the reference wrote them, copied into a home as this workspace's.
fn with_fixture(release: &str, server: &ModelServer) -> TestHome {
    let home = TestHome::with_model(server);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes").join(release);
    home.run(&["run", "--session-id", "shell", ",true"]).ok();
    let ours = home.tape_file();
    fs::copy(fixtures.join("f22a698dffbac0e2__2591c98b70119fe6.jsonl"), ours).unwrap();
    home
}

#[test]
fn the_references_tapes_are_shown_and_continued() {
    for release in ["0.5.1", "0.6.0a3"] {
        let server = ModelServer::start();
        server.reply(Reply::text("welcome back"));
        let home = with_fixture(release, &server);
        let before = fs::read(home.tape_file()).unwrap();

        let shown = home.run(&["tape", "show", "shell"]).ok();
        for expected in ["anchor phase-1", "second turn 你好", "● bash(command: \"echo step-1\")", "\n  ⎿ step-2\n"]
        {
            assert!(shown.contains(expected), "{release}: {expected}: {shown}");
        }
        let info: Value = serde_json::from_str(&home.run(&["tape", "info", "shell", "--json"]).ok()).unwrap();
        assert_eq!((&info["anchors"], &info["last_anchor"]), (&json!(2), &json!("phase-1")));
        let found = home.run(&["tape", "search", "你好", "shell"]).ok();
        assert!(found.contains("second turn 你好"), "{found}");
        assert_eq!(fs::read(home.tape_file()).unwrap(), before, "looking changes nothing");

        assert_eq!(home.run(&["run", "--session-id", "shell", "go on"]).ok(), "welcome back\n");
        server.assert_no_violations();
        let messages = server.chats()[0].messages().to_vec();
        let roles: Vec<_> = messages.iter().map(|it| it["role"].as_str().unwrap()).collect();
        assert_eq!(
            roles,
            ["system", "user", "assistant", "tool", "assistant", "user"],
            "{release}: since the last anchor"
        );
        let after = fs::read(home.tape_file()).unwrap();
        assert!(after.starts_with(&before), "what was there stays as it is");
        let ids: Vec<_> = home.tape_lines().iter().map(|it| it["id"].as_u64().unwrap()).collect();
        assert!(ids.windows(2).all(|it| it[0] + 1 == it[1]), "{ids:?}");
    }
}

#[test]
fn settings_that_the_reference_recorded_are_in_force() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home = TestHome::with_model(&server);
    home.run(&["run", ",true"]).ok();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes/0.6.0a3");
    fs::copy(fixtures.join("f22a698dffbac0e2__b02e953333a82648.jsonl"), home.tape_file()).unwrap();
    home.run(&["run", "hi"]).ok();
    let body = &server.chats()[0].body;
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("other"), &json!("high")));
}

#[test]
fn tapes_are_listed_with_what_they_begin_with() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home = TestHome::with_model(&server);
    assert!(home.run(&["tape", "list"]).failed(0).contains("no tapes of this workspace yet"));
    home.run(&["run", "what is\nthis?"]).ok();
    home.run(&["run", "--session-id", "other", ",echo hi"]).ok();
    let rows: Vec<Value> =
        home.run(&["tape", "list", "--json"]).ok().lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let mut titles: Vec<_> = rows.iter().map(|it| it["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    assert_eq!(titles, [",echo hi", "what is this?"]);
    assert!(home.run(&["tape", "list"]).ok().contains("cli:local"));
    let err = home.run(&["tape", "show", "nope"]).failed(1);
    assert!(err.contains("there is no tape of session 'nope'") && err.contains("bub tape list"), "{err}");
}

#[test]
fn r077_a_damaged_tape_still_opens() {
    let server = ModelServer::start();
    server.reply(Reply::text("one")).reply(Reply::text("two"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "first"]).ok();
    let path = home.tape_file();
    let whole = fs::read(&path).unwrap();
    let torn = [whole.as_slice(), b"{\"id\": 99, \"kind\": \"mess\xe6\xbc"].concat();
    fs::write(&path, &torn).unwrap();

    let ran = home.run(&["run", "second"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "two\n"), "{}", ran.err);
    assert!(ran.err.contains("damaged") || ran.err.contains("line"), "there is a warning: {}", ran.err);
    assert_eq!(server.chats()[1].messages().len(), 4);
    assert!(home.run(&["tape", "search", "second"]).ok().contains("second"));
    assert!(fs::read(&path).unwrap().starts_with(&torn), "nothing is rewritten");
}

#[test]
fn what_a_tool_printed_does_not_drive_the_terminal() {
    let home = TestHome::new();
    home.run(&["run", r",printf '\033[2J\007bad'"]).ok();
    let shown = home.run(&["tape", "show"]).ok();
    assert!(!shown.contains('\x1b') && !shown.contains('\x07'), "{shown:?}");
}
