//! Models that stand in for one that does not begin to answer.

use std::{collections::VecDeque, fmt, sync::Arc};

use async_trait::async_trait;
use bub_kernel::model::{ModelClient, ModelError, ModelEvent, ModelRequest, ModelSpec, ModelStream};
use futures::{StreamExt as _, stream};

/// A model that may answer.
pub(crate) struct Candidate {
    pub(crate) spec: ModelSpec,
    /// What asks it; a configuration error counts as a failed try.
    pub(crate) client: Result<Arc<dyn ModelClient>, ModelError>,
}

/// Asks one model after the other until one begins to answer. When none does, the first one's error
/// is the answer's.
pub(crate) struct Fallback {
    candidates: Arc<[Candidate]>,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.candidates.iter().map(|it| &it.spec)).finish()
    }
}

impl Fallback {
    /// The first candidate is the one that was asked for.
    pub(crate) fn new(candidates: Vec<Candidate>) -> Self {
        Self { candidates: candidates.into() }
    }
}

#[async_trait]
impl ModelClient for Fallback {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let asking = Asking {
            candidates: self.candidates.clone(),
            request: request.clone(),
            nth: 0,
            stream: None,
            first_error: None,
            events: VecDeque::new(),
            has_output: false,
            is_done: false,
        };
        let next = async |mut asking: Box<Asking>| asking.next().await.map(|event| (event, asking));
        Ok(stream::unfold(Box::new(asking), next).boxed())
    }
}

/// An answer on its way.
struct Asking {
    candidates: Arc<[Candidate]>,
    request: ModelRequest,
    /// Which candidate is asked.
    nth: usize,
    stream: Option<ModelStream>,
    first_error: Option<ModelError>,
    events: VecDeque<ModelEvent>,
    /// Whether the candidate has begun to answer; from then on nobody else is asked.
    has_output: bool,
    is_done: bool,
}

impl Asking {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if self.is_done {
                return self.first_error.take().map(Err);
            }
            let event = match &mut self.stream {
                Some(stream) => stream.next().await,
                None => match self.open().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(err) => Some(Err(err)),
                },
            };
            match event {
                Some(Ok(event)) => {
                    let is_news = matches!(event, ModelEvent::Retry { .. } | ModelEvent::Usage(_));
                    if !is_news && !std::mem::replace(&mut self.has_output, true) && self.nth > 0 {
                        self.events.push_back(event);
                        let spec = self.candidates.get(self.nth).map(|it| it.spec.to_string());
                        return Some(Ok(ModelEvent::AnsweredBy(spec.unwrap_or_default())));
                    }
                    return Some(Ok(event));
                }
                Some(Err(err)) if self.has_output => {
                    self.is_done = true;
                    return Some(Err(err));
                }
                Some(Err(err)) => self.failed(err),
                None => self.is_done = true,
            }
        }
    }

    async fn open(&mut self) -> Result<ModelStream, ModelError> {
        let Some(candidate) = self.candidates.get(self.nth) else {
            return Err(ModelError::Config("no model is left to ask".to_owned()));
        };
        self.request.model.clone_from(&candidate.spec.model);
        match &candidate.client {
            Ok(client) => client.stream(&self.request).await,
            Err(err) => Err(ModelError::Config(err.to_string())),
        }
    }

    /// Turns to the next candidate, if there is one.
    fn failed(&mut self, err: ModelError) {
        let name = |nth: usize| self.candidates.get(nth).map(|it| it.spec.to_string());
        let next = name(self.nth.saturating_add(1));
        let model = name(self.nth).unwrap_or_default();
        tracing::warn!(model, error = %err, next, "the model did not answer");
        self.is_done = next.is_none();
        self.events.push_back(ModelEvent::AttemptFailed { model, error: err.to_string(), next });
        self.first_error.get_or_insert(err);
        self.nth = self.nth.saturating_add(1);
        self.stream = None;
    }
}
