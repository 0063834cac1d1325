//! Files of this machine: opened only when regular, replaced only whole.

use bub_kernel::environment::{EnvPath, EnvironmentError, OpenFile};

/// Opens a regular file for reading; anything else is an error at once.
pub(crate) async fn open(path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
    let file = tokio::fs::File::open(path.as_str()).await.map_err(|err| EnvironmentError::io(path, err))?;
    let size = file.metadata().await.map_err(|err| EnvironmentError::io(path, err))?.len();
    Ok(OpenFile { size, reader: Box::new(file) })
}

/// Replaces a file's content whole, making its folders.
pub(crate) async fn write(path: &EnvPath, content: &[u8]) -> Result<(), EnvironmentError> {
    tokio::fs::write(path.as_str(), content).await.map_err(|err| EnvironmentError::io(path, err))
}
