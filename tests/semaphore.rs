//! `KeyedSemaphore`: never too many holders, and the promised order.

mod common;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready};
use futures_lite::future::{block_on, yield_now};
use keylatch::{Fairness, KeyedSemaphore, MAX_PERMITS, PermitGuard, PermitGuardArc};

#[test]
fn every_form_takes_one_permit() {
    let hosts = Arc::new(KeyedSemaphore::<String>::new(11));
    let handle = hosts.handle("a");
    let owned = hosts.handle_arc("a");
    let hour = Duration::from_secs(3600);
    let deadline = Instant::now() + hour;
    let borrowed: Vec<PermitGuard<'_, String>> = vec![
        hosts.acquire_blocking("a"),
        hosts.try_acquire("a").unwrap(),
        hosts.try_acquire_for("a", hour).unwrap(),
        hosts.try_acquire_until("a", deadline).unwrap(),
        ready(hosts.acquire("a")),
        handle.acquire_blocking(),
    ];
    let shared: Vec<PermitGuardArc<String>> = vec![
        hosts.acquire_arc_blocking("a"),
        hosts.try_acquire_arc("a").unwrap(),
        hosts.try_acquire_arc_for("a", hour).unwrap(),
        ready(hosts.acquire_arc("a")),
        owned.try_acquire().unwrap(),
    ];
    assert_eq!(hosts.status("a").unwrap().permits(), 11);
    assert!(hosts.try_acquire("a").is_none() && handle.try_acquire().is_none());
    assert!(hosts.try_acquire_for("a", Duration::ZERO).is_none());
    assert!(hosts.try_acquire_until("a", Instant::now()).is_none());
    assert!(hosts.try_acquire_arc_until("a", Instant::now()).is_none());
    assert!(block_on(hosts.acquire("a").until(std::future::ready(()))).is_err());
    assert!(hosts.try_acquire("b").is_some());
    drop((borrowed, shared, handle, owned));
    assert!(hosts.is_empty());
}

#[test]
fn invalid_numbers_of_permits_are_refused_with_a_message_that_names_them() {
    assert_eq!(KeyedSemaphore::<u64>::new(MAX_PERMITS).permits(), MAX_PERMITS);
    for permits in [0, MAX_PERMITS + 1, usize::MAX] {
        let outcome = catch_unwind(|| KeyedSemaphore::<u64>::new(permits));
        let message = *outcome.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("permits") && message.contains(&MAX_PERMITS.to_string()), "{message}");
    }
}

#[test]
fn fifo_serves_strictly_in_order_of_arrival() {
    let hosts = KeyedSemaphore::<u64>::builder(2).fairness(Fairness::Fifo).build();
    let (first, second) = (hosts.try_acquire(&7).unwrap(), hosts.try_acquire(&7).unwrap());
    let mut waiters: Vec<_> = (0..4).map(|_| hosts.acquire(&7)).collect();
    waiters.iter_mut().for_each(pending);
    drop(first);
    assert!(hosts.try_acquire(&7).is_none());
    waiters[1..].iter_mut().for_each(pending);
    let third = ready(&mut waiters[0]);
    drop(second);
    waiters[2..].iter_mut().for_each(pending);
    let fourth = ready(&mut waiters[1]);
    drop((third, fourth));
    assert_eq!(hosts.status(&7).unwrap().permits(), 2);
    drop(waiters);
    assert!(hosts.is_empty());
}

#[test]
fn a_newcomer_that_leaves_a_permit_for_the_waiter_does_not_pass_it() {
    let hosts = KeyedSemaphore::<u64>::builder(3).fairness(Fairness::Bounded(1)).build();
    let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
    let mut waiter = hosts.acquire(&7);
    pending(&mut waiter);
    held.truncate(1); // two permits are free, and the waiter is woken
    for _ in 0..9 {
        drop(hosts.try_acquire(&7).unwrap());
    }
    let third = hosts.try_acquire(&7).unwrap();
    let last = hosts.try_acquire(&7).unwrap(); // keeps the waiter out, for the first time
    pending(&mut waiter);
    drop(last);
    assert!(hosts.try_acquire(&7).is_none(), "the bound was exceeded");
    drop(ready(&mut waiter));
    drop((third, held, waiter));
    assert!(hosts.is_empty());
}

