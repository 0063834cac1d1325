//! From a typed tool to one that can be listed, looked up and called by name.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{ArgumentProblem, OutputSchema, PathStep, Tool, ToolContext, ToolSpec, schema};
use crate::{
    error::{ErrorKind, ToolError},
    message::{blocks_text, content_blocks},
};

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReply {
    /// For code. A content result is `{"type": "tool_content", "content": [blocks]}`.
    pub value: Value,
    /// For the model and for people, when it is not the value's own text or JSON.
    pub text: Option<String>,
}

impl ToolReply {
    /// A reply of text alone.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { value: Value::String(text.into()), text: None }
    }

    /// A structured reply with its own text.
    #[must_use]
    pub fn rendered(value: Value, text: impl Into<String>) -> Self {
        Self { value, text: Some(text.into()) }
    }

    /// What the model or a person reads: the tool's rendering, else a string as it is, else JSON. Of a
    /// content result it is the text, with a line for each picture, sound or film.
    #[must_use]
    pub fn rendering(&self) -> String {
        match (&self.text, content_blocks(&self.value)) {
            (Some(text), _) => text.clone(),
            (None, Some(blocks)) => blocks_text(blocks),
            (None, None) => crate::text::render(&self.value),
        }
    }
}

/// A tool whose types are known only at run time: tools of other programs, and erased [`Tool`]s.
pub trait DynTool: Send + Sync {
    /// What callers are told; may be made when it is first asked for.
    fn spec(&self) -> &Arc<ToolSpec>;
    /// The runtime name, without making the rest of the definition.
    fn name(&self) -> &str {
        &self.spec().name
    }
    /// What is wrong with arguments, beyond what their conversion to the schema of the parameters finds.
    /// The executor asks before it calls; arguments with problems are not passed on.
    fn problems(&self, _args: &Value) -> Vec<ArgumentProblem> {
        Vec::new()
    }
    /// Does the work; `args` is a JSON object that fits the schema of the parameters.
    fn call<'a>(&'a self, ctx: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>>;
}

/// What a tool can be made of: a typed [`Tool`], or one that is erased already.
pub trait IntoTool {
    /// The tool.
    fn into_tool(self) -> Arc<dyn DynTool>;
}

impl<T: Tool> IntoTool for T {
    fn into_tool(self) -> Arc<dyn DynTool> {
        erase(self)
    }
}

impl IntoTool for Arc<dyn DynTool> {
    fn into_tool(self) -> Arc<dyn DynTool> {
        self
    }
}

struct Erased<T> {
    tool: T,
    /// Made when it is first asked for: a command that calls one tool need not wait for the schemas of all.
    spec: OnceLock<Arc<ToolSpec>>,
}

/// Erases a typed tool's types. The doc comment of its arguments becomes its description.
pub fn erase<T: Tool>(tool: T) -> Arc<dyn DynTool> {
    Arc::new(Erased { tool, spec: OnceLock::new() })
}

impl ToolSpec {
    /// What is told about a typed tool.
    #[must_use]
    pub fn of<T: Tool>() -> Self {
        let (description, parameters) = schema::of_arguments::<T::Args>();
        Self {
            name: Cow::Borrowed(T::NAME),
            description,
            exposure: T::EXPOSURE,
            deferred: T::DEFERRED,
            parameters: T::parameters(parameters),
            output: Some(OutputSchema::of::<T::Output>()),
        }
    }
}

impl<T: Tool> DynTool for Erased<T> {
    fn spec(&self) -> &Arc<ToolSpec> {
        self.spec.get_or_init(|| Arc::new(ToolSpec::of::<T>()))
    }

    fn name(&self) -> &str {
        T::NAME
    }

    fn call<'a>(&'a self, ctx: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let args = serde_path_to_error::deserialize(&args)
                .map_err(|err| ToolError::arguments(T::NAME, &[problem(&err, &args)]))?;
            let output = self.tool.call(ctx, args).await?;
            let value = serde_json::to_value(&output)
                .map_err(|err| ToolError::new(ErrorKind::Tool, format!("the result is not JSON: {err}")))?;
            Ok(ToolReply { text: self.tool.render(&output), value })
        })
    }
}

/// What the type of the arguments does not take, though the schema does: a number that is too large for
/// it, say.
fn problem(err: &serde_path_to_error::Error<serde_json::Error>, args: &Value) -> ArgumentProblem {
    let mut path = Vec::new();
    let mut input = Some(args);
    for segment in err.path() {
        let step = match segment {
            Segment::Seq { index } => PathStep::Index(*index),
            Segment::Map { key } => PathStep::Key(key.clone()),
            // These stand for nothing in the JSON that one could point at.
            Segment::Enum { .. } | Segment::Unknown => continue,
        };
        input = match &step {
            PathStep::Key(key) => input.and_then(|it| it.get(key)),
            PathStep::Index(idx) => input.and_then(|it| it.get(idx)),
        };
        path.push(step);
    }
    ArgumentProblem::at("value_error", path, &err.inner().to_string(), input.cloned().unwrap_or_default())
}
