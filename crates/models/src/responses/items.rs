//! The items of an answer, told apart.
//!
//! Each event names its item by a number and an id. Servers disagree here as well: some leave one of
//! them out, some give an item another id in every event, some number all items 0.

use std::collections::HashMap;

use bub_kernel::model::ModelError;
use serde_json::Value;

use crate::draft::Place;

/// The most items of one answer.
const MAX_ITEMS: usize = 4096;

/// What an item is, as far as its pieces are read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum ItemKind {
    Message,
    Call,
    Reasoning,
    /// A call of one of the provider's own tools, or what else it may send.
    Other,
}

impl ItemKind {
    pub(super) fn of(item: &Value) -> Self {
        match field(item, "type") {
            Some("message") => Self::Message,
            Some("function_call") => Self::Call,
            Some("reasoning") => Self::Reasoning,
            _ => Self::Other,
        }
    }
}

/// How an event names its item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
}

/// What is known of an item.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    /// Where it began.
    pub(super) place: Place,
    /// Whether more than a delta has told of it.
    is_announced: bool,
    pub(super) is_done: bool,
    pub(super) has_text: bool,
    pub(super) has_refusal: bool,
    pub(super) has_citations: bool,
    /// Whether a message's id and phase are noted, or a call has been told.
    pub(super) is_told: bool,
    /// A message's phase.
    pub(super) phase: Option<Value>,
    /// Words of a message that wait for the end of an earlier one.
    pub(super) held: String,
    /// Arguments of a call whose name has not come yet.
    pub(super) waiting: String,
}

impl Item {
    /// Whether it may be the call of that id.
    fn may_be(&self, kind: ItemKind, call_id: Option<&str>) -> bool {
        let same_call = match (self.call_id.as_deref(), call_id) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        self.kind == kind && same_call
    }
}

/// The items so far, in the order in which they were opened.
#[derive(Debug, Default)]
pub(super) struct Items {
    all: Vec<Item>,
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
}

impl Items {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Item> {
        self.all.get_mut(at)
    }

    pub(super) fn count(&self, kind: ItemKind) -> usize {
        self.all.iter().filter(|it| it.kind == kind).count()
    }

    /// The item that a delta belongs to; it is opened when there is none.
    pub(super) fn of_delta(&mut self, kind: ItemKind, key: Key<'_>, place: Place) -> Result<usize, ModelError> {
        let found = self.known(key).filter(|at| self.all.get(*at).is_some_and(|it| it.kind == kind));
        let found = found.or_else(|| if self.is_unseen(key) { None } else { self.last_open(kind, None) });
        found.map_or_else(|| self.open(kind, key, place), Ok)
    }

    /// The item that an event opens.
    pub(super) fn of_added(&mut self, item: &Value, key: Key<'_>, place: Place) -> Result<usize, ModelError> {
        let (kind, call_id) = (ItemKind::of(item), field(item, "call_id"));
        let at = self.known(key).filter(|at| {
            self.all.get(*at).is_some_and(|it| {
                let same_id = it.id.is_none() || key.id.is_none() || it.id.as_deref() == key.id;
                it.may_be(kind, call_id) && !it.is_done && (same_id || !it.is_announced)
            })
        });
        let at = at.map_or_else(|| self.open(kind, key, place), Ok)?;
        self.announce(at, item, key);
        Ok(at)
    }

    /// The item that an event completes; it may be done already.
    pub(super) fn of_done(&mut self, item: &Value, key: Key<'_>, place: Place) -> Result<usize, ModelError> {
        let (kind, call_id) = (ItemKind::of(item), field(item, "call_id"));
        let known = self.known(key).filter(|at| {
            self.all.get(*at).is_some_and(|it| it.may_be(kind, call_id) && (!it.is_done || it.id.as_deref() == key.id))
        });
        let found = known.or_else(|| if self.is_unseen(key) { None } else { self.last_open(kind, call_id) });
        let at = found.map_or_else(|| self.open(kind, key, place), Ok)?;
        self.announce(at, item, key);
        Ok(at)
    }

    /// An item of the whole answer, if its events came.
    pub(super) fn seen(&self, item: &Value, key: Key<'_>) -> Option<usize> {
        let (kind, call_id) = (ItemKind::of(item), field(item, "call_id"));
        let same_call = |it: &Item| call_id.is_some() && it.call_id.as_deref() == call_id;
        self.known(key)
            .filter(|at| self.all.get(*at).is_some_and(|it| it.may_be(kind, call_id)))
            .or_else(|| self.all.iter().position(same_call))
    }

    fn announce(&mut self, at: usize, item: &Value, key: Key<'_>) {
        let Some(known) = self.all.get_mut(at) else { return };
        known.is_announced = true;
        if let Some(id) = key.id {
            known.id = Some(id.to_owned());
            self.by_id.insert(id.to_owned(), at);
        }
        if let Some(call_id) = field(item, "call_id") {
            known.call_id = Some(call_id.to_owned());
        }
        if let Some(phase) = item.get("phase").filter(|it| !it.is_null()) {
            known.phase = Some(phase.clone());
        }
    }

    fn known(&self, key: Key<'_>) -> Option<usize> {
        let by_index = key.index.and_then(|it| self.by_index.get(&it)).copied();
        let by_id = key.id.and_then(|it| self.by_id.get(it)).copied();
        match (by_index, by_id) {
            // All have the same number.
            (Some(at), Some(other)) if self.all.get(at).is_some_and(|it| it.id.as_deref() != key.id) => Some(other),
            (at, other) => at.or(other),
        }
    }

    /// Whether the server numbers its items, and none had this number.
    fn is_unseen(&self, key: Key<'_>) -> bool {
        key.index.is_some_and(|it| !self.by_index.contains_key(&it))
    }

    fn last_open(&self, kind: ItemKind, call_id: Option<&str>) -> Option<usize> {
        self.all.iter().rposition(|it| it.may_be(kind, call_id) && !it.is_done)
    }

    fn open(&mut self, kind: ItemKind, key: Key<'_>, place: Place) -> Result<usize, ModelError> {
        let at = self.all.len();
        if at >= MAX_ITEMS {
            return Err(ModelError::Protocol(format!("more than {MAX_ITEMS} items in one answer")));
        }
        match key.index {
            Some(index) => drop(self.by_index.insert(index, at)),
            // They are numbered in the order in which they are opened.
            None => drop(self.by_index.entry(at as u64).or_insert(at)),
        }
        if let Some(id) = key.id {
            self.by_id.insert(id.to_owned(), at);
        }
        self.all.push(Item {
            kind,
            id: key.id.map(str::to_owned),
            call_id: None,
            place,
            is_announced: false,
            is_done: false,
            has_text: false,
            has_refusal: false,
            has_citations: false,
            is_told: false,
            phase: None,
            held: String::new(),
            waiting: String::new(),
        });
        Ok(at)
    }
}

/// A field that is text and not empty.
pub(super) fn field<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.get(key).and_then(Value::as_str).filter(|it| !it.is_empty())
}
