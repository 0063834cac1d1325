//! What must follow what on a tape: results their calls, a handoff its anchor.

use bub_kernel::{
    message::ToolCallRequest,
    tape::{Entry, EntryKind},
};
use serde_json::Value;

/// Something that is not in its order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Flaw {
    /// Calls that nothing answers; the answer belongs before the entry that is looked at.
    NoResults(OpenCalls),
    /// The entry answers fewer calls than were made.
    TooFewResults { calls: OpenCalls, n_results: usize },
    /// The entry has more results than calls were made.
    TooManyResults { n_calls: usize, n_results: usize },
    /// The entry has results, and there are no calls.
    OrphanResults { n_results: usize },
    /// The entry says that there are calls, and has none that can be read.
    NoCalls,
    /// An anchor without its event; that belongs before the entry that is looked at.
    NoHandoff(SetAnchor),
    /// The entry is the event of an anchor that is not there; that belongs before it.
    NoAnchor { name: String, state: Value },
}

/// Calls that wait for their results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpenCalls {
    pub(super) line: u64,
    pub(super) id: u64,
    pub(super) n: usize,
    pub(super) run: Option<Value>,
}

/// An anchor whose event has not come yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetAnchor {
    pub(super) line: u64,
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) state: Value,
}

/// Looks at the entries of a tape, one by one.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    calls: Option<OpenCalls>,
    anchor: Option<SetAnchor>,
}

impl Sequence {
    /// Looks at the next entry. What belongs before it comes first.
    pub(super) fn next(&mut self, line: u64, entry: &Entry) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        self.check_anchor(entry, &mut flaws);
        if entry.is_anchor(None) {
            let state = entry.payload.get("state").cloned().unwrap_or_default();
            self.anchor = Some(SetAnchor { line, id: entry.id, name: name_of(entry), state });
        }
        // Entries that no model sees need not fit what it sees.
        if entry.meta.get("context") == Some(&Value::Bool(false)) {
            return flaws;
        }
        match entry.kind {
            EntryKind::ToolCall => {
                flaws.extend(self.calls.take().filter(|it| it.n > 0).map(Flaw::NoResults));
                let calls = list(entry, "calls");
                let n = calls.iter().filter(|it| ToolCallRequest::from_value(it).is_some()).count();
                if n == 0 {
                    flaws.push(Flaw::NoCalls);
                }
                self.calls = Some(OpenCalls { line, id: entry.id, n, run: entry.meta.get("run_id").cloned() });
            }
            EntryKind::ToolResult => {
                let n_results = list(entry, "results").len();
                match self.calls.take() {
                    // Without a result there is nothing that could be sent without its call.
                    None if n_results == 0 => {}
                    None => flaws.push(Flaw::OrphanResults { n_results }),
                    Some(calls) if n_results < calls.n => flaws.push(Flaw::TooFewResults { calls, n_results }),
                    Some(calls) if n_results > calls.n => {
                        flaws.push(Flaw::TooManyResults { n_calls: calls.n, n_results });
                    }
                    Some(_) => {}
                }
            }
            EntryKind::Message => flaws.extend(self.calls.take().filter(|it| it.n > 0).map(Flaw::NoResults)),
            _ => {}
        }
        flaws
    }

    /// Says what is missing at the tape's end.
    pub(super) fn end(&mut self) -> Vec<Flaw> {
        let anchor = self.anchor.take().map(Flaw::NoHandoff);
        let calls = self.calls.take().filter(|it| it.n > 0).map(Flaw::NoResults);
        anchor.into_iter().chain(calls).collect()
    }

    /// Whether the tape could end here.
    pub(super) fn is_closed(&self) -> bool {
        self.anchor.is_none() && self.calls.as_ref().is_none_or(|it| it.n == 0)
    }

    /// Whether only the event of an anchor is missing.
    pub(super) fn waits_for_handoff(&self) -> bool {
        self.anchor.is_some() && self.calls.as_ref().is_none_or(|it| it.n == 0)
    }

    fn check_anchor(&mut self, entry: &Entry, flaws: &mut Vec<Flaw>) {
        let anchor = self.anchor.take();
        if entry.kind != EntryKind::Event || entry.name() != Some("handoff") {
            flaws.extend(anchor.map(Flaw::NoHandoff));
            return;
        }
        let data = entry.data().cloned().unwrap_or_default();
        let name = data.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        match anchor {
            Some(it) if it.name == name => {}
            other => {
                flaws.extend(other.map(Flaw::NoHandoff));
                flaws.push(Flaw::NoAnchor { name, state: data.get("state").cloned().unwrap_or_default() });
            }
        }
    }
}

