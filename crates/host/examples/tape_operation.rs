//! One operation on a tape in a fresh process, for `cargo xtask bench`:
//! `tape_operation FOLDER TAPE OPERATION [TEXT]` prints the nanoseconds that it took and what came of it.

#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::FixedClock,
    message::{Message, Role},
    tape::{Entry, NewEntry, TapeName, TapeQuery, TapeStore, TextMatch},
};
use futures::StreamExt as _;

/// Appends of one process, of which the median is told.
const APPENDS: usize = 51;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, tape, operation, rest @ ..] = args.as_slice() else {
        return Err("arguments: FOLDER TAPE OPERATION [TEXT]".into());
    };
    let text = rest.first().map_or("", String::as_str);
    let tape = TapeName::free(tape);
    let sync = if operation == "append-sync" { Sync::Commit } else { Sync::Never };
    let store = JsonlStore::new(PathBuf::from(folder), StoreOptions { sync });
    let (took, outcome) = run(&store, &tape, operation, text).await?;
    println!("{} {outcome}", took.as_nanos());
    Ok(())
}

async fn run(
    store: &JsonlStore,
    tape: &TapeName,
    operation: &str,
    text: &str,
) -> Result<(Duration, String), Box<dyn std::error::Error>> {
    let count = |found: Vec<Arc<Entry>>| found.len().to_string();
    let search = |fuzzy, limit| TapeQuery {
        text: Some(TextMatch::new(text, fuzzy)),
        distinct: true,
        ..TapeQuery::default().newest_first().limit(limit)
    };
    let start = Instant::now();
    let outcome = match operation {
        "append" | "append-sync" => {
            let mut took = Vec::with_capacity(APPENDS);
            for _ in 0..APPENDS {
                let message = Message::text(Role::User, "x".repeat(380));
                let entry = Arc::new(NewEntry::message(&message).dated(&FixedClock::default()));
                let start = Instant::now();
                store.append(tape, &[entry]).await?;
                took.push(start.elapsed());
            }
            took.sort_unstable();
            return Ok((took.get(APPENDS / 2).copied().unwrap_or_default(), String::new()));
        }
        "append-first" => {
            let message = Message::text(Role::User, "x".repeat(380));
            let entry = Arc::new(NewEntry::message(&message).dated(&FixedClock::default()));
            store.append(tape, &[entry]).await?;
            String::new()
        }
        "context" => count(store.read(tape, &TapeQuery::default().after_last_anchor()).await?),
        "setting" => {
            count(store.read(tape, &TapeQuery::default().event("model_switch").newest_first().limit(1)).await?)
        }
        "stats" => store.stats(tape).await?.entries.to_string(),
        "anchors" => count(store.read(tape, &TapeQuery::default().kind(bub_kernel::tape::EntryKind::Anchor)).await?),
        "search" => count(store.read(tape, &search(false, 20)).await?),
        "search-fuzzy" => count(store.read(tape, &search(true, 20)).await?),
        "at" => {
            let id = text.parse()?;
            count(store.read(tape, &TapeQuery::default().ids(id..=id).limit(1)).await?)
        }
        "stream" => {
            let query = TapeQuery::default();
            let mut entries = store.stream(tape, &query);
            let mut n = 0_usize;
            while let Some(entry) = entries.next().await {
                let _: Arc<Entry> = entry?;
                n += 1;
            }
            n.to_string()
        }
        other => return Err(format!("no operation {other}").into()),
    };
    Ok((start.elapsed(), outcome))
}
