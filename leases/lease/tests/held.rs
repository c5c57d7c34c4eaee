//! `Held`: checking the lease, waiting for its loss, renewing it, and releasing it.

mod common;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending as never, poll_fn, ready as at_once};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::{
    Bell, HOUR, TICK, Table, assert_send, busy, holder, left, lost, not_held, not_owner, owners, pending, poll, ready,
    secs, seen, table, take, waiters, waiting, waiting_with,
};
use keylatch_lease::{AcquireError, Clock, Expiry, Lost, ManualClock, ReleaseError};

/// Advances the clock to each time for which `tick` asks, calls `tick`, and polls the future, until this much time has
/// passed. Returns the output of the future, if it is ready before then.
fn live<F: Future + Unpin>(table: &Table, clock: &ManualClock, future: &mut F, time: Duration) -> Option<F::Output> {
    let mut passed = Duration::ZERO;
    let mut steps = 0;
    loop {
        if let Poll::Ready(output) = poll(future) {
            return Some(output);
        }
        let next = table.tick().map_or(time - passed, |next| next.min(time - passed));
        assert!(!next.is_zero(), "tick asks to be called again at once, although nothing is due");
        clock.advance(next);
        passed += next;
        table.tick();
        if passed == time {
            return None;
        }
        steps += 1;
        assert!(steps < 100_000, "tick asks to be called too often");
    }
}

/// Returns work that finishes when the test says so.
fn work_until(done: &Cell<bool>) -> impl Future<Output = &'static str> + '_ {
    poll_fn(|_| if done.get() { Poll::Ready("done") } else { Poll::Pending })
}

// ---- hold -----------------------------------------------------------------------------------------------------------

#[test]
fn hold_acquires_a_sliding_lease() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold(("e", "k"), &ann, secs(10))).unwrap();
    assert_eq!(seen(&table, ("e", "k")), Some((ann.clone(), held.token(), Some(secs(10)))));
    clock.advance(secs(4));
    let grant = held.into_grant();
    table.renew_now(&grant).unwrap();
    assert_eq!(left(&table, ("e", "k")), secs(10));
}

#[test]
fn hold_is_always_a_fresh_tenure() {
    let (table, clock) = table();
    let [ann] = owners();
    let grant = take(&table, "a", &ann, Expiry::Never);
    let first = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert!(first.token() > grant.token());
    assert_eq!(lost(table.renew_now(&grant)), Lost::TakenOver);
    clock.advance(secs(1));
    let second = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert!(second.token() > first.token());
    assert_eq!(first.check(), Err(Lost::TakenOver));
    assert_eq!(ready(first.lost()), Lost::TakenOver);
    drop(first); // leaves the second hold alone
    assert_eq!(second.check(), Ok(second.token()));
    assert_eq!(left(&table, "a"), secs(10));
}

#[test]
fn hold_waits_for_another_owners_end_and_release() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut waiter = waiting(table.hold("a", &bob, secs(10)));
    assert_eq!(waiters(&table, "a"), 1);
    drop(held);
    let held = ready(&mut waiter).unwrap();
    assert_eq!(holder(&table, "a"), Some(bob));
    let mut waiter = waiting(table.hold("a", &ann, secs(10)));
    clock.advance(secs(10));
    table.tick();
    let second = ready(&mut waiter).unwrap();
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(second.check(), Ok(second.token()));
}

#[test]
fn a_waiting_hold_has_a_limit() {
    let (table, _clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    take(&table, "a", &ann, secs(10));
    let limited = ready(table.hold("a", &bob, secs(10)).until(at_once(())));
    assert!(matches!(limited, Err(AcquireError::Limit { .. })));
    let limited = ready(table.hold_arc("a", &bob, secs(10)).until(at_once(())));
    assert!(matches!(limited, Err(AcquireError::Limit { .. })));
    let mut endless = waiting(table.hold("a", &bob, secs(10)).until(never::<()>()));
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(ready(&mut endless).unwrap().check().ok(), seen(&table, "a").map(|(_, token, _)| token));
}

#[test]
fn a_served_hold_that_is_dropped_passes_it_on() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let of_bob = waiting(table.hold("a", &bob, secs(10)));
    let mut of_cid = waiting(table.hold("a", &cid, secs(10)));
    drop(held);
    assert_eq!(holder(&table, "a"), Some(bob));
    drop(of_bob);
    assert_eq!(holder(&table, "a"), Some(cid));
    drop(ready(&mut of_cid).unwrap());
    assert_eq!(table.len(), 0);
}

