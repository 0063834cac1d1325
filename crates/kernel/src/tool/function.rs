//! What the attribute `tool` writes calls. No part of the interface: it changes with the attribute.

use std::fmt::Display;

pub use schemars::{self, JsonSchema};
pub use serde::{self, Deserialize};

use crate::error::ToolError;

/// How a function may fail.
pub trait Fallible {
    /// What it gives back when it does not.
    type Output;
}

impl<T, E> Fallible for Result<T, E> {
    type Output = T;
}

/// The error of a function. It has `into_tool_error` by one of two traits: an error that says itself
/// what the model reads is asked by value, and any other by reference, which the compiler tries second.
#[derive(Debug)]
pub struct Failure<E>(pub E);

/// The two traits, imported together.
pub mod errors {
    use super::{Failure, ToolError, raised};
    use std::fmt::Display;

    /// Errors that say themselves what the model reads.
    pub trait IntoKnownError {
        /// The error as it is.
        fn into_tool_error(self) -> ToolError;
    }

    impl<E: Into<ToolError>> IntoKnownError for Failure<E> {
        fn into_tool_error(self) -> ToolError {
            self.0.into()
        }
    }

    /// All other errors.
    pub trait IntoOtherError {
        /// A failure of the tool's own work.
        fn into_tool_error(self) -> ToolError;
    }

    impl<E: Display> IntoOtherError for &Failure<E> {
        fn into_tool_error(self) -> ToolError {
            raised(&self.0)
        }
    }
}

fn raised<E: Display>(err: &E) -> ToolError {
    // Errors that carry their causes tell them this way; for others it makes no difference.
    ToolError::raised(error_name(std::any::type_name::<E>()), format!("{err:#}"))
}

/// A type's name without its path. What is no type of error of its own is called `Error`.
fn error_name(path: &'static str) -> &'static str {
    let path = path.trim_start_matches('&');
    let outer = path.split('<').next().unwrap_or(path);
    match outer.rsplit("::").next().unwrap_or(outer) {
        "Box" | "Arc" | "Rc" | "String" | "str" | "Cow" | "" => "Error",
        name if name.starts_with(|it: char| it.is_ascii_lowercase() || !it.is_alphabetic()) => "Error",
        name => name,
    }
}

/// What a renderer makes of a result. It fixes the type of the renderer's parameter, so that a closure
/// need not name it.
pub fn rendered<T, R: Into<String>>(output: &T, renderer: impl FnOnce(&T) -> R) -> Option<String> {
    Some(renderer(output).into())
}

#[cfg(test)]
mod tests {
    use super::error_name;

    #[test]
    fn errors_are_named_as_their_type_or_just_error() {
        for (path, expected) in [
            ("std::io::error::Error", "Error"),
            ("core::num::error::ParseIntError", "ParseIntError"),
            ("my::StoreError<alloc::string::String>", "StoreError"),
            ("alloc::boxed::Box<dyn core::error::Error + core::marker::Send>", "Error"),
            ("alloc::string::String", "Error"),
            ("&str", "Error"),
            ("&'static str", "Error"),
            ("u8", "Error"),
            ("()", "Error"),
            ("anyhow::Error", "Error"),
        ] {
            assert_eq!(error_name(path), expected, "{path}");
        }
    }
}
