use super::*;
use bub_kernel::message::{MediaSource, TokenUsage};

/// One line an event, for comparison; what goes back is left out.
fn lines(events: &[ModelEvent]) -> Vec<String> {
    events
        .iter()
        .filter_map(|it| {
            Some(match it {
                ModelEvent::Text(text) => format!("text {text}"),
                ModelEvent::Reasoning(text) => format!("reasoning {text}"),
                ModelEvent::Refusal(text) => format!("refusal {text}"),
                ModelEvent::ToolCallDelta { id, name, delta } => format!("delta {id} {name} {delta}"),
                ModelEvent::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
                ModelEvent::Usage(usage) => format!("usage {}/{}", usage.input_tokens, usage.output_tokens),
                ModelEvent::Finish(reason) => format!("finish {reason:?}"),
                ModelEvent::Citation(it) => format!("source {} {}", it.url, it.title.as_deref().unwrap_or("-")),
                ModelEvent::ProviderToolCall { name, input } => format!("provider {name} {input}"),
                ModelEvent::ProviderData(_) => return None,
                other => format!("{other:?}"),
            })
        })
        .collect()
}

async fn check(events: impl IntoIterator<Item = Value>, expected: &[&str]) {
    let (events, err) = read(events).await;
    assert!(err.is_none(), "{err:?} after {events:?}");
    assert_eq!(lines(&events), expected);
}

#[tokio::test]
async fn r169_text_that_was_streamed_stays_though_the_end_lists_nothing() {
    let server = ModelServer::start();
    server.reply(Reply::raw_sse([sse([text_delta(0, "m", "Hel"), text_delta(0, "m", "lo"), completed(json!([]))])]));
    let (events, err) = ask(&client(responses_config(&server))).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(lines(&events), ["text Hel", "text lo", "usage 10/5", "finish Stop"]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn r170_an_answer_of_thinking_alone_is_complete() {
    let (events, err) = read([completed(json!([thinking("rs_1", "ENC")]))]).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(lines(&events), ["usage 10/5", "reasoning hm", "finish Stop"]);
    assert!(events.iter().any(|it| matches!(it, ModelEvent::ProviderData(_))));
}

#[tokio::test]
async fn a_whole_stream_is_told_in_its_order() {
    let open = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []});
    let note = json!({"type": "url_citation", "url": "https://a/b", "title": "B", "start_index": 0, "end_index": 1});
    let mut whole = message("msg_1", "añb");
    whole["content"][0]["annotations"] = json!([note]);
    check(
        [
            created(),
            event("in_progress", json!({"response": {"status": "in_progress"}})),
            added(0, open),
            event(
                "content_part.added",
                json!({"output_index": 0, "item_id": "msg_1", "part": {"type": "output_text", "text": ""}}),
            ),
            text_delta(0, "msg_1", "añ"),
            text_delta(0, "msg_1", "b"),
            event("output_text.annotation.added", json!({"output_index": 0, "item_id": "msg_1", "annotation": note})),
            event("output_text.done", json!({"output_index": 0, "item_id": "msg_1", "text": "añb"})),
            event("content_part.done", json!({"output_index": 0, "part": {"type": "output_text", "text": "añb"}})),
            done(0, whole.clone()),
            completed(json!([whole])),
        ],
        &["text añ", "text b", "source https://a/b B", "usage 10/5", "finish Stop"],
    )
    .await;
}

#[tokio::test]
async fn calls_in_parallel_are_put_together_by_their_number() {
    let open = |id: &str, name: &str| call(&format!("fc_{id}"), id, name, "");
    let events = [
        added(0, open("a", "x")),
        added(1, open("b", "y")),
        arguments_delta(0, "fc_a", "{\"n\":"),
        added(2, open("c", "z")),
        arguments_delta(1, "fc_b", "{\"m\":2}"),
        arguments_delta(0, "fc_a", "1}"),
        event("function_call_arguments.done", json!({"output_index": 0, "item_id": "fc_a", "arguments": "{\"n\":1}"})),
        done(1, call("fc_b", "b", "y", "{\"m\":2}")),
        done(0, call("fc_a", "a", "x", "{\"n\":1}")),
        done(2, call("fc_c", "c", "z", "")),
        completed(json!([
            call("fc_a", "a", "x", "{\"n\":1}"),
            call("fc_b", "b", "y", "{\"m\":2}"),
            call("fc_c", "c", "z", "")
        ])),
    ];
    check(
        events,
        &[
            "delta a x ",
            "delta b y ",
            "delta a x {\"n\":",
            "delta c z ",
            "delta b y {\"m\":2}",
            "delta a x 1}",
            "usage 10/5",
            "call a x {\"n\":1}",
            "call b y {\"m\":2}",
            "call c z {}",
            "finish ToolCalls",
        ],
    )
    .await;
}

