//! From what a caller wrote to a path inside.

use bub_kernel::environment::{EnvPath, EnvironmentError};

use crate::written;

/// Resolves `path`: `~` is the home folder inside, absolute paths stay as they are, relative ones join the
/// workspace. Links are not followed, so `..` after a link goes back to where the link stands.
pub(super) fn resolve(
    path: &str,
    workspace: Option<&EnvPath>,
    home: Option<&str>,
) -> Result<EnvPath, EnvironmentError> {
    if let Some(whole) = written::whole(path, || Ok(home))? {
        return Ok(whole);
    }
    let workspace = workspace.ok_or_else(|| EnvironmentError::NoWorkspace(path.to_owned()))?;
    let mut parts: Vec<&str> = Vec::new();
    for part in workspace.as_str().split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    let folder = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    Ok(EnvPath::new(format!("/{}{folder}", parts.join("/"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_against_home_and_workspace_inside() {
        let workspace = EnvPath::new("/ws/x");
        for (path, expected) in [
            ("a", "/ws/x/a"),
            ("./a/../b//c", "/ws/x/b/c"),
            ("../../../..", "/"),
            ("dir/", "/ws/x/dir/"),
            ("~user", "/ws/x/~user"),
            ("/a/../b//c", "/a/../b//c"),
            ("~", "/home/me"),
            ("~/x/y", "/home/me/x/y"),
        ] {
            assert_eq!(resolve(path, Some(&workspace), Some("/home/me/")).unwrap().as_str(), expected, "{path}");
        }
        for (path, workspace, expected) in [
            ("", Some(&workspace), "invalid path '': it is empty"),
            ("a\0b", Some(&workspace), "invalid path 'a\\0b': it contains a NUL byte"),
            ("~/a", Some(&workspace), "invalid path '~/a': no home folder is known"),
            ("a", None, "relative path 'a' is not allowed without a workspace"),
        ] {
            assert_eq!(resolve(path, workspace, None).unwrap_err().to_string(), expected);
        }
    }
}
