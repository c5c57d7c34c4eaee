use core::fmt;

#[cfg(target_has_atomic = "ptr")]
use crate::core::Identity;
use crate::core::{HoldIn, Live, Payload as _, ReleaseFor, WakeBatch};
use crate::list::List;
use crate::mode::{HandOver, Mode, Permit};
use crate::panics::{Panics, run_all};
use crate::plumbing::{ClaimOf, CoreOf, HoldOf, PayloadOf, TablePtr};

const HELD: &str = "a guard has its hold until it is dropped";

/// A hold on a key, released when the guard is dropped.
///
/// There is one guard for all locks and all forms of acquiring. `P` is the guard's reference to the table: a borrow, or
/// an `Arc` for a `'static` guard. `M` is the [mode](crate::mode). Use the aliases, such as
/// [`MutexGuard`](crate::MutexGuard).
///
/// A guard is `Send` and `Sync` if the key is (in a map, the key and the value). It may be dropped in a thread or task
/// other than the one that acquired it. A drop during a panic releases the key, too: there is no poisoning.
///
/// # Lints that find mistakes
/// `let _ = locks.lock_blocking("a");` releases the key at once, because `_` does not bind the guard (`let _guard = …`
/// does). The compiler warns about a call whose guard is not used at all, but about `let _` only if `Cargo.toml`
/// enables the lint:
///
/// ```toml
/// [lints.rust]
/// let_underscore_drop = "warn"
/// ```
///
/// No lint catches a forgotten `.await`: `let _guard = locks.lock("a");` keeps a future that locks nothing. An editor
/// shows the type of the binding, [`Acquire`](crate::futures::Acquire). If the type is written out, as in
/// `let _guard: MutexGuard<'_, String> = …`, the missing `.await` is a compile error.
///
/// A blocking call in a task blocks the executor's thread. In a crate or module that is entirely async, Clippy can
/// refuse such calls; in `clippy.toml`:
///
/// ```toml
/// disallowed-methods = [
///     "keylatch::futures::Acquire::wait", "keylatch::futures::Acquire::wait_for",
///     "keylatch::futures::Acquire::wait_until",
///     "keylatch::KeyedMutex::lock_blocking", "keylatch::KeyedMutex::try_lock_for",
///     "keylatch::KeyedMutex::try_lock_until", "keylatch::KeyedMutex::lock_arc_blocking",
///     "keylatch::KeyedMutex::try_lock_arc_for", "keylatch::KeyedMutex::try_lock_arc_until",
///     "keylatch::KeyedMutex::lock_many_blocking", "keylatch::KeyedMutex::try_lock_many_for",
///     "keylatch::KeyedMutex::try_lock_many_until", "keylatch::KeyedMutex::lock_many_arc_blocking",
///     "keylatch::KeyedMutex::try_lock_many_arc_for", "keylatch::KeyedMutex::try_lock_many_arc_until",
///     "keylatch::KeyedRwLock::read_blocking", "keylatch::KeyedRwLock::try_read_for",
///     "keylatch::KeyedRwLock::try_read_until", "keylatch::KeyedRwLock::read_arc_blocking",
///     "keylatch::KeyedRwLock::try_read_arc_for", "keylatch::KeyedRwLock::try_read_arc_until",
///     "keylatch::KeyedRwLock::read_recursive_blocking", "keylatch::KeyedRwLock::try_read_recursive_for",
///     "keylatch::KeyedRwLock::try_read_recursive_until", "keylatch::KeyedRwLock::read_recursive_arc_blocking",
///     "keylatch::KeyedRwLock::try_read_recursive_arc_for", "keylatch::KeyedRwLock::try_read_recursive_arc_until",
///     "keylatch::KeyedRwLock::upgradable_read_blocking", "keylatch::KeyedRwLock::try_upgradable_read_for",
///     "keylatch::KeyedRwLock::try_upgradable_read_until", "keylatch::KeyedRwLock::upgradable_read_arc_blocking",
///     "keylatch::KeyedRwLock::try_upgradable_read_arc_for", "keylatch::KeyedRwLock::try_upgradable_read_arc_until",
///     "keylatch::KeyedRwLock::write_blocking", "keylatch::KeyedRwLock::try_write_for",
///     "keylatch::KeyedRwLock::try_write_until", "keylatch::KeyedRwLock::write_arc_blocking",
///     "keylatch::KeyedRwLock::try_write_arc_for", "keylatch::KeyedRwLock::try_write_arc_until",
///     "keylatch::KeyedRwLock::read_many_blocking", "keylatch::KeyedRwLock::try_read_many_for",
///     "keylatch::KeyedRwLock::try_read_many_until", "keylatch::KeyedRwLock::read_many_arc_blocking",
///     "keylatch::KeyedRwLock::try_read_many_arc_for", "keylatch::KeyedRwLock::try_read_many_arc_until",
///     "keylatch::KeyedRwLock::write_many_blocking", "keylatch::KeyedRwLock::try_write_many_for",
///     "keylatch::KeyedRwLock::try_write_many_until", "keylatch::KeyedRwLock::write_many_arc_blocking",
///     "keylatch::KeyedRwLock::try_write_many_arc_for", "keylatch::KeyedRwLock::try_write_many_arc_until",
///     "keylatch::KeyedRwLock::read_write_many_blocking", "keylatch::KeyedRwLock::try_read_write_many_for",
///     "keylatch::KeyedRwLock::try_read_write_many_until", "keylatch::KeyedRwLock::read_write_many_arc_blocking",
///     "keylatch::KeyedRwLock::try_read_write_many_arc_for", "keylatch::KeyedRwLock::try_read_write_many_arc_until",
///     "keylatch::LockMap::read_blocking", "keylatch::LockMap::try_read_for",
///     "keylatch::LockMap::try_read_until", "keylatch::LockMap::read_arc_blocking",
///     "keylatch::LockMap::try_read_arc_for", "keylatch::LockMap::try_read_arc_until",
///     "keylatch::LockMap::read_recursive_blocking", "keylatch::LockMap::try_read_recursive_for",
///     "keylatch::LockMap::try_read_recursive_until", "keylatch::LockMap::read_recursive_arc_blocking",
///     "keylatch::LockMap::try_read_recursive_arc_for", "keylatch::LockMap::try_read_recursive_arc_until",
///     "keylatch::LockMap::upgradable_read_blocking", "keylatch::LockMap::try_upgradable_read_for",
///     "keylatch::LockMap::try_upgradable_read_until", "keylatch::LockMap::upgradable_read_arc_blocking",
///     "keylatch::LockMap::try_upgradable_read_arc_for", "keylatch::LockMap::try_upgradable_read_arc_until",
///     "keylatch::LockMap::write_blocking", "keylatch::LockMap::try_write_for",
///     "keylatch::LockMap::try_write_until", "keylatch::LockMap::write_arc_blocking",
///     "keylatch::LockMap::try_write_arc_for", "keylatch::LockMap::try_write_arc_until",
///     "keylatch::LockMap::read_many_blocking", "keylatch::LockMap::try_read_many_for",
///     "keylatch::LockMap::try_read_many_until", "keylatch::LockMap::read_many_arc_blocking",
///     "keylatch::LockMap::try_read_many_arc_for", "keylatch::LockMap::try_read_many_arc_until",
///     "keylatch::LockMap::write_many_blocking", "keylatch::LockMap::try_write_many_for",
///     "keylatch::LockMap::try_write_many_until", "keylatch::LockMap::write_many_arc_blocking",
///     "keylatch::LockMap::try_write_many_arc_for", "keylatch::LockMap::try_write_many_arc_until",
///     "keylatch::LockMap::read_write_many_blocking", "keylatch::LockMap::try_read_write_many_for",
///     "keylatch::LockMap::try_read_write_many_until", "keylatch::LockMap::read_write_many_arc_blocking",
///     "keylatch::LockMap::try_read_write_many_arc_for", "keylatch::LockMap::try_read_write_many_arc_until",
///     "keylatch::LockMap::get_blocking", "keylatch::LockMap::insert_blocking", "keylatch::LockMap::remove_blocking",
///     "keylatch::LockMap::peek_blocking", "keylatch::LockMap::get_versioned_blocking",
///     "keylatch::LockMap::insert_if_absent_blocking", "keylatch::LockMap::update_blocking",
///     "keylatch::LockMap::compute_blocking",
///     "keylatch::LockMap::get_or_insert_blocking", "keylatch::LockMap::get_or_default_blocking",
///     "keylatch::LockMap::get_or_insert_with_blocking", "keylatch::LockMap::get_or_try_insert_with_blocking",
///     "keylatch::LockMap::get_or_refresh_with_blocking", "keylatch::LockMap::get_or_try_refresh_with_blocking",
///     "keylatch::LockMap::add_or_update_blocking", "keylatch::LockMap::update_if_blocking",
///     "keylatch::LockMap::remove_if_blocking", "keylatch::Batch::commit_blocking",
///     "keylatch::Walk::next_read_blocking", "keylatch::Walk::next_write_blocking",
///     "keylatch::KeyedSemaphore::acquire_blocking", "keylatch::KeyedSemaphore::try_acquire_for",
///     "keylatch::KeyedSemaphore::try_acquire_until", "keylatch::KeyedSemaphore::acquire_arc_blocking",
///     "keylatch::KeyedSemaphore::try_acquire_arc_for", "keylatch::KeyedSemaphore::try_acquire_arc_until",
///     "keylatch::KeyedSemaphore::acquire_n_blocking", "keylatch::KeyedSemaphore::try_acquire_n_for",
///     "keylatch::KeyedSemaphore::try_acquire_n_until", "keylatch::KeyedSemaphore::acquire_n_arc_blocking",
///     "keylatch::KeyedSemaphore::try_acquire_n_arc_for", "keylatch::KeyedSemaphore::try_acquire_n_arc_until",
///     "keylatch::KeyedSemaphore::acquire_many_blocking", "keylatch::KeyedSemaphore::try_acquire_many_for",
///     "keylatch::KeyedSemaphore::try_acquire_many_until", "keylatch::KeyedSemaphore::acquire_many_arc_blocking",
///     "keylatch::KeyedSemaphore::try_acquire_many_arc_for", "keylatch::KeyedSemaphore::try_acquire_many_arc_until",
///     "keylatch::KeyedSemaphore::acquire_n_many_blocking", "keylatch::KeyedSemaphore::try_acquire_n_many_for",
///     "keylatch::KeyedSemaphore::try_acquire_n_many_until", "keylatch::KeyedSemaphore::acquire_n_many_arc_blocking",
///     "keylatch::KeyedSemaphore::try_acquire_n_many_arc_for", "keylatch::KeyedSemaphore::try_acquire_n_many_arc_until",
///     "keylatch::Handle::lock_blocking", "keylatch::Handle::try_lock_for", "keylatch::Handle::try_lock_until",
///     "keylatch::Handle::read_recursive_blocking", "keylatch::Handle::try_read_recursive_for",
///     "keylatch::Handle::try_read_recursive_until",
///     "keylatch::Handle::read_blocking", "keylatch::Handle::try_read_for", "keylatch::Handle::try_read_until",
///     "keylatch::Handle::upgradable_read_blocking", "keylatch::Handle::try_upgradable_read_for",
///     "keylatch::Handle::try_upgradable_read_until", "keylatch::Handle::write_blocking",
///     "keylatch::Handle::try_write_for", "keylatch::Handle::try_write_until", "keylatch::Handle::acquire_blocking",
///     "keylatch::Handle::try_acquire_for", "keylatch::Handle::try_acquire_until",
///     "keylatch::Handle::acquire_n_blocking", "keylatch::Handle::try_acquire_n_for",
///     "keylatch::Handle::try_acquire_n_until",
///     "keylatch::Latch::read_recursive_blocking", "keylatch::Latch::try_read_recursive_for",
///     "keylatch::Latch::try_read_recursive_until",
///     "keylatch::Latch::read_blocking", "keylatch::Latch::try_read_for", "keylatch::Latch::try_read_until",
///     "keylatch::Latch::upgradable_read_blocking", "keylatch::Latch::try_upgradable_read_for",
///     "keylatch::Latch::try_upgradable_read_until",
///     "keylatch::Latch::write_blocking", "keylatch::Latch::try_write_for", "keylatch::Latch::try_write_until",
///     "keylatch::Striped::read_recursive_blocking", "keylatch::Striped::try_read_recursive_for",
///     "keylatch::Striped::try_read_recursive_until",
///     "keylatch::Striped::read_blocking", "keylatch::Striped::try_read_for", "keylatch::Striped::try_read_until",
///     "keylatch::Striped::upgradable_read_blocking", "keylatch::Striped::try_upgradable_read_for",
///     "keylatch::Striped::try_upgradable_read_until",
///     "keylatch::Striped::write_blocking", "keylatch::Striped::try_write_for", "keylatch::Striped::try_write_until",
///     "keylatch::Striped::read_many_blocking", "keylatch::Striped::try_read_many_for",
///     "keylatch::Striped::try_read_many_until", "keylatch::Striped::write_many_blocking",
///     "keylatch::Striped::try_write_many_for", "keylatch::Striped::try_write_many_until",
///     "keylatch::Striped::read_write_many_blocking", "keylatch::Striped::try_read_write_many_for",
///     "keylatch::Striped::try_read_write_many_until",
///     "keylatch::Guard::upgrade_blocking", "keylatch::Guard::upgrade_mut_blocking",
///     "keylatch::Guard::try_upgrade_for", "keylatch::Guard::try_upgrade_until",
///     "keylatch::Latch::read_arc_blocking", "keylatch::Latch::try_read_arc_for",
///     "keylatch::Latch::try_read_arc_until", "keylatch::Latch::read_recursive_arc_blocking",
///     "keylatch::Latch::try_read_recursive_arc_for", "keylatch::Latch::try_read_recursive_arc_until",
///     "keylatch::Latch::upgradable_read_arc_blocking", "keylatch::Latch::try_upgradable_read_arc_for",
///     "keylatch::Latch::try_upgradable_read_arc_until", "keylatch::Latch::write_arc_blocking",
///     "keylatch::Latch::try_write_arc_for", "keylatch::Latch::try_write_arc_until",
///     "keylatch::LatchGuardArc::upgrade_blocking", "keylatch::LatchGuardArc::try_upgrade_for",
///     "keylatch::LatchGuardArc::try_upgrade_until",
///     "keylatch::LatchGuard::upgrade_blocking", "keylatch::LatchGuard::try_upgrade_for",
///     "keylatch::LatchGuard::try_upgrade_until",
///     "keylatch::deadlock::Party::acquire_blocking", "keylatch::deadlock::Party::try_acquire_for",
///     "keylatch::deadlock::Party::try_acquire_until", "keylatch::deadlock::Tracked::upgrade_blocking",
///     "keylatch::deadlock::Tracked::try_upgrade_for", "keylatch::deadlock::Tracked::try_upgrade_until",
/// ]
/// ```
///
/// These are all the calls that block, except those of [`Closable`](crate::Closable): `acquire_blocking`,
/// `try_acquire_for` and `try_acquire_until`. With `{ path = "keylatch::KeyedMutex::lock_blocking", reason =
/// "lock(..).await" }` the warning names the call to use instead. Where blocking is right, allow it with
/// `#[expect(clippy::disallowed_methods)]`.
///
/// # Proof that a key is held
/// A function that only the holder of a key may call can take the guard as an argument, and read the key from it. A
/// function that accepts both borrowed and owned guards is generic over the reference to the table:
///
/// ```
/// use std::sync::Arc;
///
/// use keylatch::{Guard, KeyedMutex, MutexGuard, mode::Exclusive, table::TablePtr};
///
/// /// Takes a borrowed guard.
/// fn file_name(held: &MutexGuard<'_, String>) -> String {
///     format!("{}.png", held.key())
/// }
///
/// /// Takes a borrowed or an owned guard, of a mutex or of a writer.
/// fn thumbnail_name<P: TablePtr<Key = String>>(held: &Guard<P, Exclusive>) -> String {
///     format!("{}.small.png", held.key())
/// }
///
/// let images = Arc::new(KeyedMutex::<String>::new());
/// let guard = images.lock_blocking("a");
/// assert_eq!((file_name(&guard), thumbnail_name(&guard)), ("a.png".into(), "a.small.png".into()));
/// drop(guard);
/// let guard = images.lock_arc_blocking("b");
/// assert_eq!(thumbnail_name(&guard), "b.small.png");
/// ```
///
/// A struct that keeps a guard only to hold the key should keep it in a separate field, after the fields that the key
/// protects: fields are dropped in order of declaration, so the key is released last.
///
/// # Forgotten guards
/// A guard that is forgotten ([`core::mem::forget`]) leaves its key locked for good. This leaks the key's entry, and
/// affects no other key.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, MutexGuard};
///
/// let locks = KeyedMutex::<String>::new();
/// let guard: MutexGuard<'_, String> = locks.try_lock("a").unwrap();
/// assert_eq!(guard.key(), "a");
/// drop(guard);
/// assert!(!locks.is_locked("a"));
/// ```
#[must_use = "the key, or the permit, is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard<P: TablePtr, M: Mode> {
    /// The table and the hold. `None` in a placeholder, and after the hold has been taken out.
    held: Option<(P, HoldIn<P, M>)>,
}

