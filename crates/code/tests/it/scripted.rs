//! A runner that plays lines instead of Python, for what does not depend on the interpreter.

use std::sync::Arc;

use async_trait::async_trait;
use bub_code::{Chosen, Runners};
use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest, CodeRunner},
    environment::Environment,
    error::ToolError,
};
use serde_json::Value;

/// Plays a line at a time:
///
/// - `print TEXT`: prints it with a line end; `write TEXT` without one;
/// - `call NAME JSON`: calls and prints the result, or `!` and the error's text;
/// - `gather N NAME JSON`: makes N such calls at once and prints how many went well;
/// - `tools`: prints the names of the tools;
/// - `file`: prints the file name;
/// - `flood N`: prints N lines of 1,000 letters;
/// - `raise ERROR`, `die CODE`, `gone`: ends like that;
/// - `hang`: never ends.
pub(crate) struct Lines;

#[async_trait]
impl CodeRunner for Lines {
    async fn run(&self, request: CodeRequest<'_>, host: &dyn CodeHost) -> Result<(), CodeError> {
        for line in request.code.lines() {
            let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match word {
                "print" => host.write(&format!("{rest}\n")),
                "write" => host.write(rest),
                "call" => host.write(&format!("{}\n", shown(call(host, rest).await))),
                "gather" => {
                    let (n, rest) = rest.split_once(' ').unwrap();
                    let calls = (0..n.parse().unwrap()).map(|_: usize| call(host, rest));
                    let done = futures::future::join_all(calls).await;
                    host.write(&format!("{}\n", done.iter().filter(|it| it.is_ok()).count()));
                }
                "tools" => host.write(&format!("{}\n", request.tools.join(" "))),
                "file" => host.write(request.filename),
                "flood" => {
                    for _ in 0..rest.parse().unwrap() {
                        host.write(&format!("{}\n", "x".repeat(1_000)));
                        tokio::task::yield_now().await;
                    }
                }
                "raise" => {
                    let traceback = format!("Traceback (most recent call last):\n  File \"{}\"", request.filename);
                    return Err(CodeError::Raised { error: rest.to_owned(), traceback });
                }
                "die" => {
                    let (reason, stderr) = ("it died".to_owned(), "oh no".to_owned());
                    return Err(CodeError::Runner { reason, exit_code: rest.parse().ok(), stderr });
                }
                "hang" => std::future::pending().await,
                "" => {}
                other => panic!("no such line: {other}"),
            }
        }
        Ok(())
    }
}

async fn call(host: &dyn CodeHost, line: &str) -> Result<Value, ToolError> {
    let (name, arguments) = line.split_once(' ').unwrap_or((line, "{}"));
    host.call_tool(name, serde_json::from_str(arguments).unwrap()).await
}

fn shown(result: Result<Value, ToolError>) -> String {
    result.map_or_else(|err| format!("!{err}"), |value| value.to_string())
}

/// Chooses [`Lines`], whatever the environment.
pub(crate) struct Scripted;

#[async_trait]
impl Runners for Scripted {
    async fn choose(&self, _: &Arc<dyn Environment>) -> Result<Chosen, ToolError> {
        Ok(Chosen { runner: Arc::new(Lines), about: "Code is lines.".into() })
    }
}
