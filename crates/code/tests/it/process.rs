//! What only Python in a process does.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use bub_code::process::{ProcessOptions, ProcessRunner};
use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::code::{CodeError, CodeRunner};
use tempfile::TempDir;

use crate::kit::{Outcome, Subject};

/// The interpreter itself, rather than a script that looks for it.
static PYTHON: LazyLock<String> = LazyLock::new(|| {
    let found = std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(found.expect("python3 is installed").stdout).unwrap().trim().to_owned()
});

/// A runner without a workspace.
pub(crate) fn subject() -> Subject {
    Subject { runner: Arc::new(runner(&PYTHON, None)) }
}

fn runner(python: &str, workspace: Option<PathBuf>) -> ProcessRunner {
    let env = Arc::new(LocalEnvironment::new(LocalOptions { workspace, ..LocalOptions::default() }).unwrap());
    ProcessRunner::new(ProcessOptions {
        python: python.to_owned(),
        max_memory: Some(1 << 30),
        ..ProcessOptions::new(env)
    })
}

async fn run(code: &str) -> Outcome {
    subject().run(code).await
}

async fn check(code: &str, expected: &str) {
    subject().prints(code, expected).await;
}

/// A workspace, and a runner in it.
fn in_workspace(files: &[(&str, &str)]) -> (TempDir, Subject) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let runner = runner(&PYTHON, Some(folder.path().to_owned()));
    (folder, Subject { runner: Arc::new(runner) })
}

/// Waits until the file at `path` stops growing, and fails when it never does.
async fn assert_stops_growing(path: &Path) {
    let size = || std::fs::metadata(path).map_or(0, |it| it.len());
    let before = size();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(size(), before, "something still writes to {}", path.display());
}

/// Starts children that write a dot each 20 ms: one in the group, one in a session of its own, one whose parent ended.
const DAEMONS: &str = "import subprocess\n\
    loop = 'while true; do printf . >> dots; sleep 0.02; done'\n\
    subprocess.Popen(['sh', '-c', loop])\n\
    subprocess.Popen(['sh', '-c', loop], start_new_session=True)\n\
    subprocess.run(['sh', '-c', f'setsid sh -c \"{loop}\" >/dev/null 2>&1 &'])\n\
    import time\ntime.sleep(0.2)\nprint('started')\n";

#[tokio::test]
async fn children_are_killed_when_the_code_ends() {
    let (folder, subject) = in_workspace(&[]);
    subject.prints(DAEMONS, "started\n").await;
    assert!(folder.path().join("dots").exists());
    assert_stops_growing(&folder.path().join("dots")).await;
    let outcome = subject.raises(&format!("{DAEMONS}1/0"), "ZeroDivisionError", "").await;
    assert_eq!(outcome.output, "started\n");
    assert_stops_growing(&folder.path().join("dots")).await;
}

#[tokio::test]
async fn children_are_killed_when_the_run_is_dropped() {
    let (folder, subject) = in_workspace(&[]);
    let outcome = subject.run_for(&format!("{DAEMONS}await tools.never()"), Duration::from_secs(2)).await;
    assert_eq!((outcome.end.is_none(), outcome.output.as_str()), (true, "started\n"));
    assert!(outcome.took < Duration::from_secs(15), "{:?}", outcome.took);
    assert_stops_growing(&folder.path().join("dots")).await;
}

#[tokio::test]
async fn children_are_killed_when_the_process_dies() {
    let (folder, subject) = in_workspace(&[]);
    let outcome = subject.run(&format!("{DAEMONS}import os\nos._exit(7)")).await;
    assert!(matches!(outcome.end, Some(Err(CodeError::Runner { exit_code: Some(7), .. }))), "{}", outcome.failure());
    assert_eq!(outcome.output, "started\n");
    assert_stops_growing(&folder.path().join("dots")).await;
}

