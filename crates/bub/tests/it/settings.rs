//! Settings: which place wins, what is refused and how that is said, which credentials are where.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use bub::settings::{Origin, Settings, SettingsError, Sources, reference};
use expect_test::{Expect, expect, expect_file};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

/// A machine: a home folder with or without a configuration, a project with or without `.env`.
struct Machine {
    folder: TempDir,
    sources: Sources,
}

impl Machine {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let cwd = folder.path().join("project/src");
        fs::create_dir_all(&cwd).unwrap();
        fs::create_dir_all(folder.path().join(".bub")).unwrap();
        Self { sources: Sources::new(BTreeMap::new(), folder.path(), cwd), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(self, yaml: impl AsRef<[u8]>) -> Self {
        fs::write(self.path(".bub/config.yml"), yaml).unwrap();
        self
    }

    fn dotenv(self, text: impl AsRef<[u8]>) -> Self {
        fs::write(self.path("project/.env"), text).unwrap();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.sources.env.insert(name.into(), value.into());
        self
    }

    fn option(mut self, key: &str, value: &str) -> Self {
        let flag = format!("--{key}");
        self.sources = self.sources.with_override(key, value, flag);
        self
    }

    fn load(&self) -> Settings {
        self.try_load().unwrap_or_else(|err| panic!("{err}"))
    }

    fn try_load(&self) -> Result<Settings, SettingsError> {
        Settings::load(self.sources.clone())
    }

    /// Paths of the machine as `~`, so that messages are the same on every run.
    fn steady(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "~")
    }

    fn refuses(&self, expected: &Expect) {
        let err = self.try_load().expect_err("these settings must be refused");
        expected.assert_eq(&self.steady(&err.to_string()));
    }
}

/// What `config show` has for one key.
fn shown(machine: &Machine, key: &str) -> String {
    let rows = machine.load().shown();
    let row = rows.iter().find(|it| it.key == key).unwrap_or_else(|| panic!("no row for {key}"));
    let origins: Vec<_> = row.origins.iter().map(ToString::to_string).collect();
    machine.steady(&format!("{} <- {}", row.value, origins.join(" + ")))
}

#[test]
fn defaults_are_those_of_the_reference() {
    let settings = Machine::new().load();
    assert_eq!(settings.model, None);
    assert_eq!(settings.command_prefix, ",");
    assert_eq!(settings.max_tokens, 16384);
    assert_eq!((settings.max_steps, settings.model_timeout, settings.enabled_channels), (None, None, None));
    assert_eq!(settings.debounce.as_secs_f64(), 1.0);
    assert_eq!(settings.max_wait.as_secs_f64(), 10.0);
    assert_eq!(settings.active_time_window.as_secs_f64(), 60.0);
    assert_eq!(settings.session_wait.as_secs_f64(), 60.0);
    assert_eq!(settings.spill_threshold, 4096);
    assert_eq!(settings.shell.max_output_bytes, 256 * 1024 * 1024);
    assert_eq!(settings.web.max_bytes, 10 * 1024 * 1024);
    assert_eq!(settings.max_auto_handoffs, 1);
    assert_eq!(settings.python, "python3");
    assert!(!settings.stream_output && !settings.shell.pass_credentials);
    assert!(settings.telegram.token.is_none() && settings.warnings.is_empty());
}

#[test]
fn places_are_ranked_and_named() {
    // Which of the five places say something about the setting, and who wins.
    for places in 0..16_u32 {
        let has = |bit: u32| places & (1 << bit) != 0;
        let mut machine = Machine::new();
        let mut expected = "4096 <- default".to_owned();
        if has(0) {
            machine = machine.config("# comment\nspill:\n  threshold: 10\n");
            expected = "10 <- ~/.bub/config.yml:3".into();
        }
        if has(1) {
            machine = machine.dotenv("A=1\nBUB_SPILL_THRESHOLD=11\n");
            expected = "11 <- ~/project/.env:2 (BUB_SPILL_THRESHOLD)".into();
        }
        if has(2) {
            machine = machine.env("BUB_SPILL_THRESHOLD", "12");
            expected = "12 <- environment variable BUB_SPILL_THRESHOLD".into();
        }
        if has(3) {
            machine = machine.option("spill.threshold", "13");
            expected = "13 <- option --spill.threshold".into();
        }
        assert_eq!(shown(&machine, "spill.threshold"), expected);
    }
}

