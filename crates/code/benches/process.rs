//! What running code in a process costs, beside the interpreter's own start.

use std::sync::Arc;

use async_trait::async_trait;
use bub_code::process::{ProcessOptions, ProcessRunner};
use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    code::{CodeHost, CodeRequest, CodeRunner as _},
    error::ToolError,
};
use divan::Bencher;
use serde_json::Value;
use tokio::runtime::Runtime;

fn main() {
    divan::main();
}

const ONE: &str = "print(1)";
const ONE_CALL: &str = "print(await tools.echo(value=1))";
const HUNDRED_CALLS: &str = "for i in range(100):\n    await tools.echo(value=i)";
const LOOP: &str = "import asyncio\nawait asyncio.sleep(0)";
const THOUSAND_AT_ONCE: &str = "import asyncio\nawait asyncio.gather(*[tools.echo(value=i) for i in range(1000)])";
const TEN_THOUSAND_LINES: &str = "for i in range(10000):\n    print(i)";
const TEN_MEGABYTES: &str = "await tools.echo(value='x' * 10_000_000)";

struct Echo;

#[async_trait]
impl CodeHost for Echo {
    async fn call_tool(&self, _: &str, arguments: Value) -> Result<Value, ToolError> {
        Ok(arguments)
    }

    fn write(&self, text: &str) {
        divan::black_box(text);
    }
}

/// The floor: the interpreter's own start and end.
#[divan::bench]
fn bare_interpreter() {
    divan::black_box(std::process::Command::new("python3").args(["-c", "pass"]).output()).ok();
}

#[divan::bench(args = [ONE, ONE_CALL, HUNDRED_CALLS, LOOP, THOUSAND_AT_ONCE, TEN_THOUSAND_LINES, TEN_MEGABYTES])]
fn code(bencher: Bencher<'_, '_>, code: &str) {
    let local = LocalOptions { adopt_orphans: true, ..LocalOptions::default() };
    let (Ok(runtime), Ok(env)) = (Runtime::new(), LocalEnvironment::new(local)) else { return };
    let runner = ProcessRunner::new(ProcessOptions::new(Arc::new(env)));
    let tools = ["echo".to_owned()];
    let request = CodeRequest { code, filename: "<run_code-00000000>", tools: &tools };
    bencher.bench_local(|| divan::black_box(runtime.block_on(runner.run(request, &Echo))));
}
