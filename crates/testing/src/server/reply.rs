//! What the server sends.

use std::time::Duration;

use serde_json::{Value, json};

use super::Request;

/// One scripted reply. Made by [`Reply::text`], [`Reply::calls`], [`Reply::deltas`] (chat streams),
/// [`Reply::raw_sse`] (any stream) or [`Reply::status`] (anything else), then refined.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) wait: Duration,
    pub(super) between: Duration,
    pub(super) end: End,
    content: Content,
    piece: Option<usize>,
    cut: Option<usize>,
    newline: Option<&'static str>,
}

/// What follows the last piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The end of the body; the connection stays.
    Complete,
    /// Nothing: the connection stays open and silent.
    Stall,
    /// The connection is closed without the end of the body.
    Close,
}

#[derive(Clone, Debug)]
enum Content {
    /// Sent whole, with its length.
    Whole(Vec<u8>),
    /// Sent as HTTP chunks, each in a packet of its own.
    Pieces(Vec<Vec<u8>>),
    Chat {
        deltas: Vec<Value>,
        finish: Option<String>,
        usage: Option<Value>,
        done: bool,
    },
}

impl Reply {
    fn new(status: u16, content: Content) -> Self {
        Self {
            status,
            headers: Vec::new(),
            wait: Duration::ZERO,
            between: Duration::ZERO,
            end: End::Complete,
            content,
            piece: None,
            cut: None,
            newline: None,
        }
    }

    /// A chat stream of `delta` objects, with finish reason `stop` and a small usage.
    #[must_use]
    pub fn deltas(deltas: impl IntoIterator<Item = Value>) -> Self {
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
        let deltas = deltas.into_iter().collect();
        Self::new(200, Content::Chat { deltas, finish: Some("stop".into()), usage: Some(usage), done: true })
            .header("content-type", "text/event-stream")
    }

