//! The configuration file: YAML, read into a tree that knows its lines.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{
    Spanned, UserMessageFormatter,
    options::{DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

use super::SettingsError;

/// The largest configuration file, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// How deep lists and maps of the file may nest.
const MAX_DEPTH: usize = 64;

/// The most values in the file, those that aliases repeat included.
const MAX_VALUES: usize = 100_000;

/// A configuration file, or the absence of one.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
    fields: Vec<(String, Node)>,
}

/// One value of the file.
#[derive(Debug)]
pub(crate) struct Node {
    content: Content,
    /// Counted from 1.
    pub(crate) line: u64,
}

#[derive(Debug)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl ConfigFile {
    /// Reads the file; that there is none is not an error.
    pub(crate) fn load(path: &Path) -> Result<Self, SettingsError> {
        let absent = Self { path: path.to_owned(), ..Self::default() };
        let bytes = match read_regular_file(path) {
            Ok(bytes) => bytes,
            Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(absent);
            }
            Err(source) => return Err(SettingsError::Unreadable { path: path.to_owned(), source }),
        };
        let text = std::str::from_utf8(&bytes).map_err(|err| {
            let at = err.valid_up_to();
            let line = bytes.iter().take(at).filter(|it| **it == b'\n').count() as u64 + 1;
            broken(path, line, 0, format!("expected UTF-8 text; byte {at} of the file is not"))
        })?;
        Ok(Self { exists: true, fields: parse(path, text)?, ..absent })
    }

    /// The value at a dotted key such as `spill.threshold`.
    ///
    /// # Errors
    /// When a part on the way is not a map.
    pub(crate) fn get(&self, key: &str) -> Result<Option<&Node>, SettingsError> {
        let mut fields = &self.fields;
        let mut parts = key.split('.').peekable();
        let mut way = String::new();
        while let Some(part) = parts.next() {
            way.push_str(part);
            let Some(node) = find(fields, part) else { return Ok(None) };
            if parts.peek().is_none() {
                return Ok(Some(node));
            }
            fields = match &node.content {
                Content::Map(inner) => inner,
                Content::Scalar(Value::Null) => return Ok(None),
                Content::Scalar(_) | Content::List(_) => {
                    let problem = format!("expected a map of settings under '{way}', found {}", node.describe());
                    return Err(broken(&self.path, node.line, 0, problem));
                }
            };
            way.push('.');
        }
        Ok(None)
    }

    /// The line of the value at these keys, or of the nearest one above that is in the file.
    pub(crate) fn line_of(&self, keys: &[&str]) -> u64 {
        let (mut fields, mut line) = (&self.fields, 0);
        for key in keys {
            let Some(node) = find(fields, key) else { break };
            line = node.line;
            let Content::Map(inner) = &node.content else { break };
            fields = inner;
        }
        line
    }

    /// The top-level keys with their values, in the file's order.
    pub(crate) fn fields(&self) -> &[(String, Node)] {
        &self.fields
    }

    /// The whole file as JSON.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        self.fields.iter().map(|(key, node)| (key.clone(), node.to_json())).collect()
    }
}

impl Node {
    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::to_json).collect(),
            Content::Map(fields) => fields.iter().map(|(key, node)| (key.clone(), node.to_json())).collect(),
        }
    }

    /// Its fields, if it is a map.
    pub(crate) fn as_map(&self) -> Option<&[(String, Self)]> {
        match &self.content {
            Content::Map(fields) => Some(fields),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    /// Its type in words.
    fn describe(&self) -> &'static str {
        match &self.content {
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
            Content::Scalar(Value::Null) => "nothing",
            Content::Scalar(Value::Bool(_)) => "true or false",
            Content::Scalar(Value::Number(_)) => "a number",
            Content::Scalar(_) => "text",
        }
    }
}

/// Reads a regular file of at most [`MAX_FILE_BYTES`]; never waits for a FIFO or a device.
pub(crate) fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "expected a file, found a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes, the limit is {MAX_FILE_BYTES}", metadata.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    std::fs::read(path)
}

fn parse(path: &Path, text: &str) -> Result<Vec<(String, Node)>, SettingsError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_VALUES,
            max_events: 4 * MAX_VALUES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_VALUES },
        // The reference's reader takes the last of equal keys without a word, so files may have them.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let root: Spanned<Node> = serde_saphyr::from_str_with_options(text, options).map_err(|err| {
        let (line, column) = err.location().map_or((0, 0), |it| (it.line(), it.column()));
        broken(path, line, column, explain(&err))
    })?;
    match root.value.content {
        Content::Map(fields) => Ok(fields),
        Content::Scalar(Value::Null) => Ok(Vec::new()),
        Content::Scalar(_) | Content::List(_) => {
            let found = root.value.describe();
            let problem = format!("expected a map of settings (lines of `key: value`), found {found}");
            Err(broken(path, root.referenced.line(), 0, problem))
        }
    }
}

/// The reader's own message in one line, without the position, which stands in front of it.
fn explain(err: &serde_saphyr::Error) -> String {
    use serde_saphyr::{Error, MessageFormatter as _};
    match err.without_snippet() {
        Error::MultipleDocuments { .. } => "expected one YAML document, found a second one".into(),
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => {
            format!("expected at most {MAX_VALUES} values that nest at most {MAX_DEPTH} deep, found more")
        }
        other => {
            let message = UserMessageFormatter.format_message(other).replace('\n', " ");
            format!("expected YAML: {message}")
        }
    }
}

fn broken(path: &Path, line: u64, column: u64, problem: String) -> SettingsError {
    SettingsError::Config { path: path.to_owned(), line, column, problem }
}

/// The value at `key`: the last one, as in the reference, should the key stand there twice.
fn find<'a>(fields: &'a [(String, Node)], key: &str) -> Option<&'a Node> {
    fields.iter().rev().find(|(name, _)| name == key).map(|(_, node)| node)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor).map(|content| Self { content, line: 0 })
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_string().into()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_string().into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Node>>()? {
            list.push(located(item));
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut fields: Vec<(String, Node)> = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            fields.push((key, located(entries.next_value::<Spanned<Node>>()?)));
        }
        Ok(Content::Map(fields))
    }
}

fn located(spanned: Spanned<Node>) -> Node {
    Node { line: spanned.referenced.line(), ..spanned.value }
}

/// The mode of a file that its group or others can read.
pub(crate) fn mode_for_others(path: &Path) -> Option<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
        (mode & 0o044 != 0).then_some(mode)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}
