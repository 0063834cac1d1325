//! A process and everything that it started, also what left its group and session.
//!
//! On Linux each descendant is known by its group or session, by an environment variable that names
//! the process that was started, or by its parent. Elsewhere the group is all there is.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::atomic::{AtomicBool, Ordering},
};

use bub_kernel::environment::Signal;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};

#[cfg(target_os = "linux")]
use super::{orphans, procfs};

/// Start of the name of the environment variable that marks descendants.
const MARK_PREFIX: &str = "BUB_PROCESS_";

/// How often the table of processes is read again while a kill finds new ones.
#[cfg(target_os = "linux")]
const MAX_KILL_ROUNDS: usize = 16;

/// A process that leads its own session, and its descendants.
#[derive(Debug)]
pub(super) struct Descendants {
    leader: Pid,
    /// The leader's number is free to be used again.
    reaped: AtomicBool,
    /// Nothing of it was left; the numbers may belong to others by now.
    gone: AtomicBool,
    #[cfg(target_os = "linux")]
    family: procfs::Family,
}

impl Descendants {
    /// A new name for an environment variable that only these processes have. Nested ones have several.
    pub(super) fn mark() -> String {
        format!("{MARK_PREFIX}{:016x}", RandomState::new().build_hasher().finish())
    }

    /// The descendants of `leader`, which was just started with `mark` in its environment.
    pub(super) fn of(leader: Pid, mark: &str) -> Self {
        #[cfg(target_os = "linux")]
        orphans::track(leader);
        #[cfg(not(target_os = "linux"))]
        let _ = mark;
        Self {
            leader,
            reaped: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            family: procfs::Family::new(leader, mark),
        }
    }

    /// Is told that the leader was waited for.
    pub(super) fn leader_reaped(&self) {
        self.reaped.store(true, Ordering::Release);
        #[cfg(target_os = "linux")]
        orphans::untrack(self.leader);
    }

    /// Whether the leader or any descendant is alive. Cheap when nothing is left.
    pub(super) fn is_running(&self) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return false;
        }
        let alive = self.leader_is_running() || self.others_are_running();
        if !alive {
            self.gone.store(true, Ordering::Release);
        }
        alive
    }

    /// Signals all of them.
    pub(super) fn signal(&self, signal: Signal) {
        if self.gone.load(Ordering::Acquire) {
            return;
        }
        let signal = match signal {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        self.signal_all(signal);
    }

    fn is_reaped(&self) -> bool {
        self.reaped.load(Ordering::Acquire)
    }

    fn leader_is_running(&self) -> bool {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !self.is_reaped() && matches!(waitid(WaitId::Pid(self.leader), peek), Ok(None))
    }

    /// Whether the group has members, dead ones that nobody waited for included.
    fn group_exists(&self) -> bool {
        // Any error but "no such process" (no permission, say) is about a member.
        test_kill_process_group(self.leader) != Err(rustix::io::Errno::SRCH)
    }
}

#[cfg(target_os = "linux")]
impl Descendants {
    fn others_are_running(&self) -> bool {
        if self.family.knows_one_alive() {
            return true;
        }
        // What lost its parent is our child then, so a look at our children shows the rest.
        let adopted = orphans::reap();
        if self.group_exists() {
            return !self.family.find(procfs::Among::All).is_empty();
        }
        match adopted {
            Some(adopted) => self.family.any_of(&adopted),
            None => !self.family.find(procfs::Among::Newer).is_empty(),
        }
    }

    fn signal_all(&self, signal: rustix::process::Signal) {
        let n_rounds = if signal == rustix::process::Signal::KILL { MAX_KILL_ROUNDS } else { 1 };
        let mut told = std::collections::HashSet::new();
        for _ in 0..n_rounds {
            // While nobody waited for the leader, the group's number can be nobody else's.
            let tell_group = !self.is_reaped();
            let found = self.family.find(procfs::Among::All);
            if tell_group {
                let _ = kill_process_group(self.leader, signal);
            }
            let mut n_new = 0;
            for it in found {
                if told.insert((it.pid, it.start)) {
                    n_new += 1;
                    if !(tell_group && it.group == self.leader.as_raw_pid()) {
                        it.signal(signal);
                    }
                }
            }
            if n_new == 0 {
                break;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Descendants {
    fn others_are_running(&self) -> bool {
        self.group_exists()
    }

    fn signal_all(&self, signal: rustix::process::Signal) {
        let _ = kill_process_group(self.leader, signal);
    }
}

#[cfg(target_os = "linux")]
impl Drop for Descendants {
    fn drop(&mut self) {
        orphans::untrack(self.leader);
    }
}
