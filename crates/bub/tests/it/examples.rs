//! The examples do what they say.

#[path = "../../examples/04_code_mode.rs"]
mod code_mode;
#[path = "../../examples/05_tools_from_functions.rs"]
mod tools_from_functions;

#[tokio::test]
async fn code_mode_runs_offline() {
    let (printed, answer) = code_mode::run().await.unwrap();
    assert_eq!((printed.as_str(), answer.as_str()), ("['A123']\n", "Of your orders, A123 is on its way."));
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
