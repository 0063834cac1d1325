//! What comes of an answer.

use super::{
    speaker::{End, Say},
    *,
};
use bub_kernel::{
    message::TokenUsage,
    model::{Citation, FinishReason},
};

/// The calls as they are expected.
fn owned(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    calls.iter().map(|(id, name, arguments)| ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned())).collect()
}

fn finish_of(events: &[ModelEvent]) -> Option<&FinishReason> {
    events.last().and_then(|it| if let ModelEvent::Finish(reason) = it { Some(reason) } else { None })
}

fn usage_of(events: &[ModelEvent]) -> Option<TokenUsage> {
    events.iter().rev().find_map(|it| if let ModelEvent::Usage(usage) = it { Some(*usage) } else { None })
}

pub(super) async fn text(bench: &Bench) -> Checked {
    let events = bench.read(&Script::new([Say::Text(&["a", "b\n漢", " "])])).await;
    let pieces = events.iter().filter(|it| matches!(it, ModelEvent::Text(_))).count();
    assert_eq!((text_of(&events).as_str(), pieces), ("ab\n漢 ", 3));
    assert_eq!(finish_of(&events), Some(&FinishReason::Stop));
    Ok(())
}

pub(super) async fn one_call(bench: &Bench) -> Checked {
    let arguments = r#"{"path":"a b","n":1.0,"é":[null]}"#;
    let events = bench.read(&Script::new([Say::Text(&["Reading…"]), Say::Call("c1", "fs_read", &[arguments])])).await;
    assert_eq!(calls_of(&events), owned(&[("c1", "fs_read", arguments)]));
    assert_eq!((text_of(&events).as_str(), finish_of(&events)), ("Reading…", Some(&FinishReason::ToolCalls)));
    let first = |is_it: fn(&ModelEvent) -> bool| events.iter().position(is_it).unwrap();
    let text = first(|it| matches!(it, ModelEvent::Text(_)));
    let delta = first(|it| matches!(it, ModelEvent::ToolCallDelta { .. }));
    assert!(text < delta && delta < first(|it| matches!(it, ModelEvent::ToolCall(_))), "{events:?}");
    Ok(())
}

