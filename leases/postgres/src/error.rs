use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Causes, Failure};
use tokio_postgres::error::{Severity, SqlState};

/// The reason that an operation of the engine failed.
///
/// Its text says what failed and why, and what to do about the most common mistakes. It may contain an address, a
/// database or a user name, never a password. The underlying error is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_postgres::Error;
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
        source: Arc<tokio_postgres::Error>,
    },
    /// The table or its functions are missing, or the connection's `search_path` does not contain their schema: see
    /// [`Postgres::create_table`](crate::Postgres::create_table).
    Missing {
        /// The message of the server.
        source: Arc<tokio_postgres::Error>,
    },
    /// The server does not let this user in, or the user lacks a right: a wrong password, a role that may not log in,
    /// no line in `pg_hba.conf`, no such database, a missing right. Operations fail at once, without waiting for
    /// another connection, while the driver keeps trying to connect.
    Denied {
        /// The message of the server.
        source: Arc<tokio_postgres::Error>,
    },
    /// A pooler in front of the server gives each transaction any session that is free, as PgBouncer does in
    /// transaction or statement mode, and the engine was not made for that ([`Options::without_session`]). Operations
    /// fail at once, while the driver keeps trying to connect. See [the crate's page](crate#poolers).
    ///
    /// [`Options::without_session`]: crate::Options::without_session
    Pooled,
    /// The server refused the statement, and changed nothing.
    Refused {
        /// The message of the server.
        source: Arc<tokio_postgres::Error>,
    },
    /// The lease cannot end, because a transaction that it [guards](crate::Postgres::guard) is open.
    Guarded,
    /// The driver has been dropped, so nothing connects to the database.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unconnected { source: None } => f.write_str("Postgres: there is no connection to the database"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "Postgres: there is no connection to the database: {}", Causes(source))
            }
            Error::Timeout => f.write_str("Postgres: the database did not answer in time"),
            Error::Closed { source } => {
                write!(f, "Postgres: the connection broke before the database answered: {}", Causes(source))
            }
            Error::Missing { source } => write!(
                f,
                "Postgres: the table keylatch_lease or its functions are missing: run the statements of keylatch_lease_postgres::SCHEMA \
                 once in this database, or correct the search_path of the connection ({})",
                told(source)
            ),
            Error::Denied { source } => write!(
                f,
                "Postgres: the database does not let this user in, or the user lacks a right: {} (the rights that a user needs are listed on \
                 the page of keylatch-lease-postgres)",
                told(source)
            ),
            Error::Pooled => f.write_str(
                "Postgres: a pooler shares the sessions of the database among its clients, as PgBouncer does in transaction mode: connect to \
                 the database itself or to a pool in session mode, or use Options::without_session",
            ),
            Error::Refused { source } => write!(f, "Postgres: the database refused the statement: {}", told(source)),
            Error::Guarded => f.write_str("Postgres: the lease cannot end while a transaction that it guards is open: end the transaction first"),
            Error::Stopped => f.write_str("Postgres: the driver of the connection has been dropped"),
        }
    }
}

/// Returns the message of the database, with its code.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("{told}, SQLSTATE {}", told.code().code()),
        None => Causes(error).to_string(),
    }
}

keylatch_lease_remote::failure! { Error; sources: Closed, Missing, Denied, Refused; lasting: Missing, Denied, Pooled }

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failed<E = tokio_postgres::Error> {
    pub(crate) error: E,
    /// Whether the request may have been carried out, whatever the error says.
    pub(crate) may_be_done: bool,
}

impl<E> From<E> for Failed<E> {
    fn from(error: E) -> Self {
        Failed { error, may_be_done: false }
    }
}

/// The meaning of an error for the request.
pub(crate) enum Verdict {
    /// The request was not carried out, and may well succeed if it is sent again.
    Again(Error),
    /// The request failed.
    Failed(Fail<Error>),
}

/// Decides whether a failed request may have been carried out.
pub(crate) fn judge(Failed { error, may_be_done }: Failed) -> Verdict {
    match meaning(error) {
        Verdict::Again(error) | Verdict::Failed(Fail::NotDone(error)) if may_be_done => {
            Verdict::Failed(Fail::Unknown(error))
        }
        verdict => verdict,
    }
}

/// Returns the meaning of an error. Each operation is one transaction, so an ERROR means that it was rolled back. Any
/// other failure ends the connection, and may have happened between the commit and the answer. The same is true of an
/// error of class 08, with which a pooler reports that it has lost its connection.
fn meaning(error: tokio_postgres::Error) -> Verdict {
    let Some(told) = error.as_db_error() else {
        // A value could not be sent or read, or the connection is gone.
        return Verdict::Failed(Fail::Unknown(Error::Closed { source: Arc::new(error) }));
    };
    if told.parsed_severity() != Some(Severity::Error) || told.code().code().starts_with("08") {
        return Verdict::Failed(Fail::Unknown(Error::Closed { source: Arc::new(error) }));
    }
    let code = told.code().clone();
    if is_pooled(&code) {
        return Verdict::Failed(Fail::NotDone(Error::Pooled));
    }
    let (is_missing, is_denied) = (is_missing(&code), is_denied(&code));
    let source = Arc::new(error);
    if code == SqlState::T_R_SERIALIZATION_FAILURE || code == SqlState::T_R_DEADLOCK_DETECTED {
        Verdict::Again(Error::Refused { source })
    } else if code == SqlState::QUERY_CANCELED {
        Verdict::Failed(Fail::NotDone(Error::Timeout))
    } else if is_missing {
        Verdict::Failed(Fail::NotDone(Error::Missing { source }))
    } else if is_denied {
        Verdict::Failed(Fail::NotDone(Error::Denied { source }))
    } else {
        Verdict::Failed(Fail::NotDone(Error::Refused { source }))
    }
}

fn is_missing(code: &SqlState) -> bool {
    [&SqlState::UNDEFINED_TABLE, &SqlState::UNDEFINED_FUNCTION, &SqlState::UNDEFINED_COLUMN].contains(&code)
}

/// Returns whether the error lasts until a password, a right, or the connection string is changed: class 28 (invalid
/// authorization), no such database, no right.
fn is_denied(code: &SqlState) -> bool {
    code.code().starts_with("28")
        || [&SqlState::INVALID_CATALOG_NAME, &SqlState::INSUFFICIENT_PRIVILEGE].contains(&code)
}

/// Returns whether a prepared statement is missing, or its name is taken by another one: then the session is not the
/// one in which it was prepared.
pub(crate) fn is_pooled(code: &SqlState) -> bool {
    [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT].contains(&code)
}

/// Returns the reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<tokio_postgres::Error>() {
        Ok(error) if error.code().is_some_and(is_missing) => Error::Missing { source: Arc::new(*error) },
        Ok(error) if error.code().is_some_and(is_pooled) => Error::Pooled,
        Ok(error) if error.code().is_some_and(is_denied) => Error::Denied { source: Arc::new(*error) },
        Ok(error) => Error::unconnected(Some(error)),
        Err(error) => Error::unconnected(Some(error)),
    }
}
