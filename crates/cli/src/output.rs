//! Standard output and standard error. Nothing else in the program writes to them.

use std::io::{self, IsTerminal as _, Write as _};

/// Whether output goes to a person's terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether colours are wanted there: not when `NO_COLOR` is set, nor in a dumb terminal.
pub(crate) fn wants_color(terminal: bool) -> bool {
    terminal && variable("NO_COLOR").is_none() && !is_dumb()
}

/// How many characters a line of the terminal has; none when output goes elsewhere.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|it| *it > 0)
}

/// Whether the terminal can do nothing but print.
pub(crate) fn is_dumb() -> bool {
    variable("TERM").is_some_and(|it| it == "dumb")
}

/// Whether nobody reads standard output any more. Never so for a file, and where the system does not
/// tell; then writing fails sooner or later.
pub(crate) fn is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stream = io::stdout();
    let mut streams = [PollFd::new(&stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut streams, Some(&now)).is_ok()
        && streams.iter().any(|it| it.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL))
}

/// A variable of the program's environment that says how to print; empty is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "how the program prints is no setting of the runtime")]
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

/// Writes to standard output, at once.
///
/// # Errors
/// Those of the stream; a reader that has gone away is [`io::ErrorKind::BrokenPipe`].
pub(crate) fn out(text: &str) -> io::Result<()> {
    let mut stream = io::stdout().lock();
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

/// Writes a line to standard output.
///
/// # Errors
/// As [`out`].
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut stream = io::stdout().lock();
    stream.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stream.write_all(b"\n")?;
    }
    stream.flush()
}

/// Asks on standard error, without ending the line.
pub(crate) fn ask(question: &str) {
    let mut stream = io::stderr().lock();
    drop(stream.write_all(question.as_bytes()));
    drop(stream.flush());
}

/// Writes a line to standard error. There is nobody to tell when that fails.
pub(crate) fn note(text: &str) {
    let mut stream = io::stderr().lock();
    drop(stream.write_all(text.as_bytes()));
    if !text.ends_with('\n') {
        drop(stream.write_all(b"\n"));
    }
    drop(stream.flush());
}