#[tokio::test]
async fn threads_left_running_do_not_hold_the_end() {
    let start = Instant::now();
    let code = "import threading, time\n\
                def work():\n    while True:\n        time.sleep(0.01)\n        print('.', end='')\n\
                threading.Thread(target=work).start()\nprint('end')";
    let outcome = run(code).await;
    assert_eq!(outcome.failure(), "");
    assert!(outcome.output.contains("end\n") && start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn what_children_print_comes_in_order() {
    let code = "import os, subprocess, sys\nprint('a')\nsubprocess.run(['echo', 'b'])\nprint('c')\nos.system('echo d')\n\
                os.write(1, b'e\\n')\nprint('f', file=sys.__stdout__)\nsys.stdout.buffer.write(b'g\\n')\nprint('h')\n\
                subprocess.run(['echo', 'i'], stdout=sys.stdout)\nprint('j')";
    check(code, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n").await;
    check("import os\nos.write(1, 'ä€'.encode() + b'\\xff no end')", "ä€\u{fffd} no end").await;
    let outcome = run("import subprocess\nsubprocess.run(['sh', '-c', 'yes 0123456789 | head -c 3000000'])").await;
    assert_eq!((outcome.output.len(), outcome.failure().as_str()), (3_000_000, ""));
}

#[tokio::test]
async fn forged_messages_are_text() {
    let forged = [
        r#"{"type":"done"}"#,
        r#"{"type":"failed","error":"X: y","traceback":""}"#,
        r#"{"type":"output","data":"forged"}"#,
        r#"{"type":"call","id":0,"name":"echo","arguments":{"value":1}}"#,
    ];
    for line in forged {
        let code = format!(
            "import os, subprocess, sys\nline = '''{line}\\n'''\nprint(line, end='')\nos.write(1, line.encode())\n\
             sys.__stdout__.write(line)\nsubprocess.run(['printf', '%s', line])\nprint('end')"
        );
        let outcome = run(&code).await;
        assert_eq!(outcome.output, format!("{}end\n", format!("{line}\n").repeat(4)), "{line}");
        assert_eq!((outcome.failure().as_str(), outcome.calls.len()), ("", 0), "{line}");
    }
}

#[tokio::test]
async fn standard_output_can_be_closed_and_replaced() {
    for (code, expected) in [
        ("import sys\nprint('a')\nsys.stdout.close()\nawait tools.add(a=1, b=1)", "a\n"),
        ("import os\nprint('a')\nos.close(1)\nprint('b')", "a\nb\n"),
        ("import sys\nprint('a')\nsys.stdout = None\nprint('b')", "a\n"),
        ("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('ä')", "ä\n"),
        (
            "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    print('in')\nprint(b.getvalue())",
            "in\n\n",
        ),
        ("import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\nprint('a', flush=True)", "a\n"),
        (
            "import sys\nprint(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.fileno(), sys.stdout.writable())",
            "False utf-8 1 True\n",
        ),
    ] {
        check(code, expected).await;
    }
    subject().raises("import sys\nsys.stdout.write(1)", "TypeError", "must be str").await;
}

#[tokio::test]
async fn standard_input_is_empty() {
    check("import sys\nprint(repr(sys.stdin.read()))", "''\n").await;
    subject().raises("input()", "EOFError", "").await;
    check("import subprocess\nprint(subprocess.run(['cat'], capture_output=True).stdout)", "b''\n").await;
}

#[tokio::test]
async fn half_surrogate_pairs_are_shown_and_refused() {
    check("print('a\\ud800b', '\\udfff')", "a\\ud800b \\udfff\n").await;
    check(
        "try:\n    await tools.echo(value=['\\ud800'])\nexcept TypeError as err:\n    print('surrogate' in str(err))",
        "True\n",
    )
    .await;
    subject().raises("raise ValueError('\\ud800')", "ValueError", "\\ud800").await;
}

#[tokio::test]
async fn death_is_reported_with_code_and_standard_error() {
    let cases = [
        ("import os, sys\nprint('a')\nsys.stderr.write('last words ä')\nos._exit(3)", 3, "last words ä"),
        ("import os\nprint('a')\nawait tools.add(a=1, b=1)\nos.kill(os.getpid(), 9)", -9, ""),
        ("print('a')\nraise KeyboardInterrupt('stop')", -2, "KeyboardInterrupt: stop"),
        ("print('a')\nraise BaseException('odd')", 1, "BaseException: odd"),
        (
            "import os, sys, time\nprint('a', flush=True)\nsys.stderr.write('x' * 1000000 + 'END')\nos._exit(1)",
            1,
            "END",
        ),
    ];
    for (code, expected, words) in cases {
        let outcome = run(code).await;
        let Some(Err(CodeError::Runner { reason, exit_code, stderr })) = outcome.end else {
            panic!("{code}: {:?}", outcome.end)
        };
        assert_eq!(
            (reason.as_str(), exit_code),
            ("the Python process ended before the code did", Some(expected)),
            "{code}"
        );
        assert!(stderr.ends_with(words) || stderr.trim_end().ends_with(words), "{code}: {stderr}");
        assert!(stderr.len() < 70_000);
    }
    // What was printed the moment before is not lost.
    for (print, expected) in [("print('a')", "a\n"), ("print('a', end='')", "a"), ("print(*range(20000))", "")] {
        let outcome = run(&format!("import os\n{print}\nos.kill(os.getpid(), 9)")).await;
        assert!(!outcome.output.is_empty() && outcome.output.ends_with(expected), "{print}: {}", outcome.output);
    }
}

#[tokio::test]
async fn standard_error_of_code_that_ends_is_discarded() {
    check("import sys\nsys.stderr.write('x' * 1000000)\nprint('ok')", "ok\n").await;
}

#[tokio::test]
async fn exits_are_raised() {
    for (code, error) in [
        ("import sys\nsys.exit(42)", "SystemExit: 42"),
        ("exit()", "SystemExit"),
        ("import sys\nsys.exit('why')", "SystemExit: why"),
        ("import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(3)", "SystemExit: 3"),
        ("import asyncio\nraise asyncio.CancelledError('x')", "CancelledError: x"),
        ("assert False", "AssertionError"),
        ("class Mine(Exception):\n    pass\nraise Mine('m')", "Mine: m"),
    ] {
        let outcome = run(code).await;
        match &outcome.end {
            Some(Err(CodeError::Raised { error: found, .. })) => assert_eq!(found, error, "{code}"),
            other => panic!("{code}: {other:?}"),
        }
        let last = outcome.traceback().lines().last().unwrap_or_default();
        assert!(last.starts_with(error) || last.ends_with(error), "{code}: {}", outcome.traceback());
    }
}

#[tokio::test]
async fn tracebacks_have_frames_of_the_code_alone() {
    let code =
        "import json\ntry:\n    json.loads('{')\nexcept ValueError as err:\n    raise RuntimeError('outer') from err";
    let outcome = subject().raises(code, "RuntimeError", "outer").await;
    let text = outcome.traceback();
    assert!(text.contains("line 3") && text.contains("line 5") && text.contains("direct cause"), "{text}");
    assert!(!text.contains("json/") && !text.contains("<runner>") && text.contains("json.loads('{')"), "{text}");
    let code = "import traceback\ntry:\n    1/0\nexcept Exception:\n    print(traceback.format_exc())";
    assert!(run(code).await.output.contains("    1/0\n"));
    // Errors that resist being described.
    let code = "class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad()";
    subject().raises(code, "Bad", "no text").await;
    let outcome = subject().raises("raise ValueError('x' * 1000000)", "ValueError", "left out").await;
    assert!(outcome.failure().len() < 300_000);
    let notes = subject().raises("await tools.fail(message='gone')", "BubError", "gone").await;
    assert!(notes.traceback().ends_with("called as tools.fail(message='gone')"), "{}", notes.traceback());
}

#[tokio::test]
async fn errors_of_tools_are_of_a_class() {
    let code = "try:\n    await tools.fail(message='x')\nexcept BubError as err:\n    \
                print(type(err).__name__, err, err.kind, err.tool)";
    check(code, "BubError [not_found] x not_found tools.fail\n").await;
}

#[tokio::test]
async fn event_loops_of_all_kinds_can_call() {
    for (code, expected) in [
        ("import asyncio\nasync def main():\n    print(await tools.add(a=1, b=1))\nasyncio.run(main())", "2\n"),
        ("import asyncio\nt = asyncio.create_task(tools.add(a=1, b=1))\nprint(await t)", "2\n"),
        (
            "import asyncio\nasync with asyncio.timeout(5) if hasattr(asyncio, 'timeout') else asyncio.Lock():\n    print(await tools.add(a=1, b=1))",
            "2\n",
        ),
        (
            "import asyncio\nfor f in asyncio.as_completed([tools.sleep(ms=60), tools.sleep(ms=10)]):\n    print(await f)",
            "10\n60\n",
        ),
        ("import asyncio\nprint(await asyncio.to_thread(lambda: asyncio.run(tools.add(a=1, b=1))))", "2\n"),
        (
            "x = tools.add(a=1, b=1)\nprint(await x)\ntry:\n    await x\nexcept RuntimeError as err:\n    print('again' in str(err))",
            "2\nTrue\n",
        ),
        (
            "async def numbers():\n    for i in range(2):\n        yield await tools.add(a=i, b=0)\nasync for n in numbers():\n    print(n)",
            "0\n1\n",
        ),
        (
            "from contextlib import asynccontextmanager\n@asynccontextmanager\nasync def c():\n    yield await tools.add(a=1, b=1)\nasync with c() as n:\n    print(n)",
            "2\n",
        ),
        ("if 1:\n    import asyncio, json\nprint(await asyncio.gather(tools.add(a=1, b=1)))", "[2]\n"),
        (
            "import asyncio\nasync def late():\n    try:\n        await asyncio.sleep(100)\n    finally:\n        print('cleaned up')\nt = asyncio.create_task(late())\nawait asyncio.sleep(0.01)\nprint('end')",
            "end\ncleaned up\n",
        ),
    ] {
        if code.contains("to_thread") {
            // `asyncio.run` takes coroutines only, in some versions only those of the language.
            let code = code.replace("asyncio.run(tools.add(a=1, b=1))", "asyncio.run(go())");
            check(
                &code.replace(
                    "import asyncio\n",
                    "import asyncio\nasync def go():\n    return await tools.add(a=1, b=1)\n",
                ),
                expected,
            )
            .await;
        } else {
            check(code, expected).await;
        }
    }
}

#[tokio::test]
async fn calls_that_the_code_gives_up_are_dropped() {
    let code = "import asyncio\ntry:\n    await asyncio.wait_for(tools.never(), 0.1)\nexcept asyncio.TimeoutError:\n    print('gave up')\n\
                print(await tools.add(a=1, b=1))";
    let outcome = run(code).await;
    assert_eq!((outcome.output.as_str(), outcome.failure().as_str()), ("gave up\n2\n", ""));
    assert_eq!((outcome.count("never"), outcome.n_dropped), (1, 1));
}

#[tokio::test]
async fn a_forked_process_prints_and_cannot_call() {
    let code = "import os\npid = os.fork()\nif pid == 0:\n    print('child')\n    try:\n        await tools.add(a=1, b=1)\n    \
                except BubError as err:\n        print(err)\nelse:\n    os.waitpid(pid, 0)\n    print('parent', await tools.add(a=1, b=1))";
    check(code, "child\na process that the code forked cannot call tools\nparent 2\n").await;
    let code = "import multiprocessing\ndef square(n):\n    print('worker', flush=True)\n    return n * n\n\
                with multiprocessing.get_context('fork').Pool(1) as pool:\n    print(pool.map(square, [3]))";
    check(code, "worker\n[9]\n").await;
}

#[tokio::test]
async fn modules_of_the_workspace_can_be_imported_and_shadow_nothing_of_the_runner() {
    let broken = "raise RuntimeError('the wrong module')";
    let (_folder, subject) = in_workspace(&[
        ("helper.py", "VALUE = 5"),
        ("select.py", broken),
        ("json.py", broken),
        ("_json.py", broken),
        ("traceback.py", broken),
        ("signal.py", broken),
        ("difflib.py", "def get_close_matches(*args): return []"),
    ]);
    subject.prints("import helper\nprint(helper.VALUE, await tools.add(a=1, b=1))", "5 2\n").await;
    subject.raises("1/0", "ZeroDivisionError", "").await;
    let (folder, subject) = in_workspace(&[]);
    let expected = folder.path().canonicalize().unwrap();
    subject.prints("import os\nprint(os.getcwd())", &format!("{}\n", expected.display())).await;
}

#[tokio::test]
async fn globals_are_those_of_a_module() {
    for (code, expected) in [
        ("print(__name__)", "__run_code__\n"),
        ("print(sorted(k for k in globals() if not k.startswith('__')))", "['BubError', 'republic', 'tools']\n"),
        (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))",
            "A(x=1)\n",
        ),
        ("import pickle\nclass A:\n    pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", "True\n"),
        ("print('add' in dir(tools), hasattr(tools, 'add'), hasattr(tools, 'nothing'))", "True True False\n"),
        ("print(__builtins__ is not None, len('abc'))", "True 3\n"),
    ] {
        check(code, expected).await;
    }
    let outcome = subject().raises("tools.ech(value=1)", "AttributeError", "did you mean echo?").await;
    assert!(outcome.traceback().contains("line 1"));
}

#[tokio::test]
async fn memory_is_limited() {
    for code in ["x = bytearray(2 * 1024 ** 3)", "x = 'a'\nwhile 1: x += x", "x = [0] * 10**10"] {
        subject().raises(code, "MemoryError", "").await;
    }
    check("try:\n    bytearray(2 * 1024 ** 3)\nexcept MemoryError:\n    print('caught')", "caught\n").await;
}

#[tokio::test]
async fn r111_text_is_sent_while_the_code_is_busy() {
    let outcome = run("import time\nprint('one')\ntime.sleep(0.8)\nprint('two')").await;
    let at = |text: &str| outcome.stamps.iter().find(|it| it.1.contains(text)).unwrap().0;
    assert!(at("two") - at("one") >= Duration::from_millis(300), "{:?}", outcome.stamps);
}

#[tokio::test]
async fn the_models_module_is_there() {
    for (code, expected) in [
        (
            "import republic\nfrom republic import Image, user\nfrom republic.events import TextDelta\nimport republic.decisions as d\nprint(d.Noul.__name__, TextDelta.__name__, republic.events.TextDelta is TextDelta)",
            "Noul TextDelta True\n",
        ),
        (
            "print(republic.Image('image/png', data=b'ab').data_url, republic.Image('image/png', b'x') == republic.Image('image/png', b'x'))",
            "data:image/png;base64,YWI= True\n",
        ),
        (
            "r = await republic.get_model().chat('hi')\nprint(r.text, r.token_usage.total_tokens, r.message.role, r.message.text)",
            "an answer 7 assistant an answer\n",
        ),
        (
            "async with republic.get_model('a:b').stream('hi') as s:\n    async for e in s:\n        print(type(e).__name__, end=' ')\nprint(s.text, s.reasoning, s.token_usage.output_tokens)",
            "TextDelta ReasoningDelta TextDelta UsageDelta OtherEvent Completed an answer hm 2\n",
        ),
        (
            "e = await republic.get_embedding_model('a:b').embed('x')\nprint(e.vector)\nprint(len((await republic.get_embedding_model('a:b').embed_many(['x', 'y'])).vectors))",
            "[0.5, 1.0]\n2\n",
        ),
        (
            "from republic.decisions import Noul\nd = await republic.get_decision_model('a:b').decide({'x': 1}, questions={'ok': Noul('is it?')})\nprint(d.answers['ok'].noul, d.answers.ok.noul, d.ok.type)",
            "0.75 0.75 noul\n",
        ),
        ("async with republic.get_model() as m:\n    print(m)", "ChatModel(None)\n"),
        (
            "m = await tools.echo(value=[republic.user('a', republic.Image('image/png', b'x'))])\nprint(m[0].role, m[0].content[1] == republic.Image('image/png', b'x'))",
            "user True\n",
        ),
        (
            "for bad in (lambda: republic.Image('image/png'), lambda: republic.Image('image/png', b'', 'u'), lambda: republic.Nothing):\n    try:\n        bad()\n    except (ValueError, AttributeError) as err:\n        print(type(err).__name__)",
            "ValueError\nValueError\nAttributeError\n",
        ),
    ] {
        check(code, expected).await;
    }
    let outcome = run("await republic.get_model('p:m').chat([republic.system('s'), 'u'], temperature=0)").await;
    let expected = serde_json::json!({
        "spec": "p:m",
        "messages": [
            {"$republic": "message", "role": "system", "content": ["s"]},
            {"$republic": "message", "role": "user", "content": ["u"]},
        ],
        "options": {"temperature": 0},
    });
    assert_eq!(outcome.calls, [("republic.chat".to_owned(), expected)]);
    subject()
        .raises("await republic.get_model().chat(5)", "TypeError", "chat() takes text or republic messages.")
        .await;
}

#[tokio::test]
async fn a_missing_python_is_a_clear_error() {
    for python in ["no-such-python", "/no/such/python"] {
        let subject = Subject { runner: Arc::new(runner(python, None)) };
        let outcome = subject.run("print(1)").await;
        let Some(Err(CodeError::Runner { reason, exit_code: None, .. })) = outcome.end else {
            panic!("{:?}", outcome.end)
        };
        assert_eq!(
            reason,
            format!("no Python is called '{python}' here: install Python 3.9 or newer, or name one in the settings")
        );
    }
}

/// A program that stands in for an interpreter.
fn stand_in(script: &str) -> (TempDir, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python3");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[tokio::test]
async fn an_old_python_is_a_clear_error() {
    // The program given to it runs, but says that it is of another version.
    let patched = r#"exec "$REAL" -u -c "import sys; sys.version_info = (3, 8, 18); exec(sys.argv[1])" "$3""#;
    let (_folder, python) = stand_in(&patched.replace("$REAL", &PYTHON));
    let runner = runner(&python, None);
    let expected = format!("Python 3.9 or newer is needed, and '{python}' is 3.8.18");
    for end in [runner.version().await.map(drop), run_on(&runner).await] {
        match end {
            Err(CodeError::Runner { reason, .. }) => assert_eq!(reason, expected),
            other => panic!("{other:?}"),
        }
    }
}

async fn run_on(runner: &ProcessRunner) -> Result<(), CodeError> {
    struct Nobody;
    #[async_trait::async_trait]
    impl bub_kernel::code::CodeHost for Nobody {
        async fn call_tool(
            &self,
            _: &str,
            _: serde_json::Value,
        ) -> Result<serde_json::Value, bub_kernel::error::ToolError> {
            Ok(serde_json::Value::Null)
        }
        fn write(&self, _: &str) {}
    }
    let request = bub_kernel::code::CodeRequest { code: "print(1)", filename: "<run_code-0>", tools: &[] };
    runner.run(request, &Nobody).await
}

#[tokio::test]
async fn a_program_that_is_no_python_is_an_error() {
    for (script, expected) in [
        ("exit 0", Some(0)),
        ("echo 'command not found' >&2; exit 127", Some(127)),
        ("cat >/dev/null; exit 4", Some(4)),
        ("exec 1>&-; sleep 100", Some(-9)),
    ] {
        let (_folder, python) = stand_in(script);
        let runner = runner(&python, None);
        if !script.starts_with("cat") {
            match run_on(&runner).await {
                Err(CodeError::Runner { exit_code, .. }) => assert_eq!(exit_code, expected, "{script}"),
                other => panic!("{script}: {other:?}"),
            }
        }
        assert!(runner.version().await.is_err(), "{script}");
    }
    let version = runner(&PYTHON, None).version().await.unwrap();
    assert!(version.starts_with("3."), "{version}");
}
