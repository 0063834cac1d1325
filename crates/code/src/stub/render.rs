//! The stub as a whole: what is in it, in which order, and how long it may be.

use std::borrow::Borrow;

use bub_kernel::tool::ToolSpec;
use serde_json::{Map, Value};

use super::{
    hints::{Hints, Name, Scope},
    identifiers,
    python::{docstring, is_identifier, literal, one_line, pascal},
};

/// The most bytes of a stub: as much as the model can be shown of a file. Tools that do not fit are
/// named in it.
pub const MAX_STUB_BYTES: usize = 400_000;
/// The most names of tools that did not fit.
const MAX_NAMES_LEFT_OUT: usize = 500;

const HEADER: &str = r#""""The tools that code in this session can call, as `tools.<name>`.

Each is a coroutine function: write `await tools.name(key=value)`, with keywords only. What comes back
is data of the declared type, not text to parse. A call that fails raises `BubError`, whose text says
what went wrong. Independent calls run at the same time inside `asyncio.gather(...)`.

The module `republic` is there too, for media and for asking models; see the end of this file.
"""

from typing import Any, Literal, NotRequired, TypedDict

import republic"#;

const REPUBLIC: &str = r#"# republic: media, and models to ask from code. It is imported already.
#
# Image(media_type, data=None, url=None), and likewise Audio and Video: `data` is bytes, one of the two
#   is needed; `base64_data` and `data_url` are the content as text.
# system(*content), user(*content), assistant(*content): a Message of texts and media; `role`,
#   `content`, `text`. A plain string counts as a user message.
# get_model(spec=None): a chat model, "provider:model"; without a spec the session's own.
#   await model.chat(prompt, **options) -> response with text, reasoning, refusal, finish_reason,
#     model, token_usage, message
#   model.stream(prompt, **options): use it with `async with`, then `async for event in stream`;
#     events are republic.events.TextDelta, ReasoningDelta, RefusalDelta, UsageDelta, Completed, ...
# get_embedding_model(spec): await model.embed(text) -> .vector; await model.embed_many(texts) -> .vectors
# get_decision_model(spec): await model.decide(state, questions={"id": republic.decisions.Choice(...)})
#   -> .answers; questions are Noul, Choice and Score, each with instructions and criteria
#
# model = republic.get_model()
# answers = await asyncio.gather(*(model.chat(f"Summarise: {text}") for text in texts))
# print([answer.text for answer in answers])"#;

/// The stub for these tools, which follows from them alone.
#[must_use]
pub fn render<T: Borrow<ToolSpec>>(tools: &[T]) -> String {
    render_within(tools, MAX_STUB_BYTES)
}

/// The same with another limit, in bytes. The frame is always there; tools that do not fit into the
/// rest are named at the end.
#[must_use]
pub fn render_within<T: Borrow<ToolSpec>>(tools: &[T], limit: usize) -> String {
    let idents = identifiers(tools);
    let mut hints = Hints::new(idents.iter().cloned());
    let mut functions = Vec::new();
    let mut left_out = Vec::new();
    let mut size = HEADER.len() + REPUBLIC.len();
    for (tool, ident) in tools.iter().zip(&idents) {
        let before = hints.size();
        let function = function(tool.borrow(), ident, &mut hints);
        let needs = function.len() + (hints.size() - before) + 3;
        if size + needs > limit {
            left_out.push(ident.as_str());
        } else {
            size += needs;
            functions.push(function);
        }
    }
    let mut sections = vec![HEADER.to_owned()];
    sections.extend(hints.sources(&functions));
    sections.extend(functions.iter().map(|it| hints.named(it)));
    if !left_out.is_empty() {
        sections.push(rest(&left_out));
    }
    sections.push(REPUBLIC.to_owned());
    let mut text = sections.join("\n\n\n");
    text.push('\n');
    text
}

/// What is said of tools that did not fit.
fn rest(names: &[&str]) -> String {
    let mut text = format!(
        "# Left out for length, but there all the same: {} tools. Their arguments can be learned from the error of\n\
         # a call without any.\n",
        names.len()
    );
    for line in names.get(..MAX_NAMES_LEFT_OUT).unwrap_or(names).chunks(8) {
        text.push_str(&format!("# {}\n", line.join(", ")));
    }
    if let Some(more) = names.len().checked_sub(MAX_NAMES_LEFT_OUT).filter(|it| *it > 0) {
        text.push_str(&format!("# and {more} more\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// One tool as a function.
fn function(tool: &ToolSpec, ident: &str, hints: &mut Hints) -> String {
    let empty = Map::new();
    let schema = tool.parameters.as_object().unwrap_or(&empty);
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let family = pascal(&tool.alias());
    let signature = if properties.is_empty() {
        String::new()
    } else if properties.keys().any(|it| !is_identifier(it)) {
        "**kwargs: Any".to_owned()
    } else {
        let mut scope = Scope::default();
        scope.add(schema);
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let parameters: Vec<_> = properties
            .iter()
            .map(|(name, schema)| {
                let class = Name::new(format!("{family}{}", pascal(name)));
                let hint = hints.of(schema, &class, &mut scope);
                match schema.get("default") {
                    _ if required.contains(&name.as_str()) => format!("{name}: {hint}"),
                    Some(default) => format!("{name}: {hint} = {}", literal(default)),
                    None => format!("{name}: {hint} = ..."),
                }
            })
            .collect();
        format!("*, {}", parameters.join(", "))
    };
    let result = match &tool.output {
        Some(output) => hints.of(output, &Name::new(format!("{family}Result")), &mut Scope::default()),
        None => "Any".to_owned(),
    };
    let mut lines = vec![format!("async def {ident}({signature}) -> {result}:")];
    let doc = documentation(tool, properties);
    if doc.is_empty() {
        lines.push("    ...".to_owned());
    } else {
        lines.extend(docstring(&doc));
    }
    lines.join("\n")
}

/// What a tool does, and what its parameters are.
fn documentation(tool: &ToolSpec, properties: &Map<String, Value>) -> String {
    let mut doc = tool.description.trim().to_owned();
    let described = properties.iter().filter_map(|(name, schema)| {
        let text = one_line(schema.get("description")?.as_str()?);
        (!text.is_empty()).then(|| format!("    {}: {text}", one_line(name)))
    });
    let described: Vec<_> = described.collect();
    if !described.is_empty() {
        doc.push_str("\n\nArgs:\n");
        doc.push_str(&described.join("\n"));
    }
    doc
}
