//! The command that leads inside: running scripts through it, and what it says when it fails.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    time::Duration,
};

use bub_kernel::environment::{Environment as _, EnvironmentError, Output, Pipes, Process, Program, SpawnRequest};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::{control::Control, scripts::Script};
use crate::environment::LocalEnvironment;

/// How long a script may take to say something: an engine may have to wake a machine up.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// How long the command may take to end once its standard error is closed, or once it was killed.
pub(super) const END_WAIT: Duration = Duration::from_secs(3);
/// The slowest connection that a content is sent over, in bytes a second; slower ones have failed.
const MIN_RATE: u64 = 64 << 10;
/// The most bytes of a script's answer on standard output: paths.
const MAX_ANSWER: u64 = 64 << 10;

/// The command that leads inside, and the machine that it is run on.
pub(super) struct Engine {
    /// This machine, where the command runs.
    pub(super) local: LocalEnvironment,
    /// The command, to which a program and its arguments are added.
    pub(super) command: Vec<String>,
    /// What a person can do when it fails: the end of a sentence.
    pub(super) hint: String,
}

/// A script that runs inside.
pub(super) struct Client {
    /// The command on this machine. Dropping it kills what is left of it here.
    pub(super) process: Box<dyn Process>,
    /// Its pipes but for standard error.
    pub(super) pipes: Pipes,
    /// What the script says.
    pub(super) control: Control,
}

impl Engine {
    /// Runs a script with arguments.
    pub(super) async fn start(&self, script: Script, args: &[&str], stdin: bool) -> Result<Client, EnvironmentError> {
        let word = random_word();
        let text = script.text();
        let fixed = ["sh", "-c", &text, "sh", &word];
        let argv = self.command.iter().map(String::as_str).chain(fixed).chain(args.iter().copied());
        let request = SpawnRequest {
            program: Program::Argv(argv.map(str::to_owned).collect()),
            cwd: None,
            env: BTreeMap::new(),
            stdin,
            output: Output::Separate,
        };
        let mut process = self.local.spawn(request).await.map_err(|err| match err {
            EnvironmentError::NotFound(_) => self.failed("there is no such program"),
            err => self.failed(&err.to_string()),
        })?;
        let mut pipes = process.take_pipes().ok_or_else(|| self.failed("it has no pipes"))?;
        let stderr = pipes.stderr.take().ok_or_else(|| self.failed("it has no standard error"))?;
        Ok(Client { process, pipes, control: Control::new(stderr, &word) })
    }

    /// Runs a script to its end with `content` as its input, and returns the line that it ends with and
    /// its standard output.
    pub(super) async fn run(
        &self,
        script: Script,
        args: &[&str],
        content: Option<&[u8]>,
    ) -> Result<(String, String), EnvironmentError> {
        let mut client = self.start(script, args, content.is_some()).await?;
        let limit = ANSWER_WAIT + Duration::from_secs(content.map_or(0, <[u8]>::len) as u64 / MIN_RATE);
        let mut stdout = client.pipes.stdout;
        let stdin = client.pipes.stdin.take();
        let talk = async {
            let mut answer = Vec::new();
            let send = send(stdin, content.unwrap_or_default());
            let mut limited = (&mut stdout).take(MAX_ANSWER);
            let read = limited.read_to_end(&mut answer);
            let listen = async {
                let mut last = None;
                while let Ok(Some(line)) = client.control.line().await {
                    last = Some(line);
                }
                last
            };
            let ((), read, last) = tokio::join!(send, read, listen);
            (last, read.map(|_| String::from_utf8_lossy(&answer).into_owned()))
        };
        match timeout(limit, talk).await {
            Ok((Some(line), Ok(answer))) => Ok((line, answer)),
            Ok(_) => Err(self.broken(&mut *client.process, client.control.noise()).await),
            Err(_) => Err(self.failed(&format!("it did not answer within {} s", limit.as_secs()))),
        }
    }

    /// The next line of a script.
    pub(super) async fn line(&self, client: &mut Client) -> Result<String, EnvironmentError> {
        match timeout(ANSWER_WAIT, client.control.line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err(self.broken(&mut *client.process, client.control.noise()).await),
            Err(_) => Err(self.failed(&format!("it did not answer within {} s", ANSWER_WAIT.as_secs()))),
        }
    }

    /// The error of a command that ended before its script did, and what it said instead.
    pub(super) async fn broken(&self, process: &mut dyn Process, noise: String) -> EnvironmentError {
        let code = match timeout(END_WAIT, process.wait()).await {
            Ok(Ok(status)) => format!("it ended with code {}", status.code),
            Ok(Err(err)) => err.to_string(),
            Err(_) => "it closed its output".to_owned(),
        };
        if noise.is_empty() { self.failed(&code) } else { self.failed(&format!("{code}: {noise}")) }
    }

    /// The error of the command, with what a person can do.
    pub(super) fn failed(&self, reason: &str) -> EnvironmentError {
        let command = self.command.join(" ");
        let hint = if self.hint.is_empty() { String::new() } else { format!("; {}", self.hint) };
        EnvironmentError::Unavailable(format!("the environment cannot be reached by `{command}`: {reason}{hint}"))
    }
}

/// Writes all of `content` and closes the pipe. A script that has enough of it says why.
async fn send(stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>, content: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    if let Err(err) = stdin.write_all(content).await {
        tracing::debug!(%err, "a script did not take all of its input");
    }
    drop(stdin.shutdown().await);
}

/// A word that nobody says by chance.
pub(super) fn random_word() -> String {
    // The hasher's keys are random.
    let number = || RandomState::new().build_hasher().finish();
    format!("bub-{:016x}{:016x}", number(), number())
}

/// What a script refused, as the error of a path: it says the system's own words.
pub(super) fn refused(path: &bub_kernel::environment::EnvPath, words: &str) -> EnvironmentError {
    use rustix::io::Errno;
    /// The words of Linux's C libraries, and what shells say instead.
    const WORDS: &[(&str, Errno)] = &[
        ("No such file or directory", Errno::NOENT),
        ("No such file", Errno::NOENT),
        ("nonexistent directory", Errno::NOENT),
        ("Directory nonexistent", Errno::NOENT),
        ("Permission denied", Errno::ACCESS),
        ("Operation not permitted", Errno::PERM),
        ("Not a directory", Errno::NOTDIR),
        ("Is a directory", Errno::ISDIR),
        ("File exists", Errno::EXIST),
        ("File name too long", Errno::NAMETOOLONG),
        ("Filename too long", Errno::NAMETOOLONG),
        ("Too many levels of symbolic links", Errno::LOOP),
        ("Symbolic link loop", Errno::LOOP),
        ("No space left on device", Errno::NOSPC),
        ("Disk quota exceeded", Errno::DQUOT),
        ("Quota exceeded", Errno::DQUOT),
        ("File too large", Errno::FBIG),
        ("Read-only file system", Errno::ROFS),
        ("Text file busy", Errno::TXTBSY),
        ("Input/output error", Errno::IO),
        ("I/O error", Errno::IO),
    ];
    let words = words.trim();
    let known = WORDS.iter().find(|(it, _)| *it == words);
    let source = known.map_or_else(|| io::Error::other(words.to_owned()), |(_, errno)| (*errno).into());
    EnvironmentError::io(path, source)
}
