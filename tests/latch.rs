//! `Latch` and `Striped` follow the contract of a key. Forgotten guards, moves and drops; several stripes.

mod common;

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::iter;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::contract::{For, Key, Rules, Seen, Want};
use common::{Bell, Random, pending, poll, poll_with, ready, until};
use futures_lite::future::{self, block_on};
use keylatch::futures::{LatchAcquire, LatchAcquireMany, LatchUpgrade};
use keylatch::mode::{Exclusive, Shared, Upgradable};
use keylatch::{
    Fairness, Latch, LatchGuards, LatchReadGuard, LatchUpgradableGuard, LatchWriteGuard, MAX_STRIPES, Status, Striped,
    StripedBuilder,
};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

fn send_sync<T: Send + Sync>() {}
fn unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}

#[test]
fn all_types_can_be_sent_and_a_latch_is_one_word() {
    send_sync::<Latch>();
    send_sync::<LatchReadGuard<'_>>();
    send_sync::<LatchWriteGuard<'_>>();
    send_sync::<LatchUpgradableGuard<'_>>();
    send_sync::<LatchUpgrade<'_>>();
    send_sync::<LatchAcquire<'_, Shared>>();
    send_sync::<LatchAcquireMany<'_, Exclusive>>();
    send_sync::<LatchGuards<'_, Shared>>();
    send_sync::<Striped<std::rc::Rc<str>>>(); // it has no keys
    send_sync::<StripedBuilder<[std::cell::Cell<u8>]>>();
    unwind_safe::<Latch>();
    unwind_safe::<LatchWriteGuard<'_>>();
    unwind_safe::<Striped<str>>();
    assert_eq!(size_of::<Latch>(), size_of::<usize>());
    assert_eq!(align_of::<Latch>(), align_of::<usize>());
}

/// A `Latch`, or one stripe: both are the same kind of lock.
trait Lock: Sync {
    fn read(&self) -> LatchAcquire<'_, Shared>;
    fn read_recursive(&self) -> LatchAcquire<'_, Shared>;
    fn upgradable_read(&self) -> LatchAcquire<'_, Upgradable>;
    fn write(&self) -> LatchAcquire<'_, Exclusive>;
    fn try_read(&self) -> Option<LatchReadGuard<'_>>;
    fn try_read_recursive(&self) -> Option<LatchReadGuard<'_>>;
    fn try_upgradable_read(&self) -> Option<LatchUpgradableGuard<'_>>;
    fn try_write(&self) -> Option<LatchWriteGuard<'_>>;
    fn is_locked(&self) -> bool;
    fn status(&self) -> Status;
}

macro_rules! lock {
    ($Lock:ty, $($key:expr)?) => {
        impl Lock for $Lock {
            fn read(&self) -> LatchAcquire<'_, Shared> {
                self.read($($key)?)
            }

            fn read_recursive(&self) -> LatchAcquire<'_, Shared> {
                self.read_recursive($($key)?)
            }

            fn upgradable_read(&self) -> LatchAcquire<'_, Upgradable> {
                self.upgradable_read($($key)?)
            }

            fn try_read_recursive(&self) -> Option<LatchReadGuard<'_>> {
                self.try_read_recursive($($key)?)
            }

            fn try_upgradable_read(&self) -> Option<LatchUpgradableGuard<'_>> {
                self.try_upgradable_read($($key)?)
            }

            fn status(&self) -> Status {
                self.status($($key)?)
            }

            fn write(&self) -> LatchAcquire<'_, Exclusive> {
                self.write($($key)?)
            }

            fn try_read(&self) -> Option<LatchReadGuard<'_>> {
                self.try_read($($key)?)
            }

            fn try_write(&self) -> Option<LatchWriteGuard<'_>> {
                self.try_write($($key)?)
            }

            fn is_locked(&self) -> bool {
                self.is_locked($($key)?)
            }
        }
    };
}

lock!(Latch,);
lock!(Striped<str>, "key");

