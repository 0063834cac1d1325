//! `fs.read`, `fs.write`, `fs.edit`, on real files.

use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::{Duration, Instant},
};

use bub_kernel::error::{ErrorKind, ToolError};
use bub_testing::try_call;
use bub_tools::fs::{FileLocks, FsEdit, FsRead, FsWrite};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::Workspace;

impl Workspace {
    async fn fs_read(&self, args: Value) -> Result<String, ToolError> {
        try_call(FsRead, &self.ctx, args).await.map(|it| it.rendering())
    }

    async fn fs_write(&self, args: Value) -> Result<String, ToolError> {
        try_call(FsWrite::default(), &self.ctx, args).await.map(|it| self.relative(&it.rendering()))
    }

    async fn fs_edit(&self, args: Value) -> Result<String, ToolError> {
        try_call(FsEdit::default(), &self.ctx, args).await.map(|it| self.relative(&it.rendering()))
    }

    /// The error's kind and the words that a person reads.
    fn error(&self, result: Result<String, ToolError>) -> (ErrorKind, String) {
        let err = result.unwrap_err();
        (err.kind, self.relative(err.cause()))
    }
}

/// Reads `bytes` by lines; an error is its text.
async fn check_read(bytes: impl AsRef<[u8]>, offset: i64, limit: Option<i64>, expected: &str) {
    let ws = Workspace::new();
    ws.write("f", &bytes);
    let text = match ws.fs_read(json!({"path": "f", "offset": offset, "limit": limit})).await {
        Ok(text) => text,
        Err(err) => format!("{} {}", err.kind.as_str(), ws.relative(err.cause())),
    };
    assert_eq!(text, expected, "{} offset={offset} limit={limit:?}", bytes.as_ref().escape_ascii());
}

/// Edits `before`; the result is what the tool says and what is in the file then.
async fn check_edit(before: impl AsRef<[u8]>, args: Value, says: &str, after: impl AsRef<[u8]>) {
    let ws = Workspace::new();
    ws.write("f", &before);
    let mut args = args;
    args["path"] = "f".into();
    let said = match ws.fs_edit(args.clone()).await {
        Ok(text) => text,
        Err(err) => format!("{} {}", err.kind.as_str(), ws.relative(err.cause())),
    };
    assert_eq!(said, says, "{args}");
    assert_eq!(ws.read("f").escape_ascii().to_string(), after.as_ref().escape_ascii().to_string(), "{args}");
}

#[tokio::test]
async fn read_whole_returns_exactly_the_file() {
    for text in ["", "a", "a\n", "\n", "a\r\nb\rc\n\n", "a\x0cb\x0b\u{85}\u{2028}\u{2029}\x1c\n", "é😀\n", "\r", "\r\n"]
    {
        check_read(text, 0, None, text).await;
    }
}

#[tokio::test]
async fn read_by_lines_ends_them_at_newlines_alone() {
    let text = "a\nb\r\nc\rd\u{2028}e\x0cf\n\ng";
    for (offset, limit, expected) in [
        (0, Some(1), "a"),
        (0, Some(2), "a\nb"),
        (1, Some(2), "b\r\nc"),
        (2, Some(2), "c\rd\u{2028}e\x0cf"),
        (3, Some(2), "d\u{2028}e\x0cf\n"),
        (3, None, "d\u{2028}e\x0cf\n\ng"),
        (5, Some(1), "g"),
        (5, None, "g"),
        (4, Some(1), ""),
        (0, Some(0), ""),
        (5, Some(i64::MAX), "g"),
        (6, None, "invalid_input offset 6 is past the last line: /ws/f has 6 lines"),
    ] {
        check_read(text, offset, limit, expected).await;
    }
    check_read("a\nb\n", 1, None, "b\n").await;
    check_read("a\r\nb\r\n", 1, Some(1), "b").await;
}

