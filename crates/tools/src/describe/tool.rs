//! Definitions of tools, on demand.

use std::collections::BTreeMap;

use bub_kernel::{similar::close_matches, tool::DynTool, tool::prelude::*};
use serde_json::Value;

use super::loaded::Loaded;

/// The most names that one call may ask for.
const MAX_NAMES: usize = 200;
/// The most names in the list of all tools.
const MAX_AVAILABLE: usize = 2_000;

/// Load the definitions of tools that are available on demand. Returns each tool's name, description and parameters; from the next step on the tools can be called. Names that are not known stand under `unknown`, names that were loaded before under `already_loaded`. With an empty list of names, the names of all tools are returned.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ToolDescribeArgs {
    /// Names of tools, as `fs_read` or `fs.read`.
    names: Vec<String>,
}

/// A tool's definition.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct ToolDescription {
    /// The name to call it by.
    name: String,
    /// What it does.
    description: String,
    /// JSON schema of its arguments.
    parameters: Value,
}

/// Definitions of tools.
#[derive(Debug, Default, JsonSchema, PartialEq, Serialize)]
pub struct ToolDescriptions {
    /// The definitions of tools that had not been loaded before.
    tools: Vec<ToolDescription>,
    /// Names that are not known, as they were given.
    unknown: Vec<String>,
    /// Names of tools that had been loaded before.
    already_loaded: Vec<String>,
    /// For names that are not known, those that they are near to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    did_you_mean: BTreeMap<String, Vec<String>>,
    /// The names of all tools, when no name was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    available: Vec<String>,
}

/// The tool `tool.describe`.
#[derive(Clone, Copy, Debug)]
pub struct ToolDescribe;

impl Tool for ToolDescribe {
    const NAME: &'static str = "tool.describe";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = ToolDescribeArgs;
    type Output = ToolDescriptions;

    async fn call(&self, ctx: &ToolContext, args: ToolDescribeArgs) -> Result<ToolDescriptions, ToolError> {
        if args.names.len() > MAX_NAMES {
            return Err(ToolError::invalid(format!(
                "at most {MAX_NAMES} names at once, got {}; ask in several calls",
                args.names.len()
            )));
        }
        let names: Vec<_> = args.names.iter().filter(|it| !it.trim().is_empty()).collect();
        if names.is_empty() {
            return Ok(ToolDescriptions { available: available(ctx), ..ToolDescriptions::default() });
        }
        let mut result = ToolDescriptions::default();
        let mut found: Vec<&dyn DynTool> = Vec::new();
        for name in names {
            match ctx.tools.find(name).map(|it| &**it).filter(|it| is_offered(ctx, *it)) {
                Some(tool) if found.iter().any(|it| it.name() == tool.name()) => {}
                Some(tool) => found.push(tool),
                None if result.unknown.contains(name) => {}
                None => result.unknown.push(name.clone()),
            }
        }
        let deferred: Vec<_> = found.iter().filter(|it| it.spec().deferred).map(|it| it.name().to_owned()).collect();
        let fresh = if deferred.is_empty() { Vec::new() } else { load(ctx, &deferred).await? };
        for tool in found {
            let spec = tool.spec();
            if spec.deferred && !fresh.iter().any(|it| *it == spec.name) {
                result.already_loaded.push(spec.alias());
            } else {
                result.tools.push(ToolDescription {
                    name: spec.alias(),
                    description: spec.description.clone(),
                    parameters: spec.parameters.clone(),
                });
            }
        }
        if !result.unknown.is_empty() {
            result.did_you_mean = near(ctx, &result.unknown);
        }
        Ok(result)
    }
}

/// Whether the model could be offered the tool in this turn.
fn is_offered(ctx: &ToolContext, tool: &dyn DynTool) -> bool {
    matches!(tool.spec().exposure, Exposure::Auto | Exposure::Direct) && ctx.state.allows_tool(tool.name())
}

/// The aliases of all tools that may be described, in order.
fn available(ctx: &ToolContext) -> Vec<String> {
    let tools = ctx.tools.iter().filter(|it| is_offered(ctx, &***it));
    tools.take(MAX_AVAILABLE).map(|it| it.spec().alias()).collect()
}

async fn load(ctx: &ToolContext, names: &[String]) -> Result<Vec<String>, ToolError> {
    let loaded = match ctx.state.slot::<Loaded>() {
        Some(loaded) => loaded.clone(),
        // A command belongs to no turn with a model.
        None => Loaded::new(ctx.tape.clone()),
    };
    loaded.load(names).await.map_err(|err| ToolError::raised("TapeError", err.to_string()).with_source(err))
}

/// For each name those that it may have meant, if there are any.
fn near(ctx: &ToolContext, unknown: &[String]) -> BTreeMap<String, Vec<String>> {
    let known = available(ctx);
    unknown
        .iter()
        .filter_map(|name| {
            let wanted = name.trim().to_lowercase().replace('.', "_");
            let near: Vec<_> =
                close_matches(&wanted, known.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
            (!near.is_empty()).then(|| (name.clone(), near))
        })
        .collect()
}
