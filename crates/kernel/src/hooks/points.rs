//! What each hook is, for people and for the engine: one table.

use std::{fmt, time::Duration};

/// The longest that a limited hook may take; then it is dropped and passed over.
pub const HOOK_LIMIT: Duration = Duration::from_secs(60);

/// How several implementations of a hook act as one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Composition {
    /// The first answer wins, highest rank first.
    Asked,
    /// All answers count, lowest rank first.
    Gathered,
    /// Highest rank first; each sees the changes of the one before, and the first decision ends the chain.
    Chained,
    /// All are told; nothing comes back.
    Observed,
}

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Asked => "asked",
            Self::Gathered => "gathered",
            Self::Chained => "chained",
            Self::Observed => "observed",
        })
    }
}

/// What a hook is.
#[derive(Clone, Copy, Debug)]
pub struct HookInfo {
    /// The method's name.
    pub name: &'static str,
    /// How several act as one.
    pub composition: Composition,
    /// When it is called.
    pub when: &'static str,
    /// What it is given.
    pub given: &'static str,
    /// What it may answer, change or decide.
    pub may: &'static str,
    /// Whether [`HOOK_LIMIT`] holds for it. The others may wait for a person or for a machine to start,
    /// and are dropped when the turn is cancelled.
    pub is_limited: bool,
}

macro_rules! hook_points {
    ($($name:ident: $method:literal, $composition:ident, $is_limited:literal, $when:literal, $given:literal, $may:literal;)*) => {
        $(
            #[doc = concat!("[`Hooks::", $method, "`](super::Hooks::", $method, ").")]
            pub const $name: HookInfo = HookInfo {
                name: $method,
                composition: Composition::$composition,
                when: $when,
                given: $given,
                may: $may,
                is_limited: $is_limited,
            };
        )*

        /// All hooks, in the order in which a turn calls them.
        pub const HOOKS: &[HookInfo] = &[$($name),*];
    };
}

hook_points! {
    RESOLVE_SESSION: "resolve_session", Asked, false,
        "a message has come in", "the message", "answer the session that it belongs to";
    ADMIT: "admit", Asked, false,
        "a channel's message has come in, before its turn",
        "the message, and how many turns of its session run or wait",
        "decide: start a turn now, drop the message, queue it, or hand it to the running turn";
    LOAD_STATE: "load_state", Gathered, true,
        "a turn or a command begins", "the message, the turn's state", "change the state; a higher rank overrides";
    BUILD_PROMPT: "build_prompt", Asked, false,
        "a message is to become a prompt", "the state, the message", "answer the prompt";
    BEGIN_TURN: "begin_turn", Gathered, true,
        "a turn with a model begins on its tape, nested turns included",
        "the state with the session's settings, the prompt, the tape",
        "change the state, such as slots of the turn's own";
    ENVIRONMENT: "environment", Asked, false,
        "a session's first turn or command", "the session", "answer where its tools run";
    CHOOSE_TOOLS: "choose_tools", Chained, true,
        "each step, before the system prompt", "the state, the tools of the step",
        "change which tools the model sees and which only its code does; add blocks to the system prompt";
    SYSTEM_PROMPT: "system_prompt", Gathered, true,
        "each step", "the state", "answer a block of the system prompt; a higher rank stands further down";
    NOTICES: "notices", Gathered, true,
        "each step, after waiting messages were taken in", "the state",
        "answer news that the model reads as messages, once";
    BEFORE_MODEL: "before_model", Chained, false,
        "a model is about to be called", "the state, the request, whose `model` is `provider:model`",
        "change the request (another model too), or answer in the model's place";
    AFTER_MODEL: "after_model", Observed, true,
        "a model call has ended, well or not; not when it was cancelled or answered in the model's place",
        "the state, the request and how it ended", "nothing";
    BEFORE_TOOL: "before_tool", Chained, false,
        "a tool is about to be called: by the model, by its code or by a person",
        "the call's context, the call", "change the arguments, replace the result, or deny the call";
    AFTER_TOOL: "after_tool", Chained, true,
        "a tool call has ended: it went well, failed, or was replaced or denied; not when it was cancelled",
        "the call's context, the call, the result: rendered text for the model, structured for code and people",
        "change the result";
    CONTEXT_WINDOW: "context_window", Asked, true,
        "a model has answered, or a tool asks how full the context is", "the model as `provider:model`",
        "answer its window in tokens";
    SUMMARIZE: "summarize", Asked, false,
        "the conversation no longer fits the model, and is about to begin anew",
        "the call's context, the messages that are left out, the prompt, the provider's error",
        "answer what must not be forgotten; it is kept with the anchor, and stands at the beginning of the new context";
    CONTINUE_PROMPT: "continue_prompt", Asked, false,
        "a step has ended and another follows", "the state, the prompt of the ended step, the tape",
        "answer a prompt for the next step";
    SAVE_STATE: "save_state", Observed, true,
        "a turn or a command has ended, well or not", "the state, the answer (empty when there is none)", "nothing";
    RENDER_OUTBOUND: "render_outbound", Gathered, true,
        "an answer goes out to a channel", "the state, the answer", "answer the messages to send";
    ON_ERROR: "on_error", Observed, true,
        "a turn has failed (`turn`), a hook was passed over (`hook`), or a gateway could not handle a message \
         (`resolve_session`, `admit_message`, `dispatch_outbound`)",
        "the stage, the error, the message if there is one", "nothing";
    CLOSE: "close", Observed, true,
        "the runtime closes", "nothing", "stop what outlived its call";
}

/// Why a hook was passed over.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// It panicked.
    #[error("hook '{hook}' panicked in {method}: {what}")]
    Panicked {
        /// Whose hook.
        hook: String,
        /// Which method.
        method: &'static str,
        /// What the panic said.
        what: String,
    },
    /// It did not return in time.
    #[error("hook '{hook}' did not return from {method} within {} s", limit.as_secs_f64())]
    Late {
        /// Whose hook.
        hook: String,
        /// Which method.
        method: &'static str,
        /// The time that it had.
        limit: Duration,
    },
    /// It changed what it may not change.
    #[error("hook '{hook}' gave a bad answer in {method}: {problem}")]
    BadAnswer {
        /// Whose hook.
        hook: String,
        /// Which method.
        method: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The methods of the trait that the engine calls, each with the composition that its documentation names.
    fn methods() -> Vec<(String, String)> {
        let source = include_str!("../hooks.rs");
        let mut methods = Vec::new();
        let mut docs = String::new();
        let body = source.split_once("pub trait Hooks").unwrap().1;
        for line in body.lines().map(str::trim) {
            if let Some(doc) = line.strip_prefix("///") {
                docs.push_str(doc);
            } else if let Some(rest) = line.strip_prefix("async fn ") {
                let name = rest.split(['(', '<']).next().unwrap().to_owned();
                let words = ["Asked", "Gathered", "Chained", "Observed"];
                let word = words.into_iter().find(|it| docs.contains(&format!("*{it}"))).unwrap_or_default();
                methods.push((name, word.to_lowercase()));
                docs.clear();
            } else {
                docs.clear();
            }
        }
        methods
    }

    #[test]
    fn the_table_has_every_hook_with_the_composition_of_its_documentation() {
        let mut table: Vec<_> = HOOKS.iter().map(|it| (it.name.to_owned(), it.composition.to_string())).collect();
        let mut trait_methods = methods();
        assert!(trait_methods.len() >= 18, "{trait_methods:?}");
        table.sort();
        trait_methods.sort();
        assert_eq!(table, trait_methods);
    }
}
