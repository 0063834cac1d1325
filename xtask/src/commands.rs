//! The tasks that run cargo.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::tidy;

/// Which tests to run.
#[derive(Args, Debug)]
pub struct TestOptions {
    /// Only these crates, by folder or by name (`tools` or `bub-tools`)
    #[arg(short, long = "package", value_name = "CRATE")]
    pub packages: Vec<String>,
    /// Only tests whose name contains this; documentation examples are left out then
    pub filter: Option<String>,
}

/// The workspace's root.
#[must_use]
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// Checks formatting, lints, invariants and documentation; stops at the first that fails.
///
/// # Errors
/// When cargo can't be run or the tree can't be read.
pub fn check() -> Result<bool> {
    Ok(run("formatting", cargo().args(["fmt", "--all", "--check"]))?
        && tidy()?
        && run(
            "lints",
            cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]),
        )?
        && run(
            "documentation",
            cargo()
                .args(["doc", "--workspace", "--lib", "--no-deps", "--locked"])
                .env("RUSTDOCFLAGS", "--deny warnings"),
        )?)
}

/// Runs the documentation examples, then the tests, so that the test runner has the last word.
///
/// # Errors
/// When cargo can't be run or a crate is unknown.
pub fn test(options: &TestOptions) -> Result<bool> {
    let whole = options.packages.is_empty();
    let chosen = chosen_packages(&options.packages)?;
    let names = |only_libraries: bool| -> Vec<String> {
        let wanted = chosen.iter().filter(|it| !only_libraries || root().join(&it.folder).join("src/lib.rs").exists());
        wanted.flat_map(|it| ["--package".to_owned(), it.name.clone()]).collect()
    };
    let nextest = has_nextest();
    let mut ok = true;
    // Without nextest, a run of the whole workspace includes the examples.
    if options.filter.is_none() && (nextest || !whole) && !names(true).is_empty() {
        ok &= run("documentation examples", cargo().args(["test", "--doc", "--locked"]).args(names(true)))?;
    }
    let mut command = cargo();
    if nextest {
        command.args(["nextest", "run", "--no-fail-fast", "--locked"]);
    } else {
        command.args(["test", "--no-fail-fast", "--locked"]);
    }
    if whole {
        command.arg("--workspace");
    } else {
        command.args(names(false));
        if !nextest {
            command.arg("--all-targets");
        }
    }
    Ok(run("tests", command.args(&options.filter))? && ok)
}

/// Checks the invariants and prints what breaks them.
///
/// # Errors
/// When the tree can't be read.
pub fn tidy() -> Result<bool> {
    println!("== invariants");
    let findings = tidy::check(&root())?;
    for finding in &findings {
        eprintln!("{finding}\n");
    }
    match findings.len() {
        0 => println!("tidy: nothing to report"),
        count => eprintln!("tidy: {count} to mend (exceptions, each with its reason: xtask/src/tidy/exceptions.rs)"),
    }
    Ok(findings.is_empty())
}

/// Writes the pages of `docs/reference` anew: the tests that compare them are told to.
///
/// # Errors
/// When cargo can't be run.
pub fn docs() -> Result<bool> {
    let mut command = cargo();
    command.args([
        "test",
        "--quiet",
        "--locked",
        "--package",
        "bub",
        "--package",
        "bub-models",
        "--test",
        "it",
        "reference_page",
    ]);
    run("reference pages", command.env("UPDATE_EXPECT", "1"))
}

/// A command that runs this workspace's cargo in its root.
#[must_use]
pub fn cargo() -> Command {
    #[expect(clippy::disallowed_methods, reason = "cargo names itself in this variable when it starts a task")]
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// Runs a command with our own output, under a heading; tells whether it succeeded.
///
/// # Errors
/// When it can't be started.
pub fn run(heading: &str, command: &mut Command) -> Result<bool> {
    let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy().into_owned()).collect();
    println!("== {heading}: cargo {}", words.join(" "));
    let status = command.stdin(Stdio::null()).status().context("can't run cargo")?;
    if !status.success() {
        eprintln!("xtask: {heading} failed ({status})");
    }
    Ok(status.success())
}

/// The packages asked for, or all.
fn chosen_packages(wanted: &[String]) -> Result<Vec<tidy::Package>> {
    let known = tidy::packages(&root())?;
    let find = |wanted: &String| {
        let found = known.iter().find(|it| it.name == *wanted || it.folder.rsplit('/').next() == Some(wanted));
        found.cloned().with_context(|| {
            let names: Vec<_> = known.iter().map(|it| it.name.as_str()).collect();
            format!("no crate '{wanted}'; there are {}", names.join(", "))
        })
    };
    if wanted.is_empty() { Ok(known) } else { wanted.iter().map(find).collect() }
}

fn has_nextest() -> bool {
    let probe = cargo().args(["nextest", "--version"]).stdin(Stdio::null()).output();
    probe.is_ok_and(|it| it.status.success())
}