#[test]
fn a_hold_of_shared_leases_is_static() {
    fn require_static<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let (table, _clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    let held = require_static(ready(table.hold_arc("a", &ann, secs(10))).unwrap());
    busy(table.try_acquire_now("a", &bob, secs(1)));
    let weak = Arc::downgrade(&table);
    drop(table);
    let token = std::thread::spawn(move || held.check().map(|token| (token, held))).join().unwrap();
    let (token, held) = token.unwrap();
    assert_eq!(token, held.token());
    drop(held);
    assert!(weak.upgrade().is_none(), "nothing keeps the leases alive");
}

// ---- check ----------------------------------------------------------------------------------------------------------

#[test]
fn check_returns_the_token_while_the_lease_is_held() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    for _ in 0..9 {
        assert_eq!(held.check(), Ok(held.token()));
        clock.advance(secs(1));
    }
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(secs(1));
    assert_eq!(held.check(), Err(Lost::Expired));
}

#[test]
fn check_reports_how_the_lease_was_lost() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(held.check(), Err(Lost::Released));
    let of_bob = take(&table, "a", &bob, secs(1));
    assert_eq!(held.check(), Err(Lost::TakenOver));
    table.release_now(&of_bob).unwrap();
    assert_eq!(held.check(), Err(Lost::Released));
    clock.advance(secs(10));
    assert_eq!(held.check(), Err(Lost::Expired));

    let held = ready(table.hold("b", &ann, secs(10))).unwrap();
    table.release_all_now(&ann).unwrap();
    assert_eq!(held.check(), Err(Lost::Released));

    let held = ready(table.hold("c", &ann, secs(10))).unwrap();
    table.try_acquire("c", &ann, secs(10)).fresh_token().now().unwrap();
    assert_eq!(held.check(), Err(Lost::TakenOver));
}

#[test]
fn acquiring_again_keeps_the_hold_and_moves_its_end() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let grant = take(&table, "a", &ann, secs(30));
    assert_eq!((grant.token(), grant.is_resumed()), (held.token(), true));
    clock.advance(secs(29));
    assert_eq!(held.check(), Ok(held.token()));
    assert_eq!(held.check_for(secs(1)), Ok(held.token()));
    clock.advance(secs(1));
    assert_eq!(held.check(), Err(Lost::Expired));
}

#[test]
fn a_check_that_finds_an_expired_lease_serves_its_waiters() {
    for how in 0..7 {
        let (table, clock) = table();
        let [ann, bob] = owners();
        let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let (bell, waker) = Bell::new();
        let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
        clock.advance(secs(10));
        assert_eq!(bell.take(), 0);
        match how {
            0 => assert_eq!(held.check(), Err(Lost::Expired)),
            1 => assert_eq!(held.check_for(secs(1)), Err(Lost::Expired)),
            2 => assert_eq!(ready(held.lost()), Lost::Expired),
            3 => assert_eq!(ready(held.renewal()), Lost::Expired),
            4 => assert_eq!(ready(held.run(at_once(()))), Err(Lost::Expired)),
            5 => assert_eq!(not_owner(ready(held.release())), bob),
            _ => drop(held),
        }
        assert_eq!(bell.take(), 1, "{how}");
        assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
    }
}

#[test]
fn check_for_requires_the_given_time() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(held.check_for(secs(10)), Ok(held.token()));
    assert_eq!(held.check_for(secs(10) + TICK), Err(Lost::TooShort));
    assert_eq!(held.check_for(Duration::MAX), Err(Lost::TooShort));
    clock.advance(secs(7));
    assert_eq!(held.check_for(secs(3)), Ok(held.token()));
    assert_eq!(held.check_for(secs(3) + TICK), Err(Lost::TooShort));
    assert_eq!(held.check_for(Duration::ZERO), Ok(held.token()));
    assert_eq!(held.check(), Ok(held.token())); // the lease is still held
    clock.advance(secs(3));
    assert_eq!(held.check_for(Duration::ZERO), Err(Lost::Expired));
    assert_eq!(held.check_for(secs(3)), Err(Lost::Expired));
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(held.check_for(HOUR), Err(Lost::Released));
}