fn name_of(entry: &Entry) -> String {
    entry.name().unwrap_or_default().to_owned()
}

fn list<'a>(entry: &'a Entry, key: &str) -> &'a [Value] {
    entry.payload.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The flaws of a tape of such entries, by name, and after which entries it could end.
    fn check(entries: Value, flaws: &[&str], closed: &[usize]) {
        let mut sequence = Sequence::default();
        let mut found = Vec::new();
        let mut ends = Vec::new();
        for (idx, it) in entries.as_array().unwrap().iter().enumerate() {
            let line = json!({"id": idx + 1, "kind": it[0], "payload": it[1], "meta": it[2]});
            let entry = Entry::from_line(line.to_string().as_bytes()).unwrap();
            let flaws = sequence.next(entry.id, &entry);
            found.extend(flaws.iter().map(|it| format!("{} {}", idx + 1, name(it))));
            if sequence.is_closed() {
                ends.push(idx + 1);
            }
        }
        found.extend(sequence.end().iter().map(|it| format!("end {}", name(it))));
        assert_eq!(found, flaws, "{entries}");
        assert_eq!(ends, closed, "{entries}");
    }

    fn name(flaw: &Flaw) -> String {
        let text = format!("{flaw:?}");
        text.split([' ', '(']).next().unwrap().to_owned()
    }

    fn calls(n: usize) -> Value {
        let calls: Vec<_> =
            (0..n).map(|it| json!({"id": format!("c{it}"), "name": "bash", "arguments": "{}"})).collect();
        json!(["tool_call", {"calls": calls}, {}])
    }

    fn results(n: usize) -> Value {
        json!(["tool_result", {"results": vec!["r"; n]}, {}])
    }

    #[test]
    fn calls_want_their_results() {
        let event = json!(["event", {"name": "spill.write", "data": {}}, {}]);
        let message = json!(["message", {"role": "user", "content": "hi"}, {}]);
        check(json!([message, calls(2), event, results(2), message]), &[], &[1, 4, 5]);
        check(json!([calls(1), message, results(1)]), &["2 NoResults", "3 OrphanResults"], &[2, 3]);
        check(json!([calls(1), calls(1), results(1)]), &["2 NoResults"], &[3]);
        check(json!([calls(2)]), &["end NoResults"], &[]);
        check(json!([calls(2), results(1)]), &["2 TooFewResults"], &[2]);
        check(json!([calls(1), results(2)]), &["2 TooManyResults"], &[2]);
        check(json!([calls(0), results(1)]), &["1 NoCalls", "2 TooManyResults"], &[1, 2]);
        check(json!([["tool_result", {"results": ["x"]}, {"context": false}]]), &[], &[1]);
    }

    #[test]
    fn anchors_want_their_handoffs() {
        let anchor = |name: &str| json!(["anchor", {"name": name, "state": {}}, {}]);
        let handoff = |name: &str| json!(["event", {"name": "handoff", "data": {"name": name, "state": {}}}, {}]);
        let system = json!(["system", {"content": "x"}, {}]);
        check(json!([anchor("a"), handoff("a"), system]), &[], &[2, 3]);
        check(json!([anchor("a"), system]), &["2 NoHandoff"], &[2]);
        check(json!([anchor("a")]), &["end NoHandoff"], &[]);
        check(json!([handoff("a")]), &["1 NoAnchor"], &[1]);
        check(json!([anchor("a"), handoff("b")]), &["2 NoHandoff", "2 NoAnchor"], &[2]);
        check(json!([anchor("a"), anchor("b"), handoff("b")]), &["2 NoHandoff"], &[3]);
    }
}
