//! The text files of the workspace.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Files larger than this many bytes are data, not text that somebody wrote.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// One text file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Where, relative to the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl SourceFile {
    /// Whether it is Rust.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.extension() == Some("rs")
    }

    /// Whether it holds nothing but tests, benches or examples.
    #[must_use]
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|it| matches!(it, "tests" | "benches" | "examples" | "tests.rs"))
    }

    /// The last part of its name after the dot.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        self.path.rsplit('/').next()?.rsplit_once('.').map(|(_, it)| it)
    }

    /// Its code: lines, from 1, with their comments cut off, without unit tests.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = if self.is_test() { 0 } else { product_lines(&self.text) };
        self.text.lines().take(end).enumerate().map(|(idx, line)| (idx + 1, without_comment(line)))
    }

    /// How many lines it has before its unit tests.
    #[must_use]
    pub fn n_product_lines(&self) -> usize {
        product_lines(&self.text)
    }
}

/// The text files of a workspace, sorted by path.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Where the workspace is.
    pub root: PathBuf,
    /// Its files.
    pub files: Vec<SourceFile>,
}

impl Tree {
    /// Reads a workspace; build output, version control and what is not UTF-8 text is left out.
    ///
    /// # Errors
    /// When a folder or file can't be read.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).with_context(|| format!("can't list {}", folder.display()))?;
            for entry in entries {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                if kind.is_dir() && !is_foreign(&path) {
                    folders.push(path);
                } else if kind.is_file()
                    && let Some(text) = read_text(&path).with_context(|| format!("can't read {}", path.display()))?
                {
                    let relative = path.strip_prefix(root).unwrap_or(&path);
                    files.push(SourceFile { path: relative.to_string_lossy().replace('\\', "/"), text });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), files })
    }

    /// The file at a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        let idx = self.files.binary_search_by(|it| it.path.as_str().cmp(path)).ok()?;
        self.files.get(idx)
    }

    /// The Rust files below a folder.
    pub fn rust_below(&self, folder: &str) -> impl Iterator<Item = &SourceFile> + use<'_> {
        let prefix = format!("{folder}/");
        self.files.iter().filter(move |it| it.is_rust() && it.path.starts_with(&prefix))
    }
}

/// Whether a folder holds nothing that is ours: version control, or a build's output.
fn is_foreign(folder: &Path) -> bool {
    folder.file_name().is_some_and(|it| it == ".git" || it == "target") || folder.join("CACHEDIR.TAG").exists()
}

/// A file's text; `None` when it is too large or no UTF-8. A file that vanished meanwhile is no error.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    let bytes = match fs::metadata(path) {
        Ok(meta) if meta.len() <= MAX_TEXT_BYTES => fs::read(path),
        Ok(_) => return Ok(None),
        Err(err) => Err(err),
    };
    match bytes {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// How many lines come before the unit tests at the end of a file.
fn product_lines(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_test_module = |window: &[&str]| matches!(window, [attribute, module] if *attribute == "#[cfg(test)]" && module.starts_with("mod ") && module.ends_with('{'));
    lines.windows(2).position(is_test_module).unwrap_or(lines.len())
}

/// A line up to its comment; a `//` inside a string, as in an address, is no comment.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    line.split_once(" // ").map_or(line, |(code, _)| code)
}
