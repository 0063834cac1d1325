import asyncio as _bub_aio

BubError = RuntimeError
_bub_nam = "__run_code__"
_bub_calls = {}

def _bub_value(answer):
    if answer[0]:
        return answer[1]
    raise RuntimeError(answer[1])

async def tool_call_without_await(name, number, arguments):
    _bub_calls[number] = None
    return _bub_value(await _bub_host.call(name, arguments))

def _bub_tool(name):
    def call(*args, **kwargs):
        if args:
            raise TypeError(f"tools.{name}() accepts keyword arguments only")
        number = len(_bub_calls)
        _bub_calls[number] = name
        return tool_call_without_await(name, number, kwargs)
    return call

async def _bub_caught(awaitable):
    try:
        return await awaitable
    except Exception as error:
        return error

async def _bub_sleep(delay, result):
    await _bub_host.sleep(delay)
    return result

class _bub_Asyncio:
    def gather(self, *awaitables, return_exceptions=False):
        if return_exceptions:
            awaitables = [_bub_caught(awaitable) for awaitable in awaitables]
        return _bub_aio.gather(*awaitables)

    def run(self, main):
        return _bub_aio.run(main)

    def sleep(self, delay, result=None):
        return _bub_sleep(delay, result)

    def create_task(self, awaitable, name=None):
        return awaitable

    def ensure_future(self, awaitable):
        return awaitable

_bub_asyncio = _bub_Asyncio()

class ChatModel:
    def __init__(self, spec):
        self.spec = spec

    async def chat(self, prompt, **options):
        return _bub_value(await _bub_host.chat(self.spec, prompt, options))

    def stream(self, prompt, **options):
        raise NotImplementedError("the sandbox has no `async for`, so no streams: use `await model.chat(...)`")

class EmbeddingModel:
    def __init__(self, spec):
        self.spec = spec

    async def embed(self, text, dimensions=None):
        return _bub_value(await _bub_host.embed(self.spec, text, dimensions))

    async def embed_many(self, texts, dimensions=None):
        return _bub_value(await _bub_host.embed_many(self.spec, texts, dimensions))

class DecisionModel:
    def __init__(self, spec):
        self.spec = spec

    async def decide(self, state, questions):
        return _bub_value(await _bub_host.decide(self.spec, state, questions))

def _bub_models(model):
    def get(spec=None):
        if spec is not None and not isinstance(spec, str):
            raise TypeError("a model is named by a 'provider:model' text")
        return model(spec)
    return get

def _bub_role(role):
    message = republic.Message
    def make(*content):
        return message(role, list(content))
    return make

republic.system = _bub_role("system")
republic.user = _bub_role("user")
republic.assistant = _bub_role("assistant")
republic.get_model = _bub_models(ChatModel)
republic.get_embedding_model = _bub_models(EmbeddingModel)
republic.get_decision_model = _bub_models(DecisionModel)