#[test]
fn a_lease_that_never_expires_is_always_long_enough() {
    let (table, clock) = table();
    let [ann] = owners();
    clock.advance(secs(1));
    let held = ready(table.hold("a", &ann, Duration::MAX)).unwrap();
    clock.advance(HOUR);
    assert_eq!(held.check_for(Duration::MAX), Ok(held.token()));
    let mut lost = waiting(held.lost());
    assert_eq!(live(&table, &clock, &mut lost, HOUR * 1000), None);
}

// ---- lost -----------------------------------------------------------------------------------------------------------

#[test]
fn lost_is_ready_at_the_loss_and_reports_its_cause() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    assert_eq!(live(&table, &clock, &mut lost, HOUR), Some(Lost::Expired));
    assert_eq!(clock.now(), secs(10));

    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(ready(&mut lost), Lost::Released);

    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    let newer = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(ready(&mut lost), Lost::TakenOver);
    drop(lost);
    drop(held);

    let mut of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let mut lost = waiting(newer.lost());
    table.release_as_now("a", &ann).unwrap(); // bob is served
    assert_eq!(ready(&mut lost), Lost::TakenOver);
    ready(&mut of_bob).unwrap();
}

#[test]
fn lost_is_ready_at_once_after_the_loss_and_every_time() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    clock.advance(secs(10));
    assert_eq!(ready(held.lost()), Lost::Expired);
    assert_eq!(ready(held.lost()), Lost::Expired);
    #[cfg(feature = "std")]
    assert_eq!(held.lost().wait(), Lost::Expired);
}

#[test]
fn several_futures_may_wait_for_the_loss() {
    let (table, _clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut all: Vec<_> = (0..10).map(|_| waiting(held.lost())).collect();
    drop(all.split_off(5)); // dropped futures do not disturb the others
    table.release_as_now("a", &ann).unwrap();
    for lost in &mut all {
        assert_eq!(ready(lost), Lost::Released);
    }
}

#[test]
fn lost_waits_for_as_long_as_the_lease_is_extended() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    for _ in 0..20 {
        clock.advance(secs(9));
        table.tick();
        pending(&mut lost);
        take(&table, "a", &ann, secs(10));
    }
    assert_eq!(live(&table, &clock, &mut lost, HOUR), Some(Lost::Expired));
}

#[test]
fn lost_waits_while_other_owners_request_the_resource() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut lost = waiting(held.lost());
    busy(table.try_acquire_now("a", &bob, secs(1)));
    drop(waiting(table.acquire("a", &bob, secs(1))));
    not_owner(table.release_as_now("a", &bob));
    table.release_all_now(&bob).unwrap();
    pending(&mut lost);
    drop(lost);
    assert_eq!(held.check(), Ok(held.token()));
}

// ---- run ------------------------------------------------------------------------------------------------------------

