//! Where a path leads.

use std::{
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;

/// Links that are followed before a path counts as a loop, as the kernel counts them.
const MAX_LINKS: usize = 40;

/// Follows all links of `path`, which is absolute. Parts that do not exist are kept as they are.
///
/// # Errors
/// A loop of links. What else is wrong with a path shows when it is used.
pub(crate) fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut found = PathBuf::from("/");
    let mut n_links = 0;
    let mut pending = Vec::new();
    push_parts(&mut pending, path);
    while let Some(part) = pending.pop() {
        match part {
            Part::Root => found = PathBuf::from("/"),
            Part::Up => {
                found.pop();
            }
            Part::Name(name) => {
                let next = found.join(name);
                let is_link = fs::symlink_metadata(&next).is_ok_and(|it| it.file_type().is_symlink());
                match is_link.then(|| fs::read_link(&next)) {
                    Some(Ok(target)) => {
                        n_links += 1;
                        if n_links > MAX_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        push_parts(&mut pending, &target);
                    }
                    Some(Err(_)) | None => found = next,
                }
            }
        }
    }
    Ok(found)
}

enum Part {
    Root,
    Up,
    Name(OsString),
}

/// Puts the parts of `path` on the stack, the first on top.
fn push_parts(pending: &mut Vec<Part>, path: &Path) {
    let parts = path.components().filter_map(|it| match it {
        Component::RootDir => Some(Part::Root),
        Component::ParentDir => Some(Part::Up),
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    });
    pending.extend(parts.collect::<Vec<_>>().into_iter().rev());
}
