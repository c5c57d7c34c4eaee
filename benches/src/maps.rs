//! Shared maps of values: the candidates of the bench `map`.
//!
//! All of them hash with foldhash where the hasher can be chosen; lockable's cannot.

use std::convert::Infallible;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use foldhash::fast::RandomState;
use keylatch::{Clock, LockMap};
use lockable::{LockableHashMap, LockableLruCache, SyncLimit};
use quick_cache::UnitWeighter;
use quick_cache::sync::DefaultLifecycle;

/// A shared map of numbers, with the operations that are measured.
pub trait Values: Send + Sync + 'static {
    /// Creates an empty map.
    fn empty() -> Self;

    /// Returns a copy of a value, by the shortest call available.
    fn get(&self, key: &u64) -> Option<u64>;

    /// Reads a value through a guard.
    fn read(&self, key: &u64) -> Option<u64>;

    /// Adds one to a value, in place, through a guard.
    fn add(&self, key: &u64);

    /// Adds one to a value, in place, by the shortest call available.
    fn update(&self, key: &u64) {
        self.add(key);
    }

    fn insert(&self, key: &u64, value: u64);

    fn remove(&self, key: &u64) -> Option<u64>;

    /// Returns the value, which `init` computes once if it is missing.
    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64;
}

impl<S: BuildHasher + Default + Send + Sync + 'static> Values for LockMap<u64, u64, S> {
    fn empty() -> Self {
        LockMap::with_hasher(S::default())
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.get_blocking(key)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.read_blocking(key).value().copied()
    }

    fn add(&self, key: &u64) {
        if let Some(value) = self.write_blocking(key).value_mut() {
            *value += 1;
        }
    }

    fn update(&self, key: &u64) {
        self.update_blocking(key, |value| *value += 1);
    }

    fn insert(&self, key: &u64, value: u64) {
        self.insert_blocking(key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove_blocking(key)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.get_or_insert_with_blocking(key, init).value().expect("the guard has a value")
    }
}

/// A map or cache in a struct of its own, with the same methods.
macro_rules! wrapped {
    ($Map:ident, $empty:expr) => {
        impl Values for $Map {
            fn empty() -> Self {
                $empty
            }

            fn get(&self, key: &u64) -> Option<u64> {
                Values::get(&self.0, key)
            }

            fn read(&self, key: &u64) -> Option<u64> {
                Values::read(&self.0, key)
            }

            fn add(&self, key: &u64) {
                Values::add(&self.0, key);
            }

            fn update(&self, key: &u64) {
                Values::update(&self.0, key);
            }

            fn insert(&self, key: &u64, value: u64) {
                Values::insert(&self.0, key, value);
            }

            fn remove(&self, key: &u64) -> Option<u64> {
                Values::remove(&self.0, key)
            }

            fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
                Values::get_or_insert_with(&self.0, key, init)
            }
        }
    };
}

/// A map whose values expire after an hour.
pub struct Ending(LockMap<u64, u64>);

/// Like [`Ending`], with a clock that costs next to nothing: a counter of ticks.
pub struct EndingByTicks(LockMap<u64, u64>);

struct Ticks(AtomicU32);

impl Clock for Ticks {
    fn now(&self) -> Duration {
        Duration::from_millis(u64::from(self.0.load(Relaxed)))
    }
}

/// The bound of the caches whose `get` and whose memory are measured.
pub const ROOM: usize = 1_000_000;

wrapped!(Ending, Ending(LockMap::builder().time_to_live(Duration::from_secs(3600)).build()));
wrapped!(
    EndingByTicks,
    EndingByTicks(LockMap::builder().time_to_live(Duration::from_secs(3600)).clock(Ticks(AtomicU32::new(0))).build())
);
wrapped!(Bounded, Bounded(LockMap::builder().max_values(ROOM).build()));
wrapped!(BoundedMoka, BoundedMoka::of(ROOM));
wrapped!(BoundedQuick, BoundedQuick::of(ROOM));

