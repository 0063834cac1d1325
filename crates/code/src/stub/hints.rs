//! From JSON schemas to Python's type hints and `TypedDict` classes.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::python::{is_identifier, literal, one_line, pascal, quoted};

/// Schemas inside each other beyond this depth are `Any`.
const MAX_DEPTH: usize = 48;
/// The most alternatives of a union or a `Literal`; more are `Any`.
const MAX_OPTIONS: usize = 200;
/// The most classes of one stub; what would be one more is a plain dictionary.
const MAX_CLASSES: usize = 5_000;

/// Names that stubs use themselves.
const TAKEN: &[&str] = &["Any", "Literal", "NotRequired", "TypedDict"];

/// While a stub is made, a class is written as its number between these two characters, which occur
/// in no other text of a stub; names come in at the end.
const OPEN: char = '\u{1}';
const CLOSE: char = '\u{2}';
/// Stands for a class's own name in its source until it is known whether the class stays.
const OWN: &str = "\u{1}own\u{2}";

/// What a class without a title is called.
#[derive(Clone, Debug)]
pub(super) struct Name {
    shown: String,
    /// The same without the numbers that keep names apart: classes of one family are compared.
    family: String,
}

impl Name {
    pub(super) fn new(name: impl Into<String>) -> Self {
        let shown = name.into();
        Self { family: shown.clone(), shown }
    }

    fn with(&self, more: &str) -> Self {
        Self { shown: format!("{}{more}", self.shown), family: format!("{}{more}", self.family) }
    }
}

/// A class of the stub.
#[derive(Debug)]
struct Class {
    name: String,
    /// Its text; empty while it is being made.
    source: String,
    /// The class that is the same, if one was there before.
    same_as: Option<usize>,
}

/// Local definitions of one schema, and the hints of those that were asked for.
#[derive(Debug, Default)]
pub(super) struct Scope {
    definitions: Map<String, Value>,
    known: HashMap<String, String>,
}

/// All classes of a stub.
#[derive(Debug)]
pub(super) struct Hints {
    classes: Vec<Class>,
    names: HashSet<String>,
    /// Classes by family and source, each without its own name.
    known: HashMap<(String, String), usize>,
    /// Bytes of all sources.
    size: usize,
}

impl Hints {
    /// No classes yet; none will have a name of `taken`.
    pub(super) fn new(taken: impl IntoIterator<Item = String>) -> Self {
        let names = TAKEN.iter().map(|it| (*it).to_owned()).chain(taken).collect();
        Self { classes: Vec::new(), names, known: HashMap::new(), size: 0 }
    }

    /// Bytes of the classes so far.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The type of a schema. `name` is what a class is called that has no title.
    pub(super) fn of(&mut self, schema: &Value, name: &Name, scope: &mut Scope) -> String {
        self.at(schema, name, scope, 0)
    }

    /// The texts of the classes that `roots` lead to, in the order in which they were begun.
    pub(super) fn sources(&self, roots: &[String]) -> Vec<String> {
        let mut wanted = HashSet::new();
        let mut queue: Vec<usize> = roots.iter().flat_map(|it| numbers(it)).collect();
        while let Some(id) = queue.pop() {
            let id = self.kept(id);
            if wanted.insert(id) {
                queue.extend(self.classes.get(id).into_iter().flat_map(|it| numbers(&it.source)));
            }
        }
        let texts = self.classes.iter().enumerate().filter(|(id, _)| wanted.contains(id));
        texts.map(|(_, class)| self.named(&class.source)).collect()
    }

