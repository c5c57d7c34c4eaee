//! Tracked requests for holds, and tracked guards.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::Duration;

use super::report::{Deadlock, Refused};
use super::step::{self, Step};
use super::{Party, Record};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::{Acquire, race};
use crate::acquire::request::Request;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Identity, Place, Presence, TypedAccess, Waiter, WakeBatch, Want};
use crate::guard::Guard;
use crate::mode::{HandOver, Mode, Permit};
use crate::plumbing::TablePtr;

const FINISHED: &str = "keylatch: a lock future was polled after it had finished";

impl Party {
    /// Acquires a key by a lock future of any table, unless that would close a circle of waits. Returns a future that
    /// does not borrow the party.
    ///
    /// [`until`](TrackedAcquire::until) limits the wait.
    ///
    /// # Errors
    /// The future's output is a [`Deadlock`] if the request would wait for its own party, directly or through others,
    /// or if another request of the party acquired a key and so closed a circle. The party keeps its holds.
    ///
    /// # Panics
    /// If `future` has already finished. The returned future panics if the key's `Debug` does, which runs when it
    /// begins to wait; then the request has been given up.
    ///
    /// # Cancel safety
    /// The returned future can be dropped at any moment, as `future` itself.
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
    pub fn acquire<P: TablePtr, M: Mode>(&self, future: Acquire<P, M>) -> TrackedAcquire<P, M>
    where
        P::Key: fmt::Debug,
    {
        let request = future.into_request();
        assert!(!request.is_done(), "keylatch: a lock future that has already finished cannot be tracked");
        let record = Record::none(Arc::clone(&self.member));
        TrackedAcquire { waiting: Some(Waiting { record, request }) }
    }
}

/// Blocking and timed calls.
#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[cfg_attr(docsrs, doc(cfg(feature = "std")))]
impl Party {
    /// Acquires a key by a lock future of any table, unless that would close a circle of waits, and blocks the thread
    /// while it waits.
    ///
    /// Pass the async form, which this call polls: `party.acquire_blocking(locks.lock("a"))`.
    ///
    /// # Errors
    /// As [`acquire`](Party::acquire).
    ///
    /// # Panics
    /// As [`acquire`](Party::acquire).
    ///
    /// # Blocking
    /// As the blocking form of the operation.
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
    pub fn acquire_blocking<P: TablePtr, M: Mode>(
        &self,
        future: Acquire<P, M>,
    ) -> Result<Tracked<Guard<P, M>>, Deadlock>
    where
        P::Key: fmt::Debug,
    {
        let mut acquire = self.acquire(future);
        match acquire.enter() {
            Some(tracked) => Ok(tracked),
            None => block(&mut acquire, None).expect("a wait without a deadline ends"),
        }
    }

    /// Acquires a key by a lock future of any table, unless that would close a circle of waits, and blocks the thread
    /// for at most `timeout`. Returns `Ok(None)` after the timeout.
    ///
    /// It tries at least once. If no time is left after that, it does not begin to wait, and so cannot close a circle.
    /// Otherwise it counts as a waiting request, and may fail, or make another request fail, even if its timeout was
    /// about to end.
    ///
    /// # Errors
    /// As [`acquire`](Party::acquire).
    ///
    /// # Panics
    /// As [`acquire`](Party::acquire).
    ///
    /// # Blocking
    /// As the blocking form of the operation, for at most `timeout`.
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
    pub fn try_acquire_for<P: TablePtr, M: Mode>(
        &self,
        future: Acquire<P, M>,
        timeout: Duration,
    ) -> Result<Option<Tracked<Guard<P, M>>>, Deadlock>
    where
        P::Key: fmt::Debug,
    {
        block(&mut self.acquire(future), deadline_after(timeout)).transpose()
    }
}

/// A guard whose hold a [detector](super::Detector) tracks.
///
/// It dereferences to the guard. Dropping it releases the hold. The guards that its methods convert it to are tracked,
/// too.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, MutexGuard, deadlock::{Detector, Tracked}};
///
/// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
/// let party = detector.party("import");
/// let guard: Tracked<MutexGuard<'_, u64>> = party.acquire_blocking(locks.lock(&7)).unwrap();
/// assert_eq!(guard.key(), &7);
/// ```
#[must_use = "the key, or the permit, is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Tracked<G> {
    // Dropped first: a hold without a record is treated as one that is about to be released, which is true here.
    pub(super) record: Record,
    pub(super) guard: G,
}

impl<G> Tracked<G> {
    /// Returns the guard, which is no longer tracked: the detector does not find a circle through its hold.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// let guard = detector.party("import").acquire_blocking(locks.lock(&7)).unwrap();
    /// let guard = guard.into_inner();
    /// # drop(guard);
    /// ```
    #[must_use = "bind it: `let _guard = …` (`let _ = …` releases it at once)"]
    pub fn into_inner(self) -> G {
        self.guard
    }
}

