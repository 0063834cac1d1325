//! Tools that are described by a JSON schema, and made while the program runs.

use std::{fmt, future::Future, sync::Arc};

use bub_kernel::{
    error::ToolError,
    text,
    tool::{ArgumentProblem, DynTool, IntoTool, MAX_SHOWN_INPUT, PathStep, ToolContext, ToolReply, ToolSpec},
};
use futures::future::BoxFuture;
use jsonschema::{ValidationError, Validator, error::ValidationErrorKind, paths::LocationSegment};
use serde_json::{Map, Value, json};

/// The most bytes of one schema: it is compiled, and goes to the model in each step.
const MAX_SCHEMA_BYTES: usize = 1 << 20;
/// The most problems that are looked for in the arguments of one call.
const MAX_PROBLEMS: usize = 100;

type Handler = dyn Fn(ToolContext, Value) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;
type Renderer = dyn Fn(&Value) -> String + Send + Sync;

/// Why a tool can't be made of a schema.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It has no name that could be typed.
    #[error("'{0}' can't be the name of a tool: it is empty or has white space")]
    Name(String),
    /// The schema of the parameters is none of an object.
    #[error("tool '{tool}': the schema of its {part} is {found}, but must be of an object")]
    NoObject {
        /// Which tool.
        tool: String,
        /// Its parameters or its result.
        part: &'static str,
        /// What it is instead.
        found: String,
    },
    /// The schema is too large.
    #[error("tool '{tool}': the schema of its {part} has {bytes} bytes, more than {MAX_SCHEMA_BYTES}")]
    TooLarge {
        /// Which tool.
        tool: String,
        /// Its parameters or its result.
        part: &'static str,
        /// How large it is.
        bytes: usize,
    },
    /// The schema means nothing, or leads outside.
    #[error("tool '{tool}': the schema of its {part} is not valid: {reason}")]
    Invalid {
        /// Which tool.
        tool: String,
        /// Its parameters or its result.
        part: &'static str,
        /// Where and why.
        reason: String,
    },
}

/// A JSON schema that arguments are checked against, compiled once.
#[derive(Debug)]
pub struct ArgumentSchema(Validator);

impl ArgumentSchema {
    /// Compiles the schema of a tool's parameters. References may not lead outside of it.
    ///
    /// # Errors
    /// When it is not valid, not of an object, or too large.
    pub fn compile(tool: &str, parameters: &Value) -> Result<Self, SchemaError> {
        const PART: &str = "parameters";
        let wrong = |found: String| SchemaError::NoObject { tool: tool.to_owned(), part: PART, found };
        let Some(fields) = parameters.as_object() else { return Err(wrong(shown(parameters))) };
        if let Some(kind) = fields.get("type").filter(|it| *it != "object") {
            return Err(wrong(format!("of the type {}", shown(kind))));
        }
        compile(tool, PART, parameters).map(Self)
    }

    /// What is wrong with arguments.
    #[must_use]
    pub fn problems(&self, args: &Value) -> Vec<ArgumentProblem> {
        self.0.iter_errors(args).take(MAX_PROBLEMS).flat_map(problems).collect()
    }
}

fn compile(tool: &str, part: &'static str, schema: &Value) -> Result<Validator, SchemaError> {
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(SchemaError::TooLarge { tool: tool.to_owned(), part, bytes });
    }
    jsonschema::options().offline().build(schema).map_err(|err| {
        let place = err.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!("at {place}: ") };
        let reason = text::elide(&format!("{place}{err}"), 4 * MAX_SHOWN_INPUT).into_owned();
        SchemaError::Invalid { tool: tool.to_owned(), part, reason }
    })
}

fn shown(value: &Value) -> String {
    text::elide(&value.to_string(), MAX_SHOWN_INPUT).into_owned()
}

/// One error of the validator in the words of all argument errors; fields that should not be there are
/// told one by one.
fn problems(err: ValidationError<'_>) -> Vec<ArgumentProblem> {
    let mut path: Vec<_> = err
        .instance_path()
        .into_iter()
        .map(|it| match it {
            LocationSegment::Property(key) => PathStep::Key(key.into_owned()),
            LocationSegment::Index(idx) => PathStep::Index(idx),
        })
        .collect();
    let is_top = path.is_empty();
    let input = err.instance().clone().into_owned();
    match err.kind() {
        ValidationErrorKind::Required { property } => {
            let code = if is_top { "missing_argument" } else { "missing" };
            path.push(PathStep::Key(text::render(property)));
            vec![ArgumentProblem::at(code, path, "is required", input)]
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let (code, what) = if is_top {
                ("unexpected_keyword_argument", "is not a parameter")
            } else {
                ("extra_forbidden", "is no field of this object")
            };
            let problem = |name: &String| {
                let mut path = path.clone();
                path.push(PathStep::Key(name.clone()));
                ArgumentProblem::at(code, path, what, input.get(name).cloned().unwrap_or_default())
            };
            unexpected.iter().map(problem).collect()
        }
        kind => {
            let what = text::elide(&err.masked().to_string(), 4 * MAX_SHOWN_INPUT).into_owned();
            vec![ArgumentProblem::at(code_of(kind), path, &what, input)]
        }
    }
}

