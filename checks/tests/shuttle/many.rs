//! Models of several keys at once, on a reader-writer lock and on a semaphore.
//!
//! All keys have their entries in one allocation: several keys are locked in the order of their entries in memory,
//! which must not depend on an allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keylatch::table::Kind;
use keylatch::{Builder, Fairness, KeyedRwLock, KeyedSemaphore};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use crate::book::{after, impatient};
use crate::walk::{Hasher, RwLock, Semaphore};
use crate::{any_policy, explore, join, quit_and_stay, random, run_tasks_and_threads};

const KEYS: u64 = 4;

/// The users of a key. These counters are hidden from shuttle, because accesses to them are not steps of the model.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    permits: AtomicUsize,
}

/// A mark on some keys, which are counted as in use until it is dropped.
struct At<'a>(Vec<&'a AtomicUsize>);

impl Drop for At<'_> {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Relaxed);
        }
    }
}

struct World {
    pages: Arc<RwLock>,
    hosts: Arc<Semaphore>,
    inside: [Inside; KEYS as usize],
}

fn one_chunk<T: Kind>(builder: Builder<T, u64>, fairness: Fairness) -> Builder<T, u64, Hasher> {
    let builder = builder.shards(1).capacity(KEYS as usize).pool_capacity(KEYS as usize);
    builder.fairness(fairness).hasher(Hasher::default())
}

impl World {
    fn new(permits: usize, fairness: Fairness) -> Arc<World> {
        Arc::new(World {
            pages: Arc::new(one_chunk(KeyedRwLock::builder(), fairness).build()),
            hosts: Arc::new(one_chunk(KeyedSemaphore::builder(permits), fairness).build()),
            inside: Default::default(),
        })
    }

    /// Checks the end of a run.
    fn close(&self) {
        assert_eq!((self.pages.len(), self.hosts.len()), (0, 0), "an entry remained");
        let keys: Vec<_> = (0..KEYS).collect();
        assert!(self.pages.try_write_many(&keys).is_some() && self.hosts.try_acquire_many(&keys).is_some());
    }

    fn at<'a, 'k>(&'a self, reads: impl Iterator<Item = &'k u64>, writes: impl Iterator<Item = &'k u64>) -> At<'a> {
        let mut counts = vec![];
        for key in writes {
            let Inside { readers, writers, .. } = &self.inside[*key as usize];
            assert_eq!((writers.fetch_add(1, Relaxed), readers.load(Relaxed)), (0, 0), "a writer beside others");
            counts.push(writers);
        }
        for key in reads {
            let Inside { readers, writers, .. } = &self.inside[*key as usize];
            readers.fetch_add(1, Relaxed);
            assert_eq!(writers.load(Relaxed), 0, "a reader beside a writer");
            counts.push(readers);
        }
        At(counts)
    }

    fn permits<'a, 'k>(&'a self, keys: impl Iterator<Item = &'k u64>) -> At<'a> {
        let permits: Vec<_> = keys.map(|key| &self.inside[*key as usize].permits).collect();
        let held = permits.iter().map(|permits| permits.fetch_add(1, Relaxed) + 1).max().unwrap_or(0);
        assert!(held <= self.hosts.permits(), "more permits are held than exist");
        At(permits)
    }

    /// Makes one random call of a task or a thread.
    async fn step(&self) {
        let World { pages, hosts, .. } = self;
        let list = || (0..random(4)).map(|_| random(KEYS)).collect::<Vec<_>>();
        let (list, more, one) = (list(), list(), random(KEYS));
        let none = || std::iter::empty();
        match random(16) {
            0 => {
                let guards = pages.read_many(&list).await;
                let _at = self.at(guards.iter().map(|guard| guard.key()), none());
                yield_now().await;
            }
            1 | 2 => {
                let guards = pages.write_many(&list).await;
                let _at = self.at(none(), guards.iter().map(|guard| guard.key()));
                yield_now().await;
            }
            3 | 4 => {
                let (reads, writes) = pages.read_write_many(&list, &more).await;
                let _at = self.at(reads.iter().map(|guard| guard.key()), writes.iter().map(|guard| guard.key()));
                yield_now().await;
            }
            5 => {
                if let Some((reads, writes)) = pages.try_read_write_many(&list, &more) {
                    let _at = self.at(reads.iter().map(|guard| guard.key()), writes.iter().map(|guard| guard.key()));
                    yield_now().await;
                }
            }
            6 => {
                if let Ok(guards) = pages.write_many(&list).until(after(random(4))).await {
                    let _at = self.at(none(), guards.iter().map(|guard| guard.key()));
                    yield_now().await;
                }
            }
            // The future is dropped while it waits, perhaps after a hand-off.
            7 => drop(impatient(random(5), pages.read_write_many(&list, &more)).await),
            8 => drop(impatient(random(5), hosts.acquire_many(&list)).await),
            9 | 10 => {
                let guards = hosts.acquire_many(&list).await;
                let at = self.permits(guards.iter().map(|guard| guard.key()));
                yield_now().await;
                drop(at);
                // The guards are released one by one, some by `unlock_fair`.
                for guard in guards {
                    if random(2) == 0 {
                        guard.unlock_fair();
                    }
                }
            }
            // Several permits of each key.
            14 | 15 => {
                let limit = self.hosts.permits() as u64;
                let wanted: Vec<_> = list.iter().map(|key| (key, 1 + random(limit) as usize)).collect();
                let guards = match random(3) {
                    0 => hosts.try_acquire_n_many(wanted.iter().copied()),
                    1 => impatient(random(5), hosts.acquire_n_many(wanted.iter().copied())).await,
                    _ => Some(hosts.acquire_n_many(wanted.iter().copied()).await),
                };
                for guard in guards.iter().flatten() {
                    let named = wanted.iter().filter(|(key, _)| *key == guard.key());
                    assert_eq!(Some(guard.permits()), named.map(|(_, n)| *n).max());
                }
                let held = guards.iter().flatten();
                let _at = self.permits(held.flat_map(|guard| std::iter::repeat_n(guard.key(), guard.permits())));
                yield_now().await;
            }
            // This caller holds nothing else.
            11 => {
                let guard = pages.upgradable_read(&one).await;
                let _guard = guard.upgrade().await;
                let _at = self.at(none(), [one].iter());
                yield_now().await;
            }
            12 => {
                let _guard = pages.read(&one).await;
                let _at = self.at([one].iter(), none());
                yield_now().await;
            }
            _ => {
                let _guard = hosts.acquire(&one).await;
                let _at = self.permits([one].iter());
                yield_now().await;
            }
        }
    }

