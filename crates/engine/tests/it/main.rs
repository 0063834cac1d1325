//! Turns against scripted models: the tape is the assertion.

mod bench;
mod cancel;
mod commands;
mod executor;
mod hooks;
mod sessions;
mod turns;
