//! Reading a queue without its entry, for the [deadlock detector](crate::deadlock).

use super::policy::{Rules, WaitState};
use super::queue::{Queued, Queues, SharedQueues, Ticket};

/// A waiter's place. It can be read without the entry, which may no longer exist if the waiter has been forgotten.
///
/// The place is valid until its waiter takes a granted hold or gives up.
pub(crate) struct Place {
    queues: Kept,
    lock: u32,
    queue: u32,
    ticket: Ticket,
    rules: Rules,
    has_priority: bool,
}

/// Gives access to queues in a `static`: calls its second argument with the queues, under the queue lock of the given
/// number.
pub(in crate::core) type WithQueues = fn(u32, &mut dyn FnMut(&Queues));

/// The location of the queues.
enum Kept {
    InTable(SharedQueues),
    Elsewhere(WithQueues),
}

/// The state of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceState {
    Waits,
    /// The waiter has been granted its hold, and has not taken it yet.
    Granted,
}

impl Place {
    pub(super) fn new(
        queues: &SharedQueues,
        lock: u32,
        queue: u32,
        ticket: Ticket,
        rules: Rules,
        has_priority: bool,
    ) -> Self {
        Place { queues: Kept::InTable(SharedQueues::clone(queues)), lock, queue, ticket, rules, has_priority }
    }

    /// Makes a place in a queue that is not a table's, and has no priorities.
    pub(in crate::core) fn elsewhere(queues: WithQueues, lock: u32, queue: u32, ticket: Ticket, rules: Rules) -> Self {
        Place { queues: Kept::Elsewhere(queues), lock, queue, ticket, rules, has_priority: false }
    }

    fn with<R>(&self, look: impl FnOnce(&Queues) -> R) -> R {
        match &self.queues {
            Kept::InTable(queues) => queues[self.lock as usize].with(|queues| look(queues)),
            Kept::Elsewhere(with) => {
                let (mut look, mut seen) = (Some(look), None);
                with(self.lock, &mut |queues| seen = look.take().map(|look| look(queues)));
                seen.unwrap_or_else(|| unreachable!("the function is called once"))
            }
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns whether the waiter has a priority. If so, it may stand before waiters that came earlier.
    pub(crate) fn has_priority(&self) -> bool {
        self.has_priority
    }

    pub(crate) fn state(&self) -> PlaceState {
        self.with(|queues| self.state_in(queues))
    }

    fn state_in(&self, queues: &Queues) -> PlaceState {
        if queues.state(self.ticket) == WaitState::Granted { PlaceState::Granted } else { PlaceState::Waits }
    }

    /// Calls `see` with each waiter, in the order of the queue, an upgrade first. Returns the rules of the queue, and
    /// whether a writer holds the key. If the waiter of this place no longer waits, does not call `see`, and returns
    /// `false` and rules that may be out of date.
    pub(crate) fn look(&self, see: impl FnMut(Queued)) -> (Rules, bool) {
        self.with(|queues| {
            if self.state_in(queues) != PlaceState::Waits {
                return (self.rules, false);
            }
            let rules = queues.rules_of(self.queue, &self.rules);
            (rules, queues.show(self.queue, &rules, see))
        })
    }
}