impl<G> core::ops::Deref for Tracked<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for Tracked<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked").field("party", &self.record.member.name).field("guard", &self.guard).finish()
    }
}

/// The future of [`Party::acquire`].
///
/// # Cancel safety
/// The future can be dropped at any moment, as the future that it was made of.
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// See [`Party::acquire`].
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct TrackedAcquire<P: TablePtr, M: Mode> {
    /// `None` when it has finished.
    waiting: Option<Waiting<P, M>>,
}

struct Waiting<P: TablePtr, M: Mode> {
    // Dropped first, because dropping the request may leave the queue.
    record: Record,
    request: Request<P, M>,
}

impl<P: TablePtr, M: Mode> step::Request for Request<P, M>
where
    P::Key: fmt::Debug,
{
    type Got = Guard<P, M>;

    fn want(&self) -> Want {
        Request::want(self)
    }

    fn identity(&self) -> Identity {
        Request::identity(self)
    }

    fn describe(&self) -> (String, &'static str) {
        (format!("{:?}", self.key()), core::any::type_name::<P::Table>())
    }

    fn continues(&self) -> Option<u32> {
        None
    }

    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        Request::poll_into(self, waiter, batch)
    }

    fn observe(&mut self, step: &mut Step<Guard<P, M>>) {
        match step {
            Step::Waits => self.news(false).map_or((), |phase| self.tell(None, phase)),
            Step::Got(guard) => self.news(true).map_or((), |phase| self.tell(Some(guard), phase)),
            Step::Failed(_, granted) => self.tell_of_failure(granted),
        }
    }

    fn place(&mut self) -> Place {
        Request::place(self)
    }

    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        Request::leave_queue(self, batch)
    }
}

