//! Where the definitions of the tools are put, and that they are not made anew each step.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bub_kernel::{
    tool::{DynTool, ToolSpec},
    turn::TurnState,
};

use crate::{prompt::Stub, stub};

/// The most bytes of definitions inside a prompt.
pub const MAX_INLINE_STUB_BYTES: usize = 60_000;

/// Names the folder for the stubs of a turn, if it has one.
pub(crate) type StubFolder = dyn Fn(&TurnState) -> Option<PathBuf> + Send + Sync;

/// Makes and places stubs.
pub(crate) struct Stubs {
    folder: Option<Arc<StubFolder>>,
    /// The newest stub: tool sets seldom change between steps.
    newest: Mutex<Option<Made>>,
}

#[derive(Clone)]
struct Made {
    specs: Vec<Arc<ToolSpec>>,
    limit: usize,
    text: Arc<str>,
}

/// Where a stub is.
#[derive(Debug)]
pub(crate) enum Placed {
    File(PathBuf),
    Inline(Arc<str>),
}

impl Placed {
    pub(crate) fn as_stub(&self) -> Stub<'_> {
        match self {
            Self::File(path) => Stub::File(path),
            Self::Inline(text) => Stub::Inline(text),
        }
    }
}

impl Stubs {
    pub(crate) fn new(folder: Option<Arc<StubFolder>>) -> Self {
        Self { folder, newest: Mutex::default() }
    }

    /// Puts the definitions of `tools` into a file when there is a folder and `can_read` says that the
    /// model can read one; otherwise they are for the prompt.
    pub(crate) async fn place(&self, tools: &[Arc<dyn DynTool>], state: &TurnState, can_read: bool) -> Placed {
        let folder = self.folder.as_ref().filter(|_| can_read).and_then(|folder| folder(state));
        let Some(folder) = folder else { return Placed::Inline(self.text(tools, MAX_INLINE_STUB_BYTES)) };
        let text = self.text(tools, stub::MAX_STUB_BYTES);
        let content = text.clone();
        match tokio::task::spawn_blocking(move || stub::write(&folder, &content)).await {
            Ok(Ok(path)) => Placed::File(path),
            Ok(Err(err)) => {
                tracing::warn!("{err}; they stand in the prompt instead");
                Placed::Inline(self.text(tools, MAX_INLINE_STUB_BYTES))
            }
            Err(err) => {
                tracing::warn!("the tool definitions were not written: {err}");
                Placed::Inline(self.text(tools, MAX_INLINE_STUB_BYTES))
            }
        }
    }

    fn text(&self, tools: &[Arc<dyn DynTool>], limit: usize) -> Arc<str> {
        let specs: Vec<_> = tools.iter().map(|it| it.spec().clone()).collect();
        let lock = || self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |made: &Made| {
            made.limit == limit
                && made.specs.len() == specs.len()
                && made.specs.iter().zip(&specs).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(made) = lock().as_ref().filter(|it| is_same(it)) {
            return made.text.clone();
        }
        let text: Arc<str> = stub::render_within(&specs, limit).into();
        *lock() = Some(Made { specs, limit, text: text.clone() });
        text
    }
}
