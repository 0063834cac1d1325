//! Values between JSON and the interpreter.

use std::fmt;

use monty_types::{ExcType, MontyException, MontyObject};
use num_bigint::BigInt;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use super::republic;
use crate::values::MAX_DEPTH;

/// Writes `value` as JSON. Tuples and sets become lists, keys become text as `json.dumps` makes them.
///
/// # Errors
/// The `TypeError` that the code gets.
pub(super) fn to_json(value: &MontyObject, out: &mut Vec<u8>) -> Result<(), MontyException> {
    write(value, 0, out)
}

/// Reads JSON as a value of the interpreter.
///
/// # Errors
/// A text that says what is wrong with the JSON.
pub(super) fn from_json(bytes: &[u8]) -> Result<MontyObject, String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Seed.deserialize(&mut reader).map_err(|err| err.to_string())?;
    reader.end().map_err(|err| err.to_string())?;
    Ok(value)
}

/// An exception for the code.
pub(super) fn raise(kind: ExcType, message: impl Into<String>) -> MontyException {
    MontyException::new(kind, Some(message.into()))
}

fn write(value: &MontyObject, depth: usize, out: &mut Vec<u8>) -> Result<(), MontyException> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value {
        MontyObject::None => out.extend_from_slice(b"null"),
        MontyObject::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        MontyObject::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        MontyObject::BigInt(number) => match u64::try_from(number) {
            Ok(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Err(_) => {
                return Err(raise(
                    ExcType::TypeError,
                    format!("integer {number} does not fit into 64 bits, pass it as text"),
                ));
            }
        },
        MontyObject::Float(number) if number.is_finite() => {
            text(&serde_json::Number::from_f64(*number).map(|number| number.to_string()).unwrap_or_default(), out);
        }
        MontyObject::Float(_) => {
            return Err(raise(ExcType::TypeError, format!("{} is not a JSON number", value.py_repr())));
        }
        MontyObject::String(value) => string(value, out),
        MontyObject::List(items)
        | MontyObject::Tuple(items)
        | MontyObject::Set(items)
        | MontyObject::FrozenSet(items)
        | MontyObject::NamedTuple { values: items, .. } => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, depth + 1, out)?;
            }
            out.push(b']');
        }
        MontyObject::Dict(pairs) => {
            out.push(b'{');
            for (index, (name, item)) in pairs.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                string(&key(name)?, out);
                out.push(b':');
                write(item, depth + 1, out)?;
            }
            out.push(b'}');
        }
        MontyObject::ClassInstance(instance) => match republic::encode(instance) {
            Some(fields) => write(&MontyObject::dict(fields), depth, out)?,
            None => return Err(not_json(&instance.class_type.name)),
        },
        MontyObject::Cycle(..) => return Err(raise(ExcType::TypeError, "Circular reference detected")),
        MontyObject::Repr(shown) if shown == "<deeply nested>" => return Err(too_deep()),
        MontyObject::Repr(shown) if shown.starts_with("<coroutine") => {
            return Err(raise(ExcType::TypeError, "Object of type coroutine is not JSON serializable: await it first"));
        }
        other => return Err(not_json(other.type_name())),
    }
    Ok(())
}

fn text(value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(value.as_bytes());
}

fn string(value: &str, out: &mut Vec<u8>) {
    // Writing a string into memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

fn key(name: &MontyObject) -> Result<String, MontyException> {
    Ok(match name {
        MontyObject::String(name) => name.clone(),
        MontyObject::Int(number) => number.to_string(),
        MontyObject::BigInt(number) => number.to_string(),
        MontyObject::Float(_) => name.py_repr(),
        MontyObject::Bool(true) => "true".to_owned(),
        MontyObject::Bool(false) => "false".to_owned(),
        MontyObject::None => "null".to_owned(),
        other => {
            let name = other.type_name();
            return Err(raise(ExcType::TypeError, format!("keys must be str, int, float, bool or None, not {name}")));
        }
    })
}

fn not_json(kind: &str) -> MontyException {
    raise(ExcType::TypeError, format!("Object of type {kind} is not JSON serializable"))
}

fn too_deep() -> MontyException {
    raise(ExcType::TypeError, format!("nested more than {MAX_DEPTH} levels deep"))
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = MontyObject;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<MontyObject, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = MontyObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<MontyObject, E> {
        Ok(MontyObject::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<MontyObject, E> {
        Ok(MontyObject::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<MontyObject, E> {
        Ok(MontyObject::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<MontyObject, E> {
        Ok(i64::try_from(value).map_or_else(|_| MontyObject::BigInt(BigInt::from(value)), MontyObject::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<MontyObject, E> {
        Ok(MontyObject::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<MontyObject, E> {
        Ok(MontyObject::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<MontyObject, E> {
        Ok(MontyObject::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<MontyObject, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(MontyObject::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<MontyObject, A::Error> {
        let (mut pairs, mut is_republic) = (Vec::new(), false);
        while let Some(name) = fields.next_key::<String>()? {
            is_republic |= name == republic::MARK;
            pairs.push((MontyObject::String(name), fields.next_value_seed(Self)?));
        }
        if is_republic {
            return republic::decode(pairs).map_err(A::Error::custom);
        }
        Ok(MontyObject::dict(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &MontyObject, expected: Result<&str, &str>) {
        let mut out = Vec::new();
        let written = to_json(value, &mut out).map_err(|err| err.summary());
        assert_eq!(written.as_ref().map(|()| std::str::from_utf8(&out).unwrap()).map_err(String::as_str), expected);
    }

    #[test]
    fn values_become_json() {
        use MontyObject as M;
        let text = |value: &str| M::String(value.to_owned());
        check(&M::None, Ok("null"));
        check(&M::Int(-7), Ok("-7"));
        check(&M::BigInt(BigInt::from(u64::MAX)), Ok("18446744073709551615"));
        check(
            &M::BigInt(BigInt::from(u64::MAX) + 1),
            Err("TypeError: integer 18446744073709551616 does not fit into 64 bits, pass it as text"),
        );
        check(&M::Float(1.0), Ok("1.0"));
        check(&M::Float(f64::NAN), Err("TypeError: nan is not a JSON number"));
        check(&text("é\"\n\u{1f980}"), Ok("\"é\\\"\\n\u{1f980}\""));
        check(&M::Tuple(vec![M::Int(1), M::Bool(true)]), Ok("[1,true]"));
        check(&M::Set(vec![M::Int(1)]), Ok("[1]"));
        check(&M::dict(vec![(M::Int(1), M::None), (M::Bool(true), text("x"))]), Ok(r#"{"1":null,"true":"x"}"#));
        check(&M::Bytes(vec![1]), Err("TypeError: Object of type bytes is not JSON serializable"));
        let mut deep = M::None;
        for _ in 0..1_000 {
            deep = M::List(vec![deep]);
        }
        check(&deep, Err("TypeError: nested more than 100 levels deep"));
    }

    #[test]
    fn json_comes_back_as_the_same_json() {
        for json in ["null", "[1,2.5,-3]", r#"{"a":[{"b":"ü"}],"c":18446744073709551615}"#, "\"\"", "1e300"] {
            let value = from_json(json.as_bytes()).unwrap();
            let mut out = Vec::new();
            to_json(&value, &mut out).unwrap();
            let back: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(back, serde_json::from_str::<serde_json::Value>(json).unwrap());
        }
    }
}
