//! An agent to build into one's own program: a model, tools, a system prompt and tapes, and nothing else.
//!
//! It has no settings, no workspace and no sessions that a person set something for. Every tool that it
//! is given is offered to the model, but those that are commands; deferred tools, lists of allowed tools
//! and the switch of code mode are the [application's](crate::App). Both run on the same engine.

mod builder;
mod run;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bub_engine::{QueueFull, RunRequest, Runtime, TurnStream};
use bub_kernel::{
    tape::{Tape, TapeFork},
    tool::ToolSet,
    turn::{Prompt, SessionId, TurnError},
};

pub use builder::{AgentBuilder, AgentError};
pub use run::Run;

use run::Place;

/// An agent. Cheap to clone; clones share tapes and everything else.
///
/// ```
/// use bub::{Agent, kernel::tool::prelude::*};
///
/// /// Adds two numbers.
/// #[derive(Deserialize, JsonSchema)]
/// struct AddArgs {
///     a: i64,
///     b: i64,
/// }
///
/// struct Add;
///
/// impl Tool for Add {
///     const NAME: &'static str = "math.add";
///     type Args = AddArgs;
///     type Output = i64;
///
///     async fn call(&self, _: &ToolContext, args: AddArgs) -> Result<i64, ToolError> {
///         args.a.checked_add(args.b).ok_or_else(|| ToolError::invalid("the sum is too large"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder().tool(Add).command_prefix(",").build()?;
/// assert_eq!(agent.ask(",math.add a=2 b=3").await?, "5");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Agent {
    runtime: Runtime,
    name: Arc<str>,
    /// How many runs had no tape of a name.
    n_unnamed: Arc<AtomicU64>,
}

impl Agent {
    /// Starts to put an agent together.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::new()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts a run: a prompt for the model, or a command. It goes on whether or not the stream is read;
    /// dropping the stream cancels it. Either way what was done is merged into its tape, and after each
    /// `RunStarted` handlers get a `RunFinished`. [`TurnStream::close`] cancels and waits for that.
    ///
    /// Two runs on one tape may go on at once: each sees the tape as it was when it began, and is merged
    /// in one piece when it ends.
    ///
    /// Has to be called inside a tokio runtime.
    pub fn run(&self, run: impl Into<Run>) -> TurnStream {
        let Run { prompt, place, model, options, mut state, merge_back, metadata } = run.into();
        let (session, tape, merge_back) = match place {
            Some(Place::Named(name)) => {
                let session = SessionId(name);
                let tape = self.runtime.tape(&session);
                (session, tape, merge_back)
            }
            Some(Place::Given(tape)) => (SessionId(tape.name().as_str().to_owned()), tape, merge_back),
            None => {
                let n = self.n_unnamed.fetch_add(1, Ordering::Relaxed);
                let session = SessionId(format!("temp/{}-{n}", self.name));
                let tape = self.runtime.tape(&session);
                (session, tape, false)
            }
        };
        state.model = model.or(state.model);
        self.runtime.run(RunRequest { prompt, session, tape, state, options, merge_back, metadata })
    }

    /// Runs to the end and returns the text alone: the words of the model's last answer, or what a
    /// command printed.
    ///
    /// # Errors
    /// What ended the run early.
    pub async fn ask(&self, run: impl Into<Run>) -> Result<String, TurnError> {
        Ok(self.run(run).result().await?.answer)
    }

    /// The tape of a name, to read and to append to. What is written here is there at once; runs that
    /// are under way do not see it.
    #[must_use]
    pub fn tape(&self, name: &str) -> Tape {
        self.runtime.tape(&SessionId(name.to_owned()))
    }

    /// A private view of the tape of a name: what is written to it, and what [`Run::on`] it does, is
    /// merged by [`TapeFork::commit`], all at once; dropping it throws it away.
    #[must_use]
    pub fn session(&self, name: &str) -> TapeFork {
        self.tape(name).fork()
    }

    /// Hands a message to the running run of a tape, which takes it at its next step; without one, the
    /// next run on that tape does.
    ///
    /// # Errors
    /// When too many messages wait already.
    pub fn steer(&self, tape: &str, prompt: impl Into<Prompt>) -> Result<(), QueueFull> {
        self.runtime.steer_as_given(&SessionId(tape.to_owned()), &prompt.into())
    }

    /// The tools, in order.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        self.runtime.tools()
    }

    /// Cancels what runs, waits for it to be recorded, and stops what tools started; see
    /// [`Runtime::close`]. Environments that hooks provided are closed, one that was given is not.
    pub async fn close(&self) {
        self.runtime.close().await;
    }
}
