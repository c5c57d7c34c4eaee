//! Requests with priorities: their order, the forms that take a priority, and the deadlock detector.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{pending, poll, ready};
use keylatch::deadlock::Detector;
use keylatch::futures::Lock;
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, MutexGuard};

const POLICIES: [Fairness; 4] = [Fairness::Adaptive, Fairness::Bounded(2), Fairness::Fifo, Fairness::Barging];

fn mutex(fairness: Fairness) -> KeyedMutex<u64> {
    KeyedMutex::builder().fairness(fairness).build()
}

/// Holds a key while threads with these priorities begin to wait for it, one after another, by calling `wait`; then
/// releases it. Returns the priorities in the order in which the threads acquired the key.
fn order_of_threads(priorities: &[u8], wait: fn(&KeyedMutex<u64>, u8) -> MutexGuard<'_, u64>) -> Vec<u8> {
    let (locks, order) = (mutex(Fairness::Fifo), Mutex::new(vec![]));
    let held = locks.lock_blocking(&7);
    std::thread::scope(|scope| {
        for (waiters, &priority) in priorities.iter().enumerate() {
            let (locks, order) = (&locks, &order);
            scope.spawn(move || {
                let guard = wait(locks, priority);
                order.lock().unwrap().push(priority);
                drop(guard);
            });
            while locks.status(&7).is_none_or(|status| status.waiters() <= waiters) {
                std::thread::yield_now();
            }
        }
        drop(held);
    });
    order.into_inner().unwrap()
}

#[test]
fn tasks_acquire_a_key_in_order_of_their_priorities_under_every_policy() {
    for fairness in POLICIES {
        let locks = mutex(fairness);
        let mut held = locks.lock_blocking(&7);
        let mut waiting = [0, 3, 0, 255, 3].map(|priority| Some(locks.lock(&7).priority(priority)));
        waiting.iter_mut().flatten().for_each(pending);
        for next in [3, 1, 4, 0, 2] {
            held.unlock_fair();
            held = ready(waiting[next].take().unwrap());
            waiting.iter_mut().flatten().for_each(pending);
        }
    }
}

#[test]
fn threads_acquire_a_key_in_order_of_their_priorities() {
    let order = order_of_threads(&[0, 2, 9, 1], |locks, priority| locks.lock(&7).priority(priority).wait());
    assert_eq!(order, [9, 2, 1, 0]);
}

#[test]
fn timed_forms_give_up_at_their_limits_and_leave_nothing() {
    let locks = mutex(Fairness::Adaptive);
    let held = locks.lock_blocking(&7);
    let mut waits = locks.lock(&7);
    pending(&mut waits);
    assert!(locks.lock(&7).priority(9).wait_for(Duration::from_millis(1)).is_none());
    assert!(locks.lock(&7).priority(9).wait_until(Instant::now()).is_none());
    assert_eq!(locks.status(&7).unwrap().waiters(), 1);
    drop(held);
    drop(ready(waits));
    assert!(locks.lock(&7).priority(9).wait_for(Duration::ZERO).is_some());
    assert!(locks.is_empty());
}

#[test]
fn a_future_that_waits_already_can_be_waited_for_by_a_thread() {
    let locks = mutex(Fairness::Fifo);
    let held = locks.lock_blocking(&7);
    let (mut first, mut second) = (locks.lock(&7), locks.lock(&7));
    pending(&mut first);
    pending(&mut second);
    assert!(second.wait_until(Instant::now()).is_none());
    drop(held);
    // The request has been handed the key.
    drop(first.wait_until(Instant::now()).unwrap());
    let held = locks.lock_blocking(&7);
    let mut third = locks.lock(&7);
    pending(&mut third);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(held));
        drop(third.wait());
    });
    assert!(locks.is_empty());
}

#[test]
#[should_panic(expected = "`priority` was called on a lock future that has been polled")]
fn a_waiting_request_cannot_be_given_a_priority() {
    let locks = mutex(Fairness::Adaptive);
    let _held = locks.lock_blocking(&7);
    let mut waits = locks.lock(&7);
    pending(&mut waits);
    drop(waits.priority(1));
}

#[test]
#[should_panic(expected = "`priority` was called on a lock future that has been polled")]
fn a_finished_request_cannot_be_given_a_priority() {
    let locks = mutex(Fairness::Adaptive);
    let mut lock = locks.lock(&7);
    assert!(poll(&mut lock).is_ready());
    drop(lock.priority(1));
}

