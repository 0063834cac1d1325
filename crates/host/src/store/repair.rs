//! Mending a tape: a new file in the place of the damaged one, which is kept.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::PoisonError,
};

use bub_kernel::{
    clock::{FixedClock, stamp},
    tape::{Entry, NewEntry, TapeError, TapeName, trim_line},
    text,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Inner, JsonlStore, failed,
    fault::Fault,
    lines::{Forward, Limits},
    sequence::{Flaw, OpenCalls, Sequence},
    verify::{MAX_ID, Verified, salvage},
    writer::open_locked,
};

/// Copies of damaged tapes that one second can have.
const MAX_PER_SECOND: usize = 1_000;
/// What a call is answered with when its result was lost.
const INTERRUPTED: &str = "interrupted: this call has no recorded result";

/// What mending one file did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Repaired {
    /// The file as it was; none when nothing had to be done.
    pub original: Option<PathBuf>,
    /// Lines that were no entries.
    pub lines_dropped: u64,
    /// Entries that were found inside such lines.
    pub entries_found: u64,
    /// Entries that have another id now.
    pub entries_numbered: u64,
    /// Results that say that a call was interrupted.
    pub results_added: u64,
    /// Results that are kept outside of what models see, since there is no call.
    pub results_set_aside: u64,
    /// Anchors and events of anchors that were added.
    pub anchors_added: u64,
    /// Spilled results and blobs whose loss is on the tape now.
    pub losses_recorded: u64,
}

impl Repaired {
    /// Whether the file was replaced.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.original.is_some()
    }
}

impl JsonlStore {
    /// Mends what [`verify`](Self::verify) found on a tape and its sidecars. Every entry that can be
    /// read stays, in its order; lines that are none go, ids are made to rise, and what is missing of a
    /// pair is added. Each damaged file is kept beside the new one under another name.
    ///
    /// The caller keeps turns of the session away; other writers wait for the file's lock. Blocks the
    /// calling thread.
    ///
    /// # Errors
    /// When a file can't be read or written; it is as it was then.
    pub fn repair(
        &self,
        tape: &TapeName,
        found: &Verified,
        now: Timestamp,
    ) -> Result<Vec<(TapeName, Repaired)>, TapeError> {
        let mut done = Vec::new();
        for sidecar in self.inner.sidecars(tape)? {
            done.push((sidecar.clone(), self.inner.repair(&sidecar, None, now)?));
        }
        done.push((tape.clone(), self.inner.repair(tape, Some(&losses(found)), now)?));
        Ok(done)
    }
}

/// What is gone for good.
#[derive(Debug, Default)]
struct Losses {
    spills: Vec<String>,
    blobs: Vec<String>,
}

fn losses(found: &Verified) -> Losses {
    let mut losses = Losses::default();
    for it in found.findings.iter().filter(|it| it.fault.is_error()) {
        match &it.fault {
            Fault::SpillMissing { handle, .. } | Fault::SpillDamaged { handle, .. } => {
                losses.spills.push(handle.clone());
            }
            Fault::BlobMissing { digest, .. } => losses.blobs.push(digest.clone()),
            _ => {}
        }
    }
    losses
}

