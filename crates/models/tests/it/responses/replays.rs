//! What an answer brings along goes back as it came.

use super::*;

fn search() -> Value {
    json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "https://a"}]}})
}

/// The input items of the answer that these events make, with results for its calls. An item of which
/// nothing comes back is not there.
async fn back(edit: impl Fn(&mut ProviderConfig), events: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let (events, err) = read(events).await;
    assert!(err.is_none(), "{err:?}");
    let said = answer_of(&events);
    let mut messages = vec![said.clone()];
    messages.extend(said.tool_calls.into_iter().map(|it| Message::tool_result(it, &json!("r"))));
    let mut items = input(edit, messages).await;
    items.retain(|it| it["type"] != "function_call_output");
    items
}

/// What comes back of an item that came.
fn sent(item: &Value) -> Value {
    let mut item = item.clone();
    match item["type"].as_str().unwrap() {
        "message" => drop(item["content"][0].as_object_mut().unwrap().remove("logprobs")),
        "function_call" => drop(item.as_object_mut().unwrap().remove("status")),
        _ => (),
    }
    item
}

/// Streams items as a server does, one after the other.
fn streamed(items: &[Value]) -> Vec<Value> {
    let mut events = vec![created()];
    for (index, item) in (0..).zip(items) {
        let (mut open, id) = (item.clone(), item["id"].as_str().unwrap_or_default());
        match item["type"].as_str().unwrap() {
            "message" => {
                open["content"] = json!([]);
                let text = item["content"][0]["text"].as_str().unwrap();
                events.extend([added(index, open), text_delta(index, id, text)]);
            }
            "function_call" => {
                open["arguments"] = json!("");
                let arguments = item["arguments"].as_str().unwrap();
                events.extend([added(index, open), arguments_delta(index, id, arguments)]);
            }
            _ => events.push(added(index, open)),
        }
        events.push(done(index, item.clone()));
    }
    events.push(completed(items.into()));
    events
}

async fn assert_comes_back(items: &[Value]) {
    let expected: Vec<Value> = items.iter().map(sent).collect();
    assert_eq!(back(|_| (), streamed(items)).await, expected, "streamed");
    // Only the whole, at its end.
    assert_eq!(back(|_| (), [completed(items.into())]).await, expected, "at once");
}

#[tokio::test]
async fn items_come_back_unchanged_and_in_order() {
    let f = |n: u32| call(&format!("fc_{n}"), &format!("c{n}"), "f", "{\"n\": 1}");
    let mut with_phase = message("msg_2", "two");
    with_phase["phase"] = json!("commentary");
    assert_comes_back(&[thinking("rs_1", "A"), message("msg_1", "añ"), thinking("rs_2", "B"), f(1), f(2)]).await;
    assert_comes_back(&[
        thinking("rs_1", "A"),
        f(1),
        with_phase,
        thinking("rs_2", "B"),
        message("msg_3", "three"),
        f(2),
    ])
    .await;
    assert_comes_back(&[message("msg_1", "one"), message("msg_2", "two")]).await;
    assert_comes_back(&[thinking("rs_1", "A"), search(), thinking("rs_2", "B"), search(), message("msg_1", "found")])
        .await;
    assert_comes_back(&[f(1), message("msg_1", "after"), f(2), f(3)]).await;
    assert_comes_back(&[thinking("rs_1", "A"), thinking("rs_2", "B"), message("msg_1", "x")]).await;
}

#[tokio::test]
async fn items_that_end_after_later_ones_began_keep_their_place() {
    let items = [message("msg_1", "one"), call("fc_1", "c1", "f", "{}"), call("fc_2", "c2", "g", "{}")];
    let mut open = items[0].clone();
    open["content"] = json!([]);
    let events = [
        added(0, open),
        text_delta(0, "msg_1", "one"),
        added(1, call("fc_1", "c1", "f", "")),
        added(2, call("fc_2", "c2", "g", "")),
        done(2, items[2].clone()),
        done(0, items[0].clone()),
        done(1, items[1].clone()),
        completed(json!(items)),
    ];
    assert_eq!(back(|_| (), events).await, items.iter().map(sent).collect::<Vec<_>>());
}

