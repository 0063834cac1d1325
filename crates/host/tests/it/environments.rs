//! What every environment does: one suite over this machine, and over commands that lead inside.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bub_host::{ExecEnvironment, ExecOptions, LocalEnvironment, LocalOptions};
use bub_kernel::{
    environment::{EnvPath, Environment, Output, Process, Program, Signal, SpawnRequest},
    error::ToolError,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A kind of environment. All see the files of this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Local,
    /// A wrapper that runs what it is given.
    Plain,
    /// One that gives no variables but a search path.
    Clean,
    /// One that makes one line of shell of it, as `ssh` does.
    Joined,
    /// One with nothing but a shell and the tools of coreutils.
    Bare,
    /// Another root folder.
    Root,
    /// Another namespace of processes, which no second command enters.
    Namespace,
    /// A server that starts processes for its clients, as engines of containers do: they are no children
    /// of the command.
    Engine,
}

/// An environment in a folder of its own.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) env: Arc<dyn Environment>,
    pub(crate) kind: Kind,
    _server: Option<Server>,
}

/// A process that is killed in the end.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Starts a process for each client, with the client's pipes, and sends back its exit code. A client that
/// goes away ends nothing.
const SERVER: &str = r#"
import socket, subprocess, sys, threading, json, os
def serve(connection):
    data, fds, _, _ = socket.recv_fds(connection, 16, 3)
    size = int(data)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    process = subprocess.Popen(json.loads(text), stdin=fds[0], stdout=fds[1], stderr=fds[2], start_new_session=True)
    for fd in fds: os.close(fd)
    code = process.wait()
    try: connection.sendall(str(code if code >= 0 else 128 - code).encode())
    except OSError: pass
    connection.close()
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(50)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

const CLIENT: &str = r#"
import socket, sys, json
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
text = json.dumps(sys.argv[2:]).encode()
socket.send_fds(connection, [str(len(text)).rjust(16).encode()], [0, 1, 2])
connection.sendall(text)
sys.exit(int(connection.recv(16) or 1))
"#;

fn serve(socket: &Path) -> Option<Server> {
    use std::io::Read as _;
    let mut command = std::process::Command::new("python3");
    command.args(["-c", SERVER]).arg(socket).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut ready = [0; 6];
    let is_ready = child.stdout.take()?.read_exact(&mut ready).is_ok();
    let server = Server(child);
    is_ready.then_some(server)
}

