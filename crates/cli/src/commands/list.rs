//! `bub tools`, `bub hooks` and `bub plugins`.

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

/// Prints each hook with those who implement it, in the order of their registration, and how they act
/// as one.
pub(crate) fn hooks(app: &App, json: bool) -> Result<ExitCode> {
    let report = Runtime::hook_report(app.hooks());
    if report.is_empty() && !json {
        output::line("(no hook implementations)")?;
    }
    for (info, names) in report {
        if json {
            let value = json!({"hook": info.name, "composition": info.composition.to_string(), "names": names});
            output::line(&value.to_string())?;
        } else {
            output::line(&format!("{}: {} ({})", info.name, names.join(", "), info.composition))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each plugin with what it brought, or why it did not load.
pub(crate) fn plugins(app: &App, json: bool) -> Result<ExitCode> {
    let reports = app.plugins();
    if reports.is_empty() && !json {
        output::line("(no plugins: they are built into a program of your own)")?;
    }
    let width = reports.iter().map(|it| it.name.len()).max().unwrap_or_default();
    for it in reports {
        let reason = it.error.as_ref().map(|err| err.reason.as_str());
        let line = match reason {
            _ if json => {
                json!({"name": it.name, "loaded": reason.is_none(), "brought": it.brought, "error": reason}).to_string()
            }
            None => format!("{:width$}  loaded  {}", it.name, it.brought.join(", ")),
            Some(reason) => format!("{:width$}  failed  {reason}", it.name),
        };
        output::line(line.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
