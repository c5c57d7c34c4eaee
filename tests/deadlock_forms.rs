//! The forms in which a party acquires, adopts and releases: attempts, limits, several keys, latches; and the dump.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use keylatch::deadlock::{Detector, HoldEvent, Refused, Tracked, TrackedMany};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, Latch, LockMap, Striped, WaitMode};

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_attempt_acquires_a_free_key_and_its_hold_is_tracked() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let held = party.try_acquire(locks.lock(&1)).unwrap();
    assert!(party.try_acquire(locks.lock(&1)).is_none());
    assert_eq!(locks.status(&1).unwrap().waiters(), 0);
    assert!(block_on(party.acquire(locks.lock(&1))).unwrap_err().is_reentry());
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn an_attempt_that_completes_a_cycle_fails_the_waiting_request_of_its_party() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let _one = b.try_acquire(locks.lock(&1)).unwrap();
    let other = locks.try_lock(&2).unwrap();
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    assert!(poll(first.as_mut()).is_pending() && poll(of_b.as_mut()).is_pending());
    drop(other);
    let second = a.try_acquire(locks.lock(&2)).unwrap();
    assert!(matches!(poll(first.as_mut()), Poll::Ready(Err(_))));
    drop(second);
    assert!(poll(of_b.as_mut()).is_ready());
}

#[test]
fn a_deadline_in_the_past_tries_once_and_a_later_one_begins_to_wait() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let held = party.try_acquire_until(locks.lock(&1), Instant::now()).unwrap().unwrap();
    assert!(party.try_acquire_until(locks.lock(&1), Instant::now()).unwrap().is_none());
    let later = Instant::now() + Duration::from_secs(60);
    assert!(party.try_acquire_until(locks.lock(&1), later).unwrap_err().is_reentry());
    drop(held);
}

#[test]
fn an_adopted_guard_is_an_edge_until_it_is_released() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let one = x.adopt(locks.try_lock(&1).unwrap());
    let two = y.adopt(locks.try_lock(&2).unwrap());
    let mut waiting = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(waiting.as_mut()).is_pending());
    let deadlock = block_on(y.acquire(locks.lock(&1))).unwrap_err();
    assert_eq!(deadlock.to_string(), "y waits for 1, which x holds; x waits for 2, which y holds");
    drop(one);
    drop(block_on(y.acquire(locks.lock(&1))).unwrap());
    drop(two);
    assert!(poll(waiting.as_mut()).is_ready());
}

#[test]
fn an_adoption_that_completes_a_cycle_fails_the_waiting_request_of_its_party() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let plain = locks.try_lock(&1).unwrap();
    let _two = y.try_acquire(locks.lock(&2)).unwrap();
    let mut of_y = pin!(y.acquire(locks.lock(&1)));
    let mut of_x = pin!(x.acquire(locks.lock(&2)));
    assert!(poll(of_y.as_mut()).is_pending() && poll(of_x.as_mut()).is_pending());
    let adopted = x.adopt(plain);
    let Poll::Ready(Err(deadlock)) = poll(of_x.as_mut()) else { panic!("the request has not failed") };
    assert_eq!(deadlock.to_string(), "x waits for 2, which y holds; y waits for 1, which x holds");
    drop(adopted);
    assert!(poll(of_y.as_mut()).is_ready());
}

#[test]
fn a_hold_moves_from_one_party_to_another() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let guard = x.try_acquire(locks.lock(&1)).unwrap();
    let guard = y.adopt(guard.into_inner());
    assert!(block_on(y.acquire(locks.lock(&1))).unwrap_err().is_reentry());
    let mut of_x = pin!(x.acquire(locks.lock(&1)));
    assert!(poll(of_x.as_mut()).is_pending());
    drop(guard);
    assert!(poll(of_x.as_mut()).is_ready());
}

#[test]
fn a_forgotten_upgrade_of_an_adopted_guard_is_undone_by_the_next() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let mut editor = pages.try_upgradable_read(&1).unwrap();
    std::mem::forget(editor.try_upgrade_mut());
    let editor = x.adopt(editor);
    let mut upgrade = pin!(editor.upgrade());
    let reader = y.try_acquire(pages.read(&1)).unwrap();
    let other = x.try_acquire(pages.write(&2)).unwrap();
    // If the record of x's guard were still that of a writer, the reader would wait for x.
    let mut third = pin!(y.acquire(pages.read(&2)));
    assert!(poll(third.as_mut()).is_pending());
    assert!(matches!(poll(upgrade.as_mut()), Poll::Ready(Err(_))), "x waits for y, which waits for x");
    drop((reader, other));
    assert!(poll(third.as_mut()).is_ready());
}

