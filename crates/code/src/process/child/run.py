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