impl Place {
    /// `None` when this machine has no such thing.
    async fn new(kind: Kind) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap().join("ws");
        fs::create_dir(&root).unwrap();
        let text = |it: &Path| it.to_str().unwrap().to_owned();
        let command: Vec<String> = match kind {
            Kind::Local => Vec::new(),
            Kind::Plain => ["sh", "-c", "exec \"$@\"", "sh"].map(str::to_owned).to_vec(),
            Kind::Clean => vec!["env".into(), "-i".into(), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin".into()],
            Kind::Joined => ["bash", "-c", "exec bash -c \"${*@Q}\"", "bash"].map(str::to_owned).to_vec(),
            Kind::Bare => vec!["/usr/bin/env".into(), "-i".into(), format!("PATH={}", text(&bare(folder.path())))],
            Kind::Root => vec!["chroot".into(), "/".into()],
            Kind::Namespace => {
                let options = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
                ["unshare"].into_iter().chain(options).map(str::to_owned).collect()
            }
            Kind::Engine => vec!["python3".into(), "-c".into(), CLIENT.into(), text(&folder.path().join("socket"))],
        };
        let local = LocalOptions { adopt_orphans: true, ..LocalOptions::default() };
        if kind == Kind::Local {
            let env = LocalEnvironment::new(LocalOptions { workspace: Some(root), ..local }).unwrap();
            return Some(Self { folder, env: Arc::new(env), kind, _server: None });
        }
        let server = if kind == Kind::Engine { Some(serve(&folder.path().join("socket"))?) } else { None };
        let is_there =
            std::process::Command::new(&command[0]).args(&command[1..]).args(["sh", "-c", "exit 3"]).output();
        if is_there.ok()?.status.code() != Some(3) {
            return None;
        }
        let options = ExecOptions { command, workspace: Some(text(&root)), local, ..ExecOptions::default() };
        let env = ExecEnvironment::new(options).unwrap();
        env.connect().await.unwrap();
        Some(Self { folder, env: Arc::new(env), kind, _server: server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("ws").join(name)
    }

    fn env_path(&self, name: &str) -> EnvPath {
        EnvPath::new(self.path(name).to_str().unwrap())
    }

    async fn check(&self, script: &str, output: &str, code: i32) {
        assert_eq!(run(&*self.env, script).await, (output.to_owned(), code), "{script}");
    }

    /// The error of a path, as a tool's caller has it, without the folder.
    fn cause(&self, err: impl Into<ToolError>) -> String {
        err.into().in_tool("t").cause().replace(self.path("").to_str().unwrap(), "")
    }
}

/// A folder of programs with a shell and what coreutils has, and no more.
fn bare(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    let names = "sh env cat stat readlink mkdir mktemp chmod chown chgrp mv rm wc sync sleep tr cut";
    for name in names.split(' ') {
        let found = ["/bin", "/usr/bin"].map(|it| Path::new(it).join(name)).into_iter().find(|it| it.exists());
        symlink(found.unwrap(), bin.join(name)).unwrap();
    }
    bin
}

/// Runs to the end of the output, and returns it with the exit code.
pub(crate) async fn finish(process: &mut dyn Process) -> (String, i32) {
    let mut text = String::new();
    let mut pipes = process.take_pipes().unwrap();
    pipes.stdout.read_to_string(&mut text).await.unwrap();
    (text, process.wait().await.unwrap().code)
}

pub(crate) async fn run(env: &dyn Environment, script: &str) -> (String, i32) {
    let mut process = env.spawn(SpawnRequest::shell(script)).await.unwrap();
    let ended = finish(process.as_mut()).await;
    assert!(!process.is_running(), "{script}");
    ended
}

/// Starts `script`, which prints an empty line when all its processes are there.
pub(crate) async fn started(env: &dyn Environment, script: &str) -> Box<dyn Process> {
    let mut process = env.spawn(SpawnRequest::shell(script)).await.unwrap();
    let mut pipes = process.take_pipes().unwrap();
    let mut text = vec![0];
    pipes.stdout.read_exact(&mut text).await.unwrap();
    if text != b"\n" {
        // What follows says why.
        let _ = tokio::time::timeout(Duration::from_secs(1), pipes.stdout.read_to_end(&mut text)).await;
        panic!("{script} said {:?}", String::from_utf8_lossy(&text));
    }
    process
}

pub(crate) async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

/// Numbers of the living processes whose command line is a sleep of `time`.
pub(crate) fn pids_of(time: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if name.parse::<u32>().is_ok() && command == format!("sleep\0{time}\0").as_bytes() {
            found.push(name);
        }
    }
    found
}

/// A sleep of about ten minutes that no other test has.
pub(crate) fn nap() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("600.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst))
}

async fn scripts_are_given_to_one_shell_and_keep_the_order_of_their_outputs(place: &Place) {
    place.check("echo a; echo b >&2; echo c; echo d >&2", "a\nb\nc\nd\n", 0).await;
    place.check(r#"printf 'a|b\n' | cut -d'|' -f2; echo "$((1+1))" 'x  y'"#, "b\n2 x  y\n", 0).await;
    place.check("exit 7", "", 7).await;
    place.check("kill -TERM $$", "", -15).await;
    place.check("kill -INT $$", "", -2).await;
    if place.kind != Kind::Bare {
        // Without setsid a process shares its group with the shell that starts it.
        place.check("echo before; kill -KILL 0; echo after", "before\n", -9).await;
    }
    place.check("", "", 0).await;
}

async fn long_scripts_are_run_too(place: &Place) {
    let script = format!("cat <<'END' | wc -c\n{}\nEND\n", "x".repeat(300_000));
    place.check(&script, "300001\n", 0).await;
}

async fn processes_have_no_terminal_and_no_input(place: &Place) {
    let script = "cat; (exec 3<>/dev/tty) 2>/dev/null && echo terminal; [ -t 0 ] && echo tty; echo end";
    place.check(script, "end\n", 0).await;
    if place.kind != Kind::Bare {
        place.check("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leader", "leader\n", 0).await;
    }
}

async fn argv_is_run_without_a_shell_and_with_separate_pipes_and_input(place: &Place) {
    let request = |code: &str| SpawnRequest {
        program: Program::Argv(["sh", "-c", code, "$HOME", "a  b", "'\"\n"].map(str::to_owned).to_vec()),
        stdin: true,
        output: Output::Separate,
        ..SpawnRequest::shell("")
    };
    let code = "cat; echo err >&2; printf '%s|%s|%s' \"$0\" \"$@\" >&2";
    let mut process = place.env.spawn(request(code)).await.unwrap();
    let mut pipes = process.take_pipes().unwrap();
    assert!(process.take_pipes().is_none());
    let mut stdin = pipes.stdin.take().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let mut out = Vec::new();
    let mut err = String::new();
    let mut stderr = pipes.stderr.unwrap();
    let write = async {
        stdin.write_all(&bytes).await.unwrap();
        stdin.shutdown().await.unwrap();
        drop(stdin);
    };
    let (_, out_read, err_read) =
        tokio::join!(write, pipes.stdout.read_to_end(&mut out), stderr.read_to_string(&mut err));
    out_read.unwrap();
    err_read.unwrap();
    assert_eq!((out == bytes, err.as_str()), (true, "err\n$HOME|a  b|'\"\n"));
    assert_eq!(process.wait().await.unwrap().code, 0);

    // Much on standard error, and nobody who reads it.
    let mut process = place.env.spawn(request("cat >/dev/null; cat /dev/zero | cut -c1 >&2")).await.unwrap();
    drop(process.take_pipes());
    process.signal(Signal::Kill);
    tokio::time::timeout(Duration::from_secs(10), process.wait()).await.unwrap().unwrap();
}

async fn variables_are_added_and_programs_are_told_that_nobody_answers(place: &Place) {
    let script = "echo ${PATH:+path} $ADDED $GIT_TERMINAL_PROMPT $PAGER; unset c; echo ${bub_word:-none}";
    let added = [("ADDED".to_owned(), "x  y'\"$(no)\n".to_owned()), ("PAGER".to_owned(), "more".to_owned())];
    let request = SpawnRequest { env: BTreeMap::from(added), ..SpawnRequest::shell(script) };
    let mut process = place.env.spawn(request).await.unwrap();
    assert_eq!(finish(process.as_mut()).await.0, "path x y'\"$(no) 0 more\nnone\n");
}

async fn directory_is_the_workspace_or_what_was_asked_for_and_must_exist(place: &Place) {
    fs::create_dir(place.path("sub dir")).unwrap();
    fs::write(place.path("file"), "").unwrap();
    place.check("pwd", &format!("{}\n", place.path("").display()).replace("/\n", "\n"), 0).await;
    let request = |path: &str| SpawnRequest { cwd: Some(place.env_path(path)), ..SpawnRequest::shell("pwd") };
    let mut process = place.env.spawn(request("sub dir")).await.unwrap();
    assert_eq!(finish(process.as_mut()).await.0, format!("{}\n", place.path("sub dir").display()));
    let error = async |request: SpawnRequest| place.cause(place.env.spawn(request).await.err().unwrap());
    assert_eq!(error(request("none")).await, "no such file or directory: none");
    assert!(error(request("file")).await.to_lowercase().starts_with("file: not a directory"));
    let program = |words: &[&str]| SpawnRequest {
        program: Program::Argv(words.iter().map(|it| (*it).to_owned()).collect()),
        ..SpawnRequest::shell("")
    };
    assert_eq!(error(program(&["no-such-program"])).await, "no such file or directory: no-such-program");
    assert_eq!(error(program(&["/no/such/program"])).await, "no such file or directory: /no/such/program");
    assert_eq!(error(program(&["/etc/passwd"])).await, "/etc/passwd: Permission denied (os error 13)");
    for words in [&[] as &[&str], &[""], &["echo", "\0"]] {
        assert!(place.env.spawn(program(words)).await.is_err(), "{words:?}");
    }
}

async fn files_are_read_byte_for_byte(place: &Place) {
    let env = &place.env;
    let bytes: Vec<u8> = (0..=255).cycle().take(5_000_003).collect();
    for (name, content) in [("empty", &[][..]), ("a b'\"\n", b"\xff\0one\r\n"), ("large", &bytes)] {
        fs::write(place.path(name), content).unwrap();
        let file = env.open(&place.env_path(name)).await.unwrap();
        assert_eq!(file.size, content.len() as u64, "{name}");
        assert!(env.read_bytes(&place.env_path(name), 10 << 20).await.unwrap() == content, "{name}");
    }
    let err = env.read_bytes(&place.env_path("large"), 100).await.unwrap_err();
    assert_eq!(place.cause(err), "large has 5000003 bytes, the limit is 100");
    // Somebody who has read enough ends it.
    let mut file = env.open(&place.env_path("large")).await.unwrap();
    let mut start = [0; 10];
    file.reader.read_exact(&mut start).await.unwrap();
    assert_eq!(start, bytes[..10]);
    drop(file);
    // The kernel's own files say that they are empty, and are not.
    assert!(!env.read_bytes(&EnvPath::new("/proc/self/status"), 1 << 20).await.unwrap().is_empty());
}

async fn what_is_no_file_is_an_error_at_once(place: &Place) {
    let env = &place.env;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, place.path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    fs::write(place.path("file"), "old").unwrap();
    for (name, reading, writing) in [
        ("fifo", "not a regular file but a FIFO: fifo", "not a regular file but a FIFO: fifo"),
        ("socket", "not a regular file but a socket: socket", "not a regular file but a socket: socket"),
        (".", "not a regular file but a directory: .", "not a regular file but a directory: ."),
        ("missing", "no such file or directory: missing", ""),
        ("file/below", "file/below: Not a directory (os error 20)", "file/below: Not a directory (os error 20)"),
        (
            "folder/",
            "no such file or directory: folder/",
            "invalid path 'folder/': it ends with `/` and so names a directory",
        ),
        (
            "loop",
            "loop: Too many levels of symbolic links (os error 40)",
            "loop: Too many levels of symbolic links (os error 40)",
        ),
    ] {
        let path = place.env_path(name);
        let read = tokio::time::timeout(Duration::from_secs(10), env.open(&path)).await.unwrap();
        assert_eq!(place.cause(read.err().unwrap()), reading, "{name}");
        if !writing.is_empty() {
            let written = tokio::time::timeout(Duration::from_secs(10), env.write(&path, b"new")).await.unwrap();
            assert_eq!(place.cause(written.unwrap_err()), writing, "{name}");
        }
    }
    let long = place.env_path(&"x".repeat(300));
    assert!(place.cause(env.open(&long).await.err().unwrap()).ends_with("File name too long (os error 36)"));
    assert!(env.open(&EnvPath::new("/a\0b")).await.is_err() && env.write(&EnvPath::new("/a\0b"), b"").await.is_err());
    assert_eq!(
        place.cause(env.open(&EnvPath::new("/dev/null")).await.err().unwrap()),
        "not a regular file but a device: /dev/null"
    );
    assert_eq!(fs::read(place.path("file")).unwrap(), b"old");
    assert!(
        fs::read_dir(place.path("")).unwrap().all(|it| !it.unwrap().file_name().to_str().unwrap().contains("bub-"))
    );
}

async fn files_are_replaced_whole_with_their_mode_and_through_links(place: &Place) {
    let env = &place.env;
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_001).collect();
    for (name, content) in [("a/b/c.txt", &b"hello"[..]), ("a/b/c.txt", b""), ("x y'\"\n$(z)", &bytes)] {
        env.write(&place.env_path(name), content).await.unwrap();
        assert!(fs::read(place.path(name)).unwrap() == content, "{name}");
    }
    fs::write(place.path("script"), "old").unwrap();
    fs::set_permissions(place.path("script"), Permissions::from_mode(0o751)).unwrap();
    let inode = fs::metadata(place.path("script")).unwrap().ino();
    env.write(&place.env_path("script"), b"new").await.unwrap();
    let after = fs::metadata(place.path("script")).unwrap();
    assert_eq!((after.mode() & 0o7777, after.ino() == inode), (0o751, false), "another file took its place");
    // A file made the ordinary way shows what the umask leaves.
    fs::File::create(place.path("ordinary")).unwrap();
    env.write(&place.env_path("ours"), b"").await.unwrap();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().mode();
    assert_eq!(mode("ours"), mode("ordinary"));

    fs::create_dir(place.path("deep")).unwrap();
    symlink("../deep/new", place.path("a/dangling")).unwrap();
    symlink("../deep", place.path("a/dir")).unwrap();
    symlink("../none", place.path("a/nodir")).unwrap();
    for (name, target) in
        [("a/dangling", "deep/new"), ("a/dir/x", "deep/x"), ("a/dir/../up", "up"), ("a/nodir/y", "none/y")]
    {
        env.write(&place.env_path(name), name.as_bytes()).await.unwrap();
        assert_eq!(fs::read(place.path(target)).unwrap(), name.as_bytes(), "{name}");
        assert_eq!(env.true_path(&place.env_path(name)).await, place.env_path(target), "{name}");
    }
    assert!(fs::symlink_metadata(place.path("a/dangling")).unwrap().is_symlink());
    assert_eq!(env.true_path(&place.env_path("not/yet there")).await, place.env_path("not/yet there"));
    let mut names: Vec<_> =
        fs::read_dir(place.path("")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["a", "deep", "none", "ordinary", "ours", "script", "up", "x y'\"\n$(z)"]);
}

/// Ways to leave: the sleep is `{}`.
pub(crate) const DAEMONS: [&str; 6] = [
    "sleep {} & sleep 0.05; echo",
    "setsid sleep {} >/dev/null 2>&1 & sleep 0.05; echo",
    "(setsid sh -c 'sleep {} & sleep {} &' >/dev/null 2>&1 &); sleep 0.05; echo",
    "nohup setsid setsid sleep {} >/dev/null 2>&1 </dev/null & disown 2>/dev/null; sleep 0.05; echo",
    "env -i sleep {} >/dev/null & sleep 0.05; echo",
    "set -m; sleep {} >/dev/null & sleep 0.05; echo",
];

/// Those that can be had there.
fn daemons(place: &Place) -> &'static [&'static str] {
    match place.kind {
        // The others need programs that are not there, or hide from all but their group.
        Kind::Bare => &DAEMONS[..1],
        _ => &DAEMONS,
    }
}

