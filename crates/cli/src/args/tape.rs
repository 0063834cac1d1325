//! The command line of `bub tape`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What to do with tapes.
#[derive(Debug, Subcommand)]
pub(crate) enum TapeCommand {
    /// List the tapes, newest first
    List(ListArgs),
    /// Print what is on a tape
    Show(ShowArgs),
    /// Print counts and the last use of tokens
    Info {
        #[command(flatten)]
        tape: TapeArg,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Find text on a tape, newest first
    Search(SearchArgs),
    /// List the anchors of a tape
    Anchors {
        #[command(flatten)]
        tape: TapeArg,
        /// The lines of the tape as they are
        #[arg(long)]
        json: bool,
    },
    /// Write a tape in another form
    Export(ExportArgs),
    /// Copy a tape and its sidecars to archives beside them
    Archive {
        #[command(flatten)]
        tape: TapeArg,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Empty a tape and its sidecars
    Reset(ResetArgs),
    /// Start a session from an earlier point of another
    Fork(ForkArgs),
    /// Look for damage, and mend it
    Verify(VerifyArgs),
}

/// Which tape.
#[derive(Debug, Args)]
pub(crate) struct TapeArg {
    /// Session id, or a tape's name as `bub tape list` prints it
    #[arg(default_value = "cli:local", value_name = "SESSION")]
    pub(crate) session: String,
}

/// Which entries.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Entries of these kinds only: message, tool_call, tool_result, event, anchor, system, error
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,

    /// The earliest time: 2026-01-31, 2026-01-31T12:00 (your time zone), today, yesterday, or 2h (ago)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// The latest time, written alike; of a day its end
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
}

/// Options of `bub tape list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Tapes of all workspaces, not only this one's
    #[arg(long)]
    pub(crate) all: bool,

    /// The most tapes to print, 0 for all [default: 50, with --json all]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// One JSON object per tape
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bub tape show`.
#[derive(Debug, Args)]
#[command(after_help = "Bookkeeping (starts and ends of steps, repeated system prompts) is left out without --full.\n\
                        Times are in your time zone. --follow ends with Ctrl-C and exit code 0.")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) tape: TapeArg,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// The last N entries only
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) last: Option<usize>,

    /// Entries by id: 12, 12..20, 12.. or ..20
    #[arg(long, value_name = "IDS")]
    pub(crate) at: Option<String>,

    /// Go on with entries as they come, whoever writes them; begins with the last 10 unless told otherwise
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Everything, unfolded and uncut
    #[arg(long)]
    pub(crate) full: bool,

    /// The lines of the tape as they are
    #[arg(long, conflicts_with = "full")]
    pub(crate) json: bool,
}

/// Options of `bub tape search`.
#[derive(Debug, Args)]
#[command(after_help = "Without --kind, messages and results of tools are searched.")]
pub(crate) struct SearchArgs {
    /// What to find, in any case; nearly equal words count too
    pub(crate) query: String,

    #[command(flatten)]
    pub(crate) tape: TapeArg,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// The most entries to print
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
    pub(crate) limit: usize,

    /// The lines of the tape as they are
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bub tape export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) tape: TapeArg,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Entries by id: 12, 12..20, 12.. or ..20
    #[arg(long, value_name = "IDS")]
    pub(crate) at: Option<String>,

    /// In which form
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    pub(crate) format: Format,

    /// Write to this file, which is replaced when all is written [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Forms of an export.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// The lines of the tape as they are
    Jsonl,
    /// The conversation, to read
    Markdown,
    /// One array of all entries
    Json,
}

/// Options of `bub tape reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) tape: TapeArg,

    /// Archive it first
    #[arg(long)]
    pub(crate) archive: bool,

    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Options of `bub tape fork`.
#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// Session id or tape to start from
    #[arg(value_name = "SESSION")]
    pub(crate) from: String,

    /// Up to and including this entry; a cut between calls and their results moves to before the calls
    /// [default: all of it]
    #[arg(long, value_name = "ID")]
    pub(crate) at: Option<u64>,

    /// Id of the new session, of this workspace
    #[arg(value_name = "NEW")]
    pub(crate) new: String,

    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `bub tape verify`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 something is.\n\
                        --repair keeps each damaged file under another name, and every entry that can be read.")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) tape: TapeArg,

    /// Every tape of the home folder
    #[arg(long, conflicts_with = "session")]
    pub(crate) all: bool,

    /// Mend what is found
    #[arg(long)]
    pub(crate) repair: bool,

    /// One JSON object per tape
    #[arg(long)]
    pub(crate) json: bool,
}
