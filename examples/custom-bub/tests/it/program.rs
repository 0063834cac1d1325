//! What a plugin adds to the program: commands, listings, settings, and what the model is told.

use std::{
    fs,
    process::{Command, Stdio},
};

use bub_testing::{ModelServer, Reply};
use expect_test::expect;
use serde_json::json;
use tempfile::TempDir;

/// A home and a workspace with a table.
struct Home(TempDir);

/// What a run left: its code, standard output and standard error.
type Ran = (Option<i32>, String, String);

impl Home {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("home/.bub")).unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        fs::write(dir.path().join("ws/weather.csv"), "Bern,21.5,sunny\n").unwrap();
        Self(dir)
    }

    fn config(self, yaml: &str) -> Self {
        fs::write(self.0.path().join("home/.bub/config.yml"), yaml).unwrap();
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_custom-bub"));
        #[expect(clippy::disallowed_methods, reason = "the programs that tests start are found there")]
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).env("HOME", self.0.path().join("home"));
        command.args(args).current_dir(self.0.path().join("ws")).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    /// The output of a run that went well.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, Some(0), "out: {out}\nerr: {err}");
        out
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_guide_shows_both_examples_whole() {
    let guide = include_str!("../../../../docs/guide/plugins.md");
    for source in [include_str!("../../../weather/src/lib.rs"), include_str!("../../src/main.rs")] {
        assert!(
            guide.contains(&format!("```rust\n{source}```")),
            "copy the example to docs/guide/plugins.md:\n{source}"
        );
    }
}

