//! Tools made of functions: what they are called, what they are given, what they give back.

use std::{fmt, num::ParseIntError, sync::Arc};

use bub_kernel::{
    error::ToolError,
    plugin::Registry,
    tape::TapeQuery,
    tool,
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSet, prelude::*},
};
use bub_testing::{NoEnvironment, context};
use serde_json::{Value, json};

async fn call(tool: &Arc<dyn DynTool>, args: Value) -> Result<ToolReply, ToolError> {
    let ctx = context(Arc::new(NoEnvironment));
    tool.call(&ctx, args).await.map_err(|err| err.in_tool(&tool.spec().alias()))
}

async fn value(tool: &Arc<dyn DynTool>, args: Value) -> Value {
    call(tool, args).await.unwrap().value
}

async fn error(tool: &Arc<dyn DynTool>, args: Value) -> Value {
    call(tool, args).await.unwrap_err().to_value()
}

/// Adds two integers.
#[tool(name = "math.add")]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Waits a little,
/// and doubles.
///
/// - a list
/// - stays
#[tool]
async fn twice(#[arg(default = 21)] number: i64) -> i64 {
    tokio::task::yield_now().await;
    number * 2
}

#[tool]
fn silent() {}

#[tool(description = "Says what it does elsewhere.", exposure = "direct", deferred)]
fn r#loop(mut text: String, #[arg(name = "type", description = "Which sort.")] kind: Option<String>) -> String {
    text.push_str(kind.as_deref().unwrap_or("?"));
    text
}

#[tool(exposure = "command", deferred = false)]
#[expect(non_snake_case, reason = "its name becomes snake case")]
fn getThing() -> &'static str {
    "thing"
}

