//! What is said about one run.

use std::any::Any;

use bub_kernel::{
    model::ModelOptions,
    tape::Tape,
    turn::{Prompt, TurnState},
};
use serde_json::{Map, Value};

/// One run of an [`Agent`](crate::Agent): a prompt, and what is particular about it. A text alone is one too.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) prompt: Prompt,
    pub(super) place: Option<Place>,
    pub(super) model: Option<String>,
    pub(super) options: ModelOptions,
    pub(super) state: TurnState,
    pub(super) merge_back: bool,
    pub(super) metadata: Map<String, Value>,
}

/// On which tape.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Named(String),
    Given(Tape),
}

impl Run {
    /// A run for a prompt: text, or parts with media. Without a tape it remembers nothing and leaves
    /// nothing.
    #[must_use]
    pub fn new(prompt: impl Into<Prompt>) -> Self {
        Self {
            prompt: prompt.into(),
            place: None,
            model: None,
            options: ModelOptions::default(),
            state: TurnState::default(),
            merge_back: true,
            metadata: Map::new(),
        }
    }

    /// Runs on the tape of this name: the conversation so far is its context, and the run is added to it.
    #[must_use]
    pub fn tape(self, name: impl Into<String>) -> Self {
        Self { place: Some(Place::Named(name.into())), ..self }
    }

    /// Runs on this very tape: that of [`Agent::session`](crate::Agent::session), say.
    #[must_use]
    pub fn on(self, tape: &Tape) -> Self {
        Self { place: Some(Place::Given(tape.clone())), ..self }
    }

    /// Asks another model: `provider:model`.
    #[must_use]
    pub fn model(self, model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// Sets how the model should answer, in all calls of the run; the agent's options fill in the rest.
    #[must_use]
    pub fn options(self, options: ModelOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets what the run carries, for tools, handlers and functions of the facts.
    #[must_use]
    pub fn state(self, state: TurnState) -> Self {
        Self { state, ..self }
    }

    /// Puts a value of the embedder's own type into what the run carries. Tools find it by its type,
    /// with [`TurnState::slot`] or [`TurnState::require_slot`].
    #[must_use]
    pub fn slot<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.state.set_slot(value);
        self
    }

    /// Sets whether the run is merged into its tape in the end; it is unless told otherwise.
    #[must_use]
    pub fn merge_back(self, merge_back: bool) -> Self {
        Self { merge_back, ..self }
    }

    /// Says something about the run that is recorded at its start; handlers of `RunStarted` are told.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

impl From<&str> for Run {
    fn from(prompt: &str) -> Self {
        Self::new(prompt)
    }
}

impl From<String> for Run {
    fn from(prompt: String) -> Self {
        Self::new(prompt)
    }
}

impl From<Prompt> for Run {
    fn from(prompt: Prompt) -> Self {
        Self::new(prompt)
    }
}
