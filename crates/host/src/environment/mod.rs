//! This machine as an environment: its shell, its processes, its files.

mod descendants;
#[cfg(target_os = "linux")]
mod orphans;
mod process;
#[cfg(target_os = "linux")]
mod procfs;
mod quiet;
mod resolve;
mod spawn;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use async_trait::async_trait;
use bub_kernel::environment::{EnvPath, Environment, EnvironmentError, OpenFile, Process, SpawnRequest};

use crate::files;

pub(crate) use quiet::VARIABLES as QUIET_VARIABLES;

/// How this machine is used.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// Directory that relative paths resolve against and processes start in; absolute.
    pub workspace: Option<PathBuf>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Names of environment variables that processes must not see.
    pub hidden_variables: Vec<String>,
    /// Environment variables that processes get beside the inherited ones.
    pub variables: BTreeMap<String, String>,
    /// Whether processes that lose their parent become children of this one, so that daemons are found
    /// and stopped cheaply. It is a setting of the whole process and cannot be taken back; Linux only.
    pub adopt_orphans: bool,
    /// Search path for programs, instead of the inherited one.
    pub path: Option<OsString>,
}

/// This machine. Processes inherit its environment variables.
#[derive(Debug)]
pub struct LocalEnvironment {
    workspace: Option<EnvPath>,
    options: LocalOptions,
    shell: spawn::ShellChoice,
}

impl LocalEnvironment {
    /// Makes an environment. The workspace need not exist yet.
    ///
    /// # Errors
    /// [`EnvironmentError::InvalidPath`] when the workspace is relative or not UTF-8.
    pub fn new(options: LocalOptions) -> Result<Self, EnvironmentError> {
        let workspace = options.workspace.clone().map(resolve::workspace).transpose()?;
        #[cfg(target_os = "linux")]
        if options.adopt_orphans {
            orphans::adopt();
        }
        Ok(Self { workspace, options, shell: spawn::ShellChoice::default() })
    }
}

#[async_trait]
impl Environment for LocalEnvironment {
    fn workspace(&self) -> Option<&EnvPath> {
        self.workspace.as_ref()
    }

    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        resolve::resolve(path, self.workspace.as_ref(), self.options.home.as_deref())
    }

    async fn spawn(&self, request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        let process = spawn::spawn(&self.options, self.workspace.as_ref(), &self.shell, &request)?;
        Ok(Box::new(process))
    }

    async fn true_path(&self, path: &EnvPath) -> EnvPath {
        files::true_path(path).await
    }

    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        files::open(path).await
    }

    async fn write(&self, path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
        files::write(path, content).await
    }
}

#[cfg(test)]
mod tests;
