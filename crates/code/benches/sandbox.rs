//! What a run costs on the sandbox. The program is its own worker.
#![expect(clippy::expect_used, reason = "a benchmark that cannot run must say so")]

use std::{ffi::OsString, process::ExitCode, sync::LazyLock};

use async_trait::async_trait;
use bub_code::sandbox::{SandboxLimits, SandboxOptions, SandboxRunner, worker_main};
use bub_kernel::{
    code::{CodeHost, CodeRequest, CodeRunner},
    error::ToolError,
};
use divan::{Bencher, black_box};
use serde_json::Value;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: monty_alloc::LimitedAllocator = monty_alloc::LimitedAllocator;

/// The argument that makes this program a worker.
const WORKER: &str = "code-worker";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == WORKER) {
        return worker_main();
    }
    divan::main();
    ExitCode::SUCCESS
}

/// A host whose tool costs nothing.
struct Host;

#[async_trait]
impl CodeHost for Host {
    async fn call_tool(&self, _name: &str, _arguments: Value) -> Result<Value, ToolError> {
        Ok(Value::from(1))
    }

    fn write(&self, text: &str) {
        black_box(text);
    }
}

fn runner() -> SandboxRunner {
    let program = std::env::current_exe().expect("the path of this program");
    SandboxRunner::new(SandboxOptions { program, args: vec![OsString::from(WORKER)], limits: SandboxLimits::default() })
}

fn run(runner: &SandboxRunner, code: &str) {
    let tools = ["echo".to_owned()];
    let request = CodeRequest { code, filename: "<bench>", tools: &tools };
    RUNTIME.block_on(runner.run(request, &Host)).expect("the code ends");
}

fn warm(bencher: Bencher<'_, '_>, code: &str) {
    let runner = runner();
    run(&runner, "print(0)");
    bencher.bench_local(|| run(&runner, code));
}

/// Bar: 1 ms.
#[divan::bench(sample_count = 200)]
fn print_on_a_warm_worker(bencher: Bencher<'_, '_>) {
    warm(bencher, "print(1)");
}

/// Bar: 10 ms.
#[divan::bench(sample_count = 20)]
fn print_on_the_first_worker(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(runner).bench_local_values(|runner| {
        run(&runner, "print(1)");
        runner
    });
}

/// Bar: 5 ms beyond the tools.
#[divan::bench(sample_count = 50)]
fn hundred_calls_one_after_the_other(bencher: Bencher<'_, '_>) {
    warm(bencher, "for i in range(100): await tools.echo(i=i)");
}

#[divan::bench(sample_count = 20)]
fn thousand_gathered_calls(bencher: Bencher<'_, '_>) {
    warm(bencher, "import asyncio\nawait asyncio.gather(*[tools.echo(i=i) for i in range(1000)])");
}
