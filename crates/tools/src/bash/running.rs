//! A process that runs in a shell, and reading what it prints.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bub_kernel::environment::{Process, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::watch,
    time::{sleep, timeout},
};

use super::buffer::{Limits, OutputBuffer, Slice};

/// How long a shell that was asked to stop may take before it is killed.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(3);

/// How long a killed shell may take to be gone.
pub(super) const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long output is read after the end of the process that printed it.
const DRAIN: Duration = Duration::from_millis(200);

/// How often it is checked whether a shell that was asked to stop has any process left.
const STOP_POLL: Duration = Duration::from_millis(50);

/// How often it is checked whether the children of a shell that ended are still there.
const CHILDREN_POLL: Duration = Duration::from_millis(250);

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// How far a shell is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Characters that it printed.
    pub(super) n_chars: u64,
    /// Set when nothing of it is left.
    pub(super) ended: Option<Ended>,
}

/// How a shell ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// The exit code of the shell itself; absent when it could not be made to end.
    pub(super) code: Option<i32>,
}

/// What a shell prints, for those who read it and those who wait for it.
pub(super) struct Output {
    buffer: Mutex<OutputBuffer>,
    progress: watch::Sender<Progress>,
}

impl Output {
    pub(super) fn new(limits: Limits) -> Self {
        Self { buffer: Mutex::new(OutputBuffer::new(limits)), progress: watch::Sender::default() }
    }

    pub(super) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Tells that nothing of the shell is left.
    pub(super) fn end(&self, code: Option<i32>) {
        self.progress.send_modify(|it| it.ended = Some(Ended { code }));
    }

    /// The text from character `start` to `end`.
    pub(super) async fn read(self: &Arc<Self>, start: u64, end: u64) -> Slice {
        let work = move |it: &OutputBuffer| it.read(start, end);
        self.look(work).await.unwrap_or(Slice { text: String::new(), next: start })
    }

    /// The text so far, without blanks around it, or its start and end; `(no output)` when there is none.
    pub(super) async fn summary(self: &Arc<Self>) -> String {
        let text = self.look(OutputBuffer::summary).await.unwrap_or_default();
        shown(text.trim())
    }

    /// Looks into the buffer: where blocking is allowed, if that has to wait for the disk. `None` when
    /// the runtime shuts down.
    async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&OutputBuffer) -> T + Send + 'static,
    ) -> Option<T> {
        if !self.buffer().is_spooled() {
            return Some(work(&self.buffer()));
        }
        let output = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&output.buffer())).await.ok()
    }

    async fn push(&self, bytes: &[u8]) {
        self.buffer().push(bytes);
        self.make_room(OutputBuffer::make_room).await;
        let n_chars = self.buffer().n_chars();
        self.progress.send_modify(|it| it.n_chars = n_chars);
    }

    async fn settle(&self) {
        self.make_room(OutputBuffer::settle).await;
        let n_chars = self.buffer().n_chars();
        self.progress.send_modify(|it| it.n_chars = n_chars);
    }

    async fn make_room(&self, next: fn(&mut OutputBuffer) -> Option<super::buffer::Flush>) {
        loop {
            let Some(flush) = next(&mut self.buffer()) else { return };
            let written = tokio::task::spawn_blocking(move || {
                let written = flush.write();
                (flush, written)
            });
            // It fails only when the runtime shuts down.
            let Ok((flush, written)) = written.await else { return };
            self.buffer().flushed(&flush, written);
        }
    }

    fn buffer(&self) -> MutexGuard<'_, OutputBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a result shows of a text.
pub(super) fn shown(text: &str) -> String {
    if text.is_empty() { "(no output)".to_owned() } else { text.to_owned() }
}

/// A process and its output. Dropping it kills the process and its descendants. All methods can be
/// dropped and called again.
pub(super) struct Running {
    process: Box<dyn Process>,
    /// `None` after the end of the output.
    reader: Option<Box<dyn AsyncRead + Send + Unpin>>,
    chunk: Vec<u8>,
    output: Arc<Output>,
    code: Option<i32>,
}

impl Running {
    pub(super) fn new(mut process: Box<dyn Process>, limits: Limits) -> Self {
        let reader = process.take_pipes().map(|it| it.stdout);
        Self { process, reader, chunk: Vec::new(), output: Arc::new(Output::new(limits)), code: None }
    }

    pub(super) fn output(&self) -> &Arc<Output> {
        &self.output
    }

    /// The exit code of the process itself, once it ended.
    pub(super) fn code(&self) -> Option<i32> {
        self.code
    }

    /// Whether the process or any descendant is alive.
    pub(super) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Waits until the process itself ends, which its children may outlive.
    pub(super) async fn until_exit(&mut self) {
        while self.code.is_none() {
            self.step().await;
        }
    }

    /// Reads what is left in the pipe; children that keep it open are not waited for.
    pub(super) async fn drain(&mut self) {
        drop(timeout(DRAIN, self.until_end_of_output()).await);
    }

    /// Waits until neither the process nor any descendant is left.
    pub(super) async fn until_gone(&mut self) {
        self.until_exit().await;
        while self.process.is_running() {
            if self.reader.is_some() {
                drop(timeout(CHILDREN_POLL, self.until_end_of_output()).await);
            } else {
                sleep(CHILDREN_POLL).await;
            }
        }
        self.drain().await;
    }

    /// Ends the process and its descendants: asks, and kills what does not go in time.
    pub(super) async fn stop(&mut self) {
        for (signal, grace) in [(Signal::Terminate, STOP_GRACE), (Signal::Kill, KILL_GRACE)] {
            self.process.signal(signal);
            if timeout(grace, self.until_stopped()).await.is_ok() {
                break;
            }
        }
        self.drain().await;
    }

    /// Lets go of the process: nothing more will be printed.
    pub(super) fn finish(self) {
        self.output.buffer().finish();
    }

    /// Lets go of the process, and of memory where there is a spool file.
    pub(super) async fn settle(self) {
        let output = Arc::clone(&self.output);
        self.finish();
        output.settle().await;
    }

    async fn until_stopped(&mut self) {
        while self.code.is_none() || self.process.is_running() {
            drop(timeout(STOP_POLL, self.step()).await);
        }
    }

    async fn until_end_of_output(&mut self) {
        while self.reader.is_some() {
            read_chunk(&mut self.reader, &mut self.chunk).await;
            self.take_chunk().await;
        }
    }

    /// Waits for output or for the end of the process, whichever comes first.
    async fn step(&mut self) {
        tokio::select! {
            () = read_chunk(&mut self.reader, &mut self.chunk) => self.take_chunk().await,
            status = self.process.wait(), if self.code.is_none() => match status {
                Ok(status) => self.code = Some(status.code),
                Err(err) => {
                    tracing::warn!(%err, "the exit code of a shell is lost");
                    self.code = Some(-1);
                }
            },
        }
    }

    /// Takes what was read; nothing is the end.
    async fn take_chunk(&mut self) {
        if self.chunk.is_empty() {
            self.reader = None;
            self.chunk = Vec::new();
        } else {
            self.output.push(&self.chunk).await;
        }
    }
}

/// Reads into the chunk, which stays empty at the end. Waits for ever when there is no reader.
async fn read_chunk(reader: &mut Option<Box<dyn AsyncRead + Send + Unpin>>, chunk: &mut Vec<u8>) {
    let Some(reader) = reader else { return pending().await };
    chunk.clear();
    chunk.reserve(CHUNK);
    if let Err(err) = reader.read_buf(chunk).await {
        tracing::debug!(%err, "the output of a shell ended with an error");
        chunk.clear();
    }
}
