//! Whether a line is an entry, without building it.

use std::fmt;

use bub_kernel::tape::trim_line;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// What counting needs to know of an entry.
#[derive(Debug, PartialEq)]
pub(super) struct Peek {
    pub(super) id: u64,
    pub(super) is_anchor: bool,
}

/// Says about a line what [`Entry::from_line`](bub_kernel::tape::Entry::from_line) would, but allocates
/// nothing.
pub(super) fn peek(line: &[u8]) -> Option<Peek> {
    let fields: Fields = serde_json::from_slice(trim_line(line)).ok()?;
    match fields {
        Fields { id: Shape::Id(id), kind: Shape::Text { is_anchor }, payload: Shape::Object } => {
            Some(Peek { id, is_anchor })
        }
        _ => None,
    }
}

/// The shapes of an entry's fields.
struct Fields {
    id: Shape,
    kind: Shape,
    payload: Shape,
}

/// What a value is. Reading one checks all that is in it as building it would.
#[derive(Clone, Copy)]
enum Shape {
    Id(u64),
    Text { is_anchor: bool },
    Object,
    Other,
}

/// Which field of an entry.
enum Key {
    Id,
    Kind,
    Payload,
    Other,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields { id: Shape::Other, kind: Shape::Other, payload: Shape::Other };
                while let Some(key) = map.next_key()? {
                    let shape = map.next_value()?;
                    match key {
                        Key::Id => fields.id = shape,
                        Key::Kind => fields.kind = shape,
                        Key::Payload => fields.payload = shape,
                        Key::Other => {}
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(match text {
                    "id" => Key::Id,
                    "kind" => Key::Kind,
                    "payload" => Key::Payload,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_u64<E>(self, id: u64) -> Result<Shape, E> {
                Ok(Shape::Id(id))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Other)
            }

            fn visit_str<E>(self, text: &str) -> Result<Shape, E> {
                Ok(Shape::Text { is_anchor: text == "anchor" })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
                while items.next_element::<Shape>()?.is_some() {}
                Ok(Shape::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Shape, A::Error> {
                while fields.next_entry::<Key, Shape>()?.is_some() {}
                Ok(Shape::Object)
            }
        }
        deserializer.deserialize_any(ShapeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use bub_kernel::tape::Entry;
    use proptest::prelude::*;

    use super::*;

    fn check(line: &[u8]) {
        let expected = Entry::from_line(line).map(|it| Peek { id: it.id, is_anchor: it.is_anchor(None) });
        assert_eq!(peek(line), expected, "{}", String::from_utf8_lossy(line));
    }

    #[test]
    fn odd_lines_are_judged_as_by_reading_them() {
        let deep =
            |n: usize| format!("{{\"id\":1,\"kind\":\"x\",\"payload\":{{\"a\":{}{}}}}}", "[".repeat(n), "]".repeat(n));
        for line in [
            r#"{"id": 1, "kind": "anchor", "payload": {}}"#,
            r#"{"id": 1, "kind": "\u0061nchor", "payload": {}, "x": 1e999}"#,
            r#"{"id": 1, "kind": "a", "payload": {"\ud800": 1}}"#,
            r#"{"id": 1, "kind": "a", "payload": {"x": "\ud800"}}"#,
            r#"{"id": -1, "kind": "a", "payload": {}}"#,
            r#"{"id": 1.0, "kind": "a", "payload": {}}"#,
            r#"{"id": 1, "id": "2", "kind": "a", "payload": {}}"#,
            r#"{"id": "1", "id": 2, "kind": 3, "kind": "anchor", "payload": [], "payload": {}}"#,
            r#"{"id": 99999999999999999999, "kind": "a", "payload": {}}"#,
            r#"{"id": 1, "kind": "a", "payload": {}} {"id": 2, "kind": "a", "payload": {}}"#,
            r#"[{"id": 1, "kind": "a", "payload": {}}]"#,
            "\u{feff}{\"id\": 1, \"kind\": \"a\", \"payload\": {}}\r",
            "\0\0{\"id\": 1, \"kind\": \"a\", \"payload\": {}}\0",
            "",
            "null",
            &deep(100),
            &deep(124),
            &deep(125),
            &deep(126),
            &deep(127),
            &deep(500),
        ] {
            check(line.as_bytes());
        }
        check(b"{\"id\": 1, \"kind\": \"a\", \"payload\": {\"x\": \"\xff\"}}");
    }

    proptest! {
        #[test]
        fn every_line_is_judged_as_by_reading_it(
            mut line in r#"\{"id": [0-9]{1,3}, "kind": "(anchor|event)", "payload": \{("a": ("b"|1.5|null|\[true, -2\]))?\}, "meta": \{\}\}"#
                .prop_map(String::into_bytes),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            for (at, byte) in damage {
                let at = at.index(line.len());
                line[at] = byte;
            }
            check(&line);
        }
    }
}
