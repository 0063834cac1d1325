//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod deferred;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod gemini;
#[cfg(test)]
mod media;
mod settings;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod subagents;
