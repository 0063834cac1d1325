//! Carries events to handlers.

use std::{
    any::{Any, TypeId},
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{FutureExt as _, future::BoxFuture};

use super::{Event, EventInfo};
use crate::error::panic_text;

/// A handler's failure.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// An event of any type, for handlers that take them all.
pub trait AnyEvent: Send {
    /// What it is.
    fn info(&self) -> EventInfo;
    /// The event itself, to be cast to its type.
    fn as_any(&mut self) -> &mut (dyn Any + Send);
}

impl<E: Event> AnyEvent for E {
    fn info(&self) -> EventInfo {
        E::INFO
    }

    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        self
    }
}

type Handler = dyn for<'a> Fn(&'a mut dyn AnyEvent) -> Option<BoxFuture<'a, Result<(), HandlerError>>> + Send + Sync;

/// Which handler, for [`EventBus::off`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HandlerId(u64);

#[derive(Clone)]
struct Registered {
    id: HandlerId,
    /// The type of the events that it takes; `None` is all.
    wants: Option<TypeId>,
    handler: Arc<Handler>,
}

impl Registered {
    fn takes<E: Event>(&self) -> bool {
        self.wants.is_none_or(|it| it == TypeId::of::<E>())
    }
}

/// The handlers of one bus; replaced as a whole, so that an event under way is not disturbed.
type Handlers = RwLock<Arc<[Registered]>>;

/// Carries events to handlers, in the order of their registration. A clone is the same bus: a handler
/// that is added or removed there is added or removed here, from the next event on.
#[derive(Clone)]
pub struct EventBus {
    /// Never empty. Handlers of earlier ones come first; new ones are added to the last.
    parts: Vec<Arc<Handlers>>,
}

impl Default for EventBus {
    fn default() -> Self {
        Self { parts: vec![Arc::new(RwLock::new(Arc::new([])))] }
    }
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.parts.iter().map(|it| snapshot(it).len()).sum();
        f.debug_struct("EventBus").field("handlers", &count).finish()
    }
}

impl EventBus {
    /// A bus with the handlers of this one before those of `later`; both go on as they are.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        Self { parts: self.parts.iter().chain(&later.parts).cloned().collect() }
    }

    /// Calls `handler` with each event of type `E`, and waits for it.
    pub fn on<E: Event>(
        &self,
        handler: impl for<'a> Fn(&'a mut E) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync + 'static,
    ) -> HandlerId {
        self.add(
            Some(TypeId::of::<E>()),
            Arc::new(move |event: &mut dyn AnyEvent| event.as_any().downcast_mut::<E>().map(&handler)),
        )
    }

    /// Calls a handler that has nothing to wait for.
    pub fn on_sync<E: Event>(
        &self,
        handler: impl Fn(&mut E) -> Result<(), HandlerError> + Send + Sync + 'static,
    ) -> HandlerId {
        self.on(move |event: &mut E| {
            let done = handler(event);
            Box::pin(std::future::ready(done))
        })
    }

    /// Calls `handler` with each event of any type, and waits for it.
    pub fn on_any(
        &self,
        handler: impl for<'a> Fn(&'a mut dyn AnyEvent) -> BoxFuture<'a, Result<(), HandlerError>> + Send + Sync + 'static,
    ) -> HandlerId {
        self.add(None, Arc::new(move |event: &mut dyn AnyEvent| Some(handler(event))))
    }

    /// Takes a handler out; tells whether it was there.
    pub fn off(&self, id: HandlerId) -> bool {
        let mut was_there = false;
        for part in &self.parts {
            let mut handlers = part.write().unwrap_or_else(PoisonError::into_inner);
            if handlers.iter().any(|it| it.id == id) {
                *handlers = handlers.iter().filter(|it| it.id != id).cloned().collect();
                was_there = true;
            }
        }
        was_there
    }

    /// Whether anybody takes events of type `E`: one that nobody takes need not be made.
    #[must_use]
    pub fn wants<E: Event>(&self) -> bool {
        self.parts.iter().any(|it| snapshot(it).iter().any(Registered::takes::<E>))
    }

    /// Whether there are any handlers.
    #[must_use]
    pub fn has_handlers(&self) -> bool {
        self.parts.iter().any(|it| !snapshot(it).is_empty())
    }

    /// Hands `event` to its handlers, in order, until one decides.
    ///
    /// # Errors
    /// That of the first handler that fails; a panic is one.
    pub async fn emit<E: Event>(&self, event: &mut E) -> Result<(), HandlerError> {
        for part in &self.parts {
            let handlers = snapshot(part);
            for it in handlers.iter().filter(|it| it.takes::<E>()) {
                if event.stopped() {
                    return Ok(());
                }
                let work = async {
                    match (it.handler)(&mut *event) {
                        Some(work) => work.await,
                        None => Ok(()),
                    }
                };
                match AssertUnwindSafe(work).catch_unwind().await {
                    Ok(done) => done?,
                    Err(panic) => return Err(format!("it panicked: {}", panic_text(&*panic)).into()),
                }
            }
        }
        Ok(())
    }

    fn add(&self, wants: Option<TypeId>, handler: Arc<Handler>) -> HandlerId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = HandlerId(NEXT.fetch_add(1, Ordering::Relaxed));
        if let Some(own) = self.parts.last() {
            let mut handlers = own.write().unwrap_or_else(PoisonError::into_inner);
            *handlers = handlers.iter().cloned().chain([Registered { id, wants, handler }]).collect();
        }
        id
    }
}

