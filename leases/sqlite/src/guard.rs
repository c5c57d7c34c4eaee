use std::{error::Error as StdError, fmt, path::Path};

use keylatch_lease::Grant;
use rusqlite::{Transaction, params};

use crate::{clock, engine::Sqlite, place};

/// The reason that a transaction is not guarded.
///
/// # Examples
/// ```
/// use keylatch_lease_sqlite::GuardError;
///
/// assert_eq!(GuardError::Stale.to_string(), "the lease has ended: roll the transaction back");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError {
    /// The tenure has ended: the transaction should be rolled back.
    Stale,
    /// The transaction is in a different file from the lease, so nothing protects it.
    OtherFile,
    /// SQLite could not check the lease.
    Database(rusqlite::Error),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardError::Stale => "the lease has ended: roll the transaction back",
            GuardError::OtherFile => "the transaction is in another file than the lease",
            GuardError::Database(_) => "the database could not check the lease",
        })
    }
}

impl StdError for GuardError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            GuardError::Stale | GuardError::OtherFile => None,
            GuardError::Database(source) => Some(source),
        }
    }
}

impl Sqlite {
    /// Checks, in your own transaction in the same file, that this tenure has not ended, and keeps it from ending until
    /// the transaction ends, even if the lease expires meanwhile. So the transaction's writes are committed under the
    /// lease, or not at all.
    ///
    /// From this call on the transaction has the file's write lock, so no lease of the file can be acquired, renewed or
    /// released before it ends: keep it short. To wait for the lock, rather than fail at once, the connection needs a
    /// `busy_timeout`, and the transaction should begin with
    /// [`Immediate`](rusqlite::TransactionBehavior::Immediate).
    ///
    /// # Errors
    /// [`Stale`](GuardError::Stale) if the tenure has ended. After any error, roll the transaction back.
    ///
    /// # Blocking
    /// The call blocks while another connection writes, for at most the connection's `busy_timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch_lease::{Leases, Owner};
    /// use keylatch_lease_sqlite::Sqlite;
    /// use rusqlite::{Connection, TransactionBehavior};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("keylatch-guard-{}.db", std::process::id()));
    /// let leases = Leases::with_engine(Sqlite::open(&path)?);
    /// let grant = leases.try_acquire(("article", "7"), &Owner::named("ann"), Duration::from_secs(60)).wait()?;
    ///
    /// let mut connection = Connection::open(&path)?;
    /// connection.busy_timeout(Duration::from_secs(5))?;
    /// connection.execute_batch("CREATE TABLE article (id INTEGER PRIMARY KEY, body TEXT)")?;
    /// let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// leases.engine().guard(&transaction, &grant)?;
    /// transaction.execute("INSERT INTO article VALUES (7, 'news')", [])?;
    /// transaction.commit()?;
    ///
    /// leases.release(&grant).wait()?;
    /// let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// assert!(leases.engine().guard(&transaction, &grant).is_err());
    /// # drop(transaction);
    /// # drop((leases, connection));
    /// # for end in ["", "-wal", "-shm"] { let _ = std::fs::remove_file(format!("{}{end}", path.display())); }
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(&self, transaction: &Transaction<'_>, grant: &Grant) -> Result<(), GuardError> {
        let is_same = transaction
            .path()
            .is_some_and(|path| matches!(place::identity(Path::new(path)), Ok(found) if self.place.is_known(found)));
        if !is_same {
            return Err(GuardError::OtherFile);
        }
        // The statement changes nothing, but has the write lock when it looks. The clock is read after that: the lease
        // may have ended while the statement waited for the lock.
        let sql = "UPDATE keylatch_lease SET token = token WHERE ns = ?1 AND entity = ?2 AND key = ?3 AND token = ?4
            AND owner = ?5 RETURNING until";
        let resource = grant.resource();
        let token = i64::try_from(grant.token().get()).unwrap_or(i64::MAX);
        let row = params![self.namespace(), resource.entity(), resource.key(), token, grant.owner().id()];
        let until = transaction.prepare_cached(sql).and_then(|mut update| update.query_row(row, |row| row.get(0)));
        match until {
            Ok(None) => Ok(()),
            Ok(Some(until)) if until > clock::now().clock => Ok(()),
            Ok(Some::<i64>(_)) | Err(rusqlite::Error::QueryReturnedNoRows) => Err(GuardError::Stale),
            Err(error) => Err(GuardError::Database(error)),
        }
    }
}
