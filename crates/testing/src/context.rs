//! A context to call tools in, without an engine.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bub_kernel::{
    clock::FixedClock,
    environment::{EnvPath, Environment, EnvironmentError, OpenFile, Process, SpawnRequest},
    error::ToolError,
    event::EventBus,
    tape::{MemoryStore, Tape, TapeName},
    task::TaskScope,
    tool::{Caller, PartialResult, Tool, ToolContext, ToolReply, ToolSet, erase},
    turn::{EventSink, Host, Inbound, Prompt, RunId, SessionId, TurnError, TurnRequest, TurnResult, TurnState},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A context over `env`: an empty tape in memory, session `s`, a model as the caller.
#[must_use]
pub fn context(env: Arc<dyn Environment>) -> ToolContext {
    let session = SessionId("s".into());
    let mut state = TurnState::default();
    state.session = Some(session.clone());
    state.local = true;
    let tape = Tape::new(
        TapeName::session("/workspace", &session.0),
        Arc::new(MemoryStore::default()),
        Arc::new(FixedClock::default()),
    );
    ToolContext {
        tape,
        env,
        caller: Caller::Model,
        call: "call-1".into(),
        cancel: CancellationToken::new(),
        events: Arc::new(EventBus::default()),
        sink: EventSink::discard(),
        tasks: TaskScope::default(),
        state: Arc::new(state),
        session,
        run: RunId("run-test".into()),
        tools: Arc::new(ToolSet::default()),
        step: None,
        partial: PartialResult::default(),
        host: Arc::new(TestHost::default()),
    }
}

/// Calls a tool as the executor would, with arguments that already fit its schema.
///
/// # Errors
/// The tool's own, wrapped with its name.
pub async fn try_call<T: Tool>(tool: T, ctx: &ToolContext, args: Value) -> Result<ToolReply, ToolError> {
    let tool = erase(tool);
    tool.call(ctx, args).await.map_err(|err| err.in_tool(&tool.spec().name))
}

/// What the model reads of a call: the rendered result, or the error object.
pub async fn call<T: Tool>(tool: T, ctx: &ToolContext, args: Value) -> String {
    text_of(try_call(tool, ctx, args).await)
}

/// What the model reads of a result.
#[must_use]
pub fn text_of(result: Result<ToolReply, ToolError>) -> String {
    match result {
        Ok(reply) => reply.rendering(),
        Err(err) => bub_kernel::text::json(&err.to_value()),
    }
}

/// A host that calls tools of the context's own set, and notes who was told to quit.
#[derive(Debug, Default)]
pub struct TestHost {
    quits: Mutex<Vec<SessionId>>,
}

impl TestHost {
    /// Sessions that were told to quit.
    #[must_use]
    pub fn quits(&self) -> Vec<SessionId> {
        self.quits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Host for TestHost {
    async fn call_tool(&self, ctx: &ToolContext, name: &str, args: Value) -> Result<ToolReply, ToolError> {
        // Code reaches the tools of its step, everybody else all of them.
        let of_step = ctx.step.as_ref().filter(|_| ctx.caller == Caller::Code);
        let tool = match of_step {
            Some(step) => step.code.iter().find(|it| it.spec().alias() == name),
            None => ctx.tools.find(name),
        };
        match tool {
            Some(tool) => tool.call(ctx, args).await.map_err(|err| err.in_tool(name)),
            None => Err(ToolError::not_found(format!("Unknown tool name: {name}."))),
        }
    }

    async fn run_turn(&self, _ctx: &ToolContext, _request: TurnRequest) -> Result<TurnResult, TurnError> {
        Err(TurnError::Invalid("this test host runs no turns".into()))
    }

    async fn quit(&self, ctx: &ToolContext) {
        self.quits.lock().unwrap_or_else(PoisonError::into_inner).push(ctx.session.clone());
    }

    fn command_prefix(&self) -> Option<&str> {
        Some(",")
    }
}

/// An environment without workspace, files or processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEnvironment;

#[async_trait]
impl Environment for NoEnvironment {
    fn workspace(&self) -> Option<&EnvPath> {
        None
    }

    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        if path.starts_with('/') { Ok(EnvPath::new(path)) } else { Err(EnvironmentError::NoWorkspace(path.to_owned())) }
    }

    async fn spawn(&self, _request: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        Err(EnvironmentError::NoShell("nothing, in a test".into()))
    }

    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        Err(EnvironmentError::NotFound(path.clone()))
    }

    async fn write(&self, path: &EnvPath, _content: &[u8]) -> Result<(), EnvironmentError> {
        Err(EnvironmentError::NotFound(path.clone()))
    }
}

/// What a person says in the session `s` of the terminal.
#[must_use]
pub fn inbound(text: &str) -> Inbound {
    Inbound {
        session: Some(SessionId("s".into())),
        local: true,
        ..Inbound::new("cli", "local", Prompt::Text(text.into()))
    }
}
