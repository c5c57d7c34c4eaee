use core::fmt;
use core::marker::PhantomData;

use crate::core::{Config, Core, CountKind, LimitOf, Observer, Payload, Rules, Weigher};
use crate::fairness::Fairness;
use crate::plumbing::{Kind, sealed::Assembled, sealed::KindInside};
use crate::wait_event::WaitEvent;

/// The default hasher: hashbrown's, which is `foldhash` in its "fast" form, seeded at random for each table.
///
/// It is quick, and its random seed keeps accidental collisions rare. It is not cryptographic: an attacker who can
/// choose the keys *and* observe timings closely may find keys that collide. Colliding keys make look-ups in their
/// shard slower, never wrong. For keys from an untrusted source choose `std::hash::RandomState` (SipHash), with
/// [`Builder::hasher`] or [`KeyedMutex::with_hasher`](crate::KeyedMutex::with_hasher); it costs a few nanoseconds more.
pub type DefaultHashBuilder = hashbrown::DefaultHashBuilder;

/// Builds a lock table with settings other than the defaults.
///
/// # Examples
/// ```
/// use keylatch::{Fairness, KeyedMutex};
///
/// let locks: KeyedMutex<String> = KeyedMutex::builder()
///     .shards(8)
///     .fairness(Fairness::Fifo)
///     .recycle_keys(true)
///     .build();
/// # drop(locks);
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<T: Kind, K, S = DefaultHashBuilder> {
    shards: Option<usize>,
    capacity: usize,
    spares: Option<usize>,
    recycle_keys: bool,
    values: Option<usize>,
    by_hand: bool,
    counts: bool,
    rules: Rules,
    observer: Option<Observer<K>>,
    limit_of: Option<LimitOf<K>>,
    hooks: HooksOf<T, K>,
    hasher: S,
    makes: PhantomData<fn() -> (T, K)>,
}

/// The user's functions of a table of the kind `T`, if there are any.
type HooksOf<T, K> = <<T as KindInside>::Payload as Payload>::Hooks<K>;

/// The largest number of shards that a table can have.
pub const MAX_SHARDS: usize = 1 << 16;

/// The largest number of keys that [`Builder::capacity`] can make room for.
pub const MAX_CAPACITY: usize = if usize::BITS < 64 { 1 << 24 } else { 1 << 31 };

impl<T: Kind, K> Builder<T, K> {
    pub(crate) fn new(counted: CountKind) -> Self {
        Builder {
            shards: None,
            capacity: 0,
            spares: None,
            recycle_keys: false,
            values: None,
            by_hand: false,
            counts: false,
            rules: Rules { fairness: Fairness::default(), counted },
            observer: None,
            limit_of: None,
            hooks: HooksOf::<T, K>::default(),
            hasher: DefaultHashBuilder::default(),
            makes: PhantomData,
        }
    }
}

impl<T: Kind, K, S> Builder<T, K, S> {
    /// Sets the number of shards: `n`, rounded up to a power of two.
    ///
    /// Keys in different shards are found and released without touching the same memory. A shard takes 128 bytes (one
    /// or two cache lines), in a [`LockMap`](crate::LockMap) 256, even while it is empty. The default is 64, or four
    /// per CPU if that is more; if the number of CPUs is not known, as without `std`, it is 16. A `LockMap` with a
    /// bound may have fewer: [`max_values`](Builder::max_values) says how many, and with
    /// [`max_weight`](Builder::max_weight) it has one. On a single core use one shard. If `n` is 0 or more than
    /// [`MAX_SHARDS`], [`build`](Builder::build) panics.
    ///
    /// A shard can hold about four billion keys at once; locking one more panics.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::builder().shards(1).build();
    /// assert!(locks.is_empty());
    /// ```
    pub fn shards(mut self, n: usize) -> Self {
        self.shards = Some(n);
        self
    }

    /// Reserves memory for `n` keys at once. (This does not reserve memory for waiters, which is allocated when the
    /// first waiters arrive.)
    ///
    /// The reservation is permanent: neither the table nor the pool of free entries shrinks below it, unless
    /// [`pool_capacity`](Builder::pool_capacity) is set lower. Keys are spread over the shards at random, so each shard
    /// reserves its share plus six standard deviations and six keys, but no more than `n`. With one shard the
    /// reservation is exact. The default is 0. If `n` is more than [`MAX_CAPACITY`], [`build`](Builder::build) panics.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::builder().capacity(1000).build();
    /// assert!(locks.is_empty());
    /// ```
    pub fn capacity(mut self, n: usize) -> Self {
        self.capacity = n;
        self
    }

