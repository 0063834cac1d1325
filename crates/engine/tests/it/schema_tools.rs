//! Tools that are made of schemas while the program runs, and tools that are made of functions.

use std::sync::Arc;

use bub_engine::{ArgumentSchema, SchemaTool};
use bub_kernel::{
    error::ToolError,
    tool,
    tool::{DynTool, Exposure, IntoTool as _, ToolSpec},
};
use bub_testing::Script;
use serde_json::{Value, json};

use crate::bench::{Bench, Setup};

/// A tool that gives back its arguments.
fn echo(parameters: Value) -> Arc<dyn DynTool> {
    let spec = ToolSpec::new("back.again", parameters);
    SchemaTool::new(spec, |_, args| async move { Ok(args) }).unwrap().into_tool()
}

fn bench(tool: Arc<dyn DynTool>, scripts: impl IntoIterator<Item = Script>) -> Bench {
    Setup { tools: vec![tool], ..Setup::default() }.start(scripts)
}

/// What the model reads after it called `name` with `args`.
async fn called(tool: Arc<dyn DynTool>, name: &'static str, args: Value) -> String {
    let bench = bench(tool, [Script::calls([("a", name, args)]), Script::text("ok")]);
    bench.say("go").await.unwrap();
    bench.sent(1)[2].trim_start_matches("tool: ").to_owned()
}

fn weather() -> Arc<dyn DynTool> {
    let mut spec = ToolSpec::new(
        "weather.get",
        json!({
            "properties": {
                "city": {"type": "string", "minLength": 2},
                "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 1},
            },
            "required": ["city"],
        }),
    );
    spec.description = "Tells the weather.".into();
    spec.output = Some(json!({"type": "object", "properties": {"city": {"type": "string"}}}).into());
    let tool = SchemaTool::new(spec, |ctx, args| async move {
        let days = args.get("days").and_then(Value::as_u64).unwrap_or(1);
        match args["city"].as_str() {
            Some("Atlantis") => Err(ToolError::not_found("no such city")),
            Some("Babel") => Err(ToolError::raised("WeatherError", "it fell")),
            city => Ok(json!({"city": city, "days": days, "session": ctx.session.0})),
        }
    });
    tool.unwrap().renderer(|it| format!("{}: sun for {} days", it["city"], it["days"])).into_tool()
}

#[tokio::test]
async fn a_tool_of_a_schema_is_called_like_any_other() {
    assert_eq!(
        called(weather(), "weather_get", json!({"city": "Oslo", "days": "3"})).await,
        "\"Oslo\": sun for 3 days"
    );
    assert_eq!(called(weather(), "weather_get", json!({"city": "Oslo"})).await, "\"Oslo\": sun for 1 days");
    assert_eq!(
        called(weather(), "weather_get", json!({"city": "Atlantis"})).await,
        r#"{"kind": "not_found", "message": "no such city"}"#
    );
    let told = called(weather(), "weather_get", json!({"city": "Babel"})).await;
    assert!(told.contains("WeatherError('it fell')"), "{told}");

    let bench = bench(weather(), []);
    assert_eq!(bench.say(",weather.get Oslo days=2").await.unwrap().answer, "\"Oslo\": sun for 2 days");
    let err = bench.say(",weather.get O days=0 sun=1").await.unwrap_err().to_string();
    assert_eq!(
        err,
        "weather.get: 'sun' is not a parameter; the tool takes 'city', 'days'; \
         'city': value is shorter than 2 characters; 'days': value is less than the minimum of 1"
    );
}

#[test]
fn what_is_told_of_it_is_what_was_said() {
    let tool = weather();
    let spec = tool.spec();
    assert_eq!((tool.name(), &*spec.alias(), spec.exposure), ("weather.get", "weather_get", Exposure::Auto));
    assert_eq!(spec.parameters["type"], "object", "providers want it said");
    assert_eq!(spec.output.as_ref().unwrap()["type"], "object");
}