#[test]
fn unlock_fair_hands_the_permit_to_the_waiter() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(99), Fairness::Barging] {
        let hosts = KeyedSemaphore::<u64>::builder(2).fairness(fairness).build();
        let (first, _second) = (hosts.try_acquire(&7).unwrap(), hosts.try_acquire(&7).unwrap());
        let mut waiter = hosts.acquire(&7);
        pending(&mut waiter);
        first.unlock_fair();
        assert!(hosts.try_acquire(&7).is_none(), "{fairness:?}");
        drop(ready(&mut waiter));
    }
}

#[test]
fn fifty_tasks_with_five_permits_never_see_a_sixth_holder() {
    const TASKS: usize = 50;
    const ROUNDS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    for fairness in [Fairness::Fifo, Fairness::default(), Fairness::Barging] {
        let hosts = KeyedSemaphore::<u64>::builder(5).fairness(fairness).build();
        let (inside, entered, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let executor = smol::Executor::new();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (hosts, inside, entered, most) = (&hosts, &inside, &entered, &most);
                executor.spawn(async move {
                    for round in 0..ROUNDS {
                        let permit = hosts.acquire(&7).await;
                        let now = inside.fetch_add(1, SeqCst) + 1;
                        assert!(now <= 5, "{now} holders of 5 permits");
                        most.fetch_max(now, SeqCst);
                        entered.fetch_add(1, SeqCst);
                        if (task + round) % 3 == 0 {
                            yield_now().await;
                        }
                        inside.fetch_sub(1, SeqCst);
                        drop(permit);
                    }
                })
            })
            .collect();
        std::thread::scope(|scope| {
            let (stop, stopped) = async_channel::bounded::<()>(1);
            for _ in 0..2 {
                let (executor, stopped) = (&executor, stopped.clone());
                scope.spawn(move || block_on(executor.run(stopped.recv())));
            }
            block_on(async {
                for task in tasks {
                    task.await;
                }
            });
            drop(stop);
        });
        assert_eq!(entered.load(SeqCst), TASKS * ROUNDS);
        assert_eq!(most.load(SeqCst), 5, "never all permits were held at once");
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_released_permit_skips_a_waiter_that_gave_up() {
    let hosts = KeyedSemaphore::<u64>::builder(1).fairness(Fairness::Fifo).build();
    let permit = hosts.try_acquire(&7).unwrap();
    let (mut first, mut second) = (hosts.acquire(&7), hosts.acquire(&7));
    pending(&mut first);
    pending(&mut second);
    drop(permit);
    drop(first);
    assert!(poll(&mut second).is_ready());
}

// ---- several permits ------------------------------------------------------------------------------------------------

const POLICIES: [Fairness; 4] = [Fairness::Adaptive, Fairness::Bounded(3), Fairness::Fifo, Fairness::Barging];

fn semaphore(permits: usize, fairness: Fairness) -> KeyedSemaphore<u64> {
    KeyedSemaphore::builder(permits).fairness(fairness).build()
}

/// Returns the number of newcomers that pass a request that they keep out and that has not been woken, under a policy
/// that bounds it.
fn passes(fairness: Fairness) -> usize {
    match fairness {
        Fairness::Adaptive => 16,
        Fairness::Bounded(n) => n.into(),
        _ => 0,
    }
}

#[test]
fn every_form_takes_n_permits() {
    let hosts = Arc::new(KeyedSemaphore::<String>::new(36));
    let handle = hosts.handle("a");
    let owned = hosts.handle_arc("a");
    let hour = Duration::from_secs(3600);
    let deadline = Instant::now() + hour;
    let borrowed: Vec<PermitGuard<'_, String>> = vec![
        hosts.acquire_n_blocking("a", 1),
        hosts.try_acquire_n("a", 2).unwrap(),
        hosts.try_acquire_n_for("a", 3, hour).unwrap(),
        hosts.try_acquire_n_until("a", 2, deadline).unwrap(),
        ready(hosts.acquire_n("a", 2)),
        block_on(hosts.acquire_n("a", 1).until(std::future::pending::<()>())).unwrap(),
        handle.acquire_n_blocking(2),
        handle.try_acquire_n(2).unwrap(),
        handle.try_acquire_n_for(2, hour).unwrap(),
        handle.try_acquire_n_until(2, deadline).unwrap(),
        ready(handle.acquire_n(2)),
    ];
    assert!(borrowed.iter().map(PermitGuard::permits).eq([1, 2, 3, 2, 2, 1, 2, 2, 2, 2, 2]));
    let shared: Vec<PermitGuardArc<String>> = vec![
        hosts.acquire_n_arc_blocking("a", 2),
        hosts.try_acquire_n_arc("a", 3).unwrap(),
        hosts.try_acquire_n_arc_for("a", 1, hour).unwrap(),
        hosts.try_acquire_n_arc_until("a", 1, deadline).unwrap(),
        ready(hosts.acquire_n_arc("a", 2)),
        owned.acquire_n_blocking(1),
        owned.try_acquire_n(2).unwrap(),
        owned.try_acquire_n_for(1, hour).unwrap(),
        owned.try_acquire_n_until(1, deadline).unwrap(),
        ready(owned.acquire_n(1)),
    ];
    assert!(shared.iter().map(PermitGuardArc::permits).eq([2, 3, 1, 1, 2, 1, 2, 1, 1, 1]));
    assert_eq!(hosts.status("a").unwrap().permits(), 36);
    let mut shared = shared;
    drop(shared.pop()); // one permit is free; two are too many
    assert!(hosts.try_acquire_n("a", 2).is_none() && hosts.try_acquire_n_arc("a", 2).is_none());
    assert!(handle.try_acquire_n(2).is_none() && owned.try_acquire_n(2).is_none());
    assert!(hosts.try_acquire_n_for("a", 2, Duration::ZERO).is_none());
    assert!(hosts.try_acquire_n_until("a", 2, Instant::now()).is_none());
    assert!(hosts.try_acquire_n_arc_for("a", 2, Duration::ZERO).is_none());
    assert!(hosts.try_acquire_n_arc_until("a", 2, Instant::now()).is_none());
    assert!(handle.try_acquire_n_for(2, Duration::ZERO).is_none());
    assert!(owned.try_acquire_n_until(2, Instant::now()).is_none());
    assert!(block_on(hosts.acquire_n("a", 2).until(std::future::ready(()))).is_err());
    assert_eq!(hosts.status("a").unwrap().permits(), 35, "a failed request took permits");
    assert!(hosts.try_acquire_n("a", 1).is_some() && hosts.try_acquire_n("b", 36).is_some());
    drop((borrowed, shared, handle, owned));
    assert!(hosts.is_empty());
}