impl Values for lockmap::LockMap<u64, u64> {
    fn empty() -> Self {
        lockmap::LockMap::new()
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.get(key)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        *self.entry(*key).get()
    }

    fn add(&self, key: &u64) {
        if let Some(value) = self.entry(*key).get_mut() {
            *value += 1;
        }
    }

    fn insert(&self, key: &u64, value: u64) {
        self.insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove(key)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.entry(*key).or_insert_with(init)
    }
}

/// lockable's maps have the same methods, but no common trait.
macro_rules! lockable {
    ($Map:ident) => {
        impl Values for $Map<u64, u64> {
            fn empty() -> Self {
                $Map::new()
            }

            fn get(&self, key: &u64) -> Option<u64> {
                self.read(key)
            }

            fn read(&self, key: &u64) -> Option<u64> {
                let Ok(guard) = self.blocking_lock(*key, SyncLimit::no_limit());
                guard.value().copied()
            }

            fn add(&self, key: &u64) {
                let Ok(mut guard) = self.blocking_lock(*key, SyncLimit::no_limit());
                if let Some(value) = guard.value_mut() {
                    *value += 1;
                }
            }

            fn insert(&self, key: &u64, value: u64) {
                let Ok(mut guard) = self.blocking_lock(*key, SyncLimit::no_limit());
                guard.insert(value);
            }

            fn remove(&self, key: &u64) -> Option<u64> {
                let Ok(mut guard) = self.blocking_lock(*key, SyncLimit::no_limit());
                guard.remove()
            }

            fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
                let Ok(mut guard) = self.blocking_lock(*key, SyncLimit::no_limit());
                *guard.value_or_insert_with(init)
            }
        }
    };
}

lockable!(LockableHashMap);
lockable!(LockableLruCache);

impl<S: BuildHasher + Clone + Default + Send + Sync + 'static> Values for DashMap<u64, u64, S> {
    fn empty() -> Self {
        DashMap::with_hasher(S::default())
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.get(key).map(|value| *value)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.get(key).map(|value| *value)
    }

    fn add(&self, key: &u64) {
        if let Some(mut value) = self.get_mut(key) {
            *value += 1;
        }
    }

    fn insert(&self, key: &u64, value: u64) {
        self.insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove(key).map(|(_, value)| value)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.entry(*key).or_insert_with(init)
    }
}

impl Values for scc::HashMap<u64, u64, RandomState> {
    fn empty() -> Self {
        scc::HashMap::default()
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.read_sync(key, |_, value| *value)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.get_sync(key).map(|entry| *entry.get())
    }

    fn add(&self, key: &u64) {
        if let Some(mut entry) = self.get_sync(key) {
            *entry.get_mut() += 1;
        }
    }

    fn update(&self, key: &u64) {
        self.update_sync(key, |_, value| *value += 1);
    }

    fn insert(&self, key: &u64, value: u64) {
        self.upsert_sync(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove_sync(key).map(|(_, value)| value)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.entry_sync(*key).or_insert_with(init).get()
    }
}

/// A cache that is never full. It has no guards: its values are copies, so `read` is `get`, and a write in place is
/// an insertion.
pub type Moka = moka::sync::Cache<u64, u64, RandomState>;

impl Values for Moka {
    fn empty() -> Self {
        moka::sync::Cache::builder().build_with_hasher(RandomState::default())
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.get(key)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.get(key)
    }

    fn add(&self, key: &u64) {
        self.entry(*key).and_upsert_with(|entry| entry.map_or(0, |entry| entry.into_value() + 1));
    }

    fn insert(&self, key: &u64, value: u64) {
        self.insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove(key)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        self.get_with(*key, init)
    }
}

/// A cache. Like [`Moka`], it has no guards.
pub type Quick = quick_cache::sync::Cache<u64, u64, UnitWeighter, RandomState>;

impl Values for Quick {
    fn empty() -> Self {
        BoundedQuick::of(ROOM).0
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.get(key)
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.get(key)
    }

