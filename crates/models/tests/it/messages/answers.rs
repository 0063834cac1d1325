use super::*;
use crate::{answers::lines, cuts::at_each_byte};
use bub_kernel::{
    message::TokenUsage,
    model::{Citation, FinishReason},
};

async fn check(reply: Reply, expected: &[&str]) {
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?} after {events:?}");
    assert_eq!(told(&events), expected);
}

/// One line an event; items by their own JSON, where they stand.
fn told(events: &[ModelEvent]) -> Vec<String> {
    let lines = lines(events);
    events
        .iter()
        .zip(lines)
        .map(|(event, line)| match event {
            ModelEvent::ProviderData(data) => {
                assert_eq!((data.api_format.as_str(), &data.payload["provider"]), ("messages", &json!("anthropic")));
                let at = |key: &str| data.payload[key].as_u64().unwrap();
                format!("item {}+{} {}", at("after_chars"), at("after_calls"), data.payload["item"])
            }
            ModelEvent::ProviderToolCall { name, input } => format!("own {name} {input}"),
            _ => line,
        })
        .collect()
}

#[tokio::test]
async fn text_arrives_piece_by_piece_with_usage_and_finish() {
    let expected = ["usage 10/1", "text a", "text b\n漢", "usage 10/5", "finish Stop"];
    check(message([text(0, &["a", "b\n漢"])], "end_turn"), &expected).await;
}

#[tokio::test]
async fn calls_arrive_in_pieces_at_once_or_without_arguments() {
    let blocks = [
        text(0, &["Reading…"]),
        tool_use(1, "c1", "fs_read", &["", "{\"path\": ", "\"a\"}"]),
        tool_use(2, "c2", "tape_info", &[]),
        // Some servers send the input with the start of the block.
        block(3, json!({"type": "tool_use", "id": "c3", "name": "f", "input": {"b": 1.0, "a": [2]}}), []),
    ];
    let expected = [
        "usage 10/1",
        "text Reading…",
        "delta c1 fs_read ",
        r#"delta c1 fs_read {"path": "#,
        r#"delta c1 fs_read "a"}"#,
        "delta c2 tape_info ",
        "delta c3 f ",
        r#"delta c3 f {"b":1.0,"a":[2]}"#,
        "usage 10/5",
        r#"call c1 fs_read {"path": "a"}"#,
        "call c2 tape_info {}",
        r#"call c3 f {"b":1.0,"a":[2]}"#,
        "finish ToolCalls",
    ];
    check(message(blocks, "tool_use"), &expected).await;
}

#[tokio::test]
async fn r185_thinking_is_told_and_kept_with_its_signature() {
    let hidden = json!({"type": "redacted_thinking", "data": "RED=="});
    let blocks =
        [thinking(0, &["one ", "two"], "S1"), block(1, hidden, []), text(2, &["é"]), tool_use(3, "c", "f", &[])];
    let expected = [
        "usage 10/1",
        "reasoning one ",
        "reasoning two",
        r#"item 0+0 {"type":"thinking","thinking":"one two","signature":"S1"}"#,
        r#"item 0+0 {"type":"redacted_thinking","data":"RED=="}"#,
        "text é",
        "delta c f ",
        "usage 10/5",
        "call c f {}",
        "finish ToolCalls",
    ];
    check(message(blocks, "tool_use"), &expected).await;
    // Thinking that is not shown has a signature all the same.
    let expected = ["usage 10/1", r#"item 0+0 {"type":"thinking","thinking":"","signature":"S"}"#];
    let (events, _) = play(message([thinking(0, &[], "S")], "end_turn")).await;
    assert_eq!(told(&events)[..2], expected);
}

#[tokio::test]
async fn tools_of_the_provider_are_told_and_kept() {
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let query = ["{\"query\":", "\"rust\"}"].map(|it| json!({"type": "input_json_delta", "partial_json": it}));
    let page = json!({"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": "E=="});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]});
    let cited = json!({"type": "web_search_result_location", "url": "https://x", "title": "X", "cited_text": "c", "encrypted_index": "I"});
    let file = json!({"type": "char_location", "document_title": "D", "cited_text": "c"});
    let words = [
        json!({"type": "citations_delta", "citation": cited}),
        json!({"type": "text_delta", "text": "Rust"}),
        json!({"type": "citations_delta", "citation": file}),
    ];
    let blocks = [
        text(0, &["Let me see."]),
        block(1, search, query),
        block(2, found.clone(), []),
        text(3, &["I read: "]),
        block(4, json!({"type": "text", "text": "", "citations": []}), words),
        text(5, &["."]),
    ];
    let (events, err) = play(message(blocks, "end_turn")).await;
    assert!(err.is_none(), "{err:?}");
    let query =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rust"}});
    let citations = json!({"type": "text", "citations": [cited, file]});
    let expected = [
        "usage 10/1".to_owned(),
        "text Let me see.".into(),
        r#"own web_search {"query":"rust"}"#.into(),
        format!("item 11+0 {query}"),
        format!("item 11+0 {found}"),
        "text I read: ".into(),
        r#"item 19+0 {"type":"text"}"#.into(),
        format!("{:?}", ModelEvent::Citation(Citation { url: "https://x".into(), title: Some("X".into()) })),
        "text Rust".into(),
        format!("item 23+0 {citations}"),
        "text .".into(),
        "usage 10/5".into(),
        "finish Stop".into(),
    ];
    assert_eq!(told(&events), expected);
}

