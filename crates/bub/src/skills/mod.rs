//! Skills: folders with instructions that the model reads when it needs them.
//!
//! A skill is a folder with a `SKILL.md`: a header in YAML (`name`, `description`) and a text. The model
//! is told names and descriptions, and reads a text with the tool `skill`, or when the person names the
//! skill as `$name`. A folder that is no proper skill is reported, never passed over in silence.

mod builtin;
mod catalog;
mod discover;
mod hooks;
mod install;
mod parse;
mod render;
mod tool;

pub use self::{
    catalog::{Catalog, Rejected, Skill, SkillText, Source},
    discover::{Skills, inspect, skill_folders},
    hooks::SkillHooks,
    install::{Candidate, InstallError, candidates, install},
    tool::{NotLoaded, SkillArgs, SkillResult, SkillTool},
};
