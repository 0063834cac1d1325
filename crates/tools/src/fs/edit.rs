//! `fs.edit`: literal replacement in a file.

use bub_kernel::{environment::EnvironmentError, text::human_size, tool::prelude::*};

use super::{
    FileLocks, alike,
    lines::{has_lone_lf, is_crlf_throughout, line_start, to_crlf, to_lf},
    text::{BOM, check_head, count, invalid_at, quoted},
};

/// Bytes of a file that can be edited at most.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Replace every occurrence of `old` by `new` in a UTF-8 text file, from line `start` on. Both are
/// literal text, not patterns; everything else in the file stays as it is.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct EditArgs {
    /// File to edit; a relative path starts at the workspace.
    path: String,
    /// Text to look for; must not be empty.
    old: String,
    /// Text to put in its place.
    new: String,
    /// Number of lines to leave alone at the beginning.
    #[serde(default)]
    start: i64,
}

/// Replaces text in a file and changes no other byte.
///
/// In a file whose line ends are `\r\n` throughout, an `old` that does not occur is tried once more
/// with such line ends, and what replaces a piece of one line gets them too. No line end is cut in two.
#[derive(Clone, Debug, Default)]
pub struct FsEdit {
    locks: FileLocks,
}

impl FsEdit {
    /// Takes turns with the other tools that have these locks.
    #[must_use]
    pub fn new(locks: FileLocks) -> Self {
        Self { locks }
    }
}

impl Tool for FsEdit {
    const NAME: &'static str = "fs.edit";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = EditArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: EditArgs) -> Result<String, ToolError> {
        let EditArgs { path, old, new, start } = args;
        if old.is_empty() {
            return Err(ToolError::invalid("old must not be empty"));
        }
        let start = u64::try_from(start)
            .map_err(|_| ToolError::invalid(format!("start must not be negative, but is {start}")))?;
        let path = ctx.env.resolve(&path)?;
        let _turn = self.locks.lock(&path).await;
        let bytes = ctx.env.read_bytes(&path, MAX_FILE_BYTES).await.map_err(|err| match err {
            EnvironmentError::TooLarge { size, .. } => ToolError::invalid(format!(
                "{path} has {}, more than the {} that can be edited",
                human_size(size),
                human_size(MAX_FILE_BYTES)
            )),
            err => err.into(),
        })?;
        let true_path = ctx.env.true_path(&path).await;
        let size = bytes.len() as u64;
        check_head(&path, size, &bytes)?;
        let text =
            String::from_utf8(bytes).map_err(|err| invalid_at(&path, size, err.utf8_error().valid_up_to() as u64))?;

        let edit = Edit::find(&text, &old, &new, start);
        if old == new {
            let found = edit.map_or(0, |it| it.n_places);
            return Err(ToolError::invalid(format!(
                "nothing changed in {true_path}: old and new are the same text, which occurs {} from line {start}",
                count(found, "time")
            )));
        }
        let Some(edit) = edit else {
            let message = format!("'{}' not found in {true_path} from line {start}", quoted(&old));
            let err = ToolError::raised("ValueError", message);
            return Err(match hint(&text, &old, start) {
                Some(hint) => err.with_detail("hint", hint),
                None => err,
            });
        };
        ctx.env.write(&path, edit.apply(&text).as_bytes()).await?;
        let suffix = if edit.n_places > 1 { format!(" ({} replacements)", edit.n_places) } else { String::new() };
        Ok(format!("edited: {true_path}{suffix}"))
    }
}

/// What to replace in a text.
struct Edit {
    /// The byte from which on everything is replaced.
    from: usize,
    old: String,
    new: String,
    n_places: u64,
}

impl Edit {
    /// Finds `old`, or `old` with the file's line ends; `None` when it does not occur.
    fn find(text: &str, old: &str, new: &str, start: u64) -> Option<Self> {
        let from = first_byte(text, old, start)?;
        let tail = text.get(from..).unwrap_or_default();
        let is_crlf = is_crlf_throughout(text);
        // Where all line ends are CRLF, a lone LF could only be found as the second half of one.
        let n_places = if is_crlf && has_lone_lf(old) { 0 } else { tail.matches(old).count() };
        if n_places > 0 {
            // A piece of one line says nothing about line ends, so those of the file are kept.
            let is_ours = is_crlf && !old.contains(['\n', '\r']) && !new.contains('\r');
            let new = if is_ours { to_crlf(new) } else { new.to_owned() };
            return Some(Self { from, old: old.to_owned(), new, n_places: n_places as u64 });
        }
        let (old, new) = (to_crlf(old), to_crlf(new));
        let n_places = if is_crlf { tail.matches(&old).count() } else { 0 };
        (n_places > 0).then_some(Self { from, old, new, n_places: n_places as u64 })
    }

    fn apply(&self, text: &str) -> String {
        let (head, tail) = text.split_at_checked(self.from).unwrap_or((text, ""));
        format!("{head}{}", tail.replace(&self.old, &self.new))
    }
}

/// Where the search begins; `None` when there are fewer lines.
fn first_byte(text: &str, old: &str, start: u64) -> Option<usize> {
    // The byte order mark is no part of the first line, unless it is asked for.
    let bom = if text.as_bytes().starts_with(BOM) && !old.starts_with('\u{feff}') { BOM.len() } else { 0 };
    line_start(text.get(bom..).unwrap_or_default(), start).map(|at| bom + at)
}

/// Why `old` was not found although it is nearly there.
fn hint(text: &str, old: &str, start: u64) -> Option<String> {
    if start > 0 && Edit::find(text, old, "", 0).is_some() {
        return Some("it occurs before that line".to_owned());
    }
    if to_lf(text).contains(&to_lf(old)) {
        let (sort, letters) = if text.contains("\r\n") {
            ("CRLF line ends, at least in part", "\\r\\n")
        } else {
            ("LF line ends", "\\n")
        };
        return Some(format!("the file has {sort}: write them as {letters} in old and new"));
    }
    let (line, what) = alike::find(text, old)?;
    Some(format!("a text that differs only in {what} begins in line {line}: read it and copy it exactly"))
}