#[tokio::test]
async fn all_that_breaks_the_schema_is_told_at_once_with_its_place() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "port": {"type": "integer", "exclusiveMinimum": 0, "maximum": 65535},
            "step": {"multipleOf": 5},
            "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": true},
            "mode": {"enum": ["fast", "slow"]},
            "deep": {
                "type": "object",
                "properties": {"list": {"type": "array", "items": {"$ref": "#/$defs/Point"}}},
                "additionalProperties": false,
            },
            "either": {"oneOf": [{"type": "integer"}, {"type": "string", "format": "date"}]},
        },
        "required": ["name"],
        "dependentRequired": {"port": ["mode"]},
        "$defs": {"Point": {
            "type": "object",
            "properties": {"x": {"type": "number", "maximum": 1}},
            "required": ["x"],
        }},
    });
    for (args, expected) in [
        (
            json!({"name": "Ab1", "port": 70_000, "mode": "fast"}),
            json!([["string_pattern_mismatch", ["name"]], ["less_than_equal", ["port"]],]),
        ),
        (json!({"name": "abcdefg"}), json!([["string_too_long", ["name"]]])),
        (json!({}), json!([["missing_argument", ["name"]]])),
        (json!({"name": "a", "port": 1}), json!([["missing_argument", ["mode"]]])),
        (json!({"name": "a", "port": "0", "mode": "fast"}), json!([["greater_than", ["port"]]])),
        (json!({"name": "a", "port": "none", "mode": "fast"}), json!([["int_parsing", ["port"]]])),
        (json!({"name": "a", "step": 7}), json!([["multiple_of", ["step"]]])),
        (
            json!({"name": "a", "tags": ["x", "", "x"], "mode": "medium"}),
            json!([["literal_error", ["mode"]], ["string_too_short", ["tags", 1]], ["value_error", ["tags"]]]),
        ),
        (json!({"name": "a", "tags": "[]"}), json!([["too_short", ["tags"]]])),
        (
            json!({"name": "a", "deep": {"list": [{"x": 0}, {"x": "2"}, {}], "more": 1}}),
            json!([
                ["missing", ["deep", "list", 2, "x"]],
                ["extra_forbidden", ["deep", "more"]],
                ["less_than_equal", ["deep", "list", 1, "x"]],
            ]),
        ),
        (json!({"name": "a", "either": [1]}), json!([["string_type", ["either"]]])),
    ] {
        let told: Value =
            serde_json::from_str(&called(echo(parameters.clone()), "back_again", args.clone()).await).unwrap();
        assert_eq!(told["kind"], "invalid_input", "{args}: {told}");
        assert_eq!(told["message"], "Tool 'back_again' argument validation failed.");
        let mut errors: Vec<_> = told["details"]["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                assert_eq!(it.as_object().unwrap().keys().collect::<Vec<_>>(), ["type", "loc", "msg", "input"]);
                json!([it["type"], it["loc"]])
            })
            .collect();
        let mut expected = expected.as_array().unwrap().clone();
        for list in [&mut errors, &mut expected] {
            list.sort_by_key(ToString::to_string);
        }
        assert_eq!(errors, expected, "{args}: {told}");
    }
}

#[tokio::test]
async fn schemas_of_other_drafts_are_understood() {
    let parameters = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"Id": {"type": "integer", "exclusiveMinimum": 0}},
        "properties": {"id": {"$ref": "#/definitions/Id"}},
    });
    assert_eq!(called(echo(parameters.clone()), "back_again", json!({"id": "5"})).await, r#"{"id": 5}"#);
    let told = called(echo(parameters), "back_again", json!({"id": 0})).await;
    assert!(told.contains("'id': value is less than or equal to the minimum of 0"), "{told}");
}

