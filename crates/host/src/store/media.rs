//! Media beside the tapes: files `blobs/{sha256}`, each written once, removed when nothing names it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{
        DecodePaddingMode,
        general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
    },
};
use bub_kernel::tape::{MEDIA_SCHEME, TapeError, TapeName};
use memchr::memmem;
use rustix::{
    fs::{Access, AtFlags, CWD},
    io::Errno,
};
use sha2::{Digest as _, Sha256};

use super::{
    Inner, Sync, failed,
    lock::{LOCK_WAIT, lock_exclusive},
    writer::make_dir,
};

/// The folder of the media, beside the tapes.
const FOLDER: &str = "blobs";
/// The hexadecimal digits of a name.
const N_DIGITS: usize = 64;
/// Bytes that are read at once when files are searched for names.
const BLOCK: usize = 256 * 1024;
/// Bytes that a disk must have besides what is to be written.
const SPARE_BYTES: u64 = 64 * 1024;

/// What is sent as base64 is not always padded as it should be.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Inner {
    fn blobs(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    /// Where the media at an address is, if it is an address.
    fn blob(&self, url: &str) -> Option<PathBuf> {
        let digits = url.strip_prefix(MEDIA_SCHEME)?;
        is_name(digits.as_bytes()).then(|| self.blobs().join(digits))
    }

    /// Writes media, unless it is there, and returns its address.
    pub(super) fn put_media(&self, data: &str) -> Result<String, TapeError> {
        let bytes = decoded(data).ok_or(TapeError::InvalidMedia)?;
        let name = hex(&bytes);
        let path = self.blobs().join(&name);
        self.write_blob(&path, &bytes).map_err(|err| failed("media", "write", &path, err))?;
        Ok(format!("{MEDIA_SCHEME}{name}"))
    }

    fn write_blob(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // After a loss of power a file may be shorter than it was.
        if size_of(path)? == Some(bytes.len() as u64) {
            return Ok(());
        }
        let folder = self.blobs();
        make_dir(&folder)?;
        let mut file = tempfile::Builder::new().prefix(".").suffix(".tmp").tempfile_in(&folder)?;
        file.write_all(bytes)?;
        if self.options.sync == Sync::Commit {
            file.as_file().sync_data()?;
        }
        file.persist(path).map_err(|err| err.error)?;
        match self.options.sync {
            Sync::Commit => File::open(&folder)?.sync_all(),
            Sync::Never => Ok(()),
        }
    }

    /// How many bytes the media at an address has.
    pub(super) fn media_size(&self, url: &str) -> Result<Option<u64>, TapeError> {
        let Some(path) = self.blob(url) else { return Ok(None) };
        self.look_up(&path, size_of).map_err(|err| failed("media", "look at", &path, err))
    }

    /// The media at an address; nothing when it is not there or not what was written.
    pub(super) fn get_media(&self, url: &str) -> Result<Option<String>, TapeError> {
        let Some(path) = self.blob(url) else { return Ok(None) };
        let read = |path: &Path| match size_of(path)? {
            Some(_) => or_absent(fs::read(path)),
            None => Ok(None),
        };
        let read = self.look_up(&path, read).map_err(|err| failed("media", "read", &path, err))?;
        let Some(bytes) = read else { return Ok(None) };
        if path.file_name().is_none_or(|it| it != hex(&bytes).as_str()) {
            tracing::warn!(file = %path.display(), "damaged media is passed over");
            return Ok(None);
        }
        Ok(Some(STANDARD.encode(bytes)))
    }

    /// What `look` finds of media, at its place or where it is set apart.
    ///
    /// Media that moves between the two while they are looked at seems to be at neither, so what is not
    /// found is looked for again while nothing moves.
    fn look_up<T>(&self, path: &Path, look: impl Fn(&Path) -> io::Result<Option<T>>) -> io::Result<Option<T>> {
        let look = || match look(path)? {
            Some(it) => Ok(Some(it)),
            None => look(&set_apart(path)),
        };
        let found = look();
        if matches!(found, Ok(None))
            && let Some(folder) = or_absent(File::open(self.blobs()))?
        {
            lock_exclusive(&folder, LOCK_WAIT)?;
            return look();
        }
        found
    }

    /// The names of media that a tape's file has; none when there is no media at all.
    pub(super) fn media_named_by(&self, tape: &TapeName) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        if !self.blobs().try_exists()? {
            return Ok(names);
        }
        let path = self.path(tape);
        if size_of(&path)?.is_some() {
            for_each_name(&mut File::open(path)?, &mut |name| {
                names.insert(name.to_owned());
            })?;
        }
        Ok(names)
    }

    /// Removes those of the media that no tape, archive or journal names.
    ///
    /// Others may write the same media at the same time, and a tape that names it afterwards. So what
    /// looks unused is first set apart, then searched for, and comes back when it is found; and who wrote
    /// such a tape looks behind it whether the media is still there.
    pub(super) fn remove_unused_media(&self, names: BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        // What one sets apart another must not remove.
        let locked = File::open(self.blobs()).and_then(|it| lock_exclusive(&it, LOCK_WAIT).map(|()| it));
        if let Err(err) = &locked {
            tracing::warn!(error = %err, "media that may be unused is kept");
            return;
        }
        let mut doomed = names;
        doomed.retain(|name| {
            let path = self.blobs().join(name);
            // What a process that was killed has left set apart is looked at again.
            fs::rename(&path, set_apart(&path)).is_ok() || set_apart(&path).exists()
        });
        let searched = self.files().and_then(|files| {
            for file in files {
                if doomed.is_empty() {
                    break;
                }
                let mut file = match File::open(&file) {
                    Ok(file) => file,
                    Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                    Err(err) => return Err(err),
                };
                for_each_name(&mut file, &mut |name| {
                    if doomed.remove(name) {
                        self.bring_back(name);
                    }
                })?;
            }
            Ok(())
        });
        for name in &doomed {
            match &searched {
                Ok(()) => drop(fs::remove_file(set_apart(&self.blobs().join(name)))),
                // Better too much than too little.
                Err(_) => self.bring_back(name),
            }
        }
        if let Err(err) = searched {
            tracing::warn!(error = %err, "media that may be unused is kept");
        }
    }

    fn bring_back(&self, name: &str) {
        let path = self.blobs().join(name);
        if let Err(err) = fs::rename(set_apart(&path), &path) {
            // It is read from there all the same.
            tracing::warn!(file = %path.display(), error = %err, "media stays set apart");
        }
    }

    /// All files that may name media. Journals come before the tapes that they are merged into.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let (mut others, mut tapes) = (Vec::new(), Vec::new());
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder)? {
                let file = file?;
                let (path, kind) = (file.path(), file.file_type()?);
                if kind.is_dir() && file.file_name() != FOLDER {
                    folders.push(path);
                } else if kind.is_file() && path.extension().is_some_and(|it| it == "jsonl") {
                    tapes.push(path);
                } else if kind.is_file() {
                    others.push(path);
                }
            }
        }
        others.append(&mut tapes);
        Ok(others)
    }

    /// Fails when so many bytes can't be appended to a tape, as far as that is known without trying.
    pub(super) fn check_append(&self, tape: &TapeName, bytes: u64) -> Result<(), TapeError> {
        let path = self.path(tape);
        let check = || -> io::Result<()> {
            let may_write = |path: &Path, access| rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS);
            match fs::metadata(&path) {
                Ok(it) if !it.is_file() => return Err(io::Error::other("not a regular file")),
                Ok(_) => may_write(&path, Access::WRITE_OK)?,
                Err(err) if err.kind() == io::ErrorKind::NotFound => {
                    may_write(existing(&self.dir), Access::WRITE_OK | Access::EXEC_OK)?;
                }
                Err(err) => return Err(err),
            }
            match rustix::fs::statvfs(existing(&self.dir)) {
                Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes.saturating_add(SPARE_BYTES) => {
                    Err(Errno::NOSPC.into())
                }
                _ => Ok(()),
            }
        };
        check().map_err(|err| failed(tape.as_str(), "append to", &path, err))
    }
}

