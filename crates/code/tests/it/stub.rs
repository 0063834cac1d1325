//! Stubs: every rule of the mapping, and that Python reads whatever comes out.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
};

use bub_code::stub::{identifiers, render, render_within};
use bub_kernel::tool::{Exposure, ToolSpec};
use expect_test::{Expect, expect};
use proptest::{prelude::*, strategy::ValueTree as _};
use serde_json::{Value, json};

fn tool(name: &str, description: &str, parameters: Value, output: Option<Value>) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.to_owned().into(),
        description: description.to_owned(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters,
        output: output.map(Into::into),
    })
}

/// Compiles stubs with the `ast` module of the machine's Python, all in one process.
fn compile(stubs: &[String]) -> Result<(), String> {
    let script = "import ast, json, sys\nfor text in json.load(sys.stdin):\n    compile(text, 'stub', 'exec')\n    ast.parse(text)";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tests of code mode need python3");
    python.stdin.take().unwrap().write_all(&serde_json::to_vec(stubs).unwrap()).unwrap();
    let output = python.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// What lies between the imports and the reference of `republic`.
fn body(tools: &[Arc<ToolSpec>]) -> String {
    let text = render(tools);
    compile(std::slice::from_ref(&text)).unwrap_or_else(|err| panic!("{err}\n{text}"));
    let (_, rest) = text.split_once("\nimport republic\n").unwrap();
    let (body, _) = rest.split_once("\n# republic: ").unwrap();
    body.trim().to_owned()
}

fn check(tools: &[Arc<ToolSpec>], expected: Expect) {
    expected.assert_eq(&body(tools));
}

/// The hint of a parameter with this schema.
#[track_caller]
fn hint(schema: Value, expected: &str) {
    let tool = tool("t", "", json!({"type": "object", "properties": {"p": schema}, "required": ["p"]}), None);
    let text = body(&[tool]);
    let line = text.lines().find(|it| it.starts_with("async def t(")).unwrap();
    assert_eq!(line, format!("async def t(*, p: {expected}) -> Any:"), "{text}");
}

#[test]
fn the_frame_is_there_without_tools() {
    let text = render::<Arc<ToolSpec>>(&[]);
    compile(std::slice::from_ref(&text)).unwrap();
    assert!(text.starts_with("\"\"\"") && text.ends_with('\n') && !text.ends_with("\n\n"));
    assert!(text.contains(
        "\"\"\"\n\nfrom typing import Any, Literal, NotRequired, TypedDict\n\nimport republic\n\n\n# republic"
    ));
    for word in ["await", "keyword", "gather", "BubError", "get_model", "get_embedding_model", "decide", "stream"] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn a_function_has_its_parameters_defaults_and_documentation() {
    check(
        &[
            tool(
                "web.fetch",
                "Get a page.\n\nWith `C:\\x` and \"\"\"quotes\"\"\".  \nEnd",
                json!({
                    "type": "object",
                    "properties": {
                        "url": {"type": "string", "description": "Where\n  it is."},
                        "headers": {
                            "anyOf": [{"type": "object", "additionalProperties": true}, {"type": "null"}],
                            "default": null,
                        },
                        "timeout": {"type": "number", "default": 10},
                        "follow": {"type": "boolean", "default": true},
                        "kinds": {"type": "array", "items": {"type": "string"}, "default": ["a", "it's"]},
                        "more": {"type": "integer"},
                    },
                    "required": ["url"],
                }),
                Some(json!({"type": "string"})),
            ),
            tool("tape.info", "Count.", json!({"type": "object", "properties": {}}), None),
            tool("plain", "", json!({}), Some(json!(true))),
        ],
        expect![[r##"
            async def web_fetch(*, url: str, headers: dict[str, Any] | None = None, timeout: float = 10, follow: bool = True, kinds: list[str] = ['a', "it's"], more: int = ...) -> str:
                """Get a page.

                With `C:\\x` and \"\"\"quotes\"\"\".
                End

                Args:
                    url: Where it is.
                """


            async def tape_info() -> Any:
                """Count."""


            async def plain() -> Any:
                ..."##]],
    );
}

#[test]
fn odd_names_of_tools_and_parameters_are_kept_callable() {
    check(
        &[
            tool("mcp.my-tool", "", json!({}), None),
            tool("2nd", "", json!({}), None),
            tool("class", "", json!({}), None),
            tool("my.tool", "", json!({}), None),
            tool("my_tool", "", json!({}), None),
            tool("print", "", json!({"properties": {"x-y": {"type": "string"}}}), None),
            tool("k", "", json!({"properties": {"from": {"type": "string", "description": "Start."}}}), None),
        ],
        expect![[r#"
            async def mcp_my_tool() -> Any:
                ...


            async def _2nd() -> Any:
                ...


            async def _class() -> Any:
                ...


            async def my_tool() -> Any:
                ...


            async def my_tool_2() -> Any:
                ...


            async def print(**kwargs: Any) -> Any:
                ...


            async def k(**kwargs: Any) -> Any:
                """Args:
                    from: Start.
                """"#]],
    );
    let tools = [tool("a.b", "", json!({}), None), tool("a_b", "", json!({}), None), tool("", "", json!({}), None)];
    assert_eq!(identifiers(&tools), ["a_b", "a_b_2", "_"]);
}

#[test]
fn simple_schemas_have_simple_hints() {
    for (schema, expected) in [
        (json!(true), "Any"),
        (json!({}), "Any"),
        (json!([1]), "Any"),
        (json!({"type": "string"}), "str"),
        (json!({"type": "integer"}), "int"),
        (json!({"type": "number"}), "float"),
        (json!({"type": "boolean"}), "bool"),
        (json!({"type": "null"}), "None"),
        (json!({"type": "file"}), "Any"),
        (json!({"description": "anything"}), "Any"),
        (json!({"type": ["string", "null"]}), "str | None"),
        (json!({"type": ["array", "null"], "items": {"type": "integer"}}), "list[int] | None"),
        (json!({"const": "x"}), "Literal['x']"),
        (json!({"const": null}), "Literal[None]"),
        (json!({"enum": ["a", 1, true, null]}), "Literal['a', 1, True, None]"),
        (json!({"enum": [], "type": "string"}), "str"),
        (json!({"type": "array"}), "list[Any]"),
        (json!({"type": "array", "items": {"type": "number"}}), "list[float]"),
        (json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}), "tuple[str, int]"),
        (json!({"type": "object"}), "dict[str, Any]"),
        (json!({"type": "object", "additionalProperties": true}), "dict[str, Any]"),
        (json!({"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}), "dict[str, int]"),
        (json!({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]}), "str | int"),
        (json!({"oneOf": [{"type": "string"}, {}]}), "Any"),
        (json!({"anyOf": []}), "Any"),
        (json!({"allOf": [{"type": "string"}]}), "str"),
        (json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), "Any"),
        (json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}), "list[str] | None"),
    ] {
        hint(schema, expected);
    }
}

#[test]
fn references_are_followed_and_loops_end() {
    for (schema, expected) in [
        (json!({"$ref": "#/$defs/X", "$defs": {"X": {"type": "integer"}}}), "int"),
        (json!({"$ref": "#/definitions/X", "definitions": {"X": {"enum": ["a"]}}}), "Literal['a']"),
        (json!({"$ref": "#/$defs/Missing"}), "Any"),
        (json!({"$ref": 7}), "Any"),
        (json!({"$ref": "#/$defs/X", "$defs": {"X": {"$ref": "#/$defs/X"}}}), "Any"),
        (json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}), "Any"),
        (json!({"$ref": "#/$defs/L", "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}}), "list[Any]"),
    ] {
        hint(schema, expected);
    }
    let node = json!({
        "type": "object", "title": "Node",
        "properties": {"value": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
        "required": ["value"],
    });
    let list = json!({"$defs": {"Node": node}, "$ref": "#/$defs/Node"});
    check(
        &[
            tool("first", "", json!({"properties": {}}), Some(list.clone())),
            tool("second", "", json!({"properties": {"n": list}}), None),
        ],
        expect![[r#"
            class Node(TypedDict):
                value: str
                next: NotRequired[Node | None]


            async def first() -> Node:
                ...


            async def second(*, n: Node = ...) -> Any:
                ..."#]],
    );
}

#[test]
fn objects_become_classes_with_names_that_tell_them_apart() {
    let point = |kind: &str| json!({"type": "object", "title": "Point", "properties": {"x": {"type": kind}}, "required": ["x"]});
    check(
        &[
            tool(
                "geo.move",
                "",
                json!({"properties": {"to": point("number"), "via": {"type": "array", "items": point("number")}}}),
                None,
            ),
            tool("geo.snap", "", json!({"properties": {"to": point("integer")}}), Some(point("integer"))),
            tool(
                "geo.find",
                "",
                json!({"properties": {"where": {"type": "object", "properties": {"a": {"type": "string", "description": "First\nline."}}}}}),
                Some(json!({
                    "type": "object", "description": "What was found.",
                    "properties": {
                        "hits": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}},
                        "by_name": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"type": "null"}}}},
                        "box": {"type": "object", "properties": {"w": {"type": "number"}}},
                    },
                    "required": ["hits"],
                })),
            ),
            tool(
                "odd",
                "",
                json!({}),
                Some(json!({
                    "type": "object", "properties": {"a-b": {"type": "string"}, "class": {"type": "integer"}}, "required": ["a-b"],
                })),
            ),
            tool("titled", "", json!({}), Some(json!({"type": "object", "title": "Any", "properties": {"a": {}}}))),
        ],
        expect![[r#"
            class Point(TypedDict):
                x: float


            class Point2(TypedDict):
                x: int


            class GeoFindWhere(TypedDict):
                # First line.
                a: NotRequired[str]


            class GeoFindResult(TypedDict):
                """What was found."""

                hits: list[GeoFindResultHitsItem]
                by_name: NotRequired[dict[str, GeoFindResultByNameValue]]
                box: NotRequired[GeoFindResultBox]


            class GeoFindResultHitsItem(TypedDict):
                id: int


            class GeoFindResultByNameValue(TypedDict):
                n: NotRequired[None]


            class GeoFindResultBox(TypedDict):
                w: NotRequired[float]


            OddResult = TypedDict('OddResult', {'a-b': str, 'class': NotRequired[int]})


            class Any2(TypedDict):
                a: NotRequired[Any]


            async def geo_move(*, to: Point = ..., via: list[Point] = ...) -> Any:
                ...


            async def geo_snap(*, to: Point2 = ...) -> Point2:
                ...


            async def geo_find(*, where: GeoFindWhere = ...) -> GeoFindResult:
                ...


            async def odd() -> OddResult:
                ...


            async def titled() -> Any2:
                ..."#]],
    );
}

#[test]
fn classes_inside_classes_are_shared_when_they_are_the_same() {
    let outer = |kind: &str| json!({"type": "object", "title": "Outer", "properties": {"in": {"type": "object", "properties": {"x": {"type": kind}}}}});
    let text = body(&[
        tool("a", "", json!({}), Some(outer("string"))),
        tool("b", "", json!({}), Some(outer("string"))),
        tool("c", "", json!({}), Some(outer("integer"))),
    ]);
    let classes: Vec<_> = text.lines().filter(|it| it.contains("TypedDict")).collect();
    assert_eq!(classes.len(), 4, "{text}");
    assert!(text.contains("async def b() -> Outer:") && text.contains("async def c() -> Outer2:"), "{text}");
}

#[test]
fn media_parameters_are_republics() {
    for attach in bub_code::Attach::all() {
        let text = body(&[attach.spec().clone()]);
        let kind = attach.name().trim_start_matches("attach_");
        let title = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
        assert!(
            text.contains(&format!("async def attach_{kind}(*, {kind}: republic.{title} | str) -> str:")),
            "{text}"
        );
        assert!(!text.contains("TypedDict"), "{text}");
    }
    // Only the very shape counts.
    let other = json!({"type": "object", "title": "Image", "properties": {"url": {"type": "string"}}});
    hint(other, "Image");
}

#[test]
fn the_stub_follows_from_the_tools_alone() {
    let tools: Vec<_> = (0..50)
        .map(|it| {
            let output = json!({"type": "object", "properties": {"n": {"const": it}}});
            tool(&format!("t{it}"), "Does.", json!({"properties": {"a": {"type": "string"}}}), Some(output))
        })
        .collect();
    assert_eq!(render(&tools), render(&tools));
}

#[test]
fn what_does_not_fit_is_named() {
    let mut tools: Vec<_> = (0..2_000).map(|it| tool(&format!("t{it}"), &"x".repeat(1_000), json!({}), None)).collect();
    tools.push(tool("small", "", json!({}), None));
    let text = render_within(&tools, 50_000);
    compile(std::slice::from_ref(&text)).unwrap();
    assert!(text.len() < 60_000, "{}", text.len());
    assert!(text.contains("async def t0()") && !text.contains("async def t1999()"));
    assert!(text.contains("# Left out for length") && text.contains(" more\n"), "{text}");
    // A huge class does not take the others along.
    let huge: serde_json::Map<_, _> =
        (0..10_000).map(|it| (format!("field_{it}"), json!({"type": "string"}))).collect();
    let tools = [
        tool("huge", "", json!({}), Some(json!({"type": "object", "properties": huge}))),
        tool("small", "Fits.", json!({}), None),
    ];
    let text = render_within(&tools, 20_000);
    assert!(text.len() < 20_000 && text.contains("async def small") && text.contains("# huge"), "{}", text.len());
}

#[test]
fn deep_schemas_end() {
    let deep = (0..500).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    let text = render(&[tool("deep", "", json!({"properties": {"a": deep}}), None)]);
    compile(std::slice::from_ref(&text)).unwrap();
    // Many references to each other.
    let defs: serde_json::Map<_, _> = (0..200)
        .map(|it| {
            let next = |n: usize| json!({"$ref": format!("#/$defs/D{}", (it * 7 + n) % 200)});
            (format!("D{it}"), json!({"type": "object", "properties": {"a": next(1), "b": next(2), "c": next(3)}}))
        })
        .collect();
    let text = render(&[tool("net", "", json!({"$defs": defs, "properties": {"a": {"$ref": "#/$defs/D0"}}}), None)]);
    compile(std::slice::from_ref(&text)).unwrap();
}

#[test]
fn three_hundred_tools_are_rendered_quickly() {
    let tools = many(300);
    let started = std::time::Instant::now();
    let text = render_within(&tools, usize::MAX);
    let took = started.elapsed();
    assert!(text.matches("async def").count() == 300);
    // The bar is 20 ms when optimised; this is a debug build on a busy machine.
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    compile(&[text]).unwrap();
}

fn many(n: usize) -> Vec<Arc<ToolSpec>> {
    (0..n)
        .map(|it| {
            tool(
                &format!("family{}.verb_{it}", it % 20),
                "Does something with a thing.\n\nAnd says how.",
                json!({
                    "properties": {
                        "path": {"type": "string", "description": "Which file."},
                        "options": {"type": "object", "title": "Options", "properties": {
                            "depth": {"type": "integer", "default": 1},
                            "mode": {"enum": ["a", "b"]},
                        }},
                    },
                    "required": ["path"],
                }),
                Some(json!({"type": "object", "properties": {"items": {"type": "array", "items": {
                    "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
                }}}})),
            )
        })
        .collect()
}

/// Names and texts that could break out of where they stand.
fn odd_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_]{1,8}",
        ".{0,12}",
        Just("class".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("ends \\".to_owned()),
        Just("quote \"".to_owned()),
        Just("'''\n\r\u{c}\u{0}\u{85}\u{2028}".to_owned()),
        Just("\u{1}0\u{2}".to_owned()),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!({"type": "string"})),
        Just(json!({"type": ["integer", "null"]})),
        odd_text().prop_map(|it| json!({"const": it})),
        odd_text().prop_map(|it| json!({"type": "integer", "default": it, "description": it})),
        (odd_text(), any::<i64>(), any::<f64>()).prop_map(|(a, b, c)| json!({"enum": [a, b, c, null, [a], {"k": b}]})),
        odd_text().prop_map(|it| json!({"$ref": format!("#/$defs/{it}")})),
        Just(json!({"$ref": "#/$defs/self"})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = prop::collection::vec((odd_text(), inner.clone()), 0..4);
        prop_oneof![
            (fields, odd_text(), any::<bool>()).prop_map(|(fields, text, titled)| {
                let names: Vec<_> = fields.iter().take(1).map(|(name, _)| name.clone()).collect();
                let properties: serde_json::Map<_, _> = fields.into_iter().collect();
                let mut object =
                    json!({"type": "object", "properties": properties, "required": names, "description": text});
                if titled {
                    object["title"] = text.into();
                }
                object
            }),
            inner.clone().prop_map(|it| json!({"type": "array", "items": it})),
            inner.clone().prop_map(|it| json!({"type": "object", "additionalProperties": it})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|it| json!({"anyOf": it})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|it| json!({"type": "array", "prefixItems": it})),
            (odd_text(), inner.clone(), inner).prop_map(|(name, definition, mut it)| {
                let own = it.clone();
                if let Some(fields) = it.as_object_mut() {
                    fields.insert("$defs".into(), json!({name: definition, "self": own}));
                }
                it
            }),
        ]
    })
}

#[test]
fn python_reads_the_stub_of_any_tool() {
    // Many cases in one interpreter: starting one for each would take minutes.
    let tools = prop::collection::vec((odd_text(), odd_text(), schema(), schema()), 1..4);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut stubs = Vec::new();
    for _ in 0..400 {
        let case = tools.new_tree(&mut runner).unwrap().current();
        let specs: Vec<_> = case
            .into_iter()
            .map(|(name, description, parameters, output)| tool(&name, &description, parameters, Some(output)))
            .collect();
        stubs.push(render(&specs));
    }
    if let Err(err) = compile(&stubs) {
        let bad = stubs.iter().find_map(|it| compile(std::slice::from_ref(it)).err().map(|err| (it, err)));
        panic!("{err}: {bad:?}");
    }
}
