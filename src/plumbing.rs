//! The traits by which guards, handles, futures and the builder reach the core of a table, from the table or from a
//! reference to it. They are public, because public types have them as bounds, and sealed: their methods are in
//! supertraits that only this crate can name.

use core::fmt;
use core::marker::PhantomData;

use crate::core::{Claim, Core, CoreRef, Ending, EntryTypes, Hold, Valued};
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
    pub trait TableTypesInside: EntryTypes {}

    #[allow(unreachable_pub)]
    pub trait TablePtrInside<K>: EntryTypes<EntryKey = K> {
        fn core(&self) -> &Core<K, Self::Payload>;
    }
}

/// The kind of table that a [`Builder`](crate::Builder) builds. Sealed.
pub trait Kind: sealed::KindInside {
    /// The table that is built.
    type Table<K, S>: sealed::Assembled<K, S, Payload = <Self as sealed::KindInside>::Payload>
        + sealed::TableInside<K, Payload = <Self as sealed::KindInside>::Payload>
        + Table<Key = K>;
}

/// A lock table: [`KeyedMutex`](crate::KeyedMutex), [`KeyedRwLock`](crate::KeyedRwLock),
/// [`KeyedSemaphore`](crate::KeyedSemaphore) or [`LockMap`](crate::LockMap). Sealed.
pub trait Table: sealed::TableInside<<Self as Table>::Key> {
    /// The type of the table's keys.
    type Key;
    /// The types that make up a reference to the table.
    type Types: TableTypes<
            Table = Self,
            EntryKey = Self::Key,
            Payload = <Self as sealed::TableInside<<Self as Table>::Key>>::Payload,
        >;
}

/// The types that make up a [`TableRef`], in place of the type of the table. Sealed.
pub trait TableTypes: sealed::TableTypesInside {
    /// The table's type.
    type Table: Table<Key = Self::EntryKey> + sealed::TableInside<Self::EntryKey, Payload = Self::Payload>;
}

/// The types of a table of the kind `T`, with keys `K` and the hasher `S`.
///
/// This type only names other types, and no value of it is ever made. It is covariant in `K`, although the table is
/// invariant in `K`.
pub struct TypesOf<T, K, S>(PhantomData<Variance<T, K, S>>);

/// A type that is covariant in the keys and the hasher. Because it consists of functions, it is `Send` whatever the
/// hasher is: the table is only named, not used. It is invariant in the kind, which names the type of the values,
/// because a reference to the table can change the values.
type Variance<T, K, S> = (fn(T) -> T, fn() -> (K, S));

impl<T, K, S> fmt::Debug for TypesOf<T, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypesOf").finish_non_exhaustive()
    }
}

impl<T: Kind, K, S> TableTypes for TypesOf<T, K, S> {
    type Table = T::Table<K, S>;
}

impl<T: Kind, K, S> sealed::TableTypesInside for TypesOf<T, K, S> {}

impl<T: Kind, K, S> EntryTypes for TypesOf<T, K, S> {
    type EntryKey = K;
    type Payload = T::Payload;
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

/// The core of the table that `P` refers to. The aliases below are for its entries.
pub(crate) type CoreOf<P> = Core<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type EndingOf<'a, P> = Ending<'a, <P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type ClaimOf<P> = Claim<<P as TablePtr>::Key, PayloadOf<P>>;
pub(crate) type HoldOf<P, M> = Hold<<P as TablePtr>::Key, PayloadOf<P>, M>;
/// The type of the values of the table that `P` refers to.
pub(crate) type ValueOf<P> = <<P as TablePtr>::Table as Map>::Value;
pub(crate) type PayloadOf<P> = <P as EntryTypes>::Payload;

/// The reference to a table of type `T` that borrowed guards, handles and futures contain.
///
/// `R` follows from `T` and need not be named. The fields use it in place of `T`, so a `TableRef` is covariant in the
/// type of the keys, unlike `&'a T`. That is sound because a `TableRef` leads to existing keys, but cannot add a key to
/// the table.
pub struct TableRef<'a, T: Table, R: TableTypes<Table = T> = <T as Table>::Types> {
    core: CoreRef<'a, R>,
}

impl<'a, T: Table> TableRef<'a, T> {
    #[inline]
    pub(crate) fn new(table: &'a T) -> Self {
        TableRef { core: CoreRef::new(table.core()) }
    }
}

impl<T: Table, R: TableTypes<Table = T>> TableRef<'_, T, R> {
    pub(crate) fn for_each_key(&self, mut f: impl FnMut(&R::EntryKey, Status)) {
        sealed::TablePtrInside::core(self).for_each(|key, snapshot| f(key, Status::new(snapshot)));
    }
}

impl<T: Table, R: TableTypes<Table = T>> Clone for TableRef<'_, T, R> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Table, R: TableTypes<Table = T>> Copy for TableRef<'_, T, R> {}

impl<T: Table, R: TableTypes<Table = T>> fmt::Debug for TableRef<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRef").finish_non_exhaustive()
    }
}

impl<T, R> TablePtr for TableRef<'_, T, R>
where
    T: Table<Key = R::EntryKey> + sealed::TableInside<R::EntryKey, Payload = R::Payload>,
    R: TableTypes<Table = T>,
{
    type Table = T;
    type Key = R::EntryKey;
}

impl<T: Table, R: TableTypes<Table = T>> EntryTypes for TableRef<'_, T, R> {
    type EntryKey = R::EntryKey;
    type Payload = R::Payload;
}

impl<T: Table, R: TableTypes<Table = T>> sealed::TablePtrInside<R::EntryKey> for TableRef<'_, T, R> {
    #[inline]
    fn core(&self) -> &Core<R::EntryKey, R::Payload> {
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
