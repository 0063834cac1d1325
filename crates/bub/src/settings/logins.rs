//! Where other programs keep their logins.

use std::path::{Path, PathBuf};

use super::Settings;

/// The Codex program's own variable for its folder.
const CODEX_HOME: &str = "CODEX_HOME";
/// The Grok program's own variables, for its folder and for the file of its login.
const GROK_HOME: &str = "GROK_HOME";
const GROK_AUTH_PATH: &str = "GROK_AUTH_PATH";

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
