//! Which tasks are woken, and when. Wakers run outside every lock, whatever they do.

mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{
    Acquired, Bell, Random, Scripted, Table, holder, owners, pending, poll, poll_with, ready, refused, secs, seen,
    table, take, waiters, waiting, waiting_with,
};
use futures_lite::future::yield_now;
use keylatch_lease::{Expiry, Grant, Lost, Owner};

// ---- which tasks are woken ------------------------------------------------------------------------------------------

#[test]
fn a_release_wakes_only_the_first_waiter() {
    let (table, _clock) = table();
    let [ann, bob, cid, dan] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let bells: [_; 3] = std::array::from_fn(|_| Bell::new());
    let rung = || [0, 1, 2].map(|n| bells[n].0.take());
    let mut of_bob = waiting_with(table.acquire("a", &bob, secs(10)), &bells[0].1);
    let mut of_cid = waiting_with(table.acquire("a", &cid, secs(10)), &bells[1].1);
    let mut of_dan = waiting_with(table.hold("a", &dan, secs(10)), &bells[2].1);
    assert_eq!(rung(), [0, 0, 0]);
    table.release_now(&grant).unwrap();
    assert_eq!(rung(), [1, 0, 0]);
    let grant = ready(&mut of_bob).unwrap();
    assert_eq!(rung(), [0, 0, 0]);
    table.release_now(&grant).unwrap();
    assert_eq!(rung(), [0, 1, 0]);
    table.release_now(&ready(&mut of_cid).unwrap()).unwrap();
    assert_eq!(rung(), [0, 0, 1]);
    drop(ready(&mut of_dan).unwrap());
    assert_eq!(rung(), [0, 0, 0]);
}

#[test]
fn tick_wakes_the_served_waiter_at_the_end_and_time_alone_wakes_none() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    take(&table, "a", &ann, secs(10));
    let (bell, waker) = Bell::new();
    let (next_bell, next_waker) = Bell::new();
    let mut of_bob = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    let mut of_cid = waiting_with(table.acquire("a", &cid, secs(10)), &next_waker);
    clock.advance(secs(9));
    table.tick();
    clock.advance(secs(1));
    assert_eq!((bell.take(), next_bell.take()), (0, 0));
    table.tick();
    assert_eq!((bell.take(), next_bell.take()), (1, 0));
    ready(&mut of_bob).unwrap();
    clock.advance(secs(10));
    table.status_now("a").unwrap(); // any call that looks at the resource
    assert_eq!((bell.take(), next_bell.take()), (0, 1));
    ready(&mut of_cid).unwrap();
}

#[test]
fn requests_of_one_owner_are_woken_together() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let bells: [_; 3] = std::array::from_fn(|_| Bell::new());
    let mut first = waiting_with(table.acquire("a", &bob, secs(10)), &bells[0].1);
    let mut other = waiting_with(table.acquire("a", &cid, secs(10)), &bells[1].1);
    let mut second = waiting_with(table.acquire("a", &bob, secs(10)), &bells[2].1);
    table.release_now(&grant).unwrap();
    assert_eq!([0, 1, 2].map(|n| bells[n].0.take()), [1, 0, 1]);
    assert_eq!(ready(&mut first).unwrap().token(), ready(&mut second).unwrap().token());
    pending(&mut other);
}

#[test]
fn a_request_of_the_same_owner_wakes_its_waiting_request() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (bell, waker) = Bell::new();
    let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    table.release_now(&grant).unwrap();
    assert_eq!(bell.take(), 1);
    let grant = take(&table, "a", &bob, secs(10)); // resumed
    assert_eq!(ready(&mut waiter).unwrap().token(), grant.token());
}

#[test]
fn a_waiter_refused_at_the_hand_off_and_the_next_one_are_both_woken() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (bell, waker) = Bell::new();
    let (next_bell, next_waker) = Bell::new();
    let mut of_bob = waiting_with(table.acquire("a", &bob, Scripted::new(None).expiry()), &waker);
    let mut of_cid = waiting_with(table.acquire("a", &cid, secs(10)), &next_waker);
    table.release_now(&grant).unwrap();
    assert_eq!((bell.take(), next_bell.take()), (1, 1));
    refused(ready(&mut of_bob));
    ready(&mut of_cid).unwrap();
}

