//! From Rust types to the JSON schemas that models are given.
//!
//! The shape is the reference's: `{"type": "object", "properties": {…}, "required": […]}`, optional
//! types as `anyOf` with `null`, defaults stated, no formats, everything inlined.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// A tool's description, which is the doc comment of its arguments, and the schema of its parameters.
#[must_use]
pub fn of_arguments<T: JsonSchema>() -> (String, Value) {
    let raw = raw::<T>();
    let description = unwrapped(raw.get("description").and_then(Value::as_str).unwrap_or_default());
    (description, parameters(raw))
}

fn parameters(mut raw: Map<String, Value>) -> Value {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    let required = raw.remove("required").unwrap_or_else(|| json!([]));
    let mut properties = Map::new();
    if let Some(Value::Object(fields)) = raw.remove("properties") {
        for (name, field) in fields {
            let mut field = tidy(field);
            let is_required = required.as_array().is_some_and(|it| it.iter().any(|it| it == name.as_str()));
            let is_nullable =
                field.get("anyOf").and_then(Value::as_array).is_some_and(|it| it.iter().any(is_null_schema));
            if let Some(object) = field.as_object_mut()
                && is_nullable
                && !is_required
            {
                let default = object.remove("default").unwrap_or(Value::Null);
                object.insert("default".into(), default);
            }
            properties.insert(name, field);
        }
    }
    schema.insert("properties".into(), properties.into());
    if required.as_array().is_some_and(|it| !it.is_empty()) {
        schema.insert("required".into(), required);
    }
    Value::Object(schema)
}

/// Joins the lines of each paragraph: where source code breaks them means nothing to the reader.
/// Lines of lists stay lines.
fn unwrapped(comment: &str) -> String {
    let mut text = String::with_capacity(comment.len());
    for line in comment.lines() {
        let starts_anew = line.trim().is_empty() || line.trim_start().starts_with(['-', '*', '|', '`']);
        if !text.is_empty() {
            text.push(if starts_anew || text.ends_with('\n') { '\n' } else { ' ' });
        }
        text.push_str(if starts_anew { line.trim_end() } else { line.trim() });
    }
    text.trim().to_owned()
}

/// Gives a schema and each of its properties a title, and puts the keys of a property in the order
/// of schemas that come from models (default, description, items, title, type).
#[must_use]
pub fn titled(mut schema: Value, title: &str) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, field) in properties {
            if let Some(object) = field.as_object_mut() {
                object.insert("title".into(), title_case(name).into());
                object.sort_keys();
            }
        }
    }
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".into(), title.into());
    }
    schema
}

fn title_case(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>()).unwrap_or_default()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn raw<T: JsonSchema>() -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true).into_generator();
    match generator.root_schema_for::<T>().to_value() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

fn is_null_schema(schema: &Value) -> bool {
    schema.get("type").is_some_and(|it| it == "null")
}

fn null_schema() -> Value {
    json!({"type": "null"})
}

/// One property's schema, without what models need not know, `default` last.
fn tidy(schema: Value) -> Value {
    let Value::Object(mut object) = schema else { return schema };
    object.remove("title");
    if object.get("format").and_then(Value::as_str).is_some_and(|it| it.starts_with("uint")) {
        object.remove("minimum");
    }
    object.remove("format");
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.remove(key) {
            object.insert(key.into(), tidy(inner));
        }
    }
    if let Some(Value::Array(options)) = object.remove("anyOf") {
        object.insert("anyOf".into(), options.into_iter().map(tidy).collect());
    }
    let description =
        object.remove("description").map(|it| it.as_str().map_or_else(|| it.clone(), |text| unwrapped(text).into()));
    let default = object.remove("default");
    if let Some(Value::Array(mut kinds)) = object.get("type").cloned()
        && let Some(at) = kinds.iter().position(|it| it == "null")
    {
        kinds.remove(at);
        let kind = if kinds.len() == 1 { kinds.swap_remove(0) } else { kinds.into() };
        object.insert("type".into(), kind);
        object = Map::from_iter([("anyOf".to_owned(), Value::Array(vec![Value::Object(object), null_schema()]))]);
    }
    for (key, value) in [("description", description), ("default", default)] {
        if let Some(value) = value {
            object.insert(key.into(), value);
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    /// Does a thing.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Args {
        /// What to do.
        command: String,
        cwd: Option<String>,
        #[serde(default = "thirty")]
        timeout_seconds: u64,
        #[serde(default)]
        background: bool,
        headers: Option<BTreeMap<String, Value>>,
        #[serde(default)]
        names: Vec<String>,
    }

    fn thirty() -> u64 {
        30
    }

    #[derive(Deserialize, JsonSchema)]
    struct None {}

    #[test]
    fn parameters_have_the_references_shape() {
        let (description, parameters) = of_arguments::<Args>();
        assert_eq!(description, "Does a thing.");
        assert_eq!(
            parameters,
            json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "What to do."},
                    "cwd": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                    "timeout_seconds": {"type": "integer", "default": 30},
                    "background": {"type": "boolean", "default": false},
                    "headers": {
                        "anyOf": [{"type": "object", "additionalProperties": true}, {"type": "null"}],
                        "default": null
                    },
                    "names": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["command"],
            })
        );
        assert_eq!(of_arguments::<None>().1, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn lines_of_a_paragraph_are_joined() {
        for (comment, expected) in [
            ("one\ntwo", "one two"),
            ("one\n\ntwo\nthree", "one\n\ntwo three"),
            ("one:\n- a\n- b\n\nend", "one:\n- a\n- b\n\nend"),
            ("", ""),
        ] {
            assert_eq!(unwrapped(comment), expected);
        }
    }

    #[test]
    fn titles_are_in_title_case() {
        let schema = titled(of_arguments::<Args>().1, "Input");
        assert_eq!(schema["title"], "Input");
        assert_eq!(schema["properties"]["timeout_seconds"]["title"], "Timeout Seconds");
    }
}
