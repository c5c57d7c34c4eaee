use super::{LockMap, MapKind};
use crate::builder::Builder;
use crate::core::OnEvict;
use crate::evicted::Evicted;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Limits the number of values that the map keeps to `n`, except for values in use.
    ///
    /// When the map has more than `n` values, it evicts values that were not used recently. It does so when a key is
    /// released, or when a handle or a waiting future is dropped; a guard's `insert` evicts nothing by itself. An
    /// evicted value is dropped with no lock held.
    ///
    /// A value is in use while its key is held, waited for, or kept by a handle. Values in use count, but are never
    /// evicted: while `n` of them are in use, the map keeps only one other value, the one inserted last. While more are
    /// in use, the map exceeds the bound, and returns to it as they are released. The release of a key does not evict
    /// that key's own value, which may have just been inserted. An unpolled future, a
    /// [refresher](crate::LockMap::get_or_refresh_with), and a [`Batch`](crate::Batch) that has not been committed, do
    /// not use a value.
    ///
    /// Values are evicted by the calls that release keys, and several such calls can evict at the same time. In two
    /// cases a call leaves its excess to another call that is evicting at that moment: if evictions are nested several
    /// levels deep, because [`on_evict`](Builder::on_evict) or the drop of a value itself stores values in maps; or if
    /// 255 others are evicting values of the same shard at that moment (two, without `std`). The map may then exceed
    /// the bound until one of those other calls continues to evict.
    ///
    /// A value counts as recently used when its key is acquired, and when a call reads it, overwrites it, or fails
    /// because the value does not have the expected version. The first insertion of a value does not count, nor do
    /// [`handle`](crate::LockMap::handle), [`contains_key`](crate::LockMap::contains_key),
    /// [`status`](crate::LockMap::status), [`peek`](crate::LockMap::peek),
    /// [`for_each_key`](crate::LockMap::for_each_key), [`for_each_value`](crate::LockMap::for_each_value),
    /// [`walk`](crate::LockMap::walk) and [`retain`](crate::LockMap::retain).
    ///
    /// The bound is divided evenly among the shards, and each shard evicts by itself, so a shard that gets more than
    /// its share of the keys evicts before the map has `n` values. The map exceeds `n` only by the values in use,
    /// unless `n` is less than the number of [`shards`](Builder::shards): then each shard may keep one value. With one
    /// shard the bound is exact. If the number of shards is not set, it is reduced until each shard may have at least
    /// 256 values, or to 1. The order of eviction takes about 8 bytes for each value, and the record of evicted keys
    /// takes another byte.
    ///
    /// The order is that of SIEVE (Y. Zhang and others, "SIEVE is Simpler than LRU", NSDI 2024), with two exceptions.
    /// First, a value that is in use when its turn comes is taken out of the order, and returns to it as the newest
    /// when it is released. Second, some values are passed over more often. SIEVE passes over a value once if it was
    /// used since its last turn. Here, a value that is found used again at a later turn earns a pass, with which it
    /// survives one turn at which it was not used. It can save up two passes. A value whose key was evicted not long
    /// before the value was stored earns passes from its first use on, and has one from the start, so it is passed over
    /// once even if it is never used. To recognize such keys, the map remembers 16 bits of the hash of each evicted
    /// key, for about half as many keys as it has values.
    ///
    /// [`set_max_values`](crate::LockMap::set_max_values) changes the bound while the map is in use, and
    /// [`pop`](crate::LockMap::pop) removes and returns the value that would be evicted next.
    ///
    /// A map can also leave the eviction to its user, who may write the values to a disk first: see
    /// [`evict_by_hand`](Builder::evict_by_hand).
    ///
    /// Without a bound, no value is evicted to make room. Values can also end with [time](Builder::time_to_live).
    ///
    /// To bound the sum of the values' sizes instead of their number, use [`max_weight`](Builder::max_weight).
    ///
    /// # Panics
    /// If `n` is 0, or if [`max_weight`](Builder::max_weight) is set, too.
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
    pub fn max_values(mut self, n: usize) -> Self {
        assert!(n > 0, "keylatch: max_values must be at least 1, but is 0");
        assert!(
            self.hooks().as_ref().is_none_or(|hooks| hooks.weigher.is_none()),
            "keylatch: max_values cannot be combined with max_weight: a map has one bound; remove one of the two calls"
        );
        self.values(n)
    }

    /// Hands every value that the map evicts to `f`, with its key and the [reason](Evicted).
    ///
    /// Without this setting an evicted value is dropped. `f` is handed only values that the map itself removes: those
    /// that it evicts to meet its bound, including those that [`set_max_values`](crate::LockMap::set_max_values) or
    /// [`set_max_weight`](crate::LockMap::set_max_weight) evicts, and those that [end](Builder::time_to_live). It is
    /// not handed a value that a caller removes, pops, clears or overwrites, nor the values that are left when the map
    /// is dropped. In a map that has no bound, and whose values do not end, `f` is never called. If `on_evict` is
    /// called several times, only the last call takes effect.
    ///
    /// `f` owns the key and the value. The key is the one from the map's entry, even if keys are
    /// [recycled](Builder::recycle_keys). `f` is called by the thread or task whose call evicted the value, with no
    /// internal lock held, and after that call has released its keys and woken the admitted waiters. Several threads
    /// may call it at once. The call returns when `f` has returned, so keep `f` short. It may use the map, but its
    /// caller may hold other keys, so `f` should not wait for keys. Each value that it stores may evict another one.
    /// For that one, `f` is called before the insertion returns; if calls of `f` are nested too deep, `f` is called
    /// later, by one of the calls around it or by another thread that is evicting. To refer to the map in `f`, use a
    /// [`Weak`](alloc::sync::Weak).
    ///
    /// When `f` is called, the value has already left the map. Another caller may have stored a new one for the key,
    /// or, if `f` is about to write the value to a disk, may have read an older one from there. So `f` is for counting,
    /// for returning memory to a pool, and for other work that need not be ordered with later uses of the key. To write
    /// values back, use [`evict_by_hand`](Builder::evict_by_hand), which keeps the key locked meanwhile.
    ///
    /// An entry that is kept by an unpolled future, a [refresher](crate::LockMap::get_or_refresh_with) or a running
    /// [`for_each_value`](crate::LockMap::for_each_value) still needs its key. With this setting its value is not
    /// evicted until the future is polled or dropped, the refresh ends, or the visit releases the entry.
    ///
    /// # Panics
    /// If `f` panics, only the value that it was handed is lost. The other values of the same call are still evicted
    /// and handed over, and then the first panic resumes in the caller, unless the caller's thread is already
    /// panicking. Without `std` a panic is not caught.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    ///
    /// use keylatch::{Evicted, LockMap};
    ///
    /// let evicted = Arc::new(AtomicUsize::new(0));
    /// let counted = Arc::clone(&evicted);
    /// let pages: LockMap<u64, String> = LockMap::builder()
    ///     .max_values(2)
    ///     .shards(1)
    ///     .on_evict(move |key, page: String, cause| {
    ///         assert_eq!((key, page.as_str(), cause), (1, "a", Evicted::Size));
    ///         counted.fetch_add(1, Relaxed);
    ///     })
    ///     .build();
    /// for (key, page) in [(1, "a"), (2, "b"), (3, "c")] {
    ///     pages.insert_blocking(&key, page.to_string());
    /// }
    /// pages.remove_blocking(&2); // a removal is not an eviction
    /// assert_eq!((pages.len(), evicted.load(Relaxed)), (1, 1));
    /// ```
    #[doc(alias = "eviction_listener")]
    #[doc(alias = "removal_listener")]
    pub fn on_evict(mut self, f: impl Fn(K, V, Evicted) + Send + Sync + 'static) -> Self {
        self.hooks().get_or_insert_default().on_evict = Some(OnEvict::new(f));
        self
    }
}