/// Every form panics, including the async ones, even before the key has an entry.
#[test]
fn a_request_for_zero_or_too_many_permits_panics_at_the_call() {
    let hosts = Arc::new(KeyedSemaphore::<u64>::new(3));
    for n in [0, 4, usize::MAX] {
        let refused = |call: &dyn Fn()| {
            let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
            let message = *panic.downcast::<String>().unwrap();
            assert_eq!(message, format!("keylatch: n must be between 1 and 3, the permits of a key, but is {n}"));
            assert!(hosts.is_empty(), "an entry remained");
        };
        let now = Instant::now();
        refused(&|| drop(hosts.acquire_n(&7, n)));
        refused(&|| drop(hosts.acquire_n_blocking(&7, n)));
        refused(&|| drop(hosts.try_acquire_n(&7, n)));
        refused(&|| drop(hosts.try_acquire_n_for(&7, n, Duration::ZERO)));
        refused(&|| drop(hosts.try_acquire_n_until(&7, n, now)));
        refused(&|| drop(hosts.acquire_n_arc(&7, n)));
        refused(&|| drop(hosts.acquire_n_arc_blocking(&7, n)));
        refused(&|| drop(hosts.try_acquire_n_arc(&7, n)));
        refused(&|| drop(hosts.try_acquire_n_arc_for(&7, n, Duration::ZERO)));
        refused(&|| drop(hosts.try_acquire_n_arc_until(&7, n, now)));
        refused(&|| drop(hosts.handle(&7).acquire_n(n)));
        refused(&|| drop(hosts.handle(&7).acquire_n_blocking(n)));
        refused(&|| drop(hosts.handle(&7).try_acquire_n(n)));
        refused(&|| drop(hosts.handle_arc(&7).try_acquire_n_for(n, Duration::ZERO)));
        refused(&|| drop(hosts.handle_arc(&7).try_acquire_n_until(n, now)));
    }
}

