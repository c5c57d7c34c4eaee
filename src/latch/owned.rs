//! Owned guards of latches: they keep the latch's `Arc` instead of borrowing the latch.
//!
//! Each operation is done by a borrowed guard or request, which is made from the `Arc` and lives only during the call.
//! So borrowed guards pay nothing for the owned ones.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::Latch;
use super::guard::LatchGuard;
use super::request::{Pending, Request};
use super::upgrade::LatchUpgrade;
use crate::acquire::future::race;
use crate::core::{Presence, Ticket, Waiter};
use crate::fairness::Fairness;
use crate::mode::{Exclusive, Mode, Shared, Upgradable};

/// A hold on a [`Latch`], released when the guard is dropped. The guard keeps the latch's [`Arc`], so it has no
/// lifetime. `M` is its [mode](crate::mode): use the aliases [`LatchReadGuardArc`], [`LatchUpgradableGuardArc`] and
/// [`LatchWriteGuardArc`]. Otherwise it is like [`LatchGuard`], but only a writer has `unlock_fair`, and no
/// [detector](crate::deadlock) can track it.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch::Latch;
///
/// let latch = Arc::new(Latch::new());
/// let guard = latch.write_arc_blocking();
/// std::thread::spawn(move || drop(guard)).join().unwrap();
/// assert!(!latch.is_locked());
/// ```
#[must_use = "the latch is released at once if the guard is not kept"]
#[clippy::has_significant_drop]
pub struct LatchGuardArc<M: Mode> {
    /// `None` once the hold has been taken out.
    latch: Option<Arc<Latch>>,
    mode: M,
}

/// A reader's owned hold on a latch, shared with other readers. See [`LatchGuardArc`].
pub type LatchReadGuardArc = LatchGuardArc<Shared>;

/// An upgradable reader's owned hold on a latch, shared with other readers: it may become a writer's. See
/// [`LatchGuardArc`].
pub type LatchUpgradableGuardArc = LatchGuardArc<Upgradable>;

/// A writer's owned hold on a latch, with no other holder. See [`LatchGuardArc`].
pub type LatchWriteGuardArc = LatchGuardArc<Exclusive>;

const HELD: &str = "an owned guard has its latch until it is dropped";

impl<M: Mode> LatchGuardArc<M> {
    /// Makes an owned guard from a borrowed one, which must be a guard of this latch.
    pub(super) fn adopt(latch: Arc<Latch>, guard: LatchGuard<'_, M>) -> Self {
        let mode = guard.into_hold();
        LatchGuardArc { latch: Some(latch), mode }
    }

    /// Takes the latch out, and the hold with it. The caller must make another guard, or an upgrade, for the hold.
    fn take(mut self) -> Arc<Latch> {
        self.latch.take().expect(HELD)
    }

    /// Returns the latch.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let guard = latch.try_read_arc().unwrap();
    /// assert!(Arc::ptr_eq(guard.latch(), &latch));
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn latch(&self) -> &Arc<Latch> {
        self.latch.as_ref().expect(HELD)
    }
}

/// Makes the borrowed guard of a hold that was taken out of an owned guard.
fn borrowed<M: Mode>(latch: &Latch, mode: M) -> LatchGuard<'_, M> {
    LatchGuard::new(&latch.0, Fairness::Adaptive, mode)
}

impl<M: Mode> Drop for LatchGuardArc<M> {
    fn drop(&mut self) {
        if let Some(latch) = self.latch.take() {
            drop(borrowed(&latch, self.mode));
        }
    }
}

impl<M: Mode> fmt::Debug for LatchGuardArc<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchGuardArc").field("mode", &self.mode.access()).finish_non_exhaustive()
    }
}

impl LatchGuardArc<Exclusive> {
    /// Downgrades to a reader: see [`LatchWriteGuard::downgrade`](crate::LatchWriteGuard#method.downgrade).
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let reader = latch.try_write_arc().unwrap().downgrade();
    /// assert!(latch.try_read().is_some());
    /// # drop(reader);
    /// ```
    pub fn downgrade(self) -> LatchReadGuardArc {
        let (mode, latch) = (self.mode, self.take());
        let reader = borrowed(&latch, mode).downgrade().into_hold();
        LatchGuardArc { latch: Some(latch), mode: reader }
    }

