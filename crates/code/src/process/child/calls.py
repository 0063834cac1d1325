# JSON, by the parts of the standard library that are written in C: the module itself is slow to import.


class Plain:
    strict, object_hook, object_pairs_hook, memo = False, None, None, {}
    parse_float, parse_int, parse_constant = float, int, float


class Reviving(Plain):
    @staticmethod
    def object_hook(fields):
        return republic().revive(fields) if "$republic" in fields else fields


def refuse(value):
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


if make_scanner:
    scan_plain, scan_reviving = make_scanner(Plain), make_scanner(Reviving)
    encode = make_encoder(None, refuse, quote, None, ":", ",", False, False, False)

    def loads(line):
        return (scan_reviving if b'"$republic"' in line else scan_plain)(line.decode(), 0)[0]

    def dumps(value):
        return "".join(encode(value, 0))

else:
    import json

    def loads(line):
        return json.loads(line, object_hook=Reviving.object_hook)

    def dumps(value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    quote = dumps


def message(kind, **texts):
    line = "".join(['{"type":"', kind, '"', *[f',"{name}":{quote(text)}' for name, text in texts.items()], "}\n"])
    try:
        return line.encode()
    except UnicodeEncodeError:
        return message(kind, **{name: whole(text) for name, text in texts.items()})


def whole(text):
    # Half a surrogate pair is no Unicode.
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value, levels):
    """The value as JSON has it, or an error that says why not."""
    kind = type(value)
    if value is None or kind is bool or isinstance(value, str):
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            digits = str(value) if value.bit_length() < 4096 else f"of {value.bit_length()} bits"
            raise TypeError(f"integer {digits} does not fit into 64 bits, pass it as text")
        return value
    if isinstance(value, float):
        if value - value != 0:
            raise TypeError(f"{float(value)} is not a JSON number")
        return value
    encoded = getattr(kind, "_encoded", None)
    if encoded is not None:
        return plain(encoded(value), levels)
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        refuse(value)
    if levels == 0:
        raise TypeError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return {key: plain(it, levels - 1) for key, it in value.items()}
    if isinstance(value, (set, frozenset)):
        try:
            value = sorted(value)
        except Exception:
            value = list(value)
    return [plain(it, levels - 1) for it in value]


def encoded_arguments(name, arguments):
    for key, value in arguments.items():
        try:
            arguments[key] = plain(value, MAX_DEPTH - 1)
        except TypeError as err:
            raise TypeError(f"{name}() argument '{key}': {err}") from None
    try:
        data = dumps(arguments).encode()
    except UnicodeEncodeError:
        raise TypeError(f"{name}(): the arguments hold half a surrogate pair, which is not Unicode") from None
    except ValueError as err:
        raise TypeError(f"{name}(): {err}") from None
    if len(data) > MAX_VALUE_BYTES:
        raise TypeError(f"{name}(): the arguments are larger than {MAX_VALUE_BYTES} bytes as JSON")
    return data


# Calls.


class Calls:
    def __init__(self, wire, printed):
        self.wire, self.printed = wire, printed
        self.waiting, self.next_id, self.closed = {}, 0, False
        # Calls that nobody awaited yet; some suffice to tell that one was forgotten.
        self.fresh, self.n_made = {}, 0

    def begin(self, call, deliver):
        if self.wire.forked:
            raise BubError("a process that the code forked cannot call tools")
        with self.wire.lock:
            if self.closed:
                raise BubError(CLOSED)
            number = self.next_id
            self.next_id += 1
            self.waiting[number] = deliver
            self.printed.drain()
            self.printed.flush()
            self.wire.send(b'{"type":"call","id":%d,"name":%s,"arguments":%s}\n'
                           % (number, quote(call.wire_name).encode(), call.data))
        return number

    def abandon(self, number):
        if self.waiting.pop(number, None) is not None and not self.closed:
            self.wire.send(b'{"type":"cancel","id":%d}\n' % number)

    def deliver(self, line):
        try:
            answer = loads(line)
            number = answer["id"]
        except Exception as err:
            # No memory for it, say.
            number = int(line[:100].split(b'"id":', 1)[1].split(b",", 1)[0])
            answer = {"message": f"[tool] the result cannot be read: {type(err).__name__}"}
        deliver = self.waiting.pop(number, None)
        if deliver is not None:
            deliver(answer)

    def keep_delivering(self, lines):
        try:
            for line in iter(lines.readline, b""):
                self.deliver(line)
        except Exception as err:
            write_all(2, f"no more answers can be read: {type(err).__name__}\n".encode())
        with self.wire.lock:
            self.closed = True
            waiting, self.waiting = self.waiting, {}
        for deliver in waiting.values():
            deliver({"message": CLOSED})
        # The host is gone: the code may still clean up, but not go on for ever.
        time.sleep(ORPHAN_SECONDS)
        stop_all()