#[tokio::test]
async fn items_without_numbers_or_with_changing_ids_stay_whole() {
    let expected: &[&str] = &[
        "text a",
        "delta c1 f ",
        "delta c1 f {\"n\"",
        "delta c1 f :1}",
        "delta c2 g ",
        "delta c2 g {}",
        "usage 10/5",
        "call c1 f {\"n\":1}",
        "call c2 g {}",
        "finish ToolCalls",
    ];
    // Edits each event of a plain stream; `n` counts them.
    let stream = |edit: &dyn Fn(&mut Value, usize)| {
        let mut events = vec![
            added(0, json!({"type": "message", "id": "m", "content": []})),
            text_delta(0, "m", "a"),
            done(0, message("m", "a")),
            added(1, call("fc_1", "c1", "f", "")),
            arguments_delta(1, "fc_1", "{\"n\""),
            arguments_delta(1, "fc_1", ":1}"),
            done(1, call("fc_1", "c1", "f", "{\"n\":1}")),
            added(2, call("fc_2", "c2", "g", "")),
            arguments_delta(2, "fc_2", "{}"),
            done(2, call("fc_2", "c2", "g", "{}")),
            completed(json!([message("m", "a"), call("fc_1", "c1", "f", "{\"n\":1}"), call("fc_2", "c2", "g", "{}")])),
        ];
        events.iter_mut().enumerate().for_each(|(n, it)| edit(it, n));
        events
    };
    let rename = |event: &mut Value, name: Option<String>| {
        let rename = |it: &mut Value, key: &str| {
            if let Some(fields) = it.as_object_mut().filter(|it| it.contains_key(key)) {
                fields.remove(key);
                fields.extend(name.clone().map(|it| (key.to_owned(), it.into())));
            }
        };
        rename(event, "item_id");
        rename(&mut event["item"], "id");
        for item in event["response"]["output"].as_array_mut().into_iter().flatten() {
            rename(item, "id");
        }
    };
    let unnumber = |event: &mut Value| drop(event.as_object_mut().unwrap().remove("output_index"));
    check(stream(&|_, _| ()), expected).await;
    // Another id in every event.
    check(stream(&|it, n| rename(it, Some(format!("id_{n}")))), expected).await;
    // The same id everywhere.
    check(stream(&|it, _| rename(it, Some("id".into()))), expected).await;
    // No numbers.
    check(stream(&|it, _| unnumber(it)), expected).await;
    // Neither ids nor numbers.
    check(
        stream(&|it, _| {
            rename(it, None);
            unnumber(it);
        }),
        expected,
    )
    .await;
    // The same number everywhere, with ids and without.
    let all_zero = |it: &mut Value| {
        if it.get("output_index").is_some() {
            it["output_index"] = 0.into();
        }
    };
    check(stream(&|it, _| all_zero(it)), expected).await;
    check(
        stream(&|it, _| {
            all_zero(it);
            rename(it, None);
        }),
        expected,
    )
    .await;
    // Numbers that begin with 1 and ids that change.
    check(
        stream(&|it, n| {
            if let Some(index) = it.get("output_index").and_then(Value::as_u64) {
                it["output_index"] = (index + 1).into();
            }
            rename(it, Some(format!("id_{n}")));
        }),
        expected,
    )
    .await;
}

