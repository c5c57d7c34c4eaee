//! Upgrades and downgrades of a reader-writer lock's holds.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
#[cfg(target_has_atomic = "ptr")]
use crate::core::Place;
use crate::core::{Access, Presence, Ticket, Waiter, WakeBatch, Want};
use crate::guard::Guard;
use crate::mode::{Exclusive, Mode, Shared, Upgradable, Upgrading};
use crate::panics::Panics;
use crate::plumbing::{CoreOf, HoldOf, TablePtr};
use crate::wait_event::WaitPhase;

const UNFINISHED: &str = "an upgrade has its guard until it has finished";

/// The steps that the public forms below share.
impl<P: TablePtr> Guard<P, Upgradable> {
    /// Polls the upgrade: ready when the hold is exclusive.
    fn poll_upgrade(&mut self, waiter: Waiter<'_>) -> Poll<()> {
        let begins = self.mode().upgrading.is_no();
        if waiter.presence == Presence::SpinningThread && begins && self.core().is_observed() {
            // The observer may be slow, so the thread queues as sleeping: a hold handed to a spinning thread must be
            // taken at once.
            if self.poll_upgrade(Waiter { presence: Presence::SleepingThread, ..waiter }).is_ready() {
                return Poll::Ready(());
            }
        }
        let mut batch = WakeBatch::default();
        let poll = self.poll_upgrade_into(waiter, &mut batch);
        self.wake_and_report(batch);
        poll
    }

    /// Wakes the waiters of the batch, now that the state is consistent, and then calls the observer.
    fn wake_and_report(&mut self, batch: WakeBatch) {
        if self.upgrade_event().is_none() {
            return drop(batch);
        }
        let mut panics = Panics::default();
        panics.run(|| drop(batch));
        panics.run(|| self.report_upgrade());
        panics.resume();
    }

    /// Returns the event to report to the observer, if there is one.
    fn upgrade_event(&self) -> Option<WaitPhase> {
        let Upgradable { upgrading, told } = self.mode();
        match (upgrading, told) {
            (Upgrading::Waiting(_), None) if self.core().is_observed() => Some(WaitPhase::Started),
            (Upgrading::Done, Some(_)) => Some(WaitPhase::Granted),
            (Upgrading::No, Some(_)) => Some(WaitPhase::GivenUp),
            _ => None,
        }
    }

    /// Reports the event, if there is one, to the observer. The caller holds no lock, and has woken the admitted
    /// waiters.
    pub(crate) fn report_upgrade(&mut self) {
        let Some(phase) = self.upgrade_event() else { return };
        let (core, hold) = self.parts();
        let Upgradable { upgrading, told } = hold.mode();
        let id = told.or_else(|| core.next_wait());
        // The id is stored before the observer is called, because the observer may panic.
        hold.set_mode(Upgradable { upgrading, told: id.filter(|_| phase == WaitPhase::Started) });
        if let Some(id) = id {
            core.tell(hold.live(), Want::Upgrade, phase, id);
        }
    }

    /// Polls the upgrade, and adds to `batch` the wakers that must be called.
    pub(crate) fn poll_upgrade_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Poll<()> {
        let (core, hold) = self.parts();
        let mut ticket = match hold.mode().upgrading {
            Upgrading::No => Ticket::NONE,
            Upgrading::Waiting(ticket) => ticket,
            Upgrading::Done => return Poll::Ready(()),
        };
        let entered = core.poll(hold.live(), Want::Upgrade, &mut ticket, waiter, batch);
        let (upgrading, poll) = match entered {
            Some(_) => (Upgrading::Done, Poll::Ready(())),
            None => (Upgrading::Waiting(ticket), Poll::Pending),
        };
        hold.set_mode(Upgradable { upgrading, ..hold.mode() });
        poll
    }

    pub(crate) fn attempt_upgrade(&mut self) -> bool {
        let (core, hold) = self.parts();
        let entered = core.try_enter(hold.live(), Want::Upgrade, Ticket::NONE).is_some();
        if entered {
            hold.set_mode(Upgradable { upgrading: Upgrading::Done, ..hold.mode() });
        }
        entered
    }

    /// Returns to a plain upgradable hold, from any state of an upgrade, including one that was forgotten.
    pub(crate) fn fall_back(&mut self) {
        let mut batch = WakeBatch::default();
        let is_exclusive = self.leave_queue(&mut batch);
        let (core, hold) = self.parts();
        if is_exclusive {
            core.downgrade(hold, Access::Upgradable, &mut batch);
            hold.set_mode(Upgradable { upgrading: Upgrading::No, ..hold.mode() });
        }
        self.wake_and_report(batch);
    }

