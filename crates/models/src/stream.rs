//! One answer: tries, waits, and the events of the try that succeeds.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bub_kernel::model::{ModelError, ModelEvent, ModelRequest, ModelStream};
use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::Response;
use serde_json::{Map, Value};

use crate::{
    decode::Decoder,
    errors::Failure,
    http, media,
    provider::Endpoint,
    wire::{Asked, Wire},
};

/// How long to wait for what may follow the finish reason (usage, the end mark), when the server
/// does not end the stream.
const AFTER_FINISH: Duration = Duration::from_secs(5);

/// How long to wait, once the answer is complete, for the end of the body, without which the
/// connection cannot be used again.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// An answer on its way. Dropping it closes its connection, or ends its wait.
pub(crate) struct Answer {
    endpoint: Arc<Endpoint>,
    wire: Wire,
    path: String,
    body: Bytes,
    run: String,
    state: State,
    events: VecDeque<ModelEvent>,
    n_retries: u32,
    has_output: bool,
    /// What to ask if the media of earlier messages are refused.
    plain: Option<Plain>,
}

/// A request without the media of earlier messages.
pub(crate) struct Plain {
    pub(crate) request: ModelRequest,
    /// What is laid over its body.
    pub(crate) extra_body: Map<String, Value>,
}

impl Plain {
    pub(crate) fn body(self, endpoint: &Endpoint, wire: Wire) -> Result<Vec<u8>, ModelError> {
        let Endpoint { provider, kind, .. } = endpoint;
        wire.body(&Asked { request: &self.request, provider, kind: *kind, extra_body: self.extra_body })
    }
}

enum State {
    Open,
    Waiting(Duration),
    Reading(Box<Reading>),
    Failed(Failure),
    Done,
}

/// A reply being read.
struct Reading {
    response: Response,
    decoder: Decoder,
}

impl Answer {
    /// Asks an endpoint, by its path below the base.
    pub(crate) fn new(endpoint: Arc<Endpoint>, wire: Wire, path: String, body: Bytes, run: &str) -> Self {
        Self {
            endpoint,
            wire,
            path,
            body,
            run: run.to_owned(),
            state: State::Open,
            events: VecDeque::new(),
            n_retries: 0,
            has_output: false,
            plain: None,
        }
    }

    /// What to ask if the media of earlier messages are refused.
    pub(crate) fn or_plain(mut self, plain: Option<Plain>) -> Self {
        self.plain = plain;
        self
    }

    /// Tells that the media of earlier messages are left out, and why.
    pub(crate) fn without_media(mut self, error: &ModelError) -> Self {
        self.tell_left_out(error);
        self
    }

    fn tell_left_out(&mut self, error: &ModelError) {
        let reason = format!("{error}; what was shown earlier is left out");
        self.events.push_back(ModelEvent::Retry { wait: Duration::ZERO, reason });
    }

    pub(crate) fn into_stream(self) -> ModelStream {
        let next = async |mut answer: Box<Self>| answer.next().await.map(|event| (event, answer));
        stream::unfold(Box::new(self), next).boxed()
    }

    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                self.has_output |= !matches!(event, ModelEvent::Retry { .. } | ModelEvent::Usage(_));
                return Some(Ok(event));
            }
            self.state = match std::mem::replace(&mut self.state, State::Done) {
                State::Done => return None,
                State::Waiting(wait) => {
                    tokio::time::sleep(wait).await;
                    State::Open
                }
                State::Open => match self.open().await {
                    Ok(response) => {
                        let decoder = Decoder::new(self.wire, &self.endpoint.provider, &self.run);
                        State::Reading(Box::new(Reading { response, decoder }))
                    }
                    Err(failure) => State::Failed(failure),
                },
                State::Reading(mut reading) => match self.read(&mut reading).await {
                    Ok(true) => State::Done,
                    Ok(false) => State::Reading(reading),
                    Err(err) => State::Failed(err.into()),
                },
                // What came before the failure has been told by now.
                State::Failed(failure) => match self.retry(failure) {
                    Ok(wait) => State::Waiting(wait),
                    Err(error) => return Some(Err(error)),
                },
            };
        }
    }

    /// Sends the request.
    async fn open(&self) -> Result<Response, Failure> {
        self.endpoint.open(&self.path, &self.wire.headers(), Some(self.body.clone())).await
    }

    /// Reads the next piece of the body; true when the answer is complete.
    async fn read(&mut self, reading: &mut Reading) -> Result<bool, ModelError> {
        let Reading { response, decoder } = reading;
        let patience = self.endpoint.http.timeouts.between;
        let patience = if decoder.has_finish() { patience.min(AFTER_FINISH) } else { patience };
        match tokio::time::timeout(patience, response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                let is_done = decoder.push(&bytes, &mut self.events)?;
                if is_done {
                    drop(tokio::time::timeout(DRAIN_WAIT, response.chunk()).await);
                }
                Ok(is_done)
            }
            Ok(Ok(None)) => decoder.end(&mut self.events).map(|()| true),
            // The reason why it stopped has come: what is missing is of no interest.
            Ok(Err(_)) | Err(_) if decoder.has_finish() => decoder.release(&mut self.events).map(|()| true),
            Ok(Err(err)) => {
                let message = format!("the connection to {} broke: {}", self.endpoint.http.host(), http::deepest(&err));
                let source = Some(err.without_url().into());
                let nothing_came = !self.has_output && self.events.is_empty();
                Err(if nothing_came {
                    ModelError::Transport { message, source }
                } else {
                    ModelError::Incomplete(message)
                })
            }
            Err(_) => Err(ModelError::Stalled(format!("{} sent nothing for {patience:?}", self.endpoint.http.host()))),
        }
    }

    /// Decides on another try: how long to wait for it, or the error to report.
    fn retry(&mut self, failure: Failure) -> Result<Duration, ModelError> {
        let Failure { error, retry_after } = failure;
        let error = self.endpoint.told(error);
        if !self.has_output
            && media::is_refusal(&error)
            && let Some(Ok(body)) = self.plain.take().map(|it| it.body(&self.endpoint, self.wire))
        {
            self.body = body.into();
            self.tell_left_out(&error);
            return Ok(Duration::ZERO);
        }
        let retries = &self.endpoint.retries;
        // A stream that ends before it says anything is a broken connection, however politely it ends.
        let may_help = error.is_retryable() || matches!(error, ModelError::Incomplete(_));
        if self.has_output || !may_help || self.n_retries >= retries.max {
            return Err(error);
        }
        let wait = retries.wait(self.n_retries, retry_after);
        self.n_retries = self.n_retries.saturating_add(1);
        tracing::debug!(%error, ?wait, "the model call is tried again");
        self.events.push_back(ModelEvent::Retry { wait, reason: error.to_string() });
        Ok(wait)
    }
}
