//! Stubs as files: a name that follows from the content, written once.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Why a stub could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the tool definitions to {}: {source}", path.display())]
pub struct StubError {
    /// Where it should have been.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The name of a session's folder: it follows from the workspace and the session's id.
#[must_use]
pub fn folder_name(workspace: &str, session: &str) -> String {
    hex(&[workspace.as_bytes(), b"\0", session.as_bytes()], 16)
}

/// The name of a stub's file: the same content has the same name.
#[must_use]
pub fn file_name(content: &str) -> String {
    format!("tools-{}.pyi", hex(&[content.as_bytes()], 12))
}

/// Writes a stub into `folder` unless it is there, and returns its path. Readers see the whole file
/// or none; folders that are made are for their owner alone.
///
/// # Errors
/// When the folder can't be made or the file can't be written.
pub fn write(folder: &Path, content: &str) -> Result<PathBuf, StubError> {
    let name = file_name(content);
    let path = folder.join(&name);
    if path.is_file() {
        return Ok(path);
    }
    match create(folder, &name, content, &path) {
        Ok(()) => Ok(path),
        Err(source) => Err(StubError { path, source }),
    }
}

fn create(folder: &Path, name: &str, content: &str, path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let prefix = format!(".{name}.");
    let mut file = tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(folder)?;
    file.write_all(content.as_bytes())?;
    file.persist(path).map_err(|err| err.error)?;
    Ok(())
}

/// The first `digits` of a SHA-256 in hexadecimal.
fn hex(parts: &[&[u8]], digits: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let mut text: String = hash.finalize().iter().map(|it| format!("{it:02x}")).collect();
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_what_is_named() {
        // sha256("") and sha256("/w\0s"), cut.
        assert_eq!(file_name(""), "tools-e3b0c44298fc.pyi");
        assert_eq!(folder_name("/w", "s").len(), 16);
        assert_ne!(folder_name("/w", "s"), folder_name("/w", "t"));
        assert_ne!(folder_name("/ws", ""), folder_name("/w", "s"));
    }

    #[test]
    fn a_stub_is_written_once_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let path = write(&folder, "x = 1\n").unwrap();
        let written = path.metadata().unwrap().modified().unwrap();
        assert_eq!(write(&folder, "x = 1\n").unwrap(), path);
        assert_eq!(path.metadata().unwrap().modified().unwrap(), written);
        assert_ne!(write(&folder, "x = 2\n").unwrap(), path);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "x = 1\n");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(write(&file, "x").unwrap_err().to_string().contains("file/tools-"));
    }
}
