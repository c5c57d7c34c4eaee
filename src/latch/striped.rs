use alloc::boxed::Box;
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::forms::forms;
use super::many::{LatchAcquireMany, LatchManyMode, Requests};
use super::request::Request;
use crate::builder::DefaultHashBuilder;
use crate::core::LatchWord;
use crate::fairness::Fairness;
use crate::mode::{Exclusive, Mode, ReadOrWrite, Shared, Upgradable};
use crate::status::Status;

/// The largest number of stripes of a [`Striped`]: 2^28 on 64-bit targets, 2^20 on 32-bit ones.
pub const MAX_STRIPES: usize = if usize::BITS < 64 { 1 << 20 } else { 1 << 28 };

/// A fixed array of [latches](crate::Latch), indexed by a key's hash: locks for any number of keys, in a fixed amount
/// of memory.
///
/// A key is only hashed; it is not stored, cloned or compared. So a key may be unsized, or of a type that is not
/// `Clone`, and nothing is allocated for it.
///
/// # Two keys may share a stripe
/// **Keys that share a stripe exclude each other, and you cannot tell from the keys which ones do.** So a caller that
/// holds one key and requests another in a separate call may wait for itself, and two such callers may wait for each
/// other. Acquire several keys in one call: [`read_many`](Self::read_many), [`write_many`](Self::write_many) and
/// [`read_write_many`](Self::read_write_many) take each stripe once, in an order that is the same for all calls. If
/// only equal keys may exclude each other, use a [`KeyedRwLock`](crate::KeyedRwLock).
///
/// # Number of stripes
/// With `s` stripes, if `n` keys are held at a time, a request finds its stripe taken by another key with a probability
/// of about `n / s`. A stripe takes 8 bytes (4 on 32-bit targets). With 64 stripes (512 bytes) for each key that is
/// held at a time, one request in 64 waits needlessly.
///
/// # Keys
/// `K` is the type of the keys, and a call takes a reference to any type that `K` can be [borrowed](Borrow) as, like
/// the calls of a `HashMap`: `Striped<str>`, `Striped<String>` and `Striped<Arc<str>>` are locked with `"a"`,
/// `Striped<u64>` with `&7`. The borrowed form must hash as the owned one does, or the two are in different stripes.
/// `Striped<String>` accepts both `&str` and `&String`, `Striped<str>` only `&str`.
///
/// # Limits
/// A `static` needs a `LazyLock`. The locks are not reentrant and have no owned guards. A [deadlock
/// detector](crate::deadlock) can watch them, and its reports show the addresses of stripes. For forgotten guards and
/// futures, and for moves, see [`Latch`](crate::Latch#moving-dropping-forgetting).
///
/// The policy is [`Fairness::Adaptive`], unless [`fairness`](StripedBuilder::fairness) sets another.
///
/// # Panics
/// Every form panics if the stripe has [`MAX_USERS`](crate::MAX_USERS) holders and waiters already, or if the key's
/// `Hash` panics.
///
/// # Examples
/// ```
/// use keylatch::Striped;
///
/// let files = Striped::<str>::new(1024);
/// let reader = files.read_blocking("a.txt");
/// assert!(files.try_write("a.txt").is_none());
/// drop(reader);
/// assert!(files.try_write("a.txt").is_some());
/// assert_eq!(files.stripes(), 1024);
/// ```
#[doc(alias = "sharded")]
pub struct Striped<K: ?Sized, S = DefaultHashBuilder> {
    latches: Box<[LatchWord]>,
    fairness: Fairness,
    hasher: S,
    keys: PhantomData<fn(&K)>,
}

/// Builds a [`Striped`]: see [`Striped::builder`].
///
/// # Examples
/// ```
/// use keylatch::{Fairness, Striped};
///
/// let locks: Striped<str> = Striped::builder(64).fairness(Fairness::Fifo).build();
/// # drop(locks);
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct StripedBuilder<K: ?Sized, S = DefaultHashBuilder> {
    stripes: usize,
    fairness: Fairness,
    hasher: S,
    keys: PhantomData<fn(&K)>,
}