impl<P: TablePtr, M: Mode> Guard<P, M> {
    /// Makes the guard of a hold that a caller has just acquired, and notes a use of the value if acquiring a key in
    /// this mode is one.
    #[inline]
    pub(crate) fn new(table: P, hold: HoldOf<P, M>) -> Self {
        if !M::USES_VALUE {
            return Guard::unmarked(table, hold);
        }
        if PayloadOf::<P>::is_quiet(hold.live().marks()) { Guard::of(table, hold) } else { Guard::noted(table, hold) }
    }

    /// Makes the guard of a hold whose acquisition must be noted. Out of line, because most acquisitions need not be
    /// noted.
    #[inline(never)]
    fn noted(table: P, hold: HoldOf<P, M>) -> Self {
        let guard = Guard::of(table, hold);
        guard.core().note_acquired(guard.live(), M::LOOKS_UP);
        guard
    }

    /// Makes the guard of a hold that a caller has just acquired, without counting that as a use of the value.
    #[inline]
    pub(crate) fn unmarked(table: P, hold: HoldOf<P, M>) -> Self {
        if table.core().is_timed() { Guard::settled(table, hold) } else { Guard::of(table, hold) }
    }

    #[cold]
    #[inline(never)]
    fn settled(table: P, hold: HoldOf<P, M>) -> Self {
        let guard = Guard::of(table, hold);
        guard.core().settle(guard.live(), false);
        guard
    }

