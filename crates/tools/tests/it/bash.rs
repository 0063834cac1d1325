//! The shell tools over this machine.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    hooks::Hooks as _,
    task::TaskScope,
    tool::{ToolContext, erase},
    turn::{EventSink, SessionId, TurnEvent, TurnState},
};
use bub_testing::{call, context};
use bub_tools::bash::{Bash, BashKill, BashOutput, ShellHooks, ShellSettings, Shells};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A table of shells, and a context of session `s` in a folder of its own.
struct Place {
    folder: TempDir,
    shells: Arc<Shells>,
    ctx: ToolContext,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ShellSettings)) -> Self {
        let folder = TempDir::new().unwrap();
        let mut settings =
            ShellSettings { spool_dir: Some(folder.path().join("home/spool")), ..ShellSettings::default() };
        change(&mut settings);
        Self { shells: Shells::new(settings), ctx: context(environment(&folder)), folder }
    }

    async fn bash(&self, args: Value) -> String {
        call(Bash::new(self.shells.clone()), &self.ctx, args).await
    }

    async fn run(&self, command: &str) -> String {
        self.bash(json!({"command": command})).await
    }

    async fn output(&self, args: Value) -> String {
        call(BashOutput::new(self.shells.clone()), &self.ctx, args).await
    }

    async fn kill(&self, id: &str) -> String {
        call(BashKill::new(self.shells.clone()), &self.ctx, json!({"shell_id": id})).await
    }

    /// Starts a command in the background, and returns its id.
    async fn start(&self, command: &str) -> String {
        id_in(&self.bash(json!({"command": command, "background": true})).await)
    }

    /// The output of a shell after its end.
    async fn ending(&self, id: &str) -> String {
        let mut text = String::new();
        for _ in 0..100 {
            text = self.output(json!({"shell_id": id, "offset": 1i64 << 40, "wait_seconds": 10})).await;
            if text.contains("status: exited") {
                break;
            }
        }
        text
    }

    async fn notices(&self) -> Vec<String> {
        let mut state = TurnState::default();
        state.session = Some(self.ctx.session.clone());
        ShellHooks::new(self.shells.clone()).notices(&state).await
    }
}

fn environment(folder: &TempDir) -> Arc<LocalEnvironment> {
    let options = LocalOptions {
        workspace: Some(folder.path().canonicalize().unwrap()),
        adopt_orphans: true,
        ..LocalOptions::default()
    };
    Arc::new(LocalEnvironment::new(options).unwrap())
}

/// The id in a result.
fn id_in(text: &str) -> String {
    let at = text.find("bsh-").unwrap_or_else(|| panic!("no id in {text}"));
    let id = &text[at..at + 12];
    assert!(id[4..].chars().all(|it| it.is_ascii_digit() || ('a'..='f').contains(&it)), "{id}");
    id.to_owned()
}

/// A result with the ids left out.
fn without_ids(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(at) = text.find("bsh-") {
        text.replace_range(at..at + 12, "ID");
    }
    text
}

async fn check(command: &str, expected: Expect) {
    let place = Place::new();
    expected.assert_eq(&without_ids(&place.run(command).await));
    assert!(place.shells.is_empty(), "{command}");
}

