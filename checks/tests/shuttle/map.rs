//! Models of the map: the call that computes a value, the number of increments, and the number of values.
//!
//! Its keys have their entries in one allocation: see [`many`](crate::many).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use keylatch::{Equivalent, LockMap, ToKey};
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random, run_tasks_and_threads};

const KEYS: u64 = 3;

/// A counter. Each has a clone of the token, whose strong count tells how many values exist.
#[derive(Clone, PartialEq)]
struct Value {
    count: u64,
    token: Arc<()>,
}

type Map<V> = LockMap<u64, V, Hasher>;

fn map<V>(most: Option<usize>) -> Arc<Map<V>> {
    let builder = LockMap::builder().shards(1).capacity(KEYS as usize).pool_capacity(KEYS as usize);
    let builder = builder.fairness(any_policy()).hasher(Hasher::default());
    Arc::new(if let Some(most) = most { builder.max_values(most).build() } else { builder.build() })
}

/// The users of a key, recorded outside of the map. These counters are hidden from shuttle, because accesses to them
/// are not steps of the model.
#[derive(Default)]
struct Beside {
    loading: AtomicUsize,
    readers: AtomicUsize,
    writers: AtomicUsize,
    last_version: AtomicU64,
}

/// A count that is decremented on drop, even if the task is aborted.
struct In<'a>(&'a AtomicUsize);

impl<'a> In<'a> {
    fn to(count: &'a AtomicUsize) -> (Self, usize) {
        (In(count), count.fetch_add(1, Relaxed))
    }
}

impl Drop for In<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct World {
    map: Arc<Map<Value>>,
    most: Option<usize>,
    token: Arc<()>,
    beside: [Beside; KEYS as usize],
}

impl World {
    fn value(&self, count: u64) -> Value {
        Value { count, token: Arc::clone(&self.token) }
    }

    async fn reads(&self, key: u64) {
        let at = &self.beside[key as usize];
        let _in = In::to(&at.readers);
        assert_eq!(at.writers.load(Relaxed), 0, "a reader beside a writer");
        yield_now().await;
        assert_eq!(at.writers.load(Relaxed), 0, "a writer beside a reader");
    }

    async fn writes(&self, key: u64, version: Option<keylatch::Version>) {
        let at = &self.beside[key as usize];
        let (_in, others) = In::to(&at.writers);
        assert_eq!((others, at.readers.load(Relaxed)), (0, 0), "a writer beside others");
        if let Some(version) = version {
            let before = at.last_version.swap(version.get(), Relaxed);
            assert!(version.get() > before, "a version was used again");
        }
        yield_now().await;
    }

    /// Makes one random call of a task or a thread.
    async fn step(&self) {
        let (map, key) = (&self.map, random(KEYS));
        let at = &self.beside[key as usize];
        match random(17) {
            0..=2 => {
                let fails = random(4) == 0;
                let load = async || {
                    let (_in, others) = In::to(&at.loading);
                    assert_eq!(others, 0, "two callers load the same value");
                    yield_now().await;
                    if fails { Err(()) } else { Ok(self.value(1)) }
                };
                if let Ok(guard) = map.get_or_try_insert_with(&key, load).await {
                    assert!(guard.value().is_some());
                    self.reads(key).await;
                }
            }
            3 => drop(map.get(&key).await),
            4 => drop(map.insert(&key, self.value(1)).await),
            5 => drop(map.remove(&key).await),
            6 => {
                let mut guard = map.write(&key).await;
                guard.get_or_insert_with(|| self.value(0)).count += 1;
                self.writes(key, guard.version()).await;
            }
            7 => {
                let guard = map.read(&key).await;
                let before = guard.version();
                self.reads(key).await;
                assert_eq!(guard.version(), before);
            }
            8 => {
                let mut guard = map.upgradable_read(&key).await;
                let before = guard.version();
                self.reads(key).await;
                let mut writer = guard.upgrade_mut().await;
                assert_eq!(writer.version(), before);
                if let Some(value) = writer.value_mut() {
                    value.count += 1;
                    self.writes(key, writer.version()).await;
                }
            }
            9 => {
                let handle = map.handle(&key);
                yield_now().await;
                let guard = handle.read().await;
                drop(handle);
                self.reads(key).await;
                drop(guard);
            }
            10 => {
                let other = (key + 1) % KEYS;
                let batch = map.batch().insert(&other, self.value(1)).remove(&key).insert(&key, self.value(2));
                drop(batch.commit().await);
            }
            11 => {
                // The future requests the key when the value may have been evicted.
                let future = map.read(&key);
                yield_now().await;
                drop(future.await);
            }
            12 => drop(map.for_each_value(|_, value, _| assert!(value.count > 0))),
            13 => drop(map.peek(&key).await),
            14 => drop(map.pop()),
            15 if self.most.is_some() => map.set_max_values(1 + random(KEYS) as usize),
            _ => drop(map.retain(|_, value| value.count % 2 == 1)),
        }
    }