async fn descendants_that_left_are_seen_and_stopped_after_their_leader_ended(place: &Place) {
    for daemon in daemons(place) {
        for signal in [Signal::Terminate, Signal::Kill] {
            let nap = nap();
            let mut process = started(&*place.env, &daemon.replace("{}", &nap)).await;
            assert_eq!(process.wait().await.unwrap().code, 0, "{daemon}");
            assert!(process.is_running(), "{daemon}");
            assert!(until(Duration::from_secs(5), || !pids_of(&nap).is_empty()).await, "{daemon}");
            process.signal(signal);
            assert!(until(Duration::from_secs(5), || !process.is_running()).await, "{daemon} {signal:?}");
            assert_eq!(pids_of(&nap), Vec::<String>::new(), "{daemon} {signal:?}");
            process.signal(Signal::Kill);
        }
    }
}

async fn drop_kills_everything(place: &Place) {
    let stubborn = "trap '' TERM HUP; (while :; do sleep {}; done) & sleep 0.05; echo; wait";
    for script in daemons(place).iter().copied().chain([stubborn]) {
        for ended in [false, true] {
            let nap = nap();
            let script = format!("{}{}", script.replace("{}", &nap), if ended { "" } else { "; sleep 500" });
            let mut process = started(&*place.env, &script).await;
            if ended && !script.contains("wait") {
                process.wait().await.unwrap();
            }
            // What was put in the background may not have begun.
            assert!(until(Duration::from_secs(5), || !pids_of(&nap).is_empty()).await, "{script}");
            drop(process);
            assert!(until(Duration::from_secs(5), || pids_of(&nap).is_empty()).await, "{script}");
        }
    }
}

