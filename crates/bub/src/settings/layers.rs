//! Where values come from, and which place wins.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use bub_kernel::similar::close_matches;
use serde_json::{Map, Value};

use super::{
    SettingsError, Sources,
    dotenv::DotEnv,
    file::ConfigFile,
    kind::{Kind, merge},
    logins::KeptKey,
    table::{self, Preset, Setting},
};

/// Where a value comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said.
    Default,
    /// The configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// The `.env` file.
    DotEnv {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// The variable's name.
        variable: String,
    },
    /// The environment.
    Environment {
        /// The variable's name.
        variable: String,
    },
    /// The command line.
    CommandLine {
        /// The option, as it is typed.
        flag: String,
    },
    /// A login that bub keeps.
    Login {
        /// Which file.
        path: PathBuf,
    },
}

impl Origin {
    /// The variable's name, if the value is a variable's.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::DotEnv { variable, .. } | Self::Environment { variable } => Some(variable),
            Self::Default | Self::File { .. } | Self::CommandLine { .. } | Self::Login { .. } => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::DotEnv { path, line, variable } => write!(f, "{}:{line} ({variable})", path.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::CommandLine { flag } => write!(f, "option {flag}"),
            Self::Login { path } => write!(f, "the login in {}", path.display()),
        }
    }
}

/// A value from the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Override {
    /// The setting's key, such as `spill.threshold`.
    pub key: String,
    /// The value, as it would stand in an environment variable.
    pub value: String,
    /// The option it was given with, for messages: `--model`.
    pub flag: String,
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What a setting is: its value and the places it is made of, the winning one first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) value: Value,
    pub(crate) origins: Vec<Origin>,
}

impl Resolved {
    /// The place that wins.
    pub(crate) fn origin(&self) -> Origin {
        self.origins.first().cloned().unwrap_or(Origin::Default)
    }
}

/// All places, read once.
pub(crate) struct Layers {
    pub(crate) overrides: Vec<Override>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) dotenv: DotEnv,
    pub(crate) file: ConfigFile,
    /// Keys of logins, the last to be asked.
    pub(crate) kept_keys: Vec<KeptKey>,
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("file", &self.file.path)
            .field("dotenv", &self.dotenv.path)
            .finish_non_exhaustive()
    }
}

impl Layers {
    pub(crate) fn read(sources: Sources) -> Result<Self, SettingsError> {
        // Whether a plugin has that section is known when the plugins are loaded.
        let is_known = |it: &&Override| table::find(&it.key).is_some() || section_field(&it.key).is_some();
        if let Some(it) = sources.overrides.iter().find(|it| !is_known(it)) {
            return Err(unknown_key(it, table::SETTINGS.iter().map(|it| it.key)));
        }
        Ok(Self {
            dotenv: DotEnv::find(&sources.cwd, &sources.env).unwrap_or_default(),
            file: ConfigFile::load(&sources.config_file)?,
            environment: sources.env,
            overrides: sources.overrides,
            kept_keys: Vec::new(),
        })
    }

    /// A variable of the environment or else of `.env`; one that is empty counts as not set.
    pub(crate) fn variable(&self, name: &str) -> Option<(&str, Origin)> {
        self.raw_variable(name).filter(|(value, _)| !value.trim().is_empty())
    }

    /// The names of all variables, those of `.env` included.
    pub(crate) fn variable_names(&self) -> impl Iterator<Item = &str> {
        let only_there = self.dotenv.variables.keys().filter(|it| !self.environment.contains_key(*it));
        self.environment.keys().chain(only_there).map(String::as_str)
    }

