//! A guarded transaction on a connection of tokio-postgres, from a pool or not.

use std::error::Error;

use keylatch_lease::{Grant, Leases};
use keylatch_lease_postgres::{GuardError, Postgres};
use tokio_postgres::Client;

/// Pays under the lease. Returns `false`, and changes nothing, if the lease has ended.
pub async fn pay(
    client: &mut Client, // for example `&mut pool.get().await?`
    leases: &Leases<Postgres>,
    grant: &Grant,
    account: i64,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let transaction = client.transaction().await?;
    match leases.engine().guard(&transaction, grant).await {
        Err(GuardError::Stale) => return Ok(false), // a transaction that is dropped is rolled back
        guarded => guarded?,
    }
    transaction.execute("UPDATE account SET paid = true WHERE id = $1", &[&account]).await?;
    transaction.commit().await?;
    Ok(true)
}