/// The words for problems that other argument errors use, too.
fn code_of(kind: &ValidationErrorKind) -> &'static str {
    match kind {
        ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => "literal_error",
        ValidationErrorKind::Maximum { .. } => "less_than_equal",
        ValidationErrorKind::Minimum { .. } => "greater_than_equal",
        ValidationErrorKind::ExclusiveMaximum { .. } => "less_than",
        ValidationErrorKind::ExclusiveMinimum { .. } => "greater_than",
        ValidationErrorKind::MultipleOf { .. } => "multiple_of",
        ValidationErrorKind::MaxLength { .. } => "string_too_long",
        ValidationErrorKind::MinLength { .. } => "string_too_short",
        ValidationErrorKind::Pattern { .. } => "string_pattern_mismatch",
        ValidationErrorKind::MaxItems { .. }
        | ValidationErrorKind::MaxProperties { .. }
        | ValidationErrorKind::AdditionalItems { .. } => "too_long",
        ValidationErrorKind::MinItems { .. } | ValidationErrorKind::MinProperties { .. } => "too_short",
        ValidationErrorKind::AnyOf { .. }
        | ValidationErrorKind::OneOfNotValid { .. }
        | ValidationErrorKind::OneOfMultipleValid { .. } => "union_error",
        ValidationErrorKind::Type { .. } => "type_error",
        _ => "value_error",
    }
}

/// A tool that is made while the program runs, of a description and a function over JSON.
///
/// The executor converts the arguments to the schema, and checks the rest of it (bounds, patterns,
/// fields that need each other), before the function is called.
///
/// ```
/// use bub_engine::SchemaTool;
/// use bub_kernel::{plugin::Registry, tool::ToolSpec};
/// use serde_json::json;
///
/// # fn main() -> Result<(), bub_engine::SchemaError> {
/// let mut spec = ToolSpec::new("dice.roll", json!({
///     "type": "object",
///     "properties": {"sides": {"type": "integer", "minimum": 2}},
///     "required": ["sides"],
/// }));
/// spec.description = "Rolls a die.".into();
/// let roll = SchemaTool::new(spec, |_ctx, args| async move { Ok(json!({"of": args["sides"], "rolled": 2})) })?;
/// Registry::default().tool(roll);
/// # Ok(())
/// # }
/// ```
pub struct SchemaTool {
    spec: Arc<ToolSpec>,
    schema: ArgumentSchema,
    handler: Box<Handler>,
    renderer: Option<Box<Renderer>>,
}

impl fmt::Debug for SchemaTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl SchemaTool {
    /// A tool that `handler` carries out: it gets the context of the call and an object that fits the
    /// parameters, and gives back what code sees.
    ///
    /// # Errors
    /// When the name is empty, or a schema is not valid or too large.
    pub fn new<F>(
        mut spec: ToolSpec,
        handler: impl Fn(ToolContext, Value) -> F + Send + Sync + 'static,
    ) -> Result<Self, SchemaError>
    where
        F: Future<Output = Result<Value, ToolError>> + Send + 'static,
    {
        if spec.name.is_empty() || spec.name.contains(char::is_whitespace) {
            return Err(SchemaError::Name(spec.name.into_owned()));
        }
        if let Some(object) = spec.parameters.as_object_mut()
            && !object.contains_key("type")
        {
            // Providers ask for it, though it goes without saying.
            let rest = std::mem::take(object);
            *object = Map::from_iter([("type".to_owned(), json!("object"))]);
            object.extend(rest);
        }
        let schema = ArgumentSchema::compile(&spec.name, &spec.parameters)?;
        if let Some(output) = &spec.output {
            compile(&spec.name, "result", output)?;
        }
        Ok(Self {
            spec: Arc::new(spec),
            schema,
            handler: Box::new(move |ctx, args| Box::pin(handler(ctx, args))),
            renderer: None,
        })
    }

    /// Sets what makes the text that the model and people read of a result, instead of its own text or
    /// JSON.
    #[must_use]
    pub fn renderer(self, renderer: impl Fn(&Value) -> String + Send + Sync + 'static) -> Self {
        Self { renderer: Some(Box::new(renderer)), ..self }
    }
}

impl DynTool for SchemaTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn problems(&self, args: &Value) -> Vec<ArgumentProblem> {
        self.schema.problems(args)
    }

    fn call<'a>(&'a self, ctx: &'a ToolContext, args: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let value = (self.handler)(ctx.clone(), args).await?;
            Ok(ToolReply { text: self.renderer.as_ref().map(|renderer| renderer(&value)), value })
        })
    }
}

impl IntoTool for SchemaTool {
    fn into_tool(self) -> Arc<dyn DynTool> {
        Arc::new(self)
    }
}