#[tokio::test]
async fn what_did_not_come_in_pieces_is_taken_from_the_whole_item() {
    let refusal = json!({"type": "message", "id": "m2", "content": [{"type": "refusal", "refusal": "no"}]});
    // Only the ends of items.
    check(
        [
            done(0, thinking("rs", "E")),
            done(1, message("m", "hi")),
            done(2, call("fc", "c", "f", "{\"a\":1}")),
            completed(json!([])),
        ],
        &["reasoning hm", "text hi", "delta c f {\"a\":1}", "usage 10/5", "call c f {\"a\":1}", "finish ToolCalls"],
    )
    .await;
    // Only the end of the whole.
    check(
        [completed(json!([message("m", "hi"), call("fc", "c", "f", "{}"), refusal]))],
        &["usage 10/5", "text hi", "delta c f {}", "refusal no", "call c f {}", "finish Refusal"],
    )
    .await;
    // Only the end of the text.
    check(
        [event("output_text.done", json!({"output_index": 0, "item_id": "m", "text": "hi"})), completed(json!([]))],
        &["text hi", "usage 10/5", "finish Stop"],
    )
    .await;
    // A piece that was lost: the whole counts.
    check(
        [
            added(0, call("fc", "c", "f", "")),
            arguments_delta(0, "fc", "{\"a\":"),
            arguments_delta(0, "fc", "}"),
            done(0, call("fc", "c", "f", "{\"a\":[1]}")),
            completed(json!([])),
        ],
        &["delta c f ", "delta c f {\"a\":", "delta c f }", "usage 10/5", "call c f {\"a\":[1]}", "finish ToolCalls"],
    )
    .await;
    // Arguments before their call, as an object, and a call that never gets a name.
    let mut object = call("fc", "c", "f", "");
    object["arguments"] = json!({"a": 1});
    check(
        [arguments_delta(0, "fc", "{\"a\":"), done(0, object), arguments_delta(7, "fc_7", "{}"), completed(json!([]))],
        &[
            "delta c f {\"a\":1}",
            "usage 10/5",
            "delta fc_7 unnamed {}",
            "call c f {\"a\":1}",
            "call fc_7 unnamed {}",
            "finish ToolCalls",
        ],
    )
    .await;
}

#[tokio::test]
async fn parts_of_thinking_have_a_blank_line_between_them() {
    let summary = |item: u64, part: u64, delta: &str| {
        let fields =
            json!({"output_index": item, "item_id": format!("rs_{item}"), "summary_index": part, "delta": delta});
        event("reasoning_summary_text.delta", fields)
    };
    let raw = event(
        "reasoning_text.delta",
        json!({"output_index": 0, "item_id": "rs_0", "content_index": 0, "delta": "raw"}),
    );
    let events =
        [summary(0, 0, "a"), summary(0, 0, "b"), summary(0, 1, "c"), raw, summary(1, 0, "d"), completed(json!([]))];
    let (events, err) = read(events).await;
    assert!(err.is_none(), "{err:?}");
    let text: String =
        events.iter().map(|it| if let ModelEvent::Reasoning(text) = it { text.as_str() } else { "" }).collect();
    assert_eq!(text, "ab\n\nc\n\nraw\n\nd");
}

#[tokio::test]
async fn finish_reasons_are_the_kernels() {
    let end = |name: &str, reason: Value| {
        let response = json!({"status": name, "incomplete_details": reason, "output": []});
        [text_delta(0, "m", "x"), event(name, json!({"response": response}))]
    };
    check(end("incomplete", json!({"reason": "max_output_tokens"})), &["text x", "finish Length"]).await;
    check(end("incomplete", json!({"reason": "content_filter"})), &["text x", "finish ContentFilter"]).await;
    check(end("incomplete", json!({"reason": "pause"})), &["text x", r#"finish Other("pause")"#]).await;
    check(end("incomplete", Value::Null), &["text x", "finish Length"]).await;
    check(end("done", Value::Null), &["text x", "finish Stop"]).await;
    // What the status says counts, whatever the event is called.
    let response = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    check([event("completed", json!({"response": response}))], &["finish Length"]).await;
    let refusal = |delta: &str| event("refusal.delta", json!({"output_index": 0, "item_id": "m", "delta": delta}));
    let whole = json!({"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I can't"}]});
    check(
        [refusal("I "), refusal("can't"), done(0, whole), completed(json!([]))],
        &["refusal I ", "refusal can't", "usage 10/5", "finish Refusal"],
    )
    .await;
}

