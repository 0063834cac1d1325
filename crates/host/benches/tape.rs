//! What the steps of reading a tape cost, by the megabyte or the operation.
//!
//! The measures of whole operations in fresh processes are `cargo xtask bench --only tape`.

use std::{fmt::Write as _, path::PathBuf, sync::Arc};

use bub_host::{JsonlStore, StoreOptions, Sync};
use bub_kernel::{
    clock::FixedClock,
    message::{Message, Role},
    tape::{Entry, NewEntry, TapeName, TapeQuery, TapeStore as _, TextMatch},
};
use divan::{Bencher, counter::BytesCount};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Entries of the tapes.
const SIZES: [u64; 2] = [1_000, 100_000];

fn main() {
    divan::main();
}

/// A tape of entries of about half a kilobyte.
struct Fixture {
    _folder: TempDir,
    runtime: Runtime,
    folder: PathBuf,
    tape: TapeName,
    n_bytes: usize,
}

impl Fixture {
    fn new(size: u64) -> Option<Self> {
        let dir = TempDir::new().ok()?;
        let (folder, tape) = (dir.path().to_owned(), TapeName::free("bench"));
        let words = "alpha beta gamma delta connection timeout deploy server error request token model tape anchor ";
        let mut text = String::new();
        for id in 1..=size {
            let (kind, payload) = match id % 50 {
                1 => ("anchor", format!("{{\"name\": \"a{id}\", \"state\": {{}}}}")),
                _ => ("message", format!("{{\"role\": \"user\", \"content\": \"{id} {}\"}}", words.repeat(4))),
            };
            let date = "2026-11-29T10:00:00.000000+00:00";
            writeln!(
                text,
                "{{\"id\": {id}, \"kind\": \"{kind}\", \"payload\": {payload}, \"meta\": {{}}, \"date\": \"{date}\"}}"
            )
            .ok()?;
        }
        std::fs::write(folder.join("bench.jsonl"), &text).ok()?;
        Some(Self { _folder: dir, runtime: Runtime::new().ok()?, folder, tape, n_bytes: text.len() })
    }

    /// The store as a new process would have it.
    fn store(&self) -> JsonlStore {
        JsonlStore::new(self.folder.clone(), StoreOptions { sync: Sync::Never })
    }

    fn read(&self, query: &TapeQuery) -> usize {
        self.runtime.block_on(self.store().read(&self.tape, query)).map_or(0, |it| it.len())
    }
}

fn search(text: &str, fuzzy: bool) -> TapeQuery {
    TapeQuery { text: Some(TextMatch::new(text, fuzzy)), ..TapeQuery::default().newest_first().limit(20) }
}

fn bench(bencher: Bencher<'_, '_>, size: u64, reads_all: bool, work: impl Fn(&Fixture) -> usize) {
    let Some(fixture) = Fixture::new(size) else { return };
    let bytes = if reads_all { fixture.n_bytes } else { 0 };
    bencher.counter(BytesCount::new(bytes)).bench_local(|| work(&fixture));
}

/// Counts a tape that has no index yet.
#[divan::bench(args = SIZES)]
fn counts_first(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, true, |it| {
        std::fs::remove_dir_all(it.folder.join(".index")).ok();
        it.runtime.block_on(it.store().stats(&it.tape)).map_or(0, |it| it.entries as usize)
    });
}

/// Counts a tape that has one.
#[divan::bench(args = SIZES)]
fn counts_later(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, false, |it| {
        it.runtime.block_on(it.store().stats(&it.tape)).map_or(0, |it| it.entries as usize)
    });
}

#[divan::bench(args = SIZES)]
fn context(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, false, |it| it.read(&TapeQuery::default().after_last_anchor()));
}

#[divan::bench(args = SIZES)]
fn setting_never_set(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, false, |it| it.read(&TapeQuery::default().event("model_switch").newest_first().limit(1)));
}

#[divan::bench(args = SIZES)]
fn search_substring_without_hit(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, true, |it| it.read(&search("zq", false)));
}

#[divan::bench(args = SIZES)]
fn search_fuzzy_without_hit(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, true, |it| it.read(&search("kubernets", true)));
}

#[divan::bench(args = SIZES)]
fn search_phrase_without_hit(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, true, |it| it.read(&search("the quick brown fox jumps over lazy dogs", true)));
}

#[divan::bench(args = SIZES)]
fn search_newest_hits(bencher: Bencher<'_, '_>, size: u64) {
    bench(bencher, size, false, |it| it.read(&search("timeout", true)));
}

#[divan::bench(args = SIZES)]
fn append(bencher: Bencher<'_, '_>, size: u64) {
    let message = Message::text(Role::User, "x".repeat(380));
    let entry: Arc<Entry> = Arc::new(NewEntry::message(&message).dated(&FixedClock::default()));
    bench(bencher, size, false, |it| {
        it.runtime.block_on(it.store().append(&it.tape, std::slice::from_ref(&entry))).map_or(0, |()| 1)
    });
}