/// The nearest folder that exists.
fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|it| it.exists()).unwrap_or(dir)
}

/// The size of a regular file; nothing when there is none.
fn size_of(path: &Path) -> io::Result<Option<u64>> {
    Ok(or_absent(fs::metadata(path))?.filter(fs::Metadata::is_file).map(|it| it.len()))
}

/// Nothing in place of the error that a file is absent.
fn or_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Where media is while it is searched for.
fn set_apart(path: &Path) -> PathBuf {
    path.with_extension("unused")
}

fn is_name(digits: &[u8]) -> bool {
    digits.len() == N_DIGITS && digits.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of media.
fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of base64 in either alphabet, with or without padding and line ends; nothing when it is
/// none, or empty.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let plain: Vec<u8> = data
        .bytes()
        .filter(|it| !it.is_ascii_whitespace())
        .map(|it| match it {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    LENIENT.decode(plain).ok().filter(|it| !it.is_empty())
}

/// Calls `found` with each name of media in a file.
fn for_each_name(file: &mut impl Read, found: &mut impl FnMut(&str)) -> io::Result<()> {
    let finder = memmem::Finder::new(MEDIA_SCHEME.as_bytes());
    let mut buffer = vec![0; BLOCK];
    let mut n_bytes = 0;
    loop {
        let n_read = file.read(buffer.get_mut(n_bytes..).unwrap_or_default())?;
        n_bytes += n_read;
        let block = buffer.get(..n_bytes).unwrap_or_default();
        for at in finder.find_iter(block) {
            let start = at + MEDIA_SCHEME.len();
            let name = block.get(start..start + N_DIGITS).filter(|it| is_name(it));
            if let Some(name) = name.and_then(|it| std::str::from_utf8(it).ok()) {
                found(name);
            }
        }
        if n_read == 0 {
            return Ok(());
        }
        // A name may be cut at the end of what was read.
        let kept = n_bytes.min(MEDIA_SCHEME.len() + N_DIGITS - 1);
        buffer.copy_within(n_bytes - kept..n_bytes, 0);
        n_bytes = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_taken_as_it_comes() {
        let check = |data: &str, expected: Option<&[u8]>| assert_eq!(decoded(data).as_deref(), expected, "{data}");
        check("+/8=", Some(&[0xfb, 0xff]));
        check("-_8", Some(&[0xfb, 0xff]));
        check("aGVs\r\nbG8=\n", Some(b"hello"));
        for bad in ["", "=", "a", "aGVs!", "data:image/png;base64,aGVs", "é"] {
            check(bad, None);
        }
    }

    #[test]
    fn names_are_found_wherever_reading_cuts() {
        /// Gives a few bytes at a time.
        struct Trickle<'a>(&'a [u8], usize);
        impl Read for Trickle<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let n = self.1.min(buffer.len()).min(self.0.len());
                buffer[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        let names = ["a".repeat(64), "0123456789abcdef".repeat(4), "f".repeat(64)];
        let text =
            format!("{{\"url\": \"sha256:{}\"}} sha256:short sha256:{} \nsha256:{}", names[0], names[1], names[2]);
        for step in [1, 2, 7, 70, 71, 72, 1000] {
            let mut found = BTreeSet::new();
            for_each_name(&mut Trickle(text.as_bytes(), step), &mut |it| {
                found.insert(it.to_owned());
            })
            .unwrap();
            assert_eq!(found, BTreeSet::from(names.clone()), "{step}");
        }
    }
}
