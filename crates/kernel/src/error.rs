//! The one error that crosses to the model and to the tape.

use std::{any::Any, error::Error, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Stable kinds; their names stand on tapes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Arguments were wrong.
    InvalidInput,
    /// Settings were wrong.
    Config,
    /// The model provider failed.
    Provider,
    /// A tool failed.
    Tool,
    /// Trying again may help.
    Temporary,
    /// Nothing by that name.
    NotFound,
    /// Anything else.
    Unknown,
}

impl ErrorKind {
    /// The kind's name on tapes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::Config => "config",
            Self::Provider => "provider",
            Self::Tool => "tool",
            Self::Temporary => "temporary",
            Self::NotFound => "not_found",
            Self::Unknown => "unknown",
        }
    }
}

/// What the model reads when a tool fails.
///
/// There are two sorts. A *judged* error (made by [`ToolError::new`], [`ToolError::invalid`], …)
/// already has its kind and sentence, and reaches the model as it is. A *raised* one (made by
/// [`ToolError::raised`]) is what an exception is in Python: only the executor knows the name of the
/// tool, so it wraps it by [`ToolError::in_tool`].
#[derive(Debug)]
pub struct ToolError {
    /// Stable kind.
    pub kind: ErrorKind,
    /// One sentence for the model.
    pub message: String,
    /// Structured details for the model; left out when empty.
    pub details: Map<String, Value>,
    /// `Some(type name)` while the error has not been wrapped by the executor.
    raised: Option<&'static str>,
    /// The cause's own text, kept for people after wrapping.
    cause: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ToolError {
    /// A judged error of any kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: Map::new(), raised: None, cause: None, source: None }
    }

    /// Wrong arguments.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Nothing by that name.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A failure of the tool's own work. `type_name` is the name of the error as models know it
    /// (`RuntimeError`, `FileNotFoundError`, …).
    #[must_use]
    pub fn raised(type_name: &'static str, message: impl Into<String>) -> Self {
        Self { raised: Some(type_name), ..Self::new(ErrorKind::Tool, message) }
    }

    /// Adds one detail.
    #[must_use]
    pub fn with_detail(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }

    /// Keeps a text for people, who read it instead of the message.
    #[must_use]
    pub fn with_cause(mut self, text: impl Into<String>) -> Self {
        self.cause = Some(text.into());
        self
    }

    /// Keeps the cause for operators; it is never shown to the model.
    #[must_use]
    pub fn with_source(mut self, err: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(err.into());
        self
    }

    /// Wraps a raised error with the name of the tool that failed; a judged one is returned as is.
    ///
    /// The wrapped form is `{"kind": "tool", "message": "Tool 'x' execution failed.", "details":
    /// {"error": "Type('message')", …}}`.
    #[must_use]
    pub fn in_tool(mut self, tool: &str) -> Self {
        let Some(type_name) = self.raised.take() else { return self };
        let mut details = Map::new();
        details.insert("error".into(), format!("{type_name}('{}')", self.message).into());
        details.append(&mut self.details);
        Self {
            cause: Some(std::mem::take(&mut self.message)),
            message: format!("Tool '{tool}' execution failed."),
            details,
            ..self
        }
    }

    /// The text that a person should read: the cause's own words when there is a cause.
    #[must_use]
    pub fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or(&self.message)
    }

    /// The JSON object that is the result of the failed call.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("kind".into(), self.kind.as_str().into());
        object.insert("message".into(), self.message.clone().into());
        if !self.details.is_empty() {
            object.insert("details".into(), self.details.clone().into());
        }
        Value::Object(object)
    }

    /// Applies `change` to every text that the model or a person may read (used to mask secrets).
    pub fn map_texts(&mut self, mut change: impl FnMut(&mut String)) {
        change(&mut self.message);
        if let Some(cause) = &mut self.cause {
            change(cause);
        }
        for value in self.details.values_mut() {
            crate::text::map_strings(value, &mut change);
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.kind.as_str(), self.message)
    }
}

impl Error for ToolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|err| err as _)
    }
}

/// What a panic said, if it said something in words.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_errors_are_wrapped_once_and_keep_their_cause() {
        let err = ToolError::raised("KeyError", "unknown shell id: x").in_tool("bash.kill").in_tool("again");
        assert_eq!(err.to_string(), "[tool] Tool 'bash.kill' execution failed.");
        assert_eq!(err.cause(), "unknown shell id: x");
        assert_eq!(
            err.to_value().to_string(),
            r#"{"kind":"tool","message":"Tool 'bash.kill' execution failed.","details":{"error":"KeyError('unknown shell id: x')"}}"#
        );
        let judged = ToolError::invalid("no").in_tool("x");
        assert_eq!(judged.to_value().to_string(), r#"{"kind":"invalid_input","message":"no"}"#);
    }
}
