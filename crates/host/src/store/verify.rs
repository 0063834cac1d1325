//! Looking whether a tape is as it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    path::PathBuf,
    sync::Arc,
};

use bub_kernel::tape::{Entry, EntryKind, MEDIA_SCHEME, TapeError, TapeName, trim_line};
use memchr::memmem;
use serde_json::Value;

use super::{
    Inner, JsonlStore, failed,
    fault::{Fault, Finding},
    lines::{Forward, Limits, MAX_LINE},
    lock::{LOCK_WAIT, lock_shared},
    reader::Snapshot,
    sequence::{Flaw, Sequence},
};

/// Findings that are reported one by one; of the others there is only the number.
const MAX_FINDINGS: usize = 1_000;
/// The largest id: numbers up to here are exact in every JSON reader.
pub(super) const MAX_ID: u64 = 1 << 53;
/// The sidecar for long results of tools.
pub(super) const SPILL: &str = "spill";
/// How often progress is reported, in bytes.
const REPORT_EVERY: u64 = 1 << 20;

/// What looking at a tape and its sidecars found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// What is wrong or odd, in the order of files and lines; the first thousand.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub n_more: u64,
    /// How many of all are errors, not only remarks.
    pub n_errors: u64,
    /// How many of the errors a repair can mend.
    pub n_mendable: u64,
    /// Entries of the tape, sidecars excepted.
    pub entries: u64,
    /// Files that were looked at.
    pub files: u64,
}

impl Verified {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.n_errors == 0
    }

    pub(super) fn add(&mut self, tape: &TapeName, line: Option<u64>, fault: Fault) {
        if fault.is_error() {
            self.n_errors += 1;
            self.n_mendable += u64::from(fault.is_mendable());
        }
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { tape: tape.clone(), line, fault });
        } else {
            self.n_more += 1;
        }
    }
}

/// What of a tape is known to be lost, and what its sidecars should have.
#[derive(Debug, Default)]
struct References {
    /// Handles of spilled results, with the line that tells of them.
    spills: BTreeMap<String, u64>,
    /// Blobs, with the line that first refers to them.
    blobs: BTreeMap<String, u64>,
    /// Handles whose loss is on the tape.
    lost_spills: BTreeSet<String>,
    /// Blobs whose loss is on the tape.
    lost_blobs: BTreeSet<String>,
}

/// Looks at tapes of a store whose sidecars were listed once.
#[derive(Debug)]
pub struct Verifier {
    store: Arc<Inner>,
    sidecars: BTreeSet<TapeName>,
}

impl JsonlStore {
    /// Gets ready to look at many tapes.
    ///
    /// # Errors
    /// When the folder of tapes can't be read.
    pub fn verifier(&self) -> Result<Verifier, TapeError> {
        let sidecars = self.inner.all_sidecars("")?.into_iter().collect();
        Ok(Verifier { store: self.inner.clone(), sidecars })
    }

    /// As [`Verifier::verify`], for one tape.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn verify(&self, tape: &TapeName, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, TapeError> {
        self.verifier()?.verify(tape, progress)
    }

    /// Whether a turn whose process died waits to be merged into a tape.
    ///
    /// # Errors
    /// When the folder of journals can't be read.
    pub fn is_interrupted(&self, tape: &TapeName) -> Result<bool, TapeError> {
        Ok(!self.inner.left_journals(tape)?.is_empty())
    }

    /// Sessions whose tape has no file yet, since a process died in their first turn.
    ///
    /// # Errors
    /// When the folder of journals can't be read.
    pub fn only_journaled(&self) -> Result<Vec<TapeName>, TapeError> {
        self.inner.only_journaled()
    }

    /// The sidecars of a tape that have a file, by name.
    ///
    /// # Errors
    /// When the folder of tapes can't be read.
    pub fn sidecars(&self, tape: &TapeName) -> Result<Vec<TapeName>, TapeError> {
        self.inner.sidecars(tape)
    }
}