    /// Returns the upgrade's place in the queue, if it waits.
    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn place_of_upgrade(&mut self) -> Option<Place> {
        let (core, hold) = self.parts();
        let Upgrading::Waiting(ticket) = hold.mode().upgrading else { return None };
        Some(core.place(hold.live(), ticket))
    }

    /// Gives up the position in the queue, and keeps the hold. Returns whether the hold is exclusive, because the
    /// upgrade had already been granted.
    pub(crate) fn leave_queue(&mut self, batch: &mut WakeBatch) -> bool {
        let (core, hold) = self.parts();
        if let Upgrading::Waiting(ticket) = hold.mode().upgrading {
            let entered = core.leave_queue(hold.live(), ticket, batch);
            let upgrading = if entered.is_some() { Upgrading::Done } else { Upgrading::No };
            hold.set_mode(Upgradable { upgrading, ..hold.mode() });
        }
        matches!(hold.mode().upgrading, Upgrading::Done)
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg(target_has_atomic = "ptr")] // for tracked guards
    pub(crate) fn upgrade_contention(&mut self) -> Contention {
        let (core, hold) = self.parts();
        core.contention(hold.live(), Want::Upgrade)
    }

    /// Blocks the thread until the upgrade is done. Returns `false` if the deadline was reached first.
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn block_upgrade(&mut self, deadline: Option<Instant>) -> bool {
        /// A drop guard that restores the upgradable hold if the wait fails or panics.
        struct FallBack<'a, P: TablePtr>(&'a mut Guard<P, Upgradable>);
        impl<P: TablePtr> Drop for FallBack<'_, P> {
            fn drop(&mut self) {
                self.0.fall_back();
            }
        }
        self.fall_back();
        let upgrade = FallBack(self);
        let done = upgrade.0.attempt_upgrade() || block(&mut *upgrade.0, deadline).is_some();
        if done {
            core::mem::forget(upgrade);
        }
        done
    }
}

/// The step that all downgrades share.
impl<P: TablePtr, M: Mode> Guard<P, M> {
    pub(crate) fn downgraded<N: Mode>(mut self) -> Guard<P, N> {
        let mut batch = WakeBatch::default();
        let (core, hold) = self.parts();
        core.downgrade(hold, N::ONE.access(), &mut batch);
        // The guard is made before the batch is dropped, so that a panic of a waker releases it.
        let guard = self.into_mode();
        drop(batch);
        guard
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr> Wait for &mut Guard<P, Upgradable> {
    type Output = ();

    fn contention(&mut self) -> Contention {
        let (core, hold) = self.parts();
        core.contention(hold.live(), Want::Upgrade)
    }

    fn attempt(&mut self) -> Option<()> {
        self.attempt_upgrade().then_some(())
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<()> {
        self.poll_upgrade(waiter)
    }
}

/// Upgrades and downgrades. All are atomic: no writer gets in between.
impl<P: TablePtr> Guard<P, Upgradable> {
    /// Upgrades to a writer. The future waits until the other readers have left.
    ///
    /// An upgrade continues a hold, so it takes precedence over every waiter for the key. While it waits, it keeps
    /// later readers out as a waiting writer does. Use this form if the guard stays a writer until it is released. If
    /// the hold must outlive a failed attempt, or reading continues after the write, use
    /// [`upgrade_mut`](Guard::upgrade_mut).
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**, because the future owns the guard. The key
    /// then passes to the next request, as after any release. To keep the hold use [`upgrade_mut`](Guard::upgrade_mut),
    /// or [`until`](Upgrade::until), which returns the guard.
    ///
    /// # Panics
    /// The future panics if it is polled after it has finished.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let reader = locks.upgradable_read("a").await;
    /// let writer = reader.upgrade().await;
    /// assert!(locks.try_read("a").is_none());
    /// # drop(writer);
    /// # });
    /// ```
    pub fn upgrade(mut self) -> Upgrade<P> {
        self.fall_back();
        Upgrade { guard: Some(self) }
    }

    /// Upgrades to a writer while the output of the future lives; after that the guard is an upgradable reader again.
    ///
    /// # Cancel safety
    /// Dropping the future before it has finished leaves the guard as it was.
    ///
    /// # Panics
    /// The future panics if it is polled after it has finished.
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let mut reader = locks.upgradable_read("a").await;
    /// let writer = reader.upgrade_mut().await;
    /// assert!(locks.try_read("a").is_none());
    /// drop(writer);
    /// assert!(locks.try_read("a").is_some());
    /// # });
    /// ```
    pub fn upgrade_mut(&mut self) -> UpgradeMut<'_, P> {
        self.fall_back();
        UpgradeMut { guard: Some(self) }
    }

    /// Upgrades to a writer, if there are no other readers, while the returned value lives.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let mut guard = locks.try_upgradable_read("a").unwrap();
    /// let reader = locks.try_read("a");
    /// assert!(guard.try_upgrade_mut().is_none());
    /// drop(reader);
    /// assert!(guard.try_upgrade_mut().is_some());
    /// ```
    #[must_use = "the hold is downgraded at once unless the returned value is kept"]
    pub fn try_upgrade_mut(&mut self) -> Option<Upgraded<'_, P>> {
        self.fall_back();
        self.attempt_upgrade().then_some(Upgraded { guard: self })
    }

    /// Upgrades to a writer, if there are no other readers.
    ///
    /// # Errors
    /// Returns the guard if there are other readers.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let guard = locks.try_upgradable_read("a").unwrap();
    /// let reader = locks.try_read("a");
    /// let guard = guard.try_upgrade().unwrap_err();
    /// drop(reader);
    /// let writer = guard.try_upgrade().unwrap();
    /// # drop(writer);
    /// ```
    pub fn try_upgrade(mut self) -> Result<Guard<P, Exclusive>, Self> {
        self.fall_back();
        if self.attempt_upgrade() { Ok(self.into_mode()) } else { Err(self) }
    }

    /// Downgrades to a plain reader, so that another caller can become the upgradable reader.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let reader = locks.try_upgradable_read("a").unwrap().downgrade();
    /// assert!(locks.try_upgradable_read("a").is_some());
    /// # drop(reader);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn downgrade(mut self) -> Guard<P, Shared> {
        self.fall_back();
        self.downgraded()
    }
}

