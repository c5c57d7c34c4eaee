//! Locks without a table: a latch, and an array of latches.
//!
//! ```text
//! guard     the guard of a hold
//! request   a request for one latch, in all forms
//! forms     the forms, for latches and stripes
//! many      a request for several stripes
//! upgrade   an upgradable reader becomes a writer
//! owned     guards and futures that keep the latch's `Arc`
//! striped   an array of latches, indexed by a key's hash
//! gate      a latch that is opened once
//! ```

use core::fmt;

use crate::core::{LatchWord, Users};
use crate::fairness::Fairness;
use crate::mode::{Exclusive, Mode, Shared, Upgradable};
use crate::status::Status;

mod forms;
mod gate;
mod guard;
mod many;
#[cfg(target_has_atomic = "ptr")]
mod owned;
mod request;
mod striped;
mod upgrade;

use self::forms::forms;
pub(crate) use self::gate::Gate;
pub use self::guard::{LatchGuard, LatchReadGuard, LatchUpgradableGuard, LatchWriteGuard};
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::many::Requests as LatchRequests;
pub use self::many::{LatchAcquireMany, LatchGuards, LatchGuardsIter, LatchManyMode};
#[cfg(target_has_atomic = "ptr")]
pub use self::owned::{
    LatchAcquireArc, LatchGuardArc, LatchReadGuardArc, LatchUpgradableGuardArc, LatchUpgradeArc, LatchWriteGuardArc,
};
pub use self::request::LatchAcquire;
use self::request::Request;
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::request::Request as LatchRequest;
pub use self::striped::{MAX_STRIPES, Striped, StripedBuilder};
pub use self::upgrade::LatchUpgrade;

/// A reader-writer lock of one word, without a key and without data: any number of readers, or one writer. One of the
/// readers may be upgradable to a writer, as in [`KeyedRwLock`](crate::KeyedRwLock).
///
/// It is only the lock: the data that it protects is elsewhere, such as in atomics, a file or a device. (To lock a
/// value, use the `RwLock<T>` of `async-lock` or another crate. This is not a count-down latch.)
///
/// It has the size of a `usize`, needs no table, and allocates nothing until a request waits, so it can be a field of
/// each of a million objects, or a `static`. Tasks, threads and, with the feature `critical-section`, interrupt
/// handlers can use the same latch. The queues of waiters are in an index that all latches of the process share; a
/// latch's queue is found by its address. So without `critical-section`, an interrupt handler or a signal handler must
/// not use any latch if it may have interrupted a call on any latch.
///
/// The policy is [`Fairness::Adaptive`], the tables' default, with phases of readers and writers as in
/// [`KeyedRwLock`](crate::KeyedRwLock). A latch is not reentrant: a reader that requests it again may wait for a writer
/// that waits for that reader (see [`read_recursive`](Latch::read_recursive)). A [deadlock detector](crate::deadlock)
/// can watch its borrowed forms, but not its upgrades; no observer watches it. Requests have no priorities. There is no
/// poisoning.
///
/// # Moving, dropping, forgetting
/// Guards and futures borrow the latch; while there are none, it can be moved and dropped. A forgotten guard keeps its
/// latch locked for good, even after a move. A waiting *future* that is forgotten stays in the queue, as if it were
/// never polled again, and leaks a little memory. If its latch is then moved, the latch may stay locked for good.
///
/// # The forms
/// | form | call |
/// |---|---|
/// | async | [`read`](Latch::read), [`upgradable_read`](Latch::upgradable_read), [`write`](Latch::write) |
/// | async, with a limit: a timer, a cancellation token | [`read().until(limit)`](crate::futures::LatchAcquire::until) |
/// | without waiting | [`try_read`](Latch::try_read), [`try_upgradable_read`](Latch::try_upgradable_read), [`try_write`](Latch::try_write) |
/// | blocking | [`read_blocking`](Latch::read_blocking), [`upgradable_read_blocking`](Latch::upgradable_read_blocking), [`write_blocking`](Latch::write_blocking) |
/// | as a reader that passes waiting writers | [`read_recursive`](Latch::read_recursive), [`try_read_recursive`](Latch::try_read_recursive), [`read_recursive_blocking`](Latch::read_recursive_blocking), [`try_read_recursive_for`](Latch::try_read_recursive_for), [`try_read_recursive_until`](Latch::try_read_recursive_until) |
/// | blocking, with a limit | [`try_read_for`](Latch::try_read_for), [`try_read_until`](Latch::try_read_until), [`try_upgradable_read_for`](Latch::try_upgradable_read_for), [`try_upgradable_read_until`](Latch::try_upgradable_read_until), [`try_write_for`](Latch::try_write_for), [`try_write_until`](Latch::try_write_until) |
/// | with owned guards, for a latch in an `Arc` | each of these with `_arc` after the operation's name: [`read_arc`](Latch::read_arc), [`write_arc_blocking`](Latch::write_arc_blocking), [`try_read_arc_for`](Latch::try_read_arc_for), … |
/// | upgradable reader to writer | [`upgrade`](LatchGuard::upgrade), [`upgrade_blocking`](LatchGuard::upgrade_blocking), [`try_upgrade`](LatchGuard::try_upgrade), [`try_upgrade_for`](LatchGuard::try_upgrade_for), [`try_upgrade_until`](LatchGuard::try_upgrade_until) |
///
/// # Panics
/// Every form panics if the latch has [`MAX_USERS`](crate::MAX_USERS) holders and waiters already.
///
/// # Examples
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// use keylatch::Latch;
///
/// /// The two numbers change together.
/// struct Account {
///     latch: Latch,
///     balance: AtomicU64,
///     bookings: AtomicU64,
/// }
///
/// impl Account {
///     async fn book(&self, amount: u64) {
///         let _writer = self.latch.write().await;
///         self.balance.fetch_add(amount, Relaxed);
///         self.bookings.fetch_add(1, Relaxed);
///     }
///
///     fn average(&self) -> u64 {
///         let _reader = self.latch.read_blocking();
///         self.balance.load(Relaxed) / self.bookings.load(Relaxed).max(1)
///     }
/// }
///
/// assert_eq!(size_of::<Latch>(), size_of::<usize>());
/// # let account = Account { latch: Latch::new(), balance: AtomicU64::new(0), bookings: AtomicU64::new(0) };
/// # futures_lite::future::block_on(account.book(7));
/// # assert_eq!(account.average(), 7);
/// ```
#[doc(alias = "rwlock")]
pub struct Latch(LatchWord);

