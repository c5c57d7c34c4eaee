//! The wait queues, and the one place where fairness is decided.
//!
//! [`Queues`] are those of all entries whose tags lead to them, behind one lock, the *queue lock*: waiters of a hot key do
//! not hold up those who look for another key in the same shard. Nothing here is atomic and nothing runs user code: wakers
//! are moved in and moved out, and the caller wakes and drops them when the lock is released.
//!
//! A waiter is a [`Node`]; its index is the *ticket*. A queued node is in its entry's queue. A granted node has left the
//! queue and stands for a hold that its waiter has not come for yet. A waiter that is merely *woken* stays queued, in its
//! position, until it enters: so it cannot lose its position to somebody who was quicker.
//!
//! # Who gets in
//! [`Queues::admit`] runs whenever waiters might get in: a hold was released or changed, a waiter gave up or admitted. It
//! goes from the head of the queue as far as the holds allow, and either *grants* (the waiter holds from now on) or
//! *opens* (the waiter is woken, the key stays free, and whoever asks first gets it):
//!
//! | | `Fifo` | `Bounded(n)` | `Barging` |
//! |---|---|---|---|
//! | head that was passed fewer than `n` times | grant | open | open |
//! | head that was passed `n` times | grant | grant | open |
//! | reader that nobody before it keeps out | grant | grant | open |
//! | when a writer has left: every waiting reader, one upgradable reader | in order only | grant | in order only |
//! | `unlock_fair`: the first that the holds allow | grant | grant | grant |
//! | a waiting upgrade, when the last reader has left | grant | grant | open |
//!
//! [`Queues::bypass`] is asked when somebody finds the key free for it, but others waiting.

use core::task::Waker;

use super::paged::Paged;
use super::wakers::WakeBatch;
use super::word::{Access, Holds, Want};
use crate::core::slab::NONE;
use crate::fairness::Fairness;

/// The largest number of requests that can be counted as having passed one waiter.
type Passed = u8;

/// A waiter's position: the index of its node, or nothing while it does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(unreachable_pub)] // a sealed trait names it
pub struct Ticket(u32);

impl Ticket {
    pub(crate) const NONE: Ticket = Ticket(NONE);

    pub(crate) fn is_some(self) -> bool {
        self.0 != NONE
    }
}

/// When a request queued. It may wrap: two that wait at the same time are less than half the range apart, unless one of them
/// waits on while so many others come and go (on 32 bits two billion; then a later reader may be taken for the earlier one).
#[derive(Clone, Copy)]
struct Arrival(usize);

impl Arrival {
    #[inline]
    fn is_before(self, other: Arrival) -> bool {
        (self.0.wrapping_sub(other.0) as isize) < 0
    }
}

struct Node {
    /// Neighbours in its line.
    prev: u32,
    next: u32,
    /// Neighbours among those of the queue that sleep, while it is one of them: towards the first, and towards the last.
    asleep: [u32; 2],
    arrival: Arrival,
    /// Of permits, how many.
    amount: u32,
    kind: Kind,
    state: NodeState,
    /// How many later requests have got in before this one while it stood at the head.
    passed: Passed,
    /// Whether an upgradable reader has got in before this writer with a readers' phase: once is part of the phase, but
    /// one that upgrades and leaves begins the next phase, and so on.
    passed_in_phase: bool,
    /// `None` once it has been woken, until it is polled again.
    waker: Option<Waker>,
}

/// What a waiter waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Exclusive = 0,
    Shared = 1,
    Upgradable = 2,
    Upgrade = 3,
    Permits = 4,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    /// It is in the queue, and sleeps.
    Asleep,
    /// It is in the queue, and has been woken: the key was left open for it.
    Woken,
    /// The hold is its own already; it is in no queue.
    Granted,
}

impl Node {
    #[inline]
    fn want(&self) -> Want {
        Want::Hold(match self.kind {
            Kind::Exclusive => Access::Exclusive,
            Kind::Shared => Access::Shared,
            Kind::Upgradable => Access::Upgradable,
            Kind::Permits => Access::Permits(self.amount),
            Kind::Upgrade => return Want::Upgrade,
        })
    }

    /// What it counts for among those that have been woken.
    #[inline]
    fn awake(&self) -> u32 {
        if self.kind == Kind::Permits { self.amount } else { 0 }
    }
}

