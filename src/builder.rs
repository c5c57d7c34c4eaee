use core::fmt;
use core::marker::PhantomData;

use crate::core::{Config, Core, CountKind, Observer, Rules};
use crate::fairness::Fairness;
use crate::plumbing::{Kind, sealed::Assembled};
use crate::wait_event::WaitEvent;

/// The default hasher: hashbrown's, which is `foldhash` in its "fast" form, seeded at random for each table.
///
/// It is quick, and its random seed makes accidental collisions as rare as they should be. It is not cryptographic:
/// somebody who can choose the keys *and* observe timings closely may find keys that collide. Colliding keys make
/// look-ups in their shard slower, never wrong. For keys from such a source choose `std::hash::RandomState` (SipHash),
/// with [`Builder::hasher`] or [`KeyedMutex::with_hasher`](crate::KeyedMutex::with_hasher); it costs a few nanoseconds
/// more.
pub type DefaultHashBuilder = hashbrown::DefaultHashBuilder;

/// Makes a lock table with settings of its own.
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
pub struct Builder<T, K, S = DefaultHashBuilder> {
    shards: Option<usize>,
    capacity: usize,
    spares: Option<usize>,
    recycle_keys: bool,
    values: Option<usize>,
    rules: Rules,
    observer: Option<Observer<K>>,
    hasher: S,
    makes: PhantomData<fn() -> (T, K)>,
}

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
            rules: Rules { fairness: Fairness::default(), counted },
            observer: None,
            hasher: DefaultHashBuilder::default(),
            makes: PhantomData,
        }
    }
}

impl<T: Kind, K, S> Builder<T, K, S> {
    /// Sets the number of shards: `n`, rounded up to a power of two.
    ///
    /// Keys that fall into different shards are found and released without touching the same memory. A shard takes 128
    /// bytes (one or two cache lines), in a [`LockMap`](crate::LockMap) 256, even while it is empty. The default is 64, or four per CPU if that is
    /// more; without `std`, which reports the number of CPUs, it is 16. On a single core use one shard. 0, or
    /// more than [`MAX_SHARDS`], makes [`build`](Builder::build) panic.
    ///
    /// A shard can count some four billion keys at once; locking one more panics.
    pub fn shards(mut self, n: usize) -> Self {
        self.shards = Some(n);
        self
    }

    /// Reserves memory for `n` keys at once. (For keys, not for waiters: memory for waiters is allocated when the first
    /// ones wait.)
    ///
    /// The room is kept: neither the table nor the pool of free entries is shrunk below it, unless
    /// [`pool_capacity`](Builder::pool_capacity) is set lower. Keys fall into shards at random; each shard gets room
    /// for its share and six standard deviations more, and for all `n` where that is less. With one shard the room is
    /// exact. The default is 0; more than [`MAX_CAPACITY`] makes [`build`](Builder::build) panic.
    pub fn capacity(mut self, n: usize) -> Self {
        self.capacity = n;
        self
    }