/// A number of seconds that no other sleep has.
fn nap() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("500.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

/// Whether a process has `word` in its command line.
fn lives(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    commands.into_iter().any(|it| String::from_utf8_lossy(&it).contains(word))
}

async fn until(limit_ms: u64, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_millis(limit_ms) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

/// Resident memory of this process, in MB.
fn resident_mb() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() / 1024
}

#[tokio::test]
async fn foreground_result_is_the_output_without_blanks_around_it() {
    check("printf '\\n  a \\n b\\n\\n'", expect!["a \n b"]).await;
    check("true", expect!["(no output)"]).await;
    check("printf ' \\n'", expect!["(no output)"]).await;
    check("", expect!["(no output)"]).await;
    check("printf '\\303'; sleep 0.05; printf '\\274\\377'", expect!["ü\u{fffd}"]).await;
    check("printf 'cut \\342\\202'", expect!["cut \u{fffd}"]).await;
}

#[tokio::test]
async fn what_a_command_prints_is_reported_while_it_runs() {
    let mut place = Place::new();
    let (sink, mut events) = EventSink::new();
    place.ctx.sink = sink;
    let result = place.run("echo one; sleep 0.4; echo zwei €; sleep 0.4; echo end").await;
    place.ctx.sink = EventSink::discard();
    let mut news = Vec::new();
    while let Some(TurnEvent::ToolProgress { call, text }) = events.recv().await {
        assert_eq!(call, "call-1");
        news.push(text);
    }
    assert_eq!(news.first().map(String::as_str), Some("one\n"));
    assert!(news.len() >= 2 && result.starts_with(&news.concat()), "{news:?}");
}

#[tokio::test]
async fn r018_command_is_one_script_for_one_shell() {
    check(r#"printf 'a|b\n' | cut -d'|' -f2; echo "$((1+1))" 'x  y'"#, expect!["b\n2 x  y"]).await;
    check("it=\"it's\"; echo $it; cat <<'E'\n$it \"q\"\nE", expect!["it's\n$it \"q\""]).await;
}

#[tokio::test]
async fn r002_exit_code_is_an_error_that_keeps_the_output() {
    check(
        "echo out; echo err >&2; exit 7",
        expect![[r#"{"kind": "tool", "message": "Tool 'bash' execution failed.", "details": {"error": "RuntimeError('command exited with code 7\noutput:\nout\nerr')"}}"#]],
    )
    .await;
    check(
        "exit 1",
        expect![[r#"{"kind": "tool", "message": "Tool 'bash' execution failed.", "details": {"error": "RuntimeError('command exited with code 1\noutput:\n(no output)')"}}"#]],
    )
    .await;
    check(
        "no-such-program-at-all 2>/dev/null",
        expect![[r#"{"kind": "tool", "message": "Tool 'bash' execution failed.", "details": {"error": "RuntimeError('command exited with code 127\noutput:\n(no output)')"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn r010_signal_to_the_own_group_reaches_the_command_alone() {
    check(
        "kill -TERM 0; sleep 30",
        expect![[r#"{"kind": "tool", "message": "Tool 'bash' execution failed.", "details": {"error": "RuntimeError('command exited with code -15\noutput:\n(no output)')"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn r011_input_ends_at_once_and_there_is_no_terminal() {
    let start = Instant::now();
    check("cat", expect!["(no output)"]).await;
    check("read -p 'sure? ' x; echo got:$x", expect!["got:"]).await;
    check("(read x </dev/tty) 2>/dev/null || echo none", expect!["none"]).await;
    let text = Place::new().run("python3 -c 'input()'").await;
    assert!(text.contains("EOFError") && text.contains("code 1"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn r019_full_error_pipe_does_not_block() {
    let text = Place::new().run("head -c 1000000 /dev/zero | tr '\\0' e >&2; echo out").await;
    assert_eq!((text.len(), &text[999_998..]), (1_000_003, "eeout"));
}

#[tokio::test]
async fn r003_foreground_commands_leave_nothing() {
    let place = Place::new();
    for _ in 0..5 {
        assert_eq!(place.run("head -c 100000 /dev/zero | tr '\\0' x").await.len(), 100_000);
    }
    let before = resident_mb();
    for _ in 0..60 {
        place.run("head -c 100000 /dev/zero | tr '\\0' x").await;
    }
    assert!(place.shells.is_empty());
    // 60 results would be 6 MB; other tests run beside this one.
    assert!(resident_mb() - before < 60);
    assert_eq!(place.notices().await, Vec::<String>::new());
}

#[tokio::test]
async fn wrong_arguments_are_refused() {
    let place = Place::new();
    for (args, expected) in [
        (json!({"command": "true", "timeout_seconds": -1}), "timeout_seconds must not be negative"),
        (json!({"command": "a\0b"}), "command must not contain a NUL character"),
        (json!({"command": "true", "cwd": "none"}), "FileNotFoundError('no such file or directory: "),
        (json!({}), "missing field `command`"),
    ] {
        let text = place.bash(args).await;
        assert!(text.contains(expected), "{text}");
    }
    for text in [place.output(json!({"shell_id": "bsh-00000000"})).await, place.kill("bsh-00000000").await] {
        assert!(text.contains("KeyError('unknown shell id: bsh-00000000')"), "{text}");
    }
    let text = place.output(json!({"shell_id": "x", "wait_seconds": -1})).await;
    assert!(text.contains("invalid_input"), "{text}");
}

#[tokio::test]
async fn cwd_is_resolved_against_the_workspace() {
    let place = Place::new();
    fs::create_dir(place.folder.path().join("sub")).unwrap();
    let root = place.folder.path().canonicalize().unwrap();
    assert_eq!(place.run("pwd").await, root.to_str().unwrap());
    assert_eq!(place.bash(json!({"command": "pwd", "cwd": "sub"})).await, format!("{}/sub", root.display()));
    assert_eq!(place.bash(json!({"command": "pwd", "cwd": "/"})).await, "/");
    for unset in [json!(""), json!(null)] {
        assert_eq!(place.bash(json!({"command": "pwd", "cwd": unset})).await, root.to_str().unwrap());
    }
}

#[tokio::test]
async fn shell_with_a_given_id_is_read_and_killed() {
    let place = Place::new();
    let text = place.bash(json!({"command": "echo hi; sleep 100", "background": true, "timeout_seconds": 0})).await;
    let id = id_in(&text);
    expect![[r"
        Shell started, shell_id: ID
        bash_output reads what it prints, bash_kill stops it."]]
    .assert_eq(&without_ids(&text));
    let text = place.output(json!({"shell_id": id, "wait_seconds": 5})).await;
    expect![[r"
        id: ID
        status: running
        exit_code: null
        next_offset: 3
        output:
        hi"]]
    .assert_eq(&without_ids(&text));
    let ended = "id: ID\nstatus: exited\nexit_code: -15";
    let (one, other) = tokio::join!(place.kill(&id), place.kill(&id));
    for text in [one, other, place.kill(&id).await] {
        assert_eq!(without_ids(&text), ended);
    }
    for (args, next, body) in [
        (json!({}), 3, "hi"),
        (json!({"offset": 1, "limit": 1}), 2, "i"),
        (json!({"offset": -5, "limit": 2}), 2, "hi"),
        (json!({"offset": 2}), 3, "(no output)"),
        (json!({"offset": 99, "limit": 5}), 3, "(no output)"),
        (json!({"limit": -1}), 0, "(no output)"),
    ] {
        let mut args = args;
        args["shell_id"] = id.as_str().into();
        let text = place.output(args).await;
        assert_eq!(without_ids(&text), format!("{ended}\nnext_offset: {next}\noutput:\n{body}"));
    }
    // The model knows: it killed the shell itself.
    assert_eq!(place.notices().await, Vec::<String>::new());
}

#[tokio::test]
async fn time_out_goes_on_in_the_background() {
    let place = Place::new();
    let text = place.bash(json!({"command": "sleep 0.3; echo done; exit 4", "timeout_seconds": 0})).await;
    expect![[r"
        command timed out after 0 seconds; continuing in background
        shell_id: ID"]]
    .assert_eq(&without_ids(&text));
    let text = place.ending(&id_in(&text)).await;
    assert!(text.contains("status: exited\nexit_code: 4\nnext_offset: 5\n"), "{text}");
}

/// A time-out after a second, with the output so far; then a kill that leaves nothing.
async fn check_time_out(command: &str, so_far: &str) {
    let place = Place::new();
    let nap = nap();
    let start = Instant::now();
    let text = place.bash(json!({"command": command.replace("NAP", &nap), "timeout_seconds": 1})).await;
    assert!(start.elapsed() < Duration::from_secs(20), "{command}");
    let expected = "command timed out after 1 seconds; continuing in background\nshell_id: ID";
    assert_eq!(without_ids(&text), format!("{expected}{so_far}"), "{command}");
    assert!(lives(&nap), "{command}");
    let id = id_in(&text);
    let text = place.output(json!({"shell_id": id})).await;
    assert!(text.contains("status: running"), "{text}");
    let text = place.kill(&id).await;
    assert!(text.contains("status: exited") && start.elapsed() < Duration::from_secs(30), "{text}");
    assert!(!lives(&nap), "{command}");
}

#[tokio::test]
async fn r004_grandchild_that_holds_the_pipe_does_not_block_the_time_out() {
    check_time_out("(sleep NAP) & echo started; sleep NAP", "\noutput so far:\nstarted").await;
}

#[tokio::test]
async fn r007_children_of_a_timed_out_command_belong_to_its_shell() {
    check_time_out("sh -c 'sleep NAP; echo x'; echo y", "").await;
    check_time_out("python3 -c 'while True: pass' NAP", "").await;
}

#[tokio::test]
async fn r009_background_loops_of_a_timed_out_command_belong_to_its_shell() {
    check_time_out("for i in 1 2; do (exec -a loop-NAP bash -c 'while :; do :; done' NAP) & done; sleep 60", "").await;
}

#[tokio::test]
async fn r026_kill_ends_what_the_shell_started() {
    let place = Place::new();
    for command in [
        "sh -c 'sleep NAP & sleep NAP & echo; wait'",
        "setsid sleep NAP & echo; wait",
        "(setsid nohup sh -c 'sleep NAP & wait' >/dev/null 2>&1 &); echo; sleep 100",
    ] {
        let nap = nap();
        let id = place.start(&command.replace("NAP", &nap)).await;
        assert!(until(10_000, || lives(&nap)).await, "{command}");
        let start = Instant::now();
        let text = place.kill(&id).await;
        assert_eq!(without_ids(&text), "id: ID\nstatus: exited\nexit_code: -15", "{command}");
        assert!(!lives(&nap) && start.elapsed() < Duration::from_secs(20), "{command}");
    }
}

#[tokio::test]
async fn kill_is_answered_when_signals_are_ignored() {
    let place = Place::new();
    let nap = nap();
    let id = place.start(&format!("trap '' TERM; echo ready; while :; do sleep {nap}; done")).await;
    place.output(json!({"shell_id": id, "wait_seconds": 5})).await;
    let start = Instant::now();
    let text = place.kill(&id).await;
    assert_eq!(without_ids(&text), "id: ID\nstatus: exited\nexit_code: -9");
    assert!(start.elapsed() >= Duration::from_secs(3) && start.elapsed() < Duration::from_secs(20));
    assert!(!lives(&nap));
}

#[tokio::test]
async fn processes_that_outlive_a_foreground_command_get_an_id() {
    for command in [
        "sleep NAP & echo hi",
        "setsid sleep NAP >/dev/null 2>&1 & sleep 0.05; echo hi",
        "(sleep NAP >/dev/null 2>&1 &); echo hi",
    ] {
        let place = Place::new();
        let nap = nap();
        let start = Instant::now();
        let text = place.run(&command.replace("NAP", &nap)).await;
        assert!(start.elapsed() < Duration::from_secs(15), "{command}");
        assert_eq!(without_ids(&text), "hi\nbackground processes still running; shell_id: ID", "{command}");
        let id = id_in(&text);
        let text = place.output(json!({"shell_id": id})).await;
        assert!(text.contains("status: running\nexit_code: null\nnext_offset: 3\noutput:\nhi"), "{text}");
        let text = place.kill(&id).await;
        assert_eq!(without_ids(&text), "id: ID\nstatus: exited\nexit_code: 0");
        assert!(!lives(&nap), "{command}");
    }
    let place = Place::new();
    let text = place.run("(sleep 0.4; echo late) & echo now; exit 3").await;
    let error = "command exited with code 3\noutput:\nnow\nbackground processes still running; shell_id: ID";
    assert!(without_ids(&text).contains(&error.replace('\n', "\\n")), "{text}");
    let text = place.ending(&id_in(&text)).await;
    assert!(text.contains("status: exited\nexit_code: 3\nnext_offset: 9"), "{text}");
}

#[tokio::test]
async fn r021_polls_from_offset_to_offset_have_no_gaps_and_no_repeats() {
    let place = Place::new();
    let id = place.start("for i in 1 2 3; do echo $i; sleep 0.1; done").await;
    let (mut seen, mut offset) = (String::new(), 0);
    loop {
        // The body is shown without blanks at its end, so what was skipped is read back exactly.
        let text = place.output(json!({"shell_id": id, "offset": offset})).await;
        let next: i64 = text.lines().find_map(|it| it.strip_prefix("next_offset: ")).unwrap().parse().unwrap();
        let body = text.split_once("output:\n").unwrap().1;
        let body = if next == offset { "" } else { body };
        seen.push_str(body);
        seen.push_str(&"\n".repeat(usize::try_from(next - offset).unwrap() - body.len()));
        offset = next;
        if text.contains("status: exited") {
            assert!(text.contains("exit_code: 0"), "{text}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(seen, "1\n2\n3\n");
}

#[tokio::test]
async fn r023_poll_waits_for_output_or_the_end() {
    let place = Place::new();
    let id = place.start("sleep 0.5; echo ok").await;
    let start = Instant::now();
    let text = place.output(json!({"shell_id": id, "wait_seconds": 30})).await;
    assert!(text.contains("output:\nok"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(place.ending(&id).await.contains("exit_code: 0"));
    let id = place.start("sleep 60").await;
    let start = Instant::now();
    let text = place.output(json!({"shell_id": id, "wait_seconds": 0.2})).await;
    assert!(text.contains("status: running") && start.elapsed() >= Duration::from_millis(200), "{text}");
    place.kill(&id).await;
}

#[tokio::test]
async fn r024_end_of_a_background_shell_is_told_once() {
    let place = Place::new();
    let id = place.start("echo out; sleep 0.1; exit 5").await;
    assert_eq!(place.notices().await, Vec::<String>::new());
    let mut notices = Vec::new();
    for _ in 0..300 {
        notices = place.notices().await;
        if !notices.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    expect![[r"
        The background shell ID ended with exit code 5. Its command was: echo out; sleep 0.1; exit 5
        bash_output still shows what it printed."]]
    .assert_eq(&without_ids(&notices.join("|")));
    assert_eq!(place.notices().await, Vec::<String>::new());
    let text = place.output(json!({"shell_id": id})).await;
    assert!(text.contains("status: exited\nexit_code: 5\nnext_offset: 4\noutput:\nout"), "{text}");
    // What a poll has shown needs no notice.
    let id = place.start("exit 6").await;
    assert!(place.ending(&id).await.contains("exit_code: 6"));
    assert_eq!(place.notices().await, Vec::<String>::new());
}

#[tokio::test]
async fn r017_dropped_call_leaves_no_process() {
    let place = Place::new();
    for (command, limit_ms) in [
        ("sleep NAP", 10_000),
        ("(setsid sleep NAP >/dev/null 2>&1 &); sleep NAP", 10_000),
        ("trap '' TERM; while :; do sleep NAP; done", 20_000),
    ] {
        let nap = nap();
        let command = command.replace("NAP", &nap);
        let running = place.run(&command);
        tokio::select! {
            text = running => panic!("{text}"),
            held = until(10_000, || lives(&nap)) => assert!(held, "{command}"),
        }
        assert!(until(limit_ms, || !lives(&nap)).await, "{command}");
        assert!(place.shells.is_empty());
    }
}

#[tokio::test]
async fn dropped_call_may_clean_up_before_it_is_killed() {
    let place = Place::new();
    let file = place.folder.path().join("cleaned");
    let command = "trap 'sleep 0.2; echo x > cleaned; exit' TERM; touch ready; while :; do sleep 0.05; done";
    tokio::select! {
        text = place.run(command) => panic!("{text}"),
        held = until(10_000, || place.folder.path().join("ready").exists()) => assert!(held),
    }
    assert!(until(10_000, || file.exists()).await);
}

#[test]
fn nothing_survives_the_runtime() {
    let naps = [nap(), nap(), nap()];
    for closes in [false, true] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let place = Place::new();
        runtime.block_on(async {
            place.start(&format!("trap '' TERM; sleep {}; sleep 100", naps[0])).await;
            place.start(&format!("setsid sleep {} & wait", naps[1])).await;
            let command = format!("sleep {}", naps[2]);
            tokio::select! {
                text = place.run(&command) => panic!("{text}"),
                held = until(10_000, || naps.iter().all(|it| lives(it))) => assert!(held),
            }
            if closes {
                ShellHooks::new(place.shells.clone()).close().await;
                place.ctx.tasks.close().await;
                assert!(naps.iter().all(|it| !lives(it)));
                let text = place.run("echo hi").await;
                assert!(text.contains("RuntimeError('shell runtime is closed')"), "{text}");
            }
        });
        drop(runtime);
        let start = Instant::now();
        while naps.iter().any(|it| lives(it)) {
            assert!(start.elapsed() < Duration::from_secs(15));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[tokio::test]
async fn closing_the_sessions_tasks_stops_its_shells() {
    let place = Place::new();
    let nap = nap();
    let id = place.start(&format!("sleep {nap}")).await;
    assert!(until(10_000, || lives(&nap)).await);
    place.ctx.tasks.close().await;
    assert!(!lives(&nap));
    assert!(place.kill(&id).await.contains("exit_code: -15"));
    assert!(place.run("echo").await.contains("shell runtime is closed"));
}

#[tokio::test]
async fn r099_sessions_have_their_own_shells() {
    let (one, other) = (Place::new(), TempDir::new().unwrap());
    let mut ctx = context(environment(&other));
    ctx.session = SessionId("temp/other".into());
    let other = Place { shells: one.shells.clone(), ctx, folder: other };
    let naps = [nap(), nap()];
    let ids = [one.start(&format!("sleep {}", naps[0])).await, other.start(&format!("sleep {}", naps[1])).await];
    assert!(until(10_000, || naps.iter().all(|it| lives(it))).await);
    assert!(other.kill(&ids[0]).await.contains("unknown shell id"));
    one.shells.terminate_session(&one.ctx.session).await;
    assert!(!lives(&naps[0]) && lives(&naps[1]));
    assert_eq!(other.run("pwd").await, other.folder.path().canonicalize().unwrap().to_str().unwrap());
    // What was stopped stays readable, and is no news.
    assert!(one.output(json!({"shell_id": ids[0]})).await.contains("exit_code: -15"));
    assert_eq!(one.notices().await, Vec::<String>::new());
    // A temporary session does not come back.
    other.shells.terminate_session(&other.ctx.session).await;
    assert!(!lives(&naps[1]));
    assert!(other.kill(&ids[1]).await.contains("unknown shell id"));
    assert_eq!(one.shells.len(), 1);
}

#[tokio::test]
async fn r014_endless_output_is_bounded() {
    let place = Place::with(|it| it.max_output_bytes = 4 << 20);
    let before = resident_mb();
    let text = place.bash(json!({"command": "yes", "timeout_seconds": 1})).await;
    assert!(text.starts_with("command timed out after 1 seconds"), "{text:.100}");
    let id = id_in(&text);
    let start = Instant::now();
    assert_eq!(place.run("echo responsive").await, "responsive");
    assert!(start.elapsed() < Duration::from_secs(15));
    place.kill(&id).await;
    assert!(resident_mb() - before < 200);
    let text = place.output(json!({"shell_id": id, "limit": 3})).await;
    assert!(text.ends_with("next_offset: 3\noutput:\ny\ny"), "{text}");
    let text = place.run("head -c 20000000 /dev/zero | tr '\\0' z; echo end").await;
    assert!(text.starts_with("zzz") && text.ends_with("zend"));
    assert!(text.contains(" of 20,000,004 characters omitted]...\n"));
    assert!(text.len() < 8_400_000);
}

#[tokio::test]
async fn r015_finished_shells_are_few_and_live_on_disk() {
    let place = Place::new();
    let before = resident_mb();
    let mut ids = Vec::new();
    for _ in 0..70 {
        let id = place.start("head -c 1000000 /dev/zero | tr '\\0' x").await;
        assert!(place.ending(&id).await.contains("next_offset: 1000000"));
        ids.push(id);
    }
    assert_eq!(place.shells.len(), 64);
    assert!(resident_mb() - before < 60);
    assert!(place.output(json!({"shell_id": ids[5]})).await.contains("unknown shell id"));
    let text = place.output(json!({"shell_id": ids[6], "offset": 999_998})).await;
    assert!(text.ends_with("exit_code: 0\nnext_offset: 1000000\noutput:\nxx"), "{text}");
    // Spool files have no name that could be left behind.
    assert_eq!(fs::read_dir(place.folder.path().join("home/spool")).unwrap().count(), 0);
}

#[tokio::test]
async fn shells_work_in_a_closed_scope_of_another_session() {
    let place = Place::new();
    let mut ctx = place.ctx.clone();
    ctx.tasks = TaskScope::default();
    ctx.tasks.close().await;
    let text = call(Bash::new(place.shells.clone()), &ctx, json!({"command": "echo"})).await;
    assert!(text.contains("shell runtime is closed"), "{text}");
    assert_eq!(place.run("echo here").await, "here");
}

#[test]
fn parameters_are_those_of_the_reference() {
    let shells = Shells::new(ShellSettings::default());
    assert_eq!(
        erase(Bash::new(shells.clone())).spec().parameters,
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "cwd": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "timeout_seconds": {"type": "integer", "default": 30},
                "background": {"type": "boolean", "default": false},
            },
            "required": ["command"],
        })
    );
    let output = erase(BashOutput::new(shells.clone())).spec().parameters.clone();
    assert_eq!(output["required"], json!(["shell_id"]));
    assert_eq!(output["properties"]["wait_seconds"]["default"], json!(0.0));
    assert_eq!(erase(BashKill::new(shells)).spec().parameters["required"], json!(["shell_id"]));
}
