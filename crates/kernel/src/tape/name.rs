//! How sessions, tapes and files are named alike by every release.

use std::fmt;

use md5::{Digest as _, Md5};

/// The most bytes of a tape's own name: files have 255, which endings and sidecars share.
const MAX_NAME_BYTES: usize = 100;

/// Name of a tape; also the stem of its file.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TapeName(String);

impl TapeName {
    /// The tape of a session in a workspace: `md5(workspace)[..16]__md5(session)[..16]`.
    #[must_use]
    pub fn session(workspace: &str, session: &str) -> Self {
        Self(format!("{}__{}", short_md5(workspace), short_md5(session)))
    }

    /// A tape of a free name. Characters that a file name can't have become `_`.
    #[must_use]
    pub fn free(name: &str) -> Self {
        let safe = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | ' ');
        let name: String = name.chars().map(|it| if safe(it) { it } else { '_' }).collect();
        Self(if name.trim_matches('.').is_empty() { format!("_{name}") } else { name })
    }

    /// The tape that an embedder calls `name`. Where [`TapeName::free`] would give two names one tape, or
    /// the tape of a sidecar, or a name longer than files have, a part of the name's MD5 keeps it apart.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let free = Self::free(name);
        if free.0 == name && name.len() <= MAX_NAME_BYTES && !name.contains("__") {
            return free;
        }
        let end = free.0.floor_char_boundary(MAX_NAME_BYTES);
        Self(format!("{}-{}", free.0.get(..end).unwrap_or_default().replace("__", "_"), short_md5(name)))
    }

    /// The sidecar `name` of this tape.
    #[must_use]
    pub fn sidecar(&self, name: &str) -> Self {
        Self(format!("{}__sidecar__{}", self.0, Self::free(name).0))
    }

    /// Whether this is a sidecar of `main`.
    #[must_use]
    pub fn is_sidecar_of(&self, main: &Self) -> bool {
        self.0.strip_prefix(&main.0).is_some_and(|rest| rest.starts_with("__sidecar__"))
    }

    /// Whether this names a session's tape, not a sidecar and not a free one.
    #[must_use]
    pub fn is_session(&self) -> bool {
        self.0.matches("__").count() == 1
    }

    /// The prefix that the names of all sessions of a workspace have.
    #[must_use]
    pub fn workspace_prefix(workspace: &str) -> String {
        format!("{}__", short_md5(workspace))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TapeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 16 hexadecimal digits of a text's MD5.
fn short_md5(text: &str) -> String {
    Md5::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_references() {
        let name = TapeName::session("/srv/demo", "s1");
        assert_eq!(name.as_str(), "53047a1277384003__8ddf878039b70767");
        assert_eq!(name.sidecar("spill").as_str(), "53047a1277384003__8ddf878039b70767__sidecar__spill");
        assert!(name.is_session() && !name.sidecar("spill").is_session());
        assert!(name.sidecar("spill").is_sidecar_of(&name) && !name.is_sidecar_of(&name));
    }

    #[test]
    fn named_tapes_are_apart_from_each_other() {
        for plain in ["calculator", "user 42", "é.1"] {
            assert_eq!(TapeName::named(plain).as_str(), plain);
        }
        let long = "x".repeat(300);
        let names = ["user/42", "user:42", "user_42", "a", "a__sidecar__spill", "a_sidecar_spill", "", "..", &long];
        let tapes: std::collections::BTreeSet<_> = names.iter().map(|it| TapeName::named(it)).collect();
        assert_eq!(tapes.len(), names.len(), "{tapes:?}");
        assert!(tapes.iter().all(|it| it.as_str().len() < 120 && !it.is_sidecar_of(&TapeName::named("a"))));
    }

    #[test]
    fn free_names_never_leave_their_folder() {
        for (input, expected) in [("calculator", "calculator"), ("../x/y:z é", ".._x_y_z é"), ("..", "_.."), ("", "_")]
        {
            assert_eq!(TapeName::free(input).as_str(), expected);
        }
    }
}
