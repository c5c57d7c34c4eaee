//! The request for a latch that all forms make: a future polls it, a blocking call polls it with its own waker, and a
//! timed call drops it at its limit.

#[cfg(target_has_atomic = "ptr")]
use alloc::string::String;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::guard::LatchGuard;
#[cfg(target_has_atomic = "ptr")]
use super::guard::describe;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, Blocked, Entered, LatchWord, Presence, Ticket, Waiter, WakeBatch, Want};
#[cfg(target_has_atomic = "ptr")]
use crate::core::{Identity, Place};
use crate::fairness::Fairness;
use crate::mode::Mode;

/// A request for a latch. Dropping it gives up its claim, its place in the queue, and a hold that it was granted.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Request<'a, M: Mode> {
    /// The latch; `None` after the hold has been acquired.
    word: Option<&'a LatchWord>,
    fairness: Fairness,
    mode: M,
    /// Whether the word counts a claim of this request, as it does once the request has asked the queue.
    is_claimed: bool,
    ticket: Ticket,
}

impl<'a, M: Mode> Request<'a, M> {
    #[inline]
    pub(super) fn new(word: &'a LatchWord, fairness: Fairness, mode: M) -> Self {
        Request { word: Some(word), fairness, mode, is_claimed: false, ticket: Ticket::NONE }
    }

    /// Makes the request pass all waiters: see [`Ticket::RECURSIVE`].
    #[inline]
    pub(super) fn recursive(mut self) -> Self {
        self.ticket = Ticket::RECURSIVE;
        self
    }

    pub(crate) fn want(&self) -> Want {
        Want::Hold(self.mode.access())
    }

    /// Acquires the latch if it is free for this request. The request must have no claim.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<LatchGuard<'a, M>, Blocked> {
        let word = self.word.ok_or(Blocked::Held)?;
        word.hold(self.mode.access())?;
        self.word = None;
        Ok(LatchGuard::new(word, self.fairness, self.mode))
    }

    /// Tries once, without joining the queue.
    pub(crate) fn attempt(&mut self) -> Option<LatchGuard<'a, M>> {
        if !self.is_claimed {
            match self.enter() {
                Ok(guard) => return Some(guard),
                Err(Blocked::Held) => return None,
                Err(Blocked::Queued) => {}
            }
        }
        let word = self.claimed()?;
        let entered = word.try_enter(self.want(), self.ticket, self.fairness)?;
        self.acquired(entered)
    }

    /// Makes the word count a claim of this request, and returns the word.
    fn claimed(&mut self) -> Option<&'a LatchWord> {
        let word = self.word?;
        if !self.is_claimed {
            word.claim();
            self.is_claimed = true;
        }
        Some(word)
    }

    /// Makes the guard of the hold that the claim has become.
    fn acquired(&mut self, _: Entered) -> Option<LatchGuard<'a, M>> {
        self.is_claimed = false;
        self.ticket = Ticket::NONE;
        self.word.take().map(|word| {
            word.leave_claim();
            LatchGuard::new(word, self.fairness, self.mode)
        })
    }

    /// Polls the request.
    ///
    /// # Panics
    /// If the hold has been acquired already.
    #[inline]
    pub(crate) fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
        if !self.is_claimed {
            if let Ok(guard) = self.enter() {
                return Poll::Ready(guard);
            }
        }
        self.poll_slowly(waiter)
    }

    #[inline(never)]
    fn poll_slowly(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
        let mut batch = WakeBatch::default();
        assert!(self.claimed().is_some(), "keylatch: a lock future was polled after it had finished");
        let guard = self.poll_into(waiter, &mut batch);
        // If the wakers in the batch panic, the guard exists, and is dropped while unwinding.
        drop(batch);
        guard.map_or(Poll::Pending, Poll::Ready)
    }

    /// Acquires or queues, and adds the wakers that must be called to `batch`. The request must have a claim.
    #[inline(always)]
    pub(crate) fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<LatchGuard<'a, M>> {
        let entered = self.word?.poll(self.want(), self.fairness, &mut self.ticket, waiter, batch)?;
        self.acquired(entered)
    }

    /// Returns whether the request might acquire without queueing, or must queue.
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    pub(crate) fn contention(&self) -> Contention {
        self.word.map_or(Contention::MustQueue, |word| word.contention(self.want(), self.fairness))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.word.is_none()
    }

    /// Takes the request apart, without giving it up. The request must not have finished, and its policy must be
    /// `Adaptive`.
    #[cfg(target_has_atomic = "ptr")] // for owned futures
    pub(super) fn pause(self) -> Pending<M> {
        let Request { mode, is_claimed, ticket, .. } = self;
        core::mem::forget(self);
        Pending { mode, is_claimed, ticket }
    }
}

