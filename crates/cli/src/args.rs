//! The command line.

mod chat;
mod login;
mod skills;
mod tape;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser as NotEmpty};

pub(crate) use chat::{ChatArgs, GatewayArgs};
pub(crate) use login::{BrowserArgs, CopilotArgs, LoginArgs, LoginCommand, ProgramArgs};
pub(crate) use skills::{InstallArgs, SkillsCommand};
pub(crate) use tape::{
    ExportArgs, FilterArgs, ForkArgs, Format, ListArgs, ResetArgs, SearchArgs, ShowArgs, TapeArg, TapeCommand,
    VerifyArgs,
};

/// An agent in your terminal: a model, its tools, and a tape of everything they do.
#[derive(Debug, Parser)]
#[command(
    name = "bub",
    version,
    arg_required_else_help = true,
    after_help = "Tools run without a model:  bub run ',fs.read path=README.md limit=3'\n\
                  Any other line is a shell command:  bub run ',ls -la'\n\
                  With a model:  BUB_MODEL=openai:gpt-4.1 BUB_API_KEY=... bub run 'what is in this folder?'\n\
                  Turn after turn:  bub chat"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) globals: Globals,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, ClapArgs)]
pub(crate) struct Globals {
    /// Folder to work in [default: the current one]
    #[arg(long, short, global = true, value_name = "PATH")]
    pub(crate) workspace: Option<PathBuf>,

    /// Set a setting for this run, as in --set max_steps=5; see `bub config show`
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Log more to standard error: -v what tools do, -vv details, -vvv everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one message, or run one command
    Run(RunArgs),
    /// Talk in the terminal, turn after turn
    Chat(ChatArgs),
    /// Answer the messages of channels, until it is stopped
    Gateway(GatewayArgs),
    /// Run a Python file that calls the tools
    Code(CodeArgs),
    /// Run code for another process of bub
    #[command(hide = true)]
    CodeWorker,
    /// Look at what was recorded, copy it, mend it
    #[command(subcommand)]
    Tape(TapeCommand),
    /// List the tools
    Tools {
        /// One JSON object per tool, with its parameters
        #[arg(long)]
        json: bool,
    },
    /// List the hooks: who implements them, and how they act as one
    #[command(after_help = "asked: the first answer wins, the last name is asked first\n\
                      gathered: all answers count, the first name's first\n\
                      chained: each sees the changes of the one before, the last name goes first\n\
                      observed: all are told")]
    Hooks {
        /// One JSON object per hook
        #[arg(long)]
        json: bool,
    },
    /// List the plugins: what each brought, or why it did not load
    Plugins {
        /// One JSON object per plugin
        #[arg(long)]
        json: bool,
    },
    /// List the models of a provider, or try one
    Models(ModelsArgs),
    /// Log in to a service instead of setting a key, or see where you are logged in
    Login(LoginArgs),
    /// Look at skills, check them, get more
    #[command(subcommand)]
    Skills(SkillsCommand),
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

    /// Show the model an image, audio or video: a file, a web address or a data URL; may be repeated
    #[arg(long, short, value_name = "FILE")]
    pub(crate) attach: Vec<String>,

    /// Session to continue [default: CHANNEL:CHAT_ID]
    #[arg(long, value_name = "ID", value_parser = NotEmpty::new())]
    pub(crate) session_id: Option<String>,

    /// Model for this turn, as provider:model [default: the session's, else the setting]
    #[arg(long, value_name = "MODEL", value_parser = NotEmpty::new())]
    pub(crate) model: Option<String>,

    /// Reasoning effort for this turn
    #[arg(long, value_name = "EFFORT", value_parser = NotEmpty::new())]
    pub(crate) reasoning_effort: Option<String>,

    /// Tools that the model may use, as fs.read,bash; '' is none [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// Skills that the model may use, as gh,release; '' is none [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) skills: Option<Vec<String>>,

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

/// Options of `bub code`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "In the file the tools are async functions: page = await tools.web_fetch(url=\"...\").\n\
                  What it prints goes to standard output, its calls are shown on standard error.\n\
                  Exit codes: 0 ok, 1 the code failed, 2 wrong usage or settings, 130 interrupted.")]
pub(crate) struct CodeArgs {
    /// The file; `-` reads standard input
    #[arg(required_unless_present = "stub")]
    pub(crate) file: Option<PathBuf>,

    /// Print the definitions of the tools instead
    #[arg(long, conflicts_with = "file")]
    pub(crate) stub: bool,

    /// What runs the code: auto, process or sandbox [default: the setting code.runner]
    #[arg(long, value_name = "RUNNER")]
    pub(crate) runner: Option<String>,

    /// Seconds until the code is stopped
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(crate) timeout: u32,

    /// Tools that the code may call, as bash,web.fetch [default: those that the model's code may]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// Session whose tape the tools see and the run is recorded on
    #[arg(long, default_value = "cli:local", value_name = "ID", value_parser = NotEmpty::new())]
    pub(crate) session_id: String,

    /// Do not show the calls
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Options of `bub models`.
#[derive(Debug, ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Prices are US dollars for a million tokens.\n\
                  Try a model:  bub models test openai:gpt-4.1"
)]
pub(crate) struct ModelsArgs {
    /// Whose models [default: those of the configured model's provider]
    pub(crate) provider: Option<String>,

    /// Only those whose id or name contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,

    /// List the providers instead: how each is reached, and where its key comes from
    #[arg(long, conflicts_with_all = ["provider", "filter"])]
    pub(crate) providers: bool,

    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Option<ModelsCommand>,
}

/// What to do with a model.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// Ask a model three short questions, and say what works: text, streaming, tools, images
    Test {
        /// Which one, as provider:model [default: the configured one]
        model: Option<String>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
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
pub(crate) enum ConfigCommand {
    /// Print every setting, its value, and where that came from; secrets are masked
    Show {
        /// One JSON object per setting
        #[arg(long)]
        json: bool,
    },
}
