//! The resources that tables use and free: memory over millions of keys, one CPU for many threads, and the effect of
//! forgotten guards and futures. No test depends on the clock.
#![allow(unsafe_code)] // a global allocator that counts, and the affinity of a thread

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::fmt::Write;
use std::future::{Future, ready as at_once};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::Context;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use common::{Bell, Random, pending, poll_with, ready};
use futures_lite::future::block_on;
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap};

/// An allocator that counts the bytes in use, and their maximum. The counters here are relaxed: they must not order
/// threads that the locks under test do not order.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as isize;
        PEAK.fetch_max(LIVE.fetch_add(size, Relaxed) + size, Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs the tests one after another without the usual harness: the counters are global, and the harness allocates.
fn main() {
    let run = |name: &str, test: fn()| {
        // On a separate thread, because one of the tests restricts its thread to one CPU.
        std::thread::spawn(test).join().unwrap_or_else(|panic| resume_unwind(panic));
        println!("test {name} ... ok");
    };
    run("ten_million_keys", ten_million_keys_leave_an_empty_table_of_bounded_size);
    run("memory_follows_use", memory_follows_use);
    #[cfg(target_os = "linux")]
    run("sixty_four_threads", sixty_four_threads_on_one_cpu_all_finish);
    run("a_forgotten_guard", || leaves_nothing(a_forgotten_guard_affects_only_its_key));
    run("a_forgotten_owned_guard", a_forgotten_owned_guard_keeps_its_table_and_affects_only_its_key);
    run("a_table_may_be_dropped", || {
        leaves_nothing(a_table_may_be_dropped_after_its_guards_and_futures_were_forgotten)
    });
}

/// Checks that a test leaks no byte. The first run allocates memory that a thread needs once, for example its
/// parker.
fn leaves_nothing(test: fn()) {
    test();
    let before = LIVE.load(Relaxed);
    test();
    assert_eq!(LIVE.load(Relaxed) - before, 0, "something was leaked");
}

/// Waits for the end of each thread: a scope does not wait until the thread-local data of its threads, such as a
/// parker, is dropped.
fn join(threads: Vec<ScopedJoinHandle<'_, ()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Room for other allocations in the process: for example, the first thread that blocks creates its parker.
const OTHERS: isize = 8 << 10;
const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Bounded(16), Fairness::Barging];

// ---- many keys ------------------------------------------------------------------------------------------------------

struct Tables {
    mutex: KeyedMutex<String>,
    rwlock: KeyedRwLock<String>,
    semaphore: KeyedSemaphore<String>,
}

impl Tables {
    fn new(recycle: bool) -> Self {
        Tables {
            mutex: KeyedMutex::builder().shards(4).pool_capacity(64).recycle_keys(recycle).build(),
            rwlock: KeyedRwLock::builder().shards(4).pool_capacity(64).recycle_keys(recycle).build(),
            semaphore: KeyedSemaphore::builder(2).shards(4).pool_capacity(64).recycle_keys(recycle).build(),
        }
    }

    fn len(&self) -> usize {
        self.mutex.len() + self.rwlock.len() + self.semaphore.len()
    }

    /// Uses each of these keys once, in one of the ways in which a key can be used and released.
    fn use_keys(&self, keys: impl Iterator<Item = u64>, random: &mut Random) {
        let mut name = String::with_capacity(32);
        let mut held = VecDeque::with_capacity(100);
        for key in keys {
            name.clear();
            write!(name, "a key: {key:x}").expect("writing to a string cannot fail");
            let name = name.as_str();
            match random.next(32) {
                0 => self.cancels(name, random),
                1 => self.timeouts(name, random),
                2 => self.panics(name),
                3 => drop(self.mutex.lock(name)), // never polled
                4 => drop(self.mutex.handle(name).clone()),
                5..8 => drop(self.rwlock.read_blocking(name)),
                8 => drop(self.rwlock.upgradable_read_blocking(name).upgrade_blocking().downgrade()),
                9..12 => drop((self.semaphore.try_acquire(name), self.semaphore.acquire_blocking(name))),
                12..16 => {
                    if held.len() == held.capacity() {
                        held.pop_front();
                    }
                    held.push_back(self.mutex.lock_blocking(name));
                }
                16 => drop(self.rwlock.read_write_many_blocking([name, &name[1..]], [name])),
                17 => drop(ready(self.semaphore.acquire_many([name, &name[2..], name]))),
                18 => {
                    // The future is dropped, perhaps while it holds some of the keys.
                    let _held = self.rwlock.write_blocking(name);
                    pending(&mut self.rwlock.write_many([&name[1..], name, &name[2..]]));
                    assert!(self.rwlock.try_read_many([&name[3..], name]).is_none());
                }
                19 => drop(ready(self.mutex.lock(name))),
                _ => drop(self.mutex.lock_blocking(name)),
            }
        }
    }

    /// Makes waiters give up: while the key is held, or after it was handed over, in any order.
    fn cancels(&self, name: &str, random: &mut Random) {
        let guard = self.mutex.try_lock(name).expect("the key is new");
        let mut waiters = [self.mutex.lock(name), self.mutex.lock(name), self.mutex.lock(name)].map(Some);
        waiters.iter_mut().flatten().for_each(pending);
        waiters[random.next(3) as usize].take();
        if random.next(2) == 0 {
            guard.unlock_fair()
        } else {
            drop(guard)
        }
        drop(waiters);
        let reader = self.rwlock.try_read(name).expect("the key is new");
        let mut writer = self.rwlock.write(name);
        pending(&mut writer);
        let mut upgrade = self.rwlock.try_upgradable_read(name).map(|guard| guard.upgrade());
        upgrade.iter_mut().for_each(pending);
        if random.next(2) == 0 {
            drop(reader);
        }
    }

    fn timeouts(&self, name: &str, random: &mut Random) {
        let _guard = self.mutex.try_lock(name).expect("the key is new");
        assert!(self.mutex.try_lock_for(name, Duration::ZERO).is_none());
        if random.next(16) == 0 {
            // The call queues and sleeps.
            assert!(self.mutex.try_lock_for(name, Duration::from_micros(50)).is_none());
        }
        assert!(ready(std::pin::pin!(self.mutex.lock(name).until(at_once(())))).is_err());
        let _permits = [(); 2].map(|()| self.semaphore.try_acquire(name).expect("the key is new"));
        assert!(self.semaphore.try_acquire_for(name, Duration::ZERO).is_none());
    }

    fn panics(&self, name: &str) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _guard = self.mutex.lock_blocking(name);
            let _writer = self.rwlock.try_write(name);
            let mut waiter = self.rwlock.read(name);
            pending(&mut waiter);
            resume_unwind(Box::new("in the critical section"));
        }));
        assert!(outcome.is_err());
    }
}