    /// Makes the guard of a hold, and notes nothing.
    #[inline]
    fn of(table: P, hold: HoldOf<P, M>) -> Self {
        Guard { held: Some((table, HoldIn::new(hold))) }
    }

    /// Makes a guard without a hold, as a placeholder.
    #[inline]
    pub(crate) fn vacant() -> Self {
        Guard { held: None }
    }

    /// Takes the hold out, if there is one.
    #[inline(always)]
    fn into_held(self) -> Option<(P, HoldOf<P, M>)> {
        core::mem::ManuallyDrop::new(self).take_held()
    }

    /// Takes the hold out of a guard that will be dropped without it.
    #[inline(always)]
    fn take_held(&mut self) -> Option<(P, HoldOf<P, M>)> {
        self.held.take().map(|(table, hold)| (table, hold.into_hold()))
    }

    /// Passes the hold on to the next waiter.
    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn pass_on(mut self) {
        if let Some((table, hold)) = self.take_held() {
            table.core().release_for(ReleaseFor::NextWaiter, hold);
        }
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn identity(&self) -> Identity {
        self.core().identity(self.live())
    }

    #[inline]
    pub(crate) fn mode(&self) -> M {
        self.hold().mode()
    }

    #[inline]
    pub(crate) fn live(&self) -> Live<'_, P::Key, PayloadOf<P>> {
        self.hold().live()
    }

