//! `fs.read`: text of a file, whole or by lines.

use bub_kernel::{
    environment::{EnvPath, EnvironmentError, OpenFile},
    text::{human_size, thousands},
    tool::prelude::*,
};

use super::{
    lines::{Line, Lines, Terminator},
    text::{check_head, count, invalid_at},
};

/// Bytes of text that one call returns at most; what needs more is asked for in pieces.
const MAX_TEXT_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of one line that a call with `limit` returns at most. It holds for calls that page through
/// a file alone, which are promised short answers; without `limit` lines come whole.
const MAX_PAGED_LINE_BYTES: usize = 1024 * 1024;

/// Read UTF-8 text from a file. Omit `offset` and `limit` to get the whole file unchanged.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReadArgs {
    /// File to read; a relative path starts at the workspace.
    path: String,
    /// Number of lines to skip.
    #[serde(default)]
    offset: i64,
    /// Most lines to return; the line end after the last one is left off.
    #[serde(default)]
    limit: Option<i64>,
}

/// Reads the text of a file.
///
/// Returned text is exact: line ends, form feeds and the final newline stay. Memory is what is
/// returned and one buffer, whatever the file's size.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsRead;

impl Tool for FsRead {
    const NAME: &'static str = "fs.read";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = ReadArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: ReadArgs) -> Result<String, ToolError> {
        let offset = not_negative("offset", args.offset)?;
        let limit = args.limit.map(|it| not_negative("limit", it)).transpose()?;
        let path = ctx.env.resolve(&args.path)?;
        let file = ctx.env.open(&path).await?;
        if offset == 0 && limit.is_none() && file.size > MAX_TEXT_BYTES as u64 {
            return Err(too_much(&path, file.size));
        }
        read(&path, file, offset, limit).await
    }
}

fn not_negative(name: &str, value: i64) -> Result<u64, ToolError> {
    u64::try_from(value).map_err(|_| ToolError::invalid(format!("{name} must not be negative, but is {value}")))
}

async fn read(path: &EnvPath, file: OpenFile, offset: u64, limit: Option<u64>) -> Result<String, ToolError> {
    let size = file.size;
    let failed = |err| EnvironmentError::io(path, err);
    let mut lines = Lines::start(file.reader).await.map_err(failed)?;
    check_head(path, size, lines.buffered())?;
    lines.skip_bom();
    for n_lines in 0..offset {
        if lines.skip().await.map_err(failed)?.is_none() {
            return Err(past_the_end(path, offset, n_lines));
        }
    }
    if offset > 0 && lines.at_end().await.map_err(failed)? {
        return Err(past_the_end(path, offset, offset));
    }

    let max_line = if limit.is_some() { MAX_PAGED_LINE_BYTES } else { MAX_TEXT_BYTES };
    let mut text = String::new();
    let mut bytes = Vec::new();
    let mut pending = Terminator::None;
    let mut n_lines = 0;
    while limit.is_none_or(|limit| n_lines < limit) {
        bytes.clear();
        let Some(line) = lines.line(&mut bytes, max_line).await.map_err(failed)? else { break };
        text.push_str(pending.as_str());
        push_line(&mut text, path, size, &line, &bytes)?;
        if text.len() > MAX_TEXT_BYTES || (limit.is_none() && line.len > max_line as u64) {
            return Err(too_much(path, size));
        }
        pending = line.terminator;
        n_lines += 1;
    }
    if limit.is_none() {
        text.push_str(pending.as_str());
    }
    Ok(text)
}

/// Appends the kept bytes of a line, and says so when they are not all.
fn push_line(text: &mut String, path: &EnvPath, size: u64, line: &Line, kept: &[u8]) -> Result<(), ToolError> {
    let is_cut = line.len > kept.len() as u64;
    let valid = match std::str::from_utf8(kept) {
        Ok(valid) => valid,
        // The cut may go through a character, of which nothing is shown then.
        Err(err) if is_cut && err.error_len().is_none() => {
            kept.get(..err.valid_up_to()).and_then(|it| std::str::from_utf8(it).ok()).unwrap_or_default()
        }
        Err(err) => return Err(invalid_at(path, size, line.start + err.valid_up_to() as u64)),
    };
    text.push_str(valid);
    if is_cut {
        text.push_str(&format!(
            " ...[line cut: it has {} bytes, {} are shown]",
            thousands(line.len),
            thousands(valid.len() as u64)
        ));
    }
    Ok(())
}

fn past_the_end(path: &EnvPath, offset: u64, n_lines: u64) -> ToolError {
    let holds = if n_lines == 0 { "is empty (0 lines)".into() } else { format!("has {}", count(n_lines, "line")) };
    ToolError::invalid(format!("offset {offset} is past the last line: {path} {holds}"))
}

fn too_much(path: &EnvPath, size: u64) -> ToolError {
    ToolError::invalid(format!(
        "{path} has {}, more than the {} that one call returns: read it in pieces with offset and limit",
        human_size(size),
        human_size(MAX_TEXT_BYTES as u64)
    ))
}
