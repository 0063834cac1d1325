//! What a service says and hears, in words that are the same for all wires.

use bub_kernel::message::TokenUsage;
use bub_models::{ProviderConfig, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::{Map, Value, json};

/// One wire, as its service speaks and reads it.
pub(super) trait Speaker: Sync {
    fn wire(&self) -> Wire;

    /// Settings for a server in the place of the service.
    fn config(&self, server: &ModelServer) -> ProviderConfig;

    /// The events of an answer.
    fn events(&self, script: &Script<'_>) -> Vec<Value>;

    /// Events as the service writes them.
    fn write(&self, events: &[Value]) -> String {
        events.iter().map(|it| format!("data: {it}\n\n")).collect()
    }

    /// The object in an event that holds the number of a call, and the name of the number.
    fn number<'a>(&self, event: &'a mut Value) -> Option<(&'a mut Map<String, Value>, &'static str)>;

    /// The thinking that has to come back, as [`Speaker::events`] sends it.
    fn thought(&self, words: &str, signature: &str) -> Value;

    /// The body of an error.
    fn error(&self, trouble: Trouble) -> Value;

    /// An event inside of a stream that says that the service is overloaded.
    fn overloaded_event(&self) -> Value;

    /// How the service says that a filter keeps it from answering at all.
    fn filtered(&self) -> Reply;

    /// An event of a kind that nobody knows.
    fn novelty(&self) -> Value {
        json!({"novelty": {"a": [1, null]}})
    }

    /// Reads a request.
    fn sent(&self, body: &Value) -> Sent;

    /// What closes a body behind the last message.
    fn closing(&self) -> &'static [u8];

    /// Where the system prompt stands, for people.
    fn system_place(&self) -> &'static str;

    /// An entry of the list of tools that only this wire knows.
    fn native_tool(&self) -> Value {
        json!({"type": "novel_tool", "depth": 2})
    }
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Say<'a> {
    /// Words, in pieces.
    Text(&'a [&'a str]),
    /// Words with their source: its address and title.
    Cited(&'a str, &'a str, &'a str),
    /// Thinking, and what proves it.
    Thinking(&'a str, &'a str),
    /// A call: its id, its name, and its arguments in pieces.
    Call(&'a str, &'a str, &'a [&'a str]),
    /// Words that decline.
    Refusal(&'a str),
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// With everything said or called.
    Done,
    /// At the limit on tokens.
    Length,
    /// By a filter.
    Filter,
    /// Not at all.
    Missing,
}

/// An answer to send.
#[derive(Clone, Debug)]
pub(super) struct Script<'a> {
    pub(super) said: Vec<Say<'a>>,
    pub(super) usage: TokenUsage,
    pub(super) end: End,
}

impl<'a> Script<'a> {
    pub(super) fn new(said: impl IntoIterator<Item = Say<'a>>) -> Self {
        let usage = TokenUsage { input_tokens: 10, output_tokens: 5, ..TokenUsage::default() };
        Self { said: said.into_iter().collect(), usage, end: End::Done }
    }

    pub(super) fn ending(self, end: End) -> Self {
        Self { end, ..self }
    }

    pub(super) fn has_calls(&self) -> bool {
        self.said.iter().any(|it| matches!(it, Say::Call(..)))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.said.iter().any(|it| matches!(it, Say::Refusal(_)))
    }
}

/// An error of a service.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Key,
    Permission,
    NoModel,
    Late,
    TooMany,
    Internal,
    Overloaded,
    TooLong,
}

impl Trouble {
    /// Its status.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Key => 401,
            Self::Permission => 403,
            Self::NoModel => 404,
            Self::Late => 408,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Overloaded => 529,
            Self::TooLong => 400,
        }
    }

    /// How OpenAI and those who follow it say it.
    pub(super) fn as_openai(self) -> Value {
        let (kind, code, message) = match self {
            Self::Key => ("invalid_request_error", "invalid_api_key", "Incorrect API key provided"),
            Self::Permission => ("invalid_request_error", "unsupported_country_region_territory", "not from here"),
            Self::NoModel => ("invalid_request_error", "model_not_found", "The model `m` does not exist"),
            Self::Late => ("timeout", "timeout", "late"),
            Self::TooMany => ("tokens", "rate_limit_exceeded", "Rate limit reached for m: Limit 200000 tokens per min"),
            Self::Internal => ("server_error", "server_error", "boom"),
            Self::Overloaded => ("server_error", "overloaded", "busy"),
            Self::TooLong => {
                let message = "This model's maximum context length is 8192 tokens. However, you asked for 9000";
                ("invalid_request_error", "context_length_exceeded", message)
            }
        };
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    }
}

/// What a request says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) system: Vec<String>,
    /// The conversation, a line for each piece, as [`lines`](super::Bench::lines) compares it: `user TEXT`,
    /// `image TYPE DATA`, `audio TYPE DATA`, `thought JSON`, `model TEXT`, `call ID NAME ARGUMENTS`,
    /// `result ID TEXT`.
    pub(super) lines: Vec<String>,
    /// The names of the functions on offer, and the provider's own tools as they stand there.
    pub(super) functions: Vec<String>,
    pub(super) own_tools: Vec<Value>,
    /// `auto`, `none`, `required`, or the name of a function.
    pub(super) choice: Option<String>,
    pub(super) parallel: Option<bool>,
    pub(super) effort: Option<String>,
    pub(super) schema: Option<Value>,
    pub(super) max_tokens: Option<u64>,
    pub(super) stop: Vec<String>,
    pub(super) seed: Option<u64>,
}

impl Sent {
    pub(super) fn line(&mut self, kind: &str, rest: impl std::fmt::Display) {
        self.lines.push(format!("{kind} {rest}"));
    }
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// The type and the content of a data URL.
pub(super) fn data_url(url: &str) -> String {
    url.trim_start_matches("data:").replacen(";base64,", " ", 1)
}
