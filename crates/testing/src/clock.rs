//! Time that does not depend on what else the machine does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long the calling thread has had a processor: what a test compares to see how work grows. Waiting,
/// and what others do meanwhile, do not count.
#[must_use]
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