#[tokio::test]
async fn r167_cut_arguments_are_handed_on_with_the_reason() {
    let response = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    let (events, err) = read([
        added(0, call("fc", "c", "fs_write", "")),
        arguments_delta(0, "fc", r#"{"path":"a.txt","content":"abc"#),
        event("incomplete", json!({"response": response})),
    ])
    .await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(calls_of(&events)[0].2, r#"{"path":"a.txt","content":"abc"#);
    assert_eq!(events.last(), Some(&ModelEvent::Finish(FinishReason::Length)));
}

#[tokio::test]
async fn usage_has_cached_and_reasoning_tokens() {
    let (events, _) = read([completed(json!([]))]).await;
    let expected =
        TokenUsage { input_tokens: 10, output_tokens: 5, reasoning_tokens: 2, cached_tokens: 4, cache_write_tokens: 0 };
    assert!(events.contains(&ModelEvent::Usage(expected)), "{events:?}");
}

#[tokio::test]
async fn calls_of_the_providers_tools_are_told_and_pictures_shown() {
    let search = json!({"type": "web_search_call", "id": "ws", "status": "completed",
        "action": {"type": "search", "query": "q"}});
    let code = json!({"type": "code_interpreter_call", "id": "ci", "status": "completed", "code": "1+1",
        "container_id": "cntr", "outputs": null});
    let mcp = json!({"type": "mcp_call", "id": "mcp", "name": "roll", "server_label": "dice", "arguments": "{\"n\":2}",
        "output": "4"});
    let image = json!({"type": "image_generation_call", "id": "ig", "status": "completed", "output_format": "webp",
        "result": "AAAA"});
    let (events, err) =
        read([done(0, search), done(1, code), done(2, mcp), done(3, image), completed(json!([]))]).await;
    assert!(err.is_none(), "{err:?}");
    let calls: Vec<_> = lines(&events).into_iter().filter(|it| it.starts_with("provider")).collect();
    assert_eq!(
        calls,
        [
            r#"provider web_search {"type":"search","query":"q"}"#,
            r#"provider code_interpreter {"code":"1+1","container_id":"cntr"}"#,
            r#"provider roll {"n":2}"#,
            r#"provider image_generation {"output_format":"webp"}"#,
        ]
    );
    let media = events.iter().find_map(|it| if let ModelEvent::Media(it) = it { Some(it) } else { None }).unwrap();
    assert_eq!((media.media_type.as_str(), &media.source), ("image/webp", &MediaSource::Data("AAAA".into())));
    // The picture is kept once.
    let n_kept = events.iter().filter(|it| format!("{it:?}").contains("AAAA")).count();
    assert_eq!(n_kept, 1);
}

#[tokio::test]
async fn servers_that_do_not_stream_are_understood() {
    let mut whole = completed(json!([thinking("rs", "E"), message("m", "hi"), call("fc", "c", "f", "{}")]));
    let body = whole["response"].take();
    let server = ModelServer::start();
    server.reply(Reply::json(&body));
    let (events, err) = ask(&client(responses_config(&server))).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(
        lines(&events),
        ["usage 10/5", "reasoning hm", "text hi", "delta c f {}", "call c f {}", "finish ToolCalls"]
    );
}

#[tokio::test]
async fn unknown_fields_and_events_are_ignored() {
    let stream = [
        ": note\n\nevent: ping\n\n".to_owned(),
        sse([
            event("queued", json!({"response": {"status": "queued"}})),
            event("image_generation_call.partial_image", json!({"partial_image_b64": "AA", "output_index": 0})),
            event("of_tomorrow", json!({"delta": {"text": "no"}, "item": 5})),
            json!({"no": "type"}),
            text_delta(0, "m", "x"),
            done(1, json!({"type": "of_tomorrow", "id": "t"})),
            completed(json!([])),
            text_delta(0, "m", "after the end"),
        ]),
    ];
    let server = ModelServer::start();
    server.reply(Reply::raw_sse(stream));
    let (events, err) = ask(&client(responses_config(&server))).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(lines(&events), ["text x", "usage 10/5", "finish Stop"]);
    // The mark that other servers end with.
    server.reply(Reply::raw_sse([format!("{}data: [DONE]\n\n", sse([text_delta(0, "m", "x")]))]));
    let (events, err) = ask(&client(responses_config(&server))).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(lines(&events), ["text x", "finish Stop"]);
}

#[tokio::test]
async fn r190_any_cut_gives_the_same_answer() {
    let stream = sse([
        added(0, json!({"type": "message", "id": "m", "content": []})),
        text_delta(0, "m", "漢字😀"),
        done(0, message("m", "漢字😀")),
        done(1, call("fc", "a", "fs_read", "{\"path\":\"é\"}")),
        event("completed", json!({"response": {"status": "completed"}})),
    ]);
    // Without a blank line at the end.
    let stream = stream.trim_end().as_bytes();
    let server = ModelServer::start();
    let client = client(responses_config(&server));
    server.reply(Reply::raw_sse([stream]));
    let (expected, err) = ask(&client).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&expected), "漢字😀");
    let call = ("a".to_owned(), "fs_read".to_owned(), r#"{"path":"é"}"#.to_owned());
    assert_eq!(calls_of(&expected), [call]);
    let same = |events: &[ModelEvent], err: Option<ModelError>, case: &str| {
        assert!(err.is_none(), "{case}: {err:?}");
        assert_eq!(events, expected, "{case}");
    };
    crate::cuts::at_each_byte(responses_config, stream, same).await;
    server.reply(Reply::raw_sse([stream]).pieces_of(1));
    let (events, err) = ask(&client).await;
    same(&events, err, "byte by byte");
}
