//! The `republic` names inside the sandbox: media, messages, questions and models as objects of the host.
//!
//! The interpreter has no class inheritance, no `async with` and no `async for`; so there are no streams here,
//! and everything else is a plain object whose calls come back to the worker.

use monty_types::{ExcType, MontyClassInstance, MontyClassType, MontyException, MontyObject, MontyType, MontyUuid};

use super::values::raise;

/// The key that marks an object of `republic` in JSON.
pub(super) const MARK: &str = "$republic";

/// Identity of the `republic` object itself.
pub(super) const REPUBLIC: MontyUuid = MontyUuid::from_u128(0xb0b_0001);
const MODULES: u128 = 0xb0b_0100;
const CLASSES: u128 = 0xb0b_1000;

/// Classes of `republic` that the code may make, with their fields in order. The wire name is the class name in lower case.
const CLASSES_MADE: [(&str, &[&str]); 7] = [
    ("Image", &["media_type", "data", "url"]),
    ("Audio", &["media_type", "data", "url"]),
    ("Video", &["media_type", "data", "url"]),
    ("Message", &["role", "content"]),
    ("Noul", &["instructions", "criteria"]),
    ("Choice", &["instructions", "criteria"]),
    ("Score", &["instructions", "criteria"]),
];
/// Classes that only results and given objects have.
const CLASSES_GIVEN: [&str; 7] = ["Response", "Usage", "Embedding", "Decision", "module", "tools", "host"];

/// A question for the host: the operation, its arguments, and how to read the result.
pub(super) struct Ask {
    pub(super) operation: &'static str,
    pub(super) arguments: MontyObject,
    pub(super) shape: Shape,
}

/// How the result of an operation is shown to the code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// As it is.
    Plain,
    Chat,
    EmbedOne,
    EmbedMany,
    Decide,
}

type Pairs = Vec<(MontyObject, MontyObject)>;

/// The `republic` object that the code sees.
pub(super) fn module() -> MontyObject {
    let classes = || {
        CLASSES_MADE.iter().map(|(name, _)| (text(name), MontyObject::Type(MontyType::Instance(Box::new(class(name))))))
    };
    let decisions = instance("module", MontyUuid::from_u128(MODULES), classes().skip(4).collect());
    let mut attrs: Pairs = classes().collect();
    attrs.push((text("decisions"), decisions));
    instance("module", REPUBLIC, attrs)
}

/// Answers a call on the object `id`, or `None` if it is not one of ours.
///
/// # Errors
/// The exception for the code.
pub(super) fn call(
    id: MontyUuid,
    name: &str,
    args: &[MontyObject],
    kwargs: &[(MontyObject, MontyObject)],
) -> Option<Result<MontyObject, MontyException>> {
    if id == REPUBLIC {
        return Some(Err(raise(ExcType::AttributeError, format!("module 'republic' has no attribute '{name}'"))));
    }
    let (class, fields) = CLASSES_MADE.iter().find(|(name, _)| class_id(name) == id)?;
    if name != "__call__" {
        return Some(Err(no_attribute(class, name)));
    }
    Some(bind(class, fields, args, kwargs).and_then(|values| build(class, values)))
}

/// The question behind a call of a model, or `None` if it is no such call.
///
/// # Errors
/// The exception for the code.
pub(super) fn ask(name: &str, args: &[MontyObject]) -> Option<Result<Ask, MontyException>> {
    let [spec, first, second] = args else { return None };
    let list = || MontyObject::List(vec![first.clone()]);
    let (operation, fields, shape) = match name {
        "chat" => {
            let messages = match messages(first) {
                Ok(messages) => messages,
                Err(error) => return Some(Err(error)),
            };
            ("republic.chat", [("messages", messages), ("options", second.clone())], Shape::Chat)
        }
        "embed" => ("republic.embed", [("texts", list()), ("dimensions", second.clone())], Shape::EmbedOne),
        "embed_many" => {
            ("republic.embed", [("texts", first.clone()), ("dimensions", second.clone())], Shape::EmbedMany)
        }
        "decide" => ("republic.decide", [("state", first.clone()), ("questions", second.clone())], Shape::Decide),
        _ => return None,
    };
    let mut pairs = vec![(text("spec"), spec.clone())];
    pairs.extend(fields.into_iter().map(|(name, value)| (text(name), value)));
    Some(Ok(Ask { operation, arguments: MontyObject::dict(pairs), shape }))
}

