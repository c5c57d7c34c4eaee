//! The steps of a tracked request under the lock of its detector, for every kind of request.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::task::Waker;

use super::holder::{Moment, Origin};
use super::record::{Record, wake};
use super::registry::{Held, Note, Wait, What};
use super::report::Deadlock;
use crate::core::slab::NONE;
use crate::core::{Access, Identity, Place, Waiter, WakeBatch, Want};
use crate::panics::Panics;

/// A request that can be tracked: for a hold, or for an upgrade.
///
/// `pub` because a sealed trait names it; other crates cannot.
#[allow(unreachable_pub, private_interfaces)]
pub trait Request {
    /// The result of the request.
    type Got;

    fn want(&self) -> Want;

    fn identity(&self) -> Identity;

    /// Returns the key's `Debug` output, and the type of the table. Runs user code.
    fn describe(&self) -> (String, &'static str);

    /// Returns the record of the hold that an upgrade continues; `None` for a request for a hold.
    fn continues(&self) -> Option<u32>;

    /// Prepares the request for its first [`poll_into`](Self::poll_into), outside the detector's lock.
    fn prepare(&mut self) {}

    /// Acquires or queues. Runs no user code if the batch contains a fresh waker.
    fn poll_into(&mut self, waiter: Waiter<'_>, batch: &mut WakeBatch) -> Option<Self::Got>;

    /// Reports the outcome of the step to the table's observer.
    fn observe(&mut self, step: &mut Step<Self::Got>);

    /// Returns the request's place in its queue.
    fn place(&mut self) -> Place;

    /// Gives up only the position in the queue. Returns the result if it had already been granted.
    fn leave_queue(&mut self, batch: &mut WakeBatch) -> Option<Self::Got>;
}

/// The progress of a request.
pub(super) enum Step<G> {
    Waits,
    Got(G),
    /// The request has failed. A hold that it was granted in the meantime passes to others.
    Failed(Deadlock, Option<G>),
}

impl Record {
    /// Prepares a request for its first poll, and returns the note for its record, and the name of its table.
    fn describe<R: Request>(&self, request: &mut R, origin: Option<&Origin>) -> (Option<Box<Note>>, &'static str) {
        let (key, table) = request.describe();
        let origin = origin.filter(|_| self.member.shared.names_holders).cloned();
        request.prepare();
        (Some(Box::new(Note { key, origin, since: None })), table)
    }

    /// Polls a request. If the request already waits as a tracked one, this is the record of its wait. If it gets in,
    /// this becomes the record of its new hold.
    ///
    /// The whole step runs under the detector's lock, so during a search no tracked request queues, and none leaves its
    /// queue unless it is granted its hold.
    ///
    /// # Panics
    /// If user code panics: of the key, a waker, the observer, or the function for long holds. Then nothing has
    /// changed, or the request waits, or the acquired hold is released.
    #[inline(never)]
    pub(super) fn step<R: Request>(
        &mut self,
        request: &mut R,
        waiter: Waiter<'_>,
        origin: Option<&Origin>,
    ) -> Step<R::Got> {
        // User code runs before the lock is taken, and its results are dropped after the lock is released.
        let shared = &self.member.shared;
        let (mut note, table) = if self.is_some() { (None, "") } else { self.describe(request, origin) };
        let mut waker = Some(waiter.waker.clone());
        let mut batch = WakeBatch::with_fresh(waiter.waker.clone());
        let mut wakers = Vec::new();
        let (mut ended, mut long_holds) = (None, Vec::new());
        let (party, entry) = (self.member.index, request.identity());
        let index = &mut self.index;
        let mut step = shared.registry.with(|registry| {
            let waited = *index != NONE;
            if waited {
                if let Some(deadlock) = registry.wait_mut(*index).failed.take() {
                    ended = Some(registry.remove(core::mem::replace(index, NONE)));
                    return Step::Failed(deadlock, request.leave_queue(&mut batch));
                }
            }
            let mut got = request.poll_into(waiter, &mut batch);
            if got.is_none() && waited {
                registry.wait_mut(*index).renew(waiter.waker, &mut waker);
                return Step::Waits;
            }
            if got.is_none() {
                let (want, place) = (request.want(), request.place());
                let wait = Wait { want, place, note: note.take(), table, waker: waker.take(), failed: None };
                *index = registry.add_wait(party, entry, Box::new(wait));
                let Some(deadlock) = registry.closes(*index, &mut wakers) else {
                    if let Some(watchdog) = &shared.watchdog {
                        long_holds = registry.long_holds(*index, request.continues(), watchdog.limit);
                    }
                    return Step::Waits;
                };
                ended = Some(registry.remove(core::mem::replace(index, NONE)));
                got = request.leave_queue(&mut batch);
                if got.is_none() {
                    return Step::Failed(deadlock, None);
                }
                // An untracked request has just made room for this one.
            }
            let Some(got) = got else { unreachable!("a request that does not wait has acquired its hold") };
            if waited {
                ended = Some(registry.remove(core::mem::replace(index, NONE)));
            }
            match (request.continues(), request.want()) {
                (Some(hold), _) => registry.set_access(hold, Access::Exclusive),
                (None, Want::Hold(access)) => {
                    *index = registry.add_hold(party, entry, held(access, &mut ended, note.take(), table));
                }
                (None, Want::Upgrade) => unreachable!("an upgrade continues a hold"),
            }
            registry.got_in(party, &mut wakers);
            Step::Got(got)
        });
        let own = if let Step::Got(_) = step { core::mem::replace(index, NONE) } else { NONE };
        // If one of these panics, the acquired hold is dropped while unwinding, and its record before it.
        let record = Record { member: Arc::clone(&self.member), index: own };
        let mut panics = Panics::default();
        panics.run(|| drop((batch, ended, waker, note)));
        panics.run(|| wake(wakers));
        panics.run(|| request.observe(&mut step));
        if let Some(watchdog) = &self.member.shared.watchdog {
            long_holds.iter().for_each(|event| panics.run(|| (watchdog.call)(event)));
        }
        panics.resume();
        if record.is_some() {
            *self = record;
        }
        step
    }
}

/// Describes a hold that begins now. If a wait has ended, the note and the table are those of the wait's record;
/// otherwise they are the arguments.
fn held(access: Access, ended: &mut Option<What>, note: Option<Box<Note>>, table: &'static str) -> Held {
    let (mut note, table) = match ended {
        Some(What::Waits(wait)) => (wait.note.take(), wait.table),
        _ => (note, table),
    };
    if let Some(named) = note.as_mut().filter(|note| note.origin.is_some()) {
        named.since = Some(Moment::now());
    }
    Held { access, table, note }
}

impl Wait {
    /// Stores the new waker, unless the old one would wake the same task. Leaves the other one in `fresh`.
    fn renew(&mut self, by: &Waker, fresh: &mut Option<Waker>) {
        if !self.waker.as_ref().is_some_and(|kept| kept.will_wake(by)) {
            core::mem::swap(&mut self.waker, fresh);
        }
    }
}
