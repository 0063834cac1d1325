//! Environments behind a command: what is their own.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use bub_host::{ExecEnvironment, ExecOptions, LocalOptions};
use bub_kernel::environment::{EnvPath, Environment, EnvironmentError, Signal, SpawnRequest};
use tempfile::TempDir;

use crate::environments::{nap, pids_of, run, started, until};

fn options(command: &[&str]) -> ExecOptions {
    ExecOptions {
        command: command.iter().map(|it| (*it).to_owned()).collect(),
        hint: "see the manual".into(),
        local: LocalOptions { adopt_orphans: true, ..LocalOptions::default() },
        ..ExecOptions::default()
    }
}

fn env(command: &[&str]) -> ExecEnvironment {
    ExecEnvironment::new(options(command)).unwrap()
}

const PLAIN: &[&str] = &["sh", "-c", "exec \"$@\"", "sh"];

#[tokio::test]
async fn workspace_and_home_are_what_the_shell_inside_says() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let command = ["env", "-C", root, "HOME=/home/inside", "sh", "-c", "exec \"$@\"", "sh"];
    let env = env(&command);
    assert_eq!(env.workspace(), None);
    let err = env.resolve("a").unwrap_err().to_string();
    assert!(err.contains("nothing was asked of it yet"), "{err}");
    env.connect().await.unwrap();
    assert_eq!(env.workspace().unwrap().as_str(), root);
    assert_eq!(env.resolve("a").unwrap().as_str(), format!("{root}/a"));
    assert_eq!(env.resolve("~/a").unwrap().as_str(), "/home/inside/a");
    assert_eq!(run(&env, "pwd").await.0, format!("{root}\n"));

    let relative = ExecOptions { workspace: Some("here".into()), ..options(PLAIN) };
    assert!(matches!(ExecEnvironment::new(relative), Err(EnvironmentError::InvalidPath { .. })));
    let gone = ExecEnvironment::new(ExecOptions { workspace: Some("/no/such".into()), ..options(PLAIN) }).unwrap();
    let err = gone.spawn(SpawnRequest::shell("pwd")).await.err().unwrap();
    assert_eq!(err.to_string(), "no such file or directory: /no/such");
}

/// What `command` comes to, in every operation.
async fn check_unavailable(command: &[&str], expected: &str) {
    let env = env(command);
    let path = EnvPath::new("/tmp/x");
    let mut errors = vec![env.connect().await.unwrap_err()];
    errors.extend(env.resolve("a").err());
    errors.extend(env.spawn(SpawnRequest::shell("echo hi")).await.err());
    errors.extend(env.open(&path).await.err());
    errors.extend(env.write(&path, b"content").await.err());
    let spawn = SpawnRequest { cwd: Some(path.clone()), ..SpawnRequest::shell("echo hi") };
    errors.extend(env.spawn(spawn).await.err());
    assert_eq!(errors.len(), 6, "{command:?}: {errors:?}");
    for err in errors {
        assert!(matches!(err, EnvironmentError::Unavailable(_)), "{err:?}");
        let expected =
            format!("the environment cannot be reached by `{}`: {expected}; see the manual", command.join(" "));
        assert_eq!(err.to_string(), expected);
    }
    assert_eq!(env.true_path(&path).await, path);
}

#[tokio::test]
async fn a_command_that_does_not_lead_inside_says_so_in_every_operation() {
    check_unavailable(&["no-such-engine", "exec", "box"], "there is no such program").await;
    let refusing = ["sh", "-c", "echo 'Error:  No such container: box' >&2; exit 1"];
    check_unavailable(&refusing, "it ended with code 1: Error: No such container: box").await;
    check_unavailable(&["false"], "it ended with code 1").await;
    check_unavailable(&["echo"], "it ended with code 0").await;
    check_unavailable(&["sh", "-c", "kill -KILL $$"], "it ended with code -9").await;
    for command in [&[] as &[&str], &[""], &["a\0b"]] {
        assert!(matches!(ExecEnvironment::new(options(command)), Err(EnvironmentError::Unavailable(_))));
    }
}

#[tokio::test]
async fn an_environment_that_comes_up_later_is_used() {
    let folder = TempDir::new().unwrap();
    let flag = folder.path().join("running");
    let script = format!("[ -e {} ] || {{ echo not running >&2; exit 1; }}; exec \"$@\"", flag.display());
    let env = env(&["sh", "-c", &script, "sh"]);
    assert!(env.connect().await.unwrap_err().to_string().contains("code 1: not running"));
    assert!(env.resolve("a").unwrap_err().to_string().contains("code 1: not running"));
    fs::write(&flag, "").unwrap();
    // Asking is enough, a little later.
    assert!(until(Duration::from_secs(10), || env.resolve("a").is_ok()).await);
    assert_eq!(run(&env, "echo hi").await, ("hi\n".into(), 0));
    // And one that goes away while a process runs.
    let mut process = env.spawn(SpawnRequest::shell("kill -KILL $PPID; sleep 5; kill -KILL 0")).await.unwrap();
    drop(tokio::time::timeout(Duration::from_secs(20), process.wait()).await.unwrap());
}

