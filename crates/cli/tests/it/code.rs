//! Code mode as a person and a model use it: real processes, a model server on loopback.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    time::Instant,
};

use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::home::{PATIENCE, Ran, TestHome, end_of};

const RUNNERS: [&str; 2] = ["process", "sandbox"];

fn shown(request: &bub_testing::Request) -> Vec<String> {
    let tools = request.body["tools"].as_array().unwrap();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_in_code_mode_runs_code_that_gathers_tools() {
    for runner in RUNNERS {
        let server = ModelServer::start();
        let code = "import asyncio\n\
                    info, found = await asyncio.gather(tools.tape_info(), tools.tape_search(query='needle'))\n\
                    print(info['name'], found['matches'] == [])\n\
                    try:\n    await tools.tape_handoff(bogus=1)\n\
                    except BubError as err:\n    print('BubError', err)\n";
        server.reply(Reply::calls([("c1", "run_code", json!({"code": code}))])).reply(Reply::text("done"));
        let home = TestHome::with_model(&server).var("BUB_CODE_RUNNER", runner);
        assert_eq!(
            home.run(&["run", ",code_mode enable=true"]).ok(),
            "Session code mode enabled (applies from the next turn).\n"
        );
        assert_eq!(home.run(&["run", "look for the needle"]).ok(), "done\n", "{runner}");
        server.assert_no_violations();

        let chats = server.chats();
        let names = shown(&chats[0]);
        assert_eq!(names[0], "run_code");
        assert!(names.iter().any(|it| it == "fs_read") && !names.iter().any(|it| it == "tape_info"), "{names:?}");
        let system = chats[0].body["messages"][0]["content"].as_str().unwrap();
        let (_, block) = system.split_once("<code_mode>").unwrap();
        let path = block.split_whitespace().find(|it| it.contains("/codemode/")).unwrap().trim_end_matches(':');
        let stub = fs::read_to_string(path).unwrap();
        assert!(stub.contains("async def tape_info() -> ") && stub.contains("async def attach_image("), "{stub}");

        let result =
            chats[1].body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        let lines: Vec<_> = result.lines().collect();
        assert!(lines[0].contains("__") && lines[0].ends_with(" True"), "{runner}: {result}");
        assert!(
            lines[1].starts_with("BubError [invalid_input] Tool 'tape_handoff' argument validation failed."),
            "{result}"
        );
        assert!(lines[1].contains("'bogus' is not a parameter"), "{result}");
    }
}

#[test]
fn r111_a_failed_run_tells_the_model_what_was_printed() {
    for runner in RUNNERS {
        let server = ModelServer::start();
        server
            .reply(Reply::calls([("c1", "run_code", json!({"code": "print('step1')\n1/0"}))]))
            .reply(Reply::calls([(
                "c2",
                "run_code",
                json!({"code": "print('step2')\nwhile True: pass", "timeout_seconds": 1}),
            )]))
            .reply(Reply::text("done"));
        let home = TestHome::with_model(&server).var("BUB_CODE_RUNNER", runner);
        home.run(&["run", ",code_mode true"]).ok();
        let started = Instant::now();
        home.run(&["run", "go"]).ok();
        assert!(started.elapsed() < PATIENCE);
        let chats = server.chats();
        let result = |request: usize| -> Value {
            let message = chats[request].body["messages"].as_array().unwrap().last().unwrap().clone();
            serde_json::from_str(message["content"].as_str().unwrap()).unwrap()
        };
        let raised = result(1);
        assert_eq!(raised["message"], "Code raised ZeroDivisionError: division by zero", "{runner}");
        assert_eq!(raised["details"]["output"], "step1\n");
        assert!(raised["details"]["traceback"].as_str().unwrap().contains("line 2"), "{raised}");
        let late = result(2);
        assert_eq!(late["message"], "Code timed out after 1 seconds");
        assert_eq!(late["details"], json!({"output": "step2\n"}));
    }
}

#[test]
fn a_person_runs_code_by_a_command_in_and_outside_of_code_mode() {
    let home = TestHome::new();
    for runner in RUNNERS {
        let set = format!("code.runner={runner}");
        let run = |line: &str| home.run(&["--set", &set, "run", line]);
        assert_eq!(run(",run_code code=\"print(1 + 1)\"").ok(), "2\n", "{runner}");
        assert_eq!(run(",run_code 'print((await tools.tape_info())[\"anchors\"])'").ok(), "1\n", "{runner}");
        let err = run(",run_code code=\"print(0)\nraise ValueError(7)\"").failed(1);
        assert!(err.contains("ValueError: 7"), "{err}");
    }
}

#[test]
fn a_file_is_run_with_the_tools_and_its_calls_are_shown() {
    let home = TestHome::new();
    home.write(
        "flow.py",
        "# it's a \"workflow\"\nimport asyncio\nprint('start')\n\
         a, b = await asyncio.gather(tools.tape_info(), tools.tape_anchors())\nprint(b['anchors'])\n",
    );
    for runner in RUNNERS {
        let Ran { code, out, err } = home.run(&["code", "flow.py", "--runner", runner]);
        assert_eq!((code, out.as_str()), (Some(0), "start\n['session/start']\n"), "{runner}: {err}");
        assert!(err.contains("tape_info()") && err.contains("tape_anchors()"), "{err}");
        let quiet = home.run(&["code", "--quiet", "--runner", runner, "flow.py"]);
        assert_eq!(quiet.err, "");
        let piped = home.run_with(&["code", "-", "--runner", runner], b"print('piped')");
        assert_eq!(piped.ok(), "piped\n");
    }
}

#[test]
fn files_end_with_the_right_exit_code() {
    let home = TestHome::new();
    for runner in RUNNERS {
        home.write("bad.py", "print('before')\nx = 1\nraise KeyError('k')\n");
        let ran = home.run(&["code", "bad.py", "--runner", runner]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), "before\n"));
        assert!(ran.err.contains("line 3") && ran.err.contains("KeyError"), "{}", ran.err);
        home.write("loop.py", "print('on')\nwhile True: pass\n");
        let ran = home.run(&["code", "loop.py", "--runner", runner, "--timeout", "1"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), "on\n"));
        assert!(ran.err.contains("Code timed out after 1 seconds"), "{}", ran.err);
        home.write(
            "tools.py",
            "try:\n    await tools.bash(command='echo hi')\nexcept AttributeError:\n    print('none')\n",
        );
        assert_eq!(home.run(&["code", "tools.py", "--runner", runner]).ok(), "none\n");
        home.write("marked.py", b"\xef\xbb\xbfprint(1)\n");
        assert_eq!(home.run(&["code", "marked.py", "--runner", runner]).ok(), "1\n");
        home.write("tools.py", "print(await tools.bash(command='echo hi'))\n");
        assert_eq!(home.run(&["code", "tools.py", "--runner", runner, "--tools", "bash"]).ok(), "hi\n");
    }
    assert!(home.run(&["code", "missing.py"]).failed(2).contains("cannot read missing.py"));
    assert!(home.run(&["code", "."]).failed(2).contains("folder"));
    home.write("latin.py", b"print('\xff')");
    assert!(home.run(&["code", "latin.py"]).failed(2).contains("not UTF-8"));
    assert!(home.run(&["code"]).failed(2).contains("FILE"));
    assert!(home.run(&["code", "bad.py", "--runner", "magic"]).failed(2).contains("--runner"));
    assert!(home.run(&["code", "bad.py", "--tools", "nothing"]).failed(2).contains("nothing"));
}

