//! What starting a process costs, against the standard library.

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::environment::{Environment as _, SpawnRequest};
use divan::Bencher;
use tokio::{io::AsyncReadExt as _, runtime::Runtime};

fn main() {
    divan::main();
}

/// The floor: one fork, one pipe, one wait.
#[divan::bench]
fn standard_library() {
    let output = std::process::Command::new("bash").args(["-c", "echo hi"]).output();
    divan::black_box(output.map(|it| it.stdout)).ok();
}

/// The same through the environment, with the check that nothing is left behind.
#[divan::bench(args = [true, false])]
fn environment(bencher: Bencher<'_, '_>, adopt_orphans: bool) {
    let (Ok(runtime), Ok(env)) =
        (Runtime::new(), LocalEnvironment::new(LocalOptions { adopt_orphans, ..LocalOptions::default() }))
    else {
        return;
    };
    bencher.bench_local(|| {
        runtime.block_on(async {
            let mut text = String::new();
            if let Ok(mut process) = env.spawn(SpawnRequest::shell("echo hi")).await {
                if let Some(mut pipes) = process.take_pipes() {
                    pipes.stdout.read_to_string(&mut text).await.ok();
                }
                process.wait().await.ok();
                divan::black_box(process.is_running());
            }
            text
        })
    });
}
