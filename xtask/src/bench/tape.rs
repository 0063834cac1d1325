//! Tapes of a thousand, a hundred thousand and a million entries: what must not grow with them.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{
    measure::{Runner, Used},
    report::{Bar, Row, Spread},
};

/// Entries of the measured tapes, the first being what the others are compared with.
const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];
/// Entries from one anchor to the next.
const ANCHOR_EVERY: u64 = 1_000;
/// Bytes of a bare append: as many as an entry has.
const ENTRY_BYTES: usize = 512;
/// Bare appends of one run.
const APPENDS: usize = 51;

/// At most this many times what it takes on the shortest tape.
const CONSTANT: Bar = Bar::Times(2.0);
/// The first count of a million entries, in milliseconds.
const FIRST_INFO: Bar = Bar::Most(200.0);
/// A search by substring alone: at least half the speed of grep.
const SUBSTRING: Bar = Bar::Times(2.0);
/// A search with nearly equal words.
const FUZZY: Bar = Bar::Times(10.0);
/// The newest hits, near the end, in milliseconds.
const NEWEST: Bar = Bar::Most(20.0);
/// Peak memory of any operation, in MiB.
const MEMORY: Bar = Bar::Most(64.0);

/// What stands in the texts.
const WORDS: [&str; 20] = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "connection",
    "timeout",
    "deploy",
    "server",
    "error",
    "request",
    "token",
    "model",
    "tape",
    "anchor",
    "handoff",
    "search",
    "index",
    "build",
    "release",
    "cache",
];

/// A tape of a session, and what is measured on it.
#[derive(Debug)]
struct Tape<'a> {
    runner: &'a Runner,
    session: String,
    path: PathBuf,
    peaks: Vec<f64>,
}

/// Measures tapes of all sizes.
pub(super) fn tapes(runner: &Runner, runs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut tapes = Vec::new();
    for size in SIZES {
        tapes.push((size, Tape::new(runner, size)?));
    }
    // What leaves the tapes as they are comes first.
    rows.extend(compare(&mut tapes, "context since the newest anchor", CONSTANT, |it| {
        it.repeat(runs, &["context"], "50")
    })?);
    rows.extend(compare(&mut tapes, "a setting that was never set", CONSTANT, |it| {
        it.repeat(runs, &["setting"], "0")
    })?);
    for (size, tape) in &mut tapes {
        let of = |what: &str| format!("{what}, {} entries", thousands(*size));
        let is_largest = SIZES.last() == Some(size);
        let bar = |bar| if is_largest { bar } else { Bar::None };
        let first = Spread::of((0..runs).map(|_| tape.first_info(*size)).collect::<Result<Vec<_>>>()?);
        rows.push(Row::new(of("counts, the first time"), "ms", None, first, bar(FIRST_INFO)));
        let again = tape.repeat(runs, &["stats"], &size.to_string())?;
        rows.push(Row::new(of("counts, later"), "ms", None, again, Bar::None));
        let newest = tape.repeat(runs, &["search-fuzzy", "timeout"], "20")?;
        rows.push(Row::new(of("search, 20 newest hits"), "ms", None, newest, bar(NEWEST)));
        for (what, operation, text, limit) in [
            ("search, substring, no hit", "search", "zq", SUBSTRING),
            ("search, nearly equal words, no hit", "search-fuzzy", "kubernets", FUZZY),
        ] {
            let (mut grep, mut ours) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                grep.push(tape.grep(text)?);
                ours.push(tape.operation(&[operation, text], "0")?);
            }
            rows.push(Row::new(of(what), "ms", Some(Spread::of(grep)), Spread::of(ours), bar(limit)));
        }
    }
    rows.extend(compare(&mut tapes, "`bub run ',fs.read path=README.md'`, start to exit", CONSTANT, |it| {
        it.read(runs)
    })?);
    rows.extend(compare(&mut tapes, "append, not waiting for the disk", CONSTANT, |it| {
        it.repeat(runs, &["append"], "")
    })?);
    rows.extend(compare(&mut tapes, "append to a tape just opened", CONSTANT, |it| {
        it.repeat(runs, &["append-first"], "")
    })?);
    if let Some((_, tape)) = tapes.last_mut() {
        for (what, operation, is_synced) in [
            ("append against a bare write", "append", false),
            ("append, synced, against a bare write and sync", "append-sync", true),
        ] {
            let (mut bare, mut ours) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                bare.push(tape.bare_append(is_synced)?);
                ours.push(tape.operation(&[operation], "")? * 1e3);
            }
            rows.push(Row::new(what, "µs", Some(Spread::of(bare)), Spread::of(ours), Bar::None));
        }
    }
    for (size, tape) in &tapes {
        let most = tape.peaks.iter().copied().fold(0.0, f64::max);
        let what = format!("peak memory of any of these, {} entries", thousands(*size));
        rows.push(Row::new(what, "MiB", None, Spread::of([most]), MEMORY));
    }
    Ok(rows)
}

