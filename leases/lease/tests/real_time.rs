//! Behaviour that needs the system's clock: the timers of waiters, blocking calls with a limit, renewals by timers. The
//! tests are short, and not strict about times: they check that an event is not too early, and that it happens within a
//! minute.
#![cfg(feature = "std")] // threads that block

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use keylatch_lease::{AcquireError, Expiry, Leases, Lost, ManualClock, Memory, Owner};
use smol::LocalExecutor;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Runs a test, and panics if it hangs.
fn within_a_minute(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(ms(60_000)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Checks that at least this much time has passed, with some tolerance because two clocks may differ.
#[track_caller]
fn passed(start: Instant, least: Duration) {
    let passed = start.elapsed();
    assert!(passed + ms(2) >= least, "{passed:?} of {least:?}");
}

fn two() -> (Arc<Leases>, Owner, Owner) {
    (Arc::new(Leases::in_memory()), Owner::named("ann"), Owner::named("bob"))
}

#[test]
fn a_blocked_thread_is_woken_by_its_own_timer_at_the_holders_end() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        for _ in 0..5 {
            let start = Instant::now();
            let of_ann = table.try_acquire_now("a", &ann, ms(30)).unwrap();
            let of_bob = table.acquire_blocking("a", &bob, Expiry::Never).unwrap();
            passed(start, ms(30));
            assert!(of_bob.token() > of_ann.token());
            table.release_now(&of_bob).unwrap();
        }
        assert_eq!(table.len(), 0);
    });
}

#[test]
fn a_task_is_woken_by_its_own_timer_on_any_executor() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let runs: [fn(&Arc<Leases>, &Owner); 4] = [
            |table, bob| drop(block_on(table.acquire("a", bob, Expiry::Never)).unwrap()),
            |table, bob| drop(smol::block_on(table.acquire("a", bob, Expiry::Never)).unwrap()),
            |table, bob| {
                let (table, bob) = (table.clone(), bob.clone());
                let task = smol::spawn(async move { drop(table.acquire("a", &bob, Expiry::Never).await.unwrap()) });
                smol::block_on(task);
            },
            |table, bob| drop(block_on(table.hold("a", bob, ms(60_000))).unwrap().into_grant()),
        ];
        for run in runs {
            let start = Instant::now();
            drop(table.try_acquire_now("a", &ann, ms(30)).unwrap());
            run(&table, &bob);
            passed(start, ms(30));
            table.release_as_now("a", &bob).unwrap();
        }
    });
}

#[test]
fn waiters_whose_holders_die_get_in_one_after_the_other() {
    within_a_minute(|| {
        let (table, ann, _) = two();
        let start = Instant::now();
        drop(table.try_acquire_now("a", &ann, ms(10)).unwrap());
        let threads: Vec<_> = (0..10)
            .map(|n| {
                let table = table.clone();
                std::thread::spawn(move || {
                    let owner = Owner::named(format!("owner {n}"));
                    table.acquire_blocking("a", &owner, ms(10)).unwrap().token()
                })
            })
            .collect();
        let mut tokens: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 10);
        passed(start, ms(100)); // the first lease, and nine of the others
    });
}

#[test]
fn a_waiters_timer_follows_the_holders_renewals() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let start = Instant::now();
        let mut grant = table.try_acquire_now("a", &ann, ms(500)).unwrap();
        let waiter = {
            let table = table.clone();
            std::thread::spawn(move || table.acquire_blocking("a", &bob, Expiry::Never).unwrap().token())
        };
        let mut last = start;
        for _ in 0..10 {
            std::thread::sleep(ms(100));
            let before = Instant::now();
            match table.renew_now(&grant) {
                Ok(renewed) => (grant, last) = (renewed, before),
                Err(_) => break, // this thread slept too long, so the waiter has the lease
            }
        }
        assert!(waiter.join().unwrap() > grant.token());
        passed(last, ms(500));
    });
}

