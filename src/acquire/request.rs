//! An operation on one key, before the manner of waiting is chosen, and the request that waits.
//!
//! Every public form makes a [`Call`] and calls one of its methods. In all forms a [`Request`] waits: a future polls
//! it, a blocking call polls it with its own waker, and a timed call drops it at its limit.

use core::task::Poll;

#[cfg(all(feature = "std", not(target_family = "wasm")))]
use crate::core::Contention;
use crate::core::{Access, ClaimIn, Ending, Entered, Presence, ReleaseFor, Source, Ticket, Waiter, WakeBatch, Want};
#[cfg(target_has_atomic = "ptr")]
use crate::core::{Identity, Live, Place};
use crate::guard::{Guard, Released};
use crate::mode::Mode;
use crate::panics::Panics;
use crate::plumbing::{ClaimOf, CoreOf, EndingOf, PayloadOf, TablePtr};
use crate::wait_event::{WaitId, WaitPhase};

/// An operation that acquires a hold of mode `M` on the key that `source` leads to.
pub(crate) struct Call<P, S, M> {
    pub(super) table: P,
    pub(super) source: S,
    pub(super) mode: M,
    /// Whether the request passes all waiters.
    is_recursive: bool,
}

impl<P, S, M: Mode> Call<P, S, M> {
    #[inline]
    pub(crate) fn new(table: P, source: S, mode: M) -> Self {
        Call { table, source, mode, is_recursive: false }
    }

    /// Makes the operation pass all waiters: see [`Ticket::RECURSIVE`].
    #[inline]
    pub(crate) fn recursive(self) -> Self {
        Call { is_recursive: true, ..self }
    }
}

impl<P: TablePtr, S: Source<P::Key, PayloadOf<P>>, M: Mode> Call<P, S, M> {
    /// Claims the entry, and returns a request that has not been polled.
    #[inline]
    pub(super) fn request(mut self) -> Request<P, M> {
        let claim = self.table.core().claim(&mut self.source);
        self.waiting(claim)
    }

    /// Returns the request of this operation, with `claim` as its claim on the entry.
    #[inline]
    pub(super) fn waiting(self, claim: ClaimOf<P>) -> Request<P, M> {
        let mut request = Request::new(self.table, claim, self.mode);
        if self.is_recursive {
            request.ticket = Ticket::RECURSIVE;
        }
        request
    }

    /// Acquires the key, if that is possible without waiting.
    #[inline]
    pub(crate) fn attempt(mut self) -> Option<Guard<P, M>> {
        match self.table.core().try_hold(&mut self.source, self.mode) {
            Ok(hold) => Some(Guard::new(self.table, hold)),
            Err(None) => None,
            Err(Some(claim)) => self.ask_queue(claim),
        }
    }

    /// Asks the queue: there are waiters, so the policy decides.
    #[inline(never)]
    fn ask_queue(self, claim: ClaimOf<P>) -> Option<Guard<P, M>> {
        self.waiting(claim).attempt()
    }
}

/// A request for a hold: a claim, and while it waits a position in the queue. Dropping the request gives up both, and a
/// hold that it was granted in the queue.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, missing_debug_implementations)] // not visible outside the crate
pub struct Request<P: TablePtr, M: Mode> {
    /// `None` after the hold has been acquired.
    claim: Option<(P, ClaimIn<P>)>,
    ticket: Ticket,
    /// The id of the wait, after its start has been reported to the table's observer.
    told: Option<WaitId>,
    mode: M,
}

impl<P: TablePtr, M: Mode> Request<P, M> {
    #[inline]
    pub(crate) fn new(table: P, claim: ClaimOf<P>, mode: M) -> Self {
        Request { claim: Some((table, ClaimIn::new(claim))), ticket: Ticket::NONE, told: None, mode }
    }

    /// Sets the priority with which the request will queue.
    ///
    /// # Panics
    /// If the request has been polled.
    #[inline]
    #[track_caller]
    pub(super) fn set_priority(&mut self, priority: u8) {
        // The first poll either finishes or queues.
        assert!(
            self.claim.is_some() && !self.is_queued(),
            "keylatch: `priority` was called on a lock future that has been polled; call it right after the call that \
             made the future, because the first poll takes the place in the queue"
        );
        // A recursive reader passes all waiters anyway.
        if self.ticket != Ticket::RECURSIVE {
            self.ticket = Ticket::with_priority(priority);
        }
    }

    #[inline]
    pub(crate) fn want(&self) -> Want {
        Want::Hold(self.mode.access())
    }

