use super::{LockMap, MapKind};
use crate::builder::Builder;
use crate::core::Weigher;

impl<V, K, S> Builder<MapKind<V>, K, S> {
    /// Limits the total weight of the values that the map keeps to `n`, except for values in use. `weigh` returns the
    /// weight of a value, such as its size in bytes.
    ///
    /// This setting takes the place of [`max_values`](Self::max_values). The order of eviction, the treatment of values
    /// in use, and the calls that count as a use are as documented there: values that were not used recently are
    /// evicted until the others weigh no more than `n`.
    ///
    /// # The weight of a value
    /// Like the function of [`expire_with`](Self::expire_with), `weigh` is called once for each writer that has stored
    /// or changed a value, when that writer releases the key or becomes a reader.
    /// [`value_mut`](crate::Guard::value_mut) counts as a change. Meanwhile the writer holds the key, but no internal
    /// lock, so `weigh` may use other keys, but a request for its own key would wait for ever. `weigh` should be quick:
    /// do not serialize a value to learn its size.
    ///
    /// The map remembers the result, and uses it until the value is changed again or leaves the map. So results that
    /// differ each time do no harm. A value that changes through interior mutability, such as a `Mutex`, keeps its old
    /// weight. Until the writer has released the key or become a reader, the new value has the weight of the previous
    /// one, or none if there was no value.
    ///
    /// | weight | |
    /// |---|---|
    /// | 0 | The value is never evicted because of the weight of others, and [`pop`](LockMap::pop) does not return it, because nothing would be gained. It can still [end](Self::time_to_live). |
    /// | more than `n` | The value is not kept. It stays while it is in use, and is evicted when its last user leaves (with [`on_evict`](Self::on_evict), only when no unpolled future keeps its entry). No other value is evicted for its sake. |
    /// | `u32::MAX` | The largest weight. If values may be bigger than 4 GiB, weigh them in units of 1 KiB. |
    ///
    /// A call that makes the map too heavy evicts as many values as the bound requires, and drops them or hands them to
    /// [`on_evict`](Self::on_evict), before it returns. They may be very many if one heavy value takes the place of
    /// light ones.
    ///
    /// # Shards
    /// By default, a map whose values are weighed has one shard, so that the bound is exact. With more
    /// [`shards`](Self::shards), the internal locks are less busy, but each shard has an equal part of `n`, and evicts
    /// by itself. A value that is heavier than that part is too heavy to be kept, and a shard that gets more than its
    /// share evicts before the map weighs `n`. So the part of a shard should be many times the weight of the heaviest
    /// value. If several threads use the map, even if they only read, one shard is slower than several, so set the
    /// number of shards.
    ///
    /// # Memory
    /// A value takes 16 bytes in addition to the 9 to 10 bytes of the order of eviction and its history. Calls for
    /// values take longer than in other maps, because they lock the shard two or three times: `get` up to twice as
    /// long, an insertion two to three times as long. A map whose values are not weighed pays nothing for this feature.
    ///
    /// # Panics
    /// If `n` is 0, or if [`max_values`](Self::max_values) is set, too.
    ///
    /// If `weigh` panics, the panic reaches the call that releases the key. The key is free then, and the value stays,
    /// with the weight that it had before the change; a new value weighs 1, and so does one that
    /// [`compute`](LockMap::compute) or a [`value_slot`](crate::Guard::value_slot) has stored. Without `std` a panic is
    /// not caught.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, String> =
    ///     LockMap::builder().max_weight(10, |_, page: &String| page.len().try_into().unwrap_or(u32::MAX)).build();
    /// pages.insert_blocking(&1, "four".to_string());
    /// pages.insert_blocking(&2, "seven..".to_string()); // eleven together: the first one goes
    /// assert!(!pages.contains_key(&1) && pages.contains_key(&2));
    ///
    /// pages.insert_blocking(&3, "x".repeat(11)); // heavier than the bound: not kept
    /// assert_eq!((pages.len(), pages.weight()), (1, 7));
    ///
    /// pages.write_blocking(&2).value_mut().unwrap().push('.'); // weighed again
    /// assert_eq!(pages.weight(), 8);
    /// ```
    #[doc(alias = "weigher")]
    #[doc(alias = "max_capacity")]
    #[doc(alias = "maximum_weight")]
    #[track_caller]
    pub fn max_weight(mut self, n: u64, weigh: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> Self {
        assert!(n > 0, "keylatch: max_weight must be at least 1, but is 0");
        assert!(
            !self.bounds_number(),
            "keylatch: max_weight cannot be combined with max_values: a map has one bound; remove one of the two calls"
        );
        self.hooks().get_or_insert_default().weigher = Some(Weigher::new(n, weigh));
        self
    }
}

/// Values that are weighed.
impl<K, V, S> LockMap<K, V, S> {
    /// Returns the total weight of the values; 0 if the map was built without [`max_weight`](Builder::max_weight).
    ///
    /// The sum includes values in use, with the weight that they had when they were last weighed, and excludes those
    /// that have [ended](Builder::time_to_live). It is added up shard by shard, while other calls run.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let carts: LockMap<u64, Vec<u64>> = LockMap::builder().max_weight(100, |_, cart: &Vec<u64>| cart.len() as u32).build();
    /// carts.insert_blocking(&1, vec![7, 8, 9]);
    /// let mut cart = carts.write_blocking(&1);
    /// cart.value_mut().unwrap().pop();
    /// assert_eq!(carts.weight(), 3); // weighed when its writer leaves
    /// drop(cart);
    /// assert_eq!(carts.weight(), 2);
    /// ```
    #[doc(alias = "weighted_size")]
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.core.weight()
    }