/// A request for a latch between two polls, without the reference to the latch. Dropping it gives up nothing.
#[cfg(target_has_atomic = "ptr")]
#[derive(Clone, Copy)]
pub(super) struct Pending<M> {
    mode: M,
    is_claimed: bool,
    ticket: Ticket,
}

#[cfg(target_has_atomic = "ptr")]
impl<M: Mode> Pending<M> {
    /// Makes this a request again. `word` must be that of the latch for which the request was made.
    pub(super) fn resume(self, word: &LatchWord) -> Request<'_, M> {
        let Pending { mode, is_claimed, ticket } = self;
        Request { word: Some(word), fairness: Fairness::Adaptive, mode, is_claimed, ticket }
    }
}

/// For requests that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<'a, M: Mode> Request<'a, M> {
    fn word(&self) -> &'a LatchWord {
        self.word.expect("a request has its latch until it has finished")
    }

    /// Makes the word count a claim of this request.
    ///
    /// # Panics
    /// If the latch has [`MAX_USERS`](crate::MAX_USERS) holders and waiters already.
    pub(crate) fn claim(&mut self) {
        self.claimed();
    }

    pub(crate) fn identity(&self) -> Identity {
        self.word().identity()
    }

    pub(crate) fn describe(&self) -> String {
        describe(self.word())
    }

    /// Acquires the latch if it is free for this request and has no queue, unless the request already has a claim.
    #[inline]
    pub(crate) fn enter_fresh(&mut self) -> Option<LatchGuard<'a, M>> {
        if self.is_claimed { None } else { self.enter().ok() }
    }

    /// Returns whether the request is in the queue, or has been granted its hold there.
    pub(crate) fn is_queued(&self) -> bool {
        self.ticket.is_some()
    }

    pub(crate) fn place(&self) -> Place {
        self.word().place(self.ticket, self.fairness)
    }

    /// Gives up only the position in the queue. Returns the guard if the hold had already been granted.
    pub(crate) fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<LatchGuard<'a, M>> {
        let ticket = core::mem::replace(&mut self.ticket, Ticket::NONE);
        let entered = self.word().leave_queue(ticket, self.fairness, batch)?;
        self.acquired(entered)
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<'a, M: Mode> Wait for Request<'a, M> {
    type Output = LatchGuard<'a, M>;

    fn contention(&mut self) -> Contention {
        Request::contention(self)
    }

    fn attempt(&mut self) -> Option<LatchGuard<'a, M>> {
        Request::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
        Request::poll(self, waiter)
    }
}

impl<M: Mode> Request<'_, M> {
    /// Gives up the place in the queue, or the granted hold, and adds the wakers that must be called to `batch`.
    pub(super) fn give_up_into(&mut self, batch: &mut WakeBatch) {
        if let Some(word) = self.word.take().filter(|_| self.is_claimed) {
            word.cancel(self.mode.access(), self.ticket, self.fairness, batch);
        }
    }
}

/// Gives up a request. Takes its fields by value, so that the request can stay in registers.
#[cold]
#[inline(never)]
fn give_up(word: &LatchWord, access: Access, ticket: Ticket, fairness: Fairness) {
    word.cancel(access, ticket, fairness, &mut WakeBatch::default());
}

