//! Copies of tapes that are about to be emptied.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use bub_kernel::tape::{Archive, TapeError, TapeName};

use super::{
    Inner, Sync, failed,
    lock::{LOCK_WAIT, lock_shared},
    reader::{Reader, Snapshot},
    writer::{make_dir, write_lines},
};

/// Archives of one tape that one second can have.
const MAX_PER_SECOND: usize = 1000;

impl Inner {
    /// Copies a tape byte for byte to `{tape}.jsonl.{stamp}.bak`, with `tail` behind it, and returns
    /// where that is. An archive that is already there is never written over: the next one of the same
    /// second is `{tape}.jsonl.{stamp}-2.bak`.
    pub(super) fn archive(&self, tape: &TapeName, archive: Archive<'_>) -> Result<String, TapeError> {
        let create = || -> io::Result<(PathBuf, File)> {
            make_dir(&self.dir)?;
            create_unique(&self.dir, tape, archive.stamp)
        };
        let (path, file) = create().map_err(|err| failed(tape.as_str(), "make an archive in", &self.dir, err))?;
        match self.copy_to(tape, &file, archive) {
            Ok(()) => Ok(path.to_string_lossy().into_owned()),
            Err(err) => {
                // Half an archive would be taken for a whole one.
                drop(fs::remove_file(&path));
                Err(failed(tape.as_str(), "archive to", &path, err))
            }
        }
    }

    fn copy_to(&self, tape: &TapeName, mut copy: &File, archive: Archive<'_>) -> io::Result<()> {
        let mut last_id = 0;
        let mut bytes = Vec::new();
        if archive.stored
            && let Some(Snapshot { file, .. }) = Snapshot::open(&self.path(tape))?
        {
            lock_shared(&file, LOCK_WAIT)?;
            let len = file.metadata()?.len();
            let n_copied = io::copy(&mut (&file).take(len), &mut copy)?;
            if n_copied < len {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the tape became shorter meanwhile"));
            }
            let (id, is_ended) = Reader { store: self, tape, file: &file, len, is_locked: true }.last_id()?;
            last_id = id;
            if !is_ended && !archive.tail.is_empty() {
                bytes.push(b'\n');
            }
        }
        write_lines(&mut bytes, archive.tail, last_id);
        copy.write_all(&bytes)?;
        if self.options.sync == Sync::Commit {
            copy.sync_all()?;
        }
        self.sync_dir()
    }
}

fn create_unique(dir: &Path, tape: &TapeName, stamp: &str) -> io::Result<(PathBuf, File)> {
    let stamp: String = stamp.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect();
    for n in 1..=MAX_PER_SECOND {
        let suffix = if n == 1 { String::new() } else { format!("-{n}") };
        let path = dir.join(format!("{tape}.jsonl.{stamp}{suffix}.bak"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other("too many archives in one second"))
}
