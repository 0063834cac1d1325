//! What can be wrong with a tape, in words.

use std::path::PathBuf;

use bub_kernel::tape::TapeName;

/// Something that looking at a tape found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// On which tape or sidecar.
    pub tape: TapeName,
    /// In which line of its file, from 1.
    pub line: Option<u64>,
    /// What it is.
    pub fault: Fault,
}

/// What is wrong or odd, as a sentence.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A line that is no entry.
    #[error("{}", no_entry(*bytes, *is_empty, *n_inside))]
    NoEntry {
        /// How long it is.
        bytes: u64,
        /// Whether there is nothing but NUL bytes and blanks.
        is_empty: bool,
        /// Whole entries inside of it.
        n_inside: usize,
    },
    /// A line that is longer than what is read.
    #[error("the line has {bytes} bytes; lines of more than {max} are passed over")]
    TooLong {
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        max: u64,
    },
    /// An id that is not larger than those before.
    #[error("id {id} does not come after id {before}")]
    IdNotRising {
        /// The id.
        id: u64,
        /// The largest before it.
        before: u64,
    },
    /// An id that other programs can't count to.
    #[error("id {id} is too large")]
    IdTooLarge {
        /// The id.
        id: u64,
    },
    /// Calls that nothing answers.
    #[error("{} of entry {id} {} no result", calls(*n_calls), have(*n_calls))]
    NoResults {
        /// The entry with the calls.
        id: u64,
        /// How many calls.
        n_calls: usize,
    },
    /// Fewer results than calls.
    #[error("{} for {}", results(*n_results), calls(*n_calls))]
    TooFewResults {
        /// How many calls.
        n_calls: usize,
        /// How many results.
        n_results: usize,
    },
    /// More results than calls.
    #[error("{} for {}; those that are too many reach no model", results(*n_results), calls(*n_calls))]
    TooManyResults {
        /// How many calls.
        n_calls: usize,
        /// How many results.
        n_results: usize,
    },
    /// Results without calls.
    #[error("{} without a call before", results(*n_results))]
    OrphanResults {
        /// How many.
        n_results: usize,
    },
    /// Calls that can't be read.
    #[error("no call of this entry can be read; it reaches no model")]
    NoCalls,
    /// An anchor without its event.
    #[error("the event 'handoff' of anchor '{name}' is missing")]
    NoHandoff {
        /// The anchor.
        name: String,
    },
    /// The event of an anchor that is not there.
    #[error("the anchor '{name}' of this event is missing")]
    NoAnchor {
        /// The anchor.
        name: String,
    },
    /// A spilled result that the sidecar does not have.
    #[error("the spilled result {handle} is not in the sidecar{}", known(*is_known))]
    SpillMissing {
        /// Which.
        handle: String,
        /// Whether the tape tells of the loss.
        is_known: bool,
    },
    /// A spilled result that is not whole.
    #[error("the spilled result {handle} is damaged: {reason}{}", known(*is_known))]
    SpillDamaged {
        /// Which.
        handle: String,
        /// How.
        reason: String,
        /// Whether the tape tells of the loss.
        is_known: bool,
    },
    /// A spilled result that was begun and not ended.
    #[error("the spilled result {handle} was not written to its end; nothing refers to it")]
    SpillUnfinished {
        /// Which.
        handle: String,
    },
    /// A blob that is not there.
    #[error("the blob sha256:{digest} is missing{}", known(*is_known))]
    BlobMissing {
        /// Which.
        digest: String,
        /// Whether the tape tells of the loss.
        is_known: bool,
    },
    /// The journal of a dead process.
    #[error("a process died in a turn and left its journal: {}", path.display())]
    JournalLeft {
        /// Where it is.
        path: PathBuf,
    },
}

impl Fault {
    /// A stable name, for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoEntry { .. } => "no_entry",
            Self::TooLong { .. } => "too_long",
            Self::IdNotRising { .. } => "id_not_rising",
            Self::IdTooLarge { .. } => "id_too_large",
            Self::NoResults { .. } => "no_results",
            Self::TooFewResults { .. } => "too_few_results",
            Self::TooManyResults { .. } => "too_many_results",
            Self::OrphanResults { .. } => "orphan_results",
            Self::NoCalls => "no_calls",
            Self::NoHandoff { .. } => "no_handoff",
            Self::NoAnchor { .. } => "no_anchor",
            Self::SpillMissing { .. } => "spill_missing",
            Self::SpillDamaged { .. } => "spill_damaged",
            Self::SpillUnfinished { .. } => "spill_unfinished",
            Self::BlobMissing { .. } => "blob_missing",
            Self::JournalLeft { .. } => "journal_left",
        }
    }

    /// Whether this is an error; if not, it is only a remark.
    #[must_use]
    pub fn is_error(&self) -> bool {
        match self {
            Self::TooManyResults { .. } | Self::NoCalls | Self::SpillUnfinished { .. } => false,
            Self::SpillMissing { is_known, .. }
            | Self::SpillDamaged { is_known, .. }
            | Self::BlobMissing { is_known, .. } => !is_known,
            _ => true,
        }
    }

    /// Whether a repair does something about it.
    #[must_use]
    pub fn is_mendable(&self) -> bool {
        self.is_error() && !matches!(self, Self::TooLong { .. })
    }

    /// What a repair does about it, or what else can be done.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoEntry { n_inside: 0, .. } => "--repair takes the line out",
            Self::NoEntry { .. } => "--repair gives each entry a line of its own, and takes the rest out",
            Self::TooLong { .. } => "take it out with an editor, if nothing else needs it",
            Self::IdNotRising { .. } | Self::IdTooLarge { .. } => "--repair numbers it, and what follows, anew",
            Self::NoResults { .. } | Self::TooFewResults { .. } => "--repair adds results that say 'interrupted'",
            Self::OrphanResults { .. } => "--repair keeps it, outside of what models see",
            Self::NoHandoff { .. } => "--repair adds the event",
            Self::NoAnchor { .. } => "--repair adds the anchor; the context begins there again",
            Self::SpillMissing { is_known: false, .. }
            | Self::SpillDamaged { is_known: false, .. }
            | Self::BlobMissing { is_known: false, .. } => {
                "it can only be restored from a copy of the home folder; --repair records the loss on the tape"
            }
            Self::JournalLeft { .. } => "the next turn of the session merges it, and --repair does",
            Self::TooManyResults { .. }
            | Self::NoCalls
            | Self::SpillUnfinished { .. }
            | Self::SpillMissing { .. }
            | Self::SpillDamaged { .. }
            | Self::BlobMissing { .. } => "nothing needs to be done",
        }
    }
}

fn no_entry(bytes: u64, is_empty: bool, n_inside: usize) -> String {
    match (is_empty, n_inside) {
        (true, _) => format!("the line is {bytes} NUL bytes, as a crash of the machine leaves them"),
        (false, 0) => format!("the line is no entry ({bytes} bytes): it is torn or damaged"),
        (false, 1) => format!("the line is no entry ({bytes} bytes), but there is one inside"),
        (false, n) => format!("the line is no entry ({bytes} bytes), but there are {n} inside"),
    }
}

fn calls(n: usize) -> String {
    if n == 1 { "1 call".to_owned() } else { format!("{n} calls") }
}

fn have(n: usize) -> &'static str {
    if n == 1 { "has" } else { "have" }
}

fn results(n: usize) -> String {
    if n == 1 { "1 result".to_owned() } else { format!("{n} results") }
}

fn known(is_known: bool) -> &'static str {
    if is_known { ", and the tape says so" } else { "" }
}
