//! The steps of a tracked request under the lock of its detector, for every kind of request.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;

use super::registry::Wait;
use super::report::Deadlock;
use super::{Record, wake};
use crate::core::slab::NONE;
use crate::core::{Access, Identity, Place, Waiter, WakeBatch, Want};
use crate::panics::Panics;

/// A request that can be tracked: for a hold, or for an upgrade of one.
pub(super) trait Request {
    /// Its result.
    type Got;

    fn want(&self) -> Want;

    fn identity(&self) -> Identity;

    /// The key's `Debug`, which is user code, and the type of the table.
    fn describe(&self) -> (String, &'static str);

    /// The record of the hold that it continues.
    fn continues(&self) -> Option<u32>;

    /// Acquires, or queues. Runs no user code, if the batch has a waker to take.
    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Self::Got>;

    /// Tells the observer of its table what has come of this.
    fn observe(&mut self, step: &mut Step<Self::Got>);

    /// Where it waits.
    fn place(&mut self) -> Place;

    /// Gives up its position in the queue, and nothing else. What was wanted may have been granted already.
    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<Self::Got>;
}

/// How far a request has come.
pub(super) enum Step<G> {
    Waits,
    Got(G),
    /// It has failed, and what it had been granted meanwhile is for others.
    Failed(Deadlock, Option<G>),
}

impl Record {
    /// Polls a request, which is not in the queue unless this is the record of its wait. If it gets in, this becomes the record of the hold
    /// that is new.
    ///
    /// All that concerns the detector is one step under its lock: so nobody who is tracked queues, or leaves the queue, while
    /// somebody else looks for a circle.
    ///
    /// # Panics
    /// Whatever user code of the key or the waker panics with. Then nothing has changed, or what was acquired is released.
    #[inline(never)]
    pub(super) fn step<R: Request>(&mut self, request: &mut R, waiter: Waiter<'_>) -> Step<R::Got> {
        // User code comes before the lock, and what it has made is dropped after it.
        let mut description = if self.is_some() { None } else { Some(request.describe()) };
        let mut waker = Some(waiter.waker.clone());
        let mut batch = WakeBatch::with_fresh(waiter.waker.clone());
        let mut wakers = Vec::new();
        let mut ended = None;
        let (party, entry) = (self.member.index, request.identity());
        let index = &mut self.index;
        let mut step = self.member.shared.registry.with(|registry| {
            let waited = *index != NONE;
            if waited {
                if let Some(deadlock) = registry.wait_mut(*index).failed.take() {
                    ended = registry.remove(core::mem::replace(index, NONE));
                    return Step::Failed(deadlock, request.leave_queue(&mut batch));
                }
            }
            let mut got = request.poll_into(waiter, &mut batch);
            if got.is_none() && waited {
                registry.wait_mut(*index).renew(waiter.waker, &mut waker);
                return Step::Waits;
            }
            if got.is_none() {
                let (key, table) = description.take().unwrap_or_default();
                let (want, place) = (request.want(), request.place());
                let wait = Wait { want, place, key, table, waker: waker.take(), failed: None };
                *index = registry.add_wait(party, entry, Box::new(wait));
                let Some(deadlock) = registry.closes(*index, &mut wakers) else { return Step::Waits };
                ended = registry.remove(core::mem::replace(index, NONE));
                got = request.leave_queue(&mut batch);
                if got.is_none() {
                    return Step::Failed(deadlock, None);
                }
                // Somebody whom nobody tracks has made way for it at this moment.
            }
            let Some(got) = got else { unreachable!("it has got in") };
            if waited {
                ended = registry.remove(core::mem::replace(index, NONE));
            }
            match (request.continues(), request.want()) {
                (Some(hold), _) => registry.set_access(hold, Access::Exclusive),
                (None, Want::Hold(access)) => *index = registry.add_hold(party, entry, access),
                (None, Want::Upgrade) => unreachable!("an upgrade continues a hold"),
            }
            registry.got_in(party, &mut wakers);
            Step::Got(got)
        });
        let own = if let Step::Got(_) = step { core::mem::replace(index, NONE) } else { NONE };
        // If one of these panics what was got is dropped on the way out, and its record before it.
        let record = Record { member: Arc::clone(&self.member), index: own };
        let mut panics = Panics::default();
        panics.run(|| drop((batch, ended, waker, description)));
        panics.run(|| wake(wakers));
        panics.run(|| request.observe(&mut step));
        panics.resume();
        if record.is_some() {
            *self = record;
        }
        step
    }
}

impl Wait {
    /// Takes a new waker, unless that would wake the same task. Leaves the old one.
    fn renew(&mut self, by: &Waker, fresh: &mut Option<Waker>) {
        if !self.waker.as_ref().is_some_and(|kept| kept.will_wake(by)) {
            core::mem::swap(&mut self.waker, fresh);
        }
    }
}
