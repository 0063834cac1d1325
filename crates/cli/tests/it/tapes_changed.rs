//! `bub tape archive`, `reset`, `fork` and `verify --repair`.

use std::{fs, time::Duration};

use bub_testing::{ModelServer, Reply};
use expect_test::expect;
use serde_json::{Value, json};

use crate::{
    home::{TestHome, end_of, wait_until},
    tapes_shown::{entry, tape, with_tape},
};

fn calls(id: u64) -> Value {
    entry(
        id,
        "tool_call",
        json!({"calls": [{"id": "c", "name": "bash", "arguments": "{\"command\": \"ls\"}"}], "content": ""}),
    )
}

fn message(id: u64, text: &str) -> Value {
    entry(id, "message", json!({"role": "user", "content": text}))
}

fn backups(home: &TestHome) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(home.home().join("tapes"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|it| it.ends_with(".bak"))
        .collect();
    names.sort();
    names
}

#[test]
fn r089_a_tape_is_archived_and_reset_with_its_sidecars() {
    let home = with_tape("t", &[message(1, "hello")]);
    fs::write(tape(&home, "t__sidecar__spill"), "{}\n").unwrap();
    let before = fs::read(tape(&home, "t")).unwrap();
    let paths = home.run(&["tape", "archive", "t"]).ok();
    assert_eq!(fs::read(paths.lines().next().unwrap()).unwrap(), before);
    assert_eq!(backups(&home).len(), 2);
    assert_eq!(fs::read(tape(&home, "t")).unwrap(), before, "it is not emptied");

    let err = home.run(&["tape", "reset", "t"]).failed(2);
    assert!(err.contains("needs --yes"), "{err}");
    assert_eq!(fs::read(tape(&home, "t")).unwrap(), before);
    let archive = home.run(&["tape", "reset", "t", "--archive", "--yes"]).ok();
    assert_eq!(fs::read(archive.trim_end()).unwrap(), before);
    assert_eq!(backups(&home).len(), 4, "another name each time");
    assert!(!tape(&home, "t__sidecar__spill").exists());
    let lines = fs::read_to_string(tape(&home, "t")).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["payload"]["name"], &first["payload"]["state"]["archived"]),
        (&json!("session/start"), &json!(archive.trim_end()))
    );
    assert_eq!(home.run(&["tape", "verify", "t"]).code, Some(0));

    home.run(&["tape", "reset", "t", "--yes"]).ok();
    assert_eq!(backups(&home).len(), 4);
}

#[test]
fn a_session_starts_from_an_earlier_point_of_another() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "echo hi"}))])).reply(Reply::text("said hi"));
    server.reply(Reply::text("another way"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "go"]).ok();
    let lines = home.tape_lines();
    let call = lines.iter().find(|it| it["kind"] == "tool_call").unwrap()["id"].as_u64().unwrap();

    let ran = home.run(&["tape", "fork", "cli:local", "--at", &call.to_string(), "other"]);
    assert!(ran.err.contains(&format!("cut after entry {} instead of {call}", call - 1)), "{}", ran.err);
    assert!(ran.out.starts_with(&format!("session 'other' starts with {} entries", call - 1)), "{}", ran.out);
    assert_eq!(home.run(&["tape", "verify", "other"]).code, Some(0));
    home.run(&["run", "--session-id", "other", "and now?"]).ok();
    let chats = server.chats();
    let roles: Vec<_> = chats[2].messages().iter().map(|it| it["role"].as_str().unwrap().to_owned()).collect();
    assert_eq!(roles, ["system", "user", "user"]);

    let err = home.run(&["tape", "fork", "cli:local", "other"]).failed(2);
    assert!(err.contains("session 'other' has a tape already"), "{err}");
    let err = home.run(&["tape", "fork", "cli:local", "--at", "9999", "third"]).failed(2);
    assert!(err.contains("there is no entry 9999: the tape has 1 to "), "{err}");
    let err = home.run(&["tape", "fork", "cli:local", "temp/x"]).failed(2);
    assert!(err.contains("keep no tape"), "{err}");
    let row: Value = serde_json::from_str(&home.run(&["tape", "fork", "cli:local", "--json", "third"]).ok()).unwrap();
    assert_eq!((&row["session"], &row["at"], &row["moved"]), (&json!("third"), &json!(lines.len()), &Value::Null));
}

