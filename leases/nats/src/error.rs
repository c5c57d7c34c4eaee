use std::{error::Error as StdError, fmt, sync::Arc};

use async_nats::jetstream;
use keylatch_lease_remote::{BoxError, Failure};

/// Why the engine could not do what it was asked.
///
/// Its text names no address, user or password, so it may be shown. What is behind it is its [`source`](StdError::source), which may
/// name them.
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_nats::Error;
///
/// fn tell(error: &AcquireError<Error>) -> &'static str {
///     match error {
///         AcquireError::Busy { .. } => "somebody else has it",
///         AcquireError::Engine(Error::Unconnected { .. } | Error::Timeout) => "try again in a minute",
///         _ => "it cannot be had",
///     }
/// }
///
/// assert_eq!(tell(&AcquireError::Engine(Error::Timeout)), "try again in a minute");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There was no connection for as long as an operation [waits](crate::Options::timeout), or JetStream did not answer on it. Nothing was sent.
    Unconnected {
        /// How the last attempt to connect failed, if one did.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// There was no answer in time.
    Timeout,
    /// The connection broke before there was an answer; or the server failed, perhaps half-way, as when its storage is exhausted.
    Closed,
    /// There is no such stream, or no JetStream: see [`Nats::stream`](crate::Nats::stream).
    Missing {
        /// What the server says.
        source: Arc<jetstream::Error>,
    },
    /// The stream is set up so that leases would not be safe in it.
    Unsuitable {
        /// The setting that must be another.
        setting: &'static str,
    },
    /// The server has refused it, and changed nothing; but see the [crate's page](crate#what-weakens-which-guarantee) of an account's limit of storage.
    Refused {
        /// What it says.
        source: Arc<jetstream::Error>,
    },
    /// There is a message of the resource, or of the namespace, in the stream that was not written by this crate, or by another version of it.
    Foreign,
    /// The runtime of the connection is gone: nobody connects any more.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Unconnected { .. } => "there is no connection to JetStream",
            Error::Timeout => "the server did not answer in time",
            Error::Closed => "the connection to the server broke before it answered",
            Error::Missing { .. } => "the stream of the leases is missing, or JetStream is not enabled",
            Error::Unsuitable { setting } => {
                return write!(f, "the stream of the leases is not suitable: its setting {setting} must be another");
            }
            Error::Refused { source } => {
                return write!(f, "the server refused it: JetStream's error {}", source.error_code().0);
            }
            Error::Foreign => "the stream has a message for the resource that is not a lease",
            Error::Stopped => "the runtime of the connection is gone",
        })
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unconnected { source } => source.as_ref().map(|source| &**source as _),
            Error::Missing { source } | Error::Refused { source } => Some(&**source),
            Error::Timeout | Error::Closed | Error::Unsuitable { .. } | Error::Foreign | Error::Stopped => None,
        }
    }
}

impl Failure for Error {
    fn unconnected(cause: Option<BoxError>) -> Self {
        Error::Unconnected { source: cause.map(Arc::from) }
    }

    fn timeout() -> Self {
        Error::Timeout
    }

    fn stopped() -> Self {
        Error::Stopped
    }

    fn is_lasting(&self) -> bool {
        matches!(self, Error::Missing { .. } | Error::Unsuitable { .. })
    }
}

/// What an error of JetStream means.
pub(crate) fn refused(error: jetstream::Error) -> Error {
    const MISSING: [u64; 3] = [10039, 10059, 10076]; // JetStream for the account, the stream, JetStream
    const UNAVAILABLE: [u64; 3] = [10008, 10009, 10163]; // for now: JetStream, its leader, the order of messages
    let (code, source) = (error.error_code().0, Arc::new(error));
    if MISSING.contains(&code) {
        Error::Missing { source }
    } else if UNAVAILABLE.contains(&code) {
        Error::Unconnected { source: Some(source) }
    } else {
        Error::Refused { source }
    }
}
