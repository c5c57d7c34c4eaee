//! A request for a latch, whichever form it has: a future polls it, a blocking call polls it with a waker of its own, a timed call
//! drops it.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use std::time::{Duration, Instant};

use super::guard::LatchGuard;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::acquire::blocking::{Wait, block, deadline_after};
use crate::acquire::future::race;
#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, Entered, Kept, LatchWord, Presence, Ticket, Waiter, WakeBatch, Want};
use crate::fairness::Fairness;
use crate::mode::Mode;

/// Dropped, it leaves nothing behind.
pub(super) struct Request<'a, M: Mode> {
    /// `None` when the hold has been acquired.
    word: Option<&'a LatchWord>,
    fairness: Fairness,
    mode: M,
    /// Whether the word counts a claim of it: since it was in vain for the first time.
    is_claimed: bool,
    ticket: Ticket,
}

impl<'a, M: Mode> Request<'a, M> {
    #[inline]
    pub(super) fn new(word: &'a LatchWord, fairness: Fairness, mode: M) -> Self {
        Request { word: Some(word), fairness, mode, is_claimed: false, ticket: Ticket::NONE }
    }

    fn want(&self) -> Want {
        Want::Hold(self.mode.access())
    }

    /// Acquires, if nobody is in the way. Not for a request that has a claim.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<LatchGuard<'a, M>, Kept> {
        let word = self.word.ok_or(Kept::Out)?;
        word.hold(self.mode.access())?;
        self.word = None;
        Ok(LatchGuard::new(word, self.fairness, self.mode))
    }

    /// Tries once, without a position in the queue.
    pub(super) fn attempt(&mut self) -> Option<LatchGuard<'a, M>> {
        if !self.is_claimed {
            match self.enter() {
                Ok(guard) => return Some(guard),
                Err(Kept::Out) => return None,
                Err(Kept::Waiting) => {}
            }
        }
        let word = self.claimed()?;
        let entered = word.try_enter(self.want(), self.fairness)?;
        self.acquired(entered)
    }

    /// The word, which counts a claim of this from now on.
    fn claimed(&mut self) -> Option<&'a LatchWord> {
        let word = self.word?;
        if !self.is_claimed {
            word.claim();
            self.is_claimed = true;
        }
        Some(word)
    }

    /// There is a hold now, and a claim no more.
    fn acquired(&mut self, _: Entered) -> Option<LatchGuard<'a, M>> {
        self.is_claimed = false;
        self.ticket = Ticket::NONE;
        self.word.take().map(|word| {
            word.leave_claim();
            LatchGuard::new(word, self.fairness, self.mode)
        })
    }

    /// # Panics
    /// If the hold has been acquired already.
    #[inline]
    pub(super) fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
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
        let word = self.claimed().expect("keylatch: a lock future was polled after it had finished");
        let entered = word.poll(self.want(), self.fairness, &mut self.ticket, waiter, &mut batch);
        let guard = entered.and_then(|entered| self.acquired(entered));
        // If the wakers in the batch panic, the guard is there, and is dropped on the way out.
        drop(batch);
        guard.map_or(Poll::Pending, Poll::Ready)
    }

    pub(super) fn is_done(&self) -> bool {
        self.word.is_none()
    }
}

#[cfg(all(feature = "std", not(target_family = "wasm")))]
impl<'a, M: Mode> Wait for Request<'a, M> {
    type Output = LatchGuard<'a, M>;

    fn contention(&mut self) -> Contention {
        self.word.map_or(Contention::MustQueue, |word| word.contention(self.want(), self.fairness))
    }

    fn attempt(&mut self) -> Option<LatchGuard<'a, M>> {
        Request::attempt(self)
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<LatchGuard<'a, M>> {
        Request::poll(self, waiter)
    }
}

impl<M: Mode> Request<'_, M> {
    /// Gives up what it waits for, and what has been passed to it. Whoever is to be woken is left in the batch.
    pub(super) fn give_up_into(&mut self, batch: &mut WakeBatch) {
        if let Some(word) = self.word.take().filter(|_| self.is_claimed) {
            word.cancel(self.mode.access(), self.ticket, self.fairness, batch);
        }
    }
}

/// By value: what a request is made of may then stay in registers.
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

/// Acquires a latch, or a stripe: the future of [`Latch::read`](crate::Latch::read), [`Striped::write`](crate::Striped::write) and
/// the like. Its output is the guard.
///
/// # Cancel safety
/// It may be dropped at any moment: it then leaves the latch as if it had never asked, and what had been passed to it already
/// goes to the next that waits. Before it is polled for the first time it has no place in the queue.
///
/// # Panics
/// When it is polled after it has finished.
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

    /// Gives up when `limit` is ready before it: a timer of any runtime, a cancellation token. If both are ready, it is `Ok`.
    ///
    /// # Errors
    /// The output of `limit`.
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
        // Not later: see `race`.
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
