//! Where skills are looked for, and how they are read.

use std::{
    collections::HashSet,
    fmt,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bub_kernel::{secret::SecretMask, text};

use super::{
    builtin::{self, Builtin},
    catalog::{Catalog, Rejected, Skill, SkillText, Source},
    parse,
    render::Templates,
};
use crate::settings::Settings;

/// The most bytes of a `SKILL.md` that are looked at for its header.
const MAX_HEAD_BYTES: u64 = 64 << 10;
/// The most bytes of a `SKILL.md` that are read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most characters of a skill's text that are shown.
const MAX_BODY_CHARS: usize = 200_000;
/// The most folders of one root that are looked at.
const MAX_FOLDERS: usize = 1_000;
/// The file that makes a folder a skill.
const FILE: &str = "SKILL.md";

/// The skills of a workspace. Cheap to clone; every look is a fresh one.
#[derive(Clone)]
pub struct Skills {
    inner: Arc<Inner>,
}

struct Inner {
    roots: Vec<(Source, PathBuf)>,
    /// Where built-in skills are put; `None` when they are not wanted.
    builtin: Option<PathBuf>,
    templates: Templates,
    /// What has been logged.
    told: Mutex<HashSet<String>>,
}

impl fmt::Debug for Skills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skills").field("roots", &self.inner.roots).finish_non_exhaustive()
    }
}

impl Skills {
    /// The skills of a workspace: those of the setting `skill_dirs` alone, or those of the project, of the
    /// person and of bub itself, in this order of rank.
    #[must_use]
    pub fn new(settings: &Settings, workspace: &Path, mask: SecretMask) -> Self {
        let home = settings.paths.user_home();
        let (roots, builtin) = match &settings.skill_dirs {
            Some(dirs) => {
                let roots = dirs.iter().map(|it| (Source::Configured, absolute(it, home, workspace))).collect();
                (roots, None)
            }
            None => {
                let mut roots = vec![
                    (Source::Project, workspace.join(".agents/skills")),
                    (Source::Legacy, workspace.join(".agent/skills")),
                ];
                roots.extend(home.map(|it| (Source::User, it.join(".agents/skills"))));
                (roots, Some(settings.paths.home().join("skills-builtin")))
            }
        };
        let inner = Inner { roots, builtin, templates: Templates::new(settings.clone(), mask), told: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The folders that are looked at, highest rank first; built-in skills come after them.
    pub fn roots(&self) -> impl Iterator<Item = (Source, &Path)> {
        self.inner.roots.iter().map(|(source, path)| (*source, path.as_path()))
    }

    /// Looks for skills. Reads the file system, so that it may block.
    #[must_use]
    pub fn find(&self) -> Catalog {
        let mut catalog = Catalog::default();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        for (source, root) in &self.inner.roots {
            // The workspace may be the person's home folder.
            if !seen.insert(root.canonicalize().unwrap_or_else(|_| root.clone())) {
                continue;
            }
            look_into(root, *source, &mut catalog);
        }
        if let Some(root) = &self.inner.builtin {
            for it in builtin::ALL {
                match of_builtin(it, root) {
                    Ok(skill) => add(&mut catalog, skill),
                    Err(reason) => {
                        catalog.rejected.push(Rejected { file: it.file(root), name: it.name.to_owned(), reason });
                    }
                }
            }
        }
        catalog.skills.sort_by(|a, b| a.name.cmp(&b.name));
        catalog
    }

    /// Looks for skills on a thread that may block, and logs once what is wrong with which.
    pub async fn catalog(&self) -> Catalog {
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let catalog = this.find();
            this.tell(&catalog);
            catalog
        })
        .await
        .unwrap_or_default()
    }

    /// Reads a skill's text. Reads the file system, so that it may block.
    ///
    /// # Errors
    /// A sentence, when it can't be read.
    pub fn read(&self, skill: &Skill) -> Result<SkillText, String> {
        let (file, text) = match skill.builtin {
            Some(it) => (self.materialise(it, &skill.file), it.text.to_owned()),
            None => {
                let bytes = read_up_to(&skill.file, MAX_FILE_BYTES)?;
                let mut text = String::from_utf8_lossy(&bytes).into_owned();
                if bytes.len() as u64 >= MAX_FILE_BYTES {
                    text.push_str(&format!("\n(the file is longer than {})\n", text::human_size(MAX_FILE_BYTES)));
                }
                (skill.file.clone(), text)
            }
        };
        let (_, body) = parse::split(&text)?;
        let folder = file.parent().unwrap_or(Path::new("")).to_string_lossy();
        let filled = self.inner.templates.fill(body.trim(), &folder);
        let body = text::elide(&filled, MAX_BODY_CHARS).into_owned();
        Ok(SkillText { location: file.to_string_lossy().into_owned(), body })
    }

