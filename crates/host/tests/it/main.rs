//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod environments;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod store;