#[tokio::test]
async fn the_command_gets_no_hidden_variables_and_gives_none() {
    let local = LocalOptions { hidden_variables: vec!["HOME".into()], ..options(&[]).local };
    let env = ExecEnvironment::new(ExecOptions { local, ..options(PLAIN) }).unwrap();
    assert_eq!(run(&env, "echo ${HOME:-hidden}").await.0, "hidden\n");
}

#[tokio::test]
async fn scripts_are_run_by_the_shell_that_was_chosen() {
    let folder = TempDir::new().unwrap();
    let shell = folder.path().join("shell");
    symlink("/bin/sh", &shell).unwrap();
    let with = |shell: &Path| ExecOptions { shell: Some(shell.to_str().unwrap().into()), ..options(PLAIN) };
    let env = ExecEnvironment::new(with(&shell)).unwrap();
    assert_eq!(run(&env, "echo $0").await.0, format!("{}\n", shell.display()));
    let env = ExecEnvironment::new(with(Path::new("/no/shell"))).unwrap();
    let err = env.spawn(SpawnRequest::shell("echo")).await.err().unwrap();
    assert!(matches!(err, EnvironmentError::NoShell(_)), "{err}");
}

#[tokio::test]
async fn any_posix_shell_will_do_as_sh() {
    // Where `sh` is bash.
    let folder = TempDir::new().unwrap();
    symlink("/bin/bash", folder.path().join("sh")).unwrap();
    let path = format!("PATH={}:/usr/bin:/bin", folder.path().display());
    let env = env(&["env", &path]);
    assert_eq!(run(&env, "echo out; echo err >&2; kill -TERM $$").await, ("out\nerr\n".into(), -15));
    let nap = nap();
    let mut process = started(&env, &format!("setsid sleep {nap} >/dev/null 2>&1 & sleep 0.05; echo")).await;
    process.wait().await.unwrap();
    assert!(process.is_running());
    process.signal(Signal::Terminate);
    assert!(until(Duration::from_secs(5), || pids_of(&nap).is_empty() && !process.is_running()).await);
    let file = EnvPath::new(folder.path().join("new/file").to_str().unwrap());
    env.write(&file, b"content").await.unwrap();
    assert_eq!(env.read_bytes(&file, 100).await.unwrap(), b"content");
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_any_more_leaves_nothing() {
    // A slow engine: the start is given up before the process is there.
    let env = env(&["sh", "-c", "sleep 0.3; exec \"$@\"", "sh"]);
    env.connect().await.unwrap();
    let nap = nap();
    let request = SpawnRequest::shell(format!("sleep {nap}"));
    assert!(tokio::time::timeout(Duration::from_millis(100), env.spawn(request)).await.is_err());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(until(Duration::from_secs(5), || pids_of(&nap).is_empty()).await);
    env.close().await;
    assert!(pids_of(&nap).is_empty());
}

#[tokio::test]
async fn close_ends_what_still_runs() {
    let env = env(PLAIN);
    let nap = nap();
    let mut process = started(&env, &format!("setsid sleep {nap} >/dev/null 2>&1 & sleep 0.05; echo; sleep 500")).await;
    env.close().await;
    assert!(pids_of(&nap).is_empty() && !process.is_running());
    assert_eq!(process.wait().await.unwrap().code, -9);
}

#[tokio::test]
async fn content_that_does_not_arrive_whole_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    // A command that passes on only the start of its input.
    let env = env(&["sh", "-c", "head -c 1000 | \"$@\"", "sh"]);
    let err = env.write(&EnvPath::new(path.to_str().unwrap()), &[b'x'; 100_000]).await.unwrap_err();
    assert!(err.to_string().ends_with("the content did not arrive whole"), "{err}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_file_that_is_cut_off_is_an_error_and_no_short_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let env = env(&["bash", "-c", "exec \"$@\" 2> >(head -n 2 >&2) > >(head -c 1000)", "bash"]);
    let err = env.read_bytes(&EnvPath::new(path.to_str().unwrap()), 2 << 20).await.unwrap_err();
    assert!(err.to_string().contains("file"), "{err}");
}