#[test]
fn a_limited_upgrade_gives_the_guard_back_at_its_limit_or_with_a_deadlock() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let other = pages.try_read(&1).unwrap();
    let editor = party.try_acquire(pages.upgradable_read(&1)).unwrap();
    let (refused, editor) = block_on(editor.upgrade().until(async { 7 })).unwrap_err();
    assert_eq!(refused, Refused::Limit(7));
    // A limit that is reached later.
    let mut polls = 0;
    let limit = std::future::poll_fn(|_| {
        polls += 1;
        if polls > 2 { Poll::Ready(8) } else { Poll::Pending }
    });
    let mut limited = Box::pin(editor.upgrade().until(limit));
    assert!(poll(limited.as_mut()).is_pending());
    assert_eq!(pages.status(&1).unwrap().waiting_upgrades(), 1);
    let Poll::Ready(Err((Refused::Limit(8), editor))) = poll(limited.as_mut()) else { panic!("not at its limit") };
    drop(limited);
    assert_eq!((pages.status(&1).unwrap().upgradable(), pages.status(&1).unwrap().waiters()), (1, 0));
    let own = party.try_acquire(pages.read(&1)).unwrap();
    let (refused, editor) = block_on(editor.upgrade().until(std::future::pending::<()>())).unwrap_err();
    assert!(matches!(refused, Refused::Deadlock(deadlock) if deadlock.is_reentry()));
    drop((own, other));
    assert!(block_on(editor.upgrade().until(async {})).is_ok());
    assert!(pages.is_empty());
}

#[test]
fn a_timed_upgrade_gives_the_guard_back_after_its_timeout_or_with_a_deadlock() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let other = pages.try_read(&1).unwrap();
    let editor = party.try_acquire(pages.upgradable_read(&1)).unwrap();
    let (refused, editor) = editor.try_upgrade_for(Duration::from_millis(5)).unwrap_err();
    assert_eq!(refused, Refused::Limit(()));
    let (refused, editor) = editor.try_upgrade_until(Instant::now()).unwrap_err();
    assert_eq!(refused, Refused::Limit(()));
    assert_eq!(pages.status(&1).unwrap().waiters(), 0);
    let own = party.try_acquire(pages.read(&1)).unwrap();
    let (refused, editor) = editor.try_upgrade_for(Duration::MAX).unwrap_err();
    assert!(matches!(refused, Refused::Deadlock(deadlock) if deadlock.is_reentry()));
    drop((own, other));
    let writer = editor.try_upgrade_until(Instant::now()).unwrap();
    assert_eq!(pages.status(&1).unwrap().writers(), 1);
    drop(writer);
}

#[test]
fn a_wait_whose_upgrade_reached_its_limit_is_no_longer_an_edge() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let editor = x.try_acquire(pages.upgradable_read(&1)).unwrap();
    let _reader = y.try_acquire(pages.read(&1)).unwrap();
    let (_, editor) = editor.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    assert_eq!(detector.dump().parties()[0].waits().len(), 0);
    let mut of_y = pin!(y.acquire(pages.upgradable_read(&1)));
    assert!(poll(of_y.as_mut()).is_pending(), "x does not wait any more");
    drop(editor);
    assert!(poll(of_y.as_mut()).is_ready());
}

#[test]
fn a_party_that_waits_for_one_of_several_keys_holds_those_before_it() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let handles = [1, 2].map(|key| locks.handle(&key)); // keeps the order of the keys
    // If y holds the key that is second in the table's order, x holds the first one while it waits for the second.
    let mut cycles = 0;
    for held in [1, 2] {
        let own = y.try_acquire(locks.lock(&held)).unwrap();
        let mut many = pin!(x.acquire(locks.lock_many([&1, &2])));
        assert!(poll(many.as_mut()).is_pending());
        let other = 3 - held;
        let is_held = locks.is_locked(&other);
        let mut of_y = pin!(y.acquire(locks.lock(&other)));
        let outcome = poll(of_y.as_mut());
        assert_eq!(matches!(outcome, Poll::Ready(Err(_))), is_held, "{held}");
        cycles += usize::from(is_held);
        drop((outcome, own));
        let Poll::Ready(Ok(both)) = poll(many.as_mut()) else { panic!("both keys are free") };
        assert_eq!(both.len(), 2);
    }
    assert_eq!(cycles, 1);
    drop(handles);
}

#[test]
fn a_request_for_several_keys_that_fails_releases_all_of_them() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    for held in 0..4 {
        let own = party.try_acquire(locks.lock(&held)).unwrap();
        let deadlock = block_on(party.acquire(locks.lock_many([&0, &1, &2, &3, &0]))).unwrap_err();
        assert!(deadlock.is_reentry());
        assert_eq!(deadlock.to_string(), format!("x waits for {held}, which x holds"));
        assert_eq!(locks.len(), 1, "{held}");
        assert_eq!(detector.dump().parties()[0].holds().len(), 1);
        drop(own);
    }
    assert!(locks.is_empty() && detector.dump().parties().is_empty());
}

