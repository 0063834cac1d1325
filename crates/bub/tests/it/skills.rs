//! Skills: which are found, what the model is told, and what it can read.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use bub::{
    App, TurnOptions,
    skills::{Catalog, InstallError, Source, candidates, install},
};
use bub_testing::Script;
use serde_json::json;

use crate::bench::{Bench, Folders, With, inbound};

fn app(folders: &Folders) -> App {
    folders.app(With(|_: &mut bub_kernel::plugin::Registry| {}))
}

fn found(folders: &Folders) -> Catalog {
    app(folders).skills().find()
}

fn names(catalog: &Catalog) -> Vec<&str> {
    catalog.skills.iter().map(|it| it.name.as_str()).collect()
}

/// The block of skills of a system prompt.
fn block(system: &str) -> &str {
    system.split_once("<available_skills>\n").unwrap().1.split_once("\n</available_skills>").unwrap().0
}

#[tokio::test]
async fn skills_are_listed_and_those_that_are_named_are_told_in_full_for_the_whole_turn() {
    let folders = Folders::new();
    let file = folders.skill("deploy", "Run $SKILL_DIR/go.sh with $PYTHON.\n");
    folders.skill("other", "unread");
    let bench = folders.bench([
        Script::calls([("c1", "tape_info", json!({}))]),
        Script::text("done"),
        Script::text("no names"),
    ]);
    bench.say("please use $DEPLOY.").await;
    let dir = file.parent().unwrap().display().to_string();
    let told =
        format!("- deploy: About deploy.\n  Location: {}\nRun {dir}/go.sh with python3.\n- gh: ", file.display());
    for idx in [0, 1] {
        assert!(block(&bench.system(idx)).contains(&told), "{}", bench.system(idx));
        assert!(block(&bench.system(idx)).ends_with("- other: About other.\n- skill-creator: Write, check and improve skills. Use it when somebody wants a new skill or another one changed, or when a skill is not found or not used."));
        assert!(bench.system(idx).ends_with("</available_skills>"), "skills stand last");
    }
    bench.say("and now?").await;
    assert!(!bench.system(2).contains("Location:") && bench.system(2).contains("- deploy: About deploy.\n"));
}

#[tokio::test]
async fn the_tool_lists_and_reads_what_the_turn_may_use() {
    let folders = Folders::new();
    let file = folders.skill("deploy", "\nBody.\n\n");
    folders.skill("empty", " \n");
    let bench = folders.bench([
        Script::calls([
            ("c1", "skill", json!({})),
            ("c2", "skill", json!({"name": "DEPLOY"})),
            ("c3", "skill", json!({"name": "empty"})),
            ("c4", "skill", json!({"name": "zzz"})),
            ("c5", "skill", json!({"name": "deplay"})),
        ]),
        Script::text("done"),
        Script::calls([
            ("d1", "skill", json!({})),
            ("d2", "skill", json!({"name": "empty"})),
            ("d3", "skill", json!({"name": "deploy"})),
        ]),
        Script::text("done"),
        Script::calls([("e1", "skill", json!({})), ("e2", "skill", json!({"name": "gh"}))]),
        Script::text("done"),
    ]);
    bench.say("go").await;
    let read = format!("Location: {}\n---\nBody.", file.display());
    let results = bench.results(1);
    assert_eq!(results[0], "Available skills:\n- bub\n- deploy\n- empty\n- gh\n- skill-creator");
    assert_eq!(results[1], read);
    assert!(results[2].ends_with("/empty/SKILL.md\n---\n(no content)"), "{results:?}");
    assert_eq!(results[3..], ["(no such skill)", "(no such skill)\nDid you mean: deploy?"]);

    let with = async |skills: &[&str]| {
        let allowed_skills = Some(skills.iter().map(|it| (*it).to_owned()).collect());
        let options = TurnOptions { allowed_skills, ..TurnOptions::default() };
        bench.app.runtime().turn(inbound("s", "use $empty"), options).result().await.unwrap();
    };
    with(&["Deploy"]).await;
    assert_eq!(block(&bench.system(2)), "- deploy: About deploy.");
    let not_allowed = |name| format!("(skill '{name}' is not allowed in this context)");
    assert_eq!(bench.results(3), ["Available skills:\n- deploy".to_owned(), not_allowed("empty"), read]);
    with(&[]).await;
    assert!(!bench.system(4).contains("available_skills"));
    assert_eq!(bench.results(5), ["Available skills:".to_owned(), not_allowed("gh")]);
}

