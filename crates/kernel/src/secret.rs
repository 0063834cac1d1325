//! Keeping credentials out of what is shown, recorded or sent to a model.

use std::fmt;

use serde_json::{Map, Value};

/// What stands where a secret was.
pub const MASK: &str = "***";

/// Shorter secrets are not looked for, in characters: they would hide ordinary words.
const MIN_SECRET_CHARS: usize = 8;

/// Lines of a secret of several lines are looked for one by one from this length on, in characters.
const MIN_LINE_CHARS: usize = 16;

/// Replaces known secrets in texts, also where they are escaped for JSON or a URL.
#[derive(Clone, Default)]
pub struct SecretMask {
    /// What to look for, longest first, so that a secret inside another one leaves nothing behind.
    needles: Vec<String>,
}

impl fmt::Debug for SecretMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretMask").field("needles", &self.needles.len()).finish()
    }
}

impl SecretMask {
    /// A mask for these secrets. Surrounding blanks don't count; values under 8 characters are ignored.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut needles = Vec::new();
        for value in values {
            let value = value.as_ref().trim();
            if value.chars().count() < MIN_SECRET_CHARS {
                continue;
            }
            push_forms(value, &mut needles);
            if value.contains('\n') {
                push_forms(&value.replace("\r\n", "\n"), &mut needles);
                push_forms(&value.replace("\r\n", "\n").replace('\n', "\r\n"), &mut needles);
                value
                    .lines()
                    .map(str::trim)
                    .filter(|it| is_telling_line(it))
                    .for_each(|it| push_forms(it, &mut needles));
            }
        }
        needles.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        needles.dedup();
        Self { needles }
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// Puts [`MASK`] where `text` contains a secret; tells whether it did.
    pub fn mask(&self, text: &mut String) -> bool {
        let mut changed = false;
        for needle in &self.needles {
            if text.contains(needle.as_str()) {
                *text = text.replace(needle.as_str(), MASK);
                changed = true;
            }
        }
        changed
    }

    /// Masks every string inside `value`, the keys of objects included; tells whether one changed.
    pub fn mask_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => self.mask(text),
            Value::Array(items) => items.iter_mut().fold(false, |changed, it| changed | self.mask_value(it)),
            Value::Object(fields) => self.mask_object(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    fn mask_object(&self, fields: &mut Map<String, Value>) -> bool {
        let mut changed = fields.values_mut().fold(false, |changed, it| changed | self.mask_value(it));
        if fields.keys().any(|key| self.needles.iter().any(|it| key.contains(it.as_str()))) {
            changed = true;
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(mut key, value)| {
                    self.mask(&mut key);
                    (key, value)
                })
                .collect();
        }
        changed
    }
}

/// Whether a line of a longer secret gives something away by itself: frames such as
/// `-----BEGIN …` and lines of several words do not.
fn is_telling_line(line: &str) -> bool {
    line.chars().count() >= MIN_LINE_CHARS && !line.starts_with("---") && !line.contains(char::is_whitespace)
}

/// Adds `value` as it is and in every form that differs from it.
fn push_forms(value: &str, needles: &mut Vec<String>) {
    needles.push(value.to_owned());
    let text = Value::String(value.to_owned());
    for quoted in [crate::text::json(&text), crate::text::ascii_json(&text)] {
        let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default();
        if inner != value && !inner.is_empty() {
            needles.push(inner.to_owned());
            // Some writers escape the slash as well.
            needles.push(inner.replace('/', "\\/"));
        }
    }
    if value.contains('/') {
        needles.push(value.replace('/', "\\/"));
    }
    // What is left as it is in a query differs between writers: the strict set, and the loose one
    // that keeps what paths may contain.
    for kept in ["-._~", "-._~!$&'()*+,;=:@/", "-._*"] {
        let upper = percent_encode(value, kept, false);
        if upper != value {
            needles.push(percent_encode(value, kept, true));
            if value.contains(' ') {
                needles.push(upper.replace("%20", "+"));
            }
            needles.push(upper);
        }
    }
}

