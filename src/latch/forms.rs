//! The forms of an operation, which are the same for a latch and a stripe. Each makes a request and calls one of its
//! methods.
//!
//! The macro defines all forms of an operation, except those with owned guards.
macro_rules! forms {
    (
        $op:ident / $blocking:ident / $try:ident / $for:ident / $until:ident = $mode:expr, $Mode:ident: $what:literal,
        // The key argument, if there is one, and the generic parameters and bounds for it.
        [$($key:ident: $Key:ty)?] [$($Q:tt)*] [$($bounds:tt)*] of $request:ident $(.$passing:ident)?,
        new = $new:literal, subject = $subject:literal, key = $example:literal, more = $more:literal $(,)?
        // The rest of the operation's docs.
        $(#[doc = $docs:literal])*
    ) => {
        #[doc = concat!("Acquires ", $subject, " ", $what, ": a future whose output is the guard.")]
        ///
        $(#[doc = $docs])*
        #[doc = "# Cancel safety"]
        /// The future may be dropped at any moment: see [`LatchAcquire`](crate::futures::LatchAcquire).
        ///
        /// # Examples
        /// ```
        /// # futures_lite::future::block_on(async {
        #[doc = concat!("let latch = keylatch::", $new, ";")]
        #[doc = concat!("let guard = latch.", stringify!($op), "(", $example, ").await;")]
        /// # drop(guard);
        /// # });
        /// ```
        #[inline]
        pub fn $op<$($Q)*>(&self $(, $key: $Key)?) -> $crate::latch::LatchAcquire<'_, $crate::mode::$Mode>
        $($bounds)*
        {
            $crate::latch::LatchAcquire::new(self.$request($mode $(, $key)?)$(.$passing())?)
        }

        #[doc = concat!("Acquires ", $subject, " ", $what, ", if that is possible without waiting.")]
        ///
        $(#[doc = $docs])*
        /// # Examples
        /// ```
        #[doc = concat!("let latch = keylatch::", $new, ";")]
        #[doc = concat!("let guard = latch.", stringify!($try), "(", $example, ").unwrap();")]
        /// # drop(guard);
        /// ```
        #[inline]
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $try<$($Q)*>(
            &self
            $(, $key: $Key)?
        ) -> Option<$crate::latch::LatchGuard<'_, $crate::mode::$Mode>>
        $($bounds)*
        {
            self.$request($mode $(, $key)?)$(.$passing())?.attempt()
        }

        #[doc = concat!("Acquires ", $subject, " ", $what, ", and blocks the thread while it waits.")]
        ///
        $(#[doc = $docs])*
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        #[doc = concat!("let latch = keylatch::", $new, ";")]
        #[doc = concat!("let guard = latch.", stringify!($blocking), "(", $example, ");")]
        /// # drop(guard);
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[inline]
        pub fn $blocking<$($Q)*>(&self $(, $key: $Key)?) -> $crate::latch::LatchGuard<'_, $crate::mode::$Mode>
        $($bounds)*
        {
            $crate::latch::request::block_on(self.$request($mode $(, $key)?)$(.$passing())?)
        }

        #[doc = concat!("Acquires ", $subject, " ", $what, ", and blocks the thread for at most `timeout`.")]
        ///
        $(#[doc = $docs])*
        /// Returns `None` after the timeout. It tries at least once.
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// use std::time::Duration;
        ///
        #[doc = concat!("let latch = keylatch::", $new, ";")]
        #[doc = concat!("let _writer = latch.try_write(", $example, ");")]
        #[doc = concat!("assert!(latch.", stringify!($for), "(", $example, $more, "Duration::from_millis(1)).is_none());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $for<$($Q)*>(
            &self
            $(, $key: $Key)?
            , timeout: ::std::time::Duration,
        ) -> Option<$crate::latch::LatchGuard<'_, $crate::mode::$Mode>>
        $($bounds)*
        {
            $crate::latch::request::block_for(self.$request($mode $(, $key)?)$(.$passing())?, timeout)
        }

        #[doc = concat!("Acquires ", $subject, " ", $what, ", and blocks the thread until `deadline` at the latest.")]
        ///
        $(#[doc = $docs])*
        /// Returns `None` after the deadline. It tries at least once.
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// use std::time::Instant;
        ///
        #[doc = concat!("let latch = keylatch::", $new, ";")]
        #[doc = concat!("let _writer = latch.try_write(", $example, ");")]
        #[doc = concat!("assert!(latch.", stringify!($until), "(", $example, $more, "Instant::now()).is_none());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $until<$($Q)*>(
            &self
            $(, $key: $Key)?
            , deadline: ::std::time::Instant,
        ) -> Option<$crate::latch::LatchGuard<'_, $crate::mode::$Mode>>
        $($bounds)*
        {
            $crate::latch::request::block_until(self.$request($mode $(, $key)?)$(.$passing())?, deadline)
        }
    };
}

pub(super) use forms;
