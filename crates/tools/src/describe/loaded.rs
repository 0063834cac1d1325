//! Which deferred tools a tape has loaded.

use std::sync::Arc;

use bub_kernel::tape::{Tape, TapeError, TapeQuery};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The event that records loading, as `{"names": [runtime names]}`.
const EVENT: &str = "tool.loaded";

/// The runtime names of the tools that a tape has loaded, in the order of loading. Read when first asked
/// for and then kept, so that a turn reads its tape once. Clones share it.
#[derive(Clone)]
pub(crate) struct Loaded {
    tape: Tape,
    names: Arc<Mutex<Option<Vec<String>>>>,
}

impl Loaded {
    pub(crate) fn new(tape: Tape) -> Self {
        Self { tape, names: Arc::default() }
    }

    /// The names so far.
    pub(crate) async fn names(&self) -> Result<Vec<String>, TapeError> {
        let mut names = self.names.lock().await;
        Ok(self.read(&mut names).await?.clone())
    }

    /// Records those of `wanted` that are not loaded yet, and returns them, in order.
    pub(crate) async fn load(&self, wanted: &[String]) -> Result<Vec<String>, TapeError> {
        // Held until the event is written: two calls of one step must not both load a tool.
        let mut guard = self.names.lock().await;
        let names = self.read(&mut guard).await?;
        let fresh: Vec<String> = wanted.iter().filter(|it| !names.contains(it)).cloned().collect();
        if !fresh.is_empty() {
            self.tape.append_event(EVENT, json!({"names": fresh})).await?;
            names.extend(fresh.iter().cloned());
        }
        Ok(fresh)
    }

    /// Forgets what was read, so that it is read again: the tape has been reset.
    pub(crate) async fn forget(&self) {
        *self.names.lock().await = None;
    }

    async fn read<'a>(&self, names: &'a mut Option<Vec<String>>) -> Result<&'a mut Vec<String>, TapeError> {
        if names.is_none() {
            let events = self.tape.read(&TapeQuery::default().event(EVENT)).await?;
            let mut found: Vec<String> = Vec::new();
            for name in
                events.iter().filter_map(|it| it.data()?.get("names")?.as_array()).flatten().filter_map(Value::as_str)
            {
                if !found.iter().any(|it| it == name) {
                    found.push(name.to_owned());
                }
            }
            *names = Some(found);
        }
        Ok(names.get_or_insert_default())
    }
}