#[test]
fn run_returns_the_output_of_the_work() {
    let (table, _clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(ready(held.run(at_once(7))), Ok(7));
    assert_eq!(ready(held.run(at_once(8))), Ok(8)); // any number of times
    #[cfg(feature = "std")]
    assert_eq!(held.run(at_once(9)).wait(), Ok(9));
    assert_eq!(held.check(), Ok(held.token()));
    assert_eq!(holder(&table, "a"), Some(ann));
}

#[test]
fn run_accepts_work_that_borrows_and_is_not_send() {
    let (table, _clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let log = Rc::new(RefCell::new(vec![]));
    let text = String::from("borrowed");
    let work = async {
        log.borrow_mut().push(text.as_str());
        futures_lite::future::yield_now().await;
        log.borrow_mut().push("end");
    };
    assert_eq!(futures_lite::future::block_on(held.run(work)), Ok(()));
    assert_eq!(*log.borrow(), ["borrowed", "end"]);
}

#[test]
fn run_is_send_if_the_work_is_send() {
    let (table, _clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(ready(assert_send(held.run(async { 7 }))), Ok(7));
}

#[test]
fn run_renews_for_as_long_as_the_work_takes() {
    for ttl in [Duration::from_millis(1), secs(10), HOUR] {
        let (table, clock) = table();
        let [ann, bob] = owners();
        let mut held = ready(table.hold("a", &ann, ttl)).unwrap();
        let token = held.token();
        let done = Cell::new(false);
        let mut run = Box::pin(held.run(work_until(&done)));
        let mut of_bob = waiting(table.acquire("a", &bob, secs(1)));
        assert_eq!(live(&table, &clock, &mut run, ttl * 100), None);
        assert_eq!(seen(&table, "a").map(|(owner, token, _)| (owner, token)), Some((ann, token)));
        pending(&mut of_bob);
        done.set(true);
        assert_eq!(ready(&mut run), Ok("done"));
        drop(run);
        drop(held);
        ready(&mut of_bob).unwrap();
    }
}

#[test]
fn run_checks_the_lease_before_each_poll_of_the_work() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let polls = Cell::new(0);
    let counts = || {
        poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        })
    };
    let mut run = waiting(held.run(counts()));
    pending(&mut run);
    assert_eq!(polls.get(), 2);
    clock.advance(secs(10)); // the loss is noticed without a tick
    assert_eq!(ready(&mut run), Err(Lost::Expired));
    assert_eq!(polls.get(), 2);
    drop(run);
    assert_eq!(ready(held.run(counts())), Err(Lost::Expired)); // the lease was lost before
    assert_eq!(polls.get(), 2);
}

#[test]
fn run_ends_at_the_loss_and_drops_the_work() {
    struct Dropped<'a>(&'a Cell<bool>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let (table, _clock) = table();
    let [ann] = owners();
    type Lose = fn(&Table);
    let losses: [(Lose, Lost); 3] = [
        (|table| table.release_as_now("a", &owners::<1>()[0]).unwrap(), Lost::Released),
        (|table| drop(table.release_all_now(&owners::<1>()[0])), Lost::Released),
        (
            |table| drop(table.try_acquire("a", &owners::<1>()[0], secs(1)).fresh_token().now().unwrap()),
            Lost::TakenOver,
        ),
    ];
    for (lose, kind) in losses {
        let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let gone = Cell::new(false);
        let guard = Dropped(&gone);
        let mut run = waiting(held.run(async move {
            let _guard = guard;
            never::<()>().await;
        }));
        assert!(!gone.get());
        lose(&table);
        assert_eq!(ready(&mut run), Err(kind));
        assert!(gone.get(), "the finished future must have dropped the work");
    }
}

#[test]
fn a_dropped_run_drops_the_work_and_keeps_the_hold() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let alive = Rc::new(());
    let work = alive.clone();
    let run = waiting(held.run(async move {
        let _work = work;
        never::<()>().await;
    }));
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(run);
    assert_eq!(Rc::strong_count(&alive), 1);
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(secs(10)); // and nothing renews the lease any more
    assert_eq!(held.check(), Err(Lost::Expired));
}

#[test]
fn work_may_use_the_leases_and_even_release_its_own() {
    let (table, _clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let work = async {
        table.release_as(("", "a"), &ann).await.unwrap();
        futures_lite::future::yield_now().await;
        unreachable!("the lease is lost, so the work must not run");
    };
    let done: Result<(), Lost> = futures_lite::future::block_on(held.run(work));
    assert_eq!(done, Err(Lost::Released));
}

// ---- renewal --------------------------------------------------------------------------------------------------------

#[test]
fn renewal_keeps_the_hold_for_as_long_as_it_is_polled() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut renewal = Box::pin(held.renewal());
    assert_eq!(live(&table, &clock, &mut renewal, HOUR), None);
    assert_eq!(held.check(), Ok(held.token()));
    drop(renewal);
    assert_eq!(held.check(), Ok(held.token()));
    clock.advance(secs(10));
    assert_eq!(held.check(), Err(Lost::Expired));
}

