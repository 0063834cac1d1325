//! Paths as callers write them, as far as no file has to be looked at.

use bub_kernel::environment::{EnvPath, EnvironmentError};

/// The path when it does not start at the workspace: `~` is the home folder, absolute paths stay as they
/// are. `home` is asked only for a `~`.
pub(crate) fn whole<'a>(
    path: &str,
    home: impl FnOnce() -> Result<Option<&'a str>, EnvironmentError>,
) -> Result<Option<EnvPath>, EnvironmentError> {
    if path.is_empty() {
        return Err(invalid(path, "it is empty"));
    }
    if path.contains('\0') {
        return Err(invalid(path, "it contains a NUL byte"));
    }
    if let Some(rest) = path.strip_prefix('~')
        && (rest.is_empty() || rest.starts_with('/'))
    {
        let home = home()?.ok_or_else(|| invalid(path, "no home folder is known"))?.trim_end_matches('/');
        let rest = rest.trim_start_matches('/');
        let path = if rest.is_empty() && !home.is_empty() { home.to_owned() } else { format!("{home}/{rest}") };
        return Ok(Some(EnvPath::new(path)));
    }
    Ok(path.starts_with('/').then(|| EnvPath::new(path)))
}

pub(crate) fn invalid(path: &str, reason: &str) -> EnvironmentError {
    EnvironmentError::InvalidPath { path: path.escape_debug().to_string(), reason: reason.to_owned() }
}
