# Runs one piece of code for its host. Messages are JSON objects, one a line, on private copies of
# descriptors 0 and 1. The code gets an empty standard input, and a pipe of ours as descriptor 1, so
# that nothing it or its children write there is taken for a message.
#
# Starting quickly matters here: modules that a bare interpreter has not loaded are imported when needed.

import sys

# Files of the workspace must not stand in for the modules of this runner.
code_path = sys.path[:]
sys.path[:] = [it for it in code_path if it not in ("", ".")]

import _thread, codecs, io, os, select, time

try:
    from _json import encode_basestring as quote, make_encoder, make_scanner
except ImportError:
    make_scanner = None

FLUSH_CHARS = 8192
FLUSH_SECONDS = 0.2
PROMPT_LINES = 20000
LINE_SECONDS = 0.005
MESSAGE_CHARS = 65536
RAW_BYTES = 65536
REPORT_CHARS = 65536
FRESH_CALLS = 10000
ORPHAN_SECONDS = 3
LEFTOVER_SECONDS = 1
CLOSED = "Bub closed the connection"

# Modules that have nothing to do with an event loop: code that imports no others is run without one.
LOOPLESS = frozenset("""
    __future__ abc argparse array ast base64 binascii bisect calendar cmath collections colorsys concurrent
    configparser contextlib copy csv dataclasses datetime decimal difflib enum errno fnmatch fractions functools
    glob gzip hashlib heapq hmac html http inspect io ipaddress itertools json keyword locale logging math
    mimetypes operator os pathlib platform pprint queue random re republic secrets shlex shutil sqlite3 stat
    statistics string struct subprocess sys tempfile textwrap threading time tomllib traceback types typing
    unicodedata urllib uuid warnings xml zipfile zlib zoneinfo
""".split())


class BubError(Exception):
    """A tool failed, or was not allowed. `kind` says how, `tool` which one."""

    def __init__(self, message, tool=None, kind=None):
        super().__init__(message)
        self.tool, self.kind = tool, kind


BubError.__module__ = "builtins"


# Messages to the host. One lock guards the pipe and the text that waits for it. It can be taken again by its
# owner: a finaliser that prints may run at any point of this code.


class Wire:
    def __init__(self, pipe):
        self.pipe = pipe
        self.lock = _thread.RLock()
        self.lines = []
        self.writing = False
        self.forked = False

    def send(self, line):
        if self.forked:
            return
        self.lines.append(line)
        with self.lock:
            if self.writing:
                return
            self.writing = True
            try:
                while self.lines:
                    rest = memoryview(self.lines.pop(0))
                    while rest:
                        rest = rest[os.write(self.pipe, rest):]
            except OSError:
                # Nobody listens any more, so nobody will end this process.
                stop_all()
            finally:
                self.writing = False