    /// Sets the policy that decides which request acquires a contended key. The default is [`Fairness::Adaptive`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Fairness, KeyedMutex};
    ///
    /// let in_order = KeyedMutex::<u64>::builder().fairness(Fairness::Fifo).build();
    /// # drop(in_order);
    /// ```
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.rules.fairness = fairness;
        self
    }

    /// Sets the number of free entries that are kept for reuse, in all shards together. 0 turns reuse off.
    ///
    /// Reusing an entry saves an allocation; with [`recycle_keys`](Builder::recycle_keys) reusing its key saves
    /// another. A free entry takes as much memory as a live one. The default is 64 for each shard, or as many as
    /// [`capacity`](Builder::capacity) makes room for, if that is more.
    ///
    /// `n` is divided evenly among the shards. Entries are allocated in chunks of up to 16, and a chunk is freed as a
    /// whole, when all of its entries are free and its shard has enough free entries without them. So each shard may
    /// keep up to 30 free entries more than its share of `n` (14, if the share is 8 or less): after a burst, when all
    /// keys are released, a table keeps at most `n + 30 * shards` entries. With 64 shards, and 64 entries for each,
    /// that is 6,016. A key that is still in use also keeps its chunk, with at most 15 free entries. Entries that
    /// [`capacity`](Builder::capacity) has reserved beyond the pool are freed in the same way, as keys are locked and
    /// released.
    ///
    /// # Examples
    /// ```
    /// let frugal = keylatch::KeyedMutex::<u64>::builder().pool_capacity(0).build();
    /// assert!(frugal.is_empty());
    /// ```
    pub fn pool_capacity(mut self, n: usize) -> Self {
        self.spares = Some(n);
        self
    }

    /// Sets whether a free entry keeps its old key, to be overwritten by
    /// [`ToKey::to_key_into`](crate::ToKey::to_key_into).
    ///
    /// With `true`, a `KeyedMutex<String>` that is locked with `&str` keys allocates nothing in steady state. But up to
    /// [`pool_capacity`](Builder::pool_capacity) old keys stay in memory, with all that they own. The default is
    /// `false`: a key is dropped when its entry dies.
    ///
    /// With `true`, `to_key_into` runs inside an internal lock. It must not use the table, which would deadlock, and it
    /// should be short; it may panic. The same rules apply to everything that it calls: for a key type without its own
    /// [`clone_from`](Clone::clone_from) or `to_key_into`, these are its `clone` and the `drop` of the old key.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::builder().recycle_keys(true).build();
    /// drop(locks.lock_blocking("a"));
    /// drop(locks.lock_blocking("b")); // overwrites the old key in place
    /// ```
    pub fn recycle_keys(mut self, recycle: bool) -> Self {
        self.recycle_keys = recycle;
        self
    }

    /// Sets the hasher. The default is hashbrown's: see [`DefaultHashBuilder`].
    ///
    /// # Examples
    /// ```
    /// use std::hash::RandomState;
    ///
    /// let locks = keylatch::KeyedMutex::<String>::builder().hasher(RandomState::new()).build(); // SipHash
    /// assert!(locks.is_empty());
    /// ```
    pub fn hasher<S2>(self, hasher: S2) -> Builder<T, K, S2> {
        Builder {
            shards: self.shards,
            capacity: self.capacity,
            spares: self.spares,
            recycle_keys: self.recycle_keys,
            values: self.values,
            by_hand: self.by_hand,
            counts: self.counts,
            rules: self.rules,
            observer: self.observer,
            limit_of: self.limit_of,
            hooks: self.hooks,
            hasher,
            makes: self.makes,
        }
    }

    /// Calls `f` whenever a request begins to wait, and when its wait ends. Use it to count, log or trace contention.
    ///
    /// A request that finds its key free is not reported and does no extra work. A request that fails at once, or
    /// acquires the key while its thread spins before queueing, is not reported either: a wait begins when the request
    /// joins the key's queue, and then [`Status`](crate::Status) counts it as a waiter. It ends when the request takes
    /// its key (for a task, when it is polled again) or gives up. Each wait has both events, with the same
    /// [`id`](WaitEvent::id), unless its future is leaked. A call for several keys has a separate wait for each key
    /// that it waits for, one after another. An upgrade that waits is reported as a wait for its own key.
    ///
    /// `f` is called by the requesting thread or task, with no internal lock held, and after all wakers have run. The
    /// request continues when `f` has returned, so keep `f` short. Several threads may call it at once. It may query
    /// the table and use its `try_` forms, but should not wait for keys: the caller may hold some, and is in a queue.
    /// To refer to the table in `f`, use a [`Weak`](alloc::sync::Weak).
    ///
    /// Each table numbers its own waits. If `on_wait` is called several times, only the last call takes effect. A
    /// [`Latch`](crate::Latch) and a [`Striped`](crate::Striped) have no observer.
    ///
    /// If `f` panics, the panic reaches the caller of the request, and any hold that the request has been granted is
    /// released. A future for one key that has begun to wait keeps waiting until it is dropped; a future for several
    /// keys has given up. (Without `std` a waker that panics may leave a wait without its second event.)
    ///
    /// While `f` is called for a request that has given up, the call keeps the key's entry, and counts as one of its
    /// users (see [`MAX_USERS`](crate::MAX_USERS)).
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    ///
    /// use keylatch::{KeyedMutex, WaitPhase};
    ///
    /// let waits = Arc::new(AtomicUsize::new(0));
    /// let counted = Arc::clone(&waits);
    /// let locks = KeyedMutex::<String>::builder()
    ///     .on_wait(move |event| {
    ///         if event.phase() == WaitPhase::Started {
    ///             counted.fetch_add(1, Relaxed);
    ///         }
    ///     })
    ///     .build();
    ///
    /// let guard = locks.lock_blocking("a"); // free: nobody waits
    /// assert!(locks.try_lock_for("a", std::time::Duration::from_millis(1)).is_none());
    /// assert_eq!(waits.load(Relaxed), 1);
    /// # drop(guard);
    /// ```
    pub fn on_wait(mut self, f: impl Fn(&WaitEvent<'_, K>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer::new(f));
        self
    }

    /// Sets the function that returns the number of permits of a key.
    pub(crate) fn limit_of(mut self, f: impl Fn(&K) -> u32 + Send + Sync + 'static) -> Self {
        self.limit_of = Some(LimitOf::new(f));
        self
    }

    /// Returns the user's functions.
    pub(crate) fn hooks(&mut self) -> &mut HooksOf<T, K> {
        &mut self.hooks
    }

    /// Sets the largest number of values.
    pub(crate) fn values(mut self, n: usize) -> Self {
        self.values = Some(n);
        self
    }

    /// Returns whether the number of values is bounded.
    pub(crate) fn bounds_number(&self) -> bool {
        self.values.is_some()
    }

    /// Leaves eviction to the table's user.
    pub(crate) fn by_hand(mut self) -> Self {
        self.by_hand = true;
        self
    }

    /// Gives the table counters.
    pub(crate) fn counts(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Builds the table.
    ///
    /// # Panics
    /// If `shards` is 0 or more than [`MAX_SHARDS`], if `capacity` is more than [`MAX_CAPACITY`], if a map is [evicted
    /// by hand](Builder::evict_by_hand) but has neither [`max_values`](Builder::max_values) nor
    /// [`max_weight`](Builder::max_weight), or if a map whose values [end](Builder::time_to_live), or that [records
    /// their ages](Builder::record_ages), has no clock and there is no default one.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::builder().build();
    /// assert!(locks.try_lock("a").is_some());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn build(mut self) -> T::Table<K, S> {
        let shards = self.shards.unwrap_or_else(|| match self.values {
            Some(values) => default_shards().min(most_shards(values)),
            None if T::Payload::weigher(&self.hooks).is_some() => 1,
            None => default_shards(),
        });
        assert!(
            (1..=MAX_SHARDS).contains(&shards),
            "keylatch: shards must be between 1 and {MAX_SHARDS}, but is {shards}"
        );
        assert!(
            self.capacity <= MAX_CAPACITY,
            "keylatch: capacity must be between 0 and {MAX_CAPACITY}, but is {}",
            self.capacity
        );
        assert!(
            !self.by_hand || self.values.is_some() || T::Payload::weigher(&self.hooks).is_some(),
            "keylatch: evict_by_hand needs max_values or max_weight, the bound above which `excess` reports an excess"
        );
        let shards = shards.next_power_of_two();
        let config = Config {
            shards,
            capacity: self.capacity,
            spares: self.spares,
            recycle_keys: self.recycle_keys,
            values: self.values,
            by_hand: self.by_hand,
            counts: self.counts,
            rules: self.rules,
        };
        T::Payload::complete(&mut self.hooks);
        let core = Core::new(config, self.observer, self.limit_of, self.hooks);
        T::Table::assemble(core, self.hasher)
    }
}

