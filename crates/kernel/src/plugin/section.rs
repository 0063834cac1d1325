//! A plugin's section of the settings: read, checked, and told to people.

use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::similar::close_matches;

/// A section of the settings that a plugin has read.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name, the key in the configuration file.
    pub name: String,
    /// Its fields, in the type's order.
    pub fields: Vec<SectionField>,
}

/// A field of a section.
#[derive(Clone, Debug, PartialEq)]
pub struct SectionField {
    /// Its name.
    pub name: String,
    /// What it is.
    pub value: Value,
    /// Whether the configuration says so; else it is the default.
    pub is_given: bool,
}

/// What is wrong with a section.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(super) struct SectionError {
    /// The field, as `section.field`.
    pub(super) key: String,
    problem: String,
}

/// Reads a section over the type's defaults. Nothing, and fields without a value, are the defaults; the
/// text of a field from elsewhere counts more than what is given.
pub(super) fn read<T>(
    section: &str,
    given: &Value,
    text_of: impl Fn(&str) -> Option<String>,
) -> Result<(T, Section), SectionError>
where
    T: DeserializeOwned + Serialize + JsonSchema + Default,
{
    let Ok(Value::Object(preset)) = serde_json::to_value(T::default()) else {
        return Err(error(section, format!("the section '{section}' has a type that is no struct")));
    };
    let mut given = match given {
        Value::Null => Map::new(),
        Value::Object(fields) => {
            fields.iter().filter(|(_, it)| !it.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
        }
        other => return Err(error(section, format!("'{section}' must be a map of settings, found {other}"))),
    };
    let over = |fields: &mut dyn Iterator<Item = (&String, &Value)>| {
        let mut all = preset.clone();
        all.extend(fields.map(|(key, value)| (key.clone(), value.clone())));
        serde_json::from_value::<T>(Value::Object(all))
    };
    for name in preset.keys() {
        if let Some(text) = text_of(name) {
            // What type it is to be only the type knows: text first, as it need not look like text.
            let text_value = Value::from(text.as_str());
            let json = || serde_json::from_str(&text).unwrap_or_else(|_| text_value.clone());
            let fits = over(&mut std::iter::once((name, &text_value))).is_ok();
            given.insert(name.clone(), if fits { text_value } else { json() });
        }
    }
    if !given.is_empty() {
        let schema = schema_for!(T).to_value();
        check_fields(&schema, &schema, &Value::Object(given.clone()), section)?;
    }
    let settings = over(&mut given.iter()).map_err(|err| {
        // What the deserializer says names no field: the one that is wrong alone is it.
        let wrong = given.iter().find_map(|it| Some((it.0, over(&mut std::iter::once(it)).err()?)));
        match wrong {
            Some((key, err)) => error(&format!("{section}.{key}"), format!("'{section}.{key}': {err}")),
            None => error(section, format!("the section '{section}': {err}")),
        }
    })?;
    let now = serde_json::to_value(&settings).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
    let fields = now.into_iter().map(|(name, value)| SectionField { is_given: given.contains_key(&name), name, value });
    Ok((settings, Section { name: section.to_owned(), fields: fields.collect() }))
}

fn error(key: &str, problem: String) -> SectionError {
    SectionError { key: key.to_owned(), problem }
}

/// Finds fields that the type does not have, at any depth.
fn check_fields(root: &Value, schema: &Value, value: &Value, way: &str) -> Result<(), SectionError> {
    let schema = resolve(root, schema);
    let branches = ["anyOf", "oneOf"].iter().find_map(|it| schema.get(*it)?.as_array());
    if let Some(branches) = branches {
        // Of an optional struct it is the struct's say.
        let mut said = branches.iter().map(|it| check_fields(root, it, value, way));
        let shaped: Vec<_> = branches.iter().filter(|it| resolve(root, it).get("properties").is_some()).collect();
        return match shaped.as_slice() {
            [only] if schema.get("properties").is_none() => check_fields(root, only, value, way),
            _ => said.find(Result::is_ok).unwrap_or(Ok(())),
        };
    }
    match value {
        Value::Object(fields) => {
            let Some(known) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
            for (name, inner) in fields {
                let key = format!("{way}.{name}");
                match known.get(name) {
                    Some(schema) => check_fields(root, schema, inner, &key)?,
                    None if schema.get("additionalProperties").is_some_and(|it| *it != Value::Bool(false)) => {}
                    None => return Err(error(&key, unknown(&key, name, known))),
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return Ok(()) };
            items.iter().enumerate().try_for_each(|(idx, it)| check_fields(root, schema, it, &format!("{way}[{idx}]")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Follows a reference to the definitions of the schema.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
    target.and_then(|it| root.pointer(it)).unwrap_or(schema)
}

fn unknown(key: &str, name: &str, known: &Map<String, Value>) -> String {
    let names: Vec<_> = known.keys().map(|it| format!("'{it}'")).collect();
    let near = close_matches(name, known.keys().map(String::as_str));
    let near = near.first().map(|it| format!(" (did you mean '{it}'?)")).unwrap_or_default();
    format!(
        "'{key}' is not a setting{near}; there are {}",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    )
}
