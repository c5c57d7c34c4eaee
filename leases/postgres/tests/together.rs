//! Tests of requests that wait for the connection at the same moment, and are decided by one statement.

mod common;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use common::{Server, shared};
use futures_lite::future::{poll_once, zip};
use keylatch_lease::{AcquireError, Expiry, Grant, Leases, Resource};
use keylatch_lease_conformance::servers::{self, MINUTE, SECOND, Settings, TestServer, millis, namespace};
use keylatch_lease_postgres::{Error, NoTls, Postgres};
use tokio::{task::JoinSet, time::sleep};

type Desk = servers::Desk<Server>;
type Acquired = Result<Grant, AcquireError<Error>>;
type Acquire<'a> = Pin<Box<dyn Future<Output = Acquired> + Send + 'a>>;

fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&shared(), Settings::new(namespace(), None).timeout(20 * SECOND), test);
}

/// Starts an acquire and polls it once, which sends it or puts it in line.
async fn started<'a>(leases: &'a Leases<Postgres>, resource: impl Into<Resource>, desk: &'a Desk) -> Acquire<'a> {
    let mut acquire: Acquire<'a> = Box::pin(leases.try_acquire(resource, &desk.jane, MINUTE).into_future());
    assert!(poll_once(&mut acquire).await.is_none());
    acquire
}

/// A connection that is busy, because its only statement waits for a row that another transaction has locked.
struct Plug<'a> {
    desk: &'a Desk,
    acquire: Acquire<'a>,
}

impl<'a> Plug<'a> {
    /// Makes a statement of `here` wait.
    async fn new(desk: &'a Desk) -> Self {
        Self::of(desk, &desk.here, &desk.namespace).await
    }

    /// Makes a statement of this engine wait. The engine's connection has this name.
    async fn of(desk: &'a Desk, leases: &'a Leases<Postgres>, name: &str) -> Self {
        let plug = leases.try_acquire("plug", &desk.jane, MINUTE).await.unwrap();
        leases.release(&plug).await.unwrap();
        lock(desk, "plug").await;
        let acquire = started(leases, "plug", desk).await;
        let waits = "SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
        while desk.client.query(waits, &[&name]).await.unwrap().is_empty() {
            sleep(millis(5)).await;
        }
        Plug { desk, acquire }
    }

    /// Ends the wait.
    async fn pull(self) {
        self.desk.client.batch_execute("COMMIT").await.unwrap();
        self.acquire.await.unwrap();
    }
}

/// Locks the row of a resource in a transaction that stays open.
async fn lock(desk: &Desk, key: &str) {
    desk.client.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM keylatch_lease WHERE ns = $1 AND key = $2 FOR UPDATE";
    assert_eq!(desk.client.execute(lock, &[&desk.namespace, &key.as_bytes()]).await.unwrap(), 1);
}

/// Makes the server refuse to write the row of this key.
async fn forbid(desk: &Desk, key: &str) {
    let name = desk.namespace.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let sql = format!(
        "CREATE FUNCTION refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
        CREATE TRIGGER refuse_{name} BEFORE INSERT OR UPDATE ON keylatch_lease FOR EACH ROW
            WHEN (NEW.ns = '{}' AND NEW.key = '{key}') EXECUTE FUNCTION refuse_{name}()",
        desk.namespace
    );
    desk.client.batch_execute(&sql).await.unwrap();
}

async fn all(acquires: Vec<Acquire<'_>>) -> Vec<Acquired> {
    let mut acquired = Vec::new();
    for acquire in acquires {
        acquired.push(acquire.await);
    }
    acquired
}

