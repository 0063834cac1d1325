//! Settings: what can be set, where values come from, and which place wins.
//!
//! [`Settings::load`] reads every place once: options of the command line, the environment, `.env`,
//! the configuration file, the variables of providers, and the defaults, in this order of rank.
//! Nothing of the process is read here but through [`Sources`], and nothing of it is changed.

mod dotenv;
mod error;
mod file;
mod kind;
mod layers;
mod logins;
mod paths;
mod providers;
mod reference;
mod secrets;
mod show;
mod sources;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bub_kernel::plugin::Section;
use serde_json::{Map, Value};

pub use self::{
    error::SettingsError,
    layers::{Origin, Override},
    logins::Login,
    paths::{HOME_VARIABLE, HomeError, Paths},
    providers::{Address, Credential, Endpoint},
    reference::reference,
    secrets::{ChildVariables, Secret, Secrets},
    show::{Shown, UnknownKey},
    sources::Sources,
};
use self::{
    layers::{Layers, Resolved},
    logins::KeptKey,
    table::Setting,
};

/// All settings, checked.
#[derive(Clone)]
pub struct Settings {
    /// The model that answers, as `provider:model`. `None` when nothing is configured: the default
    /// of OpenRouter's free models stands here only when there is a key for it.
    pub model: Option<String>,
    /// Models to try in turn when the answer of `model` can't be started.
    pub fallback_models: Vec<String>,
    /// The most tokens of one step's answer; 16,384 by default.
    pub max_tokens: u32,
    /// The longest that one answer may take in all; no limit by default.
    pub model_timeout: Option<Duration>,
    /// Options for the connection to the provider.
    pub client_args: Map<String, Value>,
    /// Options for every request.
    pub completion_args: Map<String, Value>,
    /// What commands start with; `,` by default. Never empty, no whitespace.
    pub command_prefix: String,
    /// The most steps of one turn; no limit by default.
    pub max_steps: Option<u32>,
    /// How often a turn may start afresh when the context is too long; 1 by default.
    pub max_auto_handoffs: u32,
    /// How many tokens fit into the model's context; `None` is what the provider told.
    pub context_window: Option<u64>,
    /// Whether the model sums up a conversation that no longer fits; off by default.
    pub context_summary: bool,
    /// Which channels the gateway listens on: names, `all`, and `!name` for all but that one. `None` is all,
    /// the default.
    pub enabled_channels: Option<Vec<String>>,
    /// How long a channel waits for more after a message that is addressed to bub; 1 s by default.
    pub debounce: Duration,
    /// How long it waits after one that is not, while a conversation goes on; 10 s by default.
    pub max_wait: Duration,
    /// How long a group's conversation counts as going on; 60 s by default.
    pub active_time_window: Duration,
    /// Whether channels show an answer while it is written; off by default.
    pub stream_output: bool,
    /// How much is logged: 0 info (the default), 1 debug, 2 trace.
    pub verbose: u8,
    /// The Python of code mode's process runner; `python3` by default.
    pub python: String,
    /// What runs code mode's Python.
    pub code_runner: CodeRunnerChoice,
    /// The folders to look for skills in, as they were given, instead of the usual ones; empty is none.
    pub skill_dirs: Option<Vec<String>>,
    /// From how many tokens on (4 characters each) a result is set aside; 4,096 by default, 0 is never.
    pub spill_threshold: u32,
    /// Shell commands.
    pub shell: ShellSettings,
    /// `web.fetch`.
    pub web: WebSettings,
    /// The most pixels of an image's longer side when it is sent; 2,000 by default, 0 is no limit.
    pub max_image_side: u32,
    /// Where tools run, when that is not this machine.
    pub environment: Option<EnvironmentSettings>,
    /// Telegram.
    pub telegram: TelegramSettings,
    /// When tapes are flushed to the disk.
    pub tape_sync: TapeSync,
    /// How long a turn waits for another process with the same session; 60 s by default.
    pub session_wait: Duration,
    /// The sections of the configuration file that are not bub's own, as they are.
    pub sections: Map<String, Value>,
    /// Where bub keeps its files.
    pub paths: Paths,
    /// What is odd but no reason to stop, one line each.
    pub warnings: Vec<String>,
    providers: Map<String, Value>,
    resolved: BTreeMap<&'static str, Resolved>,
    layers: Arc<Layers>,
}