impl Inner {
    /// Mends one file. `losses` are those of a session's tape; sidecars have no order to keep.
    fn repair(&self, tape: &TapeName, losses: Option<&Losses>, now: Timestamp) -> Result<Repaired, TapeError> {
        let path = self.path(tape);
        let repair = || -> io::Result<Repaired> {
            if !path.is_file() {
                return Ok(Repaired::default());
            }
            let (locked, _) = open_locked(&path)?;
            let plan = |is_anew| Plan { is_anew, has_order: losses.is_some(), now };
            let mut written = self.write_mended(tape, &locked, plan(false))?;
            if written.mender.is_out_of_ids {
                written = self.write_mended(tape, &locked, plan(true))?;
            }
            let Written { mut file, mender } = written;
            let Mender { mut repaired, last_id, .. } = mender;
            let n_lost = losses.map_or(0, |it| it.spills.len() + it.blobs.len());
            if repaired == Repaired::default() && n_lost == 0 {
                return Ok(repaired);
            }
            repaired.losses_recorded = n_lost as u64;
            let original = keep_original(&self.dir, tape, &path, now)?;
            if let Some(losses) = losses {
                let event = repair_event(&repaired, &original, losses).dated(&FixedClock(now));
                writeln!(file, "{}", event.to_numbered_line(last_id.saturating_add(1)))?;
            }
            file.as_file().sync_data()?;
            file.persist(&path).map_err(|err| err.error)?;
            self.sync_dir()?;
            repaired.original = Some(original);
            Ok(repaired)
        };
        let repaired = repair().map_err(|err| failed(tape.as_str(), "repair", &path, err))?;
        self.forget(tape);
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).remove(tape);
        Ok(repaired)
    }

    /// Writes the mended tape to a file of no name yet.
    fn write_mended(&self, tape: &TapeName, locked: &File, plan: Plan) -> io::Result<Written> {
        let prefix = format!(".{tape}.");
        let file = tempfile::Builder::new().prefix(&prefix).suffix(".tmp").tempfile_in(&self.dir)?;
        let len = locked.metadata()?.len();
        let mut out = BufWriter::new(file);
        let mut mender = Mender::new(plan);
        let mut lines = Forward::new(locked, 0..len, None, Limits::default());
        let mut number = 0;
        while let Some(line) = lines.next()? {
            number += 1;
            if line.is_too_long {
                // It may be an entry for a program that reads longer ones.
                copy_range(locked, line.start, line.next, &mut out)?;
                if !line.is_ended {
                    out.write_all(b"\n")?;
                }
                continue;
            }
            mender.line(number, line.bytes, &mut out)?;
        }
        mender.end(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Written { file, mender })
    }
}

struct Written {
    file: tempfile::NamedTempFile,
    mender: Mender,
}

/// How to mend.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Whether ids start at 1, whatever they were.
    is_anew: bool,
    /// Whether calls, results and anchors have to be in order.
    has_order: bool,
    /// When what is added was made.
    now: Timestamp,
}

/// Takes the lines of a tape and writes those of the mended one.
#[derive(Debug)]
struct Mender {
    plan: Plan,
    sequence: Sequence,
    last_id: u64,
    repaired: Repaired,
    /// Whether there was no id left; then all are to be given anew.
    is_out_of_ids: bool,
}

impl Mender {
    fn new(plan: Plan) -> Self {
        let (sequence, repaired) = (Sequence::default(), Repaired::default());
        Self { plan, sequence, last_id: 0, repaired, is_out_of_ids: false }
    }

    fn line(&mut self, number: u64, line: &[u8], out: &mut impl Write) -> io::Result<()> {
        if line.iter().all(|it| matches!(it, b' ' | b'\t' | b'\r')) {
            return Ok(());
        }
        let trimmed = trim_line(line);
        if let Some(entry) = Entry::from_line(line) {
            return self.entry(number, entry, Some(trimmed), out);
        }
        self.repaired.lines_dropped += 1;
        for entry in salvage(line) {
            self.repaired.entries_found += 1;
            self.entry(number, entry, None, out)?;
        }
        Ok(())
    }

    /// Writes an entry, and what is missing before it. `line` is what it was read from, if that can stay.
    fn entry(
        &mut self,
        number: u64,
        mut entry: Entry,
        mut line: Option<&[u8]>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let flaws = if self.plan.has_order { self.sequence.next(number, &entry) } else { Vec::new() };
        for flaw in flaws {
            match flaw {
                Flaw::TooFewResults { calls, .. } => {
                    let results = entry.payload.entry("results").or_insert_with(|| json!([]));
                    if !results.is_array() {
                        let odd = std::mem::take(results);
                        *results = if odd.is_null() { json!([]) } else { json!([odd]) };
                    }
                    if let Some(results) = results.as_array_mut() {
                        let missing = calls.n.saturating_sub(results.len());
                        self.repaired.results_added += missing as u64;
                        results.extend(std::iter::repeat_n(Value::from(INTERRUPTED), missing));
                    }
                    line = None;
                }
                Flaw::OrphanResults { n_results } => {
                    self.repaired.results_set_aside += n_results as u64;
                    entry.meta.insert("context".into(), false.into());
                    line = None;
                }
                flaw => self.missing(flaw, out)?,
            }
        }
        let id = self.next_id(entry.id);
        if id == entry.id
            && let Some(line) = line
        {
            out.write_all(line)?;
            return out.write_all(b"\n");
        }
        self.repaired.entries_numbered += u64::from(id != entry.id);
        match line.and_then(|it| renumbered(it, id)) {
            Some(line) => out.write_all(&line)?,
            None => out.write_all(entry.to_numbered_line(id).as_bytes())?,
        }
        out.write_all(b"\n")
    }

