//! This machine: what only it does, or does in a way of its own. What all environments do is in `environments`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::environment::{EnvPath, Environment, EnvironmentError, Program, SpawnRequest};
use tempfile::TempDir;

use crate::environments::{self, finish, started, until};

fn local(workspace: &Path) -> LocalEnvironment {
    local_with(LocalOptions { workspace: Some(workspace.to_owned()), ..LocalOptions::default() })
}

fn local_with(options: LocalOptions) -> LocalEnvironment {
    LocalEnvironment::new(LocalOptions { adopt_orphans: true, ..options }).unwrap()
}

async fn run(env: &LocalEnvironment, script: &str) -> (String, i32) {
    environments::run(env, script).await
}

#[tokio::test]
async fn variables_are_inherited_hidden_and_added() {
    let folder = TempDir::new().unwrap();
    let env = local_with(LocalOptions {
        workspace: Some(folder.path().to_owned()),
        hidden_variables: vec!["HOME".into(), "NOT_SET".into()],
        ..LocalOptions::default()
    });
    let script = "echo ${HOME:-hidden} ${PATH:+path} $ADDED $GIT_TERMINAL_PROMPT $PAGER";
    let added = [("ADDED".to_owned(), "x  y".to_owned()), ("PAGER".to_owned(), "more".to_owned())];
    let request = SpawnRequest { env: BTreeMap::from(added), ..SpawnRequest::shell(script) };
    let mut process = env.spawn(request).await.unwrap();
    assert_eq!(finish(process.as_mut()).await.0, "hidden path x y 0 more\n");
}

#[tokio::test]
async fn r001_shell_is_bash_else_sh_else_an_error_that_names_both() {
    let folder = TempDir::new().unwrap();
    let with_path =
        |path: &Path| local_with(LocalOptions { path: Some(OsString::from(path)), ..LocalOptions::default() });
    let env = with_path(folder.path());
    let err = env.spawn(SpawnRequest::shell("echo ok")).await.err().unwrap();
    assert!(matches!(err, EnvironmentError::NoShell(_)), "{err}");
    let text = err.to_string();
    assert!(text.starts_with("no shell found: looked for bash and sh in /"), "{text}");
    // A shell that appears later is used: the environment is not spoilt.
    symlink("/bin/sh", folder.path().join("sh")).unwrap();
    assert_eq!(run(&env, "echo ok").await, ("ok\n".into(), 0));
    assert_eq!(run(&env, "echo ${BASH_VERSION:-plain}").await.1, 0);
    // One that may not be run is passed over.
    fs::write(folder.path().join("bash"), "").unwrap();
    assert_eq!(run(&with_path(folder.path()), "echo ok").await, ("ok\n".into(), 0));
}

#[tokio::test]
async fn directory_is_the_workspace_or_what_was_asked_for_and_must_exist() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let env = local(&root);
    assert_eq!(run(&env, "pwd").await.0, format!("{}\n", root.display()));
    let in_directory =
        |path: &str| SpawnRequest { cwd: Some(env.resolve(path).unwrap()), ..SpawnRequest::shell("pwd") };
    let mut process = env.spawn(in_directory("sub")).await.unwrap();
    assert_eq!(finish(process.as_mut()).await.0, format!("{}/sub\n", root.display()));
    let err = env.spawn(in_directory("none")).await.err().unwrap();
    assert!(matches!(err, EnvironmentError::NotFound(_)), "{err}");
    let err = env.spawn(in_directory("file")).await.err().unwrap();
    assert!(err.to_string().contains("not a directory"), "{err}");
    let gone = local(&root.join("gone"));
    let err = gone.spawn(SpawnRequest::shell("pwd")).await.err().unwrap();
    assert!(err.to_string().starts_with("no such file or directory: /"), "{err}");
    let err = env.spawn(SpawnRequest { program: Program::Argv(vec!["no-such-program".into()]), ..in_directory("sub") });
    assert_eq!(err.await.err().unwrap().to_string(), "no such file or directory: no-such-program");
    for argv in [vec![], vec![String::new()], vec!["echo".into(), "\0".into()]] {
        let request = SpawnRequest { program: Program::Argv(argv), ..SpawnRequest::shell("") };
        assert!(env.spawn(request).await.is_err());
    }
}

