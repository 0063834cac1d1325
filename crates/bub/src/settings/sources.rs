//! What settings are read from.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::Override;

/// Where to read settings from. Everything of the process that they depend on is in here.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The variables of the environment.
    pub env: BTreeMap<String, String>,
    /// The configuration file; it need not be there.
    pub config_file: PathBuf,
    /// The current directory: `.env` is looked for from here upward.
    pub cwd: PathBuf,
    /// The user's home folder.
    pub home: PathBuf,
    /// Values from the command line; the last one for a key counts.
    pub overrides: Vec<Override>,
}

impl Sources {
    /// Sources with the configuration file in its usual place, `.bub/config.yml` in the user's home folder.
    #[must_use]
    pub fn new(env: BTreeMap<String, String>, home: impl Into<PathBuf>, cwd: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self { env, config_file: home.join(".bub").join("config.yml"), cwd: cwd.into(), home, overrides: Vec::new() }
    }

    /// The sources of this process. Variables that are not UTF-8 are left out; without a home folder
    /// the current directory stands in for it.
    #[must_use]
    pub fn of_process(cwd: &Path) -> Self {
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let home = std::env::home_dir().filter(|it| !it.as_os_str().is_empty()).unwrap_or_else(|| cwd.to_owned());
        Self::new(env.collect(), home, cwd)
    }

    /// Sets a value from the command line: `flag` is the option as it was typed.
    #[must_use]
    pub fn with_override(mut self, key: impl Into<String>, value: impl Into<String>, flag: impl Into<String>) -> Self {
        self.overrides.push(Override { key: key.into(), value: value.into(), flag: flag.into() });
        self
    }
}
