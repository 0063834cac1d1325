//! OpenAI's responses.

use super::speaker::*;
use crate::responses::{
    added, arguments_delta, call, created, done, event, message, responses_config, sse, text_delta,
};
use bub_models::{ProviderConfig, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::{Map, Value, json};

pub(super) struct Responses;

impl Speaker for Responses {
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    fn config(&self, server: &ModelServer) -> ProviderConfig {
        responses_config(server)
    }

    fn events(&self, script: &Script<'_>) -> Vec<Value> {
        let mut events = vec![created()];
        let mut output = Vec::new();
        for (index, said) in (0..).zip(&script.said) {
            let id = format!("item_{index}");
            let (item, deltas) = match *said {
                Say::Text(pieces) => {
                    (message(&id, &pieces.concat()), pieces.iter().map(|it| text_delta(index, &id, it)).collect())
                }
                Say::Cited(words, url, title) => {
                    let note = json!({"type": "url_citation", "url": url, "title": title, "start_index": 0,
                        "end_index": words.len()});
                    let mut item = message(&id, words);
                    item["content"][0]["annotations"] = json!([note]);
                    let fields = json!({"output_index": index, "item_id": id, "content_index": 0,
                        "annotation_index": 0, "annotation": note});
                    (item, vec![text_delta(index, &id, words), event("output_text.annotation.added", fields)])
                }
                Say::Thinking(words, signature) => {
                    let fields = json!({"output_index": index, "item_id": "rs_1", "summary_index": 0, "delta": words});
                    (self.thought(words, signature), vec![event("reasoning_summary_text.delta", fields)])
                }
                Say::Call(call_id, name, pieces) => {
                    let item = call(&id, call_id, name, &pieces.concat());
                    (item, pieces.iter().map(|it| arguments_delta(index, &id, it)).collect())
                }
                Say::Refusal(words) => {
                    let mut item = message(&id, "");
                    item["content"] = json!([{"type": "refusal", "refusal": words}]);
                    let fields = json!({"output_index": index, "item_id": id, "content_index": 0, "delta": words});
                    (item, vec![event("refusal.delta", fields)])
                }
            };
            let mut open = item.clone();
            for key in ["content", "summary"] {
                if let Some(value) = open.get_mut(key) {
                    *value = json!([]);
                }
            }
            for key in ["arguments", "encrypted_content"] {
                if let Some(value) = open.get_mut(key) {
                    *value = "".into();
                }
            }
            events.push(added(index, open));
            events.extend(deltas);
            events.push(done(index, item.clone()));
            output.push(item);
        }
        let (name, reason) = match script.end {
            End::Done => ("completed", Value::Null),
            End::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
            End::Filter => ("incomplete", json!({"reason": "content_filter"})),
            End::Missing => return events,
        };
        let usage = &script.usage;
        let usage = json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}});
        let response = json!({"id": "resp_1", "object": "response", "status": name, "error": null,
            "incomplete_details": reason, "output": output, "usage": usage});
        events.push(event(name, json!({"response": response})));
        events
    }

    fn write(&self, events: &[Value]) -> String {
        sse(events.iter().cloned())
    }

    fn number<'a>(&self, event: &'a mut Value) -> Option<(&'a mut Map<String, Value>, &'static str)> {
        event.as_object_mut().filter(|it| it.contains_key("output_index")).map(|it| (it, "output_index"))
    }

    fn thought(&self, words: &str, signature: &str) -> Value {
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": words}],
            "encrypted_content": signature})
    }

    fn error(&self, trouble: Trouble) -> Value {
        trouble.as_openai()
    }

    fn overloaded_event(&self) -> Value {
        let error = json!({"code": "slow_down", "message": "Slow down"});
        event("failed", json!({"response": {"object": "response", "status": "failed", "error": error}}))
    }

    fn filtered(&self) -> Reply {
        let error = json!({"message": "The response was filtered", "type": "invalid_request_error", "param": "prompt",
            "code": "content_filter"});
        Reply::status(400).body(json!({"error": error}).to_string())
    }

    fn novelty(&self) -> Value {
        event("novelty.delta", json!({"output_index": 0, "delta": {"x": [1]}}))
    }

    fn sent(&self, body: &Value) -> Sent {
        let mut sent = Sent {
            choice: match &body["tool_choice"] {
                Value::String(choice) => Some(choice.clone()),
                other => other["name"].as_str().map(str::to_owned),
            },
            parallel: body["parallel_tool_calls"].as_bool(),
            effort: body.pointer("/reasoning/effort").and_then(Value::as_str).map(str::to_owned),
            schema: body.pointer("/text/format/schema").cloned(),
            max_tokens: body["max_output_tokens"].as_u64(),
            stop: texts(&body["stop"]),
            seed: body["seed"].as_u64(),
            ..Sent::default()
        };
        for tool in list(body, "tools") {
            match text(tool, "type") {
                "function" => sent.functions.push(text(tool, "name").to_owned()),
                _ => sent.own_tools.push(tool.clone()),
            }
        }
        for item in list(body, "input") {
            match text(item, "type") {
                "message" if text(item, "role") == "system" => sent.system.push(text(item, "content").to_owned()),
                "message" => {
                    let role = if text(item, "role") == "assistant" { "model" } else { "user" };
                    list(item, "content").iter().for_each(|it| part(role, it, &mut sent));
                }
                "reasoning" => sent.line("thought", item),
                "function_call" => {
                    sent.line("call", [text(item, "call_id"), text(item, "name"), text(item, "arguments")].join(" "));
                }
                "function_call_output" => {
                    let output = &item["output"];
                    sent.line("result", format!("{} {}", text(item, "call_id"), output.as_str().unwrap_or_default()));
                    output.as_array().into_iter().flatten().for_each(|it| part("result", it, &mut sent));
                }
                other => sent.line("unknown", other),
            }
        }
        sent
    }

    fn closing(&self) -> &'static [u8] {
        b"]}"
    }

    fn system_place(&self) -> &'static str {
        "the first item, a message of role `system`"
    }
}

fn part(role: &str, part: &Value, sent: &mut Sent) {
    match text(part, "type") {
        "input_image" => sent.line("image", data_url(text(part, "image_url"))),
        _ => sent.line(role, text(part, "text")),
    }
}
