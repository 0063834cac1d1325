//! The program as a person runs it: real processes, real files, a model server on loopback.

mod commands;
mod home;
mod interrupts;
mod model;
mod settings;
mod tapes;
mod together;