/// Ten million keys in an optimised build, where that takes seconds.
fn ten_million_keys_leave_an_empty_table_of_bounded_size() {
    const KEYS: u64 = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    const PARTS: u64 = 10;
    const THREADS: u64 = 2;
    /// The limit on the heap bytes that three tables with a pool of 64 entries each use, including their waiters and
    /// two hundred held keys.
    const ROOM: isize = 64 << 10;

    for recycle in [false, true] {
        let tables = Tables::new(recycle);
        let mut kept = [0; PARTS as usize];
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        for (part, kept) in (0..).zip(&mut kept) {
            std::thread::scope(|scope| {
                let mut threads = Vec::new();
                for thread in 0..THREADS {
                    let tables = &tables;
                    threads.push(scope.spawn(move || {
                        let mut random = Random(part << 8 | thread << 4 | 1);
                        let each = KEYS / 2 / PARTS / THREADS;
                        let first = (part * THREADS + thread) * each;
                        tables.use_keys(first..first + each, &mut random);
                    }));
                }
                join(threads);
            });
            assert_eq!(tables.len(), 0, "an entry remained");
            *kept = LIVE.load(Relaxed) - before;
        }
        let most = PEAK.load(Relaxed) - before;
        assert!(most < ROOM, "{most} bytes were in use, more than {ROOM}");
        // The memory that is kept does not grow: after the first part no more is added.
        let first = kept[0];
        assert!(kept.iter().all(|&now| now < first + OTHERS), "the heap grows: {kept:?}");
        drop(tables);
        assert!(LIVE.load(Relaxed) - before < OTHERS, "something was leaked");
    }
}

