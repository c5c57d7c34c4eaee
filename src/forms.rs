//! What the three tables have in common, written once: [`table!`] for what a table has whatever it locks, [`forms!`] for
//! the fifteen ways to call one operation. What a method does is one call into [`Call`](crate::request::Call); all else here
//! is signatures and the text that a reader of the documentation needs at each of them.

/// The queries and handles of a table, and what ties it to the core.
macro_rules! table {
    (
        $Table:ident, $Kind:ident,
        // For the examples: a table of strings named `locks`, and two calls that exclude each other.
        new = $new:literal, hold = $hold:literal $(,)?
    ) => {
        #[doc = concat!("The kind of table that [`", stringify!($Table), "::builder`] makes.")]
        #[derive(Debug)]
        pub enum $Kind {}

        impl crate::plumbing::Kind for $Kind {
            type Table<K, S> = $Table<K, S>;
        }

        impl crate::plumbing::sealed::Kind for $Kind {
            fn table<K, S>(core: Core<K>, hasher: S) -> $Table<K, S> {
                $Table { core, hasher }
            }
        }

        impl<K, S> Table for $Table<K, S> {
            type Key = K;
        }

        impl<K, S> crate::plumbing::sealed::Table<K> for $Table<K, S> {
            #[inline]
            fn core(&self) -> &Core<K> {
                &self.core
            }
        }

        impl<K, S> $Table<K, S> {
            /// How many keys have an entry now: those that are held, waited for, or kept by a handle or an unfinished
            /// future.
            ///
            /// The shards are counted one after another: the sum is exact if nothing changes meanwhile.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// assert_eq!(locks.len(), 1);
            /// drop(guard);
            /// assert_eq!(locks.len(), 0);
            /// ```
            #[must_use]
            pub fn len(&self) -> usize {
                self.core.len()
            }

            /// Whether no key has an entry. As exact as [`len`](Self::len).
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// assert!(locks.is_empty());
            /// ```
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Calls `f` with every live entry: its key, and its status at the time when the entry was looked up.
            ///
            /// `f` runs outside every internal lock and may use the table. An entry is kept alive until `f` has seen it. An
            /// entry that comes or goes during the call may be seen or not; one that is there all the time is seen once.
            ///
            /// # Panics
            /// If a key cannot count one more: see [`MAX_HOLDERS`](crate::MAX_HOLDERS). If `f` does.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// locks.for_each_key(|key, status| {
            ///     assert_eq!(key, "a");
            ///     assert_eq!(status.holders(), 1);
            /// });
            /// # drop(guard);
            /// ```
            pub fn for_each_key(&self, f: impl FnMut(&K, Status)) {
                self.core.for_each(f);
            }
        }

        impl<K: Eq + Hash, S: BuildHasher> $Table<K, S> {
            #[inline]
            fn key<'q, Q: ?Sized + Hash>(&self, key: &'q Q) -> Key<'q, Q> {
                Key { tag: Tag::of(self.hasher.hash_one(key)), key }
            }

            /// Finds the entry of a key, or makes it, and keeps it in the table: for keys that are asked for again and
            /// again.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let a = locks.handle("a");
            #[doc = concat!("let guard = a.", $hold, "().unwrap();")]
            /// assert!(locks.is_locked("a"));
            /// # drop(guard);
            /// ```
            pub fn handle<Q>(&self, key: &Q) -> KeyHandle<'_, Self>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Handle::find(TableRef::new(self), &self.key(key))
            }

            /// [`handle`](Self::handle) that owns a share of the table, and has owned guards.
            ///
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            /// let a = locks.handle_arc("a");
            /// drop(locks);
            #[doc = concat!("let guard = a.", $hold, "().unwrap();")]
            /// # drop(guard);
            /// ```
            #[cfg(target_has_atomic = "ptr")]
            pub fn handle_arc<Q>(self: &Arc<Self>, key: &Q) -> KeyHandleArc<Self>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Handle::find(Arc::clone(self), &self.key(key))
            }

            /// Whether somebody holds the key now, in whatever way.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// assert!(locks.is_locked("a") && !locks.is_locked("b"));
            /// # drop(guard);
            /// ```
            #[must_use]
            pub fn is_locked<Q>(&self, key: &Q) -> bool
            where
                Q: ?Sized + Hash + Equivalent<K>,
            {
                self.status(key).is_some_and(|status| status.holders() > 0)
            }

            /// Who holds the key and who waits for it: `None` if it has no entry.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// assert!(locks.status("a").is_none());
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// assert_eq!(locks.status("a").unwrap().holders(), 1);
            /// # drop(guard);
            /// ```
            #[must_use]
            pub fn status<Q>(&self, key: &Q) -> Option<Status>
            where
                Q: ?Sized + Hash + Equivalent<K>,
            {
                self.core.status(self.key(key).tag, |other| key.equivalent(other))
            }
        }

        impl<K, S> fmt::Debug for $Table<K, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Table)).field("len", &self.len()).finish_non_exhaustive()
            }
        }
    };
}