/// Settings of shell commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShellSettings {
    /// The most output that is kept of one command, in bytes; 256 MiB by default.
    pub max_output_bytes: u64,
    /// Whether commands see the variables with bub's own credentials; off by default.
    pub pass_credentials: bool,
}

/// Settings of `web.fetch`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebSettings {
    /// Whether HTML is made into Markdown (the default) or left as it is.
    pub render_html: RenderHtml,
    /// The largest body, in bytes after decompression; 10 MiB by default.
    pub max_bytes: u64,
    /// Whether this machine and private networks may be reached.
    pub private_addresses: PrivateAddresses,
}

/// Settings of an environment that is reached by a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnvironmentSettings {
    /// The command that leads inside; never empty.
    pub exec: Vec<String>,
    /// The folder that tools work in, inside; where the command starts programs by default.
    pub workspace: Option<String>,
    /// The shell inside; bash or else sh by default.
    pub shell: Option<String>,
}

/// Settings of Telegram.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TelegramSettings {
    /// The bot's token; the channel is off without one.
    pub token: Option<Secret>,
    /// Who may talk to the bot: ids or user names; `None` is everybody.
    pub allow_users: Option<Vec<String>>,
    /// In which chats it listens: ids or names; `None` is every one.
    pub allow_chats: Option<Vec<String>>,
    /// The proxy's URL.
    pub proxy: Option<String>,
}

/// What runs code mode's Python.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CodeRunnerChoice {
    /// The process where there is a Python, else the sandbox.
    #[default]
    Auto,
    /// A Python on the host.
    Process,
    /// The interpreter inside bub.
    Sandbox,
}

/// How `web.fetch` shows HTML.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RenderHtml {
    /// Made into Markdown.
    #[default]
    Markdown,
    /// As it is.
    Raw,
}

/// Whether `web.fetch` may reach this machine and private networks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PrivateAddresses {
    /// In the local terminal, and for commands that a person types.
    #[default]
    Auto,
    /// Yes, the metadata addresses of clouds too.
    Allow,
    /// No.
    Deny,
}

/// When tapes are flushed to the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TapeSync {
    /// At the end of every turn.
    #[default]
    Commit,
    /// When the system likes.
    Never,
}

impl Settings {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// [`SettingsError`] when the configuration file can't be read or understood, or a value is not
    /// what its setting takes. A missing file is no error, and a `.env` that can't be read is a warning.
    pub fn load(sources: Sources) -> Result<Self, SettingsError> {
        let (user_home, cwd, config_file) = (sources.home.clone(), sources.cwd.clone(), sources.config_file.clone());
        let mut layers = Layers::read(sources)?;
        let paths = Paths::new(&layers, &user_home, &cwd, &config_file);
        let (kept_keys, unreadable) = KeptKey::all(&paths);
        layers.kept_keys = kept_keys;
        let mut resolved = BTreeMap::new();
        for setting in table::SETTINGS {
            resolved.insert(setting.key, layers.resolve(setting)?);
        }
        let values = Values(&resolved);
        let providers = values.fields(&table::PROVIDERS);
        let origin = resolved.get(table::PROVIDERS.key).map_or(Origin::Default, Resolved::origin);
        providers::check_shape(&layers, &providers, &origin)?;
        let is_model_said = origin_of(&resolved, &table::MODEL) != Origin::Default;
        let model = values.text(&table::MODEL);
        let model = if is_model_said { model } else { providers::default_model(&layers, &providers) };
        Ok(Self {
            model,
            fallback_models: values.words(&table::FALLBACK_MODELS).unwrap_or_default(),
            max_tokens: values.small(&table::MAX_TOKENS).unwrap_or_default(),
            model_timeout: values.seconds(&table::MODEL_TIMEOUT_SECONDS),
            client_args: values.fields(&table::CLIENT_ARGS),
            completion_args: values.fields(&table::COMPLETION_ARGS),
            command_prefix: values.text(&table::COMMAND_PREFIX).unwrap_or_default(),
            max_steps: values.small(&table::MAX_STEPS),
            max_auto_handoffs: values.small(&table::MAX_AUTO_HANDOFFS).unwrap_or_default(),
            context_window: values.whole(&table::CONTEXT_WINDOW),
            context_summary: values.text(&table::CONTEXT_SUMMARY).as_deref() == Some("model"),
            enabled_channels: values
                .words(&table::ENABLED_CHANNELS)
                .filter(|names| names.iter().any(|it| !it.eq_ignore_ascii_case("all"))),
            debounce: values.seconds(&table::DEBOUNCE_SECONDS).unwrap_or_default(),
            max_wait: values.seconds(&table::MAX_WAIT_SECONDS).unwrap_or_default(),
            active_time_window: values.seconds(&table::ACTIVE_TIME_WINDOW).unwrap_or_default(),
            stream_output: values.switch(&table::STREAM_OUTPUT),
            verbose: values.whole(&table::VERBOSE).and_then(|it| u8::try_from(it).ok()).unwrap_or_default(),
            python: values.text(&table::PYTHON).unwrap_or_default(),
            code_runner: match values.text(&table::CODE_RUNNER).as_deref() {
                Some("process") => CodeRunnerChoice::Process,
                Some("sandbox") => CodeRunnerChoice::Sandbox,
                _ => CodeRunnerChoice::Auto,
            },
            skill_dirs: values.words(&table::SKILL_DIRS),
            spill_threshold: values.small(&table::SPILL_THRESHOLD).unwrap_or_default(),
            shell: values.shell(),
            web: values.web(),
            max_image_side: values.small(&table::MEDIA_MAX_IMAGE_SIDE).unwrap_or_default(),
            environment: values.environment(),
            telegram: values.telegram(),
            tape_sync: match values.text(&table::TAPE_SYNC).as_deref() {
                Some("never") => TapeSync::Never,
                _ => TapeSync::Commit,
            },
            session_wait: values.seconds(&table::SESSION_WAIT_SECONDS).unwrap_or_default(),
            sections: other_sections(&layers),
            paths,
            warnings: warnings(&layers, &providers).into_iter().chain(unreadable).collect(),
            providers,
            resolved,
            layers: Arc::new(layers),
        })
    }

