//! This machine: its processes and files as an [`Environment`](bub_kernel::environment::Environment), its
//! commands as ways into others, its disk as a [`TapeStore`](bub_kernel::tape::TapeStore).

mod environment;
mod exec;
mod files;
mod store;
mod written;

pub use environment::{LocalEnvironment, LocalOptions};
pub use exec::{ExecEnvironment, ExecOptions};
pub use store::{
    BranchError, Branched, Fault, Finding, JsonlStore, Repaired, ScanFilter, ScanStep, ScannedEntry, SessionLock,
    SessionLockError, SessionLocks, StoreOptions, Sync, TapeChange, TapeScan, Verified, Verifier,
};