/// `new`, `builder`, `with_hasher` and `Default` of a table that needs no number of permits.
macro_rules! constructors {
    ($Table:ident, $Kind:ident) => {
        impl<K> $Table<K> {
            /// A table with the default settings.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", stringify!($Table), "::<String>::new();")]
            /// assert!(locks.is_empty());
            /// ```
            #[must_use]
            pub fn new() -> Self {
                Self::builder().build()
            }

            /// Settings for a table.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", stringify!($Table), "::<u64>::builder().shards(1).build();")]
            /// assert!(locks.is_empty());
            /// ```
            pub fn builder() -> Builder<$Kind, K> {
                Builder::new(0)
            }
        }

        impl<K, S> $Table<K, S> {
            /// A table with the default settings and this hasher.
            ///
            /// # Examples
            /// ```
            /// use std::hash::RandomState;
            ///
            /// // SipHash instead of foldhash
            #[doc = concat!(
                        "let locks = keylatch::", stringify!($Table), "::<String, _>::with_hasher(RandomState::new());"
                    )]
            /// assert!(locks.is_empty());
            /// ```
            #[must_use]
            pub fn with_hasher(hasher: S) -> Self {
                $Table::builder().hasher(hasher).build()
            }
        }

        impl<K, S: Default> Default for $Table<K, S> {
            fn default() -> Self {
                Self::with_hasher(S::default())
            }
        }
    };
}

