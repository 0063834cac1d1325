//! The rules about manifests: who may use whom.

use std::path::Path;

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::{Finding, Rule, Tree, tree::SourceFile};

/// A crate's place in the architecture.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Where it is.
    pub folder: &'static str,
    /// Which of our crates its product code may use. Its tests may use those of `FOR_TESTS` too.
    pub uses: &'static [&'static str],
    /// The most lines its sources may have without tests.
    pub budget: usize,
}

/// All crates. A new one is a decision about the architecture: it gets a row here and a paragraph in
/// `crates/README.md`.
pub const LAYERS: &[Layer] = &[
    // Contracts, and the logic of tapes that every store shares: queries, forks, journals, matching; the
    // bus of events, what plugins bring and are set to, and what an embedder decides on. Its attribute is
    // reached through the kernel, so that plugins depend on that alone.
    Layer { folder: "crates/kernel", uses: &["bub-macros"], budget: 8_500 },
    // Runs in the compiler: what happens when a tool is called is the kernel's.
    Layer { folder: "crates/macros", uses: &[], budget: 1_000 },
    // A fifth of it is the gateway.
    Layer { folder: "crates/engine", uses: &["bub-kernel"], budget: 6_500 },
    Layer { folder: "crates/tools", uses: &["bub-kernel"], budget: 5_000 },
    Layer { folder: "crates/code", uses: &["bub-kernel"], budget: 6_000 },
    // A wire costs some 900 lines, most of them for what its servers refuse or do differently. Logins are an
    // eighth of it: the files of tokens, how they are renewed, and what is asked of each service.
    Layer { folder: "crates/models", uses: &["bub-kernel"], budget: 10_000 },
    // Most of it keeps tapes: the index, recovery, verifying and repairing, media. The rest are environments:
    // this machine, and what a command leads to.
    Layer { folder: "crates/host", uses: &["bub-kernel"], budget: 9_000 },
    // The application, the bare agent, and what settings make of models, environments and images.
    Layer {
        folder: "crates/bub",
        uses: &["bub-code", "bub-engine", "bub-host", "bub-kernel", "bub-macros", "bub-models", "bub-tools"],
        budget: 7_500,
    },
    // A quarter of it is the conversation in the terminal; programs of one's own and their subcommands, too.
    // Logins are what people see of them: addresses, codes, browsers, lists.
    Layer { folder: "crates/cli", uses: &["bub", "bub-engine", "bub-kernel"], budget: 6_500 },
    Layer { folder: "crates/testing", uses: &["bub-kernel"], budget: 3_000 },
    // A plugin as others write it: of ours, the kernel and nothing else.
    Layer { folder: "examples/weather", uses: &["bub-kernel"], budget: 400 },
    Layer { folder: "examples/custom-bub", uses: &["bub-cli", "bub-weather"], budget: 100 },
    Layer { folder: "xtask", uses: &[], budget: 3_500 },
];

/// Crates of ours that any crate's tests may use.
const FOR_TESTS: &[&str] = &["bub-engine", "bub-host", "bub-kernel", "bub-testing"];

/// All that the kernel is built with: every plugin compiles it, so each addition is a decision.
const KERNEL_THIRD_PARTIES: &[&str] = &[
    "async-trait",
    "futures",
    "jiff",
    "md5",
    "rapidfuzz",
    "schemars",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "thiserror",
    "tokio",
    "tokio-util",
    "tracing",
];

/// Third parties that are at home in some crates only: wire formats where the wire is, terminals in the command line.
const HOMES: &[(&str, &[&str])] = &[
    ("anyhow", &["crates/cli", "xtask"]),
    ("clap", &["crates/cli", "xtask"]),
    ("clap_complete", &["crates/cli"]),
    ("dotenvy", &["crates/bub"]),
    ("genai", &["crates/models"]),
    ("htmd", &["crates/tools"]),
    ("jsonschema", &["crates/engine"]),
    ("monty", &["crates/code"]),
    ("monty-alloc", &["crates/code"]),
    ("proc-macro2", &["crates/macros"]),
    ("process-wrap", &["crates/host"]),
    ("quote", &["crates/macros"]),
    ("reqwest", &["crates/models", "crates/tools"]),
    ("rustyline", &["crates/cli"]),
    ("serde-saphyr", &["crates/bub"]),
    ("syn", &["crates/macros"]),
    ("tracing-subscriber", &["crates/cli"]),
    ("wait4", &["xtask"]),
];

