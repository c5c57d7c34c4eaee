use super::{LockMap, MapKind};
use crate::builder::Builder;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Sets the largest number of values that the map keeps to `n`, except for values in use.
    ///
    /// When the map has more than `n` values, it evicts values that were not used recently. It does so when a key is
    /// released, or when a handle or a waiting future is dropped; a guard's `insert` evicts nothing by itself. An
    /// evicted value is dropped with no lock held.
    ///
    /// A value is in use while its key is held, waited for, or kept by a handle. Values in use count, but are never
    /// evicted: while `n` of them are in use, the map keeps only one other value, the one inserted last, and while more
    /// are in use, the map exceeds the bound, and returns to it as they are released. The release of a key does not
    /// evict that key's own value, which may have just been inserted. An unpolled future, and a [`Batch`](crate::Batch)
    /// that has not been committed, do not use a value.
    ///
    /// A value counts as recently used when its key is acquired, and when a call reads it, overwrites it, or finds it
    /// in conflict. Its first insertion does not count, nor do [`handle`](crate::LockMap::handle),
    /// [`contains_key`](crate::LockMap::contains_key), [`status`](crate::LockMap::status),
    /// [`peek`](crate::LockMap::peek), [`for_each_key`](crate::LockMap::for_each_key),
    /// [`for_each_value`](crate::LockMap::for_each_value) and [`retain`](crate::LockMap::retain).
    ///
    /// The bound is divided evenly among the shards, and each shard evicts by itself, so a shard that gets more than
    /// its share of the keys evicts before the map has `n` values. The map exceeds `n` only by the values in use, and,
    /// if `n` is less than the number of [`shards`](Builder::shards), by one value in each shard. With one shard the
    /// bound is exact. If the number of shards is not set, it is reduced so that each shard may have 256 values. The
    /// order of eviction takes 8 bytes for each value.
    ///
    /// The order is that of SIEVE (Y. Zhang and others, "SIEVE is Simpler than LRU", NSDI 2024), except that a value
    /// that is in use when its turn comes is taken out of the order, and returns to it as the newest when it is
    /// released.
    ///
    /// [`set_max_values`](crate::LockMap::set_max_values) changes the bound while the map is in use, and
    /// [`pop`](crate::LockMap::pop) removes and returns the value that would be evicted next.
    ///
    /// Without this setting no value is ever evicted. Values that expire with time are the caller's task: use
    /// [`retain`](crate::LockMap::retain) with a time in `V`.
    ///
    /// # Panics
    /// If `n` is 0.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_values(2).shards(1).build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// pages.get_blocking(&1); // counts as a use
    /// pages.insert_blocking(&3, "c");
    /// assert!(pages.contains_key(&1) && !pages.contains_key(&2) && pages.contains_key(&3));
    /// ```
    #[track_caller]
    pub fn max_values(self, n: usize) -> Self {
        assert!(n > 0, "keylatch: max_values must be at least 1, but is 0");
        self.values(n)
    }
}

/// A bound that changes, and eviction by hand.
impl<K, V, S> LockMap<K, V, S> {
    /// Returns the largest number of values that the map keeps; `None` if it was built without
    /// [`max_values`](Builder::max_values).
    ///
    /// # Examples
    /// See [`set_max_values`](Self::set_max_values).
    #[must_use]
    pub fn max_values(&self) -> Option<usize> {
        self.core.max_values()
    }

    /// Changes the largest number of values that the map keeps.
    ///
    /// Every insertion after this call keeps to the new bound. If it is smaller, this call evicts what is too much, beginning with the
    /// values that were not used lately; values in use stay, and the bound is restored as they are released: all as
    /// [`max_values`](Builder::max_values) says. If the bound is larger, nothing happens until it is reached. Of several calls at the
    /// same time one wins, in all shards.
    ///
    /// The number of shards stays, among which the bound is divided: where `n` is less than that, each shard may keep one value.
    ///
    /// Only a map that was built with `max_values` has an order of eviction, and so a bound to change. For a bound that comes later,
    /// build the map with `max_values(usize::MAX)`, which never evicts and keeps the order, at 8 bytes for each value; to lift a bound,
    /// set it to `usize::MAX`.
    ///
    /// It waits for nobody but callers that are inside the map for some dozen instructions. Each value is evicted by a step of its
    /// own, so others get in between; values are dropped with no lock held. If such a drop panics, all are still evicted, and the
    /// first panic goes on in the end.
    ///
    /// # Panics
    /// If `n` is 0, or if the map was built without `max_values`.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_values(100).shards(1).build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// pages.get_blocking(&1); // a use
    /// pages.set_max_values(1); // memory is scarce
    /// assert_eq!(pages.max_values(), Some(1));
    /// assert!(pages.contains_key(&1) && !pages.contains_key(&2));
    /// ```
    #[track_caller]
    pub fn set_max_values(&self, n: usize) {
        assert!(n > 0, "keylatch: max_values must be at least 1, but is 0");
        assert!(
            self.core.set_max_values(n),
            "keylatch: set_max_values needs a map that was built with max_values, which keeps the order of eviction; \
            build it with max_values(usize::MAX) if the bound comes later"
        );
    }

    /// Removes the value that eviction would take next, and returns it with its key. `None` if there is none.
    ///
    /// It never takes a value in use: one whose key somebody holds, waits for, or has a handle of. It also passes over a value whose
    /// entry an unpolled future or a running [`for_each_value`](Self::for_each_value) keeps, because the key is still needed there.
    /// Like eviction, it passes over values that were used lately, once: they lose that mark. Values that it passes over keep their
    /// places in the order. It does not matter whether the map is full.
    ///
    /// Each shard has an order of its own. With one shard, the next value is the one that an insertion beyond the bound would evict.
    /// With several, the calls go to the shards in turn, and each takes the next value of its shard, or of the first shard behind it
    /// that has one. So `None` means that no shard had a value to pop when the call came to it.
    ///
    /// A map that was built without [`max_values`](Builder::max_values) evicts nothing, and has no order: there, it is always `None`.
    /// `max_values(usize::MAX)` gives a map that never evicts by itself, and can be popped.
    ///
    /// It waits for nobody but callers that are inside the map for some dozen instructions. A call passes over no value more than
    /// twice. The key is the one that the entry was made with, taken out also where keys are
    /// [recycled](Builder::recycle_keys). To the value's versions it is a removal.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_values(100).shards(1).build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// pages.insert_blocking(&3, "c");
    /// pages.get_blocking(&1); // a use
    /// let reader = pages.read_blocking(&2);
    /// assert_eq!(pages.pop(), Some((3, "c")));
    /// drop(reader);
    /// assert_eq!(pages.pop(), Some((1, "a")));
    /// ```
    #[doc(alias = "pop_lru")]
    #[doc(alias = "remove_lru")]
    #[doc(alias = "evict")]
    pub fn pop(&self) -> Option<(K, V)> {
        self.core.pop()
    }
}
