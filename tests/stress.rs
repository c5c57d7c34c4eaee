//! Threads and smol tasks on the same keys, with cancellations, timeouts and panics. The sanitizers run these tests,
//! too. Each test terminates on its own and fails by its counts, never by the clock.
#![allow(unsafe_code)] // a counter that only the lock protects

mod common;

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use common::Random;
use futures_lite::future::{or, yield_now};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, MutexGuard};

const ALL: [Fairness; 5] =
    [Fairness::Adaptive, Fairness::Fifo, Fairness::Bounded(1), Fairness::Bounded(16), Fairness::Barging];

/// The data that a key guards. Only holders write it, and it is not atomic, so that ThreadSanitizer reports two
/// holders that are concurrent or unordered.
#[derive(Default)]
struct Guarded(UnsafeCell<u64>);

// SAFETY: only holders of the key access it, and only a sole holder writes. That is what these tests check.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Adds one. The caller is the only holder of the key.
    fn bump(&self) {
        // SAFETY: there is no other holder.
        unsafe { *self.0.get() += 1 };
    }

    /// Returns the count. The caller holds the key, perhaps beside other readers.
    fn count(&self) -> u64 {
        // SAFETY: no other holder writes.
        unsafe { *self.0.get() }
    }
}

struct World {
    locks: Arc<KeyedMutex<String>>,
    names: Vec<String>,
    guarded: Vec<Guarded>,
    bumps: Vec<AtomicUsize>,
}

