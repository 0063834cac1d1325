//! What is text and what is not, and how to say so.

use bub_kernel::{
    environment::EnvPath,
    error::ToolError,
    text::{elide, human_size, thousands},
};

/// The byte order mark of UTF-8.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";
/// How much of a file's beginning tells whether it is text.
pub(super) const HEAD_BYTES: usize = 8 * 1024;

/// Refuses a file whose first [`HEAD_BYTES`] are no UTF-8 text: UTF-16 and binary data.
pub(super) fn check_head(path: &EnvPath, size: u64, head: &[u8]) -> Result<(), ToolError> {
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    let utf16 = match head {
        // UTF-32, little end first, begins like UTF-16.
        [0xff, 0xfe, 0, 0, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] => Some("UTF-16LE"),
        [0xfe, 0xff, ..] => Some("UTF-16BE"),
        _ => None,
    };
    if let Some(encoding) = utf16 {
        return Err(not_utf8(format!(
            "{path} is not UTF-8 at byte 0: it is {encoding} text with a byte order mark ({}); convert it with iconv first",
            human_size(size)
        )));
    }
    if memchr::memchr(0, head).is_some() {
        return Err(not_utf8(format!("{path} is a binary file ({}), not UTF-8 text", human_size(size))));
    }
    Ok(())
}

/// The error of the first byte that is not UTF-8.
pub(super) fn invalid_at(path: &EnvPath, size: u64, byte: u64) -> ToolError {
    not_utf8(format!("{path} is not UTF-8 at byte {byte} (of {})", human_size(size)))
}

/// Characters of the caller's own text that an error repeats at most.
const MAX_QUOTED: usize = 1_000;

/// The caller's own text, cut to what an error may repeat.
pub(super) fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    elide(text, MAX_QUOTED)
}

/// `1 line`, `2 lines`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", thousands(number), if number == 1 { "" } else { "s" })
}

fn not_utf8(message: String) -> ToolError {
    ToolError::raised("UnicodeDecodeError", message)
}
