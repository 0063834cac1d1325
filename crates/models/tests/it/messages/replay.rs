//! What an answer holds goes back as it came, in its order.

use super::*;
use bub_kernel::message::ToolCallRequest;
use serde_json::Map;

/// The blocks in which Anthropic answers, for its own eyes only.
fn thought(words: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": words, "signature": signature})
}

/// Plays an answer of these blocks, and then sends it back with `more` after it.
async fn sent_back(blocks: Vec<Vec<Value>>, reason: &str, more: Vec<Message>) -> Value {
    let server = ModelServer::start();
    server.reply(message(blocks, reason)).reply(message([text(0, &["x"])], "end_turn"));
    let client = client(anthropic(&server));
    let (events, err) = ask(&client).await;
    assert!(err.is_none(), "{err:?}");
    let said = answer_of(&events);
    let results: Vec<_> = said.tool_calls.iter().map(|it| Message::tool_result(it.clone(), &json!("ok"))).collect();
    let mut messages = vec![Message::text(Role::User, "hello"), said];
    messages.extend(results);
    messages.extend(more);
    let (_, err) = send(&client, &request(messages)).await;
    assert!(err.is_none(), "{err:?}");
    server.assert_no_violations();
    server.requests()[1].body["messages"][1].clone()
}

#[tokio::test]
async fn r185_blocks_go_back_in_their_order_with_their_signatures() {
    let blocks = vec![
        thinking(0, &["first, ", "ünd"], "S1=="),
        block(1, json!({"type": "redacted_thinking", "data": "RED=="}), []),
        text(2, &["Let me ", "see é."]),
        thinking(3, &["then"], "S2=="),
        tool_use(4, "toolu_1", "fs_read", &["{\"path\": \"a\"}"]),
        thinking(5, &[], "S3=="),
        text(6, &["and"]),
        tool_use(7, "toolu_2", "fs_read", &["{\"path\": \"b\"}"]),
    ];
    let expected = json!([
        thought("first, ünd", "S1=="),
        {"type": "redacted_thinking", "data": "RED=="},
        {"type": "text", "text": "Let me see é."},
        thought("then", "S2=="),
        {"type": "tool_use", "id": "toolu_1", "name": "fs_read", "input": {"path": "a"}},
        thought("", "S3=="),
        {"type": "text", "text": "and"},
        {"type": "tool_use", "id": "toolu_2", "name": "fs_read", "input": {"path": "b"}},
    ]);
    let sent = sent_back(blocks, "tool_use", vec![]).await;
    assert_eq!(sent["content"].to_string(), expected.to_string());
}

#[tokio::test]
async fn texts_between_calls_and_what_they_cite_keep_their_places() {
    let cited = json!({"type": "web_search_result_location", "url": "https://x", "title": null, "cited_text": "c", "encrypted_index": "I"});
    let citing = [json!({"type": "text_delta", "text": "Rust"}), json!({"type": "citations_delta", "citation": cited})];
    let blocks = vec![
        text(0, &["I read: "]),
        block(1, json!({"type": "text", "text": ""}), citing),
        text(2, &["."]),
        tool_use(3, "a", "f", &[]),
        text(4, &["and now"]),
        tool_use(5, "b", "f", &[]),
    ];
    let expected = json!([
        {"type": "text", "text": "I read: "},
        {"type": "text", "text": "Rust", "citations": [cited]},
        {"type": "text", "text": "."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "text", "text": "and now"},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]);
    assert_eq!(sent_back(blocks, "tool_use", vec![]).await["content"], expected);
}

fn search(index: usize, id: &str) -> Vec<Value> {
    let block = json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
    super::block(index, block, [json!({"type": "input_json_delta", "partial_json": "{\"query\":\"x\"}"})])
}

fn found(index: usize, id: &str) -> Vec<Value> {
    let page = json!({"type": "web_search_result", "url": "https://x", "encrypted_content": "E=="});
    block(index, json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [page]}), [])
}

