//! Tests with PgBouncer in front of the server: in session mode everything works; in transaction mode operations fail
//! with a clear error.

mod common;

use std::time::Duration;

use common::Server;
use keylatch_lease::{AcquireError, Leases, Owner};
use keylatch_lease_conformance::servers::{namespace, on_tokio};
use keylatch_lease_postgres::{Error, Postgres};

fn engine(pooler: &Server, namespace: &str) -> Leases<Postgres> {
    pooler
        .leases(Postgres::in_namespace(namespace).timeout(Duration::from_secs(20)).fallback(Duration::from_secs(1000)))
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn leases_work_through_a_pool_in_session_mode() {
    let server = common::shared();
    let pooler = server.pooler("session", 3);
    let namespace = namespace();
    on_tokio(async {
        let (jane, bob) = (Owner::named("jane"), Owner::named("bob"));
        // The engines use the same session in turn; the pooler resets it in between.
        for _ in 0..3 {
            let leases = engine(&pooler, &namespace);
            let grant = leases.try_acquire("door", &jane, HOUR).await.unwrap();
            leases.renew(&grant).await.unwrap();
            leases.release(&grant).await.unwrap();
        }
        let (leases, others) = (engine(&pooler, &namespace), engine(&pooler, &namespace));
        let grant = leases.try_acquire("door", &jane, HOUR).await.unwrap();
        let mut waiting = Box::pin(others.acquire("door", &bob, HOUR));
        assert!(
            tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
            "the acquire did not wait for the holder"
        );
        leases.release(&grant).await.unwrap();
        // The waiter was notified: its fallback is longer than a test may take.
        assert!(waiting.await.unwrap().token() > grant.token());
    });
}

#[test]
fn a_pool_in_transaction_mode_is_a_lasting_error() {
    let server = common::shared();
    let pooler = server.pooler("transaction", 2);
    let namespace = namespace();
    on_tokio(async {
        let jane = Owner::named("jane");
        // The pool's only client cannot detect the pooler.
        let first = engine(&pooler, &namespace);
        first.try_acquire("door", &jane, HOUR).await.unwrap();
        // The next engines get the session of the first one, which listens in it.
        for _ in 0..3 {
            let next = engine(&pooler, &namespace);
            let error = next.engine().ready().await.unwrap_err();
            assert!(matches!(error, Error::Pooled), "{error}");
            assert!(error.to_string().contains("pooler") && error.to_string().contains("session mode"), "{error}");
        }
        // While another client has that session, the first engine gets another one, which does not know its statements.
        let client = pooler.client().await;
        client.batch_execute("BEGIN; SELECT 1").await.unwrap();
        for _ in 0..2 {
            let asked = first.try_acquire("window", &jane, HOUR).await;
            assert!(matches!(asked, Err(AcquireError::Engine(Error::Pooled))), "{asked:?}");
        }
        let error = first.engine().ready().await.unwrap_err();
        assert!(matches!(error, Error::Pooled), "the connection is still used: {error}");
        client.batch_execute("COMMIT").await.unwrap();
    });
}

#[test]
fn an_answer_from_another_session_is_not_taken_for_a_grant() {
    let server = common::shared();
    let pooler = server.pooler("transaction", 2);
    let namespace = namespace();
    on_tokio(async {
        let jane = Owner::named("jane");
        let leases = engine(&pooler, &namespace);
        leases.try_acquire("door", &jane, HOUR).await.unwrap();
        // The test prepares the statements in the other session too, as newer poolers do.
        let client = pooler.client().await;
        let rows = client.query("SELECT name, statement, parameter_types::text[] FROM pg_prepared_statements", &[]);
        let rows = rows.await.unwrap();
        client.batch_execute("BEGIN; SELECT 1").await.unwrap();
        let other = pooler.client().await;
        for row in &rows {
            let (name, statement, types) = (row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, Vec<String>>(2));
            let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
            other.batch_execute(&format!("PREPARE {name} {types} AS {statement}")).await.unwrap();
        }
        let asked = leases.try_acquire("window", &jane, HOUR).await;
        assert!(matches!(asked, Err(AcquireError::Engine(Error::Pooled))), "{asked:?}");
        client.batch_execute("COMMIT").await.unwrap();
    });
}
