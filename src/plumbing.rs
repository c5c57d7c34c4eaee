//! The traits by which guards, handles, futures and the builder reach the core of a table, from the table or from a
//! reference to it. They are public, because public types have them as bounds, and sealed: their methods are in
//! supertraits that only this crate can name.

use core::fmt;
use core::marker::PhantomData;

use crate::core::{Claim, Core, Ending, Hold, Valued};
use crate::status::Status;

/// The methods of the sealed traits. Other crates can neither name nor implement them:
///
/// ```compile_fail,E0782
/// let _ = keylatch::table::Table::core(&keylatch::KeyedMutex::<u64>::new());
/// ```
/// ```compile_fail,E0599
/// use keylatch::table::Table;
/// let _ = keylatch::KeyedMutex::<u64>::new().core();
/// ```
/// ```compile_fail,E0277
/// struct Mine;
/// impl keylatch::table::Table for Mine {
///     type Key = u64;
/// }
/// ```
///
/// A function that is generic over tables can call `core` through its bound, but cannot use the result: a core has no
/// public methods, and only this crate makes one.
pub(crate) mod sealed {
    use crate::core::{Core, Payload};

    #[allow(unreachable_pub)] // the supertrait of a public trait
    pub trait KindInside {
        /// The payload of an entry.
        type Payload: Payload;
    }

    #[allow(unreachable_pub)]
    pub trait Assembled<K, S> {
        /// The payload of an entry.
        type Payload: Payload;

        fn assemble(core: Core<K, Self::Payload>, hasher: S) -> Self;
    }

    #[allow(unreachable_pub)]
    pub trait TableInside<K> {
        /// The payload of an entry.
        type Payload: Payload;

        fn core(&self) -> &Core<K, Self::Payload>;
    }

    #[allow(unreachable_pub)]
    pub trait TablePtrInside<K> {
        /// The payload of the table's entries.
        type Payload: Payload;

        fn core(&self) -> &Core<K, Self::Payload>;
    }
}

/// The kind of table that a [`Builder`](crate::Builder) builds. Sealed.
pub trait Kind: sealed::KindInside {
    /// The table that is built.
    type Table<K, S>: sealed::Assembled<K, S, Payload = <Self as sealed::KindInside>::Payload>;
}

/// A lock table: [`KeyedMutex`](crate::KeyedMutex), [`KeyedRwLock`](crate::KeyedRwLock),
/// [`KeyedSemaphore`](crate::KeyedSemaphore) or [`LockMap`](crate::LockMap). Sealed.
pub trait Table: sealed::TableInside<<Self as Table>::Key> {
    /// The type of the table's keys.
    type Key;
}

/// A table with values: [`LockMap`](crate::LockMap). Sealed.
pub trait Map:
    ReaderWriter + sealed::TableInside<<Self as Table>::Key, Payload = Valued<<Self as Map>::Value>>
{
    /// The type of the map's values.
    type Value;
}

/// A table of reader-writer locks: [`KeyedRwLock`](crate::KeyedRwLock) or [`LockMap`](crate::LockMap). Sealed.
pub trait ReaderWriter: Table {}

/// A reference to a lock table, or an `Arc` of one. Sealed.
pub trait TablePtr:
    sealed::TablePtrInside<
        <Self as TablePtr>::Key,
        Payload = <<Self as TablePtr>::Table as sealed::TableInside<<Self as TablePtr>::Key>>::Payload,
    > + Clone
    + Unpin
{
    /// The table's type.
    type Table: Table<Key = Self::Key>;
    /// The type of the table's keys.
    type Key;
}

/// The core of the table that `P` refers to. The aliases below are for its entries.
pub(crate) type CoreOf<P> = Core<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type EndingOf<'a, P> = Ending<'a, <P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type ClaimOf<P> = Claim<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type HoldOf<P, M> = Hold<<P as TablePtr>::Key, PayloadOf<P>, M>;
/// The type of the values of the table that `P` refers to.
pub(crate) type ValueOf<P> = <<P as TablePtr>::Table as Map>::Value;
pub(crate) type PayloadOf<P> = <P as sealed::TablePtrInside<<P as TablePtr>::Key>>::Payload;

/// A reference to a table of type `T`, as borrowed guards, handles and futures have it.
pub struct TableRef<'a, T: Table> {
    core: &'a Core<T::Key, T::Payload>,
    // The table is only named, not used, so its hasher need not be `Send`.
    table: PhantomData<fn() -> T>,
}

impl<'a, T: Table> TableRef<'a, T> {
    #[inline]
    pub(crate) fn new(table: &'a T) -> Self {
        TableRef { core: table.core(), table: PhantomData }
    }

    pub(crate) fn for_each_key(&self, mut f: impl FnMut(&T::Key, Status)) {
        self.core.for_each(|key, snapshot| f(key, Status::new(snapshot)));
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
}

impl<T: Table> sealed::TablePtrInside<T::Key> for TableRef<'_, T> {
    type Payload = T::Payload;

    #[inline]
    fn core(&self) -> &Core<T::Key, T::Payload> {
        self.core
    }
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> TablePtr for alloc::sync::Arc<T> {
    type Table = T;
    type Key = T::Key;
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> sealed::TablePtrInside<T::Key> for alloc::sync::Arc<T> {
    type Payload = T::Payload;

    #[inline]
    fn core(&self) -> &Core<T::Key, T::Payload> {
        (**self).core()
    }
}
