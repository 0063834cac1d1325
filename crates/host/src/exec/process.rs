//! A process inside: started by a script that tells how it ends, signalled by another one.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    environment::{EnvPath, EnvironmentError, ExitStatus, Output, Pipes, Process, Program, Signal, SpawnRequest},
    task::TaskScope,
};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream},
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use super::{
    control::{Control, Piece},
    engine::{ANSWER_WAIT, Client, END_WAIT, Engine, random_word, refused},
    scripts::{BECOME, Script},
};
use crate::environment::QUIET_VARIABLES;

/// Scripts of more bytes are given to the shell as a file: the kernel takes no argument of 128 KiB.
const MAX_SCRIPT_ARGUMENT: usize = 100 * 1024;
/// How much of standard error waits for its reader, in bytes: as much as in a pipe.
const STDERR_ROOM: usize = 64 * 1024;
/// How long a signal may take to arrive.
const SIGNAL_WAIT: Duration = Duration::from_secs(10);
/// How long a process that was killed may take to be reported, and one that was not found.
const REPORT_WAIT: Duration = Duration::from_millis(700);
/// How often is looked whether anything is left of a command that was killed.
const GONE_CHECK: Duration = Duration::from_millis(5);
/// The code of a process that was killed and not reported.
const KILLED: i32 = -9;

/// How far a process is.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Its number and when it started, in ticks, or why it was not started.
    started: Option<Result<(String, String), Refusal>>,
    exit: Option<i32>,
    /// Whether descendants were alive when it ended.
    others: bool,
    /// Nothing of it is left, or nothing is known any more.
    gone: bool,
    /// Why its exit code is not known.
    failure: Option<String>,
}

/// What was refused: the working directory or the program, and the system's words.
#[derive(Clone, Debug)]
struct Refusal {
    what: String,
    words: String,
}

/// A process behind the command. Dropping it kills it and its descendants.
pub(super) struct ExecProcess {
    /// Behind a lock only because pipes can't be shared between threads; a process can.
    pipes: Mutex<Option<Pipes>>,
    progress: watch::Receiver<Progress>,
    signals: mpsc::UnboundedSender<Signal>,
}

/// Starts a process in a session of its own, which has no terminal.
pub(super) async fn spawn(
    engine: &Arc<Engine>,
    tasks: &TaskScope,
    shell: Option<&str>,
    cwd: &EnvPath,
    request: &SpawnRequest,
) -> Result<ExecProcess, EnvironmentError> {
    check(request, cwd)?;
    let (argv, file) = argv(engine, shell, &request.program).await?;
    let mark = random_word().replace('-', "_");
    let word = random_word();
    let output = if request.output == Output::Merged { "merged" } else { "separate" };
    let input = if request.stdin { "open" } else { "closed" };
    let mut args: Vec<String> = vec![mark.clone(), cwd.to_string(), output.into(), input.into(), file];
    args.push(format!("{mark}=1"));
    let quiet = QUIET_VARIABLES.iter().filter(|(name, _)| !request.env.contains_key(*name));
    args.extend(quiet.map(|(name, value)| format!("{name}={value}")));
    args.extend(request.env.iter().map(|(name, value)| format!("{name}={value}")));
    args.extend(["sh", "-c", BECOME, "sh", &word].map(str::to_owned));
    args.extend(argv);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut client = engine.start(Script::Start, &args, request.stdin).await?;
    // What the process itself says to us comes under a word of its own.
    client.control.also(&word);

    let (progress, watcher) = watch::channel(Progress::default());
    let progress = Arc::new(progress);
    let (signals, orders) = mpsc::unbounded_channel();
    let (stderr, writer) = match request.output {
        Output::Merged => (None, None),
        Output::Separate => {
            let (reader, writer) = tokio::io::duplex(STDERR_ROOM);
            (Some(Box::new(reader) as _), Some(writer))
        }
    };
    let Client { process, pipes, control } = client;
    let (done, listened) = oneshot::channel();
    let telling = progress.clone();
    tasks.spawn(async move {
        let noise = listen(control, writer, &telling).await;
        drop(done.send(noise));
    });
    let keeper = Keeper { engine: engine.clone(), client: process, progress, mark };
    let closing = tasks.token().clone();
    tasks.spawn_to_end(async move { keeper.keep(orders, listened, closing.cancelled()).await });

    let pipes = Pipes { stdin: pipes.stdin, stdout: pipes.stdout, stderr };
    let mut process = ExecProcess { pipes: Mutex::new(Some(pipes)), progress: watcher, signals };
    process.until_started(engine, cwd, request).await?;
    Ok(process)
}

