//! The lines of a queue: its waiters by kind, and those of them that sleep.

use super::{FIRST, Kind, LAST, List, Node, Queue};
use crate::core::{
    slab::NONE,
    wait::{paged::Paged, policy::Rules},
};

impl Queue {
    /// Moves a waiter that has not been woken to its present list.
    pub(super) fn enlist(&mut self, nodes: &mut Paged<Node>, index: u32, rules: &Rules) {
        let Node { kind, list, ref standing, .. } = nodes[index];
        let (belongs, end) = match () {
            () if rules.hands_over() && kind.is_handed() && standing.takes_hand_off() => (List::HandOff, LAST),
            () if rules.hands_over() && standing.is_spinning() => (List::None, LAST),
            () if list == List::Fresh => return,
            () if standing.has_retried() => (List::Asleep, FIRST),
            () => (List::Asleep, LAST),
        };
        if list == belongs {
            return;
        }
        self.strike(nodes, index);
        let Some(ends) = self.ends(belongs, kind) else { return };
        let neighbour = core::mem::replace(&mut ends[end], index);
        if neighbour == NONE {
            ends[1 - end] = index;
        } else {
            nodes[neighbour].links[end] = index;
        }
        let node = &mut nodes[index];
        node.list = belongs;
        node.links[end] = NONE;
        node.links[1 - end] = neighbour;
    }

    /// Takes a waiter out of its list.
    #[inline(always)]
    pub(super) fn strike(&mut self, nodes: &mut Paged<Node>, index: u32) {
        let node = &mut nodes[index];
        match core::mem::replace(&mut node.list, List::None) {
            List::None => {}
            List::Fresh => {
                let (mut next, line) = (node.next, &mut self.lines[node.kind.line()]);
                if line.fresh == index {
                    while next != NONE && nodes[next].list != List::Fresh {
                        next = nodes[next].next;
                    }
                    line.fresh = next;
                }
            }
            list => self.strike_linked(nodes, index, list),
        }
    }

    #[cold]
    pub(super) fn strike_linked(&mut self, nodes: &mut Paged<Node>, index: u32, list: List) {
        let Node { links: [before, after], kind, .. } = nodes[index];
        let Some(ends) = self.ends(list, kind) else { return };
        for (end, neighbour, other) in [(FIRST, before, after), (LAST, after, before)] {
            match neighbour {
                NONE => ends[end] = other,
                neighbour => nodes[neighbour].links[1 - end] = other,
            }
        }
    }

    /// Returns the first and the last of a linked list.
    pub(super) fn ends(&mut self, list: List, kind: Kind) -> Option<&mut [u32; 2]> {
        match list {
            List::None | List::Fresh => None,
            List::Asleep => Some(&mut self.lines[kind.line()].asleep),
            List::HandOff => Some(&mut self.hand_offs),
        }
    }
}