#[test]
fn a_finished_request_cannot_be_waited_for_in_any_form() {
    let locks = mutex(Fairness::Adaptive);
    let waits: [fn(Lock<'_, u64>) -> bool; 4] = [
        |lock| lock.wait().key() == &7,
        |lock| lock.wait_for(Duration::from_secs(1)).is_some(),
        |lock| lock.wait_for(Duration::ZERO).is_some(),
        |lock| lock.wait_until(Instant::now()).is_some(),
    ];
    for wait in waits {
        let mut lock = locks.lock(&7);
        assert!(poll(&mut lock).is_ready());
        assert!(catch_unwind(AssertUnwindSafe(|| wait(lock))).is_err());
    }
    assert!(locks.is_empty());
}

#[test]
fn the_last_priority_counts() {
    let locks = mutex(Fairness::Fifo);
    let held = locks.lock_blocking(&7);
    let (mut first, mut second) = (locks.lock(&7).priority(9).priority(0), locks.lock(&7).priority(1));
    pending(&mut first);
    pending(&mut second);
    drop(held);
    assert!(poll(&mut second).is_ready());
}

/// Checks the bound in numbers: 16 requests for each level. No clock is involved.
#[test]
fn a_request_is_passed_by_at_most_16_requests_for_each_level() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0)] {
        for levels in [1, 3] {
            let locks = mutex(fairness);
            let mut held = locks.lock_blocking(&7);
            let mut low = locks.lock(&7);
            pending(&mut low);
            let mut passed = 0;
            loop {
                let mut high = locks.lock(&7).priority(levels);
                pending(&mut high);
                drop(held);
                if let std::task::Poll::Ready(guard) = poll(&mut low) {
                    drop(guard);
                    break;
                }
                held = ready(high);
                passed += 1;
                assert!(passed <= 16 * usize::from(levels), "{fairness:?}");
            }
            assert_eq!(passed, 16 * usize::from(levels), "{fairness:?}");
        }
    }
}

/// A holder that releases and locks again at once finds the key free each time. Even under the default policy, its
/// priority lets it pass only so often, and then the policy's own rule applies.
#[test]
fn newcomers_of_a_high_priority_do_not_starve_a_task_that_is_polled() {
    for fairness in [Fairness::Adaptive, Fairness::Bounded(1)] {
        let locks = mutex(fairness);
        let mut held = locks.lock_blocking(&7);
        let mut low = locks.lock(&7);
        pending(&mut low);
        let mut passed = 0;
        loop {
            drop(held);
            let mut high = locks.lock(&7).priority(2);
            match poll(&mut high) {
                std::task::Poll::Ready(guard) => held = guard,
                std::task::Poll::Pending => break drop(ready(low)),
            }
            pending(&mut low);
            passed += 1;
            assert!(passed <= 2 * 16 + 4, "{fairness:?}");
        }
    }
}

