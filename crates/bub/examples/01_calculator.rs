//! An agent without a model: a tool, called by a line of text.
//!
//! ```console
//! $ cargo run -p bub --example 01_calculator
//! 5
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use bub::{
    Agent, Run,
    kernel::{tool::prelude::*, turn::TurnEvent},
};

/// Add two integers.
#[derive(Deserialize, JsonSchema)]
struct AddArgs {
    a: i64,
    b: i64,
}

struct Add;

impl Tool for Add {
    const NAME: &'static str = "math.add";
    type Args = AddArgs;
    type Output = i64;

    async fn call(&self, _: &ToolContext, args: AddArgs) -> Result<i64, ToolError> {
        args.a.checked_add(args.b).ok_or_else(|| ToolError::invalid("the sum does not fit into 64 bits"))
    }
}

/// Runs one command and returns its text.
///
/// # Errors
/// When the command fails.
pub(crate) async fn run() -> Result<String, Box<dyn Error>> {
    let agent = Agent::builder().tool(Add).command_prefix(",").build()?;
    let mut stream = agent.run(Run::new(",math.add a=2 b=3").tape("calculator"));
    let mut printed = String::new();
    while let Some(event) = stream.next().await {
        if let TurnEvent::Text(delta) = event {
            printed.push_str(&delta);
        }
    }
    // The events are over; the result says whether all went well.
    stream.result().await?;
    Ok(printed)
}

#[tokio::main(flavor = "current_thread")]
#[cfg_attr(test, expect(dead_code, reason = "a test runs the rest"))]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}
