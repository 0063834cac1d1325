use proptest::prelude::*;

use super::*;

fn buffer(memory: usize, total: u64, spool_dir: Option<&Path>) -> OutputBuffer {
    OutputBuffer::new(Limits { memory, total, spool_dir: spool_dir.map(Path::to_owned) })
}

fn push(buffer: &mut OutputBuffer, bytes: &[u8]) {
    buffer.push(bytes);
    write(buffer, OutputBuffer::make_room);
}

fn write(buffer: &mut OutputBuffer, next: fn(&mut OutputBuffer) -> Option<Flush>) {
    while let Some(flush) = next(buffer) {
        let written = flush.write();
        buffer.flushed(&flush, written);
    }
}

#[test]
fn characters_that_are_cut_in_two_are_kept_whole() {
    let mut it = buffer(4096, 1 << 20, None);
    for bytes in [&b"a\xc3"[..], b"\xbc\xf0\x9f", b"\x98\x80\xff b\xe2\x82"] {
        push(&mut it, bytes);
    }
    assert_eq!(it.summary(), "aü😀\u{fffd} b");
    it.finish();
    assert_eq!(it.read(0, 99), Slice { text: "aü😀\u{fffd} b\u{fffd}".into(), next: 7 });
    assert_eq!(it.read(2, 3), Slice { text: "😀".into(), next: 3 });
    assert_eq!(it.read(99, 100), Slice { text: String::new(), next: 7 });
    push(&mut it, b"more");
    assert_eq!(it.n_chars(), 7);
}

#[test]
fn middle_is_dropped_and_named_beyond_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    for spool_dir in [None, Some(dir.path())] {
        let mut it = buffer(8192, 20_000, spool_dir);
        let line = |idx: usize| format!("{idx:06}\u{e4}\n");
        for idx in 0..10_000 {
            push(&mut it, line(idx).as_bytes());
        }
        it.finish();
        assert_eq!(it.n_chars(), 80_000);
        let dropped = it.dropped();
        assert!(dropped.start >= 2000 && dropped.end <= 78_000 && !dropped.is_empty(), "{dropped:?}");
        // Offsets stay what they were.
        assert_eq!(it.read(8, 14).text, "000001");
        assert_eq!(it.read(79_992, 79_998).text, "009999");
        // A reader that goes on from offset to offset gets over the gap.
        let (mut next, mut seen) = (0, String::new());
        while next < it.n_chars() {
            let slice = it.read(next, next + 1000);
            assert!(slice.next > next);
            next = slice.next;
            seen.push_str(&slice.text);
        }
        let n_dropped = dropped.end - dropped.start;
        let note = format!("\n...[{} characters were not kept]...\n", thousands(n_dropped));
        assert_eq!(seen.matches(&note).count(), 1);
        assert_eq!(seen.chars().count() as u64, 80_000 - n_dropped + note.len() as u64);
        let summary = it.summary();
        assert!(summary.starts_with("000000ä\n000001ä\n"), "{summary:.100}");
        assert!(summary.ends_with("009998ä\n009999ä\n"), "{summary}");
        assert!(summary.contains(&format!("[{} of 80,000 characters omitted]", thousands(n_dropped))));
        // Memory holds no more than it may.
        assert!(it.memory.len() <= 8192);
    }
    // The spool file has no name.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn long_text_is_shown_with_its_start_and_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut it = buffer(1 << 20, 1 << 28, Some(dir.path()));
    for _ in 0..160 {
        push(&mut it, &[b'x'; 64 * 1024]);
    }
    push(&mut it, b"end");
    it.finish();
    let total = 160 * 64 * 1024 + 3;
    assert!(it.dropped().is_empty());
    let summary = it.summary();
    assert!(summary.starts_with("xxx") && summary.ends_with("xend"));
    assert!(summary.contains(&format!("[2,097,155 of {} characters omitted]", thousands(total))));
    assert!(summary.len() as u64 <= MAX_RESULT + 100);
    assert_eq!(it.read(0, total).next, MAX_SHOWN);
    // What is finished lives on disk.
    write(&mut it, OutputBuffer::settle);
    assert!(it.memory.capacity() <= SETTLED);
    assert_eq!(it.read(total - 5, total).text, "xxend");
}

#[test]
fn spool_that_fails_drops_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut it = buffer(8192, 1 << 20, Some(&file));
    for idx in 0..10_000 {
        push(&mut it, format!("{idx:07}\n").as_bytes());
    }
    write(&mut it, OutputBuffer::settle);
    assert!(!it.is_spooled() && it.memory.len() <= 8192);
    assert_eq!(it.read(8, 15).text, "0000001");
    assert_eq!(it.read(79_992, 80_000).text, "0009999\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_reads_as_it_would_of_the_whole_text(
        pushes in prop::collection::vec("[a-zä😀\n]{0,900}", 0..40),
        cuts in prop::collection::vec((0u64..20_000, 0u64..20_000), 1..8),
        spooled: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        // With a spool file everything is kept; without one all of it fits in memory or the middle goes.
        let mut it = buffer(4096, 1 << 20, spooled.then(|| dir.path()));
        let whole = pushes.concat();
        for bytes in whole.as_bytes().chunks(777) {
            push(&mut it, bytes);
        }
        it.finish();
        write(&mut it, OutputBuffer::settle);
        let chars: Vec<char> = whole.chars().collect();
        prop_assert_eq!(it.n_chars(), chars.len() as u64);
        for (start, end) in cuts {
            let slice = it.read(start, end);
            let from = (start as usize).min(chars.len());
            let to = (end as usize).clamp(from, chars.len());
            let dropped = it.dropped();
            if dropped.is_empty() || (from as u64) >= dropped.end || (to as u64) <= dropped.start {
                prop_assert_eq!(slice, Slice { text: chars[from..to].iter().collect(), next: to as u64 });
            } else {
                prop_assert!(!spooled && slice.next >= to as u64 && slice.text.contains("characters were not kept"));
            }
        }
    }
}