    /// Reads a skill's text on a thread that may block.
    ///
    /// # Errors
    /// As [`Skills::read`].
    pub async fn text(&self, skill: Skill) -> Result<SkillText, String> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || this.read(&skill)).await;
        done.unwrap_or_else(|err| Err(format!("it was not read: {err}")))
    }

    fn materialise(&self, it: Builtin, file: &Path) -> PathBuf {
        if let Some(root) = &self.inner.builtin
            && let Err(err) = it.materialise(root)
            && self.is_news(&root.to_string_lossy())
        {
            tracing::warn!(path = %root.display(), error = %err, "built-in skills have no files");
        }
        file.to_owned()
    }

    fn tell(&self, catalog: &Catalog) {
        for it in &catalog.rejected {
            let line = format!("skill {} was not loaded: {}", it.file.display(), it.reason);
            if self.is_news(&line) {
                tracing::warn!("{line}");
            }
        }
        for line in catalog.warnings.iter().filter(|it| self.is_news(it)) {
            tracing::warn!("{line}");
        }
    }

    fn is_news(&self, line: &str) -> bool {
        self.inner.told.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned())
    }
}

/// Reads and checks the skill in a folder; `folder` is the name that it should have, if that matters.
///
/// # Errors
/// Why it is no proper skill.
pub fn inspect(path: &Path, folder: Option<&str>, source: Source) -> Result<Skill, String> {
    let file = path.join(FILE);
    let bytes = read_up_to(&file, MAX_HEAD_BYTES)?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // The last character may have been cut.
        Err(err) if err.error_len().is_none() && bytes.len() as u64 == MAX_HEAD_BYTES => {
            bytes.get(..err.valid_up_to()).and_then(|it| std::str::from_utf8(it).ok()).unwrap_or_default()
        }
        Err(err) => return Err(format!("it is not UTF-8 text (at byte {})", err.valid_up_to())),
    };
    let (front, _) = parse::split(text).map_err(|reason| {
        let is_cut = bytes.len() as u64 == MAX_HEAD_BYTES && reason.contains("does not end");
        let limit = MAX_HEAD_BYTES >> 10;
        if is_cut { format!("its header is longer than {limit} KiB") } else { reason }
    })?;
    let header = parse::header(front, folder)?;
    Ok(Skill {
        name: header.name,
        description: header.description,
        source,
        file,
        warnings: header.warnings,
        builtin: None,
    })
}

/// The skills of a folder, proper or not: the folder itself, or those in it.
///
/// # Errors
/// When the folder can't be read.
pub fn skill_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    if is_skill(path) {
        return Ok(vec![path.to_owned()]);
    }
    Ok(folders(path)?.into_iter().filter(|it| is_skill(it)).collect())
}

/// Whether a folder has the file that makes it a skill, proper or not.
pub(crate) fn is_skill(path: &Path) -> bool {
    // A link that leads nowhere is somebody's skill, too.
    path.join(FILE).symlink_metadata().is_ok()
        || path.join(FILE).metadata().is_err_and(|err| err.kind() == io::ErrorKind::PermissionDenied)
}

/// The folders in a folder, by name, links to folders included.
///
/// # Errors
/// Those of the file system.
pub(crate) fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn look_into(root: &Path, source: Source, catalog: &mut Catalog) {
    let reject = |file: PathBuf, name: &str, reason| Rejected { file, name: name.to_owned(), reason };
    let mut found = match folders(root) {
        Ok(found) => found,
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            if source == Source::Configured {
                catalog.rejected.push(reject(root.to_owned(), "", format!("the folder can't be read: {err}")));
            }
            return;
        }
        Err(err) => {
            catalog.rejected.push(reject(root.to_owned(), "", format!("the folder can't be read: {err}")));
            return;
        }
    };
    if found.len() > MAX_FOLDERS {
        let text = format!("{} holds {} folders; the first {MAX_FOLDERS} are read", root.display(), found.len());
        catalog.warnings.push(text);
        found.truncate(MAX_FOLDERS);
    }
    found.retain(|it| is_skill(it));
    if source == Source::Legacy && !found.is_empty() {
        let text = format!("{} is an old place for skills: move them to .agents/skills", root.display());
        catalog.warnings.push(text);
    }
    for path in found {
        let Some(name) = path.file_name().map(|it| it.to_string_lossy().into_owned()) else { continue };
        match inspect(&path, Some(&name), source) {
            Ok(skill) => add(catalog, skill),
            Err(reason) => catalog.rejected.push(reject(path.join(FILE), &name, reason)),
        }
    }
}

fn add(catalog: &mut Catalog, skill: Skill) {
    let is_taken = catalog.skills.iter().any(|it| it.name == skill.name);
    if is_taken { catalog.shadowed.push(skill) } else { catalog.skills.push(skill) }
}

fn of_builtin(it: Builtin, root: &Path) -> Result<Skill, String> {
    let (front, _) = parse::split(it.text)?;
    let header = parse::header(front, Some(it.name))?;
    Ok(Skill {
        name: header.name,
        description: header.description,
        source: Source::Builtin,
        file: it.file(root),
        warnings: header.warnings,
        builtin: Some(it),
    })
}

/// The start of a regular file.
fn read_up_to(file: &Path, max: u64) -> Result<Vec<u8>, String> {
    let cannot = |err: io::Error| format!("it can't be read: {err}");
    // Only a regular file is opened: a named pipe would wait for a writer.
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|it| it.take(max).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(bytes)
}

/// A folder of the setting: `~` is the person's home, and what is relative starts at the workspace.
fn absolute(path: &str, home: Option<&Path>, workspace: &Path) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => workspace.join(path),
    }
}
