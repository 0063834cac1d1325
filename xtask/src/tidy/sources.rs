//! The rules about Rust code.

use super::{Finding, LAYERS, Rule, Tree, tree::SourceFile};

/// The most lines of a source file without its unit tests.
const FILE_LINES: usize = 600;

/// The most lines of a `mod.rs`.
const MOD_RS_LINES: usize = 200;

/// A word that code may use in some places only.
struct Place {
    rule: Rule,
    words: &'static [&'static str],
    /// Where it is looked for; empty: everywhere.
    within: &'static [&'static str],
    /// Where it is allowed.
    allowed: &'static [&'static str],
    advice: &'static str,
}

const PLACES: &[Place] = &[
    Place {
        rule: Rule::Environment,
        words: &["std::env", "env::var", "env::set_var", "env::args", "env::temp_dir", "env::current_dir", "home_dir("],
        within: &[],
        allowed: &["crates/bub/src/settings/", "crates/cli/", "crates/testing/", "xtask/"],
        advice: "the process's environment is read in crates/bub/src/settings and crates/cli; pass the value in",
    },
    Place {
        rule: Rule::Spawn,
        words: &["tokio::spawn", "task::spawn(", "thread::spawn", "thread::Builder"],
        within: &[],
        allowed: &["crates/kernel/src/task.rs", "crates/testing/", "xtask/"],
        advice: "every task has an owner that ends it: use bub_kernel::task::TaskScope",
    },
    Place {
        rule: Rule::KernelIo,
        words: &[
            "std::fs",
            "std::net",
            "std::process",
            "tokio::fs",
            "tokio::net",
            "tokio::process",
            "io::stdout",
            "io::stdin",
        ],
        within: &["crates/kernel/"],
        allowed: &[],
        advice: "the kernel holds words and contracts; put what touches the machine behind a trait, in crates/host",
    },
];

/// The rules about Rust code.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|it| it.is_rust()) {
        found.extend(PLACES.iter().flat_map(|place| check_place(file, place)));
        found.extend(check_attributes(file));
        found.extend(check_length(file));
    }
    found.extend(LAYERS.iter().filter_map(|it| check_budget(tree, it.folder, it.budget)));
    found
}

fn check_place<'a>(file: &'a SourceFile, place: &'a Place) -> impl Iterator<Item = Finding> + 'a {
    let starts = |folders: &[&str]| folders.iter().any(|it| file.path.starts_with(it));
    let looked_at = (place.within.is_empty() || starts(place.within)) && !starts(place.allowed);
    let code = looked_at.then(|| file.code()).into_iter().flatten();
    code.filter_map(|(line, code)| {
        // Which system this is was decided when it was compiled.
        let code = code.replace("std::env::consts", "");
        let word = place.words.iter().find(|it| code.contains(**it))?;
        Some(Finding::at(place.rule, &file.path, line, format!("`{word}` is used here"), place.advice))
    })
}

/// Lints are silenced with a reason, and tests run.
fn check_attributes(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (start, text) in attributes(&file.text) {
        let silences = ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|it| text.starts_with(it));
        if silences && !text.contains("reason =") {
            let advice = "add `reason = \"…\"`, or mend what the lint says";
            found.push(Finding::at(Rule::LintReason, &file.path, start, "a lint is silenced without a reason", advice));
        }
        if text.starts_with(IGNORED) {
            let advice = "make the test run everywhere, or delete it";
            found.push(Finding::at(Rule::IgnoredTest, &file.path, start, "a test is switched off", advice));
        }
    }
    found
}

const IGNORED: &str = "#[ignore";

/// Attributes that start a line: where, from 1, and their text up to the closing bracket.
fn attributes(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let starts = lines.iter().enumerate().filter(|(_, line)| line.starts_with("#[") || line.starts_with("#!["));
    starts
        .map(|(idx, _)| {
            let mut whole = String::new();
            for line in lines.iter().skip(idx) {
                whole.push_str(line);
                if line.ends_with(']') {
                    break;
                }
            }
            (idx + 1, whole)
        })
        .collect()
}

fn check_length(file: &SourceFile) -> Option<Finding> {
    if file.is_test() {
        return None;
    }
    let count = file.n_product_lines();
    if file.path.ends_with("/mod.rs") && count > MOD_RS_LINES {
        let problem = format!("{count} lines in a mod.rs, at most {MOD_RS_LINES}");
        let advice = "keep module docs, `mod` lines and re-exports; move the rest to a file named after its noun";
        return Some(Finding::of_file(Rule::ModRs, &file.path, problem, advice));
    }
    (count > FILE_LINES).then(|| {
        let problem = format!("{count} lines without tests, at most {FILE_LINES}");
        Finding::of_file(Rule::FileSize, &file.path, problem, "a second noun lives here: give it its own file")
    })
}

fn check_budget(tree: &Tree, folder: &str, budget: usize) -> Option<Finding> {
    let sources = tree.rust_below(&format!("{folder}/src")).filter(|it| !it.is_test());
    let count: usize = sources.map(SourceFile::n_product_lines).sum();
    (count > budget).then(|| {
        let problem = format!("{count} lines without tests, the crate's budget is {budget}");
        let advice = "simplify, move a subject to another crate, or raise the budget in LAYERS in \
                      xtask/src/tidy/manifests.rs and say why in the commit";
        Finding::of_file(Rule::CrateSize, folder, problem, advice)
    })
}