#[test]
fn an_interrupt_stops_the_code() {
    for runner in RUNNERS {
        let home = TestHome::new();
        home.write("wait.py", "print('on')\nwhile True: pass\n");
        let mut child = home.command(&["code", "wait.py", "--runner", runner]).spawn().unwrap();
        // What is printed is seen at once, though the code goes on.
        let mut printed = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut printed).unwrap();
        assert_eq!(printed, "on\n");
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let ran = end_of(child);
        assert_eq!(ran.code, Some(130), "{}", ran.err);
    }
}

#[test]
fn the_stub_is_printed() {
    let home = TestHome::new();
    let stub = home.run(&["code", "--stub"]).ok();
    assert!(stub.contains("async def web_fetch(*, url: str") && !stub.contains("def bash("), "{stub}");
    let stub = home.run(&["code", "--stub", "--tools", "bash"]).ok();
    assert!(stub.contains("async def bash(") && !stub.contains("web_fetch"), "{stub}");
}

#[test]
fn a_python_that_is_missing_is_told_or_made_up_for() {
    let home = TestHome::new().var("BUB_PYTHON", "no-such-python");
    home.write("one.py", "print(1)\n");
    assert_eq!(home.run(&["code", "one.py"]).ok(), "1\n");
    let err = home.run(&["code", "one.py", "--runner", "process"]).failed(1);
    assert!(err.contains("no-such-python") && err.contains("code.runner"), "{err}");
}
