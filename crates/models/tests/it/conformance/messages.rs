//! Anthropic's Messages API.

use super::speaker::*;
use crate::messages::{anthropic, block, start, stream, text as words_of, thinking, tool_use};
use bub_models::{ProviderConfig, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::{Map, Value, json};

pub(super) struct Messages;

fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}

impl Speaker for Messages {
    fn wire(&self) -> Wire {
        Wire::Messages
    }

    fn config(&self, server: &ModelServer) -> ProviderConfig {
        anthropic(server)
    }

    fn events(&self, script: &Script<'_>) -> Vec<Value> {
        let usage = &script.usage;
        let mut begin = start();
        begin["message"]["usage"] = json!({"cache_read_input_tokens": usage.cached_tokens, "output_tokens": 1,
            "input_tokens": usage.input_tokens - usage.cached_tokens, "cache_creation_input_tokens": 0});
        let mut events = vec![begin, json!({"type": "ping"})];
        for (index, said) in script.said.iter().enumerate() {
            events.extend(match *said {
                Say::Text(pieces) => words_of(index, pieces),
                Say::Cited(words, url, title) => {
                    let citation = json!({"type": "web_search_result_location", "url": url, "title": title,
                        "cited_text": words, "encrypted_index": "I"});
                    let deltas = [
                        json!({"type": "text_delta", "text": words}),
                        json!({"type": "citations_delta", "citation": citation}),
                    ];
                    block(index, json!({"type": "text", "text": "", "citations": []}), deltas)
                }
                Say::Thinking(words, signature) => thinking(index, &[words], signature),
                Say::Call(id, name, pieces) => tool_use(index, id, name, pieces),
                // It only says that it declines, and why.
                Say::Refusal(_) => Vec::new(),
            });
        }
        let reason = match script.end {
            End::Done if script.is_refused() => "refusal",
            End::Done if script.has_calls() => "tool_use",
            End::Done => "end_turn",
            End::Length => "max_tokens",
            End::Filter => panic!("this API has no such end"),
            End::Missing => return events,
        };
        let mut delta = json!({"stop_reason": reason, "stop_sequence": null});
        for said in &script.said {
            if let Say::Refusal(why) = said {
                delta["stop_details"] = json!({"type": "refusal", "explanation": why});
            }
        }
        let details = json!({"thinking_tokens": usage.reasoning_tokens});
        let usage = json!({"output_tokens": usage.output_tokens, "output_tokens_details": details});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn write(&self, events: &[Value]) -> String {
        stream(events.iter().cloned())
    }

    fn number<'a>(&self, event: &'a mut Value) -> Option<(&'a mut Map<String, Value>, &'static str)> {
        event.as_object_mut().filter(|it| it.contains_key("index")).map(|it| (it, "index"))
    }

    fn thought(&self, words: &str, signature: &str) -> Value {
        json!({"type": "thinking", "thinking": words, "signature": signature})
    }

    fn error(&self, trouble: Trouble) -> Value {
        match trouble {
            Trouble::Key => error("authentication_error", "invalid x-api-key"),
            Trouble::Permission => error("permission_error", "Your API key may not use this"),
            Trouble::NoModel => error("not_found_error", "model: m"),
            Trouble::Late => error("timeout_error", "late"),
            Trouble::TooMany => {
                error("rate_limit_error", "This request would exceed your rate limit of 80,000 input tokens per minute")
            }
            Trouble::Internal => error("api_error", "Internal server error"),
            Trouble::Overloaded => error("overloaded_error", "Overloaded"),
            Trouble::TooLong => error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        }
    }

    fn overloaded_event(&self) -> Value {
        error("overloaded_error", "Overloaded")
    }

    fn filtered(&self) -> Reply {
        let body = error("invalid_request_error", "Output blocked by content filtering policy");
        Reply::status(400).body(body.to_string())
    }

    fn novelty(&self) -> Value {
        json!({"type": "novelty", "index": 0, "delta": {"type": "novelty_delta", "x": [1]}})
    }

    fn sent(&self, body: &Value) -> Sent {
        let choice = &body["tool_choice"];
        let mut sent = Sent {
            system: body["system"].as_str().map(str::to_owned).into_iter().collect(),
            choice: match text(choice, "type") {
                "" => None,
                "any" => Some("required".to_owned()),
                "tool" => Some(text(choice, "name").to_owned()),
                other => Some(other.to_owned()),
            },
            parallel: choice["disable_parallel_tool_use"].as_bool().map(|it| !it),
            effort: body.pointer("/output_config/effort").and_then(Value::as_str).map(str::to_owned),
            schema: body.pointer("/output_config/format/schema").cloned(),
            max_tokens: body["max_tokens"].as_u64(),
            stop: texts(&body["stop_sequences"]),
            seed: body["seed"].as_u64(),
            ..Sent::default()
        };
        for tool in list(body, "tools") {
            match tool.get("input_schema") {
                Some(_) => sent.functions.push(text(tool, "name").to_owned()),
                None => sent.own_tools.push(tool.clone()),
            }
        }
        for message in list(body, "messages") {
            let role = if text(message, "role") == "assistant" { "model" } else { "user" };
            for block in list(message, "content") {
                self.block(role, block, &mut sent);
            }
        }
        sent
    }

    fn closing(&self) -> &'static [u8] {
        b"]}"
    }

    fn system_place(&self) -> &'static str {
        "the field `system`"
    }
}

impl Messages {
    fn block(&self, role: &str, block: &Value, sent: &mut Sent) {
        match text(block, "type") {
            "text" => sent.line(role, text(block, "text")),
            "thinking" => sent.line("thought", block),
            "image" => {
                let source = &block["source"];
                sent.line("image", format!("{} {}", text(source, "media_type"), text(source, "data")));
            }
            "tool_use" => {
                sent.line("call", format!("{} {} {}", text(block, "id"), text(block, "name"), block["input"]));
            }
            "tool_result" => {
                let content = &block["content"];
                sent.line("result", format!("{} {}", text(block, "tool_use_id"), content.as_str().unwrap_or_default()));
                for part in content.as_array().into_iter().flatten() {
                    self.block("result", part, sent);
                }
            }
            other => sent.line("unknown", other),
        }
    }
}
