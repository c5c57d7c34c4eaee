//! Several keys at once: every form on every table, all or nothing, order and duplicates, and misbehaving lists, keys
//! and wakers.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{Future, pending as never, ready as at_once};
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use common::hostile::{Hostile, LIVE, disarm, panic_after};
use common::{Bell, Random, pending, poll, poll_with, ready, until};
use futures_lite::future::{block_on, or, yield_now};
use keylatch::futures::{AcquireMany, Lock};
use keylatch::mode::{Exclusive, Permit, ReadOrWrite, Shared};
use keylatch::table::TableRef;
use keylatch::{Fairness, Guards, KeyedMutex, KeyedRwLock, KeyedSemaphore};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(0), Fairness::Bounded(16), Fairness::Barging];

// ---- every form on every table --------------------------------------------------------------------------------------

/// Tests every form of an operation. The parameters include a guard that keeps the operation from acquiring "b", and
/// the operation's arguments, which contain "a" and "b".
macro_rules! every_form {
    (
        $test:ident, $locks:ident = $new:expr, $excluded:expr, ($($given:expr),+),
        $lock:ident, $blocking:ident, $try_lock:ident, $try_for:ident, $try_until:ident,
        $lock_arc:ident, $arc_blocking:ident, $try_arc:ident, $try_arc_for:ident, $try_arc_until:ident
    ) => {
        #[test]
        fn $test() {
            let $locks = Arc::new($new);
            let long = Duration::from_secs(3600);
            let held = || {
                let holders = |key| $locks.status(key).map(|status| (status.holders(), status.waiters()));
                (holders("a"), holders("b"), $locks.len())
            };
            macro_rules! gets {
                ($guards:expr) => {{
                    let guards = $guards;
                    assert_eq!(held(), (Some((1, 0)), Some((1, 0)), 2));
                    drop(guards);
                    assert_eq!($locks.len(), 0, stringify!($guards));
                }};
            }
            gets!(ready($locks.$lock($($given),+)));
            gets!(block_on($locks.$lock($($given),+).until(never::<()>())).unwrap());
            gets!(block_on($locks.$lock($($given),+).until(at_once(()))).unwrap());
            gets!($locks.$blocking($($given),+));
            gets!($locks.$try_lock($($given),+).unwrap());
            gets!($locks.$try_for($($given,)+ Duration::ZERO).unwrap());
            gets!($locks.$try_until($($given,)+ Instant::now()).unwrap());
            gets!(ready($locks.$lock_arc($($given),+)));
            gets!(block_on($locks.$lock_arc($($given),+).until(at_once(()))).unwrap());
            gets!($locks.$arc_blocking($($given),+));
            gets!($locks.$try_arc($($given),+).unwrap());
            gets!($locks.$try_arc_for($($given,)+ Duration::ZERO).unwrap());
            gets!($locks.$try_arc_until($($given,)+ Instant::now()).unwrap());

            // A call that does not get "b" keeps nothing.
            macro_rules! fails {
                ($refused:expr) => {{
                    let excluded = $excluded;
                    let before = held();
                    assert_eq!((before.0, before.2), (None, 1));
                    assert!($refused, stringify!($refused));
                    assert_eq!(held(), before, stringify!($refused));
                    drop(excluded);
                    assert_eq!($locks.len(), 0, stringify!($refused));
                }};
            }
            let short = Duration::from_millis(2);
            fails!(block_on($locks.$lock($($given),+).until(at_once(7))).err() == Some(7));
            fails!(block_on($locks.$lock($($given),+).until(yield_now())).is_err());
            fails!($locks.$try_lock($($given),+).is_none());
            fails!($locks.$try_for($($given,)+ Duration::ZERO).is_none());
            fails!($locks.$try_for($($given,)+ short).is_none());
            fails!($locks.$try_until($($given,)+ Instant::now()).is_none());
            fails!($locks.$try_until($($given,)+ Instant::now() + short).is_none());
            fails!(block_on($locks.$lock_arc($($given),+).until(at_once(7))).err() == Some(7));
            fails!($locks.$try_arc($($given),+).is_none());
            fails!($locks.$try_arc_for($($given,)+ short).is_none());
            fails!($locks.$try_arc_until($($given,)+ Instant::now() + short).is_none());
            fails!(poll(&mut $locks.$lock($($given),+)).is_pending());
            fails!(poll(&mut $locks.$lock_arc($($given),+)).is_pending());
            // A future that was never polled keeps the entries and requests nothing.
            let future = $locks.$lock($($given),+);
            assert_eq!(held(), (Some((0, 0)), Some((0, 0)), 2));
            drop(future);
            assert_eq!($locks.len(), 0);

            // A waiting call acquires the keys.
            macro_rules! waits {
                ($guards:expr) => {{
                    let excluded = $excluded;
                    std::thread::scope(|scope| {
                        let other = scope.spawn(|| drop($guards));
                        until(|| $locks.status("b").is_some_and(|status| status.waiters() == 1));
                        drop(excluded);
                        other.join().unwrap();
                    });
                    assert_eq!($locks.len(), 0, stringify!($guards));
                }};
            }
            waits!(block_on($locks.$lock($($given),+)));
            waits!($locks.$blocking($($given),+));
            waits!($locks.$try_for($($given,)+ long).unwrap());
            waits!($locks.$try_for($($given,)+ Duration::MAX).unwrap());
            waits!($locks.$try_until($($given,)+ Instant::now() + long).unwrap());
            waits!(block_on($locks.$lock_arc($($given),+)));
            waits!($locks.$arc_blocking($($given),+));
            waits!($locks.$try_arc_for($($given,)+ long).unwrap());
            waits!($locks.$try_arc_until($($given,)+ Instant::now() + long).unwrap());
            assert_eq!(Arc::strong_count(&$locks), 1);
        }
    };
}

