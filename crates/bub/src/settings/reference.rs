//! The reference page of settings, made from the table.

use super::{
    kind::Kind,
    table::{self, Preset, Setting},
};

/// What stands above the table.
const HEAD: &str = "\
<!-- Made from crates/bub/src/settings/table.rs by `cargo xtask docs`; do not edit. -->

# Settings

A value is taken from the first of these places that has one:

1. an option on the command line;
2. a variable of the environment;
3. a variable in `.env`, the nearest one at or above the current directory; it never replaces a variable that the environment has;
4. the configuration file `~/.bub/config.yml`;
5. for keys and addresses of providers, the variables of the provider (below);
6. the default.

`bub config show` prints every setting, its value and the place that the value comes from; credentials are shortened to their last four characters.

The configuration file is a YAML map. A key with a dot, such as `spill.threshold`, stands in a section:

```yaml
model: openai:gpt-4.1
spill:
  threshold: 8192
```

Sections of other names belong to plugins, which check them. Other keys that mean nothing are ignored, and `bub config show` lists them. If a key stands twice in one map, the last one counts.

In variables, lists and maps are JSON, yes and no are `true` and `false` (or `1` and `0`, `yes` and `no`, `on` and `off`), and the text `null` means no value, whatever the places further down say. An empty variable counts as not set. Maps that stand in several places are merged, key by key.

A value that a setting can't have is an error that names the place, and bub does nothing.

";

/// What stands below the table.
const TAIL: &str = "
## Keys and addresses of providers

The key for a provider `NAME` is the first of:

1. `providers.NAME.api_key`, for a provider of your own;
2. `api_key`: a text is for every provider, a map only for those it names;
3. `BUB_NAME_API_KEY`, with the name in capitals and `_` for `-`: `BUB_AZURE_OPENAI_API_KEY`;
4. the provider's own variable: `NAME_API_KEY`, such as `OPENAI_API_KEY`, `OPENROUTER_API_KEY` or `ANTHROPIC_API_KEY`; also `GEMINI_API_KEY` and `GOOGLE_API_KEY` for `gemini` and `google`, `AZURE_API_KEY` for `azure-openai`, `HF_TOKEN` for `huggingface`, `DASHSCOPE_API_KEY` for `qwen`, `XAI_API_KEY` for `grok`;
5. what a login left: `bub login openrouter` keeps a key, and Copilot, ChatGPT and xAI give tokens ([Logins](../guide/models.md#logins)).

A key that is text from a sample file (`your_key_here`, `changeme`, `sk-xxx`) loses against a real one further down the list.

The address is looked up in the same way: `providers.NAME.api_base`, `api_base`, `BUB_NAME_API_BASE`, then `NAME_BASE_URL` or `NAME_API_BASE` (and `AZURE_OPENAI_ENDPOINT`).

A provider of your own that has no key of its own may use the keys of its `type`, unless it has an `api_base`: then it is another server, and only variables with its own name and `api_key` are asked.

```yaml
model: work:gpt-4.1
providers:
  work:
    type: openai
    api_base: https://llm.example.com/v1
    api_key: …
```

## The home folder

`BUB_HOME` is the folder for tapes, history, spooled output and locks; default `~/.bub`. A `~` in front is your home folder; the variable may stand in `.env`. The configuration file does not move with it.

Folders that bub makes have mode 0700. Folders that were there keep their mode.

## Credentials and shell commands

Commands that the model or a person runs do not get the variables that hold bub's own credentials: `BUB_API_KEY`, every other `BUB_…_API_KEY`, `BUB_…_TOKEN`, `BUB_…_SECRET` and `BUB_…_PASSWORD`, settings in variables with a credential inside, and the provider's own variable if bub took its key from there. `shell.pass_credentials: true` lets them through. In both cases a credential that occurs in a tool's result is replaced by `***`.

Other variables of `.env` are passed to commands, but not into an [environment](../guide/environments.md) that is reached by `environment.exec`.

A `.env` is read from the folder you work in. Do not start bub in a folder whose `.env` you do not trust: it can send your messages and keys to another address.
";

/// The reference page of settings, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(HEAD);
    page.push_str("## All settings\n\n| Key | Variable | Values | Default | What it does |\n|---|---|---|---|---|\n");
    for setting in table::SETTINGS {
        page.push_str(&row(setting));
    }
    page.push_str(TAIL);
    page
}

fn row(setting: &Setting) -> String {
    let preset = match setting.preset {
        Preset::Value(text) => format!("`{text}`"),
        Preset::None(meaning) => meaning.to_owned(),
    };
    let values = values(setting.kind).replace('|', "\\|");
    format!("| `{}` | `{}` | {values} | {preset} | {} |\n", setting.key, setting.variable, setting.meaning)
}

/// The values of a kind, short enough for a table.
fn values(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Prefix => "text".into(),
        Kind::Model => "`provider:model`".into(),
        Kind::Models => "list of `provider:model`".into(),
        Kind::Choice(words) => words.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "),
        Kind::Whole(min, max) if max >= u64::from(u32::MAX) => format!("whole number, at least {min}"),
        Kind::Whole(min, max) => format!("whole number, {min} to {max}"),
        Kind::Seconds { zero: true } => "seconds, 0 or more".into(),
        Kind::Seconds { zero: false } => "seconds, more than 0".into(),
        Kind::Switch => "`true`, `false`".into(),
        Kind::Words => "list, or words separated by commas".into(),
        Kind::Command => "list: a program and its arguments".into(),
        Kind::Fields => "map".into(),
        Kind::TextOrFields => "text or map".into(),
    }
}