impl<M: Mode> Drop for Request<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.is_claimed {
            if let Some(word) = self.word {
                give_up(word, self.mode.access(), self.ticket, self.fairness);
            }
        }
    }
}

/// The future of [`Latch::read`](crate::Latch::read), [`Striped::write`](crate::Striped::write) and the other async
/// calls of a latch, or of a single stripe, that do not return owned guards. Its output is the guard.
///
/// # Cancel safety
/// The future can be dropped at any moment: the latch is then as if the request had never been made, and a hold that it
/// was already granted passes to the next waiter. It joins the queue only at its first poll.
///
/// # Panics
/// The future panics if it is polled after it has finished.
///
/// # Examples
/// ```
/// use keylatch::Latch;
///
/// # futures_lite::future::block_on(async {
/// let latch = Latch::new();
/// let reader = latch.read();
/// assert!(!latch.is_locked()); // nothing has happened yet
/// let reader = reader.await;
/// assert!(latch.is_locked());
/// # drop(reader);
/// # });
/// ```
#[must_use = "futures do nothing unless they are polled or awaited"]
pub struct LatchAcquire<'a, M: Mode> {
    request: Request<'a, M>,
}

impl<'a, M: Mode> LatchAcquire<'a, M> {
    #[inline]
    pub(super) fn new(request: Request<'a, M>) -> Self {
        LatchAcquire { request }
    }

    #[cfg(target_has_atomic = "ptr")] // for tracked requests and owned futures
    pub(crate) fn into_request(self) -> Request<'a, M> {
        self.request
    }

    /// Waits for the latch until `limit` is ready. Any future may be the limit, such as a timer of any runtime or a
    /// cancellation token. If both are ready, the result is `Ok`.
    ///
    /// # Errors
    /// Returns the output of `limit`.
    ///
    /// # Cancel safety
    /// The future can be dropped at any moment, like [`LatchAcquire`] itself.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylatch::Latch;
    ///
    /// # smol::block_on(async {
    /// let latch = Latch::new();
    /// let _writer = latch.write().await;
    /// let reader = latch.read().until(smol::Timer::after(Duration::from_millis(1))).await;
    /// assert!(reader.is_err());
    /// # });
    /// ```
    #[doc(alias = "timeout")]
    #[must_use = "bind it: `let result = …`; the guard may be in it (`let _ = …` releases it at once)"]
    pub async fn until<F: Future>(mut self, limit: F) -> Result<LatchGuard<'a, M>, F::Output> {
        let outcome = race(&mut self, limit).await;
        // The request is dropped before the outcome is returned: see `race`.
        drop(self);
        outcome
    }
}

impl<'a, M: Mode> Future for LatchAcquire<'a, M> {
    type Output = LatchGuard<'a, M>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.request.poll(Waiter { presence: Presence::Task, waker: cx.waker() })
    }
}

impl<M: Mode> fmt::Debug for LatchAcquire<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchAcquire")
            .field("mode", &self.request.mode.access())
            .field("done", &self.request.is_done())
            .finish_non_exhaustive()
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
#[inline]
pub(super) fn block_on<'a, M: Mode>(mut request: Request<'a, M>) -> LatchGuard<'a, M> {
    match request.enter() {
        Ok(guard) => guard,
        Err(_) => block(request, None).expect("a wait without a deadline ends with the hold"),
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(super) fn block_for<'a, M: Mode>(mut request: Request<'a, M>, timeout: Duration) -> Option<LatchGuard<'a, M>> {
    request.enter().map_or_else(|_| block(request, deadline_after(timeout)), Some)
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
pub(super) fn block_until<'a, M: Mode>(mut request: Request<'a, M>, deadline: Instant) -> Option<LatchGuard<'a, M>> {
    request.enter().map_or_else(|_| block(request, Some(deadline)), Some)
}
