//! Finding processes in Linux's `/proc`.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Read as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use memchr::memmem;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::orphans;

/// So long after its start the newer processes are those with a higher number.
const NUMBERS_RISE_FOR: Duration = Duration::from_secs(2);

/// No environment is larger, in bytes.
const MAX_ENVIRONMENT: u64 = 4 * 1024 * 1024;

/// A process that is just starting another program shows no environment: how often to look again.
const MAX_LOOKS: usize = 20;

/// How long to wait between looks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(50);

/// What `/proc/<pid>/stat` says about a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub(super) pid: i32,
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// When it started, in ticks since the machine did: with the number it is unique.
    pub(super) start: u64,
}

impl Stat {
    /// Reads it; `None` when there is no such process.
    pub(super) fn read(pid: i32) -> Option<Self> {
        let mut bytes = [0; 1024];
        let n_bytes = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut bytes).ok()?;
        // The second field is a name in parentheses, which may itself contain any character.
        let text = bytes.get(..n_bytes)?;
        let after_name = memchr::memrchr(b')', text)? + 1;
        let mut fields = std::str::from_utf8(text.get(after_name..)?).ok()?.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let mut number = || fields.next()?.parse::<i32>().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // Fields 3 to 6 are taken; the start is field 22.
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self { pid, state, parent, group, session, start })
    }

    /// Whether it has ended, and only its exit code is left.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Signals this one process; one that is gone already is no failure.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// The children of this process that its first thread started or that were adopted: the kernel gives
/// orphans to the first thread. `None` when the kernel does not tell.
pub(super) fn first_threads_children() -> Option<Vec<i32>> {
    let pid = getpid();
    let text = fs::read_to_string(format!("/proc/self/task/{pid}/children")).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect())
}

/// Where to look for members of a family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Among {
    /// All processes of the machine.
    All,
    /// Those that were started after the leader, as far as their numbers tell.
    Newer,
}

/// How the descendants of a leader are recognised.
#[derive(Debug)]
pub(super) struct Family {
    leader: i32,
    /// When the leader started, unless `/proc` did not tell.
    start: Option<u64>,
    /// The variable that is in their environment, with its `=`.
    mark: Vec<u8>,
    born: Instant,
    /// A member that was alive the last time, by number and start.
    witness: Mutex<Option<(i32, u64)>>,
}

impl Family {
    pub(super) fn new(leader: Pid, mark: &str) -> Self {
        let leader = leader.as_raw_pid();
        Self {
            leader,
            start: Stat::read(leader).map(|it| it.start),
            mark: format!("{mark}=").into_bytes(),
            born: Instant::now(),
            witness: Mutex::new(None),
        }
    }

    /// Whether the member that was seen last is still alive.
    pub(super) fn knows_one_alive(&self) -> bool {
        let seen = *self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        let alive =
            seen.is_some_and(|(pid, start)| Stat::read(pid).is_some_and(|it| it.start == start && !it.is_dead()));
        if seen.is_some() && !alive {
            self.remember(None);
        }
        alive
    }

    /// Whether one of `others`, which are alive, is a member.
    pub(super) fn any_of(&self, others: &[Stat]) -> bool {
        let by_number = others.iter().all(|it| it.pid != self.leader);
        let found = others
            .iter()
            .filter(|it| self.may_be_member(it))
            .find(|it| by_number && self.has_number(it) || self.marks(it.pid, MAX_LOOKS));
        self.remember(found);
        found.is_some()
    }

    /// All living members, the leader included.
    pub(super) fn find(&self, among: Among) -> Vec<Stat> {
        let me = getpid().as_raw_pid();
        let others: Vec<Stat> = self
            .candidates(among)
            .filter(|it| *it != me)
            .filter_map(Stat::read)
            .filter(|it| !it.is_dead() && self.may_be_member(it))
            .collect();
        // Once the leader's number is somebody else's, so may be those of its group and session.
        let is_reused = |it: &Stat| it.pid == self.leader && self.start.is_some_and(|start| it.start != start);
        let by_number = !others.iter().any(is_reused);
        let is_member = |it: &&Stat| by_number && self.has_number(it) || self.marks(it.pid, 1);
        let mut members: HashSet<i32> = others.iter().filter(is_member).map(|it| it.pid).collect();
        loop {
            let n_members = members.len();
            let children = others.iter().filter(|it| members.contains(&it.parent)).map(|it| it.pid);
            let children: Vec<i32> = children.collect();
            members.extend(children);
            if members.len() == n_members {
                break;
            }
        }
        let found: Vec<Stat> = others.into_iter().filter(|it| members.contains(&it.pid)).collect();
        for it in found.iter().filter(|it| it.pid != self.leader) {
            orphans::know(it);
        }
        self.remember(found.iter().find(|it| it.pid != self.leader));
        found
    }

    fn candidates(&self, among: Among) -> Box<dyn Iterator<Item = i32>> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        if among == Among::Newer
            && self.born.elapsed() < NUMBERS_RISE_FOR
            && let Some(last) = last_number()
        {
            let first = self.leader;
            // Numbers rise, and begin anew when they reach their limit.
            return Box::new(all.filter(move |it| match first <= last {
                true => (first..=last).contains(it),
                false => *it >= first || *it <= last,
            }));
        }
        Box::new(all)
    }

    fn may_be_member(&self, stat: &Stat) -> bool {
        self.start.is_none_or(|start| stat.start >= start)
    }

    fn has_number(&self, stat: &Stat) -> bool {
        stat.group == self.leader || stat.session == self.leader
    }

    /// Whether the process has the mark in its environment.
    fn marks(&self, pid: i32, n_looks: usize) -> bool {
        for look in 0..n_looks {
            if look > 0 {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            let mut environment = Vec::new();
            let Ok(file) = File::open(format!("/proc/{pid}/environ")) else { return false };
            if file.take(MAX_ENVIRONMENT).read_to_end(&mut environment).is_err() {
                return false;
            }
            if !environment.is_empty() {
                return memmem::find(&environment, &self.mark).is_some();
            }
        }
        false
    }

    fn remember(&self, seen: Option<&Stat>) {
        *self.witness.lock().unwrap_or_else(PoisonError::into_inner) = seen.map(|it| (it.pid, it.start));
    }
}

/// The number that was given to the newest process.
fn last_number() -> Option<i32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}