    fn add(&self, key: &u64) {
        self.insert(*key, self.get(key).map_or(0, |value| value + 1));
    }

    fn insert(&self, key: &u64, value: u64) {
        self.insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.remove(key).map(|(_, value)| value)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        let Ok(value) = self.get_or_insert_with(key, || Ok::<_, Infallible>(init()));
        value
    }
}

/// One lock for all values.
pub type LockedMap = RwLock<hashbrown::HashMap<u64, u64, RandomState>>;

const UNPOISONED: &str = "nothing panics while it holds the map";

impl Values for LockedMap {
    fn empty() -> Self {
        RwLock::default()
    }

    fn get(&self, key: &u64) -> Option<u64> {
        RwLock::read(self).expect(UNPOISONED).get(key).copied()
    }

    fn read(&self, key: &u64) -> Option<u64> {
        RwLock::read(self).expect(UNPOISONED).get(key).copied()
    }

    fn add(&self, key: &u64) {
        if let Some(value) = self.write().expect(UNPOISONED).get_mut(key) {
            *value += 1;
        }
    }

    fn insert(&self, key: &u64, value: u64) {
        self.write().expect(UNPOISONED).insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.write().expect(UNPOISONED).remove(key)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        let found = RwLock::read(self).expect(UNPOISONED).get(key).copied();
        found.unwrap_or_else(|| *self.write().expect(UNPOISONED).entry(*key).or_insert_with(init))
    }
}

/// A lock-free table. A value cannot be changed in place, so every change replaces it.
pub type Papaya = papaya::HashMap<u64, u64, RandomState>;

impl Values for Papaya {
    fn empty() -> Self {
        papaya::HashMap::default()
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.pin().get(key).copied()
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.pin().get(key).copied()
    }

    fn add(&self, key: &u64) {
        self.pin().update(*key, |value| value + 1);
    }

    fn insert(&self, key: &u64, value: u64) {
        self.pin().insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.pin().remove(key).copied()
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.pin().get_or_insert_with(*key, init)
    }
}

/// The map that many users write by hand: a number of `HashMap`s, each behind its own lock.
pub struct Sharded {
    hasher: RandomState,
    shards: Box<[CachePadded<ShardOfMap>]>,
}

type ShardOfMap = parking_lot::RwLock<hashbrown::HashMap<u64, u64, RandomState>>;

impl Sharded {
    fn shard(&self, key: &u64) -> &ShardOfMap {
        // The map hashes the key again: hashbrown's `HashMap` takes no hash that its caller has computed.
        &self.shards[(self.hasher.hash_one(key) >> 58) as usize]
    }
}

impl Values for Sharded {
    fn empty() -> Self {
        Sharded { hasher: RandomState::default(), shards: (0..64).map(|_| CachePadded::default()).collect() }
    }

    fn get(&self, key: &u64) -> Option<u64> {
        self.shard(key).read().get(key).copied()
    }

    fn read(&self, key: &u64) -> Option<u64> {
        self.shard(key).read().get(key).copied()
    }

    fn add(&self, key: &u64) {
        if let Some(value) = self.shard(key).write().get_mut(key) {
            *value += 1;
        }
    }

    fn insert(&self, key: &u64, value: u64) {
        self.shard(key).write().insert(*key, value);
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.shard(key).write().remove(key)
    }

    fn get_or_insert_with(&self, key: &u64, init: impl FnOnce() -> u64) -> u64 {
        *self.shard(key).write().entry(*key).or_insert_with(init)
    }
}

/// The operation on each key of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Get,
    Read,
    Add,
    Update,
    InsertAndRemove,
    /// Removes a value that is there, and inserts it again.
    RemoveAndInsert,
    GetOrInsert,
    /// Inserts the computed value, and removes it.
    GetOrInsertAndRemove,
}

