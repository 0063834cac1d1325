//! What the interpreter is told to run: the runner, which then reads the code.

use std::sync::LazyLock;

use crate::values::{MAX_DEPTH, MAX_VALUE_BYTES};

/// Says which version it is when that is too old, else runs the runner. Any Python understands it.
const BOOT: &str = include_str!("child/boot.py");

/// The runner, in parts that are read as one.
const CHILD: &str =
    concat!(include_str!("child/output.py"), include_str!("child/calls.py"), include_str!("child/run.py"));

/// The `republic` module, which is compiled when the code first uses it.
const REPUBLIC: &str = include_str!("child/republic.py");

/// The whole of it, as an argument of `-c`.
pub(super) static SOURCE: LazyLock<String> = LazyLock::new(|| {
    BOOT.replace("@CHILD@", &literal(CHILD))
        .replace("@REPUBLIC@", &literal(REPUBLIC))
        .replace("@MAX_DEPTH@", &MAX_DEPTH.to_string())
        .replace("@MAX_VALUE_BYTES@", &MAX_VALUE_BYTES.to_string())
});

/// Text as Python writes it; a JSON string is one, as long as it is ASCII.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux takes no longer argument.
    const MAX_ARGUMENT: usize = 128 * 1024;

    #[test]
    fn source_is_a_short_ascii_argument() {
        assert!(SOURCE.is_ascii());
        assert!(SOURCE.len() < MAX_ARGUMENT / 2, "{}", SOURCE.len());
        assert!(!SOURCE.contains("@CHILD@") && !SOURCE.contains("@MAX_"));
    }
}
