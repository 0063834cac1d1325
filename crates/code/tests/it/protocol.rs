//! The host's side of the messages, whatever comes.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bub_code::process::{FromCode, ProcessOptions, ProcessRunner, answer, read, start};
use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest, CodeRunner},
    environment::{EnvPath, Environment, EnvironmentError, ExitStatus, OpenFile, Pipes, Process, Signal, SpawnRequest},
    error::ToolError,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn check(line: &str, expected: FromCode) {
    assert_eq!(read(line.as_bytes()), expected, "{line}");
}

#[test]
fn messages_are_understood() {
    check(r#"{"type":"output","data":"a\nb"}"#, FromCode::Output("a\nb".into()));
    check(
        r#"{"type":"call","id":7,"name":"x","arguments":{"b":1,"a":[]}}"#,
        FromCode::Call { id: 7, name: "x".into(), arguments: json!({"b": 1, "a": []}).as_object().unwrap().clone() },
    );
    check(r#"{"type":"cancel","id":7}"#, FromCode::Cancel { id: 7 });
    check(r#"{"type":"done"}"#, FromCode::Done);
    check(
        r#"{"type":"failed","error":"E: m","traceback":"t"}"#,
        FromCode::Failed { error: "E: m".into(), traceback: "t".into() },
    );
    check(r#"{"type":"unsupported","version":"3.8.1"}"#, FromCode::Unsupported { version: "3.8.1".into() });
    check(r#"{"type":"new thing"}"#, FromCode::Unknown);
    check(r#"{"type":"cancel"}"#, FromCode::Unknown);
}

#[test]
fn malformed_calls_keep_their_id() {
    for (line, id, name) in [
        (r#"{"type":"call","id":1,"name":"x"}"#, json!(1), "x"),
        (r#"{"type":"call","id":1,"name":"x","arguments":[1]}"#, json!(1), "x"),
        (r#"{"type":"call","id":1,"name":5,"arguments":{}}"#, json!(1), "5"),
        (r#"{"type":"call","id":1}"#, json!(1), "null"),
        (r#"{"type":"call","id":"a","name":"x","arguments":{}}"#, json!("a"), "x"),
        (r#"{"type":"call","id":-1,"name":"x","arguments":{}}"#, json!(-1), "x"),
    ] {
        check(line, FromCode::MalformedCall { id, name: name.into() });
    }
}

#[test]
fn other_lines_are_text() {
    let deep = format!("{{\"type\":\"call\",\"arguments\":{}", "[".repeat(100_000));
    for line in ["", "hello", "[1]", "5", "null", "{}", r#"{"type":5}"#, r#"{"type":"done""#, "{'type':'done'}", &deep]
    {
        check(line, FromCode::Raw(format!("{line}\n")));
    }
    assert_eq!(read(b"a\xffb\r"), FromCode::Raw("a\u{fffd}b\r\n".into()));
}

#[test]
fn answers_are_single_lines() {
    let text = |id, result| String::from_utf8(answer(&id, result)).unwrap();
    assert_eq!(
        text(json!(0), Ok(json!({"a": "b\nc"}))),
        "{\"type\":\"result\",\"id\":0,\"value\":{\"a\":\"b\\nc\"}}\n"
    );
    assert_eq!(
        text(json!("x"), Err(ToolError::invalid("no"))),
        "{\"type\":\"error\",\"id\":\"x\",\"message\":\"[invalid_input] no\",\"kind\":\"invalid_input\"}\n"
    );
    let deep = (0..1000).fold(Value::Null, |inner, _| json!([inner]));
    assert!(text(json!(1), Ok(deep)).contains("[tool] tool result is not JSON serializable: nested"));
    let request = CodeRequest { code: "1\n2", filename: "<f>", tools: &["a".into()] };
    assert_eq!(
        String::from_utf8(start(request, None)).unwrap(),
        "{\"type\":\"run\",\"code\":\"1\\n2\",\"filename\":\"<f>\",\"tools\":[\"a\"]}\n"
    );
}

/// An environment whose every process writes `script` and ends.
struct Scripted(Vec<u8>);

/// The lock is for pipes, which cannot be shared.
struct ScriptedProcess(std::sync::Mutex<Option<Pipes>>);

#[async_trait]
impl Process for ScriptedProcess {
    fn take_pipes(&mut self) -> Option<Pipes> {
        self.0.get_mut().unwrap().take()
    }
    async fn wait(&mut self) -> Result<ExitStatus, EnvironmentError> {
        Ok(ExitStatus { code: 5 })
    }
    fn signal(&self, _: Signal) {}
    fn is_running(&self) -> bool {
        false
    }
}

#[async_trait]
impl Environment for Scripted {
    fn workspace(&self) -> Option<&EnvPath> {
        None
    }
    fn resolve(&self, path: &str) -> Result<EnvPath, EnvironmentError> {
        Ok(EnvPath::new(path))
    }
    async fn spawn(&self, _: SpawnRequest) -> Result<Box<dyn Process>, EnvironmentError> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (mut reader, mut writer) = tokio::io::split(theirs);
        let script = self.0.clone();
        // The other end reads all that is sent to it, and closes its own side after the script.
        let scope = bub_kernel::task::TaskScope::default();
        scope.spawn(async move {
            let mut ignored = Vec::new();
            let read = reader.read_to_end(&mut ignored);
            let write = async {
                let _ = writer.write_all(&script).await;
                let _ = writer.shutdown().await;
            };
            let _ = tokio::join!(read, write);
        });
        let (stdout, stdin) = tokio::io::split(ours);
        let pipes = Pipes { stdin: Some(Box::new(stdin)), stdout: Box::new(stdout), stderr: None };
        Ok(Box::new(ScriptedProcess(Some(pipes).into())))
    }
    async fn open(&self, path: &EnvPath) -> Result<OpenFile, EnvironmentError> {
        Err(EnvironmentError::NotFound(path.clone()))
    }
    async fn write(&self, path: &EnvPath, _: &[u8]) -> Result<(), EnvironmentError> {
        Err(EnvironmentError::NotFound(path.clone()))
    }
}

#[derive(Default)]
struct Echo(std::sync::Mutex<String>);

#[async_trait]
impl CodeHost for Echo {
    async fn call_tool(&self, _: &str, arguments: Value) -> Result<Value, ToolError> {
        Ok(arguments)
    }
    fn write(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

/// Runs against a process that writes `script`.
async fn run(script: &[u8]) -> (String, Result<(), CodeError>) {
    let runner = ProcessRunner::new(ProcessOptions::new(Arc::new(Scripted(script.to_vec()))));
    let host = Echo::default();
    let request = CodeRequest { code: "", filename: "<f>", tools: &["x".into()] };
    let end = tokio::time::timeout(Duration::from_secs(20), runner.run(request, &host)).await.expect("it ends");
    (host.0.into_inner().unwrap(), end)
}

#[tokio::test]
async fn text_without_an_end_is_passed_on_before_death() {
    let (output, end) = run(b"raw\nlast").await;
    assert_eq!(output, "raw\nlast\n");
    assert!(matches!(end, Err(CodeError::Runner { exit_code: Some(5), .. })), "{end:?}");
    let (output, end) = run(b"raw\n{\"type\":\"done\"}\nafter\n").await;
    assert_eq!((output.as_str(), end.is_ok()), ("raw\n", true));
}

#[tokio::test]
async fn lines_of_many_megabytes_are_read() {
    let script = json!({"type": "output", "data": "x".repeat(20_000_000)}).to_string() + "\n{\"type\":\"done\"}\n";
    let (output, end) = run(script.as_bytes()).await;
    assert!(output.len() == 20_000_000 && end.is_ok());
}

/// Pieces from which lines are made, so that many come close to being messages.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "{\"type\":",
        "\"call\"",
        "\"output\"",
        "\"done\"",
        "\"failed\"",
        "\"cancel\"",
        "\"unsupported\"",
        ",\"id\":",
        "0",
        "1e99",
        "-1",
        ",\"name\":",
        "\"x\"",
        "\"republic.chat\"",
        ",\"arguments\":",
        "{}",
        "{\"a\":1}",
        "[",
        "]",
        "}",
        "{",
        ",\"data\":",
        "null",
        "\"\\ud800\"",
        ",\"error\":",
        "\n",
        "\n",
        "\n",
        "{\"type\":\"call\",\"id\":3,\"name\":\"x\",\"arguments\":{\"a\":[1]}}\n",
        "{\"type\":\"cancel\",\"id\":3}\n",
        "{\"type\":\"output\",\"data\":\"text\"}\n",
    ]);
    prop_oneof![4 => known.prop_map(|it| it.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #[test]
    fn any_line_is_understood_somehow(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&line);
    }

    #[test]
    fn any_process_comes_to_an_end(pieces in prop::collection::vec(piece(), 0..60)) {
        let script = pieces.concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (output, end) = runtime.block_on(run(&script));
        let is_over = matches!(end, Ok(()) | Err(CodeError::Raised { .. } | CodeError::Runner { .. }));
        prop_assert!(is_over);
        prop_assert!(output.len() <= 3 * script.len() + 1);
    }
}
