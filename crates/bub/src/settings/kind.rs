//! The types of settings: how a value is read from text and from YAML, and what to say when it can't be.

use bub_kernel::{model::ModelSpec, text};
use serde_json::{Map, Number, Value};

/// The longest piece of a wrong value that an error repeats, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// A model: `provider:model`.
    Model,
    /// Several models.
    Models,
    /// What commands start with.
    Prefix,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number between these, both included.
    Whole(u64, u64),
    /// A number of seconds between these, the second included, the first only if it is 0.
    Seconds {
        /// Whether 0 is a value, too.
        zero: bool,
    },
    /// Yes or no.
    Switch,
    /// Several words; in text also separated by commas.
    Words,
    /// A program and its arguments, as they are; JSON in text.
    Command,
    /// A map with any values.
    Fields,
    /// A text, or a map from provider to text.
    TextOrFields,
}

/// The longest time that a setting takes, in seconds: a year.
const MAX_SECONDS: f64 = 31_536_000.0;

impl Kind {
    /// Reads a value from an environment variable or the command line.
    pub(crate) fn read_text(self, key: &str, text: &str) -> Result<Value, String> {
        match self {
            Self::Models | Self::Fields | Self::Command => self.read(key, &parse_json(key, self, text)?),
            Self::TextOrFields if text.trim_start().starts_with('{') => self.read(key, &parse_json(key, self, text)?),
            Self::Words if text.trim_start().starts_with('[') => self.read(key, &parse_json(key, self, text)?),
            _ => self.read(key, &Value::String(text.to_owned())),
        }
    }

    /// Reads a value from the configuration file. `null` is none, whatever the kind.
    pub(crate) fn read(self, key: &str, value: &Value) -> Result<Value, String> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        let wrong = || self.wrong(key, value);
        match self {
            Self::Text => value.as_str().map(Value::from).ok_or_else(wrong),
            Self::Model => model(value.as_str().ok_or_else(wrong)?),
            Self::Models => {
                let items = value.as_array().ok_or_else(wrong)?;
                items
                    .iter()
                    .map(|it| model(it.as_str().ok_or_else(wrong)?))
                    .collect::<Result<Vec<_>, _>>()
                    .map(Value::from)
            }
            Self::Prefix => match value.as_str() {
                Some(prefix) if !prefix.is_empty() && !prefix.contains(char::is_whitespace) => Ok(prefix.into()),
                _ => Err(format!("{key} must be non-empty and contain no whitespace")),
            },
            Self::Choice(words) => {
                let word = value.as_str().ok_or_else(wrong)?.trim().to_lowercase();
                words.iter().find(|it| **it == word).map(|it| Value::from(*it)).ok_or_else(wrong)
            }
            Self::Whole(min, max) => {
                whole(value).filter(|it| (min..=max).contains(it)).map(Value::from).ok_or_else(wrong)
            }
            Self::Seconds { zero } => match seconds(value) {
                Some(it) if it.as_f64().is_some_and(|it| it <= MAX_SECONDS && (it > 0.0 || (zero && it == 0.0))) => {
                    Ok(Value::Number(it))
                }
                _ => Err(wrong()),
            },
            Self::Switch => switch(value).map(Value::Bool).ok_or_else(wrong),
            Self::Words => words(value).map(Value::from).ok_or_else(wrong),
            Self::Command => match value.as_array() {
                Some(items) if items.is_empty() => Ok(Value::Null),
                Some(items) if items.iter().all(Value::is_string) => Ok(value.clone()),
                _ => Err(wrong()),
            },
            Self::Fields => value.as_object().cloned().map(Value::Object).ok_or_else(wrong),
            Self::TextOrFields => match value {
                Value::String(_) => Ok(value.clone()),
                Value::Object(fields) if fields.values().all(|it| it.is_string() || it.is_null()) => Ok(value.clone()),
                // What is there may be a credential, so that the error does not repeat it.
                _ => Err(format!("{key} must be {}; numbers need quotes", self.expected())),
            },
        }
    }

    /// What a value must be, to be read after "must be".
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Model => "provider:model".into(),
            Self::Models => "a list of provider:model".into(),
            Self::Prefix => "text without whitespace".into(),
            Self::Choice(words) => match words {
                [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                _ => words.join(", "),
            },
            Self::Whole(min, u64::MAX) => format!("a whole number from {min} on"),
            Self::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Self::Seconds { zero: true } => "a number of seconds from 0 to a year".into(),
            Self::Seconds { zero: false } => "a number of seconds greater than 0 and at most a year".into(),
            Self::Switch => "true or false".into(),
            Self::Words => "words separated by commas, or a list".into(),
            Self::Command => "a list of texts: a program and its arguments".into(),
            Self::Fields => "a map".into(),
            Self::TextOrFields => "text, or a map from provider to text".into(),
        }
    }

    fn wrong(self, key: &str, value: &Value) -> String {
        // Maps may hold credentials, so that an error tells only their type.
        let found = match value {
            Value::Object(_) => "a map".into(),
            Value::Array(items) if items.is_empty() => "an empty list".into(),
            Value::Array(_) => "a list".into(),
            scalar => {
                let shown = text::json(scalar);
                let mut cut: String = shown.chars().take(MAX_SHOWN_CHARS).collect();
                if cut.len() < shown.len() {
                    cut.push('…');
                }
                cut
            }
        };
        let hint = match (self, value) {
            (Self::Text, Value::Number(_) | Value::Bool(_)) => " without quotes",
            _ => "",
        };
        format!("{key} must be {}; found {found}{hint}", self.expected())
    }
}

/// Parses JSON; the error has an example and the position, and never the text.
fn parse_json(key: &str, kind: Kind, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|err| {
        let example = match kind {
            Kind::Models => r#"["openai:gpt-4.1"]"#,
            Kind::Words => r#"["one", "two"]"#,
            Kind::Command => r#"["docker", "exec", "-i", "box"]"#,
            Kind::TextOrFields => r#"{"openai": "…"}"#,
            _ => r#"{"name": "value"}"#,
        };
        format!("{key} must be {}, here as JSON such as {example}; found broken JSON: {err}", kind.expected())
    })
}

fn model(text: &str) -> Result<Value, String> {
    ModelSpec::parse(text).map(|_| Value::from(text.trim())).map_err(|err| err.to_string())
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| whole_float(number.as_f64()?)),
        Value::String(text) => {
            let digits = text.trim().replace('_', "");
            digits.parse().ok().or_else(|| whole_float(digits.parse().ok()?))
        }
        _ => None,
    }
}

/// A float without a fraction, up to where floats count exactly.
fn whole_float(number: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if (0.0..=EXACT).contains(&number) && number.fract() == 0.0 { format!("{number:.0}").parse().ok() } else { None }
}

fn seconds(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => Number::from_f64(text.trim().parse().ok()?),
        _ => None,
    }
}

fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(it) => Some(*it),
        Value::Number(number) => match number.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        Value::String(text) => match text.trim().to_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Words from a list of texts and numbers, or from text with commas; empty ones are left out.
fn words(value: &Value) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let parts = match value {
        Value::Array(items) => items.as_slice(),
        scalar => std::slice::from_ref(scalar),
    };
    for part in parts {
        match part {
            Value::Number(number) => all.push(number.to_string()),
            Value::String(text) => {
                all.extend(text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned));
            }
            _ => return None,
        }
    }
    Some(all)
}

/// Puts `over` on top of `under`: maps are merged at every level, other values replaced.
pub(crate) fn merge(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (Some(below), _) => *below = value.clone(),
            (None, _) => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}
