use super::MapKind;
use crate::builder::Builder;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Sets the largest number of values that the map keeps: `n`, not counting those in use.
    ///
    /// Values in use count, but are never evicted: with `n` of them in use the map keeps no other one but the value that was inserted
    /// last, and with more the bound gives way. When there are too many, values go that were not used lately. That is looked after when a key is released, or a handle or a
    /// waiting future of it goes; never at once when a guard inserts. What is evicted is dropped with no lock held.
    ///
    /// A value stays while somebody holds its key, waits for it, or has a handle of it; and the release of a key does not evict that
    /// key's own value, which may have just been inserted. If all values are in use the bound gives way, and is restored as they
    /// are released. An unpolled future and a [`Batch`](crate::Batch) that has not been committed are not in use.
    ///
    /// To acquire a key that has a value is a use of the value, and so are the calls that read it, write over it, or find it in
    /// conflict. To insert it is none, nor are [`handle`](crate::LockMap::handle), [`contains_key`](crate::LockMap::contains_key),
    /// [`status`](crate::LockMap::status), [`for_each_key`](crate::LockMap::for_each_key),
    /// [`for_each_value`](crate::LockMap::for_each_value) and [`retain`](crate::LockMap::retain).
    ///
    /// The bound is divided evenly among the shards, each of which evicts by itself: a shard that gets more than its share of the
    /// keys evicts before the map has `n` values. It never has more, but for those in use, and for one in each shard where `n` is
    /// less than the number of [`shards`](Builder::shards). With one shard it is exact. Where the number of shards is not given, it
    /// is such that each may have 256 values, if that makes it smaller. The order takes 8 bytes for each value.
    ///
    /// The order is that of SIEVE (Y. Zhang and others, "SIEVE is Simpler than LRU", NSDI 2024), but that what is in use when its turn
    /// comes is taken out of it, and is put in again as the newest when it is released.
    ///
    /// Without this nothing is ever evicted. Values that end with time are the user's:
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
    /// pages.get_blocking(&1); // a use
    /// pages.insert_blocking(&3, "c");
    /// assert!(pages.contains_key(&1) && !pages.contains_key(&2) && pages.contains_key(&3));
    /// ```
    #[track_caller]
    pub fn max_values(self, n: usize) -> Self {
        assert!(n > 0, "keylatch: max_values must be at least 1, but is 0");
        self.values(n)
    }
}
