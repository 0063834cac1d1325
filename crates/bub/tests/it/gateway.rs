//! An application with a channel of a plugin's: which channels it listens on, and what the settings change.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bub::TurnOptions;
use bub_kernel::{
    channel::{Channel, ChannelError, ChannelKind, Inbox},
    hooks::{Hooks, ModelStep},
    message::Message,
    model::ModelRequest,
    turn::{Inbound, Outbound, Prompt, TurnError, TurnEvent, TurnState},
};
use bub_testing::Script;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Folders, inbound, say};

/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Seen {
    sent: Vec<String>,
    words: String,
}

/// A mailbox: says what it is given, and keeps the answers.
#[derive(Clone)]
struct Mailbox {
    name: &'static str,
    kind: ChannelKind,
    to_say: &'static [&'static str],
    seen: Arc<Mutex<Seen>>,
    news: Arc<Notify>,
}

impl Mailbox {
    fn new(name: &'static str, kind: ChannelKind, to_say: &'static [&'static str]) -> Self {
        Self { name, kind, to_say, seen: Arc::default(), news: Arc::default() }
    }

    async fn answered(&self, n: usize) -> Vec<String> {
        let all = async {
            loop {
                let sent = self.seen.lock().unwrap().sent.clone();
                if sent.len() >= n {
                    return sent;
                }
                self.news.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("an answer comes")
    }
}

#[async_trait]
impl Channel for Mailbox {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> ChannelKind {
        self.kind
    }

    fn needs_debounce(&self) -> bool {
        true
    }

    async fn run(&self, inbox: Inbox, cancel: CancellationToken) -> Result<(), ChannelError> {
        for text in self.to_say {
            inbox.put(Inbound::new(self.name, "7", Prompt::Text((*text).to_owned()))).await?;
        }
        cancel.cancelled().await;
        Ok(())
    }

    async fn send(&self, outbound: Outbound) -> Result<(), ChannelError> {
        self.seen.lock().unwrap().sent.push(format!("{}: {}", outbound.chat, outbound.text));
        self.news.notify_one();
        Ok(())
    }

    fn observe(&self, _: &Inbound, event: &TurnEvent) {
        if let TurnEvent::Text(text) = event {
            self.seen.lock().unwrap().words.push_str(text);
        }
    }
}

fn bench(folders: Folders, mailboxes: &[&Mailbox]) -> Bench {
    let mailboxes: Vec<Mailbox> = mailboxes.iter().map(|it| (*it).clone()).collect();
    folders.bench_with([Script::text("hello")], move |registry| {
        for mailbox in &mailboxes {
            registry.channel(mailbox.clone());
        }
    })
}

#[tokio::test]
async fn a_plugins_channel_is_answered_as_the_settings_say() {
    for is_streamed in [false, true] {
        let mail = Mailbox::new("mail", ChannelKind::Listener, &["two", "lines", ",tape.anchors"]);
        let folders = Folders::new()
            .var("BUB_DEBOUNCE_SECONDS", "0.3")
            .var("BUB_STREAM_OUTPUT", if is_streamed { "true" } else { "false" });
        let bench = bench(folders, &[&mail]);
        let choice = bench.app.enabled_channels();
        let gateway = bench.app.gateway(choice.channels);
        let cancel = CancellationToken::new();
        let watch = async {
            let sent = mail.answered(2).await;
            cancel.cancel();
            sent
        };
        let (ended, sent) = tokio::join!(gateway.run(cancel.clone()), watch);
        ended.unwrap();
        assert_eq!(sent, ["7: - session/start", "7: hello"], "the command is not gathered");
        assert_eq!(mail.seen.lock().unwrap().words.contains("hello"), is_streamed);
        let asked = bench.model.requests()[0].messages.last().unwrap().joined_text();
        assert!(asked.starts_with("channel=$mail|chat_id=7\n") && asked.ends_with("---\ntwo\nlines"), "{asked}");
        bench.app.close().await;
    }
}

#[test]
fn channels_are_enabled_by_the_setting() {
    let mailboxes = [
        Mailbox::new("cli", ChannelKind::Interface, &[]),
        Mailbox::new("mail", ChannelKind::Listener, &[]),
        Mailbox::new("chat", ChannelKind::Listener, &[]),
        Mailbox::new("clock", ChannelKind::Lifecycle, &[]),
    ];
    let refs: Vec<_> = mailboxes.iter().collect();
    for (setting, expected) in [
        (None, "mail,chat,clock"),
        (Some("all"), "mail,chat,clock"),
        (Some("all,!chat"), "mail,clock"),
        (Some("mail"), "mail,clock"),
        (Some("mail,!clock"), "mail"),
        (Some("clock"), "clock"),
        (Some("nobody"), ""),
    ] {
        let folders = Folders::new();
        let folders = if let Some(setting) = setting { folders.var("BUB_ENABLED_CHANNELS", setting) } else { folders };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let choice = bench(folders, &refs).app.enabled_channels();
        let names: Vec<_> = choice.channels.iter().map(|it| it.name()).collect();
        assert_eq!(names.join(","), expected, "{setting:?}");
        assert_eq!(choice.unknown.is_empty(), setting != Some("nobody"));
    }
}

/// Hooks that never return before the first model call.
struct Hanging {
    reached: Arc<Notify>,
    was_asked: Mutex<bool>,
}

#[async_trait]
impl Hooks for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn implements(&self) -> &[&'static str] {
        &["before_model"]
    }

    async fn before_model(&self, _: &TurnState, _: &mut ModelRequest) -> ModelStep {
        if !std::mem::replace(&mut *self.was_asked.lock().unwrap(), true) {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
        ModelStep::Proceed
    }
}

#[tokio::test]
async fn a_turn_that_does_not_end_when_it_is_cancelled_is_recovered_by_the_next() {
    let reached = Arc::new(Notify::new());
    let signal = reached.clone();
    let bench = Folders::new().bench_with([Script::text("ok")], move |registry| {
        registry.hooks(Hanging { reached: signal.clone(), was_asked: Mutex::new(false) });
    });
    let stream = bench.app.runtime().turn(inbound("s", "first"), TurnOptions::default());
    tokio::time::timeout(PATIENCE, reached.notified()).await.unwrap();
    stream.cancel();
    let ended = tokio::time::timeout(PATIENCE, stream.result()).await.expect("there is a limit");
    assert!(matches!(ended, Err(TurnError::Cancelled)), "{ended:?}");
    say(&bench.app, "second").await.unwrap();
    let asked: Vec<_> = bench.model.requests()[0].messages.iter().map(Message::joined_text).collect();
    assert!(asked.iter().any(|it| it.ends_with("first")), "what was said is not lost: {asked:?}");
    bench.app.close().await;
}
