use crate::evicted::Evicted;

/// The counters of a [`LockMap`](crate::LockMap) that was built with [`record_stats`](crate::Builder::record_stats):
/// the number of events of each kind since the map was built.
///
/// # Examples
/// See [`LockMap::stats`](crate::LockMap::stats).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stats {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) insertions: u64,
    pub(crate) evicted_for_size: u64,
    pub(crate) expired: u64,
    pub(crate) waits: u64,
}

impl Stats {
    /// Returns the number of look-ups that found a value. [`stats`](crate::LockMap::stats) says what a look-up is.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<u64, &str>::builder().record_stats().build();
    /// pages.insert_blocking(&1, "a");
    /// pages.get_blocking(&1);
    /// drop(pages.read_blocking(&1));
    /// assert_eq!(pages.stats().unwrap().hits(), 2);
    /// ```
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Returns the number of look-ups that found no value. [`stats`](crate::LockMap::stats) says what a look-up is.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<u64, &str>::builder().record_stats().build();
    /// pages.get_blocking(&1);
    /// drop(pages.get_or_insert_with_blocking(&1, || "a"));
    /// assert_eq!(pages.stats().unwrap().misses(), 2);
    /// ```
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Returns the number of values that were stored for keys without a value. Overwriting or changing a value is not
    /// an insertion.
    ///
    /// # Examples
    /// ```
    /// let pages = keylatch::LockMap::<u64, &str>::builder().record_stats().build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&1, "b"); // overwrites
    /// assert_eq!(pages.stats().unwrap().insertions(), 1);
    /// ```
    #[must_use]
    pub fn insertions(&self) -> u64 {
        self.insertions
    }

    /// Returns the number of values that the map evicted for the reason `cause`. Values that a caller removes do not
    /// count, even if they are [popped](crate::LockMap::pop) or [evicted by hand](crate::Builder::evict_by_hand). An
    /// expired value counts as soon as the map notices that it has expired.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Evicted, LockMap};
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_values(1).shards(1).record_stats().build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// assert_eq!(pages.stats().unwrap().evictions(Evicted::Size), 1);
    /// ```
    #[must_use]
    pub fn evictions(&self, cause: Evicted) -> u64 {
        match cause {
            Evicted::Size => self.evicted_for_size,
            Evicted::Expired => self.expired,
        }
    }

    /// Returns the number of requests and upgrades that could not proceed at once, and joined the queue of their key.
    ///
    /// A call for several keys may wait several times. A blocked thread that gets its key while it spins, before it
    /// queues, is not counted.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let pages = keylatch::LockMap::<u64, &str>::builder().record_stats().build();
    /// let writer = pages.write_blocking(&1);
    /// assert!(pages.try_read(&1).is_none()); // does not wait
    /// assert!(pages.try_read_for(&1, Duration::from_millis(1)).is_none());
    /// assert_eq!(pages.stats().unwrap().waits(), 1);
    /// # drop(writer);
    /// ```
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }
}