enum Held<'a> {
    Read(LatchReadGuard<'a>),
    Upgradable(LatchUpgradableGuard<'a>),
    Write(LatchWriteGuard<'a>),
}

enum Asking<'a> {
    Read(LatchAcquire<'a, Shared>, Want),
    Upgradable(LatchAcquire<'a, Upgradable>),
    Upgrade(LatchUpgrade<'a>),
    Write(LatchAcquire<'a, Exclusive>),
}

/// Compares the end of an upgrade that was dropped, or whose limit had been reached, with the contract.
fn give_up_upgrade<'a>(
    key: &mut Key,
    id: u32,
    is_polled: bool,
    refused: Option<Result<LatchWriteGuard<'a>, ((), LatchUpgradableGuard<'a>)>>,
    held: &mut Vec<Held<'a>>,
) {
    let Some(result) = refused else {
        let left = if is_polled { key.leave_queue(id) } else { None };
        let (left, whom) = Key::held_after_upgrade(left);
        return key.release(left, whom);
    };
    // The upgrade makes one attempt, and another one at its limit.
    let expected = key.poll(id, Want::Upgrade) || key.poll(id, Want::Upgrade);
    assert_eq!(result.is_ok(), expected);
    held.push(match result {
        Ok(guard) => Held::Write(guard),
        Err(((), guard)) => {
            assert_eq!(key.leave_queue(id), Some(false));
            Held::Upgradable(guard)
        }
    });
}

/// Makes random calls, one at a time, and compares each outcome with the one that the contract predicts.
fn walk(lock: &dyn Lock, fairness: Fairness, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut key = Key::new(Rules { fairness, permits: 0 });
    let mut held: Vec<Held<'_>> = Vec::new();
    // The futures by id. The flag tells whether the future has been polled.
    let mut asking: BTreeMap<u32, (Asking<'_>, bool)> = BTreeMap::new();
    let mut next = 0;
    let any = |random: &mut Random, asking: &BTreeMap<u32, (Asking<'_>, bool)>| {
        let at = random.next(asking.len().max(1) as u64) as usize;
        asking.keys().nth(at).copied()
    };
    for _ in 0..200 {
        match random.next(12) {
            0 => {
                let got = lock.try_read();
                assert_eq!(got.is_some(), key.attempt(Want::Read));
                held.extend(got.map(Held::Read));
            }
            10 => {
                let got = lock.try_read_recursive();
                assert_eq!(got.is_some(), key.attempt(Want::Recursive));
                held.extend(got.map(Held::Read));
            }
            11 => {
                let got = lock.try_upgradable_read();
                assert_eq!(got.is_some(), key.attempt(Want::Upgradable));
                held.extend(got.map(Held::Upgradable));
            }
            1 => {
                let got = lock.try_write();
                assert_eq!(got.is_some(), key.attempt(Want::Write));
                held.extend(got.map(Held::Write));
            }
            2 | 3 if asking.len() < 8 => {
                let request = match random.next(6) {
                    0 | 1 => Asking::Read(lock.read(), Want::Read),
                    2 => Asking::Read(lock.read_recursive(), Want::Recursive),
                    3 => Asking::Upgradable(lock.upgradable_read()),
                    _ => Asking::Write(lock.write()),
                };
                asking.insert(next, (request, false));
                next += 1;
            }
            4..=6 => {
                let Some(id) = any(&mut random, &asking) else { continue };
                let (request, is_polled) = asking.get_mut(&id).unwrap();
                *is_polled = true;
                let (got, want) = match request {
                    Asking::Read(request, want) => (poll(request).map(Held::Read), *want),
                    Asking::Upgradable(request) => (poll(request).map(Held::Upgradable), Want::Upgradable),
                    Asking::Upgrade(request) => (poll(request).map(Held::Write), Want::Upgrade),
                    Asking::Write(request) => (poll(request).map(Held::Write), Want::Write),
                };
                assert_eq!(got.is_ready(), key.poll(id, want), "{fairness:?}, seed {seed}");
                if let Poll::Ready(got) = got {
                    asking.remove(&id);
                    held.push(got);
                }
            }
            7 if !asking.is_empty() => {
                let Some(id) = any(&mut random, &asking) else { continue };
                let (request, is_polled) = asking.remove(&id).unwrap();
                match request {
                    Asking::Upgrade(request) => {
                        let refused = (random.next(2) == 0).then(|| block_on(request.until(async {})));
                        give_up_upgrade(&mut key, id, is_polled, refused, &mut held);
                    }
                    request if is_polled => {
                        let want = match request {
                            Asking::Read(..) => Want::Read,
                            Asking::Upgradable(_) => Want::Upgradable,
                            _ => Want::Write,
                        };
                        drop(request);
                        key.cancel(id, want);
                    }
                    _ => {}
                }
            }
            _ if !held.is_empty() => {
                let at = random.next(held.len() as u64) as usize;
                match held.swap_remove(at) {
                    Held::Read(guard) => {
                        drop(guard);
                        key.release(Want::Read, For::Anyone);
                    }
                    Held::Upgradable(guard) => match random.next(4) {
                        0 => {
                            drop(guard);
                            key.release(Want::Upgradable, For::Anyone);
                        }
                        1 => {
                            held.push(Held::Read(guard.downgrade()));
                            key.change(Want::Upgradable, Want::Read);
                        }
                        2 => {
                            asking.insert(next, (Asking::Upgrade(guard.upgrade()), false));
                            next += 1;
                        }
                        _ => {
                            let got = guard.try_upgrade();
                            assert_eq!(got.is_ok(), key.attempt(Want::Upgrade));
                            held.push(got.map_or_else(Held::Upgradable, Held::Write));
                        }
                    },
                    Held::Write(guard) => match random.next(4) {
                        0 => {
                            held.push(Held::Read(guard.downgrade()));
                            key.change(Want::Write, Want::Read);
                        }
                        3 => {
                            held.push(Held::Upgradable(guard.downgrade_to_upgradable()));
                            key.change(Want::Write, Want::Upgradable);
                        }
                        1 => {
                            guard.unlock_fair();
                            key.release(Want::Write, For::Waiter);
                        }
                        _ => {
                            drop(guard);
                            key.release(Want::Write, For::Anyone);
                        }
                    },
                }
            }
            _ => {}
        }
        let holds = key.holds;
        assert_eq!(lock.is_locked(), holds.readers + holds.upgradable + holds.writers > 0);
        assert_eq!(Seen::from(lock.status()), key.seen(), "{fairness:?}, seed {seed}");
        assert!(holds.are_compatible(0));
    }
    drop((asking, held));
    assert!(!lock.is_locked());
    assert!(lock.try_write().is_some());
}

#[test]
fn a_latch_follows_the_contract_of_a_key() {
    for seed in 0..2000 {
        let latch = Latch::new();
        walk(&latch, Fairness::Adaptive, seed);
        assert_eq!(format!("{latch:?}"), "Latch { readers: 0, upgradable: 0, writers: 0, waiting: 0 }");
    }
}

#[test]
fn a_stripe_follows_the_contract_of_a_key_under_every_policy() {
    for fairness in ALL {
        for seed in 0..1000 {
            walk(&Striped::<str>::builder(1).fairness(fairness).build(), fairness, seed);
        }
    }
}

/// Returns whether there is a guard, and drops it.
fn some<T>(guard: Option<T>) -> bool {
    guard.is_some()
}

fn is_ok<T>(guard: Result<T, ()>) -> bool {
    guard.is_ok()
}

fn is_ready<T>(guard: Poll<T>) -> bool {
    guard.is_ready()
}

#[test]
fn readers_share_and_writers_exclude_in_every_form() {
    let (latch, zero) = (Latch::new(), Duration::ZERO);
    let striped = Striped::<u64>::new(8);
    let reads = || {
        let now = Instant::now();
        let forms = [
            some(latch.try_read()),
            some(latch.try_read_for(zero)),
            some(latch.try_read_until(now)),
            is_ready(poll(&mut latch.read())),
            is_ok(block_on(latch.read().until(async {}))),
            some(striped.try_read(&7)),
            some(striped.try_read_for(&7, zero)),
            some(striped.try_read_until(&7, now)),
            is_ready(poll(&mut striped.read(&7))),
            is_ok(block_on(striped.read(&7).until(async {}))),
            some(striped.try_read_many([&7])),
            some(striped.try_read_many_for([&7], zero)),
            some(striped.try_read_many_until([&7], now)),
            is_ready(poll(&mut striped.read_many([&7]))),
            is_ok(block_on(striped.read_many([&7]).until(async {}))),
            some(striped.try_read_write_many([&7], [] as [&u64; 0])),
        ];
        assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
        forms[0]
    };
    let writes = || {
        let now = Instant::now();
        let forms = [
            some(latch.try_write()),
            some(latch.try_write_for(zero)),
            some(latch.try_write_until(now)),
            is_ready(poll(&mut latch.write())),
            is_ok(block_on(latch.write().until(async {}))),
            some(striped.try_write(&7)),
            some(striped.try_write_for(&7, zero)),
            some(striped.try_write_until(&7, now)),
            is_ready(poll(&mut striped.write(&7))),
            is_ok(block_on(striped.write(&7).until(async {}))),
            some(striped.try_write_many([&7])),
            some(striped.try_write_many_for([&7], zero)),
            some(striped.try_write_many_until([&7], now)),
            is_ready(poll(&mut striped.write_many([&7]))),
            is_ok(block_on(striped.write_many([&7]).until(async {}))),
            some(striped.try_read_write_many([] as [&u64; 0], [&7])),
            some(striped.try_read_write_many_for([&7], [&7], zero)),
            some(striped.try_read_write_many_until([&7], [&7], now)),
            is_ready(poll(&mut striped.read_write_many([&7], [&7]))),
        ];
        assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
        forms[0]
    };
    assert_eq!((reads(), writes()), (true, true));
    let readers = (latch.read_blocking(), striped.read_blocking(&7));
    assert_eq!((reads(), writes()), (true, false));
    drop(readers);
    let writers = (latch.write_blocking(), striped.write_blocking(&7));
    assert_eq!((reads(), writes()), (false, false));
    drop(writers);
    let several = (striped.write_many_blocking([&7]), latch.write_blocking());
    assert_eq!((reads(), writes()), (false, false));
    drop(several);
    let several = (striped.read_write_many_blocking([&7], [] as [&u64; 0]), latch.read_blocking());
    assert_eq!((reads(), writes()), (true, false));
    drop(several);
    assert_eq!((reads(), writes()), (true, true));
}

#[test]
fn recursive_readers_pass_waiting_writers_in_every_form_and_wait_for_a_holding_one() {
    let (zero, now) = (Duration::ZERO, Instant::now());
    let (latch, striped) = (Latch::new(), Striped::<u64>::builder(8).fairness(Fairness::Fifo).build());
    let reads = || {
        let forms = [
            some(latch.try_read_recursive()),
            some(latch.try_read_recursive_for(zero)),
            some(latch.try_read_recursive_until(now)),
            is_ready(poll(&mut latch.read_recursive())),
            is_ok(block_on(latch.read_recursive().until(async {}))),
            some(striped.try_read_recursive(&7)),
            some(striped.try_read_recursive_for(&7, zero)),
            some(striped.try_read_recursive_until(&7, now)),
            is_ready(poll(&mut striped.read_recursive(&7))),
            is_ok(block_on(striped.read_recursive(&7).until(async {}))),
        ];
        assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
        forms[0]
    };
    let readers = (latch.read_blocking(), striped.read_blocking(&7));
    let mut writers = (latch.write(), striped.write(&7));
    pending(&mut writers.0);
    pending(&mut writers.1);
    // The policy never refuses a recursive reader, however many there are.
    for _ in 0..100 {
        assert!(reads());
    }
    drop((latch.read_recursive_blocking(), striped.read_recursive_blocking(&7)));
    assert!(striped.try_read(&7).is_none(), "Fifo admits no other reader");
    drop(readers);
    let writers = (ready(writers.0), ready(writers.1));
    assert!(!reads());
    drop(writers);
    assert!(reads());
}

#[test]
fn an_upgradable_reader_upgrades_in_every_form() {
    let (latch, striped) = (Latch::new(), Striped::<str>::new(1));
    let (zero, soon) = (Duration::ZERO, || Instant::now() + Duration::from_millis(1));
    for lock in [&latch as &dyn Lock, &striped as &dyn Lock] {
        let one = || lock.try_upgradable_read().unwrap();
        let other = lock.try_read().unwrap();
        let reader = one();
        assert!(lock.try_upgradable_read().is_none() && lock.try_read().is_some() && lock.try_write().is_none());
        let reader = reader.try_upgrade().unwrap_err();
        let reader = reader.try_upgrade_for(zero).unwrap_err();
        let reader = reader.try_upgrade_until(soon()).unwrap_err();
        let (_, reader) = block_on(reader.upgrade().until(async {})).unwrap_err();
        assert_eq!(lock.status().to_string(), "1 reader, 1 upgradable reader");
        drop((other, reader));
        assert_eq!(lock.status(), Latch::new().status());
        let writes = |writer: LatchWriteGuard<'_>| {
            assert_eq!((lock.status().writers(), lock.status().holders()), (1, 1), "{writer:?}")
        };
        writes(one().try_upgrade().unwrap());
        writes(one().try_upgrade_for(zero).unwrap());
        writes(one().try_upgrade_until(soon()).unwrap());
        writes(one().upgrade_blocking());
        writes(ready(one().upgrade()));
        writes(block_on(one().upgrade().until(async {})).unwrap());
        assert!(!lock.is_locked());
    }
}

#[test]
fn an_upgrade_goes_before_a_queued_writer_and_waits_for_readers() {
    let latch = Latch::new();
    let (reader, upgradable) = (latch.read_blocking(), latch.upgradable_read_blocking());
    let (mut writer, mut upgrade) = (latch.write(), upgradable.upgrade());
    pending(&mut writer);
    pending(&mut upgrade);
    assert_eq!(latch.status().to_string(), "1 reader, 1 upgradable reader; waiting: 1 to upgrade, 1 to write");
    drop(reader);
    let upgraded = ready(upgrade);
    pending(&mut writer);
    drop(upgraded);
    drop(ready(writer));
    assert!(!latch.is_locked());
}

#[test]
fn an_upgrade_that_was_granted_and_is_dropped_passes_the_latch_on() {
    for give_back in [false, true] {
        let latch = Latch::new();
        let (reader, upgradable) = (latch.read_blocking(), latch.upgradable_read_blocking());
        let (mut upgrade, mut writer) = (upgradable.upgrade(), latch.write());
        pending(&mut upgrade);
        pending(&mut writer);
        drop(reader);
        if give_back {
            // `until` polls the upgrade once more, so it gets its hold.
            drop(block_on(upgrade.until(async {})).unwrap());
        } else {
            drop(upgrade);
        }
        drop(ready(writer));
        assert_eq!(latch.status(), Latch::new().status());
    }
}

/// A forgotten upgrade leaves a queue behind under its latch's address. A latch that was moved there while a forgotten
/// request waited for it finds that queue, and must not grant the upgrade: it has no upgradable holder.
#[test]
fn a_forgotten_upgrade_is_never_granted_by_another_latch_at_its_address() {
    let mut latches = [Latch::new(), Latch::new()];
    let (reader, upgradable) = (latches[0].read_blocking(), latches[0].upgradable_read_blocking());
    let mut upgrade = upgradable.upgrade();
    pending(&mut upgrade);
    mem::forget((upgrade, reader));
    let held = latches[1].read_blocking();
    let mut writer = latches[1].write();
    pending(&mut writer);
    mem::forget(writer);
    drop(held);
    latches.swap(0, 1);
    latches[0].try_write().unwrap().unlock_fair();
    assert!(!latches[0].is_locked());
    assert_eq!((latches[1].status().readers(), latches[1].status().upgradable()), (1, 1));
}

#[test]
fn tasks_threads_and_impatient_callers_exclude_each_other() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    static LATCH: Latch = Latch::new();
    let striped = Striped::<str>::new(1);
    for lock in [&LATCH as &dyn Lock, &striped as &dyn Lock] {
        let (readers, writers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let written = AtomicUsize::new(0);
        let write = |count: bool| {
            assert_eq!(writers.fetch_add(1, SeqCst), 0);
            assert_eq!(readers.load(SeqCst), 0);
            if count {
                // The counter is read and written in two steps, so that an increment is lost if two holders overlap.
                let before = written.load(SeqCst);
                thread::yield_now();
                written.store(before + 1, SeqCst);
            }
            writers.fetch_sub(1, SeqCst);
        };
        let read = || {
            readers.fetch_add(1, SeqCst);
            assert_eq!(writers.load(SeqCst), 0);
            readers.fetch_sub(1, SeqCst);
        };
        let counted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for by in 0..6 {
                let (write, read, counted) = (&write, &read, &counted);
                scope.spawn(move || {
                    let mut random = Random(by + 1);
                    for _ in 0..ROUNDS {
                        match random.next(8) {
                            0 | 1 => {
                                let guard = block_on(lock.write());
                                write(true);
                                counted.fetch_add(1, SeqCst);
                                drop(guard);
                            }
                            2 => drop(block_on(lock.read()).map_with(read)),
                            3 => drop(lock.try_read().map(|guard| guard.map_with(read))),
                            4 => {
                                if let Some(guard) = lock.try_write() {
                                    write(false);
                                    let guard = guard.downgrade();
                                    read();
                                    drop(guard);
                                }
                            }
                            5 => {
                                let mut writer = lock.write();
                                for _ in 0..random.next(3) {
                                    if let Poll::Ready(_guard) = poll(&mut writer) {
                                        write(false);
                                        break;
                                    }
                                    thread::yield_now();
                                }
                            }
                            6 => {
                                let limit = async {
                                    for _ in 0..2 {
                                        future::yield_now().await;
                                    }
                                };
                                drop(block_on(lock.read().until(limit)).map(|guard| guard.map_with(read)));
                            }
                            _ => {
                                if let Ok(guard) = block_on(lock.write().until(future::yield_now())) {
                                    write(true);
                                    counted.fetch_add(1, SeqCst);
                                    guard.unlock_fair();
                                }
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(written.load(SeqCst), counted.load(SeqCst));
        assert!(!lock.is_locked());
        assert!(lock.try_write().is_some());
    }
}

trait MapWith: Sized {
    fn map_with(self, f: impl Fn()) -> Self {
        f();
        self
    }
}

impl MapWith for LatchReadGuard<'_> {}

#[test]
fn blocked_threads_get_in_and_those_with_a_deadline_give_up() {
    let latch = Latch::new();
    let entered = AtomicUsize::new(0);
    let writer = latch.write_blocking();
    thread::scope(|scope| {
        for by in 0..8 {
            let (latch, entered) = (&latch, &entered);
            scope.spawn(move || {
                if by % 2 == 0 {
                    drop(latch.read_blocking())
                } else {
                    drop(latch.write_blocking())
                }
                entered.fetch_add(1, SeqCst);
            });
        }
        assert!(latch.try_read_for(Duration::from_millis(5)).is_none());
        assert!(latch.try_write_until(Instant::now() + Duration::from_millis(5)).is_none());
        assert_eq!(entered.load(SeqCst), 0);
        drop(writer);
    });
    assert_eq!(entered.load(SeqCst), 8);
    assert!(latch.try_write_for(Duration::MAX).is_some());
}

// ---- forgotten guards, moves and drops ------------------------------------------------------------------------------

#[test]
fn a_forgotten_guard_keeps_its_latch_locked_after_a_move() {
    let latch = Latch::new();
    mem::forget(latch.read_blocking());
    let moved = Box::new(latch);
    assert!(moved.is_locked());
    assert!(moved.try_write().is_none());
    assert!(moved.try_read().is_some());
    // A waiter at the new place waits, and gives up.
    let mut writer = moved.write();
    pending(&mut writer);
    drop(writer);
    assert!(moved.try_read().is_some());
    let latch = *moved;
    mem::forget(latch.try_read());
    drop(vec![latch]);
    let latch = Latch::new();
    mem::forget(latch.write_blocking());
    drop(vec![latch]);
}

/// A place in memory that holds one latch after another.
#[test]
fn a_new_latch_at_an_old_address_is_independent() {
    let mut place = Latch::new();
    for round in 0..100 {
        // In turn, the old latch leaves behind each kind of writer that a latch can leave: one that waits, one that was
        // woken, and one that was handed the latch. A reader waits behind the writer.
        let guard = place.write_blocking();
        let mut waiting = ManuallyDrop::new(place.write());
        let mut behind = ManuallyDrop::new(place.read());
        pending(&mut *waiting);
        pending(&mut *behind);
        match round % 3 {
            0 => mem::forget(guard),
            1 => drop(guard),
            _ => guard.unlock_fair(),
        }
        place = Latch::new();
        assert!(!place.is_locked());
        let guard = place.write_blocking();
        let (bell, waker) = Bell::new();
        let mut next = place.write();
        assert!(poll_with(&mut next, &waker).is_pending());
        drop(guard);
        assert_eq!(bell.take(), 1);
        drop(ready(next));
        assert!(!place.is_locked());
    }
}

/// A latch that is moved while it has waiters (which must have been forgotten) still works as a latch.
#[test]
fn a_latch_moved_with_a_forgotten_waiter_still_works() {
    for fairness in [false, true] {
        let latch = Latch::new();
        let guard = latch.read_blocking();
        pending(&mut *ManuallyDrop::new(latch.write()));
        mem::forget(guard);
        let moved = Box::new(latch);
        // A reader holds the latch for good and a writer waits for good, but others can read.
        let reader = moved.read_blocking();
        let mut writer = moved.write();
        pending(&mut writer);
        if fairness {
            drop(reader);
            drop(writer);
        } else {
            drop(writer);
            drop(reader);
        }
        assert!(moved.is_locked());
        assert!(moved.try_write().is_none());
        assert!(moved.try_read().is_some());
    }
}

/// Two latches with forgotten waiters are swapped: each meets the queue that the other has left behind.
#[test]
fn swapped_latches_with_forgotten_waiters_count_correctly() {
    for waits in [false, true] {
        let (mut a, mut b) = (Latch::new(), Latch::new());
        let guard = a.write_blocking();
        for _ in 0..3 {
            pending(&mut *ManuallyDrop::new(a.read()));
        }
        mem::forget(guard);
        let guard = b.write_blocking();
        pending(&mut *ManuallyDrop::new(b.write()));
        drop(guard);
        mem::swap(&mut a, &mut b);
        let writer = a.try_write().unwrap();
        let mut reader = a.read();
        if waits {
            pending(&mut reader);
        }
        drop(writer);
        drop(reader);
        assert!(a.try_read().is_some());
        assert!(b.try_read().is_none()); // because of the forgotten guard
        pending(&mut *ManuallyDrop::new(b.read()));
    }
}

#[test]
fn a_dropped_future_of_several_wakes_after_it_has_released_all() {
    struct Looks(Arc<Striped<u64, Weak>>, u64, AtomicUsize);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.2.fetch_add(1 + usize::from(self.0.is_locked(&self.1)), SeqCst);
        }
    }
    let striped = Arc::new(Striped::<u64, Weak>::with_hasher(8, Weak::default()));
    let [low, high] = [0, 7].map(|stripe| (0..).find(|key| striped.stripe_of(key) == stripe).unwrap());
    let guard = striped.write_blocking(&high);
    let mut both = striped.write_many([&low, &high]);
    pending(&mut both);
    let looks = Arc::new(Looks(Arc::clone(&striped), high, AtomicUsize::new(0)));
    let mut waiting = striped.write(&low);
    assert!(poll_with(&mut waiting, &Waker::from(Arc::clone(&looks))).is_pending());
    guard.unlock_fair(); // handed to the futures that want both
    drop(both);
    assert_eq!(looks.2.load(SeqCst), 1);
    drop(ready(waiting));
}

/// Returns keys of the lowest and of the highest of eight stripes.
fn low_and_high(striped: &Striped<u64, Weak>) -> [u64; 2] {
    [0, 7].map(|stripe| (0..).find(|key| striped.stripe_of(key) == stripe).unwrap())
}

/// Even waiters for a stripe that the future has not acquired are woken only when its other stripes are free.
#[test]
fn a_dropped_future_of_several_has_released_all_before_it_wakes_the_waiters_behind_it() {
    struct Looks(Arc<Striped<u64, Weak>>, u64, AtomicUsize);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.2.fetch_add(1 + 10 * usize::from(self.0.is_locked(&self.1)), SeqCst);
        }
    }
    let striped = Striped::builder(8).hasher(Weak::default()).fairness(Fairness::Fifo).build();
    let striped = Arc::new(striped);
    let [low, high] = low_and_high(&striped);
    let reader = striped.read_blocking(&high);
    let mut both = striped.write_many([&low, &high]);
    pending(&mut both);
    assert!(striped.is_locked(&low));
    let looks = Arc::new(Looks(Arc::clone(&striped), low, AtomicUsize::new(0)));
    let mut kept_out = striped.read(&high);
    assert!(poll_with(&mut kept_out, &Waker::from(Arc::clone(&looks))).is_pending());
    drop(both);
    assert_eq!(looks.2.load(SeqCst), 1);
    drop((ready(kept_out), reader));
}

/// A waker that panics when it is woken, or when it is dropped.
struct Grenade {
    woken: bool,
}

impl Grenade {
    fn waker(woken: bool) -> Waker {
        Waker::from(Arc::new(Grenade { woken }))
    }
}

impl Wake for Grenade {
    fn wake(self: Arc<Self>) {
        if self.woken {
            resume_unwind(Box::new("woken"));
        }
    }
}

impl Drop for Grenade {
    fn drop(&mut self) {
        if !self.woken {
            resume_unwind(Box::new("dropped"));
        }
    }
}

#[test]
fn a_future_of_several_whose_poll_has_panicked_holds_nothing_even_before_it_is_dropped() {
    let striped = Striped::<u64, Weak>::with_hasher(8, Weak::default());
    let [low, high] = low_and_high(&striped);
    let other = striped.write_blocking(&high);
    let mut both = striped.write_many([&low, &high]);
    assert!(poll_with(&mut both, &Grenade::waker(false)).is_pending());
    assert!(striped.is_locked(&low));
    let (bell, waker) = Bell::new();
    let mut next = striped.write(&low);
    assert!(poll_with(&mut next, &waker).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut both).is_pending())).is_err());
    assert_eq!(bell.take(), 1);
    drop(ready(next));
    drop(other);
    assert!(!striped.is_locked(&low) && !striped.is_locked(&high));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut both).is_pending())).is_err(), "the future can be polled again");
}

