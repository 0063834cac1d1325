use super::*;

async fn check(reply: Reply, expected: &[&str]) {
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?} after {events:?}");
    assert_eq!(lines(&events), expected);
}

#[tokio::test]
async fn text_and_thoughts_arrive_piece_by_piece_with_usage_and_finish() {
    let usage = |more: Value| {
        let mut event = parts(json!([{"text": "b\n漢"}]));
        event["usageMetadata"] = more;
        event
    };
    let reply = stream([
        parts(json!([{"text": "hm, ", "thought": true}])),
        parts(json!([{"text": "a"}])),
        usage(json!({"promptTokenCount": 10, "cachedContentTokenCount": 4, "thoughtsTokenCount": 3})),
        stop("STOP"),
        json!({"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3,
            "toolUsePromptTokenCount": 2, "totalTokenCount": 20}}),
    ]);
    check(
        reply,
        &[
            "reasoning hm, ",
            "text a",
            "usage 10/3 cached 4 thought 3",
            "text b\n漢",
            "usage 12/8 cached 4 thought 3",
            "finish Stop",
        ],
    )
    .await;
}

#[tokio::test]
async fn calls_come_whole_with_ids_of_their_own() {
    let reply = stream([
        parts(json!([{"text": "Reading…"}])),
        parts(json!([
            {"functionCall": {"name": "fs_read", "args": {"path": "é", "n": 1.0}}, "thoughtSignature": "SIG=="},
            {"functionCall": {"name": "fs_read", "args": {"path": "b"}}},
        ])),
        parts(json!([{"functionCall": {"name": "fs_read", "args": {"path": "b"}}}])),
        parts(json!([{"functionCall": {"id": "x7", "name": "tape_info"}}])),
        parts(json!([{"functionCall": {"id": "x7", "name": "tape_info", "args": null}}])),
        stop("STOP"),
    ]);
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?}");
    let told = lines(&events);
    let (deltas, calls) = told[1..].split_at(5);
    assert_eq!(told[0], "text Reading…");
    assert_eq!(
        deltas,
        [
            r#"delta  fs_read {"path":"é","n":1.0}"#,
            r#"delta  fs_read {"path":"b"}"#,
            r#"delta  fs_read {"path":"b"}"#,
            "delta x7 tape_info ",
            "delta x7 tape_info ",
        ]
    );
    assert_eq!(
        calls,
        [
            r#"call call_1_0 fs_read {"path":"é","n":1.0} {"thoughtSignature":"SIG=="}"#,
            r#"call call_1_1 fs_read {"path":"b"} {}"#,
            r#"call call_1_2 fs_read {"path":"b"} {}"#,
            "call x7 tape_info {} {}",
            "call call_1_4 tape_info {} {}",
            "finish ToolCalls",
        ]
    );
}

#[tokio::test]
async fn parts_that_have_to_go_back_are_kept_in_their_place() {
    let reply = stream([
        parts(json!([{"text": "añ"}, {"text": "b", "thoughtSignature": "S1"}])),
        parts(json!([{"functionCall": {"id": "x", "name": "f", "args": {}}}])),
        parts(json!([{"text": "hm", "thought": true, "thoughtSignature": "S2"}])),
        parts(json!([{"text": "", "thoughtSignature": "S3"}])),
        stop("STOP"),
    ]);
    let data = |chars: usize, calls: usize, item: Value| {
        let payload = json!({"provider": "google", "after_chars": chars, "after_calls": calls, "item": item});
        format!("data gemini {payload}")
    };
    check(
        reply,
        &[
            "text añ",
            &data(2, 0, json!({"text": "b", "thoughtSignature": "S1"})),
            "text b",
            "delta x f {}",
            &data(3, 1, json!({"text": "hm", "thought": true, "thoughtSignature": "S2"})),
            "reasoning hm",
            &data(3, 1, json!({"text": "", "thoughtSignature": "S3"})),
            "call x f {} {}",
            "finish ToolCalls",
        ],
    )
    .await;
}

