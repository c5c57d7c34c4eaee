//! `KeyedRwLock`: which holds are compatible, upgrades and downgrades, and guarantee 4 (phase fairness).

mod common;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use common::{Bell, pending, poll, poll_with, ready, until};
use futures_lite::future::{self, block_on};
use keylatch::{
    Fairness, KeyedRwLock, ReadGuard, ReadGuardArc, UpgradableGuard, UpgradableGuardArc, WriteGuard, WriteGuardArc,
};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Read,
    Upgradable,
    Write,
}

use Mode::{Read, Upgradable, Write};

const MODES: [Mode; 3] = [Read, Upgradable, Write];

/// Returns whether the compatibility table in the documentation of `KeyedRwLock` allows both holds.
fn are_compatible(held: Mode, asked: Mode) -> bool {
    matches!((held, asked), (Read, Read) | (Read, Upgradable) | (Upgradable, Read))
}

fn hold<'a>(locks: &'a KeyedRwLock<String>, mode: Mode) -> Box<dyn AnyGuard + 'a> {
    match mode {
        Read => Box::new(locks.read_blocking("a")),
        Upgradable => Box::new(locks.upgradable_read_blocking("a")),
        Write => Box::new(locks.write_blocking("a")),
    }
}

/// A guard of any mode.
trait AnyGuard {}
impl<T> AnyGuard for T {}

/// Returns whether there is a guard, and drops it.
fn some<T>(guard: Option<T>) -> bool {
    guard.is_some()
}

fn ok<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(guard) => Some(guard),
        Poll::Pending => None,
    }
}

#[test]
fn holds_are_compatible_as_documented_in_every_form() {
    let locks = Arc::new(KeyedRwLock::<String>::new());
    let handle = locks.handle("a");
    let owned = locks.handle_arc("a");
    let zero = Duration::ZERO;
    let now = Instant::now();
    for held in MODES {
        for asked in MODES {
            macro_rules! forms {
                ($($mode:ident: $try:ident $for:ident $until:ident $arc:ident $arc_for:ident $arc_until:ident $lock:ident $lock_arc:ident;)+) => {
                    match asked {$(
                        $mode => [
                            some(locks.$try("a")),
                            some(locks.$for("a", zero)),
                            some(locks.$until("a", now)),
                            some(locks.$arc("a")),
                            some(locks.$arc_for("a", zero)),
                            some(locks.$arc_until("a", now)),
                            some(handle.$try()),
                            some(handle.$for(zero)),
                            some(handle.$until(now)),
                            some(owned.$try()),
                            some(ok(poll(&mut locks.$lock("a")))),
                            some(ok(poll(&mut locks.$lock_arc("a")))),
                            some(ok(poll(&mut handle.$lock()))),
                            some(block_on(locks.$lock("a").until(future::ready(()))).ok()),
                        ],
                    )+}
                };
            }
            let guard = hold(&locks, held);
            let outcomes = forms! {
                Read: try_read try_read_for try_read_until try_read_arc try_read_arc_for try_read_arc_until read read_arc;
                Upgradable: try_upgradable_read try_upgradable_read_for try_upgradable_read_until try_upgradable_read_arc
                    try_upgradable_read_arc_for try_upgradable_read_arc_until upgradable_read upgradable_read_arc;
                Write: try_write try_write_for try_write_until try_write_arc try_write_arc_for try_write_arc_until write
                    write_arc;
            };
            assert_eq!(outcomes, [are_compatible(held, asked); 14], "{asked:?} beside {held:?}");
            drop(guard);
        }
    }
    drop((handle, owned));
    assert!(locks.is_empty());
}

