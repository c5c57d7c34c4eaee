use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Causes, Failure};
use redis::{ErrorKind, RedisError};

/// Why the engine could not do what it was asked.
///
/// Its text says what failed, why, and what to do about the commonest mistakes. It may name an address or a user, never a password. What
/// is behind it is its [`source`](StdError::source).
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
    /// The server does not let this user in, or do what it has to: a wrong password, or a missing right. Operations fail at once, without
    /// waiting for a better connection; one is still tried for, again and again.
    Denied {
        /// The message of the server.
        source: Arc<RedisError>,
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
        match self {
            Error::Unconnected { source: None } => f.write_str("Redis: there is no connection to the server"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "Redis: there is no connection to the server: {}", Causes(source))
            }
            Error::Timeout => f.write_str("Redis: the server did not answer in time"),
            Error::Closed { source } => {
                write!(f, "Redis: the connection broke before the server answered: {}", Causes(source))
            }
            Error::Evicts { policy } => write!(
                f,
                "Redis: the server would throw leases away: set its maxmemory-policy to noeviction (it is {policy})"
            ),
            Error::Denied { source } => write!(
                f,
                "Redis: the server does not let this user in, or lacks a right for it: {} (the rights are listed on the page of \
                 keylatch-lease-redis)",
                told(source)
            ),
            Error::Refused { source } => write!(f, "Redis: the server refused the command: {}", told(source)),
            Error::Stopped => f.write_str("Redis: the driver of the connection has been dropped"),
        }
    }
}

/// The message of the server, with its code.
fn told(error: &RedisError) -> String {
    let text = Causes(error).to_string();
    match error.code() {
        Some(code) if !text.contains(code) => format!("{code}: {text}"),
        _ => text,
    }
}

keylatch_lease_remote::failure! { Error; sources: Closed, Denied, Refused; lasting: Evicts, Denied }

/// Each operation is one script, which changes nothing if it fails: so what the server says no to has not been done. Anything that ends
/// the connection may have come between the script and its answer.
pub(crate) fn judge(error: RedisError) -> Fail<Error> {
    let (is_denied, is_refused) = (is_denied(&error), error.code().is_some());
    let source = Arc::new(error);
    if is_denied {
        Fail::NotDone(Error::Denied { source })
    } else if is_refused {
        Fail::NotDone(Error::Refused { source })
    } else {
        Fail::Unknown(Error::Closed { source })
    }
}

/// Whether it stays so until somebody changes a password or a right.
fn is_denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| ["NOPERM", "NOAUTH", "WRONGPASS"].contains(&code))
}

/// The reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<RedisError>() {
        Ok(error) if is_denied(&error) => Error::Denied { source: Arc::new(*error) },
        Ok(error) => Error::unconnected(Some(error)),
        Err(error) => Error::unconnected(Some(error)),
    }
}
