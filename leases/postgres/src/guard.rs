use std::{error::Error, fmt};

use keylatch_lease::Grant;
use tokio_postgres::{Transaction, types::Type};

use crate::Postgres;

/// The statement of [`Postgres::guard`], for other clients than tokio-postgres: it gives a row if the tenure goes
/// on, and keeps it from ending until the transaction does.
///
/// `$1` is the namespace (text), `$2` and `$3` are the resource's entity and key in UTF-8 (bytea), `$4` is the token (bigint).
///
/// # Examples
/// ```
/// assert!(keylatch_lease_postgres::GUARD.ends_with("FOR KEY SHARE"));
/// ```
pub const GUARD: &str = "SELECT FROM keylatch_lease \
    WHERE ns = $1 AND entity = $2 AND key = $3 AND token = $4 AND until > clock_timestamp() FOR KEY SHARE";

/// Why a transaction is not guarded.
///
/// # Examples
/// ```
/// use keylatch_lease_postgres::GuardError;
///
/// assert_eq!(GuardError::Stale.to_string(), "the lease is over");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError {
    /// The tenure is over: the transaction should be rolled back.
    Stale,
    /// The server refused, or the connection broke.
    Database(tokio_postgres::Error),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuardError::Stale => "the lease is over",
            GuardError::Database(_) => "the database could not look at the lease",
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
    /// Makes sure, in a transaction of one's own in the same database, that this tenure goes on, and keeps it from ending until the
    /// transaction has: nobody else begins one before, however long the transaction takes, and although the lease expires meanwhile.
    ///
    /// So what the transaction writes needs no fence: it is written under the lease, or not at all. Renewals go on during it. Who wants to
    /// take over the lease, having waited for its end, gets it after the transaction; until then it is told that it is busy. A
    /// release waits for the transaction, and fails with [`Error::Guarded`](crate::Error::Guarded) if that takes too long; so
    /// **do not release in the middle of it**.
    ///
    /// In a transaction that is `REPEATABLE READ` or `SERIALIZABLE` call it first: there it is a serialization failure if the tenure has
    /// ended since the first statement, and a tenure that was renewed since may be taken for one that has expired.
    ///
    /// # Errors
    /// [`GuardError::Stale`] if the tenure is over; [`GuardError::Database`] if the server does not say.
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