#[tokio::test]
async fn the_function_stays_a_function() {
    assert_eq!(add(2, 3), 5);
    assert_eq!(twice(4).await, 8);
    silent();
    assert_eq!(getThing(), "thing");
    assert_eq!(r#loop("a".into(), None), "a?");
}

#[tokio::test]
async fn names_descriptions_and_options_come_from_the_function_or_the_attribute() {
    let of = |tool: Arc<dyn DynTool>| {
        let spec = tool.spec();
        assert_eq!(tool.name(), spec.name);
        (spec.name.to_string(), spec.description.clone(), spec.exposure, spec.deferred)
    };
    let text = str::to_owned;
    assert_eq!(of(add_tool()), (text("math.add"), text("Adds two integers."), Exposure::Auto, false));
    assert_eq!(
        of(twice_tool()),
        (text("twice"), text("Waits a little, and doubles.\n\n- a list\n- stays"), Exposure::Auto, false)
    );
    assert_eq!(of(silent_tool()), (text("silent"), String::new(), Exposure::Auto, false));
    assert_eq!(of(loop_tool()), (text("loop"), text("Says what it does elsewhere."), Exposure::Direct, true));
    assert_eq!(of(get_thing_tool()), (text("get_thing"), String::new(), Exposure::Command, false));
    assert_eq!(add_tool().spec().alias(), "math_add");
    assert!(Arc::ptr_eq(&add_tool(), &add_tool()), "its schema is made once");
}

#[tokio::test]
async fn sync_and_async_functions_are_called_with_their_arguments() {
    assert_eq!(value(&add_tool(), json!({"a": 2, "b": 3})).await, 5);
    assert_eq!(value(&twice_tool(), json!({"number": 4})).await, 8);
    assert_eq!(value(&twice_tool(), json!({})).await, 42);
    assert_eq!(value(&silent_tool(), json!({})).await, Value::Null);
    assert_eq!(value(&loop_tool(), json!({"text": "a", "type": "b"})).await, "ab");
    assert_eq!(value(&loop_tool(), json!({"text": "a", "type": null})).await, "a?");
}

#[tokio::test]
async fn tools_of_functions_and_of_types_are_registered_alike() {
    struct ByHand;
    impl Tool for ByHand {
        const NAME: &'static str = "by.hand";
        type Args = Nothing;
        type Output = u8;
        async fn call(&self, _: &ToolContext, _: Nothing) -> Result<u8, ToolError> {
            Ok(1)
        }
    }
    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    let mut registry = Registry::default();
    registry.tool(add_tool()).tool(ByHand).tool(twice_tool());
    let names: Vec<_> = registry.tools.iter().map(|it| it.name().to_owned()).collect();
    assert_eq!(names, ["math.add", "by.hand", "twice"]);
}

// What stands at a context.

#[tool]
async fn remember(note: String, ctx: &ToolContext) -> Result<String, ToolError> {
    ctx.tape
        .append_event("note", json!({"text": note}))
        .await
        .map_err(|err| ToolError::raised("TapeError", err.to_string()))?;
    Ok(format!("{} notes", ctx.tape.read(&TapeQuery::default()).await.map_or(0, |it| it.len())))
}

#[tool]
fn session_of(context: bub_kernel::tool::ToolContext) -> String {
    context.session.0
}

#[tool]
fn first(ctx: &ToolContext, a: u8, b: u8) -> String {
    format!("{} {a} {b}", ctx.call)
}

#[tokio::test]
async fn a_context_is_given_wherever_it_stands_and_not_shown() {
    let ctx = context(Arc::new(NoEnvironment));
    let reply = remember_tool().call(&ctx, json!({"note": "milk"})).await.unwrap();
    assert_eq!(reply.value, "1 notes");
    let entries = ctx.tape.read(&TapeQuery::default()).await.unwrap();
    assert_eq!(entries[0].data(), Some(&json!({"text": "milk"})));
    assert_eq!(value(&session_of_tool(), json!({})).await, "s");
    assert_eq!(value(&first_tool(), json!({"a": 1, "b": 2})).await, "call-1 1 2");
    assert_eq!(session_of_tool().spec().parameters, json!({"type": "object", "properties": {}}));
    let names: Vec<_> = first_tool().spec().parameters["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["a", "b"]);
}

// Results and renderers.

#[derive(Clone, Debug, Serialize, JsonSchema, PartialEq)]
struct Order {
    id: String,
    status: &'static str,
}

fn line(order: &Order) -> String {
    format!("order {}: {}", order.id, order.status)
}

/// Looks up an order by its id.
#[tool(name = "orders.get", renderer = line)]
fn get_order(order_id: String) -> Order {
    Order { id: order_id, status: "shipped" }
}

#[tool(renderer = |orders| format!("{} orders", orders.len()))]
fn orders() -> Result<Vec<Order>, ToolError> {
    Ok(vec![get_order("A1".into())])
}

#[tokio::test]
async fn results_keep_their_structure_and_renderers_make_the_text() {
    let reply = call(&get_order_tool(), json!({"order_id": "A123"})).await.unwrap();
    assert_eq!(reply.value, json!({"id": "A123", "status": "shipped"}));
    assert_eq!(reply.rendering(), "order A123: shipped");
    let reply = call(&orders_tool(), json!({})).await.unwrap();
    assert_eq!((reply.value[0]["id"].clone(), reply.rendering()), (json!("A1"), "1 orders".into()));
    let reply = call(&add_tool(), json!({"a": 1, "b": 1})).await.unwrap();
    assert_eq!(reply.rendering(), "2", "without a renderer it is the value's own text");
}

#[tokio::test]
async fn the_schema_of_the_result_is_that_of_its_type() {
    let output = |tool: Arc<dyn DynTool>| tool.spec().output.clone().unwrap().clone();
    assert_eq!(output(add_tool())["type"], "integer");
    assert_eq!(output(silent_tool())["type"], "null");
    let order = output(get_order_tool());
    assert_eq!((&order["title"], &order["required"]), (&json!("Order"), &json!(["id", "status"])));
    let listed = output(orders_tool());
    assert_eq!(listed["items"]["$ref"], "#/$defs/Order", "of a `Result` it is what it holds: {listed:?}");
}

// Errors.

#[derive(Debug)]
struct StockError(u8);

impl fmt::Display for StockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.0)
    }
}

impl std::error::Error for StockError {}

struct Busy;