impl<K: ?Sized, S> StripedBuilder<K, S> {
    /// Sets the policy that decides which waiter acquires a stripe next. The default is [`Fairness::Adaptive`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Fairness, Striped};
    ///
    /// let locks = Striped::<str>::builder(64).fairness(Fairness::Fifo).build();
    /// # drop(locks);
    /// ```
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.fairness = fairness;
        self
    }

    /// Sets the hasher. The default is hashbrown's: see [`DefaultHashBuilder`].
    ///
    /// # Examples
    /// ```
    /// use std::hash::RandomState;
    ///
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::builder(64).hasher(RandomState::new()).build();
    /// # drop(locks);
    /// ```
    pub fn hasher<S2>(self, hasher: S2) -> StripedBuilder<K, S2> {
        let StripedBuilder { stripes, fairness, keys, .. } = self;
        StripedBuilder { stripes, fairness, hasher, keys }
    }

    /// Builds the `Striped`.
    ///
    /// # Panics
    /// If `stripes` is 0, or more than [`MAX_STRIPES`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// assert_eq!(Striped::<str>::builder(100).build().stripes(), 100);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Striped<K, S> {
        let StripedBuilder { stripes, fairness, hasher, keys } = self;
        assert!(
            (1..=MAX_STRIPES).contains(&stripes),
            "keylatch: the number of stripes must be between 1 and {MAX_STRIPES}, but is {stripes}"
        );
        Striped { latches: (0..stripes).map(|_| LatchWord::new()).collect(), fairness, hasher, keys }
    }
}

impl<K: ?Sized> Striped<K> {
    /// Makes a `Striped` with exactly `stripes` stripes.
    ///
    /// # Panics
    /// If `stripes` is 0, or more than [`MAX_STRIPES`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<[u8]>::new(4096);
    /// assert!(locks.try_write(&b"key"[..]).is_some());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(stripes: usize) -> Self {
        Self::builder(stripes).build()
    }

    /// Returns a builder, to set another policy or hasher.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{Fairness, Striped};
    ///
    /// let locks = Striped::<str>::builder(64).fairness(Fairness::Bounded(16)).build();
    /// # drop(locks);
    /// ```
    pub fn builder(stripes: usize) -> StripedBuilder<K> {
        StripedBuilder {
            stripes,
            fairness: Fairness::default(),
            hasher: DefaultHashBuilder::default(),
            keys: PhantomData,
        }
    }
}

impl<K: ?Sized, S> Striped<K, S> {
    /// Makes a `Striped` with exactly `stripes` stripes and the given hasher.
    ///
    /// # Panics
    /// If `stripes` is 0, or more than [`MAX_STRIPES`].
    ///
    /// # Examples
    /// ```
    /// use std::hash::RandomState;
    ///
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str, _>::with_hasher(64, RandomState::new());
    /// # drop(locks);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_hasher(stripes: usize, hasher: S) -> Self {
        Striped::<K>::builder(stripes).hasher(hasher).build()
    }

    /// Returns the number of stripes.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(keylatch::Striped::<str>::new(64).stripes(), 64);
    /// ```
    #[must_use]
    pub fn stripes(&self) -> usize {
        self.latches.len()
    }
}

impl<K: ?Sized, S: BuildHasher> Striped<K, S> {
    /// Returns the index of a key's stripe, from 0. In one `Striped` a key always has the same stripe, which it may
    /// share with other keys. Another `Striped` with the default hasher usually gives the key another stripe, because
    /// each has its own seed.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<String>::new(64);
    /// assert!(locks.stripe_of("a") < 64);
    /// assert_eq!(locks.stripe_of("a"), locks.stripe_of(&String::from("a")));
    /// ```
    #[must_use]
    #[inline]
    pub fn stripe_of<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash,
    {
        // Mixes the hash, as the finalizer of MurmurHash3 does, so that even an identity hash is spread evenly. The
        // high half of the product is then spread evenly over the stripes.
        let mut mixed = self.hasher.hash_one(key);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^= mixed >> 33;
        ((u128::from(mixed) * self.latches.len() as u128) >> 64) as usize
    }

    /// Returns whether the key's stripe is held now, by this key or by another.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::new(64);
    /// let guard = locks.read_blocking("a");
    /// assert!(locks.is_locked("a"));
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash,
    {
        self.latches[self.stripe_of(key)].is_locked()
    }

    /// Returns the numbers of holders and waiters of the key's stripe at one instant. Use them for monitoring and
    /// tests: they may change at any time.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Striped;
    ///
    /// let locks = Striped::<str>::new(64);
    /// let guard = locks.read_blocking("a");
    /// assert_eq!(locks.status("a").readers(), 1);
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn status<Q>(&self, key: &Q) -> Status
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash,
    {
        Status::new(self.latches[self.stripe_of(key)].snapshot())
    }

    #[inline]
    fn request<Q, M: Mode>(&self, mode: M, key: &Q) -> Request<'_, M>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash,
    {
        Request::new(&self.latches[self.stripe_of(key)], self.fairness, mode)
    }

    forms! {
        read / read_blocking / try_read / try_read_for / try_read_until = Shared::NEW, Shared: "as a reader",
        [key: &Q] [Q] [where K: Borrow<Q>, Q: ?Sized + Hash] of request,
        new = "Striped::<str>::new(64)", subject = "the key's stripe", key = "\"a\"", more = ", ",
    }

