//! Parties that lock keys in any order, and try again after a deadlock; and parties that lock them in one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::deadlock::{Detector, Party, Tracked};
use keylatch::{Fairness, KeyedMutex, KeyedRwLock, KeyedSemaphore, Striped};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

const KEYS: u64 = 3;

struct World {
    locks: KeyedMutex<u64, Hasher>,
    pages: KeyedRwLock<u64, Hasher>,
    hosts: KeyedSemaphore<u64, Hasher>,
    stripes: Striped<u64, Hasher>,
    failures: AtomicUsize,
}

impl World {
    fn new(fairness: Fairness) -> Arc<Self> {
        Arc::new(World {
            locks: KeyedMutex::builder().shards(1).fairness(fairness).hasher(Hasher::default()).build(),
            pages: KeyedRwLock::builder().shards(1).fairness(fairness).hasher(Hasher::default()).build(),
            hosts: KeyedSemaphore::builder(2).shards(1).fairness(fairness).hasher(Hasher::default()).build(),
            stripes: Striped::builder(2).fairness(fairness).hasher(Hasher::default()).build(),
            failures: AtomicUsize::new(0),
        })
    }

    fn close(&self) -> usize {
        assert!(self.locks.is_empty() && self.pages.is_empty() && self.hosts.is_empty());
        assert!((0..KEYS).all(|key| !self.stripes.is_locked(&key)));
        self.failures.load(Relaxed)
    }

    /// Locks these keys of the mutex one after another. After a deadlock, releases all and begins again.
    async fn lock_all(&self, party: &Party, keys: &[u64]) {
        'again: loop {
            let mut held = Vec::new();
            for key in keys {
                match party.acquire(self.locks.lock(key)).await {
                    Ok(guard) => held.push(guard),
                    Err(deadlock) => {
                        assert_eq!(deadlock.cycle()[0].party(), party.name());
                        self.failures.fetch_add(1, Relaxed);
                        drop(held);
                        yield_now().await;
                        continue 'again;
                    }
                }
            }
            return;
        }
    }

    /// Makes three random requests, for pages, permits, keys or stripes, some with an upgrade. After a deadlock,
    /// releases everything.
    async fn lock_anything(&self, party: &Party) -> Option<()> {
        let mut pages = Vec::new();
        let mut permits = Vec::new();
        let mut locks = Vec::new();
        let mut stripes = Vec::new();
        for _ in 0..3 {
            let key = &random(2);
            match random(11) {
                0 => pages.push(party.acquire(self.pages.read(key)).await.ok()?),
                1 => drop(party.acquire(self.pages.write(key)).await.ok()?),
                2 => permits.push(party.acquire(self.hosts.acquire_n(key, 1 + random(2) as usize)).await.ok()?),
                3 => locks.push(party.acquire(self.locks.lock(key)).await.ok()?),
                4 => locks.extend(party.acquire(self.locks.lock_many(&some_keys())).await.ok()?),
                5 => {
                    let (reads, writes) = party.acquire(self.pages.read_write_many([key], &some_keys())).await.ok()?;
                    pages.extend(reads);
                    pages.extend(writes.into_iter().map(Tracked::<keylatch::WriteGuard<'_, _, _>>::downgrade));
                }
                6 => stripes.push(party.acquire(self.stripes.read(key)).await.ok()?),
                7 => stripes.push(party.acquire(self.stripes.write(key)).await.ok()?.downgrade()),
                8 => stripes.extend(party.acquire(self.stripes.read_many(&some_keys())).await.ok()?),
                9 => {
                    locks.extend(self.locks.try_lock(key).map(|guard| party.adopt(guard)));
                    pages.extend(party.try_acquire(self.pages.read(key)));
                }
                _ => {
                    let reader = party.acquire(self.pages.upgradable_read(key)).await.ok()?;
                    match reader.upgrade().await {
                        Ok(writer) => pages.push(writer.downgrade()),
                        Err((_, reader)) => pages.push(reader.downgrade()),
                    }
                }
            }
        }
        Some(())
    }
}

fn some_keys() -> Vec<u64> {
    let first = random(KEYS);
    vec![first, (first + 1 + random(KEYS - 1)) % KEYS]
}

/// Parties lock keys in any order, and try again until they have all of their keys: every party finishes.
#[test]
fn parties_that_retry_after_a_deadlock_all_finish() {
    explore(|| {
        let (world, detector) = (World::new(any_policy()), Detector::new());
        let threads = (0..3).map(|who| {
            let (world, party) = (Arc::clone(&world), detector.party(format!("thread {who}")));
            thread::spawn(move || block_on(world.lock_all(&party, &some_keys())))
        });
        let threads = threads.collect::<Vec<_>>();
        let tasks = (0..2).map(|who| {
            let (world, party) = (Arc::clone(&world), detector.party(format!("task {who}")));
            spawn(async move { world.lock_all(&party, &some_keys()).await })
        });
        let tasks = tasks.collect::<Vec<_>>();
        // This caller is not tracked.
        drop(block_on(world.locks.lock(&random(KEYS))));
        join(threads);
        tasks.into_iter().for_each(|task| block_on(task).unwrap());
        world.close();
    });
}

/// With one order there is no cycle, and no report.
#[test]
fn no_deadlock_is_reported_when_keys_are_locked_in_order() {
    explore(|| {
        let (world, detector) = (World::new(any_policy()), Detector::new());
        let threads = (0..4).map(|who| {
            let (world, party) = (Arc::clone(&world), detector.party(format!("thread {who}")));
            thread::spawn(move || {
                let mut keys = some_keys();
                keys.sort_unstable();
                block_on(world.lock_all(&party, &keys));
            })
        });
        join(threads.collect::<Vec<_>>());
        assert_eq!(world.close(), 0);
    });
}

/// Parties lock everything that can be tracked, in any order. A party with a deadlock releases everything, and no party
/// waits for ever.
#[test]
fn parties_that_lock_anything_in_any_order_never_wait_for_ever() {
    explore(|| {
        let (world, detector) = (World::new(any_policy()), Detector::new());
        let threads = (0..4).map(|who| {
            let (world, party) = (Arc::clone(&world), detector.party(format!("thread {who}")));
            thread::spawn(move || block_on(world.lock_anything(&party)).unwrap_or_default())
        });
        join(threads.collect::<Vec<_>>());
        world.close();
    });
}

/// A party with two requests at the same time may acquire one key while it waits for the other.
#[test]
fn parties_with_two_simultaneous_requests_never_wait_for_ever() {
    explore(|| {
        let (world, detector) = (World::new(any_policy()), Detector::new());
        let threads = (0..3).map(|who| {
            let (world, party) = (Arc::clone(&world), Arc::new(detector.party(format!("party {who}"))));
            let keys = some_keys();
            let other = {
                let (world, party, key) = (Arc::clone(&world), Arc::clone(&party), keys[1]);
                thread::spawn(move || drop(block_on(party.acquire(world.locks.lock(&key)))))
            };
            thread::spawn(move || {
                let held = block_on(party.acquire(world.locks.lock(&keys[0])));
                let again = block_on(party.acquire(world.pages.write(&0)));
                drop((held, again));
                other.join().unwrap();
            })
        });
        join(threads.collect::<Vec<_>>());
        world.close();
    });
}