#[test]
fn several_keys_that_are_free_are_tracked_in_order() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let guards = x.acquire_blocking(locks.lock_many([&3, &1, &2, &1])).unwrap();
    assert!(guards.iter().map(|guard| guard.key()).eq([&3, &1, &2]));
    let mut guards = guards.into_iter();
    assert_eq!(guards.len(), 3);
    let three = guards.next().unwrap();
    let two = guards.next_back().unwrap();
    assert_eq!((three.key(), two.key()), (&3, &2));
    drop(guards);
    assert!(!locks.is_locked(&1));
    let mut of_y = pin!(y.acquire(locks.lock(&3)));
    assert!(poll(of_y.as_mut()).is_pending());
    drop(three);
    let Poll::Ready(Ok(of_y)) = poll(of_y.as_mut()) else { panic!("it is free") };
    // The second guard has a record of its own.
    let mut again = pin!(y.acquire(locks.lock(&2)));
    assert!(poll(again.as_mut()).is_pending());
    assert!(block_on(x.acquire(locks.lock(&3))).is_err());
    drop((two, of_y));
    assert!(poll(again.as_mut()).is_ready());
}

#[test]
fn several_keys_are_tracked_after_a_wait() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    for held in [1, 2] {
        let other = locks.try_lock(&held).unwrap();
        let mut many = pin!(party.acquire(locks.lock_many([&1, &2])));
        assert!(poll(many.as_mut()).is_pending());
        drop(other);
        let Poll::Ready(Ok(both)) = poll(many.as_mut()) else { panic!("both keys are free") };
        assert_eq!(detector.dump().parties()[0].holds().len(), 2);
        drop(both);
    }
    assert!(detector.dump().parties().is_empty());
}

#[test]
fn several_keys_that_complete_a_cycle_fail_the_waiting_request_of_their_party() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (a, b) = (detector.party("a"), detector.party("b"));
    let _one = b.try_acquire(locks.lock(&1)).unwrap();
    let other = locks.try_lock(&2).unwrap();
    let mut first = pin!(a.acquire(locks.lock(&1)));
    let mut of_b = pin!(b.acquire(locks.lock(&2)));
    assert!(poll(first.as_mut()).is_pending() && poll(of_b.as_mut()).is_pending());
    drop(other);
    let both = a.try_acquire(locks.lock_many([&3, &2])).unwrap();
    assert!(matches!(poll(first.as_mut()), Poll::Ready(Err(_))));
    drop(both);
    assert!(poll(of_b.as_mut()).is_ready());
}

#[test]
fn reads_and_writes_of_several_keys_are_tracked_by_mode() {
    let (map, detector) = (LockMap::<u64, u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let (reads, writes) = x.acquire_blocking(map.read_write_many([&1, &2], [&3, &2])).unwrap();
    assert_eq!((reads.len(), writes.len()), (1, 2));
    let modes = |name: &str| {
        let dump = detector.dump();
        let party = dump.parties().iter().find(|party| party.name() == name).unwrap();
        let mut modes = party.holds().iter().map(|hold| hold.mode()).collect::<Vec<_>>();
        modes.sort_by_key(|mode| mode.to_string());
        modes
    };
    assert_eq!(modes("x"), [WaitMode::Read, WaitMode::Write, WaitMode::Write]);
    let read = y.try_acquire(map.read(&1)).unwrap();
    assert!(y.try_acquire(map.read(&2)).is_none());
    let _writes: TrackedMany<_> = writes;
    drop(reads);
    assert_eq!(modes("x"), [WaitMode::Write, WaitMode::Write]);
    assert_eq!(modes("y"), [WaitMode::Read]);
    drop(read);
}

#[test]
fn a_future_for_several_keys_that_was_polled_before_is_tracked_with_what_it_holds() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let x = detector.party("x");
    for held in [1, 2] {
        let guard = locks.try_lock(&held).unwrap();
        let mut many = Box::pin(locks.lock_many([&1, &2]));
        assert!(poll(many.as_mut()).is_pending());
        let holds = usize::from(locks.is_locked(&(3 - held)));
        let mut tracked = pin!(x.acquire(*Pin::into_inner(many)));
        assert_eq!(detector.dump().parties().len(), holds);
        assert!(poll(tracked.as_mut()).is_pending());
        drop(guard);
        assert!(matches!(poll(tracked.as_mut()), Poll::Ready(Ok(both)) if both.len() == 2));
    }
    assert!(detector.dump().parties().is_empty());
}

#[test]
#[should_panic = "already finished cannot be tracked"]
fn a_future_for_several_keys_that_has_finished_cannot_be_tracked() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let mut many = Box::pin(locks.lock_many([&1, &2]));
    assert!(poll(many.as_mut()).is_ready());
    drop(detector.party("x").acquire(*Pin::into_inner(many)));
}

#[test]
fn an_empty_list_of_keys_is_acquired_at_once() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    assert!(party.try_acquire(locks.lock_many::<u64>([])).unwrap().is_empty());
    let stripes = Striped::<u64>::new(4);
    assert!(party.try_acquire(stripes.write_many::<u64>([])).unwrap().is_empty());
}

