//! The wires against a scripted server on loopback; what stands here without a folder is the chat wire.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests fail as tests do")]

mod answers;
mod conformance;
mod cuts;
mod embeddings;
mod failures;
mod gemini;
mod lists;
mod logins;
mod messages;
mod requests;
mod responses;
mod retries;

use std::{sync::Arc, time::Duration};

use bub_kernel::{
    message::{Message, Part, Role},
    model::{ModelClient, ModelError, ModelEvent, ModelOptions, ModelProvider, ModelRequest},
    turn::RunId,
};
use bub_models::{Provider, ProviderConfig, ProviderKind, Retries};
use bub_testing::{ModelServer, Reply, cpu_time};
use futures::StreamExt;

/// Settings for that server: a key, short waits, no retries.
fn config(server: &ModelServer) -> ProviderConfig {
    let mut config = ProviderConfig::new("local", ProviderKind::OpenAiCompatible);
    config.api_base = Some(server.base_url());
    config.api_key = Some("sk-secret-0123456789".into());
    config.retries = Retries { max: 0, delay: Duration::from_millis(20), max_delay: Duration::from_secs(5) };
    config
}

fn client(config: ProviderConfig) -> Arc<dyn ModelClient> {
    Provider::new(config).client("m").unwrap()
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        run: RunId("run-1".into()),
        model: "m".into(),
        system: None,
        messages,
        tools: Vec::new(),
        options: ModelOptions::default(),
    }
}

fn hello() -> ModelRequest {
    request(vec![Message::text(Role::User, "hello")])
}

/// Everything that a client answers to `hello`.
async fn ask(client: &Arc<dyn ModelClient>) -> (Vec<ModelEvent>, Option<ModelError>) {
    send(client, &hello()).await
}

async fn send(client: &Arc<dyn ModelClient>, request: &ModelRequest) -> (Vec<ModelEvent>, Option<ModelError>) {
    let mut events = Vec::new();
    let mut stream = client.stream(request).await.unwrap();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(err) => {
                assert!(stream.next().await.is_none(), "an error ends the stream");
                return (events, Some(err));
            }
        }
    }
    (events, None)
}

/// What a client makes of one reply.
async fn play(reply: Reply) -> (Vec<ModelEvent>, Option<ModelError>) {
    let server = ModelServer::start();
    server.reply(reply);
    ask(&client(config(&server))).await
}

fn text_of(events: &[ModelEvent]) -> String {
    events.iter().map(|it| if let ModelEvent::Text(text) = it { text.as_str() } else { "" }).collect()
}

/// The calls: id, name and arguments.
fn calls_of(events: &[ModelEvent]) -> Vec<(String, String, String)> {
    events
        .iter()
        .filter_map(|it| match it {
            ModelEvent::ToolCall(call) => Some((call.id.clone(), call.name.clone(), call.arguments.clone())),
            _ => None,
        })
        .collect()
}

/// The assistant message of an answer, as a tape has it.
fn answer_of(events: &[ModelEvent]) -> Message {
    let mut said = Message::parts(Role::Assistant, Vec::new());
    for event in events {
        match event {
            ModelEvent::Reasoning(words) => said.parts.push(Part::Reasoning(words.clone())),
            ModelEvent::ProviderData(data) => said.parts.push(Part::ProviderData(data.clone())),
            ModelEvent::Media(media) => said.parts.push(Part::Media(media.clone())),
            ModelEvent::ToolCall(call) => said.tool_calls.push(call.clone()),
            _ => (),
        }
    }
    said.parts.push(Part::Text(text_of(events)));
    Message::from_payload(&said.to_payload()).unwrap()
}
