//! Arguments: from words of a command line or the JSON of a model to what a tool's schema asks for.
//!
//! Values are converted leniently (`"5"` for an integer), as the reference does; what can't be
//! converted becomes an error that names each place and what was expected there. Then the tool itself is
//! asked what else is wrong.

mod convert;

use bub_kernel::{
    error::ToolError,
    tool::{ArgumentProblem, DynTool, PathStep},
};
use serde_json::{Map, Value};

use convert::Conversion;

/// Keywords by which a schema says more about its fields than `properties` does.
const COMPOSED: &[&str] = &[
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "dependentSchemas",
];

/// Checks and converts the arguments of a call. `name` is the tool's, as the caller knows it.
///
/// # Errors
/// `invalid_input` that lists all problems in `details.errors`.
pub(crate) fn validate(tool: &dyn DynTool, name: &str, args: &Map<String, Value>) -> Result<Value, ToolError> {
    let (converted, mut problems) = convert(&tool.spec().parameters, args);
    // A value that could not be converted is wrong for the tool, too: that is said once.
    let is_told = |it: &ArgumentProblem| {
        let is_same = |known: &ArgumentProblem| it.path.starts_with(&known.path) || known.path.starts_with(&it.path);
        !it.path.is_empty() && problems.iter().any(is_same)
    };
    let mut more = tool.problems(&converted);
    more.retain(|it| !is_told(it));
    problems.extend(more);
    if problems.is_empty() { Ok(converted) } else { Err(ToolError::arguments(name, &problems)) }
}

/// Converts what can be converted, and leaves the rest as it is.
fn convert(parameters: &Value, args: &Map<String, Value>) -> (Value, Vec<ArgumentProblem>) {
    let mut conversion = Conversion::new(parameters);
    let parameters = conversion.resolved(parameters);
    let empty = Map::new();
    let properties = parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let more = parameters.get("additionalProperties");
    let is_open = more.is_some_and(|it| it != &Value::Bool(false))
        || parameters.get("properties").is_none()
        || COMPOSED.iter().any(|it| parameters.get(it).is_some());
    let required: Vec<_> =
        parameters.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut converted = Map::new();
    for (parameter, value) in args {
        let n_problems = conversion.problems.len();
        let value = match (properties.get(parameter), more) {
            (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => {
                conversion.inside(PathStep::Key(parameter.clone()), schema, value)
            }
            (None, _) => {
                if !is_open {
                    // Models repeat a parameter that they know from elsewhere; naming the right ones helps most.
                    conversion.problems.push(ArgumentProblem {
                        code: "unexpected_keyword_argument",
                        path: vec![PathStep::Key(parameter.clone())],
                        message: format!("'{parameter}' is not a parameter; {}", known(properties)),
                        input: value.clone(),
                    });
                }
                value.clone()
            }
        };
        // Models write null for what they leave out, though the parameter has a default and takes no null.
        let is_optional = properties.contains_key(parameter) && !required.contains(&parameter.as_str());
        if value.is_null() && is_optional && conversion.problems.len() > n_problems {
            conversion.problems.truncate(n_problems);
            continue;
        }
        converted.insert(parameter.clone(), value);
    }
    for parameter in required.into_iter().filter(|it| !args.contains_key(*it)) {
        conversion.missing("missing_argument", parameter, properties.get(parameter), args);
    }
    (converted.into(), conversion.problems)
}

fn known(properties: &Map<String, Value>) -> String {
    if properties.is_empty() {
        return "the tool takes none".to_owned();
    }
    let names: Vec<_> = properties.keys().map(|it| format!("'{it}'")).collect();
    format!("the tool takes {}", names.join(", "))
}

#[cfg(test)]
mod tests;
