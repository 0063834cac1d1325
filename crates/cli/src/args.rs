//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// An agent in your terminal: a model, its tools, and a tape of everything they do.
#[derive(Debug, Parser)]
#[command(
    name = "bub",
    version,
    arg_required_else_help = true,
    after_help = "Tools run without a model:  bub run ',fs.read path=README.md limit=3'\n\
                  Any other line is a shell command:  bub run ',ls -la'\n\
                  With a model:  BUB_MODEL=openai:gpt-4.1 BUB_API_KEY=... bub run 'what is in this folder?'"
)]
pub(crate) struct Args {
    /// Folder to work in [default: the current one]
    #[arg(long, short, global = true, value_name = "PATH")]
    pub(crate) workspace: Option<PathBuf>,

    /// Set a setting for this run, as in --set max_steps=5; see `bub config show`
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Log more to standard error: -v what tools do, -vv details, -vvv everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one message, or run one command
    Run(RunArgs),
    /// Look at what was recorded
    #[command(subcommand)]
    Tape(TapeCommand),
    /// List the tools
    Tools {
        /// One JSON object per tool, with its parameters
        #[arg(long)]
        json: bool,
    },
    /// List the hooks and who implements them
    Hooks,
    /// Look at the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = "For bash:  bub completions bash > ~/.local/share/bash-completion/completions/bub")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Options of `bub run`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A message that begins with ',' is a command: a tool with its arguments, or a line for the shell.\n\
                        The answer goes to standard output, everything else to standard error.\n\
                        Exit codes: 0 ok, 1 the turn failed, 2 wrong usage or settings, 130 interrupted."
)]
pub(crate) struct RunArgs {
    /// What to say (after `--` if it begins with a dash); `-`, or nothing when input is piped, reads standard input
    pub(crate) message: Option<String>,

    /// Session to continue [default: CHANNEL:CHAT_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: Option<String>,

    /// Model for this turn, as provider:model [default: the session's, else the setting]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Reasoning effort for this turn
    #[arg(long, value_name = "EFFORT")]
    pub(crate) reasoning_effort: Option<String>,

    /// Tools that the model may use, as fs.read,bash [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,

    /// Print nothing but the answer
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Channel that the message is said to come from
    #[arg(long, default_value = "cli", value_name = "NAME")]
    pub(crate) channel: String,

    /// Conversation of that channel
    #[arg(long, default_value = "local", value_name = "ID")]
    pub(crate) chat_id: String,

    /// Who is said to speak
    #[arg(long, default_value = "human", value_name = "ID")]
    pub(crate) sender_id: String,
}

/// How `bub run` prints.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Output {
    /// The answer; on a terminal as it comes
    Text,
    /// One JSON object when the turn has ended
    Json,
    /// A JSON object per event, as it happens, and one at the end
    StreamJson,
}

/// What to look at.
#[derive(Debug, Subcommand)]
pub(crate) enum TapeCommand {
    /// List the tapes, newest first
    List {
        /// Tapes of all workspaces, not only this one's
        #[arg(long)]
        all: bool,
        /// One JSON object per tape
        #[arg(long)]
        json: bool,
    },
    /// Print what is on a tape
    Show {
        #[command(flatten)]
        tape: TapeArg,
        /// The last N entries only
        #[arg(long, short = 'n', value_name = "N")]
        last: Option<usize>,
        /// Entries of this kind only (message, tool_call, tool_result, event, anchor, system, error)
        #[arg(long, value_name = "KIND")]
        kind: Vec<String>,
        /// The lines of the tape as they are
        #[arg(long)]
        json: bool,
    },
    /// Print counts and the last use of tokens
    Info {
        #[command(flatten)]
        tape: TapeArg,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Find text on a tape, newest first
    Search {
        /// What to find, in any case; nearly equal words count too
        query: String,
        #[command(flatten)]
        tape: TapeArg,
        /// The most entries to print
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
        limit: usize,
        /// Kinds to look at [default: message and tool_result]
        #[arg(long, value_name = "KIND")]
        kind: Vec<String>,
        /// The earliest date, as 2026-01-31 or 2026-01-31T12:00
        #[arg(long, value_name = "DATE")]
        since: Option<String>,
        /// The latest date, a day included
        #[arg(long, value_name = "DATE")]
        until: Option<String>,
        /// The lines of the tape as they are
        #[arg(long)]
        json: bool,
    },
}

/// Which tape.
#[derive(Debug, ClapArgs)]
pub(crate) struct TapeArg {
    /// Session id, or a tape's name as `bub tape list` prints it
    #[arg(default_value = "cli:local", value_name = "SESSION")]
    pub(crate) session: String,
}

/// What to look at.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value, and where that came from; secrets are masked
    Show {
        /// One JSON object per setting
        #[arg(long)]
        json: bool,
    },
}
