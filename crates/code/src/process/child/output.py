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