#[test]
fn variables_are_read_by_type() {
    #[rustfmt::skip]
    let cases = [
        ("BUB_MODEL", "Ollama:qwen3:8b", "model", "Ollama:qwen3:8b"),
        ("BUB_MODEL", " openai:gpt-4.1 ", "model", "openai:gpt-4.1"),
        ("BUB_FALLBACK_MODELS", r#"["a:b", "c:d"]"#, "fallback_models", r#"["a:b", "c:d"]"#),
        ("BUB_MAX_STEPS", " 1_000 ", "max_steps", "1000"),
        ("BUB_MAX_STEPS", "5.0", "max_steps", "5"),
        ("BUB_MODEL_TIMEOUT_SECONDS", "2.5", "model_timeout_seconds", "2.5"),
        ("BUB_STREAM_OUTPUT", "Yes", "stream_output", "true"),
        ("BUB_STREAM_OUTPUT", "0", "stream_output", "false"),
        ("BUB_COMMAND_PREFIX", "::", "command_prefix", "::"),
        ("BUB_CLIENT_ARGS", r#"{"a": [1]}"#, "client_args", r#"{"a": [1]}"#),
        ("BUB_ENABLED_CHANNELS", "cli, telegram", "enabled_channels", r#"["cli", "telegram"]"#),
        ("BUB_ENABLED_CHANNELS", r#"["cli"]"#, "enabled_channels", r#"["cli"]"#),
        ("BUB_TELEGRAM_ALLOW_USERS", "12, ada", "telegram.allow_users", r#"["12", "ada"]"#),
        ("BUB_TELEGRAM_ALLOW_USERS", "[12]", "telegram.allow_users", r#"["12"]"#),
        ("BUB_TAPE_SYNC", "NEVER", "tape.sync", "never"),
        ("BUB_CODE_RUNNER", "sandbox", "code.runner", "sandbox"),
        ("BUB_WEB_PRIVATE_ADDRESSES", "deny", "web.private_addresses", "deny"),
        ("BUB_PYTHON", "/usr/bin/python3.11", "python", "/usr/bin/python3.11"),
        // `null` is none, an empty variable is not set.
        ("BUB_MAX_STEPS", "null", "max_steps", "no limit"),
        ("BUB_MAX_TOKENS", "null", "max_tokens", "16384"),
        ("BUB_CLIENT_ARGS", "null", "client_args", "{}"),
    ];
    for (variable, text, key, expected) in cases {
        let machine = Machine::new().env(variable, text);
        assert_eq!(shown(&machine, key), format!("{expected} <- environment variable {variable}"));
        let machine = Machine::new().option(key, text);
        assert_eq!(shown(&machine, key), format!("{expected} <- option --{key}"));
    }
}

#[test]
fn null_hides_what_stands_below_and_empty_does_not() {
    let machine = || Machine::new().config("max_steps: 7\nmodel: a:b\n").dotenv("BUB_MAX_STEPS=8");
    assert_eq!(machine().env("BUB_MAX_STEPS", "null").load().max_steps, None);
    assert_eq!(machine().env("BUB_MODEL", "null").load().model, None);
    assert_eq!(machine().env("BUB_MODEL", "").load().model.as_deref(), Some("a:b"));
    // A variable of the environment hides that of `.env` even when it is empty.
    assert_eq!(machine().env("BUB_MAX_STEPS", "").load().max_steps, Some(7));
    assert_eq!(machine().load().max_steps, Some(8));
    assert_eq!(Machine::new().config("max_tokens:\n").load().max_tokens, 16384);
}

#[test]
fn maps_of_several_places_are_merged() {
    let machine = Machine::new()
        .config("client_args:\n  headers: {A: file, B: file}\n  timeout: 1\n")
        .dotenv(r#"BUB_CLIENT_ARGS='{"headers": {"A": "env"}}'"#);
    assert_eq!(
        serde_json::Value::from(machine.load().client_args),
        json!({"headers": {"A": "env", "B": "file"}, "timeout": 1})
    );
    assert_eq!(
        shown(&machine, "client_args"),
        r#"{"headers": {"A": "env", "B": "file"}, "timeout": 1} <- ~/project/.env:1 (BUB_CLIENT_ARGS) + ~/.bub/config.yml:2"#
    );
}

#[test]
fn file_is_read_in_the_references_ways() {
    let settings = Machine::new()
        .config(
            "\u{feff}%YAML 1.2\n---\nmodel: &m openai:gpt-4.1\nfallback_models: [*m]\nstream_output: yes\nmax_steps: '5'\n\
             max_steps: 6\ntelegram:\n  allow_users: [42, ada]\n  token: ''\ndiscord: {a: 1}\ndebounce_seconds: 0\n",
        )
        .load();
    assert_eq!(settings.model.as_deref(), Some("openai:gpt-4.1"));
    assert_eq!(settings.fallback_models, ["openai:gpt-4.1"]);
    assert!(settings.stream_output);
    assert_eq!(settings.max_steps, Some(6), "the last of equal keys counts");
    assert_eq!(settings.telegram.allow_users, Some(vec!["42".into(), "ada".into()]));
    assert_eq!(settings.telegram.token, None);
    assert_eq!(settings.debounce.as_secs(), 0);
    assert_eq!(serde_json::Value::from(settings.sections), json!({"discord": {"a": 1}}));
    for empty in ["", "# nothing\n", "---\n", "null\n", "{}\n", "\n\n"] {
        assert_eq!(Machine::new().config(empty).load().model, None, "{empty:?}");
    }
}

#[test]
fn unknown_keys_are_ignored_and_listed() {
    let machine = Machine::new().config("modle: a:b\nspill:\n  treshold: 1\n  threshold: 2\nplugin:\n  x: 1\n");
    let settings = machine.load();
    let unknown: Vec<_> = settings.unknown_keys().iter().map(|it| format!("{}:{}", it.key, it.line)).collect();
    assert_eq!(unknown, ["modle:1", "spill.treshold:3"]);
    assert_eq!(settings.spill_threshold, 2);
}

#[test]
fn broken_files_are_refused_with_place_and_expectation() {
    let check = |yaml: &[u8], expected: Expect| Machine::new().config(yaml).refuses(&expected);
    check(b"model: [a\nb: 1\n", expect!["~/.bub/config.yml:2:2: expected YAML: illegal placement of ':' indicator"]);
    check(b"model: \"a\n", expect!["~/.bub/config.yml:1:8: expected YAML: unclosed quote"]);
    check(
        b"a: 1\n b: 2\n",
        expect!["~/.bub/config.yml:2:3: expected YAML: mapping values are not allowed in this context"],
    );
    check(b"\tmodel: x\n", expect!["~/.bub/config.yml:1: Expected a provider:model identifier, got 'x'"]);
    check(
        b"model: a:b\nmax_steps: *none\n",
        expect!["~/.bub/config.yml:2:12: expected YAML: reference to unknown value"],
    );
    check(b"a: 1\n---\nb: 2\n", expect!["~/.bub/config.yml:3:1: expected one YAML document, found a second one"]);
    check(
        b"- model\n",
        expect!["~/.bub/config.yml:1: expected a map of settings (lines of `key: value`), found a list"],
    );
    check(
        b"# c\nmodel\n",
        expect!["~/.bub/config.yml:2: expected a map of settings (lines of `key: value`), found text"],
    );
    check(b"42", expect!["~/.bub/config.yml:1: expected a map of settings (lines of `key: value`), found a number"]);
    check(b"model: a:b\nname: \xff\n", expect!["~/.bub/config.yml:2: expected UTF-8 text; byte 17 of the file is not"]);
    check(b"model: \0\n", expect![[r#"~/.bub/config.yml:1:8: expected YAML: unexpected character: `\u{0}'"#]]);
    check(b"spill: 5\n", expect!["~/.bub/config.yml:1: expected a map of settings under 'spill', found a number"]);
    check(
        b"a: 1\nspill:\n  - threshold\n",
        expect!["~/.bub/config.yml:3: expected a map of settings under 'spill', found a list"],
    );
    check(b"[1, 2]: x\n", expect!["~/.bub/config.yml:1:1: expected YAML: expected string scalar"]);
    check(
        format!("a: {}", "[".repeat(500)).as_bytes(),
        expect!["~/.bub/config.yml:1:68: expected YAML: recursion limit exceeded"],
    );
    let bomb = (1..30).fold("a0: &a0 [x, x, x, x, x]\n".to_owned(), |yaml, it| {
        let below = format!("*a{}", it - 1);
        format!("{yaml}a{it}: &a{it} [{}]\n", [below.as_str(); 9].join(", "))
    });
    check(
        bomb.as_bytes(),
        expect![
            "~/.bub/config.yml:6:10: expected YAML: YAML document too large or too complex: total_replayed_events=100001 > 100000"
        ],
    );
}

#[test]
fn wrong_values_are_refused_with_place_and_expectation() {
    let file = |yaml: &str, expected: Expect| Machine::new().config(yaml).refuses(&expected);
    file("model: gpt\n", expect!["~/.bub/config.yml:1: Expected a provider:model identifier, got 'gpt'"]);
    file("model: [a]\n", expect!["~/.bub/config.yml:1: model must be provider:model; found a list"]);
    file(
        "fallback_models: a:b\n",
        expect![[r#"~/.bub/config.yml:1: fallback_models must be a list of provider:model; found "a:b""#]],
    );
    file("fallback_models: [a:b, c]\n", expect!["~/.bub/config.yml:1: Expected a provider:model identifier, got 'c'"]);
    file(
        "command_prefix: ''\n",
        expect!["~/.bub/config.yml:1: command_prefix must be non-empty and contain no whitespace"],
    );
    file(
        "max_steps: 0\n",
        expect!["~/.bub/config.yml:1: max_steps must be a whole number from 1 to 4294967295; found 0"],
    );
    file(
        "max_steps: -1\n",
        expect!["~/.bub/config.yml:1: max_steps must be a whole number from 1 to 4294967295; found -1"],
    );
    file(
        "max_steps: many\n",
        expect![[r#"~/.bub/config.yml:1: max_steps must be a whole number from 1 to 4294967295; found "many""#]],
    );
    file(
        "max_steps: 1.5\n",
        expect!["~/.bub/config.yml:1: max_steps must be a whole number from 1 to 4294967295; found 1.5"],
    );
    file(
        "max_steps: {a: sk-secret}\n",
        expect!["~/.bub/config.yml:1: max_steps must be a whole number from 1 to 4294967295; found a map"],
    );
    file(
        "max_tokens: 99999999999999999999999\n",
        expect!["~/.bub/config.yml:1: max_tokens must be a whole number from 1 to 4294967295; found 1e+23"],
    );
    file("verbose: 3\n", expect!["~/.bub/config.yml:1: verbose must be a whole number from 0 to 2; found 3"]);
    file(
        "stream_output: maybe\n",
        expect![[r#"~/.bub/config.yml:1: stream_output must be true or false; found "maybe""#]],
    );
    file(
        "model_timeout_seconds: 0\n",
        expect![
            "~/.bub/config.yml:1: model_timeout_seconds must be a number of seconds greater than 0 and at most a year; found 0"
        ],
    );
    file(
        "debounce_seconds: .nan\n",
        expect![[
            r#"~/.bub/config.yml:1: debounce_seconds must be a number of seconds from 0 to a year; found ".nan""#
        ]],
    );
    file(
        "web:\n  render_html: pdf\n",
        expect![[r#"~/.bub/config.yml:2: web.render_html must be markdown or raw; found "pdf""#]],
    );
    file("client_args: [1]\n", expect!["~/.bub/config.yml:1: client_args must be a map; found a list"]);
    file(
        "api_key: 12345\n",
        expect!["~/.bub/config.yml:1: api_key must be text, or a map from provider to text; numbers need quotes"],
    );
    file(
        "api_key: {openai: [sk-secret]}\n",
        expect!["~/.bub/config.yml:1: api_key must be text, or a map from provider to text; numbers need quotes"],
    );
    file("python: 3\n", expect!["~/.bub/config.yml:1: python must be text; found 3 without quotes"]);
    file(
        "enabled_channels: {a: b}\n",
        expect!["~/.bub/config.yml:1: enabled_channels must be words separated by commas, or a list; found a map"],
    );
    file(
        "\nproviders: {work: openai}\n",
        expect![
            "~/.bub/config.yml:2: providers.work must be a map with `type`, and `api_key`, `api_base` and `api_format` if needed"
        ],
    );
    file(
        "providers:\n  work:\n    api_key: sk-secret\n",
        expect!["~/.bub/config.yml:3: providers.work.type must be the name of a provider that bub knows"],
    );
    file(
        "providers:\n  work: {type: openai, api_base: 5}\n",
        expect!["~/.bub/config.yml:2: providers.work.api_base must be text"],
    );
    let env = |name: &str, text: &str, expected: Expect| Machine::new().env(name, text).refuses(&expected);
    env("BUB_MODEL", "gpt", expect!["environment variable BUB_MODEL: Expected a provider:model identifier, got 'gpt'"]);
    env(
        "BUB_COMMAND_PREFIX",
        "",
        expect!["environment variable BUB_COMMAND_PREFIX: command_prefix must be non-empty and contain no whitespace"],
    );
    env(
        "BUB_COMMAND_PREFIX",
        "a b",
        expect!["environment variable BUB_COMMAND_PREFIX: command_prefix must be non-empty and contain no whitespace"],
    );
    env(
        "BUB_FALLBACK_MODELS",
        "a:b",
        expect![[
            r#"environment variable BUB_FALLBACK_MODELS: fallback_models must be a list of provider:model, here as JSON such as ["openai:gpt-4.1"]; found broken JSON: expected value at line 1 column 1"#
        ]],
    );
    env(
        "BUB_CLIENT_ARGS",
        "{\"key\": \"sk-secret\"",
        expect![[
            r#"environment variable BUB_CLIENT_ARGS: client_args must be a map, here as JSON such as {"name": "value"}; found broken JSON: EOF while parsing an object at line 1 column 19"#
        ]],
    );
    env(
        "BUB_CLIENT_ARGS",
        "[]",
        expect!["environment variable BUB_CLIENT_ARGS: client_args must be a map; found an empty list"],
    );
    env(
        "BUB_API_KEY",
        "{\"openai\": sk-secret}",
        expect![[
            r#"environment variable BUB_API_KEY: api_key must be text, or a map from provider to text, here as JSON such as {"openai": "…"}; found broken JSON: expected value at line 1 column 12"#
        ]],
    );
    env(
        "BUB_VERBOSE",
        "loud",
        expect![[r#"environment variable BUB_VERBOSE: verbose must be a whole number from 0 to 2; found "loud""#]],
    );
    env(
        "BUB_MAX_STEPS",
        &"9".repeat(500),
        expect![[
            r#"environment variable BUB_MAX_STEPS: max_steps must be a whole number from 1 to 4294967295; found "99999999999999999999999999999999999999999999999999999999999…"#
        ]],
    );
    env(
        "BUB_DEBOUNCE_SECONDS",
        "inf",
        expect![[
            r#"environment variable BUB_DEBOUNCE_SECONDS: debounce_seconds must be a number of seconds from 0 to a year; found "inf""#
        ]],
    );
    Machine::new().dotenv("A=1\n\nBUB_VERBOSE=-1\n").refuses(&expect![[
        r#"~/project/.env:3 (BUB_VERBOSE): verbose must be a whole number from 0 to 2; found "-1""#
    ]]);
    Machine::new().option("max_steps", "none").refuses(&expect![[
        r#"option --max_steps: max_steps must be a whole number from 1 to 4294967295; found "none""#
    ]]);
    Machine::new()
        .option("max_step", "1")
        .refuses(&expect!["--max_step: there is no setting 'max_step'; did you mean 'max_steps'?"]);
}

#[test]
fn wrong_values_below_a_right_one_do_not_matter() {
    let machine = Machine::new().config("max_steps: many\n").env("BUB_MAX_STEPS", "5");
    assert_eq!(machine.load().max_steps, Some(5));
}

#[test]
fn config_file_that_is_no_file_is_refused() {
    let machine = Machine::new();
    fs::create_dir(machine.path(".bub/config.yml")).unwrap();
    machine
        .refuses(&expect!["cannot read the configuration file ~/.bub/config.yml: expected a file, found a directory"]);

    let machine = Machine::new();
    std::os::unix::fs::symlink("config.yml", machine.path(".bub/config.yml")).unwrap();
    let err = machine.try_load().unwrap_err();
    assert!(machine.steady(&err.to_string()).starts_with("cannot read the configuration file ~/.bub/config.yml: "));

    let mut machine = Machine::new();
    machine.sources.config_file = "/dev/zero".into();
    machine.refuses(&expect!["cannot read the configuration file /dev/zero: expected a regular file"]);

    let machine = Machine::new().config(vec![b'#'; 1024 * 1024 + 1]);
    machine.refuses(&expect![
        "cannot read the configuration file ~/.bub/config.yml: the file has 1048577 bytes, the limit is 1048576"
    ]);

    // `.bub` itself is a file: there is no configuration, and the home folder says why it can't be used.
    let machine = Machine::new();
    fs::remove_dir(machine.path(".bub")).unwrap();
    fs::write(machine.path(".bub"), "").unwrap();
    let err = machine.load().paths.prepare().unwrap_err();
    expect!["cannot use ~/.bub for bub's own files: it is not a folder; BUB_HOME can name another folder than ~/.bub"]
        .assert_eq(&machine.steady(&err.to_string()));
}

#[test]
fn config_file_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::new().config("model: a:b\n");
    fs::set_permissions(machine.path(".bub/config.yml"), fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything; then the file is simply read.
    if fs::read(machine.path(".bub/config.yml")).is_ok() {
        assert_eq!(machine.load().model.as_deref(), Some("a:b"));
    } else {
        machine
            .refuses(&expect!["cannot read the configuration file ~/.bub/config.yml: Permission denied (os error 13)"]);
    }
}

#[test]
fn dotenv_is_found_upward_and_never_an_error() {
    // A folder of that name, as virtual environments have, is passed over.
    let machine = Machine::new().dotenv("BUB_MAX_STEPS=3\n");
    fs::create_dir(machine.path("project/src/.env")).unwrap();
    assert_eq!(machine.load().max_steps, Some(3));
    // The nearest one counts.
    fs::remove_dir(machine.path("project/src/.env")).unwrap();
    fs::write(machine.path("project/src/.env"), b"BUB_MAX_STEPS=4 # near\nBAD LINE\nX='open\nY=\xff\n").unwrap();
    let settings = machine.load();
    assert_eq!(settings.max_steps, Some(4));
    let warnings = machine.steady(&settings.warnings.join("\n"));
    expect![[r#"
        ~/project/src/.env: not UTF-8 throughout
        ~/project/src/.env:2: expected `NAME=value`
        ~/project/src/.env:3: expected a closing quote"#]]
    .assert_eq(&warnings);
}

#[test]
fn dotenv_takes_values_from_the_given_environment_alone() {
    let machine =
        Machine::new().dotenv("BUB_MODEL=${PROVIDER}:${NAME:-m}\nHOME_OF=${HOME}\n").env("PROVIDER", "openai");
    let settings = machine.load();
    assert_eq!(settings.model.as_deref(), Some("openai:m"));
    assert_eq!(settings.variable("HOME_OF"), None, "HOME was not passed in");
    assert_eq!(settings.variable("PROVIDER"), Some("openai"));
}

#[test]
fn model_is_the_default_only_with_a_key_for_it() {
    let free = Some("openrouter:openrouter/free");
    assert_eq!(Machine::new().load().model, None);
    assert_eq!(Machine::new().env("OPENAI_API_KEY", "sk-real").load().model, None);
    assert_eq!(Machine::new().env("OPENROUTER_API_KEY", "your_key_here").load().model, None);
    assert_eq!(Machine::new().env("OPENROUTER_API_KEY", "sk-or-real").load().model.as_deref(), free);
    assert_eq!(Machine::new().env("BUB_OPENROUTER_API_KEY", "sk-or-real").load().model.as_deref(), free);
    assert_eq!(Machine::new().config("api_key: {openrouter: k}").load().model.as_deref(), free);
    assert_eq!(Machine::new().config("api_key: {openai: k}").load().model, None);
    let machine = Machine::new().env("BUB_API_KEY", "sk-or-real");
    assert_eq!(shown(&machine, "model"), "openrouter:openrouter/free <- default");
}

#[test]
fn keys_are_looked_up_in_order() {
    let full = || {
        Machine::new()
            .config("api_key: {openai: map}\nproviders:\n  Work-1:\n    type: OpenAI\n    api_key: own\n  bare: {type: openai}\n  far: {type: openai, api_base: 'http://far'}\n")
            .env("BUB_OPENAI_API_KEY", "bub")
            .env("BUB_ANTHROPIC_API_KEY", "bub-a")
            .env("BUB_AZURE_OPENAI_API_KEY", "bub-az")
            .env("OPENAI_API_KEY", "eco")
            .env("GROQ_API_KEY", "eco-g")
            .env("HF_TOKEN", "eco-h")
            .env("FAR_API_KEY", "eco-f")
    };
    let check = |machine: &Machine, provider: &str, expected: &str| {
        let endpoint = machine.load().endpoint(provider);
        let key = endpoint.api_key.map(|it| format!("{} <- {}", it.secret.expose(), it.origin)).unwrap_or_default();
        assert_eq!(machine.steady(&format!("{}: {key}", endpoint.provider)), expected, "{provider}");
    };
    let machine = full();
    check(&machine, "work-1", "openai: own <- ~/.bub/config.yml:5");
    check(&machine, "WORK_1", "openai: own <- ~/.bub/config.yml:5");
    check(&machine, "openai", "openai: map <- ~/.bub/config.yml:1");
    check(&machine, "bare", "openai: map <- ~/.bub/config.yml:1");
    check(&machine, "anthropic", "anthropic: bub-a <- environment variable BUB_ANTHROPIC_API_KEY");
    check(&machine, "azure-openai", "azure-openai: bub-az <- environment variable BUB_AZURE_OPENAI_API_KEY");
    check(&machine, "groq", "groq: eco-g <- environment variable GROQ_API_KEY");
    check(&machine, "huggingface", "huggingface: eco-h <- environment variable HF_TOKEN");
    check(&machine, "mistral", "mistral: ");
    // Another server does not get the keys of the usual one.
    check(&machine, "far", "openai: eco-f <- environment variable FAR_API_KEY");
    let machine = full().env("BUB_API_KEY", "all");
    check(&machine, "work-1", "openai: own <- ~/.bub/config.yml:5");
    check(&machine, "openai", "openai: all <- environment variable BUB_API_KEY");
    check(&machine, "mistral", "mistral: all <- environment variable BUB_API_KEY");
    let machine = full().env("BUB_API_KEY", r#"{"mistral": "m"}"#);
    check(&machine, "mistral", "mistral: m <- environment variable BUB_API_KEY");
    check(&machine, "openai", "openai: map <- ~/.bub/config.yml:1");
    let machine = full().env("BUB_API_KEY", "null");
    check(&machine, "openai", "openai: bub <- environment variable BUB_OPENAI_API_KEY");
}

#[test]
fn addresses_are_looked_up_in_order() {
    let machine = Machine::new()
        .config("api_base: {ollama: 'http://map'}\nproviders: {far: {type: openai, api_base: 'http://far'}}\n")
        .env("BUB_OPENAI_API_BASE", "http://bub")
        .env("OPENAI_BASE_URL", "http://eco")
        .env("GROQ_BASE_URL", "http://groq");
    let base = |machine: &Machine, name: &str| machine.load().endpoint(name).api_base.map(|it| it.url);
    for (name, expected) in [
        ("far", Some("http://far")),
        ("ollama", Some("http://map")),
        ("openai", Some("http://bub")),
        ("groq", Some("http://groq")),
        ("mistral", None),
    ] {
        assert_eq!(base(&machine, name).as_deref(), expected, "{name}");
    }
    assert_eq!(base(&machine.env("BUB_API_BASE", "http://all"), "mistral").as_deref(), Some("http://all"));
}

#[test]
fn r133_placeholder_key_loses_against_a_real_one() {
    let key = |machine: &Machine| machine.load().endpoint("openrouter").api_key.unwrap();
    let machine = Machine::new().dotenv("BUB_API_KEY=your_key_here\n").env("OPENROUTER_API_KEY", "sk-or-v1-0123456789");
    assert_eq!(key(&machine).secret.expose(), "sk-or-v1-0123456789");
    assert_eq!(key(&machine).to_string(), "***6789 from environment variable OPENROUTER_API_KEY");
    let machine = Machine::new().env("BUB_API_KEY", "sk-xxx").config("api_key: sk-or-v1-0123456789\n");
    assert_eq!(key(&machine).secret.expose(), "sk-or-v1-0123456789");
    // The place that is asked first still wins among real keys, and among placeholders.
    let machine = Machine::new().env("BUB_API_KEY", "real-key-0001").env("OPENROUTER_API_KEY", "real-key-0002");
    assert_eq!(key(&machine).secret.expose(), "real-key-0001");
    let machine = Machine::new().dotenv("\nBUB_API_KEY=your_key_here\n").env("OPENROUTER_API_KEY", "changeme");
    assert_eq!(
        machine.steady(&key(&machine).to_string()),
        "***here from ~/project/.env:2 (BUB_API_KEY), which looks like a placeholder"
    );
    // What people give to servers without authentication is not replaced by a real key.
    let machine = Machine::new().env("BUB_API_KEY", "dummy").env("OPENROUTER_API_KEY", "sk-or-v1-0123456789");
    assert_eq!(key(&machine).secret.expose(), "dummy");
}

#[test]
fn provider_types_are_checked_against_what_there_is() {
    let machine = Machine::new().config("providers:\n  a: {type: OpenAI}\n  b:\n    type: opnai\n");
    let settings = machine.load();
    assert_eq!(settings.custom_providers().collect::<Vec<_>>(), [("a", "OpenAI"), ("b", "opnai")]);
    assert!(settings.check_provider_types(&["openai", "opnai"]).is_ok());
    let err = settings.check_provider_types(&["openai", "ollama"]).unwrap_err();
    expect![[r#"~/.bub/config.yml:4: providers.b.type must be one of openai, ollama; found "opnai""#]]
        .assert_eq(&machine.steady(&err.to_string()));
}

#[test]
fn r137_credentials_are_never_shown_whole() {
    let machine = Machine::new()
        .config(
            "api_key: {openai: sk-file-012345}\nmodel: groq:m\nproviders: {own: {type: openai, api_key: sk-own-0123456}}\n\
             client_args: {headers: {Authorization: Bearer abcdefgh0123}}\ntelegram: {token: '123:telegram-token', proxy: 'http://u:proxypass@h'}\n\
             discord: {token: discord-token-1}\n",
        )
        .env("BUB_MISTRAL_API_KEY", "sk-mistral-01234")
        .env("GROQ_API_KEY", "gsk_groq-012345")
        .env("UNUSED_API_KEY", "unused-0123456")
        .dotenv("BUB_DISCORD_TOKEN=env-token-0123\nPLAIN=plain\n");
    let settings = machine.load();
    let rows: String = settings.shown().iter().map(|it| format!("{} = {}\n", it.key, it.value)).collect();
    let all = format!("{rows}{settings:?}{:?}", settings.endpoint("groq"));
    let hidden = [
        "sk-file-01",
        "sk-own-01",
        "Bearer abc",
        "abcdefgh01",
        "123:telegram",
        "proxypass",
        "sk-mistral-0",
        "gsk_groq-0",
    ];
    for it in hidden {
        assert!(!rows.contains(it), "{it} in {rows}");
    }
    assert!(!all.contains("gsk_groq-0") && !all.contains("123:telegram"));
    assert!(rows.contains("GROQ_API_KEY = ***2345\n"), "{rows}");
    assert!(rows.contains(r#"api_key = {"openai": "***2345"}"#), "{rows}");

    let secrets = settings.secrets([]);
    assert_eq!(secrets.variables().collect::<Vec<_>>(), ["BUB_DISCORD_TOKEN", "BUB_MISTRAL_API_KEY", "GROQ_API_KEY"]);
    let mask = secrets.mask();
    for it in [
        "sk-file-012345",
        "sk-own-0123456",
        "Bearer abcdefgh0123",
        "123:telegram-token",
        "proxypass",
        "discord-token-1",
        "sk-mistral-01234",
        "gsk_groq-012345",
        "env-token-0123",
        "abcdefgh0123",
    ] {
        let mut text = format!("<{it}>");
        mask.mask(&mut text);
        assert_eq!(text, "<***>", "{it}");
    }
    let mut text = "unused-0123456".to_owned();
    assert!(!mask.mask(&mut text));
    assert!(settings.secrets(["unused"]).variables().any(|it| it == "UNUSED_API_KEY"));
}

#[test]
fn children_get_the_rest_of_dotenv_and_no_credentials() {
    let machine = || {
        Machine::new()
            .dotenv("BUB_API_KEY=sk-0123456789\nA=from-file\nB=from-file\n")
            .env("B", "from-env")
            .env("BUB_PROVIDERS", r#"{"x": {"type": "openai", "api_key": "sk-provider"}}"#)
            .env("BUB_TELEGRAM_TOKEN", "123:abcdefghi")
            .env("BUB_OPENAI_API_KEY", "sk-openai-1")
            .env("BUB_MAX_TOKENS", "5")
            .env("OPENAI_API_KEY", "not used by bub")
    };
    let settings = machine().load();
    let child = settings.child_variables(&settings.secrets([]));
    assert_eq!(child.add, BTreeMap::from([("A".to_owned(), "from-file".to_owned())]));
    assert_eq!(child.hide, ["BUB_API_KEY", "BUB_OPENAI_API_KEY", "BUB_PROVIDERS", "BUB_TELEGRAM_TOKEN"]);

    let settings = machine().env("BUB_SHELL_PASS_CREDENTIALS", "true").load();
    let child = settings.child_variables(&settings.secrets([]));
    assert!(child.hide.is_empty());
    assert_eq!(child.add["BUB_API_KEY"], "sk-0123456789");
    let mut text = "sk-0123456789".to_owned();
    assert!(settings.secrets([]).mask().mask(&mut text), "results are masked all the same");
}

#[test]
fn home_is_moved_by_its_variable_and_made_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = |machine: &Machine| machine.steady(&machine.load().paths.home().display().to_string());
    assert_eq!(home(&Machine::new()), "~/.bub");
    assert_eq!(home(&Machine::new().env("BUB_HOME", "~/x/y")), "~/x/y");
    assert_eq!(home(&Machine::new().env("BUB_HOME", "~")), "~");
    assert_eq!(home(&Machine::new().env("BUB_HOME", "rel")), "~/project/src/rel");
    assert_eq!(home(&Machine::new().env("BUB_HOME", "/abs")), "/abs");
    assert_eq!(home(&Machine::new().env("BUB_HOME", "")), "~/.bub");
    let machine = Machine::new().dotenv("BUB_HOME=~/deep/home\n").config("model: a:b\n");
    assert_eq!(home(&machine), "~/deep/home");
    let settings = machine.load();
    assert_eq!(settings.model.as_deref(), Some("a:b"), "the configuration file does not move");
    assert!(!machine.path("deep").exists(), "loading makes nothing");
    settings.paths.prepare().unwrap();
    settings.paths.prepare().unwrap();
    for made in ["deep", "deep/home", "deep/home/tapes", "deep/home/spool", "deep/home/locks"] {
        let mode = fs::metadata(machine.path(made)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{made}");
    }
    let kept = fs::metadata(machine.path(".bub")).unwrap().permissions().mode();
    settings.paths.make(Path::new(&machine.path(".bub"))).unwrap();
    assert_eq!(fs::metadata(machine.path(".bub")).unwrap().permissions().mode(), kept);
}

#[test]
fn home_that_cannot_be_made_says_what_moved_it() {
    let machine = Machine::new().dotenv("BUB_HOME=~/project/.env/home\n");
    let err = machine.load().paths.prepare().unwrap_err();
    expect!["cannot use ~/project/.env/home for bub's own files: Not a directory (os error 20); that ~/project/.env/home is the folder to use comes from ~/project/.env:1 (BUB_HOME)"].assert_eq(&machine.steady(&err.to_string()));
}

#[test]
fn readable_file_with_credentials_is_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;
    let warnings = |yaml: &str, mode: u32| {
        let machine = Machine::new().config(yaml);
        fs::set_permissions(machine.path(".bub/config.yml"), fs::Permissions::from_mode(mode)).unwrap();
        machine.steady(&machine.load().warnings.join("\n"))
    };
    assert_eq!(warnings("api_key: sk-0123\n", 0o600), "");
    assert_eq!(warnings("model: a:b\n", 0o644), "");
    expect!["~/.bub/config.yml holds credentials and has mode 0644: others can read it (chmod 600 ~/.bub/config.yml)"]
        .assert_eq(&warnings("api_key: sk-0123\n", 0o644));
}

#[test]
fn show_lists_everything_with_its_place() {
    let machine = Machine::new()
        .config("model: openai:gpt-4.1\n")
        .dotenv("BUB_VERBOSE=1\n")
        .env("BUB_OPENAI_API_BASE", "http://u:p@localhost/v1")
        .env("OPENAI_API_KEY", "sk-0123456789")
        .option("max_steps", "3");
    let mut text = String::new();
    for it in machine.load().shown() {
        let origins: Vec<_> = it.origins.iter().map(ToString::to_string).collect();
        text.push_str(&format!("{} = {} ({})\n", it.key, it.value, origins.join(", ")));
    }
    expect![[r#"
        model = openai:gpt-4.1 (~/.bub/config.yml:1)
        fallback_models = [] (default)
        api_key = none (default)
        api_base = the provider's own (default)
        providers = {} (default)
        max_tokens = 16384 (default)
        model_timeout_seconds = no limit (default)
        client_args = {} (default)
        completion_args = {} (default)
        command_prefix = , (default)
        max_steps = 3 (option --max_steps)
        max_auto_handoffs = 1 (default)
        context.window = what the provider told when `bub models` last listed its models; else unknown (default)
        context.summary = off (default)
        enabled_channels = ["all"] (default)
        debounce_seconds = 1.0 (default)
        max_wait_seconds = 10.0 (default)
        active_time_window = 60.0 (default)
        stream_output = false (default)
        verbose = 1 (~/project/.env:1 (BUB_VERBOSE))
        spill.threshold = 4096 (default)
        shell.max_output_bytes = 268435456 (default)
        shell.pass_credentials = false (default)
        web.render_html = markdown (default)
        web.max_bytes = 10485760 (default)
        web.private_addresses = auto (default)
        media.max_image_side = 2000 (default)
        environment.exec = none: tools run on this machine (default)
        environment.workspace = where the command starts programs (default)
        environment.shell = `bash`, else `sh` (default)
        code.runner = auto (default)
        python = python3 (default)
        skill_dirs = `.agents/skills` of the workspace and of the home folder, and bub's own (default)
        tape.sync = commit (default)
        session.wait_seconds = 60.0 (default)
        telegram.token = none: the channel is off (default)
        telegram.allow_users = everybody (default)
        telegram.allow_chats = every chat (default)
        telegram.proxy = none (default)
        home = ~/.bub (default)
        config file = ~/.bub/config.yml (default)
        .env = ~/project/.env (default)
        BUB_OPENAI_API_BASE = http://u:***@localhost/v1 (environment variable BUB_OPENAI_API_BASE)
        OPENAI_API_KEY = ***6789 (environment variable OPENAI_API_KEY)
    "#]]
    .assert_eq(&machine.steady(&text));
    assert_eq!(machine.load().origin("max_steps"), Some(Origin::CommandLine { flag: "--max_steps".into() }));
    assert_eq!(machine.load().origin("nope"), None);
}

#[test]
fn reference_page_is_up_to_date() {
    expect_file!["../../../../docs/reference/settings.md"].assert_eq(&reference());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn load_takes_any_file_and_any_environment(
        yaml in r##"((model|api_key|providers|spill|threshold|max_steps|telegram|x)(: |:\n  |: &a |: \*a|: !t )?|- |[\[\]{},'"|>%@!&*#\n]|  |[0-9.eE+-]{1,4}|null|true|\u{0}|ü)*"##,
        dotenv in r##"(BUB_(MODEL|API_KEY|MAX_STEPS|HOME)=|['"#\\ \n]|\$\{BUB_MODEL\}|[a-z:0-9]){0,30}"##,
        values in prop::collection::vec((0..40_usize, r##"null|[\[\]{}",:a-z0-9.~/ -]{0,12}|\PC{0,6}"##), 0..4),
    ) {
        let names: Vec<String> = reference().lines().filter_map(|it| Some(it.split('`').nth(3)?.to_owned()))
            .filter(|it| it.starts_with("BUB_")).collect();
        let mut machine = Machine::new().config(&yaml).dotenv(&dotenv);
        for (idx, value) in values {
            machine = machine.env(names.get(idx).map_or("BUB_OPENAI_API_KEY", String::as_str), &value);
        }
        match machine.try_load() {
            Ok(settings) => {
                let _ = (settings.shown(), settings.unknown_keys(), settings.endpoint("openai"));
                let _ = settings.child_variables(&settings.secrets(["x"]));
                prop_assert!(!settings.command_prefix.is_empty());
            }
            Err(err) => prop_assert!(!err.to_string().contains('\n'), "{}", err),
        }
    }
}
