//! bub's own interpreters: a Python process where there is a Python, else the sandbox.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use async_trait::async_trait;
use bub_kernel::{
    code::CodeError,
    environment::Environment,
    error::{ErrorKind, ToolError},
};

use crate::{
    process::{ProcessOptions, ProcessRunner},
    runners::{Chosen, Runners},
    sandbox::{self, SandboxRunner},
};

/// What is said where bub has no interpreter of its own.
const NO_SANDBOX: &str = "this program has no sandbox for code";
/// The most environments whose Python is remembered.
const MAX_KNOWN: usize = 64;

/// What runs the code.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RunnerChoice {
    /// The environment's own way to run code, else a Python process where there is a Python, else the
    /// sandbox.
    #[default]
    Auto,
    /// A Python process in the environment.
    Process,
    /// The interpreter inside bub.
    Sandbox,
}

/// The interpreters that bub has, by choice.
pub struct BuiltinRunners {
    choice: RunnerChoice,
    python: String,
    sandbox: Option<Arc<SandboxRunner>>,
    /// What each environment answered, for as long as it lives.
    known: Mutex<Vec<Known>>,
}

/// An environment, and the version of its Python or why there is none that will do.
type Known = (Weak<dyn Environment>, Result<String, String>);

impl fmt::Debug for BuiltinRunners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinRunners")
            .field("choice", &self.choice)
            .field("python", &self.python)
            .finish_non_exhaustive()
    }
}

impl BuiltinRunners {
    /// Runners by `choice`: `python` is the program of the process runner, `sandbox` the interpreter
    /// inside bub, if there is one.
    #[must_use]
    pub fn new(choice: RunnerChoice, python: impl Into<String>, sandbox: Option<Arc<SandboxRunner>>) -> Self {
        Self { choice, python: python.into(), sandbox, known: Mutex::default() }
    }

    fn python(&self, env: &Arc<dyn Environment>) -> ProcessRunner {
        ProcessRunner::new(ProcessOptions { python: self.python.clone(), ..ProcessOptions::new(env.clone()) })
    }

    fn process(&self, env: &Arc<dyn Environment>, version: &str) -> Chosen {
        Chosen {
            runner: Arc::new(self.python(env)),
            about: format!(
                "Code runs in a Python {version} process of its own, started in the workspace with the rights that \
                 shell commands have. Nothing is kept from one run to the next."
            ),
        }
    }

    fn sandbox(&self) -> Option<Chosen> {
        Some(Chosen { runner: self.sandbox.clone()?, about: sandbox::limits_text().to_owned() })
    }

    /// The version of the environment's Python, or why there is none that will do.
    ///
    /// # Errors
    /// When the environment can't be reached: that says nothing about its Python.
    async fn version(&self, env: &Arc<dyn Environment>) -> Result<Result<String, String>, ToolError> {
        let is_it = |known: &Weak<dyn Environment>| known.upgrade().is_some_and(|it| Arc::ptr_eq(&it, env));
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().iter().find(|(it, _)| is_it(it)) {
            return Ok(known.clone());
        }
        let found = match self.python(env).version().await {
            Ok(version) => Ok(version),
            Err(CodeError::Unavailable(reason)) => return Err(ToolError::new(ErrorKind::Temporary, reason)),
            Err(CodeError::Runner { reason, .. }) => Err(reason),
            Err(other) => Err(other.to_string()),
        };
        let mut known = lock();
        known.retain(|(it, _)| it.strong_count() > 0);
        if known.len() < MAX_KNOWN {
            known.push((Arc::downgrade(env), found.clone()));
        }
        Ok(found)
    }
}

#[async_trait]
impl Runners for BuiltinRunners {
    async fn choose(&self, env: &Arc<dyn Environment>) -> Result<Chosen, ToolError> {
        match self.choice {
            RunnerChoice::Sandbox => self.sandbox().ok_or_else(|| ToolError::new(ErrorKind::Config, NO_SANDBOX)),
            RunnerChoice::Process => match self.version(env).await? {
                Ok(version) => Ok(self.process(env, &version)),
                Err(reason) => Err(ToolError::new(
                    ErrorKind::Config,
                    format!(
                        "Code is to run in a Python process (code.runner is process), but {reason}. Set `python` to a \
                         Python of version 3.9 or newer, or `code.runner` to sandbox."
                    ),
                )),
            },
            RunnerChoice::Auto => {
                if let Some(runner) = env.code_runner() {
                    let about = "Code runs where the session's tools run.".to_owned();
                    return Ok(Chosen { runner, about });
                }
                match self.version(env).await? {
                    Ok(version) => Ok(self.process(env, &version)),
                    Err(reason) => self.sandbox().ok_or_else(|| {
                        ToolError::new(ErrorKind::Config, format!("Code needs Python, but {reason}; {NO_SANDBOX}."))
                    }),
                }
            }
        }
    }
}
