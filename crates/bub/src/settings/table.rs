//! Every setting there is: the one table that loading, `config show` and the reference are made from.

use super::kind::Kind;

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in the configuration file; dots separate a section from what is in it.
    pub(crate) key: &'static str,
    /// Its environment variable.
    pub(crate) variable: &'static str,
    /// What values it takes.
    pub(crate) kind: Kind,
    /// What it is when nobody says.
    pub(crate) preset: Preset,
    /// Whether its value is a credential.
    pub(crate) secret: bool,
    /// What it does, with its unit: Markdown.
    pub(crate) meaning: &'static str,
}

/// What a setting is when nobody says.
#[derive(Debug)]
pub(crate) enum Preset {
    /// This text, read as from a variable.
    Value(&'static str),
    /// No value; what that means.
    None(&'static str),
}

/// Shorthand for a setting that is no credential.
const fn setting(
    key: &'static str,
    variable: &'static str,
    kind: Kind,
    preset: Preset,
    meaning: &'static str,
) -> Setting {
    Setting { key, variable, kind, preset, secret: false, meaning }
}

pub(crate) const MODEL: Setting = setting(
    "model",
    "BUB_MODEL",
    Kind::Model,
    Preset::None(
        "`openrouter:openrouter/free` if a key for OpenRouter is found, else none: commands work, messages do not",
    ),
    "The model that answers, as `provider:model`; the provider may be one of `providers`.",
);
pub(crate) const FALLBACK_MODELS: Setting = setting(
    "fallback_models",
    "BUB_FALLBACK_MODELS",
    Kind::Models,
    Preset::Value("[]"),
    "Models to try in turn when the answer of `model` can't be started.",
);
pub(crate) const API_KEY: Setting = Setting {
    key: "api_key",
    variable: "BUB_API_KEY",
    kind: Kind::TextOrFields,
    preset: Preset::None("none"),
    secret: true,
    meaning: "The key for every provider, or a map from provider to key.",
};
pub(crate) const API_BASE: Setting = setting(
    "api_base",
    "BUB_API_BASE",
    Kind::TextOrFields,
    Preset::None("the provider's own"),
    "The address of every provider, or a map from provider to address.",
);
pub(crate) const PROVIDERS: Setting = setting(
    "providers",
    "BUB_PROVIDERS",
    Kind::Fields,
    Preset::Value("{}"),
    "Providers of your own: a map from name to `{type, api_key, api_base, api_format}`, where `type` is a provider that bub knows. `model: name:…` then uses it.",
);
pub(crate) const MAX_TOKENS: Setting = setting(
    "max_tokens",
    "BUB_MAX_TOKENS",
    Kind::Whole(1, u32::MAX as u64),
    Preset::Value("16384"),
    "The most tokens that the model may write in one step; less where `bub models` has told that it writes less, or that less fits into half of its window.",
);
pub(crate) const MODEL_TIMEOUT_SECONDS: Setting = setting(
    "model_timeout_seconds",
    "BUB_MODEL_TIMEOUT_SECONDS",
    Kind::Seconds { zero: false },
    Preset::None("no limit"),
    "The longest that one answer of the model may take in all, in seconds.",
);
pub(crate) const CLIENT_ARGS: Setting = setting(
    "client_args",
    "BUB_CLIENT_ARGS",
    Kind::Fields,
    Preset::Value("{}"),
    "Options for the connection to the provider, such as `headers`.",
);
pub(crate) const COMPLETION_ARGS: Setting = setting(
    "completion_args",
    "BUB_COMPLETION_ARGS",
    Kind::Fields,
    Preset::Value("{}"),
    "Options for every request, such as `reasoning_effort` or `temperature`.",
);
pub(crate) const COMMAND_PREFIX: Setting = setting(
    "command_prefix",
    "BUB_COMMAND_PREFIX",
    Kind::Prefix,
    Preset::Value(","),
    "What a message starts with to be a command: one or more characters, no whitespace.",
);
pub(crate) const MAX_STEPS: Setting = setting(
    "max_steps",
    "BUB_MAX_STEPS",
    Kind::Whole(1, u32::MAX as u64),
    Preset::None("no limit"),
    "The most steps (answers of the model) of one turn.",
);
pub(crate) const MAX_AUTO_HANDOFFS: Setting = setting(
    "max_auto_handoffs",
    "BUB_MAX_AUTO_HANDOFFS",
    Kind::Whole(0, u32::MAX as u64),
    Preset::Value("1"),
    "How often one turn starts afresh from a new anchor when the conversation no longer fits the model.",
);
pub(crate) const CONTEXT_WINDOW: Setting = setting(
    "context.window",
    "BUB_CONTEXT_WINDOW",
    Kind::Whole(1, u32::MAX as u64),
    Preset::None("what the provider told when `bub models` last listed its models; else unknown"),
    "How many tokens fit into the model's context. `tape.info` then tells how full it is, and a notice from 90 % on.",
);
pub(crate) const CONTEXT_SUMMARY: Setting = setting(
    "context.summary",
    "BUB_CONTEXT_SUMMARY",
    Kind::Choice(&["off", "model"]),
    Preset::Value("off"),
    "Whether the session's `model` is asked to sum up a conversation that no longer fits, before a new context begins.",
);
pub(crate) const ENABLED_CHANNELS: Setting = setting(
    "enabled_channels",
    "BUB_ENABLED_CHANNELS",
    Kind::Words,
    Preset::Value("all"),
    "Which channels the gateway listens on: names, `all` for every one that is set up, `!name` for all but that one.",
);
pub(crate) const DEBOUNCE_SECONDS: Setting = setting(
    "debounce_seconds",
    "BUB_DEBOUNCE_SECONDS",
    Kind::Seconds { zero: true },
    Preset::Value("1"),
    "How long a channel waits for more after a message that is addressed to bub, in seconds; those that come meanwhile are answered in one turn.",
);
pub(crate) const MAX_WAIT_SECONDS: Setting = setting(
    "max_wait_seconds",
    "BUB_MAX_WAIT_SECONDS",
    Kind::Seconds { zero: true },
    Preset::Value("10"),
    "How long messages that others write in a group are gathered while a conversation goes on, in seconds.",
);
pub(crate) const ACTIVE_TIME_WINDOW: Setting = setting(
    "active_time_window",
    "BUB_ACTIVE_TIME_WINDOW",
    Kind::Seconds { zero: true },
    Preset::Value("60"),
    "How long after a message that is addressed to bub the conversation in a group counts as going on, in seconds.",
);
pub(crate) const STREAM_OUTPUT: Setting = setting(
    "stream_output",
    "BUB_STREAM_OUTPUT",
    Kind::Switch,
    Preset::Value("false"),
    "Whether channels show an answer while it is written; `chat` always does.",
);
pub(crate) const VERBOSE: Setting = setting(
    "verbose",
    "BUB_VERBOSE",
    Kind::Whole(0, 2),
    Preset::Value("0"),
    "How much is logged: 0 is info, 1 debug, 2 trace.",
);
pub(crate) const SPILL_THRESHOLD: Setting = setting(
    "spill.threshold",
    "BUB_SPILL_THRESHOLD",
    Kind::Whole(0, u32::MAX as u64),
    Preset::Value("4096"),
    "From how many tokens on (a token is taken as 4 characters) a tool's result is set aside, with an excerpt in the conversation; 0 is never.",
);
pub(crate) const SHELL_MAX_OUTPUT_BYTES: Setting = setting(
    "shell.max_output_bytes",
    "BUB_SHELL_MAX_OUTPUT_BYTES",
    Kind::Whole(65_536, 1 << 40),
    Preset::Value("268435456"),
    "The most output that is kept of one shell command, in bytes; beyond it the middle is dropped.",
);
pub(crate) const SHELL_PASS_CREDENTIALS: Setting = setting(
    "shell.pass_credentials",
    "BUB_SHELL_PASS_CREDENTIALS",
    Kind::Switch,
    Preset::Value("false"),
    "Whether shell commands see the variables that hold bub's own credentials.",
);
pub(crate) const WEB_RENDER_HTML: Setting = setting(
    "web.render_html",
    "BUB_WEB_RENDER_HTML",
    Kind::Choice(&["markdown", "raw"]),
    Preset::Value("markdown"),
    "How `web.fetch` shows HTML: made into Markdown, or as it is.",
);
pub(crate) const WEB_MAX_BYTES: Setting = setting(
    "web.max_bytes",
    "BUB_WEB_MAX_BYTES",
    Kind::Whole(1, 1 << 30),
    Preset::Value("10485760"),
    "The largest body that `web.fetch` reads, in bytes after decompression.",
);
pub(crate) const MEDIA_MAX_IMAGE_SIDE: Setting = setting(
    "media.max_image_side",
    "BUB_MEDIA_MAX_IMAGE_SIDE",
    Kind::Whole(0, 65_535),
    Preset::Value("2000"),
    "Images with more pixels on their longer side are scaled down to it before they are sent; 0 sends them as they are.",
);
pub(crate) const WEB_PRIVATE_ADDRESSES: Setting = setting(
    "web.private_addresses",
    "BUB_WEB_PRIVATE_ADDRESSES",
    Kind::Choice(&["auto", "allow", "deny"]),
    Preset::Value("auto"),
    "Whether `web.fetch` may reach this machine and private networks: `auto` allows it in the local terminal and for commands that a person types. The metadata addresses of clouds need `allow`.",
);
pub(crate) const ENVIRONMENT_EXEC: Setting = setting(
    "environment.exec",
    "BUB_ENVIRONMENT_EXEC",
    Kind::Command,
    Preset::None("none: tools run on this machine"),
    "The command that leads to where tools run, such as `[\"docker\", \"exec\", \"-i\", \"box\"]`: what is to be run is added to it.",
);
pub(crate) const ENVIRONMENT_WORKSPACE: Setting = setting(
    "environment.workspace",
    "BUB_ENVIRONMENT_WORKSPACE",
    Kind::Text,
    Preset::None("where the command starts programs"),
    "The folder that tools work in there, an absolute path; only with `environment.exec`.",
);
pub(crate) const ENVIRONMENT_SHELL: Setting = setting(
    "environment.shell",
    "BUB_ENVIRONMENT_SHELL",
    Kind::Text,
    Preset::None("`bash`, else `sh`"),
    "The shell that runs commands there; only with `environment.exec`.",
);
pub(crate) const CODE_RUNNER: Setting = setting(
    "code.runner",
    "BUB_CODE_RUNNER",
    Kind::Choice(&["auto", "process", "sandbox"]),
    Preset::Value("auto"),
    "What runs the model's Python: a `process` of the host's Python, the `sandbox` inside bub, or `auto`, which is the process where there is a Python.",
);
pub(crate) const PYTHON: Setting = setting(
    "python",
    "BUB_PYTHON",
    Kind::Text,
    Preset::Value("python3"),
    "The Python of `code.runner: process`: a name to look up in `PATH`, or a path.",
);
pub(crate) const SKILL_DIRS: Setting = setting(
    "skill_dirs",
    "BUB_SKILL_DIRS",
    Kind::Words,
    Preset::None("`.agents/skills` of the workspace and of the home folder, and bub's own"),
    "The folders to look for skills in, instead of the usual ones; `[]` is none.",
);
pub(crate) const TAPE_SYNC: Setting = setting(
    "tape.sync",
    "BUB_TAPE_SYNC",
    Kind::Choice(&["commit", "never"]),
    Preset::Value("commit"),
    "When tapes are flushed to the disk: at the end of every turn, or when the system likes.",
);
pub(crate) const SESSION_WAIT_SECONDS: Setting = setting(
    "session.wait_seconds",
    "BUB_SESSION_WAIT_SECONDS",
    Kind::Seconds { zero: true },
    Preset::Value("60"),
    "How long a turn waits for another process that is using the same session, in seconds.",
);
pub(crate) const TELEGRAM_TOKEN: Setting = Setting {
    key: "telegram.token",
    variable: "BUB_TELEGRAM_TOKEN",
    kind: Kind::Text,
    preset: Preset::None("none: the channel is off"),
    secret: true,
    meaning: "The bot's token.",
};
pub(crate) const TELEGRAM_ALLOW_USERS: Setting = setting(
    "telegram.allow_users",
    "BUB_TELEGRAM_ALLOW_USERS",
    Kind::Words,
    Preset::None("everybody"),
    "Who may talk to the bot: ids or user names.",
);
pub(crate) const TELEGRAM_ALLOW_CHATS: Setting = setting(
    "telegram.allow_chats",
    "BUB_TELEGRAM_ALLOW_CHATS",
    Kind::Words,
    Preset::None("every chat"),
    "In which chats the bot listens: ids or names.",
);
pub(crate) const TELEGRAM_PROXY: Setting = setting(
    "telegram.proxy",
    "BUB_TELEGRAM_PROXY",
    Kind::Text,
    Preset::None("none"),
    "The proxy to reach Telegram through, as a URL.",
);

/// All settings, in the order of the reference.
pub(crate) const SETTINGS: &[Setting] = &[
    MODEL,
    FALLBACK_MODELS,
    API_KEY,
    API_BASE,
    PROVIDERS,
    MAX_TOKENS,
    MODEL_TIMEOUT_SECONDS,
    CLIENT_ARGS,
    COMPLETION_ARGS,
    COMMAND_PREFIX,
    MAX_STEPS,
    MAX_AUTO_HANDOFFS,
    CONTEXT_WINDOW,
    CONTEXT_SUMMARY,
    ENABLED_CHANNELS,
    DEBOUNCE_SECONDS,
    MAX_WAIT_SECONDS,
    ACTIVE_TIME_WINDOW,
    STREAM_OUTPUT,
    VERBOSE,
    SPILL_THRESHOLD,
    SHELL_MAX_OUTPUT_BYTES,
    SHELL_PASS_CREDENTIALS,
    WEB_RENDER_HTML,
    WEB_MAX_BYTES,
    WEB_PRIVATE_ADDRESSES,
    MEDIA_MAX_IMAGE_SIDE,
    ENVIRONMENT_EXEC,
    ENVIRONMENT_WORKSPACE,
    ENVIRONMENT_SHELL,
    CODE_RUNNER,
    PYTHON,
    SKILL_DIRS,
    TAPE_SYNC,
    SESSION_WAIT_SECONDS,
    TELEGRAM_TOKEN,
    TELEGRAM_ALLOW_USERS,
    TELEGRAM_ALLOW_CHATS,
    TELEGRAM_PROXY,
];

/// The setting of that key.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|it| it.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_values_of_their_kind() {
        for it in SETTINGS {
            if let Preset::Value(text) = it.preset {
                let value = it.kind.read_text(it.key, text);
                assert!(value.as_ref().is_ok_and(|it| !it.is_null()), "{}: {value:?}", it.key);
            }
        }
    }

    #[test]
    fn keys_and_variables_are_unique_and_belong_together() {
        let mut keys: Vec<_> = SETTINGS.iter().map(|it| it.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), SETTINGS.len());
        for it in SETTINGS {
            assert_eq!(it.variable, format!("BUB_{}", it.key.replace('.', "_").to_uppercase()));
        }
    }
}
