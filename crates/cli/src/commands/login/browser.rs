//! Opening a page for a person who sits at this machine.

use std::{
    io::{self, IsTerminal as _},
    process::Stdio,
};

use crate::output;

/// What opens pages; none where nobody could see them.
fn opener() -> Option<&'static str> {
    if cfg!(target_os = "macos") {
        return Some("open");
    }
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|it| output::variable(it).is_some());
    has_screen.then_some("xdg-open")
}

/// Opens a page in a browser, when there is one and a person who sees it. Where that fails, the address
/// that was shown will do.
pub(super) fn open(url: &str) {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return;
    }
    let Some(program) = opener() else { return };
    let mut command = tokio::process::Command::new(program);
    // In a group of its own: Ctrl-C ends the login, not the browser.
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    if let Err(err) = command.spawn() {
        tracing::debug!(program, %err, "no browser was opened");
    }
}
