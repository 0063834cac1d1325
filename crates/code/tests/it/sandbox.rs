//! What only the sandbox does.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bub_code::sandbox::{SandboxLimits, SandboxOptions, SandboxRunner};
use bub_kernel::code::CodeError;
use serde_json::json;

use crate::kit::{Outcome, Subject};

/// The program of the workers; cargo builds it next to the tests.
static WORKER: LazyLock<PathBuf> = LazyLock::new(|| {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).unwrap();
    let worker = folder.join("examples").join("sandbox_worker");
    assert!(worker.is_file(), "{} is missing: build it with `cargo build -p bub-code --examples`", worker.display());
    worker
});

/// A runner with the usual limits.
pub(crate) fn subject() -> Subject {
    Marked::new(SandboxLimits::default()).subject
}

/// A runner whose workers can be told from those of other tests, by an argument that they ignore.
pub(crate) struct Marked {
    pub(crate) subject: Subject,
    mark: String,
}

impl Marked {
    pub(crate) fn new(limits: SandboxLimits) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("sandbox-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let options = SandboxOptions { program: WORKER.clone(), args: vec![mark.clone().into()], limits };
        Self { subject: Subject { runner: Arc::new(SandboxRunner::new(options)) }, mark }
    }

    /// The workers that live, with what `/proc` says of each.
    pub(crate) fn workers(&self) -> BTreeMap<u32, BTreeMap<String, String>> {
        let is_ours = |pid: u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&self.mark))
        };
        // The name first: until it has its own, a new process still shows the memory of this one.
        pids().into_iter().filter(|pid| is_ours(*pid)).filter_map(|pid| Some((pid, status(pid)?))).collect()
    }

    fn only_worker(&self) -> u32 {
        let workers = self.workers();
        assert_eq!(workers.len(), 1, "{workers:?}");
        *workers.keys().next().unwrap()
    }
}

/// All processes, with what `/proc` says of each.
pub(crate) fn processes() -> BTreeMap<u32, BTreeMap<String, String>> {
    pids().into_iter().filter_map(|pid| Some((pid, status(pid)?))).collect()
}

fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn status(pid: u32) -> Option<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Some(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

fn died(outcome: &Outcome) -> (Option<i32>, &str) {
    match &outcome.end {
        Some(Err(CodeError::Runner { exit_code, stderr, .. })) => (*exit_code, stderr),
        other => panic!("expected a dead worker, found {other:?}"),
    }
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn worker_is_reused_and_nothing_stays_in_it() {
    let marked = Marked::new(SandboxLimits::default());
    marked.subject.prints("import math\nx = 1\nBubError = 3\nprint(x)", "1\n").await;
    let pid = marked.only_worker();
    marked.subject.raises("print(x)", "NameError", "'x'").await;
    marked.subject.raises("print(math)", "NameError", "'math'").await;
    let code = "try:\n    await tools.fail()\nexcept BubError as err:\n    print(err)";
    marked.subject.prints(code, "[not_found] no such thing\n").await;
    marked.subject.prints("tools.zzz = 1\nprint(tools.zzz)", "1\n").await;
    marked.subject.raises("print(tools.zzz)", "AttributeError", "zzz").await;
    assert_eq!(marked.only_worker(), pid);
}

#[tokio::test]
async fn worker_that_dies_is_replaced_and_what_was_printed_stays() {
    let marked = Marked::new(SandboxLimits { memory: 32 << 20, ..SandboxLimits::default() });
    for _ in 0..2 {
        let outcome =
            marked.subject.run("print('before')\nx = ('x' * 10**5).join(['y'] * 10**6)\nprint('after')").await;
        let (code, stderr) = died(&outcome);
        assert_eq!((outcome.output.as_str(), code), ("before\n", Some(65)), "{stderr}");
        assert!(stderr.contains("memory limit"), "{stderr}");
        marked.subject.prints("print('next')", "next\n").await;
    }
}

#[tokio::test]
async fn worker_killed_from_outside_is_reported_with_its_signal() {
    let marked = Marked::new(SandboxLimits::default());
    marked.subject.prints("", "").await;
    let pid = marked.only_worker().to_string();
    // One that dies while it is idle is not noticed at all.
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    wait_until("the worker ends", || marked.workers().values().all(|status| status["State"].starts_with('Z'))).await;
    marked.subject.prints("print(1)", "1\n").await;
    let kill = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let pid =
            marked.workers().into_iter().find(|(_, status)| !status["State"].starts_with('Z')).unwrap().0.to_string();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    };
    let (outcome, ()) = tokio::join!(marked.subject.run("print('x')\nwhile True: pass"), kill);
    assert_eq!((outcome.output.as_str(), died(&outcome).0), ("x\n", Some(-9)));
    marked.subject.prints("print('next')", "next\n").await;
}

#[tokio::test]
async fn program_that_cannot_start_or_is_no_worker_is_an_error() {
    for (program, part) in [("/nonexistent/bub", "cannot start"), ("/bin/true", "ended"), ("/bin/cat", "frame")] {
        let options = SandboxOptions { program: program.into(), args: Vec::new(), limits: SandboxLimits::default() };
        let subject = Subject { runner: Arc::new(SandboxRunner::new(options)) };
        match subject.run("print(1)").await.end {
            Some(Err(CodeError::Runner { reason, .. })) => assert!(reason.contains(part), "{program}: {reason}"),
            other => panic!("{program}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn stop_kills_the_worker_at_once_and_the_next_run_gets_another() {
    let marked = Marked::new(SandboxLimits::default());
    for code in ["while True: pass", "await tools.never()", "sorted(range(10**9))"] {
        let outcome = marked.subject.run_for(code, Duration::from_millis(200)).await;
        assert!(outcome.end.is_none());
        let start = Instant::now();
        wait_until(code, || marked.workers().values().all(|status| status["State"].starts_with('Z'))).await;
        assert!(start.elapsed() < Duration::from_secs(5), "{code}: {:?}", start.elapsed());
        marked.subject.prints("print('next')", "next\n").await;
    }
}

#[tokio::test]
async fn runner_that_is_dropped_leaves_no_worker() {
    let marked = Marked::new(SandboxLimits::default());
    marked.subject.prints("print(1)", "1\n").await;
    assert_eq!(marked.workers().len(), 1);
    let Marked { subject, mark } = marked;
    drop(subject);
    let rest = Marked { mark, subject: self::subject() };
    wait_until("no worker is left", || rest.workers().values().all(|status| status["State"].starts_with('Z'))).await;
}

#[tokio::test]
async fn worker_ends_when_its_host_does() {
    // A host in a shell, whose end leaves the worker with nobody to read its output.
    let script = format!("sleep 0.3 | {} orphan-{}", WORKER.display(), std::process::id());
    let start = Instant::now();
    let status = tokio::process::Command::new("sh").args(["-c", &script]).status().await.unwrap();
    assert!(status.success() && start.elapsed() < Duration::from_secs(10), "{status} after {:?}", start.elapsed());
}

#[tokio::test]
async fn only_so_many_runs_have_a_worker_at_the_same_time() {
    let marked = Marked::new(SandboxLimits { workers: 2, ..SandboxLimits::default() });
    let codes = ["await tools.sleep(ms=100)\nprint(1)"; 5];
    let most = AtomicU32::new(0);
    let watch = async {
        for _ in 0..20 {
            // A look takes time: one worker may end and another start while it lasts.
            let (before, after) = (marked.workers(), marked.workers());
            let is_alive = |pid: &&u32| after.get(*pid).is_some_and(|status| !status["State"].starts_with('Z'));
            let alive = before.keys().filter(is_alive).count();
            most.fetch_max(u32::try_from(alive).unwrap(), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (outcomes, ()) =
        tokio::join!(futures::future::join_all(codes.iter().map(|code| marked.subject.run(code))), watch);
    assert!(outcomes.iter().all(|outcome| outcome.output == "1\n"));
    assert_eq!(most.into_inner(), 2);
}

#[tokio::test]
async fn worker_has_no_environment_and_gave_up_its_rights() {
    let marked = Marked::new(SandboxLimits::default());
    marked.subject.prints("print(1)", "1\n").await;
    let (pid, status) = marked.workers().pop_first().unwrap();
    assert_eq!(status["NoNewPrivs"], "1");
    if let Ok(variables) = std::fs::read(format!("/proc/{pid}/environ")) {
        assert!(variables.is_empty(), "{}", String::from_utf8_lossy(&variables));
    }
    if let Ok(folder) = std::fs::read_link(format!("/proc/{pid}/cwd")) {
        assert_eq!(folder, Path::new("/"));
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    for (name, value) in [("Max core file size", "0"), ("Max file size", "0"), ("Max open files", "16")] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(value), "{name}");
    }
}

#[tokio::test]
async fn limits_of_time_output_and_recursion_hold() {
    let marked = Marked::new(SandboxLimits {
        duration: Duration::from_millis(300),
        output: 1_000,
        recursion: 50,
        ..SandboxLimits::default()
    });
    let start = Instant::now();
    let outcome = marked.subject.raises("print('a')\nwhile True: pass", "TimeoutError", "time limit").await;
    assert_eq!(outcome.output, "a\n");
    let outcome = marked.subject.run("print('b')\nawait tools.never()").await;
    assert!(outcome.output == "b\n" && outcome.failure().contains("longer than 300ms"), "{}", outcome.failure());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let outcome =
        marked.subject.raises("while True: print('é' * 10)", "RuntimeError", "output limit of 1000 bytes").await;
    assert!(outcome.output.len() <= 1_000 && outcome.output.len() > 990, "{}", outcome.output.len());
    marked.subject.raises("def f(n): return n and f(n - 1)\nprint(f(20))\nf(100)", "RecursionError", "recursion").await;
}

#[tokio::test]
async fn tracebacks_show_lines_marks_and_repeats() {
    let subject = subject();
    let outcome = subject.raises("def f(a):\n    x = a + [0][a]\n\nf(5)", "IndexError", "out of range").await;
    let expected = "Traceback (most recent call last):\n  \
        File \"<run_code-00000000>\", line 4, in <module>\n    f(5)\n  \
        File \"<run_code-00000000>\", line 2, in f\n    x = a + [0][a]\n            ^^^^^^\n\
        IndexError: list index out of range\n";
    assert_eq!(outcome.traceback(), expected);
    let outcome = subject.raises("def f(n): return f(n + 1)\nf(0)", "RecursionError", "").await;
    assert!(
        outcome.traceback().contains("more times]") && outcome.traceback().lines().count() < 20,
        "{}",
        outcome.traceback()
    );
    let outcome = subject.raises("x = (1,\n  2", "SyntaxError", "").await;
    assert!(outcome.traceback().contains("line 2"), "{}", outcome.traceback());
}

#[tokio::test]
async fn hints_say_how_to_go_on() {
    let subject = subject();
    for (code, kind, hint) in [
        ("tools.add(a=1, b=2)['x']", "TypeError", "`await`"),
        ("tools.add(a=1, b=2).x", "AttributeError", "`await`"),
        ("await tools.fs_read(path='x')", "AttributeError", "'fs_read' (code cannot call a tool of that name"),
        (
            "import asyncio\nasyncio.get_event_loop()",
            "AttributeError",
            "module 'asyncio' has no attribute 'get_event_loop' (of asyncio",
        ),
        ("await tools.echo(value=tools.add(a=1, b=2))", "TypeError", "await"),
        (
            "tools.add(a=1, b=2)",
            "RuntimeError",
            "was called without await, so it did not run: write `await tools.add(...)`",
        ),
        ("import requests", "ModuleNotFoundError", "few modules"),
        ("open('x')", "PermissionError", "use a tool"),
        ("import os\nos.getenv('HOME')", "PermissionError", "no environment"),
        ("eval('1')", "NameError", "'eval'"),
        ("await tools.add(1, 2)", "TypeError", "keyword arguments only"),
    ] {
        let outcome = subject.raises(code, kind, hint).await;
        assert!(outcome.calls.is_empty(), "{code}");
    }
}

#[tokio::test]
async fn provided_modules_work_under_every_kind_of_import() {
    let subject = subject();
    for (code, expected) in [
        ("import asyncio as a\nprint(await a.gather(tools.add(a=1, b=1)))", "[2]\n"),
        ("from asyncio import gather\nprint(await gather(tools.add(a=1, b=1), tools.add(a=2, b=2)))", "[2, 4]\n"),
        ("def f():\n    import asyncio\n    return asyncio.gather(tools.add(a=1, b=1))\nprint(await f())", "[2]\n"),
        (
            "import asyncio\nasync def main():\n    return await asyncio.sleep(0.01, result=7)\nprint(asyncio.run(main()))",
            "7\n",
        ),
        (
            "import asyncio\nt = [asyncio.create_task(tools.add(a=i, b=0)) for i in (1, 2)]\nprint(await asyncio.gather(*t))",
            "[1, 2]\n",
        ),
        ("import tools\nprint(await tools.add(a=1, b=1))", "2\n"),
        ("from tools import add\nprint(await add(a=1, b=1))", "2\n"),
        ("import sys\nprint(__name__, sys.version_info[0])", "__run_code__ 3\n"),
        ("import json, re\nprint(json.loads('[1]'), re.sub('a', 'b', 'aa'))", "[1] bb\n"),
    ] {
        subject.prints(code, expected).await;
    }
}

#[tokio::test]
async fn republic_asks_models_and_shapes_what_they_say() {
    let subject = subject();
    let code = "import republic\n\
        from republic import get_model, user\n\
        from republic.decisions import Noul\n\
        image = republic.Image('image/png', data=b'abc')\n\
        answer = await get_model('a:b').chat([republic.system('s'), user('look', image)], temperature=0)\n\
        print(answer.text, answer.token_usage.input_tokens, answer.message.role, answer.message.text)\n\
        print((await get_model().chat('hello')).finish_reason)\n\
        print((await republic.get_embedding_model('e:m').embed('x')).vector)\n\
        print((await republic.get_embedding_model('e:m').embed_many(['x', 'y'])).vectors)\n\
        decision = await republic.get_decision_model().decide({'a': 1}, questions={'q': Noul('sure?', 'c')})\n\
        print(decision.answers['q']['noul'], decision.q['type'])";
    let outcome = subject.run(code).await;
    let expected = "an answer 3 assistant an answer\nstop\n[0.5, 1.0]\n[[0.5, 1.0], [0.5, 1.0]]\n0.75 noul\n";
    assert_eq!((outcome.output.as_str(), outcome.failure().as_str()), (expected, ""));
    let image = json!({"$republic": "image", "media_type": "image/png", "data": "YWJj", "url": null});
    let message = |role: &str, content| json!({"$republic": "message", "role": role, "content": content});
    assert_eq!(
        outcome.calls[0],
        (
            "republic.chat".to_owned(),
            json!({
                "spec": "a:b",
                "messages": [message("system", json!(["s"])), message("user", json!(["look", image]))],
                "options": {"temperature": 0},
            })
        )
    );
    assert_eq!(outcome.calls[1].1["messages"], json!([message("user", json!(["hello"]))]));
    assert_eq!(outcome.calls[1].1["spec"], json!(null));
    for (code, kind, part) in [
        ("republic.get_model().stream('x')", "NotImplementedError", "chat"),
        ("await republic.get_model().chat(3)", "TypeError", "takes text or republic messages"),
        ("republic.get_model(3)", "TypeError", "provider:model"),
        ("republic.Image('image/png')", "ValueError", "data or url"),
        ("republic.Image(data=b'x')", "TypeError", "media_type"),
        ("republic.Image('a', b'b', None, 4)", "TypeError", "at most 3"),
        ("republic.Image('a', x=1)", "TypeError", "unexpected keyword argument 'x'"),
        ("republic.nothing", "AttributeError", "nothing"),
    ] {
        subject.raises(&format!("import republic\n{code}"), kind, part).await;
    }
}

#[tokio::test]
async fn media_from_tools_are_objects_and_go_back_as_they_came() {
    let subject = subject();
    let code = "import republic\n\
        image = await tools.echo(value=republic.Image(media_type='image/png', url='http://x/y.png'))\n\
        print(isinstance(image, republic.Image), image.media_type, image.url, image.data)\n\
        await tools.add(a=1, b=2, c=[image])";
    let outcome = subject.run(code).await;
    assert_eq!((outcome.output.as_str(), outcome.failure()), ("True image/png http://x/y.png None\n", String::new()));
    let image = json!({"$republic": "image", "media_type": "image/png", "data": null, "url": "http://x/y.png"});
    assert_eq!(outcome.calls[1].1["c"], json!([image]));
}

#[tokio::test]
async fn clock_is_told_and_nothing_else_of_the_system() {
    let subject = subject();
    let outcome = subject.run("import datetime\nprint(datetime.datetime.now(datetime.timezone.utc).isoformat())").await;
    let told: jiff::Timestamp = outcome.output.trim().parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(told).abs() < jiff::SignedDuration::from_secs(60));
}

#[tokio::test]
async fn printed_text_is_never_held_back() {
    let subject = subject();
    for code in ["print('a', end='')\nwhile True: pass", "print('a')\nawait tools.never()"] {
        let outcome = subject.run_for(code, Duration::from_secs(2)).await;
        assert!(outcome.end.is_none());
        assert_eq!(outcome.output.trim(), "a", "{code}");
        assert!(outcome.stamps[0].0 < Duration::from_millis(1_800), "{:?}", outcome.stamps);
    }
}