#[tokio::test]
async fn pictures_that_the_provider_made_go_back_to_it() {
    let image = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"});
    let failed = json!({"type": "image_generation_call", "id": "ig_0", "status": "failed", "result": null});
    let mut other = image.clone();
    other["result"] = json!("BBBB");
    let items = [failed, image, other, message("msg_1", "there")];
    assert_comes_back(&items).await;
    // One that is no longer kept must not be taken for the other.
    let (events, _) = read(streamed(&items)).await;
    let mut said = answer_of(&events);
    let at = said.parts.iter().position(|it| matches!(it, Part::Media(_))).unwrap();
    said.parts.remove(at);
    let sent = input(|_| (), vec![said]).await;
    let kinds: Vec<_> = sent.iter().map(|it| (it["type"].as_str().unwrap(), &it["result"])).collect();
    assert_eq!(kinds, [("image_generation_call", &Value::Null), ("message", &Value::Null)]);
}

#[tokio::test]
async fn others_get_the_words_and_the_calls_alone() {
    let items = [thinking("rs_1", "A"), message("msg_1", "hi"), search(), call("fc_1", "c1", "f", "{}")];
    let text = json!([{"type": "output_text", "text": "hi", "annotations": []}]);
    let expected = [
        json!({"type": "message", "role": "assistant", "status": "completed", "content": text}),
        json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}),
    ];
    assert_eq!(back(|it| it.name = "another".into(), streamed(&items)).await, expected);
}

#[tokio::test]
async fn thinking_that_the_server_kept_to_itself_takes_the_ids_along() {
    // Of a summary alone the model has nothing, and the provider keeps no items.
    let bare = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": null,
        "summary": [{"type": "summary_text", "text": "hm"}]});
    let items = [message("msg_1", "first"), bare, message("msg_2", "hi"), call("fc_1", "c1", "f", "{}")];
    let found = back(|_| (), streamed(&items)).await;
    let ids: Vec<_> = found.iter().map(|it| (it["type"].as_str().unwrap(), it["id"].as_str())).collect();
    assert_eq!(ids, [("message", Some("msg_1")), ("message", None), ("function_call", None)]);
    // Thinking in plain words is the model's own.
    let plain = json!({"type": "reasoning", "id": "rs_1", "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}]});
    assert_comes_back(&[plain, message("msg_1", "hi")]).await;
}

#[tokio::test]
async fn thinking_that_led_to_nothing_stays_out() {
    assert_eq!(back(|_| (), streamed(&[thinking("rs_1", "A")])).await, Vec::<Value>::new());
    let items = [message("msg_1", "hi"), thinking("rs_1", "A"), thinking("rs_2", "B")];
    assert_eq!(back(|_| (), streamed(&items)).await, [sent(&items[0])]);
}

#[tokio::test]
async fn calls_that_nobody_could_answer_stay_out() {
    let shell = json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "s1", "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}}});
    let hosted = json!({"type": "shell_call", "id": "sh_1", "call_id": "s2", "action": {"commands": ["ls"]}});
    let output = json!({"type": "shell_call_output", "id": "sho_1", "call_id": "s2", "output": []});
    let items = [shell, hosted, output, message("msg_1", "hi")];
    let expected: Vec<Value> = items[1..].iter().map(sent).collect();
    assert_eq!(back(|_| (), streamed(&items)).await, expected);
}

#[tokio::test]
async fn ids_that_are_too_long_or_missing_are_left_out() {
    let long = "x".repeat(100);
    let items = [thinking(&long, "A"), message(&long, "hi"), call(&long, "c1", "f", "{}")];
    let found = back(|_| (), streamed(&items)).await;
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|it| it.get("id").is_none()), "{found:?}");
    assert_eq!(found[0]["encrypted_content"], "A");
}

#[tokio::test]
async fn openrouter_gets_an_id_for_each_item_of_an_answer() {
    let said = |text: &str| Message::text(Role::Assistant, text);
    let mut with_call = said("b");
    with_call.tool_calls.push(ToolCallRequest {
        id: "c1".into(),
        name: "f".into(),
        arguments: "{}".into(),
        metadata: serde_json::Map::new(),
    });
    let messages = vec![
        Message::text(Role::User, "u"),
        said("a"),
        with_call.clone(),
        Message::tool_result(with_call.tool_calls[0].clone(), &json!("r")),
    ];
    let items = input(|it| it.kind = ProviderKind::OpenRouter, messages).await;
    let ids: Vec<_> = items.iter().map(|it| it["id"].as_str().unwrap_or("-")).collect();
    assert_eq!(ids, ["-", "msg_1", "msg_2", "fc_3", "-"]);
}
