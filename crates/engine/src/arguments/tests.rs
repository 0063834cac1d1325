use std::sync::Arc;

use bub_kernel::tool::{ToolContext, ToolReply, ToolSpec};
use futures::future::BoxFuture;
use serde_json::json;

use super::*;

/// A tool of which only the schema matters.
struct Schema(Arc<ToolSpec>);

impl Schema {
    fn new(parameters: Value) -> Self {
        Self(Arc::new(ToolSpec::new("t.x", parameters)))
    }
}

impl DynTool for Schema {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move { Ok(ToolReply { value: args, text: None }) })
    }
}

fn tool() -> Schema {
    Schema::new(json!({
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
            "only": {"const": "x"},
            "several": {"type": ["integer", "null"]},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
            "order": {
                "$defs": {"Item": {
                    "type": "object",
                    "title": "Item",
                    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
                    "required": ["name"],
                    "additionalProperties": false,
                }},
                "type": "object",
                "properties": {"items": {"type": "array", "items": {"$ref": "#/properties/order/$defs/Item"}}},
                "required": ["items"],
            },
            "lost": {"$ref": "#/$defs/Nothing"},
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "disc"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
                {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "number"}}, "required": ["kind", "w"]},
            ]},
            "tree": {"$ref": "#/$defs/Tree"},
        },
        "$defs": {"Tree": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}},
        }},
        "required": ["s"],
    }))
}

fn with(parameter: &str, input: &Value) -> Map<String, Value> {
    let mut args = Map::from_iter([("s".to_owned(), json!("x"))]);
    args.insert(parameter.to_owned(), input.clone());
    args
}

fn ok(parameter: &str, input: Value, expected: Value) {
    let converted = validate(&tool(), "t_x", &with(parameter, &input));
    let converted = converted.unwrap_or_else(|err| panic!("{parameter}={input}: {err:?}"));
    assert_eq!(converted[parameter], expected, "{parameter}={input}");
}

fn problem(parameter: &str, input: &Value) -> Value {
    let err = validate(&tool(), "t_x", &with(parameter, input)).map(|it| panic!("{it}")).unwrap_err();
    assert_eq!(err.kind.as_str(), "invalid_input");
    err.details["errors"][0].clone()
}

fn bad(parameter: &str, input: Value, code: &str, message: &str) {
    let problem = problem(parameter, &input);
    assert_eq!((&problem["type"], &problem["loc"][0]), (&json!(code), &json!(parameter)), "{input}");
    assert_eq!(problem["msg"], message, "{input}");
}

