//! Decides which waiters get in when holds change.

use core::task::Waker;

use super::{Admitted, FIRST, Front, LINES, PERMITS, Queue, Queues, READERS, Ticket, UPGRADABLE, UPGRADE, WRITERS};
use crate::{
    core::{
        slab::NONE,
        wait::{
            policy::{Cause, Rules, WaitState},
            wakers::WakeBatch,
            word::{Access, CountKind, Holds, Want},
        },
    },
    fairness::Fairness,
};

impl Queues {
    /// Returns the next waiter for permits behind an idle head, if the holds keep it out. (A waiter for one permit is
    /// not kept out while a permit is free.)
    pub(super) fn kept_out(&self, queue: &Queue, holds: Holds, rules: &Rules) -> u32 {
        let next = match queue.hand_offs[FIRST] {
            NONE => self.first_asleep(&queue.lines[PERMITS]),
            first => first,
        };
        if next == NONE || holds.allow(self.nodes[next].want(), rules.limit()) { NONE } else { next }
    }

    /// Admits the waiters that the rules admit now, given the present `holds`. See the module's table.
    pub(crate) fn admit(
        &mut self,
        queue: u32,
        holds: Holds,
        rules: &Rules,
        cause: Cause,
        batch: &mut WakeBatch,
    ) -> Admitted {
        let mut admitted = Admitted { holds, granted: 0, queued: true };
        let Queue { lines, len, .. } = &self.queues[queue];
        if *len == 0 {
            return self.close(queue, rules, admitted);
        }
        let (upgrade, writer, others) = (lines[UPGRADE].head, lines[WRITERS].head, *len - lines[WRITERS].len);
        // The head, if it was woken earlier and has not run since. (A thread may be about to run.)
        let idle = match cause {
            Cause::QueueChanged => NONE,
            _ if !rules.hands_over() => NONE,
            _ => Some(self.head(&self.queues[queue]))
                .filter(|&head| self.nodes[head].standing.is_woken())
                .unwrap_or(NONE),
        };
        let fair = cause.is_fair(rules, (idle != NONE).then(|| &self.nodes[idle].standing));
        let mut others_come = false;
        if upgrade != NONE {
            // A waiting upgrade that is kept out keeps out all behind it.
            if admitted.holds.allow(Want::Upgrade, 0) {
                let grant = fair || rules.grants_upgrade(&self.nodes[upgrade].standing);
                self.let_in(queue, upgrade, grant, &mut admitted, batch);
            }
        } else if let CountKind::Permits(limit) = rules.counted {
            others_come = self.admit_permits(queue, limit, rules, cause, &mut admitted, batch);
        } else if others == 0 {
            self.admit_writer(queue, writer, rules, fair, &mut admitted, batch);
        } else {
            if cause.begins_phase(rules) {
                self.begin_phase(queue, rules, &mut admitted, batch);
            }
            self.admit_modes(queue, rules, fair, &mut admitted, batch);
        }
        if admitted.holds != holds && self.queues[queue].len == 0 {
            return self.close(queue, rules, admitted);
        }
        let left = admitted.holds;
        others_come |= upgrade == NONE && self.hand_off(queue, rules, &mut admitted, batch);
        if idle != NONE {
            self.wake_next(queue, idle, left, others_come, rules, batch);
        }
        self.note(queue, admitted.holds);
        admitted
    }

    /// Hands free holds over to waiters behind the head that will take them at once, as if they were newcomers. So a
    /// hot key does not stay idle while a sleeping waiter is waking up.
    #[inline]
    pub(super) fn hand_off(
        &mut self,
        queue: u32,
        rules: &Rules,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) -> bool {
        self.queues[queue].hand_offs[FIRST] != NONE && self.hand_off_slowly(queue, rules, admitted, batch)
    }

    /// Returns whether the priorities of a waiter and of the head allow a hand-off to the waiter.
    fn may_be_handed(&self, queue: u32, index: u32) -> bool {
        let queue = &self.queues[queue];
        !queue.turns.has_priorities() || self.nodes[index].may_pass(&self.nodes[self.head(queue)])
    }

    #[inline(never)]
    pub(super) fn hand_off_slowly(
        &mut self,
        queue: u32,
        rules: &Rules,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) -> bool {
        let (holds, limit) = (admitted.holds, rules.limit());
        let mut next = self.queues[queue].hand_offs[FIRST];
        while next != NONE {
            let [_, after] = self.nodes[next].links;
            let Want::Hold(access) = self.nodes[next].want() else { break };
            let fits = admitted.holds.fits(access, limit) && self.may_be_handed(queue, next);
            if fits && self.bypass(queue, admitted.holds, access, rules) {
                let waker = self.grant(queue, next, admitted);
                // This waiter is woken before the head, whose wake-up may take a system call.
                batch.wake_first(waker);
            } else if admitted.holds.count() >= limit {
                break; // nothing is left (if permits are left, they may be enough for the next waiter)
            }
            next = after;
        }
        admitted.holds != holds
    }