every_form! {
    every_form_of_a_mutex, locks = KeyedMutex::<String>::new(), locks.try_lock("b").unwrap(), (["a", "b"]),
    lock_many, lock_many_blocking, try_lock_many, try_lock_many_for, try_lock_many_until,
    lock_many_arc, lock_many_arc_blocking, try_lock_many_arc, try_lock_many_arc_for, try_lock_many_arc_until
}
every_form! {
    every_form_of_readers, locks = KeyedRwLock::<String>::new(), locks.try_write("b").unwrap(), (["a", "b"]),
    read_many, read_many_blocking, try_read_many, try_read_many_for, try_read_many_until,
    read_many_arc, read_many_arc_blocking, try_read_many_arc, try_read_many_arc_for, try_read_many_arc_until
}
every_form! {
    every_form_of_writers, locks = KeyedRwLock::<String>::new(), locks.try_read("b").unwrap(), (["a", "b"]),
    write_many, write_many_blocking, try_write_many, try_write_many_for, try_write_many_until,
    write_many_arc, write_many_arc_blocking, try_write_many_arc, try_write_many_arc_for, try_write_many_arc_until
}
every_form! {
    every_form_of_joint_reads_and_writes,
    locks = KeyedRwLock::<String>::new(), locks.try_read("b").unwrap(), (["a", "b"], ["b"]),
    read_write_many, read_write_many_blocking, try_read_write_many, try_read_write_many_for, try_read_write_many_until,
    read_write_many_arc, read_write_many_arc_blocking, try_read_write_many_arc, try_read_write_many_arc_for,
    try_read_write_many_arc_until
}
every_form! {
    every_form_of_a_semaphore, locks = KeyedSemaphore::<String>::new(1), locks.try_acquire("b").unwrap(), (["a", "b"]),
    acquire_many, acquire_many_blocking, try_acquire_many, try_acquire_many_for, try_acquire_many_until,
    acquire_many_arc, acquire_many_arc_blocking, try_acquire_many_arc, try_acquire_many_arc_for,
    try_acquire_many_arc_until
}
// Each key is listed several times, and "b" more often than there are permits.
every_form! {
    every_form_of_a_mutex_with_duplicate_keys, locks = KeyedMutex::<String>::new(), locks.try_lock("b").unwrap(),
    (["b", "a", "b", "b", "a"]),
    lock_many, lock_many_blocking, try_lock_many, try_lock_many_for, try_lock_many_until,
    lock_many_arc, lock_many_arc_blocking, try_lock_many_arc, try_lock_many_arc_for, try_lock_many_arc_until
}
every_form! {
    every_form_of_readers_with_duplicate_keys,
    locks = KeyedRwLock::<String>::new(), locks.try_write("b").unwrap(), (["b", "a", "b", "b", "a"]),
    read_many, read_many_blocking, try_read_many, try_read_many_for, try_read_many_until,
    read_many_arc, read_many_arc_blocking, try_read_many_arc, try_read_many_arc_for, try_read_many_arc_until
}
every_form! {
    every_form_of_a_semaphore_with_duplicate_keys,
    locks = KeyedSemaphore::<String>::new(2), [locks.try_acquire("b").unwrap(), locks.try_acquire("b").unwrap()].map(Some),
    (["b", "a", "b", "b", "a"]),
    acquire_many, acquire_many_blocking, try_acquire_many, try_acquire_many_for, try_acquire_many_until,
    acquire_many_arc, acquire_many_arc_blocking, try_acquire_many_arc, try_acquire_many_arc_for,
    try_acquire_many_arc_until
}

// ---- the guards that are returned -----------------------------------------------------------------------------------

fn keys<'g, I: Iterator<Item = &'g u64>>(guards: I) -> Vec<u64> {
    guards.copied().collect()
}

#[test]
fn guards_are_in_the_order_of_first_mention() {
    let mut random = Random(7);
    for round in 0..200 {
        let list: Vec<u64> = (0..random.next(40)).map(|_| random.next(20)).collect();
        let mut seen = HashSet::new();
        let order: Vec<u64> = list.iter().copied().filter(|&key| seen.insert(key)).collect();
        let (mutexes, pages) = (KeyedMutex::<u64>::builder().shards(2).build(), KeyedRwLock::<u64>::new());
        let hosts = KeyedSemaphore::<u64>::new(1 + round % 3);
        // Existing entries, made in a random order.
        let mut some = || (0..random.next(20)).map(|_| random.next(20)).collect::<Vec<_>>();
        let handles: Vec<_> = some().iter().map(|key| (mutexes.handle(key), hosts.handle(key))).collect();
        let others: Vec<_> = some().iter().map(|key| pages.try_read(key)).collect();
        for _ in 0..2 {
            assert_eq!(keys(mutexes.try_lock_many(&list).unwrap().iter().map(|guard| guard.key())), order);
            assert_eq!(keys(mutexes.lock_many_blocking(&list).iter().map(|guard| guard.key())), order);
            assert_eq!(keys(ready(mutexes.lock_many(&list)).iter().map(|guard| guard.key())), order);
            assert_eq!(keys(pages.read_many_blocking(&list).iter().map(|guard| guard.key())), order);
            assert_eq!(keys(ready(pages.read_many(&list)).iter().map(|guard| guard.key())), order);
            assert_eq!(keys(hosts.acquire_many_blocking(&list).iter().map(|guard| guard.key())), order);
            assert_eq!(keys(ready(hosts.acquire_many(&list)).iter().map(|guard| guard.key())), order);
        }
        // The same after a wait.
        if let Some(last) = list.last() {
            let guard = mutexes.try_lock(last);
            let mut future = mutexes.lock_many(&list);
            pending(&mut future);
            drop(guard);
            assert_eq!(keys(ready(future).iter().map(|guard| guard.key())), order);
        }
        drop((handles, others));
        assert_eq!((mutexes.len(), pages.len(), hosts.len()), (0, 0, 0));
    }
}

#[test]
fn a_key_in_both_lists_is_written_and_each_list_keeps_its_order() {
    let pages = KeyedRwLock::<u64>::new();
    let check = |(reads, writes): (Guards<TableRef<'_, KeyedRwLock<u64>>, Shared>, Guards<_, Exclusive>)| {
        assert_eq!(keys(reads.iter().map(|guard| guard.key())), [5, 1]);
        assert_eq!(keys(writes.iter().map(|guard| guard.key())), [9, 3, 2]);
        for (key, counts) in [(5, (1, 0)), (1, (1, 0)), (9, (0, 1)), (3, (0, 1)), (2, (0, 1))] {
            let status = pages.status(&key).unwrap();
            assert_eq!((status.readers(), status.writers()), counts);
        }
        drop(reads);
        assert_eq!(pages.len(), 3);
        drop(writes);
        assert_eq!(pages.len(), 0);
    };
    let (reads, writes) = ([5, 3, 5, 1, 2, 3], [9, 3, 9, 2, 3]);
    check(pages.read_write_many_blocking(&reads, &writes));
    check(pages.try_read_write_many(&reads, &writes).unwrap());
    check(ready(pages.read_write_many(&reads, &writes)));
    let others = (pages.try_read(&5), pages.try_read(&1));
    let mut future = pages.read_write_many(&reads, &writes);
    let guard = pages.try_read(&2);
    pending(&mut future);
    drop((guard, others));
    check(ready(future));
    let (reads, writes) = pages.try_read_write_many(&[], &[7]).unwrap();
    assert!(reads.is_empty() && writes.len() == 1);
    drop(writes);
    // The two lists are of different iterator types.
    let (reads, writes) = pages.try_read_write_many(vec![&1], std::iter::once(&2)).unwrap();
    assert_eq!((reads.len(), writes.len()), (1, 1));
}

