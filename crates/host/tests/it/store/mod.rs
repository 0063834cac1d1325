//! Tapes on disk.

mod archives;
mod branches;
mod damage;
mod faults;
mod fixtures;
mod indexes;
mod journals;
mod media;
mod queries;
mod scans;
mod session_lock;
mod verify;
mod writers;

use std::{fs, path::Path, sync::Arc};

use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::FixedClock,
    message::{Message, Role},
    tape::{Entry, NewEntry, TapeName, TapeQuery, TapeStore},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A store in a folder of its own, and one tape's name.
struct Home {
    dir: TempDir,
    store: JsonlStore,
    tape: TapeName,
}

impl Home {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let store = store(dir.path());
        Self { store, dir, tape: TapeName::session("/srv/demo", "s1") }
    }

    fn with(content: impl AsRef<[u8]>) -> Self {
        let home = Self::new();
        home.write(content);
        home
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.dir.path().join("tapes")).unwrap();
        fs::write(self.store.path(&self.tape), content).unwrap();
    }

    /// The store as another process would have it.
    fn reopened(&self) -> JsonlStore {
        store(self.dir.path())
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.store.path(&self.tape)).unwrap()
    }

    async fn append(&self, texts: &[&str]) {
        self.store.append(&self.tape, &messages(texts)).await.unwrap();
    }

    /// Id and text of all entries.
    async fn all(&self) -> Vec<(u64, String)> {
        let entries = self.reopened().read(&self.tape, &TapeQuery::default()).await.unwrap();
        entries.iter().map(|it| (it.id, text_of(it))).collect()
    }

    async fn ids(&self) -> Vec<u64> {
        self.all().await.into_iter().map(|it| it.0).collect()
    }
}

fn store(home: &Path) -> JsonlStore {
    JsonlStore::new(home.join("tapes"), StoreOptions { sync: Sync::Never })
}

fn dated(entry: NewEntry) -> Arc<Entry> {
    Arc::new(entry.dated(&FixedClock::default()))
}

fn messages(texts: &[&str]) -> Vec<Arc<Entry>> {
    texts.iter().map(|it| dated(NewEntry::message(&Message::text(Role::User, (*it).to_owned())))).collect()
}

fn text_of(entry: &Entry) -> String {
    match entry.payload.get("content") {
        Some(Value::String(text)) => text.clone(),
        _ => entry.name().unwrap_or("-").to_owned(),
    }
}

/// The line of a message.
fn line(id: u64, text: &str) -> String {
    let payload = json!({"role": "user", "content": text});
    let entry = json!({"id": id, "kind": "message", "payload": payload, "meta": {}, "date": "2026-01-02T03:04:05.000000+00:00"});
    format!("{}\n", bub_kernel::text::json(&entry))
}
