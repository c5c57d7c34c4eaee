//! A hand-written keyed lock from a concurrent map and tokio, with the most obvious clean-up.

use std::hash::Hash;
use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::candidates::{Key, Locks};

/// A map of locks. A leaving holder removes the entry if it has no other user. So a waiter that gives up after the
/// last holder has left leaves its entry behind.
pub struct TokioDashMap<K: Eq + Hash>(DashMap<K, Arc<Mutex<()>>>);

/// A locked key.
struct Guard<'a, K: Eq + Hash> {
    map: &'a DashMap<K, Arc<Mutex<()>>>,
    key: K,
    _held: OwnedMutexGuard<()>,
}

impl<K: Eq + Hash> Drop for Guard<'_, K> {
    fn drop(&mut self) {
        // Two references: the map's and this guard's. Others are cloned under the shard's lock, which `remove_if`
        // holds.
        self.map.remove_if(&self.key, |_, lock| Arc::strong_count(lock) == 2);
    }
}

impl<K: Eq + Hash> TokioDashMap<K> {
    fn find(&self, key: K) -> Arc<Mutex<()>> {
        Arc::clone(&self.0.entry(key).or_default())
    }
}

impl<K: Eq + Hash> Default for TokioDashMap<K> {
    fn default() -> Self {
        TokioDashMap(DashMap::new())
    }
}

impl<Q: ?Sized + Key> Locks<Q> for TokioDashMap<Q::Owned> {
    fn lock_blocking(&self, key: &Q) -> impl Sized {
        let _held = self.find(key.to_owned()).blocking_lock_owned();
        Guard { map: &self.0, key: key.to_owned(), _held }
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        let _held = self.find(key.to_owned()).try_lock_owned().ok()?;
        Some(Guard { map: &self.0, key: key.to_owned(), _held })
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(async move {
            let _held = self.find(key.to_owned()).lock_owned().await;
            Guard { map: &self.0, key: key.to_owned(), _held }
        })
    }

    fn entries(&self) -> Option<usize> {
        Some(self.0.len())
    }
}
