//! A hand-written keyed lock without a crate for it, with correct clean-up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use async_lock::MutexGuardArc;

use crate::candidates::{Key, Locks};

type Lock = Arc<async_lock::Mutex<()>>;

/// A map of locks. An entry is removed with the last holder or waiter of its lock.
pub struct StdMap<K: Eq + Hash>(Mutex<HashMap<K, Lock>>);

/// A locked key.
struct Guard<'a, K: Eq + Hash> {
    // Fields are dropped in this order: see `Visit`.
    _held: MutexGuardArc<()>,
    _visit: Visit<'a, K>,
}

/// One user of a key's lock. It is dropped after the user's `Arc`s of the lock. So if several users leave at once, one
/// of them finds that only the map's `Arc` is left, and removes the entry.
struct Visit<'a, K: Eq + Hash> {
    map: &'a StdMap<K>,
    key: K,
}

impl<K: Eq + Hash> StdMap<K> {
    fn locks(&self) -> MutexGuard<'_, HashMap<K, Lock>> {
        self.0.lock().expect("nothing panics while it holds the map")
    }
}

/// Finds the lock of a key, or creates it.
fn visit<'a, Q: ?Sized + Key>(map: &'a StdMap<Q::Owned>, key: &Q) -> (Visit<'a, Q::Owned>, Lock) {
    let visit = Visit { map, key: key.to_owned() };
    let mut locks = map.locks();
    let lock = match locks.get(key) {
        Some(lock) => lock,
        None => locks.entry(key.to_owned()).or_default(),
    };
    (visit, Arc::clone(lock))
}

impl<K: Eq + Hash> Drop for Visit<'_, K> {
    fn drop(&mut self) {
        let mut locks = self.map.locks();
        // The map's `Arc` is cloned only under the map's lock, so a count of one stays one.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

impl<K: Eq + Hash> Default for StdMap<K> {
    fn default() -> Self {
        StdMap(Mutex::default())
    }
}

impl<Q: ?Sized + Key> Locks<Q> for StdMap<Q::Owned> {
    fn lock_blocking(&self, key: &Q) -> impl Sized {
        let (visit, lock) = visit(self, key);
        Guard { _held: lock.lock_arc_blocking(), _visit: visit }
    }

    fn try_lock(&self, key: &Q) -> Option<impl Sized> {
        // On an early return the lock is dropped before the visit: locals are dropped last to first.
        let (visit, lock) = visit(self, key);
        let held = lock.try_lock_arc()?;
        Some(Guard { _held: held, _visit: visit })
    }

    fn lock(&self, key: &Q) -> Option<impl Future<Output = impl Send> + Send> {
        Some(async move {
            // Here, too, the lock is dropped before the visit, if this future is dropped while it waits.
            let (visit, lock) = visit(self, key);
            Guard { _held: lock.lock_arc().await, _visit: visit }
        })
    }

    fn entries(&self) -> Option<usize> {
        Some(self.locks().len())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::thread;

    use super::*;
    use crate::candidates::poll;

    #[test]
    fn contention_leaves_no_entry() {
        let map = StdMap::<u64>::default();
        let inside = Mutex::new(());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _guard = map.lock_blocking(&7);
                        let _alone = inside.try_lock().expect("one holder at a time");
                    }
                });
            }
        });
        assert_eq!(map.locks().len(), 0);
    }

    #[test]
    fn a_cancelled_waiter_leaves_no_entry() {
        let map = StdMap::<u64>::default();
        let guard = map.try_lock(&7);
        {
            let mut waiter = pin!(map.lock(&7).unwrap());
            assert!(poll(waiter.as_mut()).is_pending());
            drop(guard);
            assert_eq!(map.locks().len(), 1);
        }
        assert_eq!(map.locks().len(), 0);
    }
}
