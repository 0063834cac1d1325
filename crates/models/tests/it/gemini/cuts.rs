use super::*;

fn pieces(newline: &str) -> String {
    let events = [
        parts(json!([{"text": "漢字😀"}])),
        parts(
            json!([{"functionCall": {"id": "a", "name": "fs_read", "args": {"path": "é"}}, "thoughtSignature": "S+/="}]),
        ),
        stop("STOP"),
    ];
    let mut text = format!(": keep-alive{newline}{newline}");
    for event in events {
        text.push_str(&format!("data: {event}{newline}{newline}"));
    }
    // The last event has no blank line after it, nor even a line end.
    text.trim_end().to_owned()
}

fn assert_whole(events: &[ModelEvent], err: Option<ModelError>, case: &str) {
    assert!(err.is_none(), "{case}: {err:?}");
    let expected = [
        "text 漢字😀",
        r#"delta a fs_read {"path":"é"}"#,
        r#"call a fs_read {"path":"é"} {"thoughtSignature":"S+/="}"#,
        "finish ToolCalls",
    ];
    assert_eq!(lines(events), expected, "{case}");
}

#[tokio::test]
async fn r188_any_line_end_gives_the_same_answer() {
    for newline in ["\n", "\r\n", "\r"] {
        let (events, err) = play(Reply::raw_sse([pieces(newline)]).pieces_of(1)).await;
        assert_whole(&events, err, &format!("{newline:?}"));
    }
}

#[tokio::test]
async fn r190_any_cut_gives_the_same_answer() {
    let server = ModelServer::start();
    let client = client(config(&server));
    let stream = pieces("\r\n").into_bytes();
    let list = serde_json::to_vec(&json!([
        parts(json!([{"text": "漢字😀"}])),
        parts(
            json!([{"functionCall": {"id": "a", "name": "fs_read", "args": {"path": "é"}}, "thoughtSignature": "S+/="}])
        ),
        stop("STOP"),
    ]))
    .unwrap();
    for body in [stream, list] {
        for at in 1..body.len() {
            let (before, after) = body.split_at(at);
            server.reply(Reply::raw_sse([before, after]));
            let (events, err) = ask(&client).await;
            assert_whole(&events, err, &format!("cut at {at}"));
        }
    }
}

#[tokio::test]
async fn a_stream_cut_off_anywhere_is_an_error_after_what_came() {
    let server = ModelServer::start();
    let client = client(config(&server));
    let body = format!("data: {}\n\ndata: {}\n\n", parts(json!([{"text": "漢字😀"}])), stop("STOP"));
    let mut n_whole = 0;
    for at in (0..body.len() + 7).step_by(7) {
        server.reply(Reply::raw_sse([body.clone()]).cut(at));
        let (events, err) = ask(&client).await;
        let text = text_of(&events);
        assert!(text.is_empty() || text == "漢字😀", "{text}");
        match err {
            None => n_whole += 1,
            Some(ModelError::Incomplete(_) | ModelError::Transport { .. }) => (),
            Some(other) => panic!("cut at {at}: {other:?}"),
        }
    }
    assert!(n_whole > 0 && n_whole < 4, "{n_whole} were whole");
}
