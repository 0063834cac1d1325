//! The environment of the settings: what runs there, who may provide another, and when it is closed.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bub::TurnOptions;
use bub_kernel::{
    environment::{EnvPath, Environment, EnvironmentError, OpenFile, Process, SpawnRequest},
    hooks::Hooks,
    message::Part,
    plugin::Registry,
    turn::SessionId,
};
use bub_testing::{NoEnvironment, Script};
use serde_json::json;

use crate::bench::{Bench, Folders, inbound, tape};

/// Folders with a place that is reached by a command, and what programs there are told.
fn folders() -> Folders {
    let folders = Folders::new();
    fs::create_dir(folders.path("there")).unwrap();
    let there = folders.path("there");
    let command = json!(["env", "-C", there, "WHERE=there", "HOME=/home/there", "sh", "-c", "exec \"$@\"", "sh"]);
    folders.var("BUB_ENVIRONMENT_EXEC", &command.to_string())
}

fn bench(scripts: impl IntoIterator<Item = Script>) -> Bench {
    folders().bench(scripts)
}

/// What the `idx`-th request says about `run_code`.
fn run_code(bench: &Bench, idx: usize) -> String {
    let requests = bench.model.requests();
    requests[idx].tools.iter().find(|it| it.name == "run_code").unwrap().description.clone()
}

#[tokio::test]
async fn commands_and_files_are_there() {
    let bench = bench([]);
    let there = bench.folders.path("there");
    assert_eq!(bench.say(",bash 'pwd; echo $WHERE; echo ~'").await, format!("{}\nthere\n/home/there", there.display()));
    bench.say(",fs.write path=sub/a.txt content='one two'").await;
    assert_eq!(fs::read_to_string(there.join("sub/a.txt")).unwrap(), "one two");
    assert_eq!(bench.say(",fs.read sub/a.txt").await, "one two");
    bench.say(",fs.edit path=sub/a.txt old=one new=1").await;
    assert_eq!(fs::read_to_string(there.join("sub/a.txt")).unwrap(), "1 two");
    assert_eq!(bench.say(",bash command='cat a.txt' cwd=sub").await, "1 two");
    let err = bench.fail(",fs.read none").await;
    assert!(err.contains("no such file or directory") && err.contains("/there/none"), "{err}");
    let text = bench.say(",bash 'sleep 30 & echo started'").await;
    assert!(text.starts_with("started\nbackground processes still running; shell_id: bsh-"), "{text}");
    assert!(!bench.folders.path("ws").join("sub").exists());
    bench.app.close().await;
}

#[tokio::test]
async fn the_workspace_of_the_settings_is_one_of_there() {
    let folders = folders();
    fs::create_dir(folders.path("other")).unwrap();
    let other = folders.path("other");
    let bench = folders
        .var("BUB_ENVIRONMENT_WORKSPACE", other.to_str().unwrap())
        .var("BUB_ENVIRONMENT_SHELL", "/bin/sh")
        .bench([]);
    assert_eq!(bench.say(",bash 'pwd; echo ${BASH_VERSION:-plain} $0'").await.lines().next(), other.to_str());
    bench.app.close().await;
}

#[tokio::test]
async fn code_and_its_media_are_there() {
    let bench = bench([
        Script::calls([(
            "c1",
            "run_code",
            json!({"code": "import os\nprint(os.getcwd(), os.environ['WHERE'])\nawait tools.attach_image(image='a.png')"}),
        )]),
        Script::text("seen"),
    ]);
    let there = bench.folders.path("there");
    fs::write(there.join("a.png"), [0, 1, 2]).unwrap();
    bench.say(",code_mode enable=true").await;
    assert_eq!(bench.say("look").await, "seen");
    assert!(bench.system(0).contains("```python"), "no file of there is named: {}", bench.system(0));
    assert!(run_code(&bench, 0).contains("Code runs in a Python 3"), "{}", run_code(&bench, 0));
    let requests = bench.model.requests();
    let parts: Vec<_> = requests[1].messages.iter().flat_map(|it| &it.parts).collect();
    let text = format!("{} there\n", there.display());
    assert!(parts.iter().any(|it| matches!(it, Part::Text(it) if *it == text)), "{parts:?}");
    assert!(parts.iter().any(|it| matches!(it, Part::Media(_))), "{parts:?}");
    bench.app.close().await;
}

#[tokio::test]
async fn processes_there_get_no_credentials() {
    let bench = folders().var("BUB_API_KEY", "sk-not-for-children").bench([]);
    // The process of the test has no such variable, so it is shown that the command is told to hide it.
    let hidden = bench.app.settings().child_variables(&bench.app.settings().secrets([])).hide;
    assert!(hidden.contains(&"BUB_API_KEY".to_owned()), "{hidden:?}");
    assert_eq!(bench.say(",bash 'env | grep -c API_KEY; true'").await, "0");
    assert_eq!(bench.say(",echo sk-not-for-children").await, "***");
    bench.app.close().await;
}

