//! What is wrong with the arguments of a call.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{error::ToolError, text};

/// The most characters of a bad value that an error repeats.
pub const MAX_SHOWN_INPUT: usize = 200;
/// The most problems that one error lists: a list of a thousand wrong items is wrong in one way.
const MAX_PROBLEMS: usize = 50;

/// A step of the way to a value inside the arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathStep {
    /// A parameter, or a field of an object.
    Key(String),
    /// A place in a list, from 0.
    Index(usize),
}

/// One thing that is wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgumentProblem {
    /// What sort of problem, in a word that stays (`missing_argument`, `int_parsing`, …).
    pub code: &'static str,
    /// Where; empty for the arguments as a whole.
    pub path: Vec<PathStep>,
    /// What is wrong, for the model: the place, and what was expected.
    pub message: String,
    /// The value that is wrong.
    pub input: Value,
}

impl ArgumentProblem {
    /// A problem whose message begins with its place.
    #[must_use]
    pub fn at(code: &'static str, path: Vec<PathStep>, what: &str, input: Value) -> Self {
        let message = if path.is_empty() { what.to_owned() } else { format!("'{}': {what}", place(&path)) };
        Self { code, path, message, input }
    }

    fn to_value(&self) -> Value {
        let shown = text::render(&self.input);
        let input = if shown.chars().count() > MAX_SHOWN_INPUT {
            Value::String(text::elide(&shown, MAX_SHOWN_INPUT).into_owned())
        } else {
            self.input.clone()
        };
        let steps = self.path.iter().map(|it| match it {
            PathStep::Key(key) => Value::from(key.as_str()),
            PathStep::Index(idx) => Value::from(*idx),
        });
        json!({"type": self.code, "loc": steps.collect::<Value>(), "msg": self.message, "input": input})
    }
}

/// A place as people write it: `order.items[2].price`.
#[must_use]
pub fn place(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Key(key) => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(key);
            }
            PathStep::Index(idx) => drop(write!(text, "[{idx}]")),
        }
    }
    text
}

impl ToolError {
    /// Wrong arguments: `invalid_input` with each problem in `details.errors`. `tool` is the name by
    /// which the caller knows it.
    #[must_use]
    pub fn arguments(tool: &str, problems: &[ArgumentProblem]) -> Self {
        let told = problems.get(..MAX_PROBLEMS).unwrap_or(problems);
        let mut summary: Vec<_> = told.iter().map(|it| it.message.clone()).collect();
        let n_more = problems.len() - told.len();
        let mut err = Self::invalid(format!("Tool '{tool}' argument validation failed."))
            .with_detail("errors", told.iter().map(ArgumentProblem::to_value).collect::<Value>());
        if n_more > 0 {
            summary.push(format!("and {n_more} more"));
            err = err.with_detail("more", n_more);
        }
        err.with_cause(summary.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_in_code() {
        let (key, idx) = (|it: &str| PathStep::Key(it.into()), PathStep::Index);
        assert_eq!(place(&[key("order"), key("items"), idx(2), key("price")]), "order.items[2].price");
        assert_eq!(place(&[]), "");
    }

    #[test]
    fn long_values_and_long_lists_are_cut() {
        let problem = |input| ArgumentProblem::at("string_type", vec![PathStep::Key("a".into())], "is no text", input);
        let err = ToolError::arguments("t", &[problem(json!("x".repeat(1_000)))]);
        let shown = err.details["errors"][0]["input"].as_str().unwrap();
        assert!(shown.contains("[800 chars omitted]"), "{shown}");
        let err = ToolError::arguments("t", &vec![problem(json!(1)); MAX_PROBLEMS + 3]);
        assert_eq!(err.details["errors"].as_array().unwrap().len(), MAX_PROBLEMS);
        assert_eq!(err.details["more"], 3);
        assert!(err.cause().ends_with("'a': is no text; and 3 more"), "{}", err.cause());
    }
}
