use core::fmt;

use crate::acquire::request::Call;
use crate::core::{ClaimIn, Live, Payload, Source};
use crate::mode::Mode;
use crate::plumbing::{PayloadOf, TablePtr, TableRef};

/// A reference to a key's entry, which acquires the key repeatedly without hashing it or looking it up again.
///
/// While a handle lives, its entry stays in the table, whether or not the key is held; the handle is neither a holder
/// nor a waiter. `P` is the reference to the table; use the aliases [`KeyHandle`] and [`KeyHandleArc`].
///
/// The guards of a handle refer to the table as the handle does, by a borrow or by an `Arc`. They do not borrow the
/// handle.
///
/// # Examples
/// ```
/// let locks = keylatch::KeyedMutex::<String>::new();
/// let a = locks.handle("a");
/// for _ in 0..3 {
///     let _guard = a.lock_blocking();
/// }
/// assert_eq!(locks.len(), 1); // the handle's
/// drop(a);
/// assert!(locks.is_empty());
/// ```
pub struct Handle<P: TablePtr> {
    table: P,
    /// The claim; `None` only while the handle is being dropped.
    claim: Option<ClaimIn<P>>,
}

/// A [`Handle`] that borrows its table, which has type `T`: `KeyHandle<'a, KeyedMutex<K>>`.
pub type KeyHandle<'a, T> = Handle<TableRef<'a, T>>;

/// A [`Handle`] that shares its table, which has type `T`: `KeyHandleArc<KeyedMutex<K>>`.
#[cfg(target_has_atomic = "ptr")]
pub type KeyHandleArc<T> = Handle<alloc::sync::Arc<T>>;

impl<P: TablePtr> Handle<P> {
    pub(crate) fn find(table: P, source: &mut impl Source<P::Key, P::Payload>) -> Self {
        let claim = table.core().claim(source);
        P::Payload::note_handle(claim.live().marks(), true);
        Handle { table, claim: Some(ClaimIn::new(claim)) }
    }

    #[inline]
    pub(crate) fn claim(&self) -> &ClaimIn<P> {
        self.claim.as_ref().expect("a handle has its claim until it is dropped")
    }

    /// Returns the key.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// assert_eq!(locks.handle(&7).key(), &7);
    /// ```
    #[must_use]
    pub fn key(&self) -> &P::Key {
        self.claim().live().key()
    }

    #[inline]
    pub(crate) fn call<M: Mode>(&self, mode: M) -> Call<P, Live<'_, P::Key, PayloadOf<P>>, M> {
        Call::new(self.table.clone(), self.claim().live(), mode)
    }

    /// Returns the greatest number of permits that a request can ask for.
    #[inline]
    pub(crate) fn most_permits(&self) -> usize {
        self.table.core().greatest_limit()
    }
}

impl<P: TablePtr> Clone for Handle<P> {
    /// Makes another handle for the same key.
    ///
    /// # Panics
    /// If the key has [`MAX_USERS`](crate::MAX_USERS) users already.
    fn clone(&self) -> Self {
        Handle::find(self.table.clone(), &mut self.claim().live())
    }
}

impl<P: TablePtr> Drop for Handle<P> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take().map(ClaimIn::into_claim) {
            P::Payload::note_handle(claim.live().marks(), false);
            self.table.core().withdraw(claim);
        }
    }
}

impl<P: TablePtr> fmt::Debug for Handle<P>
where
    P::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("key", self.key()).finish_non_exhaustive()
    }
}