#[tokio::test]
async fn a_cancelled_turn_leaves_nothing_there() {
    let nap = "611.17";
    let script = format!("(setsid sleep {nap} >/dev/null 2>&1 &); echo on; sleep {nap}");
    let bench = bench([Script::calls([("c1", "bash", json!({"command": script}))])]);
    let running = || {
        let all = fs::read_dir("/proc").unwrap().filter_map(|it| fs::read(it.ok()?.path().join("cmdline")).ok());
        all.filter(|it| *it == format!("sleep\0{nap}\0").as_bytes()).count()
    };
    let mut stream = bench.app.runtime().turn(inbound("s", "go"), TurnOptions::default());
    while running() < 2 {
        tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap();
    }
    stream.cancel();
    stream.result().await.unwrap_err();
    let entries = tape(&bench.app, "s").await;
    assert!(entries.iter().any(|it| serde_json::to_string(&it.payload).unwrap().contains("aborted after")));
    bench.app.close().await;
    assert_eq!(running(), 0);
}

#[tokio::test]
async fn an_environment_that_is_not_there_is_said_where_it_is_needed() {
    let command = r#"["sh", "-c", "echo Error: no such box >&2; exit 1"]"#;
    let bench = Folders::new().var("BUB_ENVIRONMENT_EXEC", command).bench([
        Script::calls([("c1", "bash", json!({"command": "ls"})), ("c2", "fs_read", json!({"path": "a"}))]),
        Script::text("sorry"),
    ]);
    let expected = "the environment cannot be reached by `sh -c echo Error: no such box >&2; exit 1`: it ended with \
                    code 1: Error: no such box; check that it runs, or change the setting environment.exec";
    for line in [",bash ls", ",ls", ",fs.read a", ",fs.write path=/tmp/a content=b"] {
        let err = bench.fail(line).await;
        assert!(err.ends_with(expected), "{err}");
    }
    // What needs no environment works.
    assert!(bench.say(",tape.info").await.starts_with("name: "));
    assert_eq!(bench.say("look").await, "sorry");
    assert!(bench.results(1).iter().all(|it| it.contains("no such box")), "{:?}", bench.results(1));
    bench.say(",code_mode enable=true").await;
    bench.model.push(Script::text("ok"));
    bench.say("and now?").await;
    let about = run_code(&bench, 2);
    assert!(about.contains("At present code cannot run: ") && about.contains("no such box"), "{about}");
    bench.app.close().await;
}

/// An environment that counts how often it is closed.
#[derive(Default)]
struct Counting {
    closed: AtomicUsize,
}

#[async_trait]
impl Environment for Counting {
    fn workspace(&self) -> Option<&EnvPath> {
        None
    }

    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        NoEnvironment.resolve(path)
    }

    async fn spawn(&self, request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        NoEnvironment.spawn(request).await
    }

    async fn open(&self, _: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        Ok(OpenFile::from_bytes(b"provided".to_vec()))
    }

    async fn write(&self, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
        NoEnvironment.write(path, content).await
    }

    async fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

/// Provides one environment for two sessions, and says how often it was asked.
struct Providing {
    environment: Arc<Counting>,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Hooks for Providing {
    fn name(&self) -> &str {
        "providing"
    }

    fn implements(&self) -> &[&'static str] {
        &["environment"]
    }

    async fn environment(&self, session: &SessionId) -> Option<Arc<dyn Environment>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (session.0 != "plain").then(|| self.environment.clone() as Arc<dyn Environment>)
    }
}

#[tokio::test]
async fn a_plugins_environment_ranks_higher_is_kept_and_closed_once() {
    let (environment, asked) = (Arc::new(Counting::default()), Arc::new(AtomicUsize::new(0)));
    let (provided, asks) = (environment.clone(), asked.clone());
    let bench = folders().bench_with([], move |registry: &mut Registry| {
        registry.hooks(Providing { environment: provided.clone(), asked: asks.clone() });
    });
    let app = &bench.app;
    for (session, expected) in [("s", "provided"), ("s", "provided"), ("t", "provided"), ("plain", "there")] {
        let line = if session == "plain" { ",echo $WHERE" } else { ",fs.read /x" };
        let result = app.runtime().turn(inbound(session, line), TurnOptions::default()).result().await.unwrap();
        assert_eq!(result.answer, expected, "{session}");
    }
    assert_eq!((asked.load(Ordering::SeqCst), environment.closed.load(Ordering::SeqCst)), (3, 0));
    app.close().await;
    app.close().await;
    assert_eq!(environment.closed.load(Ordering::SeqCst), 1);
}
