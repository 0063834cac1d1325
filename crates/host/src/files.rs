//! Files of this machine: opened only when regular, replaced only whole.

mod replace;
mod true_path;

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Cursor, Read},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use bub_kernel::environment::{EnvPath, EnvironmentError, FileKind, OpenFile};
use rustix::fs::OFlags;
use tokio::io::AsyncReadExt;

pub(crate) use true_path::follow;

/// Bytes that are read together with opening a file.
const START_BYTES: u64 = 64 << 10;

/// Opens a regular file for reading; anything else is an error at once.
pub(crate) async fn open(path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
    let wanted = path.clone();
    let (file, size, start) = blocking(path, move || {
        let (mut file, size) = open_regular(&wanted)?;
        let start = read_start(&mut file, size).map_err(|err| named(&wanted, err))?;
        Ok((file, size, start))
    })
    .await?;
    if size > 0 && start.len() as u64 == size {
        return Ok(OpenFile { size, reader: Box::new(Cursor::new(start)) });
    }
    let rest = tokio::fs::File::from_std(file);
    Ok(OpenFile { size, reader: Box::new(AsyncReadExt::chain(Cursor::new(start), rest)) })
}

/// Reads the first bytes of a file while it is being opened: each later read is a wait for another
/// thread, and most files are small. What the kernel makes up is left alone.
fn read_start(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    if size > 0 {
        Read::take(file, size.min(START_BYTES)).read_to_end(&mut start)?;
    }
    Ok(start)
}

/// Replaces a file's content whole, making its folders.
///
/// The bytes go to a temporary file in the same folder, which then takes the place of the old one,
/// so other hard links of the old file keep the old bytes. Mode bits are kept, and the owner where
/// that is permitted; a new file gets 0666 minus the umask. A link is written through, also one
/// whose target does not exist yet.
pub(crate) async fn write(path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
    let (wanted, content) = (path.clone(), content.to_vec());
    blocking(path, move || replace::replace(&wanted, &content)).await
}

/// Where a path leads when all links are followed; parts that do not exist stay as they are.
///
/// A path that leads nowhere (a loop of links, a target that is not UTF-8) is returned unchanged.
pub(crate) async fn true_path(path: &EnvPath) -> EnvPath {
    let wanted = path.clone();
    let found = blocking(path, move || Ok(true_path::follow(Path::new(wanted.as_str())).ok())).await;
    match found.ok().flatten().and_then(|it| it.into_os_string().into_string().ok()) {
        Some(text) => EnvPath::new(text),
        None => path.clone(),
    }
}

/// Runs file work on a thread that may block.
async fn blocking<T: Send + 'static>(
    path: &EnvPath,
    work: impl FnOnce() -> Result<T, EnvironmentError> + Send + 'static,
) -> Result<T, EnvironmentError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is shutting down: the work was never started.
        Err(err) => Err(EnvironmentError::Io { path: path.to_string(), source: io::Error::other(err) }),
    }
}

fn open_regular(path: &EnvPath) -> Result<(File, u64), EnvironmentError> {
    let failed = |err| named(path, err);
    // Opening a device can act on it (rewind a tape, arm a watchdog), so it is looked at first.
    refuse_special(path, fs::metadata(path.as_str()).map_err(failed)?.file_type())?;
    // It may have been swapped for a FIFO since: opening must not wait, and is checked again.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
        .open(path.as_str())
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    refuse_special(path, metadata.file_type())?;
    // Files that the kernel makes up (/proc/kmsg) look regular and empty, and some of them wait for
    // news for ever: they stay non-blocking, everything else reads as usual.
    if metadata.len() > 0 {
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|err| failed(err.into()))?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|err| failed(err.into()))?;
    }
    Ok((file, metadata.len()))
}

/// An error unless the type is that of a regular file.
fn refuse_special(path: &EnvPath, file_type: FileType) -> Result<(), EnvironmentError> {
    let kind = if file_type.is_file() {
        return Ok(());
    } else if file_type.is_dir() {
        FileKind::Directory
    } else if file_type.is_fifo() {
        FileKind::Fifo
    } else if file_type.is_socket() {
        FileKind::Socket
    } else {
        FileKind::Device
    };
    Err(EnvironmentError::NotAFile { path: path.clone(), kind })
}

/// Names an I/O error's path; what no path can contain is a wrong path and no failure of the disk.
fn named(path: &EnvPath, source: io::Error) -> EnvironmentError {
    if path.as_str().contains('\0') {
        return EnvironmentError::InvalidPath {
            path: path.as_str().escape_debug().to_string(),
            reason: "it contains a NUL byte".into(),
        };
    }
    EnvironmentError::io(path, source)
}

#[cfg(test)]
mod tests;