#[test]
fn blocking_forms_return_their_guards() {
    let locks = Arc::new(KeyedRwLock::<String>::new());
    let _: ReadGuard<'_, String> = locks.read_blocking("a");
    let _: ReadGuardArc<String> = locks.read_arc_blocking("a");
    let _: UpgradableGuard<'_, String> = locks.upgradable_read_blocking("a");
    let _: UpgradableGuardArc<String> = locks.upgradable_read_arc_blocking("a");
    let _: WriteGuard<'_, String> = locks.write_blocking("a");
    let _: WriteGuardArc<String> = locks.write_arc_blocking("a");
    let handle = locks.handle_arc("a");
    let _: WriteGuardArc<String> = handle.write_blocking();
    let _: ReadGuardArc<String> = handle.read_blocking();
    let _: UpgradableGuardArc<String> = handle.upgradable_read_blocking();
    drop(handle);
    assert!(locks.is_empty());
}

#[test]
fn an_upgrade_goes_before_a_queued_writer() {
    for fairness in ALL {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let observed = Mutex::new(vec![]);
        let upgradable = locks.try_upgradable_read(&7).unwrap();
        let reader = locks.try_read(&7).unwrap();
        let mut writer = locks.write(&7);
        pending(&mut writer);
        let mut upgrade = upgradable.upgrade();
        pending(&mut upgrade);
        let status = locks.status(&7).unwrap();
        assert_eq!((status.upgradable(), status.waiting_upgrades(), status.waiting_writers()), (1, 1, 1));
        assert_eq!((status.holders(), status.waiters()), (2, 2));
        drop(reader);
        pending(&mut writer);
        let guard = ready(&mut upgrade);
        observed.lock().unwrap().push("upgraded");
        pending(&mut writer);
        guard.unlock_fair();
        drop(ready(&mut writer));
        observed.lock().unwrap().push("written");
        assert_eq!(*observed.lock().unwrap(), ["upgraded", "written"]);
        drop((upgrade, writer));
        assert!(locks.is_empty(), "{fairness:?}");
    }
}

