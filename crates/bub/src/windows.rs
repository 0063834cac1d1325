//! How much fits into models and answers, as providers told when their models were listed: a cache in the home folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::PathBuf,
};

use bub_kernel::model::{ModelInfo, ModelSpec};
use serde::{Deserialize, Serialize};

use crate::settings::Paths;

/// The largest file that is read, in bytes: more than 50,000 models.
const MAX_BYTES: u64 = 4 << 20;

/// What is known of a model.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Limits {
    /// How many tokens fit into its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context_tokens: Option<u64>,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
}

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
        let limits = |it: &ModelInfo| Limits { context_tokens: it.context_tokens, output_tokens: it.output_tokens };
        let all = models.iter().map(|it| (it.id.clone(), limits(it)));
        let windows: BTreeMap<String, Limits> = all.filter(|(_, it)| *it != Limits::default()).collect();
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
        self.limits(spec).await.context_tokens
    }

    /// All that a listing told of a model.
    pub(crate) async fn limits(&self, spec: &ModelSpec) -> Limits {
        let Some(path) = self.path(&spec.provider) else { return Limits::default() };
        let model = spec.model.clone();
        let read = move || -> Option<Limits> {
            let mut text = String::new();
            File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            let windows: BTreeMap<String, Limits> = serde_json::from_str(&text).ok()?;
            windows.get(&model).copied()
        };
        tokio::task::spawn_blocking(read).await.ok().flatten().unwrap_or_default()
    }

    /// The file of a provider; none for a name that is no file's.
    fn path(&self, provider: &str) -> Option<PathBuf> {
        let name = provider.to_lowercase();
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        is_plain.then(|| self.paths.models().join(format!("{name}.json")))
    }
}