/// A prompt as a list of messages.
fn messages(prompt: &MontyObject) -> Result<MontyObject, MontyException> {
    match prompt {
        MontyObject::String(_) => {
            Ok(MontyObject::List(vec![build("Message", vec![text("user"), MontyObject::List(vec![prompt.clone()])])?]))
        }
        MontyObject::ClassInstance(_) => Ok(MontyObject::List(vec![prompt.clone()])),
        MontyObject::List(_) | MontyObject::Tuple(_) => Ok(prompt.clone()),
        _ => Err(raise(ExcType::TypeError, "chat() takes text or republic messages.")),
    }
}

/// The result of an operation as the code sees it.
pub(super) fn shape(shape: Shape, value: MontyObject) -> MontyObject {
    let (class, MontyObject::Dict(pairs)) = (
        match shape {
            Shape::Plain => return value,
            Shape::Chat => "Response",
            Shape::EmbedOne | Shape::EmbedMany => "Embedding",
            Shape::Decide => "Decision",
        },
        &value,
    ) else {
        return value;
    };
    let mut attrs: Pairs = Vec::new();
    for (name, item) in pairs {
        let item = match (name, item) {
            (MontyObject::String(name), MontyObject::Dict(usage)) if name == "token_usage" => {
                object("Usage", usage.iter().cloned().collect())
            }
            (MontyObject::String(name), MontyObject::Dict(answers)) if name == "answers" => {
                attrs.extend(answers.iter().cloned());
                item.clone()
            }
            (MontyObject::String(name), MontyObject::List(vectors))
                if name == "vectors" && matches!(shape, Shape::EmbedOne) =>
            {
                attrs.push((text("vector"), vectors.first().cloned().unwrap_or(MontyObject::None)));
                continue;
            }
            _ => item.clone(),
        };
        attrs.push((name.clone(), item));
    }
    object(class, attrs)
}

/// The JSON fields of an object of `republic`, or `None` for any other object.
pub(super) fn encode(instance: &MontyClassInstance) -> Option<Pairs> {
    let (class, fields) = CLASSES_MADE.iter().find(|(name, _)| class_id(name) == instance.class_type.id)?;
    let mut pairs = vec![(text(MARK), text(&class.to_lowercase()))];
    for field in *fields {
        let value = instance.attrs.iter().find(|(name, _)| *name == text(field));
        pairs.push((text(field), value.map_or(MontyObject::None, |(_, value)| value.clone())));
    }
    Some(pairs)
}

/// The object that marked JSON fields stand for.
///
/// # Errors
/// A text, if the kind is not known.
pub(super) fn decode(mut pairs: Pairs) -> Result<MontyObject, String> {
    let kind = match pairs.iter().find(|(name, _)| *name == text(MARK)) {
        Some((_, MontyObject::String(kind))) => kind.clone(),
        _ => return Ok(MontyObject::dict(pairs)),
    };
    let Some((class, _)) = CLASSES_MADE.iter().find(|(name, _)| name.to_lowercase() == kind) else {
        return Err(format!("Unknown republic value: '{kind}'"));
    };
    pairs.retain(|(name, _)| *name != text(MARK));
    Ok(object(class, with_text(class, pairs)))
}

