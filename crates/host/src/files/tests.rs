use std::{
    fs::Permissions,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::PathBuf,
    time::Duration,
};

use bub_kernel::error::ToolError;
use tokio::io::AsyncReadExt as _;

use super::*;

fn env_path(path: &Path) -> EnvPath {
    EnvPath::new(path.to_str().unwrap())
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn env_path(&self, name: &str) -> EnvPath {
        env_path(&self.path(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

async fn read_all(path: &EnvPath) -> Result<Vec<u8>, EnvironmentError> {
    let mut file = open(path).await?;
    let mut bytes = Vec::new();
    file.reader.read_to_end(&mut bytes).await.unwrap();
    Ok(bytes)
}

/// The error, which must come at once.
async fn open_error(path: &EnvPath) -> String {
    tokio::time::timeout(Duration::from_secs(10), read_all(path)).await.unwrap().unwrap_err().to_string()
}

#[tokio::test]
async fn open_reads_regular_files_and_says_their_size() {
    let folder = Folder::new();
    fs::write(folder.path("a"), b"one\xff\0two").unwrap();
    let file = open(&folder.env_path("a")).await.unwrap();
    assert_eq!(file.size, 8);
    assert_eq!(read_all(&folder.env_path("a")).await.unwrap(), b"one\xff\0two");
    // The kernel's own files say that they are empty, and are not.
    assert!(!read_all(&EnvPath::new("/proc/self/status")).await.unwrap().is_empty());
}

#[tokio::test]
async fn open_anything_else_fails_at_once() {
    let folder = Folder::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path("socket")).unwrap();
    symlink("fifo", folder.path("link")).unwrap();
    symlink("loop", folder.path("loop")).unwrap();
    for (name, expected) in [
        ("fifo", "not a regular file but a FIFO: "),
        ("link", "not a regular file but a FIFO: "),
        ("socket", "not a regular file but a socket: "),
        (".", "not a regular file but a directory: "),
        ("missing", "no such file or directory: "),
    ] {
        let path = folder.env_path(name);
        assert_eq!(open_error(&path).await, format!("{expected}{path}"));
    }
    assert_eq!(open_error(&EnvPath::new("/dev/tty")).await, "not a regular file but a device: /dev/tty");
    assert!(open_error(&folder.env_path("loop")).await.contains("symbolic links"));
    let long = folder.env_path(&"x".repeat(300));
    assert!(open_error(&long).await.contains("name too long"), "{}", open_error(&long).await);
    assert!(matches!(open(&EnvPath::new("/a\0b")).await, Err(EnvironmentError::InvalidPath { .. })));
}

#[tokio::test]
async fn write_makes_folders_and_leaves_nothing_else() {
    let folder = Folder::new();
    write(&folder.env_path("a/b/c.txt"), b"hello").await.unwrap();
    assert_eq!(fs::read(folder.path("a/b/c.txt")).unwrap(), b"hello");
    write(&folder.env_path("a/b/c.txt"), b"").await.unwrap();
    assert_eq!(fs::read(folder.path("a/b/c.txt")).unwrap(), b"");
    assert_eq!(fs::read_dir(folder.path("a/b")).unwrap().count(), 1);
    // A name as long as names may be leaves no room for additions.
    let long = "x".repeat(255);
    write(&folder.env_path(&long), b"long").await.unwrap();
    assert_eq!(fs::read(folder.path(&long)).unwrap(), b"long");
}

#[tokio::test]
async fn write_keeps_mode_and_owner_and_new_files_have_the_usual_mode() {
    let folder = Folder::new();
    fs::write(folder.path("script"), "old").unwrap();
    fs::set_permissions(folder.path("script"), Permissions::from_mode(0o751)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(folder.path("script"), Some(12_345), Some(54_321)).unwrap();
    }
    let before = fs::metadata(folder.path("script")).unwrap();
    write(&folder.env_path("script"), b"new").await.unwrap();
    let after = fs::metadata(folder.path("script")).unwrap();
    assert_eq!(fs::read(folder.path("script")).unwrap(), b"new");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));

    // A file made the ordinary way shows what the umask leaves.
    File::create(folder.path("ordinary")).unwrap();
    write(&folder.env_path("ours"), b"").await.unwrap();
    assert_eq!(
        fs::metadata(folder.path("ours")).unwrap().mode(),
        fs::metadata(folder.path("ordinary")).unwrap().mode()
    );
}

#[tokio::test]
async fn write_goes_through_links_and_keeps_them() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("outside/deep")).unwrap();
    fs::create_dir(folder.path("ws")).unwrap();
    fs::write(folder.path("outside/old"), "old").unwrap();
    symlink("../outside/old", folder.path("ws/relative")).unwrap();
    symlink(folder.path("outside/new"), folder.path("ws/dangling")).unwrap();
    symlink("dangling", folder.path("ws/twice")).unwrap();
    symlink("../outside/deep", folder.path("ws/dir")).unwrap();
    symlink("../outside/none", folder.path("ws/nodir")).unwrap();
    for (name, target) in [
        ("ws/relative", "outside/old"),
        ("ws/dangling", "outside/new"),
        ("ws/twice", "outside/new"),
        ("ws/dir/x", "outside/deep/x"),
        ("ws/dir/../up", "outside/up"),
        ("ws/nodir/y", "outside/none/y"),
    ] {
        write(&folder.env_path(name), name.as_bytes()).await.unwrap();
        assert_eq!(fs::read(folder.path(target)).unwrap(), name.as_bytes(), "{name}");
        let root = fs::canonicalize(folder.0.path()).unwrap();
        assert_eq!(true_path(&folder.env_path(name)).await, env_path(&root.join(target)), "{name}");
    }
    for link in ["ws/relative", "ws/dangling", "ws/twice", "ws/dir", "ws/nodir"] {
        assert!(fs::symlink_metadata(folder.path(link)).unwrap().file_type().is_symlink(), "{link}");
    }
}