    forms! {
        read_recursive / read_recursive_blocking / try_read_recursive / try_read_recursive_for / try_read_recursive_until
            = Shared::NEW, Shared: "as a reader, past all waiters",
        [key: &Q] [Q] [where K: Borrow<Q>, Q: ?Sized + Hash] of request.recursive,
        new = "Striped::<str>::new(64)", subject = "the key's stripe", key = "\"a\"", more = ", ",
        /// Unlike [`read`](Self::read), it waits only for a writer that holds the stripe, not for writers that are
        /// waiting. So it never waits if the stripe is held by readers, even by the caller itself: `read` could wait
        /// for a writer that waits for the caller's first hold.
        ///
        /// This can starve writers. Any number of these readers pass a waiting writer, and while such readers overlap,
        /// the writer never gets in. Use it only where the stripe may already be held for reading on the caller's
        /// behalf, and `read` everywhere else. If a writer holds the stripe, this call waits in the queue like any
        /// reader.
        ///
    }

    forms! {
        upgradable_read / upgradable_read_blocking / try_upgradable_read / try_upgradable_read_for
            / try_upgradable_read_until = Upgradable::NEW, Upgradable: "as the one reader that may become a writer",
        [key: &Q] [Q] [where K: Borrow<Q>, Q: ?Sized + Hash] of request,
        new = "Striped::<str>::new(64)", subject = "the key's stripe", key = "\"a\"", more = ", ",
        /// Other readers may hold it at the same time, but only this one can be [upgraded](crate::LatchGuard::upgrade).
        ///
    }

    forms! {
        write / write_blocking / try_write / try_write_for / try_write_until = Exclusive::NEW, Exclusive: "as a writer",
        [key: &Q] [Q] [where K: Borrow<Q>, Q: ?Sized + Hash] of request,
        new = "Striped::<str>::new(64)", subject = "the key's stripe", key = "\"a\"", more = ", ",
    }

    fn wanted<'q, Q, M: LatchManyMode>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mode: M,
    ) -> impl Iterator<Item = (usize, M)>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + 'q,
    {
        keys.into_iter().map(move |key| (self.stripe_of(key), mode))
    }

    fn requests<'q, Q, M: LatchManyMode>(&self, keys: impl IntoIterator<Item = &'q Q>, mode: M) -> Requests<'_, M>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + 'q,
    {
        Requests::new(&self.latches, self.fairness, self.wanted(keys, mode).collect(), |_| false)
    }

    fn read_write_requests<'r, 'w, R, W>(
        &self,
        reads: impl IntoIterator<Item = &'r R>,
        writes: impl IntoIterator<Item = &'w W>,
    ) -> Requests<'_, ReadOrWrite>
    where
        K: Borrow<R> + Borrow<W>,
        R: ?Sized + Hash + 'r,
        W: ?Sized + Hash + 'w,
    {
        let wanted = self.wanted(reads, ReadOrWrite::READ).chain(self.wanted(writes, ReadOrWrite::WRITE)).collect();
        Requests::new(&self.latches, self.fairness, wanted, |mode| mode.writes)
    }
}

