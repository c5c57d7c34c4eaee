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

use super::wakers::WakeBatch;
use super::word::{Access, Holds, Want};
use crate::core::slab::{NONE, Slab};
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

struct Node {
    prev: u32,
    next: u32,
    want: Want,
    /// The hold is ours already; the node is in no queue.
    granted: bool,
    /// How many later requests have got in before this one while it stood at the head.
    passed: Passed,
    /// Whether an upgradable reader has got in before this writer with a readers' phase: once is part of the phase, but
    /// one that upgrades and leaves begins the next phase, and so on.
    passed_in_phase: bool,
    /// `None` once it has been woken, until it is polled again.
    waker: Option<Waker>,
}

/// The waiters of one entry, in order of arrival, but for an upgrade, which stands before all.
#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
    waiting: Waiting,
}

impl Queue {
    /// Makes two nodes neighbours. `NONE` is what is before the head and behind the tail.
    #[inline]
    fn join(&mut self, nodes: &mut Slab<Node>, left: u32, right: u32) {
        match left {
            NONE => self.head = right,
            left => nodes[left].next = right,
        }
        match right {
            NONE => self.tail = left,
            right => nodes[right].prev = left,
        }
    }
}

/// How many wait, by what they wait for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    pub(crate) upgradable: usize,
    pub(crate) permits: usize,
    pub(crate) upgrades: usize,
}

impl Waiting {
    fn of(&mut self, want: Want) -> &mut usize {
        match want {
            Want::Hold(Access::Exclusive) => &mut self.writers,
            Want::Hold(Access::Shared) => &mut self.readers,
            Want::Hold(Access::Upgradable) => &mut self.upgradable,
            Want::Hold(Access::Permits(_)) => &mut self.permits,
            Want::Upgrade => &mut self.upgrades,
        }
    }
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

/// Where a waiter stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    Granted,
    Head,
    Behind,
}

#[derive(Default)]
pub(crate) struct Queues {
    nodes: Slab<Node>,
    queues: Slab<Queue>,
}

impl Queues {
    /// The first waiter of an entry comes: a new, empty queue.
    pub(crate) fn open_queue(&mut self) -> u32 {
        self.queues.insert(Queue { head: NONE, tail: NONE, waiting: Waiting::default() })
    }

    /// Puts a waiter at the end of the queue. A waiting upgrade continues a hold: it stands at the head.
    pub(crate) fn push(&mut self, queue: u32, want: Want, waker: Waker) -> Ticket {
        let queue = &mut self.queues[queue];
        let (prev, next) = if want == Want::Upgrade { (NONE, queue.head) } else { (queue.tail, NONE) };
        let index = self.nodes.insert(Node {
            prev,
            next,
            want,
            granted: false,
            passed: 0,
            passed_in_phase: false,
            waker: Some(waker),
        });
        *queue.waiting.of(want) += 1;
        queue.join(&mut self.nodes, prev, index);
        queue.join(&mut self.nodes, index, next);
        Ticket(index)
    }

    pub(crate) fn position(&self, ticket: Ticket) -> Position {
        let node = &self.nodes[ticket.0];
        match (node.granted, node.prev) {
            (true, _) => Position::Granted,
            (false, NONE) => Position::Head,
            (false, _) => Position::Behind,
        }
    }

    /// Whether waking the waiter would wake the same task as `waker`.
    pub(crate) fn will_wake(&self, ticket: Ticket, waker: &Waker) -> bool {
        self.nodes[ticket.0].waker.as_ref().is_some_and(|kept| kept.will_wake(waker))
    }

    /// Gives a waiter a new waker and returns the old one, to be dropped outside the lock.
    pub(crate) fn renew(&mut self, ticket: Ticket, waker: Waker) -> Option<Waker> {
        self.nodes[ticket.0].waker.replace(waker)
    }

