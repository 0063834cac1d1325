//! Commands without a model, and the small commands of the program.

use std::os::unix::fs::PermissionsExt as _;

use expect_test::expect;

use crate::home::TestHome;

#[test]
fn r124_tools_and_shell_lines_run_without_a_model() {
    let home = TestHome::new();
    assert_eq!(home.run(&["run", ",echo hi"]).ok(), "hi\n");
    assert!(home.run(&["run", ", git --version"]).ok().starts_with("git version"));
    home.write("t.txt", "one\ntwo\nthree\n");
    assert_eq!(home.run(&["run", ",fs.read path=t.txt limit=2"]).ok(), "one\ntwo\n");
    assert_eq!(home.run(&["run", ",ls | head -1"]).ok(), "t.txt\n");
    let names: Vec<_> = home.tape_lines().iter().map(|it| it["payload"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["session/start", "handoff", "command", "command", "command", "command"]);
}

#[test]
fn r128_arguments_are_read_as_documented() {
    let home = TestHome::new();
    home.run(&["run", ",fs.write path=t.txt content='a = b c'"]).ok();
    assert_eq!(home.run(&["run", ",fs.read t.txt"]).ok(), "a = b c\n");
    assert_eq!(home.run(&["run", ",fs.read path=t.txt offset=0 limit=1"]).ok(), "a = b c\n");
    for (line, expected) in [
        (
            ",fs.read path=t.txt bogus=1",
            "error: fs.read: 'bogus' is not a parameter; the tool takes 'path', 'offset', 'limit'\n",
        ),
        (",fs.read path=t.txt limit=abc", "error: fs.read: 'limit': expected an integer or null, got 'abc'\n"),
        (",fs.read path=a b", "error: positional argument 'b' cannot appear after keyword arguments\n"),
        (",fs.read 'a", "error: No closing quotation\n"),
        (",", "error: empty command\n"),
    ] {
        assert_eq!(home.run(&["run", line]).failed(1), expected, "{line}");
    }
}

#[test]
fn r130_a_mistyped_command_gets_a_hint() {
    let home = TestHome::new();
    let err = home.run(&["run", ",tape.inof"]).failed(1);
    assert!(err.contains("code 127") && err.contains("did you mean ,tape.info?"), "{err}");
    let err = home.run(&["run", ",fs.raed path=x"]).failed(1);
    assert!(err.contains("did you mean ,fs.read?"), "{err}");
}

#[test]
fn r131_every_example_of_help_reaches_its_tool() {
    let home = TestHome::new();
    let help = home.run(&["run", ",help"]).ok();
    assert!(help.starts_with("Commands use ',' at line start.\n"), "{help}");
    let examples: Vec<_> = help.lines().skip(2).map_while(|it| it.strip_prefix("  ")).collect();
    assert!(examples.len() >= 10, "{help}");
    for example in examples {
        home.run(&["run", example]);
        let last = home.tape_lines().pop().unwrap();
        let data = &last["payload"]["data"];
        let name = example.trim_start_matches(',').split(' ').next().unwrap();
        // A tape that was reset begins anew, with the command as its last entry.
        assert_eq!((&data["name"], &data["raw"]), (&name.into(), &example[1..].into()), "{example}");
        let output = data["output"].as_str().unwrap();
        assert!(!output.contains("validation failed") && !output.contains("code 127"), "{example}: {output}");
    }
}

#[test]
fn a_failed_command_says_the_causes_own_words() {
    let home = TestHome::new();
    home.write("t.txt", "abc");
    let err = home.run(&["run", ",fs.edit path=t.txt old=x new=y"]).failed(1);
    assert!(err.starts_with("error: fs.edit: 'x' not found in ") && !err.contains("hint"), "{err}");
    let err = home.run(&["run", ",fs.edit path=t.txt old=' abc' new=y"]).failed(1);
    assert!(err.contains("\nhint: a text that differs only in white space begins in line 0"), "{err}");
    let err = home.run(&["run", ",exit 7"]).failed(1);
    assert_eq!(err, "error: exit: command exited with code 7\noutput:\n(no output)\n");
}

#[test]
fn a_byte_order_mark_is_no_part_of_what_is_piped_in() {
    let home = TestHome::new();
    assert_eq!(home.run_with(&["run"], b"\xef\xbb\xbf,echo hi\r\n").ok(), "hi\n");
    assert!(home.run_with(&["run", "-"], b"\xef\xbb\xbf\n").failed(2).contains("is empty"));
}

#[test]
fn another_workspace_is_worked_in_by_an_option() {
    let home = TestHome::new();
    let other = tempfile::tempdir().unwrap();
    let path = other.path().canonicalize().unwrap();
    let out = home.run(&["--workspace", path.to_str().unwrap(), "run", ",pwd"]).ok();
    assert_eq!(out.trim_end(), path.to_str().unwrap());
    let err = home.run(&["-w", "no/such/folder", "run", ",pwd"]).failed(2);
    assert!(err.starts_with("error: workspace ") && err.contains("No such file"), "{err}");
    home.write("file", "");
    assert!(home.run(&["-w", "file", "run", ",pwd"]).failed(2).contains("ot a directory"));
}

#[test]
fn usage_mistakes_exit_with_2_and_help_with_0() {
    let home = TestHome::new();
    assert!(home.run(&["run", "--nope"]).failed(2).contains("--nope"));
    assert!(home.run(&["frobnicate"]).failed(2).contains("frobnicate"));
    assert!(home.run(&["run", "--output", "xml", "x"]).failed(2).contains("stream-json"));
    for args in [["run", ""], ["run", "  \n"]] {
        assert_eq!(home.run(&args).failed(2), "error: the message is empty\n");
    }
    for option in ["--session-id", "--model", "--reasoning-effort"] {
        assert!(home.run(&["run", option, "", "x"]).failed(2).contains(option));
    }
    assert!(home.run(&["run", "--help"]).ok().contains("Exit codes"));
    assert!(home.run(&["--version"]).ok().starts_with("bub 0."));
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.run(&["completions", shell]).ok().contains("bub"));
    }
    // None of this needs a home folder.
    assert!(!crate::home::exists(&home.home()));
}