class Printed:
    """Text that waits to be sent, and the pipe by which writes to descriptor 1 join it."""

    def __init__(self, wire, raw):
        self.wire, self.raw = wire, raw
        self.chunks, self.size, self.new_line = [], 0, True
        self.n_flushed, self.flushed = 0, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def put(self, text):
        if self.wire.forked:
            write_all(1, text.encode("utf-8", "backslashreplace"))
            return
        with self.wire.lock:
            # What children wrote before this line comes before it.
            if self.new_line:
                self.drain()
            self.add(text)

    def put_bytes(self, data):
        if self.wire.forked:
            write_all(1, data)
            return
        with self.wire.lock:
            if self.new_line:
                self.drain()
            self.add(self.decoder.decode(data))

    def add(self, text):
        if text:
            self.chunks.append(text)
            self.size += len(text)
            self.new_line = text[-1] == "\n"
        if self.size >= FLUSH_CHARS or self.is_urgent(text):
            self.flush()

    def is_urgent(self, text):
        # A whole line goes out at once, so that it is not lost when the process dies the next moment; but who
        # prints a lot gets there faster in larger pieces. `print(..., end="")` ends with an empty text.
        return (not text or self.new_line) and self.size and (
            self.n_flushed < PROMPT_LINES or time.monotonic() - self.flushed >= LINE_SECONDS)

    def drain(self):
        for _ in range(16):
            if self.raw is None:
                return
            try:
                data = os.read(self.raw, RAW_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self.add(self.decoder.decode(data))
            else:
                self.raw = None

    def flush(self):
        if self.wire.forked:
            return
        with self.wire.lock:
            chunks, self.chunks, self.size = self.chunks, [], 0
            text = "".join(chunks)
            self.n_flushed += 1
            self.flushed = time.monotonic()
            for start in range(0, len(text), MESSAGE_CHARS):
                self.wire.send(message("output", data=text[start:start + MESSAGE_CHARS]))

    def has_news(self, raw):
        try:
            return select.select([raw], [], [], FLUSH_SECONDS)[0]
        except (OSError, ValueError):
            self.raw = None

    def keep_flushing(self):
        last = time.monotonic()
        while not self.wire.forked:
            raw = self.raw
            if raw is None:
                time.sleep(FLUSH_SECONDS)
            elif self.has_news(raw):
                with self.wire.lock:
                    self.drain()
            if time.monotonic() - last >= FLUSH_SECONDS:
                self.flush()
                last = time.monotonic()


class Bytes(io.RawIOBase):
    """`sys.stdout.buffer`."""

    name, mode = "<stdout>", "wb"

    def __init__(self, printed):
        self.printed = printed

    def writable(self):
        return True

    def fileno(self):
        return 1

    def write(self, data):
        data = bytes(data)
        self.printed.put_bytes(data)
        return len(data)

    def flush(self):
        self.printed.flush()


class Stdout(io.TextIOBase):
    """`sys.stdout`."""

    name, mode, encoding, errors, newlines, line_buffering = "<stdout>", "w", "utf-8", "backslashreplace", None, False

    def __init__(self, printed):
        self.printed, self.buffer = printed, Bytes(printed)

    def writable(self):
        return True

    def fileno(self):
        return 1

    def reconfigure(self, **options):
        pass

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.printed.put(text)
        return len(text)

    def flush(self):
        self.printed.flush()


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


def stop_all():
    import signal

    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


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


# Models, by a module that is made when it is first used.


class Lazy(type(sys)):
    def __getattr__(self, name):
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        republic()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'") from None

    def __dir__(self):
        republic()
        return list(self.__dict__)


class Republic:
    made = None


def republic():
    with wire.lock:
        if Republic.made is None:
            made = type(sys)("republic")
            names = made.__dict__
            names.update(call=lambda op, **arguments: Call(f"republic.{op}", arguments))
            exec(compile(REPUBLIC, "<republic>", "exec"), names)
            for module, members in names["MODULES"].items():
                sys.modules[module].__dict__.update({it: names[it] for it in members}, __all__=members)
            Republic.made = made
    return Republic.made


def prepare_republic():
    for name in ("republic", "republic.events", "republic.decisions"):
        sys.modules[name] = Lazy(name)
    root = sys.modules["republic"]
    root.__path__ = []
    root.events, root.decisions = sys.modules["republic.events"], sys.modules["republic.decisions"]
    return root


# Running the code.


def is_loopless(code):
    """Whether code with `await` can do without an event loop. When in doubt it can't."""
    if any(word in code for word in ("asyncio", "__import__", "importlib", "exec", "eval")):
        return False
    for line in code.split("\n"):
        if "import" in line:
            words = line.split("#")[0].replace(",", " , ").split()
            if words[:1] == ["import"]:
                names = " ".join(words[1:]).split(" , ")
            elif words[:1] == ["from"] and words[2:3] == ["import"]:
                names = words[1:2]
            else:
                return False
            if line.count("import") != 1 or ";" in line:
                return False
            if not all(name.split(" as ")[0].strip().split(".")[0] in LOOPLESS for name in names):
                return False
    return True


def drive(coroutine):
    """Runs a coroutine whose calls wait for themselves."""
    try:
        while True:
            if coroutine.send(None) is not None:
                coroutine.throw(RuntimeError("this needs an event loop: import asyncio in the code"))
    except StopIteration:
        pass


def drive_loop(coroutine):
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(coroutine)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=LEFTOVER_SECONDS))


def run(code, filename, names):
    compiled = compile(code, filename, "exec", 0x2000, True)  # With top-level await.
    if any(it in code for it in ("traceback", "inspect", "logging")):
        show_lines(code, filename)
    if not compiled.co_flags & 0x80:  # Not a coroutine.
        sys.path[:] = code_path
        exec(compiled, names)
        return
    if is_loopless(code):
        sys.path[:] = code_path
        drive(eval(compiled, names))
        return
    import asyncio

    sys.path[:] = code_path
    drive_loop(eval(compiled, names))