#[test]
fn while_renewal_runs_lost_waits_and_check_for_succeeds() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut renewal = Box::pin(held.renewal());
    let mut lost = waiting(held.lost());
    for _ in 0..100 {
        assert_eq!(live(&table, &clock, &mut renewal, secs(7)), None);
        pending(&mut lost);
        assert_eq!(held.check(), Ok(held.token()));
    }
    table.release_as_now("a", &ann).unwrap();
    assert_eq!((ready(&mut renewal), ready(&mut lost)), (Lost::Released, Lost::Released));
}

#[test]
fn renewal_returns_how_the_lease_was_lost() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut renewal = waiting(held.renewal());
    clock.advance(HOUR); // the renewal was not polled
    assert_eq!(ready(&mut renewal), Lost::Expired);
    assert_eq!(ready(held.renewal()), Lost::Expired);
    drop(renewal);
    drop(held);

    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut renewal = waiting(held.renewal());
    let newer = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(ready(&mut renewal), Lost::TakenOver);
    assert_eq!(newer.check(), Ok(newer.token()));
}

#[test]
fn renewal_of_shared_leases_is_static_and_ends_with_the_held() {
    fn require_static<F: Future<Output = Lost> + Send + 'static>(future: F) -> Pin<Box<F>> {
        Box::pin(future)
    }
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    for end in 0..3 {
        let held = ready(table.hold_arc("a", &ann, secs(10))).unwrap();
        let mut renewal = require_static(held.renewal());
        assert_eq!(live(&table, &clock, &mut renewal, HOUR), None);
        match end {
            0 => drop(held),
            1 => ready(held.release()).unwrap(),
            _ => {
                let grant = held.into_grant();
                assert_eq!(seen(&table, "a").map(|(_, token, _)| token), Some(grant.token()));
            }
        }
        assert_eq!(ready(&mut renewal), Lost::Released, "end {end}");
        drop(renewal);
        clock.advance(HOUR);
        take(&table, "a", &bob, secs(10)); // nothing renews the lease any more
        table.release_all_now(&bob).unwrap();
    }
    let kept = Arc::downgrade(&table);
    drop(table);
    assert!(kept.upgrade().is_none(), "nothing keeps the leases alive");
}

#[test]
fn renewal_does_not_renew_the_successors_lease_nor_revive_its_own() {
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    let held = ready(table.hold_arc("a", &ann, secs(10))).unwrap();
    let mut renewal = waiting(held.renewal());
    clock.advance(secs(10));
    take(&table, "a", &bob, secs(20));
    clock.advance(secs(1));
    assert_eq!(ready(&mut renewal), Lost::Expired);
    assert_eq!((holder(&table, "a"), left(&table, "a")), (Some(bob.clone()), secs(19)));
    drop(held);
    assert_eq!((holder(&table, "a"), left(&table, "a")), (Some(bob), secs(19)));
}

#[test]
fn a_hold_that_is_not_renewed_expires() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    while let Some(next) = table.tick() {
        clock.advance(next);
    }
    assert_eq!(held.check(), Err(Lost::Expired));
    assert_eq!(clock.now(), secs(10));
}

// ---- the end --------------------------------------------------------------------------------------------------------

#[test]
fn release_frees_the_resource() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut waiter = waiting(table.acquire("a", &bob, secs(10)));
    ready(held.release()).unwrap();
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
    table.release_as_now("a", &bob).unwrap();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    #[cfg(feature = "std")]
    held.release().wait().unwrap();
    #[cfg(not(feature = "std"))]
    drop(held);
    assert_eq!(table.len(), 0);
}

#[test]
fn releasing_a_lost_lease_fails_and_leaves_a_successor_alone() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    clock.advance(secs(10));
    not_held(ready(held.release()));
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    clock.advance(secs(10));
    take(&table, "a", &bob, secs(10));
    assert_eq!(not_owner(ready(held.release())), bob);
    assert_eq!(holder(&table, "a"), Some(bob.clone()));
    table.release_as_now("a", &bob).unwrap();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let newer = ready(table.hold("a", &ann, secs(10))).unwrap();
    assert_eq!(not_owner(ready(held.release())), ann);
    assert_eq!(newer.check(), Ok(newer.token()));
}

