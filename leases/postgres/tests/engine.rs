//! Tests of the engine against a real server, which they start, and which some of them kill and pause.

mod common;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::{Server, shared};
use futures_lite::future::{poll_once, zip};
use keylatch_lease::{
    AcquireError, Expiry, Leases, Lost, Owner, ReleaseError, RenewError, Resource, Token,
    engine::{Answer, Ask, Engine, Gone, Left, Renewal, Want},
};
use keylatch_lease_conformance::{
    engine_tests,
    servers::{
        self, LATE, MINUTE, SECOND, Settings, TestServer, ask, cases, insist, is_about, is_quarantined, lock, millis,
        namespace, on_tokio, sliding,
    },
    turns,
};
use keylatch_lease_postgres::{Error, GuardError, NoTls, Options, Postgres};
use tokio::time::sleep;

type Desk = servers::Desk<Server>;

/// Settings with a timeout that is long enough for a server to start on a busy machine.
fn settings(namespace: &str) -> Settings {
    Settings::new(namespace, None).timeout(20 * SECOND)
}

fn options(namespace: &str) -> Options {
    common::options(settings(namespace))
}

async fn desk(server: Arc<Server>) -> Desk {
    Desk::new(server, settings(&namespace())).await
}

/// Runs a test on the shared server.
fn at_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&shared(), settings(&namespace()), test);
}

/// Runs a test on the shared server with such a long fallback that no waiter asks again unless it is notified.
fn at_patient_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&shared(), settings(&namespace()).fallback(LATE), test);
}

/// Runs a test on a server of its own with a short timeout.
fn at_hasty_desk<F: Future<Output = ()>>(test: impl FnOnce(Arc<Desk>) -> F) {
    servers::at_desk(&Arc::new(Server::set_up()), settings("n").timeout(millis(300)), test);
}

engine_tests! { at_patient_desk; all }

engine_tests! { at_hasty_desk; a_silent_server_is_an_error_in_time }

/// The rows of the desk's namespace.
trait Rows {
    async fn pass_for(&self, key: &str, time: Duration);
    async fn rows(&self) -> i64;
}

impl Rows for Desk {
    /// Changes the row of one key as if this time had passed.
    async fn pass_for(&self, key: &str, time: Duration) {
        let sql = "UPDATE keylatch_lease SET since = since - $2 * interval '1 second', until = until - $2 * interval '1 second',
            token = token - ($2 * 1000000)::bigint WHERE ns = $1 AND key = $3";
        self.client.execute(sql, &[&self.namespace, &time.as_secs_f64(), &key.as_bytes()]).await.unwrap();
    }

    /// Returns the number of rows that belong to resources.
    async fn rows(&self) -> i64 {
        let sql = "SELECT count(*) FROM keylatch_lease WHERE ns = $1 AND entity <> '\\xff'";
        self.client.query_one(sql, &[&self.namespace]).await.unwrap().get(0)
    }
}

fn token_of(answer: &Answer) -> Token {
    match answer {
        Answer::Granted { token, .. } => *token,
        other => panic!("the lease was not granted: {other:?}"),
    }
}

#[test]
fn each_want_gets_its_answer() {
    at_desk(|desk| async move {
        let (engine, report) = (desk.here.engine(), Resource::from("report"));
        let Desk { jane, joe, .. } = &*desk;
        let (expiry, term) = sliding(MINUTE);
        let acquire = |owner, want, term| engine.acquire(ask(&report, owner, want, &expiry, term));

        // The resource is free.
        assert_eq!(acquire(jane, Want::Mine, term).await.unwrap(), Answer::Free);
        assert_eq!(acquire(jane, Want::Mine, None).await.unwrap(), Answer::Free);
        assert_eq!(acquire(jane, Want::Any, None).await.unwrap(), Answer::Free);
        assert_eq!(desk.rows().await, 0);
        let first = acquire(jane, Want::New, term).await.unwrap();
        assert!(matches!(
            first,
            Answer::Granted { resumed: false, held_for: Duration::ZERO, remaining: Some(MINUTE), .. }
        ));

        // Jane has the resource.
        for want in [Want::Any, Want::Mine] {
            let again = acquire(jane, want, term).await.unwrap();
            assert!(matches!(again, Answer::Granted { resumed: true, remaining: Some(MINUTE), .. }), "{again:?}");
            assert_eq!(token_of(&again), token_of(&first));
        }
        let looked = acquire(jane, Want::Mine, None).await.unwrap();
        assert!(matches!(looked, Answer::Granted { resumed: true, remaining: Some(left), .. } if left < MINUTE));
        assert!(matches!(acquire(jane, Want::New, term).await.unwrap(), Answer::Busy { owner, .. } if owner == *jane));
        for want in [Want::Any, Want::Fresh, Want::Mine, Want::New] {
            let busy = acquire(joe, want, term).await.unwrap();
            assert!(
                matches!(&busy, Answer::Busy { owner, remaining } if owner == jane && is_about(*remaining, MINUTE))
            );
        }
        let fresh = acquire(jane, Want::Fresh, term).await.unwrap();
        assert!(matches!(fresh, Answer::Granted { resumed: false, held_for: Duration::ZERO, .. }));
        assert!(token_of(&fresh) > token_of(&first));

        // Jane's lease has expired.
        desk.pass(MINUTE).await;
        assert_eq!(acquire(jane, Want::Mine, term).await.unwrap(), Answer::Free);
        let next = acquire(joe, Want::New, term).await.unwrap();
        assert!(token_of(&next) > token_of(&fresh));

        // Joe's lease is released.
        assert_eq!(engine.release(&report, joe, None, Duration::ZERO).await.unwrap(), Gone::Released);
        assert_eq!(acquire(joe, Want::Mine, term).await.unwrap(), Answer::Free);
        let last = acquire(jane, Want::Fresh, term).await.unwrap();
        assert!(matches!(last, Answer::Granted { resumed: false, .. }));
        assert!(token_of(&last) > token_of(&next));
    });
}

#[test]
fn a_lease_that_never_expires_ends_when_it_is_released() {
    at_desk(|desk| async move {
        let grant = desk.here.try_acquire("report", &desk.jane, Expiry::Never).await.unwrap();
        assert_eq!(desk.here.remaining(&grant), None);
        let busy = desk.there.try_acquire("report", &desk.joe, MINUTE).await;
        assert!(matches!(busy, Err(AcquireError::Busy { remaining: None, .. })));
        desk.here.renew(&grant).await.unwrap();
        desk.there.release_as("report", &desk.jane).await.unwrap();
        assert!(desk.there.try_acquire("report", &desk.joe, MINUTE).await.is_ok());
    });
}