#[test]
fn paths_are_resolved_against_home_and_workspace() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("real/inner")).unwrap();
    symlink("real", root.join("link")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let env = local_with(LocalOptions {
        workspace: Some(root.clone()),
        home: Some("/home/someone".into()),
        ..LocalOptions::default()
    });
    let root = root.display();
    for (path, expected) in [
        ("a", format!("{root}/a")),
        ("./a/../b//c", format!("{root}/b/c")),
        ("link/new.txt", format!("{root}/real/new.txt")),
        ("link/inner/../../x", format!("{root}/x")),
        ("loop/x", format!("{root}/loop/x")),
        ("link/new/", format!("{root}/real/new/")),
        ("~user", format!("{root}/~user")),
        ("/a/../b//c", "/a/../b//c".into()),
        ("~", "/home/someone".into()),
        ("~/x/y", "/home/someone/x/y".into()),
    ] {
        assert_eq!(env.resolve(path).unwrap(), EnvPath::new(expected), "{path}");
    }
    for (path, reason) in [("", "it is empty"), ("a\0b", "it contains a NUL byte")] {
        let text = env.resolve(path).unwrap_err().to_string();
        assert!(text.ends_with(reason) && !text.contains('\0'), "{text}");
    }
    let bare = local_with(LocalOptions::default());
    assert!(bare.workspace().is_none());
    assert!(matches!(bare.resolve("a"), Err(EnvironmentError::NoWorkspace(path)) if path == "a"));
    assert!(matches!(bare.resolve("~/a"), Err(EnvironmentError::InvalidPath { .. })));
    assert_eq!(bare.resolve("/a").unwrap().as_str(), "/a");
    let relative = LocalOptions { workspace: Some("relative".into()), ..LocalOptions::default() };
    assert!(matches!(LocalEnvironment::new(relative), Err(EnvironmentError::InvalidPath { .. })));
}

#[tokio::test]
async fn r013_git_opens_no_editor_and_asks_for_nothing() {
    let folder = TempDir::new().unwrap();
    let env = local(folder.path());
    let start = Instant::now();
    // Without upkeep, which a commit would leave running for a moment.
    let setup = "git init -q . && git config user.email a@b && git config user.name n && \
                 git config gc.auto 0 && git config maintenance.auto false && echo x > f && git add f";
    assert_eq!(run(&env, setup).await, (String::new(), 0));
    let (text, code) = run(&env, "git commit").await;
    assert_ne!(code, 0);
    assert!(text.contains("no editor can be opened here") && text.contains("empty commit message"), "{text}");
    assert_eq!(run(&env, "git commit -q -m one").await, (String::new(), 0));
    let (text, _) = run(&env, "git rebase -i --root").await;
    assert!(text.contains("no editor can be opened here"), "{text}");
    let (text, code) = run(&env, "git -c credential.helper= clone http://127.0.0.1:9/x.git 2>&1").await;
    assert_ne!(code, 0, "{text}");
    assert!(start.elapsed() < Duration::from_secs(9));
}

#[tokio::test]
async fn orphans_leave_no_zombies() {
    let folder = TempDir::new().unwrap();
    let env = local(folder.path());
    for _ in 0..5 {
        // Each leaves children behind that end soon after it.
        let script = "(sleep 0.02 &) ; (setsid sleep 0.04 >/dev/null &) ; sh -c 'sleep 0.03 & exit' & echo";
        let mut process = started(&env, script).await;
        process.wait().await.unwrap();
        assert!(until(Duration::from_secs(10), || !process.is_running()).await);
    }
    let dead = || {
        let children = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
        let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        children.split_whitespace().map(stat).filter(|it| it.contains("(sleep) Z")).count()
    };
    // One whose parent ended after it was seen dead is waited for when the next command has ended.
    let deadline = Instant::now() + Duration::from_secs(10);
    while dead() > 0 {
        assert!(Instant::now() < deadline, "{} zombies", dead());
        let mut process = started(&env, "echo").await;
        process.wait().await.unwrap();
        assert!(!process.is_running());
    }
}

/// In a container the leader of our session may be outside of the namespace, so that it has no number.
#[test]
#[cfg(target_os = "linux")]
fn session_whose_leader_is_outside_of_the_namespace_is_no_fault() {
    let in_namespace = |argv: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]).args(argv).output()
    };
    if !in_namespace(&["true"]).is_ok_and(|it| it.status.success()) {
        return; // This machine makes no namespaces.
    }
    let this = std::env::current_exe().unwrap();
    let output = in_namespace(&[this.to_str().unwrap(), "--exact", "processes::orphans_leave_no_zombies"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
