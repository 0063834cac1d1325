//! A turn of another agent, started by a tool call.

use std::sync::Arc;

use bub_kernel::{
    message::Part,
    model::ModelError,
    tool::{PartialResult, prelude::*, schema},
    turn::{Prompt, SessionId, TurnError, TurnRequest, TurnResult},
};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};

/// The most subagents of one runtime that run at once.
const MAX_RUNNING: usize = 256;

/// What is read when a subagent said nothing.
const NO_ANSWER: &str = "(no answer)";

/// Hand a task to a subagent: another run of this agent with a conversation of its own, which works on its own and returns its answer. It knows nothing of this conversation, so the prompt must hold everything that it needs. Several calls in one step run side by side. It uses the same workspace, files and processes.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SubAgentArgs {
    /// What the subagent is asked: text, or a list of content blocks such as {"type": "text", "text": "..."} and {"type": "image", "media_type": "image/png", "url": "..."}.
    prompt: SubAgentPrompt,
    /// The model to ask, as provider:model; the current one by default.
    #[serde(default)]
    model: Option<String>,
    /// Its session: "temp" for one that is thrown away, "inherit" for the current one, or the id of a session that can be continued later.
    #[serde(default = "temporary")]
    session: String,
    /// Names of the tools that it may use; by default all of the current ones. A subagent can't start others.
    #[serde(default)]
    allowed_tools: Option<Vec<String>>,
    /// Names of the skills that it may use; by default all of the current ones, with an empty list none.
    #[serde(default)]
    allowed_skills: Option<Vec<String>>,
}

fn temporary() -> String {
    TEMPORARY.to_owned()
}

const TEMPORARY: &str = "temp";
const INHERIT: &str = "inherit";

/// What a subagent is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SubAgentPrompt {
    /// One text.
    Text(String),
    /// Text and media, in order.
    Blocks(Vec<Map<String, Value>>),
}

/// What came of a subagent.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct SubAgentResult {
    /// Its session.
    session_id: String,
    /// All that it said.
    output: String,
    /// What went wrong on its way.
    errors: Vec<String>,
}

/// The tool `subagent`.
#[derive(Clone, Debug)]
pub struct SubAgent {
    running: Arc<Semaphore>,
}

impl Default for SubAgent {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(MAX_RUNNING)) }
    }
}

impl Tool for SubAgent {
    const NAME: &'static str = "subagent";
    type Args = SubAgentArgs;
    type Output = SubAgentResult;

    fn parameters(mut derived: Value) -> Value {
        let forms = derived.pointer_mut("/properties/prompt/anyOf").and_then(Value::as_array_mut);
        for form in forms.into_iter().flatten().filter_map(Value::as_object_mut) {
            // The parameter's own description says it all.
            form.remove("description");
        }
        schema::titled(derived, "SubAgentInput")
    }

    async fn call(&self, ctx: &ToolContext, args: SubAgentArgs) -> Result<SubAgentResult, ToolError> {
        if !ctx.state.allows_tool(Self::NAME) {
            return Err(ToolError::invalid("a subagent can't start subagents"));
        }
        let request = request(ctx, args)?;
        let running = self.running.clone().try_acquire_owned().map_err(|_| {
            ToolError::new(
                ErrorKind::Temporary,
                format!("{MAX_RUNNING} subagents are running already: wait for some of them to end"),
            )
        })?;
        let session = request.session.to_string();
        let mut child = ctx.clone();
        child.cancel = ctx.cancel.child_token();
        child.partial = PartialResult::default();
        // When this call is dropped the subagent is told to stop, and it is left the time to record that.
        let _stop = child.cancel.clone().drop_guard();
        let (tx, rx) = oneshot::channel();
        ctx.tasks.spawn_to_end(async move {
            let host = child.host.clone();
            let done = host.run_turn(&child, request).await;
            drop(running);
            // Nobody waiting any more is no failure.
            drop(tx.send(done));
        });
        match rx.await {
            Ok(Ok(TurnResult { text, errors, .. })) => Ok(SubAgentResult { session_id: session, output: text, errors }),
            Ok(Err(err)) => Err(failed(err)),
            Err(_) => Err(ToolError::raised("RuntimeError", "the subagent ended without a result")),
        }
    }

