//! Limits of permits: of a key, of all keys, by a function of the key; and semaphores with as many permits as possible.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready, until};
use keylatch::{Fairness, KeyedSemaphore, MAX_PERMITS};

const POLICIES: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Bounded(0), Fairness::Bounded(3), Fairness::Fifo, Fairness::Barging];

type Hosts = KeyedSemaphore<u64>;

/// Returns the message of the panic of `f`.
fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("this panics");
    panic.downcast::<String>().map_or_else(|_| "another payload".to_owned(), |message| *message)
}

#[test]
fn a_higher_limit_lets_as_many_waiters_in_as_it_allows() {
    for fairness in POLICIES {
        let hosts = Hosts::builder(1).fairness(fairness).build();
        let first = hosts.try_acquire(&7).unwrap();
        let mut waiters: Vec<_> = (0..4).map(|_| hosts.acquire(&7)).collect();
        let bells: Vec<_> = waiters
            .iter_mut()
            .map(|waiter| {
                let (bell, waker) = Bell::new();
                assert!(poll_with(waiter, &waker).is_pending());
                bell
            })
            .collect();
        hosts.set_permits(&7, 3);
        let woken: Vec<_> = bells.iter().map(|bell| bell.take()).collect();
        assert_eq!(woken, [1, 1, 0, 0], "{fairness:?}");
        let held: Vec<_> = waiters.drain(..2).map(ready).collect();
        waiters.iter_mut().for_each(pending);
        assert_eq!(hosts.status(&7).unwrap().permits(), 3);
        drop((held, first, waiters));
        assert!(hosts.reset_permits(&7) && !hosts.reset_permits(&7));
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_lower_limit_interrupts_no_holder_and_applies_as_permits_come_back() {
    for fairness in POLICIES {
        let hosts = Hosts::builder(4).fairness(fairness).build();
        let mut held: Vec<_> = (0..4).map(|_| hosts.try_acquire(&7).unwrap()).collect();
        let mut waiter = hosts.acquire(&7);
        pending(&mut waiter);
        hosts.set_permits(&7, 2);
        for _ in 0..2 {
            held.pop();
            assert!(hosts.try_acquire(&7).is_none() && poll(&mut waiter).is_pending(), "{fairness:?}");
        }
        held.pop();
        held.push(ready(waiter));
        assert_eq!(hosts.status(&7).unwrap().permits(), 2);
        assert!(hosts.try_acquire(&7).is_none());
        held.clear();
        assert!(hosts.reset_permits(&7) && hosts.is_empty());
    }
}

#[test]
fn with_no_permits_nobody_gets_in_until_there_are_some_again() {
    for of_all in [false, true] {
        let hosts = Arc::new(Hosts::new(2));
        let set = |n| if of_all { hosts.set_default_permits(n) } else { hosts.set_permits(&7, n) };
        set(0);
        assert!(hosts.try_acquire(&7).is_none() && hosts.try_acquire_n(&7, 2).is_none());
        assert!(hosts.try_acquire_for(&7, Duration::ZERO).is_none());
        assert!(hosts.handle(&7).try_acquire().is_none());
        assert!(hosts.try_acquire_many([&7]).is_none());
        assert!(!hosts.is_locked(&7));
        let mut task = hosts.acquire(&7);
        pending(&mut task);
        let thread = {
            let hosts = Arc::clone(&hosts);
            std::thread::spawn(move || hosts.acquire_arc_blocking(&7).permits())
        };
        until(|| hosts.status(&7).unwrap().waiters() == 2);
        set(2);
        drop(ready(task));
        assert_eq!(thread.join().unwrap(), 1);
        assert_eq!(hosts.reset_permits(&7), !of_all);
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_limit_belongs_to_its_key_and_keeps_its_entry() {
    let hosts = Hosts::new(1);
    hosts.set_permits(&7, 2);
    hosts.set_permits(&7, 3);
    assert_eq!((hosts.len(), hosts.permits()), (1, 1));
    assert_eq!(hosts.status(&7).map(|status| (status.holders(), status.waiters())), Some((0, 0)));
    assert!(hosts.try_acquire_n(&7, 3).is_some());
    let one_by_one = [(); 3].map(|()| hosts.try_acquire(&7).unwrap());
    assert!(hosts.try_acquire(&7).is_none());
    drop(one_by_one);
    let other = hosts.try_acquire(&8).unwrap();
    assert!(hosts.try_acquire(&8).is_none());
    drop(other);
    assert_eq!(hosts.len(), 1);
    hosts.set_default_permits(2);
    let three = hosts.try_acquire_n(&7, 3).unwrap();
    assert!(hosts.try_acquire(&7).is_none());
    // The limit ends while its permits are held.
    assert!(hosts.reset_permits(&7));
    drop(three);
    assert!(hosts.is_empty());
    assert!(!hosts.reset_permits(&9) && hosts.is_empty(), "the call made an entry");
    // A table can be dropped with its limits.
    let keys = KeyedSemaphore::<String>::new(1);
    keys.set_permits("a", 5);
    let mut waiter = keys.acquire_n("a", 5);
    drop(ready(&mut waiter));
    drop(waiter);
    drop(keys);
}

#[test]
fn waiters_get_in_when_the_limit_of_their_key_ends() {
    let hosts = Hosts::new(2);
    hosts.set_permits(&7, 1);
    let first = hosts.try_acquire(&7).unwrap();
    let (bell, waker) = Bell::new();
    let mut waiter = hosts.acquire(&7);
    assert!(poll_with(&mut waiter, &waker).is_pending());
    assert!(hosts.reset_permits(&7));
    assert_eq!(bell.take(), 1);
    drop((first, ready(waiter)));
    assert!(hosts.is_empty());
}

#[test]
fn a_new_default_reaches_the_waiters_of_all_keys_without_a_limit_of_their_own() {
    for fairness in POLICIES {
        let hosts = Hosts::builder(1).fairness(fairness).build();
        hosts.set_permits(&0, 1);
        let first: Vec<_> = (0..100).map(|key| hosts.try_acquire(&key).unwrap()).collect();
        let mut waiters: Vec<_> = (0..100).map(|key| hosts.acquire(&key)).collect();
        let ring = |waiter: &mut _| {
            let (bell, waker) = Bell::new();
            assert!(poll_with(waiter, &waker).is_pending());
            bell
        };
        let bells: Vec<_> = waiters.iter_mut().map(ring).collect();
        hosts.set_default_permits(2);
        let woken: Vec<_> = bells.iter().map(|bell| bell.take()).collect();
        assert!(woken[0] == 0 && woken[1..].iter().all(|&woken| woken == 1), "{fairness:?}: {woken:?}");
        pending(&mut waiters[0]);
        let second: Vec<_> = waiters.drain(1..).map(ready).collect();
        assert!((1..100).all(|key| hosts.try_acquire(&key).is_none()));
        drop((first, second, waiters));
        assert!(hosts.reset_permits(&0) && hosts.is_empty());
        assert_eq!(hosts.permits(), 2);
    }
}

#[test]
fn a_request_for_more_than_the_limit_gets_in_alone() {
    let hosts = Hosts::builder(4).fairness(Fairness::Fifo).build();
    let first = hosts.try_acquire(&7).unwrap();
    let (mut big, mut small) = (hosts.acquire_n(&7, 4), hosts.acquire(&7));
    pending(&mut big);
    pending(&mut small);
    hosts.set_permits(&7, 2);
    drop(first);
    let big = ready(big);
    assert_eq!(big.permits(), 4);
    pending(&mut small);
    assert!(hosts.try_acquire(&7).is_none());
    drop(big);
    let small = ready(small);
    assert!(hosts.try_acquire_n(&7, 3).is_none());
    drop(small);
    assert!(hosts.try_acquire_n(&7, 3).is_some());
    // The same holds for the default limit, and for a key without an entry.
    hosts.set_default_permits(1);
    assert!(hosts.try_acquire_n(&8, 4).is_some());
    assert!(hosts.reset_permits(&7) && hosts.is_empty());
}

#[test]
fn numbers_that_no_key_can_have_are_refused() {
    let hosts = Hosts::new(2);
    let refused = [
        message(|| drop(hosts.acquire_n(&7, 3))),
        message(|| drop(hosts.handle(&7).try_acquire_n(3))),
        message(|| drop(hosts.try_acquire_n_many([(&7, 1), (&8, 3)]))),
    ];
    for refused in refused {
        assert!(refused.contains("n must be between 1 and 2") && refused.contains("is 3"), "{refused}");
    }
    for refused in
        [message(|| hosts.set_permits(&7, MAX_PERMITS + 1)), message(|| hosts.set_default_permits(usize::MAX))]
    {
        assert!(refused.contains("number of permits") && refused.contains(&MAX_PERMITS.to_string()), "{refused}");
    }
    assert!(hosts.is_empty());
    hosts.set_permits(&8, 3);
    // A key of this table has had three permits, so the request may be meant for that limit.
    assert!(hosts.try_acquire_n(&7, 3).is_some());
    hosts.set_default_permits(5);
    assert!(message(|| drop(hosts.acquire_n(&8, 6))).contains("between 1 and 5"));
    assert!(hosts.reset_permits(&8) && hosts.is_empty());
}

#[test]
fn a_function_of_the_key_sets_its_limit() {
    for fairness in POLICIES {
        let hosts = Arc::new(Hosts::builder(1).fairness(fairness).permits_for(|&key: &u64| key as u32).build());
        for key in 1..4_u64 {
            let mut held: Vec<_> = (0..key).map(|_| hosts.try_acquire(&key).unwrap()).collect();
            assert!(hosts.try_acquire(&key).is_none());
            let mut waiter = hosts.acquire(&key);
            pending(&mut waiter);
            assert!(hosts.try_acquire_for(&key, Duration::ZERO).is_none());
            held.pop();
            held.push(ready(waiter));
            drop(held);
            let handle = hosts.handle(&key);
            drop((handle.acquire_n_blocking(key as usize), handle));
            drop(hosts.acquire_many_blocking([&1, &key, &key]));
            drop(ready(hosts.acquire_n_many([(&3, 2), (&key, 1)])));
        }
        assert!(hosts.try_acquire(&0).is_none());
        // The default is not used.
        hosts.set_default_permits(9);
        assert!(hosts.try_acquire(&0).is_none());
        // A key's own limit is used, until it ends.
        hosts.set_permits(&2, 1);
        let one = hosts.try_acquire(&2).unwrap();
        let mut waiter = hosts.acquire(&2);
        pending(&mut waiter);
        assert!(hosts.reset_permits(&2));
        drop((one, ready(waiter)));
        assert!(hosts.is_empty());
    }
}

#[test]
fn a_function_that_panics_leaves_nothing_behind() {
    let panics = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&panics);
    let hosts = KeyedSemaphore::<String>::builder(1)
        .permits_for(move |key: &String| {
            assert!(!told.load(SeqCst), "no limit for {key}");
            if key == "many" { u32::MAX } else { 1 }
        })
        .build();
    let held = hosts.try_acquire("b").unwrap();
    panics.store(true, SeqCst);
    let calls: [&dyn Fn(); 9] = [
        &|| drop(hosts.try_acquire("a")),
        &|| drop(hosts.acquire_blocking("a")),
        &|| drop(hosts.try_acquire_for("a", Duration::from_secs(1))),
        &|| drop(hosts.try_acquire_until("a", Instant::now())),
        &|| drop(ready(hosts.acquire("a"))),
        &|| drop(poll(&mut hosts.acquire("b"))),
        &|| drop(hosts.acquire_many_blocking(["a", "c"])),
        &|| drop(hosts.try_acquire_n_many([("a", 1), ("b", 1)])),
        &|| drop(ready(hosts.acquire_many(["c", "a"]))),
    ];
    for call in calls {
        let message = message(call);
        assert!(message.starts_with("no limit for"), "{message}");
        assert_eq!(hosts.len(), 1);
    }
    panics.store(false, SeqCst);
    let message = message(|| drop(hosts.try_acquire("many")));
    assert!(message.contains("permits_for") && message.contains(&MAX_PERMITS.to_string()), "{message}");
    drop(held);
    assert!(hosts.is_empty());
}

/// The function runs outside all locks, so it may use the table.
#[test]
fn a_function_of_the_key_may_use_the_table() {
    let table = Arc::new(std::sync::OnceLock::<std::sync::Weak<Hosts>>::new());
    let shared = Arc::clone(&table);
    let of = move |&key: &u64| {
        let Some(hosts) = shared.get().and_then(std::sync::Weak::upgrade) else { return 1 };
        u32::from(key == 0 || hosts.try_acquire(&(key - 1)).is_some())
    };
    let hosts = Arc::new(Hosts::builder(1).permits_for(of).build());
    table.set(Arc::downgrade(&hosts)).unwrap();
    let zero = hosts.try_acquire(&0).unwrap();
    assert!(hosts.try_acquire(&1).is_none());
    drop(zero);
    assert!(hosts.try_acquire(&1).is_some());
    assert!(hosts.is_empty());
}

/// Wakers run when the limit has been set, outside all locks. A waker that panics does no other harm.
#[test]
fn a_waker_that_panics_in_a_change_of_the_limit_leaves_nothing_behind() {
    struct Loud;
    impl std::task::Wake for Loud {
        fn wake(self: Arc<Self>) {
            panic!("{}", "woken");
        }
    }
    let hosts = Hosts::new(1);
    let reset = || assert!(hosts.reset_permits(&7));
    let changes: [&dyn Fn(); 3] = [&|| hosts.set_permits(&7, 3), &reset, &|| hosts.set_default_permits(3)];
    for (which, change) in changes.into_iter().enumerate() {
        if which == 1 {
            hosts.set_permits(&7, 0);
        }
        let held = hosts.try_acquire(&7);
        let mut waiter = hosts.acquire(&7);
        assert!(poll_with(&mut waiter, &Arc::new(Loud).into()).is_pending());
        assert_eq!(message(change), "woken");
        drop((held, ready(waiter)));
        hosts.reset_permits(&7);
        assert!(hosts.is_empty());
    }
}

#[test]
fn waiters_beside_all_permits_wait_and_do_not_panic() {
    let hosts = Hosts::new(MAX_PERMITS);
    let mut all = hosts.try_acquire_n(&7, MAX_PERMITS).unwrap();
    let handle = hosts.handle(&7);
    let mut waiters: Vec<_> = (0..100).map(|_| handle.acquire_n(MAX_PERMITS)).collect();
    waiters.iter_mut().for_each(pending);
    assert!(hosts.try_acquire_for(&7, Duration::ZERO).is_none());
    let mut one = hosts.acquire(&7);
    pending(&mut one);
    assert_eq!(hosts.status(&7).unwrap().waiters(), 101);
    assert!(hosts.try_acquire_many([&7, &8]).is_none());
    hosts.for_each_key(|_, status| assert_eq!(status.permits(), MAX_PERMITS));
    let part = all.split(MAX_PERMITS / 2).unwrap();
    drop(all);
    waiters.iter_mut().for_each(pending);
    drop(part);
    for waiter in waiters {
        drop(ready(waiter));
    }
    drop((ready(one), handle));
    assert!(hosts.is_empty());
}

/// Threads acquire permits, by blocking and by async calls, while the limits keep changing. No more permits are held
/// than the greatest limit allows, and every request without a time limit gets in.
#[test]
fn limits_that_change_all_the_time_lose_no_waiter() {
    const GREATEST: usize = 3;
    for fairness in POLICIES {
        let hosts = Arc::new(Hosts::builder(GREATEST).fairness(fairness).shards(1).build());
        let (out, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        std::thread::scope(|scope| {
            let users: Vec<_> = (0..3)
                .map(|by| {
                    let (hosts, out) = (Arc::clone(&hosts), Arc::clone(&out));
                    scope.spawn(move || {
                        for round in 0..2000 {
                            let n = 1 + (round + by) % 3;
                            let held = match round % 3 {
                                0 => hosts.acquire_n_blocking(&7, n),
                                1 => futures_lite::future::block_on(hosts.acquire_n(&7, n)),
                                _ => {
                                    drop(hosts.try_acquire_for(&8, Duration::from_micros(50)));
                                    hosts.acquire_n_blocking(&7, 1)
                                }
                            };
                            let now = out.fetch_add(held.permits(), SeqCst) + held.permits();
                            assert!(now <= GREATEST, "{now} permits are out");
                            out.fetch_sub(held.permits(), SeqCst);
                        }
                    })
                })
                .collect();
            let (steered, stop) = (Arc::clone(&hosts), Arc::clone(&done));
            scope.spawn(move || {
                for round in 0.. {
                    match round % 5 {
                        0 => steered.set_permits(&7, 1),
                        1 => steered.set_default_permits(GREATEST),
                        2 => drop(steered.reset_permits(&7)),
                        3 => steered.set_permits(&7, 0),
                        _ => steered.set_default_permits(2),
                    }
                    if round % 5 == 2 && stop.load(SeqCst) {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            let outcomes: Vec<_> = users.into_iter().map(|user| user.join()).collect();
            done.store(true, SeqCst);
            outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        });
        assert!(hosts.is_empty(), "{fairness:?}");
    }
}
