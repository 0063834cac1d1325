//! What the runtime keeps for each session while it lives: its environment, its tasks, its waiting
//! messages, its running turns, and the lock against other processes.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bub_kernel::{
    environment::Environment,
    message::Message,
    tape::TapeName,
    task::TaskScope,
    turn::{RunId, SessionId},
};
use tokio_util::sync::CancellationToken;

/// Holds a session against other processes until it is dropped.
pub type SessionGuard = Box<dyn Any + Send + Sync>;

/// Keeps two processes from running turns of one session at once. Turns of one process share a
/// session: one may run another in its own session, and must not wait for itself.
#[async_trait]
pub trait SessionLocks: Send + Sync {
    /// Waits for the session, within limits; `on_wait` is called once when there is a wait, with a
    /// sentence for the person.
    ///
    /// # Errors
    /// A sentence for the person, when the wait was too long.
    async fn acquire(&self, tape: &TapeName, on_wait: &(dyn Fn(String) + Send + Sync)) -> Result<SessionGuard, String>;
}

/// A running turn.
#[derive(Clone, Debug)]
struct Running {
    run: RunId,
    cancel: CancellationToken,
}

/// One session's things.
#[derive(Default)]
struct Session {
    environment: Option<Arc<dyn Environment>>,
    tasks: TaskScope,
    pending: Vec<Message>,
    running: Vec<Running>,
    /// Turns and commands that are at work with it, from before they are running to after.
    holds: usize,
}

/// All sessions of a runtime.
#[derive(Default)]
pub(crate) struct Sessions {
    map: Mutex<HashMap<SessionId, Session>>,
}

impl Sessions {
    fn with<T>(&self, id: &SessionId, work: impl FnOnce(&mut Session) -> T) -> T {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        work(map.entry(id.clone()).or_default())
    }

    /// The session's environment, if it has been provided.
    pub(crate) fn environment(&self, id: &SessionId) -> Option<Arc<dyn Environment>> {
        self.with(id, |it| it.environment.clone())
    }

    /// Keeps the session's environment; the one that was first stays.
    pub(crate) fn provide(&self, id: &SessionId, environment: Arc<dyn Environment>) -> Arc<dyn Environment> {
        self.with(id, |it| it.environment.get_or_insert(environment).clone())
    }

    pub(crate) fn tasks(&self, id: &SessionId) -> TaskScope {
        self.with(id, |it| it.tasks.clone())
    }

    /// Keeps the session from being forgotten until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, id: &SessionId) -> SessionHold {
        self.with(id, |it| it.holds += 1);
        SessionHold { sessions: self.clone(), id: id.clone() }
    }

    /// Notes a turn as running until the guard is dropped.
    pub(crate) fn start(self: &Arc<Self>, id: &SessionId, run: RunId, cancel: CancellationToken) -> RunningGuard {
        self.with(id, |it| it.running.push(Running { run: run.clone(), cancel }));
        RunningGuard { sessions: self.clone(), id: id.clone(), run }
    }

    /// Cancels the session's turns but that of `caller`, and forgets its waiting messages.
    pub(crate) fn quit(&self, id: &SessionId, caller: Option<&RunId>) {
        self.with(id, |it| {
            it.pending.clear();
            for running in it.running.iter().filter(|it| Some(&it.run) != caller) {
                running.cancel.cancel();
            }
        });
    }

    /// Forgets a session that nothing goes on in.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.forget_if(id, |_| true);
    }

    /// Forgets a session that nothing goes on in and that has nothing of its own: no message waits, and
    /// it runs in the common environment. So what many sessions leave does not add up.
    pub(crate) fn forget_plain(&self, id: &SessionId, common: &Arc<dyn Environment>) {
        let is_common = |own: &Option<Arc<dyn Environment>>| own.as_ref().is_none_or(|it| Arc::ptr_eq(it, common));
        self.forget_if(id, |it| it.pending.is_empty() && is_common(&it.environment));
    }

    fn forget_if(&self, id: &SessionId, is_done: impl Fn(&Session) -> bool) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |it: &Session| it.holds == 0 && it.running.is_empty() && it.tasks.is_idle();
        if map.get(id).is_some_and(|it| is_idle(it) && is_done(it)) {
            map.remove(id);
        }
    }

    pub(crate) fn push_pending(&self, id: &SessionId, message: Message) {
        self.with(id, |it| it.pending.push(message));
    }

    pub(crate) fn take_pending(&self, id: &SessionId) -> Vec<Message> {
        self.with(id, |it| std::mem::take(&mut it.pending))
    }

    /// Puts messages back that were taken and not used, before those that came since.
    pub(crate) fn give_back(&self, id: &SessionId, messages: Vec<Message>) {
        self.with(id, |it| drop(it.pending.splice(0..0, messages)));
    }

    pub(crate) fn has_pending(&self, id: &SessionId) -> bool {
        self.with(id, |it| !it.pending.is_empty())
    }

    /// All environments and task scopes, for closing.
    pub(crate) fn drain(&self) -> Vec<(Option<Arc<dyn Environment>>, TaskScope)> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.values_mut().for_each(|it| it.running.iter().for_each(|it| it.cancel.cancel()));
        map.values_mut().map(|it| (it.environment.take(), it.tasks.clone())).collect()
    }
}

/// A session that something is at work with.
pub(crate) struct SessionHold {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Drop for SessionHold {
    fn drop(&mut self) {
        self.sessions.with(&self.id, |it| it.holds = it.holds.saturating_sub(1));
    }
}

/// A turn that is noted as running.
pub(crate) struct RunningGuard {
    sessions: Arc<Sessions>,
    id: SessionId,
    run: RunId,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.sessions.with(&self.id, |it| it.running.retain(|it| it.run != self.run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bub_kernel::message::Role;
    use bub_testing::NoEnvironment;

    #[test]
    fn sessions_with_nothing_of_their_own_do_not_add_up() {
        let sessions = Arc::new(Sessions::default());
        let common: Arc<dyn Environment> = Arc::new(NoEnvironment);
        let count = || sessions.map.lock().unwrap().len();
        let id = SessionId("s".into());
        let first = sessions.hold(&id);
        let second = sessions.hold(&id);
        sessions.provide(&id, common.clone());
        drop(first);
        sessions.forget_plain(&id, &common);
        assert_eq!(count(), 1, "something is at work with it");
        drop(second);
        sessions.forget_plain(&id, &common);
        assert_eq!(count(), 0);

        sessions.push_pending(&id, Message::text(Role::User, "wait"));
        sessions.forget_plain(&id, &common);
        assert_eq!(sessions.take_pending(&id).len(), 1);
        sessions.provide(&id, Arc::new(NoEnvironment));
        sessions.forget_plain(&id, &common);
        assert_eq!(count(), 1, "its environment is its own, and has to be closed");
    }
}