#[test]
fn a_waiter_that_gives_up_wakes_the_next_one_only_if_it_was_served() {
    let (table, _clock) = table();
    let [ann, bob, cid, dan] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (bell, waker) = Bell::new();
    let of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let of_cid = waiting(table.acquire("a", &cid, secs(10)));
    let mut of_dan = waiting_with(table.acquire("a", &dan, secs(10)), &waker);
    drop(of_cid);
    assert_eq!(bell.take(), 0);
    table.release_now(&grant).unwrap();
    assert_eq!(bell.take(), 0);
    drop(of_bob);
    assert_eq!(bell.take(), 1);
    ready(&mut of_dan).unwrap();
}

#[test]
fn every_way_to_end_a_lease_wakes_the_next_waiter() {
    type End = fn(&Table, &Grant);
    let ends: [(&str, End); 4] = [
        ("release", |table, grant| table.release_now(grant).unwrap()),
        ("release_as", |table, grant| table.release_as_now(grant.resource(), grant.owner()).unwrap()),
        ("release_all", |table, grant| assert_eq!(table.release_all_now(grant.owner()).unwrap(), 1)),
        ("a future of release", |table, grant| ready(table.release(grant)).unwrap()),
    ];
    for (name, end) in ends {
        let (table, _clock) = table();
        let [ann, bob] = owners();
        let grant = take(&table, "a", &ann, secs(10));
        let (bell, waker) = Bell::new();
        let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
        end(&table, &grant);
        assert_eq!(bell.take(), 1, "{name}");
        ready(&mut waiter).unwrap();
    }
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (bell, waker) = Bell::new();
    let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    drop(held);
    assert_eq!(bell.take(), 1);
    ready(&mut waiter).unwrap();
}