#[test]
fn splits_and_merges_do_not_change_the_status() {
    let hosts = Arc::new(KeyedSemaphore::<u64>::new(5));
    let mut guard = hosts.try_acquire_n_arc(&7, 4).unwrap();
    assert_eq!((guard.permits(), *guard.key()), (4, 7));
    for n in [0, 4, 5, usize::MAX] {
        assert!(guard.split(n).is_none());
    }
    let status = hosts.status(&7);
    let mut three = guard.split(3).unwrap();
    let one = three.split(1).unwrap();
    assert_eq!((guard.permits(), three.permits(), one.permits(), *one.key()), (1, 2, 1, 7));
    assert!(guard.split(1).is_none());
    assert_eq!(hosts.status(&7), status);
    drop(guard);
    assert_eq!(hosts.status(&7).unwrap().permits(), 3);
    let mut all = hosts.try_acquire_n_arc(&7, 2).unwrap();
    assert!(hosts.try_acquire(&7).is_none());
    all.merge(one);
    all.merge(three);
    assert_eq!((all.permits(), hosts.status(&7).unwrap().permits()), (5, 5));
    drop(all);
    assert!(hosts.is_empty(), "the last permit was released and the entry remained");
}

/// A split-off part keeps a shared table alive on its own and can move to another thread.
#[test]
fn a_part_of_an_owned_guard_outlives_the_rest() {
    let hosts = Arc::new(KeyedSemaphore::<u64>::new(2));
    let mut guard = hosts.try_acquire_n_arc(&7, 2).unwrap();
    let part = guard.split(1).unwrap();
    let mut waiter = hosts.acquire_n_arc(&7, 2);
    pending(&mut waiter);
    drop((guard, hosts));
    pending(&mut waiter);
    std::thread::spawn(move || drop(part)).join().unwrap();
    assert_eq!(ready(&mut waiter).permits(), 2);
}

#[test]
fn permits_that_cannot_be_merged_are_released() {
    let (hosts, others) = (KeyedSemaphore::<u64>::new(2), KeyedSemaphore::<u64>::new(2));
    let mut guard = hosts.try_acquire(&7).unwrap();
    for (other, fault) in [
        (hosts.try_acquire(&8).unwrap(), "keylatch: permits of different keys cannot be merged"),
        (others.try_acquire(&7).unwrap(), "keylatch: permits of different tables cannot be merged"),
    ] {
        let panic = catch_unwind(AssertUnwindSafe(|| guard.merge(other))).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), fault);
        assert_eq!((guard.permits(), hosts.len(), others.len()), (1, 1, usize::from(fault.contains("keys"))));
    }
}