#[test]
fn an_upgrade_still_sees_what_its_reader_saw_despite_competing_writers() {
    // Each writer increments the value during its hold. An upgrader must find the value that it has read.
    const ROUNDS: usize = 200;
    for fairness in ALL {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let value = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (locks, value) = (&locks, &value);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let look = || value.load(SeqCst);
                        let add = |seen: usize| {
                            thread::yield_now();
                            assert_eq!(value.swap(seen + 1, SeqCst), seen, "another writer wrote in between");
                        };
                        match thread {
                            0 => {
                                let guard = locks.upgradable_read_blocking(&7);
                                let seen = look();
                                let _guard = guard.upgrade_blocking();
                                add(seen);
                            }
                            1 => {
                                let mut guard = locks.upgradable_read_blocking(&7);
                                let seen = look();
                                let upgraded = guard.upgrade_mut_blocking();
                                add(seen);
                                drop(upgraded);
                                assert_eq!(look(), seen + 1, "another writer wrote after the upgrade");
                            }
                            2 => {
                                let guard = locks.write_blocking(&7);
                                add(look());
                                let seen = look();
                                let _guard = guard.downgrade();
                                assert_eq!(look(), seen, "a writer wrote after the downgrade");
                            }
                            _ => {
                                let _guard = block_on(locks.read(&7));
                                let seen = look();
                                thread::yield_now();
                                assert_eq!(look(), seen, "a writer wrote beside a reader");
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(value.load(SeqCst), 3 * ROUNDS);
        assert!(locks.is_empty());
    }
}

#[test]
fn there_is_never_a_second_upgradable_reader() {
    let locks = KeyedRwLock::<u64>::new();
    let first = locks.try_upgradable_read(&7).unwrap();
    assert!(locks.try_upgradable_read(&7).is_none());
    let reader = locks.try_read(&7).unwrap();
    let mut upgrade = first.upgrade();
    pending(&mut upgrade);
    assert!(locks.try_upgradable_read(&7).is_none());
    drop(reader);
    let writer = ready(&mut upgrade);
    assert!(locks.try_upgradable_read(&7).is_none());
    let again = writer.downgrade_to_upgradable();
    assert!(locks.try_upgradable_read(&7).is_none());
    let _reader = again.downgrade();
    assert!(locks.try_upgradable_read(&7).is_some());
}

#[test]
fn a_writer_that_gives_up_admits_the_readers_that_it_kept_out() {
    for fairness in ALL {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let held = locks.try_read(&7).unwrap();
        let mut writer = locks.write(&7);
        pending(&mut writer);
        let mut readers: Vec<_> = (0..20).map(|_| locks.read(&7)).collect();
        let (bell, waker) = Bell::new();
        let waiting =
            readers.iter_mut().filter_map(|reader| poll_with(reader, &waker).is_pending().then_some(())).count();
        drop(writer);
        assert_eq!(bell.take(), waiting, "{fairness:?}: without any further event");
        assert_eq!(locks.status(&7).unwrap().waiting_readers(), 0);
        drop((held, readers));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_writer_that_times_out_admits_the_readers_behind_it() {
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(0)).build();
    let held = locks.try_read(&7).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| locks.try_write_for(&7, Duration::from_millis(30)).is_none());
        // The writer may have given up before this thread looks: then there is nothing to see.
        until(|| locks.status(&7).unwrap().waiting_writers() == 1 || writer.is_finished());
        // This reader is kept out by the writer, and admitted when the writer gives up, while `held` is still held.
        drop(locks.read_blocking(&7));
        assert!(writer.join().unwrap());
    });
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn an_upgrade_that_gives_up_admits_the_readers_that_it_kept_out() {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0)] {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let reader = locks.try_read(&7).unwrap();
        let kept_out = || {
            assert!(locks.try_read(&7).is_none());
            let mut late = locks.read(&7);
            pending(&mut late);
            late
        };
        // A dropped upgrade releases the hold. The waiting reader acquires the key.
        let mut upgrade = locks.try_upgradable_read(&7).unwrap().upgrade();
        pending(&mut upgrade);
        let late = kept_out();
        drop(upgrade);
        assert_eq!(locks.status(&7).unwrap().upgradable(), 0);
        drop(ready(late));
        // `until` gives the hold back.
        let upgrade = locks.try_upgradable_read(&7).unwrap().upgrade();
        let mut limited = Box::pin(upgrade.until(async {
            future::yield_now().await;
            "limit"
        }));
        assert!(poll(&mut limited).is_pending());
        let late = kept_out();
        let (limit, guard) = ready(&mut limited).unwrap_err();
        assert_eq!(limit, "limit");
        drop(ready(late));
        // An upgrade that times out gives the hold back.
        let guard = guard.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
        let mut guard = guard.try_upgrade_until(Instant::now()).unwrap_err();
        // A dropped `upgrade_mut` leaves the guard as it was.
        let mut upgrade = guard.upgrade_mut();
        pending(&mut upgrade);
        let late = kept_out();
        drop(upgrade);
        drop(ready(late));
        assert_eq!(locks.status(&7).unwrap().upgradable(), 1);
        drop(reader);
        drop(guard.try_upgrade().unwrap());
        assert!(locks.is_empty(), "{fairness:?}");
    }
}