#[test]
fn a_call_that_changes_nothing_wakes_no_task() {
    let (table, clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let stale = grant.clone();
    let grant = table.try_acquire("a", &ann, secs(10)).fresh_token().now().unwrap_or(grant);
    let (bell, waker) = Bell::new();
    let waiter = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    let _any = table.release_now(&stale);
    let _any = table.renew_now(&stale);
    let _any = table.release_as_now("a", &cid);
    let _any = table.try_acquire_now("a", &cid, secs(1));
    table.release_all_now(&cid).unwrap();
    table.release_expired_now().unwrap();
    clock.advance(secs(5));
    table.tick();
    table.renew_now(&grant).unwrap();
    take(&table, "a", &ann, secs(10));
    ready(table.acquire("a", &ann, secs(10)).fresh_token()).unwrap();
    drop(waiting(table.acquire("a", &cid, secs(1))));
    clock.advance(secs(9));
    table.tick();
    assert_eq!(bell.take(), 0);
    drop(waiter);
    assert_eq!(bell.take(), 0);
}

#[test]
fn lost_is_woken_by_a_release_by_a_take_over_and_by_the_tick_at_the_end() {
    let (table, clock) = table();
    let [ann, bob] = owners();
    type Lose = fn(&Table, &keylatch_lease::ManualClock);
    let losses: [(Lose, Lost); 6] = [
        (|table, _| table.release_as_now("a", &owners::<1>()[0]).unwrap(), Lost::Released),
        (|table, _| assert_eq!(table.release_all_now(&owners::<1>()[0]).unwrap(), 1), Lost::Released),
        (|table, _| drop(ready(table.acquire("a", &owners::<1>()[0], secs(1)).fresh_token())), Lost::TakenOver),
        (
            |table, _| ready(table.hold("a", &owners::<1>()[0], secs(1))).map(|held| drop(held.into_grant())).unwrap(),
            Lost::TakenOver,
        ),
        (
            |table, clock| {
                clock.advance(secs(10));
                table.tick();
            },
            Lost::Expired,
        ),
        (
            |table, clock| {
                clock.advance(secs(10));
                take(table, "a", &owners::<2>()[1], secs(1));
            },
            Lost::Expired,
        ),
    ];
    for (n, (lose, kind)) in losses.into_iter().enumerate() {
        let held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let (bell, waker) = Bell::new();
        let mut lost = waiting_with(held.lost(), &waker);
        clock.advance(Duration::from_millis(1));
        table.tick();
        assert_eq!(bell.take(), 0, "{n}");
        clock.advance(Duration::ZERO);
        lose(&table, &clock);
        assert!(bell.take() >= 1, "{n}");
        assert_eq!(ready(&mut lost), kind, "{n}");
        drop(lost);
        drop(held);
        table.release_all_now(&ann).unwrap();
        table.release_all_now(&bob).unwrap();
    }
}

#[test]
fn a_renewal_is_woken_in_time_to_renew_and_at_the_loss() {
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (bell, waker) = Bell::new();
    let mut renewal = waiting_with(held.renewal(), &waker);
    for _ in 0..1000 {
        let next = table.tick().expect("a renewal will be due");
        clock.advance(next);
        table.tick();
        assert_eq!(held.check(), Ok(held.token()));
        if bell.take() > 0 {
            assert!(poll_with(&mut renewal, &waker).is_pending());
        }
    }
    bell.take();
    table.release_as_now("a", &ann).unwrap();
    assert!(bell.take() >= 1);
    assert_eq!(ready(&mut renewal), Lost::Released);
}

#[test]
fn a_run_is_woken_when_it_is_lost_and_when_its_work_wakes_it() {
    let (table, clock) = table();
    let [ann] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (bell, waker) = Bell::new();
    let mut run = waiting_with(held.run(std::future::pending::<()>()), &waker);
    table.release_as_now("a", &ann).unwrap();
    assert!(bell.take() >= 1);
    assert_eq!(poll_with(&mut run, &waker), Poll::Ready(Err(Lost::Released)));
    drop(run);
    drop(held);
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let mut run = waiting_with(held.run(yield_now()), &waker);
    assert!(bell.take() >= 1);
    assert!(poll_with(&mut run, &waker).is_ready());
    drop(run);
    let mut run = waiting_with(held.run(std::future::pending::<()>()), &waker);
    bell.take();
    clock.advance(secs(10));
    table.tick();
    assert!(bell.take() >= 1);
    assert_eq!(poll_with(&mut run, &waker), Poll::Ready(Err(Lost::Expired)));
}

#[test]
fn a_renewal_that_outlives_its_held_is_woken_at_its_end() {
    let (table, _clock) = table();
    let table = Arc::new(table);
    let [ann] = owners();
    for end in 0..3 {
        let held = ready(table.hold_arc("a", &ann, secs(10))).unwrap();
        let (bell, waker) = Bell::new();
        let mut renewal = waiting_with(held.renewal(), &waker);
        match end {
            0 => drop(held),
            1 => ready(held.release()).unwrap(),
            _ => drop(held.into_grant()),
        }
        assert!(bell.take() >= 1, "end {end}");
        assert_eq!(ready(&mut renewal), Lost::Released);
    }
}

// ---- which waker ----------------------------------------------------------------------------------------------------

#[test]
fn a_future_that_is_polled_with_a_new_waker_forgets_the_old_one() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (old_bell, old) = Bell::new();
    let (new_bell, new) = Bell::new();
    let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &old);
    assert!(poll_with(&mut waiter, &new).is_pending());
    drop(old);
    assert_eq!(Arc::strong_count(&old_bell), 1, "the old waker is kept");
    table.release_now(&grant).unwrap();
    assert_eq!((old_bell.take(), new_bell.take()), (0, 1));
    ready(&mut waiter).unwrap();
    drop(waiter);
    drop(new);
    assert_eq!(Arc::strong_count(&new_bell), 1, "the waker is kept after the wait");
}

