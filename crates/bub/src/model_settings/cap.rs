//! Keeps the most tokens of an answer within what the model is known to write.

use std::sync::Arc;

use async_trait::async_trait;
use bub_kernel::model::{
    DecideRequest, Decisions, EmbedRequest, Embeddings, ModelClient, ModelError, ModelRequest, ModelSpec, ModelStream,
};
use tokio::sync::OnceCell;

use crate::windows::{Limits, Windows};

/// The part of a known window that an answer may have: a half, since the conversation needs room too.
const ANSWER_PART: u64 = 2;

/// A client whose requests ask for no more than the model is known to write: servers refuse such a
/// request as a whole. What is not known is not capped.
pub(super) struct Capped {
    pub(super) inner: Arc<dyn ModelClient>,
    pub(super) spec: ModelSpec,
    /// The window that the settings tell.
    pub(super) window: Option<u64>,
    pub(super) windows: Windows,
    pub(super) limits: OnceCell<Limits>,
}

impl Capped {
    /// The most tokens of one answer, if that is known and less than `asked`.
    async fn cap(&self, asked: u32) -> Option<u32> {
        let told = *self.limits.get_or_init(|| self.windows.limits(&self.spec)).await;
        let room = self.window.or(told.context_tokens).map(|it| (it / ANSWER_PART).max(1));
        let most = [told.output_tokens.filter(|it| *it > 0), room].into_iter().flatten().min()?;
        u32::try_from(most).ok().filter(|it| *it < asked)
    }
}

#[async_trait]
impl ModelClient for Capped {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        let Some(asked) = request.options.max_tokens else { return self.inner.stream(request).await };
        let Some(cap) = self.cap(asked).await else { return self.inner.stream(request).await };
        tracing::debug!(model = %self.spec, asked, cap, "max_tokens is more than the model writes, and capped");
        let mut request = request.clone();
        request.options.max_tokens = Some(cap);
        self.inner.stream(&request).await
    }

    async fn embed(&self, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
        self.inner.embed(request).await
    }

    async fn decide(&self, request: &DecideRequest) -> Result<Decisions, ModelError> {
        self.inner.decide(request).await
    }
}
