//! The typed events of a run, and the bus that carries them to handlers.
//!
//! Handlers run in the order of their registration, before the run goes on. A handler may change the
//! event, and its error ends the run: this is for code that must have its say. Plugins that only want to
//! look on, or whose failure must not matter, use [`Hooks`](crate::hooks::Hooks), which are isolated.
//!
//! For each thing that happens, what is to be recorded of it is recorded first, then hooks are told,
//! then handlers: a handler finds on the tape what its event is about, and its failure undoes no record.
//!
//! [`EVENTS`] describes all of them; the page of the reference is made from it.

mod bus;

use std::{any::Any, fmt, sync::Arc};

use serde_json::{Map, Value};

pub use self::bus::{AnyEvent, EventBus, HandlerError, HandlerId};
use crate::{
    error::ToolError,
    hooks::{ToolCall, ToolStep},
    message::{Message, Part, TokenUsage, ToolCallRequest},
    model::ModelRequest,
    tape::Tape,
    tool::{ToolContext, ToolReply},
    turn::{Prompt, RunId, TurnState},
};

/// Something that happens in a run.
pub trait Event: Any + Send + fmt::Debug {
    /// What it is.
    const INFO: EventInfo;
    /// Whether a handler decided, so that later ones are not asked.
    fn stopped(&self) -> bool {
        false
    }
}

/// What an event is, for people.
#[derive(Clone, Copy, Debug)]
pub struct EventInfo {
    /// Its name.
    pub name: &'static str,
    /// When it is sent, in lines.
    pub when: &'static [&'static str],
    /// What handlers may do with it; nothing when it is only told.
    pub may: Option<&'static str>,
    /// What it carries, in order.
    pub fields: &'static [FieldInfo],
}

/// One field of an event.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: &'static str,
    /// What it is, in lines.
    pub meaning: &'static [&'static str],
}

/// Makes each event with its description, so that neither can be without the other.
macro_rules! events {
    ($(
        $(#[doc = $doc:literal])*
        $([may $may:literal $(, stops |$event:ident| $stopped:expr)?])?
        $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub struct $name {
                /// What the turn carries.
                pub state: Arc<TurnState>,
                $($(#[doc = $field_doc])* pub $field: $type,)*
            }

            impl Event for $name {
                const INFO: EventInfo = EventInfo {
                    name: stringify!($name),
                    when: &[$($doc),*],
                    may: events!(@may $($may)?),
                    fields: &[
                        FieldInfo { name: "state", kind: "Arc<TurnState>", meaning: &["What the turn carries."] },
                        $(FieldInfo {
                            name: stringify!($field),
                            kind: stringify!($type),
                            meaning: &[$($field_doc),*],
                        },)*
                    ],
                };
                $($(fn stopped(&self) -> bool {
                    let $event = self;
                    $stopped
                })?)?
            }
        )*

        /// All events, in the order in which a run first sends them.
        pub const EVENTS: &[EventInfo] = &[$($name::INFO),*];
    };
    (@may) => { None };
    (@may $may:literal) => { Some($may) };
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
        /// What the caller said about this run.
        metadata: Map<String, Value>,
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
    /// Waiting messages (from people while the turn runs) are about to be taken into a step.
    [may "add, change or drop messages"]
    MessagesPending {
        /// The session's tape.
        tape: Tape,
        /// The messages.
        messages: Vec<Message>,
    }
    /// A model is about to be called.
    [may "change the request (another `provider:model` too), or answer in the model's place with `decision`", stops |event| event.decision.is_some()]
    LlmCallStarted {
        /// The session's tape.
        tape: Tape,
        /// What will be sent; its `model` is `provider:model`.
        request: ModelRequest,
        /// An answer that makes the call unnecessary.
        decision: Option<String>,
    }
    /// A model call has ended, well or not. Not sent for cancelled calls, nor for answers in the model's place.
    LlmCallFinished {
        /// The session's tape.
        tape: Tape,
        /// What was sent; its `run` says which call this was.
        request: ModelRequest,
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
    /// A tool is about to be called: by the model, by its code or by a person (`call.caller`).
    [may "change the arguments, or replace or deny the call with `decision`", stops |event| !matches!(event.decision, ToolStep::Proceed)]
    ToolCallStarted {
        /// What the tool will be given: the tape, the run, who calls.
        ctx: ToolContext,
        /// The call.
        call: ToolCall,
        /// What to do with it.
        decision: ToolStep,
    }
    /// A tool call has ended: it went well, failed, or was replaced or denied. Not sent for cancelled calls.
    [may "change the result"]
    ToolCallFinished {
        /// What the tool was given: the tape, the run, who called.
        ctx: ToolContext,
        /// The call.
        call: ToolCall,
        /// What the caller will get: rendered text for the model, the structured result for code and people.
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
        /// Why the conversation could not be read, so that the model was not asked.
        context_error: Option<String>,
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