#[test]
fn an_empty_list_succeeds_at_once() {
    let (locks, hosts) = (KeyedMutex::<u64>::new(), KeyedSemaphore::<u64>::new(1));
    let pages = Arc::new(KeyedRwLock::<u64>::new());
    assert!(locks.try_lock_many::<u64>([]).unwrap().is_empty());
    assert!(locks.lock_many_blocking::<u64>([]).get(&7).is_none());
    let mut future = locks.lock_many::<u64>([]);
    assert_eq!(ready(&mut future).len(), 0);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut future))).is_err());
    assert_eq!(hosts.acquire_many_blocking::<u64>([]).into_iter().count(), 0);
    let (reads, writes) = pages.read_write_many_arc_blocking::<u64>([], []);
    assert!(reads.is_empty() && writes.is_empty());
    assert!(pages.try_write_many_for::<u64>([], Duration::ZERO).is_some());
    assert!(block_on(pages.read_many_arc::<u64>([]).until(at_once(()))).is_ok());
    assert_eq!((locks.len(), pages.len(), hosts.len()), (0, 0, 0));
}

#[test]
fn guards_of_several_keys_can_be_inspected_and_taken_apart() {
    let locks = Arc::new(KeyedMutex::<String>::new());
    let mut guards = locks.lock_many_arc_blocking(["b", "a", "c", "b"]);
    assert_eq!((guards.len(), guards.is_empty()), (3, false));
    assert_eq!(guards.get("a").unwrap().key(), "a");
    assert_eq!(guards.get(&"c".to_string()).unwrap().key(), "c");
    assert!(guards.get("d").is_none() && guards.get_mut("d").is_none());
    assert_eq!(guards.get_mut("b").unwrap().key(), "b");
    assert_eq!(format!("{guards:?}").matches("Guard {").count(), 3);
    let names = |guards: &Guards<_, _>| {
        guards.iter().map(|guard: &keylatch::MutexGuardArc<String>| guard.key().clone()).collect::<String>()
    };
    assert_eq!(names(&guards), "bac");
    let mut by_reference = String::new();
    for guard in &guards {
        by_reference += guard.key();
    }
    for guard in &mut guards {
        by_reference += guard.key();
    }
    assert!(guards.iter_mut().rev().map(|guard| guard.key().as_str()).eq(["c", "a", "b"]));
    assert_eq!(by_reference, "bacbac");

    let mut rest = guards.into_iter();
    assert_eq!((rest.len(), rest.size_hint()), (3, (3, Some(3))));
    let first = rest.next().unwrap();
    let last = rest.next_back().unwrap();
    assert_eq!((first.key().as_str(), last.key().as_str(), rest.len()), ("b", "c", 1));
    assert_eq!(format!("{rest:?}").matches("Guard {").count(), 1);
    drop(rest);
    assert!(locks.is_locked("b") && !locks.is_locked("a") && locks.is_locked("c"));
    // The parts are ordinary guards.
    std::thread::spawn(move || drop(first)).join().unwrap();
    let mut waiter = locks.lock("c");
    pending(&mut waiter);
    last.unlock_fair();
    assert!(locks.try_lock("c").is_none());
    drop(ready(waiter));
    assert_eq!(locks.len(), 0);

    let mut one = locks.try_lock_many(["a"]).unwrap().into_iter();
    assert_eq!(one.len(), 1);
    drop(one.next_back());
    assert!(one.next().is_none() && one.next_back().is_none() && locks.is_empty());
    assert_eq!(Arc::strong_count(&locks), 1);

    let pages = KeyedRwLock::<u64>::new();
    let [one, two, three] =
        pages.try_write_many([&1, &2, &3]).unwrap().into_iter().collect::<Vec<_>>().try_into().unwrap();
    let (one, two) = (one.downgrade(), two.downgrade_to_upgradable());
    assert!(pages.try_read(&1).is_some() && pages.try_read(&2).is_some() && pages.try_read(&3).is_none());
    assert!(two.try_upgrade().is_ok());
    drop((one, three));
    assert!(pages.is_empty());
}

#[test]
fn futures_and_guards_have_the_same_auto_traits_as_those_of_one_key() {
    fn all<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
    fn sent(_: &(impl Send + Future)) {}
    type Ref = TableRef<'static, KeyedRwLock<String>>;
    all::<AcquireMany<Ref, Shared>>();
    all::<AcquireMany<Ref, Exclusive>>();
    all::<AcquireMany<Ref, ReadOrWrite>>();
    all::<AcquireMany<Arc<KeyedSemaphore<String>>, Permit>>();
    all::<Guards<Ref, Shared>>();
    all::<Guards<Arc<KeyedMutex<String>>, Exclusive>>();
    all::<<Guards<Ref, Shared> as IntoIterator>::IntoIter>();
    let locks = KeyedMutex::<String>::new();
    sent(&locks.lock_many(["a"]).until(at_once(())));
    // A future does not borrow its keys.
    let mut future = {
        let (a, b) = ("a".to_string(), "b".to_string());
        locks.lock_many([&a, &b])
    };
    assert_eq!(format!("{future:?}"), "AcquireMany { to_come: 2, done: false, .. }");
    let guard = locks.try_lock("b");
    pending(&mut future);
    assert!(format!("{future:?}").contains("done: false"));
    drop(guard);
    drop(ready(&mut future));
    assert_eq!(format!("{future:?}"), "AcquireMany { to_come: 0, done: true, .. }");
}

#[test]
fn a_future_polled_after_it_has_finished_panics() {
    let locks = KeyedMutex::<u64>::new();
    let lists: [&[u64]; 3] = [&[], &[1], &[1, 2]];
    for (list, waits) in lists.into_iter().flat_map(|list| [(list, false), (list, true)]) {
        let guard = waits.then(|| locks.try_lock_many(list).unwrap());
        let mut future = locks.lock_many(list);
        if waits && !list.is_empty() {
            pending(&mut future);
        }
        drop(guard);
        drop(ready(&mut future));
        let panic = catch_unwind(AssertUnwindSafe(|| poll(&mut future))).unwrap_err();
        let text = panic.downcast_ref::<&str>().copied();
        let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap();
        assert!(message.contains("polled after it had finished"), "{message}");
        drop(future);
        assert_eq!(locks.len(), 0);
    }
}

