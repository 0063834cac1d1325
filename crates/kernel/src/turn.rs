//! One message in, one answer out.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::{
    environment::Environment,
    error::{ErrorKind, ToolError},
    message::{Media, Message, Part, Role, TokenUsage, ToolCallRequest, content_of},
    model::{Citation, ModelClient, ModelError, ModelOptions, ModelSpec},
    secret::SecretMask,
    tape::TapeError,
    tool::{ToolContext, ToolReply},
};

/// Which session.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub String);

impl SessionId {
    /// Whether the session is thrown away after its turn.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.0.starts_with("temp/")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which model call: `run-` and its moment in UTC.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RunId(pub String);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a person says.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// One text.
    Text(String),
    /// Text and media, in order.
    Parts(Vec<Part>),
}

impl Prompt {
    /// The text, when there is exactly one and nothing else.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Parts(parts) => match parts.as_slice() {
                [Part::Text(text)] => Some(text),
                _ => None,
            },
        }
    }

    /// Whether there is nothing to answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().all(|it| matches!(it, Part::Text(text) if text.trim().is_empty())),
        }
    }

    /// As a user message.
    #[must_use]
    pub fn to_message(&self) -> Message {
        match self {
            Self::Text(text) => Message::text(Role::User, text.clone()),
            Self::Parts(parts) => Message::parts(Role::User, parts.clone()),
        }
    }

    /// As `loop.*` events record it: text as a string, blocks as a list, and no media content
    /// (which would stand on the tape a second and third time).
    #[must_use]
    pub fn to_event_value(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::Parts(parts) => {
                let mut content = content_of(parts);
                for block in content.as_array_mut().into_iter().flatten() {
                    if let Some(fields) = block.as_object_mut() {
                        fields.remove("data");
                        if fields.get("url").and_then(Value::as_str).is_some_and(|it| it.starts_with("data:")) {
                            fields.remove("url");
                        }
                    }
                }
                content
            }
        }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Part>> for Prompt {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

/// A message from a channel.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// Which channel.
    pub channel: String,
    /// Which conversation of that channel.
    pub chat: String,
    /// Which session, when the channel knows.
    pub session: Option<SessionId>,
    /// What is said.
    pub prompt: Prompt,
    /// Facts about the message that the model reads in front of it, in order.
    pub context: Vec<(String, String)>,
    /// Whether the sender sits at this machine's terminal.
    pub local: bool,
    /// Whether it is addressed to the agent. In a group, what others say to each other is not, and only
    /// counts while a conversation with the agent goes on.
    pub is_active: bool,
    /// Which channel the answer goes to, when it is another one; a name that no channel has keeps it back.
    pub output: Option<String>,
}

impl Inbound {
    /// A message that is addressed to the agent, of a session named by its channel and conversation, from
    /// somewhere else than this machine's terminal.
    #[must_use]
    pub fn new(channel: impl Into<String>, chat: impl Into<String>, prompt: Prompt) -> Self {
        Self {
            channel: channel.into(),
            chat: chat.into(),
            session: None,
            prompt,
            context: Vec::new(),
            local: false,
            is_active: true,
            output: None,
        }
    }

    /// The session that it names, else the one of its channel and conversation.
    #[must_use]
    pub fn own_session(&self) -> SessionId {
        self.session.clone().unwrap_or_else(|| SessionId(format!("{}:{}", self.channel, self.chat)))
    }
}

/// What a message to a channel is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OutboundKind {
    /// An answer.
    #[default]
    Answer,
    /// Something went wrong.
    Error {
        /// Where: `turn`, `admit_message`, `resolve_session`.
        stage: &'static str,
    },
    /// What has become of messages: that they could not be taken, say.
    Notice,
}

/// A message to a channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outbound {
    /// Which channel.
    pub channel: String,
    /// Which conversation of that channel.
    pub chat: String,
    /// Whose answer it is.
    pub session: SessionId,
    /// The answer.
    pub text: String,
    /// What it is.
    pub kind: OutboundKind,
}

/// What a turn carries along: a field for what the kernel knows, a slot for each plugin's own type.
/// A clone shares the slots.
#[derive(Clone, Default)]
pub struct TurnState {
    /// Which session.
    pub session: Option<SessionId>,
    /// Which channel the message came by.
    pub channel: String,
    /// Which conversation of that channel.
    pub chat: String,
    /// Whether the person sits at this machine's terminal.
    pub local: bool,
    /// `provider:model` of this turn.
    pub model: Option<String>,
    /// Reasoning effort of this turn.
    pub reasoning_effort: Option<String>,
    /// Whether the model writes code that calls the tools.
    pub code_mode: bool,
    /// Runtime names of the tools that the turn may use; `None` allows all.
    pub allowed_tools: Option<Vec<String>>,
    /// Skills that the turn may use, case-folded; `None` allows all.
    pub allowed_skills: Option<Vec<String>>,
    /// What the caller said about this turn, for hooks and handlers; a nested turn begins without.
    pub metadata: Map<String, Value>,
    /// How many turns this one is nested in.
    pub depth: usize,
    /// Where the turn's tools run, once that is known.
    pub environment: Option<Arc<dyn Environment>>,
    slots: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl TurnState {
    /// A plugin's own slot.
    #[must_use]
    pub fn slot<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.slots.get(&TypeId::of::<T>()).and_then(|it| it.downcast_ref())
    }