#[test]
fn requests_that_wait_for_the_connection_become_one_statement() {
    at_desk(|desk| async move {
        let name = format!("{}-logged", desk.namespace);
        let mut config = desk.server.config();
        config.application_name(&name).options("-c log_statement=all");
        let options = common::options(desk.settings.clone());
        let leases = &Leases::with_engine(options.connect(config, NoTls));
        leases.engine().ready().await.unwrap();
        let log = desk.server.private().folder().join("server.log");
        let statements = || {
            let log = std::fs::read_to_string(&log).unwrap();
            log.lines().filter(|line| line.contains(&format!(" {name} LOG:  "))).count()
        };
        let busy = desk.there.try_acquire("busy", &desk.joe, MINUTE).await.unwrap();
        let held = leases.try_acquire("held", &desk.jane, MINUTE).await.unwrap();
        let plug = Plug::of(&desk, leases, &name).await;
        let mut acquires = Vec::new();
        for i in 0..100 {
            acquires.push(started(leases, ("page", &*i.to_string()), &desk).await);
        }
        let mut refused = started(leases, "busy", &desk).await;
        let mut release = Box::pin(leases.release(&held).into_future());
        assert!(poll_once(&mut release).await.is_none() && poll_once(&mut refused).await.is_none());
        let before = statements();
        plug.pull().await;
        let grants: Vec<_> = all(acquires).await.into_iter().map(Result::unwrap).collect();
        release.await.unwrap();
        let Err(AcquireError::Busy { owner, remaining: Some(left), .. }) = refused.await else { panic!("it was free") };
        assert!(owner == desk.joe && left > MINUTE / 2 && left <= MINUTE);
        assert_eq!(statements() - before, 1);

        // Everybody else sees what separate statements would have done.
        for (i, grant) in grants.iter().enumerate() {
            let status = desk.there.status(("page", &*i.to_string())).await.unwrap().unwrap();
            assert_eq!((status.owner(), status.token()), (&desk.jane, grant.token()));
            let left = status.remaining().unwrap();
            assert!(!grant.is_resumed() && left <= MINUTE && left > MINUTE / 2, "{left:?}");
            desk.there.release(grant).await.unwrap();
        }
        assert_eq!(desk.there.status("held").await.unwrap(), None);
        desk.there.release(&busy).await.unwrap();
    });
}

#[test]
fn tokens_grow_whichever_statement_grants() {
    at_desk(|desk| async move {
        let mut last = 0;
        for round in 0..6 {
            let grant = if round % 2 == 0 {
                let plug = Plug::new(&desk).await;
                let both = vec![started(&desk.here, "form", &desk).await, started(&desk.here, "x", &desk).await];
                plug.pull().await;
                let [form, x] = all(both).await.try_into().unwrap();
                desk.here.release(&x.unwrap()).await.unwrap();
                form.unwrap()
            } else {
                desk.here.try_acquire("form", &desk.joe, MINUTE).await.unwrap()
            };
            assert!(grant.token().get() > last);
            last = grant.token().get() + 1_000_000_000;
            // The clock may be behind the token.
            let sql = "UPDATE keylatch_lease SET token = $2, until = '-infinity' WHERE ns = $1 AND key = 'form'";
            desk.client.execute(sql, &[&desk.namespace, &(last as i64)]).await.unwrap();
            desk.here.release_all(&desk.jane).await.unwrap();
        }
    });
}

#[test]
fn a_resumed_and_a_fresh_tenure_are_decided_as_when_they_are_alone() {
    at_desk(|desk| async move {
        let first = desk.here.try_acquire("resumed", &desk.jane, MINUTE).await.unwrap();
        let second = desk.here.try_acquire("fresh", &desk.jane, MINUTE).await.unwrap();
        desk.there.try_acquire("never", &desk.joe, Expiry::Never).await.unwrap();
        let plug = Plug::new(&desk).await;
        let resumed = started(&desk.here, "resumed", &desk).await;
        let never_free = started(&desk.here, "never", &desk).await;
        let mut fresh = Box::pin(desk.here.try_acquire("fresh", &desk.jane, MINUTE).fresh_token().into_future());
        assert!(poll_once(&mut fresh).await.is_none());
        plug.pull().await;
        let resumed = resumed.await.unwrap();
        assert!(resumed.is_resumed() && resumed.token() == first.token());
        assert!(fresh.await.unwrap().token() > second.token());
        let refused = never_free.await;
        assert!(matches!(&refused, Err(AcquireError::Busy { remaining: None, .. })), "{refused:?}");
    });
}

#[test]
fn an_error_of_one_request_does_not_fail_the_others() {
    at_desk(|desk| async move {
        forbid(&desk, "bad").await;
        let plug = Plug::new(&desk).await;
        let mut acquires = Vec::new();
        for key in ["a", "bad", "c"] {
            acquires.push(started(&desk.here, key, &desk).await);
        }
        plug.pull().await;
        let acquired = all(acquires).await;
        assert!(acquired[0].is_ok() && acquired[2].is_ok(), "{acquired:?}");
        assert!(matches!(acquired[1], Err(AcquireError::Engine(Error::Refused { .. }))), "{acquired:?}");
    });
}

#[test]
fn dropping_one_request_does_not_affect_the_others() {
    at_desk(|desk| async move {
        let plug = Plug::new(&desk).await;
        let mut acquires = Vec::new();
        for key in ["a", "dropped", "c"] {
            acquires.push(started(&desk.here, key, &desk).await);
        }
        drop(acquires.remove(1));
        plug.pull().await;
        assert!(all(acquires).await.iter().all(Result::is_ok));
        assert_eq!(
            desk.there.status("dropped").await.unwrap(),
            None,
            "a request that had not been sent was carried out"
        );
        desk.there.try_acquire("dropped", &desk.joe, MINUTE).await.unwrap();
    });
}

