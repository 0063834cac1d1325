//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod functions;
#[cfg(test)]
mod schemas;
