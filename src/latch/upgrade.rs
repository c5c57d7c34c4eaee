//! Upgrades of a latch's upgradable reader to a writer.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::guard::{LatchGuard, LatchReadGuard, LatchUpgradableGuard, LatchWriteGuard};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, Presence, ReleaseFor, Ticket, Waiter, WakeBatch, Want};
use crate::mode::{Exclusive, Shared, Upgradable};

/// The future of [`LatchGuard::upgrade`]. Its output is the writer's guard.
///
/// # Cancel safety
/// **Dropping the future before it has finished releases the hold**, because the future owns the guard.
/// [`until`](LatchUpgrade::until) returns the guard if the upgrade does not succeed in time.
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// ```
/// # futures_lite::future::block_on(async {
/// let latch = keylatch::Latch::new();
/// let reader = latch.upgradable_read().await;
/// let writer = reader.upgrade().await;
/// assert!(latch.try_read().is_none());
/// # drop(writer);
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited; dropping it releases the hold"]
#[clippy::has_significant_drop]
pub struct LatchUpgrade<'a> {
    /// The upgradable hold, until the upgrade has finished.
    guard: Option<LatchUpgradableGuard<'a>>,
    ticket: Ticket,
}

const HELD: &str = "keylatch: an upgrade was polled after it had finished";

impl<'a> LatchUpgrade<'a> {
    /// Makes the upgrade of a hold. The upgrade may already wait in the queue, at the position `ticket`.
    #[cfg(target_has_atomic = "ptr")] // for owned upgrades
    pub(super) fn resume(guard: LatchUpgradableGuard<'a>, ticket: Ticket) -> Self {
        LatchUpgrade { guard: Some(guard), ticket }
    }

    /// Takes the upgrade apart, without giving it up, and returns its position.
    #[cfg(target_has_atomic = "ptr")]
    pub(super) fn pause(self) -> Ticket {
        let ticket = self.ticket;
        core::mem::forget(self);
        ticket
    }

    /// Makes the writer's guard of the hold, which the word already counts as a writer's.
    fn upgraded(&mut self) -> LatchWriteGuard<'a> {
        self.ticket = Ticket::NONE;
        self.guard.take().expect(HELD).rename(Exclusive::NEW)
    }

    /// Tries once, without joining the queue.
    fn attempt(&mut self) -> Option<LatchWriteGuard<'a>> {
        let guard = self.guard.as_ref()?;
        let _entered = guard.word().try_enter(Want::Upgrade, Ticket::NONE, guard.fairness())?;
        Some(self.upgraded())
    }

    pub(super) fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchWriteGuard<'a>> {
        let mut batch = WakeBatch::default();
        let guard = self.guard.as_ref().expect(HELD);
        let entered = guard.word().poll(Want::Upgrade, guard.fairness(), &mut self.ticket, waiter, &mut batch);
        let writer = entered.map(|_| self.upgraded());
        // The writer's guard is made before the wakers in the batch are called, so that it is dropped if they panic.
        drop(batch);
        writer.map_or(Poll::Pending, Poll::Ready)
    }

    /// Gives up the upgrade, and returns the upgradable hold.
    pub(super) fn give_back(mut self) -> LatchUpgradableGuard<'a> {
        let mut batch = WakeBatch::default();
        let guard = self.guard.take().expect(HELD);
        if guard.word().leave_queue(self.ticket, guard.fairness(), &mut batch).is_some() {
            // The upgrade has been granted since the last poll.
            guard.word().downgrade(Access::Exclusive, Access::Upgradable, guard.fairness(), &mut batch);
        }
        drop(batch); // if a waker panics, the guard is dropped while unwinding
        guard
    }

    /// Waits for the upgrade until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token. If both are ready, the result is `Ok`.
    ///
    /// # Errors
    /// Returns the output of `limit`, and the upgradable reader's guard, which has held the latch throughout.
    ///
    /// # Cancel safety
    /// As with [`LatchUpgrade`] itself, dropping the future releases the hold.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::Latch;
    ///
    /// # smol::block_on(async {
    /// let latch = Latch::new();
    /// let _other = latch.read().await;
    /// let reader = latch.upgradable_read().await;
    /// let refused = reader.upgrade().until(smol::Timer::after(Duration::from_millis(1))).await;
    /// let (_, reader) = refused.unwrap_err();
    /// assert!(latch.try_write().is_none());
    /// # drop(reader);
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard is in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(
        mut self,
        limit: F,
    ) -> Result<LatchWriteGuard<'a>, (F::Output, LatchUpgradableGuard<'a>)> {
        race(&mut self, limit).await.map_err(|expired| (expired, self.give_back()))
    }
}

