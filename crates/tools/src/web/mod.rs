//! The web: fetch.
