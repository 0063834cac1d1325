//! Arguments: from words of a command line or the JSON of a model to what a tool's schema asks for.
//!
//! Values are converted leniently (`"5"` for an integer), as the reference does; what can't be
//! converted becomes an error that names each parameter and what was expected.

use bub_kernel::{error::ToolError, tool::ToolSpec};
use serde_json::{Map, Number, Value, json};

/// The most characters of a bad value that an error repeats.
const MAX_SHOWN_INPUT: usize = 200;

/// One thing wrong with the arguments.
struct Problem {
    code: &'static str,
    parameter: String,
    message: String,
    input: Value,
}

/// Checks and converts the arguments of a call. `name` is the tool's, as the caller knows it.
///
/// # Errors
/// `invalid_input` that lists all problems in `details.errors`.
pub(crate) fn validate(spec: &ToolSpec, name: &str, args: &Map<String, Value>) -> Result<Value, ToolError> {
    let empty = Map::new();
    let properties = spec.parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> = spec
        .parameters
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_open = spec.parameters.get("additionalProperties").is_some_and(|it| it != &Value::Bool(false))
        || (properties.is_empty() && spec.parameters.get("properties").is_none());
    let mut problems = Vec::new();
    let mut converted = Map::new();
    for (parameter, value) in args {
        match properties.get(parameter) {
            Some(schema) => match convert(schema, value) {
                Ok(it) => drop(converted.insert(parameter.clone(), it)),
                Err((code, expected)) => problems.push(Problem {
                    code,
                    parameter: parameter.clone(),
                    message: format!("'{parameter}': {expected}"),
                    input: value.clone(),
                }),
            },
            None if is_open => drop(converted.insert(parameter.clone(), value.clone())),
            // Models repeat a parameter that they know from elsewhere; naming the right ones helps most.
            None => problems.push(Problem {
                code: "unexpected_keyword_argument",
                parameter: parameter.clone(),
                message: format!("'{parameter}' is not a parameter; {}", known(properties)),
                input: value.clone(),
            }),
        }
    }
    for parameter in required.iter().filter(|it| !args.contains_key(**it)) {
        problems.push(Problem {
            code: "missing_argument",
            parameter: (*parameter).to_owned(),
            message: format!("'{parameter}' is required{}", expectation(properties.get(*parameter))),
            input: Value::Object(args.clone()),
        });
    }
    if problems.is_empty() {
        return Ok(Value::Object(converted));
    }
    let summary: Vec<_> = problems.iter().map(|it| it.message.as_str()).collect();
    Err(ToolError::invalid(format!("Tool '{name}' argument validation failed."))
        .with_detail("errors", problems.iter().map(Problem::to_value).collect::<Value>())
        .with_cause(summary.join("; ")))
}

impl Problem {
    /// The shape that the reference's validator gives its errors.
    fn to_value(&self) -> Value {
        let shown = bub_kernel::text::render(&self.input);
        let input = if shown.chars().count() > MAX_SHOWN_INPUT {
            Value::String(bub_kernel::text::elide(&shown, MAX_SHOWN_INPUT).into_owned())
        } else {
            self.input.clone()
        };
        json!({"type": self.code, "loc": [self.parameter], "msg": self.message, "input": input})
    }
}

fn known(properties: &Map<String, Value>) -> String {
    if properties.is_empty() {
        return "the tool takes none".to_owned();
    }
    let names: Vec<_> = properties.keys().map(|it| format!("'{it}'")).collect();
    format!("the tool takes {}", names.join(", "))
}

fn expectation(schema: Option<&Value>) -> String {
    match schema.and_then(|it| it.get("type")).and_then(Value::as_str) {
        Some(kind) => format!(" ({kind})"),
        None => String::new(),
    }
}

/// Converts one value, or says which error it is and what was expected.
type Converted = Result<Value, (&'static str, String)>;

fn convert(schema: &Value, value: &Value) -> Converted {
    if let Some(options) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        return convert_union(options, value);
    }
    if let Some(Value::Array(kinds)) = schema.get("type") {
        let options: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let mut option = schema.as_object().cloned().unwrap_or_default();
                option.insert("type".into(), kind.clone());
                Value::Object(option)
            })
            .collect();
        return convert_union(&options, value);
    }
    let converted = match schema.get("type").and_then(Value::as_str) {
        Some("string") => to_string(value),
        Some("integer") => to_integer(value),
        Some("number") => to_number(value),
        Some("boolean") => to_boolean(value),
        Some("array") => to_array(schema, value),
        Some("object") => to_object(schema, value),
        Some("null") if value.is_null() => Ok(Value::Null),
        Some("null") => Err(("none_required", "expected null".to_owned())),
        _ => Ok(value.clone()),
    }?;
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(&converted)
    {
        let names: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        return Err(("literal_error", format!("expected one of {}", names.join(", "))));
    }
    Ok(converted)
}

