//! From Rust types to the JSON schemas that models are given.
//!
//! The shape is the reference's: `{"type": "object", "properties": {…}, "required": […]}`, optional
//! types as `anyOf` with `null`, defaults stated, no formats of numbers. A parameter whose type has a
//! name is written out in its place, with the name as its title; types inside of it stand in the
//! parameter's own `$defs`, and references lead there from the root, so that everybody can follow them.

use std::collections::BTreeMap;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// How references to definitions begin before they are put into their places.
const DEFINITIONS: &str = "#/$defs/";

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
    let definitions = match raw.remove("$defs") {
        Some(Value::Object(it)) => it,
        _ => Map::new(),
    };
    let mut properties = Map::new();
    if let Some(Value::Object(fields)) = raw.remove("properties") {
        for (name, field) in fields {
            let mut field = property(&name, field, &definitions);
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
    if raw.get("additionalProperties").is_some_and(|it| it != &Value::Bool(false)) {
        schema.insert("additionalProperties".into(), raw.remove("additionalProperties").unwrap_or_default());
    }
    Value::Object(schema)
}

/// The schema of one parameter, complete in itself.
fn property(name: &str, field: Value, definitions: &Map<String, Value>) -> Value {
    let mut field = match field {
        Value::Object(object) => in_place(object, definitions),
        // What admits anything.
        _ => return json!({}),
    };
    let mut local = BTreeMap::new();
    let place = format!("#/properties/{}/$defs/", name.replace('~', "~0").replace('/', "~1"));
    refer(&mut field, &place, definitions, &mut local);
    if local.is_empty() {
        return field;
    }
    let mut whole = Map::from_iter([("$defs".to_owned(), local.into_iter().collect())]);
    if let Value::Object(field) = field {
        whole.extend(field);
    }
    whole.into()
}

/// A type that has a name, written out; what stands beside the reference counts more than its own.
fn in_place(mut object: Map<String, Value>, definitions: &Map<String, Value>) -> Value {
    let target = object.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(DEFINITIONS));
    let Some((name, definition)) = target.and_then(|it| definitions.get_key_value(it)) else {
        return tidy(object.into());
    };
    let mut whole = named(name, definition);
    object.remove("$ref");
    if let (Value::Object(whole), Value::Object(beside)) = (&mut whole, tidy(object.into())) {
        for (key, value) in beside {
            // A default stands last.
            whole.remove(&key);
            whole.insert(key, value);
        }
    }
    whole
}

/// A definition, with its name as the title where it is more than another name for a simple type.
fn named(name: &str, definition: &Value) -> Value {
    let mut schema = tidy(definition.clone());
    if let Some(object) = schema.as_object_mut()
        && ["properties", "enum", "const", "oneOf", "anyOf"].iter().any(|it| object.contains_key(*it))
        && !object.contains_key("title")
    {
        object.insert("title".into(), name.into());
    }
    schema
}

/// Leads all references to `place`, and gathers what they refer to.
fn refer(schema: &mut Value, place: &str, definitions: &Map<String, Value>, local: &mut BTreeMap<String, Value>) {
    match schema {
        Value::Object(object) => {
            let target = object.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(DEFINITIONS));
            if let Some((name, definition)) = target.and_then(|it| definitions.get_key_value(it)) {
                object.insert("$ref".into(), format!("{place}{name}").into());
                if !local.contains_key(name) {
                    // Before it is looked into: it may refer to itself.
                    local.insert(name.clone(), Value::Null);
                    let mut definition = named(name, definition);
                    refer(&mut definition, place, definitions, local);
                    local.insert(name.clone(), definition);
                }
            }
            object.values_mut().for_each(|it| refer(it, place, definitions, local));
        }
        Value::Array(items) => items.iter_mut().for_each(|it| refer(it, place, definitions, local)),
        _ => {}
    }
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
    match SchemaSettings::draft2020_12().into_generator().root_schema_for::<T>().to_value() {
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

/// A schema without what models need not know, `default` last.
fn tidy(schema: Value) -> Value {
    let Value::Object(mut object) = schema else { return schema };
    tidy_inside(&mut object);
    without_machine_numbers(&mut object);
    one_of_texts(&mut object);
    let description =
        object.remove("description").map(|it| it.as_str().map_or_else(|| it.clone(), |text| unwrapped(text).into()));
    let default = object.remove("default");
    if let Some(Value::Array(mut kinds)) = object.get("type").cloned()
        && let Some(at) = kinds.iter().position(|it| it == "null")
    {
        kinds.remove(at);
        let kind = if kinds.len() == 1 { kinds.swap_remove(0) } else { kinds.into() };
        object.insert("type".into(), kind);
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.retain(|it| !it.is_null());
        }
        object = Map::from_iter([("anyOf".to_owned(), Value::Array(vec![Value::Object(object), null_schema()]))]);
    }
    // One allowed value is that value.
    if let Some([only]) = object.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
        let only = only.clone();
        object.remove("enum");
        object.insert("const".into(), only);
    }
    for (key, value) in [("description", description), ("default", default)] {
        if let Some(value) = value {
            object.insert(key.into(), value);
        }
    }
    Value::Object(object)
}