#[test]
fn a_forgotten_upgrade_is_released_with_its_guard() {
    // A policy under which an upgrade is granted.
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(16)).build();
    // The hold of `upgrade_mut` is forgotten.
    let mut guard = locks.try_upgradable_read(&7).unwrap();
    std::mem::forget(guard.try_upgrade_mut().unwrap());
    assert_eq!(locks.status(&7).unwrap().writers(), 1);
    drop(guard);
    assert!(locks.is_empty());
    // The waiting future of `upgrade_mut` is forgotten.
    let reader = locks.try_read(&7).unwrap();
    let mut guard = locks.try_upgradable_read(&7).unwrap();
    let mut upgrade = guard.upgrade_mut();
    pending(&mut upgrade);
    std::mem::forget(upgrade);
    assert_eq!(locks.status(&7).unwrap().waiting_upgrades(), 1);
    drop(guard);
    assert_eq!(locks.status(&7).unwrap().waiters(), 0);
    drop(reader);
    assert!(locks.is_empty());
    // The granted future of `upgrade_mut` is forgotten.
    let reader = locks.try_read(&7).unwrap();
    let mut guard = locks.try_upgradable_read(&7).unwrap();
    let mut upgrade = guard.upgrade_mut();
    pending(&mut upgrade);
    std::mem::forget(upgrade);
    drop(reader);
    assert_eq!(locks.status(&7).unwrap().writers(), 1);
    drop(guard);
    assert!(locks.is_empty());
    // When the guard is used again, it first falls back to its upgradable hold.
    let mut guard = locks.try_upgradable_read(&7).unwrap();
    std::mem::forget(guard.try_upgrade_mut().unwrap());
    let guard = guard.downgrade();
    assert_eq!(locks.status(&7).unwrap().readers(), 1);
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn a_downgrade_admits_waiting_readers_and_no_writer() {
    for to_upgradable in [false, true] {
        for fairness in [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16)] {
            let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
            let guard = locks.try_write(&7).unwrap();
            let mut readers: Vec<_> = (0..3).map(|_| locks.read(&7)).collect();
            readers.iter_mut().for_each(pending);
            let mut writer = locks.write(&7);
            pending(&mut writer);
            let mut late = locks.read(&7);
            pending(&mut late);
            let (read, upgradable) = if to_upgradable {
                (None, Some(guard.downgrade_to_upgradable()))
            } else {
                (Some(guard.downgrade()), None)
            };
            let guards: Vec<_> = readers.into_iter().map(ready).collect();
            pending(&mut writer);
            // Phase-fair: the waiting readers acquire the key together. In strict order they do not pass the writer.
            assert_eq!(poll(&mut late).is_ready(), fairness != Fairness::Fifo, "{fairness:?}");
            drop((guards, read, upgradable, late));
            drop(ready(&mut writer));
            drop(writer);
            assert!(locks.is_empty());
        }
    }
}

#[test]
fn guarantee_4_a_waiting_writer_keeps_later_readers_out_within_the_bound() {
    for bound in [0, 1, 7] {
        let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(bound)).build();
        let mut held = vec![locks.try_read(&7).unwrap()];
        let mut writer = locks.write(&7);
        pending(&mut writer);
        while let Some(reader) = locks.try_read(&7) {
            held.push(reader);
        }
        assert_eq!(held.len(), 1 + usize::from(bound));
        pending(&mut locks.read(&7));
        drop(held);
        drop(ready(&mut writer));
    }
}

#[test]
fn guarantee_4_a_leaving_writer_admits_all_waiting_readers_before_the_next_writer() {
    for bound in [0, 16] {
        let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(bound)).build();
        let guard = locks.try_write(&7).unwrap();
        let mut next = locks.write(&7);
        pending(&mut next);
        let mut readers: Vec<_> = (0..50).map(|_| locks.read(&7)).collect();
        readers.iter_mut().for_each(pending);
        let mut upgradable = locks.upgradable_read(&7);
        pending(&mut upgradable);
        drop(guard);
        assert!(locks.try_write(&7).is_none(), "a new writer got in first");
        let status = locks.status(&7).unwrap();
        assert_eq!((status.readers(), status.upgradable(), status.waiting_writers()), (50, 1, 1));
        let guards: Vec<_> = readers.into_iter().map(ready).collect();
        drop((guards, ready(&mut upgradable)));
        drop(ready(&mut next));
    }
}

/// In a readers' phase one upgradable reader, if its place is free, passes a writer that arrived earlier, but each
/// writer only once. A phase in which the place was taken does not count.
#[test]
fn guarantee_4_an_upgradable_reader_whose_place_was_taken_is_admitted_in_the_next_phase() {
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(16)).build();
    let guard = locks.try_write(&7).unwrap();
    let (mut writer, mut upgradable) = (locks.write(&7), locks.upgradable_read(&7));
    pending(&mut writer);
    pending(&mut upgradable);
    let guard = guard.downgrade_to_upgradable();
    assert_eq!(locks.status(&7).unwrap().waiting_upgradable(), 1, "its place was free");
    drop(guard.try_upgrade().ok().unwrap());
    assert_eq!(locks.status(&7).unwrap().upgradable(), 1, "it was not admitted");
    // It has now passed the writer.
    let mut second = locks.upgradable_read(&7);
    pending(&mut second);
    drop(ready(upgradable).try_upgrade().ok().unwrap());
    assert_eq!(locks.status(&7).unwrap().upgradable(), 0, "it passed the writer twice");
    drop(ready(writer));
    drop(ready(second));
    assert!(locks.is_empty());
}