/// The first option that takes the value as it is; else the first that can convert it.
fn convert_union(options: &[Value], value: &Value) -> Converted {
    // JSON text may mean a list or an object; as plain text it would always fit a string first.
    if let Some(decoded) = decode_json(value)
        && let Some(found) = options.iter().filter(|it| admits_json(it)).find_map(|it| convert(it, &decoded).ok())
    {
        return Ok(found);
    }
    let exact = options.iter().find_map(|it| convert(it, value).ok().filter(|found| found == value));
    if let Some(found) = exact.or_else(|| options.iter().find_map(|it| convert(it, value).ok())) {
        return Ok(found);
    }
    let mut code = "union_error";
    let mut expected: Vec<String> = Vec::new();
    for option in options.iter().filter(|it| it.get("type").and_then(Value::as_str) != Some("null")) {
        if let Err((option_code, message)) = convert(option, value) {
            code = option_code;
            expected.push(message);
        }
    }
    if options.iter().any(|it| it.get("type").and_then(Value::as_str) == Some("null")) {
        expected.push("or null".to_owned());
    }
    Err((code, expected.join(" ")))
}

fn admits_json(schema: &Value) -> bool {
    matches!(schema.get("type").and_then(Value::as_str), Some("array" | "object"))
}

/// Decodes text that looks like a JSON list or object.
fn decode_json(value: &Value) -> Option<Value> {
    let text = value.as_str()?.trim();
    if text.starts_with('[') || text.starts_with('{') { serde_json::from_str(text).ok() } else { None }
}

fn to_string(value: &Value) -> Converted {
    match value {
        Value::String(_) => Ok(value.clone()),
        other => Err(("string_type", format!("expected a string, got {}", kind_of(other)))),
    }
}

fn to_integer(value: &Value) -> Converted {
    let fail = |code, what: String| Err((code, format!("expected an integer, got {what}")));
    match value {
        Value::Number(it) if it.is_i64() || it.is_u64() => Ok(value.clone()),
        Value::Number(it) => match it.as_f64().and_then(whole) {
            Some(number) => Ok(number),
            None => fail("int_from_float", it.to_string()),
        },
        Value::Bool(it) => Ok(Value::from(i64::from(*it))),
        Value::String(text) => {
            let digits = text.trim().replace('_', "");
            match digits.parse::<i64>() {
                Ok(number) => Ok(number.into()),
                Err(_) if digits.contains('.') => match digits.parse::<f64>().ok().and_then(whole) {
                    Some(number) => Ok(number),
                    None => fail("int_parsing", format!("'{}'", shown(text))),
                },
                Err(_) => fail("int_parsing", format!("'{}'", shown(text))),
            }
        }
        other => fail("int_type", kind_of(other).to_owned()),
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
                .ok_or_else(|| ("float_parsing", format!("expected a finite number, got '{}'", shown(text))))
        }
        other => Err(("float_type", format!("expected a number, got {}", kind_of(other)))),
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
    let got = || match value {
        Value::String(text) => format!("'{}'", shown(text)),
        other => kind_of(other).to_owned(),
    };
    read.map(Value::Bool).ok_or_else(|| ("bool_parsing", format!("expected true or false, got {}", got())))
}