#[test]
fn a_locked_row_holds_up_nobody_else() {
    at_desk(|desk| async move {
        for key in ["a", "locked", "z"] {
            let grant = desk.here.try_acquire(key, &desk.jane, MINUTE).await.unwrap();
            desk.here.release(&grant).await.unwrap();
        }
        let plug = Plug::new(&desk).await;
        let other = desk.server.client().await;
        let mut acquires = Vec::new();
        for key in ["a", "locked", "z", "new"] {
            acquires.push(started(&desk.here, key, &desk).await);
        }
        let locked = acquires.remove(1);
        let sql = "SELECT FROM keylatch_lease WHERE ns = $1 AND key = 'locked' FOR UPDATE";
        other.batch_execute("BEGIN").await.unwrap();
        assert_eq!(other.execute(sql, &[&desk.namespace]).await.unwrap(), 1);
        plug.pull().await;
        assert!(all(acquires).await.iter().all(Result::is_ok));
        let mut locked = locked;
        assert!(poll_once(&mut locked).await.is_none(), "the row is locked");
        other.batch_execute("COMMIT").await.unwrap();
        locked.await.unwrap();
    });
}

/// Two processes ask for the same resources in opposite orders, and release them.
#[test]
fn batches_of_two_processes_do_not_deadlock() {
    servers::at_desk(&Arc::new(Server::set_up()), Settings::new("n", None).timeout(20 * SECOND), |desk| async move {
        let round = |is_here: bool, round: usize| {
            let desk = Arc::clone(&desk);
            async move {
                let mut tasks = JoinSet::new();
                for i in 0..40 {
                    let desk = Arc::clone(&desk);
                    tasks.spawn(async move {
                        let (leases, owner) = if is_here { (&desk.here, &desk.jane) } else { (&desk.there, &desk.joe) };
                        let key = format!("{round}-{}", if is_here { i } else { 39 - i });
                        match leases.try_acquire(("page", &*key), owner, MINUTE).await {
                            Ok(grant) => Some((key, grant)),
                            Err(AcquireError::Busy { .. }) => None,
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
                let held: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
                (held, is_here)
            }
        };
        for number in 0..40 {
            // Half of the rounds find rows, and half find none.
            let (here, there) = zip(round(true, number / 2), round(false, number / 2)).await;
            let mut keys: Vec<_> = here.0.iter().chain(&there.0).map(|(key, _)| key.clone()).collect();
            keys.sort();
            keys.dedup();
            assert_eq!(
                (keys.len(), here.0.len() + there.0.len()),
                (40, 40),
                "not every process held its own resources"
            );
            let mut tasks = JoinSet::new();
            for (held, is_here) in [here, there] {
                for (_, grant) in held {
                    let desk = Arc::clone(&desk);
                    tasks.spawn(async move {
                        let leases = if is_here { &desk.here } else { &desk.there };
                        leases.release(&grant).await.unwrap();
                    });
                }
            }
            tasks.join_all().await;
        }
        sleep(2 * SECOND).await; // the statistics are late by a second
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(desk.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// If the server lacks the newest function, calls fail at once, as they do without any other function.
#[test]
fn an_old_schema_is_an_error_until_the_new_one_has_been_run() {
    servers::at_desk(&Arc::new(Server::set_up()), Settings::new("n", None).timeout(20 * SECOND), |desk| async move {
        let sql = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'keylatch_lease_together_v1'";
        let name: String = desk.client.query_one(sql, &[]).await.unwrap().get(0);
        desk.client.batch_execute(&format!("DROP FUNCTION {name}")).await.unwrap();
        let late = desk.server.leases(common::options(Settings::new("late", None).timeout(20 * SECOND)));
        let refused = late.try_acquire("form", &desk.jane, MINUTE).await;
        assert!(matches!(refused, Err(AcquireError::Engine(Error::Missing { .. }))), "{refused:?}");
        // A connection that knew the function keeps working, without batches.
        let mut tasks = JoinSet::new();
        for i in 0..20 {
            let desk = Arc::clone(&desk);
            tasks.spawn(async move { desk.here.try_acquire(("page", &*i.to_string()), &desk.jane, MINUTE).await });
        }
        assert!(tasks.join_all().await.iter().all(Result::is_ok));
        Postgres::create_table(&desk.client).await.unwrap();
        let mut waited = Duration::ZERO;
        while late.try_acquire("form", &desk.jane, MINUTE).await.is_err() {
            sleep(millis(50)).await;
            waited += millis(50);
            assert!(waited < MINUTE);
        }
    });
}