macro_rules! many {
    (
        $op:ident / $blocking:ident / $try:ident / $for:ident / $until:ident of $Mode:ident: $what:literal,
        [$($list:ident: $Q:ident $q:lifetime),+] [$($borrow:tt)+] = $requests:ident($($mode:expr)?),
        keys = $keys:literal $(,)?
    ) => {
        #[doc = concat!("Acquires the stripes of all these keys ", $what, ", all or none: a future whose output is the guards.")]
        ///
        /// Each stripe is acquired once. Such calls never wait for each other in a cycle, in whatever order they name
        /// the keys. This call reads the list of keys; the future does not borrow it. Nothing is acquired before the
        /// first poll.
        ///
        /// # Cancel safety
        /// See [`LatchAcquireMany`](crate::futures::LatchAcquireMany).
        ///
        /// # Examples
        /// ```
        /// # futures_lite::future::block_on(async {
        /// let locks = keylatch::Striped::<str>::new(64);
        #[doc = concat!("let guards = locks.", stringify!($op), "(", $keys, ").await;")]
        /// # drop(guards);
        /// # });
        /// ```
        pub fn $op<$($q,)+ $($Q),+>(
            &self,
            $($list: impl IntoIterator<Item = &$q $Q>),+
        ) -> LatchAcquireMany<'_, $Mode>
        where
            K: $($borrow)+,
            $($Q: ?Sized + Hash + $q),+
        {
            LatchAcquireMany::new(self.$requests($($list),+ $(, $mode)?))
        }

        #[doc = concat!("Acquires the stripes of all these keys ", $what, ", all or none, if that is possible without waiting.")]
        ///
        /// Each stripe is acquired once.
        ///
        /// # Examples
        /// ```
        /// let locks = keylatch::Striped::<str>::new(64);
        #[doc = concat!("let guards = locks.", stringify!($try), "(", $keys, ").unwrap();")]
        /// # drop(guards);
        /// ```
        #[must_use = "bind it: `let guards = …` (`let _ = …` releases them at once)"]
        pub fn $try<$($q,)+ $($Q),+>(
            &self,
            $($list: impl IntoIterator<Item = &$q $Q>),+
        ) -> Option<<$Mode as LatchManyMode>::Guards<'_>>
        where
            K: $($borrow)+,
            $($Q: ?Sized + Hash + $q),+
        {
            self.$requests($($list),+ $(, $mode)?).try_all()
        }

        #[doc = concat!("Acquires the stripes of all these keys ", $what, ", and blocks the thread while it waits.")]
        ///
        /// Each stripe is acquired once.
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// let locks = keylatch::Striped::<str>::new(64);
        #[doc = concat!("let guards = locks.", stringify!($blocking), "(", $keys, ");")]
        /// # drop(guards);
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        pub fn $blocking<$($q,)+ $($Q),+>(
            &self,
            $($list: impl IntoIterator<Item = &$q $Q>),+
        ) -> <$Mode as LatchManyMode>::Guards<'_>
        where
            K: $($borrow)+,
            $($Q: ?Sized + Hash + $q),+
        {
            self.$requests($($list),+ $(, $mode)?).block()
        }

        #[doc = concat!("Acquires the stripes of all these keys ", $what, ", all or none, and blocks the thread for at most `timeout`.")]
        ///
        /// Each stripe is acquired once. Returns `None`, and holds no stripe, after the timeout. It tries at least
        /// once.
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        /// let locks = keylatch::Striped::<str>::new(64);
        /// let _writer = locks.write_blocking("a");
        #[doc = concat!("assert!(locks.", stringify!($for), "(", $keys, ", Duration::from_millis(1)).is_none());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guards = …` (`let _ = …` releases them at once)"]
        pub fn $for<$($q,)+ $($Q),+>(
            &self,
            $($list: impl IntoIterator<Item = &$q $Q>,)+
            timeout: Duration,
        ) -> Option<<$Mode as LatchManyMode>::Guards<'_>>
        where
            K: $($borrow)+,
            $($Q: ?Sized + Hash + $q),+
        {
            self.$requests($($list),+ $(, $mode)?).block_for(timeout)
        }

        #[doc = concat!("Acquires the stripes of all these keys ", $what, ", all or none, and blocks the thread until `deadline` at the latest.")]
        ///
        /// Each stripe is acquired once. Returns `None`, and holds no stripe, after the deadline. It tries at least
        /// once.
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// use std::time::Instant;
        ///
        /// let locks = keylatch::Striped::<str>::new(64);
        /// let _writer = locks.write_blocking("a");
        #[doc = concat!("assert!(locks.", stringify!($until), "(", $keys, ", Instant::now()).is_none());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guards = …` (`let _ = …` releases them at once)"]
        pub fn $until<$($q,)+ $($Q),+>(
            &self,
            $($list: impl IntoIterator<Item = &$q $Q>,)+
            deadline: Instant,
        ) -> Option<<$Mode as LatchManyMode>::Guards<'_>>
        where
            K: $($borrow)+,
            $($Q: ?Sized + Hash + $q),+
        {
            self.$requests($($list),+ $(, $mode)?).block_until(deadline)
        }
    };
}

impl<K: ?Sized, S: BuildHasher> Striped<K, S> {
    many! {
        read_many / read_many_blocking / try_read_many / try_read_many_for / try_read_many_until of Shared: "as a reader",
        [keys: Q 'q] [Borrow<Q>] = requests(Shared::NEW),
        keys = "[\"a\", \"b\"]",
    }

    many! {
        write_many / write_many_blocking / try_write_many / try_write_many_for / try_write_many_until of Exclusive: "as a writer",
        [keys: Q 'q] [Borrow<Q>] = requests(Exclusive::NEW),
        keys = "[\"a\", \"b\"]",
    }

    many! {
        read_write_many / read_write_many_blocking / try_read_write_many / try_read_write_many_for
            / try_read_write_many_until of ReadOrWrite:
            "as a reader for the first list and as a writer for the second (a stripe in both lists is written)",
        [reads: R 'r, writes: W 'w] [Borrow<R> + Borrow<W>] = read_write_requests(),
        keys = "[\"a\"], [\"b\"]",
    }
}

impl<K: ?Sized, S> fmt::Debug for Striped<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped")
            .field("stripes", &self.stripes())
            .field("fairness", &self.fairness)
            .finish_non_exhaustive()
    }
}
