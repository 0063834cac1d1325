//! What was found: skills, and folders that are none.

use std::{fmt, path::PathBuf};

use super::builtin::Builtin;

/// Where a skill comes from, in the order of rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// A folder of the setting `skill_dirs`.
    Configured,
    /// `.agents/skills` of the workspace.
    Project,
    /// `.agent/skills` of the workspace, an older place.
    Legacy,
    /// `.agents/skills` of the person's home folder.
    User,
    /// bub itself.
    Builtin,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Configured => "configured",
            Self::Project => "project",
            Self::Legacy => "legacy",
            Self::User => "user",
            Self::Builtin => "builtin",
        })
    }
}

/// A skill. Its text is read when it is asked for.
#[derive(Clone, Debug)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// When to use it, in one line.
    pub description: String,
    /// Where it comes from.
    pub source: Source,
    /// Its `SKILL.md`.
    pub file: PathBuf,
    /// What is odd about it but no reason to leave it out.
    pub warnings: Vec<String>,
    pub(crate) builtin: Option<Builtin>,
}

/// A folder that is no proper skill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejected {
    /// Its `SKILL.md`, or the folder of skills that can't be read.
    pub file: PathBuf,
    /// The name that it would have.
    pub name: String,
    /// Which rule is broken.
    pub reason: String,
}

/// Everything that was found.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Skills by name.
    pub skills: Vec<Skill>,
    /// Skills whose name another one of higher rank has.
    pub shadowed: Vec<Skill>,
    /// Folders that are no proper skills.
    pub rejected: Vec<Rejected>,
    /// What else there is to say.
    pub warnings: Vec<String>,
}

impl Catalog {
    /// The skill of that name, in any case.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Skill> {
        let wanted = name.trim().to_lowercase();
        self.skills.iter().find(|it| it.name == wanted)
    }
}

/// A skill's text, ready to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SkillText {
    /// The path of its `SKILL.md`.
    pub location: String,
    /// The text below the header, with its placeholders filled in.
    pub body: String,
}
