use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease_remote::{BoxError, Causes, Failure};

use crate::client::{ClientError, OLD_REVISION};

/// Why the engine could not do what it was asked.
///
/// Its text says what failed, why, and what to do about the commonest mistakes. It may name an address or a user, never a password. What
/// is behind it is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_etcd::Error;
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
    /// There was no connection to a node with a leader for as long as an operation [waits](crate::Options::timeout).
    Unconnected {
        /// How the last attempt to connect failed, if one did.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// There was no answer in time.
    Timeout,
    /// The connection broke, or the node lost its cluster, before there was an answer.
    Closed {
        /// How.
        source: Arc<ClientError>,
    },
    /// etcd has refused the request, for want of permission for example, and nothing was changed. For want of space it says the same, and what
    /// was asked may have been done.
    Refused {
        /// What it says.
        source: Arc<ClientError>,
    },
    /// Something else is stored where the lease would be.
    Unreadable,
    /// The driver has been dropped: nobody connects any more.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unconnected { source: None } => f.write_str("etcd: there is no connection"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "etcd: there is no connection: {}", Causes(source))
            }
            Error::Timeout => f.write_str("etcd: there was no answer in time"),
            Error::Closed { source } => {
                write!(f, "etcd: the connection broke before there was an answer: {}", Causes(source))
            }
            Error::Refused { source } => write!(
                f,
                "etcd: the request was refused: {} (the rights that a user needs are listed on the page of keylatch-lease-etcd)",
                Causes(source)
            ),
            Error::Unreadable => f.write_str("etcd: what is stored in the place of the lease is none"),
            Error::Stopped => f.write_str("etcd: the driver of the connection has been dropped"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unconnected { source } => source.as_ref().map(|source| &**source as _),
            Error::Closed { source } | Error::Refused { source } => Some(&**source),
            Error::Timeout | Error::Unreadable | Error::Stopped => None,
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
        matches!(self, Error::Refused { .. })
    }
}

/// The meaning of an error for the request.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is of no use any more. What was asked may have been done.
    Broken(Error),
    /// Nothing was done.
    Refused(Error),
    /// There is no space. etcd says so also of what it has just done.
    Full(Error),
    /// There is no such etcd lease, or not yet, and nothing was done.
    NoLease,
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        const NOT_FOUND: i32 = 5;
        const EXHAUSTED: i32 = 8;
        /// Of several things etcd says that they are exhausted. Where it is not space, it is said before anything is done.
        const NO_SPACE: &str = "database space exceeded";
        /// Invalid argument, already exists, permission denied, failed precondition, out of range, unimplemented: all of them found before
        /// anything is done.
        const REFUSED: [i32; 7] = [3, 6, 7, EXHAUSTED, 9, 11, 12];

        match error.code() {
            // Users or roles have changed: another connection logs in again.
            Some(_) if error.message().contains(OLD_REVISION) => {
                Trouble::Broken(Error::Closed { source: Arc::new(error) })
            }
            Some(NOT_FOUND) => Trouble::NoLease,
            Some(EXHAUSTED) if error.message().contains(NO_SPACE) => {
                Trouble::Full(Error::Refused { source: Arc::new(error) })
            }
            Some(code) if REFUSED.contains(&code) => Trouble::Refused(Error::Refused { source: Arc::new(error) }),
            _ => Trouble::Broken(Error::Closed { source: Arc::new(error) }),
        }
    }
}

/// The reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<ClientError>() {
        Ok(error) => match Trouble::from(*error) {
            Trouble::Broken(Error::Closed { source }) => Error::Unconnected { source: Some(source) },
            Trouble::Broken(error) | Trouble::Refused(error) | Trouble::Full(error) => error,
            Trouble::NoLease => Error::unconnected(None),
        },
        Err(error) => Error::unconnected(Some(error)),
    }
}