#[test]
fn a_limit_on_several_keys_releases_those_that_were_acquired() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    for held in [1, 2] {
        let other = locks.try_lock(&held).unwrap();
        let refused = block_on(party.acquire(locks.lock_many([&1, &2])).until(async { 7 })).unwrap_err();
        assert_eq!(refused, Refused::Limit(7));
        assert!(party.try_acquire_for(locks.lock_many([&1, &2]), Duration::from_millis(1)).unwrap().is_none());
        assert!(party.try_acquire(locks.lock_many([&1, &2])).is_none());
        assert_eq!(locks.len(), 1);
        drop(other);
    }
    assert!(locks.is_empty() && detector.dump().parties().is_empty());
}

#[test]
fn permits_of_several_keys_are_tracked() {
    let (hosts, detector) = (KeyedSemaphore::<u64>::new(1), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let both = x.acquire_blocking(hosts.acquire_many([&1, &2])).unwrap();
    let _three = y.try_acquire(hosts.acquire(&3)).unwrap();
    let mut waiting = pin!(y.acquire(hosts.acquire_many([&1, &2])));
    assert!(poll(waiting.as_mut()).is_pending());
    assert!(block_on(x.acquire(hosts.acquire(&3))).is_err());
    drop(both);
    assert!(poll(waiting.as_mut()).is_ready());
}

#[test]
fn a_cycle_through_latches_stripes_and_keys_is_found() {
    let (latch, stripes, locks) = (Latch::new(), Striped::<u64>::new(1), KeyedMutex::<u64>::new());
    let detector = Detector::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| detector.party(name));
    let of_x: Tracked<_> = x.try_acquire(latch.write()).unwrap();
    let of_y = y.try_acquire(stripes.write(&7)).unwrap();
    let _of_z = z.try_acquire(locks.lock(&1)).unwrap();
    let mut first = pin!(x.acquire(stripes.read(&8)));
    let mut second = pin!(y.acquire(locks.lock(&1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    let deadlock = block_on(z.acquire(latch.read())).unwrap_err();
    let links = deadlock.cycle().iter().map(|link| (link.party(), link.table())).collect::<Vec<_>>();
    assert_eq!(links[..2], [("z", "keylatch::Latch"), ("x", "keylatch::Latch")]);
    assert_eq!((links[2].0, deadlock.cycle()[2].key()), ("y", "1"));
    let address = std::ptr::from_ref(&latch).addr();
    assert_eq!(deadlock.cycle()[0].key(), format!("the latch at {address:#x}"));
    assert!(latch.try_write().is_none());
    drop(of_x);
    assert!(latch.try_write().is_some(), "the failed request has left");
    drop(of_y);
    assert!(poll(first.as_mut()).is_ready());
}

#[test]
fn a_reader_of_a_latch_behind_a_writer_that_waits_for_its_own_hold_is_a_reentry() {
    let (latch, detector) = (Latch::new(), Detector::new());
    let party = detector.party("reader");
    let read = party.try_acquire(latch.read()).unwrap();
    let mut writer = pin!(latch.write()); // untracked
    assert!(poll(writer.as_mut()).is_pending());
    // A sleeping head is passed by 16 requests, and then by none.
    let passed = std::iter::from_fn(|| match poll(pin!(party.acquire(latch.read()))) {
        Poll::Ready(Ok(reader)) => Some(reader),
        Poll::Ready(Err(deadlock)) => {
            assert!(deadlock.is_reentry());
            None
        }
        Poll::Pending => panic!("it waits for a writer that waits for its own party"),
    });
    let passed = passed.collect::<Vec<_>>();
    assert_eq!(passed.len(), 16);
    drop((read, passed));
    assert!(poll(writer.as_mut()).is_ready());
}

#[test]
fn a_failed_request_for_a_latch_leaves_no_claim() {
    let (latch, detector) = (Latch::new(), Detector::new());
    let party = detector.party("x");
    let held = party.try_acquire(latch.write()).unwrap();
    assert!(block_on(party.acquire(latch.write())).unwrap_err().is_reentry());
    assert!(party.try_acquire_for(latch.write(), Duration::MAX).is_err());
    assert_eq!(format!("{latch:?}"), "Latch { readers: 0, upgradable: 0, writers: 1, waiting: 0 }");
    let reader = held.downgrade();
    assert!(latch.try_read().is_some());
    reader.unlock_fair();
    assert!(!latch.is_locked());
}

#[test]
fn a_request_for_several_keys_may_fail_although_its_party_held_nothing() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let handles = [1, 2].map(|key| locks.handle(&key)); // keeps the order of the keys
    let [one, two] = [1, 2].map(|key| locks.try_lock(&key).unwrap());
    let mut probe = pin!(locks.lock_many([&1, &2]));
    assert!(poll(probe.as_mut()).is_pending());
    let ((first, of_first), (second, of_second)) =
        if locks.status(&1).unwrap().waiters() == 1 { ((1, one), (2, two)) } else { ((2, two), (1, one)) };
    probe.set(locks.lock_many([&1, &2]));

    let of_y = y.adopt(of_second);
    let mut both = pin!(x.acquire(locks.lock_many([&1, &2])));
    let mut next = pin!(y.acquire(locks.lock(&first)));
    assert!(poll(both.as_mut()).is_pending() && poll(next.as_mut()).is_pending());
    drop(of_first);
    let Poll::Ready(Err(deadlock)) = poll(both.as_mut()) else { panic!("x waits for y, which waits for x") };
    let expected = format!("x waits for {second}, which y holds; y waits for {first}, which x holds");
    assert_eq!(deadlock.to_string(), expected);
    assert!(poll(next.as_mut()).is_ready());
    drop((of_y, handles));
}

#[test]
fn several_stripes_are_tracked_and_released_when_they_fail() {
    let (stripes, detector) = (Striped::<u64>::new(64), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let keys = (0..100).collect::<Vec<u64>>();
    let all = x.acquire_blocking(stripes.read_many(&keys)).unwrap();
    assert!(all.len() > 1);
    assert!(x.try_acquire_for(stripes.write_many(&keys), Duration::MAX).unwrap_err().is_reentry());
    let mut of_y = pin!(y.acquire(stripes.read_write_many([&1], [&2])));
    assert!(poll(of_y.as_mut()).is_pending());
    assert_eq!(detector.dump().parties()[0].holds().len(), all.len());
    drop(all);
    let Poll::Ready(Ok((reads, writes))) = poll(of_y.as_mut()) else { panic!("all stripes are free") };
    assert!(writes.len() == 1 && reads.len() <= 1);
    let writes = x.adopt(writes.into_inner());
    assert!(block_on(x.acquire(stripes.read(&2))).unwrap_err().is_reentry());
    drop((reads, writes));
    assert!(keys.iter().all(|key| !stripes.is_locked(key)));
}

#[test]
fn the_last_reader_hands_over_to_the_writer_that_waits() {
    let pages = KeyedRwLock::<u64>::builder().fairness(Fairness::Barging).build();
    for upgradable_first in [true, false] {
        let (reader, upgradable) = (pages.try_read(&1).unwrap(), pages.try_upgradable_read(&1).unwrap());
        let mut writer = pin!(pages.write(&1));
        assert!(poll(writer.as_mut()).is_pending());
        if upgradable_first {
            upgradable.unlock_fair();
            assert!(poll(writer.as_mut()).is_pending());
            reader.unlock_fair();
        } else {
            reader.unlock_fair();
            upgradable.unlock_fair();
        }
        assert!(pages.try_write(&1).is_none() && pages.try_read(&1).is_none(), "the writer has been granted the key");
        assert!(poll(writer.as_mut()).is_ready());
    }

    let latch = Latch::new();
    let (first, last) = (latch.try_read().unwrap(), latch.try_read().unwrap());
    let mut writer = pin!(latch.write());
    assert!(poll(writer.as_mut()).is_pending());
    first.unlock_fair();
    last.unlock_fair();
    assert!(latch.try_read().is_none(), "the writer has been granted the latch");
    assert!(poll(writer.as_mut()).is_ready());
}

#[test]
fn a_reader_that_hands_over_beside_a_forgotten_upgrade_gives_that_up() {
    let pages = KeyedRwLock::<u64>::new();
    let other = pages.try_read(&1).unwrap();
    let mut editor = pages.try_upgradable_read(&1).unwrap();
    {
        let mut upgrade = Box::pin(editor.upgrade_mut());
        assert!(poll(upgrade.as_mut()).is_pending());
        std::mem::forget(upgrade);
    }
    editor.unlock_fair();
    assert_eq!(pages.status(&1).unwrap().waiters(), 0);
    drop(other);
    assert!(pages.is_empty());
}

#[test]
fn a_dump_shows_holds_and_waits_of_every_party_as_text_and_as_data() {
    let (locks, pages, detector) = (KeyedMutex::<u64>::new(), Arc::new(KeyedRwLock::<String>::new()), Detector::new());
    let [x, y, z] = ["x", "y", "z"].map(|name| detector.party(name));
    assert_eq!(detector.dump().to_string(), "");
    let one = x.try_acquire(locks.lock(&1)).unwrap();
    let home = (x.try_acquire(pages.read_arc("home")).unwrap(), y.try_acquire(pages.read("home")).unwrap());
    let mut writer = pin!(z.acquire(pages.write("home")));
    assert!(poll(writer.as_mut()).is_pending());
    let dump = detector.dump();
    let table = std::any::type_name::<KeyedMutex<u64>>();
    assert_eq!(
        format!("{dump:?}"),
        format!(
            "x\n  holds a key of {table} (write)\n  holds \"home\" (read)\n\
             y\n  holds \"home\" (read)\n\
             z\n  waits for \"home\" (write), which x and y hold\n"
        )
    );
    let wait = &dump.parties()[2].waits()[0];
    assert_eq!((wait.mode(), wait.is_granted(), wait.held_by().len()), (WaitMode::Write, false, 2));
    assert!(wait.table().contains("KeyedRwLock"));
    drop((one, home));
    assert!(detector.dump().parties()[0].waits()[0].held_by().is_empty());
}

#[test]
fn a_dump_of_a_waiting_upgrade_names_the_other_holders() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let [reader, editor] = ["reader", "editor"].map(|name| detector.party(name));
    let read = reader.try_acquire(pages.read(&1)).unwrap();
    let edited = editor.try_acquire(pages.upgradable_read(&1)).unwrap();
    let mut upgrade = Box::pin(edited.upgrade());
    assert!(poll(upgrade.as_mut()).is_pending());
    let dump = detector.dump();
    let waiting = dump.parties().iter().find(|party| party.name() == "editor").unwrap();
    assert_eq!(waiting.waits()[0].held_by(), ["reader"], "{dump}");
    drop(upgrade);
    drop(read);
}

#[test]
fn a_dump_of_a_granted_wait_says_so() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let held = locks.try_lock(&1).unwrap();
    let mut waiting = pin!(party.acquire(locks.lock(&1)));
    assert!(poll(waiting.as_mut()).is_pending());
    held.unlock_fair();
    assert_eq!(detector.dump().to_string(), "x\n  waits for 1 (write), which it has been granted\n");
    let Poll::Ready(Ok(guard)) = poll(waiting.as_mut()) else { panic!("it has been granted") };
    assert_eq!(detector.dump().to_string(), "x\n  holds 1 (write)\n", "the name of the key is kept");
    drop(guard);
}

#[test]
fn a_detector_that_notes_keys_names_all_holds() {
    let (locks, detector) = (KeyedSemaphore::<u64>::new(3), Detector::builder().name_holders(true).build());
    let party = detector.party("x");
    let mut one = party.try_acquire(locks.acquire_n(&1, 3)).unwrap();
    let part = one.split(1).unwrap();
    let two = party.adopt(locks.try_acquire_many([&2]).unwrap());
    let dump = detector.dump();
    let holds = dump.parties()[0].holds().iter().map(|hold| (hold.key(), hold.mode().to_string()));
    let expected = [("1", "acquire 2 permits"), ("1", "acquire a permit"), ("2", "acquire a permit")];
    assert!(holds.eq(expected.map(|(key, mode)| (Some(key), mode.to_string()))), "{dump}");
    drop((one, part, two));
    assert!(detector.dump().parties().is_empty());
}

/// A key whose `Debug` panics.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Mute;

impl std::fmt::Debug for Mute {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

#[test]
fn a_key_that_panics_where_it_is_named_leaves_nothing() {
    let (locks, detector) = (KeyedMutex::<Mute>::new(), Detector::builder().name_holders(true).build());
    let party = detector.party("x");
    let panics = |call: &dyn Fn()| {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        assert!(locks.is_empty() && detector.dump().parties().is_empty());
    };
    panics(&|| drop(party.try_acquire(locks.lock(&Mute))));
    panics(&|| drop(party.adopt(locks.try_lock(&Mute).unwrap())));
    panics(&|| drop(party.try_acquire(locks.lock_many([&Mute, &Mute]))));
    panics(&|| drop(party.adopt(locks.try_lock_many([&Mute, &Mute]).unwrap())));
}

#[test]
fn a_detector_that_names_holders_says_since_when_and_from_where_a_key_is_held() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::builder().name_holders(true).build());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let future = x.acquire(locks.lock(&1));
    let line = line!() - 1;
    let one = block_on(future.label("rows")).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    let two = y.try_acquire(locks.lock(&2)).unwrap();
    two.label("columns");
    two.label("cells");
    let mut waiting = pin!(y.acquire(locks.lock(&1)));
    assert!(poll(waiting.as_mut()).is_pending());
    let deadlock = block_on(x.acquire(locks.lock(&2))).unwrap_err();
    let [of_x, of_y] = deadlock.cycle() else { panic!("{deadlock}") };
    assert_eq!(of_x.holder().unwrap().label(), Some("cells"));
    let holder = of_y.holder().unwrap();
    assert_eq!((holder.location().file(), holder.location().line(), holder.label()), (file!(), line, Some("rows")));
    assert!(holder.held_for().unwrap() >= Duration::from_millis(2));
    let text = deadlock.to_string();
    let held_for = holder.held_for().unwrap();
    assert!(text.ends_with(&format!("for {held_for:.1?}, at {}:{line}, \"rows\")", file!())), "{text}");
    assert!(detector.dump().to_string().contains(&format!("at {}:{line}, \"rows\"\n", file!())));
    drop(one);
    let Poll::Ready(Ok(one)) = poll(waiting.as_mut()) else { panic!("it is free") };
    one.label("after a wait");
    assert_eq!(detector.dump().parties()[0].holds()[1].holder().unwrap().label(), Some("after a wait"));
    drop((one, two));
}