impl Kind {
    #[inline]
    fn of(want: Want) -> (Kind, u32) {
        match want {
            Want::Hold(Access::Exclusive) => (Kind::Exclusive, 1),
            Want::Hold(Access::Shared) => (Kind::Shared, 1),
            Want::Hold(Access::Upgradable) => (Kind::Upgradable, 1),
            Want::Hold(Access::Permits(amount)) => (Kind::Permits, amount),
            Want::Upgrade => (Kind::Upgrade, 1),
        }
    }

    /// Whether those of this kind are listed while they sleep, because several may be woken at once. (Of all others only the first
    /// ever is.)
    #[inline]
    fn is_listed(self) -> bool {
        matches!(self, Kind::Shared | Kind::Permits)
    }

    /// Which line it is in. Writers and permits share one: a table has one of the two.
    #[inline]
    fn line(self) -> usize {
        self as usize % LINES
    }
}

/// Waiters of one kind, in order of arrival.
#[derive(Clone, Copy)]
struct Line {
    head: u32,
    tail: u32,
    len: u32,
}

/// The waiters of one entry. Each kind has a line of its own, so that nobody is looked for by passing others; who came first is
/// told by their arrival. There is at most one upgrade, which stands before all.
struct Queue {
    lines: [Line; LINES],
    /// How many there are in all.
    len: u32,
    /// How many permits those want that have been woken.
    awake: u32,
    /// The first and the last of the readers, or the permits, that sleep: in order of arrival, but those that have come in vain
    /// come first.
    asleep: [u32; 2],
    next_arrival: usize,
}

const WRITERS: usize = Kind::Exclusive as usize;
const READERS: usize = Kind::Shared as usize;
const UPGRADABLE: usize = Kind::Upgradable as usize;
const UPGRADE: usize = Kind::Upgrade as usize;
const PERMITS: usize = Kind::Permits as usize % LINES;
const LINES: usize = 4;

/// The two ends of those that sleep.
const FIRST: usize = 0;
const LAST: usize = 1;

/// How many wait, by what they wait for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    pub(crate) upgradable: usize,
    pub(crate) permits: usize,
    pub(crate) upgrades: usize,
}

/// What the queue goes by, the same for all keys of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) fairness: Fairness,
    pub(crate) counted: Counted,
}

/// What the count in a word is a count of: a table has readers, or it has permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    Readers,
    /// At most so many for each key.
    Permits(usize),
}

impl Rules {
    /// How many permits a key has.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        match self.counted {
            Counted::Readers => 0,
            Counted::Permits(limit) => limit,
        }
    }
}

/// Why [`Queues::admit`] is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A waiter gave up or entered, or a hold that is not exclusive was released.
    Any,
    /// A writer has left.
    WriterLeft,
    /// The first that can get in must get in, before any newcomer.
    Fair { writer_left: bool },
}

impl Cause {
    /// A hold is given up, or becomes a weaker one.
    pub(crate) fn of_leaving(access: Access, fair: bool) -> Cause {
        match (fair, access == Access::Exclusive) {
            (true, writer_left) => Cause::Fair { writer_left },
            (false, true) => Cause::WriterLeft,
            (false, false) => Cause::Any,
        }
    }

    /// Whether a phase of readers begins.
    fn begins_phase(self, rules: &Rules) -> bool {
        matches!(self, Cause::WriterLeft | Cause::Fair { writer_left: true })
            && matches!(rules.fairness, Fairness::Bounded(_))
    }
}

/// What [`Queues::admit`] decided: how the word must change, in the same critical section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admitted {
    pub(crate) holds: Holds,
    /// How many waiters' claims have become holds.
    pub(crate) granted: usize,
    /// Whether somebody still waits.
    pub(crate) queued: bool,
}

#[derive(Default)]
pub(crate) struct Queues {
    nodes: Paged<Node>,
    queues: Paged<Queue>,
}

impl Queues {
    /// The first waiter of an entry comes: a new, empty queue.
    pub(crate) fn open_queue(&mut self) -> u32 {
        let lines = [Line { head: NONE, tail: NONE, len: 0 }; LINES];
        self.queues.insert(Queue { lines, len: 0, awake: 0, asleep: [NONE; 2], next_arrival: 0 })
    }

