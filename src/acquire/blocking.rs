//! The forms that block a thread: the same requests as the async ones, polled with a waker that unparks the thread.

use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::park::CachedParker;
use super::request::{Call, Request};
use crate::core::{Contention, Presence, Source, Waiter};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::TablePtr;
use crate::sync::SpinWait;

impl<P: TablePtr, S: Source<P::Key, P::Payload>, M: Mode> Call<P, S, M> {
    /// Returns a guard if that is possible without waiting, or else a request that has not been polled.
    #[inline]
    fn enter(mut self) -> Result<Guard<P, M>, Request<P, M>> {
        match self.table.core().hold_or_claim(&mut self.source, self.mode) {
            Ok(hold) => Ok(Guard::new(self.table, hold)),
            Err(claim) => Err(self.waiting(claim)),
        }
    }

    #[inline]
    pub(crate) fn blocking(self) -> Guard<P, M> {
        match self.enter() {
            Ok(guard) => guard,
            Err(request) => block(request, None).expect("a wait without a deadline ends with the hold"),
        }
    }

    pub(crate) fn deadline(self, deadline: Instant) -> Option<Guard<P, M>> {
        self.enter().map_or_else(|request| block(request, Some(deadline)), Some)
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Option<Guard<P, M>> {
        self.enter().map_or_else(|request| block(request, deadline_after(timeout)), Some)
    }
}

/// Returns the deadline; `None` (no limit) for a timeout that is too long for the clock.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Something that a thread can wait for, such as a request or an upgrade.
pub(crate) trait Wait {
    type Output;

    fn contention(&mut self) -> Contention;

    /// Tries once, without joining the queue.
    fn attempt(&mut self) -> Option<Self::Output>;

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Self::Output>;
}

impl<P: TablePtr, M: Mode> Wait for Request<P, M> {
    type Output = Guard<P, M>;

    fn contention(&mut self) -> Contention {
        if self.is_queued() { Contention::MustQueue } else { Request::contention(self) }
    }

    fn attempt(&mut self) -> Option<Guard<P, M>> {
        if !self.is_queued() && !self.is_done() {
            return Request::attempt(self);
        }
        // The request comes from a future that had been polled before this wait began. If the future has finished, this
        // poll panics.
        match self.poll(Waiter { presence: Presence::SleepingThread, waker: Waker::noop() }) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        Request::poll(self, waiter)
    }
}

/// Blocks the thread until `wait` is done. Returns `None` if the deadline was reached first.
#[inline(never)]
pub(crate) fn block<W: Wait>(mut wait: W, deadline: Option<Instant>) -> Option<W::Output> {
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return wait.attempt();
    }
    // The thread spins before it queues, unless the policy admits only queued requests.
    let mut spin = SpinWait::new();
    loop {
        match wait.contention() {
            Contention::MustQueue => break,
            Contention::Free => {
                if let Some(output) = wait.attempt() {
                    return Some(output);
                }
            }
            Contention::Held => {}
        }
        if !spin.spin() {
            break;
        }
    }
    let parking = CachedParker::take();
    let mut poll = |presence| match wait.poll(Waiter { presence, waker: &parking.waker }) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    };
    loop {
        if let Some(output) = poll(Presence::SpinningThread) {
            return Some(output);
        }
        if !parking.parker.watch() {
            // A hold must not be handed to a thread that has stopped spinning.
            if let Some(output) = poll(Presence::SleepingThread) {
                return Some(output);
            }
            parking.parker.park(deadline);
        }
        // The deadline is checked however the sleep ended: a spurious wake-up must not extend it.
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // The hold may just have been handed over.
            return poll(Presence::SleepingThread);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// A wait that only a poll in the queue can end, and the function that the poll calls.
    struct Queued<F>(F);

    impl<F: FnMut(Waiter<'_>) -> Poll<()>> Wait for Queued<F> {
        type Output = ();

        fn contention(&mut self) -> Contention {
            Contention::MustQueue
        }

        fn attempt(&mut self) -> Option<()> {
            None
        }

        fn poll(&mut self, waiter: Waiter<'_>) -> Poll<()> {
            (self.0)(waiter)
        }
    }

    #[test]
    fn a_thread_reports_before_it_sleeps_and_spins_again_when_it_is_woken() {
        let mut polled = Vec::new();
        // The second poll wakes the thread, and the third admits it.
        let wait = Queued(|waiter: Waiter<'_>| {
            polled.push(waiter.presence);
            match polled.len() {
                1 => return Poll::Pending,
                2 => waiter.waker.wake_by_ref(),
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        });
        // If a thread does not report that it sleeps, it is never woken in this test.
        let deadline = Instant::now() + Duration::from_secs(1);
        assert_eq!(block(wait, Some(deadline)), Some(()));
        assert_eq!(polled, [Presence::SpinningThread, Presence::SleepingThread, Presence::SpinningThread]);
    }

    // Here two polls can be late: the last attempt, and one that began before the deadline but read the clock only
    // afterwards. A third would not be wrong: a spinning thread that has not been woken also polls to report that it
    // has stopped.
    #[test]
    fn a_thread_that_is_woken_again_and_again_gives_up_at_its_deadline() {
        let deadline = Instant::now() + Duration::from_millis(5);
        let mut polls_too_late = 0;
        let wait = Queued(|waiter: Waiter<'_>| {
            polls_too_late += u32::from(Instant::now() >= deadline);
            assert!(polls_too_late <= 3, "the thread still polls after its deadline");
            waiter.waker.wake_by_ref();
            Poll::Pending
        });
        assert!(block(wait, Some(deadline)).is_none());
        assert!(Instant::now() >= deadline);
    }
}