    /// Returns whether the guard is a placeholder without a hold.
    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn is_vacant(&self) -> bool {
        self.held.is_none()
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn table(&self) -> &P {
        &self.held.as_ref().expect(HELD).0
    }

    #[inline]
    pub(crate) fn core(&self) -> &CoreOf<P> {
        self.held.as_ref().expect(HELD).0.core()
    }

    #[inline]
    pub(crate) fn hold(&self) -> &HoldOf<P, M> {
        self.held.as_ref().expect(HELD).1.as_hold()
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> (&CoreOf<P>, &mut HoldOf<P, M>) {
        let (table, hold) = self.held.as_mut().expect(HELD);
        (table.core(), hold.as_hold_mut())
    }

    /// Returns this guard. Every writer of a value has such a method: see [`writer!`](crate::locks::writer).
    #[inline]
    pub(crate) fn guard_mut(&mut self) -> &mut Self {
        self
    }

    /// Retypes the guard as one of mode `N`. The word must already count the hold in that mode.
    #[inline]
    pub(crate) fn into_mode<N: Mode>(mut self) -> Guard<P, N> {
        let (table, hold) = self.take_held().expect(HELD);
        Guard::of(table, hold.into_mode(N::ONE))
    }

    /// Returns the held key: the key that its entry was made with. It may differ from the requested key in parts that
    /// `Eq` ignores.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// assert_eq!(locks.try_lock(&7).unwrap().key(), &7);
    /// ```
    #[inline]
    #[must_use]
    pub fn key(&self) -> &P::Key {
        self.live().key()
    }
}

impl<P: TablePtr, M: HandOver> Guard<P, M> {
    /// Hands the key over to the waiter that the policy admits next, with no newcomer in between.
    ///
    /// A plain drop frees the key, and under most [policies](crate::Fairness) the quickest request acquires it next.
    /// This call hands it over under every policy: the waiter holds the key from now on, even before it runs. If there
    /// are no waiters, it is a plain release. A guard of several permits hands over all of them, in the order of the
    /// queue, to as many waiters as the permits suffice for. The last of several readers hands over the key; the others
    /// only leave.
    ///
    /// # Examples
    /// ```
    /// use futures_lite::future::{block_on, poll_once};
    ///
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let guard = locks.try_lock(&7).unwrap();
    /// let mut waiter = locks.lock(&7);
    /// assert!(block_on(poll_once(&mut waiter)).is_none());
    ///
    /// guard.unlock_fair();
    /// assert!(locks.try_lock(&7).is_none()); // it is the waiter's already
    /// let _guard = block_on(waiter);
    /// ```
    pub fn unlock_fair(mut self) {
        if let Some((table, hold)) = self.take_held() {
            M::hand_over(table.core(), hold);
        }
    }
}

/// Methods for permits of a [`KeyedSemaphore`](crate::KeyedSemaphore).
impl<P: TablePtr> Guard<P, Permit> {
    /// Returns the number of permits that the guard holds.
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<u64>::new(3);
    /// assert_eq!(hosts.try_acquire(&7).unwrap().permits(), 1);
    /// assert_eq!(hosts.try_acquire_n(&7, 3).unwrap().permits(), 3);
    /// ```
    #[inline]
    #[must_use]
    pub fn permits(&self) -> usize {
        self.mode().amount()
    }

    /// Moves `n` of the permits into a guard of their own. Returns `None` if `n` is 0, or if it would leave no permit
    /// in this guard.
    ///
    /// Nothing is released or acquired, so no other request can take the permits in between.
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<u64>::new(3);
    /// let mut guard = hosts.try_acquire_n(&7, 3).unwrap();
    /// let part = guard.split(2).unwrap();
    /// assert_eq!((guard.permits(), part.permits()), (1, 2));
    /// assert!(guard.split(1).is_none());
    /// drop(part);
    /// assert!(hosts.try_acquire_n(&7, 2).is_some());
    /// ```
    #[must_use = "bind it: `let _part = …` (`let _ = …` releases it at once)"]
    pub fn split(&mut self, n: usize) -> Option<Self> {
        let (table, hold) = self.held.as_mut().expect(HELD);
        let hold = hold.as_hold_mut();
        let (part, rest) = hold.mode().split(n)?;
        let table = table.clone();
        Some(Guard::of(table, hold.split(rest, part)))
    }

    /// Adds the permits of `other`, a guard of the same key of the same table, to this guard.
    ///
    /// # Panics
    /// If `other` belongs to another table or another key. The permits of `other` are then released.
    ///
    /// # Examples
    /// ```
    /// let hosts = keylatch::KeyedSemaphore::<u64>::new(3);
    /// let mut guard = hosts.try_acquire(&7).unwrap();
    /// guard.merge(hosts.try_acquire_n(&7, 2).unwrap());
    /// assert_eq!(guard.permits(), 3);
    /// ```
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        let (core, hold) = self.parts();
        let (other_core, other_hold) = other.parts();
        assert!(core::ptr::eq(core, other_core), "keylatch: permits of different tables cannot be merged");
        assert!(hold.live().is(other_hold.live()), "keylatch: permits of different keys cannot be merged");
        let sum = hold.mode().merge(other_hold.mode());
        if let Some((_, other)) = other.take_held() {
            hold.merge(other, sum);
        }
    }
}

/// The holds and claims that one call releases, in three steps. Their order ensures that user code never sees a key of
/// the call that is still held, or that was granted to a waiter that has not been woken:
/// 1. All holds are released and positions in queues are given up. Wakers and claims are collected here: no waiter is
///    woken yet, and nothing is dropped.
/// 2. When this value is dropped, the admitted waiters are woken.
/// 3. Then unused keys, and values beyond the bound, are dropped. Their drops may wait for any key.
pub(crate) struct Released<P: TablePtr> {
    /// The batch comes before the entries, because fields are dropped in order of declaration.
    batch: WakeBatch,
    entries: Entries<P>,
}

/// Claims that keep entries alive until this list is dropped.
struct Entries<P: TablePtr>(List<(P, ClaimOf<P>)>);

impl<P: TablePtr> Default for Released<P> {
    #[inline]
    fn default() -> Self {
        Released { batch: WakeBatch::default(), entries: Entries(List::default()) }
    }
}

impl<P: TablePtr> Released<P> {
    /// Releases the holds of these guards.
    #[inline]
    pub(crate) fn release<M: Mode>(&mut self, guards: List<Guard<P, M>>) {
        let drops_nothing =
            |guard: &Guard<P, M>| guard.held.as_ref().is_some_and(|(table, _)| table.core().drops_nothing());
        if guards.as_slice().first().is_some_and(drops_nothing) {
            for (table, hold) in guards.into_iter().filter_map(Guard::into_held) {
                table.core().release(hold, Some(&mut self.batch));
            }
        } else {
            self.unlock(guards);
        }
    }