async fn others_live_on_when_one_is_killed(place: &Place) {
    let (one, other) = (nap(), nap());
    let script = |nap: &str| format!("(sleep {nap} &); sleep 0.05; echo; wait; sleep 50");
    let first = started(&*place.env, &script(&one)).await;
    let second = started(&*place.env, &script(&other)).await;
    first.signal(Signal::Kill);
    assert!(until(Duration::from_secs(5), || pids_of(&one).is_empty()).await);
    assert!(until(Duration::from_secs(5), || !first.is_running()).await);
    assert!(second.is_running() && !pids_of(&other).is_empty());
    second.signal(Signal::Terminate);
    assert!(until(Duration::from_secs(5), || pids_of(&other).is_empty() && !second.is_running()).await);
}

async fn wait_can_be_dropped_and_called_again(place: &Place) {
    let mut process = place.env.spawn(SpawnRequest::shell("sleep 0.3; exit 3")).await.unwrap();
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(20), process.wait()).await.is_err());
        assert!(process.is_running());
    }
    assert_eq!(process.wait().await.unwrap().code, 3);
    assert_eq!(process.wait().await.unwrap().code, 3);
    assert!(!process.is_running());
}

async fn processes_run_beside_each_other(place: &Place) {
    let runs = (0..8).map(|n| async move {
        let script = format!("sleep 0.1; echo {n}; exit {n}");
        assert_eq!(run(&*place.env, &script).await, (format!("{n}\n"), n));
    });
    futures::future::join_all(runs).await;
}