#[tokio::test]
async fn the_providers_own_tools_are_told_and_kept() {
    let code = json!({"language": "PYTHON", "code": "1+1"});
    let search = json!({"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "t1"});
    let reply = stream([
        parts(json!([
            {"executableCode": code},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
            {"toolCall": search, "thoughtSignature": "S"},
            {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "t1"}},
            {"text": "2"},
        ])),
        stop("STOP"),
    ]);
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?}");
    let told = lines(&events);
    let tools: Vec<_> = told.iter().filter(|it| it.starts_with("tool ")).collect();
    assert_eq!(
        tools,
        [r#"tool code_execution {"language":"PYTHON","code":"1+1"}"#, r#"tool google_search_web {"queries":["x"]}"#]
    );
    assert_eq!(told.iter().filter(|it| it.starts_with("data gemini ")).count(), 4);
}

#[tokio::test]
async fn sources_are_cited_once() {
    let mut last = stop("STOP");
    last["candidates"][0]["groundingMetadata"] = json!({
        "webSearchQueries": ["rust", "bub"],
        "groundingChunks": [
            {"web": {"uri": "https://a/1", "title": "A"}},
            {"retrievedContext": {"uri": "https://b"}},
            {"web": {"uri": "https://a/1", "title": "A"}},
            {"web": {"title": "nowhere"}},
        ],
        "searchEntryPoint": {"renderedContent": "<div>"},
    });
    last["candidates"][0]["citationMetadata"] = json!({"citationSources": [{"startIndex": 0, "uri": "https://c"}]});
    last["candidates"][0]["urlContextMetadata"] = json!({"urlMetadata": [{"retrievedUrl": "https://d"}]});
    check(
        stream([parts(json!([{"text": "x"}])), last.clone(), last]),
        &[
            "text x",
            r#"citation https://a/1 Some("A")"#,
            "citation https://b None",
            "citation https://c None",
            r#"tool google_search {"queries":["rust","bub"]}"#,
            r#"tool url_context {"url":"https://d"}"#,
            "finish Stop",
        ],
    )
    .await;
}

#[tokio::test]
async fn media_of_the_model_are_told() {
    let reply = stream([
        parts(json!([
            {"inlineData": {"mimeType": "image/png", "data": "SKETCH"}, "thought": true},
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "BBBB"}},
        ])),
        stop("STOP"),
    ]);
    check(reply, &[r#"media image image/png Data("AAAA")"#, r#"media audio audio/wav Data("BBBB")"#, "finish Stop"])
        .await;
}

#[tokio::test]
async fn finish_reasons_are_the_kernels() {
    let of = |reason: &str| stream([parts(json!([{"text": "x"}])), stop(reason)]);
    for (reason, expected) in [
        ("STOP", "finish Stop"),
        ("MAX_TOKENS", "finish Length"),
        ("SAFETY", "finish ContentFilter"),
        ("RECITATION", "finish ContentFilter"),
        ("PROHIBITED_CONTENT", "finish ContentFilter"),
        ("BLOCKLIST", "finish ContentFilter"),
        ("SPII", "finish ContentFilter"),
        ("IMAGE_SAFETY", "finish ContentFilter"),
        ("LANGUAGE", r#"finish Other("LANGUAGE")"#),
        ("UNEXPECTED_TOOL_CALL", r#"finish Other("UNEXPECTED_TOOL_CALL")"#),
    ] {
        check(of(reason), &["text x", expected]).await;
    }
    let cut = parts(json!([{"functionCall": {"id": "x", "name": "f", "args": {}}}]));
    let (events, _) = play(stream([cut, stop("MAX_TOKENS")])).await;
    assert_eq!(lines(&events).last().unwrap(), "finish Length");
}

#[tokio::test]
async fn what_follows_the_finish_is_read() {
    let reply = stream([stop("STOP"), parts(json!([{"text": "late"}]))]);
    check(reply, &["text late", "finish Stop"]).await;
    // A server that leaves the connection open after it.
    check(stream([parts(json!([{"text": "x"}])), stop("STOP")]).stall(), &["text x", "finish Stop"]).await;
}

#[tokio::test]
async fn servers_that_do_not_stream_are_understood() {
    let call = json!({"functionCall": {"id": "x", "name": "f", "args": {"a": "b"}}, "thoughtSignature": "S"});
    let whole = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}, call]},
        "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}});
    let expected = [
        "usage 1/2 cached 0 thought 0",
        "text hi",
        r#"delta x f {"a":"b"}"#,
        r#"call x f {"a":"b"} {"thoughtSignature":"S"}"#,
        "finish ToolCalls",
    ];
    check(Reply::json(&whole), &expected).await;
    // A list of events, printed as Google prints it.
    let list = json!([parts(json!([{"text": "a"}])), parts(json!([{"text": "漢"}])), stop("STOP")]);
    let list = Reply::json(&json!(null)).body(serde_json::to_string_pretty(&list).unwrap());
    check(list, &["text a", "text 漢", "finish Stop"]).await;
}

#[tokio::test]
async fn unknown_fields_and_empty_events_are_ignored() {
    let reply = Reply::raw_sse([
        ": note\r\n\r\nevent: ping\r\ndata:\r\n\r\n".to_owned(),
        format!("data: {}\n\n", json!({"responseId": "x", "new": {"a": [1]}, "candidates": []})),
        format!(
            "data: {}\n\n",
            json!({"candidates": [{"content": {"parts": [{"text": "x", "new": 1}]}, "avgLogprobs": -0.1}]})
        ),
        format!("data: {}\n\n", json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}]})),
        format!("data: {}\n\ndata: [DONE]\n\n", stop("STOP")),
    ]);
    check(reply, &["text x", "finish Stop"]).await;
}

#[tokio::test]
async fn a_call_of_a_megabyte_costs_linear_time() {
    let server = ModelServer::start();
    let client = client(config(&server));
    let time = async |n_bytes: usize| {
        let args = json!({"content": "x".repeat(n_bytes)});
        let call = parts(json!([{"functionCall": {"name": "f", "args": args}}]));
        let mut best = Duration::MAX;
        for _ in 0..2 {
            server.reply(stream([call.clone(), stop("STOP")]).pieces_of(100));
            let start = bub_testing::cpu_time();
            let (events, err) = ask(&client).await;
            best = best.min(bub_testing::cpu_time() - start);
            assert!(err.is_none(), "{err:?}");
            assert_eq!(calls_of(&events)[0].2.len(), n_bytes + r#"{"content":""}"#.len());
        }
        best
    };
    // Four times the bytes: four times the work, or sixteen times in a quadratic way.
    let (few, many) = (time(250_000).await, time(1_000_000).await);
    assert!(many < few * 10, "{few:?} for a quarter, {many:?} for all");
}
