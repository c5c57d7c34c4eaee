//! The code of every table: its construction, its handles, and its queries.
//!
//! `table!` defines the handles and queries of a table.
macro_rules! table {
    (
        $Table:ident [$($V:ident)?],
        // See `forms!`.
        asked with [$($asked:tt)+],
        // For the examples: a new table of strings, and a `try_` call that locks a key.
        new = $new:literal, hold = $hold:literal $(,)?
    ) => {
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[inline]
            fn key<'q, Q: ?Sized + ::core::hash::Hash>(&self, key: &'q Q) -> $crate::core::Key<'q, Q> {
                $crate::core::Key::new(key, &self.hasher)
            }

            /// Finds or makes the entry of a key, and returns a handle that keeps the entry in the table. Use it for a
            /// key that is locked repeatedly.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let a = locks.handle("a");
            #[doc = concat!("let guard = a.", $hold, "().unwrap();")]
            /// assert!(locks.is_locked("a"));
            /// # drop(guard);
            /// ```
            #[must_use = "bind it: `let handle = …` (a dropped handle keeps nothing in the table)"]
            pub fn handle<Q>(&self, key: &Q) -> $crate::handle::KeyHandle<'_, Self>
            where
                Q: $($asked)+,
            {
                $crate::handle::Handle::find($crate::plumbing::TableRef::new(self), &mut self.key(key))
            }

            /// Finds or makes the entry of a key, and returns a handle that shares ownership of the table and produces
            /// owned guards.
            ///
            /// See [`handle`](Self::handle).
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
            #[must_use = "bind it: `let handle = …` (a dropped handle keeps nothing in the table)"]
            #[cfg(target_has_atomic = "ptr")]
            pub fn handle_arc<Q>(self: &::alloc::sync::Arc<Self>, key: &Q) -> $crate::handle::KeyHandleArc<Self>
            where
                Q: $($asked)+,
            {
                $crate::handle::Handle::find(::alloc::sync::Arc::clone(self), &mut self.key(key))
            }

            /// Returns whether the key is held now, in any mode.
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
                Q: ?Sized + ::core::hash::Hash + ::equivalent::Equivalent<K>,
            {
                self.status(key).is_some_and(|status| status.holders() > 0)
            }

            /// Returns the number of requests that wait for the key; 0 if the key has no entry.
            /// [`status`](Self::status) returns more details.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// assert_eq!(locks.waiters("a"), 0);
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// assert_eq!(locks.waiters("a"), 0); // a holder is not a waiter
            /// # drop(guard);
            /// ```
            #[must_use]
            pub fn waiters<Q>(&self, key: &Q) -> usize
            where
                Q: ?Sized + ::core::hash::Hash + ::equivalent::Equivalent<K>,
            {
                self.status(key).map_or(0, |status| status.waiters())
            }

            /// Returns the holders and waiters of the key; `None` if it has no entry.
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
            pub fn status<Q>(&self, key: &Q) -> Option<$crate::status::Status>
            where
                Q: ?Sized + ::core::hash::Hash + ::equivalent::Equivalent<K>,
            {
                self.core.snapshot(&self.key(key)).map($crate::status::Status::new)
            }
        }

        impl<K, $($V,)? S> $Table<K, $($V,)? S> {
            /// Calls `f` with the key and the status of every entry.
            ///
            /// Each status is a snapshot, taken when the call reads the entry. `f` runs outside every internal lock and
            /// may use the table. The call keeps each entry alive until `f` has returned. An entry that is made or
            /// removed during the call may or may not be seen; an entry that exists throughout is seen once.
            ///
            /// # Panics
            /// If a key has [`MAX_USERS`](crate::MAX_USERS) users already, or if `f` panics.
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
            pub fn for_each_key(&self, f: impl FnMut(&K, $crate::status::Status)) {
                $crate::plumbing::TableRef::new(self).for_each_key(f);
            }

            /// Returns a readable list of the keys that are held or waited for, with their holders and waiters. Print
            /// it when a program hangs. The keys must be `Debug`.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $hold, "(\"a\");")]
            /// eprint!("{}", locks.dump());
            /// # assert!(locks.dump().to_string().contains("\"a\"  1 "));
            /// # drop(guard);
            /// ```
            #[must_use = "a dump does nothing until it is printed"]
            pub fn dump(&self) -> $crate::dump::Dump<'_, Self> {
                $crate::dump::Dump::new(self, stringify!($Table))
            }
        }
    };
}

