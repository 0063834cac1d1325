//! An example of a plugin: the weather of the places in a table of yours.
//!
//! It brings a tool (`weather`), which is a command and a subcommand too, a line for the system prompt,
//! a note on the tape for each look-up, and a section of the settings. It needs `bub-kernel` alone.

use async_trait::async_trait;
use bub_kernel::{
    event::ToolCallFinished,
    hooks::Hooks,
    plugin::{Plugin, PluginError, Registry, Subcommand},
    similar::close_matches,
    tool::prelude::*,
    turn::TurnState,
};
use serde_json::json;

/// The largest table that is read, in bytes.
const MAX_TABLE_BYTES: u64 = 1 << 20;

/// The section `weather` of the settings.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WeatherSettings {
    /// The table: lines of `city,degrees Celsius,sky`, relative to the workspace.
    pub file: String,
    /// The unit of temperatures, when a call names none.
    pub unit: Unit,
}

impl Default for WeatherSettings {
    fn default() -> Self {
        Self { file: "weather.csv".to_owned(), unit: Unit::Celsius }
    }
}

/// A unit of temperatures.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// °C
    Celsius,
    /// °F
    Fahrenheit,
}

impl Unit {
    fn of_celsius(self, degrees: f64) -> f64 {
        match self {
            Self::Celsius => degrees,
            Self::Fahrenheit => degrees * 9.0 / 5.0 + 32.0,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Celsius => "°C",
            Self::Fahrenheit => "°F",
        }
    }
}

/// Look up the weather of a city.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct WeatherArgs {
    /// The city.
    city: String,
    /// celsius or fahrenheit; the setting weather.unit by default.
    unit: Option<Unit>,
}

/// The weather of a city.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Report {
    city: String,
    degrees: f64,
    unit: Unit,
    sky: String,
}

/// The tool `weather`.
#[derive(Debug)]
pub struct WeatherTool {
    settings: WeatherSettings,
}

impl Tool for WeatherTool {
    const NAME: &'static str = "weather";
    type Args = WeatherArgs;
    type Output = Report;

    async fn call(&self, ctx: &ToolContext, args: WeatherArgs) -> Result<Report, ToolError> {
        // The session's environment, which need not be this machine.
        let path = ctx.env.resolve(&self.settings.file)?;
        let bytes = ctx.env.read_bytes(&path, MAX_TABLE_BYTES).await?;
        let table = String::from_utf8_lossy(&bytes);
        let rows: Vec<Vec<&str>> = table.lines().map(|it| it.splitn(3, ',').map(str::trim).collect()).collect();
        let unit = args.unit.unwrap_or(self.settings.unit);
        for row in &rows {
            if let [city, degrees, sky] = row.as_slice()
                && city.eq_ignore_ascii_case(args.city.trim())
            {
                let degrees: f64 = degrees.parse().map_err(|_| {
                    ToolError::invalid(format!("{path}: '{degrees}' is no number of degrees for {city}"))
                })?;
                let degrees = unit.of_celsius(degrees);
                return Ok(Report { city: (*city).to_owned(), degrees, unit, sky: (*sky).to_owned() });
            }
        }
        let cities = rows.iter().filter_map(|it| it.first().copied());
        let near = close_matches(&args.city, cities);
        let hint = near.first().map(|it| format!("; did you mean {it}?")).unwrap_or_default();
        Err(ToolError::not_found(format!("no weather for '{}' in {path}{hint}", args.city)))
    }

    fn render(&self, it: &Report) -> Option<String> {
        Some(format!("{}: {:.1} {}, {}", it.city, it.degrees, it.unit.sign(), it.sky))
    }
}

/// What the model is told about the weather.
#[derive(Debug)]
struct WeatherHooks {
    unit: Unit,
}

#[async_trait]
impl Hooks for WeatherHooks {
    fn name(&self) -> &str {
        "weather"
    }

    fn implements(&self) -> &[&'static str] {
        &["system_prompt"]
    }

    async fn system_prompt(&self, state: &TurnState) -> Option<String> {
        // A prompt names no tool that the turn may not use.
        state.allows_tool(WeatherTool::NAME).then(|| format!("Give temperatures in {}.", self.unit.sign()))
    }
}

/// The plugin.
#[derive(Clone, Copy, Debug)]
pub struct Weather;

impl Plugin for Weather {
    fn name(&self) -> &str {
        "weather"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        let settings: WeatherSettings = registry.settings("weather")?;
        if settings.file.trim().is_empty() {
            return Err(PluginError::new("weather", "the setting 'weather.file' is empty: name a table"));
        }
        registry.hooks(WeatherHooks { unit: settings.unit });
        registry.tool(WeatherTool { settings });
        registry.events.on(|event: &mut ToolCallFinished| {
            Box::pin(async move {
                if event.call.tool == WeatherTool::NAME && event.result.is_ok() {
                    event.ctx.tape.append_event("weather.asked", json!({"city": event.call.args.get("city")})).await?;
                }
                Ok(())
            })
        });
        Ok(())
    }

    fn subcommands(&self) -> Vec<Subcommand> {
        vec![Subcommand::of::<WeatherTool>("weather")]
    }
}
