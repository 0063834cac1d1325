//! Where logins are kept: bub's own below its home, and those of other programs where they keep them.

use std::path::{Path, PathBuf};

use bub_models::{CodexLogin, CopilotLogin, GrokLogin, KeyFile, LoginState};

use super::{Credential, Origin, Paths, Settings};

/// The Codex program's own variable for its folder.
const CODEX_HOME: &str = "CODEX_HOME";
/// The Grok program's own variables, for its folder and for the file of its login.
const GROK_HOME: &str = "GROK_HOME";
const GROK_AUTH_PATH: &str = "GROK_AUTH_PATH";

/// The file of the Codex program's login, in its folder.
const CODEX_FILE: &str = "auth.json";

/// A service that can be logged in to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Login {
    /// Its name, as in `bub login NAME`.
    pub name: &'static str,
    /// Whether somebody is logged in.
    pub state: LoginState,
    /// The file.
    pub file: PathBuf,
    /// A key that is used in its place.
    pub key: Option<Credential>,
}

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

    /// The login to GitHub Copilot.
    #[must_use]
    pub fn copilot_login(&self) -> PathBuf {
        self.logins().join("github-copilot.json")
    }
}

impl Settings {
    /// The folder of the Codex program's login: `CODEX_HOME`, else `.codex` in the user's home.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        self.folder_of(CODEX_HOME, ".codex")
    }

    /// The Codex program's login.
    #[must_use]
    pub fn codex_login(&self) -> PathBuf {
        self.codex_home().join(CODEX_FILE)
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

    /// What can be logged in to, and whether somebody is.
    #[must_use]
    pub fn logins(&self) -> Vec<Login> {
        let login = |name, provider: &str, state, file| {
            let key = self.endpoint(provider).api_key.filter(|it| !matches!(it.origin, Origin::Login { .. }));
            Login { name, state, file, key }
        };
        let (openrouter, copilot) = (self.paths.openrouter_login(), self.paths.copilot_login());
        let (codex, grok) = (self.codex_login(), self.grok_login());
        vec![
            login("openrouter", "openrouter", KeyFile::new(openrouter.clone()).state(), openrouter),
            login("copilot", "github-copilot", CopilotLogin::new(copilot.clone()).state(), copilot),
            login("codex", "codex", CodexLogin::new(codex.clone()).state(), codex),
            login("grok", "grok", GrokLogin::new(grok.clone()).state(), grok),
        ]
    }

    /// The tokens of all logins but the keys, which [`Settings::endpoint`] has.
    pub(crate) fn login_secrets(&self) -> Vec<String> {
        let mut all = CopilotLogin::new(self.paths.copilot_login()).secrets();
        all.extend(CodexLogin::new(self.codex_login()).secrets());
        all.extend(GrokLogin::new(self.grok_login()).secrets());
        all
    }

    fn folder_of(&self, variable: &str, usual: &str) -> PathBuf {
        match self.layers.variable(variable) {
            Some((folder, _)) => PathBuf::from(folder),
            None => self.paths.user_home().unwrap_or_else(|| Path::new(".")).join(usual),
        }
    }
}
