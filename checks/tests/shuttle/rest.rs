//! Models of values at rest: calls without a hold store and remove values at rest, and guards, handles, futures, walks
//! and visits of all values move them to slots. Each use without a hold lets a value come to rest.
//!
//! Some of the values are counters, which show if a value was lost, or copied when it moved. Versions are recorded
//! outside of the map.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylatch::{LockMap, Version};
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

/// Keys below this one always have a value: the number of times that it was increased.
const STAY: u64 = 3;

/// The key of the first entry, whose value never rests.
const FIRST: u64 = 0;

const KEYS: u64 = 5;

type Map = LockMap<u64, u64, Hasher>;

struct World {
    map: Map,
    /// The number of times that each value was increased. These counters are hidden from shuttle.
    increases: [AtomicU64; STAY as usize],
    /// The last version that was seen of each key.
    versions: [AtomicU64; KEYS as usize],
    /// The number of values made for the keys whose values come and go. Each value is the number of those before it.
    last: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let builder = LockMap::builder().shards(1).pool_capacity(random(3) as usize);
        let map = builder.fairness(any_policy()).hasher(Hasher::default()).build();
        assert!((FIRST..STAY).all(|key| block_on(map.insert(&key, 0)).is_none()));
        let (increases, versions) = (Default::default(), Default::default());
        Arc::new(World { map, increases, versions, last: AtomicU64::new(0) })
    }

    fn increased(&self, key: u64) {
        self.increases[key as usize].fetch_add(1, Relaxed);
    }

    /// Checks and records a version that a holder has seen. If `writes` is set, the holder is a writer that has just
    /// changed the value.
    fn saw(&self, key: u64, version: Option<Version>, writes: bool) {
        let Some(version) = version.map(Version::get) else { return };
        let before = self.versions[key as usize].fetch_max(version, Relaxed);
        assert!(if writes { version > before } else { version >= before }, "version {version} came after {before}");
    }

    /// Increases a value that stays.
    async fn increase(&self, key: u64) {
        let map = &self.map;
        match random(4) {
            0 => {
                let mut guard = map.write(&key).await;
                *guard.value_mut().expect("it stays") += 1;
                self.saw(key, guard.version(), true);
                yield_now().await;
            }
            1 | 2 => assert!(map.update(&key, |value| *value += 1).await.is_some()),
            _ => loop {
                let (value, version) = map.get_versioned(&key).await.expect("it stays");
                if map.update_if(&key, version, value + 1).await.is_ok() {
                    break;
                }
            },
        }
        self.increased(key);
    }

    /// Uses a value that comes and goes. A call of `insert` needs no hold, and lets the value come to rest.
    async fn come_and_go(&self, key: u64) {
        let map = &self.map;
        match random(8) {
            0 => drop(map.remove(&key).await),
            1 => drop(map.write(&key).await.remove()),
            2 => {
                let mut guard = map.write(&key).await;
                guard.insert(self.last.fetch_add(1, Relaxed));
                self.saw(key, guard.version(), true);
            }
            3 => {
                let n = (random(2) == 0).then(|| self.last.fetch_add(1, Relaxed));
                let change = async |_| {
                    yield_now().await;
                    n
                };
                assert_eq!(map.compute(&key, change).await.is_some(), n.is_some());
            }
            _ => drop(map.insert(&key, self.last.fetch_add(1, Relaxed)).await),
        }
    }

    async fn look(&self, key: u64) {
        let map = &self.map;
        match random(5) {
            0 => assert!(map.get(&key).await.is_some() || key >= STAY),
            1 => {
                let guard = map.read(&key).await;
                let seen = (guard.value().copied(), guard.version());
                self.saw(key, seen.1, false);
                yield_now().await;
                assert_eq!((guard.value().copied(), guard.version()), seen);
            }
            2 => {
                let handle = map.handle(&key);
                yield_now().await;
                drop(handle.read().await);
                yield_now().await;
            }
            3 => {
                let future = map.read(&key);
                yield_now().await;
                if random(2) == 0 {
                    self.saw(key, future.await.version(), false);
                }
            }
            _ => assert!(map.contains_key(&key) || key >= STAY),
        }
    }

    /// Visits all values, or only some of them: a walk may be dropped halfway.
    async fn visit(&self) {
        let (map, mut visits) = (&self.map, [0_usize; KEYS as usize]);
        match random(3) {
            0 => {
                let (mut walk, writes) = (map.walk(), random(2) == 0);
                loop {
                    let key = if writes {
                        let Some(mut guard) = walk.next_write().await else { break };
                        let key = *guard.key();
                        if key < STAY {
                            *guard.value_mut().expect("it has a value") += 1;
                            self.increased(key);
                            self.saw(key, guard.version(), true);
                        }
                        key
                    } else {
                        let Some(guard) = walk.next_read().await else { break };
                        self.saw(*guard.key(), guard.version(), false);
                        *guard.key()
                    };
                    visits[key as usize] += 1;
                    if random(8) == 0 {
                        return;
                    }
                }
                assert!(
                    visits[..STAY as usize].iter().all(|&visits| visits == 1),
                    "visits of values that stay: {visits:?}"
                );
            }
            1 => {
                let passed_over = map.for_each_value(|&key, _, version| {
                    visits[key as usize] += 1;
                    self.saw(key, Some(version), false);
                });
                let seen: usize = visits[..STAY as usize].iter().sum();
                assert!(seen + passed_over >= STAY as usize, "{visits:?}, and {passed_over} in use");
            }
            _ => {
                let odd = random(2);
                let _ = map.retain(|&key, value| {
                    visits[key as usize] += 1;
                    key < STAY || value % 2 == odd
                });
            }
        }
        assert!(visits.iter().all(|&visits| visits <= 1), "visited more than once: {visits:?}");
    }

    async fn steps(self: Arc<Self>, steps: usize) {
        for _ in 0..steps {
            match random(8) {
                0 | 1 => self.increase(random(STAY)).await,
                2..5 => self.come_and_go(STAY + random(KEYS - STAY)).await,
                5 | 6 => self.look(random(KEYS)).await,
                _ => self.visit().await,
            }
        }
    }

    /// Checks the end of a run.
    fn close(&self) {
        for (key, increases) in (FIRST..).zip(&self.increases) {
            assert_eq!(
                block_on(self.map.get(&key)),
                Some(increases.load(Relaxed)),
                "an increase of key {key} was lost"
            );
        }
        assert_eq!(self.map.entries(), self.map.len(), "an entry remained");
        assert!((FIRST..KEYS).all(|key| !self.map.is_locked(&key)), "a key remained locked");
        assert_eq!((self.map.clear(), self.map.entries()), (0, 0));
    }
}

