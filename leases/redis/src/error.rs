use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Failure};
use redis::RedisError;

/// Why the engine could not do what it was asked.
///
/// Its text names no address, user or password, so it may be shown. What is behind it is its [`source`](StdError::source), which may
/// name them.
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_redis::Error;
///
/// fn tell(error: &AcquireError<Error>) -> String {
///     match error {
///         AcquireError::Busy { .. } => "somebody else has it".into(),
///         AcquireError::Quarantined { remaining, .. } => format!("try again in {remaining:?}"),
///         AcquireError::Engine(Error::Unconnected { .. } | Error::Timeout) => "try again in a minute".into(),
///         _ => "it cannot be had".into(),
///     }
/// }
///
/// assert_eq!(tell(&AcquireError::Engine(Error::Timeout)), "try again in a minute");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There was no connection for as long as an operation [waits](crate::Options::timeout). Nothing was sent.
    Unconnected {
        /// How the last attempt to connect failed, if one did.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// There was no answer in time.
    Timeout,
    /// The connection broke before there was an answer.
    Closed {
        /// How.
        source: Arc<RedisError>,
    },
    /// The server would throw leases away when it is short of memory: its `maxmemory-policy` must be `noeviction`, or one of those whose
    /// name begins with `volatile`. It is looked at with each new connection.
    Evicts {
        /// What it is.
        policy: String,
    },
    /// The server has refused the command, and changed nothing.
    Refused {
        /// What it says.
        source: Arc<RedisError>,
    },
    /// The driver has been dropped: nobody connects any more.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Unconnected { .. } => "there is no connection to the server",
            Error::Timeout => "the server did not answer in time",
            Error::Closed { .. } => "the connection to the server broke before it answered",
            Error::Evicts { policy } => {
                return write!(f, "the server would throw leases away: its maxmemory-policy is {policy}");
            }
            Error::Refused { source } => {
                return write!(f, "the server refused the command: {}", source.code().unwrap_or("ERR"));
            }
            Error::Stopped => "the driver of the connection has been dropped",
        })
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unconnected { source } => source.as_ref().map(|source| &**source as _),
            Error::Closed { source } | Error::Refused { source } => Some(&**source),
            Error::Timeout | Error::Evicts { .. } | Error::Stopped => None,
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
        matches!(self, Error::Evicts { .. })
    }
}

/// Each operation is one script, which changes nothing if it fails: so what the server says no to has not been done. Anything that ends
/// the connection may have come between the script and its answer.
pub(crate) fn judge(error: RedisError) -> Fail<Error> {
    let is_refused = error.code().is_some();
    let source = Arc::new(error);
    if is_refused { Fail::NotDone(Error::Refused { source }) } else { Fail::Unknown(Error::Closed { source }) }
}