/// When a request gives up at its limit and a waker panics, the output of the limit is not leaked.
#[test]
fn a_waker_that_panics_at_a_timeout_keeps_nothing_locked() {
    // The limit locks another latch, and outputs the guard. The first latch has a waiter whose waker panics.
    let gives_up = |latch: &dyn Lock, waits: &mut dyn FnMut() -> bool| {
        let reader = latch.try_read().unwrap();
        assert!(waits());
        // The first readers pass a waiting writer.
        let mut readers = iter::repeat_with(|| latch.read());
        let kept_out = readers.find_map(|mut reader| match poll_with(&mut reader, &Grenade::waker(true)) {
            Poll::Ready(_) => None,
            Poll::Pending => Some(reader),
        });
        let outcome = catch_unwind(AssertUnwindSafe(&mut *waits));
        assert!(outcome.is_err(), "the waker's panic did not reach the caller");
        drop((kept_out.map(ready), reader));
        assert!(!latch.is_locked());
    };
    let (latch, other) = (Latch::new(), Latch::new());
    let limit = |is_ready: &mut bool| {
        if std::mem::replace(is_ready, true) { Poll::Ready(other.try_write().unwrap()) } else { Poll::Pending }
    };
    let mut is_ready = false;
    let mut one = Box::pin(latch.write().until(future::poll_fn(|_| limit(&mut is_ready))));
    gives_up(&latch, &mut || poll(&mut one).is_pending());
    assert!(!other.is_locked());
    drop(one);

    let striped = Striped::<str>::new(8);
    let another =
        (0..100).map(|n| n.to_string()).find(|key| striped.stripe_of(&**key) != striped.stripe_of("key")).unwrap();
    let mut is_ready = false;
    let mut both = Box::pin(striped.write_many(["key", &*another]).until(future::poll_fn(|_| limit(&mut is_ready))));
    gives_up(&striped, &mut || poll(&mut both).is_pending());
    assert!(!other.is_locked() && !striped.is_locked(&*another));
    drop(both);
}