class Call:
    """What `tools.<name>(...)` gives: to be awaited once. It is a coroutine in the eyes of an event loop."""

    def __init__(self, name, arguments):
        self.name, self.steps, self.used = name, None, False
        self.wire_name = name[6:] if name.startswith("tools.") else name
        self.shown = f"{name}({', '.join(f'{key}={brief(value)}' for key, value in arguments.items())})"
        self.data = encoded_arguments(name, arguments)
        calls.n_made += 1
        self.number = calls.n_made
        if len(calls.fresh) < FRESH_CALLS:
            calls.fresh[self.number] = self.shown

    def __await__(self):
        if self.used:
            raise RuntimeError(f"{self.name}(...) was already awaited: call it again")
        self.use()
        return self.run()

    def use(self):
        self.used = True
        calls.fresh.pop(self.number, None)

    def run(self):
        loop = running_loop()
        if loop is None:
            answer = self.ask()
        else:
            future = loop.create_future()

            def settle(answer):
                if not future.done():
                    future.set_result(answer)

            def deliver(answer):
                try:
                    loop.call_soon_threadsafe(settle, answer)
                except RuntimeError:
                    pass  # The loop was closed; nobody waits any more.

            number = calls.begin(self, deliver)
            try:
                answer = yield from future
            finally:
                calls.abandon(number)
        if "value" in answer:
            return answer["value"]
        err = BubError(answer["message"], self.name, answer.get("kind"))
        if self.name.startswith("tools."):
            err.__notes__ = [f"called as {self.shown}"]
        raise err

    def ask(self):
        """Waits without an event loop."""
        done, answers = _thread.allocate_lock(), []
        done.acquire()

        def deliver(answer):
            answers.append(answer)
            done.release()

        number = calls.begin(self, deliver)
        try:
            done.acquire()
        finally:
            calls.abandon(number)
        return answers[0]

    def send(self, value):
        if self.steps is None:
            self.steps = self.__await__()
        return self.steps.send(value)

    def throw(self, *err):
        if self.steps is None:
            self.steps = self.__await__()
        return self.steps.throw(*err)

    def close(self):
        self.use()
        if self.steps is not None:
            self.steps.close()

    def __repr__(self):
        return f"<{self.shown} was not awaited: write `await {self.name}(...)`>"

    def forgotten(self, *_):
        raise TypeError(f"{self.name}(...) was not awaited: write `await {self.name}(...)`")

    def __getattr__(self, name):
        raise AttributeError(f"a call has no attribute '{name}'; was it not awaited? Write `await {self.name}(...)`")

    __getitem__ = __iter__ = __len__ = __contains__ = __bool__ = forgotten


def brief(value):
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:60] + "..." + text[-16:]


def running_loop():
    events = sys.modules.get("asyncio.events")
    find = getattr(events, "_get_running_loop", None)
    return find and find()


class Tools:
    def __getattr__(self, name):
        if name not in tool_names:
            raise AttributeError(f"no tool is called '{name}'{near(name)}")

        def tool(*args, **arguments):
            if args:
                raise TypeError(f"tools.{name}() accepts keyword arguments only")
            return Call(tool.__qualname__, arguments)

        tool.__name__, tool.__qualname__ = name, f"tools.{name}"
        self.__dict__[name] = tool
        return tool

    def __dir__(self):
        return sorted(tool_names)

    def __repr__(self):
        return f"<tools: {', '.join(sorted(tool_names))}>"


def near(name):
    import difflib

    names = difflib.get_close_matches(name, sorted(tool_names), 3)
    return f"; did you mean {' or '.join(names)}?" if names else "; dir(tools) lists them"
