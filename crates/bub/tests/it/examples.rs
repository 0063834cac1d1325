//! The examples do what they say.

#[path = "../../examples/04_code_mode.rs"]
mod code_mode;

#[tokio::test]
async fn code_mode_runs_offline() {
    let (printed, answer) = code_mode::run().await.unwrap();
    assert_eq!((printed.as_str(), answer.as_str()), ("['A123']\n", "Of your orders, A123 is on its way."));
}
