//! The program as a person runs it: real processes, real files, a model server on loopback.

#[cfg(test)]
mod chat;
#[cfg(test)]
mod code;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod home;
#[cfg(test)]
mod interrupts;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod model;
#[cfg(test)]
mod models;
#[cfg(test)]
mod pty;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod spill;
#[cfg(test)]
mod subagents;
#[cfg(test)]
mod tapes;
#[cfg(test)]
mod tapes_changed;
#[cfg(test)]
mod tapes_shown;
#[cfg(test)]
mod together;
