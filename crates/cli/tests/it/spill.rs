//! Results too long for the conversation: moved aside, read back, reset.

use std::{fs, path::PathBuf};

use bub_testing::{ModelServer, Reply, Request};
use serde_json::{Value, json};

use crate::home::TestHome;

/// A command that prints five million characters in one line.
const HUGE: &str = r"head -c 5000000 /dev/zero | tr '\0' x";

/// What the newest call was answered with.
fn last_result(request: &Request) -> String {
    let message = request.messages().last().cloned().unwrap_or_default();
    assert_eq!(message["role"], "tool", "{message}");
    message["content"].as_str().unwrap().to_owned()
}

fn handle_in(text: &str) -> String {
    text.split_once("handle: ").expect(text).1.chars().take(32).collect()
}

fn spill_tape(home: &TestHome) -> PathBuf {
    let folder = fs::read_dir(home.home().join("tapes")).unwrap();
    let mut files = folder.map(|it| it.unwrap().path());
    files.find(|it| it.to_str().unwrap().ends_with("__sidecar__spill.jsonl")).unwrap()
}

/// The lines of the session's tape, which has a sidecar.
fn main_lines(home: &TestHome) -> Vec<Value> {
    let path = spill_tape(home).to_str().unwrap().replace("__sidecar__spill", "");
    fs::read_to_string(path).unwrap().lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// Reads everything behind a handle as a person would, in one direction.
fn read_all(home: &TestHome, handle: &str, from_end: bool) -> String {
    let (mut text, mut cursor) = (String::new(), 0);
    loop {
        let line = format!(",spill.read handle={handle} cursor={cursor} count=4 from_end={from_end}");
        let page = home.run(&["run", &line]).ok();
        let (head, content) = page.split_once("\ncontent:\n").expect(&page);
        let content = content.strip_suffix('\n').unwrap();
        if from_end {
            text.insert_str(0, content);
        } else {
            text.push_str(content);
        }
        cursor = head.lines().find_map(|it| it.strip_prefix("next_cursor: ")).unwrap().parse::<u64>().unwrap();
        if head.ends_with("complete: true") {
            return text;
        }
    }
}

#[test]
fn r118_a_huge_result_neither_ends_the_turn_nor_gets_lost() {
    let server = ModelServer::with(|request| {
        if request.raw.len() > 256 * 1024 {
            return Reply::status(413).body(r#"{"error": {"message": "request too large"}}"#);
        }
        // The model pages through all of it, four chunks a call.
        let results: Vec<_> = request.messages().iter().filter(|it| it["role"] == "tool").collect();
        let (n_results, newest) = (results.len(), results.last().and_then(|it| it["content"].as_str()));
        match newest {
            None => Reply::calls([("c0", "bash", json!({"command": HUGE}))]),
            Some(text) if n_results == 1 => {
                let call = json!({"handle": handle_in(text), "from_end": true, "count": 2});
                Reply::calls([("c1", "spill_read", call)])
            }
            Some(_) => Reply::text("done"),
        }
    });
    let home = TestHome::with_model(&server);
    assert_eq!(home.run(&["run", "print a lot"]).ok(), "done\n");
    server.assert_no_violations();

    let chats = server.chats();
    assert!(chats[1].raw.len() < 64 * 1024, "{}", chats[1].raw.len());
    let left = last_result(&chats[1]);
    let handle = handle_in(&left);
    let (head, preview) = left.split_once("from_end=False)]\n").unwrap();
    assert_eq!(
        head,
        format!(
            "[tool output spilled: 5,000,000 bytes in 306 chunks; handle: {handle}]\n\
             [read with: spill_read(handle='{handle}', cursor=0, count=1, "
        )
    );
    let side = "x".repeat(300);
    assert_eq!(preview, format!("{side}\n...[4,999,400 chars omitted]...\n{side}"));
    let page = last_result(&chats[2]);
    assert!(page.starts_with(
        "[spilled tool result: 5,000,000 bytes, 306 chunks]\nchunks: 304-305\nnext_cursor: 2\ncomplete: false\ncontent:\nxxx"
    ));

    let tape = main_lines(&home);
    let event = tape.iter().find(|it| it["payload"]["name"] == "spill.write").unwrap();
    assert_eq!(
        event["payload"]["data"],
        json!({"status": "ok", "handle": handle, "bytes": 5_000_000, "chunks": 306, "tool": "bash"})
    );
    assert_eq!(event["meta"]["context"], false);
    let keys: Vec<_> = event["meta"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["run_id", "context"]);
    assert!(read_all(&home, &handle, false) == "x".repeat(5_000_000));
}

#[test]
fn what_was_moved_is_read_back_after_a_restart() {
    let server = ModelServer::start();
    let command = r"printf 'é%.0s' $(seq 100000); echo end";
    server.reply(Reply::calls([("c1", "bash", json!({"command": command}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "go"]).ok();
    let handle = handle_in(&last_result(&server.chats()[1]));
    let whole = format!("{}end", "é".repeat(100_000));
    for from_end in [false, true] {
        assert!(read_all(&home, &handle, from_end) == whole);
    }
    let line = format!(",spill.read handle={handle} cursor=-1");
    assert_eq!(home.run(&["run", &line]).ok(), "`cursor` must be >= 0.\n");
    let other = home.run(&["run", "--session-id", "other", &format!(",spill.read handle={handle}")]).ok();
    assert_eq!(other, format!("[no spilled tool result for handle '{handle}']\n"));
}

#[test]
fn failed_commands_are_moved_with_what_they_printed() {
    let server = ModelServer::start();
    let command = "seq 20000; exit 3";
    server.reply(Reply::calls([("c1", "bash", json!({"command": command}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "go"]).ok();
    let left = last_result(&server.chats()[1]);
    assert!(left.contains(r#"{"kind": "tool", "message": "Tool 'bash' execution failed.""#), "{left}");
    let whole: Value = serde_json::from_str(&read_all(&home, &handle_in(&left), false)).unwrap();
    let error = whole["details"]["error"].as_str().unwrap();
    assert!(error.starts_with("RuntimeError('command exited with code 3") && error.contains("19999\n20000"), "{left}");
}

#[test]
fn settings_and_allowed_tools_turn_it_off() {
    let run = |variable: Option<&str>, args: &[&str]| {
        let server = ModelServer::start();
        server.reply(Reply::calls([("c1", "bash", json!({"command": "seq 20000"}))])).reply(Reply::text("done"));
        let home = TestHome::with_model(&server);
        let home = match variable {
            Some(value) => home.var("BUB_SPILL_THRESHOLD", value),
            None => home,
        };
        home.run(&[&["run"], args, &["go"]].concat()).ok();
        last_result(&server.chats()[1])
    };
    let moved = "[tool output spilled: 108,893 bytes in 7 chunks; handle: ";
    assert!(run(None, &[]).starts_with(moved));
    assert!(run(Some("27223"), &[]).starts_with(moved));
    for whole in [run(Some("27224"), &[]), run(Some("0"), &[]), run(None, &["--tools", "bash"])] {
        assert!(whole.starts_with("1\n2\n") && whole.ends_with("\n20000"), "{whole:.200}");
    }
    // Not for people, whatever they call.
    let home = TestHome::new();
    assert_eq!(home.run(&["run", ",seq 20000"]).ok().lines().count(), 20_000);
}

#[test]
fn r120_a_sidecar_that_cannot_be_written_is_no_reason_to_fail() {
    let server = ModelServer::start();
    let huge = Reply::calls([("c1", "bash", json!({"command": "head -c 1000000 /dev/zero | tr '\\0' y; echo end"}))]);
    server.reply(Reply::text("first")).reply(huge).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "hi"]).ok();
    let tape = home.tape_file();
    // Even the owner of everything can't append to a folder.
    fs::create_dir(tape.to_str().unwrap().replace(".jsonl", "__sidecar__spill.jsonl")).unwrap();
    assert_eq!(home.run(&["run", "print a lot"]).ok(), "done\n");
    let left = last_result(&server.chats()[2]);
    let (first, preview) = left.split_once('\n').unwrap();
    assert_eq!(first, "[tool output truncated: 1,000,003 bytes; spill storage failed]");
    assert!(preview.starts_with("yyy") && preview.ends_with("yend") && preview.contains("chars omitted"), "{preview}");
    assert!(!left.contains("handle"), "{left}");
    let lines = fs::read_to_string(tape).unwrap();
    let event = lines.lines().find(|it| it.contains("spill.write")).unwrap();
    assert!(event.contains(r#""status": "error""#) && event.contains("not a regular file"), "{event}");
    assert!(!lines.contains("sidecar.merge"), "nothing was left to fail at the end");
}

#[test]
fn a_reset_with_archive_takes_the_sidecar_along() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "seq 20000"}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "go"]).ok();
    let handle = handle_in(&last_result(&server.chats()[1]));
    let (sidecar, before) = (spill_tape(&home), fs::read(spill_tape(&home)).unwrap());
    let main = PathBuf::from(sidecar.to_str().unwrap().replace("__sidecar__spill", ""));
    let main_before = fs::read(&main).unwrap();

    let said = home.run(&["run", ",tape.reset archive=true"]).ok();
    let archive = said.trim_end().strip_prefix("Archived: ").unwrap();
    assert!(fs::read(archive).unwrap().starts_with(&main_before));
    let events = &main_lines_of(&main)[2..4];
    let sidecar_archive = events[1]["payload"]["data"]["archive"].as_str().unwrap();
    assert_eq!(fs::read(sidecar_archive).unwrap(), before);
    let stamp = |path: &str| path.rsplit('.').nth(1).unwrap().to_owned();
    assert_eq!(stamp(archive), stamp(sidecar_archive), "one moment for both");
    assert!(!sidecar.exists());
    let read = home.run(&["run", &format!(",spill.read handle={handle}")]).ok();
    assert_eq!(read, format!("[no spilled tool result for handle '{handle}']\n"));

    // Entry by entry what the newer of the reference's releases writes.
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tapes/0.6.0a3/f22a698dffbac0e2__d6194c68fcc7e79b.jsonl");
    let ours: Vec<_> = main_lines_of(&main).iter().take(5).map(shape).collect();
    let theirs: Vec<_> = main_lines_of(fixture.as_ref()).iter().map(shape).collect();
    assert_eq!(ours, theirs);

    // A tape that never had one resets too, and its archive is empty.
    let home = TestHome::new();
    home.run(&["run", ",echo hi"]).ok();
    home.run(&["run", ",tape.reset archive=true"]).ok();
    let events: Vec<_> = home.tape_lines().iter().take(5).map(shape).collect();
    assert_eq!(events, theirs);
}

fn main_lines_of(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// An entry with the names of its fields in order, and the values that are not of a place or a moment.
fn shape(entry: &Value) -> String {
    let mut text = entry.to_string();
    let data = &entry["payload"]["data"];
    for place in [&entry["payload"]["state"]["archived"], &data["state"]["archived"], &data["archive"], &data["output"]]
    {
        if let Some(path) = place.as_str() {
            text = text.replace(path, "PLACE");
        }
    }
    for moment in [&entry["date"], &data["date"]] {
        if !moment.is_null() {
            text = text.replace(&moment.to_string(), "MOMENT");
        }
    }
    text = text.replace(&format!("\"elapsed_ms\":{}", data["elapsed_ms"]), "\"elapsed_ms\":MOMENT");
    text
}
