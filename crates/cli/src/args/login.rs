//! Arguments of `bub login`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `bub login`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a name: what can be logged in to, and whether you are."
)]
pub(crate) struct LoginArgs {
    /// One JSON object per login
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Option<LoginCommand>,
}

/// Where to log in.
#[derive(Debug, Subcommand)]
pub(crate) enum LoginCommand {
    /// To OpenRouter, with a browser; it gives a key, which is kept for you
    Openrouter(BrowserArgs),

    /// To GitHub Copilot, with a code that you type at GitHub
    Copilot(CopilotArgs),

    /// To ChatGPT, with the Codex program; its login is shared with it
    Codex {
        #[command(flatten)]
        program: ProgramArgs,

        /// Folder of the login [default: CODEX_HOME, else ~/.codex]
        #[arg(long, value_name = "DIR")]
        codex_home: Option<PathBuf>,
    },

    /// To xAI, with the Grok program; its login is shared with it
    Grok(ProgramArgs),
}

/// How a login goes through a browser.
#[derive(Debug, Args)]
pub(crate) struct BrowserArgs {
    /// Open no browser, only say where to go
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// How long to wait, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) timeout: u32,

    /// Remove the login that is kept
    #[arg(long, conflicts_with_all = ["no_browser", "timeout"])]
    pub(crate) logout: bool,
}

/// How a login to Copilot goes.
#[derive(Debug, Args)]
pub(crate) struct CopilotArgs {
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,

    /// A stand-in for GitHub on this machine
    #[arg(long, hide = true, value_name = "URL")]
    pub(crate) github: Option<String>,
}

/// How a login goes through another program.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The program [default: codex or grok]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) executable: Option<String>,

    /// Log in with a code on another device
    #[arg(long)]
    pub(crate) device_auth: bool,

    /// Say how to remove the login
    #[arg(long, conflicts_with_all = ["executable", "device_auth"])]
    pub(crate) logout: bool,
}
