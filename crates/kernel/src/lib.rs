//! Words and contracts of bub: what a tool, a tape, an environment, a model, a hook and a plugin
//! are. No I/O and no policy live here, so that a third-party plugin needs nothing else.
//!
//! Reading order: [`tool`] (what can be called), [`tape`] (what is remembered), [`turn`] (one
//! message in, one answer out), then the seams around them: [`environment`], [`model`], [`code`],
//! [`hooks`], [`event`], [`channel`], and [`plugin`], which gathers them.

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
pub mod tape;
pub mod task;
pub mod text;
pub mod tool;
pub mod turn;