/// Blocking and timed upgrades.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl<P: TablePtr> Guard<P, Upgradable> {
    /// Upgrades to a writer, and blocks the thread until the other readers have left.
    ///
    /// # Blocking
    /// Blocks like [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking).
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let writer = locks.upgradable_read_blocking("a").upgrade_blocking();
    /// assert!(locks.try_read("a").is_none());
    /// # drop(writer);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn upgrade_blocking(mut self) -> Guard<P, Exclusive> {
        self.block_upgrade(None);
        self.into_mode()
    }

    /// Upgrades to a writer while the returned value lives, and blocks the thread until the other readers have left.
    ///
    /// # Blocking
    /// Blocks like [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking).
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let mut reader = locks.upgradable_read_blocking("a");
    /// drop(reader.upgrade_mut_blocking());
    /// assert!(locks.try_read("a").is_some());
    /// ```
    #[must_use = "the hold is downgraded at once unless the returned value is kept"]
    pub fn upgrade_mut_blocking(&mut self) -> Upgraded<'_, P> {
        self.block_upgrade(None);
        Upgraded { guard: self }
    }

    /// Upgrades to a writer, and blocks the thread for at most `timeout`. It tries at least once.
    ///
    /// # Errors
    /// Returns the upgradable guard if the other readers have not left in that time.
    ///
    /// # Blocking
    /// Blocks like [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking), for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let guard = locks.try_upgradable_read("a").unwrap();
    /// let reader = locks.try_read("a");
    /// let guard = guard.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    /// # drop(guard);
    /// ```
    pub fn try_upgrade_for(mut self, timeout: Duration) -> Result<Guard<P, Exclusive>, Self> {
        if self.block_upgrade(deadline_after(timeout)) { Ok(self.into_mode()) } else { Err(self) }
    }

    /// Upgrades to a writer, and blocks the thread until `deadline` at the latest. It tries at least once.
    ///
    /// # Errors
    /// Returns the upgradable guard if the other readers have not left by then.
    ///
    /// # Blocking
    /// Blocks like [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking), until `deadline` at the latest.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let guard = locks.try_upgradable_read("a").unwrap();
    /// assert!(guard.try_upgrade_until(std::time::Instant::now()).is_ok());
    /// ```
    pub fn try_upgrade_until(mut self, deadline: Instant) -> Result<Guard<P, Exclusive>, Self> {
        if self.block_upgrade(Some(deadline)) { Ok(self.into_mode()) } else { Err(self) }
    }
}

/// The future of [`Guard::upgrade`].
///
/// **It owns the guard: dropping it before it has finished releases the hold.** It panics if it is polled after it has
/// finished.
///
/// # Examples
/// ```
/// # futures_lite::future::block_on(async {
/// let locks = keylatch::KeyedRwLock::<String>::new();
/// drop(locks.upgradable_read("a").await.upgrade()); // releases the hold
/// assert!(!locks.is_locked("a"));
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct Upgrade<P: TablePtr> {
    guard: Option<Guard<P, Upgradable>>,
}