// ---- while a call waits ---------------------------------------------------------------------------------------------

#[test]
fn a_waiting_caller_visibly_holds_the_keys_that_come_first_in_the_tables_order() {
    const KEYS: u64 = 6;
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).shards(2).build();
        // The handles keep the entries in place.
        let handles: Vec<_> = (0..KEYS).map(|key| locks.handle(&key)).collect();
        let before = |list: &[u64], waits_for: u64, blocks: bool| -> Vec<u64> {
            let guard = locks.try_lock(&waits_for).unwrap();
            let mut future = locks.lock_many(list);
            std::thread::scope(|scope| {
                if blocks {
                    scope.spawn(|| drop(locks.lock_many_blocking(list)));
                    until(|| locks.status(&waits_for).unwrap().waiters() == 1);
                } else {
                    pending(&mut future);
                }
                let held = (0..KEYS).filter(|&key| key != waits_for && locks.is_locked(&key)).collect();
                let waiters: usize = (0..KEYS).map(|key| locks.status(&key).unwrap().waiters()).sum();
                assert_eq!((waiters, locks.status(&waits_for).unwrap().waiting_writers()), (1, 1));
                drop(guard);
                held
            })
        };
        let list: Vec<u64> = (0..KEYS).collect();
        let mut order = list.clone();
        order.sort_by_key(|&key| before(&list, key, false).len());
        for (place, &key) in order.iter().enumerate() {
            let mut expected = order[..place].to_vec();
            expected.sort_unstable();
            let reversed: Vec<u64> = list.iter().rev().copied().collect();
            for blocks in [false, true] {
                assert_eq!(before(&list, key, blocks), expected, "{fairness:?}");
                assert_eq!(before(&reversed, key, blocks), expected, "{fairness:?}");
            }
        }
        drop(handles);
        assert_eq!(locks.len(), 0);
    }
}

/// Two futures for the same keys in opposite order are polled in turn, and one of them may be dropped.
#[test]
fn two_tasks_with_keys_in_opposite_order_never_deadlock() {
    for (fairness, gives_up) in ALL.into_iter().flat_map(|fairness| [(fairness, false), (fairness, true)]) {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let held = locks.try_lock_many([&1, &2, &3]).unwrap();
        let mut one = locks.lock_many([&1, &2, &3]);
        let mut two = locks.lock_many([&3, &2, &1]);
        pending(&mut one);
        pending(&mut two);
        for guard in held {
            drop(guard);
            if gives_up {
                let mut third = locks.lock_many([&2, &3]);
                drop(poll(&mut third));
            }
        }
        if gives_up {
            drop(one);
        } else {
            drop(ready(one));
        }
        drop(ready(two));
        assert_eq!(locks.len(), 0, "{fairness:?}");
    }
}

#[test]
fn a_key_handed_to_a_future_that_is_dropped_goes_to_the_next_waiter() {
    for fairness in ALL {
        let locks = KeyedMutex::<u64>::builder().fairness(fairness).build();
        let guards = locks.try_lock_many([&1, &2]).unwrap();
        let mut many = locks.lock_many([&1, &2]);
        pending(&mut many);
        let waits_for = if locks.status(&1).unwrap().waiters() == 1 { 1 } else { 2 };
        let (bell, waker) = Bell::new();
        let mut next = locks.lock(&waits_for);
        assert!(poll_with(&mut next, &waker).is_pending());
        drop(guards);
        drop(many);
        assert!(bell.take() > 0, "{fairness:?}");
        drop(ready(next));
        assert_eq!(locks.len(), 0);
    }
}

/// A waker that tries some keys when it is woken.
struct TriesAll {
    locks: KeyedMutex<u64>,
    keys: Mutex<Vec<u64>>,
    free: AtomicUsize,
    held: AtomicUsize,
}

impl Wake for TriesAll {
    fn wake(self: Arc<Self>) {
        let keys = self.keys.lock().unwrap().clone();
        let free =
            keys.iter().all(|key| self.locks.try_lock(key).is_some()) && self.locks.try_lock_many(&keys).is_some();
        (if free { &self.free } else { &self.held }).fetch_add(1, SeqCst);
    }
}

impl TriesAll {
    fn new() -> Arc<Self> {
        let locks = KeyedMutex::builder().fairness(Fairness::Barging).build();
        Arc::new(TriesAll { locks, keys: Mutex::default(), free: 0.into(), held: 0.into() })
    }

    /// Returns waiting futures, one for each of these keys, whose wakers try all of them.
    fn waiters(self: &Arc<Self>, keys: impl IntoIterator<Item = u64>) -> Vec<Lock<'_, u64>> {
        let waker = Waker::from(Arc::clone(self));
        *self.keys.lock().unwrap() = keys.into_iter().collect();
        let mut waiters: Vec<_> = self.keys.lock().unwrap().iter().map(|key| self.locks.lock(key)).collect();
        waiters.iter_mut().for_each(|waiter| assert!(poll_with(waiter, &waker).is_pending()));
        waiters
    }

    /// Checks that `woken` wakers ran, and found all keys free.
    fn check(&self, woken: usize) {
        assert_eq!((self.free.swap(0, SeqCst), self.held.swap(0, SeqCst)), (woken, 0));
    }
}

const THREE: [u64; 3] = [1, 2, 3];

