//! Tracked requests for holds.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::Party;
use super::holder::Origin;
use super::record::{HoldGuard, Member};
use super::report::{Deadlock, Refused};
use super::step;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Presence, Waiter};

pub(super) const FINISHED: &str = "keylatch: a lock future was polled after it had finished";

/// A lock future that a party can [acquire](Party::acquire). Sealed.
///
/// | future | made by | output |
/// |---|---|---|
/// | [`Acquire`](crate::futures::Acquire) | `lock`, `read`, `upgradable_read`, `write`, `acquire`, `acquire_n` and `read_recursive` of a table or a handle, and their owned forms, with a [priority](crate::futures::Acquire::priority) or without | [`Tracked`](super::Tracked) guard |
/// | [`AcquireMany`](crate::futures::AcquireMany) | `lock_many` and the other `_many` calls of a table | [`TrackedMany`](super::TrackedMany) guards; for `read_write_many` a pair of them |
/// | [`LatchAcquire`](crate::futures::LatchAcquire) | `read`, `upgradable_read`, `write` and `read_recursive` of a [`Latch`](crate::Latch) or a [`Striped`](crate::Striped), but not the owned forms | [`Tracked`](super::Tracked) guard |
/// | [`LatchAcquireMany`](crate::futures::LatchAcquireMany) | the `_many` calls of a [`Striped`](crate::Striped) | [`TrackedMany`](super::TrackedMany) guards; for `read_write_many` a pair of them |
///
/// The keys must be `Debug`. A latch has no key: reports show its address.
///
/// A request for several keys acquires them one after another, and its holds count as those of its party. If it
/// would complete a cycle, it fails, and keeps none of its keys.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, Latch, deadlock::Detector};
///
/// # futures_lite::future::block_on(async {
/// let (accounts, config, detector) = (KeyedMutex::<String>::new(), Latch::new(), Detector::new());
/// let transfer = detector.party("transfer");
/// let reader = transfer.acquire(config.read()).await.unwrap();
/// let both = transfer.acquire(accounts.lock_many(["savings", "cash"])).await.unwrap();
/// assert!(transfer.acquire(accounts.lock("cash")).await.unwrap_err().is_reentry());
/// # drop((reader, both));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a party cannot acquire anything with a `{Self}`",
    note = "pass a lock future of this crate, as in `party.acquire(locks.lock(key))`; its keys must be `Debug`"
)]
pub trait Trackable: sealed::Track<Output = <Self as Trackable>::Tracked> {
    /// The output of the tracked request.
    type Tracked;
}

/// The methods of the sealed trait. Other crates can neither name nor implement it.
pub(crate) mod sealed {
    use super::{Arc, Member, Origin, Waits};

    #[allow(unreachable_pub)] // the supertrait of a public trait
    pub trait Track: Sized {
        type Output;
        type Waiting: Waits<Tracked = Self::Output>;

        /// Makes a trackable request of the party. Returns `None` if the future has finished.
        fn track(self, member: Arc<Member>, origin: Origin) -> Option<Self::Waiting>;
    }
}

/// A request of a party, for one key or for several. The functions that may finish the request take an `Option`, which
/// is `None` when the request has finished.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, private_interfaces)]
pub trait Waits: Sized + Unpin {
    type Tracked;

    /// Acquires the keys, if all are free for this request.
    fn enter(waits: &mut Option<Self>) -> Option<Self::Tracked>;

    /// Tries without beginning to wait.
    fn try_once(waits: &mut Option<Self>) -> Option<Self::Tracked>;

    /// Acquires or queues.
    fn poll(waits: &mut Option<Self>, waiter: Waiter<'_>) -> Poll<Result<Self::Tracked, Deadlock>>;

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&mut self) -> Contention;

    /// Returns whether the request has begun to wait.
    fn is_waiting(&self) -> bool;

    fn party(&self) -> &Member;

    /// Labels the holds: those that have been acquired, and those that will be.
    fn label(&mut self, label: Cow<'static, str>);
}

/// A trackable request for one hold.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, private_interfaces)]
pub trait HoldRequest: step::Request<Got: HoldGuard> + Unpin {
    /// Returns whether the request is in the queue, or has been granted its hold there.
    fn is_queued(&self) -> bool;

