//! Integration tests: one binary, a module per subject.

#[cfg(test)]
mod attach;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod bridge;
#[cfg(test)]
mod component;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod features;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod process;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod run_code;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod stub;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod switching;