#[test]
fn guards_of_several_can_be_taken_apart() {
    let striped = Striped::<u64, Weak>::with_hasher(8, Weak::default());
    let keys: Vec<u64> = (0..20).collect();
    let guards = striped.write_many_blocking(&keys);
    assert_eq!(guards.iter().count(), guards.len());
    assert_eq!((&guards).into_iter().count(), guards.len());
    let mut guards = guards.into_iter();
    let len = guards.len();
    let reader = guards.next().unwrap().downgrade();
    assert_eq!(guards.len(), len - 1);
    drop(guards);
    let free = keys.iter().filter(|key| striped.try_write(*key).is_some()).count();
    assert!(0 < free && free < keys.len());
    drop(reader);
    assert!(keys.iter().all(|key| striped.try_write(key).is_some()));
}

#[test]
fn a_thousand_latches_have_queues_of_their_own() {
    let latches: Vec<Latch> = (0..1000).map(|_| Latch::new()).collect();
    let guards: Vec<_> = latches.iter().map(Latch::write_blocking).collect();
    let bells: Vec<_> = latches.iter().map(|_| Bell::new()).collect();
    let mut waiting: Vec<_> = latches.iter().map(Latch::write).collect();
    for (future, (_, waker)) in waiting.iter_mut().zip(&bells) {
        assert!(poll_with(future, waker).is_pending());
    }
    let mut order: Vec<usize> = (0..1000).collect();
    let mut random = Random(7);
    for at in (1..1000).rev() {
        order.swap(at, random.next(at as u64 + 1) as usize);
    }
    let mut guards: Vec<_> = guards.into_iter().map(Some).collect();
    for at in order {
        guards[at] = None;
        for (other, (bell, _)) in bells.iter().enumerate() {
            assert_eq!(bell.take(), usize::from(other == at), "{other} beside {at}");
        }
        drop(ready(&mut waiting[at]));
    }
    assert!(latches.iter().all(|latch| !latch.is_locked()));
}

