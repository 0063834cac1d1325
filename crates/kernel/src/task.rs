//! Tasks that outlive a call, never their owner. The only place that may spawn.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long a closing scope waits for its tasks before it stops waiting.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Tasks of one owner, cancelled and awaited together.
#[derive(Clone, Debug, Default)]
pub struct TaskScope {
    tracker: TaskTracker,
    cancel: CancellationToken,
}

impl TaskScope {
    /// Runs `work` until it ends or the scope closes, whichever comes first.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.run(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => (),
                () = work => (),
            }
        });
    }

    /// Runs `work` to its end; it is told of closing by [`TaskScope::token`] and should then hurry.
    pub fn spawn_to_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.run(work);
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that spawns: every task has an owner")]
    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(self.tracker.track_future(work)));
    }

    /// Cancelled when the scope closes.
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Whether it has been closed; what is spawned then ends at once.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Whether no task is running.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Cancels all tasks and waits for them, at most [`SHUTDOWN_GRACE`].
    pub async fn close(&self) {
        self.cancel.cancel();
        self.tracker.close();
        if tokio::time::timeout(SHUTDOWN_GRACE, self.tracker.wait()).await.is_err() {
            tracing::warn!(tasks = self.tracker.len(), "tasks did not end in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    #[tokio::test]
    async fn close_drops_tasks_and_waits_for_those_that_finish() {
        struct OnDrop(Arc<AtomicBool>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let scope = TaskScope::default();
        let (dropped, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let guard = OnDrop(dropped.clone());
        scope.spawn(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        let (token, done) = (scope.token().clone(), finished.clone());
        scope.spawn_to_end(async move {
            token.cancelled().await;
            tokio::task::yield_now().await;
            done.store(true, Ordering::SeqCst);
        });
        scope.close().await;
        assert!(dropped.load(Ordering::SeqCst) && finished.load(Ordering::SeqCst));
    }
}
