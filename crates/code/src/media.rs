//! Media, messages and questions as they pass between code and host: objects marked with `$republic`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bub_kernel::{
    error::ToolError,
    message::{Media, MediaKind, MediaSource, Message, Part, Role},
};
use serde_json::{Map, Value, json};

/// The key that marks such an object.
const MARK: &str = "$republic";

/// Reads an image, audio or video object.
///
/// # Errors
/// `invalid_input` when it is something else, or incomplete.
pub(crate) fn decode(value: &Value) -> Result<Media, ToolError> {
    let (name, fields) = marked(value)?;
    let kind = [MediaKind::Image, MediaKind::Audio, MediaKind::Video].into_iter().find(|it| it.as_str() == name);
    let Some(kind) = kind else { return Err(unknown(name)) };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    let bad = |reason: &str| invalid(name, reason);
    let media_type = text("media_type").filter(|it| !it.is_empty()).ok_or_else(|| bad("media_type is missing"))?;
    let source = match (text("data"), text("url")) {
        (Some(data), _) => {
            STANDARD.decode(&data).map_err(|_| bad("data is not base64"))?;
            MediaSource::Data(data)
        }
        (None, Some(url)) => match split_data_url(&url) {
            Ok((_, bytes)) => MediaSource::Data(STANDARD.encode(bytes)),
            Err(_) => MediaSource::Url(url),
        },
        (None, None) => return Err(bad("it needs data or url")),
    };
    Ok(Media { kind, media_type, source })
}

/// Writes a media object.
pub(crate) fn encode(media: &Media) -> Value {
    let (data, url) = match &media.source {
        MediaSource::Data(data) => (Some(data), None),
        MediaSource::Url(url) => (None, Some(url)),
    };
    json!({MARK: media.kind.as_str(), "media_type": media.media_type, "data": data, "url": url})
}

/// Reads a message.
///
/// # Errors
/// `invalid_input` when it is none.
pub(crate) fn decode_message(value: &Value) -> Result<Message, ToolError> {
    let (name, fields) = marked(value)?;
    if name != "message" {
        return Err(unknown(name));
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => return Err(invalid(name, "role must be system, user or assistant")),
    };
    let part = |it: &Value| match it {
        Value::String(text) => Ok(Part::Text(text.clone())),
        other => decode(other).map(Part::Media),
    };
    let parts = match fields.get("content") {
        Some(Value::Array(items)) => items.iter().map(part).collect::<Result<_, _>>()?,
        Some(text @ Value::String(_)) => vec![part(text)?],
        _ => return Err(invalid(name, "content must be a list of texts and media")),
    };
    Ok(Message::parts(role, parts))
}

/// Writes a message; thinking and a provider's own data stay with the host.
pub(crate) fn encode_message(role: Role, parts: &[Part]) -> Value {
    let content: Vec<_> = parts
        .iter()
        .filter_map(|it| match it {
            Part::Text(text) => Some(Value::String(text.clone())),
            Part::Media(media) => Some(encode(media)),
            Part::Reasoning(_) | Part::ProviderData(_) => None,
        })
        .collect();
    json!({MARK: "message", "role": role.as_str(), "content": content})
}

/// Reads a question for a decision model, as the wire has it: `type`, `instructions`, `criteria`.
///
/// # Errors
/// `invalid_input` when it is none.
pub(crate) fn decode_question(value: &Value) -> Result<Value, ToolError> {
    let refused = || ToolError::invalid("decide() takes republic.decisions questions.");
    let (name, fields) = marked(value).map_err(|_| refused())?;
    if !matches!(name, "noul" | "choice" | "score") {
        return Err(refused());
    }
    let field = |key: &str| fields.get(key).cloned().unwrap_or(Value::Null);
    Ok(json!({"type": name, "instructions": field("instructions"), "criteria": field("criteria")}))
}

/// The kind and the fields of a marked object.
fn marked(value: &Value) -> Result<(&str, &Map<String, Value>), ToolError> {
    let fields = value.as_object().ok_or_else(|| ToolError::invalid("expected a republic object"))?;
    match fields.get(MARK) {
        Some(Value::String(name)) => Ok((name, fields)),
        Some(other) => Err(ToolError::invalid(format!("Unknown republic value: {other}"))),
        None => Err(ToolError::invalid("expected a republic object")),
    }
}

