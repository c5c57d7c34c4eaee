//! The wait layer: how a request enters an entry, waits for it, and hands it over to the waiters. It knows nothing of
//! keys: it needs only the [`State`] of an entry.
//!
//! Every way in and every way out is a step of one machine:
//!
//! | step | taken by | ends with |
//! |---|---|---|
//! | [`enter`](WaitQueues::enter) | a request that finds nothing in its way | its hold |
//! | [`try_enter`](WaitQueues::try_enter) | a request that does not wait | its hold, or nothing changed |
//! | [`poll`](WaitQueues::poll) | a request that waits | its hold, or a ticket in the queue |
//! | [`leave_queue`](WaitQueues::leave_queue) | a request that gives up | the hold it had been granted, or no ticket |
//! | [`downgrade`](WaitQueues::downgrade) | a holder | a weaker hold |
//! | [`leave`](WaitQueues::leave) | a holder | no hold, unless it is the last unit of its entry |
//! | [`set_own_limit`](WaitQueues::set_own_limit) and others in `limits` | a call that changes the number of permits | |
//!
//! The proof of an acquire is a receipt, [`Entered`]: without it a claim cannot be turned into a hold.

use core::{ops::Deref, task::Waker};

use crossbeam_utils::CachePadded;

use crate::fairness::Fairness;
use crate::sync::Lock;

mod limits;
mod paged;
#[cfg(target_has_atomic = "ptr")]
mod place;
mod policy;
mod queue;
mod shards;
pub(super) mod state;
mod turn;
mod wakers;
pub(super) mod word;

#[cfg(test)]
mod tests;

#[cfg(target_has_atomic = "ptr")]
pub(super) use self::place::WithQueues;
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::place::{Place, PlaceState};
pub(crate) use self::policy::{Presence, ReleaseFor, Rules};
#[cfg(target_has_atomic = "ptr")]
pub(crate) use self::queue::Queued;
pub(crate) use self::queue::{Ticket, Waiter, Waiting};
pub(crate) use self::wakers::WakeBatch;
pub(crate) use self::word::{Access, CountKind, Holds, Want};

use self::policy::{Cause, WaitState};
pub(super) use self::queue::Queues;
use self::shards::{QueueShards, TableQueues};
#[cfg(target_has_atomic = "ptr")]
use self::state::State;
use self::state::{QueueShard, Waited};
use self::word::{Refusal, Unit};

/// The wait queues of all entries of a table, or of all latches, and the rules by which they admit waiters.
pub(super) struct WaitQueues<Q = TableQueues> {
    /// The queue shards: a power of two of them, each behind its own lock.
    queue_shards: Q,
    /// The rules of all queues. The limit of permits in them is the initial default. It is not used, because it may
    /// change.
    rules: Rules,
}

/// A receipt: the word now counts the wanted hold instead of the requester's claim (a latch also counts the claim,
/// until the hold is taken), or an exclusive hold instead of the requester's upgradable one.
#[must_use = "an acquired hold must become a guard, or be released"]
pub(crate) struct Entered(());

/// Whether a request might acquire without queueing. The answer is only a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that spin
pub(crate) enum Contention {
    /// The holds allow the request. If there are waiters, the policy may still keep it out.
    Free,
    /// The request is kept out, and might enter when the holders change.
    Held,
    /// Trying again does not help: the policy is `Fifo`, say, or the request has queued already.
    MustQueue,
}

/// The holders and waiters of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) holds: Holds,
    pub(crate) waiting: Waiting,
    pub(crate) counted: CountKind,
}

/// The answer to a holder that wants to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The holder's unit is given up; the entry may be gone.
    Gone,
    /// The holder has the last unit of the entry, which may only be given up under the shard lock.
    Last,
}

/// A resource that a step needs and that cannot be made under the queue lock, because making it allocates or runs user
/// code.
enum Needs {
    /// Room for this many wakers in the batch.
    Room(usize),
    /// A clone of the caller's waker.
    Waker,
}