#[test]
fn a_label_counts_although_the_request_has_begun() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::builder().name_holders(true).build());
    let party = detector.party("x");
    let held = locks.try_lock(&1).unwrap();
    let mut one = Box::pin(party.acquire(locks.lock(&1)));
    let mut several = locks.lock_many([&1, &2]);
    assert!(poll(one.as_mut()).is_pending() && poll(pin!(&mut several)).is_pending());
    // The request for several keys may hold the second already.
    let several = party.acquire(several).label("several");
    let one = Pin::into_inner(one).label("one");
    drop(held);
    let one = block_on(one).unwrap();
    let labels = || {
        let dump = detector.dump();
        let holds = dump.parties()[0].holds().iter();
        holds.map(|hold| hold.holder().unwrap().label().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert!(labels().contains(&"one".to_string()));
    drop(one);
    let several = block_on(several).unwrap();
    assert_eq!(labels(), ["several", "several"]);
    drop(several);
}

#[test]
fn a_detector_that_does_not_name_holders_reports_none_and_ignores_labels() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let one = block_on(party.acquire(locks.lock(&1)).label("rows")).unwrap();
    one.label("cells");
    let deadlock = block_on(party.acquire(locks.lock(&1))).unwrap_err();
    assert_eq!(deadlock.to_string(), "x waits for 1, which x holds");
    assert!(deadlock.cycle()[0].holder().is_none() && detector.dump().parties()[0].holds()[0].holder().is_none());
    drop(one);
}