impl World {
    fn new(keys: usize, fairness: Fairness, recycle: bool) -> Arc<Self> {
        let builder = KeyedMutex::builder().shards(2).pool_capacity(1 + keys / 2);
        Arc::new(World {
            locks: Arc::new(builder.fairness(fairness).recycle_keys(recycle).build()),
            names: (0..keys).map(|key| format!("key {key}")).collect(),
            guarded: (0..keys).map(|_| Guarded::default()).collect(),
            bumps: (0..keys).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Called in the critical section of a key.
    fn work(&self, key: usize, name: &str) {
        assert_eq!(name, self.names[key]);
        self.guarded[key].bump();
        self.bumps[key].fetch_add(1, Relaxed);
    }

    /// Returns a random list of names, possibly with duplicates.
    fn some(&self, random: &mut Random) -> Vec<&String> {
        (0..random.next(6)).map(|_| &self.names[random.next(self.names.len() as u64) as usize]).collect()
    }

    /// Called while all of these keys are held.
    fn work_at_all<'g, I: Iterator<Item = &'g String>>(&self, names: I) {
        for name in names {
            let key = self.names.iter().position(|other| other == name).unwrap();
            self.work(key, name);
        }
    }

    /// Locks several keys, skipping those that are not free, so that no deadlock is possible.
    fn several(&self, random: &mut Random) -> Vec<MutexGuard<'_, String>> {
        let mut guards = Vec::new();
        for _ in 0..random.next(20) {
            let key = random.next(self.names.len() as u64) as usize;
            if let Some(guard) = self.locks.try_lock(self.names[key].as_str()) {
                self.work(key, guard.key());
                guards.insert(random.next(guards.len() as u64 + 1) as usize, guard);
            }
        }
        guards
    }

    fn check(&self) {
        assert_eq!(self.locks.len(), 0, "an entry remained");
        for (key, name) in self.names.iter().enumerate() {
            let _guard = self.locks.lock_blocking(name.as_str());
            assert_eq!(self.guarded[key].count(), self.bumps[key].load(Relaxed) as u64);
        }
    }

    /// Performs one random operation of a thread.
    fn blocking(&self, random: &mut Random) {
        let key = random.next(self.names.len() as u64) as usize;
        let (locks, name) = (&self.locks, self.names[key].as_str());
        match random.next(12) {
            9 => self.work_at_all(locks.lock_many_blocking(self.some(random)).iter().map(|guard| guard.key())),
            10 => {
                let timeout = Duration::from_micros(random.next(30));
                if let Some(guards) = locks.try_lock_many_arc_for(self.some(random), timeout) {
                    self.work_at_all(guards.iter().map(|guard| guard.key()));
                }
            }
            11 => {
                let panics = || {
                    let guards = locks.lock_many_blocking(self.some(random));
                    self.work_at_all(guards.iter().map(|guard| guard.key()));
                    std::panic::resume_unwind(Box::new("in the critical section"));
                };
                assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            }
            0 => drop(locks.try_lock(name).map(|guard| self.work(key, guard.key()))),
            1 => {
                let timeout = Duration::from_micros(random.next(30));
                if let Some(guard) = locks.try_lock_for(name, timeout) {
                    self.work(key, guard.key());
                }
            }
            2 => {
                let guard = locks.lock_arc_blocking(name);
                self.work(key, guard.key());
                guard.unlock_fair();
            }
            3 => {
                let handle = locks.handle(name);
                let guard = handle.lock_blocking();
                drop(handle);
                self.work(key, guard.key());
            }
            4 => {
                let panics = || {
                    let guard = locks.lock_blocking(name);
                    self.work(key, guard.key());
                    std::panic::resume_unwind(Box::new("in the critical section"));
                };
                assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            }
            5 => {
                let status = locks.status(name);
                assert!(status.is_none_or(|status| status.holders() == status.writers() && status.writers() <= 1));
                locks.for_each_key(|name, status| assert!(name.starts_with("key ") && status.writers() <= 1));
            }
            6 => drop(self.several(random)),
            _ => {
                let guard = locks.lock_blocking(name);
                self.work(key, guard.key());
            }
        }
    }

    /// Performs one random operation of a task.
    async fn task(&self, random: &mut Random) {
        let key = random.next(self.names.len() as u64) as usize;
        let (locks, name) = (&self.locks, self.names[key].as_str());
        let yields = random.next(4);
        let limit = async move {
            for _ in 0..yields {
                yield_now().await;
            }
        };
        match random.next(11) {
            8 => {
                let guards = locks.lock_many(self.some(random)).await;
                self.work_at_all(guards.iter().map(|guard| guard.key()));
                yield_now().await;
                // The guards are released one by one.
                guards.into_iter().for_each(|guard| guard.unlock_fair());
            }
            9 => {
                if let Ok(guards) = locks.lock_many_arc(self.some(random)).until(limit).await {
                    self.work_at_all(guards.iter().map(|guard| guard.key()));
                }
            }
            10 => {
                // The future is cancelled, perhaps while it holds some of the keys, or after a hand-off.
                let lock = async { drop(locks.lock_many(self.some(random)).await) };
                or(limit, lock).await;
            }
            0 => drop(locks.try_lock(name).map(|guard| self.work(key, guard.key()))),
            1 => drop(locks.lock(name).until(limit).await.map(|guard| self.work(key, guard.key()))),
            2 => {
                // The future is cancelled, perhaps after the hand-off.
                let lock = async { drop(locks.lock(name).await) };
                or(limit, lock).await;
            }
            3 => {
                let guard = locks.lock_arc(name).await;
                self.work(key, guard.key());
                yield_now().await;
                guard.unlock_fair();
            }
            4 => {
                let guard = locks.handle_arc(name).lock().await;
                self.work(key, guard.key());
                // The guard is moved to another thread and dropped there.
                smol::unblock(move || drop(guard)).await;
            }
            5 => {
                let guards = self.several(random);
                yield_now().await;
                drop(guards);
            }
            _ => {
                let guard = locks.lock(name).await;
                self.work(key, guard.key());
                if yields == 0 {
                    yield_now().await;
                }
            }
        }
    }
}

/// Fewer rounds in debug builds, where each costs more.
const ROUNDS: u64 = if cfg!(debug_assertions) { 3000 } else { 30_000 };

fn mixed(keys: usize, threads: u64, tasks: u64) {
    for (seed, fairness) in (1..).zip(ALL) {
        let world = World::new(keys, fairness, seed % 2 == 0);
        let executor = smol::Executor::new();
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let world = Arc::clone(&world);
                executor.spawn(async move {
                    let mut random = Random(seed << 32 | task << 8 | 1);
                    for _ in 0..ROUNDS / 4 {
                        world.task(&mut random).await;
                    }
                })
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let world = &world;
                scope.spawn(move || {
                    let mut random = Random(seed << 32 | thread << 8 | 3);
                    (0..ROUNDS).for_each(|_| world.blocking(&mut random));
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
        world.check();
    }
}

#[test]
fn threads_and_tasks_on_one_key() {
    mixed(1, 4, 16);
}

#[test]
fn threads_and_tasks_on_few_keys() {
    mixed(5, 4, 16);
}

/// Enough keys that groups of slots are allocated and freed.
#[test]
fn threads_and_tasks_on_many_keys() {
    mixed(100, 4, 16);
}

#[test]
fn threads_only_on_one_key() {
    mixed(1, 8, 0);
}

#[test]
fn tasks_only_on_few_keys() {
    mixed(3, 0, 100);
}

#[test]
fn many_threads_that_wait_for_one_key_all_get_it() {
    for fairness in ALL {
        let world = World::new(1, fairness, false);
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let guard = world.locks.lock_blocking("key 0");
                        world.work(0, guard.key());
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(world.bumps[0].load(Relaxed), 32 * 20);
        world.check();
    }
}

/// Readers beside writers, with upgrades and downgrades in many forms, by threads and tasks.
#[test]
fn readers_and_writers_on_one_key() {
    for (seed, fairness) in (1..).zip(ALL) {
        let locks = KeyedRwLock::<u64>::builder().shards(1).fairness(fairness).build();
        let (guarded, writes) = (Guarded::default(), AtomicUsize::new(0));
        // The counter is odd while a writer is at work.
        let write = || {
            guarded.bump();
            std::hint::black_box(&guarded);
            std::hint::spin_loop();
            guarded.bump();
            writes.fetch_add(2, Relaxed);
        };
        let read = || assert_eq!(guarded.count() % 2, 0, "a reader beside a writer");
        let blocking = |random: &mut Random| match random.next(9) {
            0 => {
                let _guard = locks.write_blocking(&7);
                write();
            }
            1 => {
                let guard = locks.upgradable_read_blocking(&7);
                read();
                let _guard = guard.upgrade_blocking();
                write();
            }
            2 => {
                let mut guard = locks.upgradable_read_blocking(&7);
                read();
                let upgraded = guard.upgrade_mut_blocking();
                write();
                drop(upgraded);
                read();
            }
            3 => {
                let guard = locks.write_blocking(&7);
                write();
                let _guard = guard.downgrade();
                read();
            }
            4 => {
                if let Some(guard) = locks.try_write_for(&7, Duration::from_micros(random.next(30))) {
                    write();
                    drop(guard.downgrade_to_upgradable().downgrade());
                }
            }
            5 => {
                if let Some(guard) = locks.try_upgradable_read(&7) {
                    match guard.try_upgrade_for(Duration::from_micros(random.next(30))) {
                        Ok(_guard) => write(),
                        Err(_guard) => read(),
                    }
                }
            }
            6 => {
                let handle = locks.handle(&7);
                let _guard = handle.read_blocking();
                read();
            }
            _ => {
                let _guard = locks.read_blocking(&7);
                read();
            }
        };
        let task = async |random: &mut Random| {
            let yields = random.next(4);
            let limit = async move {
                for _ in 0..yields {
                    yield_now().await;
                }
            };
            match random.next(6) {
                0 => {
                    let _guard = locks.write(&7).await;
                    write();
                    yield_now().await;
                }
                1 => match locks.upgradable_read(&7).await.upgrade().until(limit).await {
                    Ok(guard) => {
                        write();
                        guard.unlock_fair();
                    }
                    Err(((), _guard)) => read(),
                },
                2 => {
                    let mut guard = locks.upgradable_read(&7).await;
                    let upgrade = async {
                        let _upgraded = guard.upgrade_mut().await;
                        write();
                    };
                    or(limit, upgrade).await;
                    read();
                }
                3 => drop(locks.write(&7).until(limit).await.map(|_guard| write())),
                4 => {
                    let _guard = locks.read(&7).await;
                    read();
                    yield_now().await;
                }
                _ => {
                    let lock = async {
                        let _guard = locks.read(&7).await;
                        read();
                    };
                    or(limit, lock).await;
                }
            }
        };
        let executor = smol::Executor::new();
        let running: Vec<_> = (0..12)
            .map(|id| {
                let task = &task;
                executor.spawn(async move {
                    let mut random = Random(seed << 32 | id << 8 | 5);
                    for _ in 0..ROUNDS / 8 {
                        task(&mut random).await;
                    }
                })
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let blocking = &blocking;
                scope.spawn(move || {
                    let mut random = Random(seed << 32 | thread << 8 | 7);
                    (0..ROUNDS / 2).for_each(|_| blocking(&mut random));
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
        let _guard = locks.write_blocking(&7);
        assert_eq!(guarded.count(), writes.load(Relaxed) as u64, "{fairness:?}");
        assert_eq!(locks.len(), 1);
    }
}