fn snapshot(handlers: &Handlers) -> Arc<[Registered]> {
    handlers.read().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        event::{EVENTS, MessagesPending, StepStarted},
        tape::{MemoryStore, Tape, TapeName},
    };

    fn tape() -> Tape {
        Tape::new(TapeName::session("/ws", "s"), Arc::new(MemoryStore::default()), crate::clock::system())
    }

    fn step(number: usize) -> StepStarted {
        StepStarted { state: Arc::default(), tape: tape(), step: number, prompt: None }
    }

    type Log = Arc<Mutex<Vec<String>>>;

    /// Notes what it was called with.
    fn note(log: &Log, name: &'static str) -> impl Fn(&mut StepStarted) -> Result<(), HandlerError> + use<> {
        let log = log.clone();
        move |event| {
            log.lock().unwrap().push(format!("{name}{}", event.step));
            Ok(())
        }
    }

    #[tokio::test]
    async fn handlers_come_and_go_in_the_order_of_their_registration() {
        let log = Arc::default();
        let (early, late) = (EventBus::default(), EventBus::default());
        let kept = late.clone();
        let bus = early.then(&late);
        assert!(!bus.wants::<StepStarted>());
        kept.on_sync(note(&log, "c"));
        let first = early.on_sync(note(&log, "a"));
        bus.on({
            let note = note(&log, "d");
            move |event: &mut StepStarted| {
                let done = note(event);
                Box::pin(async move {
                    // A handler that waits is waited for.
                    tokio::task::yield_now().await;
                    done
                })
            }
        });
        early.on_sync(note(&log, "b"));
        assert!(bus.wants::<StepStarted>() && !bus.wants::<MessagesPending>());
        bus.emit(&mut step(1)).await.unwrap();
        assert!(bus.off(first) && !bus.off(first) && !late.off(first));
        bus.emit(&mut step(2)).await.unwrap();
        assert_eq!(*log.lock().unwrap(), ["a1", "b1", "c1", "d1", "b2", "c2", "d2"]);
    }

    #[tokio::test]
    async fn a_handler_for_all_events_gets_each_with_its_name() {
        let names = Arc::new(Mutex::new(Vec::new()));
        let bus = EventBus::default();
        bus.on_any({
            let names = names.clone();
            move |event| {
                let step = event.as_any().downcast_ref::<StepStarted>().map(|it| it.step);
                names.lock().unwrap().push((event.info().name, step));
                Box::pin(std::future::ready(Ok(())))
            }
        });
        bus.emit(&mut step(3)).await.unwrap();
        let mut pending = MessagesPending { state: Arc::default(), tape: tape(), messages: Vec::new() };
        bus.emit(&mut pending).await.unwrap();
        assert_eq!(*names.lock().unwrap(), [("StepStarted", Some(3)), ("MessagesPending", None)]);
    }

    #[tokio::test]
    async fn a_handler_that_panics_or_fails_is_an_error_and_ends_the_delivery() {
        let bus = EventBus::default();
        let failing = bus.on_sync(|_: &mut StepStarted| Err("no".into()));
        bus.on_sync(|event: &mut StepStarted| panic!("step {}", event.step));
        assert_eq!(bus.emit(&mut step(1)).await.unwrap_err().to_string(), "no");
        bus.off(failing);
        assert_eq!(bus.emit(&mut step(2)).await.unwrap_err().to_string(), "it panicked: step 2");
    }

    #[test]
    fn every_event_says_what_it_is() {
        assert_eq!(EVENTS.len(), 11);
        for event in EVENTS {
            assert!(!event.when.is_empty() && event.fields.len() > 1, "{event:?}");
            assert!(event.fields.iter().all(|it| !it.meaning.is_empty()), "{event:?}");
        }
    }
}