    /// What the configuration file has at the top level that is not bub's own, for plugins.
    pub(crate) fn foreign_values(&self) -> Map<String, Value> {
        let fields = self.layers.file.fields().iter();
        let foreign = fields.filter(|(key, _)| self.own_keys().all(|it| it != key));
        foreign.map(|(key, it)| (key.clone(), it.to_json())).collect()
    }

    /// The text for a field of a plugin's section from the command line, else from the variable
    /// `BUB_SECTION_FIELD`, and where it comes from.
    pub(crate) fn section_text(&self, section: &str, field: &str) -> Option<(String, Origin)> {
        let option = self
            .layers
            .overrides
            .iter()
            .rev()
            .find(|it| layers::section_field(&it.key).is_some_and(|(its, name)| its == section && name == field));
        if let Some(it) = option {
            return Some((it.value.clone(), Origin::CommandLine { flag: it.flag.clone() }));
        }
        let name = format!("BUB_{section}_{field}").to_uppercase().replace(['-', '.'], "_");
        self.layers.variable(&name).map(|(text, origin)| (text.to_owned(), origin))
    }

    /// Checks that each option of the command line names a setting, of bub or of a plugin's section.
    ///
    /// # Errors
    /// [`SettingsError::UnknownKey`] for the first that does not.
    pub fn check_sections(&self, sections: &[Section]) -> Result<(), SettingsError> {
        let known =
            |it: &Section| it.fields.iter().map(|field| format!("{}.{}", it.name, field.name)).collect::<Vec<_>>();
        let known: Vec<String> = sections.iter().flat_map(known).collect();
        let all = || table::SETTINGS.iter().map(|it| it.key).chain(known.iter().map(String::as_str));
        match self.layers.overrides.iter().find(|it| all().all(|key| key != it.key)) {
            Some(it) => Err(layers::unknown_key(it, all())),
            None => Ok(()),
        }
    }

    /// The keys at the top level that are bub's own.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        table::SETTINGS.iter().map(|it| it.key.split('.').next().unwrap_or(it.key))
    }

    /// Where the value of a setting comes from; `None` if there is no setting of that key.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.resolved.get(key).map(Resolved::origin)
    }

    /// The value at a dotted key of the configuration: that of a setting, whatever place it comes from, or
    /// what the configuration file has there.
    #[must_use]
    pub fn config_value(&self, key: &str) -> Option<Value> {
        let setting = self.resolved.get(key).map(|it| it.value.clone()).filter(|it| !it.is_null());
        setting.or_else(|| self.layers.file.get(key).ok().flatten().map(file::Node::to_json))
    }

    /// A variable of the environment or else of `.env`; one that is empty counts as not set.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.layers.variable(name).map(|(value, _)| value)
    }
}