#[test]
fn wakers_run_after_all_keys_are_released() {
    let all = TriesAll::new();
    let locks = &all.locks;
    // First, all guards are dropped together. Then, in a second call, one guard is taken out, and the rest are dropped.
    let guards = locks.try_lock_many(&THREE).unwrap();
    let waiters = all.waiters(THREE);
    drop(guards);
    all.check(3);
    drop(waiters);
    let mut guards = locks.lock_many_blocking(&THREE).into_iter();
    drop(guards.next());
    let waiters = all.waiters([2, 3]);
    drop(guards);
    all.check(2);
    drop(waiters);
    // A waiting future for several keys is dropped. The handles keep the entries in place, and so in the same order.
    let handles = THREE.map(|key| locks.handle(&key));
    let mut held = 0;
    for last in THREE {
        let other = locks.try_lock(&last).unwrap();
        let mut future = locks.lock_many(&THREE);
        pending(&mut future);
        let waiters = all.waiters(THREE.into_iter().filter(|key| *key != last && locks.is_locked(key)));
        held += waiters.len();
        drop(future);
        all.check(waiters.len());
        drop((other, waiters));
    }
    assert_eq!(held, 3, "the futures must have held none, one and two keys");
    drop(handles);
    // A list panics at its end.
    let waiters = RefCell::new(vec![]);
    let list = THREE.iter().chain(std::iter::from_fn(|| {
        waiters.replace(all.waiters(THREE));
        resume_unwind(Box::new("at the end of the list"))
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| locks.lock_many_blocking(list))).is_err());
    all.check(3);
    waiters.take();
    // The last key of a list cannot be acquired.
    let other = locks.try_lock(&4).unwrap();
    let list = THREE.iter().chain(std::iter::from_fn(|| {
        let first = waiters.borrow().is_empty();
        first.then(|| {
            waiters.replace(all.waiters(THREE));
            &4
        })
    }));
    assert!(locks.try_lock_many(list).is_none());
    all.check(3);
    drop((other, waiters));
    assert_eq!(locks.len(), 0);
}

// ---- misbehaving lists, keys and wakers -----------------------------------------------------------------------------

/// A list that claims an arbitrary size.
struct WithSizeHint<I>(I, (usize, Option<usize>));

impl<I: Iterator> Iterator for WithSizeHint<I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.1
    }
}

#[test]
fn a_list_may_lie_about_its_length() {
    let locks = KeyedMutex::<u64>::new();
    let pages = KeyedRwLock::<u64>::new();
    let keys: Vec<u64> = (0..20).collect();
    let hints = [usize::MAX, usize::MAX - 1, isize::MAX as usize, usize::MAX >> 23, 21, 19, 1, 0];
    for (hint, len) in hints.into_iter().flat_map(|hint| [0, 1, 2, 3, 20].map(|len| (hint, len))) {
        let list = || WithSizeHint(keys[..len].iter(), (hint, Some(hint.min(5))));
        let other = len.checked_sub(1).and_then(|last| locks.try_lock(&keys[last]));
        assert_eq!(locks.try_lock_many(list()).is_some(), len == 0);
        drop(other);
        assert_eq!(locks.try_lock_many(list()).unwrap().len(), len);
        assert_eq!(locks.lock_many_blocking(list()).len(), len);
        assert_eq!(ready(locks.lock_many(list())).len(), len);
        let (reads, writes) = pages.try_read_write_many(list(), list()).unwrap();
        assert_eq!((reads.len(), writes.len()), (0, len));
        drop((reads, writes));
        let (reads, writes) = ready(pages.read_write_many(list(), list()));
        assert_eq!((reads.len(), writes.len()), (0, len));
    }
    assert_eq!((locks.len(), pages.len()), (0, 0));
}

/// A list, and the places where it panics.
struct Panics<I> {
    list: I,
    in_next: Option<usize>,
    in_size_hint: bool,
    in_drop: bool,
}

impl<I: Iterator> Iterator for Panics<I> {
    type Item = I::Item;
    fn next(&mut self) -> Option<I::Item> {
        if let Some(left) = &mut self.in_next {
            *left = left.checked_sub(1).unwrap_or_else(|| resume_unwind(Box::new("in next")));
        }
        self.list.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        if self.in_size_hint {
            resume_unwind(Box::new("in size_hint"));
        }
        self.list.size_hint()
    }
}

impl<I> Drop for Panics<I> {
    fn drop(&mut self) {
        if self.in_drop && !std::thread::panicking() {
            resume_unwind(Box::new("in drop"));
        }
    }
}

#[test]
fn a_list_that_panics_leaves_nothing_held() {
    let locks = Arc::new(KeyedMutex::<u64>::new());
    let pages = KeyedRwLock::<u64>::new();
    let keys: Vec<u64> = vec![1, 2, 1, 3];
    let places = (0..=4).map(|at| (Some(at), false, false)).chain([
        (None, true, false),
        (None, false, true),
        (None, true, true),
    ]);
    for (in_next, in_size_hint, in_drop) in places {
        for len in 0..=4 {
            for other in [None, Some(2), Some(3)] {
                let other = other.map(|key| (locks.try_lock(&key), pages.try_write(&key)));
                let list = || Panics { list: keys[..len].iter(), in_next, in_size_hint, in_drop };
                let held = locks.len();
                let calls: [&dyn Fn(); 7] = [
                    &|| drop(locks.try_lock_many(list())),
                    &|| drop(locks.try_lock_many_for(list(), Duration::ZERO)),
                    &|| drop(locks.try_lock_many_arc_until(list(), Instant::now())),
                    &|| drop(poll(&mut locks.lock_many(list()))),
                    &|| drop(poll(&mut locks.lock_many_arc(list()))),
                    &|| drop(pages.try_read_many(list())),
                    &|| drop(poll(&mut pages.read_write_many(list(), list()))),
                ];
                for (at, call) in calls.into_iter().enumerate() {
                    let panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
                    assert!(panicked || !in_drop, "call {at}");
                    assert_eq!(
                        (locks.len(), pages.len()),
                        (held, held),
                        "call {at}, {in_next:?} {in_size_hint} {in_drop} {len}"
                    );
                    assert_eq!(THREE.iter().filter(|key| locks.is_locked(*key)).count(), held);
                    assert_eq!(
                        THREE.iter().filter_map(|key| locks.status(key)).map(|status| status.waiters()).sum::<usize>(),
                        0
                    );
                }
                drop(other);
            }
        }
    }
    assert_eq!((locks.len(), pages.len()), (0, 0));
}

/// A list is read only up to its first `None`.
#[test]
fn a_list_is_not_read_past_its_first_none() {
    let (locks, pages, hosts) = (KeyedMutex::<u64>::new(), KeyedRwLock::<u64>::new(), KeyedSemaphore::<u64>::new(2));
    let list = || {
        let mut next = [Some(&1), Some(&1), Some(&2), None, Some(&3), None].into_iter();
        std::iter::from_fn(move || next.next().flatten())
    };
    for other in [None, Some(2)] {
        let others = other.map(|key| (locks.handle(&key), pages.handle(&key), hosts.handle(&key)));
        assert_eq!(locks.try_lock_many(list()).unwrap().len(), 2);
        assert_eq!(ready(locks.lock_many(list())).len(), 2);
        assert_eq!(pages.try_read_many(list()).unwrap().len(), 2);
        assert_eq!(ready(pages.read_many(list())).len(), 2);
        assert_eq!(hosts.acquire_many_blocking(list()).len(), 2);
        assert_eq!(ready(hosts.acquire_many(list())).len(), 2);
        drop(others);
    }
}

