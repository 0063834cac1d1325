//! Words and contracts of bub: what a tool, a tape, an environment, a model, a hook and a plugin
//! are. No I/O and no policy live here, so that a third-party plugin needs nothing else.
//!
//! Reading order: [`mod@tool`] (what can be called), [`tape`] (what is remembered), [`turn`] (one
//! message in, one answer out), then the seams around them: [`environment`], [`model`], [`code`],
//! [`steps`], [`hooks`], [`event`], [`channel`], and [`plugin`], which gathers them.

pub mod channel;
pub mod clock;
pub mod code;
pub mod environment;
pub mod error;
pub mod event;
pub mod hooks;
pub mod message;
pub mod model;
pub mod plugin;
pub mod secret;
pub mod similar;
pub mod steps;
pub mod tape;
pub mod task;
pub mod text;
pub mod tool;
pub mod turn;

/// Makes a tool of a function: `#[tool]` before `fn add` keeps the function, and puts beside it
/// `fn add_tool() -> Arc<dyn DynTool>`.
///
/// ```
/// use bub_kernel::{plugin::Registry, tool};
///
/// /// Adds two integers.
/// #[tool(name = "math.add")]
/// fn add(
///     /// The first number.
///     a: i64,
///     #[arg(default = 1)] b: i64,
/// ) -> i64 {
///     a + b
/// }
///
/// Registry::default().tool(add_tool());
/// assert_eq!(add(2, 3), 5);
/// ```
///
/// The function may be `async`, and stands outside of an `impl`. What stands in its signature makes the tool:
///
/// - its name in snake case is the tool's name, its doc comment the description,
/// - each parameter is one of the tool's, with its doc comment; the type has to be `Deserialize` and
///   `JsonSchema`. What is `Option`, or has a default, may be left out. `#[arg(default)]`,
///   `#[arg(default = 5)]`, `#[arg(name = "type")]` and `#[arg(description = "…")]` say more, and
///   attributes of `serde` and `schemars` are taken as on a field,
/// - a parameter of the type [`ToolContext`](tool::ToolContext), by reference or not, gets the context,
///   and is not shown to callers,
/// - the result has to be `Serialize` and `JsonSchema`. Of a `Result` the error goes to the caller: one
///   that is a [`ToolError`](error::ToolError), or can be made into one, as it is, and any other that
///   can be displayed as a failure of the tool.
///
/// Options: `name = "math.add"`, `description = "…"`, `exposure = "auto"` (or `"direct"`, `"code"`,
/// `"command"`), `deferred`, `renderer = |output| format!(…)` (a function or closure that gets the result
/// by reference and makes the text that the model reads), and `crate = path`, where this crate goes by
/// another name.
pub use bub_macros::tool;
