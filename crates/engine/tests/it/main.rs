//! Turns against scripted models: the tape is the assertion.

#[cfg(test)]
mod bench;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod executor;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod nested;
#[cfg(test)]
mod overflow;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod schema_tools;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod turns;
