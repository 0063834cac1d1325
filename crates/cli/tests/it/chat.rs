//! Conversations: from a pipe and in a terminal.

use std::{
    fs,
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use bub_testing::{ModelServer, Reply};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    home::{TestHome, end_of, is_running, wait_until},
    pty::Pty,
};

/// A call of a command that waits for the file `go`.
fn waits() -> Reply {
    Reply::calls([("c1", "bash", json!({"command": "until [ -e go ]; do sleep 0.02; done; echo gone"}))])
}

fn said(server: &ModelServer, idx: usize) -> Vec<String> {
    let words = |it: &serde_json::Value| it["content"].as_str().unwrap_or_default().to_owned();
    let chats = server.chats();
    let last = |text: String| text.rsplit("---\n").next().unwrap_or_default().to_owned();
    chats[idx].messages().iter().filter(|it| it["role"] == "user").map(|it| last(words(it))).collect()
}

#[test]
fn r150_words_from_a_pipe_are_answered_once() {
    for is_streamed in ["true", "false"] {
        let server = ModelServer::start();
        server.reply(Reply::deltas(["A", "B", "C"].map(|it| json!({"content": it}))).finish("stop"));
        let home = TestHome::with_model(&server).var("BUB_STREAM_OUTPUT", is_streamed).var("BUB_LOG", "info");
        let ran = home.run_with(&["chat"], b"hi\n");
        assert_eq!((ran.out.as_str(), ran.code), ("ABC\n", Some(0)), "{}", ran.err);
        assert!(!ran.err.contains("ABC") && !ran.err.contains('\x1b'), "{}", ran.err);
        let text = server.chats()[0].messages()[1]["content"].as_str().unwrap().to_owned();
        assert!(text.starts_with("thread_id=cli_session|channel=$cli|chat_id=local\n---Date: "), "{text}");
    }
}

#[test]
fn lines_of_a_pipe_are_answered_one_after_the_other() {
    let server = ModelServer::start();
    for text in ["one", "two", "three"] {
        server.reply(Reply::text(text));
    }
    let home = TestHome::with_model(&server);
    let out = home.run_with(&["chat", "zero", "--session-id", "s", "--chat-id", "7"], b"first\n\n,echo x\nsecond").ok();
    assert_eq!(out, "one\ntwo\nx\nthree\n");
    assert_eq!(said(&server, 2), ["zero", "first", "second"]);
    assert!(server.chats()[0].messages()[1]["content"].as_str().unwrap().contains("|chat_id=7\n"));
}

#[test]
fn the_exit_code_tells_that_a_turn_failed_and_the_others_run() {
    let server = ModelServer::start();
    server.reply(Reply::status(401).body("{}")).reply(Reply::text("fine"));
    let home = TestHome::with_model(&server);
    let ran = home.run_with(&["chat"], b"hi\nagain\n");
    assert_eq!((ran.out.as_str(), ran.code), ("fine\n", Some(1)), "{}", ran.err);
    assert!(ran.err.contains("hint: check the key"), "{}", ran.err);
    assert_eq!(ran.err.matches("error: ").count(), 1, "said once: {}", ran.err);
}

#[test]
fn without_a_model_it_says_so_first_and_commands_work() {
    let home = TestHome::new();
    let ran = home.run_with(&["chat"], b",echo works\n");
    assert_eq!((ran.out.as_str(), ran.code), ("works\n", Some(0)), "{}", ran.err);
    assert!(ran.err.starts_with("error: no model is set") && ran.err.contains("BUB_MODEL="), "{}", ran.err);
    assert_eq!(home.run_with(&["chat"], b"hello\n").code, Some(2));
    // The session may have one of its own.
    let ran = home.run_with(&["chat"], b",model openai:x\n,echo again\n");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!home.run_with(&["chat"], b",echo x\n").err.contains("no model is set"));
}

#[test]
fn a_word_to_leave_ends_a_pipe_too() {
    let home = TestHome::new();
    for word in [",quit", " ,exit ", ", quit"] {
        let ran = home.run_with(&["chat"], format!(",echo a\n{word}\n,echo b\n").as_bytes());
        assert_eq!((ran.out.as_str(), ran.code), ("a\n", Some(0)), "{word:?}: {}", ran.err);
    }
}

#[test]
fn ctrl_c_ends_a_chat_from_a_pipe_and_records_the_turn() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "sleep 66631"}))]));
    let home = TestHome::with_model(&server);
    let mut child = home.command(&["chat"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"wait\n").unwrap();
    wait_until("the command runs", || is_running("66631"));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = end_of(child);
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    wait_until("nothing is left", || !is_running("66631"));
    assert_eq!(home.tape_lines().last().unwrap()["payload"]["data"]["status"], "cancelled");
    drop(input);
}

