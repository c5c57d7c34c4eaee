//! Small models of two and three threads: loom runs them through every interleaving with few preemptions, shuttle
//! through many interleavings.
//!
//! If a waiter is not served, the checker reports that all threads sleep. [`close`] asserts that no lease and no waiter
//! is left.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keylatch_lease::engine::{Answer, Ask, Engine, Fail, Gone, Owned, Record, Renewal};
use keylatch_lease::{
    AcquireError, Clock, Expiry, Grant, Held, Leader, Leases, Lost, Memory, Owner, ReleaseError, RenewError, Resource,
    Token,
};

use crate::checker::{AtomicU64, SeqCst, Shared, block_on, explore, thread};

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) leases: Arc<Leases<Memory<Time>>>,
    pub(crate) clock: Time,
}

/// A clock that the checkers can see, so that they explore whether it is read before or after it advances. They cannot
/// see a [`ManualClock`](keylatch_lease::ManualClock).
#[derive(Clone)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, SeqCst);
    }
}

impl Clock for Time {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(SeqCst))
    }
}

pub(crate) fn table() -> Table {
    let clock = Time(Arc::new(AtomicU64::new(0)));
    Table { leases: Arc::new(Leases::in_memory_with(clock.clone())), clock }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Asserts that no lease and no waiter is left, and that each resource can be acquired.
pub(crate) fn close(table: &Table) {
    assert_eq!(table.leases.len(), 0, "a resource is still leased");
    for resource in [Resource::from("r"), Resource::new("a", "bc"), Resource::new("ab", "c")] {
        assert!(table.leases.status_now(&resource).unwrap().is_none());
        let last = table.leases.try_acquire_now(&resource, &owner("last"), Expiry::Never).unwrap();
        assert_eq!(table.leases.status_now(&resource).unwrap().unwrap().waiters(), 0, "a request is still waiting");
        table.leases.release_now(&last).unwrap();
    }
}

fn owner(name: &str) -> Owner {
    Owner::named(name)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Table {
    fn at_once(&self, name: &str, expiry: impl Into<Expiry>) -> Grant {
        self.leases.try_acquire_now("r", &owner(name), expiry).unwrap()
    }

    /// Waits for the lease, writes the value that it protects, and releases it. The lease never expires, so it protects
    /// the write.
    fn visit(&self, name: &str, shared: &Shared) -> u64 {
        let grant = block_on(self.leases.acquire("r", &owner(name), Expiry::Never)).unwrap();
        assert!(!grant.is_resumed());
        shared.bump();
        self.leases.release_now(&grant).unwrap();
        grant.token().get()
    }

    fn who(&self) -> Option<String> {
        self.leases.status_now("r").unwrap().map(|status| status.owner().name().into())
    }
}

fn spawn<T: 'static + Send>(table: &Table, run: impl FnOnce(&Table) -> T + Send + 'static) -> thread::JoinHandle<T> {
    let table = table.clone();
    thread::spawn(move || run(&table))
}

#[test]
fn two_threads_want_one_resource() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let other = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        let mine = table.visit("a", &shared);
        assert_ne!(other.join().unwrap(), mine);
        assert_eq!(shared.count(), 2);
        close(&table);
    });
}

#[test]
fn a_release_meets_a_new_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", Expiry::Never);
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        shared.bump();
        table.leases.release_now(&grant).unwrap();
        assert!(waiter.join().unwrap() > grant.token().get());
        assert_eq!(shared.count(), 2);
        close(&table);
    });
}

/// The waiter arrives before or after the end, and before or after the tick.
#[test]
fn the_end_and_a_tick_meet_a_new_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", Expiry::Fixed(ms(10)));
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        table.clock.advance(ms(10));
        table.leases.tick();
        assert!(waiter.join().unwrap() > grant.token().get());
        close(&table);
    });
}

#[test]
fn the_end_and_a_call_of_another_owner_meet_a_new_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", ms(10));
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        table.clock.advance(ms(10));
        match table.leases.try_acquire_now("r", &owner("c"), Expiry::Never) {
            Ok(mine) => {
                shared.bump();
                table.leases.release_now(&mine).unwrap();
            }
            Err(AcquireError::Busy { owner, .. }) => assert_eq!(owner.name(), "b"),
            Err(other) => panic!("{other:?}"),
        }
        assert!(waiter.join().unwrap() > grant.token().get());
        close(&table);
    });
}