#[test]
fn a_schema_that_means_nothing_is_refused_when_the_tool_is_made() {
    let made = |name: &'static str, parameters: Value, output: Option<Value>| {
        let mut spec = ToolSpec::new(name, parameters);
        spec.output = output.map(Into::into);
        SchemaTool::new(spec, |_, args| async move { Ok(args) }).map(|_| ()).map_err(|err| err.to_string())
    };
    for (name, parameters, output, expected) in [
        ("", json!({}), None, "'' can't be the name of a tool: it is empty or has white space"),
        ("a b", json!({}), None, "'a b' can't be the name of a tool: it is empty or has white space"),
        ("t", json!([]), None, "tool 't': the schema of its parameters is [], but must be of an object"),
        ("t", json!(true), None, "tool 't': the schema of its parameters is true, but must be of an object"),
        (
            "t",
            json!({"type": "string"}),
            None,
            "tool 't': the schema of its parameters is of the type \"string\", but must be of an object",
        ),
        (
            "t",
            json!({"properties": {"a": {"type": "strin"}}}),
            None,
            "tool 't': the schema of its parameters is not valid: at /properties/a/type: ",
        ),
        (
            "t",
            json!({"properties": {"a": {"minimum": "1"}}}),
            None,
            "tool 't': the schema of its parameters is not valid: at /properties/a/minimum: ",
        ),
        (
            "t",
            json!({"properties": {"a": {"pattern": "("}}}),
            None,
            "tool 't': the schema of its parameters is not valid: ",
        ),
        (
            "t",
            json!({"properties": {"a": {"$ref": "#/$defs/Nothing"}}}),
            None,
            "tool 't': the schema of its parameters is not valid: ",
        ),
        (
            "t",
            json!({"properties": {"a": {"$ref": "https://example.org/schema.json"}}}),
            None,
            "tool 't': the schema of its parameters is not valid: ",
        ),
        ("t", json!({}), Some(json!({"type": 5})), "tool 't': the schema of its result is not valid: at /type: "),
        (
            "t",
            json!({"description": "x".repeat(1 << 20)}),
            None,
            "tool 't': the schema of its parameters has 1048610 bytes, more than 1048576",
        ),
    ] {
        let err = made(name, parameters.clone(), output).unwrap_err();
        assert!(err.starts_with(expected), "{parameters:.100}: {err}");
    }
    assert_eq!(made("t", json!({}), None), Ok(()));
}

#[test]
fn a_schema_can_be_used_without_its_tool() {
    let schema = ArgumentSchema::compile("t", &json!({"properties": {"a": {"maximum": 1}}})).unwrap();
    assert!(schema.problems(&json!({"a": 1})).is_empty());
    assert_eq!(schema.problems(&json!({"a": 2}))[0].message, "'a': value is greater than the maximum of 1");
}

#[tool]
fn panics() -> u8 {
    panic!("boom")
}

#[tool(renderer = |_| -> &str { panic!("no words") })]
fn wordless() -> u8 {
    1
}

#[tool]
fn count(n: u8, #[arg(default = true)] up: bool) -> i64 {
    if up { i64::from(n) + 1 } else { i64::from(n) - 1 }
}

#[tokio::test]
async fn a_function_that_panics_fails_alone() {
    let panicked = |name: &str, what: &str| {
        format!(
            "{{\"kind\": \"tool\", \"message\": \"Tool '{name}' execution failed.\", \"details\": {{\"error\": \
             \"Panic('the tool panicked: {what}')\"}}}}"
        )
    };
    assert_eq!(called(panics_tool(), "panics", json!({})).await, panicked("panics", "boom"));
    assert_eq!(called(wordless_tool(), "wordless", json!({})).await, panicked("wordless", "no words"));
}

#[tokio::test]
async fn arguments_of_a_function_are_converted_as_leniently_as_all_others() {
    for (args, expected) in [(json!({"n": "5"}), "6"), (json!({"n": 5.0, "up": "no"}), "4"), (json!({"n": true}), "2")]
    {
        assert_eq!(called(count_tool(), "count", args).await, expected);
    }
    let told: Value =
        serde_json::from_str(&called(count_tool(), "count", json!({"n": -1, "up": "maybe", "x": 1})).await).unwrap();
    let errors: Vec<_> = told["details"]["errors"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(errors, ["bool_parsing", "unexpected_keyword_argument"], "{told}");
    let told = called(count_tool(), "count", json!({"n": -1})).await;
    assert!(told.contains("'n': invalid value: integer `-1`, expected u8"), "{told}");
    let bench = bench(count_tool(), []);
    assert_eq!(bench.say(",count 4 up=off").await.unwrap().answer, "3");
}
