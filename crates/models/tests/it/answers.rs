use super::*;
use bub_kernel::{message::TokenUsage, model::FinishReason};
use serde_json::{Value, json};

/// One line an event, for comparison.
pub(crate) fn lines(events: &[ModelEvent]) -> Vec<String> {
    events
        .iter()
        .map(|it| match it {
            ModelEvent::Text(text) => format!("text {text}"),
            ModelEvent::Reasoning(text) => format!("reasoning {text}"),
            ModelEvent::Refusal(text) => format!("refusal {text}"),
            ModelEvent::ToolCallDelta { id, name, delta } => format!("delta {id} {name} {delta}"),
            ModelEvent::ToolCall(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
            ModelEvent::Usage(usage) => format!("usage {}/{}", usage.input_tokens, usage.output_tokens),
            ModelEvent::Finish(reason) => format!("finish {reason:?}"),
            other => format!("{other:?}"),
        })
        .collect()
}

async fn check(reply: Reply, expected: &[&str]) {
    let (events, err) = play(reply).await;
    assert!(err.is_none(), "{err:?} after {events:?}");
    assert_eq!(lines(&events), expected);
}

#[tokio::test]
async fn text_arrives_piece_by_piece_with_usage_and_finish() {
    let reply = Reply::deltas([json!({"role": "assistant"}), json!({"content": "a"}), json!({"content": "b\n漢"})]);
    check(reply, &["text a", "text b\n漢", "usage 10/5", "finish Stop"]).await;
}

#[tokio::test]
async fn r173_text_comes_before_the_calls_that_follow_it() {
    let reply = Reply::calls([("c1", "fs_read", json!({"path": "a"})), ("c2", "tape_info", json!({}))])
        .after([json!({"content": "Reading…"})]);
    check(
        reply,
        &[
            "text Reading…",
            "delta c1 fs_read ",
            r#"delta c1 fs_read {"path":"a"}"#,
            "delta c2 tape_info ",
            "delta c2 tape_info {}",
            "usage 10/5",
            r#"call c1 fs_read {"path":"a"}"#,
            "call c2 tape_info {}",
            "finish ToolCalls",
        ],
    )
    .await;
}

#[tokio::test]
async fn reasoning_is_told_under_either_name_once() {
    let reply = Reply::text("x").reasoning("one ").after([json!({"reasoning": "zero "})]);
    check(reply, &["reasoning zero ", "reasoning one ", "text x", "usage 10/5", "finish Stop"]).await;
    let both = Reply::deltas([json!({"reasoning": "r", "reasoning_content": "r", "content": null})]);
    check(both, &["reasoning r", "usage 10/5", "finish Stop"]).await;
}

#[tokio::test]
async fn finish_reasons_are_the_kernels() {
    let of = |reason: &str| Reply::text("x").finish(reason).usage(Value::Null);
    check(of("length"), &["text x", "finish Length"]).await;
    check(of("content_filter"), &["text x", "finish ContentFilter"]).await;
    check(of("tool_calls"), &["text x", "finish Stop"]).await;
    for same in ["model_length", "MAX_TOKENS", "max_output_tokens"] {
        check(of(same), &["text x", "finish Length"]).await;
    }
    for same in ["sensitive", "content_filter: OTHER"] {
        check(of(same), &["text x", "finish ContentFilter"]).await;
    }
    check(of("end_turn"), &["text x", "finish Stop"]).await;
    check(of("eos_token"), &["text x", r#"finish Other("eos_token")"#]).await;
    let refused = Reply::deltas([json!({"refusal": "I "}), json!({"refusal": "can't"})]).usage(Value::Null);
    check(refused, &["refusal I ", "refusal can't", "finish Refusal"]).await;
    let stop = Reply::calls([("c", "f", json!({}))]).finish("stop").usage(Value::Null);
    check(stop, &["delta c f ", "delta c f {}", "call c f {}", "finish ToolCalls"]).await;
}

#[tokio::test]
async fn r167_cut_arguments_are_handed_on_with_the_reason() {
    let reply = Reply::calls([("c", "fs_write", json!(r#"{"path":"a.txt","content":"abc"#))]).finish("length");
    let (events, err) = play(reply).await;
    assert!(err.is_none());
    assert_eq!(calls_of(&events)[0].2, r#"{"path":"a.txt","content":"abc"#);
    assert_eq!(events.last(), Some(&ModelEvent::Finish(FinishReason::Length)));
}

#[tokio::test]
async fn usage_has_cached_and_reasoning_tokens() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 7}});
    let (events, _) = play(Reply::text("x").usage(usage)).await;
    let expected = TokenUsage {
        input_tokens: 100,
        output_tokens: 20,
        reasoning_tokens: 7,
        cached_tokens: 64,
        cache_write_tokens: 0,
    };
    assert!(events.contains(&ModelEvent::Usage(expected)), "{events:?}");
}

#[tokio::test]
async fn either_end_mark_is_enough() {
    check(Reply::text("x").no_done(), &["text x", "usage 10/5", "finish Stop"]).await;
    check(Reply::text("x").no_finish(), &["text x", "usage 10/5", "finish Stop"]).await;
    check(Reply::text("x").no_done().close(), &["text x", "usage 10/5", "finish Stop"]).await;
    check(Reply::text("x").stall(), &["text x", "usage 10/5", "finish Stop"]).await;
}

#[tokio::test]
async fn servers_that_do_not_stream_are_understood() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "hi", "tool_calls": [call]});
    let body = json!({"object": "chat.completion", "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    check(Reply::json(&body), &["text hi", "delta c f {}", "usage 1/2", "call c f {}", "finish ToolCalls"]).await;
}

#[tokio::test]
async fn unknown_fields_and_empty_events_are_ignored() {
    let pieces = [
        "event: ping\n\n: note\n\ndata:\n\nretry: 5\nid: 1\n\n".to_owned(),
        format!("data: {}\n\n", json!({"id": "x", "new": {"a": [1]}, "choices": []})),
        format!("data: {}\n\n", json!({"choices": [{"delta": {"content": "x", "audio": null}, "logprobs": {}}]})),
        format!("data: {}\n\n", json!({"choices": [{"index": 1, "delta": {"content": "other choice"}}]})),
        "data: [DONE]\n\ndata: after the end\n\n".to_owned(),
    ];
    check(Reply::raw_sse(pieces), &["text x", "finish Stop"]).await;
}

#[tokio::test]
async fn arguments_in_many_pieces_cost_linear_time() {
    let server = ModelServer::start();
    let client = client(config(&server));
    let piece = "x".repeat(1024);
    let delta = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let time = async |n_pieces: usize| {
        let mut best = Duration::MAX;
        for _ in 0..2 {
            let function = json!({"name": "f", "arguments": "{\"a\":\""});
            let mut deltas = vec![json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]})];
            deltas.extend((0..n_pieces).map(|_| delta(&piece)));
            deltas.push(delta("\"}"));
            server.reply(Reply::deltas(deltas).finish("tool_calls"));
            let start = cpu_time();
            let (events, err) = ask(&client).await;
            best = best.min(cpu_time() - start);
            assert!(err.is_none(), "{err:?}");
            assert_eq!(calls_of(&events)[0].2.len(), n_pieces * piece.len() + 8);
        }
        best
    };
    // Four times the pieces: four times the work, or sixteen times in a quadratic way.
    let (few, many) = (time(1_500).await, time(6_000).await);
    assert!(many < few * 10, "{few:?} for a quarter, {many:?} for all");
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = ModelServer::with(|_| Reply::text("x"));
    let provider = Provider::new(config(&server));
    for _ in 0..2 {
        let (events, err) = ask(&provider.client("m").unwrap()).await;
        assert!(err.is_none());
        assert_eq!(text_of(&events), "x");
    }
    assert_eq!(server.requests().iter().map(|it| it.connection).max(), Some(0));
}

#[tokio::test]
async fn what_a_call_brings_along_is_sent_back() {
    let server = ModelServer::start();
    let extra = json!({"google": {"thought_signature": "SIG=="}});
    let function = json!({"name": "f", "arguments": "{}"});
    let delta = json!({"tool_calls": [{"index": 0, "id": "c", "function": function, "extra_content": extra}]});
    server.reply(Reply::deltas([delta])).reply(Reply::text("done"));
    let client = client(config(&server));
    let (events, _) = ask(&client).await;
    let Some(ModelEvent::ToolCall(call)) = events.iter().find(|it| matches!(it, ModelEvent::ToolCall(_))) else {
        panic!("{events:?}")
    };
    let mut said = Message::text(Role::Assistant, "");
    said.tool_calls.push(call.clone());
    let result = Message::tool_result(call.clone(), &json!("ok"));
    send(&client, &request(vec![Message::text(Role::User, "x"), said, result])).await;
    assert_eq!(server.requests()[1].messages()[1]["tool_calls"][0]["extra_content"], extra);
    server.assert_no_violations();
}
