use super::MapKind;
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
    /// [`for_each_key`](crate::LockMap::for_each_key), [`for_each_value`](crate::LockMap::for_each_value) and
    /// [`retain`](crate::LockMap::retain).
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
