//! Reading a queue without its entry, for the [deadlock detector](crate::deadlock).

use super::policy::{Rules, WaitState};
use super::queue::{Queued, Queues, SharedQueues, Ticket};

/// A waiter's place. It can be read without the entry, which may no longer exist if the waiter has been forgotten.
///
/// It is valid until its waiter takes a granted hold or gives up.
pub(crate) struct Place {
    queues: SharedQueues,
    lock: u32,
    queue: u32,
    ticket: Ticket,
    rules: Rules,
}

/// The state of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceState {
    Waits,
    /// It has been granted its hold, and has not taken it yet.
    Granted,
}

impl Place {
    pub(super) fn new(queues: &SharedQueues, lock: u32, queue: u32, ticket: Ticket, rules: Rules) -> Self {
        Place { queues: SharedQueues::clone(queues), lock, queue, ticket, rules }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) fn state(&self) -> PlaceState {
        self.queues[self.lock as usize].with(|queues| self.state_in(queues))
    }

    fn state_in(&self, queues: &Queues) -> PlaceState {
        if queues.state(self.ticket) == WaitState::Granted { PlaceState::Granted } else { PlaceState::Waits }
    }

    /// Calls `see` with all waiters, in the order of the queue, an upgrade first; with none if the waiter itself no
    /// longer waits. Returns whether a writer holds the key.
    pub(crate) fn look(&self, see: impl FnMut(Queued)) -> bool {
        self.queues[self.lock as usize]
            .with(|queues| self.state_in(queues) == PlaceState::Waits && queues.show(self.queue, &self.rules, see))
    }
}
