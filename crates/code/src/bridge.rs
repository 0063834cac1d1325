//! `republic` in the code: models, asked by the host. Credentials stay with its clients.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bub_kernel::{
    error::{ErrorKind, ToolError},
    message::{Message, Part, Role, TokenUsage},
    model::{
        DecideRequest, EmbedRequest, FinishReason, ModelError, ModelEvent, ModelOptions, ModelRequest, ModelSpec,
        ModelStream,
    },
    tool::ToolContext,
    turn::HostModel,
};
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::media;

/// The most streams of one run that are open at once.
const MAX_STREAMS: usize = 64;
/// The most events of one answer to `stream_next`.
const MAX_EVENTS: usize = 256;
/// The most bytes of one answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The most texts of one `embed`.
const MAX_TEXTS: usize = 4096;

/// What a resolver answers: which model, and how it answers.
#[derive(Clone, Debug, Default)]
pub struct ModelChoice {
    /// `provider:model`.
    pub spec: String,
    /// What is set here replaces the host's own options.
    pub options: ModelOptions,
}

/// Finds the model that code asked for, given what it asked for. The error's text goes to the code.
pub type ModelResolver = dyn Fn(Option<&str>, &ToolContext) -> Result<ModelChoice, String> + Send + Sync;

/// Which model code gets that names none, and who decides.
#[derive(Clone, Default)]
pub enum Models {
    /// None: code names its models.
    #[default]
    Named,
    /// The session's model, else the configured one.
    Session,
    /// This one, as `provider:model`.
    Default(String),
    /// What the resolver says, for named models too.
    Resolver(Arc<ModelResolver>),
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "Named",
            Self::Session => "Session",
            Self::Default(_) => "Default",
            Self::Resolver(_) => "Resolver",
        })
    }
}

/// Asks models for one run. What is still open ends with it.
pub(crate) struct Bridge {
    ctx: ToolContext,
    models: Models,
    streams: std::sync::Mutex<HashMap<u64, Arc<Mutex<Open>>>>,
    opened: AtomicU64,
}

/// A stream that the code reads.
struct Open {
    stream: ModelStream,
    answer: Answer,
    /// What ends the stream once the events before it are delivered.
    failure: Option<ToolError>,
}

