use std::{error::Error as StdError, fmt, sync::Arc};

use async_nats::jetstream;
use keylatch_lease_remote::Causes;

/// The reason that an operation of the engine failed.
///
/// Its text says what failed and why, and what to do about the most common mistakes. It may contain an address or a
/// user name, never a password. The underlying error is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_nats::Error;
///
/// fn tell(error: &AcquireError<Error>) -> &'static str {
///     match error {
///         AcquireError::Busy { .. } => "another owner has it",
///         AcquireError::Engine(Error::Unconnected { .. } | Error::Timeout) => "try again in a minute",
///         _ => "it is not available",
///     }
/// }
///
/// assert_eq!(tell(&AcquireError::Engine(Error::Timeout)), "try again in a minute");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There was no connection for as long as an operation [waits](crate::Options::timeout), or JetStream did not
    /// answer on it. Nothing was changed.
    Unconnected {
        /// The reason that the last attempt to connect failed, if one was made.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The server did not answer in time. The request may have been carried out.
    Timeout,
    /// The connection broke before the server answered, or the server failed, for example because its storage is
    /// exhausted. The request may have been carried out.
    Closed,
    /// The stream is missing, or JetStream is not enabled: see [`Nats::stream`](crate::Nats::stream).
    Missing {
        /// The message of the server.
        source: Arc<jetstream::Error>,
    },
    /// The stream is configured in such a way that leases in it would not be safe.
    Unsuitable {
        /// The setting that must be changed.
        setting: &'static str,
    },
    /// The server refused the request, and changed nothing; but see the [crate's
    /// page](crate#what-weakens-which-guarantee) about an account's limit of storage.
    Refused {
        /// The message of the server.
        source: Arc<jetstream::Error>,
    },
    /// The last message of the resource, or the namespace's mark, was not written by this version of the engine.
    Foreign,
    /// The runtime of the connection has been shut down, so nothing connects to the server.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unconnected { source: None } => f.write_str("NATS: there is no connection to JetStream"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "NATS: there is no connection to JetStream: {}", Causes(source))
            }
            Error::Timeout => f.write_str("NATS: the server did not answer in time"),
            Error::Closed => f.write_str("NATS: the connection to the server broke before it answered"),
            Error::Missing { source } => write!(
                f,
                "NATS: the stream of the leases (keylatch_lease, unless the options name another) is missing, or JetStream is not enabled: \
                 create the stream once, with the configuration that Nats::stream returns ({})",
                Causes(source)
            ),
            Error::Unsuitable { setting } => write!(
                f,
                "NATS: the stream of the leases is not suitable: change its setting {setting} to the value that Nats::stream returns"
            ),
            Error::Refused { source } => write!(f, "NATS: the server refused the request: {}", Causes(source)),
            Error::Foreign => f.write_str(
                "NATS: the message of the resource, or the mark, was written by another program or version: delete it",
            ),
            Error::Stopped => f.write_str("NATS: the runtime of the connection has been shut down"),
        }
    }
}

keylatch_lease_remote::failure! { Error; sources: Missing, Refused; lasting: Missing, Unsuitable }

/// Returns the meaning of an error of JetStream.
pub(crate) fn refused(error: jetstream::Error) -> Error {
    const MISSING: [u64; 3] = [10039, 10059, 10076]; // JetStream for the account; the stream; JetStream
    const UNAVAILABLE: [u64; 3] = [10008, 10009, 10163]; // temporarily: JetStream; its leader; the order of messages
    let (code, source) = (error.error_code().0, Arc::new(error));
    if MISSING.contains(&code) {
        Error::Missing { source }
    } else if UNAVAILABLE.contains(&code) {
        Error::Unconnected { source: Some(source) }
    } else {
        Error::Refused { source }
    }
}