#[test]
fn words_become_what_the_schema_asks_for() {
    for (text, number) in [("5", 5), (" 5 ", 5), ("1_000", 1000), ("5.0", 5), ("-3", -3)] {
        ok("i", json!(text), json!(number));
    }
    ok("i", json!("18446744073709551615"), json!(u64::MAX));
    ok("i", json!(5.0), json!(5));
    ok("i", json!(true), json!(1));
    ok("f", json!("2.5"), json!(2.5));
    ok("f", json!(3), json!(3));
    for word in ["true", "1", "YES", "on", "y", "T"] {
        ok("b", json!(word), json!(true));
    }
    for word in ["false", "0", "No", "off", "n", "f"] {
        ok("b", json!(word), json!(false));
    }
    ok("b", json!(1), json!(true));
    ok("s", json!("[1]"), json!("[1]"));
    ok("names", json!(r#"["web.fetch", "tape.search"]"#), json!(["web.fetch", "tape.search"]));
    ok("headers", json!(r#"{"accept": "x"}"#), json!({"accept": "x"}));
    ok("headers", json!(null), json!(null));
    ok("limit", json!("7"), json!(7));
    ok("limit", json!(null), json!(null));
    ok("several", json!("7"), json!(7));
    ok("several", json!(null), json!(null));
    ok("prompt", json!("plain"), json!("plain"));
    ok("prompt", json!("[not json"), json!("[not json"));
    ok("prompt", json!("[1, 2]"), json!("[1, 2]"));
    ok("prompt", json!(r#"[{"type": "text"}]"#), json!([{"type": "text"}]));
    ok("only", json!("x"), json!("x"));
    ok("pair", json!(["1", "no"]), json!([1, false]));
}

#[test]
fn values_inside_of_values_are_converted_too() {
    ok("order", json!({"items": [{"name": "a", "n": "2"}]}), json!({"items": [{"name": "a", "n": 2}]}));
    ok("order", json!(r#"{"items": [{"name": "a"}], "more": 1}"#), json!({"items": [{"name": "a"}], "more": 1}));
    ok("lost", json!("5"), json!("5"));
    ok("shape", json!({"kind": "box", "w": "2"}), json!({"kind": "box", "w": 2.0}));
    ok("tree", json!({"n": "1", "next": {"n": "2", "next": null}}), json!({"n": 1, "next": {"n": 2, "next": null}}));
}

#[test]
fn what_does_not_fit_is_named_with_what_was_expected() {
    bad("i", json!("abc"), "int_parsing", "'i': expected an integer, got 'abc'");
    bad("i", json!("5.5"), "int_parsing", "'i': expected an integer, got '5.5'");
    bad("i", json!(5.5), "int_from_float", "'i': expected an integer, got 5.5");
    bad("i", json!([]), "int_type", "'i': expected an integer, got a list");
    bad("f", json!("nan"), "float_parsing", "'f': expected a finite number, got 'nan'");
    bad("b", json!("maybe"), "bool_parsing", "'b': expected true or false, got 'maybe'");
    bad("s", json!(5), "string_type", "'s': expected a string, got 5");
    bad("names", json!("web"), "list_type", "'names': expected a list, as JSON: [\"a\", \"b\"], got 'web'");
    bad("names", json!([1]), "string_type", "'names[0]': expected a string, got 1");
    bad("limit", json!("null"), "int_parsing", "'limit': expected an integer or null, got 'null'");
    bad("several", json!({}), "int_type", "'several': expected an integer or null, got an object");
    bad("prompt", json!(5), "list_type", "'prompt': expected a string or a list, as JSON: [\"a\", \"b\"], got 5");
    bad("mode", json!("c"), "literal_error", "'mode': expected one of \"a\", \"b\", got 'c'");
    bad("only", json!("y"), "literal_error", "'only': expected \"x\", got 'y'");
    bad("order", json!({"items": [{"n": 1}]}), "missing", "'order.items[0].name' is required (string)");
    bad(
        "order",
        json!({"items": [{"name": "a", "n": "many"}]}),
        "int_parsing",
        "'order.items[0].n': expected an integer, got 'many'",
    );
    bad(
        "order",
        json!({"items": [{"name": "a", "z": 1}]}),
        "extra_forbidden",
        "'order.items[0].z': is no field of this object",
    );
    bad(
        "bogus",
        json!("1"),
        "unexpected_keyword_argument",
        "'bogus' is not a parameter; the tool takes 's', 'i', 'f', 'b', 'names', 'headers', 'limit', 'prompt', 'mode', \
         'only', 'several', 'pair', 'order', 'lost', 'shape', 'tree'",
    );
}

#[test]
fn the_place_is_told_as_a_path() {
    let problem = problem("order", &json!({"items": [{"name": "a"}, {"name": 2}]}));
    assert_eq!(problem["loc"], json!(["order", "items", 1, "name"]));
    assert_eq!(problem["input"], 2);
}

#[test]
fn all_problems_are_told_at_once() {
    let args = Map::from_iter([("i".to_owned(), json!("x")), ("zz".to_owned(), json!(1))]);
    let err = validate(&tool(), "t_x", &args).unwrap_err();
    assert_eq!(err.message, "Tool 't_x' argument validation failed.");
    assert_eq!(err.cause().matches("; ").count(), 3, "{}", err.cause());
    let codes: Vec<_> = err.details["errors"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
    assert_eq!(codes, ["int_parsing", "unexpected_keyword_argument", "missing_argument"]);
}

#[test]
fn a_schema_that_is_composed_is_open() {
    for schema in [
        json!({"type": "object"}),
        json!({"properties": {}, "additionalProperties": true}),
        json!({"properties": {}, "patternProperties": {"^x": {}}}),
        json!({"properties": {}, "allOf": [{"properties": {"z": {}}}]}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}}),
    ] {
        let args = Map::from_iter([("z".to_owned(), json!(1))]);
        assert_eq!(validate(&Schema::new(schema.clone()), "t", &args).unwrap(), json!({"z": 1}), "{schema}");
    }
    let schema = json!({"additionalProperties": {"type": "integer"}});
    let args = Map::from_iter([("z".to_owned(), json!("1"))]);
    assert_eq!(validate(&Schema::new(schema), "t", &args).unwrap(), json!({"z": 1}));
}

#[test]
fn what_is_entangled_without_end_is_left_as_it_is() {
    let turning = json!({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}});
    let args = Map::from_iter([("a".to_owned(), json!(1))]);
    assert!(validate(&Schema::new(turning), "t", &args).is_ok());

    let two = json!({"type": "object", "properties": {"l": {"$ref": "#/$defs/E"}}, "required": ["x"]});
    let schema = json!({"properties": {"e": {"$ref": "#/$defs/E"}}, "$defs": {"E": {"anyOf": [two, two, two]}}});
    let deep = (0..100).fold(json!({}), |inner, _| json!({"l": inner}));
    let args = Map::from_iter([("e".to_owned(), deep.clone())]);
    assert_eq!(validate(&Schema::new(schema), "t", &args).unwrap()["e"], deep, "left for the tool to judge");
}

#[test]
fn null_for_what_may_be_left_out_is_left_out() {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "offset": {"type": "integer", "default": 0},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "any": {},
        },
        "required": ["path"],
    });
    let validated = |args: Value| validate(&Schema::new(schema.clone()), "t.x", args.as_object().unwrap());
    assert_eq!(
        validated(json!({"path": "a", "offset": null, "limit": null, "any": null})).unwrap(),
        json!({"path": "a", "limit": null, "any": null})
    );
    let err = validated(json!({"path": null, "offset": "x"})).unwrap_err();
    assert_eq!(err.details["errors"].as_array().unwrap().len(), 2, "{err:?}");
}