#[tokio::test]
async fn r027_what_is_not_utf8_gives_one_short_message() {
    let raised = |text: &str| format!("tool {text}");
    check_read(b"ok\n\xff\xfe\n", 0, None, &raised("/ws/f is not UTF-8 at byte 3 (of 6 bytes)")).await;
    check_read(b"ok\n\xe4\xb8", 0, None, &raised("/ws/f is not UTF-8 at byte 3 (of 5 bytes)")).await;
    check_read(b"\xef\xbb\xbfok\xff", 0, None, &raised("/ws/f is not UTF-8 at byte 5 (of 6 bytes)")).await;
    check_read(b"ok\nno\xff\n", 1, Some(1), &raised("/ws/f is not UTF-8 at byte 5 (of 7 bytes)")).await;
    // Lines that were not asked for are not judged.
    check_read(b"ok\nno\xff\n", 0, Some(1), "ok").await;
    let utf16 = "/ws/f is not UTF-8 at byte 0: it is UTF-16LE text with a byte order mark (8 bytes); convert it with iconv first";
    check_read(b"\xff\xfeh\0i\0\n\0", 0, None, &raised(utf16)).await;
    let mut elf = b"\x7fELF\x02\x01\x01\0".to_vec();
    elf.resize(5_000_000, b'\xcc');
    check_read(elf, 0, None, &raised("/ws/f is a binary file (4.7 MiB), not UTF-8 text")).await;

    let ws = Workspace::new();
    ws.write("f", b"\xff");
    let err = ws.fs_read(json!({"path": "f"})).await.unwrap_err();
    assert_eq!(err.message, "Tool 'fs.read' execution failed.");
    let shown = err.details["error"].as_str().unwrap();
    assert!(
        shown.starts_with("UnicodeDecodeError('") && shown.ends_with("not UTF-8 at byte 0 (of 1 byte)')"),
        "{shown}"
    );
}

#[tokio::test]
async fn r028_past_the_end_is_not_an_empty_file() {
    let five = "1\n2\n3\n4\n5\n";
    check_read(five, 100, None, "invalid_input offset 100 is past the last line: /ws/f has 5 lines").await;
    check_read(five, 5, None, "invalid_input offset 5 is past the last line: /ws/f has 5 lines").await;
    check_read(five, 5, Some(0), "invalid_input offset 5 is past the last line: /ws/f has 5 lines").await;
    check_read(five, 4, None, "5\n").await;
    check_read("x", 1, None, "invalid_input offset 1 is past the last line: /ws/f has 1 line").await;
    check_read("", 0, None, "").await;
    check_read("", 0, Some(10), "").await;
    check_read("", 1, None, "invalid_input offset 1 is past the last line: /ws/f is empty (0 lines)").await;
}

#[tokio::test]
async fn r030_a_final_newline_is_no_line() {
    let text = "l1\nl2\n";
    check_read(text, 1, Some(1), "l2").await;
    check_read(text, 2, Some(200), "invalid_input offset 2 is past the last line: /ws/f has 2 lines").await;
    check_read(text, 1200, Some(200), "invalid_input offset 1200 is past the last line: /ws/f has 2 lines").await;
    check_read(text, 0, Some(0), "").await;
    check_read(text, -1, None, "invalid_input offset must not be negative, but is -1").await;
    check_read(text, 0, Some(-1), "invalid_input limit must not be negative, but is -1").await;
    check_read(
        text,
        i64::MIN,
        Some(i64::MIN),
        &format!("invalid_input offset must not be negative, but is {}", i64::MIN),
    )
    .await;
    check_read(
        text,
        i64::MAX,
        None,
        &format!("invalid_input offset {} is past the last line: /ws/f has 2 lines", i64::MAX),
    )
    .await;
}

#[tokio::test]
async fn r031_pieces_joined_are_the_file() {
    let ws = Workspace::new();
    let text: String = (0..500).map(|it| format!("{it:040}\n")).collect();
    ws.write("f", &text);
    let mut pieces = Vec::new();
    while let Ok(piece) = ws.fs_read(json!({"path": "f", "offset": pieces.len() * 7, "limit": 7})).await {
        pieces.push(piece);
    }
    assert_eq!(pieces.join("\n") + "\n", text);
}

#[tokio::test]
async fn r031_a_line_without_end_is_cut_when_paging_and_whole_otherwise() {
    let ws = Workspace::new();
    let long = "é".repeat(1_500_000);
    ws.write("f", format!("{long}\nnext"));
    assert_eq!(ws.fs_read(json!({"path": "f"})).await.unwrap(), format!("{long}\nnext"));
    let cut = ws.fs_read(json!({"path": "f", "limit": 1})).await.unwrap();
    let mark = " ...[line cut: it has 3,000,000 bytes, 1,048,576 are shown]";
    assert_eq!(cut, format!("{}{mark}", "é".repeat(524_288)));
    assert_eq!(ws.fs_read(json!({"path": "f", "offset": 1, "limit": 1})).await.unwrap(), "next");
    assert!(ws.fs_read(json!({"path": "f", "offset": 2, "limit": 1})).await.is_err());
    // A cut never goes through a character.
    ws.write("f", format!("x{long}"));
    let cut = ws.fs_read(json!({"path": "f", "limit": 1})).await.unwrap();
    assert!(cut.ends_with("é ...[line cut: it has 3,000,001 bytes, 1,048,575 are shown]"));
}

