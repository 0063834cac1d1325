//! The wire formats.

use std::{fmt, str::FromStr};

use bub_kernel::model::{ModelError, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::{
    chat::{self, ChatReader},
    draft::Draft,
    gemini::{self, GeminiReader},
    kind::ProviderKind,
    messages::{self, MessagesReader},
    responses::{self, ResponsesReader},
};

/// The header that names the version of the Messages API.
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// A wire format: how a request is written and its answer read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wire {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Google's Gemini API.
    Gemini,
    /// Anthropic's Messages API.
    Messages,
}

/// What a wire needs to know of the server, beside the request.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a ModelRequest,
    /// The provider's name: what only it can take back is sent to it alone.
    pub(crate) provider: &'a str,
    pub(crate) kind: ProviderKind,
    /// Laid over the body last: what the connection's options say, and over it what the request's say.
    pub(crate) extra_body: Map<String, Value>,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Responses, Self::Messages, Self::Gemini];

    /// Its name in settings (`api_format`) and on tapes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Messages => "messages",
        }
    }

    /// Where requests go, below the base URL.
    pub(crate) fn path(self, model: &str) -> String {
        match self {
            Self::Chat => "/chat/completions".to_owned(),
            Self::Responses => "/responses".to_owned(),
            Self::Gemini => gemini::path(model),
            Self::Messages => "/messages".to_owned(),
        }
    }

    /// Headers that each request has.
    pub(crate) fn headers(self) -> HeaderMap {
        match self {
            Self::Chat | Self::Responses | Self::Gemini => HeaderMap::new(),
            Self::Messages => HeaderMap::from_iter([(ANTHROPIC_VERSION, HeaderValue::from_static(messages::VERSION))]),
        }
    }

    /// The bytes to send.
    ///
    /// What changes from step to step comes last, so that the body of the next step begins with that
    /// of this one up to its end: that is what the caches of providers look for.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] for what this wire can't express.
    pub(crate) fn body(self, asked: &Asked<'_>) -> Result<Vec<u8>, ModelError> {
        match self {
            Self::Chat => chat::body(asked),
            Self::Responses => responses::body(asked),
            Self::Gemini => gemini::body(asked),
            Self::Messages => messages::body(asked),
        }
    }

    /// What reads the answer.
    pub(crate) fn reader(self) -> Box<dyn WireReader> {
        match self {
            Self::Chat => Box::<ChatReader>::default(),
            Self::Responses => Box::<ResponsesReader>::default(),
            Self::Gemini => Box::<GeminiReader>::default(),
            Self::Messages => Box::<MessagesReader>::default(),
        }
    }
}

impl FromStr for Wire {
    type Err = ModelError;

    /// Reads a name in any case.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|it| it.as_str().eq_ignore_ascii_case(text.trim())).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            ModelError::Config(format!("unknown api_format '{text}': expected one of {known}"))
        })
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reads the events of an answer, in the order in which they come.
pub(crate) trait WireReader: fmt::Debug + Send + Sync {
    /// Reads the data of one event; true when the answer is complete.
    fn event(&mut self, data: &[u8], draft: &mut Draft) -> Result<bool, ModelError>;
    /// Reads a body that is no event stream as a whole answer; false when it is none of this wire.
    fn whole(&mut self, body: &[u8], draft: &mut Draft) -> Result<bool, ModelError>;
    /// Hands over what was kept back; called once the answer is complete, before its calls are told.
    fn close(&mut self, _draft: &mut Draft) -> Result<(), ModelError> {
        Ok(())
    }
}
