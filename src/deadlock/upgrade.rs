//! Upgrades and downgrades of the tracked guards of a reader-writer lock.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::acquire::poll_once;
use super::record::Record;
use super::report::{Deadlock, Refused};
use super::step::{self, Step};
use super::tracked::Tracked;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, Identity, Place, Presence, Waiter, WakeBatch, Want};
use crate::guard::Guard;
use crate::locks::{KeyedRwLock, LockMap};
use crate::mode::{Exclusive, Mode, Shared, Upgradable};
use crate::plumbing::{TablePtr, TableRef};

impl<P: TablePtr> Tracked<Guard<P, Upgradable>>
where
    P::Key: fmt::Debug,
{
    /// Upgrades to a writer, unless that would complete a cycle of waits. The future waits until the other readers have
    /// left.
    ///
    /// It works like [`Guard::upgrade`]. [`until`](TrackedUpgrade::until) limits the wait.
    ///
    /// # Errors
    /// The future's output is a [`Deadlock`] and this guard, which is still an upgradable reader.
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**, because the future owns the guard.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedRwLock, deadlock::Detector};
    ///
    /// # futures_lite::future::block_on(async {
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let party = detector.party("editor");
    /// let reader = party.acquire(pages.read("home")).await.unwrap();
    /// let editor = party.acquire(pages.upgradable_read("home")).await.unwrap();
    ///
    /// let (deadlock, editor) = editor.upgrade().await.unwrap_err();
    /// assert!(deadlock.is_reentry()); // it waits for the party's own reader
    /// drop(reader);
    /// let editor = editor.upgrade().await.unwrap();
    /// # drop(editor);
    /// # });
    /// ```
    pub fn upgrade(mut self) -> TrackedUpgrade<P> {
        self.undo_forgotten();
        TrackedUpgrade { record: Record::none(Arc::clone(&self.record.member)), tracked: Some(self) }
    }

    /// Upgrades to a writer, unless that would complete a cycle of waits, and blocks the thread until the other readers
    /// have left.
    ///
    /// # Errors
    /// Returns a [`Deadlock`] and this guard, which is still an upgradable reader.
    ///
    /// # Blocking
    /// Blocks like [`Guard::upgrade_blocking`].
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedRwLock, deadlock::Detector};
    ///
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let editor = detector.party("editor").acquire_blocking(pages.upgradable_read("home")).unwrap();
    /// let editor = editor.upgrade_blocking().unwrap();
    /// # drop(editor);
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    pub fn upgrade_blocking(self) -> Result<Tracked<Guard<P, Exclusive>>, (Deadlock, Self)> {
        block(&mut self.upgrade(), None).expect("a wait without a deadline ends")
    }

    /// Upgrades to a writer, unless that would complete a cycle of waits, and blocks the thread for at most `timeout`.
    ///
    /// It tries at least once. With a timeout of zero it does not begin to wait, and so cannot complete a cycle by
    /// waiting.
    ///
    /// # Errors
    /// Returns this guard, which is still an upgradable reader, with [`Refused::Deadlock`], or with [`Refused::Limit`]
    /// after the timeout.
    ///
    /// # Blocking
    /// Blocks like [`Guard::upgrade_blocking`], for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::{KeyedRwLock, deadlock::{Detector, Refused}};
    ///
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let reader = pages.read_blocking("home");
    /// let editor = detector.party("editor").acquire_blocking(pages.upgradable_read("home")).unwrap();
    /// let (refused, editor) = editor.try_upgrade_for(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(refused, Refused::Limit(()));
    /// drop(reader);
    /// let editor = editor.try_upgrade_for(Duration::from_millis(1)).unwrap();
    /// # drop(editor);
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub fn try_upgrade_for(self, timeout: Duration) -> Result<Tracked<Guard<P, Exclusive>>, (Refused<()>, Self)> {
        self.upgrade().block(deadline_after(timeout))
    }

    /// Upgrades to a writer, unless that would complete a cycle of waits, and blocks the thread until `deadline` at the
    /// latest.
    ///
    /// It tries at least once, even with a deadline in the past.
    ///
    /// # Errors
    /// Fails like [`try_upgrade_for`](Self::try_upgrade_for).
    ///
    /// # Blocking
    /// Blocks like [`Guard::upgrade_blocking`], until `deadline` at the latest.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// use keylatch::{KeyedRwLock, deadlock::Detector};
    ///
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let reader = pages.read_blocking("home");
    /// let editor = detector.party("editor").acquire_blocking(pages.upgradable_read("home")).unwrap();
    /// let (_, editor) = editor.try_upgrade_until(Instant::now()).unwrap_err();
    /// # drop((reader, editor));
    /// ```
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[cfg_attr(docsrs, doc(cfg(feature = "std")))]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub fn try_upgrade_until(self, deadline: Instant) -> Result<Tracked<Guard<P, Exclusive>>, (Refused<()>, Self)> {
        self.upgrade().block(Some(deadline))
    }

    /// Upgrades to a writer, if there are no other readers.
    ///
    /// # Errors
    /// Returns the guard if there are other readers.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedRwLock, deadlock::Detector};
    ///
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let editor = detector.party("editor").acquire_blocking(pages.upgradable_read("home")).unwrap();
    /// let editor = editor.try_upgrade().unwrap();
    /// # drop(editor);
    /// ```
    pub fn try_upgrade(mut self) -> Result<Tracked<Guard<P, Exclusive>>, Self> {
        self.undo_forgotten();
        let Tracked { record, guard } = self;
        match guard.try_upgrade() {
            Ok(guard) => {
                record.set_access(Access::Exclusive);
                Ok(Tracked { record, guard })
            }
            Err(guard) => Err(Tracked { record, guard }),
        }
    }

    /// Downgrades to a plain reader, so that another caller can become the upgradable reader.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedRwLock, deadlock::Detector};
    ///
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let reader = detector.party("editor").acquire_blocking(pages.upgradable_read("home")).unwrap().downgrade();
    /// assert!(pages.try_upgradable_read("home").is_some());
    /// # drop(reader);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn downgrade(self) -> Tracked<Guard<P, Shared>> {
        self.becomes(Access::Shared, Guard::<P, Upgradable>::downgrade)
    }
}