#[tokio::test]
async fn read_of_more_than_the_cap_asks_for_pieces() {
    let ws = Workspace::new();
    // A sparse file: no disk is used, and its bytes are zero but for what is written.
    let file = std::fs::File::create(ws.path("log")).unwrap();
    std::io::Write::write_all(&mut &file, "a line\n".repeat(2_000).as_bytes()).unwrap();
    file.set_len(3 << 30).unwrap();
    assert_eq!(
        ws.error(ws.fs_read(json!({"path": "log"})).await),
        (
            ErrorKind::InvalidInput,
            "/ws/log has 3.0 GiB, more than the 64.0 MiB that one call returns: read it in pieces with offset and limit"
                .into()
        )
    );
    assert_eq!(ws.fs_read(json!({"path": "log", "offset": 1_999, "limit": 1})).await.unwrap(), "a line");
    let (kind, text) = ws.error(ws.fs_edit(json!({"path": "log", "old": "a", "new": "b"})).await);
    assert_eq!(
        (kind, text.as_str()),
        (ErrorKind::InvalidInput, "/ws/log has 3.0 GiB, more than the 64.0 MiB that can be edited")
    );
}

/// The variable that tells a child which file to read.
const CHILD_FILE: &str = "BUB_TEST_CHILD_FILE";

#[tokio::test]
async fn read_of_a_late_line_holds_no_more_than_it_returns() {
    let ws = Workspace::new();
    ws.write("log", "0123456789abcdef\n".repeat(6_000_000));
    // Memory is counted for a whole process, so a child reads alone.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "fs::child_reads_a_late_line"]).env(CHILD_FILE, ws.path("log"));
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Runs in a child of the test above; without its file there is nothing to do.
#[tokio::test]
async fn child_reads_a_late_line() {
    #[expect(clippy::disallowed_methods, reason = "how a test talks to its own child")]
    let Ok(path) = std::env::var(CHILD_FILE) else { return };
    let ws = Workspace::new();
    let before = peak_kib();
    let last = ws.fs_read(json!({"path": path, "offset": 5_999_999})).await.unwrap();
    assert_eq!(last, "0123456789abcdef\n");
    // The file has 97 MiB.
    assert!(peak_kib() < before + 16 * 1024, "{} KiB, before {before}", peak_kib());
}

/// The most memory that this process has had.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn r033_characters_stay_whole() {
    let text = "A\u{1f9ea}B\u{d55c}C";
    check_read(text, 0, None, text).await;
    for offset in 1..=10 {
        check_read(
            text,
            offset,
            None,
            &format!("invalid_input offset {offset} is past the last line: /ws/f has 1 line"),
        )
        .await;
    }
}

