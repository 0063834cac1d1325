//! Writing a tape: whole batches or nothing, one writer at a time.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use bub_kernel::tape::{Entry, SESSION_START, TapeError, TapeName};

use super::{
    Inner, Sync, failed,
    lock::{LOCK_WAIT, lock_exclusive},
    reader::{Reader, unless_changed},
};

/// The most entries of an append that is done where it is asked for.
const MAX_QUICK_ENTRIES: usize = 8;

impl Inner {
    /// Appends all entries or none, numbered on from the last one in the file.
    pub(super) fn append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        let path = self.path(tape);
        let append = || -> io::Result<()> {
            make_dir(&self.dir)?;
            let (file, is_new) = open_locked(&path)?;
            let written = if is_new && self.must_last(entries) { self.sync_dir() } else { Ok(()) };
            let written = written.and_then(|()| self.append_to(tape, &file, entries));
            if written.is_err() {
                remove_if_empty(&file, &path);
            }
            written
        };
        append().map_err(|err| failed(tape.as_str(), "append to", &path, err))
    }

    /// Whether an append waits neither for the disk nor for another writer: then handing it to another
    /// thread, which a program that runs one command would have to start, takes longer than it does.
    pub(super) fn is_quick_append(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> bool {
        if entries.len() > MAX_QUICK_ENTRIES || self.must_last(entries) {
            return false;
        }
        let path = self.path(tape);
        match fs::metadata(&path) {
            // Opening anything else (a FIFO, say) could wait.
            Ok(found) => found.is_file() && File::open(&path).is_ok_and(|it| it.try_lock_shared().is_ok()),
            Err(err) => err.kind() == io::ErrorKind::NotFound,
        }
    }

    fn append_to(&self, tape: &TapeName, file: &File, entries: &[Arc<Entry>]) -> io::Result<()> {
        let (len, last_id, is_ended) = self.end_of(tape, file)?;
        let mut bytes = Vec::new();
        if !is_ended {
            // A torn line stays a line of its own; a whole one gets the newline that it lacks.
            bytes.push(b'\n');
        }
        write_lines(&mut bytes, entries, last_id);
        let mut file_ref = file;
        let done = file_ref.write_all(&bytes);
        let done = if self.must_last(entries) { done.and_then(|()| file.sync_data()) } else { done };
        let mine = len..=len + bytes.len() as u64;
        if done.is_err() && file.metadata().is_ok_and(|it| mine.contains(&it.len())) {
            // Nobody else wrote behind this batch, so what got through of it can go again.
            drop(file.set_len(len));
        }
        done
    }

    /// The length of a locked file, its last id, and whether it ends with a newline. Other programs do not
    /// ask for the lock, and may make the file shorter meanwhile.
    fn end_of(&self, tape: &TapeName, file: &File) -> io::Result<(u64, u64, bool)> {
        unless_changed(|| {
            let len = file.metadata()?.len();
            let (last_id, is_ended) = Reader { store: self, tape, file, len, is_locked: true }.last_id()?;
            Ok((len, last_id, is_ended))
        })
    }

    /// Replaces a tape by entries numbered from 1; without entries its file is removed.
    pub(super) fn replace(&self, tape: &TapeName, entries: &[Arc<Entry>]) -> Result<(), TapeError> {
        let path = self.path(tape);
        let replace = || -> io::Result<()> {
            if entries.is_empty() {
                if !path.try_exists()? {
                    return Ok(());
                }
                let (_locked, _) = open_locked(&path)?;
                fs::remove_file(&path)?;
                return self.sync_dir();
            }
            make_dir(&self.dir)?;
            let (locked, _) = open_locked(&path)?;
            let written = self.write_new(tape, &path, entries);
            if written.is_err() {
                remove_if_empty(&locked, &path);
            }
            written.and_then(|()| self.sync_dir())
        };
        // What can't be looked for is not removed.
        let media = self.media_named_by(tape).unwrap_or_default();
        replace().map_err(|err| failed(tape.as_str(), "replace", &path, err))?;
        self.remove_unused_media(media);
        self.forget(tape);
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).remove(tape);
        Ok(())
    }

    /// Puts a new file in the place of the old one. Who waits for the old one's lock finds out.
    fn write_new(&self, tape: &TapeName, path: &Path, entries: &[Arc<Entry>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_lines(&mut bytes, entries, 0);
        let prefix = format!(".{tape}.");
        let mut file = tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(&self.dir)?;
        file.write_all(&bytes)?;
        if self.options.sync == Sync::Commit {
            file.as_file().sync_data()?;
        }
        file.persist(path).map_err(|err| err.error)?;
        Ok(())
    }

    /// Whether a batch must survive a loss of power. Commands need not: whoever typed one can type it
    /// again, and waiting for the disk would take longer than most of them.
    fn must_last(&self, entries: &[Arc<Entry>]) -> bool {
        let is_start = |it: &Entry| {
            it.name() == Some(SESSION_START)
                || it.data().and_then(|it| it.get("name")).is_some_and(|it| it == SESSION_START)
        };
        let can_be_repeated = |it: &Entry| it.name() == Some("command") || is_start(it);
        self.options.sync == Sync::Commit && !entries.iter().all(|it| can_be_repeated(it))
    }

    /// Makes new, renamed and removed names last, if that is wished.
    pub(super) fn sync_dir(&self) -> io::Result<()> {
        match self.options.sync {
            Sync::Commit => File::open(&self.dir)?.sync_all(),
            Sync::Never => Ok(()),
        }
    }
}

/// Leaves no file of a tape that could not begin. Who waits for the lock makes it anew.
fn remove_if_empty(locked: &File, path: &Path) {
    if locked.metadata().is_ok_and(|it| it.len() == 0) {
        drop(fs::remove_file(path));
    }
}

/// Writes lines with ids that follow `last_id`.
pub(super) fn write_lines(bytes: &mut Vec<u8>, entries: &[Arc<Entry>], last_id: u64) {
    for (id, entry) in (last_id.saturating_add(1)..).zip(entries) {
        bytes.extend_from_slice(entry.to_numbered_line(id).as_bytes());
        bytes.push(b'\n');
    }
}

/// Makes a folder that only its owner can look into.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Opens a tape's file to append, made if need be and locked; says whether it was made.
///
/// The lock is on the file, and a replaced or removed tape is another file: after waiting for the
/// lock the name must still lead to what was locked.
pub(super) fn open_locked(path: &Path) -> io::Result<(File, bool)> {
    let start = Instant::now();
    loop {
        if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
            return Err(io::Error::other("not a regular file"));
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        let (file, is_new) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => match options.open(path) {
                Ok(file) => (file, false),
                Err(err) if err.kind() == io::ErrorKind::NotFound && start.elapsed() < LOCK_WAIT => continue,
                Err(err) => return Err(err),
            },
            Err(err) => return Err(err),
        };
        lock_exclusive(&file, LOCK_WAIT.saturating_sub(start.elapsed()).max(Duration::from_millis(1)))?;
        let (locked, named) = (file.metadata()?, fs::metadata(path));
        match named {
            Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => return Ok((file, is_new)),
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ if start.elapsed() >= LOCK_WAIT => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it is replaced again and again"));
            }
            _ => {}
        }
    }
}
