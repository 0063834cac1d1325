//! Batteries and SDK: everything that the `bub` program is, without its terminal.
//!
//! [`Builder`] puts settings, the built-in tools, the model providers and one's own plugins together
//! into an [`App`], whose [`Runtime`] runs turns.

mod app;
mod defaults;
mod images;
mod locks;
mod model_settings;
pub mod settings;
pub mod skills;

pub use app::{App, BuildError, Builder};
pub use bub_code as code;
pub use bub_engine as engine;
pub use bub_engine::{Runtime, TurnOptions, TurnStream};
pub use bub_host as host;
pub use bub_kernel as kernel;
pub use bub_models as models;
pub use defaults::DefaultHooks;