    /// Releases the holds and keeps the entries.
    #[inline(never)]
    fn unlock<M: Mode>(&mut self, guards: List<Guard<P, M>>) {
        let mut panics = Panics::default();
        let entries = guards.filter_map(|guard| {
            let (table, hold) = guard.into_held()?;
            let claim = table.core().unlock(hold, ReleaseFor::Anybody, &mut self.batch, &mut panics)?;
            Some((table, claim))
        });
        self.entries.0.append(entries);
        panics.resume();
    }

    /// Gives up a claim.
    pub(crate) fn withdraw(&mut self, table: &P, claim: ClaimOf<P>) {
        if table.core().drops_nothing() {
            table.core().withdraw(claim);
        } else {
            self.entries.0.push((table.clone(), claim));
        }
    }

    /// Returns the batch of wakers to call.
    pub(crate) fn batch(&mut self) -> &mut WakeBatch {
        &mut self.batch
    }
}

impl<P: TablePtr> Drop for Entries<P> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.as_slice().is_empty() {
            self.withdraw();
        }
    }
}

impl<P: TablePtr> Entries<P> {
    #[inline(never)]
    fn withdraw(&mut self) {
        let entries = core::mem::take(&mut self.0).into_iter();
        run_all(entries.map(|(table, claim)| move || table.core().withdraw(claim)));
    }
}

impl<P: TablePtr, M: Mode> Drop for Guard<P, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some((table, hold)) = self.take_held() {
            M::release(table.core(), hold);
        }
    }
}

impl<P: TablePtr, M: Mode> fmt::Debug for Guard<P, M>
where
    P::Key: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("key", self.key()).field("mode", &self.mode().access()).finish_non_exhaustive()
    }
}