    /// May wake the next waiter after a release, because the head was woken earlier and has not run since.
    #[inline(never)]
    pub(super) fn wake_next(
        &mut self,
        queue: u32,
        head: u32,
        left: Holds,
        others_come: bool,
        rules: &Rules,
        batch: &mut WakeBatch,
    ) {
        let Queue { lines, .. } = &self.queues[queue];
        let standing = &self.nodes[head].standing;
        // If this step has granted the head its hold, the head is no longer woken. Otherwise it is still the head.
        if !standing.is_woken() || !standing.lets_wake_the_next(others_come) {
            return;
        }
        // Only the first sleeper of each line is considered: a waiter that does not find enough permits keeps those
        // behind it asleep, as it would at the head.
        let asleep = lines.each_ref().map(|line| self.first_asleep(line));
        let fits = |node: u32| node != NONE && left.allow(self.nodes[node].want(), rules.limit());
        let next = asleep.into_iter().filter(|&node| fits(node)).fold(NONE, |first, node| self.earlier(first, node));
        if next != NONE {
            self.open(queue, next, batch);
        }
    }

    /// Removes the queue, whose last waiter is gone, unless it has the key's own limit.
    pub(super) fn close(&mut self, queue: u32, rules: &Rules, admitted: Admitted) -> Admitted {
        if rules.counted != CountKind::Readers && self.has_own_limit(queue) {
            return admitted;
        }
        self.queues.delete(queue);
        Admitted { queued: false, ..admitted }
    }

    /// Begins a readers' phase: admits all waiting readers, except those that the first writer's priority keeps out,
    /// and one upgradable reader if no other upgradable reader holds the key. An upgradable reader passes a writer that
    /// arrived earlier only once, and under `Adaptive` gets in only with readers.
    pub(super) fn begin_phase(&mut self, queue: u32, rules: &Rules, admitted: &mut Admitted, batch: &mut WakeBatch) {
        let Queue { lines, turns, .. } = &self.queues[queue];
        let (holds, writer, mut reader) = (admitted.holds, lines[WRITERS].head, lines[READERS].head);
        // The writer whose priority may keep readers out of the phase.
        let rival = if turns.has_priorities() { writer } else { NONE };
        while reader != NONE {
            let next = self.nodes[reader].next;
            if self.joins_phase(reader, rival) {
                self.let_in(queue, reader, true, admitted, batch);
            }
            reader = next;
        }
        if rules.keeps_nothing_for_the_idle() && admitted.holds == holds {
            return; // there is no reader that an upgradable reader could enter with
        }
        let upgradable = self.queues[queue].lines[UPGRADABLE].head;
        if upgradable == NONE || !admitted.holds.fits(Access::Upgradable, rules.limit()) {
            return;
        }
        if !self.joins_phase(upgradable, rival) {
            return;
        }
        // The mark is set only if the upgradable reader gets in.
        let passes = writer != NONE && self.nodes[writer].turn.is_before(self.nodes[upgradable].turn);
        if !passes || !core::mem::replace(&mut self.nodes[writer].passed_in_phase, true) {
            self.let_in(queue, upgradable, true, admitted, batch);
        }
    }

    /// Returns whether a reader takes part in a phase. `rival` is the writer that may keep it out, if there is one.
    fn joins_phase(&self, reader: u32, rival: u32) -> bool {
        rival == NONE || self.nodes[reader].turn.joins_phase_before(self.nodes[rival].turn)
    }

    /// Admits waiters of a semaphore, in order, while there are enough permits. A waiter that does not find enough
    /// keeps out all behind it (except by [hand-off](Queues::hand_off)). Returns whether a waiter behind the head that
    /// remains has been admitted or woken.
    pub(super) fn admit_permits(
        &mut self,
        queue: u32,
        limit: usize,
        rules: &Rules,
        cause: Cause,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) -> bool {
        let mut kept = cause.kept();
        loop {
            let head = self.queues[queue].lines[PERMITS].head;
            if head == NONE || !admitted.holds.allow(self.nodes[head].want(), limit) {
                return false;
            }
            let grant = self.grants_permits(head, kept, rules, cause);
            kept = kept.saturating_sub(self.nodes[head].amount);
            self.let_in(queue, head, grant, admitted, batch);
            if !grant {
                break;
            }
        }
        let mut others = self.hand_off(queue, rules, admitted, batch);
        // Wakes further waiters for the permits that the woken ones leave over. They are woken in order, so that small
        // requests do not pass a larger one.
        loop {
            let Queue { lines, awake, .. } = &self.queues[queue];
            let next = self.first_asleep(&lines[PERMITS]);
            if next == NONE || admitted.holds.count() + awake + self.nodes[next].awake() > limit {
                return others;
            }
            self.open(queue, next, batch);
            others = true;
        }
    }