    /// Puts names in place of the numbers of classes.
    pub(super) fn named(&self, text: &str) -> String {
        let mut named = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (number, after) = after.split_once(CLOSE).unwrap_or((after, ""));
            named.push_str(before);
            let class = number.parse().ok().and_then(|id| self.classes.get(self.kept(id)));
            named.push_str(class.map_or("Any", |it| &it.name));
            rest = after;
        }
        named.push_str(rest);
        named
    }

    fn kept(&self, id: usize) -> usize {
        self.classes.get(id).and_then(|it| it.same_as).unwrap_or(id)
    }

    fn at(&mut self, schema: &Value, name: &Name, scope: &mut Scope, depth: usize) -> String {
        let Some(fields) = schema.as_object().filter(|it| !it.is_empty() && depth < MAX_DEPTH) else {
            return "Any".to_owned();
        };
        if let Some(media) = media(fields) {
            return format!("republic.{media}");
        }
        scope.add(fields);
        if let Some(reference) = fields.get("$ref") {
            return self.reference(reference, scope, depth);
        }
        if let Some(options) = ["anyOf", "oneOf"].iter().find_map(|it| fields.get(*it)?.as_array()) {
            let hints = options.iter().take(MAX_OPTIONS + 1).map(|it| self.at(it, name, scope, depth + 1)).collect();
            return union(hints);
        }
        if let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            return self.at(only, name, scope, depth + 1);
        }
        if let Some(value) = fields.get("const") {
            return format!("Literal[{}]", literal(value));
        }
        if let Some(values) = fields.get("enum").and_then(Value::as_array).filter(|it| !it.is_empty()) {
            if values.len() > MAX_OPTIONS {
                return union(values.iter().map(kind_of).collect());
            }
            let values: Vec<_> = values.iter().map(literal).collect();
            return format!("Literal[{}]", values.join(", "));
        }
        match fields.get("type") {
            Some(Value::Array(kinds)) => {
                let one = |kind: &Value| {
                    let mut one = fields.clone();
                    one.insert("type".into(), kind.clone());
                    self.at(&Value::Object(one), name, scope, depth + 1)
                };
                union(kinds.iter().take(MAX_OPTIONS).map(one).collect())
            }
            Some(Value::String(kind)) => self.simple(kind, fields, name, scope, depth),
            // Properties say that it is an object where the type does not.
            _ if has_properties(fields) => self.simple("object", fields, name, scope, depth),
            _ => "Any".to_owned(),
        }
    }

    fn simple(
        &mut self,
        kind: &str,
        fields: &Map<String, Value>,
        name: &Name,
        scope: &mut Scope,
        depth: usize,
    ) -> String {
        let item = || name.with("Item");
        match kind {
            "array" => match fields.get("prefixItems").and_then(Value::as_array).filter(|it| !it.is_empty()) {
                Some(items) if items.len() <= MAX_OPTIONS => {
                    let hints: Vec<_> = items.iter().map(|it| self.at(it, &item(), scope, depth + 1)).collect();
                    format!("tuple[{}]", hints.join(", "))
                }
                _ => match fields.get("items") {
                    Some(items) => format!("list[{}]", self.at(items, &item(), scope, depth + 1)),
                    None => "list[Any]".to_owned(),
                },
            },
            "object" if has_properties(fields) => self.class(fields, name, scope, depth),
            "object" => match fields.get("additionalProperties") {
                Some(values @ Value::Object(_)) => {
                    format!("dict[str, {}]", self.at(values, &name.with("Value"), scope, depth + 1))
                }
                _ => "dict[str, Any]".to_owned(),
            },
            "string" => "str".to_owned(),
            "integer" => "int".to_owned(),
            "number" => "float".to_owned(),
            "boolean" => "bool".to_owned(),
            "null" => "None".to_owned(),
            _ => "Any".to_owned(),
        }
    }

    /// The type that a reference leads to. One that leads back to itself is its class, or `Any`.
    fn reference(&mut self, reference: &Value, scope: &mut Scope, depth: usize) -> String {
        let target = reference.as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        if let Some(known) = scope.known.get(target) {
            return known.clone();
        }
        let Some(schema) = scope.definitions.get(target).cloned() else { return "Any".to_owned() };
        // Until its own type is known, what it leads to sees this one.
        scope.known.insert(target.to_owned(), "Any".to_owned());
        let is_class = schema.as_object().is_some_and(|it| {
            let is_object = it.get("type").is_none_or(|kind| kind == "object");
            let is_other = ["$ref", "anyOf", "oneOf", "const", "enum"].iter().any(|key| it.contains_key(*key))
                || it.get("allOf").and_then(Value::as_array).is_some_and(|it| it.len() == 1);
            is_object && has_properties(it) && !is_other && media(it).is_none()
        });
        if is_class && self.classes.len() < MAX_CLASSES && depth + 1 < MAX_DEPTH {
            let next = self.classes.len();
            scope.known.insert(target.to_owned(), format!("{OPEN}{next}{CLOSE}"));
        }
        let hint = self.at(&schema, &Name::new(pascal(target)), scope, depth + 1);
        scope.known.insert(target.to_owned(), hint.clone());
        hint
    }

    fn class(&mut self, fields: &Map<String, Value>, name: &Name, scope: &mut Scope, depth: usize) -> String {
        if self.classes.len() >= MAX_CLASSES {
            return "dict[str, Any]".to_owned();
        }
        let title = fields.get("title").and_then(Value::as_str).filter(|it| !it.trim().is_empty());
        let name = title.map_or_else(
            || Name { shown: pascal(&name.shown), family: pascal(&name.family) },
            |it| Name::new(pascal(it)),
        );
        let id = self.classes.len();
        let own = Name { shown: self.reserve(&name.shown), family: name.family };
        self.classes.push(Class { name: own.shown.clone(), source: String::new(), same_as: None });

        let properties = fields.get("properties").and_then(Value::as_object);
        let required: HashSet<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut members = Vec::new();
        for (field, schema) in properties.into_iter().flatten() {
            let hint = self.at(schema, &own.with(&pascal(field)), scope, depth + 1);
            let hint = if required.contains(field.as_str()) { hint } else { format!("NotRequired[{hint}]") };
            members.push((field.as_str(), hint, text_of(schema, "description")));
        }
        let source = source(&members, text_of(fields, "description"));

        let token = format!("{OPEN}{id}{CLOSE}");
        let key = (own.family, source.replace(&token, OWN));
        if let Some(same) = self.known.get(&key).copied() {
            // The name is free again, unless somebody took it as the start of another.
            self.names.remove(&own.shown);
            if let Some(class) = self.classes.get_mut(id) {
                class.same_as = Some(same);
            }
            return format!("{OPEN}{same}{CLOSE}");
        }
        self.size += source.len() + own.shown.len() + 2;
        self.known.insert(key, id);
        if let Some(class) = self.classes.get_mut(id) {
            class.source = source.replace(OWN, &token);
        }
        token
    }

    /// A name for a new class: `base`, or with the next free number.
    fn reserve(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut n = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{base}{n}");
            n += 1;
        }
        name
    }
}