#[test]
fn a_sweep_of_an_expired_lease_meets_a_new_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        table.at_once("a", ms(10));
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        table.clock.advance(ms(11));
        assert!(table.leases.release_expired_now().unwrap() <= 1);
        waiter.join().unwrap();
        close(&table);
    });
}

/// The only waiter gives up before it is served, or after.
#[test]
fn a_release_meets_a_waiter_that_gives_up() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let b = owner("b");
        let mut waiter = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
        assert!(poll(waiter.as_mut()).is_pending());
        let releaser = spawn(&table, move |table| table.leases.release_now(&grant).unwrap());
        drop(waiter);
        releaser.join().unwrap();
        close(&table);
    });
}

/// The first of two waiters gives up, and the second is served.
#[test]
fn a_release_and_a_waiter_that_gives_up_meet_a_second_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", Expiry::Never);
        let b = owner("b");
        let mut first = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
        assert!(poll(first.as_mut()).is_pending());
        let second = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("c", &shared))
        };
        let releaser = spawn(&table, move |table| table.leases.release_now(&grant).unwrap());
        drop(first);
        releaser.join().unwrap();
        second.join().unwrap();
        close(&table);
    });
}

/// Like the previous model, except that the lease expires instead of being released.
#[test]
fn the_end_and_a_waiter_that_gives_up_meet_a_second_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        table.at_once("a", ms(10));
        let b = owner("b");
        let mut first = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
        assert!(poll(first.as_mut()).is_pending());
        let second = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("c", &shared))
        };
        let ticker = spawn(&table, |table| {
            table.clock.advance(ms(10));
            table.leases.tick();
        });
        drop(first);
        ticker.join().unwrap();
        second.join().unwrap();
        close(&table);
    });
}

/// A served waiter that is dropped passes the lease on to a waiter in another thread.
#[test]
fn two_served_waiters_that_give_up_meet_a_third() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", Expiry::Never);
        let (b, d) = (owner("b"), owner("d"));
        let mut first = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
        let mut second = Box::pin(table.leases.acquire("r", &d, Expiry::Never).fresh_token());
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        table.leases.release_now(&grant).unwrap();
        assert_eq!(table.who().as_deref(), Some("b"));
        let third = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("c", &shared))
        };
        drop(first);
        drop(second);
        third.join().unwrap();
        close(&table);
    });
}

/// Either the renewal is in time or the other owner gets the lease.
#[test]
fn a_renewal_meets_a_take_over() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", ms(10));
        table.clock.advance(ms(5));
        let other = spawn(&table, |table| {
            table.clock.advance(ms(5));
            table.leases.try_acquire_now("r", &owner("b"), Expiry::Never)
        });
        let renewed = table.leases.renew_now(&grant);
        let taken = other.join().unwrap();
        match (&renewed, &taken) {
            (Ok(renewed), Err(AcquireError::Busy { owner, .. })) => {
                assert_eq!((renewed.token(), owner.name()), (grant.token(), "a"));
                table.leases.release_now(renewed).unwrap();
            }
            (Err(RenewError::Lost(Lost::Expired | Lost::TakenOver)), Ok(taken)) => {
                assert!(taken.token() > grant.token());
                table.leases.release_now(taken).unwrap();
            }
            both => panic!("{both:?}"),
        }
        close(&table);
    });
}

/// A lease that has been seen to be expired is not renewed.
#[test]
fn a_renewal_meets_a_look_at_the_end() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", ms(10));
        table.clock.advance(ms(5));
        let other = spawn(&table, |table| {
            table.clock.advance(ms(5));
            table.who()
        });
        let is_over = table.clock.now() >= ms(10);
        let renewed = table.leases.renew_now(&grant);
        let who = other.join().unwrap();
        assert!(!is_over || renewed == Err(RenewError::Lost(Lost::Expired)), "{renewed:?}");
        assert_eq!(renewed.is_ok(), who.is_some());
        assert_eq!(renewed.is_ok(), table.who().is_some());
        table.clock.advance(ms(10));
        close(&table);
    });
}