    /// What every place says about a setting, the winning one first.
    pub(crate) fn candidates(&self, setting: &Setting) -> Vec<Result<Found, SettingsError>> {
        let from_text = |text: &str, origin: Origin| {
            // An empty variable is how a shell unsets one; only the prefix has a rule of its own for it.
            if text.trim().is_empty() && setting.kind != Kind::Prefix {
                return None;
            }
            let value = if text == "null" { Ok(Value::Null) } else { setting.kind.read_text(setting.key, text) };
            Some(found(setting, value, origin))
        };
        let overrides = self.overrides.iter().rev().filter(|it| it.key == setting.key);
        let overrides = overrides.filter_map(|it| from_text(&it.value, Origin::CommandLine { flag: it.flag.clone() }));
        let variable = self.raw_variable(setting.variable).and_then(|(text, origin)| from_text(text, origin));
        let file = self.file.get(setting.key).map(|node| {
            node.map(|it| {
                let origin = Origin::File { path: self.file.path.clone(), line: it.line };
                found(setting, setting.kind.read(setting.key, &it.to_json()), origin)
            })
        });
        let file = match file {
            Ok(found) => found,
            Err(err) => Some(Err(err)),
        };
        overrides.chain(variable).chain(file).collect()
    }

    /// What a setting is. Maps of several places are merged, key by key.
    pub(crate) fn resolve(&self, setting: &Setting) -> Result<Resolved, SettingsError> {
        let mut merged: Option<(Map<String, Value>, Vec<Origin>)> = None;
        for candidate in self.candidates(setting) {
            let Found { value, origin } = candidate?;
            match (value, &mut merged) {
                (Value::Object(fields), None) => merged = Some((fields, vec![origin])),
                (Value::Object(mut fields), Some((above, origins))) => {
                    merge(&mut fields, above);
                    *above = fields;
                    origins.push(origin);
                }
                (_, Some(_)) => break,
                (Value::Null, None) => {
                    let value = preset(setting)?;
                    return Ok(Resolved { value, origins: vec![origin] });
                }
                (value, None) => return Ok(Resolved { value, origins: vec![origin] }),
            }
        }
        match merged {
            Some((fields, origins)) => Ok(Resolved { value: Value::Object(fields), origins }),
            None => Ok(Resolved { value: preset(setting)?, origins: vec![Origin::Default] }),
        }
    }

    /// The place of a value inside a map-like setting, as exactly as it is known.
    pub(crate) fn refine(&self, origin: &Origin, keys: &[&str]) -> Origin {
        match origin {
            Origin::File { path, line } => {
                let line = self.file.line_of(keys).max(*line);
                Origin::File { path: path.clone(), line }
            }
            other => other.clone(),
        }
    }

    fn raw_variable(&self, name: &str) -> Option<(&str, Origin)> {
        if let Some(value) = self.environment.get(name) {
            return Some((value, Origin::Environment { variable: name.to_owned() }));
        }
        let it = self.dotenv.variables.get(name)?;
        let path = self.dotenv.path.clone();
        Some((&it.value, Origin::DotEnv { path, line: it.line, variable: name.to_owned() }))
    }
}

/// The section and the field that a key names, if they may be a plugin's.
pub(crate) fn section_field(key: &str) -> Option<(&str, &str)> {
    let (section, field) = key.split_once('.')?;
    let is_theirs = !section.is_empty() && !field.is_empty() && !field.contains('.');
    (is_theirs && table::find(section).is_none() && !super::show::is_section(section)).then_some((section, field))
}

/// The error for an option that names no setting, with what is near among the known keys.
pub(crate) fn unknown_key<'a>(option: &Override, known: impl IntoIterator<Item = &'a str>) -> SettingsError {
    let near = close_matches(&option.key, known).first().map(|it| (*it).to_owned());
    SettingsError::UnknownKey { flag: option.flag.clone(), key: option.key.clone(), near }
}

/// The `.env` that was read, if there was one.
pub(crate) fn dotenv_path(layers: &Layers) -> Option<&Path> {
    Some(layers.dotenv.path.as_path()).filter(|it| !it.as_os_str().is_empty())
}

fn found(setting: &Setting, value: Result<Value, String>, origin: Origin) -> Result<Found, SettingsError> {
    match value {
        Ok(value) => Ok(Found { value, origin }),
        Err(problem) => Err(SettingsError::Value { key: setting.key.to_owned(), origin, problem }),
    }
}

fn preset(setting: &Setting) -> Result<Value, SettingsError> {
    match setting.preset {
        Preset::Value(text) => {
            found(setting, setting.kind.read_text(setting.key, text), Origin::Default).map(|it| it.value)
        }
        Preset::None(_) => Ok(Value::Null),
    }
}
