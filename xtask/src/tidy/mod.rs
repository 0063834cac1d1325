//! The architecture's invariants, as checks over the files of the workspace.
//!
//! They read text and manifests, no compiler: what a lint or a type can hold is held there.

mod exceptions;
mod finding;
mod hooks;
mod manifests;
mod modules;
mod sources;
mod texts;
mod tree;

use std::path::Path;

use anyhow::Result;

pub use exceptions::{EXCEPTIONS, Exception};
pub use finding::{Finding, Rule};
pub use manifests::{LAYERS, Layer, Package, packages};
pub use tree::{SourceFile, Tree};

/// What breaks an invariant in the workspace at `root`, by file and line.
///
/// # Errors
/// When the tree can't be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    check_tree(&Tree::read(root)?, EXCEPTIONS)
}

/// What breaks an invariant in a tree, apart from the exceptions; an exception that excuses nothing is reported too.
///
/// # Errors
/// When a manifest is no TOML.
pub fn check_tree(tree: &Tree, exceptions: &[Exception]) -> Result<Vec<Finding>> {
    let mut found = manifests::check(tree)?;
    found.extend(sources::check(tree));
    found.extend(modules::check(tree));
    found.extend(texts::check(tree));
    found.extend(hooks::check(tree));
    let mut kept = exceptions::apply(found, exceptions);
    kept.sort_by(|a, b| (&a.path, a.line, a.rule.name()).cmp(&(&b.path, b.line, b.rule.name())));
    Ok(kept)
}
