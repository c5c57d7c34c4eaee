//! Looking at a queue from afar, for the [detector](crate::deadlock) of deadlocks.

use super::policy::{Rules, WaitState};
use super::queue::{Queued, Queues, SharedQueues, Ticket};

/// Where somebody waits. It can be looked at without the entry, which may be anywhere, or, if a waiter has been forgotten, nowhere.
///
/// It is right for as long as its waiter has not come for what it was given, and has not left.
pub(crate) struct Place {
    queues: SharedQueues,
    lock: u32,
    queue: u32,
    ticket: Ticket,
    rules: Rules,
}

/// How it stands with a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stand {
    Waits,
    /// It has been given what it wants, and has not come for it.
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

    pub(crate) fn stand(&self) -> Stand {
        self.queues[self.lock as usize].with(|queues| self.stand_in(queues))
    }

    fn stand_in(&self, queues: &Queues) -> Stand {
        if queues.state(self.ticket) == WaitState::Granted { Stand::Granted } else { Stand::Waits }
    }

    /// Shows all who wait, in the order of the queue, an upgrade first. Nobody, if the waiter itself does not any more. Returns
    /// whether a writer holds the key meanwhile.
    pub(crate) fn look(&self, see: impl FnMut(Queued)) -> bool {
        self.queues[self.lock as usize]
            .with(|queues| self.stand_in(queues) == Stand::Waits && queues.show(self.queue, &self.rules, see))
    }
}