    /// Polls the request.
    ///
    /// # Panics
    /// If the hold has been acquired already.
    #[inline]
    pub(crate) fn poll(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref().expect("keylatch: a lock future was polled after it had finished");
        if !self.ticket.is_some() {
            if let Some(entered) = table.core().enter(claim.live(), self.want()) {
                return Poll::Ready(self.acquired(entered));
            }
        }
        self.poll_slowly(waiter)
    }

    #[inline(never)]
    fn poll_slowly(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        if self.is_observed() {
            return self.poll_observed(waiter);
        }
        let mut batch = WakeBatch::default();
        let Some(guard) = self.poll_into(waiter, &mut batch) else { return Poll::Pending };
        // If the wakers in the batch panic, the guard exists, and is dropped while unwinding.
        drop(batch);
        Poll::Ready(guard)
    }

    /// Polls the request, and reports to the observer.
    #[cold]
    #[inline(never)]
    fn poll_observed(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        if waiter.presence == Presence::SpinningThread && !self.ticket.is_some() {
            // The observer may be slow, so the thread queues as sleeping: a hold handed to a spinning thread must be
            // taken at once.
            if let Poll::Ready(guard) = self.poll_observed(Waiter { presence: Presence::SleepingThread, ..waiter }) {
                return Poll::Ready(guard);
            }
        }
        let mut batch = WakeBatch::default();
        let guard = self.poll_into(waiter, &mut batch);
        let mut panics = Panics::default();
        panics.run(|| drop(batch));
        if let Some(phase) = self.news(guard.is_some()) {
            panics.run(|| self.tell(guard.as_ref(), phase));
        }
        panics.resume();
        guard.map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the event to report after a call of [`poll_into`](Self::poll_into), if there is one: the start or the
    /// end of a wait.
    #[inline]
    pub(crate) fn news(&self, got: bool) -> Option<WaitPhase> {
        match (got, self.told, &self.claim) {
            (true, Some(_), _) => Some(WaitPhase::Granted),
            (false, None, Some(_)) if self.ticket.is_some() && self.is_observed() => Some(WaitPhase::Started),
            _ => None,
        }
    }

    fn is_observed(&self) -> bool {
        self.claim.as_ref().is_some_and(|(table, _)| table.core().is_observed())
    }

    /// Reports the event to the observer. The caller holds no lock, and has woken the admitted waiters.
    pub(crate) fn tell(&mut self, got: Option<&Guard<P, M>>, phase: WaitPhase) {
        let want = self.want();
        if let Some(guard) = got {
            if let Some(id) = self.told.take() {
                guard.core().tell(guard.live(), want, phase, id);
            }
        } else if let Some((table, claim)) = &self.claim {
            // The id is stored before the observer is called, because the observer may panic.
            self.told = table.core().next_wait();
            if let Some(id) = self.told {
                table.core().tell(claim.live(), want, phase, id);
            }
        }
    }

    /// Acquires or queues, and adds the wakers that must be called to `batch`.
    #[inline(always)]
    pub(crate) fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        let want = self.want();
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().poll(claim.live(), want, &mut self.ticket, waiter, batch)?;
        Some(self.acquired(entered))
    }

