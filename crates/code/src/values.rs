//! What may pass between code and tools: JSON, within limits that both runners share.
//!
//! - Lists and objects nest at most [`MAX_DEPTH`] levels; deeper ones are refused, never cut.
//! - Integers are those of 64 bits, signed or not. Others are refused rather than rounded: a tool takes
//!   them as text.
//! - Floats come back bit for bit. NaN and the infinities are refused.
//! - Text is Unicode. A lone half of a surrogate pair is refused in a value, and printed as `\udxxx`.
//! - What cannot pass raises a `TypeError` in the code, at the call.
//! - Sets and tuples arrive as lists; keys that are numbers, booleans or none arrive as text.

use serde_json::{Number, Value};

/// How deep lists and objects may nest. JSON readers of all kinds manage as much.
pub const MAX_DEPTH: usize = 100;

/// The most bytes of one call's arguments, and of its result, written as JSON.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// Why a value cannot pass.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Lists in lists in lists.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// An integer that is not of 64 bits.
    #[error("integer {0} does not fit into 64 bits, pass it as text")]
    Integer(String),
    /// NaN or an infinity.
    #[error("{0} is not a JSON number")]
    Float(String),
    /// More bytes than [`MAX_VALUE_BYTES`].
    #[error("larger than {MAX_VALUE_BYTES} bytes as JSON")]
    TooLarge,
}

/// Whether `value` nests within the limit.
///
/// # Errors
/// [`ValueError::TooDeep`].
pub fn check_depth(value: &Value) -> Result<(), ValueError> {
    if fits(value, MAX_DEPTH) { Ok(()) } else { Err(ValueError::TooDeep) }
}

/// A float as JSON.
///
/// # Errors
/// [`ValueError::Float`] for NaN and the infinities, named as Python does.
pub fn float(value: f64) -> Result<Value, ValueError> {
    Number::from_f64(value).map(Value::Number).ok_or_else(|| {
        let name = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        ValueError::Float(name.to_owned())
    })
}

/// The call itself goes at most `levels` deep.
fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => false,
        Value::Array(items) => items.iter().all(|it| fits(it, levels - 1)),
        Value::Object(fields) => fields.values().all(|it| fits(it, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        assert_eq!(check_depth(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check_depth(&nested(MAX_DEPTH + 1)), Err(ValueError::TooDeep));
        assert_eq!(check_depth(&nested(1000)), Err(ValueError::TooDeep));
    }

    #[test]
    fn floats_come_back_bit_for_bit() {
        for it in [0.1, 1.0 / 3.0, 2.638_344_616_030_823e-256, 5e-324, f64::MAX, -0.0, 1e22] {
            let text = float(it).unwrap().to_string();
            let back: f64 = serde_json::from_str(&text).unwrap();
            assert_eq!(back.to_bits(), it.to_bits(), "{text}");
        }
        assert_eq!(float(f64::NAN).unwrap_err().to_string(), "nan is not a JSON number");
        assert_eq!(float(f64::NEG_INFINITY).unwrap_err().to_string(), "-inf is not a JSON number");
    }
}
