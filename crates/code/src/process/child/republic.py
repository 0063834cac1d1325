# Models for the code: the host does the talking, and holds the credentials.

import binascii


class _Record:
    """Named values."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __repr__(self):
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None


class _Media(_Record):
    def __init__(self, media_type, data=None, url=None):
        if (data is None) == (url is None):
            raise ValueError(f"{type(self).__name__} takes data or a url, and one of them")
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data is bytes, not {type(data).__name__}")
        super().__init__(media_type=media_type, data=None if data is None else bytes(data), url=url)

    def __repr__(self):
        content = f"url={self.url!r}" if self.data is None else f"{len(self.data)} bytes"
        return f"{type(self).__name__}({self.media_type!r}, {content})"

    @property
    def base64_data(self):
        return None if self.data is None else binascii.b2a_base64(self.data, newline=False).decode()

    @property
    def data_url(self):
        return self.url if self.data is None else f"data:{self.media_type};base64,{self.base64_data}"

    def _encoded(self):
        return {
            "$republic": type(self).__name__.lower(),
            "media_type": self.media_type,
            "data": self.base64_data,
            "url": self.url,
        }


class Image(_Media):
    """A picture: `Image(media_type, data=bytes)` or `Image(media_type, url=text)`."""


class Audio(_Media):
    """Sound: `Audio(media_type, data=bytes)` or `Audio(media_type, url=text)`."""


class Video(_Media):
    """A film: `Video(media_type, data=bytes)` or `Video(media_type, url=text)`."""


class Message(_Record):
    """What one side said: texts and media."""

    def __init__(self, role, content):
        content = list(content) if isinstance(content, (list, tuple)) else [content]
        for part in content:
            if not isinstance(part, (str, _Media)):
                raise TypeError(f"a message holds text and media, not {type(part).__name__}")
        super().__init__(role=role, content=content)

    @property
    def text(self):
        return "".join(part for part in self.content if isinstance(part, str))

    def _encoded(self):
        return {"$republic": "message", "role": self.role, "content": self.content}


def system(*content):
    """A message of the system."""
    return Message("system", content)


def user(*content):
    """A message of the user."""
    return Message("user", content)


def assistant(*content):
    """A message of the model."""
    return Message("assistant", content)


class TokenUsage(_Record):
    """Tokens of a call. Input includes cached ones, output includes reasoning."""

    def __init__(self, **counts):
        names = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")
        super().__init__(**{**dict.fromkeys(names), **counts})

    @property
    def total_tokens(self):
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class Response(_Record):
    """A whole answer: text, reasoning, refusal, finish_reason, model, token_usage, message."""


class TextDelta(_Record):
    """A piece of text: `chunk`."""


class ReasoningDelta(_Record):
    """A piece of reasoning: `chunk`."""


class RefusalDelta(_Record):
    """A piece of a refusal: `chunk`."""


class UsageDelta(_Record):
    """Tokens that were used since the last one: `usage`."""


class ImageReady(_Record):
    """A picture that the model made: `image`."""


class CitationAdded(_Record):
    """A source: `citation`."""


class Completed(_Record):
    """The end: `response`."""


class OtherEvent(_Record):
    """Something else: `event` is its name."""


_EVENTS = {
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "refusal": RefusalDelta,
    "usage": UsageDelta,
    "image": ImageReady,
    "citation": CitationAdded,
    "completed": Completed,
    "other": OtherEvent,
}


def _usage(counts):
    return counts if counts is None else TokenUsage(**counts)


def _response(fields):
    return Response(**{**fields, "token_usage": _usage(fields.get("token_usage"))})


def _event(fields):
    fields = dict(fields)
    kind = fields.pop("type", "other")
    if isinstance(fields.get("usage"), dict):
        fields["usage"] = _usage(fields["usage"])
    if isinstance(fields.get("response"), dict):
        fields["response"] = _response(fields["response"])
    if kind not in _EVENTS:
        return OtherEvent(event=kind)
    return _EVENTS[kind](**fields)


def _messages(prompt):
    prompts = prompt if isinstance(prompt, (list, tuple)) else [prompt]
    messages = [user(it) if isinstance(it, (str, _Media)) else it for it in prompts]
    if not messages or not all(isinstance(it, Message) for it in messages):
        raise TypeError("chat() takes text or republic messages.")
    return messages


class _Model:
    def __init__(self, spec):
        self.spec = spec

    def __repr__(self):
        return f"{type(self).__name__}({self.spec!r})"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *err):
        pass


class ChatModel(_Model):
    """`await model.chat(prompt, **options)`, or `async with model.stream(prompt, **options) as stream`."""

    async def chat(self, prompt, **options):
        return _response(await call("chat", spec=self.spec, messages=_messages(prompt), options=options))

    def stream(self, prompt, **options):
        return ChatStream(self.spec, _messages(prompt), options)


class ChatStream:
    """An answer as it comes: iterate over it once; afterwards `response` holds all of it."""

    def __init__(self, spec, messages, options):
        self._ask = {"spec": spec, "messages": messages, "options": options}
        self._id = self._response = None
        self._begun = self._closed = False
        self._texts = {"text": [], "reasoning": []}

    async def _open(self):
        if self._id is None:
            self._id = (await call("stream_open", **self._ask))["stream"]

    async def __aenter__(self):
        await self._open()
        return self

    async def __aexit__(self, *err):
        if self._id is not None and not self._closed:
            self._closed = True
            await call("stream_close", stream=self._id)

    async def __aiter__(self):
        if self._begun:
            raise RuntimeError("a stream can be iterated over once")
        self._begun = True
        await self._open()
        while not self._closed:
            news = await call("stream_next", stream=self._id)
            self._closed = news["done"]
            for event in map(_event, news["events"]):
                if isinstance(event, TextDelta):
                    self._texts["text"].append(event.chunk)
                elif isinstance(event, ReasoningDelta):
                    self._texts["reasoning"].append(event.chunk)
                elif isinstance(event, Completed):
                    self._response = event.response
                yield event

    @property
    def response(self):
        if self._response is None:
            raise RuntimeError("the stream is not finished")
        return self._response

    @property
    def text(self):
        return "".join(self._texts["text"]) if self._response is None else self._response.text

    @property
    def reasoning(self):
        return "".join(self._texts["reasoning"]) if self._response is None else self._response.reasoning

    @property
    def token_usage(self):
        return self.response.token_usage


class Embedding(_Record):
    """`vector` (or `vectors`), `model`, `token_usage`."""


class EmbeddingModel(_Model):
    """`await model.embed(text)`, `await model.embed_many(texts)`."""

    async def embed(self, text, dimensions=None):
        made = await self.embed_many([text], dimensions)
        return Embedding(vector=made.vectors[0], model=made.model, token_usage=made.token_usage)

    async def embed_many(self, texts, dimensions=None):
        made = await call("embed", spec=self.spec, texts=list(texts), dimensions=dimensions)
        return Embedding(vectors=made["vectors"], model=made.get("model"), token_usage=_usage(made.get("token_usage")))


class _Question(_Record):
    def __init__(self, instructions, criteria=None):
        super().__init__(instructions=instructions, criteria=criteria)

    def _encoded(self):
        return {"$republic": type(self).__name__.lower(), **self.__dict__}


class Noul(_Question):
    """Is it so? The answer has `noul`."""


class Choice(_Question):
    """Which one? `criteria` lists what there is; the answer has `choice`, `probabilities`, `confidence`."""


class Score(_Question):
    """How much? The answer has `score`, `probabilities`, `confidence`, `legend`."""


class Answer(_Record):
    """The answer to one question."""


class Answers(dict):
    """Answers by question; `answers.urgent` is `answers["urgent"]`."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no question is called '{name}'") from None


