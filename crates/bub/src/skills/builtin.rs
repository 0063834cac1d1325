//! The skills that bub brings along.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A skill that is part of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its `SKILL.md`.
    pub(crate) text: &'static str,
}

/// All of them.
pub(crate) const ALL: [Builtin; 3] = [
    Builtin { name: "bub", text: include_str!("builtin/bub/SKILL.md") },
    Builtin { name: "gh", text: include_str!("builtin/gh/SKILL.md") },
    Builtin { name: "skill-creator", text: include_str!("builtin/skill-creator/SKILL.md") },
];

impl Builtin {
    /// Where its file would be.
    pub(crate) fn file(&self, root: &Path) -> PathBuf {
        root.join(self.name).join("SKILL.md")
    }

    /// Makes sure that its file is there as it is in the program, so that its location can be read.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn materialise(&self, root: &Path) -> io::Result<PathBuf> {
        let file = self.file(root);
        if fs::read(&file).is_ok_and(|it| it == self.text.as_bytes()) {
            return Ok(file);
        }
        let folder = root.join(self.name);
        fs::create_dir_all(&folder)?;
        // Written aside and renamed: another process may be reading it.
        let aside = folder.join(format!(".SKILL.md.{}", std::process::id()));
        fs::write(&aside, self.text)?;
        fs::rename(&aside, &file)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::parse;

    #[test]
    fn builtin_skills_keep_the_rules_and_are_written_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        for it in ALL {
            let (front, body) = parse::split(it.text).unwrap();
            let header = parse::header(front, Some(it.name)).unwrap();
            assert!(header.warnings.is_empty() && body.trim().len() > 500, "{}", it.name);
            for _ in 0..2 {
                let file = it.materialise(dir.path()).unwrap();
                assert_eq!(fs::read_to_string(&file).unwrap(), it.text);
            }
            fs::write(it.file(dir.path()), "old").unwrap();
            it.materialise(dir.path()).unwrap();
            assert_eq!(fs::read_to_string(it.file(dir.path())).unwrap(), it.text);
        }
    }
}