#[test]
fn tools_and_hooks_are_listed() {
    let home = TestHome::new();
    let tools = home.run(&["tools"]).ok();
    let names: Vec<_> = tools.lines().map(|it| it.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect();
    expect![[r#"
        run_code direct
        attach_image code
        attach_audio code
        attach_video code
        code_mode command
        spill.read direct
        bash direct
        bash.output direct
        bash.kill direct
        fs.read direct
        fs.write direct
        fs.edit direct
        skill auto
        tool.describe direct
        tape.info auto
        tape.search auto
        tape.reset auto
        tape.handoff auto
        tape.anchors auto
        web.fetch auto
        subagent auto
        help command
        quit command
        model command
        reasoning_effort command"#]]
    .assert_eq(&names.join("\n"));
    assert!(
        home.run(&["tools", "--json"]).ok().lines().all(|it| serde_json::from_str::<serde_json::Value>(it).is_ok())
    );
    expect![[r#"
        load_state: builtin (gathered)
        begin_turn: skills, describe (gathered)
        choose_tools: skills, describe, codemode (chained)
        system_prompt: builtin (gathered)
        notices: shells (gathered)
        before_model: images (chained)
        after_tool: spill, describe (chained)
        context_window: context (asked)
        close: shells (observed)
    "#]]
    .assert_eq(&home.run(&["hooks"]).ok());
    let json = home.run(&["hooks", "--json"]).ok();
    assert!(json.contains(r#"{"hook":"system_prompt","composition":"gathered","names":["builtin"]}"#), "{json}");
}

#[test]
fn r137_files_are_for_their_owner_alone() {
    let home = TestHome::new();
    home.run(&["run", ",echo hi"]).ok();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.home()), 0o700);
    assert_eq!(mode(&home.home().join("tapes")), 0o700);
    assert_eq!(mode(&home.tape_file()), 0o600);
}

#[test]
fn nothing_configured_and_a_message_says_what_to_do() {
    let home = TestHome::new();
    let err = home.run(&["run", "hello"]).failed(2);
    expect![[r#"
        error: no model to run: set a model as provider:model
        hint: set one with BUB_MODEL=provider:model and BUB_API_KEY, or under `model` in ~/.bub/config.yml; tools and shell commands work without one: bub run ',help'
    "#]]
    .assert_eq(&err);
}

#[test]
fn a_home_that_cannot_be_written_is_a_clear_error() {
    let home = TestHome::new();
    home.write("file", "");
    let home = {
        let path = home.workspace().join("file/bub");
        home.var("BUB_HOME", path.to_str().unwrap())
    };
    let err = home.run(&["run", ",echo hi"]).failed(1);
    assert!(err.starts_with("error: ") && err.contains("file/bub"), "{err}");
}
