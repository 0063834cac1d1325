//! An environment that is reached by a command: a container (`docker exec -i box`), another machine.

mod control;
mod engine;
mod files;
mod paths;
mod process;
mod scripts;

use std::{
    fmt,
    sync::{Arc, Mutex as SyncMutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use bub_kernel::{
    environment::{EnvPath, Environment, EnvironmentError, OpenFile, Process, SpawnRequest},
    task::TaskScope,
};
use tokio::{runtime::Handle, sync::Mutex};

use crate::{
    environment::{LocalEnvironment, LocalOptions},
    written::invalid,
};
use engine::Engine;
use scripts::Script;

/// How an environment is reached.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The command that leads inside. A program and its arguments are added to it, and it has to run just
    /// that, with its standard input, output and error connected and no terminal.
    pub command: Vec<String>,
    /// Directory inside that relative paths resolve against and processes start in; absolute. Where
    /// processes start without being told, when absent.
    pub workspace: Option<String>,
    /// The shell inside that runs scripts; bash when absent, or sh where there is no bash.
    pub shell: Option<String>,
    /// What a person can do when the environment cannot be reached: the end of a sentence.
    pub hint: String,
    /// How the command itself is run on this machine.
    pub local: LocalOptions,
}

/// What is behind a command. Inside it needs a POSIX shell and coreutils or busybox, and nothing of ours.
///
/// Processes see the environment variables that the command gives them. Each runs in a session of its own,
/// beside a shell that tells how it ends; another one is sent inside to signal it. Files are read and
/// written through pipes.
///
/// An exit code above 128 that is one of a signal counts as its end by that signal, as shells have it.
pub struct ExecEnvironment {
    inside: Arc<Inside>,
    shell: Option<String>,
    tasks: TaskScope,
}

/// The way in, and what is known of the place behind it.
struct Inside {
    engine: Arc<Engine>,
    /// The workspace that was asked for.
    workspace: Option<String>,
    /// Workspace and home, once they are known.
    place: OnceLock<Place>,
    /// Why they are not known.
    failure: SyncMutex<Option<String>>,
    /// Keeps a second probe from starting while one runs.
    probing: Mutex<()>,
}

/// Where processes start, and what `~` stands for.
#[derive(Debug)]
struct Place {
    workspace: EnvPath,
    home: Option<String>,
}

impl fmt::Debug for ExecEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecEnvironment").field("command", &self.inside.engine.command).finish_non_exhaustive()
    }
}

impl ExecEnvironment {
    /// Makes an environment; nothing is run yet.
    ///
    /// # Errors
    /// [`EnvironmentError::Unavailable`] without a command, [`EnvironmentError::InvalidPath`] when the
    /// workspace is relative.
    pub fn new(options: ExecOptions) -> Result<Self, EnvironmentError> {
        let is_text = |it: &String| !it.contains('\0');
        if options.command.first().is_none_or(String::is_empty) || !options.command.iter().all(is_text) {
            return Err(EnvironmentError::Unavailable(
                "the command that leads into the environment is empty or no command".into(),
            ));
        }
        if let Some(path) = options.workspace.as_deref().filter(|it| !it.starts_with('/') || it.contains('\0')) {
            return Err(invalid(path, "a workspace must be an absolute path"));
        }
        let engine =
            Engine { local: LocalEnvironment::new(options.local)?, command: options.command, hint: options.hint };
        let inside = Inside {
            engine: Arc::new(engine),
            workspace: options.workspace,
            place: OnceLock::new(),
            failure: SyncMutex::default(),
            probing: Mutex::default(),
        };
        Ok(Self { inside: Arc::new(inside), shell: options.shell, tasks: TaskScope::default() })
    }

    /// Finds out where processes start and what the home folder is, unless that is known. Until it
    /// succeeds, relative paths have nothing to resolve against.
    ///
    /// # Errors
    /// [`EnvironmentError::Unavailable`] when the command does not lead inside. The next call tries again.
    pub async fn connect(&self) -> Result<(), EnvironmentError> {
        self.inside.place().await.map(|_| ())
    }
}

impl Inside {
    async fn place(&self) -> Result<&Place, EnvironmentError> {
        if let Some(known) = self.place.get() {
            return Ok(known);
        }
        let _probing = self.probing.lock().await;
        if let Some(known) = self.place.get() {
            return Ok(known);
        }
        let probed = self.engine.run(Script::Probe, &[], None).await;
        let failure = probed.as_ref().err().map(ToString::to_string);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        let (_, answer) = probed?;
        // The home folder has no line break in it; the directory might.
        let lines = answer.strip_suffix('\n').and_then(|it| it.rsplit_once('\n'));
        let (directory, home) = lines.unwrap_or((answer.as_str(), ""));
        let workspace = self.workspace.as_deref().unwrap_or(directory);
        if !workspace.starts_with('/') {
            return Err(self.engine.failed("the shell inside does not say where it is"));
        }
        let home = Some(home.to_owned()).filter(|it| it.starts_with('/'));
        Ok(self.place.get_or_init(|| Place { workspace: EnvPath::new(workspace), home }))
    }
}

#[async_trait]
impl Environment for ExecEnvironment {
    fn workspace(&self) -> Option<&EnvPath> {
        self.inside.place.get().map(|it| &it.workspace)
    }

    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        let place = self.inside.place.get();
        if place.is_none() && !path.starts_with('/') {
            // It may be there by now: whoever asks again will know.
            if Handle::try_current().is_ok() {
                let inside = self.inside.clone();
                self.tasks.spawn(async move { drop(inside.place().await.map(|_| ())) });
            }
            let failure = self.inside.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Err(match failure {
                Some(failure) => EnvironmentError::Unavailable(failure),
                None => self.inside.engine.failed("nothing was asked of it yet"),
            });
        }
        paths::resolve(path, place.map(|it| &it.workspace), place.and_then(|it| it.home.as_deref()))
    }

    async fn spawn(&self, request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        let cwd = match &request.cwd {
            Some(cwd) => cwd,
            None => &self.inside.place().await?.workspace,
        };
        let process = process::spawn(&self.inside.engine, &self.tasks, self.shell.as_deref(), cwd, &request).await?;
        Ok(Box::new(process))
    }

    async fn true_path(&self, path: &EnvPath) -> EnvPath {
        files::true_path(&self.inside.engine, path).await
    }

    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        files::open(&self.inside.engine, path).await
    }

    async fn write(&self, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
        files::write(&self.inside.engine, path, content).await
    }

    async fn close(&self) {
        self.tasks.close().await;
    }
}
