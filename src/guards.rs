use core::fmt;

use equivalent::Equivalent;

use crate::guard::{Guard, Released};
use crate::list::{self, List};
use crate::mode::{Exclusive, Mode, Permit, ReadOrWrite, Shared};
use crate::plumbing::TablePtr;

/// The guards of several keys that were acquired at once, in the order in which the keys were first named.
///
/// The `_many` calls return a `Guards`: [`lock_many`](crate::KeyedMutex::lock_many) and its forms. A key that was named
/// twice has one guard.
///
/// Dropping it releases all of the keys, and then wakes their waiters. [`remove`](Guards::remove) takes one guard out,
/// and [`IntoIterator`] takes them all out: each [`Guard`] is an ordinary one, which may be released before the
/// others, downgraded, or sent elsewhere. Dropping the iterator releases the guards that are left in it.
///
/// `P` and `M` are the parameters of each [`Guard`]: the reference to the table, and the [mode](crate::mode). Each
/// table has aliases: [`MutexGuards`](crate::MutexGuards), [`ReadGuards`](crate::ReadGuards),
/// [`WriteGuards`](crate::WriteGuards), [`PermitGuards`](crate::PermitGuards),
/// [`MapReadGuards`](crate::MapReadGuards), [`MapWriteGuards`](crate::MapWriteGuards), and the same names with the
/// suffix `Arc` for owned guards.
///
/// # Examples
/// ```
/// use keylatch::{MutexGuards, MutexGuardsArc};
///
/// struct Transfer<'a> {
///     accounts: MutexGuards<'a, String>, // of `lock_many`
/// }
///
/// struct LongTransfer {
///     accounts: MutexGuardsArc<String>, // of `lock_many_arc`
/// }
/// ```
///
/// Releasing them one by one:
/// ```
/// let accounts = keylatch::KeyedMutex::<String>::new();
/// let guards = accounts.lock_many_blocking(["savings", "cash", "savings"]);
/// assert_eq!(guards.len(), 2);
///
/// let [savings, cash] = guards.into_iter().collect::<Vec<_>>().try_into().unwrap();
/// drop(savings);
/// assert!(accounts.is_locked("cash"));
/// # drop(cash);
/// ```
#[must_use = "the keys are released when the guards are dropped"]
#[clippy::has_significant_drop]
pub struct Guards<P: TablePtr, M: Mode> {
    list: List<Guard<P, M>>,
}

pub(crate) type ExclusiveGuards<P> = Guards<P, Exclusive>;
pub(crate) type SharedGuards<P> = Guards<P, Shared>;
pub(crate) type PermitGuards<P> = Guards<P, Permit>;
pub(crate) type ReadWriteGuards<P> = (Guards<P, Shared>, Guards<P, Exclusive>);

impl<P: TablePtr, M: Mode> Guards<P, M> {
    #[inline]
    pub(crate) fn new(list: List<Guard<P, M>>) -> Self {
        Guards { list }
    }

    #[inline]
    pub(crate) fn push(&mut self, guard: Guard<P, M>) {
        self.list.push(guard);
    }

    /// Takes all guards out, to be released together with others.
    #[inline]
    pub(crate) fn take_all(&mut self) -> List<Guard<P, M>> {
        core::mem::take(&mut self.list)
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Guard<P, M>] {
        self.list.as_slice()
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Guard<P, M>] {
        self.list.as_mut_slice()
    }

