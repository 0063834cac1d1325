//! What `bub tape` prints, to the letter.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Stdio},
    sync::mpsc,
    time::Duration,
};

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::home::{PATIENCE, Ran, TestHome, end_of, wait_until};

/// A home with a tape of both the reference's releases.
fn fixture(release: &str, name: &str) -> TestHome {
    let home = TestHome::new().var("TZ", "UTC");
    let dir = home.home().join("tapes");
    fs::create_dir_all(&dir).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tapes").join(release);
    for file in fs::read_dir(fixtures).unwrap() {
        let path = file.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file.starts_with(name) && file.ends_with(".jsonl") {
            fs::copy(&path, dir.join(file)).unwrap();
        }
    }
    home
}

/// A home with a tape of that name and content.
pub(crate) fn with_tape(name: &str, lines: &[Value]) -> TestHome {
    let home = TestHome::new().var("TZ", "UTC");
    fs::create_dir_all(home.home().join("tapes")).unwrap();
    let text: String = lines.iter().map(|it| format!("{it}\n")).collect();
    fs::write(tape(&home, name), text).unwrap();
    home
}

pub(crate) fn tape(home: &TestHome, name: &str) -> PathBuf {
    home.home().join("tapes").join(format!("{name}.jsonl"))
}

pub(crate) fn entry(id: u64, kind: &str, payload: Value) -> Value {
    let date = format!("2026-01-02T03:04:{id:02}.000000+00:00");
    json!({"id": id, "kind": kind, "payload": payload, "meta": {}, "date": date})
}

#[track_caller]
fn check(home: &TestHome, args: &[&str], expected: Expect) {
    expected.assert_eq(&home.run(&[&["tape"], args].concat()).ok());
}

const SHELL: &str = "f22a698dffbac0e2__2591c98b70119fe6";

