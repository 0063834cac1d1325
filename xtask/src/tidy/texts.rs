//! The rules about any text: nothing unfinished, nothing of somebody's machine, no dead link.

use super::{Finding, Rule, Tree, tree::SourceFile};

/// Words that mark unfinished work; written in halves, so that this file is no finding of its own.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];

/// Paths and addresses of the machine that somebody works on.
const MACHINE: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Use", "rs/"),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("deb.debian", ".org"),
];

/// The rules about any text.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|it| it.path != "Cargo.lock") {
        for (idx, line) in file.text.lines().enumerate() {
            found.extend(check_words(file, idx + 1, line));
        }
        if file.extension() == Some("md") {
            found.extend(check_links(tree, file));
        }
    }
    found
}

fn check_words(file: &SourceFile, number: usize, line: &str) -> Option<Finding> {
    if let Some(word) = UNFINISHED.iter().find(|it| line.contains(**it)) {
        let advice = "finish it now, or take it out and file it where open work is kept";
        return Some(Finding::at(
            Rule::Unfinished,
            &file.path,
            number,
            format!("'{word}' marks unfinished work"),
            advice,
        ));
    }
    let word = MACHINE.iter().find(|it| line.contains(**it))?;
    let advice = "name no folder of a machine and no registry's address: the project is the same everywhere";
    Some(Finding::at(Rule::Machine, &file.path, number, format!("'{word}' belongs to a machine"), advice))
}

/// Links to other files of the workspace, outside code blocks.
fn check_links(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut in_code = false;
    let mut found = Vec::new();
    for (idx, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let targets = line.split("](").skip(1).filter_map(|it| it.split_once(')')).map(|(target, _)| target);
        for target in targets.filter(|it| !it.contains("://") && !it.starts_with(['#', '<'])) {
            let path = target.split('#').next().unwrap_or(target);
            if !tree.root.join(folder).join(path).exists() {
                let advice = "correct the path; it is relative to the document";
                found.push(Finding::at(Rule::Link, &file.path, idx + 1, format!("nothing is at '{path}'"), advice));
            }
        }
    }
    found
}
