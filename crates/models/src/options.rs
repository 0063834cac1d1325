//! What the requests of all wires have in common.

use bub_kernel::model::{ModelError, ProviderTool};
use serde::{Serialize, Serializer, de::IgnoredAny, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::wire::Wire;

/// A number for a request.
///
/// # Errors
/// When it is none.
pub(crate) fn finite(name: &str, value: Option<f64>) -> Result<Option<Value>, ModelError> {
    match value {
        Some(it) if !it.is_finite() => Err(ModelError::Unsupported(format!("{name} must be a number, not {it}"))),
        other => Ok(other.map(Value::from)),
    }
}

/// Lays `more` over `fields`, objects into objects.
pub(crate) fn merge(fields: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (fields.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                fields.insert(key, value);
            }
        }
    }
}

/// A request's body: the options, the tools, and last the conversation, under the wire's name for it. What
/// `extra_body` has put among the options stands for the tools or the conversation.
pub(crate) struct Body<T, M> {
    pub(crate) options: Map<String, Value>,
    pub(crate) tools: Vec<T>,
    pub(crate) conversation: (&'static str, Vec<M>),
}

impl<T: Serialize, M: Serialize> Serialize for Body<T, M> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (key, value) in &self.options {
            map.serialize_entry(key, value)?;
        }
        if !self.tools.is_empty() && !self.options.contains_key("tools") {
            map.serialize_entry("tools", &self.tools)?;
        }
        let (name, entries) = &self.conversation;
        if !self.options.contains_key(*name) {
            map.serialize_entry(name, entries)?;
        }
        map.end()
    }
}

/// Arguments as they came, or an empty object for what is none: some servers read the arguments of
/// earlier calls and refuse the whole request when they are broken.
pub(crate) fn object_text(arguments: &str) -> &str {
    let is_object = arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok();
    if is_object { arguments } else { "{}" }
}

/// The error for a provider's tool that a wire does not know.
pub(crate) fn unsupported(wire: Wire, tool: &ProviderTool) -> ModelError {
    let name = match tool {
        ProviderTool::WebSearch => "web search",
        ProviderTool::WebFetch => "web fetch",
        ProviderTool::CodeExecution => "code execution",
        ProviderTool::ImageGeneration => "image generation",
        ProviderTool::Native { api_format, .. } => {
            return ModelError::Unsupported(format!(
                "a native tool of api_format '{api_format}' cannot be offered by '{wire}'"
            ));
        }
    };
    refused(wire, &format!("the provider's {name}"))
}

/// The error for an option that a wire does not know.
pub(crate) fn refused(wire: Wire, what: &str) -> ModelError {
    ModelError::Unsupported(format!("api_format '{wire}' knows no {what}; leave it out, or use another model"))
}