macro_rules! suite {
    (@one $module:ident $kind:ident { $($case:ident,)* }) => {
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                match super::Place::new(super::Kind::$kind).await {
                    Some(place) => {
                        super::$case(&place).await;
                        place.env.close().await;
                    }
                    None => eprintln!("this machine has no such environment"),
                }
            })*
        }
    };
    ($cases:tt $($module:ident $kind:ident,)*) => {
        $(suite! { @one $module $kind $cases })*
    };
}

suite! { {
    scripts_are_given_to_one_shell_and_keep_the_order_of_their_outputs,
    long_scripts_are_run_too,
    processes_have_no_terminal_and_no_input,
    argv_is_run_without_a_shell_and_with_separate_pipes_and_input,
    variables_are_added_and_programs_are_told_that_nobody_answers,
    directory_is_the_workspace_or_what_was_asked_for_and_must_exist,
    files_are_read_byte_for_byte,
    what_is_no_file_is_an_error_at_once,
    files_are_replaced_whole_with_their_mode_and_through_links,
    descendants_that_left_are_seen_and_stopped_after_their_leader_ended,
    drop_kills_everything,
    others_live_on_when_one_is_killed,
    wait_can_be_dropped_and_called_again,
    processes_run_beside_each_other,
}
local Local, plain Plain, clean Clean, joined Joined, bare Bare, root Root, namespace Namespace, engine Engine, }