/// An error for what no process can be started with.
fn check(request: &SpawnRequest, cwd: &EnvPath) -> Result<(), EnvironmentError> {
    let wrong = |path: &str, reason: &str| EnvironmentError::Io {
        path: path.escape_debug().to_string(),
        source: io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned()),
    };
    let words: &[String] = match &request.program {
        Program::Shell(script) => std::slice::from_ref(script),
        Program::Argv(argv) => argv,
    };
    if let Program::Argv(argv) = &request.program {
        match argv.first() {
            Some(program) if !program.is_empty() => {}
            _ => return Err(EnvironmentError::NotFound(EnvPath::new(""))),
        }
    }
    let variables = request.env.iter().flat_map(|(name, value)| [name, value]);
    let all = words.iter().chain(variables).map(String::as_str).chain([cwd.as_str()]);
    if all.into_iter().any(|it| it.contains('\0')) {
        return Err(wrong(words.first().map_or("", String::as_str), "a NUL byte in what is to be run"));
    }
    match request.env.keys().find(|it| it.is_empty() || it.contains('=')) {
        Some(name) => Err(wrong(name, "not the name of a variable")),
        None => Ok(()),
    }
}

/// What kind of program it is and its arguments; and the file of a script that is too long to be one.
async fn argv(
    engine: &Engine,
    shell: Option<&str>,
    program: &Program,
) -> Result<(Vec<String>, String), EnvironmentError> {
    let script = match program {
        Program::Argv(argv) => {
            return Ok((["program".to_owned()].into_iter().chain(argv.clone()).collect(), String::new()));
        }
        Program::Shell(script) => script,
    };
    let mut argv = match shell {
        Some(shell) => vec!["program".to_owned(), shell.to_owned()],
        None => vec!["shell".to_owned()],
    };
    if script.len() <= MAX_SCRIPT_ARGUMENT {
        argv.extend(["-c".to_owned(), script.clone()]);
        return Ok((argv, String::new()));
    }
    let (line, file) = engine.run(Script::Keep, &[&script.len().to_string()], Some(script.as_bytes())).await?;
    match (line.split_once(' ').unwrap_or((&line, "")), file.strip_suffix('\n')) {
        (("done", _), Some(file)) => {
            argv.push(file.to_owned());
            Ok((argv, file.to_owned()))
        }
        ((_, words), _) => Err(refused(&EnvPath::new("a temporary file for the script"), words)),
    }
}

/// Takes in what is said about a process, and passes on what it says itself. Returns what the command said.
async fn listen(mut control: Control, mut writer: Option<DuplexStream>, progress: &watch::Sender<Progress>) -> String {
    while let Ok(Some(piece)) = control.next().await {
        match piece {
            Piece::Line(line) => progress.send_modify(|it| it.take(&line)),
            Piece::Bytes(bytes) => match writer.as_mut().filter(|_| progress.borrow().started.is_some()) {
                // Before that the command speaks.
                None => control.keep(&bytes),
                Some(open) => {
                    if open.write_all(&bytes).await.is_err() {
                        writer = None;
                    }
                }
            },
        }
    }
    control.noise()
}

impl Progress {
    /// Takes in what a script says.
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("started"), Some(pid), Some(since)) => self.started = Some(Ok((pid.to_owned(), since.to_owned()))),
            (Some("refused"), Some(what), _) => {
                let words = line.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
                self.started.get_or_insert(Err(Refusal { what: what.to_owned(), words }));
            }
            (Some("exit"), Some(code), Some(others)) => {
                self.exit = code.parse().ok().map(as_signal);
                self.others = others == "others";
            }
            _ => tracing::debug!(line, "a script said something unexpected"),
        }
    }
}

/// An exit code as shells have it: a signal's number is added to 128.
fn as_signal(code: i32) -> i32 {
    if (129..=192).contains(&code) { 128 - code } else { code }
}

/// What keeps a process: it passes signals on, and sees to its end when nobody wants it any more.
struct Keeper {
    engine: Arc<Engine>,
    client: Box<dyn Process>,
    progress: Arc<watch::Sender<Progress>>,
    mark: String,
}

impl Keeper {
    async fn keep(
        self,
        mut orders: mpsc::UnboundedReceiver<Signal>,
        mut listened: oneshot::Receiver<String>,
        closing: impl Future<Output = ()>,
    ) {
        let mut closing = std::pin::pin!(closing);
        loop {
            let order = tokio::select! {
                biased;
                noise = &mut listened => match noise {
                    Ok(noise) => return self.end(noise).await,
                    // The environment is closed.
                    Err(_) => return self.kill(None).await,
                },
                order = orders.recv() => order,
                () = &mut closing => None,
            };
            match order {
                Some(Signal::Terminate) => self.terminate().await,
                Some(Signal::Kill) => return self.kill(Some(listened)).await,
                None => {
                    // It may be about to start.
                    self.until(ANSWER_WAIT, |it| it.started.is_some() || it.exit.is_some() || it.gone).await;
                    return self.kill(Some(listened)).await;
                }
            }
        }
    }

    /// The script has ended, or can't be heard any more.
    async fn end(mut self, noise: String) {
        let is_known = self.progress.borrow().exit.is_some();
        let failure =
            if is_known { None } else { Some(self.engine.broken(&mut *self.client, noise).await.to_string()) };
        self.progress.send_modify(|it| {
            it.failure = failure;
            it.gone = true;
        });
        // What it printed may still be on its way through the command.
        drop(timeout(END_WAIT, self.client.wait()).await);
    }

