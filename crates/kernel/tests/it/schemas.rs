//! From a signature to a schema.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use bub_kernel::{
    tool,
    tool::{DynTool, prelude::*},
};
use serde_json::{Value, json};

/// One parameter's schema, which stands in a tool with that parameter alone.
macro_rules! schema_of {
    ($(#[$attribute:meta])* $kind:ty) => {{
        #[tool]
        #[expect(unused_variables, reason = "only its schema matters")]
        fn probe($(#[$attribute])* it: $kind) {}
        let parameters = probe_tool().spec().parameters.clone();
        (parameters["properties"]["it"].clone(), parameters.get("required").is_some())
    }};
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

impl From<&str> for Color {
    fn from(name: &str) -> Self {
        if name == "red" { Self::Red } else { Self::Green }
    }
}

impl Serialize for Color {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if matches!(self, Self::Red) { "red" } else { "green" })
    }
}

/// How far.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Depth {
    /// The names alone.
    Names,
    /// Names
    /// and contents.
    All,
    Other,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Only {
    This,
}

/// What was ordered.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
struct Order {
    /// Its number.
    id: u64,
    items: Vec<Item>,
    color: Option<Color>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
struct Item {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
struct Tree {
    next: Option<Box<Self>>,
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema matters")]
struct OrderId(String);

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema matters")]
enum Shape {
    Disc { r: f64 },
    Dot,
}

/// A date without time.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only its schema matters")]
struct Date(String);

impl JsonSchema for Date {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Date".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date"})
    }
}

fn check((schema, is_required): (Value, bool), expected: Value) {
    assert_eq!(schema, expected);
    assert!(is_required, "{schema}");
}

#[test]
fn simple_types_have_their_kinds_alone() {
    check(schema_of!(i64), json!({"type": "integer"}));
    check(schema_of!(u8), json!({"type": "integer"}));
    check(schema_of!(i16), json!({"type": "integer"}));
    check(schema_of!(usize), json!({"type": "integer"}));
    check(schema_of!(i128), json!({"type": "integer"}));
    check(schema_of!(f64), json!({"type": "number"}));
    check(schema_of!(f32), json!({"type": "number"}));
    check(schema_of!(String), json!({"type": "string"}));
    check(schema_of!(std::path::PathBuf), json!({"type": "string"}));
    check(schema_of!(bool), json!({"type": "boolean"}));
    check(schema_of!(Value), json!({}));
    check(schema_of!(Date), json!({"type": "string", "format": "date"}));
    check(schema_of!(OrderId), json!({"type": "string"}));
}

#[test]
fn collections_say_what_they_hold() {
    check(schema_of!(Vec<i64>), json!({"type": "array", "items": {"type": "integer"}}));
    check(schema_of!(Vec<Value>), json!({"type": "array", "items": {}}));
    check(schema_of!(HashSet<String>), json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}));
    check(schema_of!(BTreeSet<u32>), json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}));
    check(
        schema_of!((i64, String)),
        json!({
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        }),
    );
    check(schema_of!(HashMap<String, Value>), json!({"type": "object", "additionalProperties": true}));
    check(schema_of!(serde_json::Map<String, Value>), json!({"type": "object", "additionalProperties": true}));
    check(schema_of!(BTreeMap<String, u16>), json!({"type": "object", "additionalProperties": {"type": "integer"}}));
    check(
        schema_of!(Vec<Option<u8>>),
        json!({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}),
    );
}

