//! `bub chat` and `bub gateway` on the command line.

use clap::{Args as ClapArgs, builder::NonEmptyStringValueParser as NotEmpty};

/// Options of `bub chat`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Type a message, or a command: ',help' lists them, any other line after the comma is for the shell.\n\
                  What you type while the model works is read at its next step.\n\
                  Ctrl-C stops the turn; at an empty prompt, twice leaves. So do Ctrl-D, ',quit' and ',exit'.\n\
                  Piped input: a message per line, each answered before the next is read.\n\
                  Exit codes: 0 ok, 1 a turn failed (piped input only), 2 wrong usage or settings, 130 interrupted."
)]
pub(crate) struct ChatArgs {
    /// What to say first
    pub(crate) initial_prompt: Option<String>,

    /// Session to continue
    #[arg(long, value_name = "ID", default_value = "cli_session", value_parser = NotEmpty::new())]
    pub(crate) session_id: String,

    /// Tools that the model may use, as fs.read,bash; '' is none [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// Skills that the model may use, as gh,release; '' is none [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) skills: Option<Vec<String>>,

    /// Conversation of the channel `cli`
    #[arg(long, value_name = "ID", default_value = "local")]
    pub(crate) chat_id: String,
}

/// Options of `bub gateway`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Channels come with plugins. Without the option, the setting enabled_channels chooses; it is `all` by default.\n\
                  Ctrl-C stops it: turns are cancelled and recorded, whoever waits for an answer is told.\n\
                  Exit codes: 0 stopped, 1 nothing to listen on, or all channels failed, 2 wrong usage or settings."
)]
pub(crate) struct GatewayArgs {
    /// Listen on this channel, `all`, or with `!NAME` on all but it; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) enable_channel: Vec<String>,
}
