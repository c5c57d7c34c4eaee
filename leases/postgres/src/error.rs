use std::{error::Error as StdError, fmt, sync::Arc};

use keylatch_lease::engine::Fail;
use keylatch_lease_remote::{BoxError, Causes, Failure};
use tokio_postgres::error::{Severity, SqlState};

/// Why the engine could not do what it was asked.
///
/// Its text says what failed, why, and what to do about the commonest mistakes. It may name an address, a database or a user, never a
/// password. What is behind it is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease::AcquireError;
/// use keylatch_lease_postgres::Error;
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
        source: Arc<tokio_postgres::Error>,
    },
    /// The table or its functions are missing, or the connection's `search_path` does not lead to them: see
    /// [`Postgres::create_table`](crate::Postgres::create_table).
    Missing {
        /// The message of the server.
        source: Arc<tokio_postgres::Error>,
    },
    /// The server does not let this user in, or do what it has to: a wrong password, a role that may not log in, no line in `pg_hba.conf`, no
    /// such database, a missing right. Operations fail at once, without waiting for a better connection; one is still tried for, again
    /// and again.
    Denied {
        /// The message of the server.
        source: Arc<tokio_postgres::Error>,
    },
    /// Something between this program and the server gives each transaction whatever session is free: PgBouncer in transaction or statement
    /// mode. Operations fail at once; a connection is still tried for, again and again. See [the crate's page](crate#poolers).
    Pooled,
    /// The server has refused the statement, and changed nothing.
    Refused {
        /// What it says.
        source: Arc<tokio_postgres::Error>,
    },
    /// The lease cannot end while a transaction is open that is [guarded](crate::Postgres::guard) by it.
    Guarded,
    /// The driver has been dropped: nobody connects any more.
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
                "Postgres: the table keylatch_lease or its functions are missing: run the statements of Postgres::SCHEMA once in this \
                 database, or look at the search_path of the connection ({})",
                told(source)
            ),
            Error::Denied { source } => write!(
                f,
                "Postgres: the database does not let this user in, or lacks a right for it: {} (the rights are listed on the page of \
                 keylatch-lease-postgres)",
                told(source)
            ),
            Error::Pooled => f.write_str(
                "Postgres: a pooler shares the sessions of the database among its clients, as PgBouncer does in transaction mode: connect to \
                 the database itself, or to a pool in session mode",
            ),
            Error::Refused { source } => write!(f, "Postgres: the database refused the statement: {}", told(source)),
            Error::Guarded => f.write_str("Postgres: a transaction is open that is guarded by the lease"),
            Error::Stopped => f.write_str("Postgres: the driver of the connection has been dropped"),
        }
    }
}

/// The message of the database, with its code.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("{told}, SQLSTATE {}", told.code().code()),
        None => Causes(error).to_string(),
    }
}

keylatch_lease_remote::failure! { Error; sources: Closed, Missing, Denied, Refused; lasting: Missing, Denied, Pooled }

/// The meaning of an error for the request.
pub(crate) enum Verdict {
    /// Nothing was done, and the same may well be done if it is asked again.
    Again(Error),
    Failed(Fail<Error>),
}

/// Each operation is one statement that commits by itself. So an ERROR is a rollback: it has not been done. Anything that ends the
/// connection may have come between the commit and the answer.
pub(crate) fn judge(error: tokio_postgres::Error) -> Verdict {
    let Some(told) = error.as_db_error() else {
        // A value that cannot be sent or read, or a connection that is gone.
        return Verdict::Failed(Fail::Unknown(Error::Closed { source: Arc::new(error) }));
    };
    if told.parsed_severity() != Some(Severity::Error) {
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

/// Whether it stays so until somebody changes a password, a right, or the connection string: class 28 (invalid authorization), no such
/// database, no right.
fn is_denied(code: &SqlState) -> bool {
    code.code().starts_with("28")
        || [&SqlState::INVALID_CATALOG_NAME, &SqlState::INSUFFICIENT_PRIVILEGE].contains(&code)
}

/// Whether a prepared statement is not there, or one that is not ours is: the session is not the one in which it was prepared.
pub(crate) fn is_pooled(code: &SqlState) -> bool {
    [&SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::DUPLICATE_PSTATEMENT].contains(&code)
}

/// The reason that a connection cannot be used.
pub(crate) fn unusable(error: BoxError) -> Error {
    match error.downcast::<tokio_postgres::Error>() {
        Ok(error) if error.code().is_some_and(is_missing) => Error::Missing { source: Arc::new(*error) },
        Ok(error) if error.code().is_some_and(is_pooled) => Error::Pooled,
        Ok(error) if error.code().is_some_and(is_denied) => Error::Denied { source: Arc::new(*error) },
        Ok(error) => Error::unconnected(Some(error)),
        Err(error) => Error::unconnected(Some(error)),
    }
}
