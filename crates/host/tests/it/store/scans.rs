//! Reading a tape piece by piece, while others change it.

use bub_host::{ScanFilter, TapeChange, TapeScan};
use bub_kernel::tape::EntryKind;

use super::*;

/// All that a scan has to say until it is at the end.
fn texts(scan: &mut TapeScan) -> (Vec<String>, Option<TapeChange>) {
    let (mut found, mut change) = (Vec::new(), None);
    loop {
        let step = scan.step().unwrap();
        change = change.or(step.change);
        found.extend(step.entries.iter().map(|it| {
            assert_eq!(Entry::from_line(&it.line).as_ref(), Some(&it.entry));
            text_of(&it.entry)
        }));
        if step.is_at_end {
            return (found, change);
        }
    }
}

fn all(scan: &mut TapeScan) -> Vec<String> {
    texts(scan).0
}

#[tokio::test]
async fn a_scan_goes_on_as_the_tape_grows() {
    let home = Home::new();
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    assert_eq!(texts(&mut scan), (vec![], None));
    home.append(&["a", "b"]).await;
    assert_eq!(all(&mut scan), ["a", "b"]);
    assert_eq!(all(&mut scan), [] as [&str; 0]);
    home.append(&["c"]).await;
    assert_eq!(all(&mut scan), ["c"]);
}

#[test]
fn a_line_that_is_being_written_is_waited_for() {
    let home = Home::with(line(1, "a"));
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    assert_eq!(all(&mut scan), ["a"]);
    let next = line(2, "漢字");
    for cut in [1, 20, next.len() - 8] {
        home.write(line(1, "a") + std::str::from_utf8(&next.as_bytes()[..cut]).unwrap_or("{\"id\""));
        assert_eq!(all(&mut scan), [] as [&str; 0], "cut at {cut}");
    }
    // Without its newline it is whole.
    home.write(line(1, "a") + next.trim_end());
    assert_eq!(all(&mut scan), ["漢字"]);
    home.write(line(1, "a") + &next + &line(3, "b"));
    assert_eq!(all(&mut scan), ["b"]);
}

#[tokio::test]
async fn what_others_do_to_a_tape_is_noticed_and_nothing_is_missed() {
    let home = Home::with(line(1, "a") + &line(2, "b"));
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    assert_eq!(all(&mut scan), ["a", "b"]);

    home.write(line(1, "a"));
    assert_eq!(texts(&mut scan), (vec!["a".into()], Some(TapeChange::Rewritten)));
    home.write(line(1, "x") + &line(2, "y") + &line(3, "z"));
    assert_eq!(texts(&mut scan), (vec!["x".into(), "y".into(), "z".into()], Some(TapeChange::Rewritten)));

    // Written before it was replaced, and not seen yet.
    home.append(&["last"]).await;
    home.store.replace(&home.tape, &messages(&["new"])).await.unwrap();
    assert_eq!(texts(&mut scan), (vec!["last".into()], None));
    assert_eq!(texts(&mut scan), (vec!["new".into()], Some(TapeChange::Replaced)));

    home.store.replace(&home.tape, &[]).await.unwrap();
    assert_eq!(texts(&mut scan), (vec![], Some(TapeChange::Removed)));
    assert_eq!(texts(&mut scan), (vec![], None));
    home.append(&["again"]).await;
    assert_eq!(texts(&mut scan), (vec!["again".into()], None));
}

#[tokio::test]
async fn the_last_ones_are_found_from_the_end() {
    let home = Home::new();
    let texts: Vec<String> = (1..=500).map(|it| format!("m{it}")).collect();
    home.append(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (n, expected) in [(0, vec![]), (2, vec!["m499", "m500"]), (1, vec!["m500"])] {
        let mut scan = home.store.scan(&home.tape, ScanFilter::default());
        scan.skip_to_last(n).unwrap();
        assert_eq!(all(&mut scan), expected);
    }
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    scan.skip_to_last(9_999).unwrap();
    assert_eq!(all(&mut scan).len(), 500);

    // Behind the start of a line that is not whole yet.
    let torn = [home.bytes(), b"{\"id\": 501, \"kind\": \"mess".to_vec()].concat();
    home.write(&torn);
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    scan.skip_to_last(0).unwrap();
    assert_eq!(all(&mut scan), [] as [&str; 0]);
    let whole = [&torn[..torn.len() - 25], line(501, "new").as_bytes()].concat();
    home.write(whole);
    assert_eq!(all(&mut scan), ["new"]);
}

#[tokio::test]
async fn filters_are_of_ids_and_of_what_queries_know() {
    let home = Home::new();
    home.append(&["a", "b", "c", "d"]).await;
    home.store.append(&home.tape, &[dated(NewEntry::event("e", json!({})))]).await.unwrap();
    home.append(&["f"]).await;
    let found = |filter: ScanFilter| all(&mut home.store.scan(&home.tape, filter));
    assert_eq!(found(ScanFilter { ids: 2..=3, ..ScanFilter::default() }), ["b", "c"]);
    assert_eq!(found(ScanFilter { ids: 4..=u64::MAX, ..ScanFilter::default() }), ["d", "e", "f"]);
    let events = ScanFilter { query: TapeQuery::default().kind(EntryKind::Event), ..ScanFilter::default() };
    assert_eq!(found(events.clone()), ["e"]);
    assert_eq!(found(ScanFilter { ids: 1..=4, ..events.clone() }), [] as [&str; 0]);
    let mut scan = home.store.scan(&home.tape, events);
    scan.skip_to_last(5).unwrap();
    assert_eq!(all(&mut scan), ["e"]);
}

#[tokio::test]
async fn long_tapes_and_long_lines_are_read_in_steps() {
    let home = Home::new();
    let long = "x".repeat(6 << 20);
    home.append(&["a", &long, "b"]).await;
    for _ in 0..20 {
        home.append(&[&"y".repeat(300_000)]).await;
    }
    let mut scan = home.store.scan(&home.tape, ScanFilter::default());
    let mut lens = Vec::new();
    let mut n_steps = 0;
    loop {
        let step = scan.step().unwrap();
        n_steps += 1;
        lens.extend(step.entries.iter().map(|it| text_of(&it.entry).len()));
        assert!(step.position <= step.len);
        if step.is_at_end {
            break;
        }
    }
    assert_eq!(lens, [[1, 6 << 20, 1].as_slice(), &[300_000; 20]].concat());
    assert!(n_steps > 5, "{n_steps}");
}