#[test]
fn every_key_of_several_and_adopted_guards_have_the_line_of_the_call() {
    let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::builder().name_holders(true).build());
    let party = detector.party("x");
    let both = block_on(party.acquire(locks.lock_many([&1, &2])).label("both")).unwrap();
    let first = line!() - 1;
    let three = party.adopt(locks.try_lock(&3).unwrap());
    let second = line!() - 1;
    let dump = detector.dump();
    let mut lines = dump.parties()[0].holds().iter().map(|hold| hold.holder().unwrap()).collect::<Vec<_>>();
    lines.sort_by_key(|holder| holder.location().line());
    let lines = lines.into_iter().map(|holder| (holder.location().line(), holder.label()));
    assert!(lines.eq([(first, Some("both")), (first, Some("both")), (second, None)]), "{dump}");
    drop((both, three));
}

#[test]
fn a_long_hold_is_reported_to_each_request_that_begins_to_wait() {
    let (sender, reported) = std::sync::mpsc::channel();
    let limit = Duration::from_millis(20);
    let detector =
        Detector::builder().on_long_hold(limit, move |event| sender.send(event.to_string()).unwrap()).build();
    let (pages, x, y) = (KeyedRwLock::<u64>::new(), detector.party("x"), detector.party("y"));
    let old = x.try_acquire(pages.read(&1)).unwrap();
    std::thread::sleep(limit);
    let since = Instant::now();
    let young = x.try_acquire(pages.read(&1)).unwrap();
    assert!(y.try_acquire(pages.write(&1)).is_none(), "it does not wait");
    assert!(reported.try_recv().is_err());
    for _ in 0..2 {
        let mut waiting = pin!(y.acquire(pages.write(&1)));
        assert!(poll(waiting.as_mut()).is_pending() && poll(waiting.as_mut()).is_pending());
        let events = reported.try_iter().collect::<Vec<_>>();
        assert!(events.iter().all(|event| event.starts_with("y waits for 1, which x holds (for ")), "{events:?}");
        // On a busy machine the young hold may be old by now.
        let is_young = since.elapsed() < limit;
        assert!(events.len() == 1 || !is_young && events.len() == 2, "{events:?}");
    }
    drop((old, young));
}

