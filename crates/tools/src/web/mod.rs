//! The web: fetch.

mod body;
mod clients;
mod fetch;
mod guard;
mod headers;
mod markdown;
mod settings;

pub use fetch::{FetchArgs, WebFetch, WebFetchResult};
pub use settings::{PrivateAddresses, RenderHtml, WebSettings};
