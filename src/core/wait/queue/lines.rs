//! The lines of a queue: its waiters by kind, and the lists of those that sleep or take hand-offs.

use super::{FIRST, Kind, LAST, Line, List, Node, Queue};
use crate::core::{
    slab::NONE,
    wait::{paged::Paged, policy::Rules},
};

impl Line {
    /// Moves the last waiter, which has just come, to the place of its turn. Searches from both ends at once, because
    /// most priorities lead to one of them.
    #[cold]
    #[inline(never)]
    pub(super) fn move_last_forward(&mut self, nodes: &mut Paged<Node>) {
        let moved = self.tail;
        let Node { prev: last, turn, list, .. } = nodes[moved];
        let (mut before, mut after) = (last, self.head);
        let next = loop {
            if before == NONE || nodes[before].turn.is_before(turn) {
                break if before == NONE { self.head } else { nodes[before].next };
            }
            if turn.is_before(nodes[after].turn) {
                break after;
            }
            (before, after) = (nodes[before].prev, nodes[after].next);
        };
        if next == moved {
            return; // all others come before it
        }
        self.tail = last;
        nodes[last].next = NONE;
        let prev = core::mem::replace(&mut nodes[next].prev, moved);
        match prev {
            NONE => self.head = moved,
            prev => nodes[prev].next = moved,
        }
        (nodes[moved].prev, nodes[moved].next) = (prev, next);
        if list == List::Fresh && (self.fresh == NONE || turn.is_before(nodes[self.fresh].turn)) {
            self.fresh = moved;
        }
    }
}

impl Queue {
    /// Moves a waiter that has not been woken to the list in which it now belongs.
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
        let sorts = self.turns.has_priorities();
        let Some(ends) = self.ends(belongs, kind) else { return };
        // The neighbours: towards the end at which the waiter is put, and away from it.
        let (mut outer, mut inner) = (NONE, ends[end]);
        while sorts && inner != NONE && nodes[inner].turn.is_before(nodes[index].turn) == (end == FIRST) {
            (outer, inner) = (inner, nodes[inner].links[1 - end]);
        }
        match outer {
            NONE => ends[end] = index,
            outer => nodes[outer].links[1 - end] = index,
        }
        match inner {
            NONE => ends[1 - end] = index,
            inner => nodes[inner].links[end] = index,
        }
        let node = &mut nodes[index];
        node.list = belongs;
        node.links[end] = outer;
        node.links[1 - end] = inner;
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

    /// Returns the two ends of a list, as indices of nodes; `None` for waiters that are found without links.
    pub(super) fn ends(&mut self, list: List, kind: Kind) -> Option<&mut [u32; 2]> {
        match list {
            List::None | List::Fresh => None,
            List::Asleep => Some(&mut self.lines[kind.line()].asleep),
            List::HandOff => Some(&mut self.hand_offs),
        }
    }
}
