//! The tape: info, search, anchors, handoff, reset.

mod anchors;
mod handoff;
mod info;
mod reset;
mod search;

use bub_kernel::{error::ToolError, tape::TapeError};

pub use anchors::{TapeAnchors, TapeAnchorsResult};
pub use handoff::{TapeHandoff, TapeHandoffResult};
pub use info::{TapeInfo, TapeInfoResult, TokenUse};
pub use reset::{TapeReset, TapeResetResult};
pub use search::{TapeMatch, TapeSearch, TapeSearchResult};

/// What the model reads when the tape fails.
pub(crate) fn failed(err: TapeError) -> ToolError {
    let text = err.to_string();
    match err {
        TapeError::NoAnchors | TapeError::NoAnchor(_) | TapeError::NoSidecar(_) => ToolError::not_found(text),
        TapeError::InvalidDate(_) => ToolError::invalid(text),
        other => ToolError::raised("TapeError", text).with_source(other),
    }
}
