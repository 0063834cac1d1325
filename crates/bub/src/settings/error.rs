//! Why settings did not load.

use std::{io, path::PathBuf};

use super::Origin;

/// Why settings did not load. Every message names the place to look at; none repeats a credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The configuration file is there but can't be read.
    #[error("cannot read the configuration file {}: {source}", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The configuration file is not what it should be.
    #[error("{}{}: {problem}", .path.display(), place(*.line, *.column))]
    Config {
        /// Which file.
        path: PathBuf,
        /// Where, counted from 1; 0 when the whole file is meant.
        line: u64,
        /// Where in the line, counted from 1 in characters; 0 when the whole line is meant.
        column: u64,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A setting has a value that it can't have.
    #[error("{origin}: {problem}")]
    Value {
        /// Which setting: its key.
        key: String,
        /// Where the value comes from.
        origin: Origin,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// The command line names a setting that does not exist.
    #[error("{flag}: there is no setting '{key}'; {}", hint(.near.as_deref()))]
    UnknownKey {
        /// As the command line has it.
        flag: String,
        /// The key that it asked for.
        key: String,
        /// The setting whose key is most like that.
        near: Option<String>,
    },
}

fn hint(near: Option<&str>) -> String {
    near.map_or_else(|| "`bub config show` lists them".to_owned(), |it| format!("did you mean '{it}'?"))
}

fn place(line: u64, column: u64) -> String {
    match (line, column) {
        (0, _) => String::new(),
        (line, 0) => format!(":{line}"),
        (line, column) => format!(":{line}:{column}"),
    }
}
