//! bub's own folders.

use std::{
    io,
    path::{Path, PathBuf},
};

use md5::{Digest as _, Md5};

use super::{Origin, layers::Layers};

/// The variable that moves the home folder.
pub const HOME_VARIABLE: &str = "BUB_HOME";

/// Why a folder of bub's own can't be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} for bub's own files: {source}; {}", .path.display(), way_out(.home, .origin))]
pub struct HomeError {
    /// Which folder.
    pub path: PathBuf,
    /// The home folder.
    pub home: PathBuf,
    /// What says that this is the home folder.
    pub origin: Origin,
    /// Why.
    pub source: io::Error,
}

fn way_out(home: &Path, origin: &Origin) -> String {
    match origin {
        Origin::Default => format!("{HOME_VARIABLE} can name another folder than {}", home.display()),
        origin => format!("that {} is the folder to use comes from {origin}", home.display()),
    }
}

/// Where bub keeps its files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Paths {
    home: PathBuf,
    origin: Origin,
    config_file: PathBuf,
    user_home: PathBuf,
}

impl Paths {
    /// Finds the home folder: `BUB_HOME`, else `.bub` in the user's. A `~` in front is the user's
    /// home, a relative path starts at `cwd`.
    pub(crate) fn new(layers: &Layers, user_home: &Path, cwd: &Path, config_file: &Path) -> Self {
        let (home, origin) = match layers.variable(HOME_VARIABLE) {
            Some((text, origin)) if text != "null" => (cwd.join(expand_tilde(text, user_home)), origin),
            _ => (user_home.join(".bub"), Origin::Default),
        };
        Self { home, origin, config_file: config_file.to_owned(), user_home: user_home.to_owned() }
    }

    /// The home folder.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What says where the home folder is.
    #[must_use]
    pub fn home_origin(&self) -> &Origin {
        &self.origin
    }

    /// The user's home folder, if it is known.
    #[must_use]
    pub fn user_home(&self) -> Option<&Path> {
        Some(self.user_home.as_path()).filter(|it| !it.as_os_str().is_empty())
    }

    /// The configuration file; `BUB_HOME` does not move it.
    #[must_use]
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// Tapes: `{tape}.jsonl`.
    #[must_use]
    pub fn tapes(&self) -> PathBuf {
        self.home.join("tapes")
    }

    /// What was typed, by workspace.
    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.home.join("history")
    }

    /// What was typed in a workspace.
    #[must_use]
    pub fn history_file(&self, workspace: &str) -> PathBuf {
        let name: String = Md5::digest(workspace).iter().map(|byte| format!("{byte:02x}")).collect();
        self.history().join(format!("{name}.history"))
    }

    /// Output of commands that is too long for memory.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.home.join("spool")
    }

    /// Locks between processes.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        self.home.join("locks")
    }

    /// What providers told of their models: a cache.
    #[must_use]
    pub fn models(&self) -> PathBuf {
        self.home.join("cache/models")
    }

    /// Stubs of code mode.
    #[must_use]
    pub fn codemode(&self) -> PathBuf {
        self.home.join("codemode")
    }

    /// Makes sure that the home folder and those for tapes, spool and locks are there and can be
    /// written to. Folders that are made have mode 0700; those that are there keep theirs.
    ///
    /// # Errors
    /// [`HomeError`] for the first that can't be used.
    pub fn prepare(&self) -> Result<(), HomeError> {
        [self.home.clone(), self.tapes(), self.spool(), self.locks()].iter().try_for_each(|it| self.make(it))
    }

    /// Makes sure that one folder under the home is there and can be written to.
    ///
    /// # Errors
    /// [`HomeError`] when it can't.
    pub fn make(&self, folder: &Path) -> Result<(), HomeError> {
        make_private(folder).map_err(|source| HomeError {
            path: folder.to_owned(),
            home: self.home.clone(),
            origin: self.origin.clone(),
            source,
        })
    }
}

/// Makes a folder and those above it with mode 0700, unless it is there, and checks that it can be written to.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|err| match err.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"),
        _ => err,
    })?;
    #[cfg(unix)]
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

/// Puts the user's home in place of a `~` in front; `~name` stays as it is.
fn expand_tilde(path: &str, user_home: &Path) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => user_home.to_owned(),
        Some(rest) if rest.starts_with('/') => user_home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}