/// A made object after its fields were checked.
fn build(class: &str, values: Vec<MontyObject>) -> Result<MontyObject, MontyException> {
    let Some((_, fields)) = CLASSES_MADE.iter().find(|(name, _)| *name == class) else {
        return Err(no_attribute("republic", class));
    };
    let mut pairs: Pairs = fields.iter().map(|field| text(field)).zip(values).collect();
    if let [(_, media_type), (_, data), (_, url)] = pairs.as_mut_slice() {
        if !matches!(media_type, MontyObject::String(_)) {
            return Err(raise(ExcType::TypeError, format!("{class}() needs media_type as text")));
        }
        if let MontyObject::Bytes(bytes) = data {
            *data = MontyObject::String(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes));
        }
        if matches!((&*data, &*url), (MontyObject::None, MontyObject::None)) {
            return Err(raise(ExcType::ValueError, format!("{class}() needs data or url")));
        }
    }
    if class == "Message"
        && let Some((_, content)) = pairs.last_mut()
        && !matches!(content, MontyObject::List(_))
    {
        *content = match std::mem::replace(content, MontyObject::None) {
            MontyObject::Tuple(items) => MontyObject::List(items),
            single => MontyObject::List(vec![single]),
        };
    }
    Ok(object(class, with_text(class, pairs)))
}

/// A message also has its text parts joined.
fn with_text(class: &str, mut pairs: Pairs) -> Pairs {
    if class == "Message" {
        let mut joined = String::new();
        for (_, value) in &pairs {
            if let MontyObject::List(parts) = value {
                joined.extend(parts.iter().filter_map(|part| match part {
                    MontyObject::String(part) => Some(part.as_str()),
                    _ => None,
                }));
            }
        }
        pairs.push((text("text"), MontyObject::String(joined)));
    }
    pairs
}

/// Values of `fields` from positional and keyword arguments; a missing one is `None`.
fn bind(
    what: &str,
    fields: &[&str],
    args: &[MontyObject],
    kwargs: &[(MontyObject, MontyObject)],
) -> Result<Vec<MontyObject>, MontyException> {
    if args.len() > fields.len() {
        return Err(raise(ExcType::TypeError, format!("{what}() takes at most {} arguments", fields.len())));
    }
    let mut values: Vec<Option<MontyObject>> = args.iter().cloned().map(Some).collect();
    values.resize(fields.len(), None);
    for (name, value) in kwargs {
        let slot = fields.iter().zip(&mut values).find(|(field, _)| *name == text(field));
        match slot {
            Some((_, slot @ None)) => *slot = Some(value.clone()),
            Some((field, Some(_))) => {
                return Err(raise(ExcType::TypeError, format!("{what}() got multiple values for argument '{field}'")));
            }
            None => {
                return Err(raise(ExcType::TypeError, format!("{what}() got an unexpected keyword argument '{name}'")));
            }
        }
    }
    Ok(values.into_iter().map(|value| value.unwrap_or(MontyObject::None)).collect())
}

fn no_attribute(class: &str, name: &str) -> MontyException {
    raise(ExcType::AttributeError, format!("'{class}' object has no attribute '{name}'"))
}

fn class_id(name: &str) -> MontyUuid {
    let names = CLASSES_MADE.iter().map(|(name, _)| *name).chain(CLASSES_GIVEN);
    let index = names.into_iter().position(|known| known == name).unwrap_or(CLASSES_MADE.len() + CLASSES_GIVEN.len());
    MontyUuid::from_u128(CLASSES + index as u128)
}

fn class(name: &str) -> MontyClassType {
    MontyClassType {
        name: name.to_owned(),
        id: class_id(name),
        host_defined: true,
        is_dataclass: false,
        attrs: Vec::new().into(),
    }
}

/// An object whose calls nobody answers: a value.
fn object(class: &str, attrs: Pairs) -> MontyObject {
    instance(class, MontyUuid::from_u128(0), attrs)
}

/// An object of the host.
pub(super) fn instance(class_name: &str, id: MontyUuid, attrs: Pairs) -> MontyObject {
    MontyObject::ClassInstance(Box::new(MontyClassInstance {
        class_type: class(class_name),
        instance_id: id,
        attrs: attrs.into(),
    }))
}

fn text(value: &str) -> MontyObject {
    MontyObject::String(value.to_owned())
}
