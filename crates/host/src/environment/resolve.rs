//! From what a caller wrote to a path of this machine.

use std::path::{Path, PathBuf};

use bub_kernel::environment::{EnvPath, EnvironmentError};

use crate::files;

/// Resolves `path`: `~` is the home folder, absolute paths stay as they are, relative ones join the
/// workspace and have their links followed, as far as they exist.
pub(super) fn resolve(
    path: &str,
    workspace: Option<&EnvPath>,
    home: Option<&Path>,
) -> Result<EnvPath, EnvironmentError> {
    if path.is_empty() {
        return Err(invalid(path, "it is empty"));
    }
    if path.contains('\0') {
        return Err(invalid(path, "it contains a NUL byte"));
    }
    if let Some(rest) = path.strip_prefix('~')
        && (rest.is_empty() || rest.starts_with('/'))
    {
        let home = home.ok_or_else(|| invalid(path, "no home folder is known"))?;
        let rest = rest.trim_start_matches('/');
        return to_env_path(if rest.is_empty() { home.to_owned() } else { home.join(rest) });
    }
    if path.starts_with('/') {
        return Ok(EnvPath::new(path));
    }
    let workspace = workspace.ok_or_else(|| EnvironmentError::NoWorkspace(path.to_owned()))?;
    let joined = Path::new(workspace.as_str()).join(path);
    // Whatever uses a path that leads nowhere will say what is wrong with it.
    to_env_path(files::follow(&joined).unwrap_or(joined))
}

/// Checks a workspace.
pub(super) fn workspace(path: PathBuf) -> Result<EnvPath, EnvironmentError> {
    if path.is_absolute() {
        to_env_path(path)
    } else {
        Err(invalid(&path.to_string_lossy(), "a workspace must be an absolute path"))
    }
}

fn to_env_path(path: PathBuf) -> Result<EnvPath, EnvironmentError> {
    match path.into_os_string().into_string() {
        Ok(text) => Ok(EnvPath::new(text)),
        Err(text) => Err(invalid(&text.to_string_lossy(), "it is not UTF-8")),
    }
}

fn invalid(path: &str, reason: &str) -> EnvironmentError {
    EnvironmentError::InvalidPath { path: path.escape_debug().to_string(), reason: reason.to_owned() }
}
