//! `bub skills`, and skills in commands and turns.

use std::{fs, path::Path, process::Command};

use bub_testing::{ModelServer, Reply};
use expect_test::expect;
use serde_json::Value;

use crate::home::TestHome;

fn put(root: &Path, name: &str, text: &str) {
    let folder = root.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn proper(name: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}.\n---\nHow to do {name}.\n")
}

/// A home with a good skill and broken ones in its workspace.
fn mixed() -> TestHome {
    let home = TestHome::new();
    let root = home.workspace().join(".agents/skills");
    put(&root, "good", &proper("good"));
    put(&root, "colon", "---\nname: colon\ndescription: Two words: here\n---\nBody.\n");
    put(&root, "bare", "No header.\n");
    put(&root, "GitHub", "---\nname: GitHub\ndescription: d\n---\n");
    home
}

fn relative(home: &TestHome, text: &str) -> String {
    text.replace(home.workspace().to_str().unwrap(), "WS")
        .replace(home.home().parent().unwrap().to_str().unwrap(), "HOME")
}

fn short(text: &str) -> String {
    text.lines().map(|it| it.chars().take(60).collect::<String>().trim_end().to_owned() + "\n").collect()
}

#[test]
fn r059_skills_are_listed_with_what_was_not_loaded_and_why() {
    let home = mixed();
    let out = relative(&home, &home.run(&["skills", "list"]).ok());
    expect![[r#"
        bub            builtin     How bub works, the program that r
        colon          project     Two words: here
        gh             builtin     Work with GitHub by its command-l
        good           project     About good.
        skill-creator  builtin     Write, check and improve skills.

        not loaded:
          WS/.agents/skills/GitHub/SKILL.md: its name 'GitHub' must
          WS/.agents/skills/bare/SKILL.md: it has no header: the fir
    "#]]
    .assert_eq(&short(&out));
    let json = home.run(&["skills", "list", "--json"]).ok();
    let lines: Vec<Value> = json.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[3]["name"], "good");
    assert!(lines[5]["error"].as_str().unwrap().contains("lower-case"), "{json}");
    // As a command, for the person.
    let ran = home.run(&["run", ",skill"]);
    assert!(ran.err.contains("bare/SKILL.md was not loaded: it has no header"), "{}", ran.err);
    let out = relative(&home, &ran.ok());
    assert!(
        out.starts_with("Available skills:\n- bub\n- colon\n- gh\n- good\n- skill-creator\nNot loaded:\n"),
        "{out}"
    );
    assert!(out.contains("- WS/.agents/skills/bare/SKILL.md: it has no header"), "{out}");
}

#[test]
fn a_skill_is_shown_as_the_model_reads_it() {
    let home = mixed();
    let out = home.run(&["skills", "show", "GOOD"]).ok();
    assert_eq!(relative(&home, &out), "Location: WS/.agents/skills/good/SKILL.md\n---\nHow to do good.\n");
    assert_eq!(home.run(&["run", ",skill name=Good"]).ok(), out);
    let err = home.run(&["skills", "show", "nope"]).failed(1);
    assert_eq!(err, "error: no such skill: 'nope'; `bub skills list` lists those that there are\n");
    assert!(home.run(&["skills", "show", "github"]).failed(1).contains("must be lower-case"));
    assert_eq!(home.run(&["run", ",skill name=nope"]).ok(), "(no such skill)\n");
    let builtin = home.run(&["skills", "show", "gh"]).ok();
    assert!(
        relative(&home, &builtin).starts_with("Location: HOME/.bub/skills-builtin/gh/SKILL.md\n---\n# GitHub"),
        "{builtin}"
    );
}

#[test]
fn skills_are_checked_and_broken_ones_fail() {
    let home = mixed();
    let ran = home.run(&["skills", "check"]);
    assert_eq!(ran.code, Some(1));
    let out = relative(&home, &ran.out);
    assert!(out.contains("ok       WS/.agents/skills/good/SKILL.md\n"), "{out}");
    assert!(out.contains("warning  WS/.agents/skills/colon/SKILL.md: its header is not YAML"), "{out}");
    assert!(out.contains("broken   WS/.agents/skills/bare/SKILL.md: it has no header"), "{out}");
    home.run(&["skills", "check", ".agents/skills/good"]).ok();
    let ran = home.run(&["skills", "check", ".agents/skills"]);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(1), 4));
    assert!(home.run(&["skills", "check", "no/such"]).failed(1).contains("No such file"));
    let ran = home.run(&["skills", "check", ".agents"]);
    assert!(ran.code == Some(1) && ran.out.contains("it can't be read"), "{}", ran.out);
    let clean = TestHome::new();
    assert_eq!(clean.run(&["skills", "check"]).ok().lines().filter(|it| it.starts_with("ok ")).count(), 3);
}