/// Like the previous model, except that a waiter is served.
#[test]
fn a_renewal_meets_a_tick_that_serves() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", ms(10));
        table.clock.advance(ms(5));
        let b = owner("b");
        let mut waiter = Box::pin(table.leases.acquire("r", &b, ms(10)));
        assert!(poll(waiter.as_mut()).is_pending());
        let ticker = spawn(&table, |table| {
            table.clock.advance(ms(5));
            table.leases.tick()
        });
        let renewed = table.leases.renew_now(&grant).is_ok();
        assert!(ticker.join().unwrap().is_some(), "a lease has an end, so another tick is due");
        assert_eq!(table.who().as_deref(), Some(if renewed { "a" } else { "b" }));
        if renewed {
            assert!(poll(waiter.as_mut()).is_pending());
            table.clock.advance(ms(5));
            table.leases.tick();
        }
        let taken = block_on(waiter).unwrap();
        assert!(taken.token() > grant.token());
        table.leases.release_now(&taken).unwrap();
        close(&table);
    });
}

/// All leases of an owner are released at one instant. A concurrent acquire happens either before that instant, and its
/// lease is released, or after it.
#[test]
fn a_release_of_all_meets_an_acquire() {
    explore(|| {
        let table = table();
        let first = table.at_once("a", Expiry::Never);
        let other = spawn(&table, |table| table.at_once("a", Expiry::Never));
        assert_eq!(table.leases.release_all_now(&owner("a")).unwrap(), 1);
        let second = other.join().unwrap();
        if second.is_resumed() {
            assert_eq!(second.token(), first.token());
            assert!(matches!(table.leases.release_now(&second), Err(ReleaseError::NotHeld { .. })));
        } else {
            assert!(second.token() > first.token());
            table.leases.release_now(&second).unwrap();
        }
        close(&table);
    });
}

/// Of two resources that are acquired one after the other, the second is not released without the first.
#[test]
fn a_release_of_all_meets_two_acquires_of_two_resources() {
    explore(|| {
        let table = table();
        let [first, second] = [Resource::new("a", "bc"), Resource::new("ab", "c")];
        let other = {
            let (first, second) = (first.clone(), second.clone());
            spawn(&table, move |table| {
                let a = owner("a");
                for resource in [&first, &second] {
                    table.leases.try_acquire_now(resource, &a, Expiry::Never).unwrap();
                }
            })
        };
        let count = table.leases.release_all_now(&owner("a")).unwrap();
        other.join().unwrap();
        let left = [&first, &second].map(|resource| table.leases.status_now(resource).unwrap().is_some());
        assert_eq!(left, [count < 1, count < 2]);
        assert_eq!(table.leases.release_all_now(&owner("a")).unwrap(), 2 - count);
        close(&table);
    });
}

#[test]
fn a_release_of_all_meets_a_new_waiter() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let grant = table.at_once("a", Expiry::Never);
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        shared.bump();
        assert_eq!(table.leases.release_all_now(&owner("a")).unwrap(), 1);
        assert!(waiter.join().unwrap() > grant.token().get());
        close(&table);
    });
}

/// Two requests of one owner share one tenure, whether they waited or not.
#[test]
fn two_requests_of_one_owner_enter_together() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let wait = |table: &Table| block_on(table.leases.acquire("r", &owner("b"), Expiry::Never)).unwrap();
        let others = [spawn(&table, wait), spawn(&table, wait)];
        table.leases.release_now(&grant).unwrap();
        let [first, second] = others.map(|other| other.join().unwrap());
        assert_eq!(first.token(), second.token());
        assert_ne!(first.is_resumed(), second.is_resumed());
        table.leases.release_now(&first).unwrap();
        close(&table);
    });
}

/// One of two requests of an owner gives up, and the other still gets the lease.
#[test]
fn one_of_two_requests_of_one_owner_gives_up() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let b = owner("b");
        let mut first = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
        assert!(poll(first.as_mut()).is_pending());
        let other = spawn(&table, |table| block_on(table.leases.acquire("r", &owner("b"), Expiry::Never)).unwrap());
        let releaser = spawn(&table, move |table| table.leases.release_now(&grant).unwrap());
        drop(first);
        let second = other.join().unwrap();
        releaser.join().unwrap();
        table.leases.release_now(&second).unwrap();
        close(&table);
    });
}