    /// Puts a waiter at the end of the queue. A waiting upgrade continues a hold: it stands at the head.
    pub(crate) fn push(&mut self, queue: u32, want: Want, waker: Waker) -> Ticket {
        let queue = &mut self.queues[queue];
        let (kind, amount) = Kind::of(want);
        let arrival = Arrival(queue.next_arrival);
        queue.next_arrival = queue.next_arrival.wrapping_add(1);
        queue.len += 1;
        let line = &mut queue.lines[kind.line()];
        line.len += 1;
        let prev = line.tail;
        let index = self.nodes.insert(Node {
            prev,
            next: NONE,
            asleep: [NONE; 2],
            arrival,
            amount,
            kind,
            state: NodeState::Asleep,
            passed: 0,
            passed_in_phase: false,
            waker: Some(waker),
        });
        line.tail = index;
        match prev {
            NONE => line.head = index,
            prev => self.nodes[prev].next = index,
        }
        if kind.is_listed() {
            queue.list_asleep(&mut self.nodes, index, LAST);
        }
        Ticket(index)
    }

    /// Whether the hold is the waiter's already.
    #[inline]
    pub(crate) fn is_granted(&self, ticket: Ticket) -> bool {
        self.nodes[ticket.0].state == NodeState::Granted
    }

    /// Whether a waiter that has not been granted its hold stands at the head.
    #[inline]
    pub(crate) fn is_head(&self, queue: u32, ticket: Ticket) -> bool {
        self.head(&self.queues[queue]) == ticket.0
    }

    /// The waiter at the head.
    #[inline]
    fn head(&self, queue: &Queue) -> u32 {
        match queue.lines[UPGRADE].head {
            NONE => self.first(queue),
            upgrade => upgrade,
        }
    }

    /// Who came first, but for an upgrade.
    #[inline]
    fn first(&self, queue: &Queue) -> u32 {
        let Queue { lines, len, .. } = queue;
        if lines[WRITERS].len == *len {
            return lines[WRITERS].head;
        }
        self.earlier(self.earlier(lines[WRITERS].head, lines[READERS].head), lines[UPGRADABLE].head)
    }

    /// Which of two came first, where there may be one, or none.
    #[inline]
    fn earlier(&self, left: u32, right: u32) -> u32 {
        match (left, right) {
            (left, NONE) => left,
            (NONE, right) => right,
            (left, right) if self.nodes[left].arrival.is_before(self.nodes[right].arrival) => left,
            (_, right) => right,
        }
    }

