//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod bash;
#[cfg(test)]
mod fs;
#[cfg(test)]
mod session;
#[cfg(test)]
mod spill;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tape;
#[cfg(test)]
mod web;
