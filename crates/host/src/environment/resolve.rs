//! From what a caller wrote to a path of this machine.

use std::path::{Path, PathBuf};

use bub_kernel::environment::{EnvPath, EnvironmentError};

use crate::{
    files,
    written::{self, invalid},
};

/// Resolves `path`: `~` is the home folder, absolute paths stay as they are, relative ones join the
/// workspace and have their links followed, as far as they exist.
pub(super) fn resolve(
    path: &str,
    workspace: Option<&EnvPath>,
    home: Option<&Path>,
) -> Result<EnvPath, EnvironmentError> {
    let home = home.map(|it| it.to_str().ok_or_else(|| invalid(&it.to_string_lossy(), "it is not UTF-8")));
    if let Some(whole) = written::whole(path, || home.transpose())? {
        return Ok(whole);
    }
    let workspace = workspace.ok_or_else(|| EnvironmentError::NoWorkspace(path.to_owned()))?;
    let joined = Path::new(workspace.as_str()).join(path);
    // Whatever uses a path that leads nowhere will say what is wrong with it.
    let mut found = files::follow(&joined).unwrap_or(joined).into_os_string();
    if path.ends_with('/') && found != "/" {
        // It names a folder and no file, which whatever uses the path has to see.
        found.push("/");
    }
    to_env_path(found.into())
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