impl<P: TablePtr> Upgrade<P> {
    /// Waits for the upgrade until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// Each poll tries the upgrade first: if both are ready, the result is the writer's guard.
    ///
    /// # Errors
    /// Returns the output of `limit`, and the upgradable guard.
    ///
    /// # Cancel safety
    /// Dropping this future releases the hold, as with [`upgrade`](Guard::upgrade).
    ///
    /// # Examples
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let guard = locks.upgradable_read("a").await;
    /// let reader = locks.read("a").await;
    /// let (limit, guard) = guard.upgrade().until(async { "too late" }).await.unwrap_err();
    /// assert_eq!(limit, "too late");
    /// drop(reader);
    /// assert!(guard.upgrade().until(async {}).await.is_ok());
    /// # });
    /// ```
    #[must_use = "bind it: `let result = …`; the guard is in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(
        mut self,
        limit: F,
    ) -> Result<Guard<P, Exclusive>, (F::Output, Guard<P, Upgradable>)> {
        match race(&mut self, limit).await {
            Ok(guard) => Ok(guard),
            Err(limit) => {
                let mut guard = self.guard.take().expect(UNFINISHED);
                guard.fall_back();
                Err((limit, guard))
            }
        }
    }
}

impl<P: TablePtr> Future for Upgrade<P> {
    type Output = Guard<P, Exclusive>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let guard = self.guard.as_mut().expect("keylatch: a lock future was polled after it had finished");
        match guard.poll_upgrade(Waiter { presence: Presence::Task, waker: cx.waker() }) {
            Poll::Ready(()) => Poll::Ready(self.guard.take().expect(UNFINISHED).into_mode()),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The future of [`Guard::upgrade_mut`].
///
/// Dropping it before it has finished leaves the guard as it was. If it is forgotten instead, its place in the queue,
/// and an exclusive hold that it was granted, stay until the guard is used again or dropped. It panics if it is polled
/// after it has finished.
///
/// # Examples
/// ```
/// # futures_lite::future::block_on(async {
/// let locks = keylatch::KeyedRwLock::<String>::new();
/// let mut reader = locks.upgradable_read("a").await;
/// drop(reader.upgrade_mut()); // keeps the upgradable hold
/// assert!(locks.try_upgradable_read("a").is_none() && locks.try_read("a").is_some());
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct UpgradeMut<'g, P: TablePtr> {
    /// The guard; `None` after the upgrade is done.
    guard: Option<&'g mut Guard<P, Upgradable>>,
}

impl<'g, P: TablePtr> Future for UpgradeMut<'g, P> {
    type Output = Upgraded<'g, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let guard = self.guard.as_mut().expect("keylatch: a lock future was polled after it had finished");
        match guard.poll_upgrade(Waiter { presence: Presence::Task, waker: cx.waker() }) {
            Poll::Ready(()) => Poll::Ready(Upgraded { guard: self.guard.take().expect(UNFINISHED) }),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<P: TablePtr> Drop for UpgradeMut<'_, P> {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.fall_back();
        }
    }
}

/// A writer's hold that borrows an upgradable guard. Dropping it makes the guard an upgradable reader again: see
/// [`Guard::upgrade_mut`].
///
/// For the [policy](crate::Fairness) the drop counts as a writer leaving. If the `Upgraded` is forgotten, the key stays
/// held exclusively until the guard is used again or dropped.
///
/// # Examples
/// ```
/// let locks = keylatch::KeyedRwLock::<String>::new();
/// let mut reader = locks.try_upgradable_read("a").unwrap();
/// let writer = reader.try_upgrade_mut().unwrap();
/// assert!(locks.try_read("a").is_none());
/// drop(writer);
/// assert!(locks.try_read("a").is_some());
/// ```
#[must_use = "the hold is downgraded when this is dropped"]
#[clippy::has_significant_drop]
pub struct Upgraded<'g, P: TablePtr> {
    guard: &'g mut Guard<P, Upgradable>,
}

impl<P: TablePtr> Upgraded<'_, P> {
    #[inline]
    pub(crate) fn guard(&self) -> &Guard<P, Upgradable> {
        self.guard
    }

    #[inline]
    pub(crate) fn guard_mut(&mut self) -> &mut Guard<P, Upgradable> {
        self.guard
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> (&CoreOf<P>, &mut HoldOf<P, Upgradable>) {
        self.guard.parts()
    }

    /// Returns the held key.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let mut guard = locks.try_upgradable_read("a").unwrap();
    /// assert_eq!(guard.try_upgrade_mut().unwrap().key(), "a");
    /// ```
    #[must_use]
    pub fn key(&self) -> &P::Key {
        self.guard.key()
    }
}

impl<P: TablePtr> Drop for Upgraded<'_, P> {
    fn drop(&mut self) {
        self.guard.fall_back();
    }
}

macro_rules! debug {
    ($($Type:ty: $name:literal),+ $(,)?) => {$(
        impl<P: TablePtr> fmt::Debug for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    )+};
}

debug! {
    Upgrade<P>: "Upgrade",
    UpgradeMut<'_, P>: "UpgradeMut",
    Upgraded<'_, P>: "Upgraded",
}
