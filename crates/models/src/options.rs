//! What the requests of all wires have in common.

use std::borrow::Cow;

use bub_kernel::model::{ModelError, ProviderTool};
use serde::{Serialize, Serializer, de::IgnoredAny, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::wire::Wire;

/// A number for a request.
///
/// # Errors
/// When it is none.
pub(crate) fn finite(name: &str, value: Option<f64>) -> Result<Option<Value>, ModelError> {
    match value {
        Some(it) if !it.is_finite() => Err(ModelError::Unsupported(format!("{name} must be a number, not {it}"))),
        other => Ok(other.map(Value::from)),
    }
}

/// Lays `more` over `fields`, objects into objects.
pub(crate) fn merge(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (fields.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                fields.insert(key, value);
            }
        }
    }
}

/// A request's body: the options, the tools, and last the conversation, under the wire's name for it. What
/// `extra_body` has put among the options stands for the tools or the conversation.
pub(crate) struct Body<T, M> {
    pub(crate) options: Map<String, Value>,
    pub(crate) tools: Vec<T>,
    pub(crate) conversation: (&'static str, Vec<M>),
}

impl<T: Serialize, M: Serialize> Serialize for Body<T, M> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in &self.options {
            map.serialize_entry(key, value)?;
        }
        if !self.tools.is_empty() && !self.options.contains_key("tools") {
            map.serialize_entry("tools", &self.tools)?;
        }
        let (name, entries) = &self.conversation;
        if !self.options.contains_key(*name) {
            map.serialize_entry(name, entries)?;
        }
        map.end()
    }
}

/// Arguments as they came, or an empty object for what is none: some servers read the arguments of
/// earlier calls and refuse the whole request when they are broken.
pub(crate) fn object_text(arguments: &str) -> &str {
    let is_object = arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok();
    if is_object { arguments } else { "{}" }
}

/// What a schema of parameters may not have at its top level.
const COMBINED: [&str; 5] = ["anyOf", "oneOf", "allOf", "not", "enum"];

/// A tool's parameters as services take them: an object with properties, and no alternatives at the top level,
/// for which they refuse the whole request. What a schema says with alternatives is still checked when the
/// tool is called.
pub(crate) fn parameters(schema: &Value) -> Cow<'_, Value> {
    let is_plain = schema.as_object().is_some_and(|it| {
        it.get("type").is_some_and(|it| *it == "object")
            && it.get("properties").is_some_and(Value::is_object)
            && !COMBINED.iter().any(|key| it.contains_key(*key))
    });
    if is_plain {
        return Cow::Borrowed(schema);
    }
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    let mut properties = match fields.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    for key in COMBINED {
        let branches = fields.remove(key);
        for branch in branches.iter().filter_map(Value::as_array).flatten() {
            for (name, schema) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
                properties.entry(name.clone()).or_insert_with(|| schema.clone());
            }
        }
    }
    let mut plain =
        Map::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), properties.into())]);
    fields.remove("type");
    plain.extend(fields);
    Cow::Owned(plain.into())
}

/// A schema for an answer as OpenAI's wires take it, and whether it can be kept to strictly: then every object
/// has all of its fields and no others. A schema that leaves that open is refused if it is said to be strict.
pub(crate) fn answer_schema(schema: &Value) -> (Value, bool) {
    let mut closed = schema.clone();
    close(&mut closed);
    let is_strict = is_whole(&closed) && closed.get("properties").is_some();
    if is_strict { (closed, true) } else { (schema.clone(), false) }
}

/// Says of every object that it has no other fields, where a schema leaves that open.
pub(crate) fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if is_object(fields) && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
    }
}

/// Whether a schema is one of an object, or of none.
fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|it| it == "object"),
        Some(one) => one == "object",
        None => false,
    }
}

/// Whether every object of a schema has all of its fields and no others.
fn is_whole(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            // What strict schemas do not know at all.
            let is_odd = ["oneOf", "allOf", "not", "patternProperties"].iter().any(|it| fields.contains_key(*it));
            let has_no_more = fields.get("additionalProperties").is_some_and(|it| *it == false);
            let required = fields.get("required").and_then(Value::as_array);
            let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|it| it == name));
            let needs_all =
                fields.get("properties").and_then(Value::as_object).is_none_or(|all| all.keys().all(is_required));
            !is_odd && (!is_object(fields) || (has_no_more && needs_all)) && fields.values().all(is_whole)
        }
        Value::Array(items) => items.iter().all(is_whole),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The error for a provider's tool that a wire does not know.
pub(crate) fn unsupported(wire: Wire, tool: &ProviderTool) -> ModelError {
    let name = match tool {
        ProviderTool::WebSearch => "web search",
        ProviderTool::WebFetch => "web fetch",
        ProviderTool::CodeExecution => "code execution",
        ProviderTool::ImageGeneration => "image generation",
        ProviderTool::Native { api_format, .. } => {
            return ModelError::Unsupported(format!(
                "a native tool of api_format '{api_format}' cannot be offered by '{wire}'"
            ));
        }
    };
    refused(wire, &format!("the provider's {name}"))
}

/// The error for an option that a wire does not know.
pub(crate) fn refused(wire: Wire, what: &str) -> ModelError {
    ModelError::Unsupported(format!("api_format '{wire}' knows no {what}; leave it out, or use another model"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_a_plain_object() {
        let plain = json!({"type": "object", "properties": {"a": {}}, "required": ["a"]});
        assert!(matches!(parameters(&plain), Cow::Borrowed(_)));
        let empty = json!({"type": "object", "properties": {}});
        for odd in [json!({}), json!({"type": "object"}), json!({"properties": {}}), json!(true), json!({"enum": [1]})]
        {
            assert_eq!(*parameters(&odd), empty, "{odd}");
        }
        let either = json!({"$defs": {"x": {}}, "properties": {"a": {"type": "string"}}, "anyOf": [
            {"required": ["a"]}, {"properties": {"a": {}, "b": {"type": "integer"}}, "required": ["b"]}]});
        let expected = json!({"type": "object", "$defs": {"x": {}},
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}});
        assert_eq!(*parameters(&either), expected);
    }

    #[test]
    fn schemas_are_strict_where_they_can_be() {
        let check = |schema: Value, is_strict: bool| {
            let (sent, strict) = answer_schema(&schema);
            assert_eq!(strict, is_strict, "{schema}");
            if !is_strict {
                assert_eq!(sent, schema, "left as it is");
            }
        };
        let inner = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let outer =
            json!({"type": "object", "properties": {"all": {"type": "array", "items": inner}}, "required": ["all"]});
        check(outer.clone(), true);
        assert_eq!(answer_schema(&outer).0["properties"]["all"]["items"]["additionalProperties"], false);
        check(json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}), false);
        check(
            json!({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": true}},
            "required": ["a"]}),
            false,
        );
        check(json!({"type": "object"}), false);
        check(
            json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}, "required": ["a"]}),
            false,
        );
        let nullable = json!({"type": ["object", "null"], "properties": {"n": {}}, "required": []});
        check(json!({"type": "object", "properties": {"a": nullable}, "required": ["a"]}), false);
        check(json!({"type": "array", "items": inner}), false);
    }
}
