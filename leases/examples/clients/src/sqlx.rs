//! A guarded transaction with sqlx.

use keylatch_lease::{Grant, Leases};
use keylatch_lease_postgres::{GUARD, Postgres};
use sqlx::PgPool;

/// Pays under the lease. Returns `false`, and changes nothing, if the lease has ended.
pub async fn pay(pool: &PgPool, leases: &Leases<Postgres>, grant: &Grant, account: i64) -> sqlx::Result<bool> {
    let mut transaction = pool.begin().await?;
    let guarded = sqlx::query(GUARD)
        .bind(leases.engine().namespace())
        .bind(grant.resource().entity().as_bytes())
        .bind(grant.resource().key().as_bytes())
        .bind(grant.token().get() as i64)
        .execute(&mut *transaction)
        .await?;
    if guarded.rows_affected() == 0 {
        return Ok(false); // a transaction that is dropped is rolled back
    }
    sqlx::query("UPDATE account SET paid = true WHERE id = $1").bind(account).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}