#[test]
fn a_status_counts_held_permits_and_waiting_requests() {
    let hosts = KeyedSemaphore::<u64>::new(5);
    let (_two, _one) = (hosts.try_acquire_n(&7, 2).unwrap(), hosts.try_acquire(&7).unwrap());
    let (mut big, mut small) = (hosts.acquire_n(&7, 5), hosts.acquire_n(&7, 3));
    pending(&mut big);
    pending(&mut small);
    let status = hosts.status(&7).unwrap();
    assert_eq!((status.permits(), status.waiting_permits(), status.holders(), status.waiters()), (3, 2, 3, 2));
}

/// Waiters take no room from permits, and no counter wraps.
#[test]
fn the_maximum_number_of_permits_can_be_held_at_once() {
    let hosts = KeyedSemaphore::<u64>::new(MAX_PERMITS);
    let handle = hosts.handle(&7);
    let mut all = handle.try_acquire_n(MAX_PERMITS).unwrap();
    assert_eq!((all.permits(), hosts.status(&7).unwrap().permits()), (MAX_PERMITS, MAX_PERMITS));
    assert!(hosts.try_acquire(&7).is_none() && handle.try_acquire_n(2).is_none());
    pending(&mut hosts.acquire(&7));
    drop(all.split(9));
    let mut waiters = [MAX_PERMITS; 3].map(|n| hosts.acquire_n(&7, n));
    waiters.iter_mut().for_each(pending);
    drop((ready(hosts.acquire_n(&7, 9)), all, handle));
    for waiter in &mut waiters {
        assert_eq!(ready(waiter).permits(), MAX_PERMITS);
    }
    assert!(hosts.is_empty());
}

#[test]
fn a_big_request_takes_all_of_its_permits_or_none() {
    for fairness in POLICIES {
        let hosts = semaphore(3, fairness);
        let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
        let mut big = hosts.acquire_n(&7, 3);
        pending(&mut big);
        for left in [2, 1] {
            drop(held.pop());
            pending(&mut big);
            assert_eq!(hosts.status(&7).unwrap().permits(), left, "{fairness:?}");
        }
        drop(held);
        let guard = ready(&mut big);
        assert_eq!((guard.permits(), hosts.status(&7).unwrap().permits()), (3, 3), "{fairness:?}");
    }
}

/// Takes overlapping single permits, so that there are never enough for a big request.
fn small_requests<'a>(
    hosts: &'a KeyedSemaphore<u64>,
    held: &mut VecDeque<PermitGuard<'a, u64>>,
    mut passed: impl FnMut(),
) {
    for _ in 0..100 {
        drop(held.pop_front());
        let Some(permit) = hosts.try_acquire(&7) else { return };
        held.push_back(permit);
        passed();
    }
    panic!("the small requests never stop");
}

