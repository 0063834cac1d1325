//! The examples do what they say.

#[path = "../../examples/02_agent.rs"]
mod agent;
#[path = "../../examples/01_calculator.rs"]
mod calculator;
#[path = "../../examples/04_code_mode.rs"]
mod code_mode;
#[path = "../../examples/03_memory.rs"]
mod memory;
#[path = "../../examples/05_tools_from_functions.rs"]
mod tools_from_functions;

#[tokio::test]
async fn the_calculator_prints_five() {
    assert_eq!(calculator::run().await.unwrap(), "5");
}

#[tokio::test]
async fn the_agent_streams_its_events() {
    let lines = agent::run().await.unwrap();
    assert_eq!(
        lines,
        [
            r#"call: lookup_order {"order_id":"A123"}"#,
            r#"result: "Order A123: shipped""#,
            "text: I looked. ",
            "text: Order A123: shipped.",
            "answer: I looked. Order A123: shipped.",
            "on the tape: 16 entries",
        ]
    );
}

#[tokio::test]
async fn the_memory_is_shown_to_the_model() {
    let (answer, calls) = memory::run().await.unwrap();
    assert_eq!((answer.as_str(), calls), ("You are desk and talk to Ada. (a note: prefers tea)", 1));
}

#[tokio::test]
async fn code_mode_runs_offline() {
    assert_eq!(code_mode::run().await.unwrap(), "On their way: ['A123']");
}

/// The lines of a text without blank ones and indents.
fn bare_lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|it| !it.is_empty()).map(|it| format!("{it}\n")).collect()
}

#[test]
fn the_guide_shows_what_the_examples_do() {
    let guide = include_str!("../../../../docs/guide/embedding.md");
    let examples = [
        include_str!("../../examples/01_calculator.rs"),
        include_str!("../../examples/02_agent.rs"),
        include_str!("../../examples/03_memory.rs"),
        include_str!("../../examples/04_code_mode.rs"),
    ]
    .map(bare_lines);
    let blocks: Vec<_> = guide.split("```rust\n").skip(1).filter_map(|it| it.split("```").next()).collect();
    assert!(blocks.len() > 5, "{blocks:?}");
    for block in blocks.into_iter().map(bare_lines) {
        assert!(examples.iter().any(|it| it.contains(&block)), "no example has this:\n{block}");
    }
}

#[tokio::test]
async fn functions_are_called_as_tools() {
    assert_eq!(
        tools_from_functions::run().await.unwrap(),
        [
            "5",
            "order A123: shipped",
            "failed: lookup_order: no order B7",
            "failed: math.add: 'a': expected an integer, got 'two'; 'c' is not a parameter; the tool takes 'a', 'b'; \
             'b' is required (integer)",
            "Recorded.",
            "on the tape: {\"text\":\"buy milk\"}",
        ]
    );
}