/// The forms of one operation.
macro_rules! forms {
    (
        $Table:ident, $Mode:ident, $Guard:ident, $GuardArc:ident, $Future:ident, $FutureArc:ident,
        // For the examples: a table of strings, and a `try_` call that excludes this operation.
        new = $new:literal, excludes = $excludes:literal,
        $(#[doc = $does:literal])+
        async $lock:ident, blocking $lock_blocking:ident,
        $(#[doc = $fails:literal])+
        try $try_lock:ident, for $try_lock_for:ident, until $try_lock_until:ident,
        arc $lock_arc:ident, $lock_arc_blocking:ident, $try_lock_arc:ident, $try_lock_arc_for:ident,
        $try_lock_arc_until:ident $(,)?
    ) => {
        impl<K: Eq + Hash, S: BuildHasher> $Table<K, S> {
            $(#[doc = $does])+
            /// A future whose output is the guard.
            ///
            /// The key is hashed, and its entry found or made, by this call and not by the poll, so the future does not
            /// borrow the key. Nothing is acquired before the first poll. With [`until`](crate::futures::Acquire::until)
            /// the wait has a limit.
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", stringify!($lock), "(\"a\").await;")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// # });
            /// ```
            #[inline]
            pub fn $lock<Q>(&self, key: &Q) -> $Future<'_, K, S>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(TableRef::new(self), self.key(key)).future()
            }

            $(#[doc = $does])+
            /// If that is possible at once.
            ///
            $(#[doc = $fails])+
            /// It never fails spuriously, and waits for nobody but those who are inside the table for some dozen
            /// instructions.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\").unwrap();")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock), "(\"a\").is_none());")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock), "(\"b\").is_some());")]
            /// # drop(guard);
            /// ```
            #[inline]
            pub fn $try_lock<Q>(&self, key: &Q) -> Option<$Guard<'_, K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(TableRef::new(self), self.key(key)).attempt()
            }
        }

        /// Blocking and timed calls.
        #[cfg(feature = "std")]
        impl<K: Eq + Hash, S: BuildHasher> $Table<K, S> {
            $(#[doc = $does])+
            /// Blocks the thread until that is done.
            ///
            /// # Blocking
            /// A caller that has to wait tries again for about a microsecond, gives up its time slice a few times, and then
            /// sleeps. Not for use inside a task, whose executor it would block: there, use
            #[doc = concat!("[`", stringify!($lock), "`](Self::", stringify!($lock), ").")]
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", stringify!($lock_blocking), "(\"a\");")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// ```
            #[inline]
            pub fn $lock_blocking<Q>(&self, key: &Q) -> $Guard<'_, K, S>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(TableRef::new(self), self.key(key)).blocking()
            }

            $(#[doc = $does])+
            /// Blocks the thread for at most `timeout`: `None` if that was not enough.
            ///
            /// It is tried at least once, also with a timeout of zero. A timeout that is too long for the clock, such as
            /// [`Duration::MAX`], is no limit.
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// for at most `timeout`.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\").unwrap();")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock_for), "(\"a\", Duration::from_millis(1)).is_none());")]
            /// # drop(guard);
            /// ```
            pub fn $try_lock_for<Q>(&self, key: &Q, timeout: Duration) -> Option<$Guard<'_, K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(TableRef::new(self), self.key(key)).timeout(timeout)
            }

            $(#[doc = $does])+
            /// Blocks the thread until `deadline` at the longest: `None` if it was not possible by then.
            ///
            /// It is tried at least once, also with a deadline in the past.
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// until `deadline` at the longest.
            ///
            /// # Examples
            /// ```
            /// use std::time::{Duration, Instant};
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let deadline = Instant::now() + Duration::from_millis(1);
            #[doc = concat!("let guard = locks.", stringify!($try_lock_until), "(\"a\", deadline).unwrap();")]
            /// # drop(guard);
            /// ```
            pub fn $try_lock_until<Q>(&self, key: &Q, deadline: Instant) -> Option<$Guard<'_, K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(TableRef::new(self), self.key(key)).deadline(deadline)
            }
        }

        /// Owned guards, which keep the table alive instead of borrowing it.
        #[cfg(target_has_atomic = "ptr")]
        impl<K: Eq + Hash, S: BuildHasher> $Table<K, S> {
            #[doc = concat!("[`", stringify!($lock), "`](Self::", stringify!($lock), ") with an owned guard, and an")]
            /// owned future.
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($lock_arc), "(\"a\").await;")]
            /// std::thread::spawn(move || drop(guard)).join().unwrap();
            /// # });
            /// ```
            pub fn $lock_arc<Q>(self: &Arc<Self>, key: &Q) -> $FutureArc<K, S>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(Arc::clone(self), self.key(key)).future()
            }

            #[doc = concat!("[`", stringify!($try_lock), "`](Self::", stringify!($try_lock), ") with an owned guard.")]
            ///
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($try_lock_arc), "(\"a\").unwrap();")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// ```
            pub fn $try_lock_arc<Q>(self: &Arc<Self>, key: &Q) -> Option<$GuardArc<K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(Arc::clone(self), self.key(key)).attempt()
            }
        }

        /// Blocking and timed calls with owned guards.
        #[cfg(all(feature = "std", target_has_atomic = "ptr"))]
        impl<K: Eq + Hash, S: BuildHasher> $Table<K, S> {
            #[doc = concat!("[`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), ") with an owned")]
            /// guard.
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), ").")]
            ///
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($lock_arc_blocking), "(\"a\");")]
            /// std::thread::spawn(move || drop(guard)).join().unwrap();
            /// ```
            pub fn $lock_arc_blocking<Q>(self: &Arc<Self>, key: &Q) -> $GuardArc<K, S>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(Arc::clone(self), self.key(key)).blocking()
            }

            #[doc = concat!("[`", stringify!($try_lock_for), "`](Self::", stringify!($try_lock_for), ") with an owned guard.")]
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// for at most `timeout`.
            ///
            /// # Examples
            /// ```
            /// use std::{sync::Arc, time::Duration};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock_arc_for), "(\"a\", Duration::ZERO).is_some());")]
            /// ```
            pub fn $try_lock_arc_for<Q>(self: &Arc<Self>, key: &Q, timeout: Duration) -> Option<$GuardArc<K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(Arc::clone(self), self.key(key)).timeout(timeout)
            }

            #[doc = concat!("[`", stringify!($try_lock_until), "`](Self::", stringify!($try_lock_until), ") with an owned")]
            /// guard.
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// until `deadline` at the longest.
            ///
            /// # Examples
            /// ```
            /// use std::{sync::Arc, time::Instant};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock_arc_until), "(\"a\", Instant::now()).is_some());")]
            /// ```
            pub fn $try_lock_arc_until<Q>(self: &Arc<Self>, key: &Q, deadline: Instant) -> Option<$GuardArc<K, S>>
            where
                Q: ?Sized + Hash + Equivalent<K> + ToOwned<Owned = K>,
            {
                Call::new(Arc::clone(self), self.key(key)).deadline(deadline)
            }
        }

        #[doc = concat!("The forms of [`", stringify!($Table), "::", stringify!($lock), "`] for a key that has been found.")]
        impl<K, S, P: TablePtr<Table = $Table<K, S>, Key = K>> Handle<P> {
            #[doc = concat!("See [`", stringify!($Table), "::", stringify!($lock), "`].")]
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.handle(\"a\").", stringify!($lock), "().await;")]
            /// # drop(guard);
            /// # });
            /// ```
            #[inline]
            pub fn $lock(&self) -> Acquire<P, $Mode> {
                self.call().future()
            }

            #[doc = concat!("See [`", stringify!($Table), "::", stringify!($try_lock), "`].")]
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("assert!(locks.handle(\"a\").", stringify!($try_lock), "().is_some());")]
            /// ```
            #[inline]
            pub fn $try_lock(&self) -> Option<Guard<P, $Mode>> {
                self.call().attempt()
            }

            #[doc = concat!("See [`", stringify!($Table), "::", stringify!($lock_blocking), "`].")]
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($Table), "::", stringify!($lock_blocking), "`].")]
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.handle(\"a\").", stringify!($lock_blocking), "();")]
            /// # drop(guard);
            /// ```
            #[inline]
            #[cfg(feature = "std")]
            pub fn $lock_blocking(&self) -> Guard<P, $Mode> {
                self.call().blocking()
            }

            #[doc = concat!("See [`", stringify!($Table), "::", stringify!($try_lock_for), "`].")]
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($Table), "::", stringify!($lock_blocking), "`], for at most `timeout`.")]
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!(
                "assert!(locks.handle(\"a\").", stringify!($try_lock_for), "(std::time::Duration::ZERO).is_some());"
            )]
            /// ```
            #[cfg(feature = "std")]
            pub fn $try_lock_for(&self, timeout: Duration) -> Option<Guard<P, $Mode>> {
                self.call().timeout(timeout)
            }

            #[doc = concat!("See [`", stringify!($Table), "::", stringify!($try_lock_until), "`].")]
            ///
            /// # Blocking
            #[doc = concat!("As [`", stringify!($Table), "::", stringify!($lock_blocking), "`], until `deadline` at the")]
            /// longest.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!(
                "assert!(locks.handle(\"a\").", stringify!($try_lock_until), "(std::time::Instant::now()).is_some());"
            )]
            /// ```
            #[cfg(feature = "std")]
            pub fn $try_lock_until(&self, deadline: Instant) -> Option<Guard<P, $Mode>> {
                self.call().deadline(deadline)
            }
        }
    };
}

pub(crate) use {constructors, forms, table};
