//! Google's Gemini API.

use super::speaker::*;
use crate::gemini::{config, parts};
use bub_models::{ProviderConfig, Wire};
use bub_testing::{ModelServer, Reply};
use serde_json::{Map, Value, json};

pub(super) struct Gemini;

fn error(code: u16, status: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "status": status}})
}

impl Speaker for Gemini {
    fn wire(&self) -> Wire {
        Wire::Gemini
    }

    fn config(&self, server: &ModelServer) -> ProviderConfig {
        config(server)
    }

    fn events(&self, script: &Script<'_>) -> Vec<Value> {
        let mut events = Vec::new();
        for said in &script.said {
            match *said {
                Say::Text(pieces) => events.extend(pieces.iter().map(|it| parts(json!([{"text": it}])))),
                Say::Cited(words, url, title) => {
                    let mut event = parts(json!([{"text": words}]));
                    let sources = json!([{"web": {"uri": url, "title": title}}]);
                    event["candidates"][0]["groundingMetadata"] = json!({"groundingChunks": sources});
                    events.push(event);
                }
                Say::Thinking(words, signature) => events.push(parts(json!([self.thought(words, signature)]))),
                Say::Call(id, name, pieces) => {
                    // A call comes whole.
                    let arguments = pieces.concat();
                    let mut call = json!({"id": id, "name": name});
                    if !arguments.is_empty() {
                        call["args"] = serde_json::from_str(&arguments).unwrap();
                    }
                    events.push(parts(json!([{"functionCall": call}])));
                }
                Say::Refusal(_) => panic!("this API has no such words"),
            }
        }
        let reason = match script.end {
            End::Done => "STOP",
            End::Length => "MAX_TOKENS",
            End::Filter => "SAFETY",
            End::Missing => return events,
        };
        let usage = &script.usage;
        let mut last = parts(json!([{"text": ""}]));
        last["candidates"][0]["finishReason"] = reason.into();
        last["usageMetadata"] = json!({"promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens, "cachedContentTokenCount": usage.cached_tokens});
        events.push(last);
        events
    }

    fn write(&self, events: &[Value]) -> String {
        events.iter().map(|it| format!("data: {it}\r\n\r\n")).collect()
    }

    fn number<'a>(&self, _event: &'a mut Value) -> Option<(&'a mut Map<String, Value>, &'static str)> {
        None
    }

    fn thought(&self, words: &str, signature: &str) -> Value {
        json!({"text": words, "thought": true, "thoughtSignature": signature})
    }

    fn error(&self, trouble: Trouble) -> Value {
        let status = trouble.status();
        match trouble {
            Trouble::Key => error(status, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
            Trouble::Permission => error(status, "PERMISSION_DENIED", "Your key may not use this"),
            Trouble::NoModel => error(status, "NOT_FOUND", "models/m is not found for API version v1beta"),
            Trouble::Late => error(status, "DEADLINE_EXCEEDED", "late"),
            Trouble::TooMany => error(status, "RESOURCE_EXHAUSTED", "quota: input_token_count, limit: 250000"),
            Trouble::Internal => error(status, "INTERNAL", "An internal error has occurred."),
            Trouble::Overloaded => error(status, "UNAVAILABLE", "The model is overloaded."),
            Trouble::TooLong => {
                let message = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
                error(status, "INVALID_ARGUMENT", message)
            }
        }
    }

    fn overloaded_event(&self) -> Value {
        error(503, "UNAVAILABLE", "The model is overloaded.")
    }

    fn filtered(&self) -> Reply {
        let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}});
        Reply::raw_sse([self.write(&[blocked])])
    }

    fn sent(&self, body: &Value) -> Sent {
        let config = &body["generationConfig"];
        let calling = &body["toolConfig"]["functionCallingConfig"];
        let mut sent = Sent {
            system: list(&body["systemInstruction"], "parts").iter().map(|it| text(it, "text").to_owned()).collect(),
            choice: match (text(calling, "mode"), texts(&calling["allowedFunctionNames"]).pop()) {
                ("", _) => None,
                ("ANY", Some(name)) => Some(name),
                ("ANY", None) => Some("required".to_owned()),
                (other, _) => Some(other.to_lowercase()),
            },
            effort: config.pointer("/thinkingConfig/thinkingLevel").and_then(Value::as_str).map(str::to_lowercase),
            schema: config.get("responseJsonSchema").cloned(),
            max_tokens: config["maxOutputTokens"].as_u64(),
            stop: texts(&config["stopSequences"]),
            seed: config["seed"].as_u64(),
            ..Sent::default()
        };
        for tool in list(body, "tools") {
            match tool.get("functionDeclarations") {
                Some(Value::Array(functions)) => {
                    sent.functions.extend(functions.iter().map(|it| text(it, "name").to_owned()));
                }
                _ => sent.own_tools.push(tool.clone()),
            }
        }
        for content in list(body, "contents") {
            let role = if text(content, "role") == "model" { "model" } else { "user" };
            for part in list(content, "parts") {
                self.part(role, part, &mut sent);
            }
        }
        sent
    }

    fn closing(&self) -> &'static [u8] {
        b"]}]}"
    }

    fn system_place(&self) -> &'static str {
        "the field `systemInstruction`"
    }

    fn native_tool(&self) -> Value {
        json!({"novelTool": {"depth": 2}})
    }
}

impl Gemini {
    fn part(&self, role: &str, part: &Value, sent: &mut Sent) {
        if part.get("thought").is_some() {
            sent.line("thought", part);
        } else if let Some(words) = part.get("text").and_then(Value::as_str) {
            sent.line(role, words);
        } else if let Some(blob) = part.get("inlineData") {
            let mime_type = text(blob, "mimeType");
            let kind = mime_type.split('/').next().unwrap_or_default();
            sent.line(kind, format!("{mime_type} {}", text(blob, "data")));
        } else if let Some(call) = part.get("functionCall") {
            sent.line("call", format!("{} {} {}", text(call, "id"), text(call, "name"), call["args"]));
        } else if let Some(result) = part.get("functionResponse") {
            let response = &result["response"];
            let words = response.get("output").or_else(|| response.get("error")).and_then(Value::as_str);
            sent.line("result", format!("{} {}", text(result, "id"), words.unwrap_or_default()));
            for part in list(result, "parts") {
                self.part("result", part, sent);
            }
        } else {
            sent.line("unknown", part);
        }
    }
}
