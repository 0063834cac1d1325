//! The smallest program that can serve as a worker of the sandbox; the tests use it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: monty_alloc::LimitedAllocator = monty_alloc::LimitedAllocator;

fn main() -> ExitCode {
    bub_code::sandbox::worker_main()
}