#[tokio::test]
async fn read_of_what_is_no_file_fails_at_once() {
    let ws = Workspace::new();
    std::fs::create_dir(ws.path("dir")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(ws.path("fifo")).status().unwrap().success());
    symlink("/dev/zero", ws.path("zero")).unwrap();
    let started = Instant::now();
    for (path, error, person) in [
        ("missing", "FileNotFoundError('", "no such file or directory: /ws/missing"),
        ("dir", "IsADirectoryError('", "not a regular file but a directory: /ws/dir"),
        (".", "IsADirectoryError('", "not a regular file but a directory: /ws"),
        ("fifo", "OSError('", "not a regular file but a FIFO: /ws/fifo"),
        ("zero", "OSError('", "not a regular file but a device: /dev/zero"),
    ] {
        for err in [
            ws.fs_read(json!({"path": path})).await.unwrap_err(),
            ws.fs_edit(json!({"path": path, "old": "a", "new": "b"})).await.unwrap_err(),
        ] {
            assert_eq!((err.kind, ws.relative(err.cause())), (ErrorKind::Tool, person.to_owned()));
            assert!(err.details["error"].as_str().unwrap().starts_with(error), "{err:?}");
        }
    }
    for path in ["dir", "fifo", "zero", "\0", ""] {
        ws.fs_write(json!({"path": path, "content": "x"})).await.unwrap_err();
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(std::fs::read_dir(ws.path("")).unwrap().count(), 3);
}

#[tokio::test]
async fn write_makes_folders_and_writes_exactly_the_content() {
    let ws = Workspace::new();
    for content in ["", "no newline", "a\r\nb\n", "é\u{feff}😀\0\n"] {
        let says = ws.fs_write(json!({"path": "a/b/f.txt", "content": content})).await.unwrap();
        assert_eq!(says, "wrote: /ws/a/b/f.txt");
        assert_eq!(ws.read("a/b/f.txt"), content.as_bytes());
    }
    assert_eq!(std::fs::read_dir(ws.path("a/b")).unwrap().count(), 1);
    // A path that ends with a slash names a folder, whether it is there or not.
    for path in ["a/b/", "new/", "a/b/f.txt/"] {
        let err = ws.fs_write(json!({"path": path, "content": "x"})).await.unwrap_err();
        assert!(err.cause().contains("ends with `/` and so names a directory"), "{path}: {}", err.cause());
    }
    assert!(!ws.path("new").exists());
}

#[tokio::test]
async fn r034_write_adds_no_mark_and_edit_finds_the_text() {
    let ws = Workspace::new();
    ws.fs_write(json!({"path": "a.md", "content": "# T\n"})).await.unwrap();
    assert_eq!(ws.read("a.md"), b"# T\n");
    let says = ws.fs_edit(json!({"path": "a.md", "old": "# T", "new": "# U"})).await.unwrap();
    assert_eq!((says.as_str(), ws.read("a.md").as_slice()), ("edited: /ws/a.md", b"# U\n".as_slice()));
}

#[tokio::test]
async fn r035_results_name_the_true_path() {
    let ws = Workspace::new();
    std::fs::create_dir(ws.outside("elsewhere")).unwrap();
    symlink("../elsewhere", ws.path("out")).unwrap();
    let absolute = ws.path("out/y.txt").to_str().unwrap().to_owned();
    for (path, expected) in [
        ("out/x.txt", "/elsewhere/x.txt"),
        (absolute.as_str(), "/elsewhere/y.txt"),
        ("../up.txt", "/up.txt"),
        ("sub/../../ws/same.txt", "/ws/same.txt"),
    ] {
        let wrote = ws.fs_write(json!({"path": path, "content": "text"})).await.unwrap();
        assert_eq!(wrote, format!("wrote: {expected}"));
        assert_eq!(ws.fs_read(json!({"path": path})).await.unwrap(), "text");
        let edited = ws.fs_edit(json!({"path": path, "old": "text", "new": "more"})).await.unwrap();
        assert_eq!(edited, format!("edited: {expected}"));
        let (_, text) = ws.error(ws.fs_edit(json!({"path": path, "old": "text", "new": "more"})).await);
        assert_eq!(text, format!("'text' not found in {expected} from line 0"));
        assert_eq!(std::fs::read_to_string(ws.outside("").join(expected.trim_start_matches('/'))).unwrap(), "more");
    }
}

#[tokio::test]
async fn r036_links_are_written_through_and_their_targets_named() {
    let ws = Workspace::new();
    std::fs::create_dir(ws.outside("elsewhere")).unwrap();
    std::fs::write(ws.outside("elsewhere/victim"), "old").unwrap();
    symlink(ws.outside("elsewhere/victim"), ws.path("n.md")).unwrap();
    symlink("../elsewhere/not-yet", ws.path("d.txt")).unwrap();
    for (path, expected) in [("n.md", "/elsewhere/victim"), ("d.txt", "/elsewhere/not-yet")] {
        assert_eq!(ws.fs_write(json!({"path": path, "content": path})).await.unwrap(), format!("wrote: {expected}"));
        assert_eq!(
            ws.fs_edit(json!({"path": path, "old": path, "new": "x"})).await.unwrap(),
            format!("edited: {expected}")
        );
        assert_eq!(std::fs::read_to_string(ws.outside("").join(expected.trim_start_matches('/'))).unwrap(), "x");
        assert!(std::fs::symlink_metadata(ws.path(path)).unwrap().is_symlink());
    }
}

#[tokio::test]
async fn r038_edit_from_a_line_keeps_everything_else() {
    check_edit("a\nb\nc\n", json!({"old": "c", "new": "C", "start": 2}), "edited: /ws/f", "a\nb\nC\n").await;
    check_edit("a\nb\nC\n", json!({"old": "a", "new": "A", "start": 0}), "edited: /ws/f", "A\nb\nC\n").await;
    check_edit("\n\nx", json!({"old": "x", "new": "y", "start": 2}), "edited: /ws/f", "\n\ny").await;
    check_edit(
        "x\r\nx\rx\x0cx\n",
        json!({"old": "x", "new": "y", "start": 2}),
        "edited: /ws/f (2 replacements)",
        "x\r\nx\ry\x0cy\n",
    )
    .await;
    for start in [3, 4, i64::MAX] {
        let says = format!("tool 'c' not found in /ws/f from line {start}");
        check_edit("a\nb\nc\n", json!({"old": "c", "new": "C", "start": start}), &says, "a\nb\nc\n").await;
    }
    let says = "invalid_input start must not be negative, but is -1";
    check_edit("a\n", json!({"old": "a", "new": "b", "start": -1}), says, "a\n").await;
}

#[tokio::test]
async fn r041_line_ends_of_the_file_are_kept() {
    let edited = "edited: /ws/f";
    let (old, new) = ("x = 1\ny = 2", "x = 1\nz = 3");
    check_edit("x = 1\r\ny = 2\r\n", json!({"old": old, "new": new}), edited, "x = 1\r\nz = 3\r\n").await;
    check_edit("a\r\nb\r\n", json!({"old": "a\r\nb", "new": "c\r\nd"}), edited, "c\r\nd\r\n").await;
    check_edit("a\r\nb\r\n", json!({"old": "a\nb\r\n", "new": "c\n"}), edited, "c\r\n").await;
    // No line end is cut in two by an old that begins with one.
    check_edit("a\r\nb\r\nc\r\n", json!({"old": "\nb", "new": "Z"}), edited, "aZ\r\nc\r\n").await;
    check_edit("a\r\nb\r\n", json!({"old": "\nb", "new": "\nX\nY"}), edited, "a\r\nX\r\nY\r\n").await;
    check_edit("a\r\nb\r\n", json!({"old": "\n", "new": "|"}), "edited: /ws/f (2 replacements)", "a|b|").await;
    // A piece of one line becomes two lines of the file's sort.
    check_edit("a\r\nb\r\n", json!({"old": "b", "new": "b\nc"}), edited, "a\r\nb\r\nc\r\n").await;
    check_edit("a\nb\n", json!({"old": "b", "new": "b\nc"}), edited, "a\nb\nc\n").await;
    // Who names line ends gets them.
    check_edit("a\r\nb\r\n", json!({"old": "\r\n", "new": "\n"}), "edited: /ws/f (2 replacements)", "a\nb\n").await;
    // With both sorts in the file it is not guessed which is meant.
    let says = "tool 'a\nb' not found in /ws/f from line 0";
    check_edit("a\r\nb\n", json!({"old": "a\nb", "new": "c\nd"}), says, "a\r\nb\n").await;
}

#[tokio::test]
async fn a_near_miss_says_what_differs() {
    for (before, args, expected) in [
        ("a\r\nb\n", json!({"old": "a\nb"}), "the file has CRLF line ends, at least in part: write them as \\r\\n"),
        ("a\nb\n", json!({"old": "a\r\nb"}), "the file has LF line ends: write them as \\n in old and new"),
        ("a\nb\n", json!({"old": "a", "start": 1}), "it occurs before that line"),
        ("x\n\tif y:  \n", json!({"old": "    if y:\n"}), "a text that differs only in white space begins in line 1"),
        ("\u{201c}hi\u{201d}", json!({"old": "\"hi\""}), "differs only in quotation marks, dashes or white space"),
    ] {
        let ws = Workspace::new();
        ws.write("f", before);
        let mut args = args;
        args["path"] = "f".into();
        args["new"] = "c".into();
        let err = ws.fs_edit(args).await.unwrap_err();
        let hint = err.details["hint"].as_str().unwrap();
        assert!(hint.contains(expected), "{before:?}: {hint}");
        assert_eq!(ws.read("f"), before.as_bytes());
    }
}

#[tokio::test]
async fn r042_a_byte_order_mark_stays_and_is_not_text() {
    let before = b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n";
    check_edit(
        before,
        json!({"old": "hello", "new": "hello2"}),
        "edited: /ws/f",
        b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\n",
    )
    .await;
    check_edit(before, json!({"old": "\u{4e2d}", "new": "x", "start": 1}), "edited: /ws/f", b"\xef\xbb\xbfhello\nx\n")
        .await;
    check_edit(before, json!({"old": "\u{feff}hello", "new": "hello"}), "edited: /ws/f", b"hello\n\xe4\xb8\xad\n")
        .await;
    check_read(before, 0, None, "hello\n\u{4e2d}\n").await;
    check_read(before, 0, Some(1), "hello").await;
    check_read(before, 1, Some(1), "\u{4e2d}").await;
    check_read(b"\xef\xbb\xbf", 0, None, "").await;
    // Elsewhere it is a character like others.
    check_read("a\u{feff}\n\u{feff}b", 0, None, "a\u{feff}\n\u{feff}b").await;
}

#[tokio::test]
async fn r045_old_and_new_are_literal() {
    let edited = "edited: /ws/f";
    check_edit("f(x) a.c abc [z]", json!({"old": "a.c", "new": "Q"}), edited, "f(x) Q abc [z]").await;
    check_edit("f(x) Q abc [z]", json!({"old": "f(x)", "new": "g(x)"}), edited, "g(x) Q abc [z]").await;
    check_edit("g(x) Q abc [z]", json!({"old": "[z]", "new": "[y]"}), edited, "g(x) Q abc [y]").await;
    check_edit("a", json!({"old": "a", "new": "$& $1 \\1 \\n {} %s"}), edited, "$& $1 \\1 \\n {} %s").await;
    check_edit("^a$", json!({"old": "^a", "new": ".*"}), edited, ".*$").await;
    check_edit("Aa", json!({"old": "a", "new": ""}), edited, "A").await;
}

#[tokio::test]
async fn r046_empty_old_is_refused() {
    for before in ["abc", ""] {
        check_edit(before, json!({"old": "", "new": "X"}), "invalid_input old must not be empty", before).await;
    }
}

#[tokio::test]
async fn r047_the_result_says_how_many_places_changed() {
    let before = "x=1\nx=1\nx=1\n";
    let args = json!({"old": "x=1", "new": "x=2"});
    check_edit(before, args, "edited: /ws/f (3 replacements)", "x=2\nx=2\nx=2\n").await;
    check_edit(before, json!({"old": "x=1", "new": "x=2", "start": 2}), "edited: /ws/f", "x=1\nx=1\nx=2\n").await;
    check_edit("aaa", json!({"old": "aa", "new": "b"}), "edited: /ws/f", "ba").await;
    check_edit("aaaa", json!({"old": "aa", "new": "aaa"}), "edited: /ws/f (2 replacements)", "aaaaaa").await;
}

#[tokio::test]
async fn r048_the_same_text_is_named_and_nothing_is_written() {
    let ws = Workspace::new();
    ws.write("f", "abc");
    let before = std::fs::metadata(ws.path("f")).unwrap().modified().unwrap();
    let (kind, text) = ws.error(ws.fs_edit(json!({"path": "f", "old": "b", "new": "b"})).await);
    assert_eq!(kind, ErrorKind::InvalidInput);
    assert_eq!(text, "nothing changed in /ws/f: old and new are the same text, which occurs 1 time from line 0");
    assert_eq!(std::fs::metadata(ws.path("f")).unwrap().modified().unwrap(), before);
}

#[tokio::test]
async fn edit_that_finds_nothing_is_raised_and_short() {
    let ws = Workspace::new();
    ws.write("f", "abc\n");
    let err = ws.fs_edit(json!({"path": "f", "old": "z", "new": "y", "start": 0})).await.unwrap_err();
    assert_eq!(err.message, "Tool 'fs.edit' execution failed.");
    let expected = format!("ValueError(''z' not found in {} from line 0')", ws.path("f").display());
    assert_eq!(err.details["error"], expected.as_str());
    let err = ws.fs_edit(json!({"path": "f", "old": "z".repeat(1_000_000), "new": "y"})).await.unwrap_err();
    assert!(err.cause().len() < 2_000, "{} bytes", err.cause().len());
}

#[tokio::test]
async fn edit_keeps_the_mode_of_a_script() {
    let ws = Workspace::new();
    ws.write("run.sh", "#!/bin/sh\necho a\n");
    std::fs::set_permissions(ws.path("run.sh"), Permissions::from_mode(0o755)).unwrap();
    ws.fs_edit(json!({"path": "run.sh", "old": "echo a", "new": "echo b"})).await.unwrap();
    assert_eq!(std::fs::metadata(ws.path("run.sh")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn edits_of_one_step_do_not_undo_each_other() {
    let ws = Workspace::new();
    let names: Vec<_> = (0..30).map(|it| format!("<{it}>")).collect();
    ws.write("f", names.join("\n"));
    let locks = FileLocks::default();
    let edits = names.iter().map(|name| {
        let args = json!({"path": "f", "old": name, "new": name.replace('<', "[")});
        try_call(FsEdit::new(locks.clone()), &ws.ctx, args)
    });
    for edited in futures::future::join_all(edits).await {
        edited.unwrap();
    }
    assert_eq!(ws.read("f"), names.join("\n").replace('<', "[").as_bytes());
    // A write that comes first is there for the edit that comes next.
    let write = try_call(FsWrite::new(locks.clone()), &ws.ctx, json!({"path": "f", "content": "one"}));
    let edit = try_call(FsEdit::new(locks), &ws.ctx, json!({"path": "f", "old": "one", "new": "two"}));
    let (written, edited) = futures::join!(write, edit);
    assert!(written.is_ok() && edited.is_ok());
    assert_eq!(ws.read("f"), b"two");
}

/// Text of few letters, so that what is looked for occurs, with all sorts of line ends.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["a", "b", "é", "\n", "\r\n", "\r", "\u{2028}", "\x0c", "\u{feff}"], 0..40)
        .prop_map(|pieces| pieces.concat())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The lines of a text with their ends, in the plainest way.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(it) = letters.next() {
        lines.last_mut().unwrap().push(it);
        if it == '\n' || (it == '\r' && letters.peek() != Some(&'\n')) {
            lines.push(String::new());
        }
    }
    lines.retain(|it| !it.is_empty());
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn read_in_pieces_gives_the_file(text in text(), size in 1_usize..5) {
        let ws = Workspace::new();
        ws.write("f", &text);
        let shown = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let lines = lines(shown);
        runtime().block_on(async {
            for (idx, piece) in lines.chunks(size).enumerate() {
                let args = json!({"path": "f", "offset": idx * size, "limit": size});
                let whole = piece.concat();
                let last = whole.len() - end_of(&whole).len();
                assert_eq!(ws.fs_read(args).await.unwrap(), whole[..last]);
                let args = json!({"path": "f", "offset": idx * size});
                assert_eq!(ws.fs_read(args).await.unwrap(), lines[idx * size..].concat());
            }
            if !lines.is_empty() {
                ws.fs_read(json!({"path": "f", "offset": lines.len()})).await.unwrap_err();
            }
        });
    }

    #[test]
    fn edit_changes_nothing_but_what_it_replaces(text in text(), old in "[abé]{1,2}|a\n|\n", new in "[abz]{0,3}", start in 0_usize..4) {
        let ws = Workspace::new();
        ws.write("f", &text);
        let (mark, body) = match text.strip_prefix('\u{feff}') {
            Some(body) => ("\u{feff}", body),
            None => ("", text.as_str()),
        };
        let lines = lines(body);
        let (head, tail) = lines.split_at(start.min(lines.len()));
        let (head, tail) = (head.concat(), tail.concat());
        let replaced = tail.replace(&old, &new);
        let is_crlf = body.contains('\n') && body.replace("\r\n", "").find(['\n', '\r']).is_none();
        prop_assume!(old != new && !is_crlf);
        let args = json!({"path": "f", "old": old, "new": new, "start": start});
        let edited = runtime().block_on(ws.fs_edit(args));
        prop_assert_eq!(edited.is_ok(), tail.contains(&old));
        let expected = if edited.is_ok() { replaced } else { tail };
        prop_assert_eq!(String::from_utf8(ws.read("f")).unwrap(), format!("{mark}{head}{expected}"));
    }
}

fn end_of(line: &str) -> &str {
    ["\r\n", "\n", "\r"].into_iter().find(|it| line.ends_with(it)).unwrap_or("")
}