#[test]
fn lost_that_is_polled_with_a_new_waker_forgets_the_old_one() {
    let (table, _clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (old_bell, old) = Bell::new();
    let (new_bell, new) = Bell::new();
    let mut lost = waiting_with(held.lost(), &old);
    assert!(poll_with(&mut lost, &new).is_pending());
    drop(old);
    assert_eq!(Arc::strong_count(&old_bell), 1, "the old waker is kept");
    table.release_as_now("a", &ann).unwrap();
    assert_eq!(old_bell.take(), 0);
    assert!(new_bell.take() >= 1);
    ready(&mut lost);
    drop(lost);
    drop(held);
    drop(new);
    assert_eq!(Arc::strong_count(&new_bell), 1, "the waker is kept after the wait");
}

/// There are more watchers than one step of a call wakes.
#[test]
fn one_tick_wakes_all_watchers_of_the_ended_leases() {
    const MANY: usize = 1000;
    let (table, clock) = table();
    let [ann] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let bells: Vec<_> = (0..MANY).map(|_| Bell::new()).collect();
    let mut waiting: Vec<_> = bells.iter().map(|(_, waker)| waiting_with(held.lost(), waker)).collect();
    // Some futures are dropped, and their neighbours stay.
    for n in (0..MANY).rev().filter(|n| n % 3 == 0) {
        drop(waiting.swap_remove(n));
    }
    clock.advance(secs(10));
    table.tick();
    let rung = bells.iter().filter(|(bell, _)| bell.take() > 0).count();
    assert_eq!(rung, waiting.len());
    assert!(waiting.iter_mut().all(|lost| ready(lost) == Lost::Expired));
}

#[test]
fn a_dropped_future_takes_its_waker_along() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let mut held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (bell, waker) = Bell::new();
    drop(waiting_with(table.acquire("a", &bob, secs(10)), &waker));
    drop(waiting_with(table.hold("a", &bob, secs(10)), &waker));
    drop(waiting_with(held.lost(), &waker));
    drop(waiting_with(held.renewal(), &waker));
    drop(waiting_with(held.run(std::future::pending::<()>()), &waker));
    drop(waker);
    assert_eq!((Arc::strong_count(&bell), bell.take()), (1, 0));
}

// ---- in order, and without lost wakes -------------------------------------------------------------------------------

#[test]
fn a_thousand_waiters_are_served_in_order_and_woken_once_each() {
    let (table, _clock) = table();
    let people: Vec<_> = (0..=1000).map(|n| Owner::named(format!("owner {n}"))).collect();
    let mut grant = take(&table, "a", &people[0], secs(10));
    let bells: Vec<_> = (0..1000).map(|_| Bell::new()).collect();
    let mut rest: Vec<_> =
        (0..1000).map(|n| waiting_with(table.acquire("a", &people[n + 1], secs(10)), &bells[n].1)).collect();
    assert_eq!(waiters(&table, "a"), 1000);
    for n in 0..1000 {
        table.release_now(&grant).unwrap();
        let rung: Vec<_> = (0..1000).filter(|&n| bells[n].0.take() > 0).collect();
        assert_eq!(rung, [n]);
        let next = ready(&mut rest[n]).unwrap();
        assert_eq!(next.owner(), &people[n + 1]);
        assert!(next.token() > grant.token());
        grant = next;
    }
    table.release_now(&grant).unwrap();
    assert_eq!(table.len(), 0);
}