#[tokio::test]
async fn write_refuses_what_is_no_file_and_changes_nothing() {
    let folder = Folder::new();
    symlink("b", folder.path("a")).unwrap();
    symlink("a", folder.path("b")).unwrap();
    fs::write(folder.path("file"), "old").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let before = folder.names();
    let mut errors = Vec::new();
    for name in ["a", "file/below", "fifo", ".", "folder/", "bad\0name"] {
        let path = folder.env_path(name);
        let written = tokio::time::timeout(Duration::from_secs(10), write(&path, b"new"));
        let err = written.await.unwrap().unwrap_err();
        errors.push(ToolError::from(err).in_tool("t").cause().replace(folder.0.path().to_str().unwrap(), ""));
    }
    assert_eq!(
        errors,
        [
            "/a: Too many levels of symbolic links (os error 40)",
            "/file/below: Not a directory (os error 20)",
            "not a regular file but a FIFO: /fifo",
            "not a regular file but a directory: /.",
            "invalid path '/folder/': it ends with `/` and so names a directory",
            "invalid path '/bad\\0name': it contains a NUL byte",
        ]
    );
    assert_eq!(folder.names(), before);
    assert_eq!(fs::read(folder.path("file")).unwrap(), b"old");
    assert!(write(&EnvPath::new("/dev/null"), b"x").await.unwrap_err().to_string().contains("a device"));
    // The kernel's folders take no files, whoever asks.
    let err = write(&EnvPath::new("/proc/bub-test"), b"x").await.unwrap_err().to_string();
    assert!(
        err.starts_with("no such file or directory: /proc/bub-test") || err.starts_with("/proc/bub-test: "),
        "{err}"
    );
}

#[tokio::test]
async fn write_that_runs_out_of_space_keeps_the_old_bytes() {
    // A file larger than the process may make fails as a full disk does, in the middle of the write.
    // The limit holds for a whole process, so a child does it.
    let folder = Folder::new();
    fs::write(folder.path("file"), "old").unwrap();
    let script = "ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\"";
    child("files::tests::child_notes_the_error_of_a_write", &folder, script, None).unwrap().wait().unwrap();
    let err = fs::read_to_string(folder.path("error")).unwrap();
    assert!(err.ends_with("/file: File too large (os error 27)"), "{err}");
    assert_eq!(fs::read(folder.path("file")).unwrap(), b"old");
    assert_eq!(folder.names(), ["error", "file"]);
}

