//! A `SKILL.md`: its header and its rules.

use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;
/// How deep a header may nest.
const MAX_DEPTH: usize = 16;
/// The most values of a header.
const MAX_VALUES: usize = 2_000;
/// The line around a header.
const FENCE: &str = "---";

/// What a header says.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) warnings: Vec<String>,
}

/// Splits a file into its header and the text below.
///
/// # Errors
/// What is missing.
pub(crate) fn split(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Err("it has no header: the first line must be ---".to_owned());
    }
    let start = first.len();
    let mut at = start;
    for line in lines {
        if line.trim_end() == FENCE {
            let header = text.get(start..at).unwrap_or_default();
            return Ok((header, text.get(at + line.len()..).unwrap_or_default()));
        }
        at += line.len();
    }
    Err("its header does not end: a second line --- is missing".to_owned())
}

/// Reads a header and checks its rules; `folder` is the name of the skill's folder, if that matters.
///
/// # Errors
/// All rules that are broken.
pub(crate) fn header(text: &str, folder: Option<&str>) -> Result<Header, String> {
    let mut warnings = Vec::new();
    let fields = match yaml(text) {
        Ok(fields) => fields,
        Err(problem) => {
            // Most often a description with a colon; what it means is plain all the same.
            warnings.push(format!("its header is not YAML ({problem}), so it was read line by line"));
            line_by_line(text)
        }
    };
    let mut broken = Vec::new();
    let name = match fields.get("name") {
        None | Some(Value::Null) => {
            broken.push("its header has no name".to_owned());
            ""
        }
        Some(Value::String(name)) => {
            broken.extend(name_problem(name, folder));
            name
        }
        Some(_) => {
            broken.push("its name must be text: put it in quotes".to_owned());
            ""
        }
    };
    let description = match fields.get("description") {
        Some(Value::String(it)) => it.split_whitespace().collect::<Vec<_>>().join(" "),
        None | Some(Value::Null) => String::new(),
        Some(_) => {
            broken.push("its description must be text".to_owned());
            "?".to_owned()
        }
    };
    let n_chars = description.chars().count();
    if n_chars == 0 {
        broken.push("its header has no description".to_owned());
    } else if n_chars > MAX_DESCRIPTION_CHARS {
        broken.push(format!("its description has {n_chars} characters, at most {MAX_DESCRIPTION_CHARS} are allowed"));
    }
    match fields.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(fields)) if fields.values().all(Value::is_string) => {}
        Some(_) => broken.push("its metadata must be a map from text to text".to_owned()),
    }
    if broken.is_empty() { Ok(Header { name: name.to_owned(), description, warnings }) } else { Err(broken.join("; ")) }
}

fn name_problem(name: &str, folder: Option<&str>) -> Option<String> {
    let is_plain = name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
    if name.chars().count() > MAX_NAME_CHARS {
        return Some(format!("its name is longer than {MAX_NAME_CHARS} characters"));
    }
    if name.is_empty() || !is_plain || name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Some(format!("its name '{name}' must be lower-case letters and digits, with single hyphens between"));
    }
    match folder {
        Some(folder) if folder != name => Some(format!("its name '{name}' is not that of its folder, '{folder}'")),
        _ => None,
    }
}

fn yaml(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_VALUES,
            max_events: 4 * MAX_VALUES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_VALUES },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // A skill may well be called `y`.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|err| {
        use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
        let line = err.location().map(|it| format!("line {}: ", it.line() + 1)).unwrap_or_default();
        format!("{line}{}", UserMessageFormatter.format_message(err.without_snippet()).replace('\n', " "))
    })
}

/// Reads a header whose whole is not YAML: each field for itself, and a field that is not YAML either as
/// the plain text that it is.
fn line_by_line(text: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    for (key, chunk) in chunks(text) {
        let value = match yaml(&chunk) {
            Ok(mut parsed) => parsed.remove(&key),
            Err(_) => chunk.split_once(':').map(|(_, rest)| {
                let words = rest.split_whitespace().collect::<Vec<_>>().join(" ");
                Value::String(words)
            }),
        };
        if let Some(value) = value {
            fields.insert(key, value);
        }
    }
    fields
}