/// Readers that always overlap do not starve a writer, and writers that always wait do not starve a reader.
#[test]
fn guarantee_4_readers_and_writers_do_not_starve_each_other() {
    for bound in [0, 1, 16] {
        let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(bound)).build();
        let mut overlapping = locks.try_read(&7);
        let mut writer = locks.write(&7);
        pending(&mut writer);
        let mut passed = 0;
        while let Some(next) = locks.try_read(&7) {
            passed += 1;
            assert!(passed <= bound);
            overlapping = Some(next);
        }
        assert_eq!(passed, bound);
        drop(overlapping);
        let mut guard = ready(writer);

        let mut reader = locks.read(&7);
        pending(&mut reader);
        let mut writers: Vec<_> = (0..3).map(|_| locks.write(&7)).collect();
        writers.iter_mut().for_each(pending);
        drop(guard);
        // The reader has been granted the key, and finds out when it is polled.
        assert_eq!(locks.status(&7).unwrap().readers(), 1);
        drop(ready(reader));
        for writer in writers {
            guard = ready(writer);
            drop(guard);
        }
        assert!(locks.is_empty());
    }
}

/// Requests of every mode, cancelled before the first poll, while waiting, and after the key was handed over.
#[test]
fn a_request_of_any_mode_can_be_cancelled_at_any_time() {
    for fairness in ALL {
        for held in MODES {
            for asked in MODES {
                for polls in 0..4 {
                    let locks = KeyedRwLock::<String>::builder().fairness(fairness).build();
                    let mut guard = Some(hold(&locks, held));
                    macro_rules! cancel {
                        ($request:expr) => {{
                            let mut request = $request;
                            for n in 0..polls {
                                if n == 2 {
                                    drop(guard.take());
                                }
                                if poll(&mut request).is_ready() {
                                    break;
                                }
                            }
                            drop(request);
                        }};
                    }
                    match asked {
                        Read => cancel!(locks.read("a")),
                        Upgradable => cancel!(locks.upgradable_read("a")),
                        Write => cancel!(locks.write("a")),
                    }
                    drop(guard);
                    assert!(locks.is_empty(), "{asked:?} beside {held:?}, {polls} polls, {fairness:?}");
                    assert!(locks.try_write("a").is_some());
                }
            }
        }
    }
}

#[test]
fn an_upgrade_and_waiters_that_give_up_do_not_interfere() {
    for fairness in ALL {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    drop(poll(&mut locks.write(&7)));
                }
            });
            let upgrade = |_| {
                let guard = locks.upgradable_read_blocking(&7).try_upgrade().ok().unwrap();
                let status = locks.status(&7).unwrap();
                // If the guard were not a writer's, it would have no hold to release.
                let is_writer = (status.writers(), status.upgradable()) == (1, 0);
                if is_writer {
                    drop(guard)
                } else {
                    std::mem::forget(guard)
                }
                is_writer
            };
            let all = (0..10_000).all(upgrade);
            done.store(true, SeqCst);
            assert!(all, "{fairness:?}");
        });
        assert!(locks.is_empty());
    }
}

#[test]
fn a_status_never_shows_an_impossible_combination() {
    let locks = KeyedRwLock::<u64>::builder().shards(1).build();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let locks = &locks;
                scope.spawn(move || {
                    for round in 0..2000 {
                        match (thread + round) % 4 {
                            0 => drop(locks.write_blocking(&7).downgrade()),
                            1 => drop(locks.read_blocking(&7)),
                            2 => drop(locks.upgradable_read_blocking(&7).upgrade_blocking()),
                            _ => drop(locks.try_write_for(&7, Duration::from_micros(5))),
                        }
                    }
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            if let Some(status) = locks.status(&7) {
                assert!(status.writers() <= 1 && status.upgradable() <= 1, "{status:?}");
                assert!(status.writers() == 0 || status.readers() + status.upgradable() == 0, "{status:?}");
                assert!(status.readers() + status.waiting_readers() <= 3, "{status:?}");
                assert!(status.holders() + status.waiters() - status.waiting_upgrades() <= 3, "{status:?}");
                assert_eq!((status.permits(), status.waiting_permits()), (0, 0));
            }
        }
    });
    assert!(locks.is_empty());
}

