//! A model that plays a script, in process.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    message::{TokenUsage, ToolCallRequest},
    model::{FinishReason, ModelClient, ModelError, ModelEvent, ModelInfo, ModelProvider, ModelRequest, ModelStream},
};
use futures::{StreamExt, stream};
use serde_json::{Map, Value};

/// One step of a script: a pause and then an event or the error that ends the answer.
type Step = (Duration, Result<ModelEvent, ModelError>);

/// What a [`ScriptedModel`] does for one request.
#[derive(Debug, Default)]
pub struct Script {
    refusal: Option<ModelError>,
    steps: Vec<Step>,
    hangs: bool,
}

impl Script {
    /// Plays `events` as they are; nothing is added.
    #[must_use]
    pub fn events(events: impl IntoIterator<Item = ModelEvent>) -> Self {
        Self { steps: events.into_iter().map(|it| (Duration::ZERO, Ok(it))).collect(), ..Self::default() }
    }

    /// Answers with one text and finishes.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::events([ModelEvent::Text(text.into()), ModelEvent::Finish(FinishReason::Stop)])
    }

    /// Asks for tools: id, model-facing name and arguments. A text value is taken as the arguments'
    /// JSON text as it is, which may be broken; any other value is serialised.
    #[must_use]
    pub fn calls(calls: impl IntoIterator<Item = (&'static str, &'static str, Value)>) -> Self {
        let calls = calls.into_iter().map(|(id, name, arguments)| {
            let arguments = match arguments {
                Value::String(text) => text,
                other => other.to_string(),
            };
            ModelEvent::ToolCall(ToolCallRequest { id: id.into(), name: name.into(), arguments, metadata: Map::new() })
        });
        Self::events(calls.chain([ModelEvent::Finish(FinishReason::ToolCalls)]))
    }

    /// Fails before the first event: `stream` itself returns the error.
    #[must_use]
    pub fn error(err: ModelError) -> Self {
        Self { refusal: Some(err), ..Self::default() }
    }

    /// Never answers; only dropping ends it.
    #[must_use]
    pub fn pending() -> Self {
        Self { hangs: true, ..Self::default() }
    }

    /// Adds the tokens that were used, before the finish.
    #[must_use]
    pub fn usage(mut self, usage: TokenUsage) -> Self {
        let at = self.steps.iter().position(|(_, it)| matches!(it, Ok(ModelEvent::Finish(_))));
        self.steps.insert(at.unwrap_or(self.steps.len()), (Duration::ZERO, Ok(ModelEvent::Usage(usage))));
        self
    }

    /// Plays `events` before all others: text before calls, thinking before text.
    #[must_use]
    pub fn after(mut self, events: impl IntoIterator<Item = ModelEvent>) -> Self {
        self.steps.splice(0..0, events.into_iter().map(|it| (Duration::ZERO, Ok(it))));
        self
    }

    /// Replaces the reason of the finish.
    #[must_use]
    pub fn finish(mut self, reason: FinishReason) -> Self {
        self.steps.retain(|(_, it)| !matches!(it, Ok(ModelEvent::Finish(_))));
        self.steps.push((Duration::ZERO, Ok(ModelEvent::Finish(reason))));
        self
    }

    /// Drops the finish and fails instead, after the events so far.
    #[must_use]
    pub fn then_error(mut self, err: ModelError) -> Self {
        self.steps.retain(|(_, it)| !matches!(it, Ok(ModelEvent::Finish(_))));
        self.steps.push((Duration::ZERO, Err(err)));
        self
    }

    /// Drops the finish and hangs instead, after the events so far.
    #[must_use]
    pub fn then_pending(mut self) -> Self {
        self.steps.retain(|(_, it)| !matches!(it, Ok(ModelEvent::Finish(_))));
        self.hangs = true;
        self
    }

    /// Waits before each event.
    #[must_use]
    pub fn delay(mut self, each: Duration) -> Self {
        for (wait, _) in &mut self.steps {
            *wait = each;
        }
        self
    }

    fn play(self) -> Result<ModelStream, ModelError> {
        if let Some(err) = self.refusal {
            return Err(err);
        }
        let steps = stream::iter(self.steps).then(|(wait, step)| async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            step
        });
        Ok(if self.hangs { steps.chain(stream::pending()).boxed() } else { steps.boxed() })
    }
}

