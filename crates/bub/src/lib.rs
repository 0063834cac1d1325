//! Batteries and SDK: everything that the `bub` program is, without its terminal.
//!
//! There are two ways in. [`Agent`] is for a program that wants an agent inside: a model, tools, tapes,
//! and nothing that was not given to it. [`Builder`] makes the application: it puts settings, the
//! built-in tools, the model providers and one's own plugins together into an [`App`], whose sessions,
//! commands and files are those of the `bub` program. Both are one [`Runtime`].

pub mod agent;
mod app;
mod context;
mod defaults;
mod exec;
mod images;
mod locks;
mod model_settings;
pub mod settings;
pub mod skills;
mod summary;
mod windows;

pub use agent::{Agent, AgentBuilder, AgentError, Run};
pub use app::{App, BuildError, Builder};
pub use bub_code as code;
pub use bub_engine as engine;
pub use bub_engine::{Runtime, TurnOptions, TurnStream};
pub use bub_host as host;
pub use bub_kernel as kernel;
/// Makes a tool of a function, as [`bub_kernel::tool`](macro@bub_kernel::tool) does for plugins: `fn add`
/// stays, and beside it stands `fn add_tool() -> Arc<dyn DynTool>`.
///
/// ```
/// use bub::{kernel::plugin::Registry, tool};
///
/// /// Adds two integers.
/// #[tool(name = "math.add")]
/// fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// Registry::default().tool(add_tool());
/// ```
pub use bub_macros::tool_of_bub as tool;
pub use bub_models as models;
pub use bub_tools as tools;
pub use defaults::DefaultHooks;
pub use model_settings::providers as model_providers;

// The examples of the guide are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/writing-tools.md")]
struct WritingTools;
