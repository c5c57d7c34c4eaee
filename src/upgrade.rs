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

/// The moves on which all the public forms below are built.
impl<P: TablePtr> Guard<P, Upgradable> {
    /// Ready when the hold is exclusive.
    fn poll_upgrade(&mut self, waiter: Waiter<'_>) -> Poll<()> {
        let begins = self.mode().upgrading.is_no();
        if waiter.presence == Presence::LookingThread && begins && self.core().is_observed() {
            // The observer may take its time, and who looks must not.
            if self.poll_upgrade(Waiter { presence: Presence::SleepingThread, ..waiter }).is_ready() {
                return Poll::Ready(());
            }
        }
        let mut batch = WakeBatch::default();
        let poll = self.poll_upgrade_into(waiter, &mut batch);
        self.settle_upgrade(batch);
        poll
    }

    /// Wakes whoever is to be woken, now that the state is in order; and then tells the observer.
    fn settle_upgrade(&mut self, batch: WakeBatch) {
        if self.news_of_upgrade().is_none() {
            return drop(batch);
        }
        let mut panics = Panics::default();
        panics.run(|| drop(batch));
        panics.run(|| self.observe_upgrade());
        panics.resume();
    }

    /// The event for the observer, if there is one.
    fn news_of_upgrade(&self) -> Option<WaitPhase> {
        let Upgradable { upgrading, told } = self.mode();
        match (upgrading, told) {
            (Upgrading::Waiting(_), None) if self.core().is_observed() => Some(WaitPhase::Started),
            (Upgrading::Done, Some(_)) => Some(WaitPhase::Granted),
            (Upgrading::No, Some(_)) => Some(WaitPhase::GivenUp),
            _ => None,
        }
    }

    /// Tells the observer what there is to tell, by whoever has no lock, and has woken all that were due.
    pub(crate) fn observe_upgrade(&mut self) {
        let Some(phase) = self.news_of_upgrade() else { return };
        let (core, hold) = self.parts();
        let Upgradable { upgrading, told } = hold.mode();
        let id = told.or_else(|| core.next_wait());
        // It is known from now on, or is not any more, whatever the observer does.
        hold.set_mode(Upgradable { upgrading, told: id.filter(|_| phase == WaitPhase::Started) });
        if let Some(id) = id {
            core.tell(hold.live(), Want::Upgrade, phase, id);
        }
    }

