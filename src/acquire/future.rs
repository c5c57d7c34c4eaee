//! The async forms.

use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};

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
    /// The future can be dropped at any moment, as [`Acquire`] itself.
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
        // Dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

/// Returns the output of the future, or the limit's output if only the limit is ready.
pub(crate) async fn race<T, F: Future>(
    future: &mut (impl Future<Output = T> + Unpin),
    limit: F,
) -> Result<T, F::Output> {
    // A result that has already been moved to the caller's place is leaked if a later drop panics. So the limit, and
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