/// A tenure that has been renewed is not passed on when the request that was served with it is dropped.
#[test]
fn a_renewal_from_the_owners_list_meets_a_served_request_that_gives_up() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let waiter = spawn(&table, move |table| {
            let mut waiting = pin!(table.leases.acquire("r", &owner("b"), Expiry::Sliding(ms(100))));
            assert!(poll(waiting.as_mut()).is_pending());
            table.leases.release_now(&grant).unwrap();
        });
        let renewed =
            table.leases.owned_by_now(&owner("b")).unwrap().pop().and_then(|b| table.leases.renew_now(&b).ok());
        if let Some(renewed) = renewed {
            waiter.join().unwrap();
            table.leases.release_now(&renewed).expect("a renewed tenure is not passed on");
        } else {
            waiter.join().unwrap();
        }
        close(&table);
    });
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Bell(core::sync::atomic::AtomicUsize);

impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, core::sync::atomic::Ordering::SeqCst);
    }
}

/// Under a checker only one call at a time processes due work, and other calls leave their due work to that call.
#[test]
fn a_tick_meets_a_later_one() {
    explore(|| {
        let table = table();
        let leases = Arc::clone(&table.leases);
        let mut bells = vec![];
        let mut waiting = vec![];
        for (resource, end) in [("r", 10), ("s", 20)] {
            leases.try_acquire_now(resource, &owner("a"), Expiry::Fixed(ms(end))).unwrap();
            let bell = Arc::<Bell>::default();
            let mut waiter = Box::pin(leases.acquire(resource, &owner("b"), Expiry::Fixed(ms(10))));
            let waker = Waker::from(Arc::clone(&bell));
            assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            bells.push(bell);
            waiting.push(waiter);
        }
        let other = spawn(&table, |table| {
            table.clock.advance(ms(10));
            table.leases.tick();
        });
        table.clock.advance(ms(10));
        table.leases.tick();
        other.join().unwrap();
        for bell in bells {
            assert!(
                bell.0.load(core::sync::atomic::Ordering::SeqCst) > 0,
                "a waiter of an expired lease was not served"
            );
        }
        drop(waiting);
        table.clock.advance(ms(10));
        close(&table);
    });
}

/// A tenure that another request of its owner has resumed is not passed on when the request that was served with it is
/// dropped.
#[test]
fn a_try_meets_a_served_request_of_its_owner_that_gives_up() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let other = spawn(&table, move |table| {
            let b = owner("b");
            let mut acquire = Box::pin(table.leases.acquire("r", &b, Expiry::Never));
            assert!(poll(acquire.as_mut()).is_pending(), "another owner has the lease");
            table.leases.release_now(&grant).unwrap();
        });
        let mine = table.leases.try_acquire_now("r", &owner("b"), Expiry::Never);
        other.join().unwrap();
        if let Ok(mine) = mine {
            table.leases.release_now(&mine).unwrap();
        }
        close(&table);
    });
}

/// Two holds of one owner never share a tenure.
#[test]
fn two_holds_of_one_owner_wait_for_each_other() {
    explore(|| {
        let table = table();
        let grant = table.at_once("b", Expiry::Never);
        let wait = |table: &Table| {
            let held = block_on(table.leases.hold("r", &owner("a"), ms(10))).unwrap();
            let token = held.token();
            match held.check() {
                Ok(checked) => assert_eq!(checked, token),
                // The other hold of the same owner took the tenure over without waiting. That hold may have finished
                // already.
                Err(lost) => assert!(matches!(lost, Lost::TakenOver | Lost::Released)),
            }
            token
        };
        let others = [spawn(&table, wait), spawn(&table, wait)];
        table.leases.release_now(&grant).unwrap();
        let [first, second] = others.map(|other| other.join().unwrap());
        assert_ne!(first, second);
        close(&table);
    });
}