def show_lines(code, filename):
    import linecache

    linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)


def describe(err, code, filename):
    kind = type(err).__name__
    try:
        # The interpreter's own `exit()` has none for a code.
        text = "" if isinstance(err, SystemExit) and err.code is None else str(err)
    except Exception:
        text = "<the error has no text>"
    try:
        lines = traceback_lines(err, code, filename)
    except BaseException:
        lines, frame = [], err.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == filename:
                lines.append(f'  File "{filename}", line {frame.tb_lineno}\n')
            frame = frame.tb_next
        lines.append(f"{kind}: {text}\n")
    return cut(f"{kind}: {text}" if text else kind), cut("".join(lines).rstrip("\n"))


def traceback_lines(err, code, filename):
    path = sys.path[:]
    sys.path[:] = [it for it in path if it not in ("", ".")]
    try:
        import traceback

        show_lines(code, filename)
    finally:
        sys.path[:] = path
    told = traceback.TracebackException(type(err), err, err.__traceback__)
    seen, rest = set(), [told]
    while rest:
        it = rest.pop()
        if it is None or id(it) in seen:
            continue
        seen.add(id(it))
        it.stack[:] = [frame for frame in it.stack if frame.filename == filename]
        rest += [it.__cause__, it.__context__, *(getattr(it, "exceptions", None) or [])]
    lines = [line.replace("__run_code__.", "", 1) if line.startswith("__run_code__.") else line
             for line in told.format()]
    if sys.version_info < (3, 11):
        lines += [note + "\n" for note in getattr(err, "__notes__", [])]
    return lines


def cut(text):
    if len(text) <= REPORT_CHARS:
        return text
    half = REPORT_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def limit_memory(n_bytes):
    import resource

    try:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    except (AttributeError, OSError, ValueError):
        pass


def after_fork():
    # This process is not the one that the host talks with.
    wire.forked, wire.lock, calls.waiting = True, _thread.RLock(), {}
    printed.chunks, printed.size, printed.raw = [], 0, None
    for descriptor in (wire.pipe, lines_in.fileno()):
        try:
            os.close(descriptor)
        except OSError:
            pass


def finish(last, status):
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not stdout:
            try:
                stream.flush()
            except Exception:
                pass
    with wire.lock:
        if not wire.forked:
            printed.drain()
            printed.add(printed.decoder.decode(b"", True))
            printed.flush()
            if last is not None:
                wire.send(last)
    os._exit(status)


def main(request):
    code, filename = request["code"], request["filename"]
    if request.get("memory"):
        limit_memory(request["memory"])
    module = type(sys)("__run_code__")
    sys.modules["__run_code__"] = module
    names = module.__dict__
    names.update(tools=Tools(), republic=prepare_republic(), BubError=BubError)
    try:
        run(code, filename, names)
        if calls.fresh and not wire.forked:
            shown = next(iter(calls.fresh.values()))
            raise RuntimeError(f"{shown} was never awaited, so it did not run: write `await {shown.split('(')[0]}(...)`")
    except BaseException as err:
        if isinstance(err, (Exception, SystemExit)) or type(err).__name__ == "CancelledError":
            error, trace = describe(err, code, filename)
            if wire.forked:
                write_all(2, trace.encode("utf-8", "backslashreplace") + b"\n")
            finish(message("failed", error=error, traceback=trace), 1 if wire.forked else 0)
        write_all(2, (describe(err, code, filename)[1] + "\n").encode("utf-8", "backslashreplace"))
        if isinstance(err, KeyboardInterrupt):
            import signal

            signal.signal(signal.SIGINT, signal.SIG_DFL)
            printed.drain()
            printed.flush()
            os.kill(os.getpid(), signal.SIGINT)
        finish(None, 1)
    finish(message("done"), 0)


lines_in = os.fdopen(os.dup(0), "rb")
wire = Wire(os.dup(1))
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
raw_out, raw_in = os.pipe()
os.set_blocking(raw_out, False)
os.dup2(raw_in, 1)
os.close(raw_in)
printed = Printed(wire, raw_out)
calls = Calls(wire, printed)
request = loads(lines_in.readline())
tool_names = frozenset(request["tools"])
os.register_at_fork(after_in_child=after_fork)
stdout = sys.stdout = Stdout(printed)
_thread.start_new_thread(printed.keep_flushing, ())
_thread.start_new_thread(calls.keep_delivering, (lines_in,))
main(request)
