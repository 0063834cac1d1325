//! What can be called, and how.

use bub_kernel::{
    text,
    tool::{ToolSpec, prelude::*},
};
use serde_json::Value;

/// Lines that show how commands are written: the tool, and what follows its name.
const EXAMPLES: [(&str, &str); 14] = [
    ("help", ""),
    ("skill", " name=foo"),
    ("tape.info", ""),
    ("tape.search", " query=error"),
    ("tape.handoff", " name=phase-1 summary='done'"),
    ("tape.anchors", ""),
    ("fs.read", " path=README.md"),
    ("fs.write", " path=tmp.txt content='hello'"),
    ("fs.edit", " path=tmp.txt old=hello new=world"),
    ("bash", " command='sleep 5' background=true"),
    ("bash.output", " shell_id=bsh-12345678"),
    ("bash.kill", " shell_id=bsh-12345678"),
    ("code_mode", " enable=true"),
    ("quit", ""),
];
/// Characters of a tool's summary that the overview shows.
const MAX_SUMMARY_CHARS: usize = 100;
/// The most values of a choice that are named.
const MAX_CHOICES: usize = 20;

/// List the commands and tools, or show one of them in full.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct HelpArgs {
    /// The command or tool to show in full.
    name: Option<String>,
}

/// The command `help`.
#[derive(Clone, Copy, Debug)]
pub struct Help;

impl Tool for Help {
    const NAME: &'static str = "help";
    const EXPOSURE: Exposure = Exposure::Command;
    type Args = HelpArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: HelpArgs) -> Result<String, ToolError> {
        let prefix = ctx.host.command_prefix().unwrap_or_default();
        let Some(name) = args.name.as_deref().map(str::trim).filter(|it| !it.is_empty()) else {
            return Ok(overview(ctx, prefix));
        };
        let bare = name.strip_prefix(prefix).unwrap_or(name);
        match ctx.tools.find(bare) {
            Some(tool) => Ok(in_full(tool.spec(), prefix)),
            None => Err(ToolError::not_found(format!("no command or tool is named '{bare}'; {prefix}help lists them"))),
        }
    }
}

fn overview(ctx: &ToolContext, prefix: &str) -> String {
    let mut out = format!("Commands use '{prefix}' at line start.\nKnown internal commands:\n");
    for (name, rest) in EXAMPLES.iter().filter(|(name, _)| ctx.tools.get(name).is_some()) {
        out.push_str(&format!("  {prefix}{name}{rest}\n"));
    }
    let is_command = |it: &ToolSpec| it.exposure == Exposure::Command;
    for (title, commands) in [("Commands:", true), ("Tools, called the same way:", false)] {
        let specs: Vec<_> = ctx.tools.iter().map(|it| it.spec()).filter(|it| is_command(it) == commands).collect();
        if specs.is_empty() {
            continue;
        }
        out.push_str(title);
        out.push('\n');
        for spec in specs {
            let mut line = format!("  {prefix}{}", spec.name);
            for it in parameters(spec) {
                line.push_str(&format!(" {}", it.usage()));
            }
            let summary: String = spec.summary().chars().take(MAX_SUMMARY_CHARS).collect();
            let is_cut = summary.len() < spec.summary().len();
            let end = if is_cut { "…" } else { "" };
            out.push_str(&format!("{line}: {summary}{end}\n"));
        }
    }
    out.push_str("Arguments are given in that order or as key=value; lists and objects as JSON.\n");
    out.push_str(&format!("{prefix}help NAME shows one of them in full.\n"));
    out.push_str(&if ctx.tools.get("bash").is_some() {
        format!("Any other command after '{prefix}' runs in the shell through bash.")
    } else {
        format!("Any other command after '{prefix}' is unknown.")
    });
    out
}

fn in_full(spec: &ToolSpec, prefix: &str) -> String {
    let parameters = parameters(spec);
    let usage: String = parameters.iter().map(|it| format!(" {}", it.usage())).collect();
    let mut out = format!("{prefix}{}{usage}\n", spec.name);
    if spec.exposure != Exposure::Command {
        out.push_str(&format!("The model sees it as {} (exposure: {}).\n", spec.alias(), spec.exposure));
    }
    if !spec.description.is_empty() {
        out.push_str(&format!("\n{}\n", spec.description.trim()));
    }
    if !parameters.is_empty() {
        out.push_str("\nParameters:\n");
    }
    for it in &parameters {
        let need = match &it.default {
            _ if it.is_required => "required".to_owned(),
            Some(default) => format!("default {default}"),
            None => "optional".to_owned(),
        };
        out.push_str(&format!("  {}: {}, {need}", it.name, it.kind));
        match it.description {
            Some(text) => out.push_str(&format!(". {}\n", text.replace('\n', "\n    "))),
            None => out.push('\n'),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// One parameter, as people are told.
struct Parameter<'a> {
    name: &'a str,
    kind: String,
    is_required: bool,
    /// The default's JSON, when there is one that says something.
    default: Option<String>,
    description: Option<&'a str>,
}

impl Parameter<'_> {
    fn usage(&self) -> String {
        match &self.default {
            _ if self.is_required => self.name.to_owned(),
            Some(default) => format!("[{}={default}]", self.name),
            None => format!("[{}]", self.name),
        }
    }
}

fn parameters(spec: &ToolSpec) -> Vec<Parameter<'_>> {
    let required = spec.parameters.get("required").and_then(Value::as_array);
    let properties = spec.parameters.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| Parameter {
            name,
            kind: kind_of(schema, schema.get("$defs")),
            is_required: required.is_some_and(|it| it.iter().any(|it| it == name.as_str())),
            default: schema.get("default").filter(|it| !it.is_null()).map(|it| match it.as_str() {
                Some("") => "''".to_owned(),
                Some(text) => text.to_owned(),
                None => text::json(it),
            }),
            description: schema.get("description").and_then(Value::as_str),
        })
        .collect()
}

/// The type of a parameter: `string`, `integer`, `array of string`, `string or object`, `fast|slow`.
fn kind_of(schema: &Value, definitions: Option<&Value>) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array).filter(|it| it.len() <= MAX_CHOICES) {
        return values.iter().map(text::render).collect::<Vec<_>>().join("|");
    }
    if let Some(only) = schema.get("const") {
        return text::render(only);
    }
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.rsplit('/').next()) {
        let choice = definitions.and_then(|it| it.get(name)).filter(|it| it.get("enum").is_some());
        return choice.map_or_else(|| name.to_owned(), |it| kind_of(it, None));
    }
    let options = ["anyOf", "oneOf"].iter().find_map(|it| schema.get(it)?.as_array());
    if let Some(options) = options {
        let kinds: Vec<_> = options.iter().map(|it| kind_of(it, definitions)).filter(|it| it != "null").collect();
        return kinds.join(" or ");
    }
    match (schema.get("type").and_then(Value::as_str), schema.get("items")) {
        (Some("array"), Some(items)) => format!("array of {}", kind_of(items, definitions)),
        (Some(kind), _) => kind.to_owned(),
        (None, _) => "any".to_owned(),
    }
}
