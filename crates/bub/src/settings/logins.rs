//! Where logins are kept: bub's own below its home, and those of other programs where they keep them.

use std::path::{Path, PathBuf};

use bub_models::KeyFile;

use super::{Origin, Paths, Settings};

/// The Codex program's own variable for its folder.
const CODEX_HOME: &str = "CODEX_HOME";
/// The Grok program's own variables, for its folder and for the file of its login.
const GROK_HOME: &str = "GROK_HOME";
const GROK_AUTH_PATH: &str = "GROK_AUTH_PATH";

/// A key that a login left.
#[derive(Clone)]
pub(crate) struct KeptKey {
    /// The provider.
    pub(crate) provider: &'static str,
    pub(crate) key: String,
    pub(crate) path: PathBuf,
}

impl KeptKey {
    /// The keys that there are, and sentences on those that can't be read.
    pub(super) fn all(paths: &Paths) -> (Vec<Self>, Vec<String>) {
        let path = paths.openrouter_login();
        match KeyFile::new(path.clone()).key() {
            Ok(key) => (key.map(|key| Self { provider: "openrouter", key, path }).into_iter().collect(), Vec::new()),
            Err(problem) => (Vec::new(), vec![problem]),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::Login { path: self.path.clone() }
    }
}

impl Paths {
    /// Logins of bub's own.
    #[must_use]
    pub fn logins(&self) -> PathBuf {
        self.home().join("logins")
    }

    /// The key that OpenRouter gave.
    #[must_use]
    pub fn openrouter_login(&self) -> PathBuf {
        self.logins().join("openrouter.json")
    }
}

impl Settings {
    /// The folder of the Codex program's login: `CODEX_HOME`, else `.codex` in the user's home.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        self.folder_of(CODEX_HOME, ".codex")
    }

    /// The Grok program's login: `GROK_AUTH_PATH`, else `auth.json` in `GROK_HOME` or in `.grok` in the
    /// user's home.
    #[must_use]
    pub fn grok_login(&self) -> PathBuf {
        match self.layers.variable(GROK_AUTH_PATH) {
            Some((file, _)) => PathBuf::from(file),
            None => self.folder_of(GROK_HOME, ".grok").join("auth.json"),
        }
    }

    fn folder_of(&self, variable: &str, usual: &str) -> PathBuf {
        match self.layers.variable(variable) {
            Some((folder, _)) => PathBuf::from(folder),
            None => self.paths.user_home().unwrap_or_else(|| Path::new(".")).join(usual),
        }
    }
}