#[test]
fn r059_a_header_with_a_colon_is_read_and_others_are_reported() {
    let folders = Folders::new();
    let header = |name: &str, more: &str| format!("---\nname: {name}\n{more}---\nText.\n");
    let put = |name: &str, text: String| folders.write(&format!("ws/.agents/skills/{name}/SKILL.md"), text);
    put("a", header("a", "description: Configure the harness: Hooks, MCP\n"));
    put("b", "No header at all.\n".into());
    put("c", header("c", "description: good\nargument-hint: [x] - y\n"));
    put("d", header("d", "description: Good.\n"));
    let catalog = found(&folders);
    assert_eq!(names(&catalog), ["a", "bub", "c", "d", "gh", "skill-creator"]);
    assert_eq!(catalog.find("a").unwrap().description, "Configure the harness: Hooks, MCP");
    assert!(catalog.find("a").unwrap().warnings[0].contains("line 3"), "{:?}", catalog.find("a"));
    let rejected: Vec<_> = catalog.rejected.iter().map(|it| (it.name.as_str(), it.reason.as_str())).collect();
    assert_eq!(rejected[0], ("b", "it has no header: the first line must be ---"));
}

#[tokio::test]
async fn r061_names_are_found_in_any_case_and_broken_rules_are_told() {
    let folders = Folders::new();
    folders.write("ws/.agents/skills/GitHub/SKILL.md", "---\nname: GitHub\ndescription: d\n---\n");
    folders.write("ws/.agents/skills/foo/SKILL.md", "---\nname: bar\ndescription: d\n---\n");
    folders.skill("lower", "found");
    let bench = folders.bench([]);
    let out = bench.say(",skill name=GITHUB").await;
    assert!(
        out.starts_with("(no such skill)\nNot loaded:\n- ") && out.contains("'GitHub' must be lower-case"),
        "{out}"
    );
    assert!(bench.say(",skill LOWER").await.ends_with("\n---\nfound"));
    let out = bench.say(",skill").await;
    assert!(out.contains("- lower\n") && out.contains("its name 'bar' is not that of its folder, 'foo'"), "{out}");
}

