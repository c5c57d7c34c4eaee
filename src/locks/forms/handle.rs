//! An operation on a handle, for the handle's key.

macro_rules! handle {
    (
        $Table:ident, $Mode:ident, handles [$($handles:tt)+], new = $new:literal, does = $does:literal,
        $lock:ident, $lock_blocking:ident, $try_lock:ident, $try_lock_for:ident, $try_lock_until:ident,
        takes [$($n:ident: $Number:ty = $value:literal)?], passing [$($passing:ident)?],
    ) => {
        #[doc = concat!("The forms of [`", stringify!($Table), "::", stringify!($lock), "`], for the handle's key.")]
        impl<$($handles)+> $crate::handle::Handle<P> {
            #[doc = concat!($does, ": a future whose output is the guard.")]
            ///
            #[doc = concat!("Like [`", stringify!($Table), "::", stringify!($lock), "`], for the handle's key.")]
            ///
            /// # Cancel safety
            /// The future can be dropped at any moment: see [`Acquire`](crate::futures::Acquire#cancel-safety).
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more permits than a key can have.")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            /// # futures_lite::future::block_on(async {
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.handle(\"a\").", stringify!($lock), "(" $(, $value)?, ").await;")]
            /// # drop(guard);
            /// # });
            /// ```
            #[inline]
            pub fn $lock(&self $(, $n: $Number)?) -> $crate::acquire::future::Acquire<P, $crate::mode::$Mode> {
                self.call($crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]))$(.$passing())?.future()
            }

            #[doc = concat!($does, ", if that is possible without waiting.")]
            ///
            #[doc = concat!("Like [`", stringify!($Table), "::", stringify!($try_lock), "`], for the handle's key.")]
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more permits than a key can have.")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("assert!(locks.handle(\"a\").", stringify!($try_lock), "(" $(, $value)?, ").is_some());")]
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[inline]
            pub fn $try_lock(&self $(, $n: $Number)?) -> Option<$crate::guard::Guard<P, $crate::mode::$Mode>> {
                self.call($crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]))$(.$passing())?.attempt()
            }

            #[doc = concat!($does, ", blocking the thread while it waits.")]
            ///
            #[doc = concat!("Like [`", stringify!($Table), "::", stringify!($lock_blocking), "`], for the handle's key.")]
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($Table), "::", stringify!($lock_blocking), "`].")]
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more permits than a key can have.")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!("let guard = locks.handle(\"a\").", stringify!($lock_blocking), "(" $(, $value)?, ");")]
            /// # drop(guard);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[inline]
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
            pub fn $lock_blocking(&self $(, $n: $Number)?) -> $crate::guard::Guard<P, $crate::mode::$Mode> {
                self.call($crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]))$(.$passing())?.blocking()
            }

            #[doc = concat!($does, ", blocking the thread for at most `timeout`.")]
            ///
            #[doc = concat!("Like [`", stringify!($Table), "::", stringify!($try_lock_for), "`], for the handle's key.")]
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($Table), "::", stringify!($lock_blocking), "`], for at most")]
            /// `timeout`.
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more permits than a key can have.")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!(
                "assert!(locks.handle(\"a\").", stringify!($try_lock_for), "(" $(, $value, ", ")?,
                "std::time::Duration::ZERO).is_some());"
            )]
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
            pub fn $try_lock_for(
                &self,
                $($n: $Number,)?
                timeout: ::core::time::Duration,
            ) -> Option<$crate::guard::Guard<P, $crate::mode::$Mode>> {
                self.call($crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]))$(.$passing())?.timeout(timeout)
            }

            #[doc = concat!($does, ", blocking the thread until `deadline` at the latest.")]
            ///
            #[doc = concat!("Like [`", stringify!($Table), "::", stringify!($try_lock_until), "`], for the handle's")]
            /// key.
            ///
            /// # Blocking
            #[doc = concat!("Blocks like [`", stringify!($Table), "::", stringify!($lock_blocking), "`], until `deadline` at")]
            /// the latest.
            ///
            $(
                /// # Panics
                #[doc = concat!("If `", stringify!($n), "` is 0, or more permits than a key can have.")]
                ///
                #[track_caller]
            )?
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            #[doc = concat!(
                "assert!(locks.handle(\"a\").", stringify!($try_lock_until), "(" $(, $value, ", ")?,
                "std::time::Instant::now()).is_some());"
            )]
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            #[cfg(all(feature = "std", not(target_family = "wasm")))]
            #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
            pub fn $try_lock_until(
                &self,
                $($n: $Number,)?
                deadline: ::std::time::Instant,
            ) -> Option<$crate::guard::Guard<P, $crate::mode::$Mode>> {
                self.call($crate::locks::forms::mode::mode!(self.most_permits(), [$($n)?]))$(.$passing())?.deadline(deadline)
            }
        }
    };
    ($Table:ident, $Mode:ident, handles [], $($ignored:tt)*) => {};
}

pub(crate) use handle;