#[test]
fn what_is_optional_may_be_null_and_may_be_left_out() {
    let optional = |(schema, is_required): (Value, bool), expected: Value| {
        assert_eq!(schema, expected);
        assert!(!is_required, "{schema}");
    };
    optional(schema_of!(Option<i64>), json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}));
    optional(
        schema_of!(#[arg(default = Some(3))] Option<u8>),
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3}),
    );
    optional(
        schema_of!(
            #[arg(default = 5)]
            u64
        ),
        json!({"type": "integer", "default": 5}),
    );
    optional(
        schema_of!(
            #[arg(default = -0.5)]
            f64
        ),
        json!({"type": "number", "default": -0.5}),
    );
    optional(
        schema_of!(
            #[arg(default = "x")]
            String
        ),
        json!({"type": "string", "default": "x"}),
    );
    optional(
        schema_of!(
            #[arg(default)]
            bool
        ),
        json!({"type": "boolean", "default": false}),
    );
    optional(
        schema_of!(#[arg(default = vec![1, 2])] Vec<u8>),
        json!({"type": "array", "items": {"type": "integer"}, "default": [1, 2]}),
    );
    optional(
        schema_of!(
            #[arg(default = "green")]
            Color
        ),
        json!({"type": "string", "enum": ["red", "green"], "title": "Color", "default": "green"}),
    );
    // A default that is no JSON is not told.
    optional(
        schema_of!(
            #[arg(default = Only::This)]
            Only
        ),
        json!({"type": "string", "const": "this", "title": "Only"}),
    );
}

#[test]
fn choices_are_enums_with_a_title() {
    check(schema_of!(Color), json!({"type": "string", "enum": ["red", "green"], "title": "Color"}));
    check(schema_of!(Only), json!({"type": "string", "const": "this", "title": "Only"}));
    check(
        schema_of!(Depth),
        json!({
            "type": "string",
            "enum": ["other", "names", "all"],
            "title": "Depth",
            "description": "How far.\n- `names`: The names alone.\n- `all`: Names and contents.",
        }),
    );
}

#[test]
fn structs_are_written_out_and_what_they_name_stands_beside_them() {
    let item = json!({
        "type": "object",
        "title": "Item",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    });
    let color = json!({"type": "string", "enum": ["red", "green"], "title": "Color"});
    check(schema_of!(Item), item.clone());
    check(
        schema_of!(Order),
        json!({
            "$defs": {"Item": item, "Color": color},
            "type": "object",
            "title": "Order",
            "description": "What was ordered.",
            "properties": {
                "id": {"type": "integer", "description": "Its number."},
                "items": {"type": "array", "items": {"$ref": "#/properties/it/$defs/Item"}},
                "color": {"anyOf": [{"$ref": "#/properties/it/$defs/Color"}, {"type": "null"}]},
            },
            "required": ["id", "items"],
        }),
    );
    check(
        schema_of!(Vec<Item>),
        json!({"$defs": {"Item": item}, "type": "array", "items": {"$ref": "#/properties/it/$defs/Item"}}),
    );
    check(
        schema_of!(
            #[doc = " This one."]
            Item
        ),
        {
            let mut own = item.clone();
            own["description"] = "This one.".into();
            own
        },
    );
    let tree = json!({
        "type": "object",
        "title": "Tree",
        "properties": {"next": {"anyOf": [{"$ref": "#/properties/it/$defs/Tree"}, {"type": "null"}]}},
    });
    let mut whole = tree.clone();
    whole["$defs"] = json!({"Tree": tree});
    check(schema_of!(Tree), whole);
    let (shape, _) = schema_of!(Shape);
    assert_eq!((&shape["title"], shape["oneOf"].as_array().map(Vec::len)), (&json!("Shape"), Some(2)), "{shape}");
}

/// Searches.
#[tool]
#[expect(unused_variables, reason = "only its schema matters")]
fn search(
    /// What to look for,
    /// in words.
    query: String,
    #[arg(default = 20)]
    #[schemars(range(min = 1, max = 100))]
    limit: u8,
    #[arg(description = "Where.", name = "in")] place: Option<String>,
) {
}

#[test]
fn a_tool_of_a_function_has_a_parameter_for_each_of_its_own() {
    let tool: Arc<dyn DynTool> = search_tool();
    assert_eq!(
        tool.spec().to_schema(),
        json!({
            "name": "search",
            "description": "Searches.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What to look for, in words."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                    "in": {
                        "anyOf": [{"type": "string"}, {"type": "null"}],
                        "description": "Where.",
                        "default": null,
                    },
                },
                "required": ["query"],
            },
        })
    );
}
