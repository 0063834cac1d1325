//! `bub tools` and `bub hooks`.

use std::process::ExitCode;

use anyhow::Result;
use bub::{App, Runtime};
use serde_json::json;

use crate::output;

/// Prints name, exposure and one line of each tool.
pub(crate) fn tools(app: &App, json: bool) -> Result<ExitCode> {
    let tools = app.runtime().tools();
    let width = tools.iter().map(|it| it.spec().name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for tool in tools.iter() {
        let spec = tool.spec();
        if json {
            let value = json!({
                "name": spec.name,
                "alias": spec.alias(),
                "exposure": spec.exposure.to_string(),
                "deferred": spec.deferred,
                "description": spec.description,
                "parameters": spec.parameters,
            });
            text.push_str(&value.to_string());
            text.push('\n');
        } else {
            text.push_str(&format!("{:width$}  {:7}  {}\n", spec.name, spec.exposure, spec.summary()));
        }
    }
    output::out(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints each hook with those who implement it.
pub(crate) fn hooks(app: &App) -> Result<ExitCode> {
    let report = Runtime::hook_report(app.hooks());
    if report.is_empty() {
        output::line("(no hook implementations)")?;
    }
    for (hook, names) in report {
        output::line(&format!("{hook}: {}", names.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