/// [`Values`] of any type. Each virtual call performs many operations, so that its cost does not matter.
pub trait Map: Send + Sync {
    fn fill(&self, keys: &mut dyn Iterator<Item = u64>);

    fn run(&self, act: Act, keys: &[u64]);
}

impl<M: Values> Map for M {
    fn fill(&self, keys: &mut dyn Iterator<Item = u64>) {
        keys.for_each(|key| self.insert(&key, key));
    }

    fn run(&self, act: Act, keys: &[u64]) {
        match act {
            Act::Get => each(keys, |key| assert!(black_box(self.get(key)).is_some())),
            Act::Read => each(keys, |key| assert!(black_box(self.read(key)).is_some())),
            Act::Add => each(keys, |key| self.add(key)),
            Act::Update => each(keys, |key| self.update(key)),
            Act::InsertAndRemove => each(keys, |key| {
                self.insert(key, *key);
                black_box(self.remove(key));
            }),
            Act::RemoveAndInsert => each(keys, |key| {
                black_box(self.remove(key));
                self.insert(key, *key);
            }),
            Act::GetOrInsert => each(keys, |key| {
                black_box(self.get_or_insert_with(key, || *key));
            }),
            Act::GetOrInsertAndRemove => each(keys, |key| {
                black_box(self.get_or_insert_with(key, || *key));
                black_box(self.remove(key));
            }),
        }
    }
}

#[inline(always)]
fn each(keys: &[u64], mut act: impl FnMut(&u64)) {
    keys.iter().for_each(|key| act(black_box(key)));
}

/// Creates a map.
pub type Make = fn() -> Box<dyn Map>;

/// Creates a cache with room for this many values.
pub type MakeCache = fn(usize) -> Box<dyn Cache>;

/// A cache with a limited number of values. `hit` returns whether it had the key, and inserts it if not.
pub trait Cache {
    fn hit(&mut self, key: u64) -> bool;
}

pub struct Bounded(pub LockMap<u64, u64>);

impl Cache for Bounded {
    fn hit(&mut self, key: u64) -> bool {
        let hit = self.0.get_blocking(&key).is_some();
        if !hit {
            self.0.insert_blocking(&key, key);
        }
        hit
    }
}

pub struct BoundedMoka(pub Moka);

impl BoundedMoka {
    pub fn of(most: usize) -> Self {
        BoundedMoka(moka::sync::Cache::builder().max_capacity(most as u64).build_with_hasher(RandomState::default()))
    }
}

impl Cache for BoundedMoka {
    fn hit(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, key);
        }
        hit
    }
}

pub struct BoundedQuick(pub Quick);

impl BoundedQuick {
    pub fn of(most: usize) -> Self {
        let (weighter, hasher) = (UnitWeighter, RandomState::default());
        BoundedQuick(Quick::with(most, most as u64, weighter, hasher, DefaultLifecycle::default()))
    }
}

impl Cache for BoundedQuick {
    fn hit(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, key);
        }
        hit
    }
}

pub struct BoundedLockable(pub Arc<LockableLruCache<u64, u64>>, pub NonZeroUsize);

impl Cache for BoundedLockable {
    fn hit(&mut self, key: u64) -> bool {
        let limit = SyncLimit::SoftLimit {
            max_entries: self.1,
            on_evict: |evicted: Vec<lockable::Guard<_, _, _, _>>| {
                for mut guard in evicted {
                    guard.remove();
                }
                Ok::<_, Infallible>(())
            },
        };
        let Ok(mut guard) = self.0.blocking_lock(key, limit);
        let hit = guard.value().is_some();
        if !hit {
            guard.insert(key);
        }
        hit
    }
}

pub struct BoundedLockmap(pub lockmap::LruLockMap<u64, u64>);

impl Cache for BoundedLockmap {
    fn hit(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, key);
        }
        hit
    }
}
