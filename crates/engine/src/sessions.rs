//! What the runtime keeps for each session while it lives: its environment, its tasks, its waiting
//! messages, its running turns, and the lock against other processes.

use std::{
    any::Any,
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bub_kernel::{
    channel::TurnSnapshot,
    environment::Environment,
    message::Message,
    tape::TapeName,
    task::TaskScope,
    turn::{Inbound, SessionId, TurnState},
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

/// The most messages of one session that wait for a turn or for a step: a person who sends more than that
/// is told so.
pub const MAX_WAITING: usize = 64;

/// A session has as many waiting messages as it may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{MAX_WAITING} messages are waiting in this session already")]
pub struct QueueFull;

/// A turn or command that runs.
#[derive(Clone, Debug)]
struct Running {
    ticket: u64,
    cancel: CancellationToken,
}

/// The numbers of the turns that something is part of, outermost first.
#[derive(Clone, Debug, Default)]
struct Tickets(Vec<u64>);

/// One session's things.
#[derive(Default)]
struct Session {
    environment: Option<Arc<dyn Environment>>,
    tasks: TaskScope,
    /// For the next step of the running turn.
    steering: VecDeque<Inbound>,
    /// What goes into the next step as it is: an embedder's messages, and what a step took and did not keep.
    pending: Vec<Message>,
    /// For a turn of their own, when none runs.
    waiting: VecDeque<Inbound>,
    /// Turns that the gateway runs.
    admitted: usize,
    running: Vec<Running>,
    /// Turns and commands that are at work with it, from before they are running to after.
    holds: usize,
}

impl Session {
    fn has_no_messages(&self) -> bool {
        self.steering.is_empty() && self.pending.is_empty() && self.waiting.is_empty()
    }

    fn make_room(&self) -> Result<(), QueueFull> {
        if self.steering.len() + self.waiting.len() + self.pending.len() >= MAX_WAITING {
            Err(QueueFull)
        } else {
            Ok(())
        }
    }
}

/// All sessions of a runtime.
#[derive(Default)]
pub(crate) struct Sessions {
    map: Mutex<HashMap<SessionId, Session>>,
    n_tickets: AtomicU64,
}

/// Where a message that does not start a turn now has gone.
#[derive(Debug)]
pub(crate) enum Queued {
    /// Into the running turn's inbox.
    Steering,
    /// To those that wait.
    Waiting,
    /// Nowhere: no turn runs, so it may start one, which is counted already.
    Start(Inbound),
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

    /// Notes a turn or command as running until the guard is dropped, and in its state which one it is.
    pub(crate) fn start(
        self: &Arc<Self>,
        id: &SessionId,
        state: &mut TurnState,
        cancel: CancellationToken,
    ) -> RunningGuard {
        let ticket = self.n_tickets.fetch_add(1, Ordering::Relaxed);
        let mut tickets = state.slot::<Tickets>().cloned().unwrap_or_default();
        tickets.0.push(ticket);
        state.set_slot(tickets);
        self.with(id, |it| it.running.push(Running { ticket, cancel }));
        RunningGuard { sessions: self.clone(), id: id.clone(), ticket }
    }

    /// Cancels the session's turns but those that `caller` is part of, and forgets its waiting messages.
    pub(crate) fn quit(&self, id: &SessionId, caller: &TurnState) {
        let own = caller.slot::<Tickets>().map(|it| it.0.as_slice()).unwrap_or_default();
        self.with(id, |it| {
            it.steering.clear();
            it.pending.clear();
            it.waiting.clear();
            for running in it.running.iter().filter(|it| !own.contains(&it.ticket)) {
                running.cancel.cancel();
            }
        });
    }

    /// Cancels the session's turns and commands; what waits stays.
    pub(crate) fn cancel(&self, id: &SessionId) {
        self.with(id, |it| it.running.iter().for_each(|it| it.cancel.cancel()));
    }

    /// The session's turns and waiting messages at this moment.
    pub(crate) fn snapshot(&self, id: &SessionId) -> TurnSnapshot {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        // Looking makes no session.
        let counts = map.get_mut(id).map(|it| (it.admitted, it.waiting.len(), it.steering.len()));
        let (running, pending, steering) = counts.unwrap_or_default();
        TurnSnapshot { session: id.clone(), running, pending, steering }
    }

    /// Forgets a session that nothing goes on in.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.forget_if(id, |_| true);
    }

    /// Forgets a session that nothing goes on in and that has nothing of its own: no message waits, and
    /// it runs in the common environment. So what many sessions leave does not add up.
    pub(crate) fn forget_plain(&self, id: &SessionId, common: &Arc<dyn Environment>) {
        let is_common = |own: &Option<Arc<dyn Environment>>| own.as_ref().is_none_or(|it| Arc::ptr_eq(it, common));
        self.forget_if(id, |it| it.has_no_messages() && is_common(&it.environment));
    }

    fn forget_if(&self, id: &SessionId, is_done: impl Fn(&Session) -> bool) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |it: &Session| it.holds == 0 && it.admitted == 0 && it.running.is_empty() && it.tasks.is_idle();
        if map.get(id).is_some_and(|it| is_idle(it) && is_done(it)) {
            map.remove(id);
        }
    }

    /// Puts a message into the inbox of the session's turn, whether or not one runs.
    pub(crate) fn push_steering(&self, id: &SessionId, inbound: Inbound) -> Result<(), QueueFull> {
        self.with(id, |it| {
            it.make_room()?;
            it.steering.push_back(inbound);
            Ok(())
        })
    }

    pub(crate) fn take_steering(&self, id: &SessionId) -> VecDeque<Inbound> {
        self.with(id, |it| std::mem::take(&mut it.steering))
    }

    /// Gives back messages that a step took and did not keep.
    pub(crate) fn return_steering(&self, id: &SessionId, mut taken: VecDeque<Inbound>) {
        if !taken.is_empty() {
            self.with(id, |it| {
                taken.append(&mut it.steering);
                it.steering = taken;
            });
        }
    }

    /// Keeps a message for the next step, which takes it as it is.
    pub(crate) fn push_pending(&self, id: &SessionId, message: Message) -> Result<(), QueueFull> {
        self.with(id, |it| {
            it.make_room()?;
            it.pending.push(message);
            Ok(())
        })
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

    pub(crate) fn has_steering(&self, id: &SessionId) -> bool {
        self.with(id, |it| !it.steering.is_empty())
    }

    /// Counts a turn of the gateway.
    pub(crate) fn admit(&self, id: &SessionId) {
        self.with(id, |it| it.admitted += 1);
    }

    /// Hands a message to the running turn, or to the queue behind it; when none runs it may start one.
    pub(crate) fn queue(&self, id: &SessionId, inbound: Inbound, steers: bool) -> Result<Queued, QueueFull> {
        self.with(id, |it| {
            if it.admitted == 0 {
                it.admitted = 1;
                return Ok(Queued::Start(inbound));
            }
            it.make_room()?;
            if steers {
                it.steering.push_back(inbound);
                return Ok(Queued::Steering);
            }
            it.waiting.push_back(inbound);
            Ok(Queued::Waiting)
        })
    }

    /// A turn of the gateway has ended: what no step took waits for a turn of its own, and when none runs
    /// any more, the message whose turn is next, which is counted already.
    pub(crate) fn dismiss(&self, id: &SessionId) -> Option<Inbound> {
        self.with(id, |it| {
            it.admitted = it.admitted.saturating_sub(1);
            if it.admitted > 0 {
                return None;
            }
            it.waiting.append(&mut it.steering);
            let next = it.waiting.pop_front();
            it.admitted = usize::from(next.is_some());
            next
        })
    }

    /// Takes all messages that wait, for closing.
    pub(crate) fn take_waiting(&self) -> Vec<Inbound> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.values_mut().flat_map(|it| it.steering.drain(..).chain(it.waiting.drain(..)).collect::<Vec<_>>()).collect()
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
    ticket: u64,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.sessions.with(&self.id, |it| it.running.retain(|it| it.ticket != self.ticket));
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

        sessions.push_pending(&id, Message::text(Role::User, "wait")).unwrap();
        sessions.forget_plain(&id, &common);
        assert_eq!(sessions.take_pending(&id).len(), 1);
        sessions.provide(&id, Arc::new(NoEnvironment));
        sessions.forget_plain(&id, &common);
        assert_eq!(count(), 1, "its environment is its own, and has to be closed");
    }
}