fn to_array(schema: &Value, value: &Value) -> Converted {
    let decoded = decode_json(value);
    let Some(items) = decoded.as_ref().unwrap_or(value).as_array() else {
        return Err(("list_type", format!("expected a list, as JSON: [\"a\", \"b\"], got {}", kind_of(value))));
    };
    let Some(item_schema) = schema.get("items") else { return Ok(items.clone().into()) };
    let convert_item =
        |(idx, item)| convert(item_schema, item).map_err(|(code, message)| (code, format!("item {idx}: {message}")));
    items.iter().enumerate().map(convert_item).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn to_object(schema: &Value, value: &Value) -> Converted {
    let decoded = decode_json(value);
    let Some(fields) = decoded.as_ref().unwrap_or(value).as_object() else {
        return Err(("dict_type", format!("expected an object, as JSON: {{\"a\": 1}}, got {}", kind_of(value))));
    };
    let Some(inner) = schema.get("additionalProperties").filter(|it| it.is_object()) else {
        return Ok(fields.clone().into());
    };
    let mut converted = Map::new();
    for (key, field) in fields {
        let it = convert(inner, field).map_err(|(code, message)| (code, format!("'{key}': {message}")))?;
        converted.insert(key.clone(), it);
    }
    Ok(converted.into())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shown(text: &str) -> String {
    bub_kernel::text::elide(text, MAX_SHOWN_INPUT).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bub_kernel::tool::Exposure;

    fn spec() -> ToolSpec {
        ToolSpec {
            name: "t.x".into(),
            description: String::new(),
            exposure: Exposure::Auto,
            deferred: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "s": {"type": "string"},
                    "i": {"type": "integer", "default": 0},
                    "f": {"type": "number"},
                    "b": {"type": "boolean"},
                    "names": {"type": "array", "items": {"type": "string"}},
                    "headers": {"anyOf": [{"type": "object", "additionalProperties": true}, {"type": "null"}]},
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "prompt": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
                    "mode": {"type": "string", "enum": ["a", "b"]},
                },
                "required": ["s"],
            }),
            output: None,
        }
    }

    fn ok(parameter: &str, input: Value, expected: Value) {
        let mut args = Map::from_iter([("s".to_owned(), json!("x"))]);
        args.insert(parameter.to_owned(), input.clone());
        let converted = validate(&spec(), "t_x", &args).unwrap_or_else(|err| panic!("{parameter}={input}: {err:?}"));
        assert_eq!(converted[parameter], expected, "{parameter}={input}");
    }

    fn bad(parameter: &str, input: Value, code: &str, message: &str) {
        let mut args = Map::from_iter([("s".to_owned(), json!("x"))]);
        args.insert(parameter.to_owned(), input.clone());
        let err = validate(&spec(), "t_x", &args).map(|it| panic!("{it}")).unwrap_err();
        let problem = &err.details["errors"][0];
        assert_eq!((&problem["type"], &problem["loc"][0]), (&json!(code), &json!(parameter)), "{input}");
        assert_eq!(problem["msg"], message, "{input}");
        assert_eq!(err.kind.as_str(), "invalid_input");
    }

    #[test]
    fn words_become_what_the_schema_asks_for() {
        for (text, number) in [("5", 5), (" 5 ", 5), ("1_000", 1000), ("5.0", 5), ("-3", -3)] {
            ok("i", json!(text), json!(number));
        }
        ok("i", json!(5.0), json!(5));
        ok("f", json!("2.5"), json!(2.5));
        ok("f", json!(3), json!(3));
        for word in ["true", "1", "YES", "on", "y", "T"] {
            ok("b", json!(word), json!(true));
        }
        for word in ["false", "0", "No", "off", "n", "f"] {
            ok("b", json!(word), json!(false));
        }
        ok("s", json!("[1]"), json!("[1]"));
        ok("names", json!(r#"["web.fetch", "tape.search"]"#), json!(["web.fetch", "tape.search"]));
        ok("headers", json!(r#"{"accept": "x"}"#), json!({"accept": "x"}));
        ok("headers", json!(null), json!(null));
        ok("limit", json!("7"), json!(7));
        ok("limit", json!(null), json!(null));
        ok("prompt", json!("plain"), json!("plain"));
        ok("prompt", json!("[not json"), json!("[not json"));
        ok("prompt", json!("[1, 2]"), json!("[1, 2]"));
        ok("prompt", json!(r#"[{"type": "text"}]"#), json!([{"type": "text"}]));
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_was_expected() {
        bad("i", json!("abc"), "int_parsing", "'i': expected an integer, got 'abc'");
        bad("i", json!("5.5"), "int_parsing", "'i': expected an integer, got '5.5'");
        bad("i", json!(5.5), "int_from_float", "'i': expected an integer, got 5.5");
        bad("f", json!("nan"), "float_parsing", "'f': expected a finite number, got 'nan'");
        bad("b", json!("maybe"), "bool_parsing", "'b': expected true or false, got 'maybe'");
        bad("s", json!(5), "string_type", "'s': expected a string, got a number");
        bad(
            "names",
            json!("web.fetch"),
            "list_type",
            "'names': expected a list, as JSON: [\"a\", \"b\"], got a string",
        );
        bad("names", json!([1]), "string_type", "'names': item 0: expected a string, got a number");
        bad("limit", json!("null"), "int_parsing", "'limit': expected an integer, got 'null' or null");
        bad("mode", json!("c"), "literal_error", "'mode': expected one of \"a\", \"b\"");
        bad(
            "bogus",
            json!("1"),
            "unexpected_keyword_argument",
            "'bogus' is not a parameter; the tool takes 's', 'i', 'f', 'b', 'names', 'headers', 'limit', 'prompt', 'mode'",
        );
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let args = Map::from_iter([("i".to_owned(), json!("x")), ("zz".to_owned(), json!(1))]);
        let err = validate(&spec(), "t_x", &args).unwrap_err();
        assert_eq!(err.message, "Tool 't_x' argument validation failed.");
        assert_eq!(err.cause().matches("; ").count(), 3, "{}", err.cause());
        let codes: Vec<_> = err.details["errors"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
        assert_eq!(codes, ["int_parsing", "unexpected_keyword_argument", "missing_argument"]);
    }
}
