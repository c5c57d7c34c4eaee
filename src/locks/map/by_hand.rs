use super::{LockMap, MapKind, MapWriteGuard};
use crate::builder::Builder;
use crate::guard::Guard;
use crate::mode::Exclusive;
use crate::plumbing::TableRef;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Leaves the eviction of values to the caller: the map itself removes only values that have
    /// [ended](Builder::time_to_live).
    ///
    /// The map keeps the order of eviction, and tells the caller what to evict: [`excess`](crate::LockMap::excess)
    /// returns the number of values beyond [`max_values`](Builder::max_values), or the weight beyond
    /// [`max_weight`](Builder::max_weight), and [`try_next_eviction`](crate::LockMap::try_next_eviction) locks the key
    /// of the value that should go next. The caller writes the value to a disk, say, and then
    /// [removes](crate::Guard::remove) it. Meanwhile the key is locked, and others that ask for it wait. So a value is
    /// always in the map or on the disk, and is never read from the disk while it is being written.
    ///
    /// The map grows without bound unless the caller evicts values. So evict after each insertion, as below, or in a
    /// separate task or thread. [`on_evict`](Builder::on_evict) is not called for values that are evicted by hand.
    ///
    /// # Panics
    /// [`build`](Builder::build) panics if neither [`max_values`](Builder::max_values) nor
    /// [`max_weight`](Builder::max_weight) is set.
    ///
    /// # Examples
    /// A cache in front of a store. `examples/spill.rs` has one in front of files.
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::Mutex;
    ///
    /// use keylatch::LockMap;
    ///
    /// let store = Mutex::new(HashMap::from([(1, "old".to_string())]));
    /// let cache: LockMap<u64, String> = LockMap::builder().max_values(2).shards(1).evict_by_hand().build();
    /// for (key, suffix) in [(1, "a"), (2, "b"), (3, "c"), (1, "d")] {
    ///     let mut entry = cache.write_blocking(&key);
    ///     if entry.value().is_none() {
    ///         entry.insert(store.lock().unwrap().get(&key).cloned().unwrap_or_default());
    ///     }
    ///     entry.value_mut().unwrap().push_str(suffix);
    ///     drop(entry);
    ///     while cache.excess() > 0 {
    ///         let Some(mut entry) = cache.try_next_eviction() else { break }; // all are in use
    ///         store.lock().unwrap().insert(*entry.key(), entry.value().unwrap().clone()); // or keep it, if this fails
    ///         entry.remove();
    ///     }
    /// }
    /// assert_eq!(cache.len(), 2);
    /// assert_eq!(cache.get_blocking(&1).as_deref(), Some("oldad"));
    /// assert_eq!(store.lock().unwrap()[&2], "b");
    /// ```
    #[doc(alias = "write_back")]
    pub fn evict_by_hand(self) -> Self {
        self.by_hand()
    }
}

/// Eviction by hand.
impl<K, V, S> LockMap<K, V, S> {
    /// Returns the number of values beyond [`max_values`](Self::max_values), or the weight beyond
    /// [`max_weight`](Self::max_weight) (at most `usize::MAX`); 0 if the map has no bound.
    ///
    /// It includes values in use, which [`try_next_eviction`](Self::try_next_eviction) does not return. The answer is a
    /// snapshot. In a map that is [evicted by hand](crate::Builder::evict_by_hand) this call takes no lock, and is
    /// cheap enough to be made after each insertion. In any other map, and in one whose values end, have recorded ages
    /// or are weighed, it is as exact and as expensive as [`len`](Self::len).
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let cache: LockMap<u64, u64> = LockMap::builder().max_values(2).evict_by_hand().build();
    /// for key in 0..5 {
    ///     cache.insert_blocking(&key, key);
    /// }
    /// assert_eq!((cache.len(), cache.excess()), (5, 3));
    /// ```
    #[must_use]
    pub fn excess(&self) -> usize {
        self.core.excess()
    }

