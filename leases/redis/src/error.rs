use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Causes, Failure};
use redis::{ErrorKind, RedisError};

/// The reason that an operation of the engine failed.
///
/// Its text says what failed and why, and what to do about the most common mistakes. It may contain an address or a
/// user name, never a password. The underlying error is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_redis::Error;
///
/// fn tell(error: &AcquireError<Error>) -> String {
///     match error {
///         AcquireError::Busy { .. } => "another owner has it".into(),
///         AcquireError::Quarantined { remaining, .. } => format!("try again in {remaining:?}"),
///         AcquireError::Engine(Error::Unconnected { .. } | Error::Timeout) => "try again in a minute".into(),
///         _ => "it is not available".into(),
///     }
/// }
///
/// assert_eq!(tell(&AcquireError::Engine(Error::Timeout)), "try again in a minute");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There was no connection for as long as an operation [waits](crate::Options::timeout), and nothing was sent. Or
    /// the connection was lost while the request was under way together with others: then it may have been carried out.
    Unconnected {
        /// The reason that the last attempt to connect failed, if one was made.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The server did not answer in time. The request may have been carried out.
    Timeout,
    /// The connection broke before the server answered. The request may have been carried out.
    Closed {
        /// The error of the connection.
        source: Arc<RedisError>,
    },
    /// The server would evict leases when it runs out of memory: if it has a `maxmemory`, its `maxmemory-policy` must
    /// be `noeviction`, or one whose name begins with `volatile`. Each new connection checks that.
    Evicts {
        /// The policy of the server.
        policy: String,
    },
    /// The server does not let this user in, or the user lacks a right.
    /// Operations fail at once, without waiting for another connection, while the driver keeps trying to connect.
    Denied {
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// The server refused the command, and changed nothing.
    Refused {
        /// The message of the server.
        source: Arc<RedisError>,
    },
    /// The driver has been dropped, so nothing connects to the server.
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
                "Redis: the server would evict leases: set its maxmemory-policy to noeviction (it is {policy})"
            ),
            Error::Denied { source } => write!(
                f,
                "Redis: the server does not let this user in, or the user lacks a right: {} (the rights that a user needs are listed on \
                 the page of keylatch-lease-redis)",
                told(source)
            ),
            Error::Refused { source } => write!(f, "Redis: the server refused the command: {}", told(source)),
            Error::Stopped => f.write_str("Redis: the driver of the connection has been dropped"),
        }
    }
}

/// Returns the message of the server, with its code.
fn told(error: &RedisError) -> String {
    let text = Causes(error).to_string();
    match error.code() {
        Some(code) if !text.contains(code) => format!("{code}: {text}"),
        _ => text,
    }
}

keylatch_lease_remote::failure! { Error; sources: Closed, Denied, Refused; lasting: Evicts, Denied }

/// Decides whether a failed request may have been carried out. Each operation is one script, which changes nothing if
/// it fails, so a request that the server refuses was not carried out. Any other failure ends the connection, and may
/// have happened between the script and its answer.
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

/// Returns whether the error lasts until a password or a right is changed.
fn is_denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| ["NOPERM", "NOAUTH", "WRONGPASS"].contains(&code))
}

/// Returns the reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<RedisError>() {
        Ok(error) if is_denied(&error) => Error::Denied { source: Arc::new(*error) },
        Ok(error) => Error::unconnected(Some(error)),
        Err(error) => Error::unconnected(Some(error)),
    }
}
