use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease_remote::{BoxError, Causes, Failure};

use crate::client::{ClientError, OLD_REVISION};

/// The reason that an operation of the engine failed.
///
/// Its text says what failed and why, and what to do about the most common mistakes. It may contain an address or a
/// user name, never a password. The underlying error is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_etcd::Error;
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
    /// There was no connection to a node with a leader for as long as an operation [waits](crate::Options::timeout).
    Unconnected {
        /// The reason that the last attempt to connect failed, if one was made.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// etcd did not answer in time. The request may have been carried out.
    Timeout,
    /// The connection broke, or the node lost its cluster, before etcd answered. The request may have been carried out.
    Closed {
        /// The error of the connection.
        source: Arc<ClientError>,
    },
    /// etcd refused the request, for example because a permission is missing. Nothing was changed; but if etcd is out
    /// of space, the request may have been carried out.
    Refused {
        /// etcd's answer.
        source: Arc<ClientError>,
    },
    /// The keys of the lease, or the namespace's mark, are not as this engine writes them; for example, one was deleted
    /// or written by hand.
    Unreadable,
    /// The driver has been dropped, so nothing connects to etcd.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unconnected { source: None } => f.write_str("etcd: there is no connection to the cluster"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "etcd: there is no connection to the cluster: {}", Causes(source))
            }
            Error::Timeout => f.write_str("etcd: the cluster did not answer in time"),
            Error::Closed { source } => {
                write!(f, "etcd: the connection broke before the cluster answered: {}", Causes(source))
            }
            Error::Refused { source } => write!(
                f,
                "etcd: the cluster refused the request: {} (the rights that a user needs are listed on the page of keylatch-lease-etcd)",
                Causes(source)
            ),
            Error::Unreadable => {
                f.write_str("etcd: the keys of the lease, or the mark, were changed by another program: delete them")
            }
            Error::Stopped => f.write_str("etcd: the driver of the connection has been dropped"),
        }
    }
}

keylatch_lease_remote::failure! { Error; sources: Closed, Refused; lasting: Refused }

/// The meaning of an error for the request.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The connection is unusable. The request may have been carried out.
    Broken(Error),
    /// The request was not carried out.
    Refused(Error),
    /// etcd has no space left. It may also answer this after it has carried out the request.
    Full(Error),
    /// The etcd lease does not exist, or does not exist yet, or a new leader does not count its time yet. The request
    /// was not carried out.
    NoLease,
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        const NOT_FOUND: i32 = 5;
        const EXHAUSTED: i32 = 8;
        /// The message for exhausted space. etcd uses the code for other exhausted resources too, but then it has
        /// carried out nothing.
        const NO_SPACE: &str = "database space exceeded";
        /// Invalid argument, already exists, permission denied, a resource other than space exhausted, failed
        /// precondition, out of range, unimplemented: etcd detects all of them before it carries out anything.
        const REFUSED: [i32; 7] = [3, 6, 7, EXHAUSTED, 9, 11, 12];

        match error.code() {
            // Users or roles have changed: the next connection logs in again.
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

impl Trouble {
    /// Returns the reason that the connection cannot be used.
    pub(crate) fn into_unusable(self) -> Error {
        match self {
            Trouble::Broken(Error::Closed { source }) => Error::Unconnected { source: Some(source) },
            Trouble::Broken(error) | Trouble::Refused(error) | Trouble::Full(error) => error,
            Trouble::NoLease => Error::unconnected(None),
        }
    }
}

/// Returns the reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<ClientError>() {
        Ok(error) => Trouble::from(*error).into_unusable(),
        Err(error) => Error::unconnected(Some(error)),
    }
}