#[test]
fn a_waker_may_use_the_latch_and_may_panic() {
    struct Uses(Arc<Latch>, AtomicUsize);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(usize::from(self.0.try_write().is_some()), SeqCst);
        }
    }
    let latch = Arc::new(Latch::new());
    let uses = Arc::new(Uses(Arc::clone(&latch), AtomicUsize::new(0)));
    let guard = latch.write_blocking();
    let mut waiting = latch.write();
    assert!(poll_with(&mut waiting, &Waker::from(Arc::clone(&uses))).is_pending());
    drop(guard);
    assert_eq!(uses.1.load(SeqCst), 1);
    drop(ready(waiting));

    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker");
        }
    }
    let (bell, waker) = Bell::new();
    let guard = latch.write_blocking();
    let (mut one, mut two) = (latch.read(), latch.read());
    assert!(poll_with(&mut one, &Waker::from(Arc::new(Panics))).is_pending());
    assert!(poll_with(&mut two, &waker).is_pending());
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(guard.downgrade())));
    assert!(panicked.is_err());
    assert_eq!(bell.take(), 1);
    drop((ready(one), ready(two)));
    assert!(!latch.is_locked());
}

#[test]
fn a_panic_under_a_guard_releases_the_latch() {
    let latch = Latch::new();
    let panicked = catch_unwind(|| {
        let _writer = latch.write_blocking();
        panic!("in the critical section");
    });
    assert!(panicked.is_err());
    assert!(!latch.is_locked());
}

