//! Three short questions that show what a model can do.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bub::kernel::{
    message::{Media, MediaKind, MediaSource, Message, Part, Role, TokenUsage, ToolCallRequest},
    model::{ModelClient, ModelEvent, ModelOptions, ModelRequest},
    tool::{Exposure, ToolSpec},
    turn::RunId,
};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::terminal::safe::safe_line;

/// How long one question may take in all.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most tokens of one answer; models that think need some for that.
const MAX_TOKENS: u32 = 2_000;
/// The most characters of an answer that are shown.
const MAX_SHOWN: usize = 60;
/// A red square of 16 by 16 pixels, as PNG.
const RED_SQUARE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mP4z8BAEmIY1TCqYfhqAACQ+f8B8u7oVwAAAABJRU5ErkJggg==";

/// What one question showed.
pub(super) struct Finding {
    pub(super) what: &'static str,
    /// What was seen, when it works.
    seen: String,
    /// Why it does not work.
    pub(super) error: Option<String>,
}

impl Finding {
    pub(super) fn works(&self) -> bool {
        self.error.is_none()
    }

    pub(super) fn line(&self) -> String {
        match &self.error {
            None => format!("{:9}  works: {}", self.what, safe_line(&self.seen)),
            Some(error) => format!("{:9}  does not work: {}", self.what, safe_line(error)),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        json!({"works": self.works(), "seen": self.seen, "error": self.error})
    }
}

/// Asks the questions one after the other and tells each finding. When the first one fails, the others
/// are not asked.
pub(super) async fn probe(
    client: &dyn ModelClient,
    model: &str,
    mut tell: impl FnMut(&Finding) -> io::Result<()>,
) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let said = ask(client, request(model, "Answer with the one word: pong", None), true).await;
    let streaming = said.as_ref().ok().map(|it| it.pieces);
    let text = finding("text", said, |said| {
        let cost = said.usage.map(|it| format!(", {} + {} tokens", it.input_tokens, it.output_tokens));
        let after = said.elapsed.as_secs_f64();
        match said.text.trim() {
            "" => Err("the answer has no words".to_owned()),
            text => Ok(format!("'{}' after {after:.1} s{}", shown(text), cost.unwrap_or_default())),
        }
    });
    tell(&text)?;
    let answers = text.works();
    findings.push(text);
    if !answers {
        return Ok(findings);
    }
    let pieces = streaming.unwrap_or_default();
    let streams = Finding { what: "streaming", seen: format!("{pieces} pieces"), error: None };
    tell(&streams)?;
    findings.push(streams);

    let mut with_tool = request(model, "Call the tool `report` with the word pong.", None);
    with_tool.tools.push(Arc::new(report_tool()));
    let tools = finding("tools", ask(client, with_tool, false).await, |said| match said.calls.first() {
        Some(call) if call.name == "report" => Ok(format!("report({})", shown(&call.arguments))),
        Some(call) => Err(format!("it called '{}', which was not on offer", shown(&call.name))),
        None => Err(format!("it called nothing and said '{}'", shown(&said.text))),
    });
    tell(&tools)?;
    findings.push(tools);

    let source = MediaSource::Data(RED_SQUARE.to_owned());
    let square = Media { kind: MediaKind::Image, media_type: "image/png".to_owned(), source };
    let seeing = request(model, "Which colour is this square? Answer with one word.", Some(square));
    let images = finding("images", ask(client, seeing, false).await, |said| {
        let text = said.text.trim();
        if text.to_lowercase().contains("red") {
            Ok(format!("'{}'", shown(text)))
        } else {
            Err(format!("it was shown a red square and said '{}'", shown(text)))
        }
    });
    tell(&images)?;
    findings.push(images);
    Ok(findings)
}

/// An answer, taken in whole.
#[derive(Default)]
struct Said {
    text: String,
    calls: Vec<ToolCallRequest>,
    usage: Option<TokenUsage>,
    /// In how many pieces the words came.
    pieces: usize,
    elapsed: Duration,
}

fn finding(
    what: &'static str,
    said: Result<Said, String>,
    judge: impl FnOnce(&Said) -> Result<String, String>,
) -> Finding {
    match said.and_then(|it| judge(&it)) {
        Ok(seen) => Finding { what, seen, error: None },
        Err(error) => Finding { what, seen: String::new(), error: Some(error) },
    }
}

fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    bub::kernel::text::elide(text, MAX_SHOWN)
}

fn request(model: &str, question: &str, media: Option<Media>) -> ModelRequest {
    let mut parts = vec![Part::Text(question.to_owned())];
    parts.extend(media.map(Part::Media));
    ModelRequest {
        run: RunId("run-probe".to_owned()),
        model: model.to_owned(),
        system: None,
        messages: vec![Message::parts(Role::User, parts)],
        tools: Vec::new(),
        options: ModelOptions { max_tokens: Some(MAX_TOKENS), ..ModelOptions::default() },
    }
}

fn report_tool() -> ToolSpec {
    ToolSpec {
        name: "report".into(),
        description: "Reports a word.".to_owned(),
        parameters: json!({
            "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"],
        }),
        output: None,
        exposure: Exposure::Auto,
        deferred: false,
    }
}

/// Asks one question. A model that has answered another one is not waited for: what it fails at now, it will
/// fail at again.
async fn ask(client: &dyn ModelClient, request: ModelRequest, may_wait: bool) -> Result<Said, String> {
    let started = Instant::now();
    let asking = async {
        let mut said = Said::default();
        let mut stream = client.stream(&request).await.map_err(|err| err.to_string())?;
        while let Some(event) = stream.next().await {
            match event.map_err(|err| err.to_string())? {
                ModelEvent::Retry { reason, .. } if !may_wait => return Err(reason),
                ModelEvent::Text(delta) | ModelEvent::Refusal(delta) => {
                    said.text.push_str(&delta);
                    said.pieces += 1;
                }
                ModelEvent::ToolCall(call) => said.calls.push(call),
                ModelEvent::Usage(usage) => said.usage = Some(usage),
                _ => {}
            }
        }
        said.elapsed = started.elapsed();
        Ok(said)
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(said) => said,
        Err(_) => Err(format!("no complete answer within {} s", PATIENCE.as_secs())),
    }
}
