//! A guarded transaction with diesel-async.

use diesel::{
    QueryResult, sql_query,
    sql_types::{BigInt, Binary, Text},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use keylatch_lease::{Grant, Leases};
use keylatch_lease_postgres::{GUARD, Postgres};

/// Pays under the lease. Returns `false`, and changes nothing, if the lease has ended.
pub async fn pay(
    connection: &mut AsyncPgConnection,
    leases: &Leases<Postgres>,
    grant: &Grant,
    account: i64,
) -> QueryResult<bool> {
    connection
        .transaction(async |connection| {
            let guarded = sql_query(GUARD)
                .bind::<Text, _>(leases.engine().namespace())
                .bind::<Binary, _>(grant.resource().entity().as_bytes())
                .bind::<Binary, _>(grant.resource().key().as_bytes())
                .bind::<BigInt, _>(grant.token().get() as i64)
                .execute(connection)
                .await?;
            if guarded == 0 {
                return Ok(false);
            }
            let pay = sql_query("UPDATE account SET paid = true WHERE id = $1");
            pay.bind::<BigInt, _>(account).execute(connection).await?;
            Ok(true)
        })
        .await
}