#[test]
#[should_panic = "keylatch: a lock future was polled after it had finished"]
fn a_finished_future_panics_when_polled_again() {
    let latch = Latch::new();
    let mut read = latch.read();
    drop(poll(&mut read));
    drop(poll(&mut read));
}

#[test]
fn debug_output_of_latches_stripes_and_guards() {
    let latch = Latch::default();
    assert_eq!(format!("{latch:?}"), "Latch { readers: 0, upgradable: 0, writers: 0, waiting: 0 }");
    let reader = latch.read_blocking();
    assert_eq!(format!("{latch:?}"), "Latch { readers: 1, upgradable: 0, writers: 0, waiting: 0 }");
    assert_eq!(format!("{reader:?}"), "LatchGuard { mode: Shared, .. }");
    assert_eq!(format!("{:?}", latch.write()), "LatchAcquire { mode: Exclusive, done: false, .. }");
    drop(reader);
    let _writer = latch.write_blocking();
    assert_eq!(format!("{latch:?}"), "Latch { readers: 0, upgradable: 0, writers: 1, waiting: 0 }");
    let striped = Striped::<str>::new(3);
    assert_eq!(format!("{striped:?}"), "Striped { stripes: 3, fairness: Adaptive, .. }");
    assert_eq!(format!("{:?}", striped.read_many(["a"])), "LatchAcquireMany { to_come: 1, done: false, .. }");
}

