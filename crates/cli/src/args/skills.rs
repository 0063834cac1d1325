//! `bub skills` on the command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

/// What to do with skills.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    /// List the skills, and what was not loaded and why
    List {
        /// Skills that others of the same name stand before, too
        #[arg(long)]
        all: bool,
        /// One JSON object per skill
        #[arg(long)]
        json: bool,
    },
    /// Print a skill as the model reads it
    Show {
        /// The skill's name
        name: String,
    },
    /// Check skills against the rules; fails when one is broken
    Check {
        /// A skill's folder, or a folder with skills [default: all places]
        path: Option<PathBuf>,
    },
    /// Copy skills from a folder or a git repository
    Install(InstallArgs),
}

/// Options of `bub skills install`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Skills go to .agents/skills of your home folder, with --workspace to that of the workspace.\n\
                        Read a skill before you use it: its scripts run with your rights.")]
pub(crate) struct InstallArgs {
    /// A folder, or the address of a git repository: https://..., ssh://..., git@host:...
    pub(crate) source: String,
    /// Skills to install [default: all of the source]
    pub(crate) names: Vec<String>,
    /// Replace skills that are there
    #[arg(long)]
    pub(crate) force: bool,
}
