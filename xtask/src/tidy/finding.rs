//! What a check reports.

use std::fmt;

/// An invariant that is checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// Which of our crates a crate may use.
    Layers,
    /// Which crates a third party may be used in.
    ThirdParty,
    /// How manifests are written.
    Manifest,
    /// Every crate is described in `crates/README.md`.
    CrateList,
    /// The kernel does no input or output.
    KernelIo,
    /// Where the process's environment is read.
    Environment,
    /// Where tasks and threads start.
    Spawn,
    /// A lint is silenced with a reason only.
    LintReason,
    /// No test is switched off.
    IgnoredTest,
    /// Length of a file.
    FileSize,
    /// Length of a crate.
    CrateSize,
    /// A `mod.rs` declares, and does little else.
    ModRs,
    /// No file is outside the module tree.
    Orphan,
    /// One integration-test binary for each crate.
    TestLayout,
    /// No marker of unfinished work.
    Unfinished,
    /// No path of somebody's machine, no address of a package registry.
    Machine,
    /// Links between documents lead somewhere.
    Link,
    /// Hooks name the methods that they implement.
    HookList,
    /// An exception excuses something.
    Exception,
}

impl Rule {
    /// The rule's name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::ThirdParty => "third-party",
            Self::Manifest => "manifest",
            Self::CrateList => "crate-list",
            Self::KernelIo => "kernel-io",
            Self::Environment => "environment",
            Self::Spawn => "spawn",
            Self::LintReason => "lint-reason",
            Self::IgnoredTest => "ignored-test",
            Self::FileSize => "file-size",
            Self::CrateSize => "crate-size",
            Self::ModRs => "mod-rs",
            Self::Orphan => "orphan",
            Self::TestLayout => "test-layout",
            Self::Unfinished => "unfinished",
            Self::Machine => "machine",
            Self::Link => "link",
            Self::HookList => "hook-list",
            Self::Exception => "exception",
        }
    }
}

/// One place that breaks a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The broken rule.
    pub rule: Rule,
    /// The file, relative to the root, with `/`.
    pub path: String,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub advice: &'static str,
}

impl Finding {
    /// A finding about a file as a whole.
    #[must_use]
    pub fn of_file(rule: Rule, path: &str, problem: impl Into<String>, advice: &'static str) -> Self {
        Self { rule, path: path.to_owned(), line: None, problem: problem.into(), advice }
    }

    /// A finding about one line, from 1.
    #[must_use]
    pub fn at(rule: Rule, path: &str, line: usize, problem: impl Into<String>, advice: &'static str) -> Self {
        Self { line: Some(line), ..Self::of_file(rule, path, problem, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": [{}] {}\n    {}", self.rule.name(), self.problem, self.advice)
    }
}
