//! The session: help, quit, model, reasoning effort.