#[test]
fn help_shows_the_plugins_subcommand_and_its_arguments() {
    let home = Home::new();
    let help = home.ok(&["--help"]);
    assert!(help.contains("Usage: custom-bub") && help.contains("\n  weather  "), "{help}");
    expect![[r#"
        Look up the weather of a city

        Usage: custom-bub weather [OPTIONS] <CITY>

        Arguments:
          <CITY>  The city

        Options:
              --unit <UNIT>       celsius or fahrenheit; the setting weather.unit by default
          -w, --workspace <PATH>  Folder to work in [default: the current one]
              --set <KEY=VALUE>   Set a setting for this run, as in --set max_steps=5; see `bub config show`
          -v, --verbose...        Log more to standard error: -v what tools do, -vv details, -vvv everything
          -h, --help              Print help
    "#]]
    .assert_eq(&home.ok(&["weather", "--help"]));
    assert!(home.ok(&["--version"]).starts_with("custom-bub 0."));
    let script = home.ok(&["completions", "bash"]);
    assert!(script.contains("custom-bub") && script.contains("weather"), "{script}");
    let (code, _, err) = home.run(&["weather"]);
    assert!(code == Some(2) && err.contains("<CITY>"), "{err}");
}

#[test]
fn the_tool_is_a_command_and_a_subcommand() {
    let home = Home::new();
    assert_eq!(home.ok(&["run", ",weather city=Bern"]), "Bern: 21.5 °C, sunny\n");
    assert_eq!(home.ok(&["run", ",weather Bern fahrenheit"]), "Bern: 70.7 °F, sunny\n");
    assert_eq!(home.ok(&["weather", "Bern"]), "Bern: 21.5 °C, sunny\n");
    assert_eq!(home.ok(&["weather", "bern", "--unit", "fahrenheit"]), "Bern: 70.7 °F, sunny\n");
    let (code, _, err) = home.run(&["weather", "it's = \"odd\""]);
    assert!(code == Some(1) && err.contains("no weather for 'it's = \"odd\"'"), "{err}");
    assert!(home.ok(&["run", ",help"]).contains("  ,weather city [unit]: Look up the weather of a city\n"));
    let tape = home.ok(&["tape", "export", "--format", "json"]);
    assert!(tape.contains("weather.asked"), "{tape}");
}

#[test]
fn the_listings_have_the_plugin() {
    let home = Home::new();
    assert!(home.ok(&["hooks"]).contains("system_prompt: builtin, weather (gathered)\n"));
    assert!(home.ok(&["tools"]).contains("\nweather "));
    assert_eq!(
        home.ok(&["plugins"]),
        "weather  loaded  tool weather, hooks weather, section weather, event handlers\n"
    );
    assert!(
        home.ok(&["plugins", "--json"]).starts_with(r#"{"name":"weather","loaded":true,"brought":["tool weather""#)
    );
}

#[test]
fn the_section_of_the_settings_is_shown_and_checked() {
    let home = Home::new().config("max_steps: 3\nweather:\n  unit: fahrenheit\n");
    assert_eq!(home.ok(&["run", ",weather Bern"]), "Bern: 70.7 °F, sunny\n");
    let shown = home.ok(&["config", "show"]);
    let row = |key: &str| shown.lines().find(|it| it.split(' ').next() == Some(key)).unwrap_or_default();
    assert!(row("weather.unit").contains("fahrenheit  (") && row("weather.unit").ends_with("config.yml:3)"), "{shown}");
    assert!(row("weather.file").ends_with("weather.csv  (default)"), "{shown}");

    let home = home.config("weather:\n  file: x.csv\n  unti: fahrenheit\n");
    let (code, out, err) = home.run(&["run", ",echo hi"]);
    assert_eq!((code, out.as_str()), (Some(0), "hi\n"), "the others go on: {err}");
    let reason = "config.yml:3: 'weather.unti' is not a setting (did you mean 'unit'?); there are 'file', 'unit'";
    assert!(err.contains("plugin 'weather' did not load: ") && err.contains(reason), "{err}");
    let plugins = home.ok(&["plugins"]);
    assert!(plugins.starts_with("weather  failed  ") && plugins.contains(reason), "{plugins}");
    let (code, _, err) = home.run(&["weather", "Bern"]);
    assert!(code == Some(1) && err.contains("there is no tool 'weather': plugin 'weather' did not load"), "{err}");
}

#[test]
fn the_section_is_set_by_options_and_variables_too() {
    let home = Home::new().config("weather:\n  unit: celsius\n");
    let warm = "Bern: 70.7 °F, sunny\n";
    assert_eq!(home.ok(&["--set", "weather.unit=fahrenheit", "run", ",weather Bern"]), warm);
    let with = |args: &[&str], value: &str| ran(home.command(args).env("BUB_WEATHER_UNIT", value));
    assert_eq!(with(&["run", ",weather Bern"], "fahrenheit").1, warm);
    let option = ["--set", "weather.unit=celsius", "run", ",weather Bern"];
    assert_eq!(with(&option, "fahrenheit").1, "Bern: 21.5 °C, sunny\n", "options count more than variables");
    let shown = with(&["config", "show", "--set", "weather.file=t.csv"], "fahrenheit").1;
    assert!(shown.contains("t.csv  (option --set)"), "{shown}");
    assert!(shown.contains("fahrenheit  (environment variable BUB_WEATHER_UNIT)"), "{shown}");
    let (_, _, err) = with(&["run", ",echo hi"], "kelvin");
    assert!(err.contains("did not load: environment variable BUB_WEATHER_UNIT: 'weather.unit': "), "{err}");
    let (code, _, err) = home.run(&["--set", "weather.unti=x", "run", ",echo hi"]);
    assert!(code == Some(2) && err.contains("'weather.unti'; did you mean 'weather.unit'?"), "{err}");
}

#[test]
fn the_model_is_offered_the_tool_and_told_the_unit() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "weather", json!({"city": "Bern"}))])).reply(Reply::text("Sunny."));
    let home = Home::new();
    let mut command = home.command(&["run", "how is the weather in Bern?"]);
    command
        .env("BUB_MODEL", "openai:mock")
        .env("BUB_API_KEY", "sk-test-0123456789")
        .env("BUB_API_BASE", server.base_url());
    let (code, out, err) = ran(&mut command);
    assert_eq!((code, out.as_str()), (Some(0), "Sunny.\n"), "{err}");
    let requests = server.requests();
    let first = requests[0].body.to_string();
    assert!(first.contains("Give temperatures in °C.") && first.contains(r#""name":"weather""#), "{first}");
    assert!(requests[1].body.to_string().contains("Bern: 21.5 °C, sunny"));
}
