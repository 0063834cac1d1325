//! A home and a workspace of a test's own, and the program in them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use bub_testing::ModelServer;
use tempfile::TempDir;

/// How long a test waits for something before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A home folder, a workspace, and variables for the program.
pub(crate) struct TestHome {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

/// What a run left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir, variables: Vec::new() }
    }

    /// A home whose settings point at a model server.
    pub(crate) fn with_model(server: &ModelServer) -> Self {
        Self::new()
            .var("BUB_MODEL", "openai:mock")
            .var("BUB_API_KEY", "sk-test-0123456789")
            .var("BUB_API_BASE", server.base_url())
    }

    pub(crate) fn var(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        // Names of tapes come from the resolved path.
        self.dir.path().join("ws").canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home/.bub")
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.workspace().join(name), content).unwrap();
    }

    pub(crate) fn config(&self, yaml: &str) {
        fs::create_dir_all(self.home()).unwrap();
        fs::write(self.home().join("config.yml"), yaml).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bub"));
        #[expect(clippy::disallowed_methods, reason = "the programs that tests start are found there")]
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).env("HOME", self.dir.path().join("home"));
        command.envs(self.variables.iter().cloned()).args(args).current_dir(self.workspace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs the program with something on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A program that does not read its input may be gone already.
        drop(child.stdin.take().unwrap().write_all(input));
        Ran::of(child.wait_with_output().unwrap())
    }

    /// The only session tape there is.
    pub(crate) fn tape_file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(self.home().join("tapes"))
            .unwrap()
            .map(|it| it.unwrap().path())
            .filter(|it| it.extension().is_some_and(|it| it == "jsonl"))
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    /// The lines of the only session tape.
    pub(crate) fn tape_lines(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.tape_file()).unwrap();
        text.lines().map(|it| serde_json::from_str(it).unwrap_or_else(|err| panic!("{err}: {it}"))).collect()
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The output of a run that went well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "out: {}\nerr: {}", self.out, self.err);
        self.out
    }

    /// The error text of a run that ended with `code`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "out: {}\nerr: {}", self.out, self.err);
        self.err
    }
}

/// Waits until `done`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a child to end.
#[track_caller]
pub(crate) fn end_of(mut child: Child) -> Ran {
    wait_until("the program ends", || child.try_wait().unwrap().is_some());
    Ran::of(child.wait_with_output().unwrap())
}

/// Whether a process with this text in its command line is alive.
pub(crate) fn is_running(text: &str) -> bool {
    let Ok(all) = fs::read_dir("/proc") else { return false };
    all.filter_map(|it| fs::read(it.ok()?.path().join("cmdline")).ok())
        .any(|it| it.split(|byte| *byte == 0).any(|word| word == text.as_bytes()))
}

pub(crate) fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}
