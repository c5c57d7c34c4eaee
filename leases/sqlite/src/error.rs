use std::{error::Error as StdError, fmt, path::PathBuf, sync::Arc};

use keylatch_lease_remote::Causes;
use rusqlite::ErrorCode;

/// The reason that the file could not be opened, or that an operation of the engine failed.
///
/// Its text says what failed, why, and what to do about the most common mistakes. The underlying error, if there is
/// one, is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// use keylatch_lease_sqlite::{Error, Sqlite};
///
/// fn tell(error: &Error) -> &'static str {
///     match error {
///         Error::Locked { .. } | Error::Timeout => "the machine is busy: try again in a minute",
///         Error::Full { .. } => "the disk is full",
///         _ => "it is not available",
///     }
/// }
///
/// let refused = Sqlite::open("/dev/null/leases.db").unwrap_err();
/// assert_eq!(tell(&refused), "it is not available");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened.
    Unconnected {
        /// The reason, if it is known.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The operation took too long, for example because it waited behind others. It may have been carried out.
    Timeout,
    /// Another process had the file locked for as long as an operation [waits](crate::Options::timeout). Nothing was
    /// changed.
    Locked {
        /// The error of SQLite.
        source: Arc<rusqlite::Error>,
    },
    /// There is no room left on the disk. Nothing was changed, unless the error came at the very end of the operation.
    Full {
        /// The error of SQLite.
        source: Arc<rusqlite::Error>,
    },
    /// The process may not write to the file, or to its folder.
    ReadOnly {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is not a database of SQLite, or is damaged.
    NotADatabase {
        /// The path of the file.
        path: PathBuf,
        /// The error of SQLite.
        source: Arc<rusqlite::Error>,
    },
    /// The file is on a file system that other machines may share. Neither SQLite's locks nor this machine's clock are
    /// reliable there.
    NetworkFileSystem {
        /// The path of the file.
        path: PathBuf,
        /// The name of the file system.
        kind: &'static str,
    },
    /// The tables were made by a newer version of this crate, and this version does not know them.
    Newer {
        /// The version of the tables.
        found: i64,
        /// The newest version that this crate knows.
        known: i64,
    },
    /// The file, or SQLite's log beside it (`-wal`, `-shm`), has been deleted, moved or replaced since this engine
    /// opened it. The engine stays useless, because it cannot know what has become of the leases.
    Replaced {
        /// The path of the file.
        path: PathBuf,
    },
    /// SQLite refused the operation. Nothing was changed, unless the error came at the very end of the operation.
    Refused {
        /// The error of SQLite.
        source: Arc<rusqlite::Error>,
    },
    /// The engine's thread has ended.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SQLite: ")?;
        match self {
            Error::Unconnected { source: None } => f.write_str("the file could not be opened"),
            Error::Unconnected { source: Some(source) } => {
                write!(f, "the file could not be opened: {}", Causes(source))
            }
            Error::Timeout => f.write_str("the operation took too long"),
            Error::Locked { .. } => f.write_str("another process keeps the file locked"),
            Error::Full { .. } => f.write_str("there is no room left on the disk"),
            Error::ReadOnly { path } => {
                write!(f, "this process may not write to {}, or to its folder", path.display())
            }
            Error::NotADatabase { path, source } => {
                write!(f, "{} is not a database, or is damaged: {}", path.display(), Causes(source))
            }
            Error::NetworkFileSystem { path, kind } => write!(
                f,
                "{} is on a network file system ({kind}): use a file on a disk of this machine, or an engine on a server",
                path.display()
            ),
            Error::Newer { found, known } => write!(
                f,
                "a newer version of this program has used the file: its tables have version {found}, and this program knows {known}: \
                 update the program"
            ),
            Error::Replaced { path } => {
                write!(
                    f,
                    "{} or its log (-wal, -shm) has been deleted or replaced since it was opened: restart the program",
                    path.display()
                )
            }
            Error::Refused { source } => Causes(source).fmt(f),
            Error::Stopped => f.write_str("the engine's thread has ended"),
        }
    }
}

keylatch_lease_remote::failure! {
    Error; sources: Locked, Full, Refused; lasting: ReadOnly, NotADatabase, NetworkFileSystem, Newer, Replaced
}

impl Error {
    /// Converts an error of SQLite about the file at this path.
    pub(crate) fn of(error: rusqlite::Error, path: &std::path::Path) -> Self {
        let code = error.sqlite_error_code();
        let source = Arc::new(error);
        match code {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked { source },
            Some(ErrorCode::DiskFull) => Error::Full { source },
            Some(ErrorCode::ReadOnly) => Error::ReadOnly { path: path.into() },
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Error::NotADatabase { path: path.into(), source }
            }
            Some(ErrorCode::CannotOpen) => Error::Unconnected { source: Some(source) },
            _ => Error::Refused { source },
        }
    }
}