const THREE: [Say<'_>; 3] = [
    Say::Call("c1", "fs_read", &[r#"{"path":"#, r#""1"}"#]),
    Say::Call("c2", "fs_read", &[r#"{"path":"2"}"#]),
    Say::Call("c3", "tape_info", &["{}"]),
];

fn assert_three(events: &[ModelEvent]) {
    let expected =
        [("c1", "fs_read", r#"{"path":"1"}"#), ("c2", "fs_read", r#"{"path":"2"}"#), ("c3", "tape_info", "{}")];
    assert_eq!(calls_of(events), owned(&expected));
    assert_eq!(finish_of(events), Some(&FinishReason::ToolCalls));
}

pub(super) async fn three_calls(bench: &Bench) -> Checked {
    assert_three(&bench.read(&Script::new(THREE)).await);
    Ok(())
}

pub(super) async fn empty_arguments(bench: &Bench) -> Checked {
    for pieces in [&[] as &[&str], &["{}"]] {
        let events = bench.read(&Script::new([Say::Call("c1", "tape_info", pieces)])).await;
        assert_eq!(calls_of(&events), owned(&[("c1", "tape_info", "{}")]));
    }
    Ok(())
}

pub(super) async fn many_pieces(bench: &Bench) -> Checked {
    let arguments = format!(r#"{{"text":"{}"}}"#, "é漢😀x".repeat(500));
    let pieces: Vec<String> = arguments.chars().map(String::from).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let events = bench.read(&Script::new([Say::Call("c1", "f", &pieces)])).await;
    assert_eq!(calls_of(&events), owned(&[("c1", "f", &arguments)]));
    let told: String = events
        .iter()
        .filter_map(|it| if let ModelEvent::ToolCallDelta { delta, .. } = it { Some(delta.as_str()) } else { None })
        .collect();
    assert_eq!(told, arguments);
    Ok(())
}

/// Three calls whose numbers are changed.
async fn renumbered(bench: &Bench, change: impl Fn(&mut serde_json::Map<String, Value>, &str)) -> Checked {
    let mut events = bench.speaker.events(&Script::new(THREE));
    let mut n_changed = 0;
    for event in &mut events {
        if let Some((fields, key)) = bench.speaker.number(event) {
            change(fields, key);
            n_changed += 1;
        }
    }
    assert!(n_changed >= 3);
    assert_three(&bench.read_reply(Reply::raw_sse([bench.speaker.write(&events)])).await);
    Ok(())
}

pub(super) async fn same_number(bench: &Bench) -> Checked {
    renumbered(bench, |fields, key| drop(fields.insert(key.into(), 0.into()))).await
}

pub(super) async fn no_number(bench: &Bench) -> Checked {
    renumbered(bench, |fields, key| drop(fields.remove(key))).await
}

pub(super) async fn rising_numbers(bench: &Bench) -> Checked {
    renumbered(bench, |fields, key| {
        let number = fields[key].as_u64().unwrap();
        fields.insert(key.into(), (number * 7 + 3).into());
    })
    .await
}

pub(super) async fn usage(bench: &Bench) -> Checked {
    let usage = TokenUsage { input_tokens: 100, output_tokens: 20, reasoning_tokens: 7, ..TokenUsage::default() };
    let events = bench.read(&Script { usage, ..Script::new([Say::Text(&["x"])]) }).await;
    assert_eq!(usage_of(&events), Some(usage));
    Ok(())
}

pub(super) async fn cached_usage(bench: &Bench) -> Checked {
    let usage = TokenUsage { input_tokens: 100, output_tokens: 20, cached_tokens: 64, ..TokenUsage::default() };
    let events = bench.read(&Script { usage, ..Script::new([Say::Text(&["x"])]) }).await;
    assert_eq!(usage_of(&events), Some(usage));
    Ok(())
}

pub(super) async fn refusal(bench: &Bench) -> Checked {
    let events = bench.read(&Script::new([Say::Refusal("not this")])).await;
    assert!(events.contains(&ModelEvent::Refusal("not this".into())), "{events:?}");
    assert_eq!((text_of(&events).as_str(), finish_of(&events)), ("", Some(&FinishReason::Refusal)));
    Ok(())
}

pub(super) async fn length(bench: &Bench) -> Checked {
    let events = bench.read(&Script::new([Say::Text(&["half"])]).ending(End::Length)).await;
    assert_eq!((text_of(&events).as_str(), finish_of(&events)), ("half", Some(&FinishReason::Length)));
    Ok(())
}

pub(super) async fn filter(bench: &Bench) -> Checked {
    let events = bench.read(&Script::new([Say::Text(&["half"])]).ending(End::Filter)).await;
    assert_eq!((text_of(&events).as_str(), finish_of(&events)), ("half", Some(&FinishReason::ContentFilter)));
    Ok(())
}

pub(super) async fn citation(bench: &Bench) -> Checked {
    let events = bench.read(&Script::new([Say::Cited("so it is", "https://example.org/x", "X")])).await;
    let found: Vec<_> = events.iter().filter(|it| matches!(it, ModelEvent::Citation(_))).collect();
    let expected = Citation { url: "https://example.org/x".into(), title: Some("X".into()) };
    assert_eq!(found, [&ModelEvent::Citation(expected)]);
    assert_eq!(text_of(&events), "so it is");
    Ok(())
}

pub(super) async fn unknown(bench: &Bench) -> Checked {
    let script = Script::new([Say::Text(&["a", "b"]), Say::Call("c1", "f", &["{}"])]);
    let expected = bench.read(&script).await;
    let mut events = bench.speaker.events(&script);
    for event in &mut events {
        event["new_field"] = json!({"a": [1, {"b": null}]});
    }
    let mut all = vec![bench.speaker.novelty()];
    for event in events {
        all.extend([event, bench.speaker.novelty()]);
    }
    let stream = format!(": hello\n\nevent: novelty\nid: 7\nretry: 5\ndata:\n\n{}", bench.speaker.write(&all));
    assert_eq!(bench.read_reply(Reply::raw_sse([stream])).await, expected);
    Ok(())
}

pub(super) async fn odd_json(bench: &Bench) -> Checked {
    let script = Script::new([Say::Text(&["a", "?"]), Say::Call("c1", "f", &[r#"{"n":12345678901234567890123}"#])]);
    let plain = bench.bytes(&script);
    let check = async |stream: String, text: &str, case: &str| {
        assert_ne!(stream, plain, "{case}");
        let (events, err) = bench.play(Reply::raw_sse([stream])).await;
        assert!(err.is_none(), "{case}: {err:?}");
        assert_eq!(text_of(&events), text, "{case}");
        assert_eq!(calls_of(&events).len(), 1, "{case}");
    };
    // Each key of each event once before, with nothing in it.
    let mut twice = plain.clone();
    for event in bench.speaker.events(&script) {
        let once = event.to_string();
        let keys = event.as_object().unwrap().keys().map(|it| format!("\"{it}\":null,"));
        twice = twice.replace(&once, &once.replacen('{', &format!("{{{}", keys.collect::<String>()), 1));
    }
    check(twice, "a?", "keys that occur twice").await;
    check(plain.replace("\"?\"", "\"\\ud83d\""), "a\u{fffd}", "half a surrogate pair").await;
    for number in ["123456789012345678901234567890", "1e400", "-1e400"] {
        let event = |it: &str| it.replace("data: {", &format!("data: {{\"new_field\":{number},"));
        check(event(&plain), "a?", &format!("{number} in a field of no interest")).await;
        // The tokens that were read are 10.
        let usage = plain.replace(":10,", &format!(":{number},"));
        check(usage, "a?", &format!("{number} tokens")).await;
    }
    Ok(())
}