#[test]
fn a_panicking_waker_does_not_prevent_other_wake_ups() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let locks = KeyedRwLock::<u64>::new();
    let guard = locks.try_write(&7).unwrap();
    let (bell, waker) = Bell::new();
    let mut readers: Vec<_> = (0..6).map(|_| locks.read(&7)).collect();
    for (n, reader) in readers.iter_mut().enumerate() {
        let bad = Arc::new(Panics).into();
        assert!(poll_with(reader, if n % 2 == 0 { &bad } else { &waker }).is_pending());
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard)));
    assert!(outcome.is_err());
    assert_eq!(bell.take(), 3);
    readers.iter_mut().for_each(|reader| drop(ready(reader)));
    drop(readers);
    assert!(locks.is_empty());
}

#[test]
fn guarantee_3_a_series_of_upgrades_does_not_starve_a_writer() {
    for bound in [0, 1, 16] {
        let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(bound)).build();
        let mut holder = locks.try_upgradable_read(&7).unwrap();
        let mut writer = locks.write(&7);
        pending(&mut writer);
        let mut entered = 0;
        loop {
            let mut next = locks.upgradable_read(&7);
            pending(&mut next);
            drop(ready(holder.upgrade()));
            match poll(&mut next) {
                Poll::Ready(guard) => holder = guard,
                Poll::Pending => break,
            }
            pending(&mut writer);
            entered += 1;
            assert!(entered <= 1 + u32::from(bound), "passed more often than the bound allows");
        }
        drop(ready(&mut writer));
    }
}

/// An upgrade that times out gives the guard back, and leaves the queue; otherwise the hold would become exclusive
/// later on.
#[test]
fn an_upgrade_that_times_out_leaves_the_queue() {
    for fairness in ALL {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let reader = locks.try_read(&7).unwrap();
        let guard = locks.try_upgradable_read(&7).unwrap();
        let guard = guard.try_upgrade_for(Duration::from_millis(20)).unwrap_err();
        assert_eq!(locks.status(&7).unwrap().waiting_upgrades(), 0, "{fairness:?}");
        drop(reader);
        let status = locks.status(&7).unwrap();
        assert_eq!((status.upgradable(), status.writers()), (1, 0), "{fairness:?}");
        drop(guard);
        assert!(locks.is_empty());
    }
}

/// A hold that was reserved for a request that gives up goes to the next compatible waiter.
#[test]
fn a_granted_reader_that_gives_up_skips_an_upgradable_reader_whose_place_is_taken() {
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Barging).build();
    let guard = locks.try_write(&7).unwrap();
    let (mut granted, mut upgradable, mut reader) = (locks.read(&7), locks.upgradable_read(&7), locks.read(&7));
    pending(&mut granted);
    pending(&mut upgradable);
    pending(&mut reader);
    guard.unlock_fair();
    assert_eq!(
        locks.status(&7).unwrap().readers(),
        1,
        "only the first was granted a hold; the others were woken and not polled"
    );
    let barging = locks.try_upgradable_read(&7).unwrap();
    drop(granted);
    let status = locks.status(&7).unwrap();
    assert_eq!((status.readers(), status.waiting_readers(), status.waiting_upgradable()), (1, 0, 1));
    drop((barging, ready(reader)));
    drop(ready(upgradable));
    assert!(locks.is_empty());
}