#[test]
fn an_expired_lease_is_not_revived() {
    at_desk(|desk| async move {
        let grant = desk.here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        desk.pass(MINUTE).await;
        assert_eq!(desk.here.status("report").await.unwrap(), None);
        assert!(matches!(desk.here.renew(&grant).await, Err(RenewError::Lost(_))));
        assert!(matches!(desk.here.release(&grant).await, Err(ReleaseError::NotHeld { .. })));
        assert_eq!(desk.here.owned_by(&desk.jane).await.unwrap(), []);
        assert_eq!(desk.here.release_all(&desk.jane).await.unwrap(), 0);
        let next = desk.here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        assert!(!next.is_resumed());
        assert!(next.token() > grant.token());
    });
}

/// The renewal is sent in time, and waits for the row until the lease has expired.
#[test]
fn a_renewal_that_waits_past_the_end_revives_nothing() {
    at_desk(|desk| async move {
        let grant = desk.here.try_acquire("report", &desk.jane, SECOND).await.unwrap();
        desk.client.batch_execute("BEGIN").await.unwrap();
        desk.client.execute("SELECT FROM keylatch_lease WHERE ns = $1 FOR UPDATE", &[&desk.namespace]).await.unwrap();
        let late = async {
            sleep(millis(1300)).await;
            desk.client.batch_execute("COMMIT").await.unwrap();
        };
        let (renewed, ()) = zip(desk.here.renew(&grant), late).await;
        assert!(matches!(renewed, Err(RenewError::Lost(_))), "{renewed:?}");
        assert_eq!(desk.here.status("report").await.unwrap(), None);
    });
}

#[test]
fn only_the_owner_releases_and_only_the_named_tenure() {
    at_desk(|desk| async move {
        let (engine, report) = (desk.here.engine(), Resource::from("report"));
        let Desk { jane, joe, .. } = &*desk;
        let old = desk.here.try_acquire(&report, jane, MINUTE).await.unwrap();
        let new = desk.here.try_acquire(&report, jane, MINUTE).fresh_token().await.unwrap();
        let release = |owner, token| engine.release(&report, owner, token, Duration::ZERO);
        assert_eq!(release(joe, None).await.unwrap(), Gone::NotOwner(jane.clone()));
        assert_eq!(release(joe, Some(new.token())).await.unwrap(), Gone::NotOwner(jane.clone()));
        assert_eq!(release(jane, Some(old.token())).await.unwrap(), Gone::NotOwner(jane.clone()));
        assert_eq!(release(jane, Token::new(u64::MAX)).await.unwrap(), Gone::NotOwner(jane.clone()));
        assert_eq!(desk.here.status(&report).await.unwrap().unwrap().token(), new.token());
        assert_eq!(release(jane, Some(new.token())).await.unwrap(), Gone::Released);
        assert_eq!(release(jane, None).await.unwrap(), Gone::NotHeld);
        assert_eq!(engine.release(&Resource::from("other"), jane, None, Duration::ZERO).await.unwrap(), Gone::NotHeld);
    });
}

/// Rows are locked in the same order, whatever the order of the batch is.
#[test]
fn overlapping_batches_do_not_deadlock() {
    at_desk(|desk| async move {
        let Desk { jane, .. } = &*desk;
        let names: Vec<_> = (0..100).map(|i| Resource::new("page", i.to_string())).collect();
        let mut tokens = Vec::new();
        for name in &names {
            tokens.push(desk.here.try_acquire(name, jane, MINUTE).await.unwrap().token());
        }
        let (names, tokens) = (&names, &tokens);
        let rounds = |engine: &Postgres, is_reversed| {
            let engine = engine.clone();
            async move {
                for round in 1..=30 {
                    let term = sliding(MINUTE + SECOND * round).1;
                    let pairs = names.iter().zip(tokens);
                    let mut batch: Vec<_> = pairs
                        .map(|(resource, token)| Renewal {
                            resource,
                            owner: jane,
                            token: *token,
                            term,
                            left: Left::Nothing,
                        })
                        .collect();
                    if is_reversed {
                        batch.reverse();
                    }
                    engine.renew(&mut batch, Duration::ZERO).await.unwrap();
                    assert!(batch.iter().all(|renewal| renewal.left != Left::Nothing));
                }
            }
        };
        zip(rounds(desk.here.engine(), false), rounds(desk.there.engine(), true)).await;
    });
}

#[test]
fn release_all_releases_exactly_the_owners_leases() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let old = here.try_acquire("expired", jane, MINUTE).await.unwrap();
        desk.pass(MINUTE).await;
        for i in 0..50 {
            here.try_acquire(("page", i.to_string()), jane, MINUTE).await.unwrap();
            here.try_acquire(("line", i.to_string()), joe, MINUTE).await.unwrap();
        }
        let other = desk.server.leases(options("elsewhere"));
        other.try_acquire("page", jane, MINUTE).await.unwrap();
        let mut freed = there.engine().release_all(jane, Duration::ZERO).await.unwrap();
        freed.sort();
        let mut pages: Vec<_> = (0..50).map(|i| Resource::new("page", i.to_string())).collect();
        pages.sort();
        assert_eq!(freed, pages);
        assert!(matches!(here.renew(&old).await, Err(RenewError::Lost(_))));
        assert_eq!(here.owned_by(joe).await.unwrap().len(), 50);
        assert_eq!(other.owned_by(jane).await.unwrap().len(), 1);
        assert_eq!(there.release_all(jane).await.unwrap(), 0);
    });
}

#[test]
fn a_sweep_removes_rows_that_ended_a_minute_ago() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        for i in 0..10 {
            here.try_acquire(i.to_string(), jane, if i < 6 { SECOND } else { 600 * SECOND }).await.unwrap();
        }
        here.try_acquire("never", jane, Expiry::Never).await.unwrap();
        here.release_as("9", jane).await.unwrap();
        assert_eq!(here.release_expired().await.unwrap(), 0);
        // The tokens must be as old as the leases.
        desk.pass(62 * SECOND).await;
        let sql = "UPDATE keylatch_lease SET token = token - 62000000 WHERE ns = $1";
        desk.client.execute(sql, &[&desk.namespace]).await.unwrap();
        assert_eq!(here.engine().sweep(3, Duration::ZERO).await.unwrap(), 3);
        assert_eq!(here.release_expired().await.unwrap(), 4);
        assert_eq!(desk.rows().await, 4);
        assert_eq!(here.owned_by(jane).await.unwrap().len(), 4);
    });
}