impl From<Busy> for ToolError {
    fn from(_: Busy) -> Self {
        Self::new(ErrorKind::Temporary, "busy, try again")
    }
}

mod alias {
    pub(super) type Result<T> = std::result::Result<T, super::StockError>;
}

#[tool]
fn judged_in_full() -> Result<u8, ToolError> {
    Err(ToolError::not_found("no such order"))
}
#[tool]
fn converted() -> Result<u8, Busy> {
    Err(Busy)
}
#[tool]
fn own(n: u8) -> Result<u8, StockError> {
    if n == 0 { Err(StockError(3)) } else { Ok(n) }
}
#[tool]
fn of_alias() -> alias::Result<u8> {
    Err(StockError(1))
}
#[tool]
async fn of_std(text: String) -> Result<i64, ParseIntError> {
    text.parse()
}
#[tool]
fn boxed() -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    Err("it's broken".into())
}
#[tool]
fn text() -> Result<u8, String> {
    Err("no".into())
}

fn failed(name: &str, error: &str) -> Value {
    json!({"kind": "tool", "message": format!("Tool '{name}' execution failed."), "details": {"error": error}})
}

#[tokio::test]
async fn tool_errors_are_told_as_they_are_and_others_as_failures_of_the_tool() {
    for (tool, args, expected) in [
        (judged_in_full_tool(), json!({}), json!({"kind": "not_found", "message": "no such order"})),
        (converted_tool(), json!({}), json!({"kind": "temporary", "message": "busy, try again"})),
        (own_tool(), json!({"n": 0}), failed("own", "StockError('only 3 left')")),
        (of_alias_tool(), json!({}), failed("of_alias", "StockError('only 1 left')")),
        (of_std_tool(), json!({"text": "x"}), failed("of_std", "ParseIntError('invalid digit found in string')")),
        (boxed_tool(), json!({}), failed("boxed", "Error('it's broken')")),
        (text_tool(), json!({}), failed("text", "Error('no')")),
    ] {
        assert_eq!(error(&tool, args).await, expected);
    }
    assert_eq!(value(&own_tool(), json!({"n": 2})).await, 2);
    assert_eq!(value(&of_std_tool(), json!({"text": "-7"})).await, -7);
}

#[tokio::test]
async fn what_a_type_does_not_take_is_told_like_other_wrong_arguments() {
    let err = error(&own_tool(), json!({"n": 300})).await;
    assert_eq!(err["message"], "Tool 'own' argument validation failed.");
    assert_eq!(
        err["details"]["errors"],
        json!([{
            "type": "value_error",
            "loc": ["n"],
            "msg": "'n': invalid value: integer `300`, expected u8",
            "input": 300,
        }])
    );
}

#[test]
fn re_registering_takes_the_place_of_the_old_tool() {
    #[tool(name = "math.add")]
    fn add_again(a: i64) -> i64 {
        a
    }
    let mut tools = ToolSet::default();
    for tool in [add_tool(), twice_tool(), add_again_tool()] {
        tools.insert(tool);
    }
    let names: Vec<_> = tools.iter().map(|it| it.name().to_owned()).collect();
    assert_eq!(names, ["math.add", "twice"]);
    assert!(Arc::ptr_eq(tools.get("math.add").unwrap(), &add_again_tool()));
}

#[test]
fn a_real_name_wins_over_the_alias_of_another_tool() {
    #[tool(name = "math_add")]
    fn underscored() {}
    for order in [[add_tool(), underscored_tool()], [underscored_tool(), add_tool()]] {
        let mut tools = ToolSet::default();
        for tool in order {
            tools.insert(tool);
        }
        assert_eq!(tools.find(" MATH_ADD ").unwrap().name(), "math_add");
        assert_eq!(tools.find("math.add").unwrap().name(), "math.add");
    }
    let mut alone = ToolSet::default();
    alone.insert(add_tool());
    assert_eq!(alone.find("math_add").unwrap().name(), "math.add");
    assert_eq!(alone.resolve_names(&["b", "math_add", "a"]), Err("unknown tool name(s): 'a', 'b'".to_owned()));
}
