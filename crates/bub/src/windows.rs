//! How much fits into models, as providers told when their models were listed: a cache in the home folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::PathBuf,
};

use bub_kernel::model::{ModelInfo, ModelSpec};

use crate::settings::Paths;

/// The largest file that is read, in bytes: more than 50,000 models.
const MAX_BYTES: u64 = 4 << 20;

/// The windows that are known, a file for each provider. It can be deleted at any time.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    paths: Paths,
}

impl Windows {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { paths: paths.clone() }
    }

    /// Keeps what a provider told. That this is not possible is no failure of the listing.
    pub(crate) async fn remember(&self, provider: &str, models: &[ModelInfo]) {
        let Some(path) = self.path(provider) else { return };
        let windows: BTreeMap<String, u64> =
            models.iter().filter_map(|it| Some((it.id.clone(), it.context_tokens?))).collect();
        if windows.is_empty() {
            return;
        }
        let paths = self.paths.clone();
        let write = move || -> io::Result<()> {
            let folder = paths.models();
            paths.make(&folder).map_err(io::Error::other)?;
            let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
            fs::write(&temporary, serde_json::to_vec(&windows)?)?;
            fs::rename(&temporary, &path)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(err)) => tracing::debug!(%err, "the windows of models were not kept"),
        }
    }

    /// The window of a model in tokens, if a listing told it.
    pub(crate) async fn of(&self, spec: &ModelSpec) -> Option<u64> {
        let (path, model) = (self.path(&spec.provider)?, spec.model.clone());
        let read = move || -> Option<u64> {
            let mut text = String::new();
            File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            let windows: BTreeMap<String, u64> = serde_json::from_str(&text).ok()?;
            windows.get(&model).copied()
        };
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// The file of a provider; none for a name that is no file's.
    fn path(&self, provider: &str) -> Option<PathBuf> {
        let name = provider.to_lowercase();
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        is_plain.then(|| self.paths.models().join(format!("{name}.json")))
    }
}