/// The top-level fields: a line `key: ...` with the lines below it that are indented, empty or of a list.
fn chunks(text: &str) -> Vec<(String, String)> {
    let mut chunks: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let key = line.split_once(':').map(|(key, _)| key).filter(|key| {
            !key.is_empty() && key.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-'))
        });
        let goes_on = line.trim().is_empty() || line.starts_with([' ', '\t', '-']);
        match (key, chunks.last_mut()) {
            (Some(key), _) if !goes_on => chunks.push((key.to_owned(), line.to_owned())),
            (_, Some((_, chunk))) if goes_on => {
                chunk.push('\n');
                chunk.push_str(line);
            }
            // Comments, and what is nothing at all.
            _ => {}
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, folder: &str, expected: Result<(&str, &str), &str>) {
        let found = split(text).and_then(|(front, _)| header(front, Some(folder)));
        match (&found, expected) {
            (Ok(it), Ok((name, description))) => {
                assert_eq!((it.name.as_str(), it.description.as_str()), (name, description), "{text}");
            }
            (Err(found), Err(part)) => assert!(found.contains(part), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn headers_that_are_proper_are_read() {
        for text in [
            "---\nname: a\ndescription: Does it.\n---\nbody",
            "---\r\nname: a\r\ndescription: 'Does it.'\r\n---\r\nbody",
            "\u{feff}---\nname: \"a\"\ndescription: >\n  Does\n  it.\n---",
            "---\nlicense: MIT\nmetadata:\n  k: v\nname: a\ndescription: |\n  Does\n  it.\n---\n",
            "---\nname: a\nlicense: yes\ndescription: Does it.\n---\n",
            "---  \nname: a\ndescription: Does it.\nmetadata:\n---\n",
        ] {
            check(text, "a", Ok(("a", "Does it.")));
        }
    }

    #[test]
    fn r059_headers_that_are_not_quite_yaml_are_read_line_by_line() {
        for (text, description) in [
            (
                "---\nname: a\ndescription: Configure the harness: Hooks, MCP\n---\n",
                "Configure the harness: Hooks, MCP",
            ),
            ("---\nname: a\ndescription: good\nargument-hint: [x] - y\n---\n", "good"),
            ("---\nname: a\ndescription: Use when: a\n  or: b\n---\n", "Use when: a or: b"),
            ("---\ndescription: @start with: it\nname: a\n---\n", "@start with: it"),
            (
                "---\n# note\nname: a\ndescription: 100% \"sure\": yes\nkeywords:\n- x\n- y: [\n---\n",
                "100% \"sure\": yes",
            ),
        ] {
            check(text, "a", Ok(("a", description)));
            let (front, _) = split(text).unwrap();
            assert_eq!(header(front, None).unwrap().warnings.len(), 1, "{text}");
        }
    }

    #[test]
    fn r061_broken_rules_are_named() {
        let with = |name: &str| format!("---\nname: {name}\ndescription: d\n---\n");
        for (text, folder, reason) in [
            (with("GitHub"), "GitHub", "'GitHub' must be lower-case"),
            (with("bar"), "foo", "its name 'bar' is not that of its folder, 'foo'"),
            (with("a--b"), "a--b", "single hyphens"),
            (with("-a"), "-a", "single hyphens"),
            (with("12"), "12", "put it in quotes"),
            (with(&"x".repeat(65)), "x", "longer than 64"),
            ("---\nname: a\n---\n".into(), "a", "no description"),
            ("---\ndescription: d\n---\n".into(), "a", "no name"),
            ("---\n---\n".into(), "a", "its header has no name; its header has no description"),
            (format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(1025)), "a", "1025 characters"),
            ("---\nname: a\ndescription: [x]\n---\n".into(), "a", "description must be text"),
            ("---\nname: a\ndescription: d\nmetadata: {k: [1]}\n---\n".into(), "a", "metadata must be"),
            ("no header".into(), "a", "the first line must be ---"),
            (String::new(), "a", "the first line must be ---"),
            ("---\nname: a\n".into(), "a", "a second line --- is missing"),
        ] {
            check(&text, folder, Err(reason));
        }
    }

    #[test]
    fn the_text_is_what_follows_the_header() {
        assert_eq!(split("---\na: 1\n---\nx\n---\ny\n").unwrap(), ("a: 1\n", "x\n---\ny\n"));
        assert_eq!(split("---\na: 1\n---").unwrap(), ("a: 1\n", ""));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(---\n)?([a-z]{0,6}[:>|\\[{&*!\"' -]{0,3}.{0,10}\n){0,6}(---\n)?.{0,20}") {
            if let Ok((front, _)) = split(&text) {
                drop(header(front, Some("a")));
            }
        }
    }
}
