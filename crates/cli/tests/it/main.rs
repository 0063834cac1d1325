//! The program as a person runs it: real processes, real files, a model server on loopback.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod home;
#[cfg(test)]
mod interrupts;
#[cfg(test)]
mod model;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod tapes;
#[cfg(test)]
mod together;