#[test]
fn a_fresh_token_meets_a_renewal_of_the_old_grant() {
    explore(|| {
        let table = table();
        let old = table.at_once("a", ms(10));
        table.clock.advance(ms(2));
        let other =
            spawn(&table, |table| table.leases.try_acquire("r", &owner("a"), ms(20)).fresh_token().now().unwrap());
        let renewed = table.leases.renew_now(&old);
        let new = other.join().unwrap();
        assert!(new.token() > old.token() && !new.is_resumed());
        match renewed {
            Ok(renewed) => assert_eq!(renewed.token(), old.token()),
            Err(error) => assert_eq!(error, RenewError::Lost(Lost::TakenOver)),
        }
        assert_eq!(table.leases.renew_now(&old), Err(RenewError::Lost(Lost::TakenOver)));
        assert_eq!(table.leases.status_now("r").unwrap().unwrap().remaining(), Some(ms(20)));
        table.leases.release_now(&new).unwrap();
        close(&table);
    });
}

#[test]
fn a_fresh_token_meets_a_release_of_the_old_grant() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let old = table.at_once("a", Expiry::Never);
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        let other = spawn(&table, |table| {
            let fresh = table.leases.acquire("r", &owner("a"), Expiry::Never).fresh_token();
            let new = block_on(fresh).unwrap();
            assert_eq!(table.who().as_deref(), Some("a"));
            table.leases.release_now(&new).unwrap();
            new.token()
        });
        if let Err(error) = table.leases.release_now(&old) {
            // The old tenure has ended, and perhaps the next one, too.
            assert!(matches!(error, ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }));
        }
        assert!(other.join().unwrap() > old.token());
        waiter.join().unwrap();
        close(&table);
    });
}

/// A release with a stale grant changes nothing.
#[test]
fn a_stale_release_meets_the_next_holder() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let old = table.at_once("a", ms(10));
        table.clock.advance(ms(10));
        let others = ["b", "c"].map(|name| {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit(name, &shared))
        });
        let error = table.leases.release_now(&old).unwrap_err();
        assert!(matches!(error, ReleaseError::NotHeld { .. } | ReleaseError::NotOwner { .. }));
        for other in others {
            other.join().unwrap();
        }
        close(&table);
    });
}

/// Checks that a task that waits for the loss of a lease is woken, whatever thread it runs on.
fn loss(lose: impl Fn(&Table) + Send + Sync + 'static, expected: Lost) {
    explore(move || {
        let table = table();
        let held = block_on(table.leases.hold_arc("r", &owner("a"), ms(10))).unwrap();
        let watcher = thread::spawn(move || {
            let lost = block_on(held.lost());
            assert_eq!(held.check(), Err(lost));
            lost
        });
        lose(&table);
        assert_eq!(watcher.join().unwrap(), expected);
        table.leases.release_all_now(&owner("a")).unwrap();
        close(&table);
    });
}

#[test]
fn a_release_by_name_meets_a_watch_for_the_loss() {
    loss(|table| table.leases.release_as_now("r", &owner("a")).unwrap(), Lost::Released);
}

#[test]
fn a_fresh_hold_meets_a_watch_for_the_loss() {
    loss(
        |table| {
            let fresh = table.leases.try_acquire("r", &owner("a"), Expiry::Never).fresh_token();
            fresh.now().unwrap();
        },
        Lost::TakenOver,
    );
}

#[test]
fn the_end_meets_a_watch_for_the_loss() {
    loss(
        |table| {
            table.clock.advance(ms(10));
            table.leases.tick();
        },
        Lost::Expired,
    );
}

/// Watches a resource until the watch reports this owner; with `None`, until it reports that the resource is free.
fn watched(table: &Table, until: Option<&str>) {
    let mut watch = table.leases.watch("r");
    while block_on(watch.changed()).unwrap().map(|status| status.owner().name().to_owned()).as_deref() != until {}
}

#[test]
fn an_acquire_meets_a_watch_of_a_free_resource() {
    explore(|| {
        let table = table();
        let other = spawn(&table, |table| watched(table, Some("a")));
        let grant = table.at_once("a", Expiry::Never);
        other.join().unwrap();
        table.leases.release_now(&grant).unwrap();
        close(&table);
    });
}

#[test]
fn a_release_meets_a_watch() {
    explore(|| {
        let table = table();
        let grant = table.at_once("a", Expiry::Never);
        let other = spawn(&table, |table| watched(table, None));
        table.leases.release_now(&grant).unwrap();
        other.join().unwrap();
        close(&table);
    });
}