#[test]
fn an_adopted_guard_whose_upgrade_was_forgotten_is_recorded_as_what_a_failed_attempt_leaves() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let party = detector.party("x");
    let mut guard = pages.try_upgradable_read(&1).unwrap();
    std::mem::forget(guard.try_upgrade_mut().unwrap());
    let guard = party.adopt(guard);
    assert_eq!(detector.dump().parties()[0].holds()[0].mode(), WaitMode::Write);
    // The attempt lets the reader in, which then keeps the writer out.
    let mut reader = pin!(pages.read(&1));
    assert!(poll(reader.as_mut()).is_pending());
    let guard = guard.try_upgrade().unwrap_err();
    assert!(poll(reader.as_mut()).is_ready());
    assert_eq!(detector.dump().parties()[0].holds()[0].mode(), WaitMode::UpgradableRead);
    drop(guard);
}

#[test]
fn a_waiting_upgrade_keeps_its_place_when_it_is_given_a_limit() {
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    let reader = x.try_acquire(pages.read(&1)).unwrap();
    let mut upgrade = Box::pin(y.try_acquire(pages.upgradable_read(&1)).unwrap().upgrade());
    assert!(poll(upgrade.as_mut()).is_pending());
    // While the limit is polled, a writer queues. If the upgrade had given up its place, the writer would take it.
    let writer = RefCell::new(Some(Box::pin(pages.write(&1))));
    let limit = std::future::poll_fn(|_| {
        assert!(writer.borrow_mut().as_mut().is_none_or(|writer| poll(writer.as_mut()).is_pending()));
        Poll::<()>::Pending
    });
    let mut upgrade = Box::pin(Pin::into_inner(upgrade).until(limit));
    assert!(poll(upgrade.as_mut()).is_pending());
    drop(writer.take());
    assert_eq!(detector.dump().parties()[1].waits().len(), 1);
    drop(reader);
    assert!(matches!(poll(upgrade.as_mut()), Poll::Ready(Ok(_))));
    drop(upgrade);
    assert!(pages.is_empty() && detector.dump().parties().is_empty());
}

