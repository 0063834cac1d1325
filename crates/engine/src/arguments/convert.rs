//! From a value to what a schema asks for, leniently.

use bub_kernel::{
    text::elide,
    tool::{ArgumentProblem, MAX_SHOWN_INPUT, PathStep, place},
};
use serde_json::{Map, Number, Value};

/// Schemas and values inside each other beyond this depth are left as they are.
const MAX_DEPTH: usize = 128;
/// The most values that are looked at for one call.
const MAX_CONVERSIONS: usize = 100_000;
/// How often a list or an object may turn out not to be one of several alternatives: such alternatives
/// inside each other multiply. After that values are left as they are, for the tool to judge.
const MAX_FAILED_ATTEMPTS: usize = 5_000;
/// The longest chain of references that lead to other references.
const MAX_REFERENCES: usize = 32;

/// How a list is called where one was expected: a person writes it as text.
const A_LIST: &str = "a list, as JSON: [\"a\", \"b\"]";
/// How an object is called.
const AN_OBJECT: &str = "an object, as JSON: {\"a\": 1}";

/// The conversion of one call's arguments.
pub(super) struct Conversion<'a> {
    /// What references are looked up in.
    root: &'a Value,
    path: Vec<PathStep>,
    /// What did not fit.
    pub(super) problems: Vec<ArgumentProblem>,
    n_left: usize,
    n_attempts_left: usize,
}

/// What a value should have been.
struct Misfit {
    code: &'static str,
    expected: String,
    got: String,
}

type Converted = Result<Value, Misfit>;