/// An upgradable reader passes the first writer in one phase only, however many writers have arrived since.
#[test]
fn guarantee_4_an_upgradable_reader_passes_the_first_writer_in_one_phase_only() {
    let locks = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(16)).build();
    let guard = locks.try_write(&7).unwrap();
    let (mut first, mut second) = (locks.write(&7), locks.write(&7));
    pending(&mut first);
    pending(&mut second);
    let mut upgradable = locks.upgradable_read(&7);
    pending(&mut upgradable);
    drop(guard);
    assert_eq!(locks.status(&7).unwrap().upgradable(), 1, "it was not admitted");
    let (mut third, mut again) = (locks.write(&7), locks.upgradable_read(&7));
    pending(&mut third);
    pending(&mut again);
    drop(ready(upgradable).try_upgrade().ok().unwrap());
    assert_eq!(locks.status(&7).unwrap().upgradable(), 0, "it passed the first writer twice");
    drop((ready(first), second, third));
    drop(ready(again));
    assert!(locks.is_empty());
}

/// Gives up an upgrade that has been granted and not been polled since. The hold that was reserved for it goes to the
/// next waiter, not to a newcomer.
fn a_granted_upgrade_is_given_up(give_up: impl Fn(UpgradableGuard<'_, u64>, ReadGuard<'_, u64>)) {
    for fairness in [Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16)] {
        let locks = KeyedRwLock::<u64>::builder().fairness(fairness).build();
        let (guard, reader) = (locks.try_upgradable_read(&7).unwrap(), locks.try_read(&7).unwrap());
        let mut writer = locks.write(&7);
        pending(&mut writer);
        give_up(guard, reader);
        assert!(locks.try_write(&7).is_none(), "{fairness:?}: a newcomer gets in before the writer that waits");
        drop(ready(writer));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_granted_upgrade_that_is_dropped_is_handed_to_the_next_waiter() {
    a_granted_upgrade_is_given_up(|guard, reader| {
        let mut upgrade = guard.upgrade();
        pending(&mut upgrade);
        drop(reader); // granted
        drop(upgrade);
    });
}

#[test]
fn a_granted_upgrade_that_is_forgotten_is_handed_to_the_next_waiter_with_the_guard() {
    a_granted_upgrade_is_given_up(|mut guard, reader| {
        let mut upgrade = guard.upgrade_mut();
        pending(&mut upgrade);
        std::mem::forget(upgrade);
        drop(reader); // granted
        drop(guard);
    });
}

// ---- readers that pass waiting writers -----------------------------------------------------------------------------

/// Calls every form of `read_recursive` on the key, and returns whether they all acquired it.
fn reads_recursively(locks: &Arc<KeyedRwLock<String>>) -> bool {
    let (zero, now) = (Duration::ZERO, Instant::now());
    let (handle, handle_arc) = (locks.handle("a"), locks.handle_arc("a"));
    let forms = [
        some(ok(poll(&mut locks.read_recursive("a")))),
        block_on(locks.read_recursive("a").until(async {})).is_ok(),
        some(locks.try_read_recursive("a")),
        some(locks.try_read_recursive_for("a", zero)),
        some(locks.try_read_recursive_until("a", now)),
        some(ok(poll(&mut locks.read_recursive_arc("a")))),
        some(locks.try_read_recursive_arc("a")),
        some(locks.try_read_recursive_arc_for("a", zero)),
        some(locks.try_read_recursive_arc_until("a", now)),
        some(ok(poll(&mut handle.read_recursive()))),
        block_on(handle.read_recursive().until(async {})).is_ok(),
        some(handle.try_read_recursive()),
        some(handle.try_read_recursive_for(zero)),
        some(handle.try_read_recursive_until(now)),
        some(ok(poll(&mut handle_arc.read_recursive()))),
        some(handle_arc.try_read_recursive()),
    ];
    assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
    if forms[0] {
        drop((
            locks.read_recursive_blocking("a"),
            locks.read_recursive_arc_blocking("a"),
            handle.read_recursive_blocking(),
        ));
    }
    forms[0]
}

#[test]
fn recursive_readers_pass_waiting_writers_and_upgrades_in_every_form_under_every_policy() {
    for fairness in ALL {
        let locks: Arc<KeyedRwLock<String>> = Arc::new(KeyedRwLock::builder().fairness(fairness).build());
        assert!(reads_recursively(&locks) && locks.is_empty());
        let held = (locks.try_read("a").unwrap(), locks.try_upgradable_read("a").unwrap());
        let (mut writer, mut upgrade) = (locks.write("a"), held.1.upgrade());
        pending(&mut writer);
        assert!(reads_recursively(&locks), "a writer waits");
        pending(&mut upgrade);
        assert!(reads_recursively(&locks), "an upgrade waits");
        drop(held.0);
        let held = ready(upgrade);
        assert!(!reads_recursively(&locks), "a writer holds the key");
        assert_eq!(locks.waiters("a"), 1);
        drop(held);
        drop(ready(writer));
        assert!(locks.is_empty());
    }
}

#[test]
fn recursive_readers_leave_the_bounds_for_other_readers_as_they_are() {
    for (fairness, bound) in [(Fairness::Adaptive, 16), (Fairness::Bounded(3), 3), (Fairness::Fifo, 0)] {
        let locks: KeyedRwLock<String> = KeyedRwLock::builder().fairness(fairness).build();
        let held = locks.try_read("a").unwrap();
        let mut writer = locks.write("a");
        pending(&mut writer);
        assert!((0..100_000).all(|_| locks.try_read_recursive("a").is_some()));
        assert!((0..bound).all(|_| locks.try_read("a").is_some()), "{fairness:?}");
        assert!(locks.try_read("a").is_none(), "{fairness:?}");
        assert!(locks.try_read_recursive("a").is_some());
        drop(held);
        drop(ready(writer));
    }
}

#[test]
fn a_recursive_reader_that_waits_for_a_writer_stands_in_the_queue_as_a_reader() {
    for fairness in ALL {
        let locks: KeyedRwLock<String> = KeyedRwLock::builder().fairness(fairness).build();
        let held = locks.try_write("a").unwrap();
        let mut reader = locks.read_recursive("a");
        let mut other = locks.read_recursive("a");
        pending(&mut reader);
        pending(&mut other);
        assert_eq!(locks.status("a").unwrap().waiting_readers(), 2);
        drop(other);
        drop(held);
        let reader = ready(reader);
        assert_eq!(locks.status("a").unwrap().readers(), 1);
        drop(reader);
        assert!(locks.is_empty());
    }
}

/// A recursive reader passes waiters when it arrives, but not once it is in the queue.
#[test]
fn a_recursive_reader_in_the_queue_passes_no_writer() {
    let locks: KeyedRwLock<String> = KeyedRwLock::builder().fairness(Fairness::Fifo).build();
    let held = locks.try_write("a").unwrap();
    let (mut writer, mut reader) = (locks.write("a"), locks.read_recursive("a"));
    pending(&mut writer);
    pending(&mut reader);
    let held = held.downgrade();
    pending(&mut reader);
    drop(held);
    drop(ready(writer));
    drop(ready(reader));
    assert!(locks.is_empty());
}

#[test]
fn a_reader_that_reads_again_while_a_writer_waits_does_not_deadlock() {
    let locks = Arc::new(KeyedRwLock::<String>::new());
    let first = locks.read_blocking("a");
    let writer = thread::spawn({
        let locks = Arc::clone(&locks);
        move || drop(locks.write_blocking("a"))
    });
    until(|| locks.waiters("a") > 0);
    let second = locks.read_recursive_blocking("a");
    drop((first, second));
    writer.join().unwrap();
    assert!(locks.is_empty());
}

#[test]
fn a_detector_reports_no_deadlock_of_a_recursive_reader() {
    let detector = keylatch::deadlock::Detector::new();
    let (first, second) = (detector.party("first"), detector.party("second"));
    let locks = KeyedRwLock::<String>::new();
    let held = ready(Box::pin(first.acquire(locks.read("a")))).unwrap();
    let mut writer = Box::pin(second.acquire(locks.write("a")));
    pending(&mut writer);
    let again = ready(Box::pin(first.acquire(locks.read_recursive("a")))).unwrap();
    drop((held, again));
    drop(ready(writer).unwrap());
    assert!(locks.is_empty());
}
