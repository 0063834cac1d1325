//! A conversation in the terminal: lines in, turns out.

mod channel;
mod completion;
mod editor;
mod feed;
mod history;
mod lines;
mod screen;
mod talk;

pub(crate) use channel::{ChatChannel, ChatSetup};
pub(crate) use talk::Outcome;