/// One measure on all tapes; the shortest is the floor of the others.
fn compare(
    tapes: &mut [(u64, Tape<'_>)],
    what: &str,
    bar: Bar,
    mut measure: impl FnMut(&mut Tape<'_>) -> Result<Spread>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut floor = None;
    let n_tapes = tapes.len();
    let shortest = tapes.first().map_or(0, |it| it.0);
    for (n, (size, tape)) in tapes.iter_mut().enumerate() {
        let figure = measure(tape)?;
        if let Some(floor) = floor {
            let bar = if n + 1 == n_tapes { bar } else { Bar::None };
            let what = format!("{what}, {} entries against {}", thousands(*size), thousands(shortest));
            rows.push(Row::new(what, "ms", Some(floor), figure, bar));
        } else {
            floor = Some(figure);
        }
    }
    Ok(rows)
}

impl<'a> Tape<'a> {
    /// Lets the binary make the tape of a session, and fills it.
    fn new(runner: &'a Runner, size: u64) -> Result<Self> {
        let session = format!("tape-{size}");
        let known = tapes_in(&runner.tapes())?;
        runner.run(runner.bub(), &["run", "--session-id", &session, ",help"], &[])?;
        let path = tapes_in(&runner.tapes())?.into_iter().find(|it| !known.contains(it)).context("no tape was made")?;
        write(&path, size).with_context(|| format!("can't write {}", path.display()))?;
        Ok(Self { runner, session, path, peaks: Vec::new() })
    }

    /// Runs an operation so often, each time in a fresh process.
    fn repeat(&mut self, runs: usize, operation: &[&str], outcome: &str) -> Result<Spread> {
        // The first run may be the one that makes the index.
        self.operation(operation, outcome)?;
        Ok(Spread::of((0..runs).map(|_| self.operation(operation, outcome)).collect::<Result<Vec<_>>>()?))
    }

    /// The milliseconds that an operation took inside its process, if what came of it is right.
    fn operation(&mut self, operation: &[&str], outcome: &str) -> Result<f64> {
        let (folder, name) = (self.runner.tapes(), self.path.file_stem().unwrap_or_default().to_string_lossy());
        let folder = folder.to_string_lossy().into_owned();
        let args: Vec<&str> = [&folder, &*name].into_iter().chain(operation.iter().copied()).collect();
        let used = self.runner.run(&self.runner.own("examples/tape_operation"), &args, &[])?;
        self.note(&used);
        let (nanos, found) = used.output.trim_end_matches('\n').split_once(' ').unwrap_or_default();
        ensure!(found == outcome, "{operation:?} found '{found}', not '{outcome}': {}", used.output);
        Ok(nanos.parse::<f64>().with_context(|| format!("no figure in: {}", used.output))? / 1e6)
    }

    /// Counting without an index.
    fn first_info(&mut self, size: u64) -> Result<f64> {
        drop(fs::remove_dir_all(self.runner.tapes().join(".index")));
        self.operation(&["stats"], &size.to_string())
    }

    fn read(&mut self, runs: usize) -> Result<Spread> {
        let mut figures = Vec::new();
        for _ in 0..runs * 3 {
            let args = ["run", "--session-id", &self.session, ",fs.read path=README.md"];
            let used = self.runner.run(self.runner.bub(), &args, &[])?;
            self.note(&used);
            figures.push(millis(&used));
        }
        Ok(Spread::of(figures))
    }

    fn grep(&self, text: &str) -> Result<f64> {
        // That nothing was found is no failure.
        let script = r#"grep -c -F -i -e "$0" "$1" || test $? = 1"#;
        let path = self.path.to_string_lossy();
        Ok(millis(&self.runner.run(Path::new("sh"), &["-c", script, text, &path], &[])?))
    }

    /// The microseconds of the middle one of some appends to the same file, with nothing around them.
    fn bare_append(&self, is_synced: bool) -> Result<f64> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        // A blank line, which nobody minds.
        let mut bytes = [b' '; ENTRY_BYTES];
        bytes[ENTRY_BYTES - 1] = b'\n';
        let mut took = Vec::new();
        for _ in 0..APPENDS {
            let start = Instant::now();
            file.write_all(&bytes)?;
            if is_synced {
                file.sync_data()?;
            }
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Spread::of(took).median())
    }

    fn note(&mut self, used: &Used) {
        self.peaks.push(used.peak as f64 / f64::from(1 << 20));
    }
}

fn millis(used: &Used) -> f64 {
    used.wall().as_secs_f64() * 1e3
}

fn thousands(size: u64) -> String {
    match size {
        1_000_000.. => format!("{},{:03},000", size / 1_000_000, size / 1_000 % 1_000),
        _ => format!("{},000", size / 1_000),
    }
}

fn tapes_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(files) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let paths = files.map(|it| Ok(it?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|it| it.extension().is_some_and(|it| it == "jsonl")).collect())
}

/// Writes a tape of entries of about half a kilobyte.
fn write(path: &Path, size: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = 7_u64;
    let mut bytes = 0_u64;
    for id in 1..=size {
        let mut text = String::with_capacity(400);
        for n in 0..55 {
            // Knuth's constants of a linear congruential generator; the upper bits are the good ones.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if n > 0 {
                text.push(' ');
            }
            text.push_str(WORDS.get((random >> 33) as usize % WORDS.len()).unwrap_or(&""));
        }
        let head = text.get(..200).unwrap_or(&text);
        let (kind, payload) = match id % 4 {
            _ if id == 1 || (id % ANCHOR_EVERY == 0 && id + ANCHOR_EVERY / 2 < size) || id + 50 == size => {
                ("anchor", json!({"name": format!("a{id}"), "state": {"summary": head}}))
            }
            0 => ("message", json!({"role": if id % 8 == 0 { "user" } else { "assistant" }, "content": text})),
            1 => {
                let arguments = json!({"command": head}).to_string();
                let call = json!({"id": format!("c{id}"), "name": "bash", "arguments": arguments, "metadata": {}});
                ("tool_call", json!({"calls": [call], "content": ""}))
            }
            2 => ("tool_result", json!({"results": [text]})),
            _ => ("event", json!({"name": "loop.step", "data": {"step": id, "status": "ok", "note": text}})),
        };
        let line = format!(
            "{{\"id\": {id}, \"kind\": \"{kind}\", \"payload\": {}, \"meta\": {{\"run_id\": \"run-x\"}}, \"date\": \
             \"2026-11-29T10:00:00.000000+00:00\"}}\n",
            spaced(&payload)
        );
        bytes += line.len() as u64;
        file.write_all(line.as_bytes())?;
    }
    file.flush()?;
    ensure!(bytes / size > 350, "the entries are too small");
    Ok(())
}

/// JSON as tapes have it, with blanks; the texts here have no marks that would be taken for borders.
fn spaced(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(key, it)| format!("\"{key}\": {}", spaced(it))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
