//! Queries and checks of a queue for the tests.

use super::{FIRST, LAST, List, Queues, Ticket};
use crate::core::slab::NONE;

impl Queues {
    /// Returns the number of nodes for which memory is allocated.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.memory()
    }

    /// Returns whether a waiter is in the queue, and has not been woken since its last poll.
    pub(crate) fn sleeps(&self, ticket: Ticket) -> bool {
        self.nodes[ticket.0].standing.is_asleep()
    }

    /// Returns whether there are no queues.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// Checks that the lists of a queue match the state of its waiters.
    pub(crate) fn check(&self, queue: u32) {
        let queue = &self.queues[queue];
        let (mut len, mut awake, mut hand_offs) = (0, 0, 0);
        for (kind, line) in queue.lines.iter().enumerate() {
            let (mut nodes, mut fresh, mut asleep) = (0, NONE, 0);
            let (mut at, mut before) = (line.head, NONE);
            while at != NONE {
                let node = &self.nodes[at];
                assert!(node.prev == before && node.kind.line() == kind);
                assert!(before == NONE || self.nodes[before].turn.is_before(node.turn));
                assert_eq!(node.waker.is_some(), node.standing.is_asleep(), "a waker is kept until it is used");
                let in_order = fresh == NONE || !node.standing.has_retried() || queue.turns.has_priorities();
                assert!(in_order, "only waiters that slept in order are woken");
                match node.list {
                    List::Fresh if fresh == NONE => fresh = at,
                    List::Fresh => {}
                    List::Asleep => asleep += 1,
                    List::HandOff => hand_offs += 1,
                    List::None => assert!(node.standing.is_woken() || node.standing.is_spinning()),
                }
                assert!(node.list == List::None || node.standing.is_asleep());
                awake += if node.standing.is_woken() { node.awake() } else { 0 };
                (nodes, before, at) = (nodes + 1, at, node.next);
            }
            assert!(line.tail == before && line.len == nodes && line.fresh == fresh);
            assert_eq!(self.linked(line.asleep, List::Asleep), asleep);
            len += nodes;
        }
        assert_eq!(self.linked(queue.hand_offs, List::HandOff), hand_offs);
        assert_eq!((queue.len, queue.awake), (len, awake));
    }

    /// Returns the length of a linked list, and checks its links.
    pub(super) fn linked(&self, ends: [u32; 2], list: List) -> usize {
        let (mut at, mut before, mut nodes) = (ends[FIRST], NONE, 0);
        while at != NONE {
            let node = &self.nodes[at];
            assert!(node.list == list && node.links[FIRST] == before);
            (nodes, before, at) = (nodes + 1, at, node.links[LAST]);
        }
        assert_eq!(ends[LAST], before);
        nodes
    }
}