    /// Returns whether a waiter at the head that finds enough permits is granted them, while `kept` permits are kept
    /// for waiters.
    pub(super) fn grants_permits(&self, head: u32, kept: u32, rules: &Rules, cause: Cause) -> bool {
        let standing = &self.nodes[head].standing;
        kept > 0 && cause.is_fair(rules, Some(standing)) || rules.grants(standing)
    }

    /// Admits the writer at the head, if the holds allow it.
    #[inline]
    pub(super) fn admit_writer(
        &mut self,
        queue: u32,
        writer: u32,
        rules: &Rules,
        fair: bool,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) {
        if admitted.holds.fits(Access::Exclusive, 0) {
            let grant = fair || rules.grants(&self.nodes[writer].standing);
            self.let_in(queue, writer, grant, admitted, batch);
        }
    }

    /// Admits waiters of a reader-writer lock.
    pub(super) fn admit_modes(
        &mut self,
        queue: u32,
        rules: &Rules,
        mut fair: bool,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) {
        let Queue { lines, .. } = &self.queues[queue];
        let (writer, upgradable) = (lines[WRITERS].head, lines[UPGRADABLE].head);
        if writer != NONE && self.first(&self.queues[queue]) == writer {
            return self.admit_writer(queue, writer, rules, fair, admitted, batch);
        }
        let heads = self.heads(queue, Ticket::NONE);
        let front = self.front(&heads, admitted.holds, rules);
        // The upgradable reader is let in before the readers if its turn comes before that of the first of them, and
        // otherwise after them. The order matters if only the first waiter is granted its hold.
        let turn = self.upgradable_gets_in(&heads, admitted.holds);
        let first = self.queues[queue].lines[READERS].head;
        let reads_first = first != NONE && (!turn || self.nodes[first].turn.is_before(self.nodes[upgradable].turn));
        if turn && !reads_first {
            let grant = core::mem::take(&mut fair) || rules.grants(&self.nodes[upgradable].standing);
            self.let_in(queue, upgradable, grant, admitted, batch);
        }
        let open = rules.fairness == Fairness::Barging;
        loop {
            // If readers are only woken, those that are already awake are skipped.
            let reader = if fair || !open {
                self.queues[queue].lines[READERS].head
            } else {
                self.first_asleep(&self.queues[queue].lines[READERS])
            };
            if reader == NONE || !front.is_some_and(|front| front.has(self.nodes[reader].turn)) {
                break;
            }
            let grant = core::mem::take(&mut fair) || !open;
            self.let_in(queue, reader, grant, admitted, batch);
        }
        if turn && reads_first {
            let grant = core::mem::take(&mut fair) || rules.grants(&self.nodes[upgradable].standing);
            self.let_in(queue, upgradable, grant, admitted, batch);
        }
    }

    /// Returns the part of the queue whose readers get in alongside these holds. It ends before the first writer, and
    /// under `Fifo` also before the first upgradable reader that another one keeps out.
    pub(super) fn front(&self, heads: &[u32; LINES], holds: Holds, rules: &Rules) -> Option<Front> {
        if heads[UPGRADE] != NONE || !holds.fits(Access::Shared, 0) {
            return None;
        }
        let first = heads[UPGRADABLE];
        let blocked = match first {
            _ if rules.fairness != Fairness::Fifo => NONE,
            NONE => NONE,
            first if holds.fits(Access::Upgradable, 0) => self.nodes[first].next,
            first => first,
        };
        let end = self.earlier(heads[WRITERS], blocked);
        Some(Front { end: if end == NONE { None } else { Some(self.nodes[end].turn) } })
    }

    /// Grants a waiter its hold, or wakes it so that it can acquire the hold.
    pub(super) fn let_in(
        &mut self,
        queue: u32,
        index: u32,
        grant: bool,
        admitted: &mut Admitted,
        batch: &mut WakeBatch,
    ) {
        if grant {
            let waker = self.grant(queue, index, admitted);
            batch.wake(waker);
            return;
        }
        self.open(queue, index, batch);
    }

    /// Wakes a waiter, unless it has already been woken. The hold stays free.
    pub(super) fn open(&mut self, queue: u32, index: u32, batch: &mut WakeBatch) {
        let node = &mut self.nodes[index];
        if node.standing.is_asleep() {
            batch.wake(node.waker.take());
            node.standing.state = WaitState::Woken;
            let queue = &mut self.queues[queue];
            queue.awake += node.awake();
            queue.strike(&mut self.nodes, index);
        }
    }

    /// Grants a waiter its hold. Returns its waker, if it has not been woken already.
    pub(super) fn grant(&mut self, queue: u32, index: u32, admitted: &mut Admitted) -> Option<Waker> {
        self.unlink(queue, index);
        let node = &mut self.nodes[index];
        node.standing.state = WaitState::Granted;
        let want = node.want();
        admitted.holds = admitted.holds.after(want);
        admitted.granted += want.claims();
        node.waker.take()
    }
}