// ---- stripes --------------------------------------------------------------------------------------------------------

/// A hasher whose hash is the number itself.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Weak = BuildHasherDefault<AsItIs>;

#[test]
fn a_key_always_has_the_same_stripe_and_a_weak_hasher_spreads_keys() {
    let striped = Striped::<u64, Weak>::with_hasher(100, Weak::default());
    let mut counts = [0; 100];
    for key in 0..100_000_u64 {
        assert_eq!(striped.stripe_of(&key), striped.stripe_of(&key));
        counts[striped.stripe_of(&key)] += 1;
    }
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    // For any power of two up to 2^53 as the distance between the keys, about as many stripes are used as for random
    // ones (647 of 1,024).
    let striped = Striped::<u64, Weak>::with_hasher(1024, Weak::default());
    for shift in 0..54 {
        let seen: HashSet<usize> = (0..1024_u64).map(|n| striped.stripe_of(&(n << shift))).collect();
        assert!((590..700).contains(&seen.len()), "{} at a distance of 2^{shift}", seen.len());
    }
}

#[test]
fn keys_need_neither_a_size_nor_clone_nor_eq() {
    #[derive(Hash)]
    struct Plain(u32);
    let plain = Striped::<Plain>::new(16);
    let guard = plain.write_blocking(&Plain(1));
    assert!(plain.try_write(&Plain(1)).is_none());
    drop(guard);
    let text = Striped::<str>::new(16);
    drop(text.write_blocking("a"));
    let shared = Striped::<Arc<str>>::new(16);
    let key: Arc<str> = Arc::from("a");
    let guard = shared.write_blocking(&key);
    assert!(shared.try_read("a").is_none());
    drop(guard);
    drop(Striped::<std::path::Path>::new(16).write_blocking(std::path::Path::new("a")));
    drop(Striped::<[u8]>::new(16).write_many_blocking([&b"a"[..], b"b"]));
}

