//! bub with a plugin of its own.

use std::process::ExitCode;

use bub_cli::Program;
use bub_weather::Weather;

fn main() -> ExitCode {
    Program::new("custom-bub").plugin(Weather).main()
}
