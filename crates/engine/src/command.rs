//! Lines that a person types to call a tool: `,fs.read path=README.md limit=3`.

mod run;

use bub_kernel::{
    error::ToolError,
    similar::close_matches,
    text::elide,
    tool::{ToolSet, ToolSpec},
};
use serde_json::{Map, Value};

pub(crate) use self::run::run;

/// Checks what commands are to start with.
///
/// # Errors
/// The sentence for the person, when it is empty or has white space.
pub fn check_prefix(prefix: &str) -> Result<(), String> {
    if prefix.is_empty() || prefix.chars().any(char::is_whitespace) {
        return Err("command_prefix must be non-empty and contain no whitespace".to_owned());
    }
    Ok(())
}

/// The command line in a text, if it is a command: what follows the prefix, trimmed.
pub(crate) fn line_of<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.trim().strip_prefix(prefix).map(str::trim)
}

/// A command, understood.
#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    /// The line's first word.
    pub(crate) name: String,
    /// The runtime name of the tool to call.
    pub(crate) tool: String,
    /// Its arguments, not yet checked against its schema.
    pub(crate) args: Map<String, Value>,
    /// Names that the first word may have meant, when the line goes to the shell.
    pub(crate) meant: Vec<String>,
}

/// The tool that lines which name no tool are handed to.
const SHELL: &str = "bash";

/// Reads a command line: the first word is a tool's exact runtime name, or the line goes to the
/// shell as it stands.
///
/// # Errors
/// A sentence for the person: an empty line, quoting that does not end, words that are no arguments.
pub(crate) fn parse(line: &str, tools: &ToolSet) -> Result<Command, String> {
    let first = line.split_whitespace().next().ok_or("empty command")?;
    if let Some(tool) = tools.get(first) {
        let words = split(line)?;
        // The first word has no quotes: it equals a tool's name.
        let args = bind(tool.spec(), words.get(1..).unwrap_or_default())?;
        return Ok(Command { name: first.to_owned(), tool: first.to_owned(), args, meant: Vec::new() });
    }
    // Quotes around the name itself are rare, and lines for the shell need not be quoted our way.
    if let Ok(words) = split(line)
        && let Some(tool) = words.first().and_then(|it| tools.get(it))
    {
        let name = tool.spec().name.to_string();
        let args = bind(tool.spec(), words.get(1..).unwrap_or_default())?;
        return Ok(Command { tool: name.clone(), name, args, meant: Vec::new() });
    }
    if tools.get(SHELL).is_none() {
        let mut message = format!("{SHELL} tool is not available, and no tool is named '{first}'");
        let names: Vec<_> = tools.iter().map(|it| it.name().to_owned()).collect();
        if let Some(close) = close_matches(first, names.iter().map(String::as_str)).first() {
            message.push_str(&format!("; did you mean {close}?"));
        }
        return Err(message);
    }
    let names: Vec<_> = tools.iter().map(|it| it.name().to_owned()).collect();
    Ok(Command {
        name: first.to_owned(),
        tool: SHELL.to_owned(),
        args: Map::from_iter([("command".to_owned(), Value::String(line.to_owned()))]),
        // Names of tools are in lower case, and aliases differ by a sign.
        meant: close_matches(&first.to_lowercase(), names.iter().map(String::as_str))
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

/// Says which command was perhaps meant, after the shell did not know the word.
pub(crate) fn add_hint(error: &mut ToolError, command: &Command, prefix: &str) {
    let unknown_to_shell = error.cause().starts_with("command exited with code 127");
    if let (true, Some(meant)) = (unknown_to_shell, command.meant.first()) {
        let hint = format!("\n'{}' is not a command; did you mean {prefix}{meant}?", command.name);
        error.map_texts(|text| {
            if text.contains("command exited with code 127") {
                text.push_str(&hint);
            }
        });
    }
}

/// Splits a line into words as a POSIX shell does, without expansions and comments.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(it) = letters.next() {
        match it {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or("No closing quotation")? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or("No closing quotation")? {
                        '"' => break,
                        '\\' => match letters.next().ok_or("No closing quotation")? {
                            escaped @ ('"' | '\\') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next().ok_or("No escaped character")?),
            space if space.is_ascii_whitespace() => words.extend(word.take()),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Characters of the person's own text that an error repeats at most.
const MAX_QUOTED: usize = 200;

/// Whether a text may be meant as the name of an argument, be there one or not.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || matches!(it, '_' | '-' | '.'))
}

/// Binds the words after the name: positional ones in the order of the schema, then `key=value`.
fn bind(spec: &ToolSpec, words: &[String]) -> Result<Map<String, Value>, String> {
    let parameters: Vec<&String> =
        spec.parameters.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
    let mut positional = Vec::new();
    let mut args = Map::new();
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if is_name(key) => drop(args.insert(key.to_owned(), Value::String(value.to_owned()))),
            Some((key, _)) => {
                let name = parameters.get(positional.len()).map_or("NAME", |it| it.as_str());
                return Err(format!(
                    "'{}' is no name of an argument; a value with '=' in it needs one: {name}='{}'",
                    elide(key, MAX_QUOTED),
                    elide(word, MAX_QUOTED)
                ));
            }
            None if args.is_empty() => positional.push(word),
            None => return Err(format!("positional argument '{word}' cannot appear after keyword arguments")),
        }
    }
    if positional.len() > parameters.len() {
        return Err(format!("expected at most {} positional arguments, got {}", parameters.len(), positional.len()));
    }
    let mut twice: Vec<_> = parameters.iter().take(positional.len()).filter(|it| args.contains_key(**it)).collect();
    twice.sort();
    if let Some(name) = twice.first() {
        return Err(format!("argument '{name}' given both positionally and by keyword"));
    }
    let mut bound = Map::new();
    for (name, word) in parameters.into_iter().zip(positional) {
        bound.insert(name.clone(), Value::String(word.clone()));
    }
    bound.extend(args);
    Ok(bound)
}

#[cfg(test)]
mod tests;
