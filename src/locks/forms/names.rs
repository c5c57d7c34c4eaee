//! The names of what an operation gives: its guards and its futures.

macro_rules! names {
    (
        $Table:ident [$($V:ident)?], $Mode:ident, $lock:ident, $lock_arc:ident,
        held = $held:literal, $Guard:ident, $GuardArc:ident,
        $Future:ident, $FutureArc:ident,
    ) => {
        #[doc = concat!($held, ", borrowing the table.")]
        pub type $Guard<'a, K, $($V,)? S = $crate::builder::DefaultHashBuilder> =
            $crate::guard::Guard<$crate::plumbing::TableRef<'a, $Table<K, $($V,)? S>>, $crate::mode::$Mode>;

        #[doc = concat!($held, ", owning a share of the table.")]
        ///
        /// It has no lifetime, and keeps the table, which is in an `Arc`, alive.
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