    async fn steps(self: Arc<Self>, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
    }
}

/// Threads and tasks lock random lists in random order, and two tasks are aborted halfway.
pub fn everything() {
    let world = World::new(1 + random(2) as usize, any_policy());
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 6);
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

/// Several requests for all keys, each naming them in a different order. Some requests give up while they wait.
#[test]
fn remaining_requests_for_all_keys_are_served() {
    explore(|| {
        let world = World::new(1, any_policy());
        let World { pages, .. } = &*world;
        let held = (0..KEYS).map(|key| pages.try_write_arc(&key)).collect::<Vec<_>>();
        let wait = |first: u64| {
            let keys: Vec<_> = (first..KEYS).chain(0..first).collect();
            let (asked, world) = (pages.write_many_arc(&keys), Arc::clone(&world));
            spawn(async move {
                let guards = asked.await;
                let _at = world.at(std::iter::empty(), guards.iter().map(|guard| guard.key()));
                yield_now().await;
            })
        };
        let (quitters, stayers) = ([wait(0), wait(1)], [wait(2), wait(3)]);
        let releasers: Vec<_> = held.into_iter().map(|guard| thread::spawn(move || drop(guard))).collect();
        quit_and_stay(quitters, stayers);
        join(releasers);
        world.close();
    });
}

/// Values that are written together are read together.
#[test]
fn no_reader_sees_half_of_a_joint_change() {
    explore(|| {
        let world = World::new(1, any_policy());
        let values = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let threads = [true, true, false, false].map(|writes| {
            let (world, values) = (Arc::clone(&world), Arc::clone(&values));
            thread::spawn(move || {
                let first = random(3);
                let keys: Vec<_> = (first..3).chain(0..first).collect();
                block_on(async {
                    for _ in 0..2 {
                        if writes {
                            let _guards = world.pages.write_many(&keys).await;
                            for value in &*values {
                                value.fetch_add(1, Relaxed);
                                yield_now().await;
                            }
                        } else {
                            let _guards = world.pages.read_many(&keys).await;
                            let first = values[0].load(Relaxed);
                            yield_now().await;
                            assert!(
                                values.iter().all(|value| value.load(Relaxed) == first),
                                "a reader saw half of a change"
                            );
                        }
                    }
                });
            })
        });
        join(threads);
        world.close();
    });
}

/// Calls for several permits of several keys, in every order, all acquire them.
#[test]
fn calls_for_several_permits_of_several_keys_never_deadlock() {
    explore(|| {
        let world = World::new(3, any_policy());
        let threads = [[(0, 2), (1, 3)], [(1, 2), (0, 3)], [(1, 1), (0, 1)]].map(|wanted| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..2 {
                    let wanted = wanted.iter().map(|(key, n)| (key, *n));
                    let guards = block_on(world.hosts.acquire_n_many(wanted));
                    let held = guards.iter().flat_map(|guard| std::iter::repeat_n(guard.key(), guard.permits()));
                    let _at = world.permits(held);
                    thread::yield_now();
                }
            })
        });
        join(threads);
        world.close();
    });
}

/// A key that is listed twice takes one of two permits: the other is free for any attempt.
#[test]
fn a_duplicate_key_takes_one_permit() {
    explore(|| {
        let world = World::new(2, any_policy());
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..2 {
                    drop(block_on(world.hosts.acquire_many([&1, &0, &1, &1])));
                    drop(world.hosts.try_acquire_many([&1, &1, &0]));
                }
            })
        };
        for _ in 0..3 {
            assert!(world.hosts.try_acquire(&1).is_some());
        }
        other.join().unwrap();
        world.close();
    });
}