    /// A chat stream that says `text`, in one delta.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::deltas([json!({"role": "assistant", "content": ""}), json!({"content": text.into()})])
    }

    /// A chat stream that asks for tools: id, name and arguments. A text value is sent as the
    /// arguments as it is, which may be broken JSON; any other value is serialised.
    #[must_use]
    pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, &'a str, Value)>) -> Self {
        let mut deltas = vec![json!({"role": "assistant", "content": null})];
        for (idx, (id, name, arguments)) in calls.into_iter().enumerate() {
            let arguments = match arguments {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let function = json!({"name": name, "arguments": ""});
            deltas.push(json!({"tool_calls": [{"index": idx, "id": id, "type": "function", "function": function}]}));
            deltas.push(json!({"tool_calls": [{"index": idx, "function": {"arguments": arguments}}]}));
        }
        Self::deltas(deltas).finish("tool_calls")
    }

    /// A 200 event stream of exactly these pieces, each in a packet and an HTTP chunk of its own.
    #[must_use]
    pub fn raw_sse<T: Into<Vec<u8>>>(pieces: impl IntoIterator<Item = T>) -> Self {
        Self::new(200, Content::Pieces(pieces.into_iter().map(Into::into).collect()))
            .header("content-type", "text/event-stream")
    }

    /// A reply of that status, without a body yet.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::new(status, Content::Whole(Vec::new()))
    }

    /// A 200 JSON body.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::status(200).header("content-type", "application/json").body(body.to_string())
    }

    /// Replaces the content by a body of known length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.content = Content::Whole(body.into());
        self
    }

    /// Adds a header; one of the same name is replaced.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(it, _)| !it.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Puts deltas before those of a chat stream: text before calls, say.
    #[must_use]
    pub fn after(mut self, more: impl IntoIterator<Item = Value>) -> Self {
        if let Content::Chat { deltas, .. } = &mut self.content {
            deltas.splice(0..0, more);
        }
        self
    }

    /// Puts thinking (`reasoning_content`) before the deltas of a chat stream.
    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        let text: String = text.into();
        self.after([json!({"reasoning_content": text})])
    }

    /// Sets the finish reason of a chat stream.
    #[must_use]
    pub fn finish(mut self, reason: &str) -> Self {
        if let Content::Chat { finish, .. } = &mut self.content {
            *finish = Some(reason.to_owned());
        }
        self
    }

    /// Leaves out the finish reason of a chat stream.
    #[must_use]
    pub fn no_finish(mut self) -> Self {
        if let Content::Chat { finish, .. } = &mut self.content {
            *finish = None;
        }
        self
    }

    /// Leaves out the `[DONE]` of a chat stream.
    #[must_use]
    pub fn no_done(mut self) -> Self {
        if let Content::Chat { done, .. } = &mut self.content {
            *done = false;
        }
        self
    }

    /// Sets the usage object of a chat stream; `null` leaves it out.
    #[must_use]
    pub fn usage(mut self, value: Value) -> Self {
        if let Content::Chat { usage, .. } = &mut self.content {
            *usage = Some(value).filter(|it| !it.is_null());
        }
        self
    }

    /// Waits before the head of the reply.
    #[must_use]
    pub fn delay(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits between pieces.
    #[must_use]
    pub fn between(mut self, wait: Duration) -> Self {
        self.between = wait;
        self
    }

    /// Cuts the body anew into pieces of `n` bytes, each in a packet and an HTTP chunk of its own.
    #[must_use]
    pub fn pieces_of(mut self, n: usize) -> Self {
        self.piece = Some(n.max(1));
        self
    }

    /// Writes a chat stream with other line ends than `\n`.
    #[must_use]
    pub fn newline(mut self, newline: &'static str) -> Self {
        self.newline = Some(newline);
        self
    }

    /// Goes silent after the last piece, without an end.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.end = End::Stall;
        self
    }

    /// Closes the connection after the last piece, without an end.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.end = End::Close;
        self
    }

    /// Sends only the first `n` bytes of a stream and then closes the connection without its end.
    #[must_use]
    pub fn cut(mut self, n: usize) -> Self {
        self.cut = Some(n);
        self.close()
    }

    /// The pieces of the body, and whether they are sent with a length instead of as HTTP chunks.
    pub(super) fn pieces(&self, request: &Request) -> (Vec<Vec<u8>>, bool) {
        let (pieces, whole) = match &self.content {
            Content::Whole(body) => (vec![body.clone()], true),
            Content::Pieces(pieces) => (pieces.clone(), false),
            Content::Chat { deltas, finish, usage, done } => {
                (self.chat(request, deltas, finish.as_deref(), usage.as_ref(), *done), false)
            }
        };
        if whole || (self.piece.is_none() && self.cut.is_none()) {
            return (pieces, whole);
        }
        let mut bytes = pieces.concat();
        bytes.truncate(self.cut.unwrap_or(usize::MAX));
        let size = self.piece.unwrap_or(bytes.len()).max(1);
        (bytes.chunks(size).map(<[u8]>::to_vec).collect(), false)
    }

    fn chat(
        &self,
        request: &Request,
        deltas: &[Value],
        finish: Option<&str>,
        usage: Option<&Value>,
        done: bool,
    ) -> Vec<Vec<u8>> {
        let model = request.body.get("model").cloned().unwrap_or_else(|| "mock".into());
        let newline = self.newline.unwrap_or("\n");
        let event = |data: &str| format!("data: {data}{newline}{newline}").into_bytes();
        let chunk = |choices: Value| json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices});
        let choice = |delta: &Value, finish: Option<&str>| {
            event(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}])).to_string())
        };
        let mut pieces: Vec<_> = deltas.iter().map(|it| choice(it, None)).collect();
        pieces.extend(finish.map(|it| choice(&json!({}), Some(it))));
        pieces.extend(usage.map(|usage| {
            let mut last = chunk(json!([]));
            if let Some(last) = last.as_object_mut() {
                last.insert("usage".into(), usage.clone());
            }
            event(&last.to_string())
        }));
        pieces.extend(done.then(|| event("[DONE]")));
        pieces
    }
}
