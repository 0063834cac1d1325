//! Logging in: what is asked of a service once, so that it gives credentials that are then kept.

mod callback;
pub(crate) mod github;
pub(crate) mod openrouter;

use std::{fmt, io, path::PathBuf};

/// Why a login came to nothing. It holds no code and no token.
#[derive(Debug)]
pub enum LoginError {
    /// The person, or the service for them, said no.
    Denied,
    /// It took too long.
    Expired,
    /// What came back belongs to another login.
    Foreign,
    /// What was typed is neither a code nor an address with one.
    NoCode,
    /// The service refused, or said something else than it should.
    Refused(String),
    /// The service could not be reached.
    Unreachable(String),
    /// No port could be opened for the browser to come back to.
    Listen(io::Error),
    /// The login can't be kept.
    Keep {
        /// In which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("it was denied"),
            Self::Expired => f.write_str("nobody allowed it in time"),
            Self::Foreign => f.write_str("this address belongs to another login; use the one that was shown last"),
            Self::NoCode => f.write_str("this is no code, and no address with one"),
            Self::Refused(what) => f.write_str(what),
            Self::Unreachable(what) => write!(f, "{what}; check the network and the proxy variables"),
            Self::Listen(err) => write!(f, "no port on this machine can be opened: {err}"),
            Self::Keep { path, source } => write!(f, "it can't be kept in {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for LoginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(source) | Self::Keep { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Whether a text can be a code or a token: neither blanks nor line breaks, nor anything but ASCII.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic())
}