    /// Gives a waiter that came in vain a new waker, unless `waker` would wake the same task as the one that it has. Takes the
    /// new one from the batch, and leaves the old one there, to be dropped outside the lock. `false` if there is none to take.
    pub(crate) fn sleep(&mut self, queue: u32, ticket: Ticket, waker: &Waker, batch: &mut WakeBatch) -> bool {
        let node = &mut self.nodes[ticket.0];
        if node.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return true;
        }
        let Some(fresh) = batch.fresh.take() else { return false };
        batch.old = node.waker.replace(fresh);
        if core::mem::replace(&mut node.state, NodeState::Asleep) == NodeState::Woken && node.kind.is_listed() {
            let queue = &mut self.queues[queue];
            queue.awake -= node.awake();
            queue.list_asleep(&mut self.nodes, ticket.0, FIRST);
        }
        true
    }

    /// Whether [`Queues::most_due`] need not be asked: no more wakers than these can be due.
    #[inline]
    pub(crate) fn len(&self, queue: u32) -> usize {
        self.queues[queue].len as usize
    }

    /// Takes a waiter out, queued or granted. Returns its waker, to be dropped outside the lock.
    #[inline]
    pub(crate) fn remove(&mut self, queue: u32, ticket: Ticket) -> Option<Waker> {
        let node = &mut self.nodes[ticket.0];
        let waker = node.waker.take();
        if node.state != NodeState::Granted {
            self.unlink(queue, ticket.0);
        }
        self.nodes.delete(ticket.0);
        waker
    }

    /// Whether a newcomer, which the holds allow, may get in before those who wait. Counts it if so.
    ///
    /// The count is kept with the waiter that is passed: whoever comes to the head starts from zero.
    pub(crate) fn bypass(&mut self, queue: u32, holds: Holds, access: Access, rules: &Rules) -> bool {
        let bound = match rules.fairness {
            Fairness::Fifo => return false,
            Fairness::Barging => return true,
            Fairness::Bounded(bound) => bound,
        };
        let queue = &self.queues[queue];
        let (head, upgrade) = (self.head(queue), queue.lines[UPGRADE].head);
        // Permits keep out when too few are left; any other access does by what it is, whoever else is there.
        let (beside, writers) = match access {
            Access::Permits(_) => (holds, false),
            _ => (Holds::NONE, queue.lines[WRITERS].len > 0 || upgrade != NONE),
        };
        if !writers && beside.with(access).allow(self.nodes[head].want(), rules.limit()) {
            return true;
        }
        // While an upgrade stands before it, the first in the queue is still passed.
        let second = if upgrade == NONE { NONE } else { self.first(queue) };
        let passed = [head, second].into_iter().filter(|&node| node != NONE);
        let may = passed.clone().all(|node| self.nodes[node].passed < bound);
        passed.for_each(|node| self.nodes[node].passed += Passed::from(may));
        may
    }

    /// Lets in whoever the rules admit now, beside `holds`. See the module's table.
    pub(crate) fn admit(
        &mut self,
        queue: u32,
        holds: Holds,
        rules: &Rules,
        cause: Cause,
        due: &mut WakeBatch,
    ) -> Admitted {
        let mut admitted = Admitted { holds, granted: 0, queued: true };
        let Queue { lines, len, .. } = &self.queues[queue];
        if *len == 0 {
            return self.close(queue, admitted);
        }
        let (upgrade, writer, others) = (lines[UPGRADE].head, lines[WRITERS].head, *len - lines[WRITERS].len);
        let fair = matches!(cause, Cause::Fair { .. });
        if upgrade != NONE {
            // If it is kept out, so are all behind it.
            if admitted.holds.allow(Want::Upgrade, 0) {
                let grant = fair || rules.fairness != Fairness::Barging;
                self.let_in(queue, upgrade, grant, &mut admitted, due);
            }
        } else if let Counted::Permits(limit) = rules.counted {
            self.admit_permits(queue, limit, rules, fair, &mut admitted, due);
        } else if others == 0 {
            self.admit_writer(queue, writer, rules, fair, &mut admitted, due);
        } else {
            if cause.begins_phase(rules) {
                self.begin_phase(queue, rules, &mut admitted, due);
            }
            self.admit_modes(queue, rules, fair, &mut admitted, due);
        }
        if admitted.holds != holds && self.queues[queue].len == 0 { self.close(queue, admitted) } else { admitted }
    }

    /// The last waiter of an entry has gone.
    fn close(&mut self, queue: u32, admitted: Admitted) -> Admitted {
        self.queues.delete(queue);
        Admitted { queued: false, ..admitted }
    }

    /// The readers' phase: all readers that wait get in, and one upgradable reader if its place is free. Before a writer that
    /// came earlier an upgradable reader gets in only once.
    fn begin_phase(&mut self, queue: u32, rules: &Rules, admitted: &mut Admitted, due: &mut WakeBatch) {
        loop {
            let reader = self.queues[queue].lines[READERS].head;
            if reader == NONE {
                break;
            }
            self.let_in(queue, reader, true, admitted, due);
        }
        let Queue { lines, .. } = &self.queues[queue];
        let (writer, upgradable) = (lines[WRITERS].head, lines[UPGRADABLE].head);
        if upgradable == NONE || !admitted.holds.fits(Access::Upgradable, rules.limit()) {
            return;
        }
        // The mark is set only if there is a place: who finds it taken has passed nobody.
        let passes = writer != NONE && self.nodes[writer].arrival.is_before(self.nodes[upgradable].arrival);
        if !passes || !core::mem::replace(&mut self.nodes[writer].passed_in_phase, true) {
            self.let_in(queue, upgradable, true, admitted, due);
        }
    }

    /// Those of a semaphore: as many as there are permits for. Who does not find enough keeps out all behind it.
    fn admit_permits(
        &mut self,
        queue: u32,
        limit: usize,
        rules: &Rules,
        mut fair: bool,
        admitted: &mut Admitted,
        due: &mut WakeBatch,
    ) {
        loop {
            let head = self.queues[queue].lines[PERMITS].head;
            if head == NONE || !admitted.holds.allow(self.nodes[head].want(), limit) {
                return;
            }
            let grant = core::mem::take(&mut fair) || rules.grants(self.nodes[head].passed);
            self.let_in(queue, head, grant, admitted, due);
            if !grant {
                break;
            }
        }
        // The others are woken for what those leave that have been woken already.
        loop {
            let Queue { asleep: [next, _], awake, .. } = self.queues[queue];
            if next == NONE || admitted.holds.count() + (awake + self.nodes[next].amount) as usize > limit {
                return;
            }
            self.let_in(queue, next, false, admitted, due);
        }
    }

    /// The writer at the head.
    #[inline]
    fn admit_writer(
        &mut self,
        queue: u32,
        writer: u32,
        rules: &Rules,
        fair: bool,
        admitted: &mut Admitted,
        due: &mut WakeBatch,
    ) {
        if admitted.holds.fits(Access::Exclusive, 0) {
            let grant = fair || rules.grants(self.nodes[writer].passed);
            self.let_in(queue, writer, grant, admitted, due);
        }
    }

    /// Those of a reader-writer lock.
    fn admit_modes(&mut self, queue: u32, rules: &Rules, mut fair: bool, admitted: &mut Admitted, due: &mut WakeBatch) {
        let Queue { lines, .. } = &self.queues[queue];
        let (writer, upgradable) = (lines[WRITERS].head, lines[UPGRADABLE].head);
        if writer != NONE && self.first(&self.queues[queue]) == writer {
            return self.admit_writer(queue, writer, rules, fair, admitted, due);
        }
        let front = self.front(queue, admitted.holds, rules);
        // The upgradable reader's turn comes before that of readers who came later.
        let turn = self.upgradable_gets_in(queue, admitted.holds);
        let first = self.queues[queue].lines[READERS].head;
        let reads_first =
            first != NONE && (!turn || self.nodes[first].arrival.is_before(self.nodes[upgradable].arrival));
        if turn && !reads_first {
            let grant = core::mem::take(&mut fair) || rules.grants(self.nodes[upgradable].passed);
            self.let_in(queue, upgradable, grant, admitted, due);
        }
        let open = rules.fairness == Fairness::Barging;
        loop {
            // Where readers are granted, nobody of their line has been woken.
            let reader =
                if fair || !open { self.queues[queue].lines[READERS].head } else { self.queues[queue].asleep[FIRST] };
            if reader == NONE || !front.is_some_and(|front| front.has(self.nodes[reader].arrival)) {
                break;
            }
            let grant = core::mem::take(&mut fair) || !open;
            self.let_in(queue, reader, grant, admitted, due);
        }
        if turn && reads_first {
            let grant = core::mem::take(&mut fair) || rules.grants(self.nodes[upgradable].passed);
            self.let_in(queue, upgradable, grant, admitted, due);
        }
    }

    /// The part of the queue whose readers get in beside these holds: before the first writer, and under `Fifo` before an
    /// upgradable reader whose place is taken.
    fn front(&self, queue: u32, holds: Holds, rules: &Rules) -> Option<Front> {
        let Queue { lines, .. } = &self.queues[queue];
        if lines[UPGRADE].len > 0 || !holds.fits(Access::Shared, 0) {
            return None;
        }
        let first = lines[UPGRADABLE].head;
        let blocked = match first {
            _ if rules.fairness != Fairness::Fifo => NONE,
            NONE => NONE,
            first if holds.fits(Access::Upgradable, 0) => self.nodes[first].next,
            first => first,
        };
        let end = self.earlier(lines[WRITERS].head, blocked);
        Some(Front { end: if end == NONE { None } else { Some(self.nodes[end].arrival) } })
    }

    /// Grants a waiter its hold, or wakes it so that it may come for it.
    fn let_in(&mut self, queue: u32, index: u32, grant: bool, admitted: &mut Admitted, due: &mut WakeBatch) {
        let node = &mut self.nodes[index];
        if grant {
            due.wake(node.waker.take());
            let want = node.want();
            admitted.holds = admitted.holds.after(want);
            admitted.granted += want.claims();
            self.unlink(queue, index);
            self.nodes[index].state = NodeState::Granted;
        } else if node.state == NodeState::Asleep {
            due.wake(node.waker.take());
            node.state = NodeState::Woken;
            if node.kind.is_listed() {
                let queue = &mut self.queues[queue];
                queue.awake += node.awake();
                queue.unlist_asleep(&mut self.nodes, index);
            }
        }
    }

    #[inline]
    fn unlink(&mut self, queue: u32, index: u32) {
        let queue = &mut self.queues[queue];
        let Node { prev, next, kind, state, .. } = self.nodes[index];
        if kind.is_listed() {
            match state {
                NodeState::Asleep => queue.unlist_asleep(&mut self.nodes, index),
                _ => queue.awake -= self.nodes[index].awake(),
            }
        }
        queue.len -= 1;
        let line = &mut queue.lines[kind.line()];
        line.len -= 1;
        match prev {
            NONE => line.head = next,
            prev => self.nodes[prev].next = next,
        }
        match next {
            NONE => line.tail = prev,
            next => self.nodes[next].prev = prev,
        }
    }

    /// How many wakers [`Queues::admit`] hands out at most, beside these holds. It looks at no more of them than it will hand
    /// out.
    pub(crate) fn most_due(&self, queue: u32, holds: Holds, rules: &Rules, cause: Cause) -> usize {
        let Queue { lines, awake, asleep, .. } = &self.queues[queue];
        if let Counted::Permits(limit) = rules.counted {
            let free = limit.saturating_sub(holds.count());
            let fits = lines[PERMITS].head != NONE && holds.allow(self.nodes[lines[PERMITS].head].want(), limit);
            // The head, and who else finds permits.
            return if fits { free.saturating_sub(*awake as usize).clamp(1, lines[PERMITS].len as usize) } else { 0 };
        }
        if cause.begins_phase(rules) && lines[READERS].len > 0 {
            // Nobody is let in beside them but one upgradable reader.
            return lines[READERS].len as usize + usize::from(lines[UPGRADABLE].len > 0);
        }
        let head = self.head(&self.queues[queue]);
        if head == lines[UPGRADE].head || head == lines[WRITERS].head {
            return usize::from(head != NONE && holds.allow(self.nodes[head].want(), 0));
        }
        let mut due = usize::from(self.upgradable_gets_in(queue, holds));
        if let Some(front) = self.front(queue, holds, rules) {
            let barging = rules.fairness == Fairness::Barging;
            let mut at = if barging { asleep[FIRST] } else { lines[READERS].head };
            while at != NONE && front.has(self.nodes[at].arrival) {
                due += 1;
                at = if barging { self.nodes[at].asleep[LAST] } else { self.nodes[at].next };
            }
        }
        due
    }

    /// Whether there is a place for the first upgradable reader, and no writer before it.
    fn upgradable_gets_in(&self, queue: u32, holds: Holds) -> bool {
        let Queue { lines, .. } = &self.queues[queue];
        let (writer, upgradable) = (lines[WRITERS].head, lines[UPGRADABLE].head);
        upgradable != NONE
            && holds.fits(Access::Upgradable, 0)
            && (writer == NONE || self.nodes[upgradable].arrival.is_before(self.nodes[writer].arrival))
    }

    pub(crate) fn waiting(&self, queue: u32, counted: Counted) -> Waiting {
        let len = |line: usize| self.queues[queue].lines[line].len as usize;
        let (writers, permits) = if counted == Counted::Readers { (len(WRITERS), 0) } else { (0, len(PERMITS)) };
        Waiting { writers, readers: len(READERS), upgradable: len(UPGRADABLE), permits, upgrades: len(UPGRADE) }
    }
}