#[test]
fn r153_ctrl_c_stops_the_turn_then_clears_the_line_then_leaves() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "sleep 66632"}))])).reply(Reply::text("still here"));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("wait for it\r");
    wait_until("the command runs", || is_running("66632"));
    let started = Instant::now();
    pty.keys("\x03");
    pty.shows("(stopped)");
    pty.prompt();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    wait_until("nothing is left", || !is_running("66632"));
    pty.keys("half a line");
    pty.shows("half a line");
    pty.keys("\x03");
    assert!(!pty.prompt().contains("to leave"), "the line was cleared, no more");
    pty.keys("go on\r");
    pty.shows("still here");
    pty.prompt();
    assert_eq!(said(&server, 1).last().unwrap(), "go on", "nothing of the cleared line is sent");
    pty.keys("\x03");
    pty.shows("(Ctrl-C again, Ctrl-D or ,quit to leave)");
    pty.prompt();
    pty.keys("\x03");
    let shown = pty.ended();
    assert!(shown.ends_with("Bye.\r\n[terminal as it was, exit 0]\n"), "{shown:?}");
    server.assert_no_violations();

    for leaving in ["\x04", ",quit\r", ",exit\r"] {
        let mut pty = Pty::start(&home, &["chat"]);
        pty.prompt();
        pty.keys(leaving);
        assert!(pty.ended().ends_with("Bye.\r\n[terminal as it was, exit 0]\n"), "{leaving:?}");
    }
}

#[test]
fn words_of_a_model_do_not_drive_the_terminal() {
    let server = ModelServer::start();
    let words = json!({"error": {"message": "no\u{1b}[2Jscreen"}}).to_string();
    server.reply(Reply::text("a\u{1b}[2Jb\r\nc\u{9b}31md")).reply(Reply::status(400).body(words));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("hi\r");
    pty.shows("a␛[2Jb\r\nc\u{fffd}31md");
    pty.prompt();
    pty.keys("more\r");
    pty.shows("no␛[2Jscreen");
    pty.prompt();
}

#[test]
fn r154_ctrl_c_on_typed_text_stops_nothing() {
    let home = TestHome::new();
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys(",bash command='sleep 66633' background=true\r");
    pty.shows("shell_id: ");
    pty.prompt();
    pty.keys("some text");
    pty.shows("some text");
    pty.keys("\x03");
    pty.prompt();
    assert!(is_running("66633"), "the background shell runs on");
    pty.keys(",quit\r");
    pty.shows("Bye.");
    pty.ended();
    wait_until("nothing is left", || !is_running("66633"));
}

#[test]
fn r156_pasted_lines_are_one_message() {
    let server = ModelServer::start();
    server.reply(Reply::text("three lines"));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("\x1b[200~one\nline2\n\tline3\x1b[201~");
    pty.shows("line3");
    pty.keys("\r");
    pty.shows("three lines");
    pty.prompt();
    assert_eq!(said(&server, 0), ["one\nline2\n\tline3"]);
    pty.keys("\x1b[200~,echo a\necho 'b\n\tc'\x1b[201~\r");
    pty.shows("a\r\nb\r\n\tc");
    pty.prompt();
    assert_eq!(server.chats().len(), 1, "it begins with a comma, so it is one command");
    pty.keys("\x04");
    pty.ended();
    let tape = home.tape_lines();
    let commands: Vec<_> = tape.iter().filter(|it| it["payload"]["name"] == "command").collect();
    assert_eq!(commands.len(), 1);
    assert_eq!(commands[0]["payload"]["data"]["raw"], "echo a\necho 'b\n\tc'");
}

#[test]
fn what_is_typed_while_a_turn_runs_is_read_in_its_next_step() {
    let server = ModelServer::start();
    server.reply(waits()).reply(Reply::text("both done"));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("go\r");
    pty.shows("● bash(");
    pty.keys("and this");
    pty.shows("ws (steering) > ");
    pty.keys("\r");
    pty.shows("(steering) and this");
    // Commands do not wait for the turn.
    pty.keys(",echo meanwhile\r");
    pty.shows("\r\nmeanwhile\r\n");
    home.write("go", "");
    pty.shows("both done");
    pty.prompt();
    assert_eq!(said(&server, 1), ["go", "and this"]);
    pty.keys(",quit\r");
    pty.ended();
    server.assert_no_violations();
}

#[test]
fn leaving_while_a_turn_runs_records_it_and_leaves_nothing_running() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "sleep 66634"}))]));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat", "begin with this"]);
    pty.shows("ws > begin with this");
    wait_until("the command runs", || is_running("66634"));
    pty.keys(",quit\r");
    let shown = pty.ended();
    assert!(shown.contains("Bye.") && shown.ends_with("[terminal as it was, exit 0]\n"), "{shown:?}");
    wait_until("nothing is left", || !is_running("66634"));
    assert_eq!(home.tape_lines().last().unwrap()["payload"]["data"]["status"], "cancelled");
}

