use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::{
    event::StepStarted,
    tool::{ToolContext, ToolReply},
};

/// Where and how much.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Weather {
    /// Where.
    city: String,
    days: u8,
    unit: Option<Unit>,
    sources: Vec<Source>,
    aliases: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Source {
    url: String,
    limits: Option<Limits>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Limits {
    calls: u32,
}

impl Default for Weather {
    fn default() -> Self {
        Self { city: "Bern".into(), days: 1, unit: None, sources: Vec::new(), aliases: Default::default() }
    }
}

fn read(section: Value) -> Result<Weather, PluginError> {
    Registry::new(Map::from_iter([("weather".to_owned(), section)])).settings("weather")
}

#[test]
fn a_section_is_read_over_the_defaults() {
    assert_eq!(Registry::default().settings::<Weather>("weather").unwrap(), Weather::default());
    assert_eq!(read(Value::Null).unwrap(), Weather::default());
    let read = read(json!({
        "city": "Ulm", "days": null, "unit": "celsius", "aliases": {"anything": "goes"},
        "sources": [{"url": "x", "limits": {"calls": 3}}],
    }));
    assert_eq!(
        read.unwrap(),
        Weather {
            city: "Ulm".into(),
            unit: Some(Unit::Celsius),
            sources: vec![Source { url: "x".into(), limits: Some(Limits { calls: 3 }) }],
            aliases: [("anything".to_owned(), "goes".to_owned())].into(),
            ..Weather::default()
        }
    );
}

#[test]
fn what_is_wrong_with_a_section_names_the_field() {
    let check = |section: Value, key: &str, expected: &str| {
        let err = read(section).unwrap_err();
        assert!(err.to_string().contains(expected), "{err}");
        assert_eq!(err.setting.as_deref(), Some(key));
    };
    check(
        json!({"ctiy": "Ulm"}),
        "weather.ctiy",
        "'weather.ctiy' is not a setting (did you mean 'city'?); there are 'city', 'days'",
    );
    check(
        json!({"city": "Ulm", "days": "many"}),
        "weather.days",
        "'weather.days': invalid type: string \"many\", expected u8",
    );
    check(json!({"days": 300}), "weather.days", "'weather.days': invalid value: integer `300`, expected u8");
    check(json!({"unit": "kelvin"}), "weather.unit", "'weather.unit': unknown variant `kelvin`");
    check(
        json!({"sources": [{"url": "x"}, {"url": "y", "uri": "z"}]}),
        "weather.sources[1].uri",
        "did you mean 'url'?",
    );
    check(
        json!({"sources": [{"url": "x", "limits": {"cals": 1}}]}),
        "weather.sources[0].limits.cals",
        "did you mean 'calls'?",
    );
    check(json!(5), "weather", "'weather' must be a map of settings, found 5");
    let mut registry = Registry::default();
    registry.reserve_sections(["web"]);
    assert!(registry.settings::<Weather>("web").unwrap_err().to_string().contains("is bub's own"));
}

#[test]
fn a_section_tells_its_fields_and_which_were_given() {
    let mut registry = Registry::new(Map::from_iter([("weather".to_owned(), json!({"days": 3}))]));
    registry.settings::<Weather>("weather").unwrap();
    registry.settings::<Weather>("weather").unwrap();
    let [section] = registry.read_sections.as_slice() else { panic!("{:?}", registry.read_sections) };
    let fields: Vec<_> = section.fields.iter().map(|it| (it.name.as_str(), &it.value, it.is_given)).collect();
    assert_eq!(fields[..2], [("city", &json!("Bern"), false), ("days", &json!(3), true)]);
}

/// A plugin that is one function.
struct With<F>(F);

impl<F: Fn(&mut Registry) -> Result<(), PluginError> + Send + Sync> Plugin for With<F> {
    fn name(&self) -> &str {
        "test"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        (self.0)(registry)
    }
}

struct Named(Arc<ToolSpec>);

fn tool(name: &'static str) -> Arc<dyn DynTool> {
    Arc::new(Named(Arc::new(ToolSpec {
        name: name.into(),
        description: String::new(),
        exposure: crate::tool::Exposure::Auto,
        deferred: false,
        parameters: json!({}),
        output: None,
    })))
}

impl DynTool for Named {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolContext,
        _: Value,
    ) -> futures::future::BoxFuture<'a, Result<ToolReply, crate::error::ToolError>> {
        Box::pin(std::future::ready(Ok(ToolReply::text("called"))))
    }
}

struct Quiet;

impl Hooks for Quiet {
    fn name(&self) -> &str {
        "quiet"
    }

    fn implements(&self) -> &[&'static str] {
        &[]
    }
}

#[test]
fn a_plugin_that_fails_leaves_nothing_behind() {
    let mut registry = Registry::default();
    registry.dyn_tool(tool("kept"));
    let kept = registry.tools.get("kept").cloned().unwrap();
    let fill = |registry: &mut Registry| {
        registry.dyn_tool(tool("kept")).dyn_tool(tool("new")).hooks(Quiet).sidecar("side");
        registry.events.on_sync(|_: &mut StepStarted| Ok(()));
    };
    let mut check = |plugin: &dyn Plugin, expected: &str| {
        let report = registry.load_reported(plugin);
        assert_eq!(report.error.unwrap().to_string(), format!("plugin 'test' did not load: {expected}"));
        assert!(report.brought.is_empty());
        assert!(Arc::ptr_eq(registry.tools.get("kept").unwrap(), &kept));
        assert_eq!((registry.tools.len(), registry.hooks.len(), registry.sidecars.len()), (1, 0, 0));
        assert!(!registry.events.has_handlers());
    };
    check(
        &With(|registry: &mut Registry| {
            fill(registry);
            Err(PluginError::new("whoever", "no key"))
        }),
        "no key",
    );
    check(
        &With(|registry: &mut Registry| {
            fill(registry);
            panic!("on loading")
        }),
        "it panicked: on loading",
    );
    check(
        &With(|registry: &mut Registry| {
            fill(registry);
            registry.dyn_tool(tool("two words"));
            Ok(())
        }),
        "a tool can't be named 'two words'",
    );
    let report = registry.load_reported(&With(|registry: &mut Registry| {
        fill(registry);
        Ok(())
    }));
    assert!(report.error.is_none());
    assert_eq!(report.brought, ["tool kept (replaced)", "tool new", "hooks quiet", "sidecar side", "event handlers"]);
    assert!(registry.events.wants::<StepStarted>());
}

#[test]
fn a_slot_of_another_type_is_another_slot() {
    struct Mine(u8);
    struct Yours(u8);
    let mut state = crate::turn::TurnState::default();
    state.set_slot(Mine(1));
    assert!(state.slot::<Yours>().is_none() && state.slot::<u8>().is_none());
    state.set_slot(Yours(2));
    assert_eq!((state.slot::<Mine>().map(|it| it.0), state.slot::<Yours>().map(|it| it.0)), (Some(1), Some(2)));
}