/// After a burst, once the remaining keys have been replaced, a table takes less than twice the memory of one that was
/// never larger: free slots are reused in the order that lets whole groups be freed.
fn memory_follows_use() {
    const BURST: usize = 200_000;
    const STAY: usize = BURST / 10;

    fn below(random: &mut Random, n: usize) -> usize {
        random.next(n as u64) as usize
    }
    /// Replaces random elements, until hardly any of the original ones is left.
    fn churn<T>(all: &mut Vec<T>, mut replace: impl FnMut(T) -> T) {
        let mut random = Random(3);
        for _ in 0..8 * all.len() {
            let place = below(&mut random, all.len());
            let old = all.swap_remove(place);
            all.push(replace(old));
        }
    }
    /// Returns the bytes that are in use after `f` has run and before its result is dropped.
    fn taken<T>(f: impl FnOnce() -> T) -> isize {
        let before = LIVE.load(Relaxed);
        let kept = f();
        let taken = LIVE.load(Relaxed) - before;
        drop(kept);
        taken
    }
    let locks = |shards, burst: usize, recycle| {
        taken(|| {
            let table = Arc::new(KeyedMutex::<String>::builder().shards(shards).recycle_keys(recycle).build());
            let mut keys = 0_u64..;
            let mut next =
                || keys.next().and_then(|key| table.try_lock_arc(&*key.to_string())).expect("the key is new");
            let mut held: Vec<_> = (0..burst).map(|_| next()).collect();
            let mut random = Random(2);
            while held.len() > STAY {
                drop(held.swap_remove(below(&mut random, held.len())));
            }
            churn(&mut held, |old| {
                drop(old);
                next()
            });
            held.shrink_to_fit();
            held
        })
    };
    let set = |map: &LockMap<u64, u64>, key| {
        map.try_write(&key).expect("the key is free").insert(1);
    };
    let unset = |map: &LockMap<u64, u64>, key| {
        map.try_write(&key).expect("the key is free").remove();
    };
    let values = |shards, burst: usize| {
        taken(|| {
            let map = LockMap::<u64, u64>::builder().shards(shards).build();
            let mut keys = 0..;
            let mut next = || keys.next().inspect(|&key| set(&map, key)).expect("the range is unbounded");
            let mut all: Vec<_> = (0..burst).map(|_| next()).collect();
            let mut random = Random(2);
            while all.len() > STAY {
                unset(&map, all.swap_remove(below(&mut random, all.len())));
            }
            churn(&mut all, |old| {
                unset(&map, old);
                next()
            });
            map
        })
    };
    // More values are held than the bound allows; after their release only as many remain as it allows.
    let bounded = |burst: usize| {
        taken(|| {
            let map = LockMap::<u64, u64>::builder().shards(64).max_values(STAY).build();
            let hold = |key| {
                let mut guard = map.try_write(&key).expect("the key is free");
                guard.insert(1);
                guard
            };
            drop((0..burst as u64).map(hold).collect::<Vec<_>>());
            (0..8 * STAY as u64).for_each(|key| set(&map, burst as u64 + key));
            map
        })
    };
    let as_fresh = |what: &str, after: isize, fresh: isize| {
        assert!(after < fresh * 2, "{what}: {after} bytes after a burst, {fresh} without one");
    };
    for shards in [1, 16] {
        as_fresh("values", values(shards, BURST), values(shards, STAY));
        for recycle in [false, true] {
            as_fresh("locks", locks(shards, BURST, recycle), locks(shards, STAY, recycle));
        }
    }
    as_fresh("bounded", bounded(BURST), bounded(STAY));
}

// ---- many threads ---------------------------------------------------------------------------------------------------

/// Restricts this thread, and the threads that it starts, to one CPU.
#[cfg(target_os = "linux")]
fn pin_to_one_cpu() {
    /// The kernel's set of CPUs, one bit each, in the C library's size.
    type Cpus = [u64; 16];
    unsafe extern "C" {
        fn sched_getaffinity(thread: i32, size: usize, cpus: *mut Cpus) -> i32;
        fn sched_setaffinity(thread: i32, size: usize, cpus: *const Cpus) -> i32;
    }
    let mut cpus: Cpus = [0; 16];
    // SAFETY: the pointer is to a set of this size; thread 0 is the calling thread.
    assert_eq!(unsafe { sched_getaffinity(0, size_of::<Cpus>(), &mut cpus) }, 0);
    let first = cpus.iter().position(|&cpus| cpus != 0).expect("a thread may run on some CPU");
    let mut one: Cpus = [0; 16];
    one[first] = cpus[first] & cpus[first].wrapping_neg();
    // SAFETY: as above.
    assert_eq!(unsafe { sched_setaffinity(0, size_of::<Cpus>(), &one) }, 0);
    assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
}

