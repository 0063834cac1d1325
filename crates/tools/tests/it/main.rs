//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod bash;
mod fs;
#[cfg(test)]
mod session;
mod support;
#[cfg(test)]
mod tape;
mod web;