/// Waiters are polled only when they have been woken, as by an executor. Some give up, and some leases expire.
#[test]
fn a_waiter_polled_only_when_woken_gets_in_whatever_the_others_do() {
    struct Task<'t> {
        future: Pin<Box<dyn Future<Output = Acquired> + 't>>,
        bell: Arc<Bell>,
        waker: Waker,
    }
    for seed in 1..=60 {
        let (table, clock) = table();
        let people: [Owner; 6] = owners();
        let mut random = Random(seed * 0x9E37_79B9);
        let mut tasks: Vec<Task<'_>> = vec![];
        let mut grants: Vec<Grant> = vec![];
        let mut served = 0;
        let mut step = 0;
        loop {
            step += 1;
            // In the end phase no request is added or gives up, and all that are left must get in.
            let ending = step > 400;
            match if ending { 6 } else { random.next(9) } {
                0..=3 => {
                    let owner = &people[random.next(6) as usize];
                    let expiry =
                        if random.next(4) == 0 { Expiry::Never } else { Expiry::Sliding(secs(1 + random.next(5))) };
                    let future = table.acquire("a", owner, expiry);
                    let future: Pin<Box<dyn Future<Output = Acquired>>> =
                        if random.next(4) == 0 { Box::pin(future.fresh_token()) } else { Box::pin(future) };
                    let (bell, waker) = Bell::new();
                    waker.wake_by_ref();
                    tasks.push(Task { future, bell, waker });
                }
                4 if !tasks.is_empty() => drop(tasks.swap_remove(random.next(tasks.len() as u64) as usize)),
                5 => clock.advance(secs(random.next(3))),
                _ => {
                    if let Some(grant) = grants.pop() {
                        let _stale_perhaps = table.release_now(&grant);
                    } else if ending && !tasks.is_empty() {
                        let next = table.tick().expect("a waiter waits for the end of a lease");
                        clock.advance(next);
                    }
                }
            }
            table.tick();
            tasks.retain_mut(|Task { future, bell, waker }| {
                if bell.take() == 0 {
                    return true;
                }
                match poll_with(future, waker) {
                    Poll::Ready(acquired) => grants.push(acquired.unwrap()),
                    Poll::Pending => return true,
                }
                served += 1;
                false
            });
            if tasks.is_empty() && ending {
                break;
            }
            assert!(
                holder(&table, "a").is_some() || tasks.is_empty(),
                "seed {seed}, step {step}: the resource is free, but the waiters are not woken"
            );
            assert!(step < 5000, "seed {seed}: {} wait for ever", tasks.len());
        }
        assert!(served > 50, "seed {seed}: {served}");
    }
}

// ---- unusual wakers -------------------------------------------------------------------------------------------------

/// A waker that uses the leases when it is woken, and when it is dropped.
struct Busybody {
    table: Weak<Table>,
    came: AtomicUsize,
    of_drops: Arc<AtomicUsize>,
}

impl Busybody {
    fn waker(table: &Arc<Table>) -> (Arc<AtomicUsize>, Waker) {
        let of_drops = Arc::new(AtomicUsize::new(0));
        let busybody = Busybody { table: Arc::downgrade(table), came: AtomicUsize::new(0), of_drops: of_drops.clone() };
        (of_drops, Waker::from(Arc::new(busybody)))
    }

    fn meddle(&self) {
        let Some(table) = self.table.upgrade() else { return };
        let zoe = Owner::named("zoe");
        table.status_now("a").unwrap();
        let _any = table.try_acquire_now("a", &zoe, secs(1));
        let _any = table.release_as_now("a", &zoe);
        drop(poll(&mut Box::pin(table.acquire("a", &zoe, secs(1)))));
        take(&table, "zoe's", &zoe, secs(1));
        drop(ready(table.hold("zoe's", &zoe, secs(1))).unwrap());
        table.release_all_now(&zoe).unwrap();
        table.owned_by_now(&zoe).unwrap();
        table.release_expired_now().unwrap();
        table.tick();
        let _len = table.len();
    }
}

impl Wake for Busybody {
    fn wake(self: Arc<Self>) {
        self.came.fetch_add(1, SeqCst);
        self.meddle();
    }
}

impl Drop for Busybody {
    fn drop(&mut self) {
        self.of_drops.fetch_add(1, SeqCst);
        self.meddle();
    }
}

