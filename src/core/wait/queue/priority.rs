//! The first waiter of each line, and an upper bound of the number of wakers that an admission hands out.

use super::{FIRST, LAST, LINES, Node, PERMITS, Queue, Queues, READERS, Ticket, UPGRADABLE, UPGRADE, WRITERS};
use crate::{
    core::{
        slab::NONE,
        wait::{
            policy::{Cause, Rules, WaitState},
            word::{Access, CountKind, Holds},
        },
    },
    fairness::Fairness,
};

impl Queues {
    /// Returns an upper bound of the number of wakers that [`Queues::admit`] hands out, given these holds, when `gone`
    /// has left. Looks at no more waiters than `admit` will.
    #[cold]
    pub(crate) fn most_wakers(&self, queue: u32, gone: Ticket, holds: Holds, rules: &Rules, cause: Cause) -> usize {
        let heads = self.heads(queue, gone);
        let Queue { lines, hand_offs, turns, .. } = &self.queues[queue];
        // One waiter may be woken because a woken head has not run.
        let next = 1;
        if let CountKind::Permits(limit) = rules.counted {
            let most = self.most_permit_wakers(queue, gone, holds, limit, rules, cause);
            return (most + next).min(lines[PERMITS].len as usize);
        }
        if cause.begins_phase(rules) && lines[READERS].len > 0 {
            // In addition to the readers, one upgradable reader is admitted, and one waiter may be woken. If a writer's
            // priority keeps all readers out, the writer may be woken, and there may be a hand-off.
            return lines[READERS].len as usize
                + (lines[UPGRADABLE].len as usize).min(2)
                + usize::from(turns.has_priorities());
        }
        let first = self.earlier(self.earlier(heads[WRITERS], heads[READERS]), heads[UPGRADABLE]);
        if heads[UPGRADE] != NONE || first == heads[WRITERS] {
            // Either the waiter at the head is woken or the next one, and there may be one hand-off.
            return next + usize::from(first != NONE && holds.fits(Access::Upgradable, 0));
        }
        let handed = usize::from(hand_offs[FIRST] != NONE);
        let mut most = next + handed + usize::from(self.upgradable_gets_in(&heads, holds));
        let Some(front) = self.front(&heads, holds, rules) else { return most };
        let mut count = |mut at: u32, next: fn(&Node) -> u32| {
            while at != NONE && front.has(self.nodes[at].turn) {
                most += 1;
                at = next(&self.nodes[at]);
            }
        };
        if rules.fairness == Fairness::Barging {
            count(lines[READERS].asleep[FIRST], |node| node.links[LAST]);
            count(lines[READERS].fresh, |node| node.next);
        } else {
            count(heads[READERS], |node| node.next);
        }
        most
    }

    /// Returns an upper bound of the number of wakers for permits, not counting the waiter that is woken because the
    /// head has not run. The number may be too high if waiters want several permits.
    pub(super) fn most_permit_wakers(
        &self,
        queue: u32,
        gone: Ticket,
        mut holds: Holds,
        limit: usize,
        rules: &Rules,
        cause: Cause,
    ) -> usize {
        let Queue { lines, awake, hand_offs, .. } = &self.queues[queue];
        let gone_awake =
            if gone.is_some() && self.state(gone) == WaitState::Woken { self.nodes[gone.0].awake() } else { 0 };
        // A waiter that is woken behind the head finds all of its permits free, in addition to those granted and those
        // kept for woken waiters.
        let most_woken = limit.saturating_sub(holds.count() + awake - gone_awake);
        let (mut in_order, mut woken, mut kept) = (0, 0, cause.kept());
        let mut head = lines[PERMITS].head;
        while head != NONE {
            let node = &self.nodes[head];
            if head != gone.0 {
                if !holds.allow(node.want(), limit) {
                    break;
                }
                in_order += 1;
                if !self.grants_permits(head, kept, rules, cause) {
                    woken = most_woken;
                    break;
                }
                kept = kept.saturating_sub(node.amount);
                holds = holds.after(node.want());
            }
            head = node.next;
        }
        // The waiters that take hand-offs, at most one for each free permit.
        let free = limit.saturating_sub(holds.count());
        let (mut handed, mut next) = (0, hand_offs[FIRST]);
        while next != NONE && handed < free {
            let node = &self.nodes[next];
            handed += usize::from(holds.allow(node.want(), limit));
            next = node.links[LAST];
        }
        woken.max(in_order + handed)
    }

    /// Returns the first waiter of each line, apart from `gone`.
    pub(super) fn heads(&self, queue: u32, gone: Ticket) -> [u32; LINES] {
        self.queues[queue].lines.map(|line| match line.head {
            head if head != NONE && head == gone.0 => self.nodes[head].next,
            head => head,
        })
    }

    /// Returns whether the holds allow the first upgradable reader, and no writer waits before it.
    pub(super) fn upgradable_gets_in(&self, heads: &[u32; LINES], holds: Holds) -> bool {
        let (writer, upgradable) = (heads[WRITERS], heads[UPGRADABLE]);
        upgradable != NONE
            && holds.fits(Access::Upgradable, 0)
            && (writer == NONE || self.nodes[upgradable].turn.is_before(self.nodes[writer].turn))
    }
}
