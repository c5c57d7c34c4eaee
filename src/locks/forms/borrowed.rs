//! An operation on a table, with guards that borrow it: async, without waiting, blocking, and timed.

macro_rules! borrowed {
    (
        $Table:ident [$($V:ident)?], $Guard:ident, $Future:ident,
        asked with [$($asked:tt)+], new = $new:literal, excludes = $excludes:literal,
        does = $does:literal, more = [$($more:literal)*], fails = [$($fails:literal)+],
        $lock:ident, $lock_blocking:ident, $try_lock:ident, $try_lock_for:ident, $try_lock_until:ident,
        owned $lock_arc:ident, $lock_arc_blocking:ident, $try_lock_arc:ident,
        aliases $lock_blocking_alias:literal, takes [$($n:ident: $Number:ty = $value:literal)?], passing [$($passing:ident)?],
    ) => {
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ": a future whose output is the guard.")]
            ///
            $(#[doc = $more])*
            ///
            /// This call hashes the key, and finds or makes its entry, so the future does not borrow the key. Nothing
            /// is acquired before the first poll. [`until`](crate::futures::Acquire::until) limits the wait.
            ///
            /// To move the guard elsewhere (into a spawned task, `spawn_blocking`, a field) use
            #[doc = concat!("[`", stringify!($lock_arc), "`](Self::", stringify!($lock_arc), ").")]
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety). Do not
            /// keep it without polling it: see [idle futures](crate#idle-futures).
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", stringify!($lock), "(\"a\"" $(, ", ", $value)?, ").await;")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// # });
            /// ```
            #[inline]
            pub fn $lock<Q>(&self, key: &Q $(, $n: $Number)?) -> $Future<'_, K, $($V,)? S>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new($crate::plumbing::TableRef::new(self), self.key(key), mode)$(.$passing())?.future()
            }

            #[doc = concat!($does, ", if that is possible without waiting.")]
            ///
            $(#[doc = $more])*
            ///
            $(#[doc = $fails])+
            /// It never fails spuriously. It waits for no holder, only for calls that hold an internal lock, usually
            /// for a few dozen instructions.
            ///
            /// To move the guard elsewhere (into a spawned task, `spawn_blocking`, a field) use
            #[doc = concat!("[`", stringify!($try_lock_arc), "`](Self::", stringify!($try_lock_arc), ").")]
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\").unwrap();")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock), "(\"a\"" $(, ", ", $value)?, ").is_none());")]
            #[doc = concat!("assert!(locks.", stringify!($try_lock), "(\"b\"" $(, ", ", $value)?, ").is_some());")]
            /// # drop(guard);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[inline]
            pub fn $try_lock<Q>(&self, key: &Q $(, $n: $Number)?) -> Option<$Guard<'_, K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new($crate::plumbing::TableRef::new(self), self.key(key), mode)$(.$passing())?.attempt()
            }
        }

        /// Blocking and timed calls.
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ", blocking the thread while it waits.")]
            ///
            $(#[doc = $more])*
            ///
            /// To move the guard elsewhere (into a spawned task, `spawn_blocking`, a field) use
            #[doc = concat!("[`", stringify!($lock_arc_blocking), "`](Self::", stringify!($lock_arc_blocking), ").")]
            ///
            /// # Blocking
            /// A thread that has to wait spins for a few microseconds (except on a machine with a single CPU), and then
            /// sleeps. Do not call this in a task, because it would block the executor's thread; use
            #[doc = concat!("[`", stringify!($lock), "`](Self::", stringify!($lock), ").")]
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", stringify!($lock_blocking), "(\"a\"" $(, ", ", $value)?, ");")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// ```
            #[doc(alias = $lock_blocking_alias)]
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[inline]
            pub fn $lock_blocking<Q>(&self, key: &Q $(, $n: $Number)?) -> $Guard<'_, K, $($V,)? S>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new($crate::plumbing::TableRef::new(self), self.key(key), mode)$(.$passing())?.blocking()
            }

            #[doc = concat!($does, ", blocking the thread for at most `timeout`.")]
            ///
            $(#[doc = $more])*
            ///
            /// Returns `None` after the timeout. It tries at least once, even with a timeout of zero. A timeout that is
            /// too long for the clock, such as [`Duration::MAX`](core::time::Duration::MAX), means no limit.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// for at most `timeout`.
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.", $excludes, "(\"a\").unwrap();")]
            /// let timeout = Duration::from_millis(1);
            #[doc = concat!("assert!(locks.", stringify!($try_lock_for), "(\"a\"" $(, ", ", $value)?, ", timeout).is_none());")]
            /// # drop(guard);
            /// ```
            #[doc(alias = "timeout")]
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $try_lock_for<Q>(
                &self,
                key: &Q,
                $($n: $Number,)?
                timeout: ::core::time::Duration,
            ) -> Option<$Guard<'_, K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new($crate::plumbing::TableRef::new(self), self.key(key), mode)$(.$passing())?.timeout(timeout)
            }

            #[doc = concat!($does, ", blocking the thread until `deadline` at the latest.")]
            ///
            $(#[doc = $more])*
            ///
            /// Returns `None` after the deadline. It tries at least once, even with a deadline in the past.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "),")]
            /// until `deadline` at the latest.
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// use std::time::{Duration, Instant};
            ///
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let deadline = Instant::now() + Duration::from_millis(1);
            #[doc = concat!("let guard = locks.", stringify!($try_lock_until), "(\"a\"" $(, ", ", $value)?, ", deadline).unwrap();")]
            /// # drop(guard);
            /// ```
            #[doc(alias = "deadline")]
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $try_lock_until<Q>(
                &self,
                key: &Q,
                $($n: $Number,)?
                deadline: ::std::time::Instant,
            ) -> Option<$Guard<'_, K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new($crate::plumbing::TableRef::new(self), self.key(key), mode)$(.$passing())?.deadline(deadline)
            }
        }
    };
}

pub(crate) use borrowed;
