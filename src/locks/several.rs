//! Aliases of [`Guards`] for each table and mode.

use super::{KeyedMutex, KeyedRwLock, KeyedSemaphore, LockMap};
use crate::builder::DefaultHashBuilder;
use crate::guards::Guards;
use crate::mode::{Exclusive, Permit, Shared};
use crate::plumbing::TableRef;

macro_rules! several {
    ($($Guards:ident, $GuardsArc:ident: $Table:ident [$($V:ident)?], $Mode:ident, $lock:literal;)+) => {$(
        #[doc = concat!("The guards of several keys of a [`", stringify!($Table), "`], which borrow the table: the output of")]
        #[doc = concat!("[`", $lock, "`](", stringify!($Table), "::", $lock, ").")]
        pub type $Guards<'a, K, $($V,)? S = DefaultHashBuilder> = Guards<TableRef<'a, $Table<K, $($V,)? S>>, $Mode>;

        #[doc = concat!("The guards of several keys of a [`", stringify!($Table), "`], which keep the table alive: the output of")]
        #[doc = concat!("[`", $lock, "_arc`](", stringify!($Table), "::", $lock, "_arc).")]
        #[cfg(target_has_atomic = "ptr")]
        pub type $GuardsArc<K, $($V,)? S = DefaultHashBuilder> = Guards<::alloc::sync::Arc<$Table<K, $($V,)? S>>, $Mode>;
    )+};
}

several! {
    MutexGuards, MutexGuardsArc: KeyedMutex [], Exclusive, "lock_many";
    ReadGuards, ReadGuardsArc: KeyedRwLock [], Shared, "read_many";
    WriteGuards, WriteGuardsArc: KeyedRwLock [], Exclusive, "write_many";
    PermitGuards, PermitGuardsArc: KeyedSemaphore [], Permit, "acquire_many";
    MapReadGuards, MapReadGuardsArc: LockMap [V], Shared, "read_many";
    MapWriteGuards, MapWriteGuardsArc: LockMap [V], Exclusive, "write_many";
}
