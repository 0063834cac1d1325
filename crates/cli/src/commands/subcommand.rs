//! Subcommands of plugins: a tool, its parameters as arguments and options.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use bub::{
    Builder, TurnOptions,
    kernel::{
        plugin::Subcommand,
        text,
        turn::{Inbound, Prompt, SessionId},
    },
};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use super::{code::quoted, turn::play};
use crate::terminal::text::TextPrinter;

/// Options that every command has, so that parameters can't.
const TAKEN: [&str; 5] = ["workspace", "set", "verbose", "help", "version"];

/// A tool to call, with its arguments as they were typed.
#[derive(Debug)]
pub(crate) struct Call {
    subcommand: Subcommand,
    arguments: Vec<(String, String)>,
}

/// The command line of a subcommand. Its words live as long as the program.
pub(crate) fn command_of(subcommand: &Subcommand) -> Command {
    let spec = &subcommand.tool;
    let mut command = Command::new(leaked(&subcommand.name)).about(spec.summary().to_owned());
    if spec.description.trim_end_matches('.') != spec.summary() {
        command = command.long_about(spec.description.clone());
    }
    for (name, schema) in parameters(subcommand) {
        command = command.arg(argument(name, schema, is_required(subcommand, name)));
    }
    command
}

fn argument(name: &str, schema: &Value, is_required: bool) -> Arg {
    let mut help =
        schema.get("description").and_then(Value::as_str).unwrap_or_default().trim_end_matches('.').to_owned();
    if let Some(default) = schema.get("default").filter(|it| !it.is_null()) {
        help = format!("{help} [default: {}]", text::render(default)).trim_start().to_owned();
    }
    let mut arg =
        Arg::new(leaked(name)).help(help).value_name(leaked(&name.to_uppercase())).allow_negative_numbers(true);
    if is_required {
        arg = arg.required(true);
    } else {
        let long = name.replace('_', "-");
        arg = arg.long(leaked(&if TAKEN.contains(&long.as_str()) { format!("{long}-value") } else { long }));
    }
    match kind(schema) {
        "boolean" if !is_required => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(["true", "false"])
        }
        "array" => arg.action(ArgAction::Append).num_args(1..),
        _ => arg,
    }
}

/// The call that a command line asks for.
pub(crate) fn call_of(subcommand: &Subcommand, matches: &ArgMatches) -> Call {
    let mut arguments = Vec::new();
    for (name, schema) in parameters(subcommand) {
        let Ok(Some(values)) = matches.try_get_many::<String>(name) else { continue };
        let values: Vec<_> = values.cloned().collect();
        let value = match kind(schema) {
            "array" => array(&values, schema),
            _ => values.join(" "),
        };
        arguments.push((name.clone(), value));
    }
    Call { subcommand: subcommand.clone(), arguments }
}

/// Calls the tool as a command that a person typed.
pub(crate) async fn run(call: Call, builder: Builder) -> Result<ExitCode> {
    let Call { subcommand, arguments } = call;
    let name = &subcommand.tool.name;
    let mut line = format!("{}{name}", builder.settings().command_prefix);
    for (key, value) in arguments {
        line.push(' ');
        line.push_str(&quoted(&format!("{key}={value}")));
    }
    let app = builder.build()?;
    if app.runtime().tools().get(name).is_none() {
        let failures: Vec<_> =
            app.plugins().iter().filter_map(|it| it.error.as_ref()).map(ToString::to_string).collect();
        let why = if failures.is_empty() { "its plugin did not register it".to_owned() } else { failures.join("; ") };
        return Err(anyhow!("there is no tool '{name}': {why}"));
    }
    let inbound = Inbound {
        session: Some(SessionId("cli:local".to_owned())),
        local: true,
        ..Inbound::new("cli", "local", Prompt::Text(line))
    };
    play(app, inbound, TurnOptions::default(), &mut TextPrinter::new(false)).await
}

fn parameters(subcommand: &Subcommand) -> impl Iterator<Item = (&String, &Value)> {
    subcommand.tool.parameters.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn is_required(subcommand: &Subcommand, name: &str) -> bool {
    let required = subcommand.tool.parameters.get("required").and_then(Value::as_array);
    required.is_some_and(|it| it.iter().any(|it| it == name))
}

/// The type of a parameter; of an optional one that which it has when it is given.
fn kind(schema: &Value) -> &str {
    let named = |it: &'_ Value| it.get("type").and_then(Value::as_str).filter(|it| *it != "null").is_some();
    let branches = schema.get("anyOf").and_then(Value::as_array);
    let schema = branches.and_then(|it| it.iter().find(|it| named(it))).unwrap_or(schema);
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|it| *it != "null").unwrap_or_default()
        }
        _ => "",
    }
}

/// Values as a JSON list; what is no text is read as JSON where it can be.
fn array(values: &[String], schema: &Value) -> String {
    let of_text = schema.get("items").map_or("string", kind) == "string";
    let read = |it: &String| match serde_json::from_str(it) {
        Ok(value) if !of_text => value,
        _ => Value::String(it.clone()),
    };
    Value::Array(values.iter().map(read).collect()).to_string()
}

/// Text for a command line, which is made once.
fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}
