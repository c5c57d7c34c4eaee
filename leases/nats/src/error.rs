use std::{error::Error as StdError, fmt, sync::Arc};

use async_nats::jetstream;
use keylatch_lease_remote::Causes;

/// Why the engine could not do what it was asked.
///
/// Its text says what failed, why, and what to do about the commonest mistakes. It may name an address or a user, never a password. What
/// is behind it is its [`source`](StdError::source).
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
        /// The message of the server.
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
                 make the stream once, with the configuration that Nats::stream gives ({})",
                Causes(source)
            ),
            Error::Unsuitable { setting } => write!(
                f,
                "NATS: the stream of the leases is not suitable: change its setting {setting} to that which Nats::stream gives"
            ),
            Error::Refused { source } => write!(f, "NATS: the server refused it: {}", Causes(source)),
            Error::Foreign => f.write_str("NATS: the stream has a message for the resource that is not a lease"),
            Error::Stopped => f.write_str("NATS: the runtime of the connection is gone"),
        }
    }
}

keylatch_lease_remote::failure! { Error; sources: Missing, Refused; lasting: Missing, Unsuitable }

/// Returns the meaning of an error of JetStream.
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