class Decision(_Record):
    """`answers`, `model`, `token_usage`; an answer is an attribute, too."""

    def __getattr__(self, name):
        if name.startswith("__") or "answers" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.answers, name)


class DecisionModel(_Model):
    """`await model.decide(state, questions={"urgent": Noul("Is it urgent?")})`."""

    async def decide(self, state, questions):
        if not questions or not all(isinstance(it, _Question) for it in questions.values()):
            raise TypeError("decide() takes republic.decisions questions.")
        made = await call("decide", spec=self.spec, state=state, questions=questions)
        answers = Answers((name, Answer(**fields)) for name, fields in made["answers"].items())
        return Decision(answers=answers, model=made.get("model"), token_usage=_usage(made.get("token_usage")))


def get_model(spec=None):
    """A chat model; without a spec the session's own."""
    return ChatModel(spec)


def get_embedding_model(spec=None):
    """An embedding model."""
    return EmbeddingModel(spec)


def get_decision_model(spec=None):
    """A decision model."""
    return DecisionModel(spec)


def revive(fields):
    """The value that the host encoded."""
    kind = fields["$republic"]
    try:
        if kind == "message":
            return Message(fields["role"], fields["content"])
        media = {"image": Image, "audio": Audio, "video": Video}[kind]
        data = fields.get("data")
        return media(fields["media_type"], None if data is None else binascii.a2b_base64(data), fields.get("url"))
    except (KeyError, TypeError, ValueError):
        return fields


MODULES = {
    "republic.events": [it.__name__ for it in _EVENTS.values()],
    "republic.decisions": ["Noul", "Choice", "Score", "Answer", "Decision"],
}
MODULES["republic"] = [
    *("Image", "Audio", "Video", "Message", "system", "user", "assistant", "TokenUsage", "Response"),
    *("get_model", "get_embedding_model", "get_decision_model", "ChatModel", "EmbeddingModel", "DecisionModel"),
    *MODULES["republic.events"],
    *MODULES["republic.decisions"],
]