impl Verifier {
    /// Looks whether a tape and its sidecars are as they should be: lines, ids, calls and their results,
    /// anchors and their events, spilled results, blobs, and journals of dead processes. `progress` is
    /// told now and then how many bytes were looked at, of how many. Blocks the calling thread; waits
    /// for writers only as long as one append takes.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn verify(&self, tape: &TapeName, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified, TapeError> {
        // Names of one tape's sidecars stand together.
        let first = TapeName::free(&format!("{tape}__sidecar__"));
        let sidecars: Vec<_> = self.sidecars.range(first..).take_while(|it| it.is_sidecar_of(tape)).collect();
        self.store.verify(tape, &sidecars, progress)
    }
}

impl Inner {
    fn verify(
        &self,
        tape: &TapeName,
        sidecars: &[&TapeName],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Verified, TapeError> {
        let mut verified = Verified::default();
        let size = |it: &TapeName| fs::metadata(self.path(it)).map(|it| it.len()).unwrap_or_default();
        let total = size(tape) + sidecars.iter().map(|it| size(it)).sum::<u64>();
        let mut done = 0;
        let mut main = MainCheck::default();
        self.check_lines(tape, &mut |line| {
            progress(done + line.end, total);
            main.line(tape, &line, &mut verified);
        })?;
        main.end(tape, &mut verified);
        verified.entries = main.n_entries;
        done += size(tape);
        let refs = main.refs;
        let spill = tape.sidecar(SPILL);
        let mut spilled = SidecarCheck { is_spill: true, ..SidecarCheck::default() };
        for sidecar in sidecars {
            let mut other = SidecarCheck::default();
            let check = if **sidecar == spill { &mut spilled } else { &mut other };
            self.check_lines(sidecar, &mut |line| {
                progress(done + line.end, total);
                check.line(sidecar, &line, &mut verified);
            })?;
            done += size(sidecar);
        }
        spilled.end(tape, &spill, &refs, &mut verified);
        for (digest, line) in &refs.blobs {
            if !self.has_blob(digest) {
                let fault = Fault::BlobMissing { digest: digest.clone(), is_known: refs.lost_blobs.contains(digest) };
                verified.add(tape, Some(*line), fault);
            }
        }
        for path in self.left_journals(tape)? {
            verified.add(tape, None, Fault::JournalLeft { path });
        }
        verified.files = 1 + sidecars.len() as u64;
        Ok(verified)
    }

    /// Hands over each line of a tape as it is now.
    fn check_lines(&self, tape: &TapeName, each: &mut dyn FnMut(CheckedLine<'_>)) -> Result<(), TapeError> {
        let path = self.path(tape);
        let mut run = || -> io::Result<()> {
            let Some(Snapshot { file, .. }) = Snapshot::open(&path)? else { return Ok(()) };
            // Between two appends every line is whole.
            lock_shared(&file, LOCK_WAIT)?;
            let len = file.metadata()?.len();
            // Dropping the lock before reading lets writers go on.
            drop(file.unlock());
            let mut lines = Forward::new(&file, 0..len, None, Limits::default());
            let mut number = 0;
            let mut reported = 0;
            while let Some(line) = lines.next()? {
                number += 1;
                let end = if line.next >= reported + REPORT_EVERY || line.next == len {
                    reported = line.next;
                    line.next
                } else {
                    reported
                };
                let n_bytes = line.next - line.start;
                each(CheckedLine { number, bytes: line.bytes, n_bytes, end, is_too_long: line.is_too_long });
            }
            Ok(())
        };
        run().map_err(|err| failed(tape.as_str(), "verify", &path, err))
    }

    /// The sidecars of a tape that have a file, by name.
    pub(super) fn sidecars(&self, tape: &TapeName) -> Result<Vec<TapeName>, TapeError> {
        let mut names = self.all_sidecars(tape.as_str())?;
        names.retain(|it| it.is_sidecar_of(tape));
        names.sort();
        Ok(names)
    }

    /// The sidecars that have a file and whose name begins with a prefix.
    fn all_sidecars(&self, prefix: &str) -> Result<Vec<TapeName>, TapeError> {
        let mut names = self.names(prefix)?;
        names.retain(|it| it.as_str().contains("__sidecar__"));
        Ok(names)
    }

    /// Journals of turns of this tape whose process is dead: whoever lives holds its lock.
    fn left_journals(&self, tape: &TapeName) -> Result<Vec<PathBuf>, TapeError> {
        let journals = self.journals_of(tape);
        let journals = journals.map_err(|err| failed(tape.as_str(), "list", &self.journals(), err))?;
        let is_held = |path: &PathBuf| {
            File::open(path).is_ok_and(|it| matches!(it.try_lock_shared(), Err(TryLockError::WouldBlock)))
        };
        Ok(journals.into_iter().filter(|it| it.is_file() && !is_held(it)).collect())
    }

    /// Sessions that have nothing but a journal, since their first turn was cut off.
    fn only_journaled(&self) -> Result<Vec<TapeName>, TapeError> {
        let mut names = BTreeSet::new();
        let dir = self.journals();
        let files = match fs::read_dir(&dir) {
            Ok(files) => files,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(failed("*", "list", &dir, err)),
        };
        for file in files {
            let file = file.map_err(|err| failed("*", "list", &dir, err))?.file_name();
            let stem = file.to_str().and_then(|it| it.strip_suffix(".journal")?.rsplit_once('.'));
            let name = stem.map(|it| TapeName::free(it.0)).filter(TapeName::is_session);
            names.extend(name.filter(|it| !self.path(it).exists()));
        }
        Ok(names.into_iter().collect())
    }

    /// Whether a blob that entries refer to is there.
    fn has_blob(&self, digest: &str) -> bool {
        matches!(self.media_size(&format!("{MEDIA_SCHEME}{digest}")), Ok(Some(_)))
    }
}

/// A line to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedLine<'a> {
    pub(super) number: u64,
    pub(super) bytes: &'a [u8],
    pub(super) n_bytes: u64,
    /// Where progress is.
    pub(super) end: u64,
    pub(super) is_too_long: bool,
}

impl CheckedLine<'_> {
    /// The entry, or what is wrong with the line; nothing when it is blank.
    fn read(&self) -> Result<Option<Entry>, Fault> {
        if self.is_too_long {
            return Err(Fault::TooLong { bytes: self.n_bytes, max: MAX_LINE as u64 });
        }
        let blank = self.bytes.iter().all(|it| matches!(it, b' ' | b'\t' | b'\r'));
        if blank {
            return Ok(None);
        }
        match Entry::from_line(self.bytes) {
            Some(entry) => Ok(Some(entry)),
            None => {
                let n_inside = salvage(self.bytes).len();
                Err(Fault::NoEntry {
                    bytes: self.bytes.len() as u64,
                    is_empty: trim_line(self.bytes).is_empty(),
                    n_inside,
                })
            }
        }
    }
}