impl Rules {
    /// Whether a waiter at the head that may get in, and has been passed so often, is given its hold. (Readers and upgrades are
    /// unless the policy is `Barging`.)
    fn grants(&self, passed: Passed) -> bool {
        match self.fairness {
            Fairness::Fifo => true,
            Fairness::Bounded(bound) => passed >= bound,
            Fairness::Barging => false,
        }
    }
}

/// The part of a queue that ends with the first whom the readers do not pass.
#[derive(Clone, Copy)]
struct Front {
    end: Option<Arrival>,
}

impl Front {
    #[inline]
    fn has(self, arrival: Arrival) -> bool {
        self.end.is_none_or(|end| arrival.is_before(end))
    }
}

impl Queue {
    /// Puts a waiter at one end of those that sleep.
    fn list_asleep(&mut self, nodes: &mut Paged<Node>, index: u32, end: usize) {
        let neighbour = core::mem::replace(&mut self.asleep[end], index);
        let node = &mut nodes[index];
        node.asleep[end] = NONE;
        node.asleep[1 - end] = neighbour;
        match neighbour {
            NONE => self.asleep[1 - end] = index,
            neighbour => nodes[neighbour].asleep[end] = index,
        }
    }

    fn unlist_asleep(&mut self, nodes: &mut Paged<Node>, index: u32) {
        let [before, after] = nodes[index].asleep;
        for (end, neighbour, other) in [(FIRST, before, after), (LAST, after, before)] {
            match neighbour {
                NONE => self.asleep[end] = other,
                neighbour => nodes[neighbour].asleep[1 - end] = other,
            }
        }
    }
}

#[cfg(test)]
impl Queues {
    /// For how many nodes there is memory.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.memory()
    }

    /// Whether a waiter is in the queue, and has not been woken since it last came.
    pub(crate) fn sleeps(&self, ticket: Ticket) -> bool {
        self.nodes[ticket.0].state == NodeState::Asleep
    }

    /// Whether nobody waits anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }
}