#[test]
fn the_end_and_a_tick_meet_a_watch() {
    explore(|| {
        let table = table();
        table.at_once("a", ms(10));
        let other = spawn(&table, |table| watched(table, None));
        table.clock.advance(ms(10));
        table.leases.tick();
        other.join().unwrap();
        close(&table);
    });
}

/// The renewal ends with the `Held`, and the waiter gets the lease.
#[test]
fn the_drop_of_a_held_meets_its_renewal() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let held = block_on(table.leases.hold_arc("r", &owner("a"), ms(10))).unwrap();
        let renewal = held.renewal();
        let renewing = thread::spawn(move || assert_eq!(block_on(renewal), Lost::Released));
        let waiter = {
            let shared = Arc::clone(&shared);
            spawn(&table, move |table| table.visit("b", &shared))
        };
        drop(held);
        renewing.join().unwrap();
        waiter.join().unwrap();
        close(&table);
    });
}

/// The work of one leader happens before that of the next leader.
#[test]
fn the_end_of_the_work_meets_a_leader_that_resigns() {
    explore(|| {
        let (table, shared) = (table(), Shared::new());
        let leadership =
            block_on(Leader::new_arc(Arc::clone(&table.leases)).campaign("r", &owner("a"), ms(10))).unwrap();
        let work = leadership.work();
        let working = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.bump();
                drop(work);
            })
        };
        block_on(leadership.resign()).unwrap();
        table.visit("b", &shared);
        working.join().unwrap();
        assert_eq!(shared.count(), 2);
        close(&table);
    });
}

#[test]
fn two_pieces_of_work_end_while_a_leader_resigns() {
    explore(|| {
        let table = table();
        let leadership =
            block_on(Leader::new_arc(Arc::clone(&table.leases)).campaign("r", &owner("a"), ms(10))).unwrap();
        let (first, second) = (leadership.work(), leadership.work());
        let others = [first, second].map(|work| thread::spawn(move || drop(work)));
        block_on(leadership.resign()).unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        close(&table);
    });
}

/// A renewal that is due while the `Held` is dropped revives nothing.
#[test]
fn the_drop_of_a_held_meets_a_renewal_that_is_due() {
    explore(|| {
        let table = table();
        let held = block_on(table.leases.hold_arc("r", &owner("a"), ms(10))).unwrap();
        let renewal = held.renewal();
        let renewing = thread::spawn(move || assert_eq!(block_on(renewal), Lost::Released));
        let ticker = spawn(&table, |table| {
            table.clock.advance(ms(9));
            table.leases.tick();
        });
        drop(held);
        renewing.join().unwrap();
        ticker.join().unwrap();
        close(&table);
    });
}

/// Either the lease is renewed in time or it has expired, and the renewal and a check of the lease agree.
#[test]
fn a_renewal_that_is_due_meets_the_end() {
    explore(|| {
        let table = table();
        let held = block_on(table.leases.hold_arc("r", &owner("a"), ms(10))).unwrap();
        let mut renewal = Box::pin(held.renewal());
        assert!(poll(renewal.as_mut()).is_pending());
        table.clock.advance(ms(9));
        table.leases.tick();
        let ticker = spawn(&table, |table| {
            table.clock.advance(ms(1));
            table.leases.tick();
        });
        let polled = poll(renewal.as_mut());
        ticker.join().unwrap();
        match polled {
            Poll::Ready(lost) => assert_eq!((lost, held.check()), (Lost::Expired, Err(Lost::Expired))),
            Poll::Pending => assert_eq!(held.check(), Ok(held.token())),
        }
        drop((renewal, held));
        close(&table);
    });
}

/// The engine in memory, used like an engine in another process.
struct Far(Memory<Time>);

impl Engine for Far {
    type Error = Infallible;