    /// Downgrades to an upgradable reader: see
    /// [`LatchWriteGuard::downgrade_to_upgradable`](crate::LatchWriteGuard#method.downgrade_to_upgradable).
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let reader = latch.try_write_arc().unwrap().downgrade_to_upgradable();
    /// let writer = reader.try_upgrade().unwrap();
    /// # drop(writer);
    /// ```
    pub fn downgrade_to_upgradable(self) -> LatchUpgradableGuardArc {
        let (mode, latch) = (self.mode, self.take());
        let reader = borrowed(&latch, mode).downgrade_to_upgradable().into_hold();
        LatchGuardArc { latch: Some(latch), mode: reader }
    }

    /// Hands the latch over to the waiters that the policy admits next, with no newcomer in between.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// latch.try_write_arc().unwrap().unlock_fair();
    /// assert!(!latch.is_locked());
    /// ```
    pub fn unlock_fair(self) {
        let (mode, latch) = (self.mode, self.take());
        borrowed(&latch, mode).unlock_fair();
    }
}

/// Upgrades and downgrades. All are atomic: no writer gets in between.
impl LatchGuardArc<Upgradable> {
    /// Downgrades to a reader, which cannot be upgraded. Another reader may become the upgradable one.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let reader = latch.try_upgradable_read_arc().unwrap().downgrade();
    /// assert!(latch.try_upgradable_read().is_some());
    /// # drop(reader);
    /// ```
    pub fn downgrade(self) -> LatchReadGuardArc {
        let (mode, latch) = (self.mode, self.take());
        let reader = borrowed(&latch, mode).downgrade().into_hold();
        LatchGuardArc { latch: Some(latch), mode: reader }
    }

    /// Upgrades to a writer. The future waits until the other readers have left. See
    /// [`LatchGuard::upgrade`](LatchGuard#method.upgrade).
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**: see
    /// [`LatchUpgradeArc`](crate::futures::LatchUpgradeArc).
    ///
    /// # Examples
    /// See [`LatchUpgradeArc`](crate::futures::LatchUpgradeArc).
    pub fn upgrade(self) -> LatchUpgradeArc {
        let mode = self.mode;
        LatchUpgradeArc { latch: Some(self.take()), mode, ticket: Ticket::NONE }
    }

    /// Upgrades to a writer, if there are no other readers.
    ///
    /// # Errors
    /// Returns this guard if there are other readers.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read_arc().unwrap());
    /// let reader = reader.try_upgrade().unwrap_err();
    /// drop(other);
    /// let writer = reader.try_upgrade().unwrap();
    /// # drop(writer);
    /// ```
    pub fn try_upgrade(self) -> Result<LatchWriteGuardArc, Self> {
        self.upgraded(|guard| guard.try_upgrade())
    }

    /// Upgrades to a writer, and blocks the thread until the other readers have left.
    ///
    /// # Blocking
    /// Do not call this in a task: it blocks the executor's thread.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let writer = latch.upgradable_read_arc_blocking().upgrade_blocking();
    /// # drop(writer);
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
    pub fn upgrade_blocking(self) -> LatchWriteGuardArc {
        let (mode, latch) = (self.mode, self.take());
        let writer = borrowed(&latch, mode).upgrade_blocking().into_hold();
        LatchGuardArc { latch: Some(latch), mode: writer }
    }

    /// Upgrades to a writer, and blocks the thread for at most `timeout`. It tries at least once.
    ///
    /// # Blocking
    /// Do not call this in a task: it blocks the executor's thread.
    ///
    /// # Errors
    /// Returns this guard after the timeout.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read_arc().unwrap());
    /// let reader = reader.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    /// # drop((other, reader));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[doc(alias = "timeout")]
    pub fn try_upgrade_for(self, timeout: Duration) -> Result<LatchWriteGuardArc, Self> {
        self.upgraded(|guard| guard.try_upgrade_for(timeout))
    }