    /// Returns the number of guards.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// assert_eq!(locks.try_lock_many([&7, &8, &7]).unwrap().len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.as_slice().len()
    }

    /// Returns whether there are no guards: no key was named, all guards have been [removed](Guards::remove), or
    /// `read_write_many` was told to read only keys that it was also told to write.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// assert!(locks.try_lock_many::<u64>([]).unwrap().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the guard of `key`, if there is one. Compares the keys one after another.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let guards = locks.try_lock_many(["a", "b"]).unwrap();
    /// assert_eq!(guards.get("b").unwrap().key(), "b");
    /// assert!(guards.get("c").is_none());
    /// ```
    #[must_use]
    pub fn get<Q: ?Sized + Equivalent<P::Key>>(&self, key: &Q) -> Option<&Guard<P, M>> {
        self.iter().find(|guard| key.equivalent(guard.key()))
    }

    /// Returns the guard of `key` by mutable reference, if there is one. Compares the keys one after another.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let mut guards = locks.try_lock_many([&7, &8]).unwrap();
    /// assert_eq!(guards.get_mut(&8).unwrap().key(), &8);
    /// ```
    #[must_use]
    pub fn get_mut<Q: ?Sized + Equivalent<P::Key>>(&mut self, key: &Q) -> Option<&mut Guard<P, M>> {
        self.iter_mut().find(|guard| key.equivalent(guard.key()))
    }

    /// Removes and returns the guard of `key`, if there is one; the other guards keep their order. Takes time linear in
    /// the number of guards.
    ///
    /// Nothing is removed from the table: the returned guard is an ordinary one, which still holds its key. To release
    /// the key, drop it: `drop(guards.remove("a"))`.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<String>::new();
    /// let mut guards = locks.try_lock_many(["a", "b", "c"]).unwrap();
    /// let b = guards.remove("b").unwrap();
    /// drop(guards.remove("a"));
    /// assert!(guards.remove("a").is_none());
    /// assert_eq!((guards.len(), b.key().as_str()), (1, "b"));
    /// assert!(!locks.is_locked("a") && locks.is_locked("b") && locks.is_locked("c"));
    /// ```
    #[must_use = "dropping the guard releases the key; write `drop(guards.remove(..))` if that is intended"]
    pub fn remove<Q: ?Sized + Equivalent<P::Key>>(&mut self, key: &Q) -> Option<Guard<P, M>> {
        let index = self.iter().position(|guard| key.equivalent(guard.key()))?;
        self.list.remove(index)
    }

    /// Returns an iterator over the guards, in the order in which their keys were first named.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let guards = locks.try_lock_many([&8, &7]).unwrap();
    /// assert!(guards.iter().map(|guard| guard.key()).eq([&8, &7]));
    /// ```
    pub fn iter(&self) -> core::slice::Iter<'_, Guard<P, M>> {
        self.list.as_slice().iter()
    }

    /// Returns an iterator over the guards by mutable reference, in the order in which their keys were first named.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let mut guards = locks.try_lock_many([&8, &7]).unwrap();
    /// assert!(guards.iter_mut().map(|guard| *guard.key()).eq([8, 7]));
    /// ```
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Guard<P, M>> {
        self.list.as_mut_slice().iter_mut()
    }
}

impl<P: TablePtr, M: Mode> Drop for Guards<P, M> {
    #[inline]
    fn drop(&mut self) {
        if let List::Many(_) = &self.list {
            release_all(self.take_all());
        } // a single guard is dropped with its field
    }
}

#[inline(never)]
fn release_all<P: TablePtr, M: Mode>(guards: List<Guard<P, M>>) {
    Released::default().release(guards);
}

impl<P: TablePtr, M: Mode> IntoIterator for Guards<P, M> {
    type Item = Guard<P, M>;
    type IntoIter = IntoIter<P, M>;

    fn into_iter(mut self) -> IntoIter<P, M> {
        IntoIter { guards: self.take_all().into_iter() }
    }
}

