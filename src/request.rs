//! One operation on one key, before it is decided how to wait for it; and the request that waits.
//!
//! Every public form is a [`Call`] and one of its methods. What waits is a [`Request`], whichever form it has: a future polls
//! it, a blocking call polls it with a waker of its own, a timed call drops it.

use core::marker::PhantomData;
use core::task::{Poll, Waker};

use crate::core::{Ask, Bin, Claim, Core, Entry, Tag, Ticket, Want, full};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::plumbing::TablePtr;

/// Where the entry of an operation comes from.
pub(crate) trait Source<K> {
    fn ask(&self, core: &Core<K>, ask: Ask) -> Entry<K>;
}

/// A key and its tag: the entry is looked up, and made if there is none.
pub(crate) struct Key<'q, Q: ?Sized> {
    pub(crate) tag: Tag,
    pub(crate) key: &'q Q,
}

impl<K, Q> Source<K> for Key<'_, Q>
where
    Q: ?Sized + equivalent::Equivalent<K> + alloc::borrow::ToOwned<Owned = K>,
{
    #[inline]
    fn ask(&self, core: &Core<K>, ask: Ask) -> Entry<K> {
        core.ask(self.tag, self.key, ask)
    }
}

/// A handle's claim: the entry is at hand.
impl<K> Source<K> for &Claim<K> {
    #[inline]
    fn ask(&self, core: &Core<K>, ask: Ask) -> Entry<K> {
        core.ask_again(self, ask)
    }
}

/// A claim, to be kept or to become a hold.
#[inline]
pub(crate) fn claim<P: TablePtr>(table: &P, source: &impl Source<P::Key>) -> Claim<P::Key> {
    match source.ask(table.core(), Ask::Claim) {
        Entry::Held(claim) | Entry::Claimed(claim) => claim,
        Entry::Refused | Entry::Full => full(),
    }
}

/// An operation: acquire a hold of mode `M` on the key that `source` leads to.
pub(crate) struct Call<P, S, M> {
    pub(crate) table: P,
    pub(crate) source: S,
    mode: PhantomData<M>,
}

impl<P, S, M> Call<P, S, M> {
    #[inline]
    pub(crate) fn new(table: P, source: S) -> Self {
        Call { table, source, mode: PhantomData }
    }
}

impl<P: TablePtr, S: Source<P::Key>, M: Mode> Call<P, S, M> {
    /// A claim, and a request that has not been polled.
    #[inline]
    pub(crate) fn request(self) -> Request<P, M> {
        let claim = claim(&self.table, &self.source);
        Request::new(self.table, claim)
    }

    /// A hold if that is possible at once.
    #[inline]
    pub(crate) fn attempt(self) -> Option<Guard<P, M>> {
        match self.source.ask(self.table.core(), Ask::Try(M::MODE)) {
            Entry::Held(hold) => Some(Guard::new(self.table, hold)),
            Entry::Refused => None,
            Entry::Claimed(claim) => Request::new(self.table, claim).attempt(),
            Entry::Full => full(),
        }
    }
}

/// A request for a hold: a claim, and a place in the queue once it waits. Dropping it gives up both.
pub(crate) struct Request<P: TablePtr, M: Mode> {
    /// `None` when the hold has been acquired.
    claim: Option<(P, Claim<P::Key>)>,
    ticket: Ticket,
    mode: PhantomData<fn() -> M>,
}

impl<P: TablePtr, M: Mode> Request<P, M> {
    const WANT: Want = Want::Hold(M::MODE);

    #[inline]
    pub(crate) fn new(table: P, claim: Claim<P::Key>) -> Self {
        Request { claim: Some((table, claim)), ticket: Ticket::NONE, mode: PhantomData }
    }

    /// # Panics
    /// If the hold has been acquired already.
    #[inline]
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref().expect("keylatch: a lock future was polled after it had finished");
        if !self.ticket.is_some() && table.core().enter(claim, Self::WANT) {
            return Poll::Ready(self.acquired());
        }
        self.poll_slowly(waker)
    }

    #[inline(never)]
    fn poll_slowly(&mut self, waker: &Waker) -> Poll<Guard<P, M>> {
        let Some((table, claim)) = &self.claim else { return Poll::Pending };
        let mut bin = Bin::default();
        if !table.core().poll(claim, Self::WANT, &mut self.ticket, waker, &mut bin) {
            return Poll::Pending;
        }
        // If the wakers in the bin panic, the guard is there, and is dropped on the way out.
        let guard = self.acquired();
        drop(bin);
        Poll::Ready(guard)
    }

    /// Tries once, without a place in the queue.
    pub(crate) fn attempt(&mut self) -> Option<Guard<P, M>> {
        let (table, claim) = self.claim.as_ref()?;
        table.core().try_settle(claim, Self::WANT).then(|| self.acquired())
    }

    /// Whether a newcomer may get in at all, and whether it seems that this one may now.
    #[cfg_attr(not(feature = "std"), allow(dead_code))] // for those who spin
    pub(crate) fn glance(&self) -> (bool, bool) {
        self.claim.as_ref().map_or((false, false), |(table, claim)| table.core().glance(claim, Self::WANT))
    }

    /// The claim has become a hold.
    #[inline]
    fn acquired(&mut self) -> Guard<P, M> {
        let (table, hold) = self.claim.take().expect("a request is acquired once");
        Guard::new(table, hold)
    }

    /// Whether the request is over: its hold has been acquired.
    pub(crate) fn is_done(&self) -> bool {
        self.claim.is_none()
    }
}

impl<P: TablePtr, M: Mode> Drop for Request<P, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some((table, claim)) = self.claim.take() {
            table.core().cancel(claim, M::MODE, self.ticket);
        }
    }
}
