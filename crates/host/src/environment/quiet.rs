//! Environment variables for programs that nobody can answer.

/// What stands in for an editor: it leaves the text as it is and says so. A program then goes on with
/// the text it proposed (`git merge`), or refuses an empty one (`git commit` without `-m`).
const NO_EDITOR: &str = "echo 'no editor can be opened here: the text stays as it is, pass it by an option' >&2; :";

/// Defaults under which programs do not wait for a person. Callers may override each.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("EDITOR", NO_EDITOR),
    ("VISUAL", NO_EDITOR),
    ("GIT_EDITOR", NO_EDITOR),
    ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Empty means none, which also hides an inherited helper that would open a window.
    ("GIT_ASKPASS", ""),
    ("GCM_INTERACTIVE", "never"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
];