    /// Acquires the key if it is free for this request and has no queue. The request must not be in the queue.
    fn enter(&mut self) -> Option<Self::Got>;

    /// Tries once, without joining the queue.
    fn attempt(&mut self) -> Option<Self::Got>;

    /// Acquires or queues, without tracking.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Got>;

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention(&self) -> Contention;

    #[inline]
    fn enter_unless_queued(&mut self) -> Option<Self::Got> {
        if self.is_queued() { None } else { self.enter() }
    }

    /// Tries once, without joining the queue; or takes the hold that it has been granted there.
    fn try_once(&mut self) -> Option<Self::Got> {
        if !self.is_queued() {
            return self.attempt();
        }
        // A future that had queued before it was tracked may have been granted its hold. If not, a later poll brings
        // a waker.
        match self.poll(Waiter { presence: Presence::Task, waker: Waker::noop() }) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    fn contention_if_queued(&self) -> Contention {
        if self.is_queued() { Contention::MustQueue } else { self.contention() }
    }
}

impl Party {
    /// Acquires a key with a lock future of any table, unless that would complete a cycle of waits. Returns a future
    /// that does not borrow the party.
    ///
    /// The futures of several keys (`lock_many`) and those of a [`Latch`](crate::Latch) and a
    /// [`Striped`](crate::Striped) work, too: see [`Trackable`]. [`until`](TrackedRequest::until) limits the wait.
    ///
    /// # Errors
    /// The future's output is a [`Deadlock`] if the request would wait for its own party, directly or through others,
    /// or if another request of the party acquired a key and so completed a cycle. The party keeps its holds.
    ///
    /// # Panics
    /// If `future` has already finished. The returned future panics if the key's `Debug` panics. It runs `Debug` when
    /// it begins to wait and, if the detector [names its holders](super::DetectorBuilder::name_holders), when it
    /// acquires a key. After such a panic the future holds nothing, and does not wait.
    ///
    /// # Cancel safety
    /// The returned future can be dropped at any moment, like `future` itself.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// # futures_lite::future::block_on(async {
    /// let (locks, detector) = (KeyedMutex::<String>::new(), Detector::new());
    /// let import = detector.party("import");
    /// let a = import.acquire(locks.lock("a")).await.unwrap();
    /// let b = import.acquire(locks.lock("b")).await.unwrap();
    /// assert!(import.acquire(locks.lock("a")).await.unwrap_err().is_reentry());
    /// # drop((a, b));
    /// # });
    /// ```
    #[track_caller]
    #[inline]
    pub fn acquire<F: Trackable>(&self, future: F) -> TrackedAcquire<F> {
        let waiting = future.track(Arc::clone(&self.member), Origin::here());
        assert!(waiting.is_some(), "keylatch: a lock future that has already finished cannot be tracked");
        TrackedRequest { waiting }
    }

