//! `bub config show`.

use std::process::ExitCode;

use anyhow::Result;
use bub::{BuildError, Builder, kernel::similar::close_matches, settings::SettingsError};
use serde_json::json;

use crate::{args::ConfigCommand, output};

/// Prints every setting and where it comes from.
pub(crate) fn run(command: ConfigCommand, builder: Builder) -> Result<ExitCode> {
    let ConfigCommand::Show { json } = command;
    let settings = builder.settings().clone();
    let mut shown = settings.shown();
    // What plugins are set to is known when they have read it. What else is wrong is told below, where it
    // can be compared with what is set.
    let mut problem = None;
    match builder.build() {
        Ok(app) => shown.extend(app.plugin_settings()),
        Err(BuildError::Settings(err @ SettingsError::UnknownKey { .. })) => return Err(err.into()),
        Err(err) => problem = Some(err),
    }
    let width = shown.iter().map(|it| it.key.len()).max().unwrap_or_default();
    let mut text = String::new();
    for it in &shown {
        let origins: Vec<_> = it.origins.iter().map(ToString::to_string).collect();
        if json {
            let value = json!({"key": it.key, "value": it.value, "set": it.is_set, "from": origins});
            text.push_str(&value.to_string());
            text.push('\n');
        } else {
            text.push_str(&format!("{:width$}  {}  ({})\n", it.key, it.value, origins.join(", ")));
        }
    }
    output::out(&text)?;
    for unknown in settings.unknown_keys() {
        let near = close_matches(&unknown.key, shown.iter().map(|it| it.key.as_str()));
        output::note(&format!(
            "note: '{}' (line {} of {}) is not a setting of bub and has no effect unless a plugin reads it{}",
            unknown.key,
            unknown.line,
            settings.paths.config_file().display(),
            near.first().map(|it| format!("; did you mean '{it}'?")).unwrap_or_default()
        ));
    }
    problem.map_or(Ok(ExitCode::SUCCESS), |err| Err(err.into()))
}