const ADVICE_LAYERS: &str = "move the code to the innermost crate whose dependencies suffice, or change LAYERS in \
                             xtask/src/tidy/manifests.rs together with ARCHITECTURE.md";
const ADVICE_WORKSPACE: &str = "state version and features once, in the root's [workspace.dependencies], and write `name.workspace = true` here: \
     a crate that asks for other features builds its dependencies a second time";

/// A crate of the workspace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the root.
    pub folder: String,
}

/// The crates of the workspace at `root`, by folder.
///
/// # Errors
/// When a manifest can't be read.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    members(&Tree::read(root)?)?.into_iter().map(|it| Ok(it.package)).collect()
}

/// The rules about manifests.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let members = members(tree)?;
    let ours: Vec<&str> = members.iter().map(|it| it.package.name.as_str()).collect();
    let mut found = Vec::new();
    for member in &members {
        let (file, manifest) = (member.file, &member.manifest);
        match LAYERS.iter().find(|it| it.folder == member.package.folder) {
            Some(layer) => found.extend(check_layer(member, layer, &ours)),
            None => found.push(Finding::of_file(
                Rule::Layers,
                &file.path,
                "this crate has no place in the architecture",
                "give it a row in LAYERS in xtask/src/tidy/manifests.rs and a place in ARCHITECTURE.md",
            )),
        }
        if manifest.contains_key("features") {
            let advice = "take the features out: they multiply what has to be built and tested";
            found.push(Finding::at(
                Rule::Manifest,
                &file.path,
                line_of(file, "[features]"),
                "this crate has features",
                advice,
            ));
        }
        let lints = manifest.get("lints").and_then(|it| it.get("workspace")).and_then(Value::as_bool);
        if lints != Some(true) {
            let advice = "add `[lints]` with `workspace = true`";
            found.push(Finding::of_file(Rule::Manifest, &file.path, "the workspace's lints do not apply", advice));
        }
        for dependency in dependencies(manifest) {
            found.extend(check_dependency(member, &dependency));
        }
    }
    found.extend(check_unused(tree, &members)?);
    found.extend(check_list(tree, &members));
    Ok(found)
}

struct Member<'a> {
    package: Package,
    file: &'a SourceFile,
    manifest: Table,
}

struct Dependency<'a> {
    name: &'a str,
    is_dev: bool,
    value: &'a Value,
}

/// The crates in the workspace's folders, by folder.
fn members(tree: &Tree) -> Result<Vec<Member<'_>>> {
    let is_member = |path: &str| {
        let folder = path.strip_suffix("/Cargo.toml");
        let is_in = |it: &str, parent: &str| it.strip_prefix(parent).is_some_and(|name| !name.contains('/'));
        folder.is_some_and(|it| it == "xtask" || is_in(it, "crates/") || is_in(it, "examples/"))
    };
    tree.files
        .iter()
        .filter(|it| is_member(&it.path))
        .map(|file| {
            let manifest: Table = file.text.parse().with_context(|| format!("{} is no TOML", file.path))?;
            let name = manifest.get("package").and_then(|it| it.get("name")).and_then(Value::as_str);
            let name = name.with_context(|| format!("{} names no package", file.path))?.to_owned();
            let folder = file.path.trim_end_matches("/Cargo.toml").to_owned();
            Ok(Member { package: Package { name, folder }, file, manifest })
        })
        .collect()
}

/// All dependencies of a manifest, those for one platform included.
fn dependencies(manifest: &Table) -> Vec<Dependency<'_>> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables =
        std::iter::once(manifest).chain(targets.into_iter().flat_map(|it| it.values().filter_map(Value::as_table)));
    let mut all = Vec::new();
    for table in tables {
        for (key, is_dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let listed = table.get(key).and_then(Value::as_table);
            all.extend(listed.into_iter().flatten().map(|(name, value)| Dependency { name, is_dev, value }));
        }
    }
    all
}