#[tokio::test]
async fn stop_reasons_are_the_kernels() {
    for (reason, expected) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Pause),
        ("nap", FinishReason::Other("nap".into())),
    ] {
        let (events, err) = play(message([text(0, &["x"])], reason)).await;
        assert!(err.is_none(), "{err:?}");
        assert_eq!(events.last(), Some(&ModelEvent::Finish(expected)), "{reason}");
    }
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "not this"});
    let delta = json!({"stop_reason": "refusal", "stop_details": details});
    let events = [start(), json!({"type": "message_delta", "delta": delta}), json!({"type": "message_stop"})];
    check(Reply::raw_sse([stream(events)]), &["usage 10/1", "refusal not this", "finish Refusal"]).await;
}

#[tokio::test]
async fn r167_cut_arguments_are_handed_on_with_the_reason() {
    let reply = message([tool_use(0, "c", "fs_write", &["{\"path\":\"a.txt\",\"content\":\"abc"])], "max_tokens");
    let (events, err) = play(reply).await;
    assert!(err.is_none());
    assert_eq!(calls_of(&events)[0].2, r#"{"path":"a.txt","content":"abc"#);
    assert_eq!(events.last(), Some(&ModelEvent::Finish(FinishReason::Length)));
}

#[tokio::test]
async fn usage_counts_what_the_cache_gave_and_took() {
    let mut begin = start();
    begin["message"]["usage"] = json!({"input_tokens": 3, "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100, "output_tokens": 1, "service_tier": "standard"});
    let usage = json!({"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let events = [vec![begin], text(0, &["x"]), vec![end, json!({"type": "message_stop"})]].concat();
    let (events, _) = play(Reply::raw_sse([stream(events)])).await;
    let expected = TokenUsage {
        input_tokens: 123,
        output_tokens: 50,
        reasoning_tokens: 30,
        cached_tokens: 100,
        cache_write_tokens: 20,
    };
    assert!(events.contains(&ModelEvent::Usage(expected)), "{events:?}");
}

#[tokio::test]
async fn servers_that_do_it_a_little_differently_are_understood() {
    // No names of events, no start of the message, no numbers, no ends; the end mark of another wire.
    let bare = |events: Vec<Value>| events.into_iter().map(|it| format!("data: {it}\n\n")).collect::<String>();
    let mut events: Vec<Value> = [thinking(0, &["t"], "S"), text(0, &["a"]), tool_use(0, "c", "f", &["{\"x\":1}"])]
        .concat()
        .into_iter()
        .filter(|it| it["type"] != "content_block_stop")
        .collect();
    for event in &mut events {
        event.as_object_mut().unwrap().remove("index");
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": null}));
    let expected = [
        "reasoning t",
        r#"item 0+0 {"type":"thinking","thinking":"t","signature":"S"}"#,
        "text a",
        "delta c f ",
        r#"delta c f {"x":1}"#,
        r#"call c f {"x":1}"#,
        "finish ToolCalls",
    ];
    for tail in ["", "data: [DONE]\n\n"] {
        check(Reply::raw_sse([bare(events.clone()) + tail]), &expected).await;
    }
    // All blocks under one number, each ended by the next.
    for event in &mut events {
        event["index"] = json!(0);
    }
    check(Reply::raw_sse([bare(events)]), &expected).await;
    // Pieces of blocks that never began.
    let pieces = [json!({"thinking": "t"}), json!({"text": "a"}), json!({"text": "b"}), json!({"unknown": 1})];
    let mut events: Vec<_> =
        pieces.into_iter().map(|it| json!({"type": "content_block_delta", "index": 0, "delta": it})).collect();
    events.extend([json!({"type": "message_stop"}), json!("never read")]);
    let expected = [
        "reasoning t",
        r#"item 0+0 {"type":"thinking","thinking":"t","signature":""}"#,
        "text a",
        "text b",
        "finish Stop",
    ];
    check(Reply::raw_sse([bare(events)]), &expected).await;
}

#[tokio::test]
async fn blocks_of_unknown_kinds_go_back_whole_or_not_at_all() {
    let blocks = [
        block(0, json!({"type": "novelty", "x": [1, {"b": 2, "a": 1}]}), []),
        block(1, json!({"type": "novelty", "x": ""}), [json!({"type": "novelty_delta", "x": "part"})]),
        text(2, &["x"]),
    ];
    let expected =
        ["usage 10/1", r#"item 0+0 {"type":"novelty","x":[1,{"b":2,"a":1}]}"#, "text x", "usage 10/5", "finish Stop"];
    check(message(blocks, "end_turn"), &expected).await;
}

#[tokio::test]
async fn unknown_fields_and_events_are_ignored() {
    let mut events = vec![json!({"type": "ping"}), start(), json!({"type": "novelty", "index": 0, "delta": {"x": []}})];
    events.extend(text(0, &["x"]));
    for event in &mut events {
        event["new"] = json!({"a": [1]});
    }
    events.extend(end("end_turn"));
    let reply = Reply::raw_sse([format!(": hello\n\n{}data: after the end\n\n", stream(events))]);
    check(reply, &["usage 10/1", "text x", "usage 10/5", "finish Stop"]).await;
}

#[tokio::test]
async fn servers_that_do_not_stream_are_understood() {
    let content = json!([
        {"type": "thinking", "thinking": "t", "signature": "S"},
        {"type": "text", "text": "hi", "citations": null},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]);
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content, "model": "m",
        "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}});
    let expected = [
        "reasoning t",
        r#"item 0+0 {"type":"thinking","thinking":"t","signature":"S"}"#,
        "text hi",
        "delta c f ",
        r#"delta c f {"a":1}"#,
        "usage 1/2",
        r#"call c f {"a":1}"#,
        "finish ToolCalls",
    ];
    check(Reply::json(&body), &expected).await;
}

#[tokio::test]
async fn r188_r190_any_line_end_and_any_cut_give_the_same_answer() {
    let blocks = [thinking(0, &["漢"], "S1"), text(1, &["漢字😀"]), tool_use(2, "a", "f", &["{\"p\":", "\"é\"}"])];
    let events = [vec![start()], blocks.concat(), end("tool_use")].concat();
    let whole = stream(events);
    let (expected, err) = play(Reply::raw_sse([whole.clone()])).await;
    assert!(err.is_none() && text_of(&expected) == "漢字😀", "{err:?} {expected:?}");
    for newline in ["\n", "\r\n", "\r"] {
        let other = whole.replace('\n', newline);
        let (came, err) = play(Reply::raw_sse([other.trim_end()]).pieces_of(1)).await;
        assert!(err.is_none(), "{err:?}");
        assert_eq!(came, expected, "{newline:?}");
    }
    at_each_byte(anthropic, whole.as_bytes(), |came, err, case| {
        assert!(err.is_none(), "{case}: {err:?}");
        assert_eq!(came, expected, "{case}");
    })
    .await;
}

#[tokio::test]
async fn a_megabyte_of_input_comes_in_ten_thousand_pieces() {
    let piece = "x".repeat(100);
    let mut pieces = vec!["{\"a\":\""];
    pieces.extend((0..10_000).map(|_| piece.as_str()));
    pieces.push("\"}");
    let (events, err) = play(message([tool_use(0, "c", "f", &pieces)], "tool_use")).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(calls_of(&events)[0].2.len(), 1_000_000 + 8);
    assert_eq!(events.iter().filter(|it| matches!(it, ModelEvent::ToolCallDelta { .. })).count(), 10_003);
}
