use std::{error::Error, fmt};

use keylatch_lease::Grant;
use tokio_postgres::{Transaction, types::Type};

use crate::Postgres;

/// The statement of [`Postgres::guard`], for clients other than tokio-postgres: it returns a row if the tenure has not
/// ended, and keeps the tenure from ending until the transaction ends. If it returns no row, roll the transaction back.
///
/// `$1` is the namespace (text), `$2` and `$3` are the resource's entity and key in UTF-8 (bytea), `$4` is the token
/// (bigint). The row has no columns: use the number of rows, which most clients return for any statement.
/// `docs/leases-guide.md` in the repository shows the statement in sqlx, diesel and psql.
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::GUARD.ends_with("FOR KEY SHARE"));
/// ```
pub const GUARD: &str = "SELECT FROM keylatch_lease \
    WHERE ns = $1 AND entity = $2 AND key = $3 AND token = $4 AND until > clock_timestamp() FOR KEY SHARE";

/// The reason that a transaction is not guarded.
///
/// # Examples
/// ```
/// use keylatch_lease_postgres::GuardError;
///
/// assert_eq!(GuardError::Stale.to_string(), "the lease has ended: roll the transaction back");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError {
    /// The tenure has ended: the transaction should be rolled back.
    Stale,
    /// The server refused the statement, or the connection broke.
    Database(tokio_postgres::Error),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardError::Stale => "the lease has ended: roll the transaction back",
            GuardError::Database(_) => "the database could not check the lease",
        })
    }
}

impl Error for GuardError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            GuardError::Stale => None,
            GuardError::Database(source) => Some(source),
        }
    }
}

impl Postgres {
    /// Checks, in your own transaction in the same database, that this tenure has not ended, and keeps it from ending
    /// until the transaction ends. No other tenure can begin before that, however long the transaction takes, even if
    /// the lease expires during it.
    ///
    /// So the transaction's writes need no fence: they are done under the lease, or not at all. The lease can be
    /// renewed during the transaction. A waiter for the lease gets it after the transaction; until then its requests
    /// find the resource busy. A release waits for the transaction, and fails with
    /// [`Error::Guarded`](crate::Error::Guarded) if that takes too long; so **do not release in the middle of the
    /// transaction**.
    ///
    /// In a transaction that is `REPEATABLE READ` or `SERIALIZABLE` this call should be the first statement. Otherwise
    /// a tenure that has ended since the first statement causes a serialization failure, and a tenure that was renewed
    /// since then may look expired.
    ///
    /// # Errors
    /// [`GuardError::Stale`] if the tenure has ended; [`GuardError::Database`] if the server refused the statement or
    /// could not answer it.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(
    /// #     leases: keylatch_lease::Leases<keylatch_lease_postgres::Postgres>,
    /// #     grant: keylatch_lease::Grant,
    /// #     mut client: tokio_postgres::Client,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// leases.engine().guard(&transaction, &grant).await?;
    /// transaction.execute("UPDATE account SET paid = true WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn guard(&self, transaction: &Transaction<'_>, grant: &Grant) -> Result<(), GuardError> {
        let (entity, key) = (grant.resource().entity().as_bytes(), grant.resource().key().as_bytes());
        let token = i64::try_from(grant.token().get()).map_err(|_| GuardError::Stale)?;
        let namespace = self.namespace();
        let rows = transaction
            .query_typed(
                GUARD,
                &[(&namespace, Type::TEXT), (&entity, Type::BYTEA), (&key, Type::BYTEA), (&token, Type::INT8)],
            )
            .await
            .map_err(GuardError::Database)?;
        if rows.is_empty() { Err(GuardError::Stale) } else { Ok(()) }
    }
}