/// A model that plays one [`Script`] a request, in order, and keeps the requests. It is its own
/// provider, named `fake` unless told otherwise; clones share the script.
///
/// When the script is used up, a request fails with [`ModelError::Protocol`].
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    name: String,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    scripts: VecDeque<Script>,
    requests: Vec<ModelRequest>,
    asked: Vec<String>,
}

impl ScriptedModel {
    /// A model that will play `scripts`.
    #[must_use]
    pub fn new(scripts: impl IntoIterator<Item = Script>) -> Self {
        let inner = Inner { scripts: scripts.into_iter().collect(), ..Inner::default() };
        Self { name: "fake".into(), inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same, as a provider of another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a script at the end.
    pub fn push(&self, script: Script) {
        self.lock().scripts.push_back(script);
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.lock().requests.clone()
    }

    /// The models that clients were made for, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.lock().asked.clone()
    }

    /// How many scripts were not played.
    #[must_use]
    pub fn left(&self) -> usize {
        self.lock().scripts.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ModelClient for ScriptedModel {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let script = {
            let mut inner = self.lock();
            inner.requests.push(request.clone());
            inner.scripts.pop_front()
        };
        script.ok_or_else(|| ModelError::Protocol("script is used up".into()))?.play()
    }
}

#[async_trait]
impl ModelProvider for ScriptedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self, model: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        self.lock().asked.push(model.to_owned());
        Ok(Arc::new(self.clone()))
    }

    async fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        Ok(vec![ModelInfo { id: "model".into(), ..ModelInfo::default() }])
    }
}

#[cfg(test)]
mod tests {
    use bub_kernel::{model::ModelOptions, turn::RunId};
    use serde_json::json;

    use super::*;

    fn request() -> ModelRequest {
        ModelRequest {
            run: RunId("run-1".into()),
            model: "m".into(),
            system: None,
            messages: Vec::new(),
            tools: Vec::new(),
            options: ModelOptions::default(),
        }
    }

    #[tokio::test]
    async fn scripts_are_played_in_order_and_then_used_up() {
        let model = ScriptedModel::new([
            Script::text("hi").usage(TokenUsage { input_tokens: 3, ..TokenUsage::default() }),
            Script::calls([("c1", "fs_read", json!({"path": "a"}))]).after([ModelEvent::Text("see".into())]),
            Script::error(ModelError::Auth("no".into())),
            Script::text("half").then_error(ModelError::Incomplete("cut".into())),
        ]);
        let client = model.client("m").unwrap();
        let first: Vec<_> = client.stream(&request()).await.unwrap().map(Result::unwrap).collect().await;
        assert!(matches!(
            first.as_slice(),
            [ModelEvent::Text(_), ModelEvent::Usage(_), ModelEvent::Finish(FinishReason::Stop)]
        ));
        let second: Vec<_> = client.stream(&request()).await.unwrap().map(Result::unwrap).collect().await;
        let ModelEvent::ToolCall(call) = &second[1] else { panic!("{second:?}") };
        assert_eq!(call.arguments, r#"{"path":"a"}"#);
        assert!(matches!(client.stream(&request()).await, Err(ModelError::Auth(_))));
        let fourth: Vec<_> = client.stream(&request()).await.unwrap().collect().await;
        assert!(matches!(fourth.as_slice(), [Ok(ModelEvent::Text(_)), Err(ModelError::Incomplete(_))]));
        let err = client.stream(&request()).await.err().unwrap();
        assert_eq!(err.to_string(), "the provider sent something unexpected: script is used up");
        assert_eq!((model.requests().len(), model.asked()), (5, vec!["m".to_owned()]));
    }

    #[tokio::test]
    async fn scripts_wait_and_hang() {
        let wait = Duration::from_millis(20);
        let model = ScriptedModel::new([Script::text("a").delay(wait).then_pending()]).named("x");
        assert_eq!(ModelProvider::name(&model), "x");
        let start = tokio::time::Instant::now();
        let mut stream = model.stream(&request()).await.unwrap();
        assert!(stream.next().await.unwrap().is_ok());
        assert!(start.elapsed() >= wait);
        assert!(tokio::time::timeout(wait, stream.next()).await.is_err());
    }
}