#[test]
fn skills_are_installed_from_a_folder() {
    let home = TestHome::new();
    let source = home.workspace().join("mine");
    put(&source, "one", &proper("one"));
    put(&source, "two", &proper("two"));
    let out = relative(&home, &home.run(&["skills", "install", "mine/one"]).ok());
    assert_eq!(out, "installed one to HOME/.agents/skills/one\n");
    assert!(home.run(&["run", ",skill one"]).ok().contains("How to do one."));
    let err = home.run(&["skills", "install", "mine"]).failed(1);
    assert!(err.contains("--force replaces it") && err.contains("there is a skill 'one'"), "{err}");
    let out = relative(&home, &home.run(&["skills", "install", "mine", "two"]).ok());
    assert_eq!(out, "installed two to HOME/.agents/skills/two\n");
    assert!(
        home.run(&["skills", "install", "mine", "three"]).failed(1).contains("has no skill 'three'; it has one, two")
    );
    let workspace = home.workspace();
    let args = ["-w", workspace.to_str().unwrap(), "skills", "install", "mine", "--force"];
    let out = relative(&home, &home.run(&args).ok());
    assert_eq!(out, "installed one to WS/.agents/skills/one\ninstalled two to WS/.agents/skills/two\n");
    let again = home.run(&["skills", "install", "mine", "one", "--force"]);
    assert!(
        relative(&home, &again.err).contains("note: WS/.agents/skills/one/SKILL.md has the same name and ranks higher"),
        "{}",
        again.err
    );
    put(&source, "bad", "nothing");
    assert!(home.run(&["skills", "install", "mine/bad"]).failed(1).contains("is no proper skill: it has no header"));
    let err = home.run(&["skills", "install", "nowhere"]).failed(2);
    assert!(err.starts_with("error: no such folder: nowhere; a git repository is named by its address"), "{err}");
}

#[test]
fn skills_are_installed_from_a_git_repository() {
    let home = TestHome::new();
    let repository = home.workspace().join("repository");
    put(&repository.join("skills"), "from-git", &proper("from-git"));
    for args in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", "x"],
    ] {
        assert!(Command::new("git").args(args).current_dir(&repository).status().unwrap().success());
    }
    let address = format!("file://{}", repository.display());
    let out = relative(&home, &home.run(&["skills", "install", &address]).ok());
    assert_eq!(out, "installed from-git to HOME/.agents/skills/from-git\n");
    assert!(home.run(&["run", ",skill from-git"]).ok().contains("How to do from-git."));
    let err = home.run(&["skills", "install", "file:///no/such/repository"]).failed(1);
    assert!(err.starts_with("error: git did not fetch file:///no/such/repository: "), "{err}");
}

#[test]
fn a_named_skill_is_told_in_every_step_of_the_turn() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", serde_json::json!({"command": "true"}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    put(&home.workspace().join(".agents/skills"), "deploy", &proper("deploy"));
    assert_eq!(home.run(&["run", "do it as in $Deploy!"]).ok(), "done\n");
    for chat in server.chats() {
        let system = chat.messages()[0]["content"].as_str().unwrap();
        assert!(system.contains("<available_skills>\n- bub: "), "{system}");
        assert!(
            system.contains("- deploy: About deploy.\n  Location: ") && system.contains("\nHow to do deploy.\n- gh: "),
            "{system}"
        );
        assert_eq!(system.matches("Location:").count(), 1);
    }
}

#[test]
fn r061_a_turn_may_be_given_some_skills_or_none() {
    let server = ModelServer::with(|_| Reply::text("ok"));
    let home = TestHome::with_model(&server);
    for (names, expected) in [("GH,Bub", vec!["bub", "gh"]), ("", vec![]), ("nope", vec![])] {
        home.run(&["run", "--skills", names, "use $gh"]).ok();
        let chat = server.chats().pop().unwrap();
        let system = chat.messages()[0]["content"].as_str().unwrap();
        let block = system.split_once("<available_skills>").map_or("", |(_, it)| it);
        let found: Vec<_> =
            ["bub", "gh", "skill-creator"].into_iter().filter(|it| block.contains(&format!("\n- {it}: "))).collect();
        assert_eq!(found, expected, "{names}");
    }
}
