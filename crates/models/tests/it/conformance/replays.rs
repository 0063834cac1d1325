//! What goes back with later requests.

use super::{speaker::Say, *};

const WORDS: &str = "first, \u{fc}nd \"then\"\n";
const SIGNATURE: &str = "SIG+/==";

/// An answer that thinks, speaks and calls.
async fn thoughtful(bench: &Bench) -> Message {
    let said_of = [
        Say::Thinking(WORDS, SIGNATURE),
        Say::Text(&["Let me ", "see."]),
        Say::Call("c1", "fs_read", &[r#"{"path":"a"}"#]),
    ];
    let events = bench.read(&Script::new(said_of)).await;
    assert!(events.contains(&ModelEvent::Reasoning(WORDS.into())), "{events:?}");
    answer_of(&events)
}

fn result() -> Message {
    Message::tool_result(call("c1", r#"{"path":"a"}"#), &json!("ok"))
}

/// The lines of the conversation up to the result.
fn lines(bench: &Bench) -> Vec<String> {
    let thought = bench.speaker.thought(WORDS, SIGNATURE);
    vec![
        "user hello".to_owned(),
        format!("thought {thought}"),
        "model Let me see.".to_owned(),
        r#"call c1 fs_read {"path":"a"}"#.to_owned(),
        "result c1 ok".to_owned(),
    ]
}

pub(super) async fn thinking_returns(bench: &Bench) -> Checked {
    let messages = vec![user("hello"), thoughtful(bench).await, result()];
    assert_eq!(bench.sent(&request(messages)).await?.lines, lines(bench));
    // The very bytes, not only their meaning.
    let thought = bench.speaker.thought(WORDS, SIGNATURE).to_string();
    let raw = String::from_utf8(bench.server.requests().pop().unwrap().raw).unwrap();
    assert!(raw.contains(&thought), "{thought} is not in {raw}");
    Ok(())
}

pub(super) async fn thinking_after_a_detour(bench: &Bench) -> Checked {
    let mut messages = vec![user("hello"), thoughtful(bench).await, result()];
    for other in SPEAKERS {
        let elsewhere = Bench::new(other);
        let mut config = elsewhere.config();
        config.name = "elsewhere".into();
        elsewhere.server.reply(elsewhere.reply(&Script::new([Say::Thinking("hm", "OTHER=="), Say::Text(&["done"])])));
        let (events, err) = send(&client(config), &request(messages.clone())).await;
        assert!(err.is_none(), "{err:?}");
        messages.extend([answer_of(&events), user("more")]);
    }
    let sent = bench.sent(&request(messages)).await?;
    let mut expected = lines(bench);
    for _ in SPEAKERS {
        expected.extend(["model done".to_owned(), "user more".to_owned()]);
    }
    assert_eq!(sent.lines, expected);
    Ok(())
}

pub(super) async fn thinking_of_others(bench: &Bench) -> Checked {
    let messages = vec![user("hello"), thoughtful(bench).await, result()];
    for other in SPEAKERS {
        let elsewhere = Bench::new(other);
        let mut config = elsewhere.config();
        config.name = "elsewhere".into();
        let sent = elsewhere.sent_by(config, &request(messages.clone())).await?;
        let mut expected = lines(bench);
        expected.remove(1);
        assert_eq!(sent.lines, expected, "to {}", other.wire());
        let raw = String::from_utf8(elsewhere.server.requests().pop().unwrap().raw).unwrap();
        assert!(!raw.contains(SIGNATURE), "{raw}");
    }
    Ok(())
}