impl<P: TablePtr, M: Mode> TrackedAcquire<P, M>
where
    P::Key: fmt::Debug,
{
    /// Tries once, without beginning to wait.
    #[inline]
    fn attempt(
        &mut self,
        enter: impl FnOnce(&mut Request<P, M>) -> Option<Guard<P, M>>,
    ) -> Option<Tracked<Guard<P, M>>> {
        let Waiting { request, .. } = self.waiting.as_mut().expect(FINISHED);
        let guard = enter(request)?;
        let Waiting { mut record, .. } = self.waiting.take()?;
        record.holds(guard.identity(), guard.mode().access());
        Some(Tracked { record, guard })
    }

    /// Acquires the key if it is free for this request.
    #[inline]
    fn enter(&mut self) -> Option<Tracked<Guard<P, M>>> {
        self.attempt(|request| if request.is_queued() { None } else { request.enter() })
    }

    /// Tries without beginning to wait.
    fn try_once(&mut self) -> Option<Tracked<Guard<P, M>>> {
        if self.waiting.as_ref().expect(FINISHED).record.is_some() {
            return None;
        }
        // A future that had queued before it was tracked may have been granted its hold. A later poll brings a waker.
        let waiter = Waiter { presence: Presence::Task, waker: Waker::noop() };
        self.attempt(|request| match request.is_queued() {
            true => match request.poll(waiter) {
                Poll::Ready(guard) => Some(guard),
                Poll::Pending => None,
            },
            false => request.attempt(),
        })
    }

    #[inline]
    fn poll_as(&mut self, waiter: Waiter<'_>) -> Poll<Result<Tracked<Guard<P, M>>, Deadlock>> {
        match self.enter() {
            Some(tracked) => Poll::Ready(Ok(tracked)),
            None => self.poll_slowly(waiter),
        }
    }

    #[inline(never)]
    fn poll_slowly(&mut self, waiter: Waiter<'_>) -> Poll<Result<Tracked<Guard<P, M>>, Deadlock>> {
        let Waiting { record, request } = self.waiting.as_mut().expect(FINISHED);
        let step = record.step(request, waiter);
        if let Step::Waits = step {
            return Poll::Pending;
        }
        let Waiting { record, .. } = self.waiting.take().expect(FINISHED);
        Poll::Ready(match step {
            Step::Got(guard) => Ok(Tracked { record, guard }),
            Step::Failed(deadlock, granted) => {
                granted.into_iter().for_each(Guard::pass_on);
                Err(deadlock)
            }
            Step::Waits => return Poll::Pending,
        })
    }

    /// Waits for the key until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// The key is tried first. If that fails and the limit has already been reached, the request does not begin to
    /// wait. Otherwise it counts as a waiting request until the limit is reached.
    ///
    /// # Errors
    /// Returns [`Refused::Deadlock`] where the future itself fails, and [`Refused::Limit`] with the output of `limit`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, as [`TrackedAcquire`] itself.
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
    pub async fn until<F: Future>(mut self, limit: F) -> Result<Tracked<Guard<P, M>>, Refused<F::Output>> {
        let outcome;
        {
            let mut limit = pin!(limit);
            if let Some(tracked) = self.try_once() {
                outcome = Ok(tracked);
            } else if let Poll::Ready(expired) = poll_once(limit.as_mut()).await {
                // The limit's poll may have been slow, or may have released this lock.
                outcome = self.try_once().ok_or(Refused::Limit(expired));
            } else {
                outcome = match race(&mut self, limit).await {
                    Ok(result) => result.map_err(Refused::Deadlock),
                    Err(expired) => Err(Refused::Limit(expired)),
                };
            }
        }
        // Dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

/// The result of one poll of a future.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    core::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

impl<P: TablePtr, M: Mode> Future for TrackedAcquire<P, M>
where
    P::Key: fmt::Debug,
{
    type Output = Result<Tracked<Guard<P, M>>, Deadlock>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_as(Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr, M: Mode> Wait for &mut TrackedAcquire<P, M>
where
    P::Key: fmt::Debug,
{
    type Output = Result<Tracked<Guard<P, M>>, Deadlock>;

    fn contention(&mut self) -> Contention {
        let Waiting { request, .. } = self.waiting.as_ref().expect(FINISHED);
        if request.is_queued() { Contention::MustQueue } else { request.contention() }
    }

    fn attempt(&mut self) -> Option<Self::Output> {
        TrackedAcquire::try_once(self).map(Ok)
    }

    /// Polls always as a sleeping thread: a spinning thread may be handed a key past other waiters, and then no search
    /// could be sure of a circle.
    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output> {
        let presence = Presence::SleepingThread;
        self.poll_as(Waiter { presence, ..waiter })
    }
}

impl<P: TablePtr, M: Mode> fmt::Debug for TrackedAcquire<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedAcquire")
            .field("party", &self.waiting.as_ref().map(|waiting| &waiting.record.member.name))
            .field("done", &self.waiting.is_none())
            .finish_non_exhaustive()
    }
}

impl<P: TablePtr, M: HandOver> Tracked<Guard<P, M>> {
    /// Hands the key over to the waiter that the policy admits next, as [`Guard::unlock_fair`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedMutex, deadlock::Detector};
    ///
    /// let (locks, detector) = (KeyedMutex::<u64>::new(), Detector::new());
    /// detector.party("import").acquire_blocking(locks.lock(&7)).unwrap().unlock_fair();
    /// assert!(!locks.is_locked(&7));
    /// ```
    pub fn unlock_fair(self) {
        self.into_inner().unlock_fair();
    }
}

/// Methods for permits.
impl<P: TablePtr> Tracked<Guard<P, Permit>> {
    /// Moves `n` of the permits into a tracked guard of their own, as [`Guard::split`] does.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedSemaphore, deadlock::Detector};
    ///
    /// let (hosts, detector) = (KeyedSemaphore::<u64>::new(3), Detector::new());
    /// let mut three = detector.party("crawler").acquire_blocking(hosts.acquire_n(&7, 3)).unwrap();
    /// let one = three.split(1).unwrap();
    /// assert_eq!((one.permits(), three.permits()), (1, 2));
    /// ```
    #[must_use = "the permits are released at once unless they are kept"]
    pub fn split(&mut self, n: usize) -> Option<Self> {
        let part = self.guard.split(n)?;
        self.record.set_access(self.guard.mode().access());
        let record = Record::of_hold(Arc::clone(&self.record.member), part.identity(), part.mode().access());
        Some(Tracked { record, guard: part })
    }

    /// Adds the permits of `other` to this guard, as [`Guard::merge`] does.
    ///
    /// # Panics
    /// If `other` is of another party, another table or another key. Its permits are released then.
    ///
    /// # Examples
    /// ```
    /// use keylatch::{KeyedSemaphore, deadlock::Detector};
    ///
    /// let (hosts, detector) = (KeyedSemaphore::<u64>::new(3), Detector::new());
    /// let party = detector.party("crawler");
    /// let mut permits = party.acquire_blocking(hosts.acquire(&7)).unwrap();
    /// permits.merge(party.acquire_blocking(hosts.acquire_n(&7, 2)).unwrap());
    /// assert_eq!(permits.permits(), 3);
    /// ```
    #[track_caller]
    pub fn merge(&mut self, other: Self) {
        let (own, its) = (&self.record.member, &other.record.member);
        assert!(
            Arc::ptr_eq(own, its),
            "keylatch: permits of the party {:?} cannot be merged with those of another party, {:?}",
            own.name,
            its.name
        );
        self.guard.merge(other.into_inner());
        self.record.set_access(self.guard.mode().access());
    }
}