/// Tidies the schemas inside a schema.
fn tidy_inside(object: &mut Map<String, Value>) {
    // What admits anything is an empty schema, except where `true` is how it is written.
    let tidy_item = |it: Value| if it == Value::Bool(true) { json!({}) } else { tidy(it) };
    for (key, inner) in object.iter_mut() {
        let taken = std::mem::take(inner);
        *inner = match (key.as_str(), taken) {
            ("items", item) => tidy_item(item),
            ("additionalProperties", values) => tidy(values),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                list.into_iter().map(tidy_item).collect()
            }
            ("properties", Value::Object(fields)) => {
                fields.into_iter().map(|(name, field)| (name, tidy_item(field))).collect::<Map<_, _>>().into()
            }
            (_, other) => other,
        };
    }
}

/// Takes out how the machine keeps a number, and the bounds that follow from it alone.
fn without_machine_numbers(object: &mut Map<String, Value>) {
    let Some(format) = object.get("format").and_then(Value::as_str) else { return };
    let bounds = match format {
        "int8" => Some((i64::from(i8::MIN), i64::from(i8::MAX))),
        "int16" => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
        "uint8" => Some((0, i64::from(u8::MAX))),
        "uint16" => Some((0, i64::from(u16::MAX))),
        it if it.starts_with("uint") => Some((0, i64::MAX)),
        it if it.starts_with("int") || matches!(it, "float" | "double") => None,
        // Formats of texts are worth telling.
        _ => return,
    };
    object.remove("format");
    if let Some((least, most)) = bounds {
        for (key, bound) in [("minimum", least), ("maximum", most)] {
            if object.get(key).is_some_and(|it| it == &json!(bound)) {
                object.remove(key);
            }
        }
    }
}

/// Writes an enum whose variants are documented as what it is, a choice of texts; what was said about
/// each becomes a line of the description.
fn one_of_texts(object: &mut Map<String, Value>) {
    let Some(options) = object.get("oneOf").and_then(Value::as_array) else { return };
    let mut values = Vec::new();
    let mut lines = Vec::new();
    for option in options {
        let is_text = option.get("type").is_some_and(|it| it == "string");
        let allowed = match (option.get("const"), option.get("enum")) {
            (Some(only), _) => std::slice::from_ref(only),
            (None, Some(Value::Array(several))) => several.as_slice(),
            _ => return,
        };
        if !is_text {
            return;
        }
        if let (Some(text), [Value::String(value)]) = (option.get("description").and_then(Value::as_str), allowed) {
            lines.push(format!("- `{value}`: {}", text.replace('\n', " ")));
        }
        values.extend_from_slice(allowed);
    }
    object.remove("oneOf");
    object.insert("type".into(), "string".into());
    object.insert("enum".into(), values.into());
    let own = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let texts: Vec<_> = std::iter::once(own.to_owned()).filter(|it| !it.is_empty()).chain(lines).collect();
    if !texts.is_empty() {
        object.insert("description".into(), texts.join("\n").into());
    }
}

#[cfg(test)]
mod tests {
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