impl<'a, P: TablePtr, M: Mode> IntoIterator for &'a Guards<P, M> {
    type Item = &'a Guard<P, M>;
    type IntoIter = core::slice::Iter<'a, Guard<P, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, P: TablePtr, M: Mode> IntoIterator for &'a mut Guards<P, M> {
    type Item = &'a mut Guard<P, M>;
    type IntoIter = core::slice::IterMut<'a, Guard<P, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<P: TablePtr, M: Mode> fmt::Debug for Guards<P, M>
where
    P::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// The iterator that takes [`Guards`] apart. Dropping it releases the guards that are left.
///
/// # Examples
/// ```
/// let locks = keylatch::KeyedMutex::<u64>::new();
/// let mut guards = locks.try_lock_many([&7, &8]).unwrap().into_iter();
/// let seven = guards.next().unwrap();
/// drop(guards);
/// assert!(locks.is_locked(&7) && !locks.is_locked(&8));
/// # drop(seven);
/// ```
pub struct IntoIter<P: TablePtr, M: Mode> {
    guards: list::IntoIter<Guard<P, M>>,
}

impl<P: TablePtr, M: Mode> Iterator for IntoIter<P, M> {
    type Item = Guard<P, M>;

    fn next(&mut self) -> Option<Guard<P, M>> {
        self.guards.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.guards.size_hint()
    }
}

impl<P: TablePtr, M: Mode> DoubleEndedIterator for IntoIter<P, M> {
    fn next_back(&mut self) -> Option<Guard<P, M>> {
        self.guards.next_back()
    }
}

impl<P: TablePtr, M: Mode> ExactSizeIterator for IntoIter<P, M> {}
impl<P: TablePtr, M: Mode> core::iter::FusedIterator for IntoIter<P, M> {}

impl<P: TablePtr, M: Mode> Drop for IntoIter<P, M> {
    fn drop(&mut self) {
        if self.guards.len() > 0 {
            release_all(self.guards.take_rest());
        }
    }
}

impl<P: TablePtr, M: Mode> fmt::Debug for IntoIter<P, M>
where
    P::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.guards.as_slice()).finish()
    }
}

/// The mode in which an [`AcquireMany`](crate::futures::AcquireMany) acquires its keys. Sealed.
///
/// | mode | call | output |
/// |---|---|---|
/// | [`Exclusive`] | `lock_many`, `write_many` | [`Guards`] |
/// | [`Shared`] | `read_many` | [`Guards`] |
/// | [`ReadOrWrite`] | `read_write_many` | a pair of [`Guards`]: of the keys that are read, and of the keys that are written |
/// | [`Permit`] | `acquire_many`, `acquire_n_many` | [`Guards`] |
pub trait ManyMode: sealed::ManyModeInside {
    /// The type of the guards that a call in this mode returns.
    type Guards<P: TablePtr>;
}

/// The methods of the sealed trait. Other crates can neither name nor implement it.
pub(crate) mod sealed {
    use super::{Guards, ManyMode, Mode, TablePtr};

    #[allow(unreachable_pub)] // the supertrait of a public trait
    pub trait ManyModeInside: Mode {
        /// Converts the guards to the type in which the call returns them.
        fn gather<P: TablePtr>(guards: Guards<P, Self>) -> <Self as ManyMode>::Guards<P>
        where
            Self: ManyMode;
    }
}

macro_rules! one_list {
    ($($Mode:ident),+) => {$(
        impl ManyMode for $Mode {
            type Guards<P: TablePtr> = Guards<P, $Mode>;
        }

        impl sealed::ManyModeInside for $Mode {
            #[inline]
            fn gather<P: TablePtr>(guards: Guards<P, Self>) -> Guards<P, $Mode> {
                guards
            }
        }
    )+};
}

one_list!(Exclusive, Shared, Permit);

impl ManyMode for ReadOrWrite {
    /// The guards of the keys that are read, and of the keys that are written.
    type Guards<P: TablePtr> = (Guards<P, Shared>, Guards<P, Exclusive>);
}

impl sealed::ManyModeInside for ReadOrWrite {
    fn gather<P: TablePtr>(guards: Guards<P, Self>) -> <Self as ManyMode>::Guards<P> {
        let (mut reads, mut writes) = (Guards::new(List::default()), Guards::new(List::default()));
        for guard in guards {
            if guard.mode().writes {
                writes.push(guard.into_mode());
            } else {
                reads.push(guard.into_mode());
            }
        }
        (reads, writes)
    }
}