#[test]
fn a_list_may_use_the_table() {
    let (locks, hosts) = (KeyedMutex::<u64>::new(), KeyedSemaphore::<u64>::new(2));
    let list = || {
        THREE.iter().chain(&THREE).inspect(|&&key| {
            drop(locks.try_lock(&key));
            drop(locks.try_lock_many([&10, &11]).unwrap());
            drop(locks.lock_many_blocking([&11, &10]));
            drop(poll(&mut locks.lock_many(&THREE)));
            locks.for_each_key(|_, _| {});
            drop(hosts.acquire_many_blocking([&10]));
        })
    };
    assert_eq!(locks.lock_many_blocking(list()).len(), 3);
    assert_eq!(locks.try_lock_many(list()).unwrap().len(), 3);
    assert_eq!(ready(locks.lock_many(list())).len(), 3);
    assert_eq!((locks.len(), hosts.len()), (0, 0));
}

/// One of two permits is left for others, even while a list that repeats the key is being read.
#[test]
fn a_duplicate_key_is_never_held_twice() {
    let (hosts, pages) = (KeyedSemaphore::<u64>::new(2), KeyedRwLock::<u64>::new());
    let named = |key: u64| {
        let (mut times, hosts, pages) = (0, &hosts, &pages);
        std::iter::from_fn(move || {
            let held = (
                hosts.status(&key).map_or(0, |status| status.permits()),
                pages.status(&key).map_or(0, |status| status.readers()),
            );
            assert!(held.0 <= 1 && held.1 <= 1, "{held:?}");
            assert!(hosts.try_acquire(&key).is_some(), "the other permit is not free");
            times += 1;
            (times < 5).then_some(&7)
        })
    };
    for others in [None, Some(hosts.handle(&7))] {
        assert_eq!(hosts.acquire_many_blocking(named(7)).len(), 1);
        assert_eq!(hosts.try_acquire_many(named(7)).unwrap().len(), 1);
        assert_eq!(pages.read_many_blocking(named(7)).len(), 1);
        assert_eq!(ready(hosts.acquire_many(named(7))).len(), 1);
        drop(others);
    }
    // This thread tries while calls of another thread are in progress.
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            for _ in 0..2000 {
                drop(hosts.acquire_many_blocking([&7, &8, &7]));
                drop(ready(hosts.acquire_many([&8, &7, &7])));
            }
        });
        while !done.is_finished() {
            drop(hosts.try_acquire(&7).expect("only one permit is taken"));
        }
    });
    // This is more keys than are compared pairwise.
    let many: Vec<u64> = (0..300).chain(0..300).collect();
    let handles: Vec<_> = many.iter().map(|key| hosts.handle(key)).collect();
    assert_eq!(hosts.acquire_many_blocking(&many).len(), 300);
    assert_eq!(ready(hosts.acquire_many(&many)).len(), 300);
    let guards = pages.read_many_blocking(&many);
    assert_eq!(pages.try_read_many(&many).unwrap().len(), 300);
    drop((handles, guards));
    assert_eq!((hosts.len(), pages.len()), (0, 0));
}

#[test]
fn panicking_keys_in_a_list_leave_nothing_held_and_nothing_behind() {
    let mut panics = 0;
    for (recycle, contended) in [(false, false), (true, false), (false, true), (true, true)] {
        for place in ["hash", "eq", "clone", "clone_from", "drop"] {
            for at in 0..12 {
                let before = LIVE.get();
                let locks = KeyedMutex::<Hostile>::builder().shards(1).pool_capacity(2).recycle_keys(recycle).build();
                {
                    let list = [1, 2, 3, 2, 4].map(Hostile::new);
                    let held = contended.then(|| locks.try_lock(&list[2]).unwrap());
                    let calls: [&dyn Fn(); 3] =
                        [&|| drop(locks.try_lock_many(&list)), &|| drop(poll(&mut locks.lock_many(&list))), &|| {
                            drop(locks.lock_many(&list))
                        }];
                    for call in calls {
                        panic_after(place, at);
                        panics += usize::from(catch_unwind(AssertUnwindSafe(call)).is_err());
                        disarm();
                        assert_eq!(locks.len(), usize::from(contended), "{place} {at}");
                        for key in &list {
                            assert_eq!(locks.is_locked(key), contended && key.0 == 3);
                        }
                    }
                    drop(held);
                    assert_eq!(locks.try_lock_many(&list).unwrap().len(), 4);
                }
                assert_eq!(locks.len(), 0);
                drop(locks);
                assert_eq!(LIVE.get(), before, "{place} {at}: a key was leaked or dropped twice");
            }
        }
    }
    assert!(panics > 200, "{panics}");
}

thread_local!(static BAD_DROPS: Cell<bool> = const { Cell::new(false) });

/// A key whose drops all panic while `BAD_DROPS` is set.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Bad(u8);

impl Drop for Bad {
    fn drop(&mut self) {
        if BAD_DROPS.get() {
            resume_unwind(Box::new(self.0));
        }
    }
}

#[test]
fn all_of_several_keys_whose_drops_panic_are_released() {
    let locks = KeyedMutex::<Bad>::builder().shards(1).pool_capacity(0).build();
    let list = [1, 2, 3].map(Bad);
    let drops_badly = |what: Box<dyn FnOnce() + '_>| {
        BAD_DROPS.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(what));
        BAD_DROPS.set(false);
        assert!(outcome.is_err());
        assert_eq!(locks.len(), 0);
    };
    for already_panicking in [false, true] {
        let guards = locks.try_lock_many(&list).unwrap();
        drops_badly(Box::new(|| {
            let _guards = guards;
            if already_panicking {
                resume_unwind(Box::new("first"));
            }
        }));
        let mut rest = locks.try_lock_many(&list).unwrap().into_iter();
        drop(rest.next());
        drops_badly(Box::new(|| drop(rest)));
        let unpolled = locks.lock_many(&list);
        drops_badly(Box::new(|| drop(unpolled)));
        for last in &list {
            let other = locks.try_lock(last).unwrap();
            let mut future = locks.lock_many(&list);
            pending(&mut future);
            drop(other);
            drops_badly(Box::new(|| drop(future)));
        }
    }
}

/// A waker that panics when it is woken.
struct Grenade(AtomicUsize);

impl Wake for Grenade {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        resume_unwind(Box::new("a waker"));
    }
}