impl<P: TablePtr, M: Mode> Tracked<Guard<P, M>> {
    /// Downgrades the hold. The record changes first: it may understate the hold for a moment, but never overstates it.
    fn becomes<N: Mode>(
        self,
        access: Access,
        downgrade: impl FnOnce(Guard<P, M>) -> Guard<P, N>,
    ) -> Tracked<Guard<P, N>> {
        let Tracked { record, guard } = self;
        record.set_access(access);
        Tracked { record, guard: downgrade(guard) }
    }
}

/// Defines the downgrades separately for each reference to a table, as for untracked guards.
macro_rules! downgrades {
    ($([$($generics:tt)+] $P:ty;)+) => {$(
        impl<$($generics)+> Tracked<Guard<$P, Exclusive>> {
            /// Downgrades to a reader. Waiting readers may get in beside it; no writer gets in between.
            ///
            /// # Examples
            /// ```
            /// use keylatch::{KeyedRwLock, deadlock::Detector};
            ///
            /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
            /// let reader = detector.party("editor").acquire_blocking(pages.write("home")).unwrap().downgrade();
            /// assert!(pages.try_read("home").is_some());
            /// # drop(reader);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn downgrade(self) -> Tracked<Guard<$P, Shared>> {
                self.becomes(Access::Shared, Guard::<$P, Exclusive>::downgrade)
            }

            /// Downgrades to an upgradable reader. Waiting readers may get in beside it; no writer gets in between.
            ///
            /// # Examples
            /// ```
            /// use keylatch::{KeyedRwLock, deadlock::Detector};
            ///
            /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
            /// let editor = detector.party("editor").acquire_blocking(pages.write("home")).unwrap();
            /// let editor = editor.downgrade_to_upgradable().try_upgrade().unwrap();
            /// # drop(editor);
            /// ```
            #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
            pub fn downgrade_to_upgradable(self) -> Tracked<Guard<$P, Upgradable>> {
                self.becomes(Access::Upgradable, Guard::<$P, Exclusive>::downgrade_to_upgradable)
            }
        }
    )+};
}