#[test]
fn a_waiters_timer_follows_a_fresh_tenure_with_an_earlier_end() {
    within_a_minute(|| {
        for long in [Expiry::Never, Expiry::Sliding(ms(3_600_000))] {
            let (table, ann, bob) = two();
            drop(table.try_acquire_now("a", &ann, long).unwrap());
            let waiter = {
                let table = table.clone();
                std::thread::spawn(move || table.acquire_blocking("a", &bob, Expiry::Never).unwrap().token())
            };
            std::thread::sleep(ms(20));
            let start = Instant::now();
            let fresh = table.try_acquire("a", &ann, ms(30)).fresh_token().now().unwrap();
            assert!(waiter.join().unwrap() > fresh.token());
            passed(start, ms(30));
        }
    });
}

#[test]
fn when_the_first_in_line_gives_up_the_next_one_has_the_timer() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let start = Instant::now();
        drop(table.try_acquire_now("a", &ann, ms(100)).unwrap());
        let first = {
            let (table, cid) = (table.clone(), Owner::named("cid"));
            std::thread::spawn(move || table.acquire_for("a", &cid, ms(10), ms(50)).is_ok())
        };
        while table.status_now("a").unwrap().is_some_and(|status| status.waiters() == 0) {
            std::thread::yield_now();
        }
        let grant = table.acquire_blocking("a", &bob, Expiry::Never).unwrap();
        passed(start, ms(100));
        assert_eq!(grant.owner(), &bob);
        let _as_it_comes = first.join().unwrap();
    });
}

#[test]
fn lost_follows_renewals_and_an_earlier_end() {
    within_a_minute(|| {
        let (table, ann, _) = two();
        let held = table.hold_blocking("a", &ann, ms(300)).unwrap();
        let start = Instant::now();
        let extends = {
            let (table, ann) = (table.clone(), ann.clone());
            std::thread::spawn(move || {
                std::thread::sleep(ms(100));
                let start = Instant::now();
                (start, table.try_acquire_now("a", &ann, ms(600)).unwrap().is_resumed())
            })
        };
        let lost = block_on(held.lost());
        let (extended, is_resumed) = extends.join().unwrap();
        assert_eq!(lost, Lost::Expired);
        passed(start, ms(300));
        if is_resumed {
            passed(extended, ms(600));
        }
    });
}

#[test]
fn a_wait_with_a_limit_ends() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        drop(table.try_acquire_now("a", &ann, Expiry::Never).unwrap());
        let start = Instant::now();
        assert!(matches!(table.acquire_for("a", &bob, ms(10), ms(30)), Err(AcquireError::Limit { .. })));
        passed(start, ms(30));
        let start = Instant::now();
        assert!(matches!(table.acquire("a", &bob, ms(10)).wait_for(ms(30)), Err(AcquireError::Limit { .. })));
        passed(start, ms(30));
        let limit = async {
            smol::Timer::after(ms(30)).await;
        };
        assert!(matches!(block_on(table.acquire("a", &bob, ms(10)).until(limit)), Err(AcquireError::Limit { .. })));
        assert_eq!(table.status_now("a").unwrap().unwrap().waiters(), 0);
        // The holder's lease ends before the limit.
        let start = Instant::now();
        drop(table.try_acquire_now("b", &ann, ms(30)).unwrap());
        let grant = table.acquire_for("b", &bob, Expiry::Never, ms(50_000)).unwrap();
        passed(start, ms(30));
        assert_eq!(grant.owner(), &bob);
        let grant = table.acquire_for("c", &bob, Expiry::Never, Duration::MAX).unwrap();
        assert_eq!(grant.owner(), &bob);
    });
}

#[test]
fn a_release_wakes_a_blocked_thread() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let grant = table.try_acquire_now("a", &ann, Expiry::Never).unwrap();
        let waiter = {
            let table = table.clone();
            std::thread::spawn(move || table.acquire_blocking("a", &bob, ms(60_000)).unwrap())
        };
        std::thread::sleep(ms(20));
        table.release_now(&grant).unwrap();
        assert!(waiter.join().unwrap().token() > grant.token());
    });
}

#[test]
fn run_renews_by_itself() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let mut held = table.hold_blocking("a", &ann, ms(1500)).unwrap();
        let token = held.token();
        let work = async {
            for _ in 0..7 {
                smol::Timer::after(ms(500)).await;
                assert!(table.try_acquire_now("a", &bob, ms(1)).is_err());
            }
            "done"
        };
        assert_eq!(block_on(held.run(work)), Ok("done"));
        assert_eq!(held.check(), Ok(token));
    });
}