    /// Writes what is missing at the end.
    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        let flaws = if self.plan.has_order { self.sequence.end() } else { Vec::new() };
        flaws.into_iter().try_for_each(|flaw| self.missing(flaw, out))
    }

    /// Writes what a flaw says is missing.
    fn missing(&mut self, flaw: Flaw, out: &mut impl Write) -> io::Result<()> {
        let entry = match flaw {
            Flaw::NoResults(OpenCalls { n, run, .. }) => {
                self.repaired.results_added += n as u64;
                let results = NewEntry::tool_result(vec![Value::from(INTERRUPTED); n]);
                match run {
                    Some(run) => results.with_meta("run_id", run),
                    None => results,
                }
            }
            Flaw::NoHandoff(anchor) => {
                self.repaired.anchors_added += 1;
                NewEntry::event("handoff", json!({"name": anchor.name, "state": anchor.state}))
            }
            Flaw::NoAnchor { name, state } => {
                self.repaired.anchors_added += 1;
                NewEntry::anchor(&name, state)
            }
            // Nothing is missing.
            Flaw::TooFewResults { .. } | Flaw::TooManyResults { .. } | Flaw::OrphanResults { .. } | Flaw::NoCalls => {
                return Ok(());
            }
        };
        let id = self.next_id(0);
        let entry = entry.dated(&FixedClock(self.plan.now));
        writeln!(out, "{}", entry.to_numbered_line(id))
    }

    /// The id that an entry gets: its own, if that comes after the one before.
    fn next_id(&mut self, own: u64) -> u64 {
        let is_good = own > self.last_id && own <= MAX_ID && !self.plan.is_anew;
        self.last_id = if is_good { own } else { self.last_id + 1 };
        // Room for the event of the repair stays.
        self.is_out_of_ids |= self.last_id >= MAX_ID && !self.plan.is_anew;
        self.last_id
    }
}

