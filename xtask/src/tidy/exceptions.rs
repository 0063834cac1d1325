//! What is excused from a rule, and why.

use super::{Finding, Rule};

/// One excused file or folder.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// From which rule.
    pub rule: Rule,
    /// Which file; a folder ends with `/`.
    pub path: &'static str,
    /// Why that is right.
    pub reason: &'static str,
}

/// All exceptions of this workspace.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: Rule::ModRs,
        path: "crates/kernel/src/tape/mod.rs",
        reason: "`Tape` and `TapeStore` are the folder's own nouns; a file of the same name inside would hide them",
    },
    Exception {
        rule: Rule::ModRs,
        path: "crates/bub/src/settings/mod.rs",
        reason: "`Settings` is the folder's own noun, each of its values documented in its place",
    },
    Exception {
        rule: Rule::ModRs,
        path: "crates/testing/src/server/mod.rs",
        reason: "`ModelServer` is the folder's own noun",
    },
    Exception {
        rule: Rule::ModRs,
        path: "crates/host/src/store/mod.rs",
        reason: "`JsonlStore` is the folder's own noun",
    },
    Exception {
        rule: Rule::Spawn,
        path: "crates/code/src/sandbox/worker.rs",
        reason: "the worker is a program of its own with one thread, whose stack must be larger than the main one's",
    },
];

/// Takes out what is excused; adds a finding for each exception that excused nothing.
pub(super) fn apply(findings: Vec<Finding>, exceptions: &[Exception]) -> Vec<Finding> {
    let excuses = |exception: &Exception, finding: &Finding| {
        let covers = if exception.path.ends_with('/') {
            finding.path.starts_with(exception.path)
        } else {
            finding.path == exception.path
        };
        covers && finding.rule == exception.rule
    };
    let unused: Vec<_> = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|it| excuses(exception, it)))
        .map(|it| {
            let problem = format!("nothing breaks rule '{}' here any more", it.rule.name());
            Finding::of_file(
                Rule::Exception,
                it.path,
                problem,
                "take the exception out of xtask/src/tidy/exceptions.rs",
            )
        })
        .collect();
    let mut kept: Vec<_> =
        findings.into_iter().filter(|finding| !exceptions.iter().any(|it| excuses(it, finding))).collect();
    kept.extend(unused);
    kept
}