    /// Upgrades to a writer, and blocks the thread until `deadline` at the latest. It tries at least once.
    ///
    /// # Blocking
    /// Do not call this in a task: it blocks the executor's thread.
    ///
    /// # Errors
    /// Returns this guard after the deadline.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Instant};
    ///
    /// use keylatch::Latch;
    ///
    /// let latch = Arc::new(Latch::new());
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read_arc().unwrap());
    /// let reader = reader.try_upgrade_until(Instant::now()).unwrap_err();
    /// # drop((other, reader));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[doc(alias = "deadline")]
    pub fn try_upgrade_until(self, deadline: Instant) -> Result<LatchWriteGuardArc, Self> {
        self.upgraded(|guard| guard.try_upgrade_until(deadline))
    }

    fn upgraded(
        self,
        upgrade: impl for<'a> FnOnce(
            LatchGuard<'a, Upgradable>,
        ) -> Result<LatchGuard<'a, Exclusive>, LatchGuard<'a, Upgradable>>,
    ) -> Result<LatchWriteGuardArc, Self> {
        let (mode, latch) = (self.mode, self.take());
        match upgrade(borrowed(&latch, mode)).map(LatchGuard::into_hold).map_err(LatchGuard::into_hold) {
            Ok(mode) => Ok(LatchGuardArc { latch: Some(latch), mode }),
            Err(mode) => Err(LatchGuardArc { latch: Some(latch), mode }),
        }
    }
}

/// The future of [`Latch::read_arc`], [`Latch::write_arc`] and the other async calls of a latch that return owned
/// guards. Its output is the guard.
///
/// # Cancel safety
/// The future can be dropped at any moment: the latch is then as if the request had never been made, and a hold that it
/// was already granted passes to the next waiter. It joins the queue only at its first poll.
///
/// # Panics
/// The future panics if it is polled after it has finished. If a waker that the future calls panics, the future has
/// finished, too, and holds nothing.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch::Latch;
///
/// # futures_lite::future::block_on(async {
/// let latch = Arc::new(Latch::new());
/// let guard = latch.write_arc().await;
/// assert!(latch.is_locked());
/// # drop(guard);
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct LatchAcquireArc<M: Mode> {
    /// `None` when the hold has been acquired.
    latch: Option<Arc<Latch>>,
    pending: Pending<M>,
}

impl<M: Mode> LatchAcquireArc<M> {
    /// Makes the future of a request that has not been polled.
    pub(super) fn new(latch: Arc<Latch>, request: impl FnOnce(&Latch) -> Request<'_, M>) -> Self {
        let pending = request(&latch).pause();
        LatchAcquireArc { latch: Some(latch), pending }
    }

    /// Waits for the latch until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token. If both are ready, the result is `Ok`.
    ///
    /// # Errors
    /// Returns the output of `limit`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`LatchAcquireArc`] itself.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch::Latch;
    ///
    /// # smol::block_on(async {
    /// let latch = Arc::new(Latch::new());
    /// let _writer = latch.write_arc().await;
    /// let reader = latch.read_arc().until(smol::Timer::after(Duration::from_millis(1))).await;
    /// assert!(reader.is_err());
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard may be in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<LatchGuardArc<M>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

impl<M: Mode> Future for LatchAcquireArc<M> {
    type Output = LatchGuardArc<M>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The latch is taken out during the poll: if a waker panics, the request gives up, and nothing is left to give
        // up later.
        let latch = self.latch.take().expect("keylatch: a lock future was polled after it had finished");
        let mut request = self.pending.resume(&latch.0);
        let polled = request.poll(Waiter { presence: Presence::Task, waker: cx.waker() }).map(LatchGuard::into_hold);
        match polled {
            Poll::Ready(mode) => {
                drop(request);
                Poll::Ready(LatchGuardArc { latch: Some(latch), mode })
            }
            Poll::Pending => {
                self.pending = request.pause();
                self.latch = Some(latch);
                Poll::Pending
            }
        }
    }
}

impl<M: Mode> Drop for LatchAcquireArc<M> {
    fn drop(&mut self) {
        if let Some(latch) = self.latch.take() {
            drop(self.pending.resume(&latch.0));
        }
    }
}

impl<M: Mode> fmt::Debug for LatchAcquireArc<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchAcquireArc").field("done", &self.latch.is_none()).finish_non_exhaustive()
    }
}