    /// Tries once, without joining the queue.
    pub(crate) fn attempt(&mut self) -> Option<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().try_enter(claim.live(), self.want(), self.ticket)?;
        Some(self.acquired(entered))
    }

    /// Acquires the key if it is free for this request and has no queue. The request must not be in the queue.
    #[cfg(target_has_atomic = "ptr")] // for tracked requests
    #[inline]
    pub(crate) fn enter(&mut self) -> Option<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().enter(claim.live(), self.want())?;
        Some(self.acquired(entered))
    }

    /// Returns whether the request might acquire without queueing.
    #[cfg(all(feature = "std", not(target_family = "wasm")))]
    pub(crate) fn contention(&self) -> Contention {
        self.claim
            .as_ref()
            .map_or(Contention::MustQueue, |(table, claim)| table.core().contention(claim.live(), self.want()))
    }

    #[inline(always)]
    fn take_claim(&mut self) -> Option<(P, ClaimOf<P>)> {
        self.claim.take().map(|(table, claim)| (table, claim.into_claim()))
    }

    /// Makes the guard of the hold that the claim has become.
    #[inline]
    fn acquired(&mut self, entered: Entered) -> Guard<P, M> {
        let (table, claim) = self.take_claim().expect("a request is acquired once");
        Guard::new(table, claim.into_hold(entered, self.mode))
    }

    /// Takes the report of the wait's end, if its start has been reported. The caller, which is about to drop the
    /// request, sends the report last.
    pub(super) fn take_ending<'a>(&mut self, core: &'a CoreOf<P>) -> Option<EndingOf<'a, P>> {
        let (id, claim) = (self.told.take()?, &self.claim.as_ref()?.1);
        core.ending(claim.live(), self.want(), id)
    }

    #[inline(never)]
    fn give_up(&mut self) {
        if self.told.is_some() {
            return self.give_up_observed();
        }
        if let Some((table, claim)) = self.take_claim() {
            table.core().cancel(claim, self.mode, self.ticket);
        }
    }

    /// Gives up a wait whose start has been reported to the observer.
    #[cold]
    #[inline(never)]
    fn give_up_observed(&mut self) {
        let Some(table) = self.claim.as_ref().map(|(table, _)| table.clone()) else { return };
        let (mut ending, mut panics) = (None, Panics::default());
        panics.run(|| ending = self.take_ending(table.core()));
        panics.run(|| self.give_up());
        panics.run(|| ending.map_or((), Ending::tell));
        panics.resume();
    }

    /// Gives up the request, or the hold that it was granted, together with the other holds of its call: see
    /// [`Released`].
    pub(super) fn give_up_into(mut self, released: &mut Released<P>) {
        let Some((table, claim)) = self.take_claim() else { return };
        let left = match table.core().leave_queue(claim.live(), self.ticket, released.batch()) {
            // The reservation passes to the next waiter, not to the first newcomer.
            Some(entered) => {
                let hold = claim.into_hold(entered, self.mode);
                table.core().unlock(hold, ReleaseFor::NextWaiter, released.batch(), &mut Panics::default())
            }
            None => Some(claim),
        };
        if let Some(claim) = left {
            released.withdraw(&table, claim);
        }
    }

    /// Returns the claim of a request that has not been polled.
    pub(super) fn into_claim(mut self) -> (P, (ClaimOf<P>, M)) {
        debug_assert!(!self.ticket.is_some());
        let (table, claim) = self.take_claim().expect("a request is acquired once");
        (table, (claim, self.mode))
    }

    pub(super) fn access(&self) -> Access {
        self.mode.access()
    }

    /// Returns whether the request is in the queue, or has been granted its hold there.
    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that block
    pub(crate) fn is_queued(&self) -> bool {
        self.ticket.is_some()
    }

    /// Returns whether the hold has been acquired.
    pub(crate) fn is_done(&self) -> bool {
        self.claim.is_none()
    }
}

/// For requests that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<P: TablePtr, M: Mode> Request<P, M> {
    fn live(&self) -> Live<'_, P::Key, PayloadOf<P>> {
        self.claim.as_ref().expect("a request has its claim until it has finished").1.live()
    }

    fn core(&self) -> &CoreOf<P> {
        self.claim.as_ref().expect("a request has its claim until it has finished").0.core()
    }

    pub(crate) fn key(&self) -> &P::Key {
        self.live().key()
    }

    /// Returns the table; `None` if the hold has been acquired.
    pub(crate) fn table(&self) -> Option<&P> {
        self.claim.as_ref().map(|(table, _)| table)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.core().identity(self.live())
    }

    pub(crate) fn place(&self) -> Place {
        self.core().place(self.live(), self.ticket)
    }

    /// Reports the end of a failed request's wait, if its start was reported to the observer. A hold that the request
    /// was granted in the meantime is passed on first.
    pub(crate) fn tell_of_failure(&mut self, granted: &mut Option<Guard<P, M>>) {
        let (want, Some(id)) = (self.want(), self.told.take()) else { return };
        let Some(guard) = granted.take() else {
            return self.core().tell(self.live(), want, WaitPhase::GivenUp, id);
        };
        let table = guard.table().clone();
        let (mut ending, mut panics) = (None, Panics::default());
        panics.run(|| ending = table.core().ending(guard.live(), want, id));
        panics.run(|| guard.pass_on());
        panics.run(|| ending.map_or((), Ending::tell));
        panics.resume();
    }

    /// Gives up only the position in the queue. Returns the guard if the hold had already been granted.
    pub(crate) fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        let ticket = core::mem::replace(&mut self.ticket, Ticket::NONE);
        let entered = self.core().leave_queue(self.live(), ticket, batch)?;
        Some(self.acquired(entered))
    }
}

impl<P: TablePtr, M: Mode> Drop for Request<P, M> {
    #[inline]
    fn drop(&mut self) {
        if self.claim.is_some() {
            self.give_up();
        }
    }
}