/// A bound that can be changed, and explicit eviction.
impl<K, V, S> LockMap<K, V, S> {
    /// Returns the largest number of values that the map keeps; `None` if it was built without
    /// [`max_values`](Builder::max_values), even if it was built with [`max_weight`](Builder::max_weight).
    ///
    /// # Examples
    /// See [`set_max_values`](Self::set_max_values).
    #[must_use]
    pub fn max_values(&self) -> Option<usize> {
        self.core.max_values()
    }

    /// Changes the largest number of values that the map keeps.
    ///
    /// The new bound applies to every insertion after this call. If it is smaller, this call evicts the excess,
    /// starting with values that were not used recently; in a map that is [evicted by hand](Builder::evict_by_hand),
    /// only the [`excess`](Self::excess) changes. Values in use stay, and the map returns to its bound as they are
    /// released: see [`max_values`](Builder::max_values). If [`on_evict`](Builder::on_evict), or the drop of a value,
    /// makes such a call, that call may leave some of the excess to the one around it. If the new bound is larger,
    /// nothing changes until the map reaches it. If several calls run at once, one of their bounds applies to all
    /// shards in the end.
    ///
    /// The number of shards does not change. The bound is divided among them, and if `n` is less than their number,
    /// each shard may keep one value.
    ///
    /// A map keeps an order of eviction only if it was built with a bound. To set a bound later, build the map with
    /// `max_values(usize::MAX)`: it evicts nothing, and keeps the order, at about 8 bytes for each value. To lift a
    /// bound, set it to `usize::MAX`.
    ///
    /// This call waits for no holder, only for calls that hold an internal lock for a few dozen instructions. It evicts
    /// values one by one, so that other calls can run in between, and drops them with no lock held. If such a drop
    /// panics, the other values are still evicted, and then the first panic is resumed.
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
    /// pages.get_blocking(&1); // marks it as used
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

    /// Removes the value that would be evicted next, and returns it with its key; `None` if there is none. The map does
    /// not have to be full.
    ///
    /// It never removes a value in use: one whose key is held, waited for, or kept by a handle. It also passes over a
    /// value whose entry is kept by an unpolled future, a [refresher](Self::get_or_refresh_with) or a running
    /// [`for_each_value`](Self::for_each_value), because these still need the key. As in an eviction, a value that was
    /// used recently loses its mark and is passed over at least once. Values that are passed over keep their places in
    /// the order.
    ///
    /// Each shard has its own order. With one shard, the removed value is the one that an insertion beyond the bound
    /// would evict. With several, successive calls begin at successive shards, and each call removes the next value of
    /// the first shard that has one. So `None` means that no shard had a value to remove when the call looked at it.
    ///
    /// A map that was built without [`max_values`](Builder::max_values) or [`max_weight`](Builder::max_weight) has no
    /// order of eviction, so the result is always `None`. A map that was built with `max_values(usize::MAX)` never evicts
    /// by itself, but can be popped. Values that weigh nothing have no place in the order, and are never popped.
    ///
    /// This call waits for no holder, only for calls that hold an internal lock for a few dozen instructions. It
    /// examines each value at most four times. The returned key is the one in the map's entry, even if keys are
    /// [recycled](Builder::recycle_keys). A popped value affects [versions](LockMap#versions) as a removed one does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_values(100).shards(1).build();
    /// pages.insert_blocking(&1, "a");
    /// pages.insert_blocking(&2, "b");
    /// pages.insert_blocking(&3, "c");
    /// pages.get_blocking(&1); // marks it as used
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