/// The future of [`LatchGuardArc::upgrade`]. Its output is the writer's owned guard.
///
/// # Cancel safety
/// **Dropping the future before it has finished releases the hold**, because the future owns the guard.
///
/// # Panics
/// The future panics if it is polled after it has finished. If a waker that the future calls panics, the future has
/// finished, too, and holds nothing.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use keylatch::Latch;
///
/// # futures_lite::future::block_on(async {
/// let latch = Arc::new(Latch::new());
/// let writer = latch.upgradable_read_arc().await.upgrade().await;
/// assert!(latch.try_read().is_none());
/// # drop(writer);
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited; dropping it releases the hold"]
#[clippy::has_significant_drop]
pub struct LatchUpgradeArc {
    /// `None` when the upgrade has finished.
    latch: Option<Arc<Latch>>,
    mode: Upgradable,
    ticket: Ticket,
}

impl LatchUpgradeArc {
    /// Waits for the upgrade until `limit` is ready. If both are ready, the result is `Ok`.
    ///
    /// # Errors
    /// Returns the output of `limit`, and the upgradable reader's guard, which has held the latch throughout.
    ///
    /// # Cancel safety
    /// As with [`LatchUpgradeArc`] itself, dropping the future releases the hold.
    ///
    /// # Examples
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use keylatch::Latch;
    ///
    /// # smol::block_on(async {
    /// let latch = Arc::new(Latch::new());
    /// let _other = latch.read().await;
    /// let upgrade = latch.upgradable_read_arc().await.upgrade();
    /// let (_, reader) = upgrade.until(smol::Timer::after(Duration::from_millis(1))).await.unwrap_err();
    /// # drop(reader);
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard is in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(
        mut self,
        limit: F,
    ) -> Result<LatchWriteGuardArc, (F::Output, LatchUpgradableGuardArc)> {
        race(&mut self, limit).await.map_err(|expired| {
            let latch = self.latch.take().expect(HELD);
            let mode = LatchUpgrade::resume(borrowed(&latch, self.mode), self.ticket).give_back().into_hold();
            (expired, LatchGuardArc { latch: Some(latch), mode })
        })
    }
}

impl Future for LatchUpgradeArc {
    type Output = LatchWriteGuardArc;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The latch is taken out during the poll, as in `LatchAcquireArc`.
        let latch = self.latch.take().expect("keylatch: an upgrade was polled after it had finished");
        let mut upgrade = LatchUpgrade::resume(borrowed(&latch, self.mode), self.ticket);
        let waiter = Waiter { presence: Presence::Task, waker: cx.waker() };
        match LatchUpgrade::poll(&mut upgrade, waiter).map(LatchGuard::into_hold) {
            Poll::Ready(mode) => {
                drop(upgrade);
                Poll::Ready(LatchGuardArc { latch: Some(latch), mode })
            }
            Poll::Pending => {
                self.ticket = upgrade.pause();
                self.latch = Some(latch);
                Poll::Pending
            }
        }
    }
}

impl Drop for LatchUpgradeArc {
    fn drop(&mut self) {
        if let Some(latch) = self.latch.take() {
            drop(LatchUpgrade::resume(borrowed(&latch, self.mode), self.ticket));
        }
    }
}

impl fmt::Debug for LatchUpgradeArc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchUpgradeArc").field("done", &self.latch.is_none()).finish_non_exhaustive()
    }
}