#[test]
fn a_spawned_renewal_renews_by_itself_until_the_held_ends() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let held = smol::block_on(table.hold_arc("a", &ann, ms(1500))).unwrap();
        let renewal = smol::spawn(held.renewal());
        std::thread::sleep(ms(3500));
        assert_eq!(held.check(), Ok(held.token()));
        assert!(table.try_acquire_now("a", &bob, ms(1)).is_err());
        drop(held);
        assert_eq!(smol::block_on(renewal), Lost::Released);
        assert_eq!(table.len(), 0);
    });
}

#[test]
fn lost_is_ready_at_the_end_without_any_other_call() {
    within_a_minute(|| {
        let (table, ann, _) = two();
        for _ in 0..3 {
            let start = Instant::now();
            let held = table.hold_blocking("a", &ann, ms(30)).unwrap();
            assert_eq!(block_on(held.lost()), Lost::Expired);
            passed(start, ms(30));
            assert_eq!(held.check(), Err(Lost::Expired));
        }
        let held = table.hold_blocking("a", &ann, ms(30)).unwrap();
        assert_eq!(held.lost().wait(), Lost::Expired);
    });
}

#[test]
fn lost_is_woken_by_a_release_in_another_thread() {
    within_a_minute(|| {
        let (table, ann, _) = two();
        let held = table.hold_blocking("a", &ann, ms(60_000)).unwrap();
        let other = {
            let table = table.clone();
            std::thread::spawn(move || {
                std::thread::sleep(ms(20));
                table.release_all_now(&ann).unwrap()
            })
        };
        assert_eq!(block_on(held.lost()), Lost::Released);
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn run_ends_at_a_loss_while_its_work_sleeps() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let mut held = table.hold_blocking("a", &ann, ms(60_000)).unwrap();
        let other = {
            let (table, ann) = (table.clone(), ann.clone());
            std::thread::spawn(move || {
                std::thread::sleep(ms(20));
                table.release_as_now("a", &ann).unwrap();
            })
        };
        let done: Result<(), Lost> = block_on(held.run(std::future::pending()));
        assert_eq!(done, Err(Lost::Released));
        other.join().unwrap();
        assert_eq!(table.try_acquire_now("a", &bob, ms(1)).unwrap().owner(), &bob);
    });
}

/// The timers of the other waiters fire a little later, in case the first is not polled. The delay grows with the
/// number of waiters.
#[test]
fn an_expiry_wakes_the_next_waiter_and_not_all_of_them() {
    const TASKS: u32 = 1000;
    within_a_minute(|| {
        let table = Leases::in_memory();
        let polls = Cell::new(0);
        let start = Instant::now();
        let tasks = LocalExecutor::new();
        let waiting: Vec<_> = (0..TASKS)
            .map(|n| {
                let (table, polls) = (&table, &polls);
                tasks.spawn(async move {
                    let owner = Owner::named(format!("owner {n}"));
                    let mut acquire = Box::pin(table.acquire("a", &owner, Duration::from_micros(200)));
                    poll_fn(|cx| {
                        polls.set(polls.get() + 1);
                        acquire.as_mut().poll(cx)
                    })
                    .await
                    .unwrap()
                })
            })
            .collect();
        // No task releases its lease.
        block_on(tasks.run(async {
            for task in waiting {
                task.await;
            }
        }));
        // Each task may be polled a few times for its own events, and once every ten milliseconds.
        let rounds = u32::try_from(start.elapsed().as_millis() / 10).unwrap();
        assert!(polls.get() <= TASKS * (6 + rounds), "{} polls in {:?}", polls.get(), start.elapsed());
    });
}

/// A waiter that is first in line and is not polled blocks the others only for a moment.
#[test]
fn a_waiter_behind_one_that_is_not_polled_gets_in_by_its_own_timer() {
    within_a_minute(|| {
        let (table, ann, bob) = two();
        let _of_ann = table.try_acquire_now("a", &ann, ms(30)).unwrap();
        let lazy = Owner::named("lazy");
        let mut first = Box::pin(table.acquire("a", &lazy, ms(20)));
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        table.acquire_blocking("a", &bob, ms(20)).unwrap();
        drop(first);
    });
}

#[test]
fn moving_leases_is_cheap() {
    assert!(size_of::<Leases<Memory<ManualClock>>>() <= 256);
}
