//! What a worker gives up before it runs anything.

use rustix::process::{Resource, Rlimit, getpid, getppid, setrlimit};

/// Address space in bytes beyond the memory limit: the program, thread stacks, the allocator's reserve.
const ADDRESS_SPACE_SLACK: u64 = 2 * 1024 * 1024 * 1024;
/// Open files: the three streams and what the standard library needs to start.
const OPEN_FILES: u64 = 16;
/// Seconds of processor time in a whole life; a worker that lost its host ends at the latest then.
const CPU_SECONDS: u64 = 3 * 60 * 60;

/// Limits this process as far as the system allows; none of it is needed for the interpreter's own limits to hold.
/// Must be called on the main thread, before any other starts.
pub(super) fn confine() {
    limit(Resource::Core, 0);
    limit(Resource::Fsize, 0);
    limit(Resource::Nofile, OPEN_FILES);
    limit(Resource::Cpu, CPU_SECONDS);
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::thread::set_no_new_privs(true);
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
}

/// Bounds the address space for code that may hold `max_memory` bytes.
pub(super) fn confine_memory(max_memory: u64) {
    limit(Resource::As, max_memory.saturating_add(ADDRESS_SPACE_SLACK));
}

fn limit(resource: Resource, value: u64) {
    // A limit that is already lower, or a system that lacks it, leaves the process as confined as it can be.
    let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
}

/// Whether the process that started this one has ended.
#[derive(Clone, Copy)]
pub(super) struct Parent(Option<rustix::process::Pid>);

impl Parent {
    /// The parent of now.
    pub(super) fn current() -> Self {
        Self(getppid())
    }

    pub(super) fn is_gone(self) -> bool {
        getppid() != self.0 || self.0 == Some(getpid())
    }
}