    async fn steps(self: Arc<Self>, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
    }

    /// Checks the end of a run.
    fn close(&self) {
        let left = self.map.len();
        assert_eq!(self.map.entries(), left, "an entry remained");
        assert!(self.map.max_values().is_none_or(|most| left <= most), "the bound was not restored");
        assert_eq!(Arc::strong_count(&self.token), 1 + left, "a value was leaked or dropped twice");
        assert_eq!(self.map.clear(), 0);
        assert_eq!((self.map.entries(), Arc::strong_count(&self.token)), (0, 1));
    }
}

fn everything_with(most: Option<usize>) {
    let world = Arc::new(World { map: map(most), most, token: Arc::default(), beside: Default::default() });
    run_tasks_and_threads(|| Arc::clone(&world).steps(3), 6);
    world.close();
}

/// Threads and tasks make random calls on a map, and two tasks are aborted halfway.
pub fn everything() {
    everything_with([None, Some(1), Some(2)][random(3) as usize]);
}

#[test]
fn everything_at_once() {
    explore(everything);
}

/// Each caller adds one, on condition that the value is unchanged, directly or by a batch.
#[test]
fn no_increment_is_lost() {
    explore(|| {
        let map = map::<u64>(None);
        block_on(map.insert(&0, 0));
        let threads: Vec<_> = (0..3)
            .map(|by| {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    block_on(async {
                        loop {
                            let seen = map.read(&0).await;
                            let (n, version) = (*seen.value().unwrap(), seen.version().unwrap());
                            drop(seen);
                            let done = match by {
                                0 => map.update_if(&0, version, n + 1).await.is_ok(),
                                1 => map.batch().insert(&1, n).update_if(&0, version, n + 1).commit().await.is_ok(),
                                _ => map.batch().update_if(&0, version, n + 1).check_absent(&2).commit().await.is_ok(),
                            };
                            if done {
                                break;
                            }
                        }
                    });
                })
            })
            .collect();
        join(threads);
        assert_eq!(block_on(map.get(&0)), Some(3));
    });
}

/// A reader of both keys sees all changes of a batch, or none.
#[test]
fn no_reader_sees_half_of_a_batch() {
    explore(|| {
        let map = map::<u64>(None);
        let threads: Vec<_> = (0..4_u64)
            .map(|by| {
                let map = Arc::clone(&map);
                thread::spawn(move || {
                    let (first, second) = (by % 2, 1 - by % 2);
                    block_on(async {
                        for _ in 0..2 {
                            if by < 2 {
                                let batch = map.batch().insert(&first, by);
                                let batch = if random(2) == 0 {
                                    batch.insert(&second, by)
                                } else {
                                    batch.remove(&first).remove(&second)
                                };
                                assert!(batch.commit().await.is_ok());
                            } else {
                                let guards = map.read_many(&[first, second]).await;
                                let seen: Vec<_> = guards.iter().map(|guard| guard.value().copied()).collect();
                                assert_eq!(seen[0], seen[1], "a reader saw half of a batch");
                            }
                        }
                    });
                })
            })
            .collect();
        join(threads);
        assert_eq!(map.len(), map.entries());
    });
}