    /// Fills a plugin's own slot.
    pub fn set_slot<T: Any + Send + Sync>(&mut self, value: T) {
        self.slots.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// A slot that must be there, for tools that cannot do without.
    ///
    /// # Errors
    /// `config`, with the type's name, when the turn does not carry it.
    pub fn require_slot<T: Any + Send + Sync>(&self) -> Result<&T, ToolError> {
        self.slot().ok_or_else(|| {
            let wanted = std::any::type_name::<T>();
            let message = format!("this turn carries no {wanted}: whoever starts it has to put one into its state");
            ToolError::new(ErrorKind::Config, message)
        })
    }

    /// Whether the turn may use the tool of this runtime name.
    #[must_use]
    pub fn allows_tool(&self, name: &str) -> bool {
        self.allowed_tools.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == name))
    }
}

impl fmt::Debug for TurnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnState")
            .field("session", &self.session)
            .field("model", &self.model)
            .field("code_mode", &self.code_mode)
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// What a turn tells its caller, as it happens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TurnEvent {
    /// More words of the answer.
    Text(String),
    /// More of the model's thinking.
    Reasoning(String),
    /// More of a call's arguments.
    ToolCallDelta {
        /// The call's id, if known.
        id: String,
        /// The tool's name, if known.
        name: String,
        /// The new piece of JSON text.
        delta: String,
    },
    /// All calls of one answer, at once.
    ToolCalls(Vec<ToolCallRequest>),
    /// News of a running call.
    ToolProgress {
        /// Which call.
        call: String,
        /// What is new.
        text: String,
    },
    /// The results of the calls, in their order.
    ToolResults(Vec<Value>),
    /// A source of the answer.
    Citation(Citation),
    /// A picture or a sound that the model made. It stands on the tape with the answer.
    Media(Media),
    /// A call of one of the provider's own tools.
    ProviderToolCall {
        /// The tool's name at the provider.
        name: String,
        /// What it was called with, as far as the provider tells.
        input: Value,
    },
    /// Tokens of one model call, and how long it took.
    Usage {
        /// Tokens.
        usage: TokenUsage,
        /// Seconds from the request to the end of the answer.
        elapsed_seconds: f64,
    },
    /// Something the person should know while waiting (a retry, say).
    Notice(String),
    /// Something went wrong.
    Error {
        /// The kind's name.
        kind: &'static str,
        /// What went wrong.
        message: String,
    },
    /// The end of one step: of the turn, if nothing follows.
    Final {
        /// The step's text.
        text: String,
        /// Whether it went well.
        ok: bool,
    },
}

/// Why a turn ended without an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tape failed.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// A command failed.
    #[error("{name}: {}", error.cause())]
    Command {
        /// The command's first word.
        name: String,
        /// What its tool said.
        error: ToolError,
    },
    /// A command line can't be understood.
    #[error("{0}")]
    CommandLine(String),
    /// A session, a tool list or a setting of the turn is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is nothing to answer.
    #[error("empty prompt")]
    EmptyPrompt,
    /// What decides on the steps failed.
    #[error("{decision} failed: {message}")]
    Policy {
        /// The decision: a method of [`StepPolicy`](crate::steps::StepPolicy).
        decision: &'static str,
        /// What it said.
        message: String,
    },
    /// Code of the embedder or of a plugin panicked.
    #[error("the turn panicked: {0}")]
    Panicked(String),
    /// An event handler failed, and thereby the turn.
    #[error("an event handler failed: {0}")]
    Handler(String),
    /// The limit on steps.
    #[error("max_steps_reached={max}")]
    StepsExhausted {
        /// The limit.
        max: usize,
    },
    /// The model made the same failing calls again and again.
    #[error("the model repeated the same failing calls {times} times")]
    Repeating {
        /// How often.
        times: usize,
    },
    /// The provider paused its answer again and again, without an end.
    #[error("the provider paused its answer {times} times in a row without ending it")]
    Paused {
        /// How often.
        times: usize,
    },
    /// Somebody cancelled the turn.
    #[error("cancelled")]
    Cancelled,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnResult {
    /// Whose turn it was.
    pub session: SessionId,
    /// The answer: the words of the last step.
    pub answer: String,
    /// All words of all steps, in order.
    pub text: String,
    /// What went wrong on the way.
    pub errors: Vec<String>,
    /// Steps taken; zero for a command.
    pub steps: usize,
    /// Tokens of the last model call.
    pub usage: Option<TokenUsage>,
}

