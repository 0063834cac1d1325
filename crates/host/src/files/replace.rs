//! A file's bytes, replaced whole.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use bub_kernel::environment::{EnvPath, EnvironmentError};
use rustix::fs::{Access, AtFlags, CWD};
use tempfile::{Builder, NamedTempFile};

use super::{named, refuse_special, true_path};

/// Mode of a new file, of which the umask takes its part.
const NEW_MODE: u32 = 0o666;
/// Mode bits that say who may do what, and how programs run.
const MODE_BITS: u32 = 0o7777;
/// Set-user-id and set-group-id, which must not pass to another owner.
const SET_ID_BITS: u32 = 0o6000;

/// Puts `content` in the place of what `path` leads to.
pub(super) fn replace(path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
    let failed = |err| named(path, err);
    if path.as_str().ends_with('/') {
        return Err(EnvironmentError::InvalidPath {
            path: path.to_string(),
            reason: "it ends with `/` and so names a directory".into(),
        });
    }
    let old = match fs::metadata(path.as_str()) {
        Ok(metadata) => Some(metadata),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(err) => return Err(failed(err)),
    };
    if let Some(old) = &old {
        refuse_special(path, old.file_type())?;
        // A rename would not mind a write-protected file; the person who protected it would.
        rustix::fs::accessat(CWD, path.as_str(), Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|err| failed(err.into()))?;
    }
    let target = true_path::follow(Path::new(path.as_str())).map_err(failed)?;
    let folder = target.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    write_beside(folder, &target, old.as_ref(), content).map_err(failed)
}

/// Writes a temporary file in `folder` and gives it the target's name. On an error it is removed.
fn write_beside(folder: &Path, target: &Path, old: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    // Until it has its owner, nobody else may look into what replaces a private file.
    let mode = if old.is_some() { 0o600 } else { NEW_MODE };
    let temporary = make_temporary(folder, mode)?;
    let mut file = temporary.as_file();
    file.write_all(content)?;
    if let Some(old) = old {
        keep_attributes(file, old)?;
    }
    file.sync_all()?;
    temporary.persist(target).map_err(|err| err.error)?;
    // The new name is on the disk once the folder is. Not every file system can sync a folder, and
    // the bytes are in place either way.
    drop(File::open(folder).and_then(|it| it.sync_all()));
    Ok(())
}

fn make_temporary(folder: &Path, mode: u32) -> io::Result<NamedTempFile<File>> {
    // The builder's own errors name the temporary file, which means nothing to the reader.
    let mut cause = None;
    let made = Builder::new().prefix(".bub-").suffix(".tmp").rand_bytes(12).make_in(folder, |path| {
        OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path).map_err(|err| {
            let same = err.raw_os_error().map_or_else(|| err.kind().into(), io::Error::from_raw_os_error);
            cause = Some(err);
            same
        })
    });
    made.map_err(|err| cause.unwrap_or(err))
}

/// Gives the new file the owner and the mode bits of the old one.
fn keep_attributes(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = old.mode() & MODE_BITS;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        let is_kept = std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid())).is_ok();
        // Giving a file away needs privileges; a group that one is in does not.
        if !is_kept {
            drop(std::os::unix::fs::fchown(file, None, Some(old.gid())));
            mode &= !SET_ID_BITS;
        }
    }
    file.set_permissions(Permissions::from_mode(mode))
}