impl<T: Kind, K, S> fmt::Debug for Builder<T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("shards", &self.shards)
            .field("capacity", &self.capacity)
            .field("pool_capacity", &self.spares)
            .field("recycle_keys", &self.recycle_keys)
            .field("fairness", &self.rules.fairness)
            .field("max_values", &self.values)
            .field("max_weight", &T::Payload::weigher(&self.hooks).map(Weigher::most))
            .field("evict_by_hand", &self.by_hand)
            .field("record_stats", &self.counts)
            .field("on_evict", &T::Payload::hooks(&self.hooks).is_some_and(|hooks| hooks.on_evict.is_some()))
            .field("expires", &T::Payload::time(&self.hooks).is_some_and(|time| time.ends()))
            .field("record_ages", &T::Payload::time(&self.hooks).is_some_and(|time| time.ages))
            .field("on_wait", &self.observer.is_some())
            .field("permits_for", &self.limit_of.is_some())
            .finish_non_exhaustive()
    }
}

/// Returns the largest power of two of shards that leaves room for at least 256 values in each, or 1 if there is no
/// such number. With 256 values per shard, the number of keys that fall into a shard has a standard deviation of a
/// sixteenth of that.
fn most_shards(values: usize) -> usize {
    1 << (values / 256).max(1).ilog2()
}

fn default_shards() -> usize {
    #[cfg(feature = "std")]
    return crate::sync::cpus().map_or(16, |cpus| (4 * cpus).clamp(64, MAX_SHARDS));
    #[cfg(not(feature = "std"))]
    16
}
