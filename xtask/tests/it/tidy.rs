//! The invariants hold here, and each of them is noticed when it is broken.

use std::{fs, path::Path};

use expect_test::{Expect, expect};
use xtask::tidy::{self, Exception, LAYERS, Rule, Tree};

#[test]
fn this_workspace_breaks_no_invariant() {
    let findings = tidy::check(&xtask::commands::root()).unwrap();
    let all: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(all.is_empty(), "\n{}\n", all.join("\n\n"));
}

#[test]
fn dependency_against_the_direction_is_found() {
    check(
        &[(
            "crates/tools/Cargo.toml",
            &manifest("bub-tools", "[dependencies]\nbub-kernel.workspace = true\nbub-host.workspace = true\n"),
        )],
        expect!["crates/tools/Cargo.toml:7: [layers] bub-tools may not use bub-host"],
    );
}

#[test]
fn dependency_of_tests_may_go_sideways() {
    check(
        &[(
            "crates/tools/Cargo.toml",
            &manifest("bub-tools", "[dev-dependencies]\nbub-host.workspace = true\nbub-testing.workspace = true\n"),
        )],
        expect![""],
    );
}

#[test]
fn crate_without_a_place_is_found() {
    check(
        &[("crates/extra/Cargo.toml", &manifest("bub-extra", "")), ("crates/extra/src/lib.rs", "")],
        expect![[r#"
            crates/README.md: [crate-list] bub-extra is not described
            crates/extra/Cargo.toml: [layers] this crate has no place in the architecture"#]],
    );
}

#[test]
fn third_party_away_from_home_is_found() {
    check(
        &[
            ("Cargo.toml", "[workspace.dependencies]\nclap = \"4\"\nreqwest = \"1\"\nlost = \"1\"\n"),
            ("crates/kernel/Cargo.toml", &manifest("bub-kernel", "[dependencies]\nreqwest.workspace = true\n")),
            ("crates/engine/Cargo.toml", &manifest("bub-engine", "[dependencies.clap]\nworkspace = true\n")),
        ],
        expect![[r#"
            Cargo.toml:4: [manifest] no crate uses lost
            crates/engine/Cargo.toml:5: [third-party] clap is at home in crates/cli, xtask only
            crates/kernel/Cargo.toml:6: [third-party] the kernel is built with reqwest
            crates/kernel/Cargo.toml:6: [third-party] reqwest is at home in crates/models, crates/tools only"#]],
    );
}

#[test]
fn features_versions_and_missing_lints_are_found() {
    check(
        &[
            (
                "crates/host/Cargo.toml",
                "[package]\nname = \"bub-host\"\n[features]\nfast = []\n[lints]\nworkspace = true\n\
                 [target.'cfg(unix)'.dependencies]\nserde = { workspace = true, features = [\"rc\"] }\n",
            ),
            ("crates/models/Cargo.toml", "[package]\nname = \"bub-models\"\n[dependencies]\nserde = \"1\"\n"),
        ],
        expect![[r#"
            crates/host/Cargo.toml:3: [manifest] this crate has features
            crates/host/Cargo.toml:8: [manifest] serde has its own version or features here
            crates/models/Cargo.toml: [manifest] the workspace's lints do not apply
            crates/models/Cargo.toml:4: [manifest] serde has its own version or features here"#]],
    );
}

#[test]
fn environment_is_read_in_its_places_only() {
    let code = "/// About std::env::var.\nfn f() {\n    let it = std::env::var(\"A\"); // a reason\n}\n\n\
                fn g() -> &'static str {\n    std::env::consts::OS\n}\n\n#[cfg(test)]\nmod tests {\n    use std::env;\n}\n";
    check(
        &[
            ("crates/engine/src/lib.rs", code),
            ("crates/cli/src/main.rs", code),
            ("crates/bub/src/lib.rs", "mod settings;\n"),
            ("crates/bub/src/settings/mod.rs", code),
        ],
        expect!["crates/engine/src/lib.rs:3: [environment] `std::env` is used here"],
    );
}

#[test]
fn tasks_start_in_one_place() {
    check(
        &[
            ("crates/kernel/src/lib.rs", "mod task;\n"),
            ("crates/kernel/src/task.rs", "fn f() {\n    tokio::spawn(g());\n}\n"),
            (
                "crates/host/src/lib.rs",
                "fn f() {\n    tokio::task::spawn_blocking(g);\n    tokio::task::spawn(g());\n}\n",
            ),
        ],
        expect!["crates/host/src/lib.rs:3: [spawn] `task::spawn(` is used here"],
    );
}

#[test]
fn kernel_touches_nothing() {
    check(
        &[
            ("crates/kernel/src/lib.rs", "use std::fs;\nuse tokio::net::TcpStream;\n"),
            ("crates/host/src/lib.rs", "use std::fs;\n"),
        ],
        expect![[r#"
            crates/kernel/src/lib.rs:1: [kernel-io] `std::fs` is used here
            crates/kernel/src/lib.rs:2: [kernel-io] `tokio::net` is used here"#]],
    );
}

#[test]
fn silenced_lint_and_ignored_test_are_found() {
    check(
        &[(
            "crates/host/src/lib.rs",
            "#[expect(clippy::panic)]\nfn f() {}\n\n#[expect(\n    clippy::panic,\n    reason = \"it is one\"\n)]\nfn g() {}\n\n\
             #[cfg(test)]\nmod tests {\n    #[test]\n    #[ignore = \"slow\"]\n    fn t() {}\n}\n",
        )],
        expect![[r#"
            crates/host/src/lib.rs:1: [lint-reason] a lint is silenced without a reason
            crates/host/src/lib.rs:13: [ignored-test] a test is switched off"#]],
    );
}

#[test]
fn long_files_are_found_and_unit_tests_do_not_count() {
    let code = |lines: usize| "fn f() {}\n".repeat(lines);
    check(
        &[
            ("crates/host/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("crates/host/src/a.rs", &code(601)),
            ("crates/host/src/b.rs", &(code(600) + "\n#[cfg(test)]\nmod tests {\n" + &code(100) + "}\n")),
            ("crates/host/src/c/mod.rs", &code(201)),
        ],
        expect![[r#"
            crates/host/src/a.rs: [file-size] 601 lines without tests, at most 600
            crates/host/src/b.rs: [file-size] 601 lines without tests, at most 600
            crates/host/src/c/mod.rs: [mod-rs] 201 lines in a mod.rs, at most 200"#]],
    );
}

#[test]
fn crate_over_its_budget_is_found() {
    let files: Vec<_> = (0..6).map(|it| (format!("crates/testing/src/f{it}.rs"), "fn f() {}\n".repeat(550))).collect();
    let list: String = (0..6).map(|it| format!("mod f{it};\n")).collect();
    let mut changed: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    changed.push(("crates/testing/src/lib.rs", &list));
    check(&changed, expect!["crates/testing: [crate-size] 3306 lines without tests, the crate's budget is 3000"]);
}

#[test]
fn forgotten_files_are_found() {
    check(
        &[
            ("crates/host/src/lib.rs", "mod a;\npub(crate) mod b;\n"),
            ("crates/host/src/a.rs", "mod inner;\n"),
            ("crates/host/src/a/inner.rs", ""),
            ("crates/host/src/b/mod.rs", ""),
            ("crates/host/src/b/lost.rs", ""),
            ("crates/host/tests/it/main.rs", "mod known;\n"),
            ("crates/host/tests/it/known.rs", ""),
            ("crates/host/tests/it/lost.rs", ""),
            ("crates/host/tests/other.rs", ""),
        ],
        expect![[r#"
            crates/host/src/b/lost.rs: [orphan] no `mod lost;` in crates/host/src/b/mod.rs or crates/host/src/b.rs: nobody compiles this file
            crates/host/tests/it/lost.rs: [orphan] no `mod lost;` in crates/host/tests/it/lib.rs or crates/host/tests/it/main.rs: nobody compiles this file
            crates/host/tests/other.rs: [test-layout] a second integration-test binary"#]],
    );
}

#[test]
fn unfinished_work_and_machine_paths_are_found() {
    let (word, home) = (concat!("TO", "DO"), concat!("/ro", "ot/"));
    let text = format!("Fine.\n{word}: later\nSee {home}notes.\n");
    let folder = workspace(&[("docs/a.md", &text), ("Cargo.lock", home), ("target/x.md", home)]);
    let findings = tidy::check_tree(&Tree::read(folder.path()).unwrap(), &[]).unwrap();
    let places: Vec<_> = findings.iter().map(|it| (it.path.as_str(), it.line, it.rule)).collect();
    assert_eq!(places, [("docs/a.md", Some(2), Rule::Unfinished), ("docs/a.md", Some(3), Rule::Machine)]);
}

#[test]
fn dead_link_is_found() {
    check(
        &[
            (
                "docs/a.md",
                "[up](../LICENSE), [b](sub/b.md#part), [web](https://example.org/x), [here](#part)\n[no](c.md)\n```\n[code](d.md)\n```\n",
            ),
            ("docs/sub/b.md", ""),
            ("LICENSE", ""),
        ],
        expect!["docs/a.md:2: [link] nothing is at 'c.md'"],
    );
}

#[test]
fn hooks_that_do_not_name_their_methods_are_found() {
    let hooks = |name: &str, list: &str| {
        format!(
            "#[async_trait]\nimpl Hooks for {name} {{\n    fn implements(&self) -> &[&'static str] {{\n        &[{list}]\n    }}\n\n    \
             async fn before_tool(&self) {{\n    }}\n\n    async fn close(&self) {{}}\n}}\n"
        )
    };
    let all =
        [("A", r#""close", "before_tool""#), ("B", r#""before_tool""#), ("C", r#""close", "before_tool", "notices""#)];
    let code: String = all.iter().map(|(name, list)| hooks(name, list)).collect();
    check(
        &[("crates/host/src/lib.rs", &format!("{code}impl<T> Hooks for D<T> {{\n}}\n"))],
        expect![[r#"
            crates/host/src/lib.rs:13: [hook-list] `implements` names before_tool; the methods are before_tool, close
            crates/host/src/lib.rs:24: [hook-list] `implements` names before_tool, close, notices; the methods are before_tool, close"#]],
    );
}

#[test]
fn exception_excuses_and_is_reported_when_it_excuses_nothing() {
    let folder = workspace(&[("crates/kernel/src/lib.rs", "use std::fs;\n")]);
    let exception = |rule, path| Exception { rule, path, reason: "a test" };
    let exceptions = [exception(Rule::KernelIo, "crates/kernel/"), exception(Rule::Spawn, "crates/kernel/src/lib.rs")];
    let findings = tidy::check_tree(&Tree::read(folder.path()).unwrap(), &exceptions).unwrap();
    expect!["crates/kernel/src/lib.rs: [exception] nothing breaks rule 'spawn' here any more"]
        .assert_eq(&summary(&findings));
}

#[test]
fn finding_tells_place_rule_and_remedy() {
    let folder = workspace(&[("crates/kernel/src/lib.rs", "use std::fs;\n")]);
    let findings = tidy::check_tree(&Tree::read(folder.path()).unwrap(), &[]).unwrap();
    expect![[r#"
        crates/kernel/src/lib.rs:1: [kernel-io] `std::fs` is used here
            the kernel holds words and contracts; put what touches the machine behind a trait, in crates/host"#]]
    .assert_eq(&findings[0].to_string());
}

#[test]
fn manifest_that_is_no_toml_is_named() {
    let folder = workspace(&[("crates/host/Cargo.toml", "[package\n")]);
    let err = tidy::check_tree(&Tree::read(folder.path()).unwrap(), &[]).unwrap_err();
    assert_eq!(err.to_string(), "crates/host/Cargo.toml is no TOML");
}

/// Checks a sound little workspace in which some files are other ones.
fn check(changed: &[(&str, &str)], expected: Expect) {
    let folder = workspace(changed);
    let findings = tidy::check_tree(&Tree::read(folder.path()).unwrap(), &[]).unwrap();
    expected.assert_eq(&summary(&findings));
}

fn summary(findings: &[tidy::Finding]) -> String {
    let first = |it: &tidy::Finding| it.to_string().lines().next().unwrap_or_default().to_owned();
    findings.iter().map(first).collect::<Vec<_>>().join("\n")
}

fn workspace(changed: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let name_of = |folder: &str| match folder.rsplit('/').next().unwrap() {
        own @ ("bub" | "custom-bub" | "xtask") => own.to_owned(),
        other => format!("bub-{other}"),
    };
    let mut list = String::new();
    for layer in LAYERS {
        let name = name_of(layer.folder);
        write(&format!("{}/Cargo.toml", layer.folder), &manifest(&name, ""));
        if !changed.iter().any(|(path, _)| Path::new(path).starts_with(layer.folder) && path.ends_with("/main.rs")) {
            write(&format!("{}/src/lib.rs", layer.folder), "");
        }
        list.push_str(&format!("`{name}`\n"));
    }
    write("crates/README.md", &list);
    for (path, text) in changed {
        write(path, text);
    }
    folder
}

fn manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
}
