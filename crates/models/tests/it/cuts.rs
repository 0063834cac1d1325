use super::*;
use serde_json::json;

fn pieces(newline: &str, space: &str) -> String {
    let events = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "漢字😀"}}]}).to_string(),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "a", "function": {"name": "fs_read", "arguments": "{\"path\":\"é\"}"}}]}}]})
        .to_string(),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}).to_string(),
    ];
    let mut text = format!(": keep-alive{newline}{newline}");
    for event in events {
        text.push_str(&format!("data:{space}{event}{newline}{newline}event: ping{newline}data:{newline}{newline}"));
    }
    // The last event has no blank line after it, nor even a line end.
    text + &format!("data:{space}[DONE]")
}

fn assert_whole(events: &[ModelEvent], err: Option<ModelError>, case: &str) {
    assert!(err.is_none(), "{case}: {err:?}");
    assert_eq!(text_of(events), "漢字😀", "{case}");
    let call = ("a".to_owned(), "fs_read".to_owned(), r#"{"path":"é"}"#.to_owned());
    assert_eq!(calls_of(events), [call], "{case}");
}

#[tokio::test]
async fn r188_any_line_end_gives_the_same_answer() {
    for newline in ["\n", "\r\n", "\r"] {
        for space in [" ", ""] {
            let case = format!("{newline:?} {space:?}");
            let (events, err) = play(Reply::raw_sse([pieces(newline, space)])).await;
            assert_whole(&events, err, &case);
            let (events, err) = play(Reply::raw_sse([pieces(newline, space)]).pieces_of(1)).await;
            assert_whole(&events, err, &case);
        }
    }
}

/// How far the cuts of one reply are apart, in bytes.
const STRIDE: usize = 24;

/// Sends a stream in packets until it has been cut at each of its bytes, and looks at what comes of it
/// each time.
pub(crate) async fn at_each_byte(
    config: impl Fn(&ModelServer) -> ProviderConfig,
    stream: &[u8],
    check: impl Fn(&[ModelEvent], Option<ModelError>, &str),
) {
    let server = ModelServer::start();
    let client = client(config(&server));
    for first in 1..=STRIDE.min(stream.len()) {
        let (before, after) = stream.split_at(first);
        server.reply(Reply::raw_sse([before].into_iter().chain(after.chunks(STRIDE))));
        let (events, err) = ask(&client).await;
        check(&events, err, &format!("cut at {first} and every {STRIDE} bytes"));
    }
    server.reply(Reply::raw_sse([stream]).pieces_of(1));
    let (events, err) = ask(&client).await;
    check(&events, err, "cut everywhere");
}

#[tokio::test]
async fn r190_any_cut_gives_the_same_answer() {
    for newline in ["\n", "\r\n"] {
        at_each_byte(config, pieces(newline, " ").as_bytes(), assert_whole).await;
    }
}

#[tokio::test]
async fn half_a_character_a_packet_is_put_together() {
    let reply = Reply::text("漢字😀é").pieces_of(1).between(Duration::from_micros(10));
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "漢字😀é");
}

#[tokio::test]
async fn a_stream_cut_off_anywhere_is_an_error_after_what_came() {
    let server = ModelServer::start();
    let client = client(config(&server));
    let whole = Reply::text("漢字😀").usage(json!(null)).no_finish();
    let length = 600;
    let mut n_whole = 0;
    for at in (0..length).step_by(7) {
        server.reply(whole.clone().cut(at));
        let (events, err) = ask(&client).await;
        let text = text_of(&events);
        assert!("漢字😀".starts_with(&text), "{text}");
        match err {
            None => n_whole += 1,
            Some(ModelError::Incomplete(_) | ModelError::Transport { .. }) => (),
            Some(other) => panic!("cut at {at}: {other:?}"),
        }
    }
    assert!(n_whole > 0 && n_whole < 60, "{n_whole} were whole");
}