#[tokio::test]
async fn a_paused_answer_goes_back_as_it_is() {
    let blocks = vec![text(0, &["Searching. "]), search(1, "s1"), found(2, "s1"), search(3, "s2")];
    let sent = sent_back(blocks.clone(), "pause_turn", vec![]).await;
    let types = |sent: &Value| -> Vec<String> {
        sent["content"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(types(&sent), ["text", "server_tool_use", "web_search_tool_result", "server_tool_use"]);
    assert_eq!(
        (&sent["content"][0]["text"], &sent["content"][3]["input"]),
        (&json!("Searching. "), &json!({"query": "x"}))
    );
    // What comes after the pause is part of the same message.
    let mut rest = Message::text(Role::Assistant, "Found.");
    let item = json!({"type": "web_search_tool_result", "tool_use_id": "s2", "content": []});
    let payload = json!({"provider": "anthropic", "after_chars": 0, "after_calls": 0, "item": item});
    rest.parts
        .insert(0, Part::ProviderData(bub_kernel::message::ProviderData { api_format: "messages".into(), payload }));
    let more = vec![rest, Message::text(Role::User, "thanks")];
    let sent = sent_back(blocks.clone(), "pause_turn", more).await;
    assert_eq!(types(&sent)[3..], ["server_tool_use", "web_search_tool_result", "text"]);
    // A search that was given up has no result, and is not sent back.
    let sent = sent_back(blocks, "pause_turn", vec![Message::text(Role::User, "stop")]).await;
    assert_eq!(types(&sent), ["text", "server_tool_use", "web_search_tool_result"]);
}

#[tokio::test]
async fn a_pending_search_waits_beside_calls() {
    let blocks = vec![search(0, "s1"), tool_use(1, "c", "f", &[])];
    let sent = sent_back(blocks, "tool_use", vec![]).await;
    assert_eq!(sent["content"][0]["type"], "server_tool_use");
}

#[tokio::test]
async fn thinking_that_nothing_follows_is_left_out() {
    let blocks = vec![text(0, &["x"]), thinking(1, &["cut"], "S")];
    let sent = sent_back(blocks, "max_tokens", vec![Message::text(Role::User, "go on")]).await;
    assert_eq!(sent["content"], json!([{"type": "text", "text": "x"}]));
    let only = vec![thinking(0, &["cut"], "S")];
    let sent = sent_back(only, "max_tokens", vec![Message::text(Role::User, "go on")]).await;
    assert_eq!(sent, Value::Null, "the person's messages are one");
}

#[tokio::test]
async fn others_get_the_words_and_anthropic_its_blocks() {
    let server = ModelServer::start();
    server.reply(message([thinking(0, &["t"], "S"), text(1, &["a"]), tool_use(2, "c", "f", &[])], "tool_use"));
    let (events, _) = ask(&client(anthropic(&server))).await;
    let said = answer_of(&events);
    let result = Message::tool_result(said.tool_calls[0].clone(), &json!("ok"));
    let history = request(vec![Message::text(Role::User, "hello"), said, result]);
    for kind in [ProviderKind::MiniMax, ProviderKind::Anthropic] {
        server.reply(message([text(0, &["x"])], "end_turn"));
        let config = ProviderConfig { kind, api_format: Some(bub_models::Wire::Messages), ..anthropic(&server) };
        let name = if kind == ProviderKind::MiniMax { "minimax" } else { "anthropic" };
        send(&client(ProviderConfig { name: name.into(), ..config }), &history).await;
        let sent = server.requests().pop().unwrap().body["messages"][1]["content"].clone();
        let has_thinking = sent[0] == thought("t", "S");
        assert_eq!(
            (has_thinking, sent.as_array().unwrap().len()),
            if name == "minimax" { (false, 2) } else { (true, 3) }
        );
    }
    server.assert_no_violations();
}

#[tokio::test]
async fn unsigned_thinking_goes_back_to_those_who_do_not_sign() {
    let server = ModelServer::with(|_| message([thinking(0, &["t"], ""), text(1, &["a"])], "end_turn"));
    for (kind, expected) in [(ProviderKind::MiniMax, 2), (ProviderKind::Anthropic, 1)] {
        let client = client(ProviderConfig { kind, api_format: Some(bub_models::Wire::Messages), ..config(&server) });
        let (events, _) = ask(&client).await;
        send(
            &client,
            &request(vec![Message::text(Role::User, "a"), answer_of(&events), Message::text(Role::User, "b")]),
        )
        .await;
        let sent = server.requests().pop().unwrap().body["messages"][1]["content"].clone();
        assert_eq!(sent.as_array().unwrap().len(), expected, "{kind}");
    }
}

#[tokio::test]
async fn who_calls_is_said_again_when_it_is_not_the_model() {
    let caller = json!({"type": "code_execution_20260521", "tool_id": "srvtoolu_1"});
    let own = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": caller});
    let direct = json!({"type": "tool_use", "id": "b", "name": "f", "input": {}, "caller": {"type": "direct"}});
    let sent = sent_back(vec![block(0, own, []), block(1, direct, [])], "tool_use", vec![]).await;
    assert_eq!((&sent["content"][0]["caller"], sent["content"][1].get("caller")), (&caller, None));
}

#[tokio::test]
async fn items_of_the_references_tapes_are_sent() {
    let payload = thought("old", "S0");
    let part = Part::ProviderData(bub_kernel::message::ProviderData { api_format: "messages".into(), payload });
    let mut said = Message::parts(Role::Assistant, vec![part, Part::Text("a".into())]);
    let call = ToolCallRequest { id: "c".into(), name: "f".into(), arguments: "{}".into(), metadata: Map::new() };
    said.tool_calls.push(call.clone());
    let server = ModelServer::with(|_| message([text(0, &["x"])], "end_turn"));
    let history = vec![Message::text(Role::User, "q"), said, Message::tool_result(call, &json!("ok"))];
    send(&client(anthropic(&server)), &request(history)).await;
    assert_eq!(server.requests()[0].body["messages"][1]["content"][0], thought("old", "S0"));
    server.assert_no_violations();
}