    /// Takes a waiter out, queued or granted. Returns its waker, to be dropped outside the lock.
    pub(crate) fn remove(&mut self, queue: u32, ticket: Ticket) -> Option<Waker> {
        if !self.nodes[ticket.0].granted {
            self.unlink(queue, ticket.0);
        }
        self.nodes.remove(ticket.0).waker
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
        let Queue { head, waiting, .. } = self.queues[queue];
        let Node { want, next, .. } = self.nodes[head];
        // Permits keep out when too few are left; any other access does by what it is, whoever else is there.
        let beside = if matches!(access, Access::Permits(_)) { holds } else { Holds::NONE };
        let keeps_out = waiting.writers + waiting.upgrades > 0 || !beside.with(access).allow(want, rules.limit());
        if !keeps_out {
            return true;
        }
        // While an upgrade stands before it, the first in the queue is still passed.
        let second = if want == Want::Upgrade { next } else { NONE };
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
        let phase = matches!(cause, Cause::WriterLeft | Cause::Fair { writer_left: true })
            && matches!(rules.fairness, Fairness::Bounded(_));
        if phase {
            self.admit_readers(queue, rules, &mut admitted, due);
        }
        let mut fair = matches!(cause, Cause::Fair { .. });
        // What the holds will be when everybody who was woken has come in.
        let mut expected = admitted.holds;
        let mut at = self.queues[queue].head;
        while at != NONE {
            let Node { next, want, passed, .. } = self.nodes[at];
            if expected.allow(want, rules.limit()) {
                let grant = core::mem::take(&mut fair)
                    || match rules.fairness {
                        Fairness::Fifo => true,
                        Fairness::Bounded(bound) => {
                            matches!(want, Want::Upgrade | Want::Hold(Access::Shared)) || passed >= bound
                        }
                        Fairness::Barging => false,
                    };
                if grant {
                    self.grant(queue, at, want, &mut admitted, due);
                } else {
                    due.wake(self.nodes[at].waker.take());
                }
                expected = expected.after(want);
            } else if want != Want::Hold(Access::Upgradable)
                || rules.fairness == Fairness::Fifo
                || self.queues[queue].waiting.readers == 0
            {
                break;
            }
            // An upgradable reader whose place is taken keeps nobody out who is not its like: look for readers behind it.
            at = next;
        }
        if self.queues[queue].head == NONE {
            self.queues.remove(queue);
            admitted.queued = false;
        }
        admitted
    }

    /// The readers' phase: all readers that wait get in, and one upgradable reader if its place is free. Before a writer that
    /// came earlier an upgradable reader gets in only once.
    fn admit_readers(&mut self, queue: u32, rules: &Rules, admitted: &mut Admitted, due: &mut WakeBatch) {
        let Queue { head, waiting, .. } = self.queues[queue];
        let mut readers = waiting.readers;
        let mut upgradable = waiting.upgradable > 0;
        let mut writer = NONE;
        let mut at = head;
        while at != NONE && (readers > 0 || upgradable) {
            let Node { next, want, .. } = self.nodes[at];
            match want {
                Want::Hold(Access::Shared) => {
                    readers -= 1;
                    self.grant(queue, at, want, admitted, due);
                }
                Want::Hold(Access::Upgradable) if upgradable => {
                    upgradable = false;
                    // The mark is set only if there is a place: who finds it taken has passed nobody.
                    let gets_in = admitted.holds.allow(want, rules.limit())
                        && (writer == NONE || !core::mem::replace(&mut self.nodes[writer].passed_in_phase, true));
                    if gets_in {
                        self.grant(queue, at, want, admitted, due);
                    }
                }
                Want::Hold(Access::Exclusive) if writer == NONE => writer = at,
                _ => {}
            }
            at = next;
        }
    }

    fn grant(&mut self, queue: u32, index: u32, want: Want, admitted: &mut Admitted, due: &mut WakeBatch) {
        self.unlink(queue, index);
        let node = &mut self.nodes[index];
        node.granted = true;
        due.wake(node.waker.take());
        admitted.holds = admitted.holds.after(want);
        admitted.granted += want.claims();
    }

    fn unlink(&mut self, queue: u32, index: u32) {
        let Node { prev, next, want, .. } = self.nodes[index];
        let queue = &mut self.queues[queue];
        *queue.waiting.of(want) -= 1;
        queue.join(&mut self.nodes, prev, next);
    }

    /// How many wakers [`Queues::admit`] hands out at most, beside these holds.
    pub(crate) fn most_due(&self, queue: u32, holds: Holds, rules: &Rules) -> usize {
        let waiting = &self.queues[queue].waiting;
        match rules.counted {
            Counted::Permits(limit) => waiting.permits.min(limit.saturating_sub(holds.count())),
            // Readers and one upgradable reader together, or else one writer.
            Counted::Readers => (waiting.readers + waiting.upgradable.min(1)).max(1),
        }
    }

    pub(crate) fn waiting(&self, queue: u32) -> Waiting {
        self.queues[queue].waiting
    }
}

#[cfg(test)]
impl Queues {
    /// For how many nodes there is memory.
    pub(crate) fn memory(&self) -> usize {
        self.nodes.memory()
    }

    /// Whether nobody waits anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.places() == 0
    }
}
