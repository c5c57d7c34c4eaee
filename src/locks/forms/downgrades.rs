//! The downgrades of a writer.
//!
//! The macro defines the downgrades separately for each type of reference to a table. Otherwise the documentation would
//! show them for a mutex's guard, too, because its mode is exclusive like a writer's.
macro_rules! downgrades {
    (new = $new:literal, $($(#[$if:meta])* [$($generics:tt)+] $P:ty;)+) => {$(
        /// Downgrades of a writer. The [policy](crate::Fairness) treats a downgrade like a writer that leaves.
        $(#[$if])*
        impl<$($generics)+> $crate::guard::Guard<$P, $crate::mode::Exclusive> {
            /// Downgrades to a reader. Waiting readers may get in beside it; no writer gets in between.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let reader = locks.try_write("a").unwrap().downgrade();
            /// assert!(locks.try_read("a").is_some() && locks.try_write("a").is_none());
            /// # drop(reader);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn downgrade(self) -> $crate::guard::Guard<$P, $crate::mode::Shared> {
                self.downgraded()
            }

            /// Downgrades to an upgradable reader. Waiting readers may get in beside it; no writer gets in between.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let locks = keylatch::", $new, ";")]
            /// let reader = locks.try_write("a").unwrap().downgrade_to_upgradable();
            /// let writer = reader.try_upgrade().unwrap();
            /// # drop(writer);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn downgrade_to_upgradable(self) -> $crate::guard::Guard<$P, $crate::mode::Upgradable> {
                self.downgraded()
            }
        }
    )+};
}

pub(crate) use downgrades;