/// Pops and changes of the bound, beside insertions, removals and readers: a value that is held stays, and when all
/// users have left, every value that remains can be popped.
#[test]
fn a_pop_takes_no_value_in_use_and_every_unused_value_can_be_popped() {
    explore(|| {
        let (map, token) = (map::<Value>(Some(2)), Arc::<()>::default());
        let value = |count| Value { count, token: Arc::clone(&token) };
        block_on(map.insert(&0, value(1)));
        block_on(map.insert(&1, value(1)));
        let threads: Vec<_> = (0..4_u64)
            .map(|by| {
                let (map, token) = (Arc::clone(&map), Arc::clone(&token));
                thread::spawn(move || {
                    block_on(async {
                        for _ in 0..2 {
                            let key = random(KEYS);
                            match by {
                                0 => {
                                    let guard = map.read(&key).await;
                                    let (before, version) = (guard.value().cloned(), guard.version());
                                    yield_now().await;
                                    assert!(guard.value() == before.as_ref() && guard.version() == version);
                                    assert_eq!(map.contains_key(&key), before.is_some(), "a value in use was removed");
                                }
                                1 => {
                                    if let Some((key, value)) = map.pop() {
                                        assert!(key < KEYS && value.count > 0);
                                    }
                                }
                                2 if random(2) == 0 => drop(map.remove(&key).await),
                                2 => drop(map.insert(&key, Value { count: 1, token: Arc::clone(&token) }).await),
                                _ => map.set_max_values(1 + random(KEYS) as usize),
                            }
                        }
                    });
                })
            })
            .collect();
        join(threads);
        let left = map.len();
        assert!(map.max_values().is_some_and(|most| left <= most), "the bound was not restored");
        assert_eq!((map.entries(), Arc::strong_count(&token)), (left, 1 + left));
        for left in (0..left).rev() {
            assert!(map.pop().is_some(), "an unused value cannot be popped");
            assert_eq!((map.len(), map.entries(), Arc::strong_count(&token)), (left, left, 1 + left));
        }
        assert!(map.pop().is_none());
    });
}

/// If two bounds are set at once, all shards end up with their parts of the same bound.
#[test]
fn bounds_that_are_set_at_once_are_not_mixed() {
    explore(|| {
        let builder = LockMap::builder().shards(2).hasher(Hasher::default()).max_values(6);
        let map: Arc<Map<u64>> = Arc::new(builder.build());
        let setters: Vec<_> = [2, 4]
            .map(|most| {
                let map = Arc::clone(&map);
                thread::spawn(move || map.set_max_values(most))
            })
            .into_iter()
            .collect();
        join(setters);
        for key in 0..32 {
            block_on(map.insert(&key, key));
        }
        assert_eq!(Some(map.len()), map.max_values());
    });
}

/// A key whose drop panics if its number is odd.
#[derive(PartialEq, Eq, Hash)]
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 % 2 == 1 {
            resume_unwind(Box::new(self.0));
        }
    }
}

/// The borrowed form of the key.
#[derive(PartialEq, Eq, Hash)]
struct Number(u64);

impl Equivalent<Bomb> for Number {
    fn equivalent(&self, key: &Bomb) -> bool {
        self.0 == key.0
    }
}

impl ToKey<Bomb> for Number {
    fn to_key(&self) -> Bomb {
        Bomb(self.0)
    }
}

/// `clear` drops the key of an entry whose writer removed the value and left. It clears the other entries before the
/// panic continues.
#[test]
fn a_key_whose_drop_panics_stops_no_walk() {
    explore(|| {
        let mut map: LockMap<Bomb, u64, Hasher> = LockMap::builder().shards(1).hasher(Hasher::default()).build();
        map.extend((0..3).map(|n| (Bomb(n), n)));
        let map = Arc::new(map);
        let writer = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                drop(catch_unwind(AssertUnwindSafe(|| {
                    let Some(mut guard) = map.try_write(&Number(1)) else { return };
                    thread::yield_now();
                    guard.remove();
                    drop(guard);
                })));
            })
        };
        drop(catch_unwind(AssertUnwindSafe(|| map.clear())));
        join([writer]);
        assert!(!map.contains_key(&Number(0)) && !map.contains_key(&Number(2)), "a value was not cleared");
        drop(catch_unwind(AssertUnwindSafe(|| map.clear())));
        assert_eq!(map.entries(), 0);
    });
}

/// While a value whose entry is kept by an unpolled future is evicted, no attempt finds the key held.
#[test]
fn a_try_does_not_fail_because_of_an_eviction() {
    explore(|| {
        let map = map::<u64>(Some(1));
        block_on(map.insert(&0, 0));
        let kept = map.read_arc(&0);
        let tries = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                for _ in 0..3 {
                    assert!(map.try_read(&0).is_some(), "the key appears to be held");
                    assert!(map.try_write(&0).is_some(), "the key appears to be held");
                }
            })
        };
        block_on(map.insert(&1, 1));
        join([tries]);
        block_on(map.insert(&2, 2));
        assert!(block_on(kept).value().is_none_or(|&value| value == 0));
    });
}
