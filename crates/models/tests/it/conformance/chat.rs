//! Chat completions.

use super::speaker::*;
use crate::config;
use bub_models::{ProviderConfig, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::{Map, Value, json};

pub(super) struct Chat;

fn chunk(delta: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]})
}

impl Speaker for Chat {
    fn wire(&self) -> Wire {
        Wire::Chat
    }

    fn config(&self, server: &ModelServer) -> ProviderConfig {
        config(server)
    }

    fn events(&self, script: &Script<'_>) -> Vec<Value> {
        let mut events = vec![chunk(json!({"role": "assistant", "content": ""}))];
        let mut n_calls = 0;
        for said in &script.said {
            match *said {
                Say::Text(pieces) => events.extend(pieces.iter().map(|it| chunk(json!({"content": it})))),
                Say::Cited(words, url, title) => {
                    let note = json!({"type": "url_citation", "url_citation": {"url": url, "title": title,
                        "start_index": 0, "end_index": words.len()}});
                    events.extend([chunk(json!({"content": words})), chunk(json!({"annotations": [note]}))]);
                }
                Say::Thinking(words, signature) => {
                    let thought = self.thought(words, signature);
                    events.push(chunk(json!({"reasoning": words, "reasoning_details": [thought]})));
                }
                Say::Call(id, name, pieces) => {
                    let call = |fields: Value| {
                        let mut call = json!({"index": n_calls});
                        call.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                        chunk(json!({"tool_calls": [call]}))
                    };
                    let function = json!({"name": name, "arguments": ""});
                    events.push(call(json!({"id": id, "type": "function", "function": function})));
                    events.extend(pieces.iter().map(|it| call(json!({"function": {"arguments": it}}))));
                    n_calls += 1;
                }
                Say::Refusal(words) => events.push(chunk(json!({"refusal": words}))),
            }
        }
        let reason = match script.end {
            End::Done if script.has_calls() => "tool_calls",
            End::Done => "stop",
            End::Length => "length",
            End::Filter => "content_filter",
            End::Missing => return events,
        };
        let mut last = chunk(json!({}));
        last["choices"][0]["finish_reason"] = reason.into();
        let usage = &script.usage;
        let mut bill = chunk(json!({}));
        bill["choices"] = json!([]);
        bill["usage"] = json!({"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}});
        events.extend([last, bill]);
        events
    }

    fn write(&self, events: &[Value]) -> String {
        let lines: String = events.iter().map(|it| format!("data: {it}\n\n")).collect();
        let is_done = events.iter().any(|it| it.pointer("/choices/0/finish_reason").is_some_and(|it| !it.is_null()));
        if is_done { lines + "data: [DONE]\n\n" } else { lines }
    }

    fn number<'a>(&self, event: &'a mut Value) -> Option<(&'a mut Map<String, Value>, &'static str)> {
        Some((event.pointer_mut("/choices/0/delta/tool_calls/0")?.as_object_mut()?, "index"))
    }

    fn thought(&self, words: &str, signature: &str) -> Value {
        json!({"type": "reasoning.text", "text": words, "signature": signature, "format": "x-v1", "index": 0})
    }

    fn error(&self, trouble: Trouble) -> Value {
        trouble.as_openai()
    }

    fn overloaded_event(&self) -> Value {
        json!({"id": "gen-1", "choices": [], "error": {"code": 503, "message": "Provider overloaded"}})
    }

    fn filtered(&self) -> Reply {
        let error = json!({"message": "The response was filtered", "type": null, "param": "prompt",
            "code": "content_filter", "status": 400});
        Reply::status(400).body(json!({"error": error}).to_string())
    }

    fn sent(&self, body: &Value) -> Sent {
        let mut sent = Sent {
            functions: list(body, "tools").iter().map(|it| text(&it["function"], "name").to_owned()).collect(),
            own_tools: list(body, "tools").iter().filter(|it| it.get("function").is_none()).cloned().collect(),
            choice: match &body["tool_choice"] {
                Value::String(choice) => Some(choice.clone()),
                other => other.pointer("/function/name").and_then(Value::as_str).map(str::to_owned),
            },
            parallel: body["parallel_tool_calls"].as_bool(),
            effort: body["reasoning_effort"].as_str().map(str::to_owned),
            schema: body.pointer("/response_format/json_schema/schema").cloned(),
            max_tokens: body["max_tokens"].as_u64(),
            stop: texts(&body["stop"]),
            seed: body["seed"].as_u64(),
            ..Sent::default()
        };
        sent.functions.retain(|it| !it.is_empty());
        if let Some(search) = body.get("web_search_options") {
            sent.own_tools.push(json!({"web_search_options": search}));
        }
        for message in list(body, "messages") {
            let content = &message["content"];
            let role = match text(message, "role") {
                "assistant" => "model",
                other => other,
            };
            for thought in list(message, "reasoning_details") {
                sent.line("thought", thought);
            }
            match (role, content) {
                ("system", Value::String(words)) => sent.system.push(words.clone()),
                ("tool", Value::String(words)) => {
                    sent.line("result", format!("{} {words}", text(message, "tool_call_id")));
                }
                (_, Value::String(words)) => sent.line(role, words),
                (_, parts) => {
                    for part in parts.as_array().into_iter().flatten() {
                        match text(part, "type") {
                            "text" => sent.line(role, text(part, "text")),
                            "image_url" => sent.line("image", data_url(text(&part["image_url"], "url"))),
                            "input_audio" => {
                                let audio = &part["input_audio"];
                                sent.line("audio", format!("audio/{} {}", text(audio, "format"), text(audio, "data")));
                            }
                            other => sent.line("unknown", other),
                        }
                    }
                }
            }
            for call in list(message, "tool_calls") {
                let function = &call["function"];
                let words = [text(call, "id"), text(function, "name"), text(function, "arguments")];
                sent.line("call", words.join(" "));
            }
        }
        sent
    }

    fn closing(&self) -> &'static [u8] {
        b"]}"
    }

    fn system_place(&self) -> &'static str {
        "the first message, of role `system`"
    }
}