#[test]
fn a_tape_is_shown_for_people() {
    let home = fixture("0.6.0a3", SHELL);
    check(
        &home,
        &["show", SHELL],
        expect![[r#"
        ── Mon 30 Nov 2026 ──
        00:22:55 #1     anchor session/start {"owner": "human"}
        00:22:55 #5     system prompt (13 characters): SYSTEM PROMPT
        00:22:55 #6     user
          bench:n=2,tool=shell please
        00:22:55 #7     ● bash(command: "echo step-1")
          ⎿ step-1
        00:22:55 #13    ● bash(command: "echo step-2")
          ⎿ step-2
        00:22:55 #19    assistant
          tok0
          tok1 tok2 tok3 tok4 tok5 tok6 tok7
        00:22:55 #22    ✓ 3 steps, 108 ms, 3,060 tokens
        00:22:56 #26    user
          bench:n=0,tool=shell second turn 你好
        00:22:56 #27    assistant
          tok0
          tok1 tok2 tok3 tok4 tok5 tok6 tok7
        00:22:56 #30    ✓ 1 step, 41 ms, 1,020 tokens
        00:22:56 #31    anchor phase-1 {"summary": "done é"}
        00:22:56 #33    ,tape.handoff name=phase-1 summary="done é"
          anchor added: phase-1
        00:22:57 #37    user
          bench:n=1,tool=read third
        00:22:57 #38    ● fs_read(path: "README.md")
          ⎿ line one … (2 lines)
        00:22:57 #44    assistant
          tok0
          tok1 tok2 tok3 tok4 tok5 tok6 tok7
        00:22:57 #47    ✓ 2 steps, 79 ms, 2,040 tokens
    "#]],
    );
    let old = fixture("0.5.1", SHELL);
    let without_times = |text: String| text.lines().map(|it| it.get(17..).unwrap_or(it).to_owned()).collect::<Vec<_>>();
    let (new, old) = (home.run(&["tape", "show", SHELL]).ok(), old.run(&["tape", "show", SHELL]).ok());
    let said = |text: &str| text.lines().filter(|it| it.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(said(&new), said(&old), "both releases say the same: {:?}", without_times(old.clone()));
}

#[test]
fn commands_and_events_are_shown_for_people() {
    let name = "f22a698dffbac0e2__b02e953333a82648";
    check(
        &fixture("0.6.0a3", name),
        &["show", name],
        expect![[r#"
        ── Mon 30 Nov 2026 ──
        00:22:58 #1     anchor session/start {"owner": "human"}
        00:22:58 #3     ,fs.read path=README.md
          line one
          line two
        00:22:59 #4     ,echo hi
          hi
        00:22:59 #5     ,fs.read path=nope.txt ✗
          [tool] Tool 'fs.read' execution failed.
        00:23:00 #6     event model_switch {"model": "openai:other"}
        00:23:00 #7     ,model openai:other
          Session model set to openai:other (applies from the next turn).
        00:23:01 #8     event code_mode_switch {"code_mode": true}
        00:23:01 #9     ,code_mode enable=true
          Session code mode enabled (applies from the next turn).
        00:23:02 #10    event reasoning_effort_switch {"reasoning_effort": "high"}
        00:23:02 #11    ,reasoning_effort high
          Session reasoning effort set to high (applies from the next turn).
    "#]],
    );
}

#[test]
fn a_part_of_a_tape_is_shown() {
    let home = fixture("0.6.0a3", SHELL);
    check(
        &home,
        &["show", SHELL, "--at", "30..33"],
        expect![[r#"
        ── Mon 30 Nov 2026 ──
        00:22:56 #30    ✓ 1 step, 41 ms
        00:22:56 #31    anchor phase-1 {"summary": "done é"}
        00:22:56 #33    ,tape.handoff name=phase-1 summary="done é"
          anchor added: phase-1
    "#]],
    );
    check(
        &home,
        &["show", SHELL, "--kind", "tool_call,tool_result", "-n", "2"],
        expect![[r#"
        ── Mon 30 Nov 2026 ──
        00:22:57 #38    ● fs_read(path: "README.md")
          ⎿ line one … (2 lines)
    "#]],
    );
    check(
        &home,
        &["show", SHELL, "--since", "2026-11-30T00:22:57.654Z", "--until", "2026-11-30", "--kind", "message"],
        expect![[r#"
            ── Mon 30 Nov 2026 ──
            00:22:57 #37    user
              bench:n=1,tool=read third
            00:22:57 #44    assistant
              tok0
              tok1 tok2 tok3 tok4 tok5 tok6 tok7
        "#]],
    );
    check(
        &home,
        &["show", SHELL, "--at", "37..40", "--full"],
        expect![[r#"
        ── Mon 30 Nov 2026 ──
        00:22:57 #37    user
          sender_id=human|channel=$cli|chat_id=local
          ---Date: 2026-11-30T00:22:57+00:00---
          bench:n=1,tool=read third
        00:22:57 #38    ● fs_read
            path: README.md
          ⎿
            line one
            line two
        00:22:57 #40    event run {"status": "ok", "usage": {"input_tokens": 1000, "output_tokens": 20, "reasoning_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0, "total_tokens": 1020}, "provider": "openai", "model": "openai:mock"}
    "#]],
    );
    let lines = home.run(&["tape", "show", SHELL, "--at", "37..", "--json"]).ok();
    assert!(fs::read_to_string(tape(&home, SHELL)).unwrap().ends_with(&lines), "the lines as they are");
    assert_eq!(home.run(&["tape", "show", SHELL, "--at", "99.."]).failed(0), "nothing to show\n");
    for (args, message) in [
        (["--at", "x"], "--at takes ids as 12, 12..20, 12.. or ..20, got 'x'"),
        (["--since", "soon"], "'soon' is no time"),
    ] {
        let err = home.run(&[["tape", "show", SHELL].as_slice(), &args].concat()).failed(2);
        assert!(err.contains(message), "{err}");
    }
}

#[test]
fn anchors_and_counts_are_listed() {
    let home = fixture("0.6.0a3", SHELL);
    check(
        &home,
        &["anchors", SHELL],
        expect![[r#"
            2026-11-30 00:22:55  #1      session/start  {"owner": "human"}
            2026-11-30 00:22:56  #31     phase-1  {"summary": "done é"}
        "#]],
    );
    let rows = home.run(&["tape", "anchors", SHELL, "--json"]).ok();
    assert_eq!(rows.lines().count(), 2);
    let info = home.run(&["tape", "info", SHELL]).ok();
    let lines: Vec<_> = info.lines().filter(|it| !it.starts_with("file: ")).collect();
    expect![[r#"
        name: f22a698dffbac0e2__2591c98b70119fe6
        bytes: 11,201
        entries: 47
        last_id: 47
        anchors: 2
        last_anchor: phase-1
        entries_since_last_anchor: 16
        sidecars: none
        last_usage: input_tokens: 1,000, output_tokens: 20, reasoning_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, total_tokens: 1,020
        last_token_cache_hit_rate: 0.00%
        context_window: none
        context_window_use: none"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn how_full_the_context_is_is_shown_as_the_tool_shows_it() {
    let usage = json!({"input_tokens": 500, "output_tokens": 20, "cached_tokens": 125, "total_tokens": 520});
    let anchor = |id| entry(id, "anchor", json!({"name": "session/start"}));
    let run = entry(2, "event", json!({"name": "run", "data": {"status": "ok", "usage": usage}}));
    let info = |lines: &[Value], more: &[&str]| {
        let args = ["tape", "info", "t", "--set", "model=openai:m", "--set", "context.window=2000"];
        with_tape("t", lines).run(&[&args, more].concat()).ok()
    };
    let text = info(&[anchor(1), run.clone()], &[]);
    let expected = "last_token_cache_hit_rate: 25.00%\ncontext_window: 2,000\ncontext_window_use: 25.00%\n";
    assert!(text.ends_with(expected), "{text}");
    let json: Value = serde_json::from_str(&info(&[anchor(1), run.clone()], &["--json"])).unwrap();
    assert_eq!(
        (&json["context_window"], &json["context_window_use"], &json["last_token_cache_hit_rate"]),
        (&json!(2000), &json!(0.25), &json!(0.25))
    );
    // Behind an anchor nobody knows yet.
    let text = info(&[anchor(1), run, anchor(3)], &[]);
    assert!(text.ends_with("context_window: 2,000\ncontext_window_use: none\n"), "{text}");
}

#[test]
fn what_is_found_is_shown_newest_first_with_what_stands_around_it() {
    let long = |word: &str| format!("{} {word} {}", "lorem ".repeat(100), "ipsum ".repeat(100));
    let home = with_tape(
        "t",
        &[
            entry(1, "message", json!({"role": "user", "content": "Where is the needle?"})),
            entry(2, "tool_call", json!({"calls": [{"id": "c", "name": "bash", "arguments": "{}"}]})),
            entry(3, "tool_result", json!({"results": [long("NEEDLE")]})),
            entry(4, "message", json!({"role": "assistant", "content": "no hay"})),
        ],
    );
    check(
        &home,
        &["search", "needle", "t"],
        expect![[r#"
            ── Fri 02 Jan 2026 ──
            03:04:03 #3     results
              … lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem lorem  NEEDLE ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum ipsum i…
            03:04:01 #1     user
              Where is the needle?
        "#]],
    );
    assert_eq!(home.run(&["tape", "search", "zzz", "t"]).failed(0), "nothing found\n");
}

#[test]
fn times_are_in_the_persons_zone_and_days_are_said_once() {
    let at = |id: u64, date: &str| json!({"id": id, "kind": "message", "payload": {"role": "user", "content": "x"}, "meta": {}, "date": date});
    let home = with_tape(
        "t",
        &[
            at(1, "2026-01-01T21:59:00.000000+00:00"),
            at(2, "2026-01-01T22:01:00.000000+00:00"),
            at(3, "2026-01-01T22:02:00.000000+00:00"),
            at(4, "no date"),
        ],
    )
    .var("TZ", "XXX-2");
    check(
        &home,
        &["show", "t"],
        expect![[r#"
        ── Thu 01 Jan 2026 ──
        23:59:00 #1     user
          x
        ── Fri 02 Jan 2026 ──
        00:01:00 #2     user
          x
        00:02:00 #3     user
          x
        --:--:-- #4     user
          x
    "#]],
    );
    check(
        &home,
        &["show", "t", "--since", "2026-01-02", "--until", "2026-01-02T00:01"],
        expect![[r#"
        ── Fri 02 Jan 2026 ──
        00:01:00 #2     user
          x
    "#]],
    );
}

#[test]
fn old_and_odd_shapes_are_shown_searched_exported_and_clean() {
    let png = "iVBORw0KGgo".repeat(1_000);
    let lines = [
        json!({"id": 1, "kind": "message", "payload": {"role": "user", "content": [
            {"type": "text", "text": "see"}, {"type": "image", "url": format!("data:image/png;base64,{png}")},
            {"type": "audio", "media_type": "audio/wav", "data": png}, {"type": "image", "media_type": "image/gif", "url": "https://x/y.gif"},
        ]}, "meta": {}, "timestamp": 1_767_323_045.5}),
        json!({"id": 2, "kind": "message", "payload": {"role": "assistant", "content": "", "reasoning": "a picture", "tool_calls": [
            {"id": "c9", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}, "timestamp": 1_767_323_046}),
        json!({"id": 3, "kind": "message", "payload": {"role": "tool", "tool_call_id": "c9", "name": "bash", "content": "a.png"}, "meta": 7, "timestamp": 1_767_323_047}),
        json!({"id": 4, "kind": "tool_call", "payload": {"calls": [{"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": {"path": "a"}}}], "content": null}, "timestamp": 1_767_323_048}),
        json!({"id": 5, "kind": "tool_result", "payload": {"results": [{"kind": "not_found", "message": "no a", "details": {"error": "OSError('a')"}}]}, "timestamp": 1_767_323_049}),
        json!({"id": 6, "kind": "weird", "payload": {"n": 1}, "meta": {}}),
        json!({"id": 7, "kind": "error", "payload": {"kind": "provider", "message": "HTTP 500"}, "meta": {}, "date": "2026-01-02T03:05:00+00:00"}),
    ];
    let home = with_tape("old", &lines);
    check(
        &home,
        &["show", "old"],
        expect![[r#"
            ── Fri 02 Jan 2026 ──
            03:04:05 #1     user
              see
              [image image/png, 8.0 KiB]
              [audio audio/wav, 8.0 KiB]
              [image image/gif, https://x/y.gif]
            03:04:06 #2     assistant
              (a picture)
              ● bash(command: "ls")
            03:04:07 #3     result
              ⎿ a.png
            03:04:08 #4     ● fs_read(path: "a")
              ⎿ ✗ OSError('a')
            ── Thu 01 Jan 1970 ──
            00:00:00 #6     weird {"n": 1}
            ── Fri 02 Jan 2026 ──
            03:05:00 #7     error HTTP 500
        "#]],
    );
    let found = home.run(&["tape", "search", "a.png", "old"]).ok();
    assert!(found.contains("a.png"), "{found}");
    check(
        &home,
        &["export", "old", "--format", "markdown"],
        expect![[r##"
            # Session `old`

            ## 2026-01-02

            ### User, 03:04:05

            see

            *[image image/png, 8.0 KiB]*

            *[audio audio/wav, 8.0 KiB]*

            ![image/gif](<https://x/y.gif>)

            ### Assistant, 03:04:06

            Calls `bash`:

            ```json
            {"command": "ls"}
            ```

            ### Result, 03:04:07

            ```
            a.png
            ```

            ### Assistant, 03:04:08

            Calls `fs_read`:

            ```json
            {"path":"a"}
            ```

            Result of `fs_read`:

            ```
            no a
            OSError('a')
            ```

            ### Error, 03:05:00

            ```
            HTTP 500
            ```

        "##]],
    );
    check(
        &home,
        &["verify", "old"],
        expect![[r#"
        old: ok, 7 entries in 1 file
    "#]],
    );
    let all: Value = serde_json::from_str(&home.run(&["tape", "export", "old", "--format", "json"]).ok()).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 7);
    assert_eq!(all[0]["date"], "2026-01-02T03:04:05.500000+00:00");
}

#[test]
fn all_fixtures_are_shown_searched_exported_and_clean() {
    for release in ["0.5.1", "0.6.0a3"] {
        let home = fixture(release, "");
        let rows = home.run(&["tape", "list", "--all", "--json"]).ok();
        let names: Vec<String> = rows
            .lines()
            .map(|it| serde_json::from_str::<Value>(it).unwrap()["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), 5);
        for name in &names {
            assert!(!home.run(&["tape", "show", name]).ok().is_empty());
            assert!(home.run(&["tape", "show", name, "--full"]).ok().contains("session/start"));
            let whole = fs::read_to_string(tape(&home, name)).unwrap();
            assert_eq!(home.run(&["tape", "export", name]).ok(), whole);
            assert!(
                home.run(&["tape", "search", "session/start", name, "--kind", "anchor"])
                    .ok()
                    .contains("anchor session/start")
            );
            assert!(home.run(&["tape", "verify", name]).ok().contains("ok, "));
        }
        assert_eq!(home.run(&["tape", "verify", "--all"]).ok(), "5 tapes, nothing is wrong\n");
    }
}

#[test]
fn an_export_replaces_its_file_when_all_is_written() {
    let home = fixture("0.6.0a3", SHELL);
    let out = home.workspace().join("out.md");
    fs::write(&out, "old").unwrap();
    let ran = home.run(&["tape", "export", SHELL, "--format", "markdown", "--at", "26..27", "--output", "out.md"]);
    assert_eq!((ran.out.as_str(), ran.code), ("", Some(0)));
    assert!(ran.err.starts_with("2 entries written to "), "{}", ran.err);
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("# Session `") && text.contains("second turn 你好"), "{text}");
    assert_eq!(fs::read_dir(home.workspace()).unwrap().count(), 1, "nothing else is left");
    let err = home.run(&["tape", "export", SHELL, "-o", "no/such/folder/x"]).failed(1);
    assert!(err.contains("cannot write"), "{err}");
}

#[test]
fn lists_are_cut_and_titles_cost_little() {
    let home = TestHome::new();
    home.run(&["run", ",true"]).ok();
    let name = home.tape_file().file_stem().unwrap().to_str().unwrap().split_once("__").unwrap().0.to_owned();
    fs::remove_file(home.tape_file()).unwrap();
    for n in 0..60 {
        let start = json!({"id": 1, "kind": "event", "payload": {"name": "loop.start", "data": {"prompt": format!("{n} {}", "long ".repeat(40_000))}}, "meta": {}, "date": "d"});
        let start = bub_text(&start);
        fs::write(tape(&home, &format!("{name}__{n:016}")), format!("{start}\n")).unwrap();
    }
    let ran = home.run(&["tape", "list"]);
    assert_eq!(ran.err, "10 more (--limit 0 shows all)\n");
    assert_eq!(ran.out.lines().count(), 50);
    assert!(ran.out.lines().all(|it| it.contains("long long") && it.ends_with('…')), "{}", ran.out);
    assert_eq!(home.run(&["tape", "list", "--limit", "3"]).ok().lines().count(), 3);
    assert_eq!(home.run(&["tape", "list", "--limit", "0"]).ok().lines().count(), 60);
    assert_eq!(home.run(&["tape", "list", "--json"]).ok().lines().count(), 60);
}

/// JSON as tapes have it.
fn bub_text(value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{}: {}", json!(key), bub_text(value))).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Runs the program with a terminal of its own, which is 80 characters wide.
fn on_terminal(home: &TestHome, args: &str) -> String {
    let program = env!("CARGO_BIN_EXE_bub");
    let script = format!("stty cols 80 2>/dev/null; {program} {args}; true");
    let mut command = home.command(&[]);
    let program = std::mem::replace(&mut command, std::process::Command::new("script"));
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("TERM", "xterm-256color").current_dir(home.workspace());
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ran::of(command.output().unwrap()).ok().replace("\r\n", "\n")
}

#[test]
fn a_terminal_gets_colours_and_nothing_that_drives_it() {
    let evil = "\u{1b}[2J\u{7}\u{9b}31m\u{202e}\u{7f}bad";
    let lines = [
        entry(1, "message", json!({"role": "user", "content": evil})),
        entry(
            2,
            "tool_call",
            json!({"calls": [{"id": "c", "name": evil, "arguments": json!({"command": evil}).to_string()}], "content": evil, "reasoning": evil}),
        ),
        entry(3, "tool_result", json!({"results": [evil, {"kind": "tool", "message": evil}]})),
        entry(4, "anchor", json!({"name": evil, "state": {"a": evil}})),
        entry(5, "event", json!({"name": evil, "data": {"a": evil}})),
        entry(6, "event", json!({"name": "command", "data": {"raw": evil, "output": evil, "status": "ok"}})),
        entry(7, "system", json!({"content": evil})),
        entry(8, "error", json!({"message": evil})),
        entry(9, evil, json!({"a": evil})),
    ];
    let home = with_tape("t", &lines);
    let is_tame = |text: &str| {
        // What is left are our own colours.
        let mut rest = text.to_owned();
        for code in ["0", "1;32", "1;36", "2", "31", "33", "35"] {
            rest = rest.replace(&format!("\u{1b}[{code}m"), "");
        }
        !rest.chars().any(|it| it.is_control() && !matches!(it, '\n' | '\t') || it == '\u{202e}')
    };
    for args in [
        "tape show t",
        "tape show t --full",
        "tape show t --json",
        "tape search bad t",
        "tape anchors t",
        "tape anchors t --json",
        "tape export t",
        "tape export t --format json",
        "tape export t --format markdown",
        "tape verify t",
        "tape list --all",
    ] {
        let shown = on_terminal(&home, args);
        assert!(is_tame(&shown), "{args}: {shown:?}");
    }
    let shown = on_terminal(&home, "tape show t");
    assert!(shown.contains("\u{1b}[1;36muser\u{1b}[0m\n  ␛[2J␇"), "{shown:?}");
    assert!(shown.lines().all(|it| it.chars().count() < 80 + 20), "{shown}");
    // Without colours, and in a pipe, there is no escape at all.
    let plain = TestHome::var(home, "NO_COLOR", "1");
    assert!(!on_terminal(&plain, "tape show t").contains('\u{1b}'));
    for args in [["tape", "show", "t"], ["tape", "anchors", "t"]] {
        let shown = plain.run(&args).ok();
        assert!(!shown.chars().any(|it| it.is_control() && !matches!(it, '\n' | '\t')), "{shown:?}");
    }
}

/// A program whose lines are read as they come.
struct Followed {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Followed {
    fn start(home: &TestHome, args: &[&str]) -> Self {
        let mut child = home.command(&[&["tape", "show", "--follow"], args].concat()).spawn().unwrap();
        let (tell, lines) = mpsc::channel();
        let out: ChildStdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that ends so.
    #[track_caller]
    fn sees(&self, end: &str) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("'{end}' did not come"));
            if line.ends_with(end) {
                return;
            }
        }
    }

    fn interrupt(self) -> Ran {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        end_of(self.child)
    }
}

#[test]
fn a_tape_is_followed_whatever_others_do_to_it() {
    let home = TestHome::new().var("TZ", "UTC");
    home.run(&["run", ",echo first"]).ok();
    let path = home.tape_file();
    let followed = Followed::start(&home, &[]);
    followed.sees("  first");
    home.run(&["run", ",echo second"]).ok();
    followed.sees("  second");
    // In pieces.
    let line = entry(50, "message", json!({"role": "user", "content": "third"})).to_string() + "\n";
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&line.as_bytes()[..30]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    file.write_all(&line.as_bytes()[30..]).unwrap();
    followed.sees("  third");
    home.run(&["tape", "reset", "--yes"]).ok();
    home.run(&["run", ",echo fourth"]).ok();
    followed.sees("  fourth");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    home.run(&["run", ",echo fifth"]).ok();
    followed.sees("  fifth");
    fs::write(
        home.workspace().join("other"),
        entry(1, "message", json!({"role": "user", "content": "sixth"})).to_string() + "\n",
    )
    .unwrap();
    fs::rename(home.workspace().join("other"), &path).unwrap();
    followed.sees("  sixth");
    let ran = followed.interrupt();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.err.contains("(the tape was started anew)") && ran.err.contains("(the tape was rewritten"),
        "{}",
        ran.err
    );
}

#[test]
fn following_begins_where_one_says_and_ends_when_nobody_reads() {
    let lines: Vec<_> =
        (1..=30).map(|it| entry(it, "message", json!({"role": "user", "content": format!("m{it}")}))).collect();
    let home = with_tape("t", &lines);
    for (args, first) in [(["t", "-n", "2"].as_slice(), "m29"), (&["t"], "m21"), (&["t", "--at", "5.."], "m5")] {
        let followed = Followed::start(&home, &[args, &["--json"]].concat());
        let line: Value = serde_json::from_str(&followed.lines.recv_timeout(PATIENCE).unwrap()).unwrap();
        assert_eq!(line["payload"]["content"], first);
        assert_eq!(followed.interrupt().code, Some(0));
    }
    let mut child = home.command(&["tape", "show", "t", "--follow", "-n", "0"]).spawn().unwrap();
    drop(child.stdout.take());
    wait_until("it ends though nothing comes", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