/// Percent-encodes everything but ASCII letters, digits and `kept`.
fn percent_encode(value: &str, kept: &str, lower_case: bool) -> String {
    let mut text = String::with_capacity(value.len() + 8);
    for byte in value.bytes() {
        let it = char::from(byte);
        if it.is_ascii_alphanumeric() || (it.is_ascii() && kept.contains(it)) {
            text.push(it);
        } else if lower_case {
            text.push_str(&format!("%{byte:02x}"));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(secrets: &[&str], text: &str, expected: &str) {
        let mut masked = text.to_owned();
        let changed = SecretMask::new(secrets).mask(&mut masked);
        assert_eq!(masked, expected, "{secrets:?} in {text:?}");
        assert_eq!(changed, text != expected);
    }

    #[test]
    fn mask_hides_every_form_of_a_secret() {
        check(&["sk-12345678"], "key=sk-12345678, again sk-12345678!", "key=***, again ***!");
        check(&["short"], "short is too short", "short is too short");
        check(&["  sk-12345678\n"], "sk-12345678", "***");
        check(&["abcdefgh", "abcdefgh-long"], "abcdefgh-long abcdefgh", "*** ***");
        check(&["pass\"word\\1"], r#"{"a": "pass\"word\\1"}"#, r#"{"a": "***"}"#);
        check(&["pässwörter"], r"p\u00e4ssw\u00f6rter pässwörter", "*** ***");
        check(&["abc/def+ghi="], "?k=abc%2Fdef%2Bghi%3D&l=abc%2fdef%2bghi%3d", "?k=***&l=***");
        check(&["abc/def+ghi="], r"abc\/def+ghi=", "***");
        check(&["p q r s t u"], "p+q+r+s+t+u p%20q%20r%20s%20t%20u", "*** ***");
        check(&["a:b c/d e?f"], "http://host/a:b%20c/d%20e%3Ff", "http://host/***");
    }

    #[test]
    fn mask_hides_lines_of_a_long_secret_but_not_its_frame() {
        let key =
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nAQEFAASCBKcwggSjAgEAAoI\n-----END PRIVATE KEY-----";
        check(&[key], key, "***");
        check(&[key], &key.replace('\n', "\r\n"), "***");
        check(&[key], &key.replace('\n', "\\n"), "***");
        check(
            &[key],
            "1: -----BEGIN PRIVATE KEY-----\n2: MIIEvQIBADANBgkqhkiG9w0",
            "1: -----BEGIN PRIVATE KEY-----\n2: ***",
        );
    }

    #[test]
    fn mask_reaches_into_values_and_keys() {
        let mask = SecretMask::new(["sk-12345678"]);
        let mut value = json!({"a": ["sk-12345678", 1], "sk-12345678": null, "b": {"c": "x sk-12345678"}});
        assert!(mask.mask_value(&mut value));
        assert_eq!(value, json!({"a": ["***", 1], "***": null, "b": {"c": "x ***"}}));
        assert!(!mask.mask_value(&mut value));
    }

    #[test]
    fn debug_tells_no_secret() {
        assert!(!format!("{:?}", SecretMask::new(["sk-12345678"])).contains("1234"));
    }

    proptest! {
        #[test]
        fn no_secret_survives(secret in r#"[ -~äöü\n]{8,40}"#, before in "[a-z]{0,5}", after in "[a-z]{0,5}") {
            let secret = secret.trim();
            // `***` itself, and secrets made of asterisks, are what the mask writes.
            prop_assume!(secret.chars().count() >= 8 && !secret.contains('*'));
            let mask = SecretMask::new([secret]);
            let mut plain = format!("{before}{secret}{after}");
            prop_assert!(mask.mask(&mut plain));
            prop_assert!(!plain.contains(secret));
            let mut escaped = serde_json::to_string(&json!({ "k": secret })).unwrap();
            prop_assert!(mask.mask(&mut escaped));
            prop_assert!(!escaped.contains(secret));
        }
    }
}
