//! The rule about hooks: what `bub hooks` lists is what there is.

use super::{Finding, Rule, Tree, tree::SourceFile};

/// Every implementation of `Hooks` names the methods that it has, tests included.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|it| it.is_rust()).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines: Vec<_> = file.text.lines().collect();
    for (idx, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        if !(head.starts_with("impl") && head.contains("Hooks for ") && head.ends_with('{')) {
            continue;
        }
        let indent = line.len() - head.len();
        let block: Vec<&str> = lines.iter().skip(idx + 1).copied().take_while(|it| !is_end(it, indent)).collect();
        let (mut listed, mut methods) = (listed(&block, indent + 4), methods(&block, indent + 4));
        listed.sort_unstable();
        methods.sort_unstable();
        // What is listed may depend on what is set: two lists, with names in common.
        listed.dedup();
        if listed != methods {
            let problem = format!("`implements` names {}; the methods are {}", words(&listed), words(&methods));
            let advice = "name each method: `bub hooks` shows what stands there";
            found.push(Finding::at(Rule::HookList, &file.path, idx + 1, problem, advice));
        }
    }
    found
}

/// Whether a line closes what was opened with this indent.
fn is_end(line: &str, indent: usize) -> bool {
    line.trim_end() == format!("{}}}", " ".repeat(indent))
}

/// The texts in the body of `implements`.
fn listed<'a>(block: &[&'a str], indent: usize) -> Vec<&'a str> {
    let body = block.iter().skip_while(|it| !it.trim_start().starts_with("fn implements(")).skip(1);
    body.take_while(|it| !is_end(it, indent)).flat_map(|it| it.split('"').skip(1).step_by(2)).collect()
}

/// The names of the async functions of the block.
fn methods<'a>(block: &[&'a str], indent: usize) -> Vec<&'a str> {
    let start = format!("{}async fn ", " ".repeat(indent));
    block.iter().filter_map(|it| it.strip_prefix(&start)?.split(['(', '<']).next()).collect()
}

fn words(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