impl Latch {
    /// Makes a latch that is not held.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// static LATCH: Latch = Latch::new();
    ///
    /// assert!(!LATCH.is_locked());
    /// ```
    #[cfg(not(any(keylatch_loom, keylatch_shuttle)))]
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Latch(LatchWord::new())
    }

    /// Makes a latch that is not held. Not `const` under a model checker, whose atomics have no `const` constructor.
    #[cfg(any(keylatch_loom, keylatch_shuttle))]
    #[must_use]
    pub fn new() -> Self {
        Latch(LatchWord::new())
    }

    /// Returns whether the latch is held now, by readers or by a writer.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// let latch = Latch::new();
    /// let guard = latch.read_blocking();
    /// assert!(latch.is_locked());
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// Returns the numbers of holders and waiters at one instant. Use them for monitoring and tests: they may change at
    /// any time.
    ///
    /// # Examples
    /// ```
    /// use keylatch::Latch;
    ///
    /// let latch = Latch::new();
    /// let guard = latch.read_blocking();
    /// assert_eq!(latch.status().to_string(), "1 reader");
    /// assert_eq!(latch.status().waiters(), 0);
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn status(&self) -> Status {
        Status::new(self.0.snapshot())
    }

    #[inline]
    fn request<M: Mode>(&self, mode: M) -> Request<'_, M> {
        Request::new(&self.0, Fairness::Adaptive, mode)
    }

    forms! {
        read / read_blocking / try_read / try_read_for / try_read_until = Shared::NEW, Shared: "as a reader",
        [] [] [] of request,
        new = "Latch::new()", subject = "the latch", key = "", more = "",
    }

    forms! {
        read_recursive / read_recursive_blocking / try_read_recursive / try_read_recursive_for / try_read_recursive_until
            = Shared::NEW, Shared: "as a reader, past all waiters",
        [] [] [] of request.recursive,
        new = "Latch::new()", subject = "the latch", key = "", more = "",
        /// Unlike [`read`](Self::read), it waits only for a writer that holds the latch, not for writers that are
        /// waiting. So it never waits if the latch is held by readers, even by the caller itself: `read` could wait for
        /// a writer that waits for the caller's first hold.
        ///
        /// This can starve writers. Any number of these readers pass a waiting writer, and while such readers overlap,
        /// the writer never gets in. Use it only where the latch may already be held for reading on the caller's
        /// behalf, and `read` everywhere else. If a writer holds the latch, this call waits in the queue like any
        /// reader.
        ///
    }

    forms! {
        upgradable_read / upgradable_read_blocking / try_upgradable_read / try_upgradable_read_for
            / try_upgradable_read_until = Upgradable::NEW, Upgradable: "as the one reader that may become a writer",
        [] [] [] of request,
        new = "Latch::new()", subject = "the latch", key = "", more = "",
        /// Other readers may hold it at the same time, but only this one can be [upgraded](LatchGuard::upgrade).
        ///
    }

    forms! {
        write / write_blocking / try_write / try_write_for / try_write_until = Exclusive::NEW, Exclusive: "as a writer",
        [] [] [] of request,
        new = "Latch::new()", subject = "the latch", key = "", more = "",
    }
}

impl Default for Latch {
    fn default() -> Self {
        Latch::new()
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Users { readers, upgradable, writers, waiting } = self.0.users();
        f.debug_struct("Latch")
            .field("readers", &readers)
            .field("upgradable", &upgradable)
            .field("writers", &writers)
            .field("waiting", &waiting)
            .finish()
    }
}