/// Defines the owned forms of an operation.
macro_rules! owned {
    (
        $op:ident, $blocking:ident, $try:ident, $for:ident, $until:ident = $Mode:ident: $what:literal, as
        $borrowed:ident, $borrowed_blocking:ident, $borrowed_try:ident, $borrowed_for:ident, $borrowed_until:ident,
    ) => {
        #[doc = concat!("Acquires the latch ", $what, ", with an owned guard: a future whose output is the guard.")]
        ///
        #[doc = concat!("See [`", stringify!($borrowed), "`](Self::", stringify!($borrowed), ").")]
        ///
        /// # Cancel safety
        /// The future may be dropped at any moment: see [`LatchAcquireArc`](crate::futures::LatchAcquireArc).
        ///
        /// # Examples
        /// ```
        /// # futures_lite::future::block_on(async {
        /// let latch = std::sync::Arc::new(keylatch::Latch::new());
        #[doc = concat!("let guard = latch.", stringify!($op), "().await;")]
        /// # drop(guard);
        /// # });
        /// ```
        pub fn $op(self: &Arc<Self>) -> LatchAcquireArc<$Mode> {
            LatchAcquireArc::new(Arc::clone(self), |latch| latch.$borrowed().into_request())
        }

        #[doc = concat!("Acquires the latch ", $what, ", if that is possible without waiting, with an owned guard.")]
        ///
        #[doc = concat!("See [`", stringify!($borrowed_try), "`](Self::", stringify!($borrowed_try), ").")]
        ///
        /// # Examples
        /// ```
        /// let latch = std::sync::Arc::new(keylatch::Latch::new());
        #[doc = concat!("let guard = latch.", stringify!($try), "().unwrap();")]
        /// # drop(guard);
        /// ```
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $try(self: &Arc<Self>) -> Option<LatchGuardArc<$Mode>> {
            self.$borrowed_try().map(|guard| LatchGuardArc::adopt(Arc::clone(self), guard))
        }

        #[doc = concat!("Acquires the latch ", $what, ", and blocks the thread while it waits, with an owned guard.")]
        ///
        #[doc = concat!("See [`", stringify!($borrowed_blocking), "`](Self::", stringify!($borrowed_blocking), ").")]
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// let latch = std::sync::Arc::new(keylatch::Latch::new());
        #[doc = concat!("let guard = latch.", stringify!($blocking), "();")]
        /// # drop(guard);
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        pub fn $blocking(self: &Arc<Self>) -> LatchGuardArc<$Mode> {
            LatchGuardArc::adopt(Arc::clone(self), self.$borrowed_blocking())
        }

        #[doc = concat!("Acquires the latch ", $what, ", and blocks the thread for at most `timeout`, with an owned guard.")]
        ///
        #[doc = concat!("See [`", stringify!($borrowed_for), "`](Self::", stringify!($borrowed_for), ").")]
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// let latch = std::sync::Arc::new(keylatch::Latch::new());
        #[doc = concat!("assert!(latch.", stringify!($for), "(std::time::Duration::ZERO).is_some());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $for(self: &Arc<Self>, timeout: Duration) -> Option<LatchGuardArc<$Mode>> {
            self.$borrowed_for(timeout).map(|guard| LatchGuardArc::adopt(Arc::clone(self), guard))
        }

        #[doc = concat!("Acquires the latch ", $what, ", and blocks the thread until `deadline` at the latest, with an owned guard.")]
        ///
        #[doc = concat!("See [`", stringify!($borrowed_until), "`](Self::", stringify!($borrowed_until), ").")]
        ///
        /// # Blocking
        /// Do not call this in a task: it blocks the executor's thread.
        ///
        /// # Examples
        /// ```
        /// let latch = std::sync::Arc::new(keylatch::Latch::new());
        #[doc = concat!("assert!(latch.", stringify!($until), "(std::time::Instant::now()).is_some());")]
        /// ```
        #[cfg(all(feature = "std", not(target_family = "wasm")))]
        #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
        #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
        pub fn $until(self: &Arc<Self>, deadline: Instant) -> Option<LatchGuardArc<$Mode>> {
            self.$borrowed_until(deadline).map(|guard| LatchGuardArc::adopt(Arc::clone(self), guard))
        }
    };
}

/// The forms with owned guards, which keep the latch's `Arc`.
impl Latch {
    owned! {
        read_arc, read_arc_blocking, try_read_arc, try_read_arc_for, try_read_arc_until = Shared: "as a reader", as
        read, read_blocking, try_read, try_read_for, try_read_until,
    }

    owned! {
        read_recursive_arc, read_recursive_arc_blocking, try_read_recursive_arc, try_read_recursive_arc_for,
        try_read_recursive_arc_until = Shared: "as a reader, past all waiters", as
        read_recursive, read_recursive_blocking, try_read_recursive, try_read_recursive_for, try_read_recursive_until,
    }

    owned! {
        upgradable_read_arc, upgradable_read_arc_blocking, try_upgradable_read_arc, try_upgradable_read_arc_for,
        try_upgradable_read_arc_until = Upgradable: "as the one reader that may become a writer", as
        upgradable_read, upgradable_read_blocking, try_upgradable_read, try_upgradable_read_for,
        try_upgradable_read_until,
    }

    owned! {
        write_arc, write_arc_blocking, try_write_arc, try_write_arc_for, try_write_arc_until = Exclusive: "as a writer", as
        write, write_blocking, try_write, try_write_for, try_write_until,
    }
}
