//! Headers of a request.

use std::collections::BTreeMap;

use bub_kernel::error::ToolError;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// What is asked for unless the caller says otherwise.
const ACCEPT: HeaderValue = HeaderValue::from_static("text/markdown");
/// Headers that belong to the connection, which is not the caller's.
const OURS: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers that may follow a redirect to another host. All others may be secrets of the first one,
/// whatever their names are.
const HARMLESS: [HeaderName; 5] =
    [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CACHE_CONTROL, header::RANGE, header::USER_AGENT];

/// The caller's headers with our defaults. Values that are no strings are taken as their text.
pub(super) fn request(given: &BTreeMap<String, Value>) -> Result<HeaderMap, ToolError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, ACCEPT);
    for (name, value) in given {
        let invalid = |why: &str| ToolError::invalid(format!("header '{}': {why}", name.escape_debug()));
        let header = HeaderName::try_from(name.as_str()).map_err(|_| invalid("this is no name of a header"))?;
        if OURS.contains(&header) {
            return Err(invalid("this one can't be set"));
        }
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) | Value::Object(_) => return Err(invalid("its value must be a string")),
        };
        let value =
            HeaderValue::from_str(&text).map_err(|_| invalid("its value has characters that headers can't have"))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

/// What is left of the headers for another host.
pub(super) fn for_other_host(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| HARMLESS.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