#[test]
fn panicking_wakers_leave_nothing_held() {
    let pages = KeyedRwLock::<u64>::builder().fairness(Fairness::Bounded(0)).build();
    let grenade = Arc::new(Grenade(0.into()));
    let waker = Waker::from(Arc::clone(&grenade));
    let guards = pages.try_write_many(&THREE).unwrap();
    let mut waiters = THREE.map(|key| pages.read(&key));
    waiters.iter_mut().for_each(|waiter| assert!(poll_with(waiter, &waker).is_pending()));
    let (bell, last) = Bell::new();
    let mut one_more = pages.read(&1);
    assert!(poll_with(&mut one_more, &last).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(guards))).is_err());
    assert_eq!((grenade.0.load(SeqCst), bell.take()), (3, 1));
    drop((waiters, one_more));
    assert_eq!(pages.len(), 0);
}

mod uncloned {
    #![allow(unsafe_code)] // a waker made by hand
    use std::task::{RawWaker, RawWakerVTable, Waker};

    /// Creates a waker that panics when it is cloned.
    pub(crate) fn waker() -> Waker {
        const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
        fn clone(_: *const ()) -> RawWaker {
            std::panic::resume_unwind(Box::new("clone"))
        }
        // SAFETY: the waker has no data.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
    }
}

#[test]
fn a_future_whose_poll_has_panicked_holds_nothing_even_before_it_is_dropped() {
    let locks = KeyedMutex::<u64>::new();
    for last in THREE {
        for waits_already in [false, true] {
            let other = locks.try_lock(&last).unwrap();
            let mut future = locks.lock_many(&THREE);
            if waits_already {
                pending(&mut future);
            }
            let others =
                THREE.iter().filter(|&&key| key != last && !locks.is_locked(&key)).map(|key| locks.try_lock(key));
            let others: Vec<_> = others.collect();
            let mut drop_other = Some(other);
            if waits_already && !others.is_empty() {
                drop_other = None; // `last` is free: the future acquires it, and waits for one of `others`
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| poll_with(&mut future, &uncloned::waker()).is_pending()));
            let held = THREE.iter().filter(|key| locks.is_locked(*key)).count();
            if outcome.is_err() {
                assert_eq!(held, others.len() + usize::from(drop_other.is_some()), "the future still holds something");
                assert_eq!(
                    THREE.iter().filter_map(|key| locks.status(key)).map(|status| status.waiters()).sum::<usize>(),
                    0
                );
            } else {
                assert!(waits_already && others.is_empty());
            }
            drop((others, drop_other));
            drop(future);
            assert_eq!(locks.len(), 0);
        }
    }
}

// ---- crowds ---------------------------------------------------------------------------------------------------------

/// A hasher that hashes all keys alike.
#[derive(Clone, Default)]
struct Constant;

impl BuildHasher for Constant {
    type Hasher = Constant;
    fn build_hasher(&self) -> Constant {
        Constant
    }
}

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn ten_thousand_keys_can_be_locked_at_once() {
    let keys: Vec<u64> = (0..10_000).collect();
    let (locks, pages) = (KeyedMutex::<u64>::new(), KeyedRwLock::<u64>::new());
    let twice = || keys.iter().chain(keys.iter().rev());
    assert_eq!(locks.lock_many_blocking(&keys).len(), 10_000);
    assert_eq!(locks.lock_many_blocking(twice()).len(), 10_000);
    assert_eq!(ready(locks.lock_many(twice())).len(), 10_000);
    let readers = pages.read_many_blocking(&keys);
    assert_eq!(ready(pages.read_many(twice())).len(), 10_000);
    assert!(pages.try_read_write_many(&keys, [&77]).is_none());
    drop(readers);
    let (reads, writes) = pages.try_read_write_many(twice(), twice()).unwrap();
    assert_eq!((reads.len(), writes.len(), pages.len()), (0, 10_000, 10_000));
    drop((reads, writes));
    let guard = locks.try_lock(&7777);
    let mut future = locks.lock_many(&keys);
    pending(&mut future);
    assert!(locks.try_lock_many(&keys).is_none());
    drop(guard);
    assert!(ready(future).iter().map(|guard| guard.key()).eq(&keys));
    assert_eq!((locks.len(), pages.len()), (0, 0));

    let colliding = KeyedSemaphore::<u64, _>::with_hasher(2, Constant);
    let some = &keys[..300];
    let guards = colliding.acquire_many_blocking(some);
    assert!(ready(colliding.acquire_many(some.iter().rev())).iter().map(|guard| guard.key()).eq(some.iter().rev()));
    drop(guards);
    assert_eq!(colliding.len(), 0);
}

/// The current readers and writers of a key.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
}

struct Crowd {
    mutexes: Arc<KeyedMutex<u64, Constant>>,
    pages: Arc<KeyedRwLock<u64, Constant>>,
    hosts: Arc<KeyedSemaphore<u64, Constant>>,
    /// The users of each key of the mutex, the pages and the permits.
    inside: [Vec<Inside>; 3],
}

/// A user of a key, counted until this is dropped.
struct At<'a>(&'a AtomicUsize);

impl Drop for At<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

const PERMITS: usize = 2;
const KEYS: u64 = 5;

impl Crowd {
    fn new(fairness: Fairness) -> Self {
        Crowd {
            mutexes: Arc::new(KeyedMutex::builder().shards(2).hasher(Constant).fairness(fairness).build()),
            pages: Arc::new(KeyedRwLock::builder().shards(2).hasher(Constant).fairness(fairness).build()),
            hosts: Arc::new(KeyedSemaphore::builder(PERMITS).shards(2).hasher(Constant).fairness(fairness).build()),
            inside: [(); 3].map(|()| (0..KEYS).map(|_| Inside::default()).collect()),
        }
    }

