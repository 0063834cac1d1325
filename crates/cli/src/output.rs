//! Standard output and standard error. Nothing else in the program writes to them.

use std::io::{self, IsTerminal as _, Write as _};

/// Whether output goes to a person's terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether colours are wanted there: not when `NO_COLOR` is set, nor in a dumb terminal.
pub(crate) fn wants_color(terminal: bool) -> bool {
    terminal && variable("NO_COLOR").is_none() && variable("TERM").is_none_or(|it| it != "dumb")
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

/// Writes a line to standard error. There is nobody to tell when that fails.
pub(crate) fn note(text: &str) {
    let mut stream = io::stderr().lock();
    drop(stream.write_all(text.as_bytes()));
    if !text.ends_with('\n') {
        drop(stream.write_all(b"\n"));
    }
    drop(stream.flush());
}