    /// The same. Whoever is to be woken is left in the batch.
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
        let entered = core.try_enter(hold.live(), Want::Upgrade).is_some();
        if entered {
            hold.set_mode(Upgradable { upgrading: Upgrading::Done, ..hold.mode() });
        }
        entered
    }

    /// Back to a plain upgradable hold, from wherever an upgrade has got, or was left forgotten.
    pub(crate) fn fall_back(&mut self) {
        let mut batch = WakeBatch::default();
        let is_exclusive = self.leave_queue(&mut batch);
        let (core, hold) = self.parts();
        if is_exclusive {
            core.downgrade(hold, Access::Upgradable, &mut batch);
            hold.set_mode(Upgradable { upgrading: Upgrading::No, ..hold.mode() });
        }
        self.settle_upgrade(batch);
    }

    /// Where the upgrade waits, if it does.
    #[cfg(target_has_atomic = "ptr")] // for those who are tracked
    pub(crate) fn place_of_upgrade(&mut self) -> Option<Place> {
        let (core, hold) = self.parts();
        let Upgrading::Waiting(ticket) = hold.mode().upgrading else { return None };
        Some(core.place(hold.live(), ticket))
    }

    /// Gives up the position in the queue, and nothing else. Whether the hold is exclusive, because that had been granted already.
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
    #[cfg(target_has_atomic = "ptr")] // for those who are tracked
    pub(crate) fn outlook_of_upgrade(&mut self) -> Contention {
        let (core, hold) = self.parts();
        core.contention(hold.live(), Want::Upgrade)
    }

    /// Waits for an upgrade in a thread. `false` if the deadline was reached first.
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn block_upgrade(&mut self, deadline: Option<Instant>) -> bool {
        /// However it ends, if not with the upgrade.
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

/// The move of all downgrades.
impl<P: TablePtr, M: Mode> Guard<P, M> {
    pub(crate) fn downgraded<N: Mode>(mut self) -> Guard<P, N> {
        let mut batch = WakeBatch::default();
        let (core, hold) = self.parts();
        core.downgrade(hold, N::ONE.access(), &mut batch);
        // Made before the batch is dropped, and if that panics, released.
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
    /// Becomes a writer: a future that waits until the other readers have left.
    ///
    /// An upgrade continues a hold, so it goes before everybody who waits for the key. While it waits, later readers
    /// are kept out as by a waiting writer. This form is for a writer to stay, or to end with; where the hold must
    /// outlive the attempt, or reading goes on after it, use [`upgrade_mut`](Guard::upgrade_mut).
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**, because the future owns the guard. The table
    /// is left in order. To keep the hold use [`upgrade_mut`](Guard::upgrade_mut), or [`until`](Upgrade::until), which
    /// gives it back.
    ///
    /// # Panics
    /// When the future is polled after it has finished.
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

    /// Becomes a writer, for as long as what the future gives is kept; then an upgradable reader again.
    ///
    /// # Cancel safety
    /// Dropping the future before it has finished leaves the guard as it was.
    ///
    /// # Panics
    /// When the future is polled after it has finished.
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

    /// Becomes a writer if there are no other readers, and for as long as what is returned is kept.
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
    #[must_use = "the hold, if there is one, falls back at once unless it is kept"]
    pub fn try_upgrade_mut(&mut self) -> Option<Upgraded<'_, P>> {
        self.fall_back();
        self.attempt_upgrade().then_some(Upgraded { guard: self })
    }

    /// Becomes a writer if there are no other readers.
    ///
    /// # Errors
    /// The guard, if there are.
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

    /// Becomes a plain reader. That makes place for another upgradable one.
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
    /// Becomes a writer, and blocks the thread until the other readers have left.
    ///
    /// # Blocking
    /// As [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking).
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

    /// Becomes a writer for as long as what is returned is kept, and blocks the thread until the other readers have
    /// left.
    ///
    /// # Blocking
    /// As [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking).
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let mut reader = locks.upgradable_read_blocking("a");
    /// drop(reader.upgrade_mut_blocking());
    /// assert!(locks.try_read("a").is_some());
    /// ```
    #[must_use = "the hold falls back at once unless it is kept"]
    pub fn upgrade_mut_blocking(&mut self) -> Upgraded<'_, P> {
        self.block_upgrade(None);
        Upgraded { guard: self }
    }

    /// Becomes a writer, and blocks the thread for at most `timeout`. It is tried at least once.
    ///
    /// # Errors
    /// The guard, if the other readers have not left in that time.
    ///
    /// # Blocking
    /// As [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking), for at most `timeout`.
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

    /// Becomes a writer, and blocks the thread until `deadline` at the longest. It is tried at least once.
    ///
    /// # Errors
    /// The guard, if the other readers have not left by then.
    ///
    /// # Blocking
    /// As [`KeyedRwLock::write_blocking`](crate::KeyedRwLock::write_blocking), until `deadline` at the longest.
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
/// **It owns the guard: dropping it before it has finished releases the hold.** Polled after it has finished it panics.
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct Upgrade<P: TablePtr> {
    guard: Option<Guard<P, Upgradable>>,
}

impl<P: TablePtr> Upgrade<P> {
    /// Waits until `limit` is ready, at the longest: any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// The upgrade is tried first: when both are ready, the writer's guard wins.
    ///
    /// # Errors
    /// The output of `limit`, and the upgradable guard.
    ///
    /// # Cancel safety
    /// As that of [`upgrade`](Guard::upgrade): dropping this future releases the hold.
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
                let mut guard = self.guard.take().expect("an upgrade has its guard until it is done");
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
            Poll::Ready(()) => Poll::Ready(self.guard.take().expect("it is there").into_mode()),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The future of [`Guard::upgrade_mut`].
///
/// Dropping it before it has finished leaves the guard as it was. If it is forgotten instead, its place in the queue,
/// and a hold that it was given, stay until the guard is used again or dropped. Polled after it has finished it panics.
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct UpgradeMut<'g, P: TablePtr> {
    /// `None` when it is done.
    guard: Option<&'g mut Guard<P, Upgradable>>,
}

impl<'g, P: TablePtr> Future for UpgradeMut<'g, P> {
    type Output = Upgraded<'g, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let guard = self.guard.as_mut().expect("keylatch: a lock future was polled after it had finished");
        match guard.poll_upgrade(Waiter { presence: Presence::Task, waker: cx.waker() }) {
            Poll::Ready(()) => Poll::Ready(Upgraded { guard: self.guard.take().expect("it is there") }),
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

/// A writer's hold that borrows an upgradable guard, and falls back to it when it is dropped: see
/// [`Guard::upgrade_mut`].
///
/// For the [policy](crate::Fairness) its end is a writer leaving. If it is forgotten the key stays held exclusively
/// until the guard is used again or dropped.
#[must_use = "the hold falls back when this is dropped"]
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

    /// The key that is held.
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