/// What a model said so far.
struct Answer {
    model: String,
    text: String,
    reasoning: String,
    refusal: String,
    media: Vec<Part>,
    finish: Option<FinishReason>,
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatArgs {
    #[serde(default)]
    spec: Option<String>,
    messages: Value,
    #[serde(default)]
    options: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamArgs {
    stream: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmbedArgs {
    #[serde(default)]
    spec: Option<String>,
    texts: Vec<String>,
    #[serde(default)]
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideArgs {
    #[serde(default)]
    spec: Option<String>,
    state: Value,
    questions: Map<String, Value>,
}

impl Bridge {
    pub(crate) fn new(ctx: ToolContext, models: Models) -> Self {
        Self { ctx, models, streams: std::sync::Mutex::default(), opened: AtomicU64::new(0) }
    }

    /// Does one operation; `name` is what follows `republic.`.
    pub(crate) async fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        match name {
            "chat" => self.chat(read(name, args)?).await,
            "stream_open" => self.stream_open(read(name, args)?).await,
            "stream_next" => self.stream_next(read(name, args)?).await,
            "stream_close" => {
                let StreamArgs { stream } = read(name, args)?;
                self.streams().remove(&stream);
                Ok(Value::Null)
            }
            "embed" => self.embed(read(name, args)?).await,
            "decide" => self.decide(read(name, args)?).await,
            _ => Err(ToolError::invalid(format!("unknown republic operation: {name}"))),
        }
    }

    async fn chat(&self, args: ChatArgs) -> Result<Value, ToolError> {
        let (mut stream, mut answer) = self.start("chat", args).await?;
        while let Some(event) = stream.next().await {
            answer.take(&event.map_err(|err| failed("chat", &err))?).map_err(|err| failed("chat", &err))?;
            if answer.finish.is_some() {
                return Ok(answer.to_value());
            }
        }
        Err(failed("chat", &cut_off()))
    }

    async fn stream_open(&self, args: ChatArgs) -> Result<Value, ToolError> {
        if self.streams().len() >= MAX_STREAMS {
            return Err(ToolError::invalid(format!("stream_open failed: more than {MAX_STREAMS} open streams")));
        }
        let (stream, answer) = self.start("stream_open", args).await?;
        let id = self.opened.fetch_add(1, Ordering::Relaxed);
        self.streams().insert(id, Arc::new(Mutex::new(Open { stream, answer, failure: None })));
        Ok(json!({"stream": id}))
    }

    /// Waits for one event, then takes those that have come meanwhile.
    async fn stream_next(&self, StreamArgs { stream: id }: StreamArgs) -> Result<Value, ToolError> {
        let open = self.streams().get(&id).cloned().ok_or_else(|| ToolError::invalid("The stream is closed."))?;
        let mut open = open.lock().await;
        let mut events = Vec::new();
        let mut done = false;
        if let Some(err) = open.failure.take() {
            self.streams().remove(&id);
            return Err(err);
        }
        while !done && events.len() < MAX_EVENTS {
            let next = if events.is_empty() {
                open.stream.next().await
            } else {
                match open.stream.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                }
            };
            let taken = match next {
                Some(Ok(event)) => open.answer.take(&event).map(|()| event),
                Some(Err(err)) => Err(err),
                None => Err(cut_off()),
            };
            match taken {
                Ok(event) => {
                    events.extend(event_value(&event));
                    if open.answer.finish.is_some() {
                        events.push(json!({"type": "completed", "response": open.answer.to_value()}));
                        done = true;
                    }
                }
                Err(err) if events.is_empty() => {
                    self.streams().remove(&id);
                    return Err(failed("stream_next", &err));
                }
                Err(err) => {
                    open.failure = Some(failed("stream_next", &err));
                    break;
                }
            }
        }
        if done {
            self.streams().remove(&id);
        }
        Ok(json!({"events": events, "done": done}))
    }

    async fn embed(&self, args: EmbedArgs) -> Result<Value, ToolError> {
        if args.texts.len() > MAX_TEXTS {
            return Err(ToolError::invalid(format!("embed failed: more than {MAX_TEXTS} texts")));
        }
        let HostModel { spec, client, .. } = self.model(args.spec.as_deref()).await?;
        let request = EmbedRequest { model: spec.model, texts: args.texts, dimensions: args.dimensions };
        let made = client.embed(&request).await.map_err(|err| failed("embed", &err))?;
        Ok(json!({"vectors": made.vectors, "model": made.model, "token_usage": usage(made.usage.as_ref())}))
    }

    async fn decide(&self, args: DecideArgs) -> Result<Value, ToolError> {
        let questions = args.questions.iter().map(|(id, it)| Ok((id.clone(), media::decode_question(it)?)));
        let questions = questions.collect::<Result<Map<_, _>, ToolError>>()?;
        let HostModel { spec, client, .. } = self.model(args.spec.as_deref()).await?;
        let request = DecideRequest { model: spec.model, state: args.state, questions };
        let made = client.decide(&request).await.map_err(|err| failed("decide", &err))?;
        Ok(json!({"answers": made.answers, "model": made.model, "token_usage": usage(made.usage.as_ref())}))
    }

    async fn start(&self, op: &str, args: ChatArgs) -> Result<(ModelStream, Answer), ToolError> {
        let messages = messages(&args.messages)?;
        if ["tools", "tool_choice"].iter().any(|it| args.options.contains_key(*it)) {
            return Err(ToolError::invalid("republic models in run_code do not support tools."));
        }
        let HostModel { spec, client, options } = self.model(args.spec.as_deref()).await?;
        let options = with_options(options, args.options)
            .map_err(|reason| ToolError::invalid(format!("{op} failed: {reason}")))?;
        let request = request(&self.ctx, &spec, messages, options);
        let stream = client.stream(&request).await.map_err(|err| failed(op, &err))?;
        Ok((stream, Answer::new(spec.model)))
    }

    /// The model for a spec, or the default one.
    async fn model(&self, spec: Option<&str>) -> Result<HostModel, ToolError> {
        let spec = spec.map(str::trim).filter(|it| !it.is_empty());
        let host = &self.ctx.host;
        match &self.models {
            Models::Session => host.model(&self.ctx, spec).await,
            Models::Default(default) => host.model(&self.ctx, Some(spec.unwrap_or(default))).await,
            Models::Named => match spec {
                Some(spec) => host.model(&self.ctx, Some(spec)).await,
                None => Err(ToolError::invalid("No default model: pass a 'provider:model' spec.")),
            },
            Models::Resolver(resolve) => {
                let choice = resolve(spec, &self.ctx).map_err(ToolError::invalid)?;
                let mut model = host.model(&self.ctx, Some(&choice.spec)).await?;
                lay_over(&mut model.options, choice.options);
                Ok(model)
            }
        }
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Mutex<Open>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn new(model: String) -> Self {
        let (text, reasoning, refusal) = Default::default();
        Self { model, text, reasoning, refusal, media: Vec::new(), finish: None, usage: None }
    }

    fn take(&mut self, event: &ModelEvent) -> Result<(), ModelError> {
        match event {
            ModelEvent::Text(delta) => self.text.push_str(delta),
            ModelEvent::Reasoning(delta) => self.reasoning.push_str(delta),
            ModelEvent::Refusal(delta) => self.refusal.push_str(delta),
            ModelEvent::Usage(usage) => self.usage = Some(*usage),
            ModelEvent::AnsweredBy(model) => self.model.clone_from(model),
            ModelEvent::Finish(reason) => self.finish = Some(reason.clone()),
            _ => {}
        }
        let size = self.text.len() + self.reasoning.len() + self.refusal.len();
        if size > MAX_ANSWER_BYTES {
            let message = format!("an answer of more than {} MiB", MAX_ANSWER_BYTES >> 20);
            return Err(ModelError::Protocol(message));
        }
        Ok(())
    }

    fn to_value(&self) -> Value {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let words = if self.text.is_empty() { &self.refusal } else { &self.text };
        let parts: Vec<_> = some(words).map(Part::Text).into_iter().chain(self.media.iter().cloned()).collect();
        let finish = match &self.finish {
            _ if !self.refusal.is_empty() => "refusal",
            Some(FinishReason::Stop) => "stop",
            Some(FinishReason::ToolCalls) => "tool_calls",
            Some(FinishReason::Length) => "length",
            Some(FinishReason::ContentFilter) => "content_filter",
            Some(FinishReason::Refusal) => "refusal",
            Some(FinishReason::Pause) => "pause",
            Some(FinishReason::Other(_)) | None => "other",
        };
        json!({
            "text": self.text,
            "reasoning": some(&self.reasoning),
            "refusal": some(&self.refusal),
            "finish_reason": finish,
            "model": self.model,
            "token_usage": usage(self.usage.as_ref()),
            "message": media::encode_message(Role::Assistant, &parts),
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(op: &str, args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|err| ToolError::invalid(format!("{op} failed: {err}")))
}

/// A prompt: a text, a message, or a list of both.
fn messages(value: &Value) -> Result<Vec<Message>, ToolError> {
    let refused = || ToolError::invalid("chat() takes text or republic messages.");
    let one = |it: &Value| match it {
        Value::String(text) => Ok(Message::text(Role::User, text.clone())),
        Value::Object(fields) if fields.contains_key("$republic") => media::decode_message(it),
        _ => Err(refused()),
    };
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(one).collect(),
        Value::String(_) | Value::Object(_) => Ok(vec![one(value)?]),
        _ => Err(refused()),
    }
}

fn request(ctx: &ToolContext, spec: &ModelSpec, messages: Vec<Message>, options: ModelOptions) -> ModelRequest {
    let (system, messages): (Vec<_>, Vec<_>) = messages.into_iter().partition(|it| it.role == Role::System);
    let system: Vec<_> = system.iter().map(Message::joined_text).collect();
    ModelRequest {
        run: ctx.run.clone(),
        model: spec.model.clone(),
        system: (!system.is_empty()).then(|| system.join("\n\n")),
        messages,
        tools: Vec::new(),
        options,
    }
}

/// The host's options with those that the code passes.
fn with_options(mut options: ModelOptions, given: Map<String, Value>) -> Result<ModelOptions, String> {
    for (key, value) in given {
        if value.is_null() {
            continue;
        }
        let bad = || format!("option '{key}' cannot be {}", bub_kernel::text::elide(&value.to_string(), 100));
        match key.as_str() {
            "max_tokens" => {
                options.max_tokens = Some(value.as_u64().and_then(|it| u32::try_from(it).ok()).ok_or_else(bad)?);
            }
            "temperature" => options.temperature = Some(value.as_f64().ok_or_else(bad)?),
            "top_p" => options.top_p = Some(value.as_f64().ok_or_else(bad)?),
            "top_k" => {
                options.top_k = Some(value.as_u64().and_then(|it| u32::try_from(it).ok()).ok_or_else(bad)?);
            }
            "presence_penalty" => options.presence_penalty = Some(value.as_f64().ok_or_else(bad)?),
            "frequency_penalty" => options.frequency_penalty = Some(value.as_f64().ok_or_else(bad)?),
            "seed" => options.seed = Some(value.as_u64().ok_or_else(bad)?),
            "reasoning_effort" => options.reasoning_effort = Some(value.as_str().ok_or_else(bad)?.to_owned()),
            "stop" => {
                options.stop = match &value {
                    Value::String(one) => vec![one.clone()],
                    Value::Array(many) => {
                        many.iter().map(|it| it.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(bad)?
                    }
                    _ => return Err(bad()),
                };
            }
            "extra_body" => options.extra_body.extend(value.as_object().ok_or_else(bad)?.clone()),
            _ => return Err(format!("unknown option '{key}'")),
        }
    }
    Ok(options)
}

/// Lays the options of a call over those of its model. Tools are not the code's to choose.
fn lay_over(options: &mut ModelOptions, more: ModelOptions) {
    let ModelOptions {
        max_tokens,
        reasoning_effort,
        temperature,
        top_p,
        top_k,
        presence_penalty,
        frequency_penalty,
        stop,
        seed,
        tool_choice: _,
        parallel_tool_calls: _,
        output,
        provider_tools: _,
        extra_body,
    } = more;
    options.max_tokens = max_tokens.or(options.max_tokens);
    options.reasoning_effort = reasoning_effort.or_else(|| options.reasoning_effort.take());
    options.temperature = temperature.or(options.temperature);
    options.top_p = top_p.or(options.top_p);
    options.top_k = top_k.or(options.top_k);
    options.presence_penalty = presence_penalty.or(options.presence_penalty);
    options.frequency_penalty = frequency_penalty.or(options.frequency_penalty);
    options.seed = seed.or(options.seed);
    options.output = output.or_else(|| options.output.take());
    if !stop.is_empty() {
        options.stop = stop;
    }
    options.extra_body.extend(extra_body);
}

/// An event as the code reads it; the end comes as `completed`, with the whole answer.
fn event_value(event: &ModelEvent) -> Option<Value> {
    Some(match event {
        ModelEvent::Text(chunk) => json!({"type": "text", "chunk": chunk}),
        ModelEvent::Reasoning(chunk) => json!({"type": "reasoning", "chunk": chunk}),
        ModelEvent::Refusal(chunk) => json!({"type": "refusal", "chunk": chunk}),
        ModelEvent::Usage(it) => json!({"type": "usage", "usage": usage(Some(it))}),
        ModelEvent::Finish(_) => return None,
        ModelEvent::ToolCall(_) => json!({"type": "other", "event": "ToolCallReady"}),
        ModelEvent::ToolCallDelta { .. } => json!({"type": "other", "event": "ToolCallDelta"}),
        ModelEvent::Retry { .. } => json!({"type": "other", "event": "Retry"}),
        _ => json!({"type": "other", "event": "ProviderEvent"}),
    })
}

fn usage(usage: Option<&TokenUsage>) -> Value {
    let mut value = usage.map_or(Value::Null, TokenUsage::to_value);
    if let Some(fields) = value.as_object_mut() {
        // Code adds them up itself.
        fields.remove("total_tokens");
    }
    value
}

fn cut_off() -> ModelError {
    ModelError::Incomplete("the stream ended without saying why".to_owned())
}

/// A provider's failure, with the name that code knows it by.
fn failed(op: &str, err: &ModelError) -> ToolError {
    let name = match err {
        ModelError::Auth(_) => "AuthenticationError",
        ModelError::RateLimited { .. }
        | ModelError::Overloaded { .. }
        | ModelError::ContextLength(_)
        | ModelError::ContentFilter(_)
        | ModelError::Rejected { .. }
        | ModelError::Failed { .. } => "APIStatusError",
        ModelError::Transport { .. } => "APIConnectionError",
        ModelError::Timeout(_) => "APITimeoutError",
        ModelError::Incomplete(_) => "StreamIncompleteError",
        ModelError::Protocol(_) => "APIResponseError",
        ModelError::Unsupported(_) => "UnsupportedFeatureError",
        ModelError::Config(_) => "ProviderNotFoundError",
        _ => "RepublicError",
    };
    ToolError::new(ErrorKind::Tool, format!("{op} failed: {name}: {err}"))
}
