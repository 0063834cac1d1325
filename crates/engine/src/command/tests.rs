use std::sync::Arc;

use bub_kernel::tool::{DynTool, Exposure, ToolContext, ToolReply};
use futures::future::BoxFuture;
use serde_json::json;

use super::*;

struct Named(Arc<ToolSpec>);

impl DynTool for Named {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text("")) })
    }
}

fn tools(with_shell: bool) -> ToolSet {
    let mut tools = ToolSet::default();
    let mut add = |name: &'static str, parameters: &[&str]| {
        let properties: Map<_, _> = parameters.iter().map(|it| ((*it).to_owned(), json!({"type": "string"}))).collect();
        tools.insert(Arc::new(Named(Arc::new(ToolSpec {
            name: name.into(),
            description: String::new(),
            exposure: Exposure::Auto,
            deferred: false,
            parameters: json!({"type": "object", "properties": properties}),
            output: None,
        }))));
    };
    add("fs.read", &["path", "offset", "limit"]);
    add("tape.info", &[]);
    if with_shell {
        add("bash", &["command", "cwd"]);
    }
    tools
}

fn args(line: &str) -> Result<Value, String> {
    parse(line, &tools(true)).map(|it| Value::Object(it.args))
}

#[test]
fn a_command_is_a_text_that_starts_with_the_prefix() {
    for (text, prefix, expected) in [
        (",ls", ",", Some("ls")),
        ("  , ls -la \n", ",", Some("ls -la")),
        (",,help", ",", Some(",help")),
        (",", ",", Some("")),
        ("say ,ls", ",", None),
        ("::help", "::", Some("help")),
        (":help", "::", None),
    ] {
        assert_eq!(line_of(text, prefix), expected, "{text}");
    }
}

#[test]
fn prefixes_have_no_white_space() {
    for good in [",", "::", "/", "é"] {
        check_prefix(good).unwrap();
    }
    for bad in ["", " ", ", ", "a b", "\t"] {
        let message = check_prefix(bad).unwrap_err();
        assert_eq!(message, "command_prefix must be non-empty and contain no whitespace");
    }
}

#[test]
fn words_are_split_as_a_shell_does() {
    for (line, expected) in [
        (r"a b  c", vec!["a", "b", "c"]),
        ("a\n\tb", vec!["a", "b"]),
        (r#"'a b' "c d""#, vec!["a b", "c d"]),
        (r#""a\"b\\c\nd""#, vec![r#"a"b\c\nd"#]),
        (r"'a\b'", vec![r"a\b"]),
        (r"a\ b \'c", vec!["a b", "'c"]),
        (r#"x'y'"z""#, vec!["xyz"]),
        ("'' a", vec!["", "a"]),
        ("# not a comment $HOME", vec!["#", "not", "a", "comment", "$HOME"]),
    ] {
        assert_eq!(split(line).unwrap(), expected, "{line}");
    }
    for (line, message) in [
        ("'a", "No closing quotation"),
        ("\"a", "No closing quotation"),
        ("\"a\\", "No closing quotation"),
        ("a\\", "No escaped character"),
    ] {
        assert_eq!(split(line).unwrap_err(), message, "{line}");
    }
}

#[test]
fn r128_arguments_are_positional_then_by_name() {
    for (line, expected) in [
        ("fs.read t.txt", json!({"path": "t.txt"})),
        ("fs.read t.txt 2 3", json!({"path": "t.txt", "offset": "2", "limit": "3"})),
        ("fs.read t.txt limit=3", json!({"path": "t.txt", "limit": "3"})),
        ("fs.read path='a b=c'", json!({"path": "a b=c"})),
        ("fs.read path=", json!({"path": ""})),
        ("fs.read path=a path=b", json!({"path": "b"})),
        ("fs.read bogus=1", json!({"bogus": "1"})),
        ("'fs.read' x", json!({"path": "x"})),
    ] {
        assert_eq!(args(line).unwrap(), expected, "{line}");
    }
    for (line, message) in [
        ("fs.read path=a b", "positional argument 'b' cannot appear after keyword arguments"),
        ("fs.read a 1 2 3", "expected at most 3 positional arguments, got 4"),
        ("fs.read a path=b", "argument 'path' given both positionally and by keyword"),
        ("fs.read 'a", "No closing quotation"),
        (
            "fs.read http://x/?a=b",
            "'http://x/?a' is no name of an argument; a value with '=' in it needs one: path='http://x/?a=b'",
        ),
        (
            "fs.read x 1 '(y == 2)'",
            "'(y ' is no name of an argument; a value with '=' in it needs one: limit='(y == 2)'",
        ),
        ("", "empty command"),
        ("  ", "empty command"),
    ] {
        assert_eq!(args(line).unwrap_err(), message, "{line}");
    }
}

#[test]
fn lines_that_name_no_tool_go_to_the_shell_unparsed() {
    for line in ["ls -la | head -3", "echo it's", "fs_read x", "FS.READ x", ",help", "echo 'open"] {
        let command = parse(line, &tools(true)).unwrap();
        assert_eq!((command.tool.as_str(), &command.args["command"]), ("bash", &json!(line)));
    }
    assert_eq!(parse("ls", &tools(false)).unwrap_err(), "bash tool is not available, and no tool is named 'ls'");
}

#[test]
fn r130_a_mistyped_command_is_told_what_it_may_have_meant() {
    let mut command = parse("tape.inof", &tools(true)).unwrap();
    let fail = || {
        ToolError::raised("RuntimeError", "command exited with code 127\noutput:\nbash: tape.inof: not found")
            .in_tool("bash")
    };
    let mut error = fail();
    add_hint(&mut error, &command, ",");
    assert!(error.cause().ends_with("\n'tape.inof' is not a command; did you mean ,tape.info?"), "{}", error.cause());
    for (typed, meant) in [("fs_read x", "fs.read"), ("FS.READ x", "fs.read"), ("tape_info", "tape.info")] {
        assert_eq!(parse(typed, &tools(true)).unwrap().meant.first().map(String::as_str), Some(meant), "{typed}");
    }
    command.meant.clear();
    let mut error = fail();
    add_hint(&mut error, &command, ",");
    assert!(error.cause().ends_with("not found"));
}