    fn render(&self, result: &SubAgentResult) -> Option<String> {
        if result.output.trim().is_empty() && result.errors.is_empty() {
            return Some(NO_ANSWER.to_owned());
        }
        let errors: String = result.errors.iter().map(|it| format!("[Error: {it}]")).collect();
        Some(format!("{}{errors}", result.output))
    }
}

/// What the engine is asked for. Everything that is wrong with it is told before any model is called.
fn request(ctx: &ToolContext, args: SubAgentArgs) -> Result<TurnRequest, ToolError> {
    let session = match args.session.trim() {
        "" => return Err(ToolError::invalid("'session' must be temp, inherit or the id of a session")),
        TEMPORARY => {
            let id: String = uuid::Uuid::new_v4().simple().to_string().chars().take(8).collect();
            SessionId(format!("temp/{id}"))
        }
        INHERIT => ctx.session.clone(),
        named => SessionId(named.to_owned()),
    };
    let prompt = prompt(args.prompt)?;
    if prompt.is_empty() {
        return Err(ToolError::invalid("'prompt' must not be empty"));
    }
    Ok(TurnRequest {
        session,
        prompt,
        model: args.model.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()),
        reasoning_effort: None,
        allowed_tools: Some(tools(ctx, args.allowed_tools.unwrap_or_default())?),
        allowed_skills: skills(ctx, args.allowed_skills),
    })
}

fn prompt(prompt: SubAgentPrompt) -> Result<Prompt, ToolError> {
    let blocks = match prompt {
        SubAgentPrompt::Text(text) => return Ok(Prompt::Text(text)),
        SubAgentPrompt::Blocks(blocks) => blocks,
    };
    let mut parts = Vec::new();
    for (idx, block) in blocks.into_iter().enumerate() {
        let wrong = |what: &str| ToolError::invalid(format!("'prompt': block {idx}: {what}"));
        let block = Value::Object(block);
        match Part::from_block(&block) {
            Ok(part @ (Part::Text(_) | Part::Media(_))) => parts.push(part),
            Ok(_) => return Err(wrong("only text, image, audio and video are taken")),
            Err(err) => return Err(wrong(&err.message)),
        }
    }
    Ok(Prompt::Parts(parts))
}

/// The runtime names of the tools that the subagent may use: those named, or all, of those that this turn
/// may use; never the one that starts subagents.
fn tools(ctx: &ToolContext, named: Vec<String>) -> Result<Vec<String>, ToolError> {
    let mut names = if named.is_empty() {
        let all = ctx.tools.iter().map(|it| it.name().to_owned());
        all.filter(|it| ctx.state.allows_tool(it)).collect()
    } else {
        ctx.tools.resolve_names(&named).map_err(|err| ToolError::raised("ValueError", err))?
    };
    let beyond: Vec<_> = names.iter().filter(|it| !ctx.state.allows_tool(it)).map(|it| format!("'{it}'")).collect();
    if !beyond.is_empty() {
        let text = format!("tools that this turn may not use itself: {}", beyond.join(", "));
        return Err(ToolError::raised("ValueError", text));
    }
    names.retain(|it| it != SubAgent::NAME);
    names.sort();
    Ok(names)
}

/// The skills that the subagent may use: those named, of those that this turn may use.
fn skills(ctx: &ToolContext, named: Option<Vec<String>>) -> Option<Vec<String>> {
    let named = named.map(|names| names.iter().map(|it| it.trim().to_lowercase()).collect::<Vec<_>>());
    match (named, &ctx.state.allowed_skills) {
        (Some(names), Some(allowed)) => Some(names.into_iter().filter(|it| allowed.contains(it)).collect()),
        (named, _) => named,
    }
}

/// What the caller reads when the subagent did not come to an end.
fn failed(err: TurnError) -> ToolError {
    let kind = if matches!(err, TurnError::Model(ModelError::Config(_))) { "ValueError" } else { "RuntimeError" };
    let text = match &err {
        TurnError::Cancelled => "the subagent was cancelled".to_owned(),
        TurnError::StepsExhausted { max } => format!("the subagent reached its limit of {max} steps: {err}"),
        _ => err.to_string(),
    };
    ToolError::raised(kind, text).with_source(err)
}