#[test]
fn a_waker_may_use_the_leases_when_it_is_woken_or_dropped() {
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (drops, waker) = Busybody::waker(&table);
    let mut waiter = Box::pin(table.acquire("a", &bob, secs(10)));
    assert!(poll_with(&mut waiter, &waker).is_pending());
    drop(waker); // the leases have the only reference
    assert_eq!(drops.load(SeqCst), 0);
    let (other_drops, other) = Busybody::waker(&table);
    assert!(poll_with(&mut waiter, &other).is_pending()); // drops the first waker
    drop(other);
    assert_eq!(drops.load(SeqCst), 1);
    table.release_now(&grant).unwrap(); // wakes and drops the waker
    ready(&mut waiter).unwrap();
    assert_eq!(other_drops.load(SeqCst), 1);

    let (drops, waker) = Busybody::waker(&table);
    let mut waiter = waiting_with(table.acquire("a", &cid, secs(10)), &waker);
    drop(waker);
    clock.advance(secs(10));
    table.tick(); // wakes the waker at the end of the lease
    drop(ready(&mut waiter).unwrap());
    assert_eq!(drops.load(SeqCst), 1);

    let (drops, waker) = Busybody::waker(&table);
    let waiter = waiting_with(table.acquire("a", &ann, secs(10)), &waker);
    drop(waker);
    drop(waiter); // the request gives up
    assert_eq!(drops.load(SeqCst), 1);

    let served = waiting(table.acquire("a", &ann, secs(10)));
    let (drops, waker) = Busybody::waker(&table);
    let mut next = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    drop(waker);
    table.release_as_now("a", &cid).unwrap();
    drop(served); // the lease is passed on
    ready(&mut next).unwrap();
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn a_waker_of_lost_may_use_the_leases_too() {
    let (table, clock) = table();
    let table = Arc::new(table);
    let [ann] = owners();
    for end in 0..5 {
        let held = ready(table.hold("a", &ann, secs(10))).unwrap();
        let (drops, waker) = Busybody::waker(&table);
        let mut lost = waiting_with(held.lost(), &waker);
        let mut renewal = waiting_with(held.renewal(), &waker);
        drop(waker);
        match end {
            0 => table.release_as_now("a", &ann).unwrap(),
            1 => assert_eq!(table.release_all_now(&ann).unwrap(), 1),
            2 => drop(table.try_acquire("a", &ann, secs(10)).fresh_token().now().unwrap()),
            3 => {
                clock.advance(secs(10));
                table.tick();
            }
            _ => {}
        }
        if end < 4 {
            ready(&mut lost);
            ready(&mut renewal);
        }
        drop(lost);
        drop(renewal);
        drop(held);
        assert_eq!(drops.load(SeqCst), 1, "end {end}");
        table.release_all_now(&ann).unwrap();
        assert_eq!(table.len(), 0);
    }
}

/// A waker that polls its task inside `wake`, as some executors do.
struct PollsInWake {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Wake for PollsInWake {
    fn wake(self: Arc<Self>) {
        let Some(mut task) = self.task.lock().unwrap().take() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *self.task.lock().unwrap() = Some(task);
        }
    }
}

#[test]
fn a_waker_may_poll_the_woken_task_inside_wake() {
    let (table, _clock) = table();
    let table = Arc::new(table);
    let done = Arc::new(Mutex::new(vec![]));
    let [ann] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    for n in 0..6 {
        let (table, done) = (Arc::clone(&table), Arc::clone(&done));
        let owner = Owner::named(format!("owner {n}"));
        let task = Arc::new(PollsInWake {
            task: Mutex::new(Some(Box::pin(async move {
                if n % 2 == 0 {
                    let grant = table.acquire("a", &owner, secs(10)).await.unwrap();
                    done.lock().unwrap().push(n);
                    table.release(&grant).await.unwrap(); // wakes the next task, and so runs it inside this one
                } else {
                    let held = table.hold_arc("a", &owner, secs(10)).await.unwrap();
                    done.lock().unwrap().push(n);
                    drop(held);
                }
            }))),
        });
        task.wake();
    }
    table.release_now(&grant).unwrap();
    assert_eq!(*done.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(table.len(), 0);
}

/// A waker that panics the first time.
#[derive(Default)]
struct Bomb {
    gone_off: AtomicBool,
}

impl Bomb {
    fn waker() -> (Arc<Bomb>, Waker) {
        let bomb = Arc::new(Bomb::default());
        (bomb.clone(), Waker::from(bomb))
    }
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        if !self.gone_off.swap(true, SeqCst) {
            resume_unwind(Box::new("of the waker")); // no panic hook, which would print a message
        }
    }
}

/// Makes a call that may propagate the panic of a waker. Either way the call has taken effect, and the leases are
/// consistent.
fn perhaps_panics(call: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(call)));
}