#[test]
fn a_high_writer_goes_before_readers_that_wait_and_a_high_reader_before_a_writer() {
    for fairness in POLICIES {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let held = locks.write_blocking(&7);
        let (mut reader, mut writer) = (locks.read(&7), locks.write(&7).priority(1));
        pending(&mut reader);
        pending(&mut writer);
        held.unlock_fair();
        let held = ready(writer);
        pending(&mut reader);
        drop(held);
        let held = ready(reader);
        let mut writer = locks.write(&7);
        pending(&mut writer);
        let second = ready(locks.read(&7).priority(1));
        let third = ready(locks.upgradable_read(&7).priority(1));
        drop((held, second));
        pending(&mut writer);
        drop(third);
        drop(ready(writer));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_high_request_for_several_permits_keeps_lower_ones_waiting() {
    let jobs = KeyedSemaphore::<u64>::builder(3).fairness(Fairness::Fifo).build();
    let (one, two) = (jobs.acquire_blocking(&7), jobs.acquire_n_blocking(&7, 2));
    let (mut low, mut high) = (jobs.acquire(&7), jobs.acquire_n(&7, 3).priority(1));
    pending(&mut low);
    pending(&mut high);
    drop(one);
    pending(&mut low);
    drop(two);
    drop(ready(high));
    drop(ready(low));
}

#[test]
fn an_upgrade_goes_before_every_priority() {
    for fairness in POLICIES {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let (reader, upgradable) = (locks.read_blocking(&7), locks.upgradable_read_blocking(&7));
        let mut writer = locks.write(&7).priority(255);
        pending(&mut writer);
        let mut upgrade = upgradable.upgrade();
        pending(&mut upgrade);
        drop(reader);
        drop(ready(upgrade));
        drop(ready(writer));
    }
}

#[test]
fn handles_and_owned_forms_take_priorities() {
    let locks = Arc::new(mutex(Fairness::Fifo));
    let held = locks.lock_blocking(&7);
    let mut low = locks.lock_arc(&7);
    pending(&mut low);
    let handle = locks.handle(&7);
    let mut high = handle.lock().priority(1);
    pending(&mut high);
    let mut highest = locks.lock_arc(&7).priority(2);
    pending(&mut highest);
    drop(held);
    drop(ready(highest));
    drop(ready(high));
    drop(ready(low));
}

#[test]
fn a_limit_may_follow_a_priority() {
    let locks = mutex(Fairness::Adaptive);
    let held = locks.lock_blocking(&7);
    let limited = std::pin::pin!(locks.lock(&7).priority(1).until(std::future::ready(())));
    assert!(ready(limited).is_err());
    drop(held);
}

/// A reader whose priority is lower than a waiting writer's is not let in by a readers' phase. So it can be stuck
/// behind a writer whose party needs one more key.
#[test]
fn a_deadlock_detector_knows_which_readers_a_phase_lets_in() {
    for priority in [0, 1] {
        let (locks, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
        let _held = locks.write_blocking(&7);
        let (writer, reader) = (detector.party("writer"), detector.party("reader"));
        let _other = reader.acquire_blocking(locks.write(&9)).unwrap();
        let mut writes = writer.acquire(locks.write(&7).priority(priority));
        let mut needs_too = writer.acquire(locks.write(&9));
        assert!(poll(&mut writes).is_pending());
        assert!(poll(&mut needs_too).is_pending());
        let mut reads = reader.acquire(locks.read(&7));
        let is_stuck = matches!(poll(&mut reads), std::task::Poll::Ready(Err(_)));
        assert_eq!(is_stuck, priority == 1);
    }
}

/// Even a request of a party that holds nothing, and that nobody is waiting for, can complete a cycle: its priority
/// puts it before a waiter that would have got in.
#[test]
fn a_deadlock_detector_finds_a_cycle_that_a_request_completes_by_passing_a_waiter() {
    for priority in [0, 1] {
        let (permits, locks, detector) = (KeyedSemaphore::<u64>::new(2), KeyedMutex::<u64>::new(), Detector::new());
        let [holder, low, high] = ["holder", "low", "high"].map(|name| detector.party(name));
        let _untracked = permits.acquire_blocking(&7);
        let _permit = holder.acquire_blocking(permits.acquire(&7)).unwrap();
        let _needed = low.acquire_blocking(locks.lock(&9)).unwrap();
        // `low` gets the permit that the untracked holder will release.
        let mut waits = low.acquire(permits.acquire(&7));
        assert!(poll(&mut waits).is_pending());
        let mut needs = holder.acquire(locks.lock(&9));
        assert!(poll(&mut needs).is_pending());
        // `high` waits for `holder`, `holder` for `low`, and `low` behind `high`.
        let mut passes = high.acquire(permits.acquire_n(&7, 2).priority(priority));
        assert_eq!(matches!(poll(&mut passes), std::task::Poll::Ready(Err(_))), priority == 1);
    }
}

/// If a request passes another by its priority, the latter waits for the former.
#[test]
fn a_deadlock_detector_sees_a_request_that_has_passed_another() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let _held = locks.lock_blocking(&7);
    let (low, high) = (detector.party("low"), detector.party("high"));
    let _needed = low.acquire_blocking(locks.lock(&9)).unwrap();
    let mut waits = low.acquire(locks.lock(&7));
    assert!(poll(&mut waits).is_pending());
    let mut passes = high.acquire(locks.lock(&7).priority(1));
    assert!(poll(&mut passes).is_pending());
    // `high` waits for `low`, which waits behind `high`.
    assert!(matches!(poll(&mut high.acquire(locks.lock(&9))), std::task::Poll::Ready(Err(_))));
}