    fn write<'a>(&'a self, table: usize, keys: impl Iterator<Item = u64>) -> Vec<At<'a>> {
        keys.map(|key| {
            let Inside { readers, writers } = &self.inside[table][key as usize];
            assert_eq!((writers.fetch_add(1, SeqCst), readers.load(SeqCst)), (0, 0), "a writer beside another user");
            At(writers)
        })
        .collect()
    }

    fn read<'a>(&'a self, table: usize, keys: impl Iterator<Item = u64>, most: usize) -> Vec<At<'a>> {
        keys.map(|key| {
            let Inside { readers, writers } = &self.inside[table][key as usize];
            assert!(readers.fetch_add(1, SeqCst) < most, "too many readers");
            assert_eq!(writers.load(SeqCst), 0, "a reader beside a writer");
            At(readers)
        })
        .collect()
    }

    fn list(random: &mut Random) -> Vec<u64> {
        (0..random.next(5)).map(|_| random.next(KEYS)).collect()
    }

    fn blocking(&self, random: &mut Random) {
        let (list, more) = (Self::list(random), Self::list(random));
        let timeout = Duration::from_micros(random.next(50));
        macro_rules! at {
            ($how:ident $guards:expr, $table:literal $(, $most:expr)?) => {
                drop(self.$how($table, $guards.iter().map(|guard| *guard.key()) $(, $most)?))
            };
        }
        match random.next(14) {
            0 => at!(write self.mutexes.lock_many_blocking(&list), 0),
            1 => drop(self.mutexes.try_lock_many(&list).map(|guards| at!(write guards, 0))),
            2 => drop(self.mutexes.try_lock_many_for(&list, timeout).map(|guards| at!(write guards, 0))),
            3 => at!(write self.mutexes.lock_many_arc_blocking(&list), 0),
            4 => at!(read self.pages.read_many_blocking(&list), 1, usize::MAX),
            5 => at!(write self.pages.write_many_blocking(&list), 1),
            6 | 7 => {
                let (reads, writes) = self.pages.read_write_many_blocking(&list, &more);
                at!(write writes, 1);
                at!(read reads, 1, usize::MAX);
            }
            8 => {
                if let Some((reads, writes)) = self.pages.try_read_write_many_for(&list, &more, timeout) {
                    at!(write writes, 1);
                    at!(read reads, 1, usize::MAX);
                }
            }
            9 => at!(read self.hosts.acquire_many_blocking(&list), 2, PERMITS),
            10 => drop(self.hosts.try_acquire_many(&list).map(|guards| at!(read guards, 2, PERMITS))),
            11 => {
                // One key, locked by a caller that holds nothing else.
                let key = random.next(KEYS);
                let _guard = self.mutexes.lock_blocking(&key);
                drop(self.write(0, [key].into_iter()));
            }
            12 => {
                let key = random.next(KEYS);
                let guard = self.pages.upgradable_read_blocking(&key);
                let _guard = guard.upgrade_blocking();
                drop(self.write(1, [key].into_iter()));
            }
            _ => {
                let key = random.next(KEYS);
                let _guard = self.hosts.acquire_blocking(&key);
                drop(self.read(2, [key].into_iter(), PERMITS));
            }
        }
    }

    async fn task(&self, random: &mut Random) {
        let (list, more) = (Self::list(random), Self::list(random));
        let yields = random.next(4);
        let turns = async move {
            for _ in 0..yields {
                yield_now().await;
            }
        };
        macro_rules! at {
            ($how:ident $guards:expr, $table:literal $(, $most:expr)?) => {{
                let guards = $guards;
                let inside = self.$how($table, guards.iter().map(|guard| *guard.key()) $(, $most)?);
                yield_now().await;
                drop(inside);
            }};
        }
        match random.next(9) {
            0 => at!(write self.mutexes.lock_many(&list).await, 0),
            1 => {
                if let Ok(guards) = self.mutexes.lock_many_arc(&list).until(turns).await {
                    at!(write guards, 0);
                }
            }
            2 => or(turns, async { at!(write self.mutexes.lock_many(&list).await, 0) }).await,
            3 => at!(read self.pages.read_many(&list).await, 1, usize::MAX),
            4 => at!(write self.pages.write_many_arc(&list).await, 1),
            5 => or(turns, async { at!(read self.pages.read_many(&list).await, 1, usize::MAX) }).await,
            6 => {
                if let Ok((reads, writes)) = self.pages.read_write_many(&list, &more).until(turns).await {
                    at!(write writes, 1);
                    at!(read reads, 1, usize::MAX);
                }
            }
            7 => at!(read self.hosts.acquire_many(&list).await, 2, PERMITS),
            _ => or(turns, async { at!(read self.hosts.acquire_many(&list).await, 2, PERMITS) }).await,
        }
    }
}

const ROUNDS: u64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };

#[test]
fn a_crowd_with_overlapping_lists_in_any_order_finishes() {
    for (seed, fairness) in (1..).zip(ALL) {
        let crowd = Crowd::new(fairness);
        let executor = smol::Executor::new();
        let running: Vec<_> = (0..10)
            .map(|task| {
                let crowd = &crowd;
                executor.spawn(async move {
                    let mut random = Random(seed << 32 | task << 8 | 1);
                    for _ in 0..ROUNDS / 4 {
                        crowd.task(&mut random).await;
                    }
                })
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let crowd = &crowd;
                scope.spawn(move || {
                    let mut random = Random(seed << 32 | thread << 8 | 3);
                    (0..ROUNDS).for_each(|_| crowd.blocking(&mut random));
                });
            }
            let (stop, stopped) = async_channel::bounded::<()>(1);
            for _ in 0..2 {
                let (executor, stopped) = (&executor, stopped.clone());
                scope.spawn(move || smol::block_on(executor.run(stopped.recv())));
            }
            smol::block_on(async {
                for task in running {
                    task.await;
                }
            });
            drop(stop);
        });
        assert_eq!((crowd.mutexes.len(), crowd.pages.len(), crowd.hosts.len()), (0, 0, 0), "{fairness:?}");
    }
}

/// Threads change three values together, or read all three: no reader sees half of a change.
#[test]
fn no_reader_sees_half_of_a_joint_change() {
    for fairness in ALL {
        let pages = KeyedRwLock::<u64, _>::builder().hasher(Constant).fairness(fairness).build();
        let values = [(); 3].map(|()| Mutex::new(0_u64));
        let look = |keys: &[u64]| keys.iter().map(|&key| *values[key as usize].lock().unwrap()).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let (pages, values, look) = (&pages, &values, &look);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for round in 0..ROUNDS / 2 {
                        let list = if random.next(2) == 0 { [0, 1, 2] } else { [2, 1, 0] };
                        if random.next(2) == 0 {
                            let _guards = pages.write_many_blocking(&list);
                            list.iter().for_each(|&key| *values[key as usize].lock().unwrap() = round << 8 | seed);
                        } else {
                            let _guards = pages.read_many_blocking(&list);
                            let seen = look(&list);
                            assert!(
                                seen.iter().all(|value| *value == seen[0]),
                                "a reader saw half of a change: {seen:?}"
                            );
                        }
                    }
                });
            }
        });
        assert!(pages.is_empty());
    }
}
