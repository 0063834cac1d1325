//! Settings as the program shows and checks them.

use crate::home::TestHome;

#[test]
fn config_show_tells_where_values_come_from_and_hides_secrets() {
    let home = TestHome::new().var("BUB_API_KEY", "sk-live-abcdefghijklmnop").var("BUB_MAX_STEPS", "7");
    home.config("model: openai:gpt\nmax_steps: 3\nnonsense: 1\n");
    let ran = home.run(&["config", "show", "--set", "max_tokens=99"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let row = |key: &str| ran.out.lines().find(|it| it.split_whitespace().next() == Some(key)).unwrap_or_default();
    assert!(row("model").contains("openai:gpt") && row("model").contains("config.yml"), "{}", ran.out);
    assert!(row("max_steps").contains('7') && row("max_steps").contains("BUB_MAX_STEPS"), "{}", ran.out);
    assert!(row("max_tokens").contains("99") && row("max_tokens").contains("--set"), "{}", ran.out);
    assert!(!ran.out.contains("sk-live-abcdefghijklmnop"), "{}", ran.out);
    assert!(ran.err.contains("'nonsense' (line 3"), "{}", ran.err);
    let json = home.run(&["config", "show", "--json"]).ok();
    assert!(
        json.lines().all(|it| serde_json::from_str::<serde_json::Value>(it).is_ok()) && !json.contains("abcdefghijklm")
    );
}

#[test]
fn unreadable_configuration_names_file_line_and_what_was_expected() {
    let home = TestHome::new();
    for (yaml, expected) in [
        ("model: [1\n", "config.yml:"),
        ("max_steps: many\n", "config.yml:1"),
        ("- a\n- b\n", "config.yml"),
        ("command_prefix: 'a b'\n", "command_prefix must be non-empty and contain no whitespace"),
    ] {
        home.config(yaml);
        let err = home.run(&["run", ",echo hi"]).failed(2);
        assert!(err.starts_with("error: ") && err.contains(expected), "{yaml}: {err}");
    }
    let home = TestHome::new();
    assert!(home.run(&["--set", "nonsense=1", "run", ",echo"]).failed(2).contains("there is no setting 'nonsense'"));
    assert!(home.run(&["--set", "nonsense", "run", ",echo"]).failed(2).contains("KEY=VALUE"));
    for command in [&["run", ",echo"][..], &["config", "show"]] {
        for (option, expected) in [
            ("max_token=1", "there is no setting 'max_token'; did you mean 'max_tokens'?"),
            ("weather.unit=x", "there is no setting 'weather.unit'; `bub config show` lists them"),
        ] {
            let err = home.run(&[&["--set", option], command].concat()).failed(2);
            assert!(err.contains(expected), "{err}");
        }
    }
}

#[test]
fn slips_in_a_provider_are_told_with_their_line() {
    let home = TestHome::new();
    home.config("providers:\n  local:\n    type: ollama\n    apibase: http://127.0.0.1:1\nmdoel: local:m\n");
    let ran = home.run(&["config", "show"]);
    let expected = "config.yml:4: providers.local.apibase has no effect (did you mean api_base?)";
    assert!(ran.code == Some(0) && ran.err.contains(expected), "{}", ran.err);
    assert!(ran.err.contains("'mdoel' (line 5 of ") && ran.err.contains("; did you mean 'model'?"), "{}", ran.err);
    home.config("client_args: {timeout: -1}\nmax_steps: 7\n");
    let ran = home.run(&["config", "show"]);
    assert!(ran.code == Some(2) && ran.out.contains("max_steps "), "what is set is shown all the same: {}", ran.out);
    assert!(ran.err.contains("config.yml:1: client_args.timeout must be a number of seconds"), "{}", ran.err);
    home.config("providers:\n  local:\n    type: ollama\n    api_format: chatt\n");
    let err = home.run(&["run", ",echo"]).failed(2);
    let expected =
        "config.yml:4: providers.local.api_format must be one of chat, responses, messages, gemini; found \"chatt\"";
    assert!(err.contains(expected), "{err}");
}

#[test]
fn the_prefix_of_commands_is_a_setting() {
    let home = TestHome::new().var("BUB_COMMAND_PREFIX", "::");
    assert_eq!(home.run(&["run", "::echo hi"]).ok(), "hi\n");
    assert!(home.run(&["run", "::help"]).ok().starts_with("Commands use '::' at line start."));
    home.run(&["run", ",echo hi"]).failed(2);
}

#[test]
fn a_dotenv_file_is_read_and_reaches_commands_but_its_keys_do_not() {
    let home = TestHome::new();
    home.write(".env", "BUB_MAX_STEPS=4\nBUB_API_KEY=sk-live-abcdefghijklmnop\nGREETING=hello\n");
    let shown = home.run(&["config", "show"]).ok();
    let row = shown.lines().find(|it| it.starts_with("max_steps")).unwrap();
    assert!(row.contains('4') && row.contains(".env"), "{row}");
    assert_eq!(home.run(&["run", ",echo $GREETING-$BUB_API_KEY"]).ok(), "hello-\n");
}