    /// Acquires a key with a lock future of any table, if that is possible without waiting. Returns `None` otherwise.
    ///
    /// Pass the async form, which this call polls at most once: `party.try_acquire(locks.lock("a"))`. A request that
    /// does not wait cannot complete a cycle, so this call does not fail with a [`Deadlock`]. But another request of
    /// the party, which waits, may fail if this one acquires a key and so completes a cycle.
    ///
    /// # Panics
    /// If `future` has already finished, or if the key's `Debug` panics. (It runs only if the detector [names its
    /// holders](super::DetectorBuilder::name_holders).) A key that was acquired is then released.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let party = detector.party("import");
    /// let guard = party.try_acquire(locks.lock(&7)).unwrap();
    /// assert!(party.try_acquire(locks.lock(&7)).is_none());
    /// # drop(guard);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    #[track_caller]
    pub fn try_acquire<F: Trackable>(&self, future: F) -> Option<F::Tracked> {
        self.acquire(future).try_once()
    }
}

/// Blocking and timed calls.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl Party {
    /// Acquires a key with a lock future of any table, unless that would complete a cycle of waits, and blocks the
    /// thread while it waits.
    ///
    /// Pass the async form, which this call polls: `party.acquire_blocking(locks.lock("a"))`.
    ///
    /// # Errors
    /// See [`acquire`](Party::acquire).
    ///
    /// # Panics
    /// See [`acquire`](Party::acquire).
    ///
    /// # Blocking
    /// Blocks like the blocking form of the operation.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedSemaphore, deadlock::Detector};
    ///
    /// let (hosts, detector) = (KeyedSemaphore::<String>::new(1), Detector::new());
    /// let crawler = detector.party("crawler");
    /// let permit = crawler.acquire_blocking(hosts.acquire("example.org")).unwrap();
    /// assert!(crawler.acquire_blocking(hosts.acquire("example.org")).is_err());
    /// # drop(permit);
    /// ```
    #[track_caller]
    #[inline]
    pub fn acquire_blocking<F: Trackable>(&self, future: F) -> Result<F::Tracked, Deadlock> {
        let mut acquire = self.acquire(future);
        match acquire.enter() {
            Some(tracked) => Ok(tracked),
            None => block(&mut acquire, None).expect("a wait without a deadline ends"),
        }
    }

    /// Acquires a key with a lock future of any table, unless that would complete a cycle of waits, and blocks the
    /// thread for at most `timeout`. Returns `Ok(None)` after the timeout.
    ///
    /// It tries at least once. With a timeout of zero it does not begin to wait, and so cannot complete a cycle by
    /// waiting. Otherwise it counts as a waiting request, and may fail, or make another request fail, even if its
    /// timeout was about to end.
    ///
    /// # Errors
    /// See [`acquire`](Party::acquire).
    ///
    /// # Panics
    /// See [`acquire`](Party::acquire).
    ///
    /// # Blocking
    /// Blocks like the blocking form of the operation, for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let held = locks.lock_blocking(&7);
    /// let party = detector.party("import");
    /// assert!(party.try_acquire_for(locks.lock(&7), Duration::from_millis(1)).unwrap().is_none());
    /// # drop(held);
    /// ```
    #[track_caller]
    pub fn try_acquire_for<F: Trackable>(&self, future: F, timeout: Duration) -> Result<Option<F::Tracked>, Deadlock> {
        block(&mut self.acquire(future), deadline_after(timeout)).transpose()
    }

    /// Acquires a key with a lock future of any table, unless that would complete a cycle of waits, and blocks the
    /// thread until `deadline` at the latest. Returns `Ok(None)` after the deadline.
    ///
    /// It tries at least once, even with a deadline in the past. While it waits it counts as a waiting request, like
    /// [`try_acquire_for`](Party::try_acquire_for).
    ///
    /// # Errors
    /// See [`acquire`](Party::acquire).
    ///
    /// # Panics
    /// See [`acquire`](Party::acquire).
    ///
    /// # Blocking
    /// Blocks like the blocking form of the operation, until `deadline` at the latest.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let held = locks.lock_blocking(&7);
    /// let party = detector.party("import");
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert!(party.try_acquire_until(locks.lock(&7), deadline).unwrap().is_none());
    /// # drop(held);
    /// ```
    #[track_caller]
    pub fn try_acquire_until<F: Trackable>(
        &self,
        future: F,
        deadline: Instant,
    ) -> Result<Option<F::Tracked>, Deadlock> {
        block(&mut self.acquire(future), Some(deadline)).transpose()
    }
}

/// The future that [`Party::acquire`] makes from a future of type `F`.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, deadlock::{Detector, TrackedAcquire}, futures::Lock};
///
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let request: TrackedAcquire<Lock<'_, u64>> = detector.party("import").acquire(locks.lock(&7));
/// # drop(request);
/// ```
pub type TrackedAcquire<F> = TrackedRequest<<F as sealed::Track>::Waiting>;

/// A request of a party, as a future: see [`Party::acquire`]. Write its type as [`TrackedAcquire`].
///
/// It is generic over the request, not over the future from which the request was made, so that it is covariant where
/// the request is.
///
/// # Cancel safety
/// The future can be dropped at any moment, like the future that it was made from.
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// See [`Party::acquire`].
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct TrackedRequest<W> {
    /// `None` once the request has finished.
    waiting: Option<W>,
}

impl<W: Waits> TrackedRequest<W> {
    #[inline]
    fn enter(&mut self) -> Option<W::Tracked> {
        W::enter(&mut self.waiting)
    }

