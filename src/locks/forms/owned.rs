//! An operation on a table, with owned guards, which keep the table alive instead of borrowing it.

macro_rules! owned {
    (
        $Table:ident [$($V:ident)?], $GuardArc:ident, $FutureArc:ident,
        asked with [$($asked:tt)+], new = $new:literal, excludes = $excludes:literal, does = $does:literal,
        $lock:ident, $lock_blocking:ident, $try_lock:ident, $try_lock_for:ident, $try_lock_until:ident,
        $lock_arc:ident, $lock_arc_blocking:ident, $try_lock_arc:ident, $try_lock_arc_for:ident,
        $try_lock_arc_until:ident,
        aliases $lock_arc_alias:literal, $try_lock_arc_alias:literal,
        takes [$($n:ident: $Number:ty = $value:literal)?], passing [$($passing:ident)?],
    ) => {
        /// Owned guards, which keep the table alive instead of borrowing it.
        #[cfg(target_has_atomic = "ptr")]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ": an owned future whose output is an owned guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($lock), "`](Self::", stringify!($lock), "), but")]
            /// the future and the guard keep the table alive instead of borrowing it.
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
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
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($lock_arc), "(\"a\"" $(, ", ", $value)?, ").await;")]
            /// std::thread::spawn(move || drop(guard)).join().unwrap();
            /// # });
            /// ```
            #[doc(alias = $lock_arc_alias)]
            pub fn $lock_arc<Q>(self: &::alloc::sync::Arc<Self>, key: &Q $(, $n: $Number)?) -> $FutureArc<K, $($V,)? S>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new(::alloc::sync::Arc::clone(self), self.key(key), mode)$(.$passing())?.future()
            }

            #[doc = concat!($does, ", if that is possible without waiting, with an owned guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($try_lock), "`](Self::", stringify!($try_lock), "), but")]
            /// the guard keeps the table alive instead of borrowing it.
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($try_lock_arc), "(\"a\"" $(, ", ", $value)?, ").unwrap();")]
            #[doc = concat!("assert!(locks.", $excludes, "(\"a\").is_none());")]
            /// # drop(guard);
            /// ```
            #[doc(alias = $try_lock_arc_alias)]
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $try_lock_arc<Q>(self: &::alloc::sync::Arc<Self>, key: &Q $(, $n: $Number)?) -> Option<$GuardArc<K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new(::alloc::sync::Arc::clone(self), self.key(key), mode)$(.$passing())?.attempt()
            }
        }

        /// Blocking and timed calls with owned guards.
        #[cfg(all(feature = "std", not(target_family = "wasm"), target_has_atomic = "ptr"))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        impl<K: Eq + ::core::hash::Hash, $($V,)? S: ::core::hash::BuildHasher> $Table<K, $($V,)? S> {
            #[doc = concat!($does, ", blocking the thread while it waits, with an owned guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), "), but")]
            /// the guard keeps the table alive instead of borrowing it.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($lock_blocking), "`](Self::", stringify!($lock_blocking), ").")]
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more than a key of the table [has ever had](crate::KeyedSemaphore#panics).")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// use std::sync::Arc;
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!("let guard = locks.", stringify!($lock_arc_blocking), "(\"a\"" $(, ", ", $value)?, ");")]
            /// std::thread::spawn(move || drop(guard)).join().unwrap();
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $lock_arc_blocking<Q>(self: &::alloc::sync::Arc<Self>, key: &Q $(, $n: $Number)?) -> $GuardArc<K, $($V,)? S>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new(::alloc::sync::Arc::clone(self), self.key(key), mode)$(.$passing())?.blocking()
            }

            #[doc = concat!($does, ", blocking the thread for at most `timeout`, with an owned guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($try_lock_for), "`](Self::", stringify!($try_lock_for), "), but")]
            /// the guard keeps the table alive instead of borrowing it.
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
            /// use std::{sync::Arc, time::Duration};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!(
                "assert!(locks.", stringify!($try_lock_arc_for), "(\"a\"" $(, ", ", $value)?, ", Duration::ZERO).is_some());"
            )]
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $try_lock_arc_for<Q>(
                self: &::alloc::sync::Arc<Self>,
                key: &Q,
                $($n: $Number,)?
                timeout: ::core::time::Duration,
            ) -> Option<$GuardArc<K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new(::alloc::sync::Arc::clone(self), self.key(key), mode)$(.$passing())?.timeout(timeout)
            }

            #[doc = concat!($does, ", blocking the thread until `deadline` at the latest, with an owned guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($try_lock_until), "`](Self::", stringify!($try_lock_until), "), but")]
            /// the guard keeps the table alive instead of borrowing it.
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
            /// use std::{sync::Arc, time::Instant};
            ///
            #[doc = concat!("let locks = Arc::new(keylatch::", $new, ");")]
            #[doc = concat!(
                "assert!(locks.", stringify!($try_lock_arc_until), "(\"a\"" $(, ", ", $value)?, ", Instant::now()).is_some());"
            )]
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn $try_lock_arc_until<Q>(
                self: &::alloc::sync::Arc<Self>,
                key: &Q,
                $($n: $Number,)?
                deadline: ::std::time::Instant,
            ) -> Option<$GuardArc<K, $($V,)? S>>
            where
                Q: $($asked)+,
            {
                let mode = $crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]);
                $crate::acquire::request::Call::new(::alloc::sync::Arc::clone(self), self.key(key), mode)$(.$passing())?.deadline(deadline)
            }
        }
    };
}

pub(crate) use owned;