#[cfg(target_os = "linux")]
fn sixty_four_threads_on_one_cpu_all_finish() {
    const THREADS: usize = 64;
    const ROUNDS: usize = if cfg!(debug_assertions) { 50 } else { 500 };

    /// Increments a counter by a read and a write, between which other threads may run.
    fn bump(counter: &AtomicUsize, round: usize) {
        let old = counter.load(Relaxed);
        if round % 8 == 0 {
            std::thread::yield_now();
        }
        counter.store(old + 1, Relaxed);
    }

    pin_to_one_cpu();
    for fairness in ALL {
        let mutex = Arc::new(KeyedMutex::<u8>::builder().shards(1).fairness(fairness).build());
        let rwlock = KeyedRwLock::<u8>::builder().shards(1).fairness(fairness).build();
        let (locked, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..THREADS {
                let (mutex, rwlock, locked, written) = (&mutex, &rwlock, &locked, &written);
                threads.push(scope.spawn(move || {
                    for round in 0..ROUNDS {
                        match (thread + round) % 4 {
                            0 => {
                                let _guard = mutex.lock_blocking(&7);
                                bump(locked, round);
                            }
                            1 => {
                                let _guard = block_on(mutex.lock_arc(&7));
                                bump(locked, round);
                            }
                            2 => {
                                let wait = || mutex.try_lock_for(&7, Duration::from_millis(1));
                                let _guard = std::iter::repeat_with(wait).flatten().next();
                                bump(locked, round);
                            }
                            _ => {
                                let guard = mutex.handle(&7).lock_blocking();
                                bump(locked, round);
                                guard.unlock_fair();
                            }
                        }
                        match (thread + round) % 3 {
                            0 => drop(rwlock.read_blocking(&7)),
                            1 => {
                                let _guard = rwlock.write_blocking(&7);
                                bump(written, round);
                            }
                            _ => {
                                let _guard = rwlock.upgradable_read_blocking(&7).upgrade_blocking();
                                bump(written, round);
                            }
                        }
                    }
                }));
            }
            join(threads);
        });
        assert_eq!(locked.load(Relaxed), THREADS * ROUNDS, "{fairness:?}");
        let writes = (0..THREADS).flat_map(|thread| (0..ROUNDS).map(move |round| thread + round)).filter(|n| n % 3 > 0);
        assert_eq!(written.load(Relaxed), writes.count(), "{fairness:?}");
        assert!(mutex.is_empty() && rwlock.is_empty());
    }
}

// ---- forgotten guards and futures -----------------------------------------------------------------------------------

/// A borrowed guard does not keep its table alive: dropping the table frees the memory of forgotten guards.
fn a_forgotten_guard_affects_only_its_key() {
    for fairness in ALL {
        let mutex = KeyedMutex::<String>::builder().shards(1).fairness(fairness).build();
        std::mem::forget(mutex.try_lock("forgotten"));
        assert!(mutex.try_lock("forgotten").is_none());
        assert!(mutex.try_lock_for("forgotten", Duration::ZERO).is_none());
        pending(&mut mutex.lock("forgotten"));

        let rwlock = KeyedRwLock::<String>::builder().shards(1).fairness(fairness).build();
        std::mem::forget(rwlock.try_read("read"));
        std::mem::forget(rwlock.try_upgradable_read("upgradable"));
        std::mem::forget(rwlock.try_write("written"));
        assert!(rwlock.try_write("read").is_none() && rwlock.try_read("read").is_some());
        assert!(rwlock.try_upgradable_read("upgradable").is_none() && rwlock.try_read("upgradable").is_some());
        assert!(rwlock.try_read("written").is_none());

        let semaphore = KeyedSemaphore::<String>::builder(2).shards(1).fairness(fairness).build();
        std::mem::forget(semaphore.try_acquire("forgotten"));
        let last = semaphore.try_acquire("forgotten").expect("there are two permits");
        pending(&mut semaphore.acquire("forgotten"));
        drop(last);

        // All other keys work, in the same shards and with the same queues.
        for key in 0..1000 {
            let name = format!("another {key}");
            let guard = mutex.lock_blocking(name.as_str());
            let mut waiter = mutex.lock(name.as_str());
            pending(&mut waiter);
            drop(guard);
            drop(ready(waiter));
            drop(rwlock.upgradable_read_blocking(name.as_str()).upgrade_blocking());
            drop(semaphore.acquire_blocking(name.as_str()));
        }
        assert_eq!((mutex.len(), rwlock.len(), semaphore.len()), (1, 3, 1), "{fairness:?}");
    }
}