/// Defines the kind of a table of locks, and its other differences from a map.
macro_rules! lock_table {
    (
        $Table:ident, $Kind:ident,
        // See `table!`.
        new = $new:literal, hold = $hold:literal $(,)?
    ) => {
        #[doc = concat!("The kind of table that [`", stringify!($Table), "::builder`] makes.")]
        #[derive(Debug)]
        pub enum $Kind {}

        impl $crate::plumbing::Kind for $Kind {
            type Table<K, S> = $Table<K, S>;
        }

        impl $crate::plumbing::sealed::KindInside for $Kind {
            type Payload = ();
        }

        impl<K, S> $crate::plumbing::sealed::Assembled<K, S> for $Table<K, S> {
            type Payload = ();

            fn assemble(core: $crate::core::Core<K, ()>, hasher: S) -> Self {
                $Table { core, hasher }
            }
        }

        impl<K, S> $crate::plumbing::Table for $Table<K, S> {
            type Key = K;
            type Types = $crate::plumbing::TypesOf<$Kind, K, S>;
        }

        impl<K, S> $crate::plumbing::sealed::TableInside<K> for $Table<K, S> {
            type Payload = ();

            #[inline]
            fn core(&self) -> &$crate::core::Core<K, ()> {
                &self.core
            }
        }

        impl<K, S> $Table<K, S> {
            /// Returns the number of keys that have an entry now: keys that are held, waited for, kept by a handle or
            /// an unfinished future, or visited by [`for_each_key`](Self::for_each_key). (In a semaphore, also keys for
            /// which a number of permits is set.)
            ///
            /// The shards are counted one after another, so the sum is exact only if nothing changes during the call.
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

            /// Returns whether no key has an entry. The answer is as exact as that of [`len`](Self::len).
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
        }

        impl<K, S> ::core::fmt::Debug for $Table<K, S> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(stringify!($Table)).field("len", &self.len()).finish_non_exhaustive()
            }
        }
    };
}

/// Defines `new`, `builder`, `with_hasher` and `Default` of a table without permits.
macro_rules! constructors {
    ($Table:ident [$($V:ident)?], $Kind:ident, new = $new:literal, built = $built:literal) => {
        impl<K $(, $V)?> $Table<K $(, $V)?> {
            /// Makes a table with the default settings.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// assert!(locks.is_empty());
            /// ```
            #[must_use]
            #[track_caller]
            pub fn new() -> Self {
                Self::builder().build()
            }

            /// Returns a builder for a table with other settings.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks: keylatch::", $built, "> = keylatch::", stringify!($Table), "::builder().shards(1).build();")]
            /// assert!(locks.is_empty());
            /// ```
            #[track_caller]
            pub fn builder() -> $crate::builder::Builder<$Kind $(<$V>)?, K> {
                $crate::builder::Builder::new($crate::core::CountKind::Readers)
            }
        }

        impl<K, $($V,)? S> $Table<K, $($V,)? S> {
            /// Makes a table with the given hasher and otherwise the default settings.
            ///
            /// # Examples
            /// ```
            /// use std::hash::RandomState;
            ///
            /// let hasher = RandomState::new(); // SipHash instead of foldhash
            #[doc = concat!("let locks: keylatch::", $built, ", _> = keylatch::", stringify!($Table), "::with_hasher(hasher);")]
            /// assert!(locks.is_empty());
            /// ```
            #[must_use]
            #[track_caller]
            pub fn with_hasher(hasher: S) -> Self {
                $Table::builder().hasher(hasher).build()
            }
        }

        impl<K, $($V,)? S: Default> Default for $Table<K, $($V,)? S> {
            #[track_caller]
            fn default() -> Self {
                Self::with_hasher(S::default())
            }
        }
    };
}

pub(crate) use {constructors, lock_table, table};
