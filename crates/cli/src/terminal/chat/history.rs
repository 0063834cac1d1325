//! Lines that were typed, in the reference's file: for each a comment with its time, and its lines with a
//! plus sign in front.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, ZonedDateTime, tz::TimeZone};

/// Entries that can be called back.
const MAX_ENTRIES: usize = 1000;
/// How much of the file is read, from its end, in bytes.
const MAX_READ: u64 = 1 << 20;
/// From this size on the file is cut to what is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The file of one workspace.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
}

impl History {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The newest entries, oldest first. What can't be read is none.
    pub(super) fn read(&self) -> Vec<String> {
        match read_end(&self.path) {
            Ok((text, len)) => {
                let entries = parse(&text);
                if len > MAX_FILE
                    && let Err(err) = self.rewrite(&text)
                {
                    tracing::warn!(path = %self.path.display(), error = %err, "the history could not be shortened");
                }
                entries
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(err) => {
                tracing::warn!(path = %self.path.display(), error = %err, "the history was not read");
                Vec::new()
            }
        }
    }

    /// Adds an entry.
    pub(super) fn append(&self, entry: &str) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        // In one write, so that two terminals do not mix their lines.
        file.write_all(format(entry, &Timestamp::now().to_zoned_datetime(TimeZone::system())).as_bytes())
    }

    fn rewrite(&self, text: &str) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// The end of the file, from the beginning of an entry, and the file's length.
fn read_end(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let from = status.len().saturating_sub(MAX_READ);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let text = match text.find("\n#") {
        Some(at) if from > 0 => text.get(at..).unwrap_or_default().to_owned(),
        _ => text,
    };
    Ok((text, status.len()))
}

fn format(entry: &str, now: &ZonedDateTime) -> String {
    let mut text = format!("\n# {}\n", now.strftime("%Y-%m-%d %H:%M:%S.%6f"));
    for line in entry.split('\n') {
        text.push('+');
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn parse(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    let mut open: Option<String> = None;
    for line in text.split('\n') {
        match (line.strip_prefix('+'), &mut open) {
            (Some(line), Some(entry)) => {
                entry.push('\n');
                entry.push_str(line);
            }
            (Some(line), None) => open = Some(line.to_owned()),
            (None, _) => entries.extend(open.take()),
        }
    }
    entries.extend(open);
    entries.split_off(entries.len().saturating_sub(MAX_ENTRIES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_references_files() {
        let text = "\n# 2026-01-02 03:04:05.123456\n+hello\n\n# 2026-01-02 03:05:00.000001\n+,echo a\n+\tb\n+\n";
        assert_eq!(parse(text), ["hello", ",echo a\n\tb\n"]);
        let now = "2026-01-02T03:04:05.123456[UTC]".parse().unwrap();
        assert_eq!(format("hello", &now), "\n# 2026-01-02 03:04:05.123456\n+hello\n");
        assert_eq!(parse(""), Vec::<String>::new());
    }

    #[test]
    fn what_is_appended_is_read_again_and_files_do_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(dir.path().join("deep/a.history"));
        assert!(history.read().is_empty());
        for entry in ["one", "two\nlines", "é 漢字"] {
            history.append(entry).unwrap();
        }
        assert_eq!(history.read(), ["one", "two\nlines", "é 漢字"]);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&history.path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);

        for _ in 0..9 {
            history.append(&"x".repeat(500_000)).unwrap();
        }
        history.append("last").unwrap();
        let read = history.read();
        assert_eq!(read.last().map(String::as_str), Some("last"));
        assert!(fs::metadata(&history.path).unwrap().len() <= MAX_READ);
        assert_eq!(history.read(), read);
        fs::remove_file(&history.path).unwrap();
        fs::create_dir(&history.path).unwrap();
        assert!(history.read().is_empty() && history.append("x").is_err());
    }
}