    fn now(&self) -> Duration {
        self.0.clock().now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    async fn acquire(&self, ask: Ask<'_>) -> Answered<Answer> {
        self.0.acquire(ask).await
    }

    async fn renew(&self, batch: &mut [Renewal<'_>], at: Duration) -> Answered<()> {
        self.0.renew(batch, at).await
    }

    async fn release(&self, resource: &Resource, owner: &Owner, token: Option<Token>, at: Duration) -> Answered<Gone> {
        self.0.release(resource, owner, token, at).await
    }

    async fn release_all(&self, owner: &Owner, at: Duration) -> Answered<Vec<Resource>> {
        self.0.release_all(owner, at).await
    }

    async fn look(&self, resource: &Resource, at: Duration) -> Answered<Option<Record>> {
        self.0.look(resource, at).await
    }

    async fn owned_by(&self, owner: &Owner, at: Duration) -> Answered<Vec<Owned>> {
        self.0.owned_by(owner, at).await
    }

    async fn sweep(&self, limit: usize, at: Duration) -> Answered<usize> {
        Engine::sweep(&self.0, limit, at).await
    }

    fn abandon(&self, resource: &Resource, owner: &Owner, token: Token) {
        let released = poll(pin!(self.0.release(resource, owner, Some(token), self.now())));
        assert!(released.is_ready());
    }
}

type Answered<T> = Result<T, Fail<Infallible>>;
type Renewing = Pin<Box<dyn Future<Output = Lost> + Send>>;

fn far() -> (Arc<Leases<Far>>, Time) {
    let clock = Time(Arc::new(AtomicU64::new(0)));
    (Arc::new(Leases::with_engine(Far(Memory::new(clock.clone())))), clock)
}

/// Returns a `Held`, and its renewal, which sleeps until it is due.
fn renewed(leases: &Arc<Leases<Far>>, resource: &str) -> (Held<'static, Far>, Renewing) {
    let held = block_on(leases.hold_arc(resource, &owner("a"), ms(10))).unwrap();
    let mut renewal: Renewing = Box::pin(held.renewal());
    assert!(poll(renewal.as_mut()).is_pending());
    (held, renewal)
}

/// One of the two renewals includes the other tenure in its request, and both are renewed.
#[test]
fn two_renewals_that_are_due_meet() {
    explore(|| {
        let (leases, clock) = far();
        let (first, mut renews) = renewed(&leases, "r");
        let (second, mut other) = renewed(&leases, "s");
        clock.advance(ms(4));
        let thread = thread::spawn(move || {
            assert!(poll(other.as_mut()).is_pending());
            other
        });
        assert!(poll(renews.as_mut()).is_pending());
        let other = thread.join().unwrap();
        clock.advance(ms(9));
        assert_eq!((first.check(), second.check()), (Ok(first.token()), Ok(second.token())));
        drop((renews, other, first, second));
        assert!(block_on(leases.owned_by(&owner("a"))).unwrap().is_empty());
    });
}

/// A tenure that is included in another's request may be dropped before the answer; then its resource is free.
#[test]
fn a_renewal_meets_the_drop_of_a_tenure_that_it_includes() {
    explore(|| {
        let (leases, clock) = far();
        let (first, mut renews) = renewed(&leases, "r");
        let (second, other) = renewed(&leases, "s");
        clock.advance(ms(4));
        let thread = thread::spawn(move || drop((second, other)));
        assert!(poll(renews.as_mut()).is_pending());
        thread.join().unwrap();
        clock.advance(ms(9));
        assert_eq!(first.check(), Ok(first.token()));
        drop((renews, first));
        assert!(block_on(leases.owned_by(&owner("a"))).unwrap().is_empty());
    });
}

/// The holder of a tenure that is included in another's request agrees with the engine, however late the answer is.
#[test]
fn a_renewal_of_another_meets_the_end() {
    explore(|| {
        let (leases, clock) = far();
        let (first, mut renews) = renewed(&leases, "r");
        let (second, _other) = renewed(&leases, "s");
        clock.advance(ms(4));
        let time = clock.clone();
        let thread = thread::spawn(move || {
            time.advance(ms(6));
            let was_lost = second.check().is_err();
            (second, was_lost)
        });
        let _ = poll(renews.as_mut());
        let (second, was_lost) = thread.join().unwrap();
        let is_lost = second.check().is_err();
        assert!(is_lost || !was_lost, "a lost lease came back");
        if !is_lost {
            let kept = leases.engine().0.look(second.resource(), clock.now());
            assert!(matches!(block_on(kept), Ok(Some(_))), "the engine has not renewed it");
        }
        drop(first);
    });
}
