//! The forms of an operation on several keys of a table: all of them or none.

/// Collects the keys of the lists, each list with its own mode; or the keys of one list of pairs, in which the number
/// beside each key gives its mode.
macro_rules! calls {
    ($self:ident, $table:expr, $keys:ident [$n:ident]: $mode:expr) => {
        $crate::acquire::many::Calls::new(
            $table,
            $keys.into_iter().map(|(key, $n)| ($self.key(key), ($mode)($n, $self.most_permits()))),
        )
    };
    ($self:ident, $table:expr, $keys:ident: $mode:expr $(, $more:ident: $its_mode:expr)*) => {
        $crate::acquire::many::Calls::new(
            $table,
            $keys.into_iter().map(|key| ($self.key(key), $mode))
                $(.chain($more.into_iter().map(|key| ($self.key(key), $its_mode))))*,
        )
    };
}

/// The item type of a list: a key, or a pair of a key and a number.
macro_rules! item {
    ($q:lifetime $Q:ident) => { &$q $Q };
    ($q:lifetime $Q:ident $n:ident) => { (&$q $Q, usize) };
}

/// The forms of one operation.
macro_rules! many {
    (
        $Table:ident [$($V:ident)?], $Mode:ident, $Guards:ident,
        asked with [$($asked:tt)+],
        // For the examples: a table of strings, and a `try_` method that conflicts with the operation on "a".
        new = $new:literal, excludes = $excludes:literal,
        // The key arguments of the call, each with the mode in which its keys are acquired; `given` has the arguments
        // for the examples. For a list of pairs, the name of the number is in brackets, and the mode is a function of
        // the number and of the greatest number of permits that a request may ask for.
        lists [$($keys:ident $([$n:ident])?: $mode:expr),+], given = $given:literal,
        // The operation's summary, without a full stop: each form appends how it waits. Then the rest of the docs.
        #[doc = $does:literal]
        $(#[doc = $more:literal])*
        async $lock:ident, blocking $lock_blocking:ident,
        try $try_lock:ident, for $try_lock_for:ident, until $try_lock_until:ident,
        arc $lock_arc:ident, $lock_arc_blocking:ident, $try_lock_arc:ident, $try_lock_arc_for:ident,
        $try_lock_arc_until:ident $(,)?
    ) => {
        /// Several keys at once.
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ": a future whose output is the guards, all of them or none.")]
            ///
            $(#[doc = $more])*
            ///
            /// Such calls on one table never wait for each other in a cycle, in whatever order they name their keys,
            /// because each acquires its keys in the table's own order. Keys need no `Ord`. A key that is named twice
            /// is acquired once. (A caller that already holds a key and requests more can still deadlock.) The
            /// [policy](crate::Fairness) applies to each key as it does in calls for a single key.
            ///
            /// Keys are references, all of one type: `&vec`, or `["a", name.as_str()]`. This call reads the list and
            /// finds or makes the entries; nothing is acquired before the first poll. While the future waits for one
            /// key, it holds the keys that precede it in the table's order, so it must be polled or dropped.
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`AcquireMany`](crate::futures::AcquireMany#cancel-safety).
            ///
            /// # Panics
            #[doc = concat!("Panics as [`", stringify!($Table), "`](", stringify!($Table), "#panics) does, and then holds none of the keys.")]
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guards = locks.", stringify!($lock), "(", $given, ").await;")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guards);
            /// # });
            /// ```
            pub fn $lock<'q, Q>(
                &self,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> $crate::acquire::many::AcquireMany<$crate::plumbing::TableRef<'_, Self>, $crate::mode::$Mode>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, $crate::plumbing::TableRef::new(self), $($keys $([$n])?: $mode),+).future()
            }

            #[doc = concat!($does, ", all of them or none, if that is possible without waiting.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($lock), "`](Self::", stringify!($lock), "), but returns `None`, and holds")]
            /// no key, if one of the keys cannot be acquired without waiting.
            ///
            /// It waits for no holder, only for calls that hold an internal lock, usually for a few dozen instructions.
            ///
            /// Free keys are acquired while the list is read, so the list's iterator must not wait for keys of this
            /// table.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guards = locks.", stringify!($try_lock), "(", $given, ").unwrap();")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// drop(guards);
            ///
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\");")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock), "(", $given, ").is_none());")]
            /// assert!(!locks.is_locked("b"));
            /// # drop(guard);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock<'q, Q>(
                &self,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> Option<$crate::guards::$Guards<$crate::plumbing::TableRef<'_, Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, $crate::plumbing::TableRef::new(self), $($keys $([$n])?: $mode),+).attempt()
            }
        }

        /// Several keys at once, blocking.
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ", all of them or none, blocking the thread while it waits.")]
            ///
            #[doc = concat!("See ", "[`", stringify!($lock), "`](Self::", stringify!($lock), ").")]
            ///
            /// Free keys are acquired while the list is read, so the list's iterator must not wait for keys of this
            /// table. If a key is not free, the call first releases the keys that it has acquired, and then waits for
            /// all keys of the list in the table's order.
            ///
            /// # Blocking
            /// Blocks like the blocking call for a single key.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guards = locks.", stringify!($lock_blocking), "(", $given, ");")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guards);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $lock_blocking<'q, Q>(
                &self,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> $crate::guards::$Guards<$crate::plumbing::TableRef<'_, Self>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, $crate::plumbing::TableRef::new(self), $($keys $([$n])?: $mode),+).blocking()
            }

            #[doc = concat!($does, ", all of them or none, blocking the thread for at most `timeout`.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "), but returns `None`, and holds")]
            /// no key, after the timeout. It tries at least once. A timeout that is too long for the clock means no
            /// limit.
            ///
            /// # Blocking
            /// Blocks for at most `timeout`, for all of the keys together.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\");")]
            /// let timeout = Duration::from_millis(1);
            #[doc = concat!("assert!(locks.", stringify!($try_lock_for), "(", $given, ", timeout).is_none());")]
            /// assert!(!locks.is_locked("b"));
            /// # drop(guard);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock_for<'q, Q>(
                &self,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
                timeout: ::core::time::Duration,
            ) -> Option<$crate::guards::$Guards<$crate::plumbing::TableRef<'_, Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, $crate::plumbing::TableRef::new(self), $($keys $([$n])?: $mode),+).timeout(timeout)
            }

            #[doc = concat!($does, ", all of them or none, blocking the thread until `deadline` at the latest.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "), but returns `None`, and holds")]
            /// no key, after the deadline. It tries at least once.
            ///
            /// # Blocking
            /// Blocks until `deadline` at the latest, for all of the keys together.
            ///
            /// # Examples
            /// ```
            /// use std::time::Instant;
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guards = locks.", stringify!($try_lock_until), "(", $given, ", Instant::now()).unwrap();")]
            /// # drop(guards);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock_until<'q, Q>(
                &self,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
                deadline: ::std::time::Instant,
            ) -> Option<$crate::guards::$Guards<$crate::plumbing::TableRef<'_, Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, $crate::plumbing::TableRef::new(self), $($keys $([$n])?: $mode),+).deadline(deadline)
            }
        }

        /// Several keys at once, with owned guards.
        #[cfg(target_has_atomic = "ptr")]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ", all of them or none: an owned future whose output is owned guards.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($lock), "`](Self::", stringify!($lock), "), but the future and")]
            /// the guards keep the table alive instead of borrowing it.
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`AcquireMany`](crate::futures::AcquireMany#cancel-safety).
            ///
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guards = locks.", stringify!($lock_arc), "(", $given, ").await;")]
            /// std::thread::spawn(move || drop(guards)).join().unwrap();
            /// # });
            /// ```
            pub fn $lock_arc<'q, Q>(
                self: &::alloc::sync::Arc<Self>,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> $crate::acquire::many::AcquireMany<::alloc::sync::Arc<Self>, $crate::mode::$Mode>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, ::alloc::sync::Arc::clone(self), $($keys $([$n])?: $mode),+).future()
            }

            #[doc = concat!($does, ", all of them or none, if that is possible without waiting, with owned guards.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($try_lock), "`](Self::", stringify!($try_lock), "), but")]
            /// the guards keep the table alive instead of borrowing it.
            ///
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guards = locks.", stringify!($try_lock_arc), "(", $given, ").unwrap();")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guards);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock_arc<'q, Q>(
                self: &::alloc::sync::Arc<Self>,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> Option<$crate::guards::$Guards<::alloc::sync::Arc<Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, ::alloc::sync::Arc::clone(self), $($keys $([$n])?: $mode),+).attempt()
            }
        }

        /// Several keys at once, blocking, with owned guards.
        #[cfg(all(feature = "std", not(target_family = "wasm"), target_has_atomic = "ptr"))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ", all of them or none, blocking the thread while it waits, with owned guards.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "), but")]
            /// the guards keep the table alive instead of borrowing it.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like ", "[`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), ").")]
            ///
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guards = locks.", stringify!($lock_arc_blocking), "(", $given, ");")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guards);
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $lock_arc_blocking<'q, Q>(
                self: &::alloc::sync::Arc<Self>,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
            ) -> $crate::guards::$Guards<::alloc::sync::Arc<Self>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, ::alloc::sync::Arc::clone(self), $($keys $([$n])?: $mode),+).blocking()
            }

            #[doc = concat!($does, ", all of them or none, blocking the thread for at most `timeout`, with owned guards.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($try_lock_for), "`](Self::", stringify!($try_lock_for), "), but")]
            /// the guards keep the table alive instead of borrowing it.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like ", "[`", stringify!($try_lock_for), "`](Self::", stringify!($try_lock_for), ").")]
            ///
            /// # Examples
            /// ```
            /// use std::{sync::Arc, time::Duration};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock_arc_for), "(", $given, ", Duration::ZERO).is_some());")]
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock_arc_for<'q, Q>(
                self: &::alloc::sync::Arc<Self>,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
                timeout: ::core::time::Duration,
            ) -> Option<$crate::guards::$Guards<::alloc::sync::Arc<Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, ::alloc::sync::Arc::clone(self), $($keys $([$n])?: $mode),+).timeout(timeout)
            }

            #[doc = concat!($does, ", all of them or none, blocking the thread until `deadline` at the latest, with owned guards.")]
            ///
            #[doc = concat!("Like ", "[`", stringify!($try_lock_until), "`](Self::", stringify!($try_lock_until), "), but")]
            /// the guards keep the table alive instead of borrowing it.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like ", "[`", stringify!($try_lock_until), "`](Self::", stringify!($try_lock_until), ").")]
            ///
            /// # Examples
            /// ```
            /// use std::{sync::Arc, time::Instant};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock_arc_until), "(", $given, ", Instant::now()).is_some());")]
            /// ```
            #[must_use = "bind it: `let _guards = …` (`let _ = …` releases them at once)"]
            pub fn $try_lock_arc_until<'q, Q>(
                self: &::alloc::sync::Arc<Self>,
                $($keys: impl IntoIterator<Item = $crate::locks::forms::many::item!('q Q $($n)?)>,)+
                deadline: ::std::time::Instant,
            ) -> Option<$crate::guards::$Guards<::alloc::sync::Arc<Self>>>
            where
                Q: $($asked)+ + 'q,
            {
                $crate::locks::forms::many::calls!(self, ::alloc::sync::Arc::clone(self), $($keys $([$n])?: $mode),+).deadline(deadline)
            }
        }
    };
}

pub(crate) use {calls, item, many};