#[test]
fn a_release_that_is_dropped_unpolled_still_releases() {
    let (table, _clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    drop(held.release());
    assert_eq!(table.len(), 0);
}

#[test]
fn a_dropped_held_is_released_at_once() {
    let (table, _clock) = table();
    let table = Arc::new(table);
    let [ann, bob] = owners();
    let mut waiter = {
        let held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let waiter = waiting(table.acquire("a", &bob, secs(10)));
        assert_eq!(held.check(), Ok(held.token()));
        waiter
    };
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
    drop(ready(table.hold_arc("b", &ann, secs(10))).unwrap());
    assert_eq!(holder(&table, "b"), None);
}

#[test]
fn a_dropped_held_that_was_lost_leaves_the_successor_alone() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    clock.advance(secs(10));
    let of_bob = take(&table, "a", &bob, secs(10));
    drop(held);
    assert_eq!(seen(&table, "a"), Some((bob, of_bob.token(), Some(secs(10)))));
    // A newer tenure of the same owner is a successor, too.
    table.release_now(&of_bob).unwrap();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let newer = table.try_acquire("a", &ann, secs(20)).fresh_token().now().unwrap();
    drop(held);
    assert_eq!(seen(&table, "a"), Some((ann, newer.token(), Some(secs(20)))));
}

#[test]
fn into_grant_keeps_the_lease() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let token = held.token();
    let grant = held.into_grant();
    assert_eq!((grant.token(), grant.owner()), (token, &ann));
    busy(table.try_acquire_now("a", &bob, secs(1)));
    clock.advance(secs(9));
    let grant = table.renew_now(&grant).unwrap();
    table.release_now(&grant).unwrap();
    assert_eq!(table.len(), 0);
}

#[test]
fn a_forgotten_held_expires_at_its_end() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    std::mem::forget(ready(table.hold("a", &ann, secs(10))).unwrap());
    clock.advance(secs(10));
    take(&table, "a", &bob, secs(1));
}

#[test]
fn a_held_that_unwinds_is_released() {
    let (table, _clock) = table();
    let [ann] = owners();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let _never: Result<(), Lost> = ready(held.run(async { std::panic::resume_unwind(Box::new("of the work")) }));
    }));
    assert!(unwound.is_err());
    assert_eq!(table.len(), 0);
}

#[test]
fn dropping_a_held_whose_lease_was_released_by_name_releases_nothing() {
    let (table, _clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    table.release_as_now("a", &ann).unwrap();
    assert!(matches!(ready(held.release()), Err(ReleaseError::NotHeld { .. })));
}

// ---- try_hold_new ----------------------------------------------------------------------------------

#[test]
fn try_hold_new_does_not_take_over_its_own_owners_lease() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    let first = ready(table.try_hold_new("r", &ann, secs(60))).unwrap();
    let remaining = Some(secs(60));
    for owner in [&ann, &bob] {
        let refused = ready(table.try_hold_new("r", owner, secs(60)));
        assert_eq!(busy(refused.map(|held| held.into_grant())), (ann.clone(), remaining));
    }
    assert_eq!(first.check(), Ok(first.token()));
    // The call is also refused if the owner has the lease through a grant.
    drop(first);
    let grant = table.try_acquire_now("r", &ann, Expiry::Never).unwrap();
    assert!(ready(table.try_hold_new("r", &ann, secs(60))).is_err());
    table.release_now(&grant).unwrap();
    // The call does not overtake waiters.
    let held = ready(table.hold("r", &bob, secs(10))).unwrap();
    let mut next = waiting(table.acquire("r", &ann, secs(60)));
    clock.advance(secs(10));
    assert!(ready(table.try_hold_new("r", &bob, secs(60))).is_err());
    assert_eq!(*ready(&mut next).unwrap().owner(), ann);
    assert_eq!(held.check(), Err(Lost::Expired));
}

#[test]
#[should_panic = "zero"]
fn a_new_hold_for_no_time_panics() {
    let (table, _) = table();
    let [ann] = owners();
    drop(table.try_hold_new("r", &ann, Duration::ZERO));
}
