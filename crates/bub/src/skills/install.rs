//! Copying skills to where they are found.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Skill, Source, discover};

/// The most files of one skill.
const MAX_FILES: usize = 5_000;
/// The most bytes of one skill.
const MAX_BYTES: u64 = 100 << 20;
/// How deep the folders of a skill may nest.
const MAX_DEPTH: usize = 20;
/// The most skills of one source.
const MAX_SKILLS: usize = 500;
/// Where the skills of a repository are looked for, beside its own top.
const PLACES: [&str; 4] = [".", "skills", ".agents/skills", ".claude/skills"];

/// Why a skill can't be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The source holds no skill.
    #[error("{} holds no skill: no folder in it has a SKILL.md", path.display())]
    NoSkill {
        /// The source.
        path: PathBuf,
    },
    /// A folder is no proper skill.
    #[error("{} is no proper skill: {reason}", path.display())]
    Broken {
        /// Its folder.
        path: PathBuf,
        /// Which rule it breaks.
        reason: String,
    },
    /// There is a skill of that name.
    #[error("there is a skill '{name}' at {}", path.display())]
    Exists {
        /// Its name.
        name: String,
        /// Its folder.
        path: PathBuf,
    },
    /// The skill is too large, or leads out of its folder.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// What was refused.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A skill that can be installed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The folder that it is in.
    pub folder: PathBuf,
    /// What it is.
    pub skill: Skill,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::Io { path, source }
}

/// The skills in a folder: the folder itself, or those in it, in `skills`, and where agents keep theirs.
/// `is_named` says whether the folder's own name is the skill's, which that of a download is not.
///
/// # Errors
/// When there is none, or one is no proper skill.
pub fn candidates(source: &Path, is_named: bool) -> Result<Vec<Candidate>, InstallError> {
    let read = |folder: PathBuf, name: Option<&str>| match discover::inspect(&folder, name, Source::User) {
        Ok(skill) => Ok(Candidate { folder, skill }),
        Err(reason) => Err(InstallError::Broken { path: folder, reason }),
    };
    let name_of = |it: &Path| it.file_name().map(|it| it.to_string_lossy().into_owned());
    if discover::is_skill(source) {
        let name = name_of(source).filter(|_| is_named);
        return Ok(vec![read(source.to_owned(), name.as_deref())?]);
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for place in PLACES {
        let root = source.join(place);
        if root.is_dir() {
            let folders = discover::folders(&root).map_err(io_error(&root))?;
            found.extend(folders.into_iter().filter(|it| discover::is_skill(it)));
        }
    }
    if found.is_empty() {
        return Err(InstallError::NoSkill { path: source.to_owned() });
    }
    found.truncate(MAX_SKILLS);
    let mut candidates: Vec<Candidate> = Vec::new();
    for folder in found {
        let name = name_of(&folder);
        let candidate = read(folder, name.as_deref())?;
        if !candidates.iter().any(|it| it.skill.name == candidate.skill.name) {
            candidates.push(candidate);
        }
    }
    Ok(candidates)
}

/// Copies a skill into a folder of skills, whole or not at all, and returns where it is now. One that is
/// there is replaced only by `force`.
///
/// # Errors
/// When one is there, or the copy fails or is refused; what was there stays then.
pub fn install(candidate: &Candidate, root: &Path, force: bool) -> Result<PathBuf, InstallError> {
    let name = &candidate.skill.name;
    let target = root.join(name);
    let is_there = target.symlink_metadata().is_ok();
    if is_there && !force {
        return Err(InstallError::Exists { name: name.clone(), path: target });
    }
    fs::create_dir_all(root).map_err(io_error(root))?;
    let source = candidate.folder.canonicalize().map_err(io_error(&candidate.folder))?;
    if target.canonicalize().is_ok_and(|it| it == source) {
        return Err(InstallError::Refused { path: target, reason: "it is installed from here already".to_owned() });
    }
    // A folder whose name is no skill's is not looked at by anybody who reads the folder meanwhile.
    let aside = root.join(format!(".{name}.new-{}", std::process::id()));
    let old = root.join(format!(".{name}.old-{}", std::process::id()));
    let copied = Copy::new(&source).folder(&source, &aside, 0).and_then(|()| {
        if is_there {
            fs::rename(&target, &old).map_err(io_error(&target))?;
        }
        fs::rename(&aside, &target).map_err(|err| {
            // What was there is better than nothing.
            drop(fs::rename(&old, &target));
            io_error(&target)(err)
        })
    });
    drop(remove(&aside));
    drop(remove(&old));
    copied.map(|()| target)
}

/// Removes a folder, or a link to one.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(it) if it.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// A copy that is under way.
struct Copy<'a> {
    top: &'a Path,
    files: usize,
    bytes: u64,
}

impl<'a> Copy<'a> {
    fn new(top: &'a Path) -> Self {
        Self { top, files: 0, bytes: 0 }
    }

    fn folder(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), InstallError> {
        let refused = |reason: String| InstallError::Refused { path: from.to_owned(), reason };
        if depth > MAX_DEPTH {
            return Err(refused(format!("its folders nest more than {MAX_DEPTH} deep")));
        }
        fs::create_dir_all(to).map_err(io_error(to))?;
        for entry in fs::read_dir(from).map_err(io_error(from))? {
            let entry = entry.map_err(io_error(from))?;
            let (path, target) = (entry.path(), to.join(entry.file_name()));
            if entry.file_name() == ".git" {
                continue;
            }
            // Links are followed, but not out of the skill: it must not carry away what it only points to.
            let real = path.canonicalize().map_err(io_error(&path))?;
            if !real.starts_with(self.top) {
                let reason = "it is a link that leads out of the skill".to_owned();
                return Err(InstallError::Refused { path, reason });
            }
            let about = real.metadata().map_err(io_error(&path))?;
            if about.is_dir() {
                self.folder(&path, &target, depth + 1)?;
                continue;
            }
            if !about.is_file() {
                return Err(InstallError::Refused { path, reason: "it is not a regular file".to_owned() });
            }
            self.files += 1;
            self.bytes = self.bytes.saturating_add(about.len());
            if self.files > MAX_FILES || self.bytes > MAX_BYTES {
                let limit = MAX_BYTES >> 20;
                return Err(refused(format!("it has more than {MAX_FILES} files or {limit} MiB")));
            }
            fs::copy(&real, &target).map_err(io_error(&path))?;
        }
        Ok(())
    }
}
