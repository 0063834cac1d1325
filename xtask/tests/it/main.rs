//! The workspace's own tools: the invariants, and the scripted model of the benches.

#[cfg(test)]
mod scripted_model;
#[cfg(test)]
mod tidy;