downgrades! {
    ['a, K, S] TableRef<'a, KeyedRwLock<K, S>>;
    [K, S] Arc<KeyedRwLock<K, S>>;
    ['a, K, V, S] TableRef<'a, LockMap<K, V, S>>;
    [K, V, S] Arc<LockMap<K, V, S>>;
}

/// The future of a tracked guard's [`upgrade`](Tracked::upgrade).
///
/// **It owns the guard: dropping it before it has finished releases the hold.** It panics if it is polled after it has
/// finished.
///
/// # Examples
/// See [`upgrade`](Tracked::upgrade).
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct TrackedUpgrade<P: TablePtr> {
    // Dropped first, because dropping the guard leaves the queue.
    record: Record,
    /// `None` once the upgrade has finished.
    tracked: Option<Tracked<Guard<P, Upgradable>>>,
}

const FINISHED: &str = "keylatch: a lock future was polled after it had finished";

#[allow(private_interfaces)]
impl<P: TablePtr> step::Request for Tracked<Guard<P, Upgradable>>
where
    P::Key: fmt::Debug,
{
    type Got = ();

    fn want(&self) -> Want {
        Want::Upgrade
    }

    fn identity(&self) -> Identity {
        self.guard.identity()
    }

    fn describe(&self) -> (String, &'static str) {
        (format!("{:?}", self.guard.key()), core::any::type_name::<P::Table>())
    }

    fn continues(&self) -> Option<u32> {
        Some(self.record.index)
    }

    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<()> {
        self.guard.poll_upgrade_into(waiter, batch).is_ready().then_some(())
    }

    fn observe(&mut self, step: &mut Step<()>) {
        // A failed upgrade is reported when the guard returns to an upgradable hold.
        if !matches!(step, Step::Failed(..)) {
            self.guard.report_upgrade();
        }
    }

    fn place(&mut self) -> Place {
        self.guard.place_of_upgrade().expect("a place is requested only while the upgrade waits")
    }

    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<()> {
        self.guard.leave_queue(batch).then_some(())
    }
}

type Upgraded<P> = Result<Tracked<Guard<P, Exclusive>>, (Deadlock, Tracked<Guard<P, Upgradable>>)>;

impl<P: TablePtr> TrackedUpgrade<P>
where
    P::Key: fmt::Debug,
{
    /// Tries once, without beginning to wait.
    fn attempt(&mut self) -> Option<Upgraded<P>> {
        if self.record.is_some() {
            return None; // it waits, and keeps its place
        }
        match self.tracked.take().expect(FINISHED).try_upgrade() {
            Ok(tracked) => Some(Ok(tracked)),
            Err(tracked) => {
                self.tracked = Some(tracked);
                None
            }
        }
    }

    /// Waits for the other readers until `limit` is ready.
    ///
    /// The upgrade is tried first. If that fails and the limit has already been reached, the upgrade does not begin to
    /// wait. Otherwise it counts as a waiting request until the limit is reached.
    ///
    /// # Errors
    /// Returns the guard, which is still an upgradable reader, with [`Refused::Deadlock`] if the upgrade fails with a
    /// [`Deadlock`], or with [`Refused::Limit`] and the output of `limit` if the limit is reached first.
    ///
    /// # Cancel safety
    /// **Dropping the future before it has finished releases the hold**, as with [`TrackedUpgrade`] itself.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedRwLock, deadlock::{Detector, Refused}};
    ///
    /// # futures_lite::future::block_on(async {
    /// let (pages, detector) = (KeyedRwLock::<String>::new(), Detector::new());
    /// let reader = pages.read("home").await;
    /// let editor = detector.party("editor").acquire(pages.upgradable_read("home")).await.unwrap();
    /// let (refused, editor) = editor.upgrade().until(async { "too late" }).await.unwrap_err();
    /// assert_eq!(refused, Refused::Limit("too late"));
    /// # drop((reader, editor));
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard is in it (`let _ = …` releases it at once)"]
    #[allow(clippy::type_complexity)] // an alias would hide more than it tells
    pub async fn until<F: Future>(
        mut self,
        limit: F,
    ) -> Result<Tracked<Guard<P, Exclusive>>, (Refused<F::Output>, Tracked<Guard<P, Upgradable>>)> {
        let outcome;
        {
            let mut limit = pin!(limit);
            // An upgrade that already waits may have been granted, so it is polled first.
            let begins = !self.record.is_some();
            if let Some(upgraded) = if begins { self.attempt() } else { None } {
                outcome = Ok(upgraded);
            } else if let Some(expired) = if begins { poll_once(limit.as_mut()).await } else { None } {
                // The limit's poll may have been slow, or may have released the other readers.
                outcome = self.attempt().ok_or(expired);
            } else {
                outcome = race(&mut self, limit).await;
            }
        }
        match outcome {
            Ok(Ok(tracked)) => Ok(tracked),
            Ok(Err((deadlock, tracked))) => Err((Refused::Deadlock(deadlock), tracked)),
            Err(expired) => Err((Refused::Limit(expired), self.give_up())),
        }
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    #[allow(clippy::type_complexity)]
    fn block(
        mut self,
        deadline: Option<Instant>,
    ) -> Result<Tracked<Guard<P, Exclusive>>, (Refused<()>, Tracked<Guard<P, Upgradable>>)> {
        match block(&mut self, deadline) {
            Some(Ok(tracked)) => Ok(tracked),
            Some(Err((deadlock, tracked))) => Err((Refused::Deadlock(deadlock), tracked)),
            None => Err((Refused::Limit(()), self.give_up())),
        }
    }

    /// Gives up the upgrade at its limit, and returns the guard.
    fn give_up(self) -> Tracked<Guard<P, Upgradable>> {
        let TrackedUpgrade { record, tracked } = self;
        // The record of the wait is dropped first, as when the future is dropped.
        drop(record);
        let mut tracked = tracked.expect(FINISHED);
        tracked.guard.fall_back();
        tracked
    }

    fn poll_as(&mut self, waiter: Waiter<'_>) -> Poll<Upgraded<P>> {
        if !self.record.is_some() {
            if let Some(upgraded) = self.attempt() {
                return Poll::Ready(upgraded);
            }
        }
        let tracked = self.tracked.as_mut().expect(FINISHED);
        let step = self.record.step(tracked, waiter, None);
        if let Step::Waits = step {
            return Poll::Pending;
        }
        let mut tracked = self.tracked.take().expect(FINISHED);
        Poll::Ready(match step {
            Step::Failed(deadlock, _) => {
                tracked.guard.fall_back();
                Err((deadlock, tracked))
            }
            _ => Ok(tracked.upgraded()),
        })
    }
}

impl<P: TablePtr> Tracked<Guard<P, Upgradable>> {
    /// Undoes an upgrade that was forgotten before the guard was adopted.
    fn undo_forgotten(&mut self) {
        if !self.guard.mode().upgrading.is_no() {
            // The record may understate the hold for a moment, but never overstates it.
            self.record.set_access(Access::Upgradable);
            self.guard.fall_back();
        }
    }

    /// Retypes the guard, whose hold the word already counts as exclusive.
    fn upgraded(self) -> Tracked<Guard<P, Exclusive>> {
        let Tracked { record, guard } = self;
        Tracked { record, guard: guard.into_mode() }
    }
}

impl<P: TablePtr> Future for TrackedUpgrade<P>
where
    P::Key: fmt::Debug,
{
    type Output = Upgraded<P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_as(Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr> Wait for &mut TrackedUpgrade<P>
where
    P::Key: fmt::Debug,
{
    type Output = Upgraded<P>;

    fn contention(&mut self) -> Contention {
        self.tracked.as_mut().expect(FINISHED).guard.upgrade_contention()
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        TrackedUpgrade::attempt(self)
    }

    /// Always polls as a sleeping thread, as every tracked request that blocks does.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        let presence = Presence::SleepingThread;
        self.poll_as(Waiter { presence, ..waiter })
    }
}

impl<P: TablePtr> fmt::Debug for TrackedUpgrade<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedUpgrade")
            .field("party", &self.record.member.name)
            .field("done", &self.tracked.is_none())
            .finish_non_exhaustive()
    }
}