#[test]
fn a_big_request_at_the_head_is_not_starved_by_small_ones() {
    for fairness in &POLICIES[..3] {
        let hosts = semaphore(4, *fairness);
        let mut held: VecDeque<_> = (0..4).map(|_| hosts.try_acquire(&7).unwrap()).collect();
        let mut big = hosts.acquire_n(&7, 3);
        pending(&mut big);
        let mut passed = 0;
        small_requests(&hosts, &mut held, || passed += 1);
        assert_eq!(passed, passes(*fairness), "{fairness:?}");
        // Waiting small requests do not starve the big one, either.
        let mut small = hosts.acquire(&7);
        pending(&mut small);
        held.truncate(1);
        let big = ready(&mut big);
        drop(held);
        assert!(poll(&mut small).is_ready(), "{fairness:?}");
        drop((big, small));
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_big_request_behind_an_idle_one_is_not_starved_by_small_ones() {
    for fairness in &POLICIES[..3] {
        let hosts = semaphore(4, *fairness);
        let mut held: VecDeque<_> = (0..4).map(|_| hosts.try_acquire(&7).unwrap()).collect();
        let (mut idle, mut big) = (hosts.acquire(&7), hosts.acquire_n(&7, 3));
        pending(&mut idle);
        pending(&mut big);
        // From now on one permit is free, or two before a small request: the idle waiter is woken and could take one.
        drop(held.pop_front());
        let mut passed = 0;
        small_requests(&hosts, &mut held, || passed += 1);
        assert_eq!(passed, passes(*fairness), "{fairness:?}");
        drop(held);
        assert_eq!(ready(&mut big).permits(), 3, "{fairness:?}");
    }
}

/// A big request sleeps behind a waiter that is not polled. The next release that leaves enough permits wakes the big
/// request, which until then keeps the later requests asleep.
#[test]
fn a_big_request_that_sleeps_is_woken_when_enough_is_free() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(99)] {
        let hosts = semaphore(3, fairness);
        let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
        let (mut idle, mut big, mut small) = (hosts.acquire(&7), hosts.acquire_n(&7, 3), hosts.acquire(&7));
        let bells = [Bell::new(), Bell::new(), Bell::new()];
        assert!(poll_with(&mut idle, &bells[0].1).is_pending());
        assert!(poll_with(&mut big, &bells[1].1).is_pending() && poll_with(&mut small, &bells[2].1).is_pending());
        let rung = || [0, 1, 2].map(|bell| bells[bell].0.take());
        drop(held.pop());
        assert_eq!(rung(), [1, 0, 0], "{fairness:?}");
        drop(held.pop());
        assert_eq!(rung(), [0; 3], "{fairness:?}");
        drop(held.pop());
        assert_eq!(rung(), [0, 1, 0], "{fairness:?}");
        let big = ready(&mut big);
        drop(idle);
        drop(big);
        assert!(poll(&mut small).is_ready(), "{fairness:?}");
    }
}

#[test]
fn a_big_request_that_gives_up_admits_the_small_ones_at_once() {
    for fairness in &POLICIES[..3] {
        let hosts = semaphore(3, *fairness);
        let held = hosts.try_acquire(&7).unwrap();
        let mut big = hosts.acquire_n(&7, 3);
        pending(&mut big);
        for _ in 0..passes(*fairness) {
            drop(hosts.try_acquire(&7).unwrap());
        }
        let (mut first, mut second) = (hosts.acquire(&7), hosts.acquire(&7));
        let bells = [Bell::new(), Bell::new()];
        assert!(poll_with(&mut first, &bells[0].1).is_pending() && poll_with(&mut second, &bells[1].1).is_pending());
        drop(big);
        assert!(bells.iter().all(|(bell, _)| bell.take() == 1), "{fairness:?}");
        drop((ready(&mut first), ready(&mut second), held));
    }
}

/// The small request is admitted at once even if a waiter that is not polled is before both requests, because no permit
/// is reserved for that waiter.
#[test]
fn a_big_request_behind_an_idle_one_that_gives_up_admits_a_small_one_at_once() {
    let hosts = semaphore(3, Fairness::Adaptive);
    let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
    let (mut idle, mut big) = (hosts.acquire(&7), hosts.acquire_n(&7, 3));
    pending(&mut idle);
    pending(&mut big);
    drop(held.pop());
    for _ in 0..16 {
        drop(hosts.try_acquire(&7).unwrap());
    }
    let (mut small, (bell, waker)) = (hosts.acquire(&7), Bell::new());
    assert!(poll_with(&mut small, &waker).is_pending());
    drop(big);
    assert_eq!(bell.take(), 1);
    drop(ready(&mut small));
}

