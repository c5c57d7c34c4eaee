//! The async forms.

use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use super::blocking::{block, deadline_after};
use super::request::{Call, Request};
use crate::core::{Presence, Source, Waiter};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::TablePtr;

/// A future that acquires a key and yields its guard.
///
/// `P` and `M` are the parameters of the [`Guard`]. Use the aliases in [`futures`](crate::futures), such as
/// [`Lock`](crate::futures::Lock).
///
/// Until its first poll the future is not a waiter and has no position in the queue; it only keeps its entry in the
/// table. From its first poll on it keeps its position in the queue, however often and with whatever wakers it is
/// polled.
///
/// # Cancel safety
/// The future can be dropped at any moment: the table is then as if the request had never been made. If the key had
/// already been handed to the future, the key passes to the next waiter.
///
/// A future that is kept, and not polled, is not cancelled: see [idle futures](crate#idle-futures).
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// ```
/// use keylatch::{KeyedMutex, futures::Lock};
///
/// let locks = KeyedMutex::<u64>::new();
/// let lock: Lock<'_, u64> = locks.lock(&7);
/// let guard = futures_lite::future::block_on(lock);
/// # drop(guard);
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct Acquire<P: TablePtr, M: Mode> {
    request: Request<P, M>,
}

impl<P: TablePtr, S: Source<P::Key, P::Payload>, M: Mode> Call<P, S, M> {
    #[inline]
    pub(crate) fn future(self) -> Acquire<P, M> {
        Acquire::of(self.request())
    }
}