#[test]
fn r062_links_work_the_first_of_a_name_counts_and_what_cannot_be_read_is_reported() {
    let folders = Folders::new();
    let project = folders.skill("x", "project");
    folders.write("home/.agents/skills/x/SKILL.md", "---\nname: x\ndescription: home\n---\n");
    let elsewhere = folders.write("elsewhere/y/SKILL.md", "---\nname: y\ndescription: d\n---\nlinked");
    std::os::unix::fs::symlink(elsewhere.parent().unwrap(), folders.path("ws/.agents/skills/y")).unwrap();
    let closed = folders.skill("z", "");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    std::os::unix::fs::symlink("nowhere", folders.path("ws/.agents/skills/dangling")).unwrap();
    folders.skill("lost", "");
    std::fs::remove_file(folders.path("ws/.agents/skills/lost/SKILL.md")).unwrap();
    std::os::unix::fs::symlink("nowhere", folders.path("ws/.agents/skills/lost/SKILL.md")).unwrap();
    std::fs::create_dir_all(folders.path("ws/.agents/skills/folder/SKILL.md")).unwrap();
    std::fs::create_dir_all(folders.path("ws/.agents/skills/no-skill")).unwrap();
    let app = app(&folders);
    let catalog = app.skills().find();
    let x = catalog.find("X").unwrap();
    assert_eq!((&x.file, x.source), (&project, Source::Project));
    assert_eq!(app.skills().read(x).unwrap().body, "project");
    assert_eq!(catalog.shadowed.iter().map(|it| it.source).collect::<Vec<_>>(), [Source::User]);
    assert_eq!(app.skills().read(catalog.find("y").unwrap()).unwrap().body, "linked");
    let reason = |name: &str| catalog.rejected.iter().find(|it| it.name == name).map(|it| it.reason.clone());
    // Root reads every file.
    let can_read = std::fs::read(&closed).is_ok();
    assert_eq!(reason("z").is_none(), can_read);
    assert!(reason("lost").unwrap().contains("No such file"));
    assert_eq!(reason("folder").unwrap(), "it is not a regular file");
    assert_eq!(reason("no-skill"), None);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn r064_one_file_that_is_not_text_hides_nothing_else() {
    let folders = Folders::new();
    folders.write("ws/.agents/skills/bad/SKILL.md", b"\xff\xfe---");
    folders.write("ws/.agents/skills/late/SKILL.md", b"---\nname: late\ndescription: d\n---\nab\xffc");
    folders.write("ws/.agents/skills/bom/SKILL.md", "\u{feff}---\r\nname: bom\r\ndescription: d\r\n---\r\nb\r\n");
    folders.skill("good", "");
    let catalog = found(&folders);
    assert!(catalog.find("good").is_some() && catalog.find("bom").is_some());
    let reasons: Vec<_> = catalog.rejected.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(reasons, ["it is not UTF-8 text (at byte 0)", "it is not UTF-8 text (at byte 36)"]);
}

#[test]
fn a_long_text_is_read_late_and_cut() {
    let folders = Folders::new();
    folders.skill("long", &"line of text\n".repeat(160_000));
    folders.write("ws/.agents/skills/head/SKILL.md", format!("---\nname: head\nx: {}\n---\n", "y".repeat(70_000)));
    folders.write("ws/.agents/skills/open/SKILL.md", "---\nname: open\n");
    let app = app(&folders);
    let catalog = app.skills().find();
    let text = app.skills().read(catalog.find("long").unwrap()).unwrap();
    let n_chars = text.body.chars().count();
    assert!(n_chars < 201_000 && text.body.contains("chars omitted"), "{n_chars}");
    let reasons: Vec<_> = catalog.rejected.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(reasons, ["its header is longer than 64 KiB", "its header does not end: a second line --- is missing"]);
}

#[tokio::test]
async fn the_prompt_has_room_for_many_skills_and_no_more() {
    let folders = Folders::new();
    for idx in 0..400 {
        folders.skill(&format!("s{idx:03}"), &"x".repeat(1_000));
    }
    let bench = folders.bench([Script::text("ok")]);
    let all: String = (0..400).map(|idx| format!("$s{idx:03} ")).collect();
    bench.say(&all).await;
    let system = bench.system(0);
    assert!(system.len() < 200_000, "{}", system.len());
    assert!(
        block(&system).contains("(and 203 more)") || block(&system).contains("more)"),
        "{}",
        &system[system.len() - 200..]
    );
}

#[test]
fn other_places_can_be_named_and_none() {
    let folders = Folders::new().var("BUB_SKILL_DIRS", "mine,~/more,no/such");
    folders.write("ws/mine/a/SKILL.md", "---\nname: a\ndescription: d\n---\n");
    folders.write("home/more/b/SKILL.md", "---\nname: b\ndescription: d\n---\n");
    folders.skill("usual", "");
    let catalog = found(&folders);
    assert_eq!(names(&catalog), ["a", "b"]);
    assert!(catalog.rejected[0].reason.starts_with("the folder can't be read"), "{:?}", catalog.rejected);
    let folders = Folders::new().var("BUB_SKILL_DIRS", "[]");
    folders.skill("usual", "");
    assert!(found(&folders).skills.is_empty());
    let folders = Folders::new();
    folders.write("home/.bub/config.yml", "skill_dirs: []\n");
    assert!(found(&folders).skills.is_empty());
}

#[test]
fn the_old_place_is_read_and_named() {
    let folders = Folders::new();
    folders.write("ws/.agent/skills/old/SKILL.md", "---\nname: old\ndescription: d\n---\n");
    let catalog = found(&folders);
    assert_eq!(catalog.find("old").unwrap().source, Source::Legacy);
    assert!(catalog.warnings[0].ends_with("is an old place for skills: move them to .agents/skills"));
}

#[tokio::test]
async fn values_of_the_configuration_are_filled_in_and_credentials_are_not_shown() {
    let folders = Folders::new().var("BUB_API_KEY", "sk-secret-0123456789");
    folders.write("home/.bub/config.yml", "company:\n  wiki: https://wiki.example\n  teams: [a, b]\nmax_steps: 7\n");
    folders.skill(
        "c",
        "${config.company.wiki} ${config.max_steps} ${config.company.teams} [${config.api_key}] [${config.none}]",
    );
    let bench = folders.bench([]);
    let out = bench.say(",skill c").await;
    assert!(out.ends_with("\n---\nhttps://wiki.example 7 - a\n- b [***] []"), "{out}");
}

#[tokio::test]
async fn built_in_skills_are_files_when_they_are_read() {
    let bench = Bench::new([Script::text("ok")]);
    let root = bench.folders.path("home/.bub/skills-builtin");
    bench.say("hi").await;
    assert!(!root.exists(), "nothing is written that nobody reads");
    for name in ["bub", "gh", "skill-creator"] {
        let out = bench.say(&format!(",skill {name}")).await;
        let location = out.lines().next().unwrap().strip_prefix("Location: ").unwrap();
        assert_eq!(PathBuf::from(location), root.join(name).join("SKILL.md"));
        assert!(std::fs::read_to_string(location).unwrap().starts_with("---\nname: "));
        assert!(!out.contains("$SKILL_DIR/scripts") || !out.contains("${SKILL_DIR}"));
    }
}

#[test]
fn skills_are_installed_whole_or_not_at_all() {
    let folders = Folders::new();
    folders.write("src/skills/one/SKILL.md", "---\nname: one\ndescription: d\n---\nv1");
    let script = folders.write("src/skills/one/scripts/go.sh", "#!/bin/sh\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    folders.write("src/two/SKILL.md", "---\nname: two\ndescription: d\n---\n");
    folders.write("src/two/.git/config", "secret");
    let source = folders.path("src");
    let target = folders.path("target");
    let found = candidates(&source, false).unwrap();
    assert_eq!(found.iter().map(|it| it.skill.name.as_str()).collect::<Vec<_>>(), ["two", "one"]);
    for it in &found {
        install(it, &target, false).unwrap();
    }
    let copy = target.join("one/scripts/go.sh");
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!target.join("two/.git").exists());

    let err = install(&found[1], &target, false).unwrap_err();
    assert!(matches!(err, InstallError::Exists { .. }), "{err}");
    folders.write("src/skills/one/SKILL.md", "---\nname: one\ndescription: d\n---\nv2");
    std::fs::remove_file(&script).unwrap();
    install(&found[1], &target, true).unwrap();
    assert!(std::fs::read_to_string(target.join("one/SKILL.md")).unwrap().ends_with("v2") && !copy.exists());

    std::os::unix::fs::symlink("/etc/passwd", source.join("skills/one/passwd")).unwrap();
    let err = install(&found[1], &target, true).unwrap_err().to_string();
    assert!(err.contains("a link that leads out of the skill"), "{err}");
    assert!(target.join("one/SKILL.md").exists(), "what was there stays");
    let left: Vec<_> = std::fs::read_dir(&target).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");

    folders.write("src/three/SKILL.md", "nothing");
    assert!(matches!(candidates(&source, false).unwrap_err(), InstallError::Broken { .. }));
    assert!(matches!(candidates(&folders.path("home"), false).unwrap_err(), InstallError::NoSkill { .. }));
    let own = candidates(&target.join("two"), true).unwrap();
    assert!(install(&own[0], &target, true).unwrap_err().to_string().contains("already"));
}