#[test]
fn unlock_fair_hands_over_every_permit_of_its_guard() {
    for fairness in POLICIES {
        let hosts = semaphore(4, fairness);
        let (guard, rest) = (hosts.try_acquire_n(&7, 3).unwrap(), hosts.try_acquire(&7).unwrap());
        let mut waiters = [1, 2, 1].map(|n| hosts.acquire_n(&7, n));
        waiters.iter_mut().for_each(pending);
        guard.unlock_fair();
        let status = hosts.status(&7).unwrap();
        assert_eq!((status.permits(), status.waiting_permits()), (4, 1), "{fairness:?}");
        assert!(hosts.try_acquire(&7).is_none(), "{fairness:?}");
        let [first, second, third] = &mut waiters;
        pending(third);
        let taken = (ready(first), ready(second));
        // The permits are handed to waiters in order, as long as there are enough; any request that the policy lets
        // pass may take the rest.
        let mut big = hosts.acquire_n(&7, 4);
        pending(&mut big);
        rest.unlock_fair();
        drop(ready(third));
        assert_eq!(hosts.status(&7).unwrap().permits(), 3, "{fairness:?}");
        assert_eq!(hosts.try_acquire(&7).is_some(), fairness != Fairness::Fifo, "{fairness:?}");
        drop((taken, big, waiters));
        assert!(hosts.is_empty());
    }
}

#[test]
fn permits_handed_to_a_big_request_that_gives_up_go_to_the_waiters_behind_it() {
    for fairness in POLICIES {
        let hosts = semaphore(3, fairness);
        let guard = hosts.try_acquire_n(&7, 3).unwrap();
        let mut big = hosts.acquire_n(&7, 3);
        pending(&mut big);
        let mut waiters = [1, 1, 1].map(|n| hosts.acquire_n(&7, n));
        waiters.iter_mut().for_each(pending);
        guard.unlock_fair();
        assert_eq!(hosts.status(&7).unwrap().waiting_permits(), 3, "{fairness:?}");
        drop(big);
        let status = hosts.status(&7).unwrap();
        assert_eq!((status.permits(), status.waiting_permits()), (3, 0), "{fairness:?}");
        drop(waiters);
        assert!(hosts.is_empty());
    }
}

/// A waiter whose attempts have failed four times is handed its permits by the next release that leaves enough, even if
/// a bigger request before it has failed as often, and too few permits are free for that one.
#[test]
fn a_small_request_that_is_due_does_not_wait_for_a_big_one_that_lacks_permits() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(99)] {
        let hosts = semaphore(4, fairness);
        let all = || hosts.try_acquire_n(&7, 4).unwrap();
        let mut taken = all();
        let (mut idle, mut big, mut small) = (hosts.acquire(&7), hosts.acquire_n(&7, 4), hosts.acquire(&7));
        pending(&mut idle);
        pending(&mut big);
        pending(&mut small);
        for _ in 0..4 {
            // The first waiter is not polled, so the others are woken, too, and find all permits taken again.
            drop(taken);
            drop(all());
            drop(all());
            taken = all();
            pending(&mut big);
            pending(&mut small);
        }
        let one = taken.split(1).unwrap();
        drop(taken);
        let status = hosts.status(&7).unwrap();
        assert_eq!((status.permits(), status.waiting_permits()), (2, 2), "{fairness:?}");
        drop(ready(&mut small));
        drop(one);
        assert!(hosts.try_acquire(&7).is_none(), "{fairness:?}: the permit was not handed to the big request");
        assert_eq!(ready(&mut big).permits(), 4, "{fairness:?}");
    }
}

#[test]
fn threads_that_want_one_permit_and_threads_that_want_all_make_progress() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 300 } else { 3_000 };
    for fairness in POLICIES {
        let hosts = semaphore(3, fairness);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (hosts, inside) = (&hosts, &inside);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let n = if thread == 0 { 3 } else { 1 + (thread + round) % 2 };
                        let mut permits = match round % 3 {
                            0 => block_on(hosts.acquire_n(&7, n)),
                            _ => hosts.acquire_n_blocking(&7, n),
                        };
                        assert!(inside.fetch_add(n, SeqCst) + n <= 3, "too many permits are held under {fairness:?}");
                        let part = permits.split(1);
                        inside.fetch_sub(permits.permits(), SeqCst);
                        if round % 5 == 0 {
                            permits.unlock_fair()
                        } else {
                            drop(permits)
                        }
                        inside.fetch_sub(part.as_ref().map_or(0, PermitGuard::permits), SeqCst);
                    }
                });
            }
        });
        assert!(hosts.is_empty());
    }
}
