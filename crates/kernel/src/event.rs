//! The typed events of a run, and the bus that carries them to handlers.
//!
//! Handlers run in the order of their registration, before the run goes on. A handler may change the
//! event, and its error ends the run: this is for the embedder's own code. Plugins use
//! [`Hooks`](crate::hooks::Hooks), whose failures are isolated.
//!
//! For each thing that happens, what is to be recorded of it is recorded first, then hooks are told,
//! then handlers: a handler finds on the tape what its event is about, and its failure undoes no record.

use std::{any::Any, fmt, sync::Arc};

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::{
    error::ToolError,
    hooks::{ToolCall, ToolStep},
    message::{Message, Part, TokenUsage, ToolCallRequest},
    model::ModelRequest,
    tape::Tape,
    tool::ToolReply,
    turn::{Prompt, RunId, TurnState},
};

/// Something that happens in a run.
pub trait Event: Any + Send + fmt::Debug {
    /// Its name, as documentation and logs have it.
    const NAME: &'static str;
    /// Whether a handler decided, so that later ones are not asked.
    fn stopped(&self) -> bool {
        false
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name {
                /// What the turn carries.
                pub state: Arc<TurnState>,
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*
    };
}

events! {
    /// A turn with a model begins.
    RunStarted {
        /// The session's tape.
        tape: Tape,
        /// `provider:model`.
        model: String,
        /// What was said.
        prompt: Prompt,
        /// What the caller says about the run, beside what `loop.start` holds anyway.
        metadata: Map<String, Value>,
    }
    /// A turn with a model has ended; follows every [`RunStarted`].
    RunFinished {
        /// The session's tape.
        tape: Tape,
        /// `ok`, `error` or `cancelled`.
        status: &'static str,
        /// Steps taken.
        steps: usize,
        /// Milliseconds since the start.
        elapsed_ms: u64,
        /// What went wrong.
        error: Option<String>,
    }
    /// A step begins.
    StepStarted {
        /// The session's tape.
        tape: Tape,
        /// Its number, from 1.
        step: usize,
        /// The prompt of this step, if it has one.
        prompt: Option<Prompt>,
    }
    /// A step has ended.
    StepFinished {
        /// The session's tape.
        tape: Tape,
        /// Its number, from 1.
        step: usize,
        /// `ok`, `continue`, `error`, `auto_handoff` or `cancelled`.
        status: &'static str,
        /// Milliseconds since its start.
        elapsed_ms: u64,
        /// What went wrong.
        error: Option<String>,
    }
    /// Waiting messages are about to be taken into a step. Handlers may add, change or drop some.
    MessagesPending {
        /// The session's tape.
        tape: Tape,
        /// The messages.
        messages: Vec<Message>,
    }
    /// A model is about to be called. Handlers may change the request, or answer instead.
    LlmCallStarted {
        /// The session's tape.
        tape: Tape,
        /// What will be sent.
        request: ModelRequest,
        /// An answer that makes the call unnecessary.
        decision: Option<String>,
    }
    /// A model call has ended; not sent for cancelled ones.
    LlmCallFinished {
        /// The session's tape.
        tape: Tape,
        /// Which call.
        run: RunId,
        /// The answer's words.
        text: String,
        /// The calls it asks for.
        tool_calls: Vec<ToolCallRequest>,
        /// Tokens.
        usage: Option<TokenUsage>,
        /// What went wrong.
        error: Option<String>,
        /// Milliseconds since the start.
        duration_ms: u64,
    }
    /// A tool is about to be called. Handlers may change arguments, replace or deny.
    ToolCallStarted {
        /// The call; its arguments may be changed.
        call: ToolCall,
        /// What to do with it.
        decision: ToolStep,
    }
    /// A tool call has ended. Handlers may change the result.
    ToolCallFinished {
        /// The call.
        call: ToolCall,
        /// What the caller will get.
        result: Result<ToolReply, ToolError>,
        /// Milliseconds since the start.
        duration_ms: u64,
    }
    /// A step's exchange with the model is over, and recorded.
    ChatFinished {
        /// The session's tape.
        tape: Tape,
        /// Which model call.
        run: RunId,
        /// `provider:model` that was asked for.
        model: String,
        /// The system prompt.
        system_prompt: Option<String>,
        /// What was new in this step.
        new_messages: Vec<Message>,
        /// The answer's words; `None` when there was no answer.
        response_text: Option<String>,
        /// The calls that it asked for.
        tool_calls: Vec<ToolCallRequest>,
        /// Their results, in order.
        tool_results: Vec<Value>,
        /// Tokens.
        usage: Option<TokenUsage>,
        /// Who answered.
        provider: String,
        /// Reasoning and provider data to keep with the answer.
        assistant_parts: Vec<Part>,
        /// What went wrong.
        error: Option<String>,
    }
    /// A command has ended.
    CommandFinished {
        /// The session's tape.
        tape: Tape,
        /// The line, without the prefix.
        line: String,
        /// Its first word.
        name: String,
        /// `ok` or `error`.
        status: &'static str,
        /// Milliseconds since the start.
        elapsed_ms: u64,
        /// What it printed, or the error.
        output: String,
    }
}

macro_rules! names {
    ($($name:ident $(, $event:ident => $stopped:expr)?;)*) => {
        $(impl Event for $name {
            const NAME: &'static str = stringify!($name);
            $(fn stopped(&self) -> bool {
                let $event = self;
                $stopped
            })?
        })*
        /// The names of all events, in the order of a run.
        pub const EVENT_NAMES: &[&str] = &[$($name::NAME),*];
    };
}

names! {
    RunStarted;
    StepStarted;
    MessagesPending;
    LlmCallStarted, event => event.decision.is_some();
    LlmCallFinished;
    ToolCallStarted, event => !matches!(event.decision, ToolStep::Proceed);
    ToolCallFinished;
    ChatFinished;
    StepFinished;
    RunFinished;
    CommandFinished;
}

/// A handler's failure.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

type Handler =
    dyn for<'a> Fn(&'a mut (dyn Any + Send)) -> Option<BoxFuture<'a, Result<(), HandlerError>>> + Send + Sync;

/// Carries events to handlers. Filled before it is shared; a run never changes it.
#[derive(Clone, Default)]
pub struct EventBus {
    handlers: Vec<Arc<Handler>>,
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBus").field("handlers", &self.handlers.len()).finish()
    }
}

impl EventBus {
    /// Calls `handler` with each event of type `E`.
    pub fn on<E: Event>(
        &mut self,
        handler: impl for<'a> Fn(&'a mut E) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.handlers.push(Arc::new(move |event| event.downcast_mut::<E>().map(&handler)));
        self
    }

    /// Calls a handler that has nothing to wait for.
    pub fn on_sync<E: Event>(
        &mut self,
        handler: impl Fn(&mut E) -> Result<(), HandlerError> + Send + Sync + 'static,
    ) -> &mut Self {
        self.on(move |event: &mut E| {
            let done = handler(event);
            Box::pin(std::future::ready(done))
        })
    }

    /// Hands `event` to its handlers, in order, until one decides.
    ///
    /// # Errors
    /// That of the first handler that fails.
    pub async fn emit<E: Event>(&self, event: &mut E) -> Result<(), HandlerError> {
        for handler in &self.handlers {
            if event.stopped() {
                break;
            }
            let any: &mut (dyn Any + Send) = event;
            if let Some(work) = handler(any) {
                work.await?;
            }
        }
        Ok(())
    }
}