#[test]
fn damage_is_told_and_mended() {
    let home = with_tape("t", &[message(1, "a"), calls(2), message(3, "b")]);
    let path = tape(&home, "t");
    let text = fs::read_to_string(&path).unwrap() + "{\"id\": 4, \"kind\": \"mess";
    fs::write(&path, &text).unwrap();
    let ran = home.run(&["tape", "verify", "t"]);
    assert_eq!(ran.code, Some(1));
    expect![[r#"
        t: line 2: 1 call of entry 2 has no result
            → --repair adds results that say 'interrupted'
        t: line 4: the line is no entry (23 bytes): it is torn or damaged
            → --repair takes the line out
        t: 2 errors, 3 entries in 1 file
    "#]]
    .assert_eq(&ran.out);
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "looking changes nothing");

    let ran = home.run(&["tape", "verify", "t", "--repair"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let [backup] = backups(&home).try_into().unwrap();
    let kept = home.home().join("tapes").join(&backup);
    expect![[r#"
        t: line 2: 1 call of entry 2 has no result
        t: line 4: the line is no entry (23 bytes): it is torn or damaged
        t: mended: 1 line taken out, 1 entry numbered anew, 1 result added
        t: the file as it was: KEPT
        t: ok, 5 entries in 1 file
    "#]]
    .assert_eq(&ran.out.replace(&kept.display().to_string(), "KEPT"));
    assert_eq!(fs::read_to_string(&kept).unwrap(), text);
    expect![[r#"
        t: ok, 5 entries in 1 file
    "#]]
    .assert_eq(&home.run(&["tape", "verify", "t"]).ok());

    let row: Value = serde_json::from_str(&home.run(&["tape", "verify", "t", "--json"]).ok()).unwrap();
    assert_eq!((&row["clean"], &row["entries"], &row["findings"]), (&json!(true), &json!(5), &json!([])));
}

#[test]
fn the_journal_of_a_killed_turn_is_told_and_merged() {
    let server = ModelServer::with(|_| Reply::text("late").delay(Duration::from_secs(20)));
    let home = TestHome::with_model(&server);
    let mut child = home.command(&["run", "go"]).spawn().unwrap();
    wait_until("the model is asked", || !server.chats().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = home.run(&["tape", "verify"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("left its journal"), "{}", ran.out);
    assert_eq!(home.run(&["tape", "verify", "--all"]).code, Some(1));
    assert_eq!(home.run(&["tape", "verify", "--repair"]).code, Some(0));
    assert!(home.run(&["tape", "show"]).ok().contains("\n  go\n"));
    assert_eq!(home.run(&["tape", "verify", "--all"]).ok(), "1 tape, nothing is wrong\n");
}

#[test]
fn what_changes_a_tape_waits_for_a_session_in_use_and_what_reads_does_not() {
    let server = ModelServer::with(|_| Reply::text("slow").delay(Duration::from_secs(60)));
    let home = TestHome::with_model(&server).var("BUB_SESSION_WAIT_SECONDS", "1");
    home.run(&["run", ",echo hi"]).ok();
    fs::write(home.tape_file(), fs::read_to_string(home.tape_file()).unwrap() + "torn").unwrap();
    let turn = home.command(&["run", "go"]).spawn().unwrap();
    let pid = turn.id();
    wait_until("the turn runs", || !server.chats().is_empty());
    let changes = [["reset", "--yes"].as_slice(), &["verify", "--repair"], &["fork", "cli:local", "new"]];
    let changing = changes.map(|args| (args, home.command(&[&["tape"], args].concat()).spawn().unwrap()));
    for (args, child) in changing {
        let err = end_of(child).failed(1);
        assert!(err.contains(&format!("session in use by pid {pid}")), "{args:?}: {err}");
    }
    for args in [["show"].as_slice(), &["info"], &["anchors"], &["search", "hi"], &["export"], &["list"], &["archive"]]
    {
        let ran = home.run(&[&["tape"], args].concat());
        assert!(ran.code == Some(0) && !ran.err.contains("in use"), "{args:?}: {}", ran.err);
    }
    let pid = rustix::process::Pid::from_child(&turn);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(end_of(turn).code, Some(130));
}
