//! What the scripted model answers.
//!
//! There is no state: each reply follows from its request alone. The prompt carries the script, as in
//! `bench:n=10,tool=shell` (ten tool calls, then a text) or `bench:n=0,deltas=20000`. The *step* is the
//! number of tool results after the last user message with a script; while it is below `n`, the reply
//! is one round of tool calls. A request that offers no tools (a title, a summary) gets one word.

use serde_json::{Map, Value, json};

/// Names under which agents offer a shell, best first.
const SHELL_NAMES: &[&str] =
    &["bash", "shell", "exec_command", "shell_command", "run_shell_command", "execute_command", "run_command", "exec"];
/// Names under which agents offer reading a file, best first.
const READ_NAMES: &[&str] = &["fs_read", "read", "fs.read", "read_file", "view", "cat"];
/// The most text deltas, tool calls and steps that a script may ask for.
const MAX_COUNT: usize = 1_000_000;

/// The script of one turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Script {
    /// Rounds of tool calls before the text.
    pub n: usize,
    /// Text deltas of the final text.
    pub deltas: usize,
    /// `shell`, `read`, or the name of an offered tool.
    pub tool: String,
    /// The file that a read tool is given.
    pub path: String,
    /// Tool calls in one reply.
    pub par: usize,
}

impl Default for Script {
    fn default() -> Self {
        Self { n: 1, deltas: 8, tool: "shell".into(), path: "README.md".into(), par: 1 }
    }
}

impl Script {
    /// The script in a prompt; what it does not say keeps its default.
    #[must_use]
    pub fn in_prompt(prompt: &str) -> Option<Self> {
        let (_, rest) = prompt.split_once("bench:")?;
        let is_inside = |it: char| it.is_ascii_alphanumeric() || "_.=,/+-".contains(it);
        let marker = rest.split(|it| !is_inside(it)).next().unwrap_or_default();
        let mut script = Self::default();
        for (key, value) in marker.split(',').filter_map(|it| it.split_once('=')) {
            let count = value.parse::<usize>().ok().map(|it| it.min(MAX_COUNT));
            match (key, count) {
                ("n", Some(count)) => script.n = count,
                ("deltas", Some(count)) => script.deltas = count,
                ("par", Some(count)) => script.par = count.max(1),
                ("tool", _) => value.clone_into(&mut script.tool),
                ("path", _) => value.clone_into(&mut script.path),
                _ => {}
            }
        }
        Some(script)
    }
}

/// What a reply is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Tool calls of a step.
    Calls,
    /// The text that ends a turn.
    Final,
    /// One word for a request without tools.
    Side,
}

/// A reply, before it is written on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// What it is.
    pub kind: Kind,
    /// Tool calls: name and arguments, with their ids.
    pub calls: Vec<(String, String, Value)>,
    /// Text deltas.
    pub deltas: usize,
}

/// What the script says to a chat-completions request.
#[must_use]
pub fn answer(request: &Value) -> Answer {
    let tools = offered(request);
    let (script, step) = position(request);
    let text = |kind, deltas| Answer { kind, calls: Vec::new(), deltas };
    if tools.is_empty() {
        return text(Kind::Side, 1);
    }
    let round = step / script.par;
    let Some(tool) = pick(&tools, &script.tool).filter(|_| round < script.n) else {
        return text(Kind::Final, script.deltas);
    };
    let number = round + 1;
    let call = |idx| (format!("call_{number:05}_{idx}"), tool.name.to_owned(), arguments(tool, number, &script));
    Answer { kind: Kind::Calls, calls: (0..script.par).map(call).collect(), deltas: 0 }
}

/// The words of a text of `count` deltas.
pub fn words(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|idx| if idx % 16 == 0 { format!("tok{idx}\n") } else { format!("tok{idx} ") })
}

struct Offered<'a> {
    name: &'a str,
    schema: &'a Value,
}

fn offered(request: &Value) -> Vec<Offered<'_>> {
    let tools = request.get("tools").and_then(Value::as_array).into_iter().flatten();
    tools
        .filter_map(|it| it.get("function"))
        .filter_map(|it| {
            let schema = it.get("parameters").unwrap_or(&Value::Null);
            Some(Offered { name: it.get("name")?.as_str()?, schema })
        })
        .collect()
}

/// The script that is running, and the number of tool results since it began.
fn position(request: &Value) -> (Script, usize) {
    let messages = request.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut step = 0;
    for message in messages.iter().rev() {
        match message.get("role").and_then(Value::as_str) {
            Some("tool") => step += 1,
            Some("user") => {
                if let Some(script) = message.get("content").and_then(|it| Script::in_prompt(&text_of(it))) {
                    return (script, step);
                }
            }
            _ => {}
        }
    }
    (Script::default(), step)
}

/// The text of a message's content, a string or a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|it| it.get("text")?.as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn pick<'a>(tools: &'a [Offered<'a>], wanted: &str) -> Option<&'a Offered<'a>> {
    let exact = |name: &str| tools.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    let names = if wanted == "read" { READ_NAMES } else { SHELL_NAMES };
    exact(wanted)
        .or_else(|| names.iter().find_map(|name| exact(name)))
        .or_else(|| names.iter().find_map(|name| tools.iter().find(|it| it.name.to_ascii_lowercase().contains(name))))
        .or_else(|| tools.first())
}

/// Arguments that fit the tool's schema: a command or a path, and anything for what else is required.
fn arguments(tool: &Offered<'_>, number: usize, script: &Script) -> Value {
    let none = Map::new();
    let properties = tool.schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let name = tool.name.to_ascii_lowercase();
    let is_reading = ["read", "view", "cat"].iter().any(|it| name.contains(it)) && !properties.contains_key("command");
    let (keys, value): (&[&str], _) = if is_reading {
        (&["path", "file_path", "absolute_path", "file"], script.path.clone())
    } else {
        (&["command", "cmd", "script", "code", "input"], format!("echo step-{number}"))
    };
    let known = keys.iter().find(|it| properties.contains_key(**it));
    let key = known.or(keys.first().filter(|_| properties.is_empty()));
    let mut arguments = Map::new();
    arguments.extend(key.map(|it| ((*it).to_owned(), Value::String(value))));
    for required in
        tool.schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !arguments.contains_key(required) {
            arguments.insert(required.to_owned(), sample(properties.get(required), number));
        }
    }
    Value::Object(arguments)
}

/// Some value that fits a schema.
fn sample(schema: Option<&Value>, number: usize) -> Value {
    let first = schema.and_then(|it| it.get("enum")).and_then(|it| it.get(0));
    let kind = schema.and_then(|it| it.get("type")).and_then(Value::as_str);
    match (first, kind) {
        (Some(first), _) => first.clone(),
        (None, Some("integer" | "number")) => json!(1),
        (None, Some("boolean")) => json!(false),
        (None, Some("array")) => json!([]),
        (None, Some("object")) => json!({}),
        (None, _) => json!(format!("step {number}")),
    }
}
