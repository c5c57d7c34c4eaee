use super::{LockMap, MapKind};
use crate::builder::Builder;
use crate::stats::Stats;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Makes the map count hits, misses, insertions, evictions and waits: see [`stats`](crate::LockMap::stats).
    ///
    /// By default nothing is counted, and an event costs only a comparison. With this setting each counted event takes
    /// an internal lock for a few instructions. Each shard has its own counters, in one or two separate cache lines.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<u64, &str>::builder().record_stats().build();
    /// assert_eq!(pages.get_blocking(&1), None);
    /// assert_eq!(pages.stats().unwrap().misses(), 1);
    /// ```
    pub fn record_stats(self) -> Self {
        self.counts()
    }
}

/// Counters.
impl<K, V, S> LockMap<K, V, S> {
    /// Returns the numbers of hits, misses, insertions, evictions and waits so far; `None` if the map was built without
    /// [`record_stats`](Builder::record_stats).
    ///
    /// A look-up is a read: a call of [`get`](Self::get), [`get_versioned`](Self::get_versioned),
    /// [`get_or_insert_with`](Self::get_or_insert_with) or another `get_or_…`, and each key that is acquired by
    /// [`read`](Self::read), [`read_recursive`](Self::read_recursive) or [`read_many`](Self::read_many), in all of
    /// their forms, including those of handles. It is a hit if there is a value when the call first has the key, and
    /// otherwise a miss. So a `get_or_insert_with` that first acquires a key without a value, and then waits until
    /// another caller has made the value, is a miss. A call that does not get the key, because it fails or its future
    /// is dropped, is neither.
    ///
    /// Calls that change values or might do so, such as [`write`](Self::write),
    /// [`upgradable_read`](Self::upgradable_read), [`insert`](Self::insert), [`update`](Self::update) and
    /// [`batch`](Self::batch), are not counted. Nor are [`read_write_many`](Self::read_write_many), and the calls that
    /// do not count as a use of a value, such as [`peek`](Self::peek), [`walk`](Self::walk) and
    /// [`for_each_value`](Self::for_each_value).
    ///
    /// The numbers only grow. They are added up shard by shard, while other calls run, so two numbers need not be from
    /// the same instant. To get the numbers for an interval, subtract those at its beginning from those at its end.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Evicted, LockMap};
    ///
    /// let pages: LockMap<u64, String> = LockMap::builder().max_values(2).shards(1).record_stats().build();
    /// for page in [1, 2, 1, 3, 1] {
    ///     drop(pages.get_or_insert_with_blocking(&page, || format!("page {page}")));
    /// }
    /// let stats = pages.stats().unwrap();
    /// assert_eq!((stats.hits(), stats.misses()), (2, 3));
    /// assert_eq!((stats.insertions(), stats.evictions(Evicted::Size), stats.waits()), (3, 1, 0));
    /// ```
    #[doc(alias = "metrics")]
    #[doc(alias = "hit_rate")]
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.core.stats()
    }
}