    fn try_once(&mut self) -> Option<W::Tracked> {
        W::try_once(&mut self.waiting)
    }

    #[inline]
    fn poll_as(&mut self, waiter: Waiter<'_>) -> Poll<Result<W::Tracked, Deadlock>> {
        match self.enter() {
            Some(tracked) => Poll::Ready(Ok(tracked)),
            None => W::poll(&mut self.waiting, waiter),
        }
    }

    /// Labels the hold, for a detector that [names its holders](super::DetectorBuilder::name_holders): the label is in
    /// its reports, beside the party's name. Other detectors ignore it.
    ///
    /// # Panics
    /// If the future has finished.
    ///
    /// # Examples
    /// See [`Holder`](super::Holder).
    #[must_use = "futures do nothing unless they are polled or awaited"]
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.waiting.as_mut().expect(FINISHED).label(label.into());
        self
    }

    /// Waits for the key until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// The key is tried first. If that fails and the limit has already been reached, the request does not begin to
    /// wait. Otherwise it counts as a waiting request until the limit is reached.
    ///
    /// # Errors
    /// Returns [`Refused::Deadlock`] if the request fails with a [`Deadlock`], and [`Refused::Limit`], with the output
    /// of `limit`, if the limit is reached first.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`TrackedRequest`] itself.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::{Detector, Refused}};
    ///
    /// # futures_lite::future::block_on(async {
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let party = detector.party("import");
    /// let held = party.acquire(locks.lock(&7)).await.unwrap();
    /// let never = std::future::pending::<()>();
    /// let refused = party.acquire(locks.lock(&7)).until(never).await.unwrap_err();
    /// assert!(matches!(refused, Refused::Deadlock(deadlock) if deadlock.is_reentry()));
    /// # drop(held);
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard may be in it (`let _ = …` releases it at once)"]
    pub async fn until<L: Future>(mut self, limit: L) -> Result<W::Tracked, Refused<L::Output>> {
        let outcome;
        {
            let mut limit = pin!(limit);
            // A request that already waits may have been granted its key, so it is polled first.
            let begins = !self.waiting.as_ref().is_some_and(W::is_waiting);
            if let Some(tracked) = if begins { self.try_once() } else { None } {
                outcome = Ok(tracked);
            } else if let Some(expired) = if begins { poll_once(limit.as_mut()).await } else { None } {
                // The limit's poll may have been slow, or may have released this lock.
                outcome = self.try_once().ok_or(Refused::Limit(expired));
            } else {
                outcome = match race(&mut self, limit).await {
                    Ok(result) => result.map_err(Refused::Deadlock),
                    Err(expired) => Err(Refused::Limit(expired)),
                };
            }
        }
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

/// Polls a future once. Returns its output; `None` if it is pending.
pub(super) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    core::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

impl<W: Waits> Future for TrackedRequest<W> {
    type Output = Result<W::Tracked, Deadlock>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_as(Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<W: Waits> Wait for &mut TrackedRequest<W> {
    type Output = Result<W::Tracked, Deadlock>;

    fn contention(&mut self) -> Contention {
        self.waiting.as_mut().expect(FINISHED).contention()
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        TrackedRequest::try_once(self).map(Ok)
    }

    /// Always polls as a sleeping thread: a spinning thread may be handed a key past other waiters, and then no search
    /// could be sure of a cycle.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        let presence = Presence::SleepingThread;
        self.poll_as(Waiter { presence, ..waiter })
    }
}

impl<W: Waits> fmt::Debug for TrackedRequest<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedRequest")
            .field("party", &self.waiting.as_ref().map(|waiting| &waiting.party().name))
            .field("done", &self.waiting.is_none())
            .finish_non_exhaustive()
    }
}
