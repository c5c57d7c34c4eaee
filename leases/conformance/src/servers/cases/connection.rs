//! Tests of connections that are lost, silent or missing, and of drivers that end.

use std::{
    error::Error,
    fmt,
    mem::discriminant,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use async_io::{Timer, block_on};
use futures_lite::future::{poll_once, zip};
use keylatch_lease::{
    AcquireError, Grant, Leases, LookError, Owner, ReleaseError, RenewError, Resource,
    engine::{Engine, Fail},
};
use keylatch_lease_remote::Failure;
use tokio::time::sleep;

use super::super::{Desk, LATE, MINUTE, SECOND, Settings, TestServer, millis};

/// Returns whether two errors are of the same variant.
fn is_kind<E: Failure>(one: &E, other: &E) -> bool {
    discriminant(one) == discriminant(other)
}

/// A held lease is released when it is dropped, even if its engine has been dropped too.
pub async fn a_dropped_held_lease_is_released<S: TestServer>(desk: Arc<Desk<S>>) {
    let there = desk.more(desk.settings.clone().fallback(LATE));
    drop(desk.here.hold("report", &desk.jane, LATE).await.unwrap());
    there.acquire("report", &desk.joe, MINUTE).await.unwrap();
    let short = desk.more(desk.settings.clone());
    drop(short.hold("other", &desk.jane, LATE).await.unwrap());
    drop(short);
    while desk.here.status("other").await.unwrap().is_some() {
        sleep(millis(5)).await;
    }
}

/// The connection is cut just before a lease is dropped. Whether or not the engine has noticed this by then, the
/// release is sent over the next connection.
pub async fn the_release_of_a_dropped_lease_survives_a_broken_connection<S: TestServer>(desk: Arc<Desk<S>>) {
    for _ in 0..5 {
        let held = desk.here.hold("report", &desk.jane, LATE).await.unwrap();
        assert!(desk.cut().await >= 1);
        drop(held);
        let started = Instant::now();
        while desk.there.status("report").await.unwrap().is_some() {
            assert!(started.elapsed() < 10 * SECOND);
            sleep(millis(5)).await;
        }
    }
}

/// The server is paused, and resumed later. The test needs a server of its own, and a desk with a short timeout.
pub async fn a_silent_server_is_an_error_in_time<S: TestServer>(desk: Arc<Desk<S>>) {
    let (here, report) = (&desk.here, Resource::from("report"));
    let grant = here.try_acquire(&report, &desk.jane, LATE).await.unwrap();
    desk.server.run("pause");
    let started = Instant::now();
    let looked = here.engine().look(&report, Duration::ZERO).await;
    assert!(matches!(&looked, Err(Fail::Unknown(error)) if is_kind(error, &Failure::timeout())), "{looked:?}");
    let asked = here.engine().look(&report, Duration::ZERO).await;
    assert!(matches!(asked, Err(Fail::NotDone(_))), "{asked:?}");
    assert!(matches!(here.renew(&grant).await, Err(RenewError::Engine(_))));
    let passed = started.elapsed();
    assert!((2 * desk.settings.timeout..20 * SECOND).contains(&passed), "{passed:?}");
    desk.server.run("resume");
    while here.renew(&grant).await.is_err() {
        assert!(started.elapsed() < 40 * SECOND);
    }
}

/// No server listens where the engine connects, so an operation fails after its timeout of 300 ms. The error gives the
/// reason, but does not contain the password `secret`. Returns the text of the error.
pub async fn an_unreachable_server_is_an_error_in_time<S: TestServer>(engine: S::Engine) -> String {
    let leases = Leases::with_engine(engine);
    let started = Instant::now();
    let Err(AcquireError::Engine(error)) = leases.try_acquire("report", &Owner::named("jane"), MINUTE).await else {
        panic!("there is no server");
    };
    let passed = started.elapsed();
    assert!((millis(300)..10 * SECOND).contains(&passed), "{passed:?}");
    assert!(is_kind(&error, &Failure::unconnected(None)), "{error:?}");
    assert!(error.source().is_some());
    let text = error.to_string();
    assert!(text.contains("there is no connection") && !text.contains("secret"), "{text}");
    assert!(S::ready(leases.engine()).await.is_err());
    let fail = leases.engine().look(&Resource::from("report"), Duration::ZERO).await;
    assert!(matches!(&fail, Err(Fail::NotDone(error)) if is_kind(error, &Failure::unconnected(None))), "{fail:?}");
    text
}

/// The connections are cut again and again while two engines use them. The desk's fallback should be [`LATE`].
pub async fn cut_connections_are_made_again_under_load<S: TestServer>(desk: Arc<Desk<S>>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let (inside, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..4)
        .map(|i| {
            let desk = Arc::clone(&desk);
            let (is_over, inside, rounds) = (Arc::clone(&is_over), Arc::clone(&inside), Arc::clone(&rounds));
            tokio::spawn(async move {
                let leases = if i % 2 == 0 { &desk.here } else { &desk.there };
                let owner = Owner::named(format!("worker-{i}"));
                while !is_over.load(SeqCst) {
                    // Three answers in a row may be lost; the acquire then fails.
                    let Ok(grant) = leases.acquire("report", &owner, LATE).await else { continue };
                    assert!(!inside.swap(true, SeqCst), "two owners hold the resource at the same time");
                    rounds.fetch_add(1, SeqCst);
                    inside.store(false, SeqCst);
                    while let Err(ReleaseError::Engine(_)) = leases.release(&grant).await {}
                }
            })
        })
        .collect();
    let mut cuts = 0;
    for _ in 0..8 {
        sleep(millis(200)).await;
        cuts += desk.cut().await;
    }
    is_over.store(true, SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(cuts >= 8, "{cuts}");
    assert!(rounds.load(SeqCst) >= 8);
}

/// Messages are lost while there is no connection, so all watches are woken.
pub async fn a_lost_connection_wakes_all_watches<S: TestServer>(desk: Arc<Desk<S>>) {
    let engine = desk.here.engine();
    let (one, other) = (Resource::from("one"), Resource::from("other"));
    let (mut one, other) = (pin!(engine.watch(&one)), pin!(engine.watch(&other)));
    assert!(poll_once(&mut one).await.is_none());
    assert_eq!(desk.cut().await, 2);
    zip(one, other).await;
}

/// Requests are dropped after any number of polls. Other requests are served as if the dropped ones had not been made.
pub async fn dropped_requests_leave_nothing_behind<S: TestServer>(desk: Arc<Desk<S>>) {
    let Desk { here, there, jane, joe, .. } = &*desk;
    here.try_acquire("report", jane, MINUTE).await.unwrap();
    for polls in 0..20 {
        let owner = Owner::named(format!("worker-{polls}"));
        let mut free = here.acquire(("free", polls.to_string()), &owner, SECOND);
        let mut busy = here.acquire("report", joe, MINUTE);
        let mut all = here.release_all(&owner);
        let (mut is_granted, mut is_released) = (false, false);
        for _ in 0..polls {
            is_granted = is_granted || poll_once(&mut free).await.is_some();
            assert!(poll_once(&mut busy).await.is_none(), "the acquire did not wait for the holder");
            is_released = is_released || poll_once(&mut all).await.is_some();
            tokio::task::yield_now().await;
        }
    }
    here.release_as("report", jane).await.unwrap();
    there.acquire("report", joe, MINUTE).await.unwrap();
    there.acquire(("free", "19"), joe, MINUTE).await.unwrap();
}

/// The connection ends when the last clone of its engine is dropped, and not before.
pub async fn dropping_the_last_clone_of_an_engine_closes_the_connection<S: TestServer>(desk: Arc<Desk<S>>) {
    let settings = Settings { namespace: format!("{}-of-one", desk.namespace), ..desk.settings.clone() };
    let count = || desk.server.connections(&settings.namespace).expect("the server can tell");
    let engine = S::connect(settings.clone(), desk.server.address());
    S::ready(&engine).await.unwrap();
    assert_eq!(count(), 1);
    drop(engine.clone());
    S::ready(&engine).await.unwrap();
    assert_eq!(count(), 1);
    drop(engine);
    while count() > 0 {
        sleep(millis(5)).await;
    }
}

/// Operations fail at once when the driver has been dropped. The driver must be one that never connects.
pub async fn an_engine_without_a_driver_is_stopped<S: TestServer>(engine: S::Engine, driver: impl Future<Output = ()>) {
    let leases = Leases::with_engine(engine);
    let mut asked = leases.release_all(&Owner::named("jane"));
    assert!(poll_once(&mut asked).await.is_none());
    drop(driver);
    let asked = asked.await;
    assert!(matches!(&asked, Err(LookError::Engine(error)) if is_kind(error, &Failure::stopped())), "{asked:?}");
    assert!(S::ready(leases.engine()).await.is_err());
}

/// The engine works without a tokio runtime, and with blocking calls, while its driver runs elsewhere. Returns a grant
/// of the resource `report`.
pub fn the_engine_runs_on_another_runtime<E: Engine<Error: fmt::Debug>>(leases: &Leases<E>) -> Grant {
    let (jane, joe) = (Owner::named("jane"), Owner::named("joe"));
    let grant = leases.acquire_blocking("report", &jane, MINUTE).unwrap();
    let next = thread::scope(|scope| {
        let next = scope.spawn(|| leases.acquire_blocking("report", &joe, MINUTE).unwrap());
        thread::sleep(millis(50));
        leases.release_blocking(&grant).unwrap();
        next.join().unwrap()
    });
    assert!(next.token() > grant.token());
    block_on(async {
        let mut held = leases.hold("job", &jane, 3 * SECOND).await.unwrap();
        // Works for longer than the lease lasts without a renewal.
        let done = held.run(Timer::after(4 * SECOND)).await;
        assert!(done.is_ok(), "{done:?}");
        held.release().await.unwrap();
    });
    next
}

/// While the driver of a dropped engine releases leases or sweeps, it waits for an answer no longer than an operation
/// does. The test needs a server of its own, and a timeout of 5 s.
pub async fn the_driver_of_a_dropped_engine_ends_although_the_server_is_silent<S: TestServer, D>(
    server: &S,
    connect: impl Fn(Option<Duration>) -> (S::Engine, D),
) where
    D: Future<Output = ()> + Send + 'static,
{
    for sweeps in [None, Some(millis(300))] {
        let (engine, driver) = connect(sweeps);
        let mut driver = tokio::spawn(driver);
        S::open(&engine).await.unwrap();
        let leases = Leases::with_engine(engine);
        let held = leases.hold("report", &Owner::named("jane"), MINUTE).await.unwrap();
        server.run("pause");
        if sweeps.is_some() {
            sleep(millis(600)).await;
        }
        drop(held);
        drop(leases);
        let ended = tokio::time::timeout(15 * SECOND, &mut driver).await;
        server.run("resume");
        ended.expect("the driver ends").unwrap();
    }
}
