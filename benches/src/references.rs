//! References that are not keyed locks, but show what one might cost.

use std::array;
use std::borrow::Borrow;
use std::hash::BuildHasher;

use crossbeam_utils::{Backoff, CachePadded};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::candidates::{Key, Locks, Need};

/// One lock for all keys: the reference for waiting.
impl Locks<u64> for Mutex<()> {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Async, "no async"), (Need::Keys, "one lock")];

    fn lock_blocking(&self, _: &u64) -> impl Sized {
        self.lock()
    }

    fn try_lock(&self, _: &u64) -> Option<impl Sized> {
        self.try_lock()
    }
}

/// A fixed number of locks, to which keys are hashed. It needs no memory for keys; in return, keys that share a lock
/// wait for each other, and a caller that locks two keys may deadlock with itself.
pub struct Stripes {
    // Of constant length, so that the remainder needs no division.
    locks: Box<[CachePadded<Mutex<()>>; 256]>,
    hasher: RandomState,
}

impl Default for Stripes {
    fn default() -> Self {
        Stripes { locks: Box::new(array::from_fn(|_| CachePadded::default())), hasher: RandomState::default() }
    }
}

impl Stripes {
    fn of<Q: ?Sized + Key>(&self, key: &Q) -> &Mutex<()> {
        &self.locks[self.hasher.hash_one(key) as usize % self.locks.len()]
    }
}

impl<Q: ?Sized + Key> Locks<Q> for Stripes {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Async, "no async"), (Need::ManyHeld, "would deadlock")];

    fn lock_blocking(&self, key: &Q) -> impl Sized {
        self.of(key).lock()
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        self.of(key).try_lock()
    }
}

/// The work of every table of keys: hash, find the shard, insert, and finally remove. Callers cannot wait for a key.
/// A keyed lock in a sharded hashbrown table costs at least that. A lock that costs less uses no such table.
pub struct BareTable<K> {
    shards: Box<[CachePadded<SpinMutex<HashTable<K>>>; 64]>,
    hasher: RandomState,
}

struct BareGuard<'t, 'k, Q: ?Sized + Key> {
    table: &'t BareTable<Q::Owned>,
    hash: u64,
    key: &'k Q,
}

impl<K> Default for BareTable<K> {
    fn default() -> Self {
        BareTable { shards: Box::new(array::from_fn(|_| CachePadded::default())), hasher: RandomState::default() }
    }
}

impl<K> BareTable<K> {
    fn shard(&self, hash: u64) -> SpinMutexGuard<'_, HashTable<K>> {
        // The table uses the low bits, and the top seven.
        let shard = &self.shards[(hash >> 32) as usize % self.shards.len()];
        let backoff = Backoff::new();
        loop {
            if let Some(guard) = shard.try_lock() {
                return guard;
            }
            backoff.snooze();
        }
    }
}

impl<Q: ?Sized + Key> Drop for BareGuard<'_, '_, Q> {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.hash);
        let entry = shard.find_entry(self.hash, |key| key.borrow() == self.key);
        let removed = entry.ok().map(|entry| entry.remove().0);
        // The key's memory is freed after the shard is unlocked.
        drop(shard);
        drop(removed);
    }
}

impl<Q: ?Sized + Key> Locks<Q> for BareTable<Q::Owned> {
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Contention, "no waiting")];

    fn lock_blocking(&self, key: &Q) -> impl Sized {
        insert(self, key).expect("the key is free")
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        insert(self, key)
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(async move { insert(self, key).expect("the key is free") })
    }
}

fn insert<'t, 'k, Q: ?Sized + Key>(table: &'t BareTable<Q::Owned>, key: &'k Q) -> Option<BareGuard<'t, 'k, Q>> {
    let hash = table.hasher.hash_one(key);
    match table.shard(hash).entry(hash, |other| other.borrow() == key, |key| table.hasher.hash_one(key)) {
        Entry::Occupied(_) => None,
        Entry::Vacant(place) => {
            place.insert(key.to_owned());
            Some(BareGuard { table, hash, key })
        }
    }
}
