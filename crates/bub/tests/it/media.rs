//! Media from people and tools, through whole turns: what the model is sent, and what is kept where.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use bub::{
    App, Builder,
    settings::{Settings, Sources},
};
use bub_engine::TurnOptions;
use bub_kernel::{
    error::ToolError,
    message::{Media, MediaKind, MediaSource, Part},
    plugin::{Plugin, PluginError, Registry},
    tool::{DynTool, Exposure, ToolContext, ToolReply, ToolSpec},
    turn::{Inbound, Prompt, SessionId},
};
use bub_testing::{ModelServer, Reply, Request};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Home {
    folder: TempDir,
    server: ModelServer,
}

impl Home {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let server = ModelServer::start();
        for reply in replies {
            server.reply(reply);
        }
        Self { folder: TempDir::new().unwrap(), server }
    }

    /// The application as a new process would have it.
    fn app(&self) -> App {
        let cwd = self.folder.path().join("ws");
        fs::create_dir_all(&cwd).unwrap();
        let variables = [
            ("BUB_MODEL", "openai:mock".to_owned()),
            ("BUB_API_KEY", "sk-test".to_owned()),
            ("BUB_API_BASE", self.server.base_url()),
        ];
        let env: BTreeMap<_, _> = variables.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let settings = Settings::load(Sources::new(env, self.folder.path(), cwd.clone())).unwrap();
        Builder::new(settings, cwd).plugin(Shots).build().unwrap()
    }

    async fn turn(&self, session: &str, prompt: Prompt) {
        let app = self.app();
        let inbound =
            Inbound { session: Some(SessionId(session.into())), local: true, ..Inbound::new("test", "c", prompt) };
        app.runtime().turn(inbound, TurnOptions::default()).result().await.unwrap();
        app.close().await;
    }

    fn tapes(&self) -> PathBuf {
        self.folder.path().join(".bub/tapes")
    }

    /// All lines of all tapes.
    fn lines(&self) -> Vec<String> {
        let files = fs::read_dir(self.tapes()).unwrap().map(|it| it.unwrap().path());
        let tapes = files.filter(|it| it.extension().is_some_and(|it| it == "jsonl"));
        tapes.flat_map(|it| fs::read_to_string(it).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    fn n_blobs(&self) -> usize {
        fs::read_dir(self.tapes().join("blobs")).map_or(0, Iterator::count)
    }
}

/// A plugin with the tool `shot`, whose result is a picture and words.
struct Shots;

impl Plugin for Shots {
    fn name(&self) -> &str {
        "shots"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        registry.dyn_tool(Arc::new(Shot(Arc::new(ToolSpec {
            name: "shot".into(),
            description: "Takes a picture.".into(),
            exposure: Exposure::Auto,
            deferred: false,
            parameters: json!({"type": "object", "properties": {}}),
            output: None,
        }))));
        Ok(())
    }
}

struct Shot(Arc<ToolSpec>);

impl DynTool for Shot {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        let content = json!([
            {"type": "text", "text": "shot"},
            {"type": "image", "media_type": "image/png", "data": png('s')},
            {"type": "image", "media_type": "image/png", "data": "§§"},
            {"type": "text", "text": "x".repeat(20_000)},
        ]);
        let reply = ToolReply { value: json!({"type": "tool_content", "content": content}), text: None };
        Box::pin(async move { Ok(reply) })
    }
}

/// Base64 of 225,000 bytes, different for each letter.
fn png(letter: char) -> String {
    letter.to_string().repeat(300_000)
}

fn photo(letter: char) -> Prompt {
    let media =
        Media { kind: MediaKind::Image, media_type: "image/png".into(), source: MediaSource::Data(png(letter)) };
    Prompt::Parts(vec![Part::Text("what is this?".into()), Part::Media(media)])
}

/// The letters of the pictures of a request, in order.
fn pictures(request: &Request) -> String {
    let parts = request.messages().iter().filter_map(|it| it["content"].as_array()).flatten();
    let urls = parts.filter_map(|it| it["image_url"]["url"].as_str());
    urls.map(|it| it.strip_prefix("data:image/png;base64,").unwrap().chars().next().unwrap()).collect()
}

#[tokio::test]
async fn r160_a_photo_is_sent_in_every_step_and_turn_and_kept_once() {
    let call = || Reply::calls([("c1", "bash", json!({"command": "echo hi"}))]);
    let home = Home::new([call(), call(), Reply::text("a cat"), Reply::text("still a cat"), Reply::text("a dog")]);
    home.turn("s1", photo('a')).await;
    home.turn("s1", Prompt::Text("are you sure?".into())).await;
    home.turn("s2", photo('a')).await;
    home.server.assert_no_violations();
    let sent: Vec<_> = home.server.chats().iter().map(pictures).collect();
    assert_eq!(sent, ["a", "a", "a", "a", "a"]);
    assert_eq!(home.n_blobs(), 1);
    let lines = home.lines();
    assert!(lines.iter().all(|it| it.len() < 10_000 && !it.contains(&"a".repeat(100))));
    assert_eq!(lines.iter().filter(|it| it.contains("\"url\": \"sha256:")).count(), 2, "one message in each session");
}

#[tokio::test]
async fn r143_pictures_of_results_reach_the_model_and_stay_off_the_tape() {
    let call = || Reply::calls([("c1", "shot", json!({}))]);
    let home = Home::new([call(), Reply::text("nice"), Reply::text("yes")]);
    home.turn("s1", Prompt::Text("take one".into())).await;
    home.turn("s1", Prompt::Text("is it still there?".into())).await;
    home.server.assert_no_violations();
    let chats = home.server.chats();
    assert_eq!(chats.iter().map(pictures).collect::<Vec<_>>(), ["", "s", "s"]);
    let result = chats[2].messages().iter().find(|it| it["role"] == "tool").unwrap()["content"].to_string();
    assert!(result.contains("[tool output spilled: 20,004 bytes in 2 chunks; handle: "), "{result:.300}");
    assert!(result.contains("[image/png left out: it is not base64]") && !result.contains('§'), "{result:.300}");
    assert_eq!(home.n_blobs(), 1);
    let n_long = home.lines().iter().filter(|it| it.len() > 10_000).count();
    assert_eq!(n_long, 1, "the first chunk of what was moved");
}

#[tokio::test]
async fn a_session_that_is_thrown_away_leaves_nothing() {
    let call = Reply::calls([("c1", "shot", json!({}))]);
    let home = Home::new([call, Reply::text("a cat")]);
    home.turn("temp/x", photo('a')).await;
    assert_eq!(home.server.chats().iter().map(pictures).collect::<Vec<_>>(), ["a", "as"]);
    assert!(!home.tapes().exists());
}

#[tokio::test]
async fn a_reset_removes_what_nothing_names_any_more() {
    let home = Home::new([Reply::text("a cat"), Reply::text("a dog"), Reply::text("a cat")]);
    home.turn("s1", photo('a')).await;
    home.turn("s1", photo('b')).await;
    home.turn("s2", photo('b')).await;
    assert_eq!(home.n_blobs(), 2);
    home.turn("s1", Prompt::Text(",tape.reset".into())).await;
    assert_eq!(home.n_blobs(), 1);
    home.turn("s2", Prompt::Text(",tape.reset archive=true".into())).await;
    assert_eq!(home.n_blobs(), 1, "the archive names it");
}
