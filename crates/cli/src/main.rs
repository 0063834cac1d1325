//! The program `bub`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bub_cli::Program::new("bub").main()
}
