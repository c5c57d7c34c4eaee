//! What a guard, a handle and a future keep their table alive with: a reference, or an `Arc`.

use core::fmt;
use core::marker::PhantomData;

use crate::core::Core;

/// A lock table: [`KeyedMutex`](crate::KeyedMutex) and its like. Sealed.
pub trait Table {
    /// What the table is keyed by.
    type Key;

    #[doc(hidden)]
    fn core(&self) -> &Core<Self::Key>;
}

/// A reference to a lock table, or an `Arc` of one. Sealed.
pub trait TablePtr: Clone + Unpin {
    /// The table's type.
    type Table: Table<Key = Self::Key>;
    /// What the table is keyed by.
    type Key;

    #[doc(hidden)]
    fn core(&self) -> &Core<Self::Key>;
}

/// A reference to a table of type `T`: what borrowed guards, handles and futures are made with.
pub struct TableRef<'a, T: Table> {
    core: &'a Core<T::Key>,
    // The table is not touched, only named: whether the hasher is `Send` does not matter here.
    table: PhantomData<fn() -> T>,
}

impl<'a, T: Table> TableRef<'a, T> {
    #[inline]
    pub(crate) fn new(table: &'a T) -> Self {
        TableRef { core: table.core(), table: PhantomData }
    }
}

impl<T: Table> Clone for TableRef<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Table> Copy for TableRef<'_, T> {}

impl<T: Table> fmt::Debug for TableRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRef").finish_non_exhaustive()
    }
}

impl<T: Table> TablePtr for TableRef<'_, T> {
    type Table = T;
    type Key = T::Key;

    #[inline]
    fn core(&self) -> &Core<T::Key> {
        self.core
    }
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> TablePtr for alloc::sync::Arc<T> {
    type Table = T;
    type Key = T::Key;

    #[inline]
    fn core(&self) -> &Core<T::Key> {
        (**self).core()
    }
}
