//! Arguments of `bub login`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where to log in.
#[derive(Debug, Subcommand)]
pub(crate) enum LoginCommand {
    /// To ChatGPT, with the Codex program; its login is shared with it
    Codex {
        /// The Codex program
        #[arg(long, default_value = "codex", value_name = "PROGRAM")]
        executable: String,

        /// Log in with a code on another device
        #[arg(long)]
        device_auth: bool,

        /// Folder of the login [default: CODEX_HOME, else ~/.codex]
        #[arg(long, value_name = "DIR")]
        codex_home: Option<PathBuf>,
    },

    /// To OpenRouter, with a browser; it gives a key, which is kept for you
    Openrouter(BrowserArgs),
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
}