#[test]
fn a_waiter_whose_waker_panics_at_a_release_has_the_lease_and_the_next_keeps_its_place() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let (bomb, waker) = Bomb::waker();
    let (bell, next_waker) = Bell::new();
    let mut of_bob = waiting_with(table.acquire("a", &bob, secs(10)), &waker);
    let mut of_cid = waiting_with(table.acquire("a", &cid, secs(10)), &next_waker);
    perhaps_panics(|| table.release_now(&grant).unwrap());
    assert!(bomb.gone_off.load(SeqCst));
    assert_eq!((holder(&table, "a"), bell.take()), (Some(bob), 0));
    let grant = ready(&mut of_bob).unwrap();
    table.release_now(&grant).unwrap();
    assert_eq!(bell.take(), 1);
    assert_eq!(ready(&mut of_cid).unwrap().token(), seen(&table, "a").unwrap().1);
}

#[test]
fn a_waker_that_panics_when_the_lease_is_passed_on_does_not_stop_the_rest() {
    let (table, _clock) = table();
    let [ann, bob, cid] = owners();
    let grant = take(&table, "a", &ann, secs(10));
    let of_bob = waiting(table.acquire("a", &bob, secs(10)));
    let (bomb, waker) = Bomb::waker();
    let mut of_cid = waiting_with(table.acquire("a", &cid, secs(10)), &waker);
    table.release_now(&grant).unwrap();
    perhaps_panics(|| drop(of_bob));
    assert!(bomb.gone_off.load(SeqCst));
    ready(&mut of_cid).unwrap();
    table.release_as_now("a", &cid).unwrap();
    assert_eq!(table.len(), 0);
}

#[cfg(feature = "std")] // panics are caught
#[test]
fn a_waker_that_panics_does_not_prevent_other_wakes() {
    const MANY: usize = 20;
    type End = fn(&Table, &keylatch_lease::ManualClock, &Owner);
    let ends: [(&str, End); 3] = [
        ("tick", |table, clock, _| {
            clock.advance(secs(10));
            table.tick();
        }),
        ("release_expired", |table, clock, _| {
            clock.advance(secs(10));
            let _all = table.release_expired_now();
        }),
        ("release_all", |table, _, owner| drop(table.release_all_now(owner))),
    ];
    for (name, end) in ends {
        for which in 0..MANY {
            let (table, clock) = table();
            let [ann, bob] = owners();
            (0..MANY).for_each(|n| drop(take(&table, n.to_string(), &ann, secs(10))));
            let (bomb, bomb_waker) = Bomb::waker();
            let bells: Vec<_> = (0..MANY).map(|_| Bell::new()).collect();
            let waker = |n: usize| if n == which { &bomb_waker } else { &bells[n].1 };
            let mut rest: Vec<_> =
                (0..MANY).map(|n| waiting_with(table.acquire(n.to_string(), &bob, secs(10)), waker(n))).collect();
            perhaps_panics(|| end(&table, &clock, &ann));
            table.tick(); // another call
            assert!(bomb.gone_off.load(SeqCst), "{name}");
            for n in (0..MANY).filter(|&n| n != which) {
                assert!(bells[n].0.take() >= 1, "{name}: {n} is not woken, because {which} panicked");
            }
            for (n, waiter) in rest.iter_mut().enumerate() {
                assert_eq!(ready(waiter).unwrap().owner(), &bob, "{name}: {n}");
            }
        }
    }
}

#[cfg(feature = "std")] // panics are caught
#[test]
fn a_waker_of_lost_that_panics_does_not_stop_the_hand_off() {
    let (table, _clock) = table();
    let [ann, bob] = owners();
    let held = ready(table.hold("a", &ann, secs(10))).unwrap();
    let (bomb, waker) = Bomb::waker();
    let (bell, next_waker) = Bell::new();
    let (other_bell, other_waker) = Bell::new();
    let mut lost = waiting_with(held.lost(), &waker);
    let mut other = waiting_with(held.lost(), &other_waker);
    let mut waiter = waiting_with(table.acquire("a", &bob, secs(10)), &next_waker);
    perhaps_panics(|| table.release_as_now("a", &ann).unwrap());
    assert!(bomb.gone_off.load(SeqCst));
    assert!(bell.take() >= 1);
    assert!(other_bell.take() >= 1);
    assert_eq!((ready(&mut lost), ready(&mut other)), (Lost::TakenOver, Lost::TakenOver));
    assert_eq!(ready(&mut waiter).unwrap().owner(), &bob);
}