#[test]
fn a_row_with_a_token_of_the_future_is_not_swept() {
    at_desk(|desk| async move {
        let first = desk.here.try_acquire("report", &desk.jane, SECOND).await.unwrap();
        desk.pass(HOUR).await;
        let sql = "UPDATE keylatch_lease SET token = token + 3600000000 WHERE ns = $1";
        desk.client.execute(sql, &[&desk.namespace]).await.unwrap();
        assert_eq!(desk.here.release_expired().await.unwrap(), 0);
        let next = desk.here.try_acquire("report", &desk.jane, SECOND).await.unwrap();
        assert_eq!(next.token().get(), first.token().get() + 3_600_000_001);
    });
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_driver_sweeps_by_itself() {
    at_desk(|desk| async move {
        desk.here.try_acquire("report", &desk.jane, SECOND).await.unwrap();
        desk.pass(HOUR).await;
        let sql = "UPDATE keylatch_lease SET token = token - 3600000000 WHERE ns = $1";
        desk.client.execute(sql, &[&desk.namespace]).await.unwrap();
        let _sweeper = desk.server.leases(options(&desk.namespace).sweeps(Some(millis(100))));
        while desk.rows().await > 0 {
            sleep(millis(20)).await;
        }
    });
}

/// The engine is called directly, without the queue of `Leases`. Leases are released or expire, and rows are deleted,
/// too.
#[test]
fn tokens_grow_across_releases_expiries_and_sweeps() {
    at_desk(|desk| async move {
        let last = Arc::new(std::sync::Mutex::new(0));
        let tasks: Vec<_> = (0..8)
            .map(|i| {
                let (desk, last) = (Arc::clone(&desk), Arc::clone(&last));
                tokio::spawn(async move {
                    let engine = if i % 2 == 0 { desk.here.engine() } else { desk.there.engine() };
                    let (owner, report) = (Owner::named(format!("worker-{i}")), Resource::from("report"));
                    let (expiry, term) = sliding(if i % 3 == 0 { millis(2) } else { MINUTE });
                    for round in 0..150 {
                        let before = *lock(&last);
                        let answer = engine.acquire(ask(&report, &owner, Want::New, &expiry, term)).await.unwrap();
                        if let Answer::Granted { token, .. } = answer {
                            assert!(token.get() > before);
                            let mut last = lock(&last);
                            *last = token.get().max(*last);
                        }
                        if round % 10 == i {
                            // Deletes rows as a sweep would if the leases had ended long ago.
                            let sql = "DELETE FROM keylatch_lease WHERE ns = $1 AND until < clock_timestamp()";
                            desk.client.execute(sql, &[&desk.namespace]).await.unwrap();
                        }
                        let _ = engine.release(&report, &owner, None, Duration::ZERO).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// The acquire waits for the row while another owner's tenure begins and ends there.
#[test]
fn a_token_is_made_after_the_wait_for_the_row() {
    at_desk(|desk| async move {
        let first = desk.here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        desk.here.release(&first).await.unwrap();
        desk.client.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM keylatch_lease WHERE ns = $1 FOR UPDATE";
        desk.client.execute(lock, &[&desk.namespace]).await.unwrap();
        let concurrent = async {
            sleep(millis(300)).await;
            // A tenure that began and ended after the acquire was sent.
            let sql = "UPDATE keylatch_lease SET owner = 'x', token = extract(epoch FROM clock_timestamp()) * 1000000
                WHERE ns = $1 RETURNING token";
            let token: i64 = desk.client.query_one(sql, &[&desk.namespace]).await.unwrap().get(0);
            desk.client.batch_execute("COMMIT").await.unwrap();
            token
        };
        let (second, concurrent) = zip(desk.here.try_acquire("report", &desk.joe, MINUTE), concurrent).await;
        assert!(second.unwrap().token().get() > concurrent as u64);
        // The second lease's time is counted from the end of the wait, too.
        let left = desk.here.status("report").await.unwrap().unwrap().remaining().unwrap();
        assert!(left > MINUTE - millis(250), "{left:?}");
    });
}

/// The acquire finds no row, and waits for another transaction that inserts it.
#[test]
fn a_token_is_made_after_the_wait_for_a_concurrent_insert() {
    at_desk(|desk| async move {
        desk.client.batch_execute("BEGIN").await.unwrap();
        let insert = "INSERT INTO keylatch_lease VALUES
            ($1, '', 'report', 'x', 1, clock_timestamp(), '-infinity', false, 's', null, null)";
        desk.client.execute(insert, &[&desk.namespace]).await.unwrap();
        let concurrent = async {
            sleep(millis(300)).await;
            let sql = "UPDATE keylatch_lease SET token = extract(epoch FROM clock_timestamp()) * 1000000
                WHERE ns = $1 RETURNING token";
            let token: i64 = desk.client.query_one(sql, &[&desk.namespace]).await.unwrap().get(0);
            desk.client.batch_execute("COMMIT").await.unwrap();
            token
        };
        let (second, concurrent) = zip(desk.here.try_acquire("report", &desk.joe, MINUTE), concurrent).await;
        assert!(second.unwrap().token().get() > concurrent as u64);
    });
}

/// The row is deleted by hand, bypassing the engine.
#[test]
fn a_holder_is_notified_when_its_row_is_deleted() {
    let server = Arc::new(Server::start());
    on_tokio(async {
        let client = server.client().await;
        Postgres::create_table(&client).await.unwrap();
        // The table as an earlier release created it, without triggers: the next migration adds them.
        let old = "DROP TRIGGER keylatch_lease_deleted ON keylatch_lease; DROP TRIGGER keylatch_lease_truncated ON keylatch_lease";
        client.batch_execute(old).await.unwrap();
        for _ in 0..2 {
            Postgres::create_table(&client).await.unwrap();
        }
        let desk = desk(Arc::clone(&server)).await;
        let Desk { here, there, jane, joe, namespace, .. } = &desk;
        here.engine().init().await.unwrap();
        let other = server.leases(options("x'/\u{e9}"));
        let elsewhere = other.hold("report", jane, LATE).await.unwrap();
        let mut held = Vec::new();
        for key in ["a", "b", "c"] {
            held.push(here.hold(key, jane, LATE).await.unwrap());
        }
        // The sweep of a lease that has ended notifies no holder.
        let short = there.try_acquire("d", joe, MINUTE).await.unwrap();
        there.release(&short).await.unwrap();
        desk.pass_for("d", 2 * MINUTE).await;
        assert_eq!(there.release_expired().await.unwrap(), 1);

        let delete = "DELETE FROM keylatch_lease WHERE ns = $1 AND key = 'a'";
        assert_eq!(client.execute(delete, &[namespace]).await.unwrap(), 1);
        assert_eq!(held[0].lost().await, Lost::EngineForgot);
        assert_eq!(held[0].check(), Err(Lost::EngineForgot));
        for still in [&held[1], &held[2]] {
            assert!(still.check().is_ok());
        }
        client.execute("DELETE FROM keylatch_lease WHERE ns = $1", &[&"x'/\u{e9}"]).await.unwrap();
        while elsewhere.check().is_ok() {
            sleep(millis(5)).await;
        }
        assert!(held[1].check().is_ok());
        client.batch_execute("TRUNCATE keylatch_lease").await.unwrap();
        assert_eq!(held[1].lost().await, Lost::EngineForgot);
        assert_eq!(held[2].check(), Err(Lost::EngineForgot)); // the same notification covers both
    });
}

/// A server that keeps its data is killed: after its restart the leases exist, and waiters still wait.
#[test]
fn leases_survive_the_death_of_the_server() {
    let server = Arc::new(Server::start());
    on_tokio(async {
        server.create_table().await;
        let desk = desk(Arc::clone(&server)).await;
        let Desk { here, there, jane, joe, .. } = &desk;
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let mut waiting = there.acquire("report", joe, MINUTE);
        let report = Resource::from("report");
        let mut told = std::pin::pin!(there.engine().watch(&report));
        assert!(poll_once(&mut waiting).await.is_none());
        assert!(poll_once(&mut told).await.is_none());
        server.run("kill");
        let started = Instant::now();
        let restarted = std::thread::spawn({
            let server = Arc::clone(&server);
            move || {
                std::thread::sleep(millis(500));
                server.run("start");
            }
        });
        let again = here.try_acquire("report", jane, MINUTE).await.unwrap();
        assert!(again.is_resumed());
        assert_eq!(again.token(), grant.token());
        assert!(started.elapsed() >= millis(500));
        restarted.join().unwrap();
        told.await;
        // Joe's waiter asked before the server was killed, or asks now.
        let (got, ()) = zip(waiting, async {
            sleep(millis(200)).await;
            here.release(&grant).await.unwrap();
        })
        .await;
        assert!(got.unwrap().token() > grant.token());
    });
    server.run("stop");
    server.run("stop");
}

#[test]
fn an_unreachable_server_is_an_error_in_time_that_contains_no_password() {
    on_tokio(async {
        let config = "host=127.0.0.1 port=1 user=secretary password=secret".parse().unwrap();
        let engine = options("n").timeout(millis(300)).connect(config, NoTls);
        let text = cases::an_unreachable_server_is_an_error_in_time::<Server>(engine).await;
        assert!(text.contains("there is no connection to the database"), "{text}");
    });
}

/// Each fault is inflicted again and again, while four owners in two processes take turns.
#[test]
fn one_owner_at_a_time_has_the_lease_whatever_is_done_to_the_database() {
    const TTL: Duration = Duration::from_secs(1);
    const OFTEN: Duration = Duration::from_millis(50);
    let others = "FROM pg_stat_activity WHERE application_name = 'chaos'";
    let ways = [
        format!("SELECT pg_terminate_backend(pid) {others}"),
        format!("SELECT pg_cancel_backend(pid) {others}"),
        "VACUUM FULL keylatch_lease".to_owned(),
        "BEGIN; LOCK TABLE keylatch_lease; SELECT pg_sleep(0.1); COMMIT".to_owned(),
        "ALTER DATABASE postgres SET default_transaction_read_only = on".to_owned(),
        format!("SELECT pg_terminate_backend(pid) {others}"), // the new sessions may not write
        "ALTER DATABASE postgres RESET default_transaction_read_only".to_owned(),
    ];
    let server = Arc::new(Server::start());
    on_tokio(async {
        let engine = || {
            let mut config = server.config();
            config.application_name("chaos");
            Leases::with_engine(options("chaos").quarantine(TTL).timeout(2 * SECOND).connect(config, NoTls))
        };
        server.create_table().await;
        let client = server.client().await;
        let (here, there) = (engine(), engine());
        here.engine().init().await.unwrap();
        let run = tokio::runtime::Handle::current();
        for statement in ways {
            let trouble = || {
                for _ in 0..20 {
                    run.block_on(client.batch_execute(&statement)).unwrap();
                    std::thread::sleep(OFTEN);
                }
            };
            tokio::task::block_in_place(|| turns(&[&here, &there], TTL, trouble));
        }
    });
}

#[test]
fn dropped_requests_leave_no_open_transaction() {
    at_desk(|desk| async move {
        cases::dropped_requests_leave_nothing_behind(Arc::clone(&desk)).await;
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        for _ in 0..5 {
            assert_eq!(desk.client.query_one(open, &[]).await.unwrap().get::<_, i64>(0), 0);
            sleep(millis(10)).await;
        }
    });
}

#[test]
fn a_guarded_transaction_keeps_the_tenure_from_ending() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        let grant = here.try_acquire(("a", "report"), jane, MINUTE).await.unwrap();
        let mut client = desk.server.client().await;
        let transaction = client.transaction().await.unwrap();
        here.engine().guard(&transaction, &grant).await.unwrap();

        // Renewals succeed, and other requests do not wait.
        let started = Instant::now();
        assert!(here.renew(&grant).await.is_ok());
        assert!(here.try_acquire(("a", "report"), jane, MINUTE).await.unwrap().is_resumed());
        assert!(matches!(there.try_acquire(("a", "report"), joe, MINUTE).await, Err(AcquireError::Busy { .. })));

        // The lease expires: still no other owner gets it, and requests are answered without a wait.
        desk.pass(MINUTE).await;
        let busy = there.try_acquire(("a", "report"), joe, MINUTE).await;
        assert!(
            matches!(&busy, Err(AcquireError::Busy { owner, remaining: Some(left), .. }) if owner == jane && *left < SECOND),
            "{busy:?}"
        );
        assert_eq!(here.release_expired().await.unwrap(), 0);
        assert!(started.elapsed() < 15 * SECOND);

        let late = desk.server.leases(options(&desk.namespace).fallback(LATE));
        let mut waiting = late.acquire(("a", "report"), joe, MINUTE);
        for _ in 0..30 {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(10)).await;
        }
        transaction.commit().await.unwrap();
        let committed = Instant::now();
        let next = waiting.await.unwrap();
        assert!(next.token() > grant.token());
        assert!(committed.elapsed() < MINUTE);

        let transaction = client.transaction().await.unwrap();
        assert!(matches!(here.engine().guard(&transaction, &grant).await, Err(GuardError::Stale)));
        there.engine().guard(&transaction, &next).await.unwrap();
        assert!(matches!(desk.here.engine().guard(&transaction, &grant).await, Err(GuardError::Stale)));
    });
}

#[test]
fn a_release_waits_for_the_guarded_transaction() {
    at_desk(|desk| async move {
        let Desk { there, jane, joe, .. } = &*desk;
        let here = desk.server.leases(options(&desk.namespace).timeout(SECOND));
        let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
        here.try_acquire("other", jane, MINUTE).await.unwrap();
        let mut client = desk.server.client().await;
        let transaction = client.transaction().await.unwrap();
        here.engine().guard(&transaction, &grant).await.unwrap();
        assert!(matches!(here.release(&grant).await, Err(ReleaseError::Engine(Error::Guarded))));
        assert!(here.release_all(jane).await.is_err());
        let fresh = here.try_acquire("report", jane, MINUTE).fresh_token().await;
        assert!(matches!(fresh, Err(AcquireError::Busy { owner, .. }) if owner == *jane));
        assert_eq!(here.owned_by(jane).await.unwrap().len(), 2); // no lease was released
        let (released, ()) = zip(there.release_all(jane), async {
            sleep(millis(100)).await;
            transaction.commit().await.unwrap();
        })
        .await;
        assert_eq!(released.unwrap(), 2);
        there.try_acquire("report", joe, MINUTE).await.unwrap();
    });
}

/// A guard that is requested while the lease is being taken over waits for that, and is refused.
#[test]
fn a_guard_that_comes_too_late_is_refused() {
    at_desk(|desk| async move {
        let grant = desk.here.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        desk.client.batch_execute("BEGIN").await.unwrap();
        let take = "SELECT FROM keylatch_lease WHERE ns = $1 FOR UPDATE";
        desk.client.execute(take, &[&desk.namespace]).await.unwrap();
        let take = "UPDATE keylatch_lease SET token = token + 1 WHERE ns = $1";
        desk.client.execute(take, &[&desk.namespace]).await.unwrap();
        let mut client = desk.server.client().await;
        let transaction = client.transaction().await.unwrap();
        let (guarded, ()) = zip(desk.here.engine().guard(&transaction, &grant), async {
            sleep(millis(100)).await;
            desk.client.batch_execute("COMMIT").await.unwrap();
        })
        .await;
        assert!(matches!(guarded, Err(GuardError::Stale)));
    });
}

/// A repeatable-read transaction is not guarded by a tenure that has ended since its snapshot. Renewals since then do
/// not matter.
#[test]
fn a_guard_is_refused_if_the_tenure_has_ended_since_the_snapshot() {
    at_desk(|desk| async move {
        let Desk { here, there, jane, joe, .. } = &*desk;
        for round in 0..5 {
            let grant = here.try_acquire("report", jane, MINUTE).await.unwrap();
            let mut client = desk.server.client().await;
            let level = tokio_postgres::IsolationLevel::RepeatableRead;
            let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
            transaction.execute("SELECT 1", &[]).await.unwrap();
            if round != 1 {
                here.renew(&grant).await.unwrap();
            }
            match round {
                0 => {}
                1 | 2 => here.release(&grant).await.unwrap(),
                3 => {
                    here.release(&grant).await.unwrap();
                    there.try_acquire("report", joe, MINUTE).await.unwrap();
                    there.release_as("report", joe).await.unwrap();
                }
                _ => assert_eq!(here.release_all(jane).await.unwrap(), 1),
            }
            match here.engine().guard(&transaction, &grant).await {
                Ok(()) => assert_eq!(round, 0),
                Err(GuardError::Database(error)) => {
                    assert_ne!(round, 0);
                    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::T_R_SERIALIZATION_FAILURE));
                }
                Err(other) => panic!("{other:?}"),
            }
            drop(transaction);
            drop(client);
            let _ = here.release_all(jane).await.unwrap();
        }
    });
}

/// The server's log shows the statements.
#[test]
fn each_operation_is_one_statement() {
    let server = shared();
    on_tokio(async {
        let namespace = namespace();
        let mut config = server.config();
        config.application_name(&namespace).options("-c log_statement=all");
        let leases = Leases::with_engine(options(&namespace).connect(config, NoTls));
        let (engine, report) = (leases.engine(), Resource::from("report"));
        let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
        let (expiry, term) = sliding(MINUTE);
        leases.engine().ready().await.unwrap();
        let log = server.private().folder().join("server.log");
        let statements = || {
            let log = std::fs::read_to_string(&log).unwrap();
            log.lines().filter(|line| line.contains(&format!(" {namespace} LOG:  "))).count()
        };
        let mut before = statements();
        let mut is_one = |name: &str| {
            let now = statements();
            assert_eq!(now - before, 1, "{name}");
            before = now;
        };
        for want in [Want::Mine, Want::New, Want::Any, Want::Fresh, Want::New] {
            engine.acquire(ask(&report, &jane, want, &expiry, term)).await.unwrap();
            is_one("acquire");
        }
        let busy = engine.acquire(Ask { waiting: true, ..ask(&report, &joe, Want::Any, &expiry, term) }).await;
        assert!(matches!(busy, Ok(Answer::Busy { .. })));
        is_one("acquire, busy and waiting");
        let token = engine.look(&report, Duration::ZERO).await.unwrap().unwrap().token;
        is_one("look");
        let renewal = Renewal { resource: &report, owner: &jane, token, term, left: Left::Nothing };
        engine.renew(&mut vec![renewal; 10], Duration::ZERO).await.unwrap();
        is_one("renew");
        engine.owned_by(&jane, Duration::ZERO).await.unwrap();
        is_one("owned_by");
        engine.release(&report, &jane, None, Duration::ZERO).await.unwrap();
        is_one("release, which notifies");
        engine.release_all(&jane, Duration::ZERO).await.unwrap();
        is_one("release_all");
        engine.sweep(10, Duration::ZERO).await.unwrap();
        is_one("sweep");
    });
}

/// The engine sets what it needs, whatever the defaults of the role or the database are.
#[test]
fn leases_work_with_other_defaults_of_the_database() {
    let server = shared();
    on_tokio(async {
        let namespace = namespace();
        let settings = "-c default_transaction_isolation=serializable -c default_transaction_read_only=on \
            -c synchronous_commit=off -c lock_timeout=1 \
            -c statement_timeout=100";
        let mut config = server.config();
        config.options(settings);
        let leases = Arc::new(Leases::with_engine(options(&namespace).connect(config.clone(), NoTls)));
        let others = Arc::new(Leases::with_engine(options(&namespace).connect(config, NoTls)));
        let tasks: Vec<_> = (0..10)
            .map(|i| {
                let leases = Arc::clone(if i % 2 == 0 { &leases } else { &others });
                tokio::spawn(async move {
                    let owner = Owner::named(format!("worker-{i}"));
                    for _ in 0..5 {
                        let grant = leases.acquire("report", &owner, MINUTE).await.unwrap();
                        leases.release(&grant).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_missing_table_is_an_error_at_once_until_it_is_created() {
    let server = shared();
    on_tokio(async {
        server.client().await.batch_execute("CREATE DATABASE empty").await.unwrap();
        let mut config = server.config();
        config.dbname("empty");
        let leases = Leases::with_engine(options("n").connect(config.clone(), NoTls));
        let started = Instant::now();
        let missing = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await;
        assert!(matches!(missing, Err(AcquireError::Engine(Error::Missing { .. }))), "{missing:?}");
        assert!(started.elapsed() < 10 * SECOND);
        // Several programs create the table at the same time.
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let config = config.clone();
            tasks.push(tokio::spawn(async move {
                let (client, connection) = config.connect(NoTls).await.unwrap();
                tokio::spawn(connection);
                Postgres::create_table(&client).await.unwrap();
                Postgres::create_table(&client).await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        while leases.engine().ready().await.is_err() {
            assert!(started.elapsed() < 20 * SECOND);
            sleep(millis(20)).await;
        }
        assert!(is_quarantined(&leases.try_acquire("report", &Owner::named("jane"), MINUTE).await));
        leases.engine().init().await.unwrap();
        leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap();
    });
}

/// The operation does not wait for its timeout, because waiting changes nothing.
#[test]
fn a_denied_user_is_an_error_at_once_with_the_reason() {
    let server = shared();
    on_tokio(async {
        let client = server.client().await;
        client.batch_execute("CREATE ROLE visitor NOLOGIN; CREATE ROLE guest LOGIN").await.unwrap();
        let config = |user: Option<&str>, database: Option<&str>| {
            let mut config = server.config();
            if let Some(user) = user {
                config.user(user);
            }
            if let Some(database) = database {
                config.dbname(database);
            }
            config
        };
        let cases = [
            (config(None, Some("nowhere")), "nowhere", "3D000"),
            (config(Some("visitor"), None), "visitor", "28000"),
            (config(Some("nobody"), None), "nobody", "28000"),
            (config(Some("guest"), None), "keylatch_lease", "42501"),
        ];
        for (config, what, code) in cases {
            // This timeout is far longer than a test may take.
            let leases = Leases::with_engine(options("n").timeout(Duration::from_secs(600)).connect(config, NoTls));
            let denied = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap_err();
            assert!(matches!(denied, AcquireError::Engine(Error::Denied { .. })), "{denied:?}");
            let text = denied.to_string();
            assert!(text.contains("Postgres") && text.contains(what) && text.contains(code), "{text}");
        }
        client.batch_execute("DROP ROLE visitor; DROP ROLE guest").await.unwrap();
    });
}

/// The server keeps the sessions of a role whose password changes, so the test ends them.
#[test]
fn each_connection_uses_the_credentials_of_its_time() {
    let server = Server::set_up();
    on_tokio(async {
        let client = server.client().await;
        client.batch_execute("SET password_encryption = 'scram-sha-256'").await.unwrap(); // the default since 14
        let role =
            "CREATE ROLE clerk LOGIN PASSWORD 'old'; GRANT SELECT, INSERT, UPDATE, DELETE ON keylatch_lease TO clerk";
        client.batch_execute(role).await.unwrap();
        let file: String = client.query_one("SHOW hba_file", &[]).await.unwrap().get(0);
        let rules = "VALUES ('host all clerk all scram-sha-256'), ('host all all all trust')";
        client.batch_execute(&format!("COPY ({rules}) TO '{file}'; SELECT pg_reload_conf()")).await.unwrap();
        let as_clerk = |password: &str| server.config().user("clerk").password(password).to_owned();
        while as_clerk("wrong").connect(NoTls).await.is_ok() {
            sleep(millis(10)).await; // the server reads its rules a moment later
        }

        let source = Arc::new(Mutex::new("old"));
        let (known, config) = (Arc::clone(&source), server.config());
        let (engine, driver) = options("n").connect_with(move || {
            let config = config.clone().user("clerk").password(*lock(&known)).to_owned();
            async move { Ok(config.connect(NoTls).await?) }
        });
        tokio::spawn(driver);
        let leases = Leases::with_engine(engine);
        let grant = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap();

        // The new password is on the server, and not yet at its source.
        client.batch_execute("ALTER ROLE clerk PASSWORD 'new'").await.unwrap();
        leases.renew(&grant).await.unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'";
        assert_eq!(client.execute(end, &[]).await.unwrap(), 1);
        while !matches!(leases.renew(&grant).await, Err(RenewError::Engine(Error::Denied { .. }))) {
            sleep(millis(10)).await;
        }
        *lock(&source) = "new";
        while leases.renew(&grant).await.is_err() {
            sleep(millis(10)).await;
        }
        assert_eq!(leases.status("report").await.unwrap().unwrap().token(), grant.token());
    });
}

/// The rights are those that the crate's page lists.
#[test]
fn a_user_needs_only_the_listed_rights() {
    let server = Server::start();
    on_tokio(async {
        server.create_table().await;
        let client = server.client().await;
        client.batch_execute("CREATE ROLE program LOGIN; CREATE ROLE writer LOGIN").await.unwrap();
        client.batch_execute("GRANT SELECT, INSERT, UPDATE, DELETE ON keylatch_lease TO program").await.unwrap();
        client.batch_execute("GRANT SELECT, UPDATE ON keylatch_lease TO writer").await.unwrap();
        let config = |user| server.config().user(user).to_owned();

        for options in [options("with"), options("without").without_session()] {
            let leases = Leases::with_engine(options.connect(config("program"), NoTls));
            let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
            leases.engine().init().await.unwrap();
            let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
            assert!(matches!(leases.try_acquire("report", &joe, MINUTE).await, Err(AcquireError::Busy { .. })));
            leases.renew(&grant).await.unwrap();
            assert_eq!(leases.owned_by(&jane).await.unwrap().len(), 1);
            assert_eq!(leases.list().next_page().await.unwrap().map(|page| page.len()), Some(1));

            let (mut writer, connection) = config("writer").connect(NoTls).await.unwrap();
            let driver = tokio::spawn(connection);
            let transaction = writer.transaction().await.unwrap();
            leases.engine().guard(&transaction, &grant).await.unwrap();
            transaction.commit().await.unwrap();
            driver.abort();

            leases.release(&grant).await.unwrap();
            leases.try_acquire("report", &joe, millis(1)).await.unwrap();
            leases.release_all(&joe).await.unwrap();
            leases.release_expired().await.unwrap();
        }
    });
}

#[test]
fn a_session_survives_the_idle_session_timeout_of_its_role() {
    let server = Server::start();
    on_tokio(async {
        server.create_table().await;
        server.client().await.batch_execute("ALTER ROLE postgres SET idle_session_timeout = '200ms'").await.unwrap();
        let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = '' AND query LIKE '%keylatch%' AND pid <> pg_backend_pid()";
        // The session that created the table ends when the server notices that its connection is closed.
        while !server.client().await.query(sessions, &[]).await.unwrap().is_empty() {
            sleep(millis(10)).await;
        }
        let leases = server.leases(options("n"));
        leases.try_acquire("report", &Owner::named("jane"), MINUTE).await.unwrap();
        let before = server.client().await.query(sessions, &[]).await.unwrap();
        sleep(SECOND).await; // far longer than the role allows
        let after = server.client().await.query(sessions, &[]).await.unwrap();
        let pids = |rows: &[tokio_postgres::Row]| rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>();
        assert!(!before.is_empty() && pids(&before) == pids(&after), "{before:?} {after:?}");
    });
}

#[test]
fn an_engine_without_a_driver_is_stopped() {
    on_tokio(async {
        let dial = || async { std::future::pending::<Result<_, keylatch_lease_postgres::BoxError>>().await };
        let (engine, driver) = options("n").connect_with::<_, _, tokio::net::TcpStream, tokio::net::TcpStream>(dial);
        cases::an_engine_without_a_driver_is_stopped::<Server>(engine, driver).await;
    });
}

/// The engine needs no tokio runtime, and its calls can be made in their blocking form.
#[test]
fn the_engine_runs_on_another_runtime() {
    use tokio_util::compat::FuturesAsyncReadCompatExt;

    let server = shared();
    let config = server.config();
    let tokio_postgres::config::Host::Tcp(host) = config.get_hosts()[0].clone() else {
        panic!("the configuration has no address")
    };
    let port = config.get_ports()[0];
    let (engine, driver) = options(&namespace()).connect_with(move || {
        let (config, host) = (config.clone(), host.clone());
        async move {
            let stream = smol::net::TcpStream::connect((host.as_str(), port)).await?.compat();
            Ok(config.connect_raw(stream, NoTls).await?)
        }
    });
    smol::spawn(driver).detach();
    let leases = Leases::with_engine(engine);
    cases::the_engine_runs_on_another_runtime(&leases);
}

/// A row that is locked by hand delays the requests that change that row, and not the others on the connection.
#[test]
fn a_row_locked_by_hand_is_an_error_in_time() {
    at_desk(|desk| async move {
        let leases = desk.server.leases(options(&desk.namespace).timeout(SECOND));
        let grant = leases.try_acquire("report", &desk.jane, MINUTE).await.unwrap();
        let other = leases.try_acquire("other", &desk.jane, MINUTE).await.unwrap();
        desk.client.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM keylatch_lease WHERE ns = $1 AND key = 'report' FOR UPDATE";
        desk.client.execute(lock, &[&desk.namespace]).await.unwrap();
        let started = Instant::now();
        let (renewed, others) = zip(leases.renew(&grant), leases.renew(&other)).await;
        assert!(matches!(renewed, Err(RenewError::Engine(Error::Timeout))), "{renewed:?}");
        assert!(others.is_ok(), "{others:?}");
        assert!(started.elapsed() < 15 * SECOND);
        // The row can still be read.
        assert!(matches!(leases.try_acquire("report", &desk.joe, MINUTE).await, Err(AcquireError::Busy { .. })));
        desk.client.batch_execute("ROLLBACK").await.unwrap();
        leases.renew(&grant).await.unwrap();
    });
}

/// A tenure may end earlier than the one that it replaces. A waiter in another process is notified, and served at the
/// new end.
#[test]
fn a_waiter_is_notified_of_a_fresh_tenure_that_ends_earlier() {
    at_desk(|desk| async move {
        let Desk { here, jane, joe, .. } = &*desk;
        let leases = desk.server.leases(options(&desk.namespace).fallback(LATE));
        here.try_acquire("report", jane, Expiry::Never).await.unwrap();
        let mut waiting = leases.acquire("report", joe, MINUTE);
        while !(desk.is_wanted("report").await) {
            assert!(poll_once(&mut waiting).await.is_none());
            sleep(millis(5)).await;
        }
        let started = Instant::now();
        let (served, fresh) = zip(waiting, async {
            sleep(millis(50)).await;
            here.try_acquire("report", jane, millis(500)).fresh_token().await.unwrap()
        })
        .await;
        assert!(served.unwrap().token() > fresh.token());
        assert!(started.elapsed() < MINUTE, "{:?}", started.elapsed());
    });
}

#[test]
fn the_driver_of_a_dropped_engine_ends_although_the_server_is_silent() {
    let server = Server::set_up();
    let connect = |sweeps| {
        let config = server.config();
        Postgres::in_namespace("n").sweeps(sweeps).timeout(5 * SECOND).connect_with(move || {
            let config = config.clone();
            async move { Ok(config.connect(NoTls).await?) }
        })
    };
    on_tokio(cases::the_driver_of_a_dropped_engine_ends_although_the_server_is_silent(&server, connect));
}

/// There are more ended leases than one statement removes, so one sweep takes several statements.
#[test]
fn the_driver_sweeps_until_nothing_is_left() {
    at_desk(|desk| async move {
        let sql = "INSERT INTO keylatch_lease
            SELECT $1, '', i::text::bytea, 'x', 1, '2020-01-01', '-infinity', false, 's', null, null FROM generate_series(1, 20000) i";
        desk.client.execute(sql, &[&desk.namespace]).await.unwrap();
        let started = Instant::now();
        let _sweeper = desk.server.leases(options(&desk.namespace).sweeps(Some(2 * SECOND)));
        while desk.rows().await > 0 {
            assert!(started.elapsed() < 20 * SECOND, "{} are left", desk.rows().await);
            sleep(millis(20)).await;
        }
    });
}

/// Returns an engine on whose connection a function of the test replaces the server's clock.
async fn with_clock(desk: &Desk, clock: &str) -> Leases<Postgres> {
    let schema = format!("clock_{}", desk.namespace.replace('-', "_"));
    let sql = format!(
        "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$ {clock} $$"
    );
    desk.client.batch_execute(&sql).await.unwrap();
    let mut config = desk.server.config();
    config.options(format!("-c search_path={schema},pg_catalog,public"));
    Leases::with_engine(options(&desk.namespace).connect(config, NoTls))
}

/// The row was swept, and the clock is behind the token.
#[test]
fn tokens_grow_although_the_clock_is_set_back_after_a_sweep() {
    at_desk(|desk| async move {
        let Desk { here, jane, joe, .. } = &*desk;
        let back = with_clock(&desk, "BEGIN RETURN pg_catalog.clock_timestamp() - interval '1 hour'; END").await;
        let first = here.try_acquire("report", jane, MINUTE).await.unwrap();
        here.release(&first).await.unwrap();
        // Ten minutes later.
        desk.pass(10 * MINUTE).await;
        let sql = "UPDATE keylatch_lease SET token = token - 600000000, since = until WHERE ns = $1 RETURNING token";
        let last: i64 = desk.client.query_one(sql, &[&desk.namespace]).await.unwrap().get(0);
        assert_eq!(here.release_expired().await.unwrap(), 1);
        assert_eq!(desk.rows().await, 0);
        let next = back.try_acquire("report", joe, MINUTE).await.unwrap();
        assert!(next.token().get() > last as u64, "{} after {last}", next.token());
        let other = back.try_acquire("other", joe, MINUTE).await.unwrap();
        assert!(other.token().get() > last as u64);
        // The row that records the greatest swept token is not a lease.
        assert_eq!(back.release_expired().await.unwrap(), 0);
        assert_eq!(back.release_all(joe).await.unwrap(), 2);
    });
}

/// The release reads the row, and reads the clock only after the lease was renewed.
#[test]
fn a_late_release_does_not_take_a_renewed_lease_for_an_expired_one() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        let slow = with_clock(&desk, "BEGIN PERFORM pg_sleep(1.5); RETURN pg_catalog.clock_timestamp(); END").await;
        slow.engine().ready().await.unwrap();
        let grant = here.try_acquire("report", jane, SECOND).await.unwrap();
        let renewed = async {
            sleep(millis(500)).await;
            here.renew(&here.try_acquire("report", jane, MINUTE).await.unwrap()).await.unwrap();
        };
        let (released, ()) = zip(slow.release(&grant), renewed).await;
        released.unwrap();
        assert_eq!(here.status("report").await.unwrap(), None);
    });
}

/// The request reads the row, and reads the clock only after the lease was renewed.
#[test]
fn a_late_look_does_not_take_a_renewed_lease_for_an_expired_one() {
    at_desk(|desk| async move {
        let Desk { here, jane, .. } = &*desk;
        let slow = with_clock(&desk, "BEGIN PERFORM pg_sleep(1.5); RETURN pg_catalog.clock_timestamp(); END").await;
        slow.engine().ready().await.unwrap();
        let report = Resource::from("report");
        let grant = here.try_acquire(&report, jane, SECOND).await.unwrap();
        let renewed = async {
            sleep(millis(500)).await;
            here.try_acquire(&report, jane, MINUTE).await.unwrap();
        };
        let looks = slow.engine().acquire(ask(&report, jane, Want::Mine, &Expiry::Never, None));
        let (looked, ()) = zip(looks, renewed).await;
        assert_eq!(token_of(&looked.unwrap()), grant.token());
    });
}

/// The schema may be one migration of several, in a long transaction.
#[test]
fn leases_work_while_the_schema_is_run_again() {
    let server = Server::start();
    on_tokio(async {
        let mut client = server.client().await;
        server.create_table().await;
        let leases = server.leases(Postgres::in_namespace("n").timeout(2 * SECOND));
        let jane = Owner::named("jane");
        let grant = leases.try_acquire("report", &jane, MINUTE).await.unwrap();
        let migration = client.transaction().await.unwrap();
        migration.batch_execute(keylatch_lease_postgres::SCHEMA).await.unwrap();
        leases.renew(&grant).await.unwrap();
        leases.try_acquire("other", &jane, MINUTE).await.unwrap();
        leases.release(&grant).await.unwrap();
        migration.commit().await.unwrap();
    });
}

/// A waker that owns a request, as the waker of a task does.
struct Owning(
    #[allow(dead_code, reason = "only its drop matters")] std::sync::Mutex<Box<dyn Future<Output = ()> + Send>>,
);

impl std::task::Wake for Owning {
    fn wake(self: Arc<Self>) {}
}

/// Dropping a waker may drop another request.
#[test]
fn no_waker_is_dropped_under_a_lock() {
    use std::task::{Context, Waker};

    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let dial = || async { std::future::pending::<Result<_, keylatch_lease_postgres::BoxError>>().await };
        // With this timeout there is no timer, which would keep a copy of the waker, too.
        let options = Postgres::in_namespace("n").timeout(Duration::MAX);
        let (engine, _driver) = options.connect_with::<_, _, tokio::net::TcpStream, tokio::net::TcpStream>(dial);
        let asks = || {
            let engine = engine.clone();
            Box::pin(async move { drop(engine.ready().await) })
        };
        let mut other = asks();
        assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let owning = Waker::from(Arc::new(Owning(std::sync::Mutex::new(Box::new(other)))));
        let mut asked = asks();
        assert!(asked.as_mut().poll(&mut Context::from_waker(&owning)).is_pending());
        drop(owning);
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(20 * SECOND).expect("dropping the waker deadlocks");
}

#[test]
fn a_table_that_is_emptied_or_created_again_is_quarantined() {
    let server = Arc::new(Server::start());
    on_tokio(async {
        server.create_table().await;
        let desk = desk(Arc::clone(&server)).await;
        let Desk { here, there, client, namespace, jane, joe, .. } = &desk;
        let mut old = here.try_acquire("report", jane, MINUTE).await.unwrap();
        let quick = server.leases(options(namespace).quarantine(SECOND));
        let without_name = server.leases(options(""));
        let recreate = format!("DROP TABLE keylatch_lease; {}", keylatch_lease_postgres::SCHEMA);
        for harm in ["TRUNCATE keylatch_lease", &recreate] {
            client.batch_execute(harm).await.unwrap();
            assert!(is_quarantined(&there.try_acquire("report", joe, MINUTE).await));
            assert!(is_quarantined(&here.try_acquire("other", joe, MINUTE).await));
            // The row that stands for the quarantine is no lease.
            assert_eq!(without_name.list().all().await.unwrap().len(), 0);
            // While programs differ, the shortest quarantine applies.
            assert!(is_quarantined(&quick.try_acquire("report", joe, MINUTE).await));
            let new = insist(&quick, "report", joe).await;
            assert!(new.token() > old.token());
            quick.release(&new).await.unwrap();
            old = new;
        }
        // Opening the table ends the quarantine, and changes nothing in a table that is open.
        client.batch_execute("TRUNCATE keylatch_lease").await.unwrap();
        here.engine().init().await.unwrap();
        there.try_acquire("report", joe, MINUTE).await.unwrap();
        here.engine().init().await.unwrap();
        let asked = here.try_acquire("report", jane, MINUTE).await;
        assert!(matches!(asked, Err(AcquireError::Busy { .. })), "{asked:?}");
        client.batch_execute("VACUUM FULL keylatch_lease").await.unwrap();
        there.try_acquire("other", joe, MINUTE).await.unwrap();
    });
}

#[test]
fn every_program_notices_a_restored_database() {
    let server = Arc::new(Server::start());
    on_tokio(async {
        server.create_table().await;
        let desk = desk(Arc::clone(&server)).await;
        let Desk { here, there, namespace, jane, joe, .. } = desk;
        let kept = here.try_acquire("kept", &jane, MINUTE).await.unwrap();
        server.run("copy");
        let old = insist(&here, "report", &jane).await;
        drop((here, there));
        server.run("restore");
        let new = |trusts| server.leases(options(&namespace).quarantine(SECOND).trusts_failovers(trusts));
        let (careful, careless) = (new(false), new(true));
        assert!(is_quarantined(&careful.try_acquire("report", &joe, MINUTE).await));
        careful.renew(&kept).await.unwrap();
        let next = insist(&careful, "report", &joe).await;
        assert!(next.token() > old.token());
        // The database may have forgotten the release of this tenure, so acquiring again begins another one.
        let again = insist(&careful, "kept", &jane).await;
        assert!(again.token() > old.token() && !again.is_resumed());
        assert!(careful.try_acquire("kept", &jane, MINUTE).await.unwrap().is_resumed());
        server.run("restore");
        careless.engine().ready().await.unwrap();
        assert!(insist(&careless, "report", &joe).await.token() > next.token());
    });
}