    /// Returns the largest total weight of the values that the map keeps; `None` if the map was built without
    /// [`max_weight`](Builder::max_weight).
    ///
    /// # Examples
    /// See [`set_max_weight`](Self::set_max_weight).
    #[must_use]
    pub fn max_weight(&self) -> Option<u64> {
        self.core.max_weight()
    }

    /// Changes the largest total weight of the values that the map keeps.
    ///
    /// It works like [`set_max_values`](Self::set_max_values): if the new bound is smaller, this call evicts the
    /// excess, starting with values that were not used recently, and values in use stay until they are released. A
    /// value that alone exceeds the new bound is evicted, however recently it was used, and no other value is evicted
    /// for its sake. No value is weighed again. The bound is divided among the shards, and a shard keeps no value that
    /// is heavier than its part: if `n` is less than the number of shards, some shards keep none that weighs anything.
    ///
    /// This call compares the weight of each value with the bound, one shard after another, and holds the shard's
    /// internal lock meanwhile.
    ///
    /// # Panics
    /// If `n` is 0, or if the map was built without `max_weight`. If drops of values or keys, or `on_evict`, panic, the
    /// other values are still evicted, and then the first panic resumes.
    ///
    /// # Examples
    /// ```
    /// use keylatch::LockMap;
    ///
    /// let pages: LockMap<u64, &str> = LockMap::builder().max_weight(100, |_, page: &&str| page.len() as u32).build();
    /// pages.insert_blocking(&1, "first");
    /// pages.insert_blocking(&2, "second");
    /// pages.get_blocking(&1); // marks it as used
    /// pages.set_max_weight(10); // memory is scarce
    /// assert_eq!((pages.max_weight(), pages.weight()), (Some(10), 5));
    /// assert!(pages.contains_key(&1));
    /// ```
    #[track_caller]
    pub fn set_max_weight(&self, n: u64) {
        assert!(n > 0, "keylatch: max_weight must be at least 1, but is 0");
        assert!(
            self.core.set_max_weight(n),
            "keylatch: set_max_weight needs a map that was built with max_weight, which weighs the values; build it \
            with max_weight(u64::MAX, …) if the bound comes later"
        );
    }
}
