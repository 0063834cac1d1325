//! What a step of a turn is made of, where an embedder decides on it: its tools, what is added to the
//! system prompt, messages that wait, and how the turn goes on.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::{
    hooks::ToolView,
    message::Message,
    tape::Tape,
    tool::{DynTool, Exposure},
    turn::{Prompt, TurnState},
};

/// What is known when a step is put together.
#[derive(Clone, Copy)]
pub struct StepFacts<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// `provider:model` of the turn.
    pub model: &'a str,
    /// The prompt of this step; `None` in steps that go on from tool results.
    pub prompt: Option<&'a Prompt>,
    /// The tools that the step offers to the model; before they are chosen, all tools of the agent.
    pub tools: &'a [Arc<dyn DynTool>],
    /// The turn's fork of its tape.
    pub tape: &'a Tape,
    /// What the turn carries.
    pub state: &'a TurnState,
}

impl fmt::Debug for StepFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFacts")
            .field("agent", &self.agent)
            .field("model", &self.model)
            .field("prompt", &self.prompt)
            .field("tools", &self.tools.iter().map(|it| it.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A decision that failed; it ends the turn.
pub type StepError = Box<dyn std::error::Error + Send + Sync>;

/// Decides what each step is made of. Every method has a default, and together the defaults are a bare
/// agent: all tools but commands, no messages beside the prompt, no prompts but the caller's.
///
/// This is the embedder's own code: an error ends the turn, and what the person said is recorded with
/// it. Plugins use [`Hooks`](crate::hooks::Hooks), which are asked after it.
#[async_trait]
pub trait StepPolicy: Send + Sync {
    /// The tools of the step; hooks may choose among them. Called once a step, with all tools of the
    /// agent in the facts. In a nested turn, tools that it may not use are taken out afterwards.
    async fn prepare_tools(&self, facts: &StepFacts<'_>) -> Result<ToolView, StepError> {
        Ok(ToolView::of(facts.tools.iter().filter(|it| it.spec().exposure != Exposure::Command).cloned()))
    }
    /// Messages to take into the step, before its prompt. They are taken: the next step asks anew.
    async fn pending_messages(&self, _facts: &StepFacts<'_>) -> Result<Vec<Message>, StepError> {
        Ok(Vec::new())
    }
    /// Whether messages wait, so that the turn goes on though the model has nothing more to call.
    async fn has_pending_messages(&self, _facts: &StepFacts<'_>) -> Result<bool, StepError> {
        Ok(false)
    }
    /// A prompt for the next step of a turn that goes on; `None` leaves it to hooks.
    async fn continue_prompt(&self, _facts: &StepFacts<'_>) -> Result<Option<Prompt>, StepError> {
        Ok(None)
    }
}

/// All defaults of [`StepPolicy`].
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryTool;

impl StepPolicy for EveryTool {}

type Make = dyn for<'a> Fn(&'a StepFacts<'a>) -> BoxFuture<'a, Option<String>> + Send + Sync;

/// A section of the system prompt: a text, or a function of the step's facts. Sections stand below what
/// hooks say, in their order, and are made anew for each step. An empty one is left out.
#[derive(Clone)]
pub struct PromptSection(Section);

#[derive(Clone)]
enum Section {
    Text(Arc<str>),
    Made(Arc<Make>),
}

impl PromptSection {
    /// A section that follows from the facts; `None` leaves it out of the step.
    pub fn of<T: Into<Option<String>>>(make: impl Fn(&StepFacts<'_>) -> T + Send + Sync + 'static) -> Self {
        Self::made(move |facts| {
            let made = make(facts).into();
            Box::pin(std::future::ready(made))
        })
    }

    /// The same, when there is something to wait for.
    pub fn made(
        make: impl for<'a> Fn(&'a StepFacts<'a>) -> BoxFuture<'a, Option<String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Section::Made(Arc::new(make)))
    }

    /// The section for a step.
    pub async fn render(&self, facts: &StepFacts<'_>) -> Option<String> {
        match &self.0 {
            Section::Text(text) => Some(text.to_string()),
            Section::Made(make) => make(facts).await,
        }
    }
}

impl fmt::Debug for PromptSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Section::Text(text) => f.debug_tuple("PromptSection").field(text).finish(),
            Section::Made(_) => f.debug_tuple("PromptSection").finish_non_exhaustive(),
        }
    }
}

impl From<&str> for PromptSection {
    fn from(text: &str) -> Self {
        Self(Section::Text(text.into()))
    }
}

impl From<String> for PromptSection {
    fn from(text: String) -> Self {
        Self(Section::Text(text.into()))
    }
}