#[test]
fn several_keys_lock_each_stripe_once_and_all_or_none() {
    let striped = Striped::<u64, Weak>::with_hasher(8, Weak::default());
    let stripes: HashSet<usize> = (0..20).map(|key| striped.stripe_of(&key)).collect();
    let keys: Vec<u64> = (0..20).collect();
    let guards = striped.write_many_blocking(&keys);
    assert_eq!(guards.len(), stripes.len());
    assert!(striped.try_read(&3).is_none());
    drop(guards);
    // A stripe that is both read and written is written.
    let (reads, writes) = striped.read_write_many_blocking(&keys, [&3]);
    assert_eq!((reads.len(), writes.len()), (stripes.len() - 1, 1));
    assert!(striped.try_read(&3).is_none());
    drop((reads, writes));
    // If one stripe is not free, no other is kept.
    let guard = striped.read_blocking(&3);
    assert!(striped.try_write_many(&keys).is_none());
    assert!(striped.try_write_many_for(&keys, Duration::from_millis(1)).is_none());
    assert!(block_on(striped.write_many(&keys).until(async {})).is_err());
    let mut waiting = striped.write_many(&keys);
    pending(&mut waiting);
    drop(waiting);
    let others: Vec<_> = keys.iter().filter(|key| striped.stripe_of(*key) != striped.stripe_of(&3)).collect();
    assert_eq!(striped.try_write_many(others).map(|guards| guards.len()), Some(stripes.len() - 1));
    drop(guard);
    let none: [&u64; 0] = [];
    assert!(striped.write_many_blocking(none).is_empty());
    assert!(striped.try_read_many(none).is_some());
    assert!(ready(striped.read_many(none)).is_empty());
}

#[test]
#[should_panic = "keylatch: a lock future was polled after it had finished"]
fn a_finished_future_of_several_panics_when_polled_again() {
    let striped = Striped::<u64>::new(8);
    let mut read = striped.read_many([&1]);
    drop(poll(&mut read));
    drop(poll(&mut read));
}

#[test]
fn callers_with_several_keys_in_any_order_never_deadlock() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 500 } else { 5_000 };
    let striped = Striped::<u64>::new(4);
    let accounts: Vec<Mutex<i64>> = (0..4).map(|_| Mutex::new(100)).collect();
    let move_one = |from: usize, to: usize| {
        // The stripe is held exclusively, so the mutex is never contended.
        *accounts[from].try_lock().expect("the stripe is held") -= 1;
        *accounts[to].try_lock().expect("the stripe is held") += 1;
    };
    thread::scope(|scope| {
        for by in 0..6_u64 {
            let (striped, accounts, move_one) = (&striped, &accounts, &move_one);
            scope.spawn(move || {
                let mut random = Random(by + 1);
                for _ in 0..ROUNDS {
                    let keys = [random.next(50), random.next(50)];
                    let [from, to] = keys.map(|key| striped.stripe_of(&key));
                    match random.next(4) {
                        0 => {
                            let _held = striped.write_many_blocking(&keys);
                            if from != to {
                                move_one(from, to);
                            }
                        }
                        1 => {
                            let _held = block_on(striped.write_many(keys.iter().rev()));
                            if from != to {
                                move_one(from, to);
                            }
                        }
                        2 => {
                            if let Some(_held) = striped.try_write_many(&keys) {
                                if from != to {
                                    move_one(to, from);
                                }
                            }
                        }
                        _ => {
                            let all: Vec<u64> = (0..50).collect();
                            let _held = striped.read_many_blocking(&all);
                            let sum: i64 = accounts.iter().map(|account| *account.lock().unwrap()).sum();
                            assert_eq!(sum, 400);
                        }
                    }
                }
            });
        }
    });
    assert!((0..50).all(|key| !striped.is_locked(&key)));
}

#[test]
fn guards_of_several_wake_after_all_are_released() {
    struct Looks(Arc<Striped<u64, Weak>>, u64, AtomicUsize);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.2.fetch_add(1 + usize::from(self.0.is_locked(&self.1)), SeqCst);
        }
    }
    let striped = Arc::new(Striped::<u64, Weak>::with_hasher(8, Weak::default()));
    let [low, high] = [0, 7].map(|stripe| (0..).find(|key| striped.stripe_of(key) == stripe).unwrap());
    let both = striped.write_many_blocking([&high, &low]);
    let looks = [low, high].map(|other| Arc::new(Looks(Arc::clone(&striped), other, AtomicUsize::new(0))));
    let (mut one, mut two) = (striped.write(&high), striped.write(&low));
    assert!(poll_with(&mut one, &Waker::from(Arc::clone(&looks[0]))).is_pending());
    assert!(poll_with(&mut two, &Waker::from(Arc::clone(&looks[1]))).is_pending());
    drop(both);
    assert_eq!(looks.map(|looks| looks.2.load(SeqCst)), [1, 1]);
    drop((ready(one), ready(two)));
}

#[test]
fn an_invalid_number_of_stripes_is_refused_with_a_message_that_names_it() {
    for stripes in [0, MAX_STRIPES + 1, usize::MAX] {
        let panicked = catch_unwind(|| drop(Striped::<str>::new(stripes))).unwrap_err();
        let message = panicked.downcast_ref::<String>().unwrap();
        assert_eq!(
            *message,
            format!("keylatch: the number of stripes must be between 1 and {MAX_STRIPES}, but is {stripes}")
        );
    }
}

#[test]
fn a_key_whose_hash_panics_leaves_nothing_behind() {
    struct Panics(bool);
    impl Hash for Panics {
        fn hash<H: Hasher>(&self, _: &mut H) {
            assert!(!self.0, "the hash");
        }
    }
    let striped = Striped::<Panics>::new(8);
    let keys = [Panics(false), Panics(true)];
    assert!(catch_unwind(AssertUnwindSafe(|| drop(striped.write_many_blocking(&keys)))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(striped.write_blocking(&keys[1])))).is_err());
    assert!(striped.try_write(&keys[0]).is_some());
}

#[test]
fn a_waiter_that_gives_up_passes_its_hold_on() {
    let latch = Latch::new();
    let guard = latch.write_blocking();
    let (bell, waker) = Bell::new();
    let (mut one, mut two) = (latch.write(), latch.write());
    pending(&mut one);
    assert!(poll_with(&mut two, &waker).is_pending());
    guard.unlock_fair();
    assert!(latch.is_locked()); // handed to the first, which has not been polled
    drop(one);
    until(|| bell.take() > 0);
    drop(ready(two));
    assert!(!latch.is_locked());
}
