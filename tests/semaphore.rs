//! `KeyedSemaphore`: never too many, and in the promised order.

mod common;

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{pending, poll, ready};
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
fn nonsense_is_refused_with_a_message_that_names_it() {
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
fn a_permit_that_a_newcomer_leaves_for_the_waiter_is_no_bypass() {
    let hosts = KeyedSemaphore::<u64>::builder(3).fairness(Fairness::Bounded(1)).build();
    let mut held: Vec<_> = (0..3).map(|_| hosts.try_acquire(&7).unwrap()).collect();
    let mut waiter = hosts.acquire(&7);
    pending(&mut waiter);
    held.truncate(1); // two are free, and the waiter is woken
    for _ in 0..9 {
        drop(hosts.try_acquire(&7).unwrap());
    }
    let third = hosts.try_acquire(&7).unwrap();
    let last = hosts.try_acquire(&7).unwrap(); // keeps the waiter out: once
    pending(&mut waiter);
    drop(last);
    assert!(hosts.try_acquire(&7).is_none(), "the bound");
    drop(ready(&mut waiter));
    drop((third, held, waiter));
    assert!(hosts.is_empty());
}

#[test]
fn unlock_fair_gives_the_permit_to_the_one_who_waits() {
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
        assert_eq!(most.load(SeqCst), 5, "all permits were out at some time");
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_released_permit_goes_past_a_waiter_that_gave_up() {
    let hosts = KeyedSemaphore::<u64>::builder(1).fairness(Fairness::Fifo).build();
    let permit = hosts.try_acquire(&7).unwrap();
    let (mut first, mut second) = (hosts.acquire(&7), hosts.acquire(&7));
    pending(&mut first);
    pending(&mut second);
    drop(permit);
    drop(first);
    assert!(poll(&mut second).is_ready());
}