impl<'a> Future for LatchUpgrade<'a> {
    type Output = LatchWriteGuard<'a>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        LatchUpgrade::poll(&mut self, Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

impl Drop for LatchUpgrade<'_> {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        let mut batch = WakeBatch::default();
        if guard.word().leave_queue(self.ticket, guard.fairness(), &mut batch).is_some() {
            // The reservation passes to the next waiter, not to the first newcomer.
            guard.rename(Exclusive::NEW).release_for(ReleaseFor::NextWaiter, Some(&mut batch));
        } else {
            guard.release_into(&mut batch);
        }
    }
}

impl fmt::Debug for LatchUpgrade<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchUpgrade").field("done", &self.guard.is_none()).finish_non_exhaustive()
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<'a> Wait for &mut LatchUpgrade<'a> {
    type Output = LatchWriteGuard<'a>;

    fn contention(&mut self) -> Contention {
        let guard = self.guard.as_ref().expect(HELD);
        guard.word().contention(Want::Upgrade, guard.fairness())
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        LatchUpgrade::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        LatchUpgrade::poll(self, waiter)
    }
}

/// Upgrades and downgrades. All are atomic: no writer gets in between.
impl<'a> LatchGuard<'a, Upgradable> {
    /// Upgrades to a writer. The future waits until the other readers have left.
    ///
    /// An upgrade continues a hold, so it takes precedence over every waiter. While it waits, it keeps later readers
    /// out as a waiting writer does.
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**: see
    /// [`LatchUpgrade`](crate::futures::LatchUpgrade).
    ///
    /// # Examples
    /// See [`LatchUpgrade`](crate::futures::LatchUpgrade).
    pub fn upgrade(self) -> LatchUpgrade<'a> {
        LatchUpgrade { guard: Some(self), ticket: Ticket::NONE }
    }

    /// Upgrades to a writer, if there are no other readers.
    ///
    /// # Errors
    /// Returns this guard if there are other readers.
    ///
    /// # Examples
    /// ```
    /// let latch = keylatch::Latch::new();
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read().unwrap());
    /// let reader = reader.try_upgrade().unwrap_err();
    /// drop(other);
    /// let writer = reader.try_upgrade().unwrap();
    /// # drop(writer);
    /// ```
    pub fn try_upgrade(self) -> Result<LatchWriteGuard<'a>, Self> {
        let mut upgrade = self.upgrade();
        upgrade.attempt().ok_or_else(|| upgrade.give_back())
    }

    /// Upgrades to a writer, and blocks the thread until the other readers have left.
    ///
    /// # Blocking
    /// Do not call this in a task: it blocks the executor's thread.
    ///
    /// # Examples
    /// ```
    /// let latch = keylatch::Latch::new();
    /// let writer = latch.upgradable_read_blocking().upgrade_blocking();
    /// assert!(latch.try_read().is_none());
    /// # drop(writer);
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[must_use = "bind it: `let guard = …` (`let _ = …` releases it at once)"]
    pub fn upgrade_blocking(self) -> LatchWriteGuard<'a> {
        let mut upgrade = self.upgrade();
        let writer = upgrade.attempt().or_else(|| block(&mut upgrade, None));
        writer.expect("a wait without a deadline ends with the hold")
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
    /// use std::time::Duration;
    ///
    /// let latch = keylatch::Latch::new();
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read().unwrap());
    /// let reader = reader.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    /// # drop((other, reader));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[doc(alias = "timeout")]
    pub fn try_upgrade_for(self, timeout: Duration) -> Result<LatchWriteGuard<'a>, Self> {
        self.upgrade_until(deadline_after(timeout))
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
    /// use std::time::Instant;
    ///
    /// let latch = keylatch::Latch::new();
    /// let (other, reader) = (latch.try_read(), latch.try_upgradable_read().unwrap());
    /// let reader = reader.try_upgrade_until(Instant::now()).unwrap_err();
    /// # drop((other, reader));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[doc(alias = "deadline")]
    pub fn try_upgrade_until(self, deadline: Instant) -> Result<LatchWriteGuard<'a>, Self> {
        self.upgrade_until(Some(deadline))
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn upgrade_until(self, deadline: Option<Instant>) -> Result<LatchWriteGuard<'a>, Self> {
        let mut upgrade = self.upgrade();
        let writer = upgrade.attempt().or_else(|| block(&mut upgrade, deadline));
        writer.ok_or_else(|| upgrade.give_back())
    }

    /// Downgrades to a reader, which cannot be upgraded. Another reader may become the upgradable one.
    ///
    /// # Examples
    /// ```
    /// let latch = keylatch::Latch::new();
    /// let reader = latch.try_upgradable_read().unwrap().downgrade();
    /// assert!(latch.try_upgradable_read().is_some());
    /// # drop(reader);
    /// ```
    pub fn downgrade(self) -> LatchReadGuard<'a> {
        self.downgraded(Shared::NEW)
    }
}