/// The direction of dependencies.
fn check_layer(member: &Member<'_>, layer: &Layer, ours: &[&str]) -> Vec<Finding> {
    let (file, me) = (member.file, &member.package.name);
    let is_allowed = |it: &Dependency<'_>| {
        if ours.contains(&it.name) {
            layer.uses.contains(&it.name) || (it.is_dev && (FOR_TESTS.contains(&it.name) || it.name == me))
        } else {
            layer.folder != "crates/kernel" || it.is_dev || KERNEL_THIRD_PARTIES.contains(&it.name)
        }
    };
    dependencies(&member.manifest)
        .iter()
        .filter(|it| !is_allowed(it))
        .map(|it| {
            let line = line_of_dependency(file, it.name);
            if ours.contains(&it.name) {
                let problem = format!("{me} may not use {}", it.name);
                Finding::at(Rule::Layers, &file.path, line, problem, ADVICE_LAYERS)
            } else {
                let problem = format!("the kernel is built with {}", it.name);
                let advice = "every plugin compiles the kernel: do without, or add it to KERNEL_THIRD_PARTIES in \
                              xtask/src/tidy/manifests.rs";
                Finding::at(Rule::ThirdParty, &file.path, line, problem, advice)
            }
        })
        .collect()
}

/// How one dependency is written, and whether it is at home here.
fn check_dependency(member: &Member<'_>, dependency: &Dependency<'_>) -> Option<Finding> {
    let (path, name) = (&member.file.path, dependency.name);
    let line = line_of_dependency(member.file, name);
    let table = dependency.value.as_table();
    let is_plain = table.is_some_and(|it| it.get("workspace").and_then(Value::as_bool) == Some(true) && it.len() == 1);
    if !is_plain {
        let problem = format!("{name} has its own version or features here");
        return Some(Finding::at(Rule::Manifest, path, line, problem, ADVICE_WORKSPACE));
    }
    let homes = HOMES.iter().find(|(it, _)| *it == name).map(|(_, homes)| homes)?;
    (!dependency.is_dev && !homes.contains(&member.package.folder.as_str())).then(|| {
        let problem = format!("{name} is at home in {} only", homes.join(", "));
        let advice = "convert wire formats where the wire is, or change HOMES in xtask/src/tidy/manifests.rs";
        Finding::at(Rule::ThirdParty, path, line, problem, advice)
    })
}

/// Third parties that the root names and nobody uses.
fn check_unused(tree: &Tree, members: &[Member<'_>]) -> Result<Vec<Finding>> {
    let Some(file) = tree.file("Cargo.toml") else { return Ok(Vec::new()) };
    let root: Table = file.text.parse().context("Cargo.toml is no TOML")?;
    let stated = root.get("workspace").and_then(|it| it.get("dependencies")).and_then(Value::as_table);
    let is_used = |name: &str| members.iter().any(|it| dependencies(&it.manifest).iter().any(|it| it.name == name));
    let unused = stated.into_iter().flat_map(|it| it.keys()).filter(|it| !is_used(it));
    Ok(unused
        .map(|name| {
            let problem = format!("no crate uses {name}");
            Finding::at(Rule::Manifest, "Cargo.toml", line_of_dependency(file, name), problem, "take the line out")
        })
        .collect())
}

/// Every crate has its words in the list of crates.
fn check_list(tree: &Tree, members: &[Member<'_>]) -> Vec<Finding> {
    const LIST: &str = "crates/README.md";
    let list = tree.file(LIST).map_or("", |it| it.text.as_str());
    let missing = members.iter().filter(|it| !list.contains(&format!("`{}`", it.package.name)));
    missing
        .map(|it| {
            let problem = format!("{} is not described", it.package.name);
            Finding::of_file(
                Rule::CrateList,
                LIST,
                problem,
                "say in a paragraph what the crate is, its name in backticks",
            )
        })
        .collect()
}

/// The line, from 1, where a dependency is named.
fn line_of_dependency(file: &SourceFile, name: &str) -> usize {
    let is_it = |line: &str| {
        let rest = line.strip_prefix(name).or_else(|| line.split_once("dependencies.")?.1.strip_prefix(name));
        rest.is_some_and(|it| it.starts_with(['.', ' ', '=', ']']))
    };
    file.text.lines().position(is_it).map_or(1, |idx| idx + 1)
}

/// The line, from 1, that starts with a text.
fn line_of(file: &SourceFile, start: &str) -> usize {
    file.text.lines().position(|it| it.starts_with(start)).map_or(1, |idx| idx + 1)
}
