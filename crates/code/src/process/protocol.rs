//! Messages between a runner in a process and its host: JSON objects, one a line.

use bub_kernel::{
    code::CodeRequest,
    error::{ErrorKind, ToolError},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::values::{self, MAX_VALUE_BYTES, ValueError};

/// A line that the runner wrote.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FromCode {
    /// The code printed.
    Output(String),
    /// The code calls a tool.
    Call {
        /// Comes back with the answer.
        id: u64,
        /// The tool's code-facing name.
        name: String,
        /// Its arguments, by name.
        arguments: Map<String, Value>,
    },
    /// A call that lacks a name or arguments.
    MalformedCall {
        /// Comes back with the answer.
        id: Value,
        /// What stands for the name.
        name: String,
    },
    /// The code no longer waits for this call.
    Cancel {
        /// Which one.
        id: u64,
    },
    /// The code came to its end.
    Done,
    /// The code raised.
    Failed {
        /// `<Type>: <message>`.
        error: String,
        /// Frames of the code itself.
        traceback: String,
    },
    /// The interpreter is too old.
    Unsupported {
        /// Its version.
        version: String,
    },
    /// Not a message: something wrote to the pipe itself.
    Raw(String),
    /// A message of a kind that nobody here knows.
    Unknown,
}

/// Understands one line, given without its end. Any bytes will do.
#[must_use]
pub fn read(line: &[u8]) -> FromCode {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else { return raw(line) };
    let Some(Value::String(kind)) = fields.get("type") else { return raw(line) };
    match kind.as_str() {
        "output" => FromCode::Output(text(&mut fields, "data")),
        "call" => call(fields),
        "cancel" => match fields.get("id").and_then(Value::as_u64) {
            Some(id) => FromCode::Cancel { id },
            None => FromCode::Unknown,
        },
        "done" => FromCode::Done,
        "failed" => FromCode::Failed { error: text(&mut fields, "error"), traceback: text(&mut fields, "traceback") },
        "unsupported" => FromCode::Unsupported { version: text(&mut fields, "version") },
        _ => FromCode::Unknown,
    }
}

/// The first line to the runner: the code, and how much memory it may have, in bytes.
#[must_use]
pub fn start(request: CodeRequest<'_>, max_memory: Option<u64>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Run<'a> {
        r#type: &'static str,
        code: &'a str,
        filename: &'a str,
        tools: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<u64>,
    }
    let CodeRequest { code, filename, tools } = request;
    line(&Run { r#type: "run", code, filename, tools, memory: max_memory })
}

/// The answer to a call. A result that cannot pass is answered as an error.
#[must_use]
pub fn answer(id: &Value, result: Result<Value, ToolError>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        r#type: &'static str,
        id: &'a Value,
        value: Value,
    }
    let refused = match result {
        Ok(value) => match values::check_depth(&value) {
            Ok(()) => {
                let line = line(&Answer { r#type: "result", id, value });
                if line.len() <= MAX_VALUE_BYTES {
                    return line;
                }
                not_json(&ValueError::TooLarge)
            }
            Err(err) => not_json(&err),
        },
        Err(err) => err,
    };
    line(&json!({ "type": "error", "id": id, "message": refused.to_string(), "kind": refused.kind.as_str() }))
}

fn not_json(reason: &ValueError) -> ToolError {
    ToolError::new(ErrorKind::Tool, format!("tool result is not JSON serializable: {reason}"))
}

fn call(mut fields: Map<String, Value>) -> FromCode {
    let (id, name) = (fields.remove("id").unwrap_or_default(), fields.remove("name").unwrap_or_default());
    match (id.as_u64(), name, fields.remove("arguments")) {
        (Some(id), Value::String(name), Some(Value::Object(arguments))) => FromCode::Call { id, name, arguments },
        (_, Value::String(name), _) => FromCode::MalformedCall { id, name },
        (_, name, _) => FromCode::MalformedCall { id, name: name.to_string() },
    }
}

fn raw(line: &[u8]) -> FromCode {
    FromCode::Raw(String::from_utf8_lossy(line).into_owned() + "\n")
}

fn text(fields: &mut Map<String, Value>, name: &str) -> String {
    match fields.remove(name) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn line(message: &impl Serialize) -> Vec<u8> {
    // Values and texts always have a JSON form.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}
