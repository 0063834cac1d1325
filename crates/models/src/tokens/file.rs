//! Files of logins: read whole, locked among programs, and replaced at once.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// How long another program may hold the lock. Longer than a renewal takes.
const LOCK_WAIT: Duration = Duration::from_secs(40);
/// The pause between two tries to take it.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The lock's file, beside the login's: the name that the Grok program uses.
const LOCK_NAME: &str = "auth.json.lock";

/// A file with a login. Fields that are not known are somebody else's, and stay.
#[derive(Clone, Debug)]
pub(crate) struct LoginFile {
    path: PathBuf,
}

/// The lock on a login. It ends when this is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct LoginLock {
    _file: File,
}

impl LoginFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds; nothing when it is not there.
    ///
    /// # Errors
    /// Those of reading. They repeat nothing of the file.
    pub(crate) fn read(&self) -> io::Result<Option<Map<String, Value>>> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let about = match fs::metadata(&self.path) {
            Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            about => about?,
        };
        // Something else, such as a pipe, might never end.
        if !about.is_file() {
            return Err(bad("it is no file"));
        }
        let mut bytes = Vec::new();
        File::open(&self.path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(bad("it is too large for a login"));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => Ok(Some(fields)),
            _ => Err(bad("it holds no login")),
        }
    }

    /// Replaces the file at once, readable by its owner alone: a lost refresh token is a lost login.
    ///
    /// # Errors
    /// Those of writing; the old file is there then.
    pub(crate) fn write(&self, fields: &Map<String, Value>) -> io::Result<()> {
        // Where the file is a link, what it leads to is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        // Such files are readable by their owner alone.
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(serde_json::to_string_pretty(fields)?.as_bytes())?;
        new.write_all(b"\n")?;
        new.as_file().sync_all()?;
        new.persist(&path).map_err(|err| err.error)?;
        Ok(())
    }

    /// Removes the file; tells whether there was one.
    ///
    /// # Errors
    /// Those of removing.
    pub(crate) fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Waits for the lock that programs hold while they renew this login. What was read before may be
    /// old by then.
    ///
    /// # Errors
    /// Those of the lock's file, and that another program does not let it go.
    pub(crate) async fn lock(&self) -> io::Result<LoginLock> {
        let path = self.path.with_file_name(LOCK_NAME);
        let started = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&path)?;
            match file.try_lock() {
                // Who found the lock stuck has put a new file in its place: this one keeps nobody out.
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => {
                    sign(&mut file)?;
                    return Ok(LoginLock { _file: file });
                }
                // A file system without locks has no second program that would heed them.
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {
                    return Ok(LoginLock { _file: file });
                }
                Err(TryLockError::Error(err)) => return Err(err),
                Err(TryLockError::WouldBlock) if started.elapsed() >= LOCK_WAIT => {
                    let shown = path.display();
                    let text = format!("another program has held {shown} for {} s", LOCK_WAIT.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Says who holds the lock and since when: the Grok program breaks one whose holder does not.
fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}:{}", std::process::id(), Timestamp::now().as_second())
}