impl Scope {
    /// Adds the local definitions of a schema.
    pub(super) fn add(&mut self, schema: &Map<String, Value>) {
        for key in ["$defs", "definitions"] {
            for (name, definition) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
                if self.definitions.get(name) != Some(definition) {
                    self.definitions.insert(name.clone(), definition.clone());
                    self.known.remove(name);
                }
            }
        }
    }
}

/// The text of a class.
fn source(members: &[(&str, String, String)], description: String) -> String {
    if members.iter().any(|(name, ..)| !is_identifier(name)) {
        let fields: Vec<_> = members.iter().map(|(name, hint, _)| format!("{}: {hint}", quoted(name))).collect();
        return format!("{OWN} = TypedDict('{OWN}', {{{}}})", fields.join(", "));
    }
    let mut lines = vec![format!("class {OWN}(TypedDict):")];
    if !description.trim().is_empty() {
        lines.extend(super::python::docstring(&description));
        lines.push(String::new());
    }
    for (name, hint, comment) in members {
        let comment = one_line(comment);
        if !comment.is_empty() {
            lines.push(format!("    # {comment}"));
        }
        lines.push(format!("    {name}: {hint}"));
    }
    lines.join("\n")
}

fn text_of(schema: &impl Fields, key: &str) -> String {
    schema.field(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

trait Fields {
    fn field(&self, key: &str) -> Option<&Value>;
}

impl Fields for Value {
    fn field(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

impl Fields for Map<String, Value> {
    fn field(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

fn has_properties(fields: &Map<String, Value>) -> bool {
    fields.get("properties").and_then(Value::as_object).is_some_and(|it| !it.is_empty())
}

/// `Image`, `Audio` or `Video` for the schema of such an object.
fn media(fields: &Map<String, Value>) -> Option<&'static str> {
    let title = fields.get("title")?.as_str()?;
    let kind = ["Image", "Audio", "Video"].into_iter().find(|it| *it == title)?;
    let properties = fields.get("properties")?.as_object()?;
    let is_media = properties.len() == 3 && ["media_type", "data", "url"].iter().all(|it| properties.contains_key(*it));
    is_media.then_some(kind)
}

/// Alternatives, each once; with `Any` among them there is nothing else to say.
fn union(hints: Vec<String>) -> String {
    if hints.is_empty() || hints.len() > MAX_OPTIONS || hints.iter().any(|it| it == "Any") {
        let only: HashSet<&String> = hints.iter().collect();
        return if only.len() == 1 { hints.into_iter().next().unwrap_or_default() } else { "Any".to_owned() };
    }
    let mut seen = HashSet::new();
    let hints: Vec<_> = hints.iter().filter(|it| seen.insert(it.as_str())).map(String::as_str).collect();
    hints.join(" | ")
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "None",
        Value::Bool(_) => "bool",
        Value::Number(it) if it.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list[Any]",
        Value::Object(_) => "dict[str, Any]",
    }
    .to_owned()
}

/// The numbers of the classes that a text names.
fn numbers(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.split(OPEN).skip(1).filter_map(|it| it.split_once(CLOSE)?.0.parse().ok())
}