fn unknown(name: &str) -> ToolError {
    ToolError::invalid(format!("Unknown republic value: '{name}'"))
}

fn invalid(name: &str, reason: &str) -> ToolError {
    ToolError::invalid(format!("Invalid republic {name} value: {reason}"))
}

/// The media type that a path's ending tells.
pub(crate) fn guess_type(path: &str) -> Option<String> {
    mime_guess::from_path(path).first().map(|it| it.essence_str().to_owned())
}

/// The media type and the content of a data URL.
///
/// # Errors
/// A sentence for people.
pub(crate) fn split_data_url(url: &str) -> Result<(String, Vec<u8>), String> {
    let is_data = url.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("data:"));
    let rest = url.get(5..).filter(|_| is_data).ok_or("not a data URL")?;
    let (head, content) = rest.split_once(',').ok_or("a data URL needs a comma before its content")?;
    let mut words = head.split(';');
    let media_type = words.next().map(str::trim).filter(|it| !it.is_empty()).unwrap_or("text/plain").to_lowercase();
    let is_base64 = words.any(|it| it.trim().eq_ignore_ascii_case("base64"));
    let bytes = unescaped(content);
    if !is_base64 {
        return Ok((media_type, bytes));
    }
    let packed: Vec<u8> = bytes.into_iter().filter(|it| !it.is_ascii_whitespace()).collect();
    STANDARD.decode(packed).map(|it| (media_type, it)).map_err(|_| "the data URL is not base64".to_owned())
}

/// Takes percent signs and what follows them for the bytes that they stand for.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).and_then(|it| std::str::from_utf8(it).ok());
        match code.filter(|_| *byte == b'%').and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(it) => {
                out.push(it);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_are_read_in_every_form() {
        for (url, expected) in [
            ("data:image/png;base64,AAEC", Ok(("image/png", vec![0, 1, 2]))),
            ("DATA:Image/PNG;x=y;BASE64,AA%45C", Ok(("image/png", vec![0, 1, 2]))),
            ("data:,a%20b", Ok(("text/plain", b"a b".to_vec()))),
            ("data:audio/wav,%zz", Ok(("audio/wav", b"%zz".to_vec()))),
            ("data:image/png;base64", Err("a data URL needs a comma before its content")),
            ("data:image/png;base64,!", Err("the data URL is not base64")),
            ("http://x", Err("not a data URL")),
            ("ä", Err("not a data URL")),
        ] {
            let expected = expected.map(|(kind, bytes)| (kind.to_owned(), bytes)).map_err(str::to_owned);
            assert_eq!(split_data_url(url), expected, "{url}");
        }
    }

    #[test]
    fn marked_values_come_back_as_they_went() {
        let image = json!({MARK: "image", "media_type": "image/png", "data": "AAEC", "url": null});
        assert_eq!(encode(&decode(&image).unwrap()), image);
        let message = json!({MARK: "message", "role": "user", "content": ["look", image]});
        let read = decode_message(&message).unwrap();
        assert_eq!(encode_message(read.role, &read.parts), message);
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (value, expected) in [
            (json!({MARK: "hologram"}), "Unknown republic value: 'hologram'"),
            (json!({MARK: "image"}), "Invalid republic image value: media_type is missing"),
            (json!({MARK: "image", "media_type": "a/b"}), "Invalid republic image value: it needs data or url"),
            (
                json!({MARK: "image", "media_type": "a/b", "data": "!"}),
                "Invalid republic image value: data is not base64",
            ),
            (json!({MARK: 7}), "Unknown republic value: 7"),
            (json!([1]), "expected a republic object"),
        ] {
            assert_eq!(decode(&value).unwrap_err().message, expected);
        }
        let bad = json!({MARK: "message", "role": "tool", "content": []});
        assert!(decode_message(&bad).unwrap_err().message.starts_with("Invalid republic message value: role"));
        assert_eq!(
            decode_question(&json!({"type": "choice"})).unwrap_err().message,
            "decide() takes republic.decisions questions."
        );
    }
}