/// The largest number of queue locks in a table. More would gain little: waiting is rare, and one lock serves all the
/// waiters of a hot key anyway.
const MAX_QUEUE_LOCKS: usize = 16;

impl WaitQueues {
    /// Makes the queues for a table with `shards` shards, which is a power of two.
    pub(super) fn new(shards: usize, rules: Rules) -> Self {
        let locks = shards.min(MAX_QUEUE_LOCKS);
        let queue_shards = (0..locks).map(|_| CachePadded::new(Lock::new(Queues::new()))).collect();
        WaitQueues { queue_shards: TableQueues::new(queue_shards, rules), rules }
    }

    /// Returns the place of the waiter with this ticket.
    #[cfg(target_has_atomic = "ptr")]
    pub(super) fn place(&self, state: &State, ticket: Ticket) -> Place {
        let (queue, has_priority) = self.lock(state).with(|queues| (state.queue(queues), queues.has_priority(ticket)));
        Place::new(self.queue_shards.shared(), self.number(state), queue, ticket, self.rules, has_priority)
    }
}

impl<Q, H: QueueShard> WaitQueues<Q>
where
    Q: Deref<Target = [CachePadded<Lock<H>>]> + QueueShards,
{
    pub(super) fn of(queue_shards: Q, rules: Rules) -> Self {
        WaitQueues { queue_shards, rules }
    }

    /// Returns the rules. Of the limits of permits, they contain only the initial default.
    #[inline]
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the number of an entry's queue lock.
    #[inline]
    fn number(&self, state: &impl Waited<QueueShard = H>) -> u32 {
        state.number() & (self.queue_shards.len() as u32 - 1)
    }

    fn lock(&self, state: &impl Waited<QueueShard = H>) -> &Lock<H> {
        &self.queue_shards[self.number(state) as usize]
    }

    /// Returns the number of the queue lock of a latch with waiters, and the index of its queue.
    #[cfg(target_has_atomic = "ptr")]
    pub(super) fn find_queue(&self, state: &impl Waited<QueueShard = H>) -> (u32, u32) {
        (self.number(state), self.lock(state).with(|queue_shard| state.queue(queue_shard)))
    }

    /// Takes a step under the queue lock. If the step needs something, provides it outside the lock, and repeats the
    /// step.
    fn step<R>(
        &self,
        state: &impl Waited<QueueShard = H>,
        batch: &mut WakeBatch,
        waker: Option<&Waker>,
        mut step: impl FnMut(&mut H, &mut WakeBatch) -> Result<R, Needs>,
    ) -> R {
        loop {
            match self.lock(state).with(|queue_shard| step(queue_shard, batch)) {
                Ok(result) => return result,
                Err(Needs::Room(count)) => batch.reserve(count),
                Err(Needs::Waker) => batch.fresh = waker.cloned(),
            }
        }
    }

    // ---- in -------------------------------------------------------------------------------------------------------

    /// Enters if nothing is in the way. This is the first step, and the only one that most requests need. A request
    /// that has a ticket enters by its position instead.
    ///
    /// `limit` is the limit of permits that applies if the entry has no queue; `None` stands for the default limit. (A
    /// queue has the limit of its entry.)
    #[inline]
    pub(super) fn enter(
        &self,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        limit: Option<usize>,
    ) -> Option<Entered> {
        let limit = self.limit(want, limit);
        state.update(|word| word.enter(want, state.spends(want.claims()), limit)).ok().map(|_| Entered(()))
    }

    /// Enters without waiting, or fails. The ticket contains the priority of the request, or marks a recursive reader.
    /// The request must not be in the queue.
    pub(super) fn try_enter(
        &self,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        ticket: Ticket,
        limit: Option<usize>,
    ) -> Option<Entered> {
        let enter = || state.update(|word| word.enter(want, state.spends(want.claims()), self.limit(want, limit)));
        let entered = match enter() {
            Err(Refusal::Queued) => self.lock(state).with(|queue_shard| {
                if state.word().is_queued() { self.bypass(queue_shard, state, want, ticket) } else { enter().map(drop) }
            }),
            entered => entered.map(drop),
        };
        entered.ok().map(Entered)
    }

    #[cfg_attr(any(not(feature = "std"), target_family = "wasm"), allow(dead_code))] // for threads that spin
    pub(super) fn contention(
        &self,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        limit: Option<usize>,
    ) -> Contention {
        if self.rules.fairness == Fairness::Fifo {
            Contention::MustQueue
        } else if state.word().holds().allow(want, self.limit(want, limit)) {
            Contention::Free
        } else {
            Contention::Held
        }
    }

    /// Enters, or registers the waiter to be woken when it may be able to enter.
    ///
    /// The caller makes its own state consistent before it drops the batch, which may run user code that panics.
    #[inline(never)]
    pub(super) fn poll(
        &self,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        ticket: &mut Ticket,
        waiter: Waiter<'_>,
        limit: Option<usize>,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        if !ticket.is_some() {
            if let Some(entered) = self.enter(state, want, limit) {
                return Some(entered);
            }
            if batch.fresh.is_none() {
                batch.fresh = Some(waiter.waker.clone());
            }
        }
        self.step(state, batch, Some(waiter.waker), |queue_shard, batch| {
            if ticket.is_some() {
                self.poll_in_queue(queue_shard, state, want, ticket, waiter, batch)
            } else {
                Ok(self.enqueue(queue_shard, state, want, ticket, waiter.presence, limit, batch))
            }
        })
    }

    /// Handles the first poll of a request that found the key held, or waiters in the queue.
    #[allow(clippy::too_many_arguments)]
    fn enqueue(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        ticket: &mut Ticket,
        presence: Presence,
        limit: Option<usize>,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        // The default limit is read under the queue lock: see `set_default_limit`.
        let limit = self.limit(want, limit);
        let queue = match state.update(|word| word.enqueue(want, state.spends(want.claims()), limit)) {
            Ok(word) if word.is_queued() => {
                let queues = queue_shard.queues();
                let queue = queues.open_queue(limit);
                queues.note(queue, word.holds());
                state.set_queue(queue_shard, queue);
                queue
            }
            Ok(_) => return Some(Entered(())),
            Err(_) => match self.bypass(queue_shard, state, want, *ticket) {
                Ok(()) => return Some(Entered(())),
                Err(_) => state.queue(queue_shard),
            },
        };
        let Some(waker) = batch.fresh.take() else { unreachable!("the waker was cloned before the lock was taken") };
        *ticket = queue_shard.queues().push(queue, want, ticket.priority(), presence, &self.rules, waker);
        None
    }

    /// Handles a later poll.
    fn poll_in_queue(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        ticket: &mut Ticket,
        waiter: Waiter<'_>,
        batch: &mut WakeBatch,
    ) -> Result<Option<Entered>, Needs> {
        if queue_shard.queues().state(*ticket) == WaitState::Granted {
            batch.old = queue_shard.queues().discard(core::mem::replace(ticket, Ticket::NONE));
            return Ok(Some(Entered(())));
        }
        let queue = state.queue(queue_shard);
        let mut limited = None;
        let rules = self.rules_of(queue_shard, state, &mut limited);
        let holds = state.word().holds();
        if holds.allow(want, rules.limit()) {
            self.room_for_wakers(queue_shard, state, *ticket, holds.after(want), Cause::QueueChanged, batch)?;
            // The head takes a free hold. A waiter behind the head counts as a newcomer.
            if queue_shard.queues().is_head(queue, *ticket)
                || self.may_bypass(queue_shard, state, holds, want, Ticket::NONE, rules)
            {
                batch.old = queue_shard.queues().remove(queue, core::mem::replace(ticket, Ticket::NONE));
                self.admit(
                    queue_shard,
                    state,
                    holds.after(want),
                    state.spends(want.claims()),
                    Cause::QueueChanged,
                    batch,
                );
                return Ok(Some(Entered(())));
            }
        }
        let stays = queue_shard.queues().stay(queue, *ticket, waiter, rules, batch);
        if stays { Ok(None) } else { Err(Needs::Waker) }
    }

    /// Lets a newcomer pass the waiters, if the holds and [`may_bypass`](Self::may_bypass) allow it.
    fn bypass(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        want: Want,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let mut limited = None;
        let rules = self.rules_of(queue_shard, state, &mut limited);
        let holds = state.word().holds();
        if !holds.allow(want, rules.limit()) {
            return Err(Refusal::Held);
        }
        if !self.may_bypass(queue_shard, state, holds, want, ticket, rules) {
            return Err(Refusal::Queued);
        }
        let queue = state.queue(queue_shard);
        queue_shard.queues().note(queue, holds.after(want));
        state.update(|word| Ok(word.admit(holds.after(want), state.spends(want.claims()), true))).map(drop)
    }

    /// Returns whether priority or policy lets a newcomer pass the waiters. An upgrade is not a newcomer, and always
    /// passes. So does a recursive reader, whatever the priorities and the policy; its passing is not counted, so it
    /// leaves the bounds for others as they are.
    fn may_bypass(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        holds: Holds,
        want: Want,
        ticket: Ticket,
        rules: &Rules,
    ) -> bool {
        match want {
            Want::Hold(_) if ticket == Ticket::RECURSIVE => true,
            Want::Hold(access) => {
                let queue = state.queue(queue_shard);
                let queues = queue_shard.queues();
                let priority = ticket.priority();
                priority > 0 && queues.goes_first(queue, priority, holds, access, rules)
                    || queues.bypass(queue, holds, access, rules)
            }
            Want::Upgrade => true,
        }
    }

    // ---- out ------------------------------------------------------------------------------------------------------

    /// Gives up a position in the queue. If the hold had already been granted, the caller has it now.
    pub(super) fn leave_queue(
        &self,
        state: &impl Waited<QueueShard = H>,
        ticket: Ticket,
        batch: &mut WakeBatch,
    ) -> Option<Entered> {
        if !ticket.is_some() {
            return None;
        }
        // This is one step: to every observer, the waiter leaves at the same instant at which the waiters that it kept
        // out get in.
        self.step(state, batch, None, |queue_shard, batch| {
            let queues = queue_shard.queues();
            if queues.state(ticket) == WaitState::Granted {
                batch.old = queues.discard(ticket);
                return Ok(Some(Entered(())));
            }
            let cause = queues.cause_of_giving_up(ticket);
            let queue = state.queue(queue_shard);
            let holds = state.word().holds();
            self.room_for_wakers(queue_shard, state, ticket, holds, cause, batch)?;
            batch.old = queue_shard.queues().remove(queue, ticket);
            self.admit(queue_shard, state, holds, 0, cause, batch);
            Ok(None)
        })
    }

    /// Turns a hold into a weaker one atomically: no request that is incompatible with either gets in between.
    pub(super) fn downgrade(
        &self,
        state: &impl Waited<QueueShard = H>,
        from: Access,
        to: Access,
        batch: &mut WakeBatch,
    ) {
        while state.update(|word| word.downgrade(from, to)).is_err() {
            let cause = Cause::of_leaving(from, ReleaseFor::Anybody);
            let downgraded = self.step(state, batch, None, |queue_shard, batch| {
                let word = state.word();
                if !word.is_queued() {
                    return Ok(false);
                }
                let holds = word.holds().without(from).with(to);
                self.room_for_wakers(queue_shard, state, Ticket::NONE, holds, cause, batch)?;
                self.admit(queue_shard, state, holds, 0, cause, batch);
                Ok(true)
            });
            if downgraded {
                return;
            }
        }
    }

    /// Gives up a hold, unless it is the last unit. If there are waiters, `hand_over` hands it over to them.
    #[inline(always)]
    pub(super) fn leave(
        &self,
        state: &impl Waited<QueueShard = H>,
        access: Access,
        mut hand_over: impl FnMut() -> bool,
    ) -> Left {
        let unit = Unit::Hold(access);
        loop {
            let left = state.update(|word| match word {
                word if word.is_only(unit) => Err(Refusal::Held),
                word if word.is_queued() => Err(Refusal::Queued),
                word => Ok(word.leave(unit)),
            });
            match left {
                Ok(_) => return Left::Gone,
                Err(Refusal::Queued) => {
                    if hand_over() {
                        return Left::Gone;
                    }
                }
                Err(_) => return Left::Last,
            }
        }
    }

    /// Hands a hold over to the waiters. Returns `false`, and does not give up the hold, if there are no waiters any
    /// more.
    #[inline(never)]
    pub(super) fn hand_over(&self, state: &impl Waited<QueueShard = H>, access: Access, whom: ReleaseFor) -> bool {
        // Wakers run after the hold is given up.
        self.hand_over_into(state, access, whom, &mut WakeBatch::default())
    }

    /// Does the same as [`hand_over`](Self::hand_over), but adds the wakers of the waiters to `batch`.
    pub(super) fn hand_over_into(
        &self,
        state: &impl Waited<QueueShard = H>,
        access: Access,
        whom: ReleaseFor,
        batch: &mut WakeBatch,
    ) -> bool {
        let cause = Cause::of_leaving(access, whom);
        self.step(state, batch, None, |queue_shard, batch| {
            let word = state.word();
            if !word.is_queued() {
                return Ok(false);
            }
            let holds = word.holds().without(access);
            self.room_for_wakers(queue_shard, state, Ticket::NONE, holds, cause, batch)?;
            self.admit(queue_shard, state, holds, 0, cause, batch);
            Ok(true)
        })
    }

    // ---- both -----------------------------------------------------------------------------------------------------

    /// Admits the waiters that can enter now. `holds` are the holds that this step leaves: without a hold that is given
    /// up, and including those that the step has made from `claims` claims.
    fn admit(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        holds: Holds,
        claims: usize,
        cause: Cause,
        batch: &mut WakeBatch,
    ) {
        let queue = state.queue(queue_shard);
        let mut limited = None;
        let rules = self.rules_of(queue_shard, state, &mut limited);
        let admitted = queue_shard.queues().admit(queue, holds, rules, cause, batch);
        if !admitted.queued {
            state.forget_queue(queue_shard);
        }
        let claims = claims + state.spends(admitted.granted);
        let updated = state.update(|word| Ok::<_, Refusal>(word.admit(admitted.holds, claims, admitted.queued)));
        debug_assert!(updated.is_ok());
    }

    #[inline(always)]
    fn room_for_wakers(
        &self,
        queue_shard: &mut H,
        state: &impl Waited<QueueShard = H>,
        gone: Ticket,
        holds: Holds,
        cause: Cause,
        batch: &WakeBatch,
    ) -> Result<(), Needs> {
        let queue = state.queue(queue_shard);
        let queues = queue_shard.queues();
        if batch.fits(queues.len(queue)) {
            return Ok(());
        }
        let mut limited = None;
        let rules = self.rules_of(queue_shard, state, &mut limited);
        let most = queue_shard.queues().most_wakers(queue, gone, holds, rules, cause);
        if batch.fits(most) { Ok(()) } else { Err(Needs::Room(most)) }
    }

    // ---- looking --------------------------------------------------------------------------------------------------

    /// Returns the snapshot of an entry that nobody uses.
    pub(super) fn snapshot_unused(&self) -> Snapshot {
        Snapshot { holds: Holds::NONE, waiting: Waiting::default(), counted: self.rules.counted }
    }

    /// Returns the holders and waiters at one instant: while there are waiters, the queue lock keeps word and queue
    /// consistent.
    pub(super) fn snapshot(&self, state: &impl Waited<QueueShard = H>) -> Snapshot {
        let counted = self.rules.counted;
        let word = state.word();
        if !word.is_queued() {
            return Snapshot { holds: word.holds(), waiting: Waiting::default(), counted };
        }
        self.lock(state).with(|queue_shard| {
            let word = state.word();
            let waiting = if word.is_queued() {
                let queue = state.queue(queue_shard);
                queue_shard.queues().waiting(queue, counted)
            } else {
                Waiting::default()
            };
            Snapshot { holds: word.holds(), waiting, counted }
        })
    }
}