    /// Sets which request acquires a key that others wait for. The default is [`Fairness::default`].
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.rules.fairness = fairness;
        self
    }

    /// Sets how many free entries are kept for reuse, over all shards. 0 turns reuse off.
    ///
    /// An entry that is reused saves an allocation, and with [`recycle_keys`](Builder::recycle_keys) its key saves one
    /// more. A free entry takes as much memory as a live one. The default is 64 for each shard, or as many as
    /// [`capacity`](Builder::capacity) makes room for where that is more.
    ///
    /// `n` is divided evenly among the shards. Entries are allocated in chunks of up to 16, and a chunk is given back
    /// as a whole, when all of its entries are free and its shard has enough without them. So up to 30 free entries
    /// more may stay in each shard (14, where its part of `n` is 8 or less): when a burst is over and all keys are
    /// released, a table keeps at most `n + 30 * shards` entries. With 64 shards, and 64 for each, that is 6,016. A key
    /// that is still in use keeps its chunk besides, 15 free entries at most. What [`capacity`](Builder::capacity) has
    /// made beyond the pool is given back in the same way, as keys come and go.
    pub fn pool_capacity(mut self, n: usize) -> Self {
        self.spares = Some(n);
        self
    }

    /// Sets whether a free entry keeps its old key, to be overwritten by [`ToKey::to_key_into`](crate::ToKey::to_key_into).
    ///
    /// Then a `KeyedMutex<String>` that is locked with `&str` keys allocates nothing in steady state. But up to
    /// [`pool_capacity`](Builder::pool_capacity) old keys stay in memory, with all that they own. The default is `false`:
    /// a key is dropped when its entry dies.
    ///
    /// With `true`, `to_key_into` runs inside an internal lock. It must not use the table, which would deadlock, and it
    /// should be short; it may panic. That goes for what it calls, too: for a key type that has no
    /// [`clone_from`](Clone::clone_from) or `to_key_into` of its own, that is its `clone`, and the `drop` of the old
    /// key.
    pub fn recycle_keys(mut self, recycle: bool) -> Self {
        self.recycle_keys = recycle;
        self
    }

    /// Sets the hasher. The default is hashbrown's: see [`DefaultHashBuilder`].
    pub fn hasher<S2>(self, hasher: S2) -> Builder<T, K, S2> {
        let Builder { shards, capacity, spares, recycle_keys, values, rules, observer, hasher: _, makes } = self;
        Builder { shards, capacity, spares, recycle_keys, values, rules, observer, hasher, makes }
    }

    /// Calls `f` whenever a request begins to wait, and when its wait ends: to count, log or trace contention.
    ///
    /// A request that finds its key free is not reported and does no extra work. A request that fails at once, or acquires the key while its
    /// thread still spins, is not reported either: a wait begins when the request joins the key's queue, and from then on [`Status`](crate::Status)
    /// counts it as a waiter. It ends when the request takes its key (for a task, when it is polled
    /// again) or gives up. Each wait has both events, with the same [`id`](WaitEvent::id), unless its
    /// future is leaked. A call for several keys has a wait for each key that it waits for, one after another, and an upgrade one
    /// for the key that it has.
    ///
    /// `f` is called by the requesting thread or task, with no internal lock held, and after all wakers have run. The request continues
    /// when `f` has returned: so keep it short. It may be called by several threads at once. It may look at the
    /// table and use its `try_` forms, but should not wait for keys: the caller may hold some, and is in a queue. To refer to
    /// the table in `f`, use a [`Weak`](alloc::sync::Weak).
    ///
    /// Each table numbers its own waits. Only the last call of `on_wait` has an effect. A [`Latch`](crate::Latch) and a
    /// [`Striped`](crate::Striped) have no keys to name, and no observer.
    ///
    /// If `f` panics, the panic reaches the caller of the request, and any hold that the request has been granted is released. A future for one key
    /// that has begun to wait keeps waiting until it is dropped; a future for several keys has given up. (Without `std` a waker that
    /// panics may leave a wait without its second event.)
    ///
    /// While `f` is called for a request that has given up, the key's entry is kept, and counts one user more (see
    /// [`MAX_USERS`](crate::MAX_USERS)).
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

    /// The largest number of values.
    pub(crate) fn values(mut self, n: usize) -> Self {
        self.values = Some(n);
        self
    }

    /// Makes the table.
    ///
    /// # Panics
    /// If `shards` is 0 or more than [`MAX_SHARDS`], or if `capacity` is more than [`MAX_CAPACITY`].
    #[must_use]
    #[track_caller]
    pub fn build(self) -> T::Table<K, S> {
        let shards = self.shards.unwrap_or_else(|| match self.values {
            Some(values) => default_shards().min(most_shards(values)),
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
        let shards = shards.next_power_of_two();
        let config = Config {
            shards,
            capacity: self.capacity,
            spares: self.spares,
            recycle_keys: self.recycle_keys,
            values: self.values,
            rules: self.rules,
        };
        let core = Core::new(config, self.observer);
        T::Table::assemble(core, self.hasher)
    }
}

impl<T, K, S> fmt::Debug for Builder<T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("shards", &self.shards)
            .field("capacity", &self.capacity)
            .field("pool_capacity", &self.spares)
            .field("recycle_keys", &self.recycle_keys)
            .field("fairness", &self.rules.fairness)
            .field("max_values", &self.values)
            .field("on_wait", &self.observer.is_some())
            .finish_non_exhaustive()
    }
}

/// A number at which each has its share of the values, give or take a tenth.
fn most_shards(values: usize) -> usize {
    1 << (values / 256).max(1).ilog2()
}

fn default_shards() -> usize {
    #[cfg(feature = "std")]
    return crate::sync::cpus().map_or(16, |cpus| (4 * cpus).clamp(64, MAX_SHARDS));
    #[cfg(not(feature = "std"))]
    16
}