/// The entries inside of a line that is none itself: those that were joined, or that a torn one was
/// written before.
pub(super) fn salvage(line: &[u8]) -> Vec<Entry> {
    /// Places in one line that are tried.
    const MAX_TRIES: usize = 1_000;
    let mut found = Vec::new();
    let mut pos = 0;
    for _ in 0..MAX_TRIES {
        let Some(at) = line.get(pos..).and_then(|it| memmem::find(it, b"{\"id\":")) else { break };
        let rest = line.get(pos + at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        let value = values.next();
        let n_read = values.byte_offset();
        let is_whole =
            |it: &Value| it.get("kind").is_some() && (it.get("date").is_some() || it.get("timestamp").is_some());
        match value {
            Some(Ok(value))
                if is_whole(&value)
                    && let Some(entry) = rest.get(..n_read).and_then(Entry::from_line) =>
            {
                found.push(entry);
                pos += at + n_read;
            }
            _ => pos += at + 1,
        }
    }
    found
}

/// Ids that rise.
#[derive(Debug, Default)]
struct IdCheck {
    last: u64,
}

impl IdCheck {
    fn next(&mut self, id: u64) -> Option<Fault> {
        let last = self.last;
        self.last = last.max(id);
        if id > MAX_ID {
            return Some(Fault::IdTooLarge { id });
        }
        (id <= last).then_some(Fault::IdNotRising { id, before: last })
    }
}

/// Looks at the lines of a tape.
#[derive(Debug, Default)]
struct MainCheck {
    ids: IdCheck,
    sequence: Sequence,
    refs: References,
    n_entries: u64,
}

impl MainCheck {
    fn line(&mut self, tape: &TapeName, line: &CheckedLine<'_>, verified: &mut Verified) {
        let entry = match line.read() {
            Ok(Some(entry)) => entry,
            Ok(None) => return,
            Err(fault) => return verified.add(tape, Some(line.number), fault),
        };
        self.n_entries += 1;
        if let Some(fault) = self.ids.next(entry.id) {
            verified.add(tape, Some(line.number), fault);
        }
        for flaw in self.sequence.next(line.number, &entry) {
            let (at, fault) = fault_of(flaw, line.number);
            verified.add(tape, Some(at), fault);
        }
        self.refs.note(line, &entry);
    }

    fn end(&mut self, tape: &TapeName, verified: &mut Verified) {
        for flaw in self.sequence.end() {
            let (at, fault) = fault_of(flaw, 0);
            verified.add(tape, Some(at), fault);
        }
    }
}

/// Where a flaw is reported, and as what.
fn fault_of(flaw: Flaw, line: u64) -> (u64, Fault) {
    match flaw {
        Flaw::NoResults(it) => (it.line, Fault::NoResults { id: it.id, n_calls: it.n }),
        Flaw::TooFewResults { calls, n_results } => (line, Fault::TooFewResults { n_calls: calls.n, n_results }),
        Flaw::TooManyResults { n_calls, n_results } => (line, Fault::TooManyResults { n_calls, n_results }),
        Flaw::OrphanResults { n_results } => (line, Fault::OrphanResults { n_results }),
        Flaw::NoCalls => (line, Fault::NoCalls),
        Flaw::NoHandoff(it) => (it.line, Fault::NoHandoff { name: it.name }),
        Flaw::NoAnchor { name, .. } => (line, Fault::NoAnchor { name }),
    }
}

impl References {
    /// Notes what an entry refers to.
    fn note(&mut self, line: &CheckedLine<'_>, entry: &Entry) {
        if memmem::find(line.bytes, MEDIA_SCHEME.as_bytes()).is_some() {
            for value in entry.payload.values() {
                self.note_blobs(value, line.number);
            }
        }
        if entry.kind != EntryKind::Event {
            return;
        }
        let data = |key: &str| entry.data().and_then(|it| it.get(key));
        let text = |key: &str| data(key).and_then(Value::as_str).unwrap_or_default();
        match entry.name().unwrap_or_default() {
            "spill.write" if text("status") == "ok" => {
                self.spills.insert(text("handle").to_owned(), line.number);
            }
            "sidecar.reset" if text("status") == "ok" && text("sidecar") == SPILL => self.spills.clear(),
            // What the turn spilled was lost when it ended, and the tape says so.
            "sidecar.merge" if text("status") == "error" => self.lost_spills.extend(self.spills.keys().cloned()),
            "tape.repair" => {
                let list = |key: &str| {
                    let items = data(key).and_then(Value::as_array).into_iter().flatten();
                    items.filter_map(|it| it.as_str().map(str::to_owned)).collect::<Vec<_>>()
                };
                self.lost_spills.extend(list("lost_spills"));
                self.lost_blobs.extend(list("lost_blobs"));
            }
            _ => {}
        }
    }

    fn note_blobs(&mut self, value: &Value, line: u64) {
        match value {
            Value::Object(fields) => {
                if let Some(digest) = fields.get("url").and_then(Value::as_str).and_then(digest_of) {
                    self.blobs.entry(digest.to_owned()).or_insert(line);
                }
                fields.values().for_each(|it| self.note_blobs(it, line));
            }
            Value::Array(items) => items.iter().for_each(|it| self.note_blobs(it, line)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The hexadecimal digits of `sha256:…`.
fn digest_of(url: &str) -> Option<&str> {
    let digest = url.strip_prefix(MEDIA_SCHEME)?;
    (digest.len() == 64 && digest.bytes().all(|it| it.is_ascii_hexdigit())).then_some(digest)
}

/// A spilled result, as far as its sidecar has it.
#[derive(Debug, Default)]
struct Spilled {
    /// Bytes of each chunk that is there.
    chunks: BTreeMap<u64, u64>,
    /// What the manifest says: chunks and bytes.
    manifest: Option<(u64, u64)>,
    line: u64,
}

/// Looks at the lines of a sidecar.
#[derive(Debug, Default)]
struct SidecarCheck {
    is_spill: bool,
    ids: IdCheck,
    /// The chunk that the newest anchor announces.
    announced: Option<(String, u64)>,
    spilled: BTreeMap<String, Spilled>,
}

impl SidecarCheck {
    fn line(&mut self, tape: &TapeName, line: &CheckedLine<'_>, verified: &mut Verified) {
        let entry = match line.read() {
            Ok(Some(entry)) => entry,
            Ok(None) => return,
            Err(fault) => return verified.add(tape, Some(line.number), fault),
        };
        if let Some(fault) = self.ids.next(entry.id) {
            verified.add(tape, Some(line.number), fault);
        }
        if self.is_spill {
            self.spill_entry(line.number, &entry);
        }
    }

    fn spill_entry(&mut self, line: u64, entry: &Entry) {
        match entry.kind {
            EntryKind::Anchor => {
                let chunk = entry.name().and_then(|it| it.strip_prefix("spill/")?.split_once("/chunk/"));
                self.announced = chunk.and_then(|(handle, idx)| Some((handle.to_owned(), idx.parse().ok()?)));
                if let Some((handle, _)) = &self.announced {
                    self.spilled.entry(handle.clone()).or_insert_with(|| Spilled { line, ..Spilled::default() });
                }
            }
            EntryKind::ToolResult => {
                let text = entry.payload.get("results").and_then(|it| it.get(0)).and_then(Value::as_str);
                if let (Some((handle, idx)), Some(text)) = (self.announced.take(), text) {
                    let spilled = self.spilled.entry(handle).or_default();
                    spilled.chunks.insert(idx, text.len() as u64);
                }
            }
            EntryKind::Event if entry.name() == Some("spill.manifest") => {
                let number = |key: &str| entry.data().and_then(|it| it.get(key)?.as_u64());
                let handle = entry.data().and_then(|it| it.get("handle")?.as_str()).unwrap_or_default();
                let spilled = self.spilled.entry(handle.to_owned()).or_default();
                spilled.manifest = number("chunks").zip(number("bytes"));
                spilled.line = line;
            }
            _ => {}
        }
    }

    /// Compares what is there with what the tape tells of.
    fn end(&self, main: &TapeName, sidecar: &TapeName, refs: &References, verified: &mut Verified) {
        for (handle, spilled) in &self.spilled {
            let is_known = refs.lost_spills.contains(handle);
            if let Some(reason) = spilled.damage() {
                let handle = handle.clone();
                verified.add(sidecar, Some(spilled.line), Fault::SpillDamaged { handle, reason, is_known });
            } else if spilled.manifest.is_none() && !refs.spills.contains_key(handle) {
                verified.add(sidecar, Some(spilled.line), Fault::SpillUnfinished { handle: handle.clone() });
            }
        }
        for (handle, line) in &refs.spills {
            if self.spilled.get(handle).is_none_or(|it| it.manifest.is_none()) {
                let is_known = refs.lost_spills.contains(handle);
                // The line is one of the tape, which tells of what its sidecar lacks.
                let fault = Fault::SpillMissing { handle: handle.clone(), is_known };
                verified.add(main, Some(*line), fault);
            }
        }
    }
}

impl Spilled {
    /// What a reader of it would stumble over.
    fn damage(&self) -> Option<String> {
        let (n_chunks, n_bytes) = self.manifest?;
        let missing = (0..n_chunks).find(|it| !self.chunks.contains_key(it));
        if let Some(idx) = missing {
            return Some(format!("chunk {idx} of {n_chunks} is missing"));
        }
        let found: u64 = self.chunks.range(..n_chunks).map(|it| it.1).sum();
        (found != n_bytes).then(|| format!("it has {found} bytes, its manifest says {n_bytes}"))
    }
}
