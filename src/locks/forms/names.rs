//! The type aliases for the guards and futures of an operation.

macro_rules! names {
    (
        $Table:ident [$($V:ident)?], $Mode:ident, $lock:ident, $lock_arc:ident,
        held = $held:literal, $Guard:ident, $GuardArc:ident,
        $Future:ident, $FutureArc:ident,
    ) => {
        #[doc = concat!($held, ", borrowing the table.")]
        ///
        /// # Examples
        #[doc = concat!("See [`", stringify!($Table), "::", stringify!($lock), "`].")]
        pub type $Guard<'a, K, $($V,)? S = $crate::builder::DefaultHashBuilder> =
            $crate::guard::Guard<$crate::plumbing::TableRef<'a, $Table<K, $($V,)? S>>, $crate::mode::$Mode>;

        #[doc = concat!($held, ", sharing ownership of the table.")]
        ///
        /// It has no lifetime parameter, because its `Arc` keeps the table alive.
        ///
        /// # Examples
        #[doc = concat!("See [`", stringify!($Table), "::", stringify!($lock_arc), "`].")]
        #[cfg(target_has_atomic = "ptr")]
        pub type $GuardArc<K, $($V,)? S = $crate::builder::DefaultHashBuilder> =
            $crate::guard::Guard<::alloc::sync::Arc<$Table<K, $($V,)? S>>, $crate::mode::$Mode>;

        #[doc = concat!("The future of [`", stringify!($Table), "::", stringify!($lock), "`].")]
        pub type $Future<'a, K, $($V,)? S = $crate::builder::DefaultHashBuilder> =
            $crate::acquire::future::Acquire<$crate::plumbing::TableRef<'a, $Table<K, $($V,)? S>>, $crate::mode::$Mode>;

        #[doc = concat!("The future of [`", stringify!($Table), "::", stringify!($lock_arc), "`].")]
        #[cfg(target_has_atomic = "ptr")]
        pub type $FutureArc<K, $($V,)? S = $crate::builder::DefaultHashBuilder> =
            $crate::acquire::future::Acquire<::alloc::sync::Arc<$Table<K, $($V,)? S>>, $crate::mode::$Mode>;
    };
}

pub(crate) use names;
