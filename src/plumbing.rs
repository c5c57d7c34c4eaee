//! The view that guards, handles, futures and the builder have of a table: how to get from it, or from what refers to it, to the
//! core. The traits are public, because public types have them as bounds, and sealed: what they can do is in
//! supertraits that only this crate can name.

use core::fmt;
use core::marker::PhantomData;

use crate::core::{Claim, Core, CoreRef, Ending, EntryTypes, Hold, Valued};

/// The methods behind the public traits, which cannot be implemented or named outside the crate:
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
/// A function that is generic over tables can call what its bound has, and do nothing with what it gets: a core has no
/// public methods, and only this crate makes one.
pub(crate) mod sealed {
    use crate::core::{Core, EntryTypes, Payload};

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
    pub trait TablePtrInside<K>: EntryTypes<EntryKey = K> {
        fn core(&self) -> &Core<K, Self::Payload>;
    }
}

/// Which table a [`Builder`](crate::Builder) makes. Sealed.
pub trait Kind: sealed::KindInside {
    /// The table that is made.
    type Table<K, S>: sealed::Assembled<K, S, Payload = <Self as sealed::KindInside>::Payload>
        + sealed::TableInside<K, Payload = <Self as sealed::KindInside>::Payload>
        + Table<Key = K>;
}

/// A lock table: [`KeyedMutex`](crate::KeyedMutex) and its like. Sealed.
pub trait Table: sealed::TableInside<<Self as Table>::Key> {
    /// The type of the table's keys.
    type Key;
    /// Which table it is, whatever its keys.
    type Kind: Kind<Table<Self::Key, Self::Hasher> = Self>;
    /// The type of the table's hasher.
    type Hasher;
}

/// A table with values: [`LockMap`](crate::LockMap). Sealed.
pub trait Map:
    ReaderWriter + sealed::TableInside<<Self as Table>::Key, Payload = Valued<<Self as Map>::Value>>
{
    /// The payload of a key.
    type Value;
}

/// A table of reader-writer locks: [`KeyedRwLock`](crate::KeyedRwLock) or [`LockMap`](crate::LockMap). Sealed.
pub trait ReaderWriter: Table {}

/// A reference to a lock table, or an `Arc` of one. Sealed.
pub trait TablePtr:
    sealed::TablePtrInside<
        <Self as TablePtr>::Key,
        EntryKey = <Self as TablePtr>::Key,
        Payload = <<Self as TablePtr>::Table as sealed::TableInside<<Self as TablePtr>::Key>>::Payload,
    > + Clone
    + Unpin
{
    /// The table's type.
    type Table: Table<Key = Self::Key>;
    /// The type of the table's keys.
    type Key;
}

/// The core of the table that `P` refers to, and what one has of its entries.
pub(crate) type CoreOf<P> = Core<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type EndingOf<'a, P> = Ending<'a, <P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type ClaimOf<P> = Claim<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type HoldOf<P, M> = Hold<<P as TablePtr>::Key, PayloadOf<P>, M>;
/// The type of the values of the table that `P` refers to.
pub(crate) type ValueOf<P> = <<P as TablePtr>::Table as Map>::Value;
pub(crate) type PayloadOf<P> = <P as EntryTypes>::Payload;

/// A reference to a table of type `T`: what borrowed guards, handles and futures are made with.
pub type TableRef<'a, T> = Borrowed<'a, <T as Table>::Kind, <T as Table>::Key, <T as Table>::Hasher>;

/// A reference to a table of the kind `T`, with keys `K` and the hasher `S`. Named as a [`TableRef`].
///
/// It is covariant in `'a` and in `K`, as `&KeyedMutex<K>` is not: no key gets into the table by it.
pub struct Borrowed<'a, T: Kind, K, S> {
    core: CoreRef<'a, K, T::Payload>,
    // The hasher is not touched, only named: whether it is `Send` does not matter here.
    hasher: PhantomData<fn() -> S>,
}

impl<'a, T: Kind, K, S> Borrowed<'a, T, K, S> {
    #[inline]
    pub(crate) fn new(core: &'a Core<K, T::Payload>) -> Self {
        Borrowed { core: CoreRef::new(core), hasher: PhantomData }
    }
}

impl<T: Kind, K, S> Clone for Borrowed<'_, T, K, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Kind, K, S> Copy for Borrowed<'_, T, K, S> {}

impl<T: Kind, K, S> fmt::Debug for Borrowed<'_, T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRef").finish_non_exhaustive()
    }
}

impl<T: Kind, K, S> TablePtr for Borrowed<'_, T, K, S> {
    type Table = T::Table<K, S>;
    type Key = K;
}

impl<T: Kind, K, S> EntryTypes for Borrowed<'_, T, K, S> {
    type EntryKey = K;
    type Payload = T::Payload;
}

impl<T: Kind, K, S> sealed::TablePtrInside<K> for Borrowed<'_, T, K, S> {
    #[inline]
    fn core(&self) -> &Core<K, T::Payload> {
        self.core.core()
    }
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> TablePtr for alloc::sync::Arc<T> {
    type Table = T;
    type Key = T::Key;
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> EntryTypes for alloc::sync::Arc<T> {
    type EntryKey = T::Key;
    type Payload = T::Payload;
}

#[cfg(target_has_atomic = "ptr")]
impl<T: Table> sealed::TablePtrInside<T::Key> for alloc::sync::Arc<T> {
    #[inline]
    fn core(&self) -> &Core<T::Key, T::Payload> {
        (**self).core()
    }
}
