//! Processes that lost their parent and became children of this process (Linux).
//!
//! Whoever adopts has to wait for them when they end. What another part of the program started itself
//! must not be waited for here, so each dead child is judged: see [`is_to_reap`].

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use super::procfs::{self, Stat};

/// How often the list of children is read again while it changes.
const MAX_ROUNDS: usize = 8;

/// A dead child that nobody waited for so long has no owner.
const OWNER_WAITS_WITHIN: Duration = Duration::from_secs(60);

/// Descendants that are remembered by number; beyond it all are forgotten.
const MAX_KNOWN: usize = 4096;

static ADOPTING: OnceLock<bool> = OnceLock::new();
static CHILDREN: Mutex<Option<Children>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Children {
    /// Processes that are waited for by whoever started them through this crate.
    leaders: BTreeSet<i32>,
    /// Descendants of those, by number and start.
    known: HashSet<(i32, u64)>,
    /// Dead ones of which it is not known whether somebody waits for them, and since when.
    unclear: HashMap<(i32, u64), Instant>,
}

/// Makes this process the parent of its descendants that lose theirs.
pub(super) fn adopt() {
    ADOPTING.get_or_init(|| procfs::first_threads_children().is_some() && set_child_subreaper(Some(getpid())).is_ok());
}

/// Notes that `leader` is waited for by its owner.
pub(super) fn track(leader: Pid) {
    with_children(|it| it.leaders.insert(leader.as_raw_pid()));
}

/// Notes that its owner waited for `leader`.
pub(super) fn untrack(leader: Pid) {
    with_children(|it| it.leaders.remove(&leader.as_raw_pid()));
}

/// Notes a descendant, so that it is waited for at once if it becomes an orphan.
pub(super) fn know(stat: &Stat) {
    if ADOPTING.get() == Some(&true) {
        with_children(|it| {
            if it.known.len() >= MAX_KNOWN {
                it.known.clear();
            }
            it.known.insert((stat.pid, stat.start))
        });
    }
}

/// Waits for adopted children that ended, and returns the living ones (with some that were not adopted);
/// `None` when this process does not adopt.
pub(super) fn reap() -> Option<Vec<Stat>> {
    if ADOPTING.get() != Some(&true) {
        return None;
    }
    let mut alive = Vec::new();
    // A child that goes away while the list is read may hide another one: read until nothing changes.
    for _ in 0..MAX_ROUNDS {
        let children: Vec<Stat> = procfs::first_threads_children()?.into_iter().filter_map(Stat::read).collect();
        let dead: Vec<&Stat> = children.iter().filter(|it| it.is_dead()).collect();
        let n_reaped = with_children(|it| it.reap(&dead));
        alive = children.into_iter().filter(|it| !it.is_dead()).collect();
        if n_reaped == 0 {
            break;
        }
    }
    Some(alive)
}

impl Children {
    /// Waits for those of `dead` that nobody else waits for, and returns how many.
    fn reap(&mut self, dead: &[&Stat]) -> usize {
        if dead.is_empty() {
            self.unclear.clear();
            return 0;
        }
        let session = own_session();
        let mut n_reaped = 0;
        let mut unclear = HashMap::new();
        for it in dead {
            let key = (it.pid, it.start);
            if self.leaders.contains(&it.pid) {
                continue;
            }
            let since = self.unclear.get(&key).copied().unwrap_or_else(Instant::now);
            if !is_to_reap(it, session, self.known.contains(&key), since) {
                unclear.insert(key, since);
                continue;
            }
            self.known.remove(&key);
            if let Some(pid) = Pid::from_raw(it.pid)
                && waitpid(Some(pid), WaitOptions::NOHANG).is_ok()
            {
                n_reaped += 1;
            }
        }
        self.unclear = unclear;
        n_reaped
    }
}

/// This process's session as the table of processes gives it: 0 when its leader is outside of this
/// process's namespace (in a container), where `getsid` has no number to return either.
fn own_session() -> i32 {
    Stat::read(getpid().as_raw_pid()).map_or(0, |it| it.session)
}

/// Whether a dead child was adopted. A child that was started here is in our session, or leads its own;
/// anything else came by adoption. So did known descendants, and what no owner waited for in time.
pub(super) fn is_to_reap(stat: &Stat, session: i32, is_known: bool, since: Instant) -> bool {
    is_known || (stat.session != session && stat.session != stat.pid) || since.elapsed() >= OWNER_WAITS_WITHIN
}

fn with_children<T>(work: impl FnOnce(&mut Children) -> T) -> T {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    work(children.get_or_insert_default())
}
