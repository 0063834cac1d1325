//! The rules about the module tree: no file is forgotten, above all no test.

use super::{Finding, LAYERS, Rule, Tree, tree::SourceFile};

/// The rules about the module tree.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for layer in LAYERS {
        let (sources, tests) = (format!("{}/src", layer.folder), format!("{}/tests", layer.folder));
        found.extend(tree.rust_below(&sources).filter_map(|it| check_declared(tree, it, &sources)));
        let it = format!("{tests}/it");
        for file in tree.rust_below(&tests) {
            if file.path.starts_with(&format!("{it}/")) {
                found.extend(check_declared(tree, file, &it));
            } else {
                let advice = "move it to tests/it and add its `mod` line to tests/it/main.rs: each binary costs a link";
                let problem = "a second integration-test binary";
                found.push(Finding::of_file(Rule::TestLayout, &file.path, problem, advice));
            }
        }
    }
    found
}

/// A file that no other file declares is compiled by nobody.
fn check_declared(tree: &Tree, file: &SourceFile, root: &str) -> Option<Finding> {
    let inside = file.path.strip_prefix(root)?.strip_prefix('/')?.strip_suffix(".rs")?;
    if matches!(inside, "lib" | "main") || inside.starts_with("bin/") {
        return None;
    }
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let (parents, name) = match inside.rsplit_once('/') {
        Some((folder, name)) => (vec![format!("{root}/{folder}/mod.rs"), format!("{root}/{folder}.rs")], name),
        None => (vec![format!("{root}/lib.rs"), format!("{root}/main.rs")], inside),
    };
    let line = format!("mod {name};");
    let is_declared =
        |it: &SourceFile| it.text.lines().any(|it| it.trim_end() == line || it.ends_with(&format!(" {line}")));
    let is_declared = parents.iter().filter_map(|it| tree.file(it)).any(is_declared);
    (!is_declared).then(|| {
        let problem = format!("no `{line}` in {}: nobody compiles this file", parents.join(" or "));
        Finding::of_file(Rule::Orphan, &file.path, problem, "add the line, or delete the file")
    })
}
