//! The workspace's own tools: the invariants, and the scripted model of the benches.

mod scripted_model;
mod tidy;
