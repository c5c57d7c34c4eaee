//! Models of a map whose user evicts the values, as a cache in front of a store does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex; // for the store, whose accesses are not steps of the model

use keylatch::LockMap;
use shuttle::future::{block_on, yield_now};
use shuttle::thread;

use crate::walk::Hasher;
use crate::{any_policy, explore, join, random};

const KEYS: u64 = 3;

/// Counters in a map with room for one value, or later two, in front of a store.
struct Cache {
    map: LockMap<u64, u64, Hasher>,
    store: Mutex<HashMap<u64, u64>>,
}

impl Cache {
    fn new() -> Arc<Self> {
        let builder =
            LockMap::builder().shards(1 + random(2) as usize).capacity(KEYS as usize).pool_capacity(KEYS as usize);
        let builder = builder.fairness(any_policy()).hasher(Hasher::default()).max_values(1).evict_by_hand();
        Arc::new(Cache { map: builder.build(), store: Mutex::default() })
    }

    fn load(&self, key: u64) -> u64 {
        self.store.lock().unwrap().get(&key).copied().unwrap_or(0)
    }

    async fn add(&self, key: u64) {
        let mut guard = self.map.write(&key).await;
        if guard.value().is_none() {
            let loaded = self.load(key);
            yield_now().await;
            assert_eq!(self.load(key), loaded, "the store was written while a value was loaded");
            guard.insert(loaded);
        }
        *guard.value_mut().unwrap() += 1;
    }

    async fn read(&self, key: u64) -> u64 {
        let guard = self.map.get_or_insert_with(&key, async || self.load(key)).await;
        *guard.value().unwrap()
    }

    async fn make_room(&self) {
        while self.map.excess() > 0 {
            let Some(mut next) = self.map.try_next_eviction() else { return };
            let (key, count) = (*next.key(), *next.value().expect("it has a value"));
            if random(4) == 0 {
                return; // as if the store had failed
            }
            yield_now().await;
            assert!(self.load(key) <= count, "the store has a newer count than the map");
            self.store.lock().unwrap().insert(key, count);
            yield_now().await;
            assert_eq!(next.remove(), Some(count));
        }
    }
}

/// No count is lost between the map and the store, and none is read from the store while the map has a newer one.
#[test]
fn a_cache_in_front_of_a_store_loses_nothing() {
    explore(|| {
        let cache = Cache::new();
        let threads: Vec<_> = (0..3_u64)
            .map(|by| {
                let cache = Arc::clone(&cache);
                thread::spawn(move || {
                    block_on(async {
                        let (mut added, mut seen) = ([0; KEYS as usize], [0; KEYS as usize]);
                        for _ in 0..2 {
                            let key = random(KEYS);
                            let seen = &mut seen[key as usize];
                            if by < 2 {
                                cache.add(key).await;
                                added[key as usize] += 1;
                            } else {
                                let count = cache.read(key).await;
                                assert!(count >= *seen, "a stale read");
                                *seen = count;
                            }
                            match random(8) {
                                0 => cache.map.set_max_values(1 + random(2) as usize),
                                _ => cache.make_room().await,
                            }
                        }
                        added
                    })
                })
            })
            .collect();
        let mut expected = [0; KEYS as usize];
        for thread in threads {
            let added: [u64; KEYS as usize] = thread.join().unwrap();
            expected.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
        }
        // Nobody uses the map now, so every value can be evicted.
        assert_eq!(cache.map.excess(), cache.map.len().saturating_sub(cache.map.max_values().unwrap()));
        let mut store = cache.store.lock().unwrap();
        while let Some(mut next) = cache.map.try_next_eviction() {
            store.insert(*next.key(), next.remove().unwrap());
        }
        assert_eq!((cache.map.len(), cache.map.entries()), (0, 0));
        for (key, count) in (0..).zip(expected) {
            assert_eq!(store.get(&key).copied().unwrap_or(0), count);
        }
    });
}

/// A value that somebody holds is not chosen, and nobody else gets a value that was chosen.
#[test]
fn a_chosen_value_is_held_by_nobody_else() {
    explore(|| {
        let cache = Cache::new();
        for key in 0..KEYS {
            block_on(cache.map.insert(&key, 0));
        }
        let threads: Vec<_> = (0..4_u64)
            .map(|by| {
                let cache = Arc::clone(&cache);
                thread::spawn(move || {
                    block_on(async {
                        let key = random(KEYS);
                        match by {
                            0 | 1 => {
                                let Some(mut guard) = cache.map.try_next_eviction() else { return };
                                let version = guard.version();
                                yield_now().await;
                                assert!(guard.version() == version && guard.value() == Some(&0));
                                *guard.value_mut().unwrap() = 1;
                                yield_now().await;
                                assert_eq!(guard.value(), Some(&1));
                                *guard.value_mut().unwrap() = 0;
                            }
                            2 => {
                                let guard = cache.map.read(&key).await;
                                assert!(matches!(guard.value(), None | Some(0)), "a value was changed beside a reader");
                                yield_now().await;
                                assert!(matches!(guard.value(), None | Some(0)), "a value was changed beside a reader");
                            }
                            _ if random(2) == 0 => drop(cache.map.insert(&key, 0).await),
                            _ => drop(cache.map.remove(&key).await),
                        }
                    });
                })
            })
            .collect();
        join(threads);
        let left = cache.map.len();
        for left in (0..left).rev() {
            assert!(cache.map.try_next_eviction().unwrap().remove().is_some());
            assert_eq!((cache.map.len(), cache.map.entries()), (left, left));
        }
        assert!(cache.map.try_next_eviction().is_none());
    });
}