#[test]
fn a_request_that_waits_and_is_given_a_limit_takes_the_key_that_it_was_granted() {
    let locks = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
    let (pages, detector) = (KeyedRwLock::<u64>::new(), Detector::new());
    let (x, y) = (detector.party("x"), detector.party("y"));
    // The limit is not polled before the request.
    let limit = || std::future::ready(());

    let held = locks.try_lock(&1).unwrap();
    let mut request = Box::pin(x.acquire(locks.lock(&1)));
    assert!(poll(request.as_mut()).is_pending());
    drop(held);
    let held = block_on(Pin::into_inner(request).until(limit())).unwrap();
    let mut many = Box::pin(y.acquire(locks.lock_many([&1, &2])));
    assert!(poll(many.as_mut()).is_pending());
    drop(held);
    drop(block_on(Pin::into_inner(many).until(limit())).unwrap());

    let reader = x.try_acquire(pages.read(&1)).unwrap();
    let mut upgrade = Box::pin(y.try_acquire(pages.upgradable_read(&1)).unwrap().upgrade());
    assert!(poll(upgrade.as_mut()).is_pending());
    drop(reader);
    drop(block_on(Pin::into_inner(upgrade).until(limit())).unwrap());
    assert!(locks.is_empty() && pages.is_empty() && detector.dump().parties().is_empty());
}

#[test]
fn the_order_of_the_settings_does_not_matter() {
    let (sender, reported) = std::sync::mpsc::channel();
    let watch = move |event: &HoldEvent| sender.send(event.clone()).unwrap();
    let detector = Detector::builder().on_long_hold(Duration::ZERO, watch).name_holders(false).build();
    let (locks, x, y) = (KeyedMutex::<u64>::new(), detector.party("x"), detector.party("y"));
    let held = x.try_acquire(locks.lock(&1)).unwrap();
    assert!(poll(pin!(y.acquire(locks.lock(&1)))).is_pending());
    assert_eq!(reported.try_iter().count(), 1);
    drop(held);
}

#[test]
fn an_upgrade_does_not_report_the_hold_that_it_continues() {
    let (sender, reported) = std::sync::mpsc::channel();
    let detector =
        Detector::builder().on_long_hold(Duration::ZERO, move |event| sender.send(event.clone()).unwrap()).build();
    let (pages, x, y) = (KeyedRwLock::<u64>::new(), detector.party("x"), detector.party("y"));
    let reader = x.try_acquire(pages.read(&1)).unwrap();
    let upgradable = y.try_acquire(pages.upgradable_read(&1)).unwrap();
    let mut upgrade = pin!(upgradable.upgrade());
    assert!(poll(upgrade.as_mut()).is_pending());
    assert!(reported.try_iter().map(|event| event.party().to_string()).eq(["x"]));
    drop(reader);
}

#[test]
fn a_watchdog_may_use_the_locks_and_panic() {
    let locks = Arc::new(KeyedMutex::<u64>::new());
    static DETECTOR: OnceLock<Detector> = OnceLock::new();
    let weak = Arc::downgrade(&locks);
    let detector = Detector::builder()
        .on_long_hold(Duration::ZERO, move |event| {
            let (locks, detector) = (weak.upgrade().unwrap(), DETECTOR.get().unwrap());
            let party = detector.party("watchdog");
            assert!(party.try_acquire(locks.lock(&1)).is_none());
            drop(party.try_acquire(locks.lock(&2)).unwrap());
            assert_eq!(detector.dump().parties().len(), 2);
            panic!("{event}");
        })
        .build();
    DETECTOR.set(detector.clone()).unwrap();
    let (x, y) = (detector.party("x"), detector.party("y"));
    let one = x.try_acquire(locks.lock(&1)).unwrap();
    // A future keeps its place.
    let mut waiting = Box::pin(y.acquire(locks.lock(&1)));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(waiting.as_mut()).is_ready())).is_err());
    assert_eq!(locks.status(&1).unwrap().waiters(), 1);
    assert!(poll(waiting.as_mut()).is_pending());
    drop(waiting);
    // A request for several keys, and a blocking call, give up.
    let mut waiting = Box::pin(y.acquire(locks.lock_many([&1, &3])));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(waiting.as_mut()).is_ready())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(y.acquire_blocking(locks.lock(&1))))).is_err());
    assert_eq!((locks.len(), locks.status(&1).unwrap().waiters()), (1, 0));
    drop((waiting, one));
    assert!(locks.is_empty() && detector.dump().parties().is_empty());
}
