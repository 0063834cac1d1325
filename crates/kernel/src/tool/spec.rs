//! What is told about a tool.

use std::{borrow::Cow, fmt, ops::Deref, str::FromStr, sync::OnceLock};

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::error::ToolError;

/// From where a tool may be called.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Exposure {
    /// By the model; in code mode by its code instead.
    #[default]
    Auto,
    /// By the model, in code mode too.
    Direct,
    /// By the model's code only.
    Code,
    /// By people only.
    Command,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Code => "code",
            Self::Command => "command",
        })
    }
}

impl FromStr for Exposure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Direct, Self::Code, Self::Command]
            .into_iter()
            .find(|it| it.to_string() == text)
            .ok_or_else(|| format!("unknown exposure '{text}': expected auto, direct, code or command"))
    }
}

/// What a caller is told about a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Runtime name, as commands use it.
    pub name: Cow<'static, str>,
    /// What it does, for the model.
    pub description: String,
    /// From where it may be called.
    pub exposure: Exposure,
    /// Whether its definition is loaded on demand.
    pub deferred: bool,
    /// JSON schema of its arguments, an object.
    pub parameters: Value,
    /// JSON schema of its structured result.
    pub output: Option<OutputSchema>,
}

/// The JSON schema of a result. Only code needs it, so that of a typed tool is made when it is looked at.
#[derive(Clone)]
pub struct OutputSchema {
    made: OnceLock<Value>,
    make: fn() -> Value,
}

impl OutputSchema {
    /// The schema of a type.
    #[must_use]
    pub fn of<T: JsonSchema>() -> Self {
        Self { made: OnceLock::new(), make: || schema_for!(T).to_value() }
    }
}

impl From<Value> for OutputSchema {
    fn from(schema: Value) -> Self {
        Self { made: OnceLock::from(schema), make: || Value::Null }
    }
}

impl Deref for OutputSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.made.get_or_init(self.make)
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl ToolSpec {
    /// A tool of this name and these parameters, without description, for the model and for code.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            exposure: Exposure::Auto,
            deferred: false,
            parameters,
            output: None,
        }
    }

    /// The name that the model and its code see.
    #[must_use]
    pub fn alias(&self) -> String {
        self.name.replace('.', "_")
    }

    /// The first sentence of the description, without its period.
    #[must_use]
    pub fn summary(&self) -> &str {
        let line = self.description.lines().next().unwrap_or_default();
        line.split_once(". ").map_or(line, |(first, _)| first).trim_end_matches('.')
    }

    /// The definition as `tool.describe` shows it.
    #[must_use]
    pub fn to_schema(&self) -> Value {
        json!({"name": self.alias(), "description": self.description, "parameters": self.parameters})
    }

    /// Checks what only run time can know about a tool that was not written in Rust.
    ///
    /// # Errors
    /// `invalid_input` when the name is empty or the parameters are no object schema.
    pub fn check(&self) -> Result<(), ToolError> {
        if self.name.trim().is_empty() {
            return Err(ToolError::invalid("a tool needs a name"));
        }
        if !self.parameters.is_object() {
            return Err(ToolError::invalid(format!("tool '{}': its parameters are no JSON schema", self.name)));
        }
        Ok(())
    }
}