    async fn terminate(&self) {
        if self.signal("TERM").await == Some(0)
            && !self.until(REPORT_WAIT, |it| it.gone || (it.exit.is_some() && !it.others)).await
        {
            // It runs where no second process sees it, in a namespace of its own, say: then it is a
            // descendant of the command on this machine.
            self.client.signal(Signal::Terminate);
        }
    }

    async fn kill(mut self, listened: Option<oneshot::Receiver<String>>) {
        if self.signal("KILL").await.is_some_and(|it| it > 0) {
            self.until(REPORT_WAIT, |it| it.exit.is_some() || it.gone).await;
            self.progress.send_modify(|it| it.others = false);
        }
        if let Some(listened) = listened {
            // Its last words are on their way.
            drop(timeout(REPORT_WAIT, listened).await);
        }
        self.client.signal(Signal::Kill);
        drop(timeout(END_WAIT, self.until_client_is_gone()).await);
        self.progress.send_modify(|it| {
            it.exit.get_or_insert(KILLED);
            it.gone = true;
        });
    }

    /// Signals what is left of the process, and returns how many processes that were.
    async fn signal(&self, signal: &str) -> Option<usize> {
        let started = self.progress.borrow().started.clone();
        let (leader, since) = match started {
            Some(Ok(it)) => it,
            Some(Err(_)) => return Some(0),
            None => (String::new(), String::new()),
        };
        let args = [self.mark.as_str(), &leader, &since, signal];
        match timeout(SIGNAL_WAIT, self.engine.run(Script::Signal, &args, None)).await {
            Ok(Ok((line, _))) => line.strip_prefix("signalled ")?.parse().ok(),
            Ok(Err(err)) => {
                tracing::debug!(%err, signal, "a process could not be signalled");
                None
            }
            Err(_) => {
                tracing::warn!(signal, "a process could not be signalled in time");
                None
            }
        }
    }

    /// Waits for the command and for all that it started. What was killed with it takes a moment to be
    /// gone, and in a namespace of its own the process itself is a descendant of the command.
    async fn until_client_is_gone(&mut self) {
        drop(self.client.wait().await);
        while self.client.is_running() {
            tokio::time::sleep(GONE_CHECK).await;
        }
    }

    async fn until(&self, limit: Duration, holds: impl Fn(&Progress) -> bool) -> bool {
        let mut progress = self.progress.subscribe();
        timeout(limit, progress.wait_for(|it| holds(it))).await.is_ok_and(|it| it.is_ok())
    }
}

impl ExecProcess {
    async fn until_started(
        &mut self,
        engine: &Engine,
        cwd: &EnvPath,
        request: &SpawnRequest,
    ) -> Result<(), EnvironmentError> {
        let is_settled = |it: &Progress| it.started.is_some() || it.exit.is_some() || it.gone;
        let settled = timeout(ANSWER_WAIT, self.progress.wait_for(is_settled)).await;
        let Ok(Ok(progress)) = settled.map(|it| it.map(|it| it.clone())) else {
            return Err(engine.failed(&format!("it did not answer within {} s", ANSWER_WAIT.as_secs())));
        };
        match progress.started {
            Some(Ok(_)) => Ok(()),
            Some(Err(refusal)) => Err(match (refusal.what.as_str(), &request.program) {
                ("program", Program::Argv(argv)) => {
                    refused(&EnvPath::new(argv.first().map_or("", String::as_str)), &refusal.words)
                }
                ("program", Program::Shell(_)) => {
                    EnvironmentError::NoShell("the shell of the settings, inside the environment".into())
                }
                _ => refused(cwd, &refusal.words),
            }),
            None => Err(match progress.failure {
                Some(failure) => EnvironmentError::Unavailable(failure),
                None => engine.failed("there are no `sh` and `env` inside that start a process"),
            }),
        }
    }
}

#[async_trait]
impl Process for ExecProcess {
    fn take_pipes(&mut self) -> Option<Pipes> {
        self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn wait(&mut self) -> Result<ExitStatus, EnvironmentError> {
        let ended = self.progress.wait_for(|it| it.exit.is_some() || it.gone).await;
        match ended.map(|it| it.clone()) {
            Ok(Progress { exit: Some(code), .. }) => Ok(ExitStatus { code }),
            Ok(Progress { failure: Some(failure), .. }) => Err(EnvironmentError::Unavailable(failure)),
            Ok(_) | Err(_) => Err(EnvironmentError::Unavailable("the environment was closed".into())),
        }
    }

    fn signal(&self, signal: Signal) {
        if self.is_running() {
            // When nobody takes orders any more, it is gone.
            let _ = self.signals.send(signal);
        }
    }

    fn is_running(&self) -> bool {
        let progress = self.progress.borrow();
        !progress.gone && (progress.exit.is_none() || progress.others)
    }
}