/// A line with another id, everything else as it was.
fn renumbered(line: &[u8], id: u64) -> Option<Vec<u8>> {
    const START: &[u8] = b"{\"id\": ";
    let rest = line.strip_prefix(START)?;
    let n_digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    let rest = rest.get(n_digits..)?;
    // A later `"id"` would count instead of this one.
    let new = [START, id.to_string().as_bytes(), rest].concat();
    if Entry::from_line(&new).is_some_and(|it| it.id == id) {
        return Some(new);
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
    fields.insert("id".into(), id.into());
    Some(text::json(&fields).into_bytes())
}

/// What the tape says about its repair.
fn repair_event(repaired: &Repaired, original: &Path, losses: &Losses) -> NewEntry {
    let name = original.file_name().unwrap_or_default().to_string_lossy();
    let data = json!({
        "original": name,
        "lines_dropped": repaired.lines_dropped,
        "entries_found": repaired.entries_found,
        "entries_numbered": repaired.entries_numbered,
        "results_added": repaired.results_added,
        "results_set_aside": repaired.results_set_aside,
        "anchors_added": repaired.anchors_added,
        "lost_spills": losses.spills,
        "lost_blobs": losses.blobs,
    });
    NewEntry::event("tape.repair", data).outside_context()
}

/// Gives the damaged file a second name, which stays when the mended one takes the first.
fn keep_original(dir: &Path, tape: &TapeName, path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let stamp = stamp(now);
    for n in 1..=MAX_PER_SECOND {
        let suffix = if n == 1 { String::new() } else { format!("-{n}") };
        let kept = dir.join(format!("{tape}.jsonl.{stamp}{suffix}.damaged.bak"));
        match fs::hard_link(path, &kept) {
            Ok(()) => return Ok(kept),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            // Not every file system has second names.
            Err(_) if !kept.exists() => {
                fs::copy(path, &kept)?;
                File::open(&kept)?.sync_all()?;
                return Ok(kept);
            }
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other("too many repairs in one second"))
}

fn copy_range(file: &File, start: u64, end: u64, out: &mut impl Write) -> io::Result<()> {
    let mut file = file;
    file.seek(SeekFrom::Start(start))?;
    io::copy(&mut file.take(end - start), out)?;
    Ok(())
}

/// Mends lines in memory.
#[cfg(test)]
fn mend(text: &[u8]) -> (Vec<u8>, Repaired) {
    let run = |is_anew| {
        let plan = Plan { is_anew, has_order: true, now: Timestamp::UNIX_EPOCH };
        let mut mender = Mender::new(plan);
        let mut out = Vec::new();
        for (idx, line) in text.split(|it| *it == b'\n').enumerate() {
            mender.line(idx as u64 + 1, line, &mut out).unwrap();
        }
        mender.end(&mut out).unwrap();
        (out, mender)
    };
    let (mut out, mut mender) = run(false);
    if mender.is_out_of_ids {
        (out, mender) = run(true);
    }
    (out, mender.repaired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u64) -> String {
        format!(
            r#"{{"id": {id}, "kind": "message", "payload": {{"role": "user", "content": "m{id}"}}, "meta": {{}}, "date": "d"}}"#
        )
    }

    fn check(lines: &[&str], expected: &[&str]) {
        let (out, _) = mend(lines.join("\n").as_bytes());
        assert_eq!(String::from_utf8(out).unwrap().lines().collect::<Vec<_>>(), expected, "{lines:?}");
    }

    #[test]
    fn whole_tapes_stay_as_they_are_to_the_byte() {
        let odd = r#"{"date": "x", "kind":"weird", "id":7,"payload":{"n":1.50}, "more": [1]}"#;
        let (out, repaired) = mend(format!("{}\n{odd}\n", message(1)).as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), format!("{}\n{odd}\n", message(1)));
        assert_eq!(repaired, Repaired::default());
    }

    #[test]
    fn lines_that_are_no_entries_go_and_what_is_whole_inside_of_them_stays() {
        let (a, b, c) = (message(1), message(2), message(3));
        let joined = format!("{b}{c}");
        let torn = format!(r#"{{"id": 9, "kind": "mess{b}"#);
        check(&[&a, "", "broken", "\0\0", &joined], &[&a, &b, &c]);
        check(&[&a, &torn, r#"{"id": 9, "kind": "message", "payl"#], &[&a, &b]);
        let nul = format!("\0\0{b}");
        check(&[&a, &nul], &[&a, &b]);
    }

    #[test]
    fn ids_rise_and_stay_where_they_can() {
        let ids = |ids: &[u64]| {
            let lines: Vec<_> = ids.iter().map(|it| message(*it)).collect();
            let (out, _) = mend(lines.join("\n").as_bytes());
            let text = String::from_utf8(out).unwrap();
            text.lines().map(|it| Entry::from_line(it.as_bytes()).unwrap().id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[1, 2, 2, 3, 9]), [1, 2, 3, 4, 9]);
        assert_eq!(ids(&[1, 2, 1, 2, 3]), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&[0, 5]), [1, 5]);
        assert_eq!(ids(&[1, u64::MAX, 3]), [1, 2, 3]);
        assert_eq!(ids(&[1, MAX_ID, 3]), [1, 2, 3]);
    }

    #[test]
    fn a_new_number_changes_nothing_else_in_a_line() {
        for (line, expected) in [
            (r#"{"id": 5, "kind": "x", "payload": {"n": 1.50}}"#, r#"{"id": 8, "kind": "x", "payload": {"n": 1.50}}"#),
            (
                r#"{"kind": "x", "id":5, "payload": {}, "more": 1}"#,
                r#"{"kind": "x", "id": 8, "payload": {}, "more": 1}"#,
            ),
            (r#"{"id": 5, "kind": "x", "payload": {}, "id": 6}"#, r#"{"id": 8, "kind": "x", "payload": {}}"#),
        ] {
            let new = renumbered(line.as_bytes(), 8).or_else(|| {
                let entry = Entry::from_line(line.as_bytes()).unwrap();
                Some(entry.to_numbered_line(8).into_bytes())
            });
            let new = String::from_utf8(new.unwrap()).unwrap();
            let same = |it: &str| Entry::from_line(it.as_bytes()).unwrap();
            assert_eq!(same(&new), same(expected), "{line}");
        }
    }
}
