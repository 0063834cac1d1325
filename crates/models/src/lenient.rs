//! Reading JSON that is not quite right: half characters, half surrogate pairs, keys that occur
//! twice (the last one counts), numbers that are too large, fields of another type than they should have (taken for absent).

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

/// Reads JSON; what is not quite right is mended once the plain way has failed.
///
/// # Errors
/// When it is no JSON, or none of this shape.
pub(crate) fn parse<T: DeserializeOwned>(data: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(data).or_else(|_| {
        let text = String::from_utf8_lossy(data);
        let text = mend_surrogates(&text);
        serde_json::from_value(serde_json::from_str::<Value>(&mend_numbers(&text))?)
    })
}

/// Replaces each `\uD800` … `\uDFFF` that has no partner by the replacement character.
fn mend_surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let unit = |at: usize| {
        let digits = text.get(at..at.checked_add(6)?)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|it| !it.is_empty()) {
        let Some(next) = rest.find('\\') else {
            mended.push_str(rest);
            break;
        };
        mended.push_str(rest.get(..next).unwrap_or_default());
        at += next;
        // An escape is two characters, or six, or a pair of six.
        let (kept, length) = match (unit(at), unit(at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (text.get(at..at + 12), 12),
            (Some(0xD800..=0xDFFF), _) => (Some("\\ufffd"), 6),
            _ => {
                let length = 1 + text.get(at + 1..).and_then(|it| it.chars().next()).map_or(0, char::len_utf8);
                (text.get(at..at + length), length)
            }
        };
        mended.push_str(kept.unwrap_or_default());
        at += length;
    }
    Cow::Owned(mended)
}

/// Replaces each number that is larger than any that can be read by the largest one.
fn mend_numbers(text: &str) -> Cow<'_, str> {
    let is_number = |it: char| it.is_ascii_digit() || matches!(it, '+' | '-' | '.' | 'e' | 'E');
    let mut mended = String::new();
    // What of the text is in `mended`.
    let mut n_done = 0;
    let (mut in_string, mut is_escaped, mut start) = (false, false, None);
    for (at, it) in text.char_indices() {
        if in_string {
            in_string = is_escaped || it != '"';
            is_escaped = it == '\\' && !is_escaped;
            continue;
        }
        in_string = it == '"';
        if is_number(it) {
            start.get_or_insert(at);
            continue;
        }
        let number = start.take().and_then(|start| Some((start, text.get(start..at)?.parse::<f64>().ok()?)));
        if let Some((start, number)) = number.filter(|(_, it)| it.is_infinite()) {
            mended.push_str(text.get(n_done..start).unwrap_or_default());
            mended.push_str(if number > 0.0 { "1e308" } else { "-1e308" });
            n_done = at;
        }
    }
    if n_done == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(text.get(n_done..).unwrap_or_default());
    Cow::Owned(mended)
}

/// Reads a field of several parts; one of another shape is taken for absent.
pub(crate) fn or_none<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(if value.is_null() { None } else { serde_json::from_value(value).ok() })
}

/// How a scalar field is read: what a type can't be made of is taken for absent.
macro_rules! forgiving {
    ($name:ident -> $value:ty { $($body:tt)* }) => {
        pub(crate) fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<$value, D::Error> {
            struct Forgiving;
            impl<'de> Visitor<'de> for Forgiving {
                type Value = $value;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("anything")
                }

                fn visit_unit<E>(self) -> Result<Self::Value, E> {
                    Ok(Default::default())
                }

                fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                    Ok(Default::default())
                }

                $($body)*
            }
            from.deserialize_any(Forgiving)
        }
    };
}

forgiving!(text -> Option<String> {
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
});

forgiving!(number -> Option<u64> {
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(number).ok())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // A saturating cast is what is wanted of a number that no counter can reach.
        Ok((number >= 0.0).then_some(number as u64))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.parse().ok())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
});

forgiving!(json_text -> Option<String> {
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(text))
    }

    // Some servers send the arguments as JSON instead of as JSON text.
    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        Ok(Some(Value::deserialize(MapAccessDeserializer::new(fields))?.to_string()))
    }
});

pub(crate) use forgiving;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_are_too_large_are_the_largest() {
        let check =
            |text: &str, expected: Value| assert_eq!(parse::<Value>(text.as_bytes()).unwrap(), expected, "{text}");
        check(r#"{"a":1e400,"b":[-1E+999, 2.5e1]}"#, json!({"a": 1e308, "b": [-1e308, 25.0]}));
        check(
            r#"{"a":1e400,"1e400":"1e400 \\\" 1e400 ","é":1}"#,
            json!({"a": 1e308, "1e400": "1e400 \\\" 1e400 ", "é": 1}),
        );
        for bad in ["1e400x", "[1e400", "{1e400}", "--1e400", "1e400"] {
            assert!(parse::<Vec<Value>>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