fn a_forgotten_owned_guard_keeps_its_table_and_affects_only_its_key() {
    // In a static, because such a table is never freed, and sanitizers do not report reachable memory as a leak.
    static LOCKS: LazyLock<Arc<KeyedMutex<String>>> = LazyLock::new(Arc::default);
    std::mem::forget(LOCKS.try_lock_arc("forgotten"));
    let mut future = LOCKS.lock_arc("forgotten");
    pending(&mut future);
    std::mem::forget(future);
    assert!(LOCKS.try_lock("forgotten").is_none());
    for _ in 0..1000 {
        drop(LOCKS.lock_blocking("another"));
    }
    assert_eq!((LOCKS.len(), Arc::strong_count(&LOCKS)), (1, 3));
}

/// The keys and the wakers are `Arc`s, so that their counts tell whether all were dropped.
fn a_table_may_be_dropped_after_its_guards_and_futures_were_forgotten() {
    for fairness in ALL {
        for recycle in [false, true] {
            let keys: [Arc<u8>; 8] = std::array::from_fn(|key| Arc::new(key as u8));
            let (bell, waker) = Bell::new();
            let waits = |outcome: bool| assert!(outcome, "{fairness:?}");
            {
                let mutex = KeyedMutex::<Arc<u8>>::builder().recycle_keys(recycle).fairness(fairness).build();
                std::mem::forget(mutex.try_lock(&keys[0]));
                // A wait with a limit, and a wait by a handle that is forgotten, too.
                let mut limited = std::mem::ManuallyDrop::new(mutex.lock(&keys[0]).until(std::future::pending::<()>()));
                // SAFETY: the future is not moved from here on, and is forgotten in place.
                let pinned = unsafe { std::pin::Pin::new_unchecked(&mut *limited) };
                waits(pinned.poll(&mut Context::from_waker(&waker)).is_pending());
                let handle = std::mem::ManuallyDrop::new(mutex.handle(&keys[0]));
                let mut by_handle = handle.lock();
                waits(poll_with(&mut by_handle, &waker).is_pending());
                std::mem::forget(by_handle);
                assert_eq!(mutex.status(&keys[0]).map(|status| status.waiters()), Some(2));
            }
            {
                let locks = KeyedRwLock::<Arc<u8>>::builder().shards(1).recycle_keys(recycle).pool_capacity(2);
                let locks = locks.fairness(fairness).build();
                // Dead entries, some of which keep their keys.
                drop([6, 7].map(|key| locks.try_write(&keys[key])));
                // A hold, waiters behind it, a future that has not been polled, and a handle.
                std::mem::forget(locks.try_write(&keys[0]));
                for _ in 0..3 {
                    let (mut reader, mut writer) = (locks.read(&keys[0]), locks.write(&keys[0]));
                    waits(poll_with(&mut reader, &waker).is_pending() && poll_with(&mut writer, &waker).is_pending());
                    std::mem::forget((reader, writer));
                }
                std::mem::forget(locks.read(&keys[1]));
                std::mem::forget(locks.handle(&keys[2]));
                // A waiter that was woken or handed the key, and has not been polled since.
                let guard = locks.try_write(&keys[3]).expect("the key is free");
                let mut chosen = locks.write(&keys[3]);
                let mut behind = locks.read(&keys[3]);
                waits(poll_with(&mut chosen, &waker).is_pending() && poll_with(&mut behind, &waker).is_pending());
                guard.unlock_fair();
                std::mem::forget((chosen, behind));
                // An upgrade that waits, one that was granted, and the hold of an `upgrade_mut`.
                for (key, leaves) in [(4, false), (5, true)] {
                    let reader = locks.try_read(&keys[key]).expect("the key is free");
                    let mut upgrade = locks.try_upgradable_read(&keys[key]).expect("the key is free").upgrade();
                    waits(poll_with(&mut upgrade, &waker).is_pending());
                    if leaves {
                        drop(reader)
                    } else {
                        std::mem::forget(reader)
                    }
                    std::mem::forget(upgrade);
                }
                let mut guard = locks.try_upgradable_read(&keys[6]).expect("the key is free");
                std::mem::forget(guard.try_upgrade_mut());
                std::mem::forget(guard);
                assert_eq!(locks.len(), 7);
            }
            drop(waker);
            assert_eq!(Arc::strong_count(&bell), 1, "a waker was leaked");
            assert!(keys.iter().all(|key| Arc::strong_count(key) == 1), "a key was leaked");
        }
    }
}
