//! An application in folders of its own, over a model that the test plays.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bub::{
    App, Builder, TurnOptions,
    settings::{Settings, Sources},
};
use bub_kernel::{
    message::Message,
    model::{ModelClient, ModelError, ModelInfo, ModelProvider, ModelRequest, ModelStream},
    plugin::{Plugin, PluginError, Registry},
    tape::{Entry, TapeQuery},
    turn::{Inbound, Prompt, SessionId, TurnError, TurnEvent, TurnResult},
};
use bub_testing::{Script, ScriptedModel};
use tempfile::TempDir;

/// Folders, and variables for the application.
pub(crate) struct Folders {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

impl Folders {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("ws")).unwrap();
        fs::create_dir_all(dir.path().join("home")).unwrap();
        Self { dir, variables: Vec::new() }
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file, and makes its folders.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A skill of the workspace.
    pub(crate) fn skill(&self, name: &str, body: &str) -> PathBuf {
        let text = format!("---\nname: {name}\ndescription: About {name}.\n---\n{body}");
        self.write(&format!("ws/.agents/skills/{name}/SKILL.md"), text)
    }

    /// The application as a new process would have it.
    pub(crate) fn app(&self, plugin: impl Plugin + 'static) -> App {
        let mut env: BTreeMap<_, _> = self.variables.iter().cloned().collect();
        env.entry("BUB_MODEL".into()).or_insert_with(|| "fake:m".into());
        // Turns of tests have nothing to lose, and many of them wait for the disk.
        env.insert("BUB_TAPE_SYNC".into(), "never".into());
        let settings = Settings::load(Sources::new(env, self.path("home"), self.path("ws"))).unwrap();
        Builder::new(settings, self.path("ws")).plugin(plugin).build().unwrap()
    }

    pub(crate) fn bench(self, scripts: impl IntoIterator<Item = Script>) -> Bench {
        self.bench_with(scripts, |_| {})
    }

    /// A bench with more in its registry.
    pub(crate) fn bench_with(
        self,
        scripts: impl IntoIterator<Item = Script>,
        more: impl Fn(&mut Registry) + Send + Sync + 'static,
    ) -> Bench {
        let model = Arc::new(ScriptedModel::new(scripts));
        let provider = model.clone();
        let app = self.app(With(move |registry: &mut Registry| {
            registry.models(provider.clone());
            more(registry);
        }));
        Bench { folders: self, model, app }
    }
}

/// A plugin that is one function.
pub(crate) struct With<F>(pub(crate) F);

impl<F: Fn(&mut Registry) + Send + Sync> Plugin for With<F> {
    fn name(&self) -> &str {
        "test"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        (self.0)(registry);
        Ok(())
    }
}

pub(crate) struct Bench {
    pub(crate) folders: Folders,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) app: App,
}

pub(crate) fn inbound(session: &str, text: &str) -> Inbound {
    Inbound {
        session: Some(SessionId(session.into())),
        local: true,
        ..Inbound::new("test", "c", Prompt::Text(text.into()))
    }
}

pub(crate) async fn say(app: &App, text: &str) -> Result<TurnResult, TurnError> {
    app.runtime().turn(inbound("s", text), TurnOptions::default()).result().await
}

/// What was recorded of a session.
pub(crate) async fn tape(app: &App, session: &str) -> Vec<Arc<Entry>> {
    app.runtime().tape(&SessionId(session.into())).read(&TapeQuery::default()).await.unwrap()
}

impl Bench {
    pub(crate) fn new(scripts: impl IntoIterator<Item = Script>) -> Self {
        Folders::new().bench(scripts)
    }

    /// Says something, and returns the answer.
    pub(crate) async fn say(&self, text: &str) -> String {
        say(&self.app, text).await.unwrap().answer
    }

    /// Says something that fails, and returns how.
    pub(crate) async fn fail(&self, text: &str) -> String {
        say(&self.app, text).await.unwrap_err().to_string()
    }

    pub(crate) async fn events(&self, text: &str) -> Vec<TurnEvent> {
        let mut stream = self.app.runtime().turn(inbound("s", text), TurnOptions::default());
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event);
        }
        events
    }

    /// The names of the tools of the `idx`-th request.
    pub(crate) fn offered(&self, idx: usize) -> Vec<String> {
        self.model.requests()[idx].tools.iter().map(|it| it.alias()).collect()
    }

    pub(crate) fn system(&self, idx: usize) -> String {
        self.model.requests()[idx].system.clone().unwrap_or_default()
    }

    /// The text of the last message of the `idx`-th request.
    pub(crate) fn last(&self, idx: usize) -> String {
        self.model.requests()[idx].messages.last().unwrap().joined_text()
    }

    /// The last tool results of the `idx`-th request, in order.
    pub(crate) fn results(&self, idx: usize) -> Vec<String> {
        let messages = &self.model.requests()[idx].messages;
        let from = messages.iter().rposition(|it| it.role.as_str() == "assistant").map_or(0, |at| at + 1);
        messages[from..].iter().filter(|it| it.tool_call.is_some()).map(Message::joined_text).collect()
    }
}

/// A provider that makes a script for each request.
pub(crate) struct Answering<F>(pub(crate) Arc<F>);

impl<F> Clone for Answering<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: Fn(&ModelRequest) -> Script + Send + Sync + 'static> Answering<F> {
    pub(crate) fn new(answer: F) -> Self {
        Self(Arc::new(answer))
    }
}

#[async_trait]
impl<F: Fn(&ModelRequest) -> Script + Send + Sync + 'static> ModelClient for Answering<F> {
    async fn stream(&self, request: &ModelRequest) -> Result<ModelStream, ModelError> {
        ScriptedModel::new([(self.0)(request)]).stream(request).await
    }
}

#[async_trait]
impl<F: Fn(&ModelRequest) -> Script + Send + Sync + 'static> ModelProvider for Answering<F> {
    fn name(&self) -> &str {
        "fake"
    }

    fn client(&self, _: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        Ok(Arc::new(self.clone()))
    }

    async fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        Ok(Vec::new())
    }
}