    /// Locks the key of the value that should be evicted next, as [`write`](Self::write) does. Returns `None` if all
    /// values are in use. The map does not have to be full.
    ///
    /// To evict the value, [remove](crate::Guard::remove) it; until the guard is dropped, callers that ask for the key
    /// wait, and then find no value. If the guard is dropped without removing the value, the value keeps its place in
    /// the order: its turn comes again after all the others. The guard itself does not count as a use of the value, so
    /// a caller that could not write a value to the disk, say, can drop the guard, and continue with the next one.
    ///
    /// It never returns a value in use: one whose key is held, waited for, or kept by a handle. An unpolled future does
    /// not use a value. As in an eviction, a value that was used recently loses its mark and is passed over at least
    /// once; if all have been used, the call returns one of them all the same. Values that are passed over keep their
    /// places in the order.
    ///
    /// Each shard has its own order. With one shard, the value is the one that an insertion beyond the bound would
    /// evict. With several, successive calls begin at successive shards. The guard always has a value. Several callers
    /// may evict at the same time: they get different values. But each of them counts the values that the others are
    /// about to remove as part of the [`excess`](Self::excess), and may evict one value more than needed.
    ///
    /// This call is meant for maps that are [evicted by hand](crate::Builder::evict_by_hand), but works for all maps
    /// that were built with [`max_values`](crate::Builder::max_values) or [`max_weight`](crate::Builder::max_weight).
    /// Other maps have no order of eviction, and the result is always `None`. Values that weigh nothing have no place in
    /// the order.
    ///
    /// This call waits for no holder, only for calls that hold an internal lock for a few dozen instructions. It
    /// examines each value at most four times.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let cache: LockMap<u64, &str> = LockMap::builder().max_values(1).shards(1).evict_by_hand().build();
    /// cache.insert_blocking(&1, "a");
    /// cache.insert_blocking(&2, "b");
    /// cache.get_blocking(&1); // marks it as used
    ///
    /// let mut next = cache.try_next_eviction().unwrap();
    /// assert_eq!((*next.key(), next.value()), (2, Some(&"b")));
    /// assert!(cache.try_read(&2).is_none()); // others wait
    /// next.remove();
    /// drop(next);
    /// assert_eq!((cache.len(), cache.excess()), (1, 0));
    /// ```
    #[must_use = "bind it: `let next = …` (`let _ = …` releases it at once)"]
    pub fn try_next_eviction(&self) -> Option<MapWriteGuard<'_, K, V, S>> {
        loop {
            let next = Guard::unmarked(TableRef::new(self), self.core.hold_next(Exclusive::NEW)?);
            if next.value().is_some() {
                return Some(next);
            } // otherwise the value has ended in between
        }
    }

    /// Locks the key of the value that should be evicted next, with an owned guard.
    ///
    /// Like [`try_next_eviction`](Self::try_next_eviction), but the guard keeps the map alive instead of borrowing it,
    /// so a task or a thread can write the value.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::LockMap;
    ///
    /// let cache: Arc<LockMap<u64, &str>> = Arc::new(LockMap::builder().max_values(1).evict_by_hand().build());
    /// cache.insert_blocking(&1, "a");
    /// let mut next = cache.try_next_eviction_arc().unwrap();
    /// std::thread::spawn(move || next.remove()).join().unwrap();
    /// assert!(cache.is_empty());
    /// ```
    #[cfg(target_has_atomic = "ptr")]
    #[must_use = "bind it: `let next = …` (`let _ = …` releases it at once)"]
    pub fn try_next_eviction_arc(self: &alloc::sync::Arc<Self>) -> Option<super::MapWriteGuardArc<K, V, S>> {
        loop {
            let next = Guard::unmarked(alloc::sync::Arc::clone(self), self.core.hold_next(Exclusive::NEW)?);
            if next.value().is_some() {
                return Some(next);
            } // otherwise the value has ended in between
        }
    }
}
