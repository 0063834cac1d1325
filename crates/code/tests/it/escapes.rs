//! Code that tries to get out of the sandbox, or to take more than its share.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bub_code::sandbox::SandboxLimits;
use futures::StreamExt;

use crate::sandbox::{Marked, processes};

/// The attempts: `#--- name`, then the code.
const CORPUS: &str = include_str!("escapes.txt");
/// What one attempt may use.
const LIMITS: SandboxLimits = SandboxLimits {
    memory: 64 << 20,
    duration: Duration::from_millis(400),
    recursion: 1_000,
    output: 1 << 20,
    workers: 2,
};
/// How much longer than its limit an attempt may take.
const LATE: Duration = Duration::from_secs(10);
/// How much more memory than its limit an attempt may take.
const MORE: u64 = 100 << 20;

fn attempts(canary: &str) -> Vec<(String, String)> {
    let found = CORPUS.split("#--- ").skip(1).filter_map(|part| part.split_once('\n'));
    found
        .map(|(name, code)| {
            let code = match code.trim_end().strip_prefix("SOURCE:") {
                Some(kind) => source(kind),
                None => code.replace("CANARY_FILE", canary).replace("BUB_CANARY", "CARGO_MANIFEST_DIR"),
            };
            (name.to_owned(), code)
        })
        .collect()
}

/// Code that is too long to be written down.
fn source(kind: &str) -> String {
    let nested = |open: &str, close: &str| format!("f = int\nx = {}1{}", open.repeat(20_000), close.repeat(20_000));
    match kind {
        "names" => (0..70_000).map(|index| format!("a{index}={index}\n")).collect(),
        "long" => format!("x='{}'", "y".repeat(5_000_000)),
        "nul" => "print(1)\0".to_owned(),
        "(" | "f(" => nested(kind, ")"),
        "[" => nested(kind, "]"),
        other => nested(other, ""),
    }
}

/// What the workers did while code ran.
#[derive(Default)]
struct Seen {
    /// The most memory of a worker, in bytes.
    memory: u64,
    /// Processes that a worker started.
    children: BTreeMap<u32, String>,
}

/// Looks again and again until `stop`.
fn watch(marked: &Marked, seen: &Mutex<Seen>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let workers = marked.workers();
        let mut seen = seen.lock().unwrap();
        for status in workers.values() {
            let peak = status.get("VmHWM").and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
            seen.memory = seen.memory.max(peak.unwrap_or(0) * 1024);
        }
        for (pid, status) in processes() {
            if status
                .get("PPid")
                .and_then(|parent| parent.parse().ok())
                .is_some_and(|parent| workers.contains_key(&parent))
            {
                seen.children.insert(pid, status["Name"].clone());
            }
        }
        drop(seen);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What was wrong with one attempt.
async fn attempt(marked: &Marked, folder: &Path, name: &str, code: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let outcome = marked.subject.run_for(code, LIMITS.duration + 2 * LATE).await;
    let told = format!("{}{}", outcome.output, outcome.failure());
    for secret in ["text of the canary", env!("CARGO_MANIFEST_DIR"), "root:"] {
        if told.contains(secret) {
            problems.push(format!("{name}: told {secret}"));
        }
    }
    if outcome.end.is_none() || outcome.took > LIMITS.duration + LATE {
        problems.push(format!("{name}: took {:?}", outcome.took));
    }
    if std::fs::read_dir(folder).unwrap().count() != 1 {
        problems.push(format!("{name}: made a file"));
    }
    problems
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r106_r110_attempts_to_get_out_or_to_take_all_end_inside() {
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("canary");
    std::fs::write(&canary, "text of the canary").unwrap();
    let attempts = attempts(canary.to_str().unwrap());
    assert!(attempts.len() >= 150, "{}", attempts.len());
    let marked = Marked::new(LIMITS);
    let (seen, stop) = (Mutex::new(Seen::default()), AtomicBool::new(false));
    let mut problems = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&marked, &seen, &stop));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let tries = attempts.iter().map(|(name, code)| attempt(&marked, folder.path(), name, code));
                problems = futures::stream::iter(tries).buffer_unordered(LIMITS.workers).concat().await;
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(seen.children, BTreeMap::new());
    assert!(seen.memory > 0 && seen.memory < LIMITS.memory + MORE, "{} MiB", seen.memory >> 20);
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "text of the canary");
    marked.subject.prints("print('still here')", "still here\n").await;
}
