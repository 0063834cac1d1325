//! How a plugin is tested: its tool in a folder of the test's own, its registration with a registry.

use std::sync::Arc;

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    event::ToolCallFinished,
    plugin::{Plugin as _, Registry},
    tool::ToolContext,
    turn::TurnState,
};
use bub_testing::{context, text_of};
use bub_weather::{Weather, WeatherSettings};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// A workspace with a table.
fn workspace() -> (TempDir, ToolContext) {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("weather.csv"), "Bern, 21.5, sunny\nBasel,18,rain, later dry\nOslo,cold,grey\n")
        .unwrap();
    let options = LocalOptions { workspace: Some(folder.path().canonicalize().unwrap()), ..LocalOptions::default() };
    (folder, context(Arc::new(LocalEnvironment::new(options).unwrap())))
}

fn registry(section: Value) -> Registry {
    Registry::new(Map::from_iter([("weather".to_owned(), section)]))
}

/// What a call says, with the plugin set up as given.
async fn check(settings: Value, args: Value, expected: &str) {
    let (_folder, ctx) = workspace();
    let mut registry = registry(settings);
    registry.load(&Weather).unwrap();
    let tool = registry.tools.get("weather").unwrap();
    let said = text_of(tool.call(&ctx, args.clone()).await.map_err(|err| err.in_tool("weather")));
    assert!(said.contains(expected), "{args}: {said}");
}

#[tokio::test]
async fn the_weather_of_a_city_is_looked_up_in_the_table() {
    check(json!({}), json!({"city": "Bern"}), "Bern: 21.5 °C, sunny").await;
    check(json!({}), json!({"city": " basel "}), "Basel: 18.0 °C, rain, later dry").await;
    check(json!({}), json!({"city": "Bern", "unit": "fahrenheit"}), "Bern: 70.7 °F, sunny").await;
    check(json!({"unit": "fahrenheit"}), json!({"city": "Bern"}), "Bern: 70.7 °F, sunny").await;
    check(json!({}), json!({"city": "Bren"}), "did you mean Bern?").await;
    check(json!({}), json!({"city": "Oslo"}), "'cold' is no number of degrees for Oslo").await;
    check(json!({"file": "none.csv"}), json!({"city": "Bern"}), "none.csv").await;
}

#[test]
fn wrong_settings_keep_the_plugin_out_and_say_why() {
    for (section, expected) in [
        (json!({"fiel": "x"}), "'weather.fiel' is not a setting (did you mean 'file'?)"),
        (json!({"unit": "kelvin"}), "'weather.unit': unknown variant `kelvin`"),
        (json!({"file": " "}), "the setting 'weather.file' is empty"),
    ] {
        let mut registry = registry(section);
        let err = registry.load(&Weather).unwrap_err().to_string();
        assert!(err.starts_with("plugin 'weather' did not load: ") && err.contains(expected), "{err}");
        assert!(registry.tools.is_empty() && registry.hooks.is_empty());
    }
}

#[tokio::test]
async fn the_plugin_brings_a_tool_hooks_a_handler_and_a_subcommand() {
    let mut registry = Registry::default();
    let report = registry.load_reported(&Weather);
    assert_eq!(report.brought, ["tool weather", "hooks weather", "section weather", "event handlers"]);
    assert!(registry.events.wants::<ToolCallFinished>());
    let mut state = TurnState::default();
    assert_eq!(registry.hooks[0].system_prompt(&state).await.as_deref(), Some("Give temperatures in °C."));
    state.allowed_tools = Some(vec!["bash".into()]);
    assert_eq!(registry.hooks[0].system_prompt(&state).await, None);
    assert_eq!(Weather.subcommands()[0].tool.parameters["required"], json!(["city"]));
    assert_eq!(WeatherSettings::default().file, "weather.csv");
}