impl<P: TablePtr, M: Mode> Acquire<P, M> {
    #[inline]
    pub(crate) fn of(request: Request<P, M>) -> Self {
        Acquire { request }
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    pub(crate) fn into_request(self) -> Request<P, M> {
        self.request
    }

    /// Sets the priority of the request; 0 is the lowest, and the default. Among the requests that wait for a key, the
    /// one with the highest priority goes first; those with the same priority go in order of arrival. Holders are not
    /// interrupted.
    ///
    /// Nothing changes for a table in which no request has a priority. A priority makes no future larger, and allocates
    /// nothing. The call that queues searches for its place under the queue's lock: that takes time proportional to the
    /// number of waiters before that place, or behind it, whichever is smaller.
    ///
    /// # No starvation
    /// A waiting request rises: each time 16 requests with a priority have come after it, it ranks one level higher
    /// than before, relative to all later requests. So a waiting request of priority *p* is passed by at most 16 × (*q*
    /// − *p*) requests of priority *q*, and by at most 16 × (255 − *p*) requests altogether. Choose numbers close
    /// together to mix two kinds of requests, and numbers far apart if requests with the lower number should rarely get
    /// a turn while there are others. The bounds count requests; no clock is involved.
    ///
    /// # What a priority changes, and what it does not
    /// A priority only determines a place in the queue. The policy still decides what the first request in the queue
    /// gets:
    ///
    /// | | with priorities |
    /// |---|---|
    /// | [`Fifo`](crate::Fairness::Fifo) | strictly in the order of the queue: nothing passes the first |
    /// | [`Bounded(n)`](crate::Fairness::Bounded) | at most `n` later requests pass the first, as long as it is the first; those that pass it by their priority are counted as above, and each has its own `n` |
    /// | [`Adaptive`](crate::Fairness::Adaptive) | the first is woken, and newcomers may pass it until it runs, whatever their priority, within the same bounds as without priorities |
    /// | [`Barging`](crate::Fairness::Barging) | the first is woken; nothing else is promised |
    /// | a newcomer that finds the key free | gets in if its priority makes it the first, under every policy; else as the policy says |
    /// | spinning threads | are handed the key past the first only if their priority is not lower than its own |
    /// | waiters that were woken four times without getting the key | are handed the key past the first, whatever their priority |
    /// | readers and writers | a writer keeps out the readers behind it in the queue; a reader whose place is before the first writer gets in beside other readers |
    /// | a readers' phase, when a writer leaves | lets in the readers whose priority is not lower than that of the first waiting writer, and those before it in the queue |
    /// | several permits | the first in the queue keeps out those behind it while there are too few permits for it, as without priorities |
    /// | [`upgrade`](crate::Guard::upgrade) | goes before all waiting requests, and has no priority |
    /// | [`unlock_fair`](crate::Guard::unlock_fair) | hands over to the first |
    /// | a holder, a request that was already handed the key | keeps it: a later request of higher priority waits |
    ///
    /// To block a thread, use [`wait`](Self::wait), [`wait_for`](Self::wait_for) or [`wait_until`](Self::wait_until) in
    /// place of `lock_blocking`, `try_lock_for` and `try_lock_until`. The calls for several keys have no priority: they
    /// wait for one key after another and hold the others meanwhile, so a place in one queue would say little about the
    /// whole call. [Latches](crate::Latch) have no priorities either.
    ///
    /// A [deadlock detector](crate::deadlock) takes the order into account. But it searches when a tracked request
    /// begins to wait: a cycle that is completed later, by an *untracked* request that passes a tracked one, is found
    /// only when a party of the cycle makes another request.
    ///
    /// # Panics
    /// If the future has been polled: the first poll takes the place in the queue.
    ///
    /// # Examples
    /// ```
    /// use futures_lite::future::{block_on, poll_once};
    /// use keylatch::KeyedMutex;
    ///
    /// let locks = KeyedMutex::<u64>::new();
    /// let held = locks.try_lock(&7).unwrap();
    /// let (mut nightly, mut user) = (locks.lock(&7), locks.lock(&7).priority(9));
    /// block_on(async {
    ///     assert!(poll_once(&mut nightly).await.is_none()); // waits
    ///     assert!(poll_once(&mut user).await.is_none()); // waits, before the nightly job
    ///     held.unlock_fair();
    ///     let user = user.await;
    ///     assert!(poll_once(&mut nightly).await.is_none());
    ///     drop(user);
    ///     nightly.await;
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn priority(mut self, priority: u8) -> Self {
        self.request.set_priority(priority);
        self
    }

    /// Waits for the key until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token.
    ///
    /// Each poll tries the lock first, and once more when the limit is ready: if both are ready, the result is the
    /// guard. So the lock is tried at least once, even if the limit has already been reached. For an optional limit,
    /// use a future that is never ready as "none" (such as [`core::future::pending`], or your timer's equivalent).
    ///
    /// # Errors
    /// Returns the output of `limit` if it was ready and the key could not be acquired.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`Acquire`] itself.
    ///
    /// # Examples
    /// ```
    /// use smol::Timer;
    /// use std::time::Duration;
    ///
    /// smol::block_on(async {
    ///     let locks = keylatch::KeyedMutex::<String>::new();
    ///     let held = locks.lock("a").await;
    ///     assert!(locks.lock("a").until(Timer::after(Duration::from_millis(1))).await.is_err());
    ///     drop(held);
    ///     assert!(locks.lock("a").until(Timer::after(Duration::from_millis(1))).await.is_ok());
    /// })
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard may be in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<Guard<P, M>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

/// The blocking forms of a request that was made as a future, such as one with a [priority](Acquire::priority).
#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<P: TablePtr, M: Mode> Acquire<P, M> {
    /// Waits for the key, as `lock_blocking` does.
    ///
    /// # Blocking
    /// Blocks the thread until the key is acquired. In a task, await the future instead.
    ///
    /// # Panics
    /// If the future has finished.
    ///
    /// # Examples
    /// ```
    /// let locks = keylatch::KeyedRwLock::<String>::new();
    /// let reader = locks.read("a").priority(3).wait();
    /// assert_eq!(reader.key(), "a");
    /// ```
    pub fn wait(self) -> Guard<P, M> {
        block(self.request, None).expect("a wait without a deadline ends with the hold")
    }

    /// Waits for the key for at most `timeout`, as `try_lock_for` does. Returns `None` if the key could not be acquired
    /// in time. Tries at least once.
    ///
    /// # Blocking
    /// Blocks the thread until the key is acquired or the time is up. In a task, use [`until`](Self::until) with a
    /// timer.
    ///
    /// # Panics
    /// If the future has finished.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let jobs = keylatch::KeyedSemaphore::<u64>::new(2);
    /// let two = jobs.acquire_n(&7, 2).priority(1).wait_for(Duration::from_millis(1));
    /// assert!(two.is_some());
    /// assert!(jobs.acquire(&7).priority(9).wait_for(Duration::from_millis(1)).is_none());
    /// ```
    pub fn wait_for(self, timeout: Duration) -> Option<Guard<P, M>> {
        block(self.request, deadline_after(timeout))
    }

    /// Waits for the key until `deadline`, as `try_lock_until` does. Returns `None` if the key could not be acquired in
    /// time. Tries at least once.
    ///
    /// # Blocking
    /// Blocks the thread until the key is acquired or the deadline is reached. In a task, use [`until`](Self::until)
    /// with a timer.
    ///
    /// # Panics
    /// If the future has finished.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let locks = keylatch::KeyedMutex::<u64>::new();
    /// let guard = locks.lock(&7).priority(9).wait_until(Instant::now());
    /// assert!(guard.is_some());
    /// ```
    pub fn wait_until(self, deadline: Instant) -> Option<Guard<P, M>> {
        block(self.request, Some(deadline))
    }
}

/// Returns the output of the future, or the limit's output if only the limit is ready.
pub(crate) async fn race<T, F: Future>(
    future: &mut (impl Future<Output = T> + Unpin),
    limit: F,
) -> Result<T, F::Output> {
    // If a drop panics after the result has been moved to the caller's place, the result is leaked. So the limit, and
    // its output, are dropped while the outcome is in a local variable.
    let outcome;
    {
        let mut limit = pin!(limit);
        outcome = core::future::poll_fn(|cx| {
            if let Poll::Ready(output) = Pin::new(&mut *future).poll(cx) {
                return Poll::Ready(Ok(output));
            }
            let Poll::Ready(expired) = limit.as_mut().poll(cx) else { return Poll::Pending };
            // The limit's poll may have been slow, or may have released this lock: try once more before giving up.
            match Pin::new(&mut *future).poll(cx) {
                Poll::Ready(output) => {
                    drop(expired);
                    Poll::Ready(Ok(output))
                }
                Poll::Pending => Poll::Ready(Err(expired)),
            }
        })
        .await;
    }
    outcome
}

impl<P: TablePtr, M: Mode> Future for Acquire<P, M> {
    type Output = Guard<P, M>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.request.poll(Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

impl<P: TablePtr, M: Mode> fmt::Debug for Acquire<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("mode", &self.request.access())
            .field("done", &self.request.is_done())
            .finish_non_exhaustive()
    }
}