/// A turn to run inside another.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// In which session.
    pub session: SessionId,
    /// What to answer.
    pub prompt: Prompt,
    /// `provider:model`; the session's own when absent.
    pub model: Option<String>,
    /// Reasoning effort; the session's own when absent.
    pub reasoning_effort: Option<String>,
    /// Runtime names of the tools that it may use; `None` allows all.
    pub allowed_tools: Option<Vec<String>>,
    /// Skills that it may use; `None` allows all.
    pub allowed_skills: Option<Vec<String>>,
}

/// A model that the host lends to a tool.
#[derive(Clone)]
pub struct HostModel {
    /// Which one.
    pub spec: ModelSpec,
    /// What asks it.
    pub client: Arc<dyn ModelClient>,
    /// How it answers unless the tool says otherwise.
    pub options: ModelOptions,
}

impl fmt::Debug for HostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostModel").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// What a tool may ask of the engine.
#[async_trait]
pub trait Host: Send + Sync {
    /// Calls another tool through hooks, cancellation and recording.
    async fn call_tool(&self, ctx: &ToolContext, name: &str, args: Value) -> Result<ToolReply, ToolError>;
    /// Runs a turn inside the one of `ctx`; cancelling that one cancels it.
    async fn run_turn(&self, ctx: &ToolContext, request: TurnRequest) -> Result<TurnResult, TurnError>;
    /// Forgets the waiting messages of the session of `ctx` and cancels its turns and commands, but not
    /// those that `ctx` is part of.
    async fn quit(&self, ctx: &ToolContext);
    /// A model for a tool's own use: that of `spec`, else the session's, else the configured one. Its
    /// credentials stay inside the client.
    ///
    /// # Errors
    /// `invalid_input` when there is no such model, or none at all.
    async fn model(&self, _ctx: &ToolContext, _spec: Option<&str>) -> Result<HostModel, ToolError> {
        Err(ToolError::invalid("Republic models need a running Bub agent."))
    }
    /// The window of the session's model in tokens, if it is known.
    async fn context_window(&self, _ctx: &ToolContext) -> Option<u64> {
        None
    }
    /// What commands start with, if there are commands.
    fn command_prefix(&self) -> Option<&str>;
}

/// A turn in progress, for what answers it.
#[derive(Debug)]
pub struct Turn {
    /// What to answer; `None` continues without a new prompt.
    pub prompt: Option<Prompt>,
    /// What the turn's tools are given.
    pub ctx: ToolContext,
    /// Where events go.
    pub sink: EventSink,
    /// How the model should answer, in all calls of the turn.
    pub options: ModelOptions,
    /// What the caller says about the turn; it stands in `loop.start`, and handlers are told.
    pub metadata: Map<String, Value>,
}

/// What answers a turn; the step loop, unless a plugin replaces it.
#[async_trait]
pub trait TurnLoop: Send + Sync {
    /// Runs the turn to its final text.
    async fn run(&self, turn: Turn) -> Result<TurnResult, TurnError>;
}

/// The sending end of a turn's events. Waits when the caller is slow; never loses one.
#[derive(Clone, Debug)]
pub struct EventSink {
    tx: Option<tokio::sync::mpsc::Sender<TurnEvent>>,
    mask: SecretMask,
    watchers: Arc<tokio::sync::broadcast::Sender<Arc<TurnEvent>>>,
}

/// Events that a turn may be ahead of its caller.
pub const SINK_CAPACITY: usize = 256;

impl EventSink {
    /// Makes a sink and its receiving end.
    #[must_use]
    pub fn new() -> (Self, tokio::sync::mpsc::Receiver<TurnEvent>) {
        let (tx, rx) = tokio::sync::mpsc::channel(SINK_CAPACITY);
        (Self { tx: Some(tx), ..Self::discard() }, rx)
    }

    /// A sink that nobody listens to.
    #[must_use]
    pub fn discard() -> Self {
        Self {
            tx: None,
            mask: SecretMask::default(),
            watchers: Arc::new(tokio::sync::broadcast::Sender::new(SINK_CAPACITY)),
        }
    }

    /// The same sink, hiding secrets in what tools report while they run. Results are masked where they
    /// are made; reports do not pass there.
    #[must_use]
    pub fn with_mask(self, mask: SecretMask) -> Self {
        Self { mask, ..self }
    }

    /// Tells the caller and all watchers. A caller that is gone does not stop the turn.
    pub async fn send(&self, mut event: TurnEvent) {
        if let TurnEvent::ToolProgress { text, .. } = &mut event {
            self.mask.mask(text);
        }
        if self.watchers.receiver_count() > 0 {
            // Nobody watching is no failure.
            drop(self.watchers.send(Arc::new(event.clone())));
        }
        if let Some(tx) = &self.tx {
            drop(tx.send(event).await);
        }
    }

    /// Watches beside the caller. A watcher that falls behind loses events and re-reads the tape.
    #[must_use]
    pub fn watch(&self) -> tokio::sync::broadcast::Receiver<Arc<TurnEvent>> {
        self.watchers.subscribe()
    }
}