/// Typed views of what the settings are. The kinds were checked when they were resolved.
struct Values<'a>(&'a BTreeMap<&'static str, Resolved>);

impl Values<'_> {
    fn get(&self, setting: &Setting) -> &Value {
        self.0.get(setting.key).map_or(&Value::Null, |it| &it.value)
    }

    fn text(&self, setting: &Setting) -> Option<String> {
        self.get(setting).as_str().filter(|it| !it.is_empty()).map(str::to_owned)
    }

    fn whole(&self, setting: &Setting) -> Option<u64> {
        self.get(setting).as_u64()
    }

    fn small(&self, setting: &Setting) -> Option<u32> {
        self.whole(setting).and_then(|it| u32::try_from(it).ok())
    }

    fn seconds(&self, setting: &Setting) -> Option<Duration> {
        Duration::try_from_secs_f64(self.get(setting).as_f64()?).ok()
    }

    fn switch(&self, setting: &Setting) -> bool {
        self.get(setting).as_bool().unwrap_or_default()
    }

    fn words(&self, setting: &Setting) -> Option<Vec<String>> {
        Some(self.get(setting).as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    fn fields(&self, setting: &Setting) -> Map<String, Value> {
        self.get(setting).as_object().cloned().unwrap_or_default()
    }

    fn shell(&self) -> ShellSettings {
        ShellSettings {
            max_output_bytes: self.whole(&table::SHELL_MAX_OUTPUT_BYTES).unwrap_or_default(),
            pass_credentials: self.switch(&table::SHELL_PASS_CREDENTIALS),
        }
    }

    fn web(&self) -> WebSettings {
        WebSettings {
            render_html: match self.text(&table::WEB_RENDER_HTML).as_deref() {
                Some("raw") => RenderHtml::Raw,
                _ => RenderHtml::Markdown,
            },
            max_bytes: self.whole(&table::WEB_MAX_BYTES).unwrap_or_default(),
            private_addresses: match self.text(&table::WEB_PRIVATE_ADDRESSES).as_deref() {
                Some("allow") => PrivateAddresses::Allow,
                Some("deny") => PrivateAddresses::Deny,
                _ => PrivateAddresses::Auto,
            },
        }
    }

    fn environment(&self) -> Option<EnvironmentSettings> {
        Some(EnvironmentSettings {
            exec: self.words(&table::ENVIRONMENT_EXEC)?,
            workspace: self.text(&table::ENVIRONMENT_WORKSPACE),
            shell: self.text(&table::ENVIRONMENT_SHELL),
        })
    }

    fn telegram(&self) -> TelegramSettings {
        let allowed = |setting| self.words(setting).filter(|it| !it.is_empty());
        TelegramSettings {
            token: self.text(&table::TELEGRAM_TOKEN).map(Secret::new),
            allow_users: allowed(&table::TELEGRAM_ALLOW_USERS),
            allow_chats: allowed(&table::TELEGRAM_ALLOW_CHATS),
            proxy: self.text(&table::TELEGRAM_PROXY),
        }
    }
}

fn origin_of(resolved: &BTreeMap<&'static str, Resolved>, setting: &Setting) -> Origin {
    resolved.get(setting.key).map_or(Origin::Default, Resolved::origin)
}

/// The maps of the configuration file that hold no settings of bub's own.
fn other_sections(layers: &Layers) -> Map<String, Value> {
    let fields = layers.file.to_json().into_iter();
    fields.filter(|(key, it)| it.is_object() && table::find(key).is_none() && !show::is_section(key)).collect()
}

/// What is odd: lines of `.env`, fields of providers that mean nothing, and a configuration file with keys that others can read.
fn warnings(layers: &Layers, providers: &Map<String, Value>) -> Vec<String> {
    let mut warnings = layers.dotenv.warnings.clone();
    warnings.extend(providers::odd_fields(layers, providers));
    if let Some(mode) = file::mode_for_others(&layers.file.path)
        && layers.file.to_json().iter().any(|(name, value)| secrets::holds_secret(name, value))
    {
        let path = layers.file.path.display();
        warnings
            .push(format!("{path} holds credentials and has mode {mode:04o}: others can read it (chmod 600 {path})"));
    }
    warnings
}