#[tokio::test]
async fn write_without_permission_keeps_the_old_bytes() {
    // Permissions do not hold for root, so a child does it as somebody else.
    let nobody = rustix::process::geteuid().is_root().then_some(65_534);
    for (file_mode, folder_mode) in [(0o444, 0o777), (0o666, 0o555)] {
        let folder = Folder::new();
        for name in ["file", "error"] {
            fs::write(folder.path(name), "old").unwrap();
            std::os::unix::fs::chown(folder.path(name), nobody, None).unwrap();
            fs::set_permissions(folder.path(name), Permissions::from_mode(0o666)).unwrap();
        }
        fs::set_permissions(folder.path("file"), Permissions::from_mode(file_mode)).unwrap();
        fs::set_permissions(folder.0.path(), Permissions::from_mode(folder_mode)).unwrap();
        let child = child("files::tests::child_notes_the_error_of_a_write", &folder, "exec \"$0\" \"$@\"", nobody);
        child.unwrap().wait().unwrap();
        fs::set_permissions(folder.0.path(), Permissions::from_mode(0o700)).unwrap();
        let err = fs::read_to_string(folder.path("error")).unwrap();
        if err == "old" {
            // Nobody else may run this program here.
            return;
        }
        assert!(err.ends_with("/file: Permission denied (os error 13)"), "{err}");
        assert_eq!(fs::read(folder.path("file")).unwrap(), b"old");
        assert_eq!(folder.names(), ["error", "file"]);
    }
}

/// Runs in a child of the tests above; without its folder there is nothing to do.
#[tokio::test]
async fn child_notes_the_error_of_a_write() {
    let Some(path) = child_path() else { return };
    let err = write(&path, &vec![b'x'; 1 << 20]).await.unwrap_err().to_string();
    fs::write(Path::new(path.as_str()).with_file_name("error"), err).unwrap();
}

#[tokio::test]
async fn write_killed_at_any_instant_leaves_old_or_new_bytes_whole() {
    let folder = Folder::new();
    let path = folder.path("file");
    fs::write(&path, SIZES.map(|(letter, size)| vec![letter; size])[0].clone()).unwrap();
    for round in 0..12_u64 {
        let mut child = child("files::tests::child_writes_for_ever", &folder, "exec \"$0\" \"$@\"", None).unwrap();
        // Wait until it writes, then stop it somewhere.
        let seen = fs::metadata(&path).unwrap().ino();
        let started = std::time::Instant::now();
        while fs::metadata(&path).unwrap().ino() == seen {
            assert!(started.elapsed() < Duration::from_secs(30), "the child does not write");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        let bytes = fs::read(&path).unwrap();
        let is_whole = SIZES.iter().any(|(letter, size)| bytes.len() == *size && bytes.iter().all(|it| it == letter));
        assert!(is_whole, "{} bytes, neither old nor new", bytes.len());
    }
}

/// Contents that are told apart by any piece of them.
const SIZES: [(u8, usize); 2] = [(b'a', 300_000), (b'b', 200_001)];

/// Runs in a child of the test above until it is killed.
#[tokio::test]
async fn child_writes_for_ever() {
    let Some(path) = child_path() else { return };
    loop {
        for (letter, size) in SIZES {
            write(&path, &vec![letter; size]).await.unwrap();
        }
    }
}

/// The name of the variable that tells a child which folder to write in.
const CHILD_FOLDER: &str = "BUB_TEST_CHILD_FOLDER";

fn child_path() -> Option<EnvPath> {
    #[expect(clippy::disallowed_methods, reason = "how a test talks to its own child")]
    let folder = std::env::var(CHILD_FOLDER).ok()?;
    Some(EnvPath::new(format!("{folder}/file")))
}

/// Runs one test of this program in a child, started by a line of shell and as another user.
fn child(test: &str, folder: &Folder, script: &str, user: Option<u32>) -> std::io::Result<std::process::Child> {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap()).args(["--exact", test]);
    command.env(CHILD_FOLDER, folder.0.path()).current_dir("/");
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    if let Some(user) = user {
        command.uid(user);
    }
    command.spawn()
}
