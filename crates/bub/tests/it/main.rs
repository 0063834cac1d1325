//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod agent_code;
#[cfg(test)]
mod agent_events;
#[cfg(test)]
mod agent_steps;
#[cfg(test)]
mod application;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod context;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod deferred;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod events;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod gemini;
#[cfg(test)]
mod media;
#[cfg(test)]
mod reference;
mod settings;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod subagents;
