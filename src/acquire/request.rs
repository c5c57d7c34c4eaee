//! One operation on one key, before it is decided how to wait for it; and the request that waits.
//!
//! Every public form is a [`Call`] and one of its methods. What waits is a [`Request`], whichever form it has: a future
//! polls it, a blocking call polls it with a waker of its own, a timed call drops it.

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

/// An operation: acquire a hold of mode `M` on the key that `source` leads to.
pub(crate) struct Call<P, S, M> {
    pub(super) table: P,
    pub(super) source: S,
    pub(super) mode: M,
}

impl<P, S, M: Mode> Call<P, S, M> {
    #[inline]
    pub(crate) fn new(table: P, source: S, mode: M) -> Self {
        Call { table, source, mode }
    }
}

impl<P: TablePtr, S: Source<P::Key, PayloadOf<P>>, M: Mode> Call<P, S, M> {
    /// A claim, and a request that has not been polled.
    #[inline]
    pub(super) fn request(mut self) -> Request<P, M> {
        let claim = self.table.core().claim(&mut self.source);
        Request::new(self.table, claim, self.mode)
    }

    /// A hold if that is possible at once.
    #[inline]
    pub(crate) fn attempt(mut self) -> Option<Guard<P, M>> {
        match self.table.core().try_hold(&mut self.source, self.mode) {
            Ok(hold) => Some(Guard::new(self.table, hold)),
            Err(None) => None,
            Err(Some(claim)) => Self::ask_queue(self.table, claim, self.mode),
        }
    }

    /// Others wait: the policy decides.
    #[inline(never)]
    fn ask_queue(table: P, claim: ClaimOf<P>, mode: M) -> Option<Guard<P, M>> {
        Request::new(table, claim, mode).attempt()
    }
}

/// A request for a hold: a claim, and a position in the queue once it waits. Dropping it gives up both.
pub(crate) struct Request<P: TablePtr, M: Mode> {
    /// `None` when the hold has been acquired.
    claim: Option<(P, ClaimIn<P>)>,
    ticket: Ticket,
    /// While the table's observer knows that it waits.
    told: Option<WaitId>,
    mode: M,
}

impl<P: TablePtr, M: Mode> Request<P, M> {
    #[inline]
    pub(crate) fn new(table: P, claim: ClaimOf<P>, mode: M) -> Self {
        Request { claim: Some((table, ClaimIn::new(claim))), ticket: Ticket::NONE, told: None, mode }
    }

    #[inline]
    pub(crate) fn want(&self) -> Want {
        Want::Hold(self.mode.access())
    }

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
        // If the wakers in the batch panic, the guard is there, and is dropped on the way out.
        drop(batch);
        Poll::Ready(guard)
    }

    /// The same, and tells the observer.
    #[cold]
    #[inline(never)]
    fn poll_observed(&mut self, waiter: Waiter<'_>) -> Poll<Guard<P, M>> {
        if waiter.presence == Presence::LookingThread && !self.ticket.is_some() {
            // The observer may take its time, and who looks must not.
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

    /// The event for the observer after a call of [`poll_into`](Self::poll_into), if there is one: that the wait has begun,
    /// or is over.
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

    /// Tells the observer, by whoever has no lock, and has woken all that were due.
    pub(crate) fn tell(&mut self, got: Option<&Guard<P, M>>, phase: WaitPhase) {
        let want = self.want();
        if let Some(guard) = got {
            if let Some(id) = self.told.take() {
                guard.core().tell(guard.live(), want, phase, id);
            }
        } else if let Some((table, claim)) = &self.claim {
            // It is known from now on, whatever the observer does.
            self.told = table.core().next_wait();
            if let Some(id) = self.told {
                table.core().tell(claim.live(), want, phase, id);
            }
        }
    }

    /// Acquires, or queues. Whoever is to be woken is left in the batch.
    #[inline(always)]
    pub(crate) fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Guard<P, M>> {
        let want = self.want();
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().poll(claim.live(), want, &mut self.ticket, waiter, batch)?;
        Some(self.acquired(entered))
    }

    /// Tries once, without a position in the queue.
    pub(crate) fn attempt(&mut self) -> Option<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().try_enter(claim.live(), self.want())?;
        Some(self.acquired(entered))
    }

    /// Acquires, if nobody is in the way. Not for a request that has a position in the queue.
    #[cfg(target_has_atomic = "ptr")] // for those who are tracked
    #[inline]
    pub(crate) fn enter(&mut self) -> Option<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref()?;
        let entered = table.core().enter(claim.live(), self.want())?;
        Some(self.acquired(entered))
    }

    /// How the request would fare without a position in the queue.
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

    /// The claim has become a hold.
    #[inline]
    fn acquired(&mut self, entered: Entered) -> Guard<P, M> {
        let (table, claim) = self.take_claim().expect("a request is acquired once");
        Guard::new(table, claim.into_hold(entered, self.mode))
    }

    /// For a request that is about to be dropped: by this its observer is told of the end when all else is done, if it knows of the
    /// wait.
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

    /// The same of a wait that the observer knows of.
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

    /// Gives up all that the request waits for or has been granted, together with what else its call gives up: see
    /// [`Released`].
    pub(super) fn give_up_into(mut self, released: &mut Released<P>) {
        let Some((table, claim)) = self.take_claim() else { return };
        let left = match table.core().leave_queue(claim.live(), self.ticket, released.batch()) {
            // The reservation passes to the next waiter, not to the first newcomer.
            Some(entered) => {
                table.core().unlock(claim.into_hold(entered, self.mode), ReleaseFor::NextWaiter, released.batch())
            }
            None => Some(claim),
        };
        if let Some(claim) = left {
            released.withdraw(&table, claim);
        }
    }

    /// The claim of a request that has not been polled.
    pub(super) fn into_claim(mut self) -> (P, (ClaimOf<P>, M)) {
        debug_assert!(!self.ticket.is_some());
        let (table, claim) = self.take_claim().expect("a request is acquired once");
        (table, (claim, self.mode))
    }

    pub(super) fn access(&self) -> Access {
        self.mode.access()
    }

    /// Whether the request is over: its hold has been acquired.
    pub(crate) fn is_done(&self) -> bool {
        self.claim.is_none()
    }
}

/// For requests that are [tracked](crate::deadlock).
#[cfg(target_has_atomic = "ptr")]
impl<P: TablePtr, M: Mode> Request<P, M> {
    fn live(&self) -> Live<'_, P::Key, PayloadOf<P>> {
        self.claim.as_ref().expect("a request has its claim until it is done").1.live()
    }

    fn core(&self) -> &CoreOf<P> {
        self.claim.as_ref().expect("a request has its claim until it is done").0.core()
    }

    pub(crate) fn key(&self) -> &P::Key {
        self.live().key()
    }

    pub(crate) fn identity(&self) -> Identity {
        self.core().identity(self.live())
    }

    /// Whether it has a position in the queue, or had one and has been given what it wants.
    pub(crate) fn is_queued(&self) -> bool {
        self.ticket.is_some()
    }

    pub(crate) fn place(&self) -> Place {
        self.core().place(self.live(), self.ticket)
    }

    /// It has failed, and left the queue: tells the observer, if that knows of it, when what was granted meanwhile has been passed on.
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

    /// Gives up the position in the queue, and nothing else. What was wanted may have been granted already.
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