/// Threads make random calls on a map in which values come to rest.
pub fn everything() {
    let world = World::new();
    let threads = (0..3).map(|_| {
        let world = Arc::clone(&world);
        thread::spawn(move || block_on(world.steps(3)))
    });
    join(threads.collect::<Vec<_>>());
    world.close();
}

#[test]
fn everything_at_once() {
    explore(everything);
}

/// No call here waits, so blocking calls may be among them. All values and versions stay as they are, while each `get`
/// lets a value come to rest and other calls move values to slots.
#[test]
fn readers_see_values_that_come_to_rest_and_leave_it() {
    explore(|| {
        let world = World::new();
        let versions: Vec<_> =
            (FIRST..STAY).map(|key| world.map.get_versioned_blocking(&key).expect("it stays").1).collect();
        let versions = Arc::new(versions);
        let threads = (0..3).map(|_| {
            let (world, versions) = (Arc::clone(&world), Arc::clone(&versions));
            thread::spawn(move || {
                for _ in 0..4 {
                    let key = random(STAY);
                    match random(5) {
                        0 => block_on(world.look(key)),
                        1 => {
                            let (mut walk, mut visits) = (world.map.walk(), 0);
                            while let Some(guard) = block_on(walk.next_read()) {
                                assert_eq!(guard.version(), Some(versions[*guard.key() as usize]));
                                visits += 1;
                            }
                            assert_eq!(visits, STAY);
                        }
                        2 => {
                            let mut visits = 0;
                            assert_eq!(world.map.for_each_value(|_, _, _| visits += 1), 0);
                            assert_eq!(visits, STAY);
                        }
                        _ => {
                            let seen = world.map.get_versioned_blocking(&key);
                            assert_eq!(seen, Some((0, versions[key as usize])));
                        }
                    }
                }
            })
        });
        join(threads.collect::<Vec<_>>());
        world.close();
    });
}
