//! Homes that can't be written, wholly or beyond some size.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::home::{Ran, TestHome, exists};

/// Sizes in blocks of 512 bytes, from nothing to more than a turn takes.
const LIMITS: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 26, 64];

impl TestHome {
    /// Runs the program with files that can't grow beyond some blocks, as on a full disk.
    fn run_with_limit(&self, blocks: usize, args: &[&str]) -> Ran {
        let plain = self.command(args);
        let mut limited = Command::new("sh");
        // A signal that is ignored stays ignored in the program that replaces the shell.
        limited.args(["-c", r#"trap '' XFSZ; ulimit -f "$0"; exec "$@""#]).arg(blocks.to_string());
        limited.arg(plain.get_program()).args(plain.get_args()).current_dir(self.workspace()).env_clear();
        limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ran::of(limited.output().unwrap())
    }
}

/// Two calls, then an answer.
fn server() -> ModelServer {
    ModelServer::with(|request| match request.messages().last().map(|it| it["role"] == "tool") {
        Some(true) => Reply::text("done"),
        _ => {
            let n = request.messages().len();
            let calls = [format!("a{n}"), format!("b{n}")];
            Reply::calls(calls.iter().map(|it| (it.as_str(), "bash", json!({"command": format!("echo {it}")}))))
        }
    })
}

fn kinds(tape: &[Value]) -> Vec<&str> {
    tape.iter().map(|it| it["payload"]["name"].as_str().or(it["kind"].as_str()).unwrap()).collect()
}

#[test]
fn a_full_disk_at_any_write_spoils_nothing() {
    let server = server();
    let (mut n_failed, mut n_recovered) = (0, 0);
    for limit in LIMITS {
        let home = TestHome::with_model(&server);
        let ran = home.run_with_limit(limit, &["run", "do it"]);
        assert!([Some(0), Some(1)].contains(&ran.code), "{limit}: {:?} {}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        if ran.code == Some(1) {
            n_failed += 1;
            assert!(ran.err.contains("can't append to") || ran.err.contains("can't lock"), "{limit}: {}", ran.err);
        }
        // With room again the session goes on.
        let next = home.run(&["run", "go on"]);
        n_recovered += usize::from(next.err.contains("an interrupted turn was recovered"));
        assert_eq!(next.ok(), "done\n");
        let tape = home.tape_lines();
        assert!(tape.iter().zip(1..).all(|(it, id)| it["id"] == id), "{limit}: {:?}", kinds(&tape));
        let count = |name: &str| kinds(&tape).iter().filter(|it| **it == name).count();
        assert_eq!(count("tool_call"), count("tool_result"), "{limit}");
        assert_eq!(
            (count("loop.start"), count("loop.step.start")),
            (count("loop.finish"), count("loop.step")),
            "{limit}"
        );
        if ran.code == Some(0) {
            assert_eq!(count("loop.start"), 2, "{limit}: a turn that went well is on the tape");
        }
        let journals = home.home().join("tapes/journals");
        assert!(!exists(&journals) || std::fs::read_dir(journals).unwrap().next().is_none(), "{limit}");
    }
    server.assert_no_violations();
    assert!(n_failed > 3 && n_failed < LIMITS.len() && n_recovered > 0, "{n_failed} failed, {n_recovered} recovered");
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let server = server();
    let home = TestHome::with_model(&server);
    let folder = home.workspace().join("read-only");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Who may do everything is stopped by a place where no folders can be made.
    let is_stopped = std::fs::create_dir(folder.join("x")).is_err();
    let path = if is_stopped { folder.to_string_lossy().into_owned() } else { "/proc/bub-home".to_owned() };
    let home = home.var("BUB_HOME", path.clone());
    for prompt in [",echo x", "hi"] {
        let err = home.run(&["run", prompt]).failed(1);
        assert!(err.contains(&path) && err.contains("can't "), "{err}");
    }
    assert_eq!(server.chats().len(), 0, "nothing is asked that could not be recorded");
    home.run(&["tape", "list"]).ok();
}