impl<'a> Conversion<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        Self {
            root,
            path: Vec::new(),
            problems: Vec::new(),
            n_left: MAX_CONVERSIONS,
            n_attempts_left: MAX_FAILED_ATTEMPTS,
        }
    }

    /// Converts the value at a step further in.
    pub(super) fn inside(&mut self, step: PathStep, schema: &'a Value, value: &Value) -> Value {
        self.path.push(step);
        let converted = self.value(schema, value);
        self.path.pop();
        converted
    }

    /// Notes a field that is not there.
    pub(super) fn missing(
        &mut self,
        code: &'static str,
        name: &str,
        schema: Option<&'a Value>,
        fields: &Map<String, Value>,
    ) {
        let mut path = self.path.clone();
        path.push(PathStep::Key(name.to_owned()));
        let kind = schema.and_then(|it| self.resolved(it).get("type")).and_then(Value::as_str);
        let kind = kind.map(|it| format!(" ({it})")).unwrap_or_default();
        let message = format!("'{}' is required{kind}", place(&path));
        self.problems.push(ArgumentProblem { code, path, message, input: Value::Object(fields.clone()) });
    }

    /// The schema that a reference leads to, from the root. One that leads nowhere admits anything: the
    /// tool judges.
    pub(super) fn resolved(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { break };
            let Some(target) = reference.strip_prefix('#').and_then(|it| self.root.pointer(it)) else { break };
            schema = target;
        }
        schema
    }

    /// Converts one value; what does not fit is noted and left as it is.
    fn value(&mut self, schema: &'a Value, value: &Value) -> Value {
        if self.n_left == 0 || self.n_attempts_left == 0 || self.path.len() > MAX_DEPTH {
            return value.clone();
        }
        self.n_left -= 1;
        let schema = self.resolved(schema);
        let Some(fields) = schema.as_object() else { return value.clone() };
        let has_own_kind = fields.contains_key("type") || fields.contains_key("properties");
        let options = ["anyOf", "oneOf"].iter().find_map(|it| fields.get(*it)?.as_array());
        if let Some(options) = options.filter(|_| !has_own_kind) {
            let options: Vec<_> = options.iter().map(|it| (it, None)).collect();
            return self.union(&options, value);
        }
        if let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
            && !has_own_kind
        {
            return self.value(only, value);
        }
        if let Some(Value::Array(kinds)) = fields.get("type") {
            let options: Vec<_> = kinds.iter().filter_map(Value::as_str).map(|kind| (schema, Some(kind))).collect();
            return self.union(&options, value);
        }
        self.of_kind(schema, None, value)
    }

    /// Converts to one kind; `kind` is chosen from several that the schema names.
    fn of_kind(&mut self, schema: &'a Value, kind: Option<&str>, value: &Value) -> Value {
        let is_object = || schema.get("properties").is_some_and(Value::is_object).then_some("object");
        let kind = kind.or_else(|| schema.get("type")?.as_str()).or_else(is_object);
        let converted = match kind {
            Some("string") => to_string(value),
            Some("integer") => to_integer(value),
            Some("number") => to_number(value),
            Some("boolean") => to_boolean(value),
            Some("array") => self.array(schema, value),
            Some("object") => self.object(schema, value),
            Some("null") if !value.is_null() => Err(misfit("none_required", "null", value)),
            _ => Ok(value.clone()),
        };
        match converted.and_then(|it| allowed(schema, it)) {
            Ok(converted) => converted,
            Err(misfit) => {
                let Misfit { code, expected, got } = misfit;
                let what = format!("expected {expected}, got {got}");
                self.problems.push(ArgumentProblem::at(code, self.path.clone(), &what, value.clone()));
                value.clone()
            }
        }
    }

    /// The first option that takes the value as it is; else the first that can convert it.
    fn union(&mut self, options: &[(&'a Value, Option<&str>)], value: &Value) -> Value {
        // JSON text may mean a list or an object; as plain text it would always fit a string first.
        if let Some(decoded) = decode_json(value) {
            for (schema, kind) in options {
                if self.admits_json(schema, *kind)
                    && let Ok(it) = self.attempt(schema, *kind, &decoded)
                {
                    return it;
                }
            }
        }
        let mut first = None;
        let mut failures = Vec::new();
        for (schema, kind) in options {
            match self.attempt(schema, *kind, value) {
                Ok(it) if it == *value => return it,
                Ok(it) => drop(first.get_or_insert(it)),
                Err(problems) => failures.push((self.expectation(schema, *kind), problems)),
            }
        }
        if let Some(it) = first {
            return it;
        }
        // An option of the right kind says best what is wrong: where inside of the value it is.
        let is_inside = |problems: &[ArgumentProblem]| problems.iter().all(|it| it.path.len() > self.path.len());
        if let Some(at) = failures.iter().position(|(_, problems)| is_inside(problems)) {
            self.problems.extend(failures.swap_remove(at).1);
            return value.clone();
        }
        let code = failures.iter().rev().filter(|(what, _)| what != "null").find_map(|(_, it)| Some(it.first()?.code));
        let mut expected: Vec<_> = failures.into_iter().map(|(what, _)| what).collect();
        expected.dedup();
        let what = format!("expected {}, got {}", expected.join(" or "), got(value));
        let problem = ArgumentProblem::at(code.unwrap_or("union_error"), self.path.clone(), &what, value.clone());
        self.problems.push(problem);
        value.clone()
    }

    /// Converts to one option of several; its problems are its own.
    fn attempt(&mut self, schema: &'a Value, kind: Option<&str>, value: &Value) -> Result<Value, Vec<ArgumentProblem>> {
        let n_before = self.problems.len();
        let converted = match kind {
            Some(_) => self.of_kind(schema, kind, value),
            None => self.value(schema, value),
        };
        let problems = self.problems.split_off(n_before);
        if problems.is_empty() || self.n_attempts_left == 0 {
            return Ok(converted);
        }
        if value.is_array() || value.is_object() {
            self.n_attempts_left -= 1;
        }
        Err(problems)
    }

    /// What an option expects, in words.
    fn expectation(&self, schema: &'a Value, kind: Option<&str>) -> String {
        let schema = self.resolved(schema);
        if let Some(it) = schema.get("const") {
            return it.to_string();
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return one_of(values);
        }
        match kind.or_else(|| schema.get("type")?.as_str()) {
            Some("string") => "a string",
            Some("integer") => "an integer",
            Some("number") => "a number",
            Some("boolean") => "true or false",
            Some("array") => A_LIST,
            Some("object") => AN_OBJECT,
            Some("null") => "null",
            _ => "another value",
        }
        .to_owned()
    }

    fn admits_json(&self, schema: &'a Value, kind: Option<&str>) -> bool {
        matches!(kind.or_else(|| self.resolved(schema).get("type")?.as_str()), Some("array" | "object"))
    }

    fn array(&mut self, schema: &'a Value, value: &Value) -> Converted {
        let decoded = decode_json(value);
        let Some(items) = decoded.as_ref().unwrap_or(value).as_array() else {
            return Err(misfit("list_type", A_LIST, value));
        };
        let first = schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rest = schema.get("items");
        let mut converted = Vec::with_capacity(items.len());
        for (idx, item) in items.iter().enumerate() {
            converted.push(match first.get(idx).or(rest) {
                Some(schema) => self.inside(PathStep::Index(idx), schema, item),
                None => item.clone(),
            });
        }
        Ok(converted.into())
    }

    fn object(&mut self, schema: &'a Value, value: &Value) -> Converted {
        let decoded = decode_json(value);
        let Some(fields) = decoded.as_ref().unwrap_or(value).as_object() else {
            return Err(misfit("dict_type", AN_OBJECT, value));
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let more = schema.get("additionalProperties");
        let mut converted = Map::new();
        for (key, field) in fields {
            let known = properties.and_then(|it| it.get(key)).or(more.filter(|it| it.is_object()));
            let field = match known {
                Some(schema) => self.inside(PathStep::Key(key.clone()), schema, field),
                None => {
                    if more == Some(&Value::Bool(false)) && schema.get("patternProperties").is_none() {
                        let mut path = self.path.clone();
                        path.push(PathStep::Key(key.clone()));
                        let what = "is no field of this object";
                        self.problems.push(ArgumentProblem::at("extra_forbidden", path, what, field.clone()));
                    }
                    field.clone()
                }
            };
            converted.insert(key.clone(), field);
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|it| !fields.contains_key(*it)) {
            self.missing("missing", name, properties.and_then(|it| it.get(name)), fields);
        }
        Ok(converted.into())
    }
}

/// Checks a value against the values that a schema names.
fn allowed(schema: &Value, value: Value) -> Converted {
    if let Some(only) = schema.get("const").filter(|it| **it != value) {
        return Err(misfit("literal_error", only.to_string(), &value));
    }
    match schema.get("enum").and_then(Value::as_array) {
        Some(values) if !values.contains(&value) => Err(misfit("literal_error", one_of(values), &value)),
        _ => Ok(value),
    }
}

fn one_of(values: &[Value]) -> String {
    let names: Vec<_> = values.iter().map(ToString::to_string).collect();
    elide(&format!("one of {}", names.join(", ")), 4 * MAX_SHOWN_INPUT).into_owned()
}

fn misfit(code: &'static str, expected: impl Into<String>, value: &Value) -> Misfit {
    Misfit { code, expected: expected.into(), got: got(value) }
}

/// A value in words: texts and numbers themselves, of others the kind.
fn got(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => it.to_string(),
        Value::String(it) => format!("'{}'", elide(it, MAX_SHOWN_INPUT)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Decodes text that looks like a JSON list or object.
fn decode_json(value: &Value) -> Option<Value> {
    let text = value.as_str()?.trim();
    if text.starts_with('[') || text.starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

fn to_string(value: &Value) -> Converted {
    match value {
        Value::String(_) => Ok(value.clone()),
        other => Err(misfit("string_type", "a string", other)),
    }
}

fn to_integer(value: &Value) -> Converted {
    let fail = |code| Err(misfit(code, "an integer", value));
    match value {
        Value::Number(it) if it.is_i64() || it.is_u64() => Ok(value.clone()),
        Value::Number(it) => it.as_f64().and_then(whole).map_or_else(|| fail("int_from_float"), Ok),
        Value::Bool(it) => Ok(Value::from(i64::from(*it))),
        Value::String(text) => {
            let digits = text.trim().replace('_', "");
            match digits.parse::<i64>() {
                Ok(number) => Ok(number.into()),
                Err(_) if digits.contains('.') => {
                    digits.parse::<f64>().ok().and_then(whole).map_or_else(|| fail("int_parsing"), Ok)
                }
                Err(_) => digits.parse::<u64>().map_or_else(|_| fail("int_parsing"), |it| Ok(it.into())),
            }
        }
        _ => fail("int_type"),
    }
}

/// A float without fraction, as an integer.
fn whole(number: f64) -> Option<Value> {
    let fits = number.is_finite() && number.fract() == 0.0 && number.abs() < 9.0e15;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
    fits.then(|| Value::from(number as i64))
}

fn to_number(value: &Value) -> Converted {
    match value {
        Value::Number(_) => Ok(value.clone()),
        Value::String(text) => {
            let number = text.trim().replace('_', "").parse::<f64>().ok();
            // JSON has no infinities; tools that want them take text.
            number
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| misfit("float_parsing", "a finite number", value))
        }
        other => Err(misfit("float_type", "a number", other)),
    }
}

fn to_boolean(value: &Value) -> Converted {
    let read = match value {
        Value::Bool(it) => Some(*it),
        Value::Number(it) if it.as_i64() == Some(1) => Some(true),
        Value::Number(it) if it.as_i64() == Some(0) => Some(false),
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "y" | "t" => Some(true),
            "false" | "0" | "no" | "off" | "n" | "f" => Some(false),
            _ => None,
        },
        _ => None,
    };
    read.map(Value::Bool).ok_or_else(|| misfit("bool_parsing", "true or false", value))
}