#[test]
fn a_second_ctrl_c_while_the_turn_stops_leaves() {
    let server = ModelServer::start();
    server.reply(Reply::calls([(
        "c1",
        "bash",
        json!({"command": "trap '' TERM; while :; do sleep 0.1; done # 66635"}),
    )]));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat", "hold on"]);
    pty.shows("● bash(");
    std::thread::sleep(Duration::from_millis(300));
    pty.keys("\x03");
    pty.shows("stopping … (Ctrl-C again to leave)");
    pty.keys("\x03");
    let shown = pty.ended();
    // On a busy machine the turn may have stopped before the second one came, which then finds a prompt.
    let has_stopped = shown.contains("(stopped)") && shown.contains("Bye.");
    assert!(has_stopped || shown.ends_with("[terminal as it was, exit 130]\n"), "{shown:?}");
}

#[test]
fn what_was_typed_is_called_back_in_another_chat_of_the_workspace() {
    let home = TestHome::new();
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys(",echo first\r");
    pty.shows("\r\nfirst\r\n");
    pty.prompt();
    pty.keys("\x04");
    pty.ended();
    let files: Vec<_> = fs::read_dir(home.home().join("history")).unwrap().map(|it| it.unwrap().path()).collect();
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(text.starts_with("\n# 20") && text.ends_with("\n+,echo first\n"), "{text:?}");
    assert_eq!(files[0].file_name().unwrap().len(), 32 + ".history".len());

    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("\x1b[A\r");
    pty.shows("\r\nfirst\r\n");
    pty.keys(",tape.an\t\r");
    pty.shows("session/start");
    pty.keys("\x04");
    pty.ended();
}

#[test]
fn a_terminal_that_can_only_print_takes_lines_and_joins_those_that_come_together() {
    let server = ModelServer::start();
    server.reply(Reply::text("I see")).reply(waits()).reply(Reply::text("both done"));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::of("dumb", &home, &["chat"]);
    pty.prompt();
    pty.keys("one\ntwo\n");
    pty.shows("I see");
    pty.prompt();
    assert_eq!(said(&server, 0), ["one\ntwo"]);
    pty.keys("go\n");
    pty.shows("● bash(");
    pty.keys("and this\n");
    pty.shows("(steering) and this");
    home.write("go", "");
    pty.shows("both done");
    pty.prompt();
    pty.keys("\x03");
    pty.shows("to leave)");
    pty.prompt();
    pty.keys("\x04");
    let shown = pty.ended();
    assert!(shown.ends_with("Bye.\r\n[terminal as it was, exit 0]\n") && !shown.contains('\x1b'), "{shown:?}");
    assert_eq!(said(&server, 2), ["one\ntwo", "go", "and this"]);
}

#[test]
fn r011_commands_do_not_read_what_is_typed_to_the_chat() {
    let home = TestHome::new();
    let out = home.run_with(&["chat"], b",cat\n,read x; echo got:$x\n,echo next\n").ok();
    assert!(out.ends_with("got:\nnext\n"), "{out:?}");
}

#[test]
fn the_terminal_is_put_back_when_the_program_is_told_to_end() {
    let home = TestHome::new();
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys(",echo $PPID\r");
    pty.shows("\r\n");
    let id = pty.shows("\r\n").trim().parse().unwrap();
    pty.prompt();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    let shown = pty.ended();
    assert!(shown.contains("\x1b[?2004l") && shown.ends_with("Bye.\r\n[terminal as it was, exit 130]\n"), "{shown:?}");
}

#[test]
fn answers_of_two_steps_stand_on_lines_of_their_own() {
    let server = ModelServer::start();
    server.reply(
        Reply::deltas(["slow", " answer"].map(|it| json!({"content": it}))).between(Duration::from_millis(1500)),
    );
    server.reply(Reply::text("another").reasoning("hm hm"));
    let home = TestHome::with_model(&server);
    let mut pty = Pty::start(&home, &["chat"]);
    pty.prompt();
    pty.keys("go\r");
    pty.shows("slow");
    pty.keys("more\r");
    pty.shows("(steering) more");
    pty.shows("\r\n answer\r\n");
    pty.shows("[+] Thinking (5 chars hidden)");
    pty.shows("\r\nanother\r\n");
    pty.prompt();
    pty.keys("\x04");
    pty.ended();
}

#[test]
fn a_gateway_without_channels_says_so_and_fails() {
    let home = TestHome::new();
    let err = home.run(&["gateway"]).failed(1);
    assert!(err.contains("no channel is enabled") && err.contains("bub chat"), "{err}");
    let err = home.run(&["gateway", "--enable-channel", "telegrm"]).failed(2);
    assert!(err.contains("there is no channel 'telegrm'"), "{err}");
    let home = TestHome::new().var("BUB_ENABLED_CHANNELS", "telegrm");
    let err = home.run(&["gateway"]).failed(1);
    assert!(err.contains("there is no channel 'telegrm'") && err.contains("no channel is enabled"), "{err}");
}
